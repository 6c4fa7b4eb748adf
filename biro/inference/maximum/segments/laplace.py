"""The normal approximation about a maximum, with a precision by segments (`maximum.laplace`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.inference.block_arrowhead.matrix import ArrowheadMatrix
from biro.inference.block_arrowhead.space import ArrowheadPrecision, ArrowheadSpace
from biro.inference.maximum.laplace import (
    ONE_SIGMA,
    WIDER,
    distance_from_limit,
    log_integral,
    one_sided_moments,
)

Array = NDArray[np.float64]
_HELD = 1e8
"""Precision that holds a parameter where it is, in units of its own."""
_FLAT = 1e-2
"""Precision, over that of the width of a prior, below which a parameter is not determined."""


class PriorEnds(NamedTuple):
    """The ends of the priors about a point, as `SegmentLaplace` and `StationaryPoint` have them."""

    side: NDArray[np.int64]
    gradient: Array
    room: Array


@dataclass(frozen=True, eq=False)
class SegmentLaplace:
    """The normal approximation about a maximum; `biro.inference.maximum.laplace.Laplace` has the formulas.

    Parameters at a limit of their prior leave it each by itself, and the others follow. A parameter whose
    error is larger than its prior is wide is one about which the data say nothing.

    Attributes
    ----------
    theta : float64 (n_param,)
    space : ArrowheadSpace
    arrowhead : ArrowheadMatrix
        The precision in the states of the space, all parameters free.
    precision : ArrowheadPrecision
        With the parameters at a limit held.
    side : int (n_param,)
        -1 for a parameter at the low limit of its prior, +1 for one at the high limit, else 0.
    error : float64 (n_param,)
        As `Laplace.error`.
    slope, left : float64 (n_param,)
        Of parameters at a limit: by how much ln p falls per unit, and its curvature.
    follow : float64 (n_end, n_param)
        By how much all parameters change per unit of the distance of one from its limit.
    width : float64 (n_param,)
    room : float64 (2, n_param)
        Distances from theta to the limits of its prior.
    log_det : float
        ln det of the precision of the parameters that are not at a limit.
    """

    theta: Array
    space: ArrowheadSpace
    arrowhead: ArrowheadMatrix
    precision: ArrowheadPrecision
    side: NDArray[np.int64]
    error: Array
    slope: Array
    left: Array
    follow: Array
    width: Array
    room: Array
    log_det: float

    @classmethod
    def about(
        cls, theta: Array, space: ArrowheadSpace, arrowhead: ArrowheadMatrix, ends: PriorEnds, width: Array
    ) -> SegmentLaplace:
        """The approximation with this precision.

        Parameters
        ----------
        theta : float64 (n_param,)
        space : ArrowheadSpace
        arrowhead : ArrowheadMatrix
        ends : PriorEnds
        width : float64 (n_param,)
            Of the priors.
        """
        arrowhead = arrowhead + space.of_diagonal(_FLAT / width**2)
        free = ArrowheadPrecision(space, arrowhead)
        at_end, variances = ends.side != 0, free.variances()
        left = np.where(at_end, 1.0 / variances, 0.0)
        held = np.where(at_end, _HELD / variances, 0.0)
        precision = ArrowheadPrecision(space, arrowhead + space.of_diagonal(held)) if at_end.any() else free
        log_det = precision.log_det - float(np.log(held[at_end]).sum())
        slope = np.where(at_end, np.abs(ends.gradient), 0.0)
        follow, densities = _follow(free, ends.side), _densities(ends, slope, left)
        error = np.sqrt(variances)
        if densities:
            moved = follow * (one_sided_moments(densities) @ follow)
            error = np.sqrt(precision.variances() + moved.sum(axis=0))
        for i, density in zip(np.flatnonzero(at_end), densities, strict=True):
            error[i] = distance_from_limit(np.array(ONE_SIGMA), *density)
        error[error > width] = np.nan
        return cls(
            theta,
            space,
            arrowhead,
            precision,
            ends.side,
            error,
            slope,
            left,
            follow,
            width,
            ends.room,
            log_det,
        )

    @property
    def null(self) -> Array:
        """Directions about which the data say nothing: of one parameter each, (n_null, n_param)."""
        lost = np.flatnonzero(np.isnan(self.error))
        found = np.zeros((lost.size, self.theta.size))
        found[np.arange(lost.size), lost] = 1.0
        return found

    @property
    def is_singular(self) -> bool:
        """Whether the data say nothing about some parameter."""
        return bool(np.isnan(self.error).any())

    @property
    def covariance(self) -> Array:
        """The whole covariance, float64 (n_param, n_param), which is large."""
        covariance = self.precision.solve(np.eye(self.theta.size))
        covariance[self.side != 0], covariance[:, self.side != 0] = 0.0, 0.0
        return covariance

    @property
    def spread(self) -> Array:
        """The whole `Laplace.spread`, float64 (n_param, n_param), which is large."""
        if not self.side.any():
            return self.covariance
        densities = _densities(self, self.slope, self.left)
        return self.covariance + self.follow.T @ one_sided_moments(densities) @ self.follow

    def combinations(self, names: Sequence[str]) -> list[str]:
        """Names of the parameters about which the data say nothing."""
        return list(self.open_directions(names))

    def open_directions(self, names: Sequence[str]) -> dict[str, list[str]]:
        """The parameter of each direction of `null`, by its name."""
        return {names[int(i)]: [names[int(i)]] for i in np.flatnonzero(np.isnan(self.error))}

    def log_evidence(self, log_posterior: float) -> float | None:
        """ln Z by Laplace's formula, cut off by priors as if parameters were independent; or None."""
        if self.is_singular:
            return None
        free = self.side == 0
        value = log_posterior + 0.5 * (free.sum() * np.log(2.0 * np.pi) - self.log_det)
        low, high = self.room[:, free] / self.error[free]
        value += np.log1p(-np.minimum(special.ndtr(-low) + special.ndtr(-high), 1.0 - 1e-12)).sum()
        return float(value + sum(self._log_integral(i) for i in np.flatnonzero(~free)))

    def draws(self, rng: np.random.Generator, n: int, dof: float = np.inf) -> Array:
        """theta of the approximation, float64 (n, n_param), as `Laplace.draws`."""
        wider = WIDER if np.isfinite(dof) else 1.0
        standard = rng.standard_normal((n, self.theta.size))
        if np.isfinite(dof):
            standard *= WIDER / np.sqrt(rng.chisquare(dof, n) / dof)[:, None]
        theta = self.theta + self.precision.draw(standard.T).T
        ends = np.flatnonzero(self.side)
        theta[:, ends] = self.theta[ends]
        for i, follow in zip(ends, self.follow, strict=True):
            away = distance_from_limit(
                rng.random(n), self.slope[i] / wider, self.left[i] / wider**2, _across(self, i)
            )
            theta += away[:, None] * follow
        return theta

    def log_density(self, theta: Array) -> Array:
        """ln p of the approximation at theta (n, n_param) minus ln p at the maximum, float64 (n,)."""
        away = theta - self.theta
        return self._at_ends(away) - 0.5 * self._squared(away)

    def log_normalised(self, theta: Array, dof: float = np.inf) -> Array:
        """ln of the density from which `draws` draws, at theta (n, n_param), float64 (n,)."""
        away, free = theta - self.theta, int((self.side == 0).sum())
        wider, squared = WIDER if np.isfinite(dof) else 1.0, self._squared(away)
        if np.isfinite(dof):
            value = -0.5 * (dof + free) * np.log1p(squared / wider**2 / dof) + 0.5 * self.log_det
            value -= 0.5 * free * np.log(np.pi * dof * wider**2)
            value += special.gammaln(0.5 * (dof + free)) - special.gammaln(0.5 * dof)
        else:
            value = -0.5 * (squared + free * np.log(2.0 * np.pi) - self.log_det)
        ends = sum(self._log_integral(i, wider) for i in np.flatnonzero(self.side))
        return np.asarray(value + self._at_ends(away, wider) - ends)

    def fall(self, difference: Array) -> float:
        """How much lower ln p of the approximation is at a `difference` (n_param,) from the maximum."""
        return -float(self.log_density((self.theta + difference)[None])[0])

    def following(self, moved: NDArray[np.bool_], shift: Array) -> Array:
        """The shift (n_param,) that keeps `shift` of the parameters `moved`, and moves the others along."""
        held = np.where(moved, _HELD / np.where(self.error > 0.0, self.error, np.inf) ** 2, 0.0)
        moves = ArrowheadPrecision(self.space, self.arrowhead + self.space.of_diagonal(held)).solve(
            (held * shift)[:, None]
        )
        return np.where(moved, shift, moves[:, 0])

    def _squared(self, away: Array) -> Array:
        """x^T P x of the parameters inside their limits, x measured from where those at a limit pull them."""
        inner = np.where(self.side == 0, away - np.abs(away[:, self.side != 0]) @ self.follow, 0.0)
        return np.asarray(np.sum(self.precision.whiten(inner.T) ** 2, axis=0))

    def _at_ends(self, away: Array, wider: float = 1.0) -> Array:
        there, slope, left = np.abs(away), self.slope / wider, self.left / wider**2
        return -(there @ slope) - 0.5 * there**2 @ left

    def _log_integral(self, i: int | np.intp, wider: float = 1.0) -> float:
        return log_integral(self.slope[i] / wider, self.left[i] / wider**2, _across(self, i))


def _across(ends: PriorEnds | SegmentLaplace, i: int | np.intp) -> float:
    """Distance from the limit at which a parameter is to the other limit."""
    return float(ends.room[0 if ends.side[i] > 0 else 1, i])


def _densities(
    ends: PriorEnds | SegmentLaplace, slope: Array, left: Array
) -> list[tuple[float, float, float]]:
    """Slope, curvature and width of the density of each parameter at a limit."""
    return [(float(slope[i]), float(left[i]), _across(ends, i)) for i in np.flatnonzero(ends.side)]


def _follow(free: ArrowheadPrecision, side: NDArray[np.int64]) -> Array:
    """How all parameters follow those that leave their limits, each by itself, float64 (n_end, n_param)."""
    ends = np.flatnonzero(side)
    columns = free.solve(np.eye(side.size)[:, ends])
    columns /= columns[ends, np.arange(ends.size)]
    columns[ends] = np.eye(ends.size)
    return np.asarray(-side[ends][:, None] * columns.T)
