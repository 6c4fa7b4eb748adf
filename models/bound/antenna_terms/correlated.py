"""Quantities of neighbouring segments that are alike: Gauss-Markov processes of whitened parameters.

With standard normal parameters e_k of the segments at times t_k, r_k = exp(-(t_k - t_(k-1)) / T), and the
standard deviation s of the prior

    x_0 = s e_0,  x_k = r_k x_(k-1) + s sqrt(1 - r_k^2) e_k

so that each x_k has the prior, and neighbours the correlation r_k (the Ornstein-Uhlenbeck process, as in
Rasmussen & Williams 2006, appendix B.2). A phase that is uniform over the circle has x_0 itself as a
parameter and

    x_k = x_(k-1) + sqrt(2 (t_k - t_(k-1)) / T) e_k

for which the mean of exp(i (x_k - x_(k-1))) is r_k, too.

Segments that are independent, of whose prior s is fitted, are the limit T -> 0: r_k = 0.

T and s may be parameters; dx/ds = x/s. The e_k keep their standard normal prior whatever these are, so that
T changes the values alone: of a = (t_k - t_(k-1)) / T,

    dr/dT = r a / T,  d sqrt(1 - r^2)/dT = -r^2 a / (T sqrt(1 - r^2)),  d sqrt(2 a)/dT = -sqrt(2 a) / (2 T)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.slots import ZERO
from biro.models.components.antenna_terms.per_segment import PerSegment
from biro.models.quantities import units
from biro.models.quantities.prior import LogNormal
from biro.models.quantities.units import Dimension

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GaussMarkovSteps:
    """x_k = keep_k x_(k-1) + step_k e_k.

    Attributes
    ----------
    keep, step : float64 (n_batch or 1, n_segment, n_antenna, 1, 2)
    """

    keep: Array
    step: Array

    def states(self, parameters: Array) -> Array:
        """x of parameters e (n_batch, n_segment, n_antenna, n_chan_block, 2)."""
        return self.sums(self.step * parameters)

    def sums(self, added: Array) -> Array:
        """x_k = keep_k x_(k-1) + added_k."""
        found = np.empty(added.shape)
        last = np.zeros_like(added[:, 0])
        for k in range(added.shape[1]):
            last = found[:, k] = self.keep[:, k] * last + added[:, k]
        return found

    def sums_back(self, slopes: Array) -> Array:
        """Derivatives with respect to what `sums` adds, from those to x, of the same shape."""
        found = np.empty(slopes.shape)
        last = np.zeros_like(slopes[:, 0])
        for k in range(slopes.shape[1] - 1, -1, -1):
            found[:, k] = last + slopes[:, k]
            last = self.keep[:, k] * found[:, k]
        return found


@dataclass(frozen=True, eq=False)
class Chain:
    """A process of each antenna and feed: x_k + middle is the value.

    Attributes
    ----------
    away : float64 (n_segment, n_antenna, 2), s
        Time since the segment before that has a parameter; 0 where there is none, for the value stays what it
        was, and inf where there is a parameter for the first time.
    sd : float64 (n_antenna, 2)
        s, or 1 where it is fitted; of phases that are uniform over the circle 1, by which x_0 is multiplied.
    is_walk : bool (n_antenna, 2)
        Phases that are uniform over the circle.
    middle : float64 (n_antenna, 2)
        Of the value, or of its logarithm where `is_log`.
    is_log : bool
    time : float
        T, s, where it is not fitted.
    time_slot : int
        The slot of T where it is fitted; else that of the constant 0.
    sd_slot : int
        The slot of s likewise.
    """

    away: Array
    sd: Array
    is_walk: NDArray[np.bool_]
    middle: Array
    is_log: bool
    time: float
    time_slot: int
    sd_slot: int

    @property
    def is_fitted(self) -> bool:
        """Whether T or s is a parameter."""
        return self.time_slot != ZERO or self.sd_slot != ZERO

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal chains."""
        arrays = (self.away, self.sd, self.is_walk, self.middle)
        return *(array.tobytes() for array in arrays), self.is_log, self.time, self.time_slot, self.sd_slot

    @cached_property
    def known(self) -> GaussMarkovSteps:
        """The steps where T and s are known."""
        return self.at(None, None)

    @property
    def keep(self) -> Array:
        """Where T and s are known: float64 (n_segment, n_antenna, 2)."""
        return np.asarray(self.known.keep[0, :, :, 0])

    @property
    def step(self) -> Array:
        """Where T and s are known: float64 (n_segment, n_antenna, 2)."""
        return np.asarray(self.known.step[0, :, :, 0])

    def at(self, time: Array | None, sd: Array | None) -> GaussMarkovSteps:
        """The steps at each T (n_batch,), s, and each s (n_batch,); None where they are known."""
        away = self._of_batch(self.away) / _column(np.array([self.time]) if time is None else time)
        first = np.isinf(away)
        walk = np.where(first, 1.0, np.sqrt(2.0 * np.where(first, 0.0, away)))
        keep = np.where(self._walks & ~first, 1.0, np.exp(-away))
        step = self._of_batch(self.sd) * np.where(self._walks, walk, np.sqrt(-np.expm1(-2.0 * away)))
        return GaussMarkovSteps(keep, step if sd is None else step * _column(sd))

    def steps_by_time(self, time: Array, steps: GaussMarkovSteps) -> GaussMarkovSteps:
        """Derivatives of the steps at T (n_batch,) with respect to it, per s, shaped as `steps.step`."""
        away = self._of_batch(self.away) / _column(time)
        away = np.where(np.isinf(away), 0.0, away)
        none = steps.step == 0.0
        # step^2 = s^2 (1 - keep^2): from it s^2, which may be fitted.
        missed = np.where(none, 1.0, -np.expm1(-2.0 * away))
        of_square = steps.step * steps.keep**2 / np.where(missed == 0.0, 1.0, missed)
        of_step = np.where(
            self._walks, -0.5 * steps.step * (away > 0.0), np.where(none, 0.0, -away * of_square)
        )
        of_keep = np.broadcast_to(np.where(self._walks, 0.0, steps.keep * away), of_step.shape)
        return GaussMarkovSteps(of_keep / _column(time), of_step / _column(time))

    def by_time(self, time: Array, steps: GaussMarkovSteps, parameters: Array) -> Array:
        """Derivatives with respect to T of what each step adds, of the shape of the parameters, per s.

        d keep_k / dT x_(k-1) + d step_k / dT e_k, from the steps at T (n_batch,) and the parameters.
        """
        slopes = self.steps_by_time(time, steps)
        before = np.zeros(parameters.shape)
        before[:, 1:] = steps.states(parameters)[:, :-1]
        return np.asarray(slopes.keep * before + slopes.step * parameters)

    def by_sd(self, sd: Array, steps: GaussMarkovSteps, parameters: Array) -> Array:
        """Derivatives of what each step adds with respect to s (n_batch,), where it is fitted."""
        return np.asarray(steps.step * parameters / _column(sd))

    @property
    def _walks(self) -> NDArray[np.bool_]:
        return self.is_walk[None, None, :, None]

    @staticmethod
    def _of_batch(array: Array) -> Array:
        """(n_segment, n_antenna, 2) or (n_antenna, 2) as (1, n_segment or 1, n_antenna, 1, 2)."""
        return array[None, ..., None, :] if array.ndim == 3 else array[None, None, :, None]


