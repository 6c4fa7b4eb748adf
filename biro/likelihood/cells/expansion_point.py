"""The maximum near which cells are chosen, and how far other slopes of ln L move it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.laplace import Laplace
from biro.inference.maximum.newton import newton, room_at
from biro.inference.maximum.objective import Objective, width_of_priors
from biro.inference.maximum.segments.climb import N_START, SegmentClimb
from biro.inference.maximum.segments.laplace import PriorEnds, SegmentLaplace
from biro.inference.maximum.segments.precision import (
    many_segments,
    posterior_arrowhead,
    prior_precision,
    space_of,
)
from biro.inference.maximum.starts import starting_points
from biro.inference.maximum.stationary_point import StationaryPoint
from biro.inference.target.protocol import DifferentiableLikelihood, segmented
from biro.likelihood.cells.variation import ComparableLikelihood
from biro.likelihood.precision import about_maximum

Array = NDArray[np.float64]


def highest(
    likelihood: DifferentiableLikelihood, start: Array | None = None
) -> tuple[Objective, Laplace | SegmentLaplace]:
    """What was climbed, and the normal approximation at the maximum near a start, or the highest of a few.

    Raises
    ------
    BiroError
        The model has no free parameters.
    """
    segments, objective = many_segments(likelihood), Objective(likelihood)
    if segments is None:
        return about_maximum(likelihood) if start is None else (objective, newton(objective, start).laplace)
    rng = np.random.default_rng(0)
    starts = starting_points(objective, N_START, rng).theta if start is None else start[None]
    return objective, SegmentClimb(objective, segments, starts).rest.laplace


class ExpansionPoint:
    """A maximum of the posterior, and its normal approximation there.

    Parameters
    ----------
    likelihood : ComparableLikelihood
    laplace : Laplace or SegmentLaplace
    """

    def __init__(self, likelihood: ComparableLikelihood, laplace: Laplace | SegmentLaplace) -> None:
        self._laplace = laplace
        self._slope = likelihood.log_likelihood_and_gradient(laplace.theta)[1]

    @classmethod
    def of_information(cls, likelihood: ComparableLikelihood, theta: Array) -> ExpansionPoint:
        """About theta (n_param,), with the Fisher information for the second derivatives."""
        objective, side, none = Objective(likelihood), np.zeros(theta.size, np.int64), np.zeros(theta.size)
        width, by_segments = width_of_priors(likelihood), segmented(likelihood)
        theta, room = np.clip(theta, objective.low, objective.high), room_at(objective, theta)
        if by_segments is not None:
            arrowhead = posterior_arrowhead(by_segments, theta, width)
            ends, space = PriorEnds(side, none, room), space_of(by_segments)
            return cls(likelihood, SegmentLaplace.about(theta, space, arrowhead, ends, width))
        matrix = likelihood.fisher(theta) + np.diag(prior_precision(likelihood.model, theta, width))
        point = StationaryPoint(theta, 0.0, none, side, matrix)
        return cls(likelihood, Laplace.about(point, width, room, likelihood.precision))

    def shift(self, other: ComparableLikelihood) -> float:
        """How far slopes of another ln L move a parameter at most, in units of its error."""
        laplace = self._laplace
        difference = other.log_likelihood_and_gradient(laplace.theta)[1] - self._slope
        if isinstance(laplace, SegmentLaplace):
            inside = laplace.side == 0
            moved = laplace.precision.solve(np.where(inside, difference, 0.0)[:, None])[:, 0]
            known = inside & np.isfinite(laplace.error)
            return float(np.max(np.abs(moved / laplace.error)[known], initial=0.0))
        known = np.flatnonzero(np.diag(laplace.covariance) > 0.0)
        inner = laplace.covariance[np.ix_(known, known)]
        return float(np.max(np.abs(inner @ difference[known]) / np.sqrt(np.diag(inner)), initial=0.0))
