"""What the commands share: options for reading, errors in one line, exit codes."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterable
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

EXIT_CODES = (
    "Exit codes: 0 done; 1 a fault in biro itself (please report it); 2 bad input or usage, said in one "
    "line; 130 interrupted (a fit goes on where it was with the same command)."
)
_READ = "Which data to read"


class Backend(StrEnum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Precision(StrEnum):
    """Of the sums over sources."""

    double = "double"
    single = "single"


class AnyPrecision(StrEnum):
    """Of the sums over sources; what auto means is said by each command."""

    auto = "auto"
    double = "double"
    single = "single"


class Sampler(StrEnum):
    """Which sampler."""

    emcee = "emcee"
    dynesty = "dynesty"
    dynesty_dynamic = "dynesty-dynamic"
    nuts = "nuts"
    none = "none"


class Convention(StrEnum):
    """Sign of the phase (docs/conventions.md)."""

    casa = "casa"
    fourier = "fourier"


class Feeds(StrEnum):
    """Polarisation basis."""

    linear = "linear"
    circular = "circular"


class Interpolation(StrEnum):
    """Between the planes of an image."""

    nearest = "nearest"
    linear = "linear"
    spectral_index = "spectral-index"


class Stokes(StrEnum):
    """Planes of an image."""

    I = "I"
    IQUV = "IQUV"


class Weighting(StrEnum):
    """Of visibilities in an image."""

    natural = "natural"
    uniform = "uniform"
    briggs = "briggs"


class What(StrEnum):
    """What an image is of."""

    data = "data"
    model = "model"
    residual = "residual"


# A parser of our own: typer's looks at the path, which takes for ever where the storage does not answer.
Observed = Annotated[Path, typer.Argument(metavar="OBS", parser=Path, help="Measurement Set.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]
BackendOption = Annotated[Backend, typer.Option(help="Where to compute; auto takes a GPU that works.")]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES", help="What a GPU is asked to hold, as '8 GB'. Default: most of what is free."
    ),
]
WeightingOption = Annotated[Weighting, typer.Option(help="Of visibilities in the image.")]
RobustOption = Annotated[
    float | None, typer.Option(help="For briggs: -2 (uniform) to 2 (natural). Default: 0.")
]
CellOption = Annotated[
    str | None, typer.Option(help="Of pixels, as '0.2 arcsec'. Default: a fifth of the beam.")
]
SizeOption = Annotated[
    int | None, typer.Option(help="Pixels along a side. Default: twice the field of view, 2048 at most.")
]


def _option(text: str, kind: Any = str | None) -> Any:
    return Annotated[kind, typer.Option(help=text, rich_help_panel=_READ)]


def _list(text: str) -> Any:
    """An option of several values: separated by commas, or given several times."""
    return _option(text, list[str] | None)


def _flag(name: str, text: str) -> Any:
    return Annotated[bool, typer.Option(name, help=text, rich_help_panel=_READ)]


READING: dict[str, tuple[Any, Any]] = {
    "column": (_option("Visibility column. Default: CORRECTED_DATA if there, else DATA."), None),
    "weight_column": (_option("Weights. Default: WEIGHT_SPECTRUM, else WEIGHT, else from SIGMA."), None),
    "fields": (_list("Names or ids of fields, separated by commas."), None),
    "spws": (_list("Names or ids of spectral windows, separated by commas."), None),
    "scans": (_list("Scan numbers, separated by commas."), None),
    "antennas": (_list("Names or ids; '!name' leaves one out. Separated by commas."), None),
    "time_range": (_option("'start..stop' in UTC as 2017-04-10T00:30; either end may be open."), None),
    "uv_range": (_option("'low..high' as '100 m..5 km' or '1 klambda..'."), None),
    "channels": (_list("'start:stop:step' or numbers separated by commas, in each window."), None),
    "correlations": (_list("As in 'XX,YY'."), None),
    "autocorrelations": (_flag("--autocorrelations", "Keep them."), False),
    "average_time": (_option("Average in time up to, for example, '30 s'."), None),
    "average_channels": (_option("Average this many channels.", int), 1),
    "smearing_radius": (_option("Where the loss by averaging is stated, as '10 arcmin'."), None),
    "convention": (_option("Sign of the phase; 'fourier' is for foreign data.", Convention), Convention.casa),
    "time_limit": (_option("How long to wait for a locked set, s.", float), 30.0),
}


def takes_reading_options(*left_out: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of `biro.read_ms`, but for some, as one dictionary `reading`."""
    names = [name for name in READING if name not in left_out]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def wrapped(**given: Any) -> Any:
            mine = {name: given.pop(name) for name in names}
            return command(**given, reading=read_options(mine))

        signature = inspect.signature(command, eval_str=True)
        kept = [parameter for name, parameter in signature.parameters.items() if name != "reading"]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in READING.items()
            if name in names
        ]
        wrapped.__signature__ = signature.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in [*kept, *added]}
        return wrapped

    return decorate


