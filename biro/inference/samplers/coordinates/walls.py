"""Coordinates that reach the limits of their priors, and the axes of all others about them.

A direction that gains leave open, as the position of a sky beside phases, ends where priors end. A parameter
a along it moves freely between its walls, and all others follow in a straight line:

    w_a = low + (high - low) / (1 + exp(-(q + s z_a))),     w = middle + B (w_a - middle_a) + F z_rest

with B and F F^T the regression and the covariance of the others for given a.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]
Index = NDArray[np.int64]
ROOM = 7.0
"""Sigmas between a parameter and each limit of its prior, from which on no draw comes near the limit."""
_MARGIN = 3.0
"""Sigmas of one that follows, by which the walls lie behind its limits."""
_MOST = 30
"""Walled parameters."""
_WIDEST = 1.5
"""Value of s: a density as flat as its prior has the curvature of z with about this."""
_INSIDE = 1e-3
"""Part of the distance between walls by which the middle lies inside."""


class Moved(NamedTuple):
    """w_a - middle_a, ln of its derivative by z_a, and the derivative of that, float64 (n, n_walled) each."""

    away: Array
    log_slope: Array
    bend: Array


class Walls(NamedTuple):
    """Parameters between walls.

    Attributes
    ----------
    which : int64 (n_walled,)
    low, high, stretch : float64 (n_walled,)
        The walls, of w, and s.
    """

    which: Index
    low: Array
    high: Array
    stretch: Array

    @classmethod
    def none(cls) -> Walls:
        return cls(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))

    def moved(self, z: Array, middle: Array) -> Moved:
        """w_a - middle_a of z_a (n, n_walled), with its derivatives."""
        width, centre = self.high - self.low, middle[self.which]
        q = special.logit((centre - self.low) / width) + self.stretch * z
        log_slope = np.log(width * self.stretch) + special.log_expit(q) + special.log_expit(-q)
        bend = self.stretch * (1.0 - 2.0 * special.expit(q))
        return Moved(self.low + width * special.expit(q) - centre, log_slope, bend)

    def back(self, away: Array, middle: Array) -> Array:
        """z_a of w_a - middle_a: the inverse of `moved`."""
        width, centre = self.high - self.low, middle[self.which]
        parts = [(x - self.low) / width for x in (centre + away, centre)]
        return np.asarray((special.logit(parts[0]) - special.logit(parts[1])) / self.stretch)


def walls_of(precision: Array, middle: Array, low: Array, high: Array) -> tuple[Walls, Array]:
    """The parameters to be walled, and the middle moved inside.

    Parameters
    ----------
    precision : float64 (n_param, n_param)
    middle, low, high : float64 (n_param,)
        Of w; limits are infinite, both of them, where a parameter is not to be walled.
    """
    room, chosen = np.minimum(middle - low, high - middle), np.zeros(middle.size, bool)
    while chosen.sum() < _MOST:
        sigma = np.sqrt(np.diag(inverse_of(precision[np.ix_(~chosen, ~chosen)])))
        ratio = np.full(middle.size, np.inf)
        ratio[~chosen] = room[~chosen] / sigma
        if not ratio.min(initial=np.inf) < ROOM:
            break
        chosen[np.argmin(ratio)] = True
    index = np.flatnonzero(chosen)
    if not index.size:
        return Walls.none(), middle
    follow, spread = regression(precision, index)
    at = _reached(index, follow, spread, middle, (low, high))
    inner = np.clip(middle[index], at[0] + _INSIDE * (at[1] - at[0]), at[1] - _INSIDE * (at[1] - at[0]))
    moved = middle + follow @ (inner - middle[index])
    part = (inner - at[0]) / (at[1] - at[0])
    sigma = np.sqrt(np.diag(inverse_of(precision))[index])
    stretch = np.minimum(sigma / ((at[1] - at[0]) * part * (1.0 - part)), _WIDEST)
    return Walls(index, at[0], at[1], stretch), moved


def inverse_of(precision: Array) -> Array:
    """The inverse, worked out in units of the diagonal."""
    scale = np.sqrt(np.diag(precision))
    return np.asarray(np.linalg.inv(precision / np.outer(scale, scale)) / np.outer(scale, scale))


def regression(precision: Array, index: Index) -> tuple[Array, Array]:
    """B (n_param, n_walled), 1 at the walled parameters, and sigmas of all others for given ones."""
    rest = np.setdiff1d(np.arange(len(precision)), index)
    covariance = inverse_of(precision[np.ix_(rest, rest)])
    follow, sigma = np.zeros((len(precision), index.size)), np.zeros(len(precision))
    follow[index, np.arange(index.size)] = 1.0
    follow[rest], sigma[rest] = -covariance @ precision[np.ix_(rest, index)], np.sqrt(np.diag(covariance))
    return follow, sigma


def _reached(
    index: Index, follow: Array, sigma: Array, middle: Array, limits: tuple[Array, Array]
) -> tuple[Array, Array]:
    """The walls: limits of the parameters themselves, or of others that follow them closely.

    Others reach their own limits up to `_MARGIN` sigmas later; what is cut off beyond is 4e-4 sigma wide.
    """
    low, high = limits[0][index].copy(), limits[1][index].copy()
    others = np.flatnonzero(np.isfinite(limits[0]) & ~np.isin(np.arange(middle.size), index))
    shift = np.abs(follow) * (high - low)
    for k in others.tolist():
        a = int(np.argmax(shift[k]))
        by, besides = follow[k, a], shift[k].sum() - shift[k, a]
        if abs(by) < 1e-12:
            continue
        margin = _MARGIN * sigma[k] + besides
        ends = (np.array([limits[0][k] - margin, limits[1][k] + margin]) - middle[k]) / by + middle[index[a]]
        low[a], high[a] = max(low[a], ends.min()), min(high[a], ends.max())
    return low, high
