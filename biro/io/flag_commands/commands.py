"""Lines that name data to be flagged, in biro's own text form: "antenna=FD, time=a..b, channels=10:50"."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from biro.errors import InputError
from biro.models.quantities.strict import did_you_mean
from biro.observation.selection import UVRange, to_mjd_seconds

Autos = Literal["with", "without", "only"]
Range = tuple[float, float]
KEYS = (
    "antennas",
    "baselines",
    "fields",
    "spws",
    "scans",
    "time_range",
    "uv_range",
    "channels",
    "correlations",
)
"""Keys of a line: the names of the selection options, and `baselines`."""
SHORT = {"time": "time_range", "times": "time_range", "uvrange": "uv_range"} | {
    key.removesuffix("s"): key for key in KEYS if key.endswith("s")
}
"""Other names of keys: "antenna" for "antennas"."""
EXAMPLE = "write as in 'antenna=FD, time=2017-04-10T00:30..2017-04-10T00:45, channels=3,4'"
_KEY = re.compile(r"(?:^|,)\s*([A-Za-z_]+)\s*=")


@dataclass(frozen=True)
class AntennaPair:
    """Baselines between two groups of antennas.

    Attributes
    ----------
    first, second : tuple of str or int
        Names, ids, "a~b" of ids, or names with *; empty stands for all antennas.
    autos : "with", "without" or "only"
        Whether autocorrelations are among them.
    is_left_out : bool
        The line flags none of these.
    joined : str
        In place of `first` and `second`: two names with a hyphen between them, which names may have, too.
    """

    first: tuple[str | int, ...] = ()
    second: tuple[str | int, ...] = ()
    autos: Autos = "with"
    is_left_out: bool = False
    joined: str = ""


@dataclass(frozen=True)
class TimeRange:
    """A range of times, ends included.

    Attributes
    ----------
    low, high : float, s
        UTC as MJD, or since midnight of `since`. Where both are equal, one time: integrations that have it.
    since : "mjd", "first day" or "aips"
        "first day" of the data. "aips" is that, too, or the days count from the end of the year before
        (day 1 is 1 January), as in files of the VLBA.
    """

    low: float
    high: float
    since: Literal["mjd", "first day", "aips"] = "mjd"


@dataclass(frozen=True)
class ChannelRange:
    """Channels of some spectral windows.

    Attributes
    ----------
    spws : tuple of str or int, or None
        Names or ids; None for all.
    channels : tuple of slice, or None
        Of channel numbers from 0; None for all.
    """

    spws: tuple[str | int, ...] | None = None
    channels: tuple[slice, ...] | None = None


@dataclass(frozen=True)
class FlagCommand:
    """Which visibilities one line names: those in all of what it states; None stands for everything.

    Attributes
    ----------
    text : str
        The line as given.
    pairs : tuple of AntennaPair
        Baselines in any of these that are not left out.
    fields : tuple of str or int, or None
    scans : tuple of (first, last), or None
    spans : tuple of TimeRange, or None
    uv_ranges : tuple of UVRange, or None
    windows : tuple of ChannelRange, or None
    correlations : tuple of str, or None
        "XX", "RL", ...; "parallel" and "cross" for hands of either basis.
    number : int
        Line of the file, from 1; 0 where it is from no file.
    """

    text: str
    pairs: tuple[AntennaPair, ...] = ()
    fields: tuple[str | int, ...] | None = None
    scans: tuple[Range, ...] | None = None
    spans: tuple[TimeRange, ...] | None = None
    uv_ranges: tuple[UVRange, ...] | None = None
    windows: tuple[ChannelRange, ...] | None = None
    correlations: tuple[str, ...] | None = None
    number: int = 0


def read_line(text: str) -> FlagCommand:
    """A line of biro's own form.

    Parameters
    ----------
    text : str
        "key=value, key=value, ...": the keys are the names of the selection options (antennas, fields, spws,
        scans, time_range, uv_range, channels, correlations), of which the s may be left out, `time` is
        short for time_range, and `baselines` has names of two antennas as FD-HN. Values are written as those
        options are. `antennas` names all baselines of an antenna.

    Raises
    ------
    InputError
        A key or a value that is not understood.
    """
    values = _values(text)
    line = FlagCommand(text)
    for key, value in values.items():
        if not value:
            raise InputError(f"{text!r}: {key} has no value; {EXAMPLE}")
        try:
            line = _TAKERS[key](line, value)
        except InputError as error:
            raise InputError(f"{text!r}: {error}") from None
    channels = _channels(values["channels"]) if "channels" in values else None
    spws = _items(values["spws"]) if "spws" in values else None
    if channels or spws:
        line = replace(line, windows=(ChannelRange(spws, channels),))
    return line


def _values(text: str) -> dict[str, str]:
    """Values by key."""
    found = list(_KEY.finditer(text))
    if not found or text[: found[0].start()].strip():
        raise InputError(f"{text!r} is not a selection; {EXAMPLE}")
    values: dict[str, str] = {}
    for match, after in zip(found, [*found[1:], None], strict=True):
        name = match[1].lower()
        key = SHORT.get(name, name)
        if key not in KEYS:
            near = did_you_mean(key, [*KEYS, *SHORT])
            raise InputError(f"{text!r}: no key {match[1]!r}{near}; there are {', '.join(KEYS)}")
        if key in values:
            raise InputError(f"{text!r}: {key} is given twice; give --select, or a line, for each")
        values[key] = text[match.end() : after.start() if after else None].strip()
    return values


def _items(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _antennas(line: FlagCommand, value: str) -> FlagCommand:
    pairs = []
    for item in _items(value):
        is_left_out = item.startswith("!")
        pairs.append(AntennaPair((item.removeprefix("!"),), is_left_out=is_left_out))
    return replace(line, pairs=(*line.pairs, *pairs))


def _baselines(line: FlagCommand, value: str) -> FlagCommand:
    if line.pairs:
        raise InputError("give antennas or baselines, not both")
    return replace(line, pairs=tuple(AntennaPair(autos="without", joined=item) for item in _items(value)))


def _scans(line: FlagCommand, value: str) -> FlagCommand:
    try:
        numbers = [int(part) for part in _items(value)]
    except ValueError:
        raise InputError(f"scans {value!r} is not understood; write numbers separated by commas") from None
    return replace(line, scans=tuple((number, number) for number in numbers))


def _times(line: FlagCommand, value: str) -> FlagCommand:
    start, dots, stop = (part.strip() for part in value.partition(".."))
    low = to_mjd_seconds(start) if start else -np.inf
    high = (to_mjd_seconds(stop) if stop else np.inf) if dots else low
    if low > high:
        raise InputError(f"time_range {value!r}: the start is after the stop")
    return replace(line, spans=(TimeRange(low, high),))


def _channels(value: str) -> tuple[slice, ...]:
    """Channels as the option --channels has them, as slices."""
    try:
        if ":" in value:
            some = slice(*(int(part) if part.strip() else None for part in value.split(":")))
            some.indices(1)  # refuses a step of 0
            return (some,)
        numbers = [int(part) for part in value.split(",")]
    except (ValueError, TypeError):
        numbers = [-1]
    if min(numbers) < 0:
        raise InputError(f'channels {value!r} is not understood; write "10:50" (50 not included) or "3,4,7"')
    return tuple(slice(number, number + 1) for number in numbers)


def _windows(line: FlagCommand, value: str) -> FlagCommand:
    _channels(value)
    return line


_TAKERS: dict[str, Callable[[FlagCommand, str], FlagCommand]] = {
    "antennas": _antennas,
    "baselines": _baselines,
    "fields": lambda line, value: replace(line, fields=_items(value)),
    "spws": lambda line, value: line,
    "scans": _scans,
    "time_range": _times,
    "uv_range": lambda line, value: replace(line, uv_ranges=(UVRange.of(value),)),
    "channels": _windows,
    "correlations": lambda line, value: replace(
        line, correlations=tuple(value.upper().replace(",", " ").split())
    ),
}
