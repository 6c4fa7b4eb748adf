"""Which part of a Measurement Set is wanted: names, ids and ranges made into masks and indices."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError, MeasurementSetError

C = 299792458.0
"""Speed of light, m/s."""

Items: TypeAlias = "str | int | Iterable[str | int]"
Moment: TypeAlias = "str | float | datetime.datetime"
Length: TypeAlias = "str | float"


@dataclass(frozen=True)
class Selection:
    """What to read; None means everything.

    Attributes
    ----------
    fields, spws : name, id, or several of them
        A name that several have selects them all.
    scans : int or ints
    antennas : name, id, or several of them
        Rows with both antennas among these. Names that begin with "!" are left out instead.
    time_range : (start, stop)
        Text as "2017-04-10T00:30" (UTC) or float (MJD in seconds, as the TIME column has it); None for an
        open end.
    uv_range : (low, high) or text "low..high"
        Projected baseline length: "100 m", "5 km", a number (metres), or in wavelengths "2 klambda".
        In wavelengths each channel is judged by itself. None or nothing beside ".." for open ends.
    channels : int, slice, text "start:stop:step", or ints
        Of each spectral window, from 0, stop not included.
    correlations : str or several
        "XX", "RR", ...; those that a data description lacks are passed over.
    autocorrelations : bool
        Keep rows whose two antennas are the same.
    """

    fields: Items | None = None
    spws: Items | None = None
    scans: int | Iterable[int] | None = None
    antennas: Items | None = None
    time_range: tuple[Moment | None, Moment | None] | None = None
    uv_range: str | tuple[Length | None, Length | None] | None = None
    channels: int | slice | str | Iterable[int] | None = None
    correlations: str | Iterable[str] | None = None
    autocorrelations: bool = False

    def __post_init__(self) -> None:
        """Refuse text that is not understood before any set is opened."""
        if self.uv_range is not None:
            UVRange.of(self.uv_range)
        if self.time_range is not None:
            choose_times(self.time_range, np.zeros(0), 0.0)
        if isinstance(self.channels, str):
            _text_to_channels(self.channels)


def choose(wanted: Items | None, names: Sequence[str], what: str) -> NDArray[np.bool_]:
    """Mask over `names` of those wanted by name or id.

    Raises
    ------
    MeasurementSetError
        One of them is not there; lists those that are.
    """
    if wanted is None:
        return np.ones(len(names), bool)
    items = _several(wanted)
    left_out = [str(item).startswith("!") and item not in names for item in items]
    if any(left_out) and not all(left_out):
        raise InputError(f"{what}: names to leave out ('!name') cannot be mixed with names to keep")
    mask = np.zeros(len(names), bool)
    for item in items:
        mask |= _matches(str(item)[1:] if all(left_out) else item, names, what)
    return ~mask if items and all(left_out) else mask


def _matches(item: str | int, names: Sequence[str], what: str) -> NDArray[np.bool_]:
    named = np.array([name == item for name in names], bool)
    if named.any():
        return named
    if isinstance(item, int | np.integer) or str(item).isdigit():
        number = int(item)
        if 0 <= number < len(names):
            return np.arange(len(names)) == number
    there = ", ".join(f"{i}={name!r}" for i, name in enumerate(names))
    raise MeasurementSetError(f"no {what} {item!r}; there are {there}")


def _several(wanted: Any) -> list[Any]:
    return [wanted] if isinstance(wanted, str | int | np.integer) else list(wanted)


def choose_scans(wanted: int | Iterable[int] | None, scan: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Mask over rows."""
    if wanted is None:
        return np.ones(len(scan), bool)
    numbers = np.array([int(number) for number in _several(wanted)])
    there = np.unique(scan)
    lacking = np.setdiff1d(numbers, there)
    if lacking.size:
        raise MeasurementSetError(f"no scan {_listed(lacking)}; there are {_listed(there)}")
    return np.isin(scan, numbers)


def _listed(numbers: NDArray[Any]) -> str:
    text = ", ".join(map(str, numbers[:30]))
    return f"{text}, ..." if len(numbers) > 30 else text


def choose_times(
    wanted: tuple[Moment | None, Moment | None] | None, time: NDArray[np.float64], utc_offset: float
) -> NDArray[np.bool_]:
    """Mask over rows, both ends included; `utc_offset` is what makes the column's times UTC."""
    if wanted is None:
        return np.ones(len(time), bool)
    low, high = _ends(wanted, "time_range")
    start = -np.inf if low is None else to_mjd_seconds(low, utc_offset)
    stop = np.inf if high is None else to_mjd_seconds(high, utc_offset)
    if start > stop:
        raise InputError(f"time_range {wanted}: the start is after the stop")
    return (time >= start) & (time <= stop)


