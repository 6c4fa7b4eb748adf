"""`biro info` and `biro flag`: what a data set holds; interference in it, or data that are named, flagged."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biro.cli.guard import after_result, guard, make_folder, print_json, refuse_existing, say
from biro.cli.options import (
    BackendOption,
    DevicesOption,
    JsonFlag,
    ObservedSets,
    ReadingOptions,
    devices_of,
    takes_reading_options,
)
from biro.cli.sky import NamedSky, read_sky_or_run
from biro.run.environment import plain_pictures

if TYPE_CHECKING:
    from biro.flagging.report import FlagReport

BY_HAND = "By hand"
"""Heading of the options that name data, in the help of the command."""
DEFAULT = "meerkat"
"""The strategy where none is given."""


@guard
@takes_reading_options()
def info(obs: ObservedSets, as_json: JsonFlag = False, *, reading: ReadingOptions) -> None:
    """Summarise a data set and measure its noise."""
    from biro.io.reading import read

    summary = read(obs, **reading).summary()
    if as_json:
        print_json(summary.to_dict())
    else:
        typer.echo(str(summary))


@guard
@takes_reading_options(
    "stokes",
    "autocorrelations",
    "weights",
    "taper",
    "average_time",
    "average_channels",
    "smearing_radius",
    "convention",
    "flagger",
)
def flag(
    obs: Annotated[
        Path,
        typer.Argument(
            metavar="OBS", parser=Path, help="Measurement Set. With --select or --from, also a UVFITS file."
        ),
    ],
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LINE",
            help=(
                "Flag these data, for example 'antenna=FD, time=2017-04-10T00:30..2017-04-10T00:45, "
                "channels=3,4'. Can be repeated. Keys: antennas, baselines (FD-HN), fields, spws, scans, "
                "time_range, uv_range, channels, correlations; singular forms and time work, too."
            ),
            rich_help_panel=BY_HAND,
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Read flag commands from a file: lines as for --select, CASA flagdata, or AIPS UVFLG.",
            rich_help_panel=BY_HAND,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="COPY",
            help="With a UVFITS file: name of the flagged copy to write.",
            rich_help_panel=BY_HAND,
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="Strategy of the RFI search: meerkat, wsrt, long-baseline, or a TOML file.",
            show_default=DEFAULT,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="SKY",
            help=(
                "Subtract this model before searching for RFI: TOML model, component list, or run directory "
                "(its best fit)."
            ),
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would be flagged, and write nothing.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Restore the flags that the last `biro flag` replaced.")
    ] = False,
    pictures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write plots (waterfalls, percentiles, occupancy) and flags.json into this directory.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace COPY, or the plots in DIR.")
    ] = False,
    backend: BackendOption = "auto",
    devices: DevicesOption = None,
    as_json: JsonFlag = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Flag RFI, or flag the data that --select or --from names.

    biro saves the previous flags of a Measurement Set; --undo restores them.
    """
    from biro.errors import InputError
    from biro.interference import flag as flag_set

    by_hand = bool(select) or from_file is not None
    if undo:
        others = [name for name in reading if name != "time_limit"]
        if by_hand or output or strategy or dry_run or model is not None or pictures is not None or others:
            raise InputError(
                "--undo restores all flags of the set. Leave out the other options (only --time-limit "
                "goes with it)"
            )
        _undo(obs, reading)
        return
    if by_hand:
        others = [*reading] + [
            name
            for name, value in (("strategy", strategy), ("model", model), ("pictures", pictures))
            if value is not None
        ]
        written = {"from_file": from_file, "output": output, "overwrite": overwrite, "dry_run": dry_run}
        _flag_by_hand(obs, select or [], others, {**written, **reading}, as_json=as_json)
        return
    if output is not None:
        raise InputError(
            "--output goes with --select and --from only. The search for interference writes into the "
            "FLAG column of the set"
        )
    if pictures is not None:
        _make_folder(pictures, overwrite)
    named = read_sky_or_run(model, None) if model is not None else NamedSky()
    report = flag_set(
        obs,
        strategy or DEFAULT,
        dry_run=dry_run,
        sky=named.model,
        values=named.values,
        gaussian_frame=named.gaussian_frame,
        backend=backend,
        devices=devices_of(devices),
        **reading,
    )
    if as_json:
        print_json(report.to_dict())
    else:
        typer.echo(str(report))
    if pictures is not None:
        words = (
            f"biro flag {shlex.quote(str(obs))} --dry-run --pictures {shlex.quote(str(pictures))} --overwrite"
        )
        result = f"{obs} is flagged" if report.written else "nothing is flagged"
        with after_result(result, f"make room, then draw them by {words}"):
            _draw(report, pictures)
    if report.written:
        say(f"to restore them: biro flag {shlex.quote(str(obs))} --undo")


def _undo(obs: Path, reading: ReadingOptions) -> None:
    from biro.errors import InputError
    from biro.io.measurement_set import undo_flags
    from biro.io.reading import format_of

    if format_of(obs) == "UVFITS":
        raise InputError(
            f"{obs}: --undo is for Measurement Sets. biro never changes a UVFITS file, so the original "
            "still has its flags"
        )
    version = undo_flags(obs, **reading)
    say(f"{obs}: flags restored from version {version}; the version is deleted")


def _flag_by_hand(
    obs: Path,
    select: list[str],
    others: list[str],
    options: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Flag what lines name by `flag_selected`; `others` are options given that do not go with them."""
    from biro.errors import InputError
    from biro.interference import flag_selected

    alien = [name for name in others if name != "time_limit"]
    if alien:
        names = ", ".join("--" + name.replace("_", "-") for name in alien)
        raise InputError(
            f"{names} does not go with --select and --from. Put the selection into --select itself"
        )
    flags = flag_selected(obs, select, **options)
    if as_json:
        print_json(flags.to_dict())
    else:
        typer.echo(str(flags))
    if flags.version:
        say(f"to restore them: biro flag {shlex.quote(str(obs))} --undo")


def _make_folder(folder: Path, overwrite: bool) -> None:
    """Make the folder of pictures, and refuse to replace files in it, before anything is read."""
    names = ("flags.json", "occupancy.png", "waterfall-*.png", "percentiles-*.png")
    refuse_existing((path for name in names for path in sorted(folder.glob(name))), overwrite)
    make_folder(folder)


def _draw(report: FlagReport, folder: Path) -> None:
    """Write the pictures and the figures."""
    from biro.files.atomic import write_atomic, write_figure
    from biro.flagging.pictures import occupancy, percentiles, waterfall

    plain_pictures()
    for number, part in enumerate(report.partitions):
        write_figure(folder / f"waterfall-{number}.png", waterfall(part))
        write_figure(folder / f"percentiles-{number}.png", percentiles(part))
    write_figure(folder / "occupancy.png", occupancy(report))
    write_atomic(folder / "flags.json", json.dumps(report.to_dict(), indent=1).encode())
