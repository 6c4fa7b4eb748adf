"""`biro solve`: solve for the gains of antennas that make a sky that is fixed fit the data best."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from biro.cli.guard import MISFIT, after_result, guard, print_json, say
from biro.cli.options import (
    BackendOption,
    JsonFlag,
    Observed,
    ReadingOptions,
    SkyFrameOption,
    quantity,
    takes_reading_options,
)
from biro.cli.sky import check_order, read_sky_or_run
from biro.run.environment import plain_pictures
from rime_kernels.choices import GaussianFrame

if TYPE_CHECKING:
    from biro.calibration import SolvedGains
    from biro.models import SkyModel
    from biro.observation.observation import Observation
    from rime_kernels.choices import GaussianFrame

NAMES = ("gains.npz", "gains.G", "gains.png", "solve.json")
"""What is written into the output folder; of several spectral windows also gains-2.png and so on."""
MOST_PICTURES = 32
"""Pictures of gains that are drawn."""


SolveMode = Literal["complex", "phase", "amplitude"]
"""What of a gain is solved for."""


FeedGains = Literal["separate", "common"]
"""Whether the feeds of an antenna have gains of their own."""


CrossHands = Literal["auto", "on", "off"]
"""Whether cross hands count."""


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
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory to write the gains into.")
    ] = Path("gains"),
    model_column: Annotated[
        str | None, typer.Option(help="Column with model visibilities to use instead of SKY.")
    ] = None,
    interval: Annotated[
        str,
        typer.Option(help="Solution interval in time: integration, scan, track, or a time such as '60 s'."),
    ] = "integration",
    chan_blocks: Annotated[
        int, typer.Option(help="Number of solution intervals in frequency per spectral window.")
    ] = 1,
    mode: Annotated[
        SolveMode,
        typer.Option(help="Solve for amplitude and phase (complex), phase only, or amplitude only."),
    ] = "complex",
    feeds: Annotated[
        FeedGains, typer.Option(help="Gains of the two feeds of an antenna: separate, or one common gain.")
    ] = "separate",
    cross_hands: Annotated[
        CrossHands,
        typer.Option(
            help="Use the cross hands, too. auto: if the polarisation of the model is bright enough."
        ),
    ] = "auto",
    reference: Annotated[
        str, typer.Option(help="Reference antenna, whose phase is 0. auto: the most sensitive one.")
    ] = "auto",
    min_baselines: Annotated[
        int, typer.Option(help="Fewest baselines that an antenna needs in a solution interval.")
    ] = 2,
    snr_limit: Annotated[float, typer.Option(help="Flag gains with a lower signal-to-noise ratio.")] = 3.0,
    corrected: Annotated[
        bool,
        typer.Option(
            "--corrected", help="Write corrected visibilities into CORRECTED_DATA, and their weights."
        ),
    ] = False,
    gaussian_frame: SkyFrameOption = None,
    backend: BackendOption = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files in DIR.")] = False,
    as_json: JsonFlag = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Solve for antenna gains with a fixed sky model.

    biro solves with the column DATA, unless --column names another one.
    """
    from biro.calibration import solve_gains
    from biro.calibration.solution_fit import of_raw_data
    from biro.errors import InputError
    from biro.io.measurement_set import read_columns
    from biro.io.measurement_set.storage import TIME_LIMIT, ask_storage
    from biro.io.reading import read
    from biro.models import SkyModel

    if sky is not None and model_column is not None:
        raise InputError("give either SKY or --model-column")
    limit = float(reading.get("time_limit", TIME_LIMIT))
    is_set = ask_storage(obs, limit, "looking at it", obs.is_dir)
    if model_column is None:
        check_order(obs, sky, "--model-column")
    _check_output(output, overwrite)
    if not is_set and (corrected or model_column):
        raise InputError(
            f"{obs}: a UVFITS file has no columns; leave out --corrected and --model-column, or use a "
            "Measurement Set"
        )
    if is_set:
        reading.setdefault("column", "DATA")
    known: SkyModel | Observation
    values: dict[str, float] = {}
    frame: GaussianFrame = "tangent"
    reading["autocorrelations"] = corrected
    if is_set:
        columns = [reading.pop("column"), *([model_column] if model_column else [])]
        observation, *models = read_columns(obs, columns, keep_values=corrected, **reading)
    else:
        observation, models = read(obs, **reading), []
    if models:
        (known,) = models
    else:
        known, values, frame = _model(sky, gaussian_frame)
    for line in observation.reading_lines:
        say(line)
    solved = solve_gains(
        observation,
        known,
        interval=interval
        if interval in ("integration", "scan", "track")
        else quantity(interval, "s", "--interval"),
        chan_blocks=chan_blocks,
        mode=mode,
        feeds=feeds,
        cross_hands=cross_hands,
        reference=reference,
        min_baselines=min_baselines,
        snr_limit=snr_limit,
        values=values,
        backend=backend,
        gaussian_frame=frame,
    )
    if isinstance(known, SkyModel):
        for line in observation.instrument_lines(of_raw_data(known) if solved.taken_out else known):
            say(line)
    written = _write(solved, obs, output, is_set, overwrite, limit, corrected)
    if as_json:
        print_json(solved.to_dict() | {"files": [str(path) for path in written]})
    else:
        typer.echo(str(solved))
    names = ", ".join(map(str, written))
    say(f'written: {names}. To use the gains in a model, write [gain] table = "{written[0]}"')
    if corrected:
        _correct(solved, obs, written[0], limit)
    if not solved.fits:
        raise typer.Exit(MISFIT)


