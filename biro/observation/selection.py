"""Select part of a data set: names, ids and ranges become masks over rows and channel indices."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.errors import DataError, InputError
from biro.models.quantities.strict import did_you_mean
from biro.observation.correlations import STOKES_NAMES
from biro.observation.stokes import parse_stokes
from rime_kernels.physics.phase import SPEED_OF_LIGHT

Items: TypeAlias = "str | int | Iterable[str | int]"
"""Names or ids, one or several."""
Moment: TypeAlias = "str | float | datetime.datetime"
"""Text (UTC), MJD in s on the time scale of the set, or a datetime."""
Length: TypeAlias = "str | float"
"""Text with a unit, or metres."""
Channels: TypeAlias = "int | slice | str | Iterable[int]"
"""Channel numbers, from 0; text is "start:stop:step" or "3,4,7"."""
EndT = TypeVar("EndT")
TIMES, LENGTHS = "2017-04-10T00:30..2017-04-10T02:00", "100 m..5 km"
"""Ranges as they are written."""


@dataclass(frozen=True)
class Selection:
    """What to read; None means everything. Text is read as the options of the command line are.

    Attributes
    ----------
    fields, spws : name, id, or several of them
        A name that several have selects them all. Text with commas, "3C273,1", names several, unless it is
        a name itself.
    scans : int or ints, or text "2,4,5"
    antennas : name, id, or several of them
        Rows with both antennas among these. Names that begin with "!" are left out instead.
    time_range : (start, stop) or text "start..stop"
        Text as "2017-04-10T00:30" (UTC) or float (MJD in seconds, as the TIME column has it). None or
        nothing beside ".." for an open end.
    uv_range : (low, high) or text "low..high"
        Projected baseline length: "100 m", "5 km", a number (metres), or in wavelengths "2 klambda".
        In wavelengths each channel is judged by itself. None or nothing beside ".." for open ends.
    channels : int, slice, text "start:stop:step", or ints
        Of each spectral window, from 0, stop not included.
    correlations : str or several
        "XX", "RR", ...; those that a data description lacks are passed over.
    stokes : str
        "I", "IQUV", "QU", "pseudoI", ...: Stokes parameters to form of these correlations
        (`biro.observation.stokes.form_stokes`). None keeps correlations as they are stored.
    autocorrelations : bool
        Keep rows whose two antennas are the same.
    """

    fields: Items | None = None
    spws: Items | None = None
    scans: int | str | Iterable[int] | None = None
    antennas: Items | None = None
    time_range: str | tuple[Moment | None, Moment | None] | None = None
    uv_range: str | tuple[Length | None, Length | None] | None = None
    channels: Channels | None = None
    correlations: str | Iterable[str] | None = None
    stokes: str | None = None
    autocorrelations: bool = False

    def __post_init__(self) -> None:
        """Refuse text that is not understood, and what is no choice, before any set is opened."""
        for name in ("fields", "spws", "scans", "antennas", "channels", "correlations"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, int | np.integer | slice | Iterable):
                raise InputError(f"{name} must be text, a number, or several of them, got {given!r}")
        if self.uv_range is not None:
            UVRange.of(self.uv_range)
        if isinstance(self.scans, str):
            read_scans(self.scans)
        if self.time_range is not None:
            select_times(self.time_range, np.zeros(0), 0.0)
        if isinstance(self.channels, str):
            _text_to_channels(self.channels)
        if self.stokes is not None:
            object.__setattr__(self, "stokes", parse_stokes(self.stokes))

    @property
    def stated(self) -> list[str]:
        """Names of the attributes that are not at their default."""
        return [item.name for item in fields(self) if getattr(self, item.name) is not item.default]


def select_names(wanted: Items | None, names: Sequence[str], label: str) -> NDArray[np.bool_]:
    """Mask of what is wanted by name or id, bool (n_name,).

    Parameters
    ----------
    wanted : name, id, or several
        See `Selection`; None selects all.
    names : sequence of str
        All that are there.
    label : str
        What these are names of, for errors.

    Raises
    ------
    DataError
        One of them is not there; lists those that are.
    """
    if wanted is None:
        return np.ones(len(names), bool)
    items = _as_list(wanted, names)
    left_out = [str(item).startswith("!") and item not in names for item in items]
    if any(left_out) and not all(left_out):
        raise InputError(f"{label}: names to exclude ('!NAME') cannot be combined with names to keep")
    mask = np.zeros(len(names), bool)
    for item in items:
        mask |= _matches(str(item)[1:] if all(left_out) else item, names, label)
    return ~mask if items and all(left_out) else mask


def _matches(item: str | int, names: Sequence[str], label: str) -> NDArray[np.bool_]:
    mask = np.array([name == item for name in names], bool)
    if mask.any():
        return mask
    if isinstance(item, int | np.integer) or str(item).isdigit():
        number = int(item)
        if 0 <= number < len(names):
            return np.array([i == number for i in range(len(names))], bool)
    known = ", ".join(f"{i}={name!r}" for i, name in enumerate(names))
    raise DataError(f"no {label} {item!r}{did_you_mean(item, names)}; there are {known}")


def _as_list(wanted: Items, names: Sequence[str] = ()) -> list[str | int]:
    if isinstance(wanted, str) and wanted not in names and wanted.removeprefix("!") not in names:
        return [part.strip() for part in wanted.split(",") if part.strip()] or [""]
    return [wanted] if isinstance(wanted, str | int | np.integer) else list(wanted)


def read_scans(text: str, name: str = "scans") -> list[int]:
    """Numbers of scans from text as "2,4,5".

    Raises
    ------
    InputError
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{name} {text!r} is not understood; write numbers separated by commas") from None


