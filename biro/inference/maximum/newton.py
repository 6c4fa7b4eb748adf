"""Newton's method from near a maximum to where another step would add nothing.

It moves in theta, projected on the priors: a parameter whose density rises towards an end of its prior is put
there. Curvature comes from differences of the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.climb import MEMORY, climb_on
from biro.inference.maximum.differences import (
    curvature,
    curvature_by_steps,
    step_lengths,
    with_weak_modes,
)
from biro.inference.maximum.laplace import Laplace
from biro.inference.maximum.objective import Objective
from biro.inference.maximum.saddles import curvature_modes, explore_around
from biro.inference.maximum.segments.laplace import SegmentLaplace
from biro.inference.maximum.stationary_point import StationaryPoint

Array = NDArray[np.float64]
N_NEWTON, N_RESTART = 30, 8
"""Steps of Newton's method, and climbs from elsewhere between them, at most."""
ENOUGH = {"double": 1e-6, "single": 1e-2}
"""The search has converged when another step would add less than this to the log-posterior."""
NEAR = 0.03
"""Standard deviations, rms, within which a curvature is used again."""
LARGE = 1.0
"""A Newton step that would add more than this is followed by L-BFGS-B, with many parameters."""
AT_END = 0.1
"""A parameter is put at an end of its prior where that costs less than this of the log-posterior."""
NEAR_END = 0.02
"""Part of the width of a prior within which a parameter may be put at its end: a size about 0, which changes
visibilities by its square, is left anywhere below its error by a climb."""
HIGHER = 0.1
"""A converged search goes on from a point that was higher by more than this of the log-posterior."""
LINE_SEARCH: Array = np.concatenate([[2.0, 1.5], 0.5 ** np.arange(14)])
"""Multiples of a Newton step that are tried, all in one batch."""


@dataclass(frozen=True, eq=False)
class NewtonResult:
    """The end of a search for the maximum.

    Attributes
    ----------
    log_posterior : float
    laplace : Laplace or SegmentLaplace
        The normal approximation there.
    left : float
        What another step of Newton's method would add to the log-posterior.
    """

    log_posterior: float
    laplace: Laplace | SegmentLaplace
    left: float


class NewtonPoint(NamedTuple):
    """theta, log-posterior, its gradient, and -1 or +1 for parameters at an end of their prior (else 0)."""

    theta: Array
    value: float
    gradient: Array
    side: NDArray[np.int64]


def newton(objective: Objective, theta: Array, *, stay: bool = False) -> NewtonResult:
    """Newton's method from near a maximum, until another step would add less than `ENOUGH`.

    Where it has converged, points near by that may be higher are tried (`explore_around`), and it goes on by
    L-BFGS-B from a point that was higher, whenever in the search that was seen.

    Parameters
    ----------
    objective : Objective
    theta : float64 (n_param,)
    stay : bool
        Do not go on from higher points elsewhere: for a maximum that need not be the highest.
    """
    enough = ENOUGH[objective.likelihood.precision]
    curvature_near, n_restart = _CurvatureNear(objective), 0
    for k in range(N_NEWTON + 1):
        point = at_ends(objective, theta)
        matrix = curvature_near(point.theta)
        step = _newton_step(matrix, point, objective.width)
        left = 0.5 * float(point.gradient @ step)
        if k == N_NEWTON:  # value and curvature are those of this point, converged or not
            break
        if left >= enough:
            higher = _line_search(objective, point, step, enough)
            if higher is not None:
                many = left > LARGE and theta.size > MEMORY  # a new curvature costs more than to climb
                theta = _climb_on(objective, higher, point, matrix, stay=stay) if many else higher
                continue
        if not stay:
            explore_around(objective, StationaryPoint(*point, matrix))
        if not stay and objective.best > point.value + HIGHER and n_restart < N_RESTART:
            theta = climb_on(objective, objective.best_theta, matrix)
            n_restart += 1
            continue
        if left < enough:
            point = _last_step(objective, point, step)
        break
    return NewtonResult(point.value, _approximation(objective, StationaryPoint(*point, matrix)), left)


def _climb_on(objective: Objective, higher: Array, point: NewtonPoint, matrix: Array, *, stay: bool) -> Array:
    """Where climbs from a point `higher` than `point` end, by one curvature, float64 (n_param,).

    Unless it is to `stay`, points near by are tried first as about a maximum, and again after each climb:
    they cost a tenth of a new curvature.
    """
    for k in range(N_RESTART):
        if not stay:
            explore_around(objective, StationaryPoint(*point, matrix))
            if k and objective.best < point.value + LARGE:
                break
            higher = objective.best_theta
        point = at_ends(objective, climb_on(objective, higher, matrix))
        if stay:
            break
    return point.theta