def _check_output(output: Path, overwrite: bool) -> None:
    """Make the folder, before anything is read."""
    from biro.cli.guard import make_folder, refuse_existing
    from biro.errors import InputError

    table = output / NAMES[1]
    if table.exists() and not (table / "table.dat").is_file():
        raise InputError(f"{table}: is not a gain table, so biro does not replace it; move it away")
    make_folder(output)
    refuse_existing([*(output / name for name in NAMES), *_more_pictures(output)], overwrite)


def _more_pictures(output: Path) -> list[Path]:
    """The pictures of further spectral windows or blocks of channels in a folder: gains-2.png, ..."""
    return sorted(path for path in output.iterdir() if re.fullmatch(r"gains-\d+\.png", path.name))


def _model(
    sky: Path | None, gaussian_frame: GaussianFrame | None
) -> tuple[SkyModel, dict[str, float], GaussianFrame]:
    """The sky, values of free parameters, and the frame of Gaussians."""
    assert sky is not None
    named = read_sky_or_run(sky, gaussian_frame)
    assert named.model is not None
    return named.model, named.values, named.gaussian_frame


def _write(
    solved: SolvedGains, obs: Path, output: Path, is_set: bool, overwrite: bool, limit: float, corrected: bool
) -> list[Path]:
    """Write the gains, and then all else; which files."""
    written = [output / NAMES[0]]
    solved.save(written[0])
    with after_result(f"the gains are in {written[0]}", "the same command with --overwrite writes all"):
        written += _write_others(solved, obs, output, is_set, overwrite, limit, corrected)
    return written


def _write_others(
    solved: SolvedGains, obs: Path, output: Path, is_set: bool, overwrite: bool, limit: float, corrected: bool
) -> list[Path]:
    """Write the table of CASA, the picture and the figures; which files."""
    from biro.calibration.casa_table import reason_for_no_table, write_casa_table
    from biro.files.atomic import write_atomic

    written = []
    reason = reason_for_no_table(solved) if is_set else "gains of data other than a Measurement Set"
    if reason:
        older = output / NAMES[1]
        removed = os.path.lexists(older)
        if older.is_symlink():
            older.unlink()
        elif removed:
            shutil.rmtree(older)
        say(
            f"{NAMES[1]} is not written, because a CASA table cannot hold {reason}. {NAMES[0]} has all "
            "gains. To apply them, use [gain] table in a model"
            + (", or --corrected" if is_set and not corrected else "")
            + (f". The older {NAMES[1]} is removed" if removed else "")
        )
    else:
        write_casa_table(output / NAMES[1], obs, solved, overwrite=overwrite, time_limit=limit)
        written.append(output / NAMES[1])
    plain_pictures()
    written += _draw(solved, output, overwrite)
    write_atomic(output / NAMES[3], json.dumps(solved.to_dict(), indent=1).encode())
    return [*written, output / NAMES[3]]


def _draw(solved: SolvedGains, output: Path, overwrite: bool) -> list[Path]:
    """Draw the gains of each spectral window and block of channels: gains.png, gains-2.png, ...; which files.

    With `overwrite`, pictures of an earlier solution of more windows are removed.
    """
    from biro.files.atomic import write_figure
    from biro.plots import solved_gains

    for older in _more_pictures(output) if overwrite else ():
        older.unlink()
    each = [(i, block) for i, window in enumerate(solved.windows) for block in range(window.gain.shape[1])]
    if len(each) > MOST_PICTURES:
        say(f"biro draws {MOST_PICTURES} of {len(each)} pictures; biro.plots.solved_gains draws any of them")
    written = []
    for number, (i, block) in enumerate(each[:MOST_PICTURES], start=1):
        written.append(output / (NAMES[2] if number == 1 else f"gains-{number}.png"))
        write_figure(written[-1], solved_gains(solved, i, block=block))
    return written


def _correct(solved: SolvedGains, obs: Path, written: Path, limit: float) -> None:
    """Write CORRECTED_DATA, and say what could not be corrected.

    Raises
    ------
    OutputError, KeyboardInterrupt
        With where the gains are, and what is left of the column.
    """
    from biro.errors import BiroError, OutputError
    from biro.io.measurement_set import write_column
    from biro.io.measurement_set.column import write_corrected_weights

    try:
        report = write_column(
            obs,
            "CORRECTED_DATA",
            solved.observation,
            solved.corrected(),
            rest_column=solved.observation.column,
            time_limit=limit,
        )
    except KeyboardInterrupt as error:
        state = str(error) or "CORRECTED_DATA was not changed"
        raise KeyboardInterrupt(f"the gains are in {written}; {state}") from None
    except BiroError as error:
        raise OutputError(f"the gains are in {written}, but CORRECTED_DATA is not written. {error}") from None
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
    safe = f"the gains are in {written}, and CORRECTED_DATA is written"
    with after_result(safe, "its weights are those of DATA"):
        is_written = write_corrected_weights(
            obs, solved.observation, solved.weight_factors(), time_limit=limit
        )
    if not is_written:
        say(
            "CORRECTED_WEIGHT_SPECTRUM is not written, because equal weights are no stored column. biro "
            "reads CORRECTED_DATA with the weights of DATA. Leave out --weights equal to get its own weights"
        )
        return
    say(
        "CORRECTED_WEIGHT_SPECTRUM: the weights of the data times |g_p g_q|^2, because calibration divides "
        "the noise by |g_p g_q|. biro reads these weights with CORRECTED_DATA. The weights of DATA are "
        "unchanged"
    )