def _column(numbers: Array) -> Array:
    return numbers[:, None, None, None, None]


def chain_of(
    priors: Sequence[tuple[PerSegment | None, ...]],
    time: Array,
    free: NDArray[np.bool_],
    dimension: Dimension,
    time_slot: int,
    sd_slot: int,
) -> Chain:
    """The chain of antennas with these priors, each feed's.

    Parameters
    ----------
    priors : sequence of two PerSegment or None
        Of each antenna: those of its feeds.
    time : float64 (n_segment,), s
    free : bool (n_segment, n_antenna, 2)
        Whether there is a parameter.
    dimension : Dimension
        Of the quantity.
    time_slot : int
        The slot of T where it is fitted; else that of the constant 0.
    sd_slot : int
        The slot of s likewise.
    """
    away, shape = np.zeros(free.shape), free.shape[1:]
    sd, middle, is_walk, is_log = np.ones(shape), np.zeros(shape), np.zeros(shape, bool), False
    coherence = 1.0
    for antenna, pair in enumerate(priors):
        for feed, one in enumerate(pair):
            rows = np.flatnonzero(free[:, antenna, feed])
            if one is None or not rows.size:
                continue
            if one.coherence is None:
                away[:, antenna, feed] = np.inf  # nothing is left of the segment before
            else:
                away[rows, antenna, feed] = np.diff(time[rows], prepend=-np.inf)
            coherence = one.coherence if isinstance(one.coherence, float) else coherence
            is_walk[antenna, feed] = one.is_circle
            if one.is_circle:
                continue
            is_log = isinstance(one.prior, LogNormal)
            by = 1.0 if is_log else units.factor(one.prior.unit, dimension)
            sd[antenna, feed] = 1.0 if one.sd is not None else float(one.prior.sd) * by
            middle[antenna, feed] = np.log(one.prior.median) if is_log else one.prior.mean * by
    return Chain(away, sd, is_walk, middle, is_log, coherence, time_slot, sd_slot)
