"""Moves within the rungs, from points that were drawn before at about the temperature of each.

Some moves are differences of two of these points, which suit a density of any shape. The others are draws of
a mixture of normal distributions that was fitted to the points: where that is close to the density, such a
draw does not depend on where the walker was. The points and what follows from them do not change while draws
are taken, so that moves leave the density as it is, and walkers are independent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.inference.samplers.tempering.mixture import Mixtures
from biro.inference.samplers.tempering.problem import Advance
from biro.inference.target.checked import Target

Array = NDArray[np.float64]
_JITTER = 0.1
"""Scatter of the components of a difference, relative to themselves."""
_WHOLE, _NEAR = 0.1, 0.3
"""Parts of the differences that are taken whole, and of those between near neighbours."""
_SCALE = 0.8 * 2.38
"""Scale of the other differences, times sqrt(2 n_param): 1.25 times as many effective draws as with 2.38."""
_LEAST, _EDGE = 1e-300, 1e-16
"""Distances of points from the two faces of the unit cube, where normal quantiles are infinite."""
_LEAST_SHARE, _MOST_SHARE = 0.1, 0.8
"""Part of the moves that are draws of the mixture."""


class Proposal(NamedTuple):
    """Proposed points for each rung but the prior and each walker.

    Attributes
    ----------
    unit : float64 (n_rung - 1, n_walker, n_param)
        Within the unit cube or outside.
    log_ratio : float64 (n_rung - 1, n_walker)
        ln of the probability density of the way back over that of the way there.
    is_drawn : bool (n_rung - 1, n_walker)
        Whether a point is a draw of the mixture.
    """

    unit: Array
    log_ratio: Array
    is_drawn: NDArray[np.bool_]


class CubeMoves:
    """The moves of a ladder, in the unit cube.

    A difference of two points is that of differential evolution (ter Braak & Vrugt 2008, Stat. Comput. 18,
    435). The second point is any, or the r-th neighbour of the first with ln r uniform, so that there are
    steps inside of small modes, too. Parameters that wrap are taken about their mean direction.

    Parameters
    ----------
    target : Target
    archive : float64 (n_rung - 1, n_point, n_param)
        Points of the unit cube for each rung but the prior.
    share : float64 (n_rung - 1,)
        Part of the moves that are draws of the mixture.
    mixtures : Mixtures, optional
        Fitted to the archive by default.
    """

    def __init__(
        self, target: Target, archive: Array, share: Array, mixtures: Mixtures | None = None
    ) -> None:
        self._target, self.archive, self.share = target, archive, share
        self._wraps = wraps = target.wraps
        angle = 2.0 * np.pi * archive
        middle = np.arctan2(np.sin(angle).mean(axis=1), np.cos(angle).mean(axis=1)) / (2.0 * np.pi)
        self._middle = np.where(wraps, middle, 0.0)[:, None]
        self._neighbours = np.stack([_neighbours(points, wraps) for points in archive])
        self._mixtures = mixtures or Mixtures.fitted(self._chart(archive))

    @property
    def n_rung(self) -> int:
        """Rungs of the ladder, the prior included."""
        return len(self.archive) + 1

    def arrays(self) -> dict[str, Array]:
        """What the moves follow from, by name."""
        return {"archive": self.archive, "share": self.share, **self._mixtures._asdict()}

    def advance(self, rng: np.random.Generator, beta: Array, rows: Array, log_likelihood: Array) -> Advance:
        """Draw the prior afresh and move all other walkers, in one likelihood call, in place."""
        unit = np.empty_like(rows)
        unit[0] = rng.random(unit[0].shape)
        unit[1:], log_ratio, is_drawn = self.propose(rng, rows[1:])
        inside = ((unit >= 0.0) & (unit < 1.0)).all(axis=2)
        height = np.full(inside.shape, -np.inf)
        height[inside] = self._target.log_likelihood_of_unit(unit[inside])
        take = np.ones(inside.shape, bool)
        gain = beta[1:, None] * (height[1:] - log_likelihood[1:]) + log_ratio
        take[1:] = np.log(rng.random(gain.shape)) < gain
        rows[take], log_likelihood[take] = unit[take], height[take]
        counts = np.stack([(is_drawn & take[1:]).sum(axis=1), is_drawn.sum(axis=1)])
        return Advance(take[1:].mean(axis=1), counts.astype(np.float64), int(inside.sum()))

    def tuned(self, counts: Array) -> Array:
        """Part of the moves that are to be draws of the mixture, from the part of these that is accepted."""
        return np.asarray(np.clip(counts[0] / np.maximum(counts[1], 1.0), _LEAST_SHARE, _MOST_SHARE))

    def propose(self, rng: np.random.Generator, unit: Array) -> Proposal:
        """A point for each walker on each rung, from where they are, (n_rung - 1, n_walker, n_param)."""
        n_walker = unit.shape[1]
        is_drawn = rng.random(unit.shape[:2]) < self.share[:, None]
        before, drawn = self._chart(unit), self._mixtures.draws(rng, n_walker)
        gone = np.abs(drawn) > 0.5
        ratio = self._log_density(before) - self._log_density(drawn)
        ratio[(gone & self._wraps).any(axis=2)] = -np.inf  # another turn of a parameter that wraps
        back = np.where(self._wraps, drawn + self._middle, special.ndtr(drawn))
        moved = np.where(is_drawn[..., None], back, unit + self._steps(rng, n_walker))
        moved = np.where(self._wraps, np.mod(moved, 1.0), moved)
        return Proposal(moved, np.where(is_drawn, ratio, 0.0), is_drawn)

    def _chart(self, unit: Array) -> Array:
        """The coordinates of the mixtures, in which the prior is normal.

        They are the normal quantiles of points; of parameters that wrap, distances from their mean direction
        within half a turn.
        """
        turned = _difference(unit, self._middle, self._wraps)
        return np.where(self._wraps, turned, special.ndtri(np.clip(unit, _LEAST, 1.0 - _EDGE)))

    def _log_density(self, y: Array) -> Array:
        """ln of the density of the mixtures per volume of the unit cube at coordinates y, and a constant."""
        of_prior = -0.5 * np.where(self._wraps, 0.0, y**2).sum(axis=2)
        return np.asarray(self._mixtures.log_density(y) - of_prior)

    def _steps(self, rng: np.random.Generator, n_walker: int) -> Array:
        n_rung, n_point, n_param = self.archive.shape
        rung, size = np.arange(n_rung)[:, None], (n_rung, n_walker)
        first = rng.integers(n_point, size=size)
        near = np.exp(rng.random(size) * np.log(n_point)).astype(int).clip(1, n_point - 1)
        rank = np.where(rng.random(size) < _NEAR, near, rng.integers(1, n_point, size=size))
        second = self._neighbours[rung, first, rank]
        step = _difference(self.archive[rung, first], self.archive[rung, second], self._wraps)
        factor = np.where(rng.random(size) < _WHOLE, 1.0, _SCALE / np.sqrt(2.0 * n_param))
        factor *= rng.choice([-1.0, 1.0], size)
        return np.asarray(step * factor[..., None] * (1.0 + _JITTER * rng.standard_normal(step.shape)))


def _difference(one: Array, other: Array, wraps: NDArray[np.bool_]) -> Array:
    """one - other, the short way round for parameters that wrap."""
    away = one - other
    return np.asarray(np.where(wraps, away - np.rint(away), away))


def _neighbours(points: Array, wraps: NDArray[np.bool_]) -> NDArray[np.int16]:
    """Points in the order of their distance from each, itself first, int16 (n_point, n_point)."""
    scale = points.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    away = np.zeros((len(points),) * 2)
    for i, wrap in enumerate(wraps):
        away += (_difference(points[:, None, i], points[None, :, i], wrap) / scale[i]) ** 2
    np.fill_diagonal(away, -1.0)
    return np.argsort(away, axis=1).astype(np.int16)
