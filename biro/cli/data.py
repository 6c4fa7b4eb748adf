"""`biro info` and `biro flag`: what a data set holds, and interference that is found in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biro.cli.guard import after_result, guard, make_folder, print_json, refuse_existing, say
from biro.cli.options import (
    Backend,
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


@guard
@takes_reading_options()
def info(obs: ObservedSets, as_json: JsonFlag = False, *, reading: ReadingOptions) -> None:
    """Say what a data set holds and how noisy it is."""
    from biro.reading import read

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
    obs: Annotated[Path, typer.Argument(metavar="OBS", parser=Path, help="Measurement Set.")],
    strategy: Annotated[str, typer.Option(help="meerkat, wsrt, long-baseline, or a TOML file.")] = "meerkat",
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="SKY",
            help="Look at the data less this: TOML model, component list, or run directory (its best fit).",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Find, and write nothing.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Bring the flags back that were there before the last biro flag.")
    ] = False,
    pictures: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Waterfalls and percentiles before and after, occupancy, and flags.json."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace pictures in FOLDER.")] = False,
    backend: BackendOption = Backend.auto,
    devices: DevicesOption = None,
    as_json: JsonFlag = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Find interference, and write it into FLAG; the flags before are kept, and --undo brings them back."""
    from biro.errors import InputError
    from biro.interference import flag as flag_set
    from biro.measurement_set import undo_flags

    if undo:
        others = [name for name in reading if name != "time_limit"]
        if dry_run or model is not None or pictures is not None or others:
            raise InputError("--undo brings all flags of the set back: it goes with --time-limit alone")
        version = undo_flags(obs, **reading)
        say(f"{obs}: the flags {version} are back, and that version is removed")
        return
    if pictures is not None:
        _make_folder(pictures, overwrite)
    named = read_sky_or_run(model, None) if model is not None else NamedSky()
    report = flag_set(
        obs,
        strategy,
        dry_run=dry_run,
        sky=named.model,
        values=named.values,
        gaussian_frame=named.gaussian_frame,
        backend=backend.value,
        devices=devices_of(devices),
        **reading,
    )
    if as_json:
        print_json(report.to_dict())
    else:
        typer.echo(str(report))
    if pictures is not None:
        with after_result(f"{obs} is flagged" if report.written else "nothing was written", "draw again"):
            _draw(report, pictures)
    if report.written:
        say("biro flag --undo brings the flags before back")


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
