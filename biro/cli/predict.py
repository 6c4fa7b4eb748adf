"""`biro predict`: write the model visibilities of a sky into a column, or into a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biro.choices import SmearingMode
from biro.cli.guard import guard, refuse_existing, say
from biro.cli.options import (
    BackendOption,
    EngineOption,
    MemoryOption,
    Observed,
    ReadingOptions,
    SkyFrameOption,
    SmearingOption,
    takes_reading_options,
)
from biro.cli.sky import NamedSky, check_order, read_sky_or_run
from biro.models.choices import Interpolation
from rime_kernels.choices import AnyPrecision

if TYPE_CHECKING:
    from biro.choices import SmearingMode
    from biro.distributed.remote_data import Model
    from biro.io.data_set.writable_models import Mode as Written
    from biro.observation.observation import Observation

MODEL_COLUMN = "MODEL_DATA"
"""The column that is written where none is named."""


@guard
@takes_reading_options(
    "column",
    "weight_column",
    "uv_range",
    "stokes",
    "weights",
    "taper",
    "autocorrelations",
    "average_time",
    "average_channels",
    "smearing_radius",
    "flagger",
)
def predict(
    obs: Observed,
    sky: Annotated[
        Path | None,
        typer.Argument(metavar="SKY", help="TOML model, component list, or run directory (its best fit)."),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(
            help="FITS image of the sky. With SKY, biro adds the two and applies the beam of SKY to both."
        ),
    ] = None,
    interpolation: Annotated[
        Interpolation, typer.Option(help="Interpolation between the planes of a cube.")
    ] = "linear",
    accuracy: Annotated[
        float, typer.Option(help="Relative rms error of the visibilities that biro predicts from an image.")
    ] = 1e-5,
    engine: EngineOption = "auto",
    column: Annotated[
        str | None,
        typer.Option(
            help="Column to write. biro creates it if it does not exist.", show_default=MODEL_COLUMN
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a file instead of a column: FILE.npz, or, if OBS is UVFITS, a copy FILE.uvfits.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
    add: Annotated[bool, typer.Option("--add", help="Add the model to the column.")] = False,
    subtract: Annotated[bool, typer.Option("--subtract", help="Subtract the model from the column.")] = False,
    source_column: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="COLUMN",
            help="Column to add to or subtract from. Default: the column to write.",
        ),
    ] = None,
    precision: Annotated[
        AnyPrecision,
        typer.Option(
            help=(
                "Precision of the model visibilities. auto: single on a GPU with slow double precision, "
                "else double."
            )
        ),
    ] = "auto",
    gaussian_frame: SkyFrameOption = None,
    smearing: SmearingOption = "auto",
    backend: BackendOption = "auto",
    memory_limit: MemoryOption = None,
    *,
    reading: ReadingOptions,
) -> None:
    """Write model visibilities into a column or a file.

    `mpiexec -n N biro predict` shares the rows among N processes, each of which writes its own.
    """
    from biro.display.progress import counted
    from biro.distributed.world import world
    from biro.imaging.fits import read_image
    from biro.io.measurement_set.storage import TIME_LIMIT, ask_storage
    from biro.io.reading import read
    from biro.simulation.prediction import check_image, resolve_precision
    from biro.simulation.prediction import predict as predict_vis

    comm = world()
    mode = _mode(add, subtract, source_column, out)
    limit = reading.get("time_limit", TIME_LIMIT)
    is_folder = ask_storage(obs, limit, "looking at it", obs.is_dir)
    check_order(obs, sky or image, "--image")
    _check_target(obs, is_folder, column, out, overwrite)
    named = read_sky_or_run(sky, gaussian_frame) if sky is not None else NamedSky()
    model_image = read_image(image, interpolation=interpolation) if image is not None else None
    # DATA is the only column that no earlier run can have left incomplete.
    data = "DATA" if is_folder else None
    observation = read(obs, column=data, autocorrelations=True, allow_unusable=True, **reading, comm=comm)
    if model_image is not None:
        check_image(observation, model_image, str(image))
    chosen = resolve_precision(precision, backend)
    base = source_column or column or MODEL_COLUMN
    if mode != "replace" and is_folder and (line := _other_base(named, base)):
        say(line)
    smears = _smearing(smearing, named, len(observation.partitions))
    models = predict_vis(
        observation,
        named.model,
        image=model_image,
        accuracy=accuracy,
        engine=engine,
        values=named.values,
        backend=backend,
        precision=chosen,
        gaussian_frame=named.gaussian_frame,
        memory_limit=memory_limit,
        smearing=smears,
        say=_said(smearing, is_of_run=smearing == "auto" and smears != "auto"),
    )
    counting = counted(models, "predicting", "partitions", len(observation.partitions))
    exactness = f"accuracy {accuracy:g}" if sky is None else f"{chosen} precision"
    if out is not None:
        say(f"{out}, {exactness}: {_write_file(obs, out, observation, counting, mode)}")
        return
    written = _write_column(obs, column or MODEL_COLUMN, observation, counting, mode, source_column, limit)
    say(written.format(exactness=exactness))


def _smearing(
    asked: SmearingMode, named: NamedSky, n_partition: int
) -> SmearingMode | Sequence[SmearingMode]:
    """Whether models are averaged: as a run was unless the user chose, where its partitions are those."""
    if asked != "auto" or not named.smearing:
        return asked
    if len(set(named.smearing)) == 1:
        return named.smearing[0]
    return named.smearing if len(named.smearing) == n_partition else "auto"


def _said(smearing: SmearingMode, *, is_of_run: bool) -> Callable[[str], None]:
    """What says how a model was predicted, and how to predict it as other programs do."""
    from biro.observation.smearing import REQUESTED

    def said(line: str) -> None:
        if is_of_run:
            line = line.replace(REQUESTED, "as in the run")
        if smearing == "auto" and line.startswith("smearing on"):
            line += ". DP3, WSClean and CASA do not apply it; --smearing off does as they do"
        say(line)

    return said


def _other_base(named: NamedSky, base: str) -> str:
    """What to say where the model of a run meets other data than it was fitted to; empty where it does not.

    Parameters
    ----------
    named : NamedSky
    base : str
        The column that the model is added to or subtracted from.
    """
    fitted = named.column
    if base == fitted or {base, fitted} != {"DATA", "CORRECTED_DATA"}:
        return ""
    return (
        f"CAUTION: the run was fitted to {fitted}, and {base} differs from it by the calibration. Give "
        f"--from {fitted}, unless the model has the gains of {base}"
    )


def _mode(add: bool, subtract: bool, source_column: str | None, out: Path | None) -> Written:
    """What is written: the model, or data with it added or subtracted.

    Raises
    ------
    InputError
        Options that contradict each other.
    """
    from biro.errors import InputError

    if add and subtract:
        raise InputError("give --add or --subtract, not both")
    if source_column and out is not None:
        raise InputError("--from names a column, but --out writes a file; leave one of them out")
    if source_column and not (add or subtract):
        raise InputError("--from needs --add or --subtract")
    if out is not None and out.suffix.lower() == ".npz" and (add or subtract):
        raise InputError("an .npz file holds the model only; leave out --add and --subtract")
    return "add" if add else "subtract" if subtract else "replace"


def _check_target(obs: Path, is_folder: bool, column: str | None, out: Path | None, overwrite: bool) -> None:
    """Refuse a place that cannot be written to, before anything is read.

    Raises
    ------
    InputError
    """
    from biro.errors import InputError

    if out is None:
        if not is_folder and obs.is_file():
            from biro.io.reading import check_is_data

            check_is_data(obs)
            raise InputError(
                f"{obs}: a UVFITS file has no columns; give --out FILE.npz, or --out FILE.uvfits for a "
                "copy with other visibilities"
            )
        return
    if column is not None:
        raise InputError("give --column or --out, not both")
    if out.suffix.lower() not in (".npz", ".uvfits", ".uvf"):
        raise InputError(f"{out}: its name must end in .npz, .uvfits or .uvf")
    if out.suffix.lower() != ".npz" and is_folder:
        raise InputError(f"{out}: biro writes UVFITS only from UVFITS; write a column or .npz instead")
    refuse_existing([out], overwrite)


def _write_file(
    obs: Path, out: Path, observation: Observation, models: Iterator[Model], mode: Written
) -> str:
    """Write a file, and say how much it has."""
    from biro.io.uvfits.write import write_uvfits
    from biro.simulation.npz import write_npz

    if out.suffix.lower() == ".npz":
        return f"{write_npz(out, observation, models)} visibilities"
    report = write_uvfits(obs, out, observation, models, mode=mode)
    return f"{report.n_written} visibilities written; {report.n_flagged} outside the selection flagged"


def _write_column(
    obs: Path,
    column: str,
    observation: Observation,
    models: Iterator[Model],
    mode: Written,
    source_column: str | None,
    limit: float,
) -> str:
    """Write a column, and say what was written, with a place for how exact it is."""
    from biro.io.measurement_set import write_column

    report = write_column(
        obs, column, observation, models, mode=mode, source_column=source_column, time_limit=limit
    )
    existence = "made" if report.created else "was there"
    sign = {"replace": "", "add": "+", "subtract": "-"}[mode]
    content = f" = {source_column or column} {sign} model" if sign else ""
    return f"{column}{content} ({existence}), {{exactness}}: {report.rows_text}"
