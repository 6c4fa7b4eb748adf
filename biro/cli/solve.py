"""`biro solve`: solve for the gains of antennas that make a sky that is fixed fit the data best."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from biro.cli.guard import MISFIT, guard, print_json, say
from biro.cli.options import (
    Backend,
    BackendOption,
    JsonFlag,
    Observed,
    ReadingOptions,
    SkyFrameOption,
    quantity,
    takes_reading_options,
)
from biro.cli.sky import read_sky_or_run
from biro.run.environment import plain_pictures

if TYPE_CHECKING:
    from biro.calibration import SolvedGains
    from biro.cli.options import Frame
    from biro.models import SkyModel
    from biro.observation.observation import Observation

NAMES = ("gains.npz", "gains.G", "gains.png", "solve.json")
"""What is written into the output folder."""


class SolveMode(StrEnum):
    """What of a gain is solved for."""

    complex = "complex"
    phase = "phase"
    amplitude = "amplitude"


class FeedGains(StrEnum):
    """Whether the feeds of an antenna have gains of their own."""

    separate = "separate"
    common = "common"


class CrossHands(StrEnum):
    """Whether cross hands count."""

    auto = "auto"
    on = "on"
    off = "off"


@guard
@takes_reading_options(
    "stokes", "average_time", "average_channels", "autocorrelations", "smearing_radius", "convention"
)
def solve(
    obs: Observed,
    sky: Annotated[
        Path | None,
        typer.Argument(metavar="SKY", help="TOML model, component list, or run directory (its best fit)."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write gains into.")
    ] = Path("gains"),
    model_column: Annotated[
        str | None, typer.Option(help="Column with model visibilities, in place of SKY.")
    ] = None,
    interval: Annotated[
        str, typer.Option(help="How long a gain holds: integration, scan, track, or as '60 s'.")
    ] = "integration",
    chan_blocks: Annotated[int, typer.Option(help="Solve in so many blocks of channels of a window.")] = 1,
    mode: Annotated[SolveMode, typer.Option(help="What is solved for.")] = SolveMode.complex,
    feeds: Annotated[
        FeedGains, typer.Option(help="Gains of the two feeds of an antenna.")
    ] = FeedGains.separate,
    cross_hands: Annotated[
        CrossHands,
        typer.Option(help="Use cross hands; auto: where the model's polarisation is bright enough."),
    ] = CrossHands.auto,
    reference: Annotated[
        str, typer.Option(help="Antenna whose phase is 0; auto: the most sensitive.")
    ] = "auto",
    min_baselines: Annotated[int, typer.Option(help="Baselines that an antenna needs in an interval.")] = 2,
    snr_limit: Annotated[float, typer.Option(help="Flag gains of a lower signal-to-noise ratio.")] = 3.0,
    corrected: Annotated[
        bool, typer.Option("--corrected", help="Write corrected visibilities into CORRECTED_DATA.")
    ] = False,
    gaussian_frame: SkyFrameOption = None,
    backend: BackendOption = Backend.auto,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files in FOLDER.")] = False,
    as_json: JsonFlag = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Solve for gains of antennas with a sky that is fixed, by default from the column DATA."""
    from biro.calibration import solve_gains
    from biro.errors import InputError
    from biro.measurement_set import read_columns
    from biro.measurement_set.storage import TIME_LIMIT, ask_storage
    from biro.reading import read

    if (sky is None) == (model_column is None):
        raise InputError("give SKY or --model-column, one of them")
    _check_output(output, overwrite)
    limit = float(reading.get("time_limit", TIME_LIMIT))
    is_set = ask_storage(obs, limit, "looking at it", obs.is_dir)
    if not is_set and (corrected or model_column):
        raise InputError(f"{obs}: a file has no columns as a Measurement Set has")
    if is_set:
        reading.setdefault("column", "DATA")
    known: SkyModel | Observation
    values: dict[str, float] = {}
    frame: Literal["tangent", "uv"] = "tangent"
    reading["autocorrelations"] = corrected
    if model_column is not None:
        columns = [reading.pop("column"), model_column]
        observation, known = read_columns(obs, columns, **reading)
    else:
        observation = read(obs, **reading)
        known, values, frame = _model(observation, sky, gaussian_frame)
    for line in observation.reading_lines:
        say(line)
    solved = solve_gains(
        observation,
        known,
        interval=interval
        if interval in ("integration", "scan", "track")
        else quantity(interval, "s", "--interval"),
        chan_blocks=chan_blocks,
        mode=mode.value,
        feeds=feeds.value,
        cross_hands=cross_hands.value,
        reference=reference,
        min_baselines=min_baselines,
        snr_limit=snr_limit,
        values=values,
        backend=backend.value,
        gaussian_frame=frame,
    )
    written = _write(solved, obs, output, is_set, overwrite, limit)
    if corrected:
        _correct(solved, obs, written[0], limit)
    if as_json:
        print_json(solved.to_dict() | {"files": [str(path) for path in written]})
    else:
        typer.echo(str(solved))
    names = ", ".join(map(str, written))
    say(f'written: {names}; [gain] table = "{written[0]}" in a model applies them')
    if not solved.fits:
        raise typer.Exit(MISFIT)