class _CurvatureNear:
    """The curvature at a point: that of an earlier point where this one is within `NEAR`, else worked out."""

    def __init__(self, objective: Objective) -> None:
        self._ascent = objective
        self._step = 1e-4 * objective.width
        self._theta: Array | None = None
        self._matrix: Array = np.empty((0, 0))

    def __call__(self, theta: Array) -> Array:
        if self._theta is None or _distance(theta, self._theta, self._matrix) > NEAR:
            self._matrix, self._theta = self._worked_out(theta), theta
        return self._matrix

    def _worked_out(self, theta: Array) -> Array:
        objective, precision = self._ascent, self._ascent.likelihood.precision
        of, box = objective.gradient, (objective.low, objective.high)
        if objective.step is None:
            self._step = step_lengths(of, theta, *box, self._step, precision)
            matrix = curvature(of, theta, *box, self._step)
            return with_weak_modes(of, theta, *box, matrix, precision)
        first = 1e-4 * objective.width
        matrix, objective.step = curvature_by_steps(of, theta, *box, objective.step, first, precision)
        return with_weak_modes(of, theta, *box, matrix, precision)


def _distance(theta: Array, other: Array, matrix: Array) -> float:
    """Root mean square distance of two points, in sigmas of each parameter while the others are fixed."""
    weight = np.nan_to_num(np.abs(np.diag(matrix)))
    return float(np.sqrt(np.mean(weight * (theta - other) ** 2)))


def _line_search(objective: Objective, point: NewtonPoint, step: Array, least: float) -> Array | None:
    """The best of some points along a step, within the prior; None where none gains more than `least`."""
    trial = np.clip(point.theta + np.outer(LINE_SEARCH, step), objective.low, objective.high)
    values = objective.values(trial)
    return trial[int(np.argmax(values))] if values.max() > point.value + least else None


def _last_step(objective: Objective, point: NewtonPoint, step: Array) -> NewtonPoint:
    """The point one more step on, which costs one gradient; the same where rounding makes it a step down."""
    moved = np.clip(point.theta + step, objective.low, objective.high)
    (value,), (gradient,) = objective.value_and_gradient(moved[None])
    if value >= point.value:
        point = point._replace(theta=moved, value=float(value), gradient=gradient)
    # The step may have been cut at a limit of a prior.
    return point._replace(side=sides(objective, point.theta, point.gradient))


def at_ends(objective: Objective, theta: Array) -> NewtonPoint:
    """theta, with the parameters whose density rises to an end near by put there."""
    (value,), (gradient,) = objective.value_and_gradient(theta[None])
    end = np.where(gradient > 0.0, objective.high, objective.low)
    with np.errstate(invalid="ignore"):
        near = np.isfinite(end) & (np.abs(gradient * (end - theta)) < AT_END)
        near &= np.abs(end - theta) < NEAR_END * objective.width
    # Each parameter is tried alone first: where its slope is near 0, the slope does not tell whether the
    # density is higher at a limit that is far away, such as that of a noise factor. And where the density
    # falls towards the limit, the maximum lies inside, however small the difference is.
    several = np.flatnonzero(near)
    if several.size:
        alone, row = np.repeat(theta[None], several.size, axis=0), np.arange(several.size)
        alone[row, several] = end[several]
        values, slopes = objective.value_and_gradient(alone)
        outwards = np.where(end == objective.high, 1.0, -1.0)[several] * slopes[row, several]
        near[several] = (values >= value - AT_END) & (outwards >= 0.0)
    if near.any():
        moved = np.where(near, end, theta)
        (value_there,), (gradient_there,) = objective.value_and_gradient(moved[None])
        if value_there >= value - AT_END:
            theta, value, gradient = moved, value_there, gradient_there
    return NewtonPoint(theta, float(value), gradient, sides(objective, theta, gradient))


def sides(objective: Objective, theta: Array, gradient: Array) -> NDArray[np.int64]:
    """-1 and 1 for parameters at an end of their prior to which the density rises, else 0."""
    side = np.where((theta <= objective.low) & (gradient <= 0.0), -1, 0)
    return np.where((theta >= objective.high) & (gradient >= 0.0), 1, side)


def _newton_step(matrix: Array, point: NewtonPoint, width: Array) -> Array:
    """The step P^-1 g, (n_param,), with g the gradient and P the curvature of parameters not at an end.

    Along a mode of negative curvature the step goes uphill, and along none of them is it longer than the
    prior.
    """
    free, scale, values, vectors = curvature_modes(matrix, point.side, width)
    step = np.zeros(point.theta.size)
    if not free.size:
        return step
    along = (vectors.T @ (point.gradient[free] / scale)) / np.maximum(np.abs(values), 1e-9)
    by_mode = vectors * along / scale[:, None]
    step[free] = (by_mode / np.maximum(1.0, np.max(np.abs(by_mode) / width[free, None], axis=0))).sum(axis=1)
    return step


def _approximation(objective: Objective, point: StationaryPoint) -> Laplace:
    """The normal approximation about a maximum, with periodic parameters in the range of their prior."""
    wrapped = replace(point, theta=objective.likelihood.model.wrap(point.theta))
    return Laplace.about(
        wrapped, objective.width, room_at(objective, point.theta), objective.likelihood.precision
    )


def room_at(objective: Objective, theta: Array) -> Array:
    """Distances from theta to the ends of the priors, float64 (2, n_param)."""
    # A prior with a single limit counts as very wide, but not as infinitely wide.
    room = np.minimum([theta - objective.low, objective.high - theta], 1e6 * objective.width)
    return np.where(np.isfinite(objective.period), 0.5 * objective.period, room)
