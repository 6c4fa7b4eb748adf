"""`biro predict`: write the model visibilities of a sky into a column."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from biro.cli.guard import guard, say
from biro.cli.options import (
    AnyPrecision,
    Backend,
    BackendOption,
    Interpolation,
    MemoryOption,
    Observed,
    ReadingOptions,
    SkyFrameOption,
    takes_reading_options,
)
from biro.cli.sky import NamedSky, read_sky_or_run


@guard
@takes_reading_options(
    "column",
    "weight_column",
    "uv_range",
    "stokes",
    "autocorrelations",
    "average_time",
    "average_channels",
    "smearing_radius",
)
def predict(
    obs: Observed,
    sky: Annotated[
        Path | None,
        typer.Argument(metavar="SKY", help="TOML model, component list, or run directory (its best fit)."),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(help="FITS image of the sky: alone, or added to SKY and seen through its beam."),
    ] = None,
    interpolation: Annotated[
        Interpolation, typer.Option(help="How to interpolate between the planes of a cube.")
    ] = Interpolation.linear,
    accuracy: Annotated[
        float, typer.Option(help="Rms error of an image's visibilities over their rms.")
    ] = 1e-5,
    column: Annotated[
        str, typer.Option(help="Column to write; made where it does not exist.")
    ] = "MODEL_DATA",
    add: Annotated[bool, typer.Option("--add", help="Add the model to the values of the column.")] = False,
    subtract: Annotated[
        bool, typer.Option("--subtract", help="Subtract the model from the values of the column.")
    ] = False,
    source_column: Annotated[
        str | None,
        typer.Option("--from", metavar="COLUMN", help="Add to, or subtract from, this column instead."),
    ] = None,
    precision: Annotated[AnyPrecision, typer.Option(help="Of the sums over sources.")] = AnyPrecision.auto,
    gaussian_frame: SkyFrameOption = None,
    backend: BackendOption = Backend.auto,
    memory_limit: MemoryOption = None,
    *,
    reading: ReadingOptions,
) -> None:
    """Write model visibilities into a column."""
    from biro.errors import InputError
    from biro.images.fits import read_image
    from biro.measurement_set import read_ms, write_column
    from biro.progress import counted
    from biro.simulation.prediction import check_image, resolve_precision
    from biro.simulation.prediction import predict as predict_vis

    if add and subtract:
        raise InputError("give --add or --subtract, not both")
    if source_column and not (add or subtract):
        raise InputError("--from needs --add or --subtract")
    if sky is None and image is None:
        raise InputError("give SKY, --image, or both")
    named = read_sky_or_run(sky, gaussian_frame) if sky is not None else NamedSky()
    model_image = read_image(image, interpolation=interpolation.value) if image is not None else None
    # DATA is the only column that no earlier run can have left half-written.
    observation = read_ms(obs, column="DATA", autocorrelations=True, allow_unusable=True, **reading)
    if model_image is not None:
        check_image(observation, model_image, str(image))
    chosen = resolve_precision(precision.value, backend.value)
    models = predict_vis(
        observation,
        named.model,
        image=model_image,
        accuracy=accuracy,
        values=named.values,
        backend=backend.value,
        precision=chosen,
        gaussian_frame=named.gaussian_frame,
        memory_limit=memory_limit,
    )
    mode: Literal["add", "subtract", "replace"] = "add" if add else "subtract" if subtract else "replace"
    limit = reading.get("time_limit", 30.0)
    counting = counted(models, "predicting", "partitions", len(observation.partitions))
    report = write_column(
        obs, column, observation, counting, mode=mode, source_column=source_column, time_limit=limit
    )
    existence = "made" if report.created else "was there"
    rows = f"{report.rows_written} rows written, {report.rows_kept} as before"
    exactness = f"accuracy {accuracy:g}" if sky is None else f"{chosen} precision"
    say(f"{column} ({existence}), {exactness}: {rows}")
