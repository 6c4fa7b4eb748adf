"""`biro image`: make a dirty image, or a spectral cube, of the data, of a model, or of the residuals."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biro.choices import Imaged
from biro.cli.guard import guard, print_json, refuse_existing, say
from biro.cli.options import (
    AxisOption,
    BackendOption,
    CacheOption,
    CellOption,
    ChannelsPerPlaneOption,
    CubeFlag,
    DensityOption,
    EngineOption,
    JsonFlag,
    MemoryOption,
    ObservedSets,
    PlaneDevicesOption,
    ReadingOptions,
    RestFreqOption,
    RobustOption,
    SizeOption,
    SkyFrameOption,
    SpectralFrameOption,
    WeightingOption,
    devices_of,
    takes_reading_options,
)
from biro.cli.sky import read_sky_or_run
from biro.run.environment import plain_pictures

if TYPE_CHECKING:
    from biro.display.stages import Stages
    from biro.imaging.cubes.figures import SavedCube
    from biro.imaging.dirty_image import DirtyImage

log = logging.getLogger(__name__)


@guard
@takes_reading_options()
def image(
    obs: ObservedSets,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="NAME",
            help="Name of the files to write: NAME.fits, NAME-psf.fits, NAME.png.",
        ),
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="SKY",
            help=(
                "Model to image or to subtract: TOML model, component list, or run directory (its best fit)."
            ),
        ),
    ] = None,
    what: Annotated[
        Imaged | None,
        typer.Option(help="What to image. Default: data, or the residual if --model is given."),
    ] = None,
    weighting: WeightingOption = "natural",
    robust: RobustOption = None,
    cell: CellOption = None,
    size: SizeOption = None,
    accuracy: Annotated[float, typer.Option(help="Relative error of the image.")] = 1e-4,
    engine: EngineOption = "auto",
    gaussian_frame: SkyFrameOption = None,
    backend: BackendOption = "auto",
    memory_limit: MemoryOption = None,
    cache: CacheOption = None,
    cube: CubeFlag = False,
    frame: SpectralFrameOption = None,
    channels_per_plane: ChannelsPerPlaneOption = None,
    rest_freq: RestFreqOption = None,
    axis: AxisOption = None,
    density: DensityOption = None,
    devices: PlaneDevicesOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files.")] = False,
    as_json: JsonFlag = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Make a dirty image or a spectral cube, with its PSF.

    `mpiexec -n N biro image` shares the rows among N processes.
    """
    from biro.display.stages import Stages
    from biro.distributed.world import world
    from biro.errors import InputError
    from biro.imaging.dirty_image import image_files
    from biro.imaging.image import image as make_image
    from biro.imaging.imager import ImagingOptions
    from biro.io.reading import read

    comm = world()
    chosen = what or ("data" if model is None else "residual")
    if chosen != "data" and model is None:
        raise InputError(f"an image of the {chosen} needs --model")
    if chosen == "data" and model is not None:
        raise InputError("an image of the data does not use --model; give --what model or --what residual")
    planes = _stated(
        frame=frame,
        channels_per_plane=channels_per_plane,
        rest_freq=rest_freq,
        axis=axis,
        density=density,
        devices=devices,
    )
    if planes and not cube:
        names = ", ".join("--" + name.replace("_", "-") for name in planes)
        raise InputError(f"{names}: for spectral cubes only; add --cube")
    refuse_existing(_cube_files(output) if cube else image_files(output), overwrite)
    stages = Stages()
    sky = read_sky_or_run(model, gaussian_frame) if model is not None else None
    began = time.perf_counter()
    observation = read(obs, **reading, comm=comm, cache=cache)
    for line in observation.reading_lines:
        say(line)
    n_vis = sum(part.n_row * part.n_chan for part in observation.partitions)
    stages.add("reading", time.perf_counter() - began, n_vis)
    vis = None
    if sky is not None:
        from biro.simulation.prediction import predict

        with stages.timed("prediction", n_vis):
            predicted = predict(
                observation,
                sky.model,
                values=sky.values,
                engine=engine,
                backend=backend,
                gaussian_frame=sky.gaussian_frame,
                memory_limit=memory_limit,
            )
            vis = list(predicted)
    imaging: ImagingOptions = {
        "stokes": reading.get("stokes"),
        "weighting": weighting,
        "robust": robust,
        "cell": cell,
        "size": size,
        "accuracy": accuracy,
        "engine": engine,
        "backend": backend,
        "memory_limit": memory_limit,
    }
    if cube:
        from biro.imaging.cubes.pictures import draw_files

        if devices is not None:
            planes["devices"] = devices_of(devices)
        saved = make_image(observation, chosen, model=vis, cube=True, **imaging, **planes).save(
            output, overwrite=overwrite
        )
        stages.include(saved.stages)
        plain_pictures()
        with stages.timed("writing"):
            drawn = draw_files(saved)
        _report(saved, [*saved.files, *drawn], stages, as_json)
        return
    dirty = make_image(observation, chosen, model=vis, **imaging)
    stages.include(dirty.stages)
    plain_pictures()
    with stages.timed("writing"):
        paths = dirty.save(output, overwrite=overwrite)
    _report(dirty, paths, stages, as_json)


def _cube_files(output: Path) -> list[Path]:
    """What `--cube` writes."""
    from biro.imaging.cubes.cube import cube_files
    from biro.imaging.cubes.pictures import picture_files

    return [*cube_files(output), *picture_files(output)]


def _stated(**options: str | int | None) -> dict[str, Any]:
    """The options that were given, as plain text and numbers."""
    given = {name: value for name, value in options.items() if value is not None}
    return dict(given)


def _report(made: DirtyImage | SavedCube, paths: Sequence[Path], stages: Stages, as_json: bool) -> None:
    """Print figures, files, and what each stage took."""
    if as_json:
        print_json(made.to_dict() | {"files": [str(path) for path in paths], "stages": stages.to_dict()})
    else:
        typer.echo(str(made))
    log.info("%s", stages)
    say(f"written: {', '.join(map(str, paths))}")