def select_scans(wanted: int | str | Iterable[int] | None, scan: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Mask of the rows of some scans, bool (n_row,).

    Parameters
    ----------
    wanted : int or ints, or text "2,4,5"
        None selects all.
    scan : int32 (n_row,)
        Scan number of each row.

    Raises
    ------
    DataError
        A scan that is not there.
    """
    if wanted is None:
        return np.ones(len(scan), bool)
    numbers = np.array(read_scans(wanted) if isinstance(wanted, str) else _as_list(wanted), np.int64)
    present = np.unique(scan)
    lacking = np.setdiff1d(numbers, present)
    if lacking.size:
        raise DataError(f"no scan {_numbers_text(lacking)}; there are {_numbers_text(present)}")
    return np.isin(scan, numbers)


def _numbers_text(numbers: NDArray[np.integer]) -> str:
    text = ", ".join(map(str, numbers[:30]))
    return f"{text}, ..." if len(numbers) > 30 else text


def select_times(
    wanted: str | tuple[Moment | None, Moment | None] | None, time: NDArray[np.float64], utc_offset: float
) -> NDArray[np.bool_]:
    """Mask of the rows within a range of times, bool (n_row,), both ends included.

    Parameters
    ----------
    wanted : (start, stop) or text "start..stop"
        See `Selection`; None selects all.
    time : float64 (n_row,), MJD in s
        As the TIME column has it.
    utc_offset : float, s
        To be added to a time of the column to make it UTC.

    Raises
    ------
    InputError
        A time that is not understood, or a start after the stop.
    """
    if wanted is None:
        return np.ones(len(time), bool)
    low, high = _ends(
        range_ends(wanted, "time_range", TIMES) if isinstance(wanted, str) else wanted, "time_range"
    )
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


def range_ends(text: str, name: str, example: str) -> tuple[str | None, str | None]:
    """The two ends of text as "low..high", without spaces; None for an open end.

    Raises
    ------
    InputError
        Text without "..", of what `name` calls it; an example says how it is written.
    """
    low, dots, high = text.partition("..")
    if not dots:
        raise InputError(f"{name} {text!r} is not understood; write {example}")
    return low.strip() or None, high.strip() or None


def _ends(pair: tuple[EndT, EndT], name: str) -> tuple[EndT, EndT]:
    """The two ends of a range, which may be something else than a pair where a user gave it."""
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise InputError(f"{name} must be (low, high) with None for an open end, got {pair!r}")
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
            wanted = range_ends(wanted, "uv_range", LENGTHS)
        ends = [None if end is None else read_length(end) for end in _ends(wanted, "uv_range")]
        in_wavelengths = {end[1] for end in ends if end is not None}
        if len(in_wavelengths) > 1:
            raise InputError(f"uv_range {wanted}: both ends in lengths or both in wavelengths")
        low = 0.0 if ends[0] is None else ends[0][0]
        high = np.inf if ends[1] is None else ends[1][0]
        if low > high:
            raise InputError(f"uv_range {wanted}: the low end is above the high end")
        return cls(low, high, in_wavelengths == {True})

    def mask(self, uvw: NDArray[np.float64], chan_freq: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which visibilities are inside: bool (n_row, n_chan), or (n_row, 1) where the range is in metres.

        Parameters
        ----------
        uvw : float64 (n_row, 3), m
        chan_freq : float64 (n_chan,), Hz
        """
        length = np.hypot(uvw[:, 0], uvw[:, 1])[:, None]
        if self.in_wavelengths:
            length = length * (chan_freq / SPEED_OF_LIGHT)
        return (length >= self.low) & (length <= self.high)


def read_length(length: Length) -> tuple[float, bool]:
    """A length in metres or a number of wavelengths, and whether it is the latter."""
    if not isinstance(length, str):
        return float(length), False
    match = re.fullmatch(r"\s*([-+.\deE]+?)\s*([A-Za-zλ]*)\s*", length)
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
    raise InputError(f'length {length!r} is not understood; write "100 m", "5 km" or "20 klambda"')


def select_channels(wanted: Channels | None, n_chan: int, label: str) -> NDArray[np.int64]:
    """Indices of the channels wanted, int64, ascending, among n_chan; `label` is what errors call the window.

    Raises
    ------
    DataError
        None is selected, or one that is not there.
    InputError
        Text that is not understood.
    """
    every = np.arange(n_chan)
    if wanted is None:
        return every
    if isinstance(wanted, str):
        wanted = _text_to_channels(wanted)
    if isinstance(wanted, slice):
        indices = every[wanted]
    else:
        indices = np.unique(np.array(_as_list(wanted)).astype(np.int64))
    if indices.size == 0 or indices[0] < 0 or indices[-1] >= n_chan:
        raise DataError(f"channels {wanted}: {label} has channels 0 to {n_chan - 1}")
    return np.sort(indices)


def _text_to_channels(text: str) -> slice | list[int]:
    try:
        if ":" in text:
            some = slice(*(int(part) if part.strip() else None for part in text.split(":")))
            some.indices(1)  # refuses a step of 0
            return some
        return [int(number) for number in np.array([int(part) for part in text.split(",")], np.int64)]
    except (ValueError, TypeError, OverflowError):
        raise InputError(
            f'channels {text!r} is not understood; write "10:50" (50 not included) or "3,4,7"'
        ) from None


def select_correlations(wanted: str | Iterable[str] | None, corr_type: Sequence[str]) -> NDArray[np.int64]:
    """Indices of the correlations wanted, in stored order; none where the description has none of them."""
    if wanted is None:
        return np.arange(len(corr_type))
    names = _correlation_names(wanted)
    return np.array([i for i, name in enumerate(corr_type) if name in names], np.int64)


def check_stokes_stored(wanted: str | Iterable[str] | None, present: Iterable[str]) -> None:
    """Refuse Stokes parameters among the correlations wanted which none of those present are.

    Raises
    ------
    DataError
    """
    lacking = _correlation_names(wanted or ()) & set(STOKES_NAMES) - set(present)
    if lacking:
        names = "".join(name for name in STOKES_NAMES if name in lacking)
        raise DataError(
            f"no correlation {', '.join(names)} is stored; there are {', '.join(present)}: "
            f"to form Stokes {names} of them, give stokes={names!r} (--stokes {names})"
        )


def _correlation_names(wanted: str | Iterable[str]) -> set[str]:
    return {
        name.upper() for name in (wanted.replace(",", " ").split() if isinstance(wanted, str) else wanted)
    }
