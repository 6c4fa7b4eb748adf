"""`biro image`: make a dirty image of the data, of a model, or of the residuals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biro.cli.guard import guard, print_json, refuse_existing, say
from biro.cli.options import (
    Backend,
    BackendOption,
    CellOption,
    JsonFlag,
    MemoryOption,
    ObservedSets,
    ReadingOptions,
    RobustOption,
    SizeOption,
    SkyFrameOption,
    Weighting,
    WeightingOption,
    What,
    takes_reading_options,
)
from biro.cli.sky import read_sky_or_run
from biro.run.environment import plain_pictures


@guard
@takes_reading_options()
def image(
    obs: ObservedSets,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="NAME", help="Writes NAME.fits, NAME-psf.fits, NAME.png."),
    ],
    model: Annotated[
        Path | None,
        typer.Option(metavar="SKY", help="TOML model, component list, or run directory (its best fit)."),
    ] = None,
    what: Annotated[
        What | None, typer.Option(help="What is imaged. Default: data, or with --model the residual.")
    ] = None,
    weighting: WeightingOption = Weighting.natural,
    robust: RobustOption = None,
    cell: CellOption = None,
    size: SizeOption = None,
    accuracy: Annotated[float, typer.Option(help="Relative error of the image.")] = 1e-4,
    gaussian_frame: SkyFrameOption = None,
    backend: BackendOption = Backend.auto,
    memory_limit: MemoryOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files.")] = False,
    as_json: JsonFlag = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Make a dirty image with its point spread function."""
    from biro.errors import InputError
    from biro.images.dirty_image import image_files
    from biro.images.imager import image as make_image
    from biro.reading import read
    from biro.simulation.prediction import predict

    chosen = what or (What.data if model is None else What.residual)
    if chosen is not What.data and model is None:
        raise InputError(f"an image of the {chosen.value} needs --model")
    if chosen is What.data and model is not None:
        raise InputError("--model is not used for an image of the data; give --what model or --what residual")
    refuse_existing(image_files(output), overwrite)
    sky = read_sky_or_run(model, gaussian_frame) if model is not None else None
    observation = read(obs, **reading)
    vis = None
    if sky is not None:
        predicted = predict(
            observation,
            sky.model,
            values=sky.values,
            backend=backend.value,
            gaussian_frame=sky.gaussian_frame,
            memory_limit=memory_limit,
        )
        vis = list(predicted)
    dirty = make_image(
        observation,
        chosen.value,
        model=vis,
        stokes=reading.get("stokes"),
        weighting=weighting.value,
        robust=robust,
        cell=cell,
        n_pixel=size,
        accuracy=accuracy,
        backend=backend.value,
        memory_limit=memory_limit,
    )
    plain_pictures()
    paths = dirty.save(output, overwrite=overwrite)
    if as_json:
        print_json(dirty.to_dict() | {"files": [str(path) for path in paths]})
    else:
        typer.echo(str(dirty))
    say(f"written: {', '.join(map(str, paths))}")
