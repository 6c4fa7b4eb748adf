"""Gains of antennas that are known: G of the measurement equation (physics: section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from biro.models.components.antenna_terms.feeds import Basis
from biro.models.components.antenna_terms.per_antenna import read_names, read_own
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, quantity, read_entry
from biro.models.quantities.strict import Entry, did_you_mean, read_path, short_repr, strict
from biro.models.quantities.units import ANGLE, NUMBER, Dimension, factor

Complex = NDArray[np.complex128]
FEEDS: dict[Basis, tuple[str, str]] = {"circular": ("r", "l"), "linear": ("x", "y")}
"""Keys of the two feeds of each basis."""
INTERPOLATIONS = ("linear", "nearest")
_DIMENSIONS = {"amplitude": NUMBER, "phase": ANGLE}


@dataclass(frozen=True, eq=False)
class GainSolutions:
    """Complex gains of the two feeds of antennas at some times and frequencies.

    Attributes
    ----------
    source : str
        Path of what they were read from; empty where they are in memory alone.
    time : float64 (n_time,), s
        MJD, ascending, on the time scale of the data.
    freq : float64 (n_freq,), Hz
        Ascending.
    antenna_names : tuple of str
    gain : complex128 (n_time, n_antenna, n_freq, 2)
    usable : bool, as gain
        Whether there is a solution that is not flagged.
    window : int (n_freq,)
        The spectral window of each frequency; default: one.
    n_flagged : int
        Solutions that are there and flagged.

    Raises
    ------
    ModelError
        Shapes that do not fit, or times and frequencies that do not ascend.
    """

    source: str
    time: NDArray[np.float64]
    freq: NDArray[np.float64]
    antenna_names: tuple[str, ...]
    gain: Complex
    usable: NDArray[np.bool_]
    window: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    n_flagged: int = 0

    def __post_init__(self) -> None:
        if not self.window.size:
            object.__setattr__(self, "window", np.zeros(self.freq.size, np.int64))
        shape = (self.time.size, len(self.antenna_names), self.freq.size, 2)
        if self.gain.shape != shape or self.usable.shape != shape:
            raise ModelError(
                f"gains must have shape (time, antenna, freq, 2) = {shape}, found {self.gain.shape} and "
                f"{self.usable.shape}"
            )
        for name, axis in (("time", self.time), ("freq", self.freq)):
            if not axis.size or not np.isfinite(axis).all() or np.any(np.diff(axis) <= 0):
                raise ModelError(f"gains: {name} must ascend, with one value at least")

    def __str__(self) -> str:
        n_usable = int(np.count_nonzero(self.usable))
        flagged = f", {self.n_flagged} flagged" if self.n_flagged else ""
        return (
            f"{self.source or 'in memory'}: {n_usable} solutions{flagged}, "
            f"{len(self.antenna_names)} antennas, {self.time.size} times, {self.freq.size} frequenc"
            f"{'y' if self.freq.size == 1 else 'ies'}"
        )

    def later(self, seconds: float) -> GainSolutions:
        """The same at times so much later, for data on another time scale."""
        return replace(self, time=self.time + seconds) if seconds else self

    def at(
        self, antenna: str, time: NDArray[np.float64], freq: NDArray[np.float64], interpolation: str
    ) -> Complex:
        """Gains of an antenna, complex128 (n_time or 1, n_freq or 1, 2), by solutions that are not flagged.

        "linear" interpolates amplitude and phase apart, the phase along the shorter way, first in frequency
        within the nearest spectral window and then in time; beyond the first and the last solution it takes
        that one. An axis along which there is one solution gives one value.

        Raises
        ------
        ModelError
            A feed without a solution.
        """
        if antenna not in self.antenna_names:
            hint = did_you_mean(antenna, self.antenna_names)
            raise ModelError(f"gain: {self.source or 'the table'} has no antenna {antenna!r}{hint}")
        i = self.antenna_names.index(antenna)
        n_time = 1 if self.time.size == 1 else time.size
        window = self.window == self.window[np.abs(self.freq - np.mean(freq)).argmin()]
        known = self.freq[window]
        n_freq = 1 if known.size == 1 else freq.size
        found = np.empty((n_time, n_freq, 2), np.complex128)
        for feed in range(2):
            gain, usable = self.gain[:, i, window, feed], self.usable[:, i, window, feed]
            slots = np.flatnonzero(usable.any(axis=1))
            if not slots.size:
                raise ModelError(
                    f"gain: {self.source or 'the table'} has no solution of antenna {antenna!r} that is not "
                    "flagged; leave the antenna out of the data"
                )
            rows = [
                _along(known[usable[slot]], gain[slot, usable[slot]], freq[:n_freq], interpolation)
                for slot in slots
            ]
            of_freq = np.array(rows)
            for k in range(n_freq):
                found[:, k, feed] = _along(self.time[slots], of_freq[:, k], time[:n_time], interpolation)
        return found


def _along(known: NDArray[np.float64], gain: Complex, at: NDArray[np.float64], interpolation: str) -> Complex:
    """Gains at points of an axis; beyond its ends those of the ends."""
    if interpolation == "nearest":
        return np.asarray(gain[np.abs(known[None, :] - at[:, None]).argmin(axis=1)])
    amplitude = np.interp(at, known, np.abs(gain))
    return np.asarray(amplitude * np.exp(1j * np.interp(at, known, np.unwrap(np.angle(gain)))))


@strict
class Gain:
    """G = diag(g_0, g_1), known: numbers, tables of solutions, or products of both.

    Parameters
    ----------
    amplitude : number, or {"r": ..., "l": ...} or {"x": ..., "y": ...}, default 1
        Of both feeds, or of each.
    phase : angle, or a table of two, default 0
    table : path, GainSolutions, or a list of them, optional
        CASA calibration tables (G, T and B Jones), or the gains that `biro simulate` wrote.
    interpolation : "linear" or "nearest", default "linear"
        Between the solutions of tables, in time and frequency; see `GainSolutions.at`.
    antennas : list of str, default all
        To which amplitude and phase belong; tables are for all.
    antenna : {name: {"amplitude": ..., "phase": ...}}
        Antennas that have numbers of their own.
    """

    label: ClassVar[str] = "gain"
    _: KW_ONLY
    amplitude: Entry = None
    phase: Entry = None
    table: Entry = None
    interpolation: str = "linear"
    antennas: Entry = None
    antenna: Entry = None

    def __post_init__(self) -> None:
        for key in _DIMENSIONS:
            if getattr(self, key) is not None:
                object.__setattr__(self, key, read_entry(key, _READ[key], getattr(self, key)))
        if self.table is not None:
            tables = self.table if isinstance(self.table, (list, tuple)) else (self.table,)
            object.__setattr__(self, "table", tuple(read_entry("table", _table, one) for one in tables))
        if self.interpolation not in INTERPOLATIONS:
            hint = did_you_mean(self.interpolation, INTERPOLATIONS)
            found = short_repr(self.interpolation)
            raise ModelError(f"interpolation: one of {', '.join(INTERPOLATIONS)}, found {found}{hint}")
        object.__setattr__(self, "antennas", read_names(self.antennas))
        object.__setattr__(self, "antenna", read_own(self.antenna, _READ))

    def named(self) -> set[str]:
        """Antennas that the model names."""
        return set(self.antennas or ()) | set(self.antenna)

    @property
    def solutions(self) -> tuple[GainSolutions, ...]:
        """The tables.

        Raises
        ------
        ModelError
            One of them was not read yet.
        """
        tables = self.table or ()
        for table in tables:
            if not isinstance(table, GainSolutions):
                raise ModelError(f"gain: table {table!r} was not read; biro.read_gains reads it")
        return tuple(tables)

    def number(self, antenna: str, basis: Basis) -> tuple[complex, complex]:
        """Gains of both feeds of an antenna, without tables.

        Raises
        ------
        ModelError
            Numbers of feeds that the data do not have.
        """
        included = self.antennas is None or antenna in self.antennas
        own = self.antenna.get(antenna, {})
        parts = []
        for key, default in (("amplitude", 1.0), ("phase", 0.0)):
            given = own.get(key, getattr(self, key) if included else None)
            parts.append(_of_feeds(key, given, basis, default))
        (a0, a1), (p0, p1) = parts
        return complex(a0 * np.exp(1j * p0)), complex(a1 * np.exp(1j * p1))


def _of_feeds(key: str, given: Entry, basis: Basis, default: float) -> tuple[float, float]:
    def value(item: Fixed | None) -> float:
        return default if item is None else item.value * factor(item.unit, _DIMENSIONS[key])

    if not isinstance(given, Mapping):
        return value(given), value(given)
    foreign = sorted(set(given) - set(FEEDS[basis]))
    if foreign:
        raise ModelError(
            f"gain: {key}: {foreign[0]!r} is no feed of the data; theirs are {', '.join(FEEDS[basis])}"
        )
    first, second = (value(given.get(feed)) for feed in FEEDS[basis])
    return first, second


def _fixed(value: Entry, dimension: Dimension) -> Fixed:
    made = quantity(value, dimension)
    if not isinstance(made, Fixed):
        raise ModelError("gains can be fixed or read, not fitted or tied; give a number")
    return made


def _read(value: Entry, dimension: Dimension) -> Fixed | dict[str, Fixed]:
    if not isinstance(value, Mapping) or {"prior", "tie"} & set(value):
        return _fixed(value, dimension)
    known = [feed for feeds in FEEDS.values() for feed in feeds]
    for feed in value:
        if feed not in known:
            raise ModelError(f"unknown feed {short_repr(feed)}; expected r and l, or x and y")
    return {feed: read_entry(feed, _fixed, item, dimension) for feed, item in value.items()}


def _amplitude(value: Entry) -> Entry:
    return _read(value, NUMBER)


def _phase(value: Entry) -> Entry:
    return _read(value, ANGLE)


_READ = {"amplitude": _amplitude, "phase": _phase}


def _table(value: Entry) -> str | GainSolutions:
    if isinstance(value, GainSolutions):
        return value
    return read_path(value, "the path of a table of gains")
