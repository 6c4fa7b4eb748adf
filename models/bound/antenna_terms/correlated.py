"""Quantities of neighbouring segments that are alike: Gauss-Markov processes of whitened parameters.

With standard normal parameters e_k of the segments at times t_k, r_k = exp(-(t_k - t_(k-1)) / T), and the
standard deviation s of the prior

    x_0 = s e_0,  x_k = r_k x_(k-1) + s sqrt(1 - r_k^2) e_k

so that each x_k has the prior, and neighbours the correlation r_k (the Ornstein-Uhlenbeck process, as in
Rasmussen & Williams 2006, appendix B.2). A phase that is uniform over the circle has x_0 itself as a
parameter and

    x_k = x_(k-1) + sqrt(2 (t_k - t_(k-1)) / T) e_k

for which the mean of exp(i (x_k - x_(k-1))) is r_k, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.models.components.antenna_terms.per_segment import PerSegment
from biro.models.quantities import units
from biro.models.quantities.prior import LogNormal
from biro.models.quantities.units import Dimension

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Chain:
    """x_k = keep_k x_(k-1) + step_k e_k, and x_k + middle as the value; float64 (n_segment, n_antenna, 2).

    Attributes
    ----------
    keep, step : float64 (n_segment, n_antenna, 2)
        1 and 0 where there is no parameter: the value stays what it was.
    middle : float64 (n_antenna, 2)
        Of the value, or of its logarithm where `is_log`.
    is_log : bool
    """

    keep: Array
    step: Array
    middle: Array
    is_log: bool

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal chains."""
        return self.keep.tobytes(), self.step.tobytes(), self.middle.tobytes(), self.is_log

    def states(self, parameters: Array) -> Array:
        """x without `middle`, of parameters (n_batch, n_segment, n_antenna, n_chan_block, 2)."""
        found = np.empty(parameters.shape)
        last = np.zeros_like(parameters[:, 0])
        for k, (keep, step) in enumerate(zip(self.keep[:, :, None], self.step[:, :, None], strict=True)):
            last = found[:, k] = keep * last + step * parameters[:, k]
        return found

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to the parameters, from those to x, of the same shape."""
        found = np.empty(slopes.shape)
        last = np.zeros_like(slopes[:, 0])
        for k in range(len(self.keep) - 1, -1, -1):
            last = last + slopes[:, k]
            found[:, k] = self.step[k][:, None] * last
            last = self.keep[k][:, None] * last
        return found


def chain_of(
    priors: Sequence[tuple[PerSegment | None, ...]],
    time: Array,
    free: NDArray[np.bool_],
    dimension: Dimension,
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
    """
    keep, step = np.ones(free.shape), np.zeros(free.shape)
    middle, is_log = np.zeros(free.shape[1:]), False
    for antenna, pair in enumerate(priors):
        for feed, one in enumerate(pair):
            rows = np.flatnonzero(free[:, antenna, feed])
            if one is None or not rows.size:
                continue
            assert one.coherence is not None
            away = np.diff(time[rows]) / one.coherence
            if one.is_circle:
                first, steps, kept = 1.0, np.sqrt(2.0 * away), np.ones(away.size)
            else:
                is_log = isinstance(one.prior, LogNormal)
                by = 1.0 if is_log else units.factor(one.prior.unit, dimension)
                first, kept = float(one.prior.sd) * by, np.exp(-away)
                steps = first * np.sqrt(-np.expm1(-2.0 * away))
                middle[antenna, feed] = np.log(one.prior.median) if is_log else one.prior.mean * by
            keep[rows, antenna, feed] = np.concatenate([[0.0], kept])
            step[rows, antenna, feed] = np.concatenate([[first], steps])
    return Chain(keep, step, middle, is_log)
