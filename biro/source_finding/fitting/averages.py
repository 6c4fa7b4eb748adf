"""What averages over integrations and channels take of the visibilities of a component, to second order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Rows
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.rotation import rates
from rime_kernels.smearing.smearing import Smearing

Array = NDArray[np.float64]
_SMALL = 0.15
"""Turns up to which series of four terms are exact to 1e-6."""


@dataclass(frozen=True, eq=False)
class Averages:
    """The factor by which a point or a Gaussian at (l, m) is smeared,

        sinc(B tau) sinc(T nu dtau/dt) exp(2 pi i nu T^2/24 d2tau/dt2)
        tau = (u l + v m + w (n - 1))/c,    sinc(x) = sin(pi x)/(pi x)

    for channels of width B and integrations of length T (physics: section 6). The last factor is
    there because uvw turn on a circle. The exact mean of `rime_kernels.Smearing` differs by some 1e-3 of the
    loss, less than a search for sources sees; this costs next to nothing.

    Attributes
    ----------
    over_channel, over_time, bend : float64 (..., 3)
        For each visibility, turns of the phase per direction cosine (l, m, n - 1): over the channel, B u/c;
        over the integration, T nu/c times the rate of u; and by how far the mean phase is from that in the
        middle, nu T^2/24 c times the rate of this rate; u of all three coordinates.
    """

    over_channel: Array
    over_time: Array
    bend: Array

    @classmethod
    def of(cls, smearing: Smearing, rows: Rows, index: NDArray[np.int64]) -> Averages:
        """Averages of some rows of a partition, whose numbers there are `index`; (n_row, n_chan, 3)."""
        seconds = smearing.interval[index][:, None]
        delay = rows.uvw[index] / SPEED_OF_LIGHT
        once = _rates(delay, smearing)
        twice = seconds**2 / 24.0 * _rates(once, smearing)
        width, freq = smearing.chan_width[:, None], rows.chan_freq[:, None]
        return cls(delay[:, None, :] * width, (seconds * once)[:, None, :] * freq, twice[:, None, :] * freq)

    def at(self, used: NDArray[np.bool_]) -> Averages:
        """Averages of some visibilities, (n_used, 3)."""
        return Averages(self.over_channel[used], self.over_time[used], self.bend[used])

    @classmethod
    def joined(cls, some: Sequence[Averages]) -> Averages:
        """Averages of several lists of visibilities, one after the other."""
        names = ("over_channel", "over_time", "bend")
        return cls(*(np.concatenate([getattr(each, name) for each in some]) for name in names))

    @cached_property
    def largest(self) -> float:
        """The most that a phase turns within an average, per direction cosine."""
        turns = (np.linalg.norm(x, axis=-1).max(initial=0.0) for x in (self.over_channel, self.over_time))
        return float(max(turns))

    def kept(self, lm: tuple[float, float]) -> NDArray[np.complex128]:
        """What is kept of a source, complex128 for each visibility."""
        by_width, by_time, bent = self._turns(np.array([*lm, _n_minus_1(lm)]))
        return np.asarray(_sinc(by_width) * _sinc(by_time) * np.exp(2j * np.pi * bent))

    def log_slopes(self, lm: tuple[float, float]) -> list[NDArray[np.complex128]]:
        """Derivatives of the logarithm of `kept` by l and by m, complex128 for each visibility."""
        by_width, by_time, _ = self._turns(np.array([*lm, _n_minus_1(lm)]))
        steep, n = (_log_slope(by_width), _log_slope(by_time)), 1.0 + _n_minus_1(lm)
        slopes = []
        for way in ((1.0, 0.0, -lm[0] / n), (0.0, 1.0, -lm[1] / n)):
            width, time, bent = self._turns(np.array(way))
            slopes.append(np.asarray(steep[0] * width + steep[1] * time + 2j * np.pi * bent))
        return slopes

    def _turns(self, lmn: Array) -> tuple[Array, Array, Array]:
        """Turns of the phase over a channel, over an integration, and by the bend, of each visibility."""
        return self.over_channel @ lmn, self.over_time @ lmn, self.bend @ lmn


def _rates(uvw: Array, smearing: Smearing) -> Array:
    """How fast coordinates (n_row, 3) change, per second."""
    u, v, w = uvw.T
    return np.stack(rates(u, v, w, smearing.declination, smearing.pole_angle), axis=-1)


def _n_minus_1(lm: tuple[float, float]) -> float:
    square = lm[0] * lm[0] + lm[1] * lm[1]
    return float(-square / (1.0 + np.sqrt(max(1.0 - square, 0.0))))


def _sinc(x: Array) -> Array:
    """sin(pi x)/(pi x); by its series where all x are small, which is ten times faster and off by 1e-8."""
    if np.abs(x).max(initial=0.0) > _SMALL:
        return np.asarray(np.sinc(x))
    square = np.pi**2 * x * x
    return np.asarray(1.0 - square / 6.0 * (1.0 - square / 20.0 * (1.0 - square / 42.0)))


def _log_slope(x: Array) -> Array:
    """Derivative of ln sinc(x): pi cot(pi x) - 1/x; 0 near the zeros of sinc, where nothing is seen."""
    if np.abs(x).max(initial=0.0) <= _SMALL:
        square = np.pi**2 * x * x
        tail = square / 15.0 * (1.0 + square * (2.0 / 21.0) * (1.0 + square / 10.0))
        return np.asarray(-(np.pi**2) * x / 3.0 * (1.0 + tail))
    near = (np.abs(x) < 1e-3) | (np.abs(np.sin(np.pi * x)) < 1e-6)
    safe = np.where(near, 0.25, x)
    slope = np.where(near, 0.0, np.pi / np.tan(np.pi * safe) - 1.0 / safe)
    return np.where(np.abs(x) < 1e-3, -(np.pi**2) * x / 3.0, slope)
