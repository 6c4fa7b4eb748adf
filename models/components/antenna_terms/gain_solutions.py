"""Gains of antennas that a calibration or a simulation found, at some times and frequencies."""

from __future__ import annotations

import html
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from biro.models.errors import ModelError
from biro.models.quantities.strict import did_you_mean

Complex = NDArray[np.complex128]


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
    interval : float64 (n_time,), s
        How long each solution holds, about its time; default: 0, for its time alone.

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
    interval: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not self.window.size:
            object.__setattr__(self, "window", np.zeros(self.freq.size, np.int64))
        if not self.interval.size:
            object.__setattr__(self, "interval", np.zeros(self.time.size))
        shape = (self.time.size, len(self.antenna_names), self.freq.size, 2)
        if self.gain.shape != shape or self.usable.shape != shape:
            raise ModelError(
                f"gains must have shape (time, antenna, freq, 2) = {shape}, found {self.gain.shape} and "
                f"{self.usable.shape}"
            )
        for name, axis in (("time", self.time), ("freq", self.freq)):
            if not axis.size or not np.isfinite(axis).all() or np.any(np.diff(axis) <= 0):
                raise ModelError(f"gains: {name} must ascend, with one value at least")
        if self.freq[0] <= 0:
            raise ModelError(f"gains: freq must be above 0 Hz, found {self.freq[0]:g}")
        if self.window.shape != self.freq.shape or self.interval.shape != self.time.shape:
            raise ModelError("gains: window must have one number for each frequency, interval for each time")
        good = np.isfinite(self.gain) & (self.gain != 0)  # as CASA takes them: nothing can be divided by 0
        if not good[self.usable].all():
            object.__setattr__(self, "usable", self.usable & good)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        n_usable = int(np.count_nonzero(self.usable))
        flagged = f", {self.n_flagged} flagged" if self.n_flagged else ""
        return (
            f"{self.source or 'in memory'}: {n_usable} solutions{flagged}, "
            f"{len(self.antenna_names)} antennas, {self.time.size} times, {self.freq.size} frequenc"
            f"{'y' if self.freq.size == 1 else 'ies'}"
        )

    def later(self, seconds: float) -> GainSolutions:
        """The solutions at times so much later, for data on another time scale."""
        return replace(self, time=self.time + seconds) if seconds else self

    def at(
        self,
        antenna: str,
        time: NDArray[np.float64],
        freq: NDArray[np.float64],
        interpolation: str,
        feeds: Collection[int] = (0, 1),
    ) -> Complex:
        """Gains of an antenna, complex128 (n_time or 1, n_freq or 1, 2), by solutions that are not flagged.

        "linear" interpolates amplitude and phase apart, the phase along the shorter way, first in frequency
        within the nearest spectral window and then in time; beyond the first and the last solution it takes
        that one. Within its interval a solution holds as it is, as it was solved; only times outside of all
        intervals, as those of a target between scans of a calibrator, are interpolated ("nearest" takes the
        solution whose interval is nearest). An axis along which there is one solution gives one value.
        A feed that is not among `feeds`, those of the data, has the gain of the other one where it has no
        solution: such gains are numbers, which stay what they are in data that were turned to the sky.

        Raises
        ------
        ModelError
            A feed of the data without a solution, or an antenna whose name several have.
        """
        if antenna not in self.antenna_names:
            hint = did_you_mean(antenna, self.antenna_names)
            raise ModelError(f"gain: {self.source or 'the table'} has no antenna {antenna!r}{hint}")
        if self.antenna_names.count(antenna) > 1:
            raise ModelError(
                f"gain: {self.source or 'the table'} has several antennas {antenna!r}; give each its own name"
            )
        i = self.antenna_names.index(antenna)
        n_time = 1 if self.time.size == 1 else time.size
        window = self.window == self.window[np.abs(self.freq - np.mean(freq)).argmin()]
        known = self.freq[window]
        n_freq = 1 if known.size == 1 else freq.size
        found = np.empty((n_time, n_freq, 2), np.complex128)
        # Feeds of the data come first: these have a solution.
        for feed in sorted(range(2), key=lambda one: one not in feeds):
            gain, usable = self.gain[:, i, window, feed], self.usable[:, i, window, feed]
            slots = np.flatnonzero(usable.any(axis=1))
            if not slots.size and feed not in feeds:
                found[..., feed] = found[..., 1 - feed]
                continue
            if not slots.size:
                if not self.usable[..., feed].any():
                    raise ModelError(
                        f"gain: {self.source or 'the table'} has solutions of one feed alone, "
                        f"{('Y or L', 'X or R')[feed]}, and the data have both; read the hand of that "
                        f"feed (--correlations {('YY or LL', 'XX or RR')[feed]})"
                    )
                raise ModelError(
                    f"gain: {self.source or 'the table'} has no solution of antenna {antenna!r} that is not "
                    "flagged; leave the antenna out of the data"
                )
            rows = [
                _along(known[usable[slot]], gain[slot, usable[slot]], freq[:n_freq], interpolation)
                for slot in slots
            ]
            of_freq = np.array(rows)
            nearest, holds = self._nearest(slots, time[:n_time])
            for k in range(n_freq):
                between = _along(self.time[slots], of_freq[:, k], time[:n_time], interpolation)
                found[:, k, feed] = np.where(
                    holds | (interpolation == "nearest"), of_freq[nearest, k], between
                )
        return found

    def _nearest(
        self, slots: NDArray[np.intp], time: NDArray[np.float64]
    ) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Find the solution whose interval is nearest to each time, and whether it covers that time.

        Ends of intervals are rounded: a thousandth of an interval beyond its end counts as within.
        """
        far = np.abs(self.time[slots] - time[:, None])
        beyond = far - 0.5 * self.interval[slots]
        # Of intervals that overlap, or that end where the next one begins, the one with the nearer middle.
        nearest = np.lexsort((far, np.maximum(beyond, 0.0)), axis=1)[:, 0]
        holds = (
            np.take_along_axis(beyond, nearest[:, None], axis=1)[:, 0] <= 1e-3 * self.interval[slots][nearest]
        )
        return nearest, holds & (self.interval[slots][nearest] > 0)


def _along(known: NDArray[np.float64], gain: Complex, at: NDArray[np.float64], interpolation: str) -> Complex:
    """Gains at points of an axis; beyond its ends those of the ends."""
    if interpolation == "nearest":
        return np.asarray(gain[np.abs(known[None, :] - at[:, None]).argmin(axis=1)])
    amplitude = np.interp(at, known, np.abs(gain))
    return np.asarray(amplitude * np.exp(1j * np.interp(at, known, np.unwrap(np.angle(gain)))))