def _check_output(output: Path, overwrite: bool) -> None:
    """Make the folder, before anything is read."""
    from biro.cli.guard import make_folder, refuse_existing
    from biro.errors import InputError

    table = output / NAMES[1]
    if table.exists() and not (table / "table.dat").is_file():
        raise InputError(f"{table}: is not a table of gains, and is not replaced: move it away")
    make_folder(output)
    refuse_existing([output / name for name in NAMES], overwrite)


def _model(
    observation: Observation, sky: Path | None, gaussian_frame: Frame | None
) -> tuple[SkyModel, dict[str, float], Literal["tangent", "uv"]]:
    """The sky, values of free parameters, and the frame of Gaussians."""
    assert sky is not None
    named = read_sky_or_run(sky, gaussian_frame)
    assert named.model is not None
    for line in observation.instrument_lines(named.model):
        say(line)
    return named.model, named.values, named.gaussian_frame


def _write(
    solved: SolvedGains, obs: Path, output: Path, is_set: bool, overwrite: bool, limit: float
) -> list[Path]:
    """Write the tables, the figures and the picture; which files."""
    from biro.calibration.casa_table import reason_for_no_table, write_casa_table
    from biro.files.atomic import write_atomic, write_figure
    from biro.plots import solved_gains

    written = [output / NAMES[0]]
    solved.save(written[0])
    reason = reason_for_no_table(solved) if is_set else "gains of data that are no Measurement Set"
    if reason:
        say(
            f"{NAMES[1]} is not written: a table of CASA cannot hold {reason}. {NAMES[0]} has all gains: "
            "[gain] table of a model applies them, and --corrected writes corrected visibilities"
        )
    else:
        write_casa_table(output / NAMES[1], obs, solved, overwrite=overwrite, time_limit=limit)
        written.append(output / NAMES[1])
    plain_pictures()
    write_figure(output / NAMES[2], solved_gains(solved))
    write_atomic(output / NAMES[3], json.dumps(solved.to_dict(), indent=1).encode())
    return [*written, output / NAMES[2], output / NAMES[3]]


def _correct(solved: SolvedGains, obs: Path, written: Path, limit: float) -> None:
    """Write CORRECTED_DATA, and say what could not be corrected.

    Raises
    ------
    OutputError, KeyboardInterrupt
        With where the gains are, and what is left of the column.
    """
    from biro.errors import BiroError, OutputError
    from biro.measurement_set import write_column

    try:
        report = write_column(obs, "CORRECTED_DATA", solved.observation, solved.corrected(), time_limit=limit)
    except KeyboardInterrupt as error:
        state = str(error) or "CORRECTED_DATA was not changed"
        raise KeyboardInterrupt(f"the gains are in {written}; {state}") from None
    except BiroError as error:
        raise OutputError(f"the gains are in {written}, but CORRECTED_DATA is not written: {error}") from None
    existence = "made" if report.created else "was there"
    left = solved.n_uncorrected
    say(
        f"CORRECTED_DATA ({existence}): {report.rows_text}"
        + (
            f"; {left} visibilities without a gain are as in {solved.observation.column}: flag them"
            if left
            else ""
        )
    )