def read_options(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `biro.read_ms` from the text of a command line; what was not given is left out."""
    options: dict[str, Any] = {}
    for name, value in given.items():
        if not value or value == READING[name][1]:
            continue
        options[name] = _meaning(name, ",".join(value) if isinstance(value, list) else value)
    return options


def reading_words(reading: dict[str, Any]) -> list[str]:
    """The words of a command line that `read_options` reads as these."""
    words = []
    for name, value in reading.items():
        words.append("--" + name.replace("_", "-"))
        if name == "time_range":
            words.append("..".join(end or "" for end in value))
        elif value is not True:
            words.append(",".join(map(str, value)) if isinstance(value, list) else str(value))
    return words


def _meaning(name: str, value: Any) -> Any:
    if name in ("fields", "spws", "antennas"):
        return [part.strip() for part in value.split(",") if part.strip()]
    if name == "scans":
        return _scans(value)
    if name == "time_range":
        from biro.errors import InputError

        start, dots, stop = value.partition("..")
        if not dots:
            raise InputError(
                f"--time-range {value!r} is not understood; write 2017-04-10T00:30..2017-04-10T02:00"
            )
        return (start.strip() or None, stop.strip() or None)
    return value.value if isinstance(value, Enum) else value


def _scans(text: str) -> list[int]:
    from biro.errors import InputError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--scans {text!r} is not understood; write numbers separated by commas") from None


def keyword_options(pairs: list[str]) -> dict[str, Any]:
    """Options of a sampler from "name=value" texts: numbers where they are numbers."""
    from biro.errors import InputError

    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair!r}: expected name=value, as in --set n_live=1000")
        options[name.strip().replace("-", "_")] = _number_or_text(text.strip())
    return options


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def quantity(text: str, unit: str, what: str) -> float:
    """A number in `unit` from text such as "1.4 GHz", "2 h", "10 mJy"; a plain number is in `unit` already.

    Raises
    ------
    InputError
    """
    from astropy import units

    from biro.errors import InputError

    try:
        value = units.Quantity(text)
        return float(value.value if value.unit.is_equivalent("") else value.to_value(unit))
    except (ValueError, TypeError):
        raise InputError(
            f"{what} {text!r} is not understood; write a number with a unit such as {unit}"
        ) from None


class Guard:
    """Turns what goes wrong in a command into one line and an exit code.

    Attributes
    ----------
    debug : bool
        Let exceptions through, with their trace.
    """

    debug = False

    def __call__(self, command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return command(*args, **kwargs)
            except KeyboardInterrupt:
                if self.debug:
                    raise
                self._leave("interrupted", 130)
            except Exception as error:
                from biro.errors import BiroError
                from biro.run.interrupt import RunInterrupted

                if self.debug or not isinstance(error, BiroError):
                    raise
                self._leave(str(error), 130 if isinstance(error, RunInterrupted) else 2)

        return guarded

    @staticmethod
    def _leave(message: str, code: int) -> NoReturn:
        typer.echo(f"biro: {' '.join(message.split())}", err=True)
        raise typer.Exit(code)


guard = Guard()


def say(text: str) -> None:
    """A line for people, on stderr."""
    typer.echo(text, err=True)


def print_json(value: Any) -> None:
    """One JSON document on stdout; numbers that JSON does not know become null."""
    typer.echo(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value


def refuse_existing(paths: Iterable[Path], overwrite: bool) -> None:
    """Stop before work is done whose result could not be written."""
    from biro.errors import InputError

    for path in paths:
        if path.exists() and not overwrite:
            raise InputError(f"{path}: exists already; choose another name or give --overwrite")


def at_terminal() -> bool:
    """Whether progress would be seen by a person."""
    return sys.stderr.isatty()