def to_mjd_seconds(moment: Moment, utc_offset: float = 0.0) -> float:
    """A moment on the time scale of the set, MJD in s; numbers are taken as they are."""
    if isinstance(moment, int | float | np.number):
        return float(moment)
    if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    try:
        instant = np.datetime64(moment.strip().removesuffix("Z") if isinstance(moment, str) else moment, "us")
    except ValueError:
        raise InputError(f"time {moment!r} is not understood; write 2017-04-10T00:30:00 (UTC)") from None
    seconds = (instant - np.datetime64("1858-11-17", "us")) / np.timedelta64(1, "s")
    return float(seconds) - utc_offset


def to_utc(mjd_seconds: float, utc_offset: float = 0.0) -> str:
    """ISO text of a time, to a tenth of a second."""
    tenths = round((mjd_seconds + utc_offset) * 10)
    instant = np.datetime64("1858-11-17", "ms") + np.timedelta64(tenths * 100, "ms")
    return str(instant)[:-2]


def _ends(pair: Any, what: str) -> tuple[Any, Any]:
    if isinstance(pair, str) or len(pair) != 2:
        raise InputError(f"{what} must be (low, high) with None for an open end, got {pair!r}")
    return pair[0], pair[1]


@dataclass(frozen=True)
class UVRange:
    """Projected baselines from low to high, in metres or in wavelengths, ends included."""

    low: float
    high: float
    in_wavelengths: bool

    @classmethod
    def of(cls, wanted: str | tuple[Length | None, Length | None]) -> UVRange:
        """From (low, high) or "low..high"."""
        if isinstance(wanted, str):
            low_text, dots, high_text = wanted.partition("..")
            if not dots:
                raise InputError(f'uv_range {wanted!r} is not understood; write "100 m..5 km"')
            wanted = (low_text.strip() or None, high_text.strip() or None)
        ends = [None if end is None else read_length(end) for end in _ends(wanted, "uv_range")]
        kinds = {end[1] for end in ends if end is not None}
        if len(kinds) > 1:
            raise InputError(f"uv_range {wanted}: both ends in lengths or both in wavelengths")
        low = 0.0 if ends[0] is None else ends[0][0]
        high = np.inf if ends[1] is None else ends[1][0]
        if low > high:
            raise InputError(f"uv_range {wanted}: the low end is above the high end")
        return cls(low, high, kinds == {True})

    def mask(self, uvw: NDArray[np.float64], chan_freq: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which visibilities are inside, bool (n_row, n_chan) or (n_row, 1)."""
        length = np.hypot(uvw[:, 0], uvw[:, 1])[:, None]
        if self.in_wavelengths:
            length = length * (chan_freq / C)
        return (length >= self.low) & (length <= self.high)


def read_length(given: Length) -> tuple[float, bool]:
    """A length in metres or a number of wavelengths, and whether it is the latter."""
    if not isinstance(given, str):
        return float(given), False
    match = re.fullmatch(r"\s*([-+.\deE]+?)\s*([A-Za-zλ]*)\s*", given)
    prefixes = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
    scale = {f"{p}{unit}": s for p, s in prefixes.items() for unit in ("lambda", "wavelengths", "λ", "l")}
    metres = {"": 1.0, "m": 1.0, "km": 1e3, "Mm": 1e6, "cm": 1e-2}
    try:
        if match and match[2] in metres:
            return float(match[1]) * metres[match[2]], False
        if match and match[2] in scale:
            return float(match[1]) * scale[match[2]], True
    except ValueError:
        pass
    raise InputError(f'length {given!r} is not understood; write "100 m", "5 km" or "20 klambda"')


def choose_channels(wanted: Any, n_chan: int, what: str) -> NDArray[np.int64]:
    """Indices of the channels wanted, ascending, among n_chan."""
    every = np.arange(n_chan)
    if wanted is None:
        return every
    if isinstance(wanted, str):
        wanted = _text_to_channels(wanted)
    if isinstance(wanted, slice):
        chosen = every[wanted]
    else:
        chosen = np.unique(np.array(_several(wanted)).astype(np.int64))
    if chosen.size == 0 or chosen[0] < 0 or chosen[-1] >= n_chan:
        raise MeasurementSetError(f"channels {wanted}: {what} has channels 0 to {n_chan - 1}")
    return np.sort(chosen)


def _text_to_channels(text: str) -> slice | list[int]:
    try:
        if ":" in text:
            return slice(*(int(part) if part.strip() else None for part in text.split(":")))
        return [int(part) for part in text.split(",")]
    except (ValueError, TypeError):
        raise InputError(
            f'channels {text!r} is not understood; write "10:50" (50 not included) or "3,4,7"'
        ) from None


def choose_correlations(wanted: str | Iterable[str] | None, corr_type: Sequence[str]) -> NDArray[np.int64]:
    """Indices of the correlations wanted, in stored order; none where the description has none of them."""
    if wanted is None:
        return np.arange(len(corr_type))
    names = {
        name.upper() for name in (wanted.replace(",", " ").split() if isinstance(wanted, str) else wanted)
    }
    return np.array([i for i, name in enumerate(corr_type) if name in names], np.int64)
