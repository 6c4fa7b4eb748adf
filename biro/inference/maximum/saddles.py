"""Steps from a stationary point to higher points near by: off a saddle, and off a circular source.

The gradient is zero at a saddle as at a maximum. And where the position angle of an elongated source is wrong
by a right angle, its best axial ratio is 1, at the end of the prior, where the angle has no effect: axial
ratio and angle then stay as they are, although the maximum is elsewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.differences import ERROR
from biro.inference.maximum.objective import Objective
from biro.inference.maximum.stationary_point import StationaryPoint

Array = NDArray[np.float64]
LENGTHS = 2.0 ** np.arange(-1, 7)
"""Of steps along a direction of negative curvature, in units of 1 / sqrt(|curvature|)."""
FRACTIONS = 0.5 ** np.arange(1, 9)
"""Of the prior's width: steps away from an end."""
NO_EFFECT = 1.0
"""An angle has no effect where turning it costs at most this of the log-posterior."""


def explore_around(objective: Objective, point: StationaryPoint) -> None:
    """Evaluate the points near a stationary point that may be higher; `objective.best` then has the highest.

    Each direction is tried by itself. The directions are taken to be independent, as those of different
    sources are: then the best steps of all are added up, the one with the highest gain first.
    """
    steps = [*_steps_off_saddle(objective, point), *_steps_off_circle(objective, point)]
    if not steps:
        return
    values = objective.values(point.theta + np.concatenate(steps))  # all in one call: full batches
    by_direction = np.split(values, np.cumsum([len(lengths) for lengths in steps])[:-1])
    gains = np.array([value.max() - point.value for value in by_direction])
    best = np.array([lengths[np.argmax(value)] for lengths, value in zip(steps, by_direction, strict=True)])
    order = np.argsort(-gains, kind="stable")[: int((gains > 0.0).sum())]
    if order.size > 1:
        objective.values(point.theta + np.cumsum(best[order], axis=0))


def _steps_off_saddle(objective: Objective, point: StationaryPoint) -> list[Array]:
    """Steps both ways along each direction of negative curvature, float64 (n_length, n_param) each."""
    free, scale, values, vectors = curvature_modes(point.curvature, point.side, objective.width)
    lengths, steps = np.concatenate([LENGTHS, -LENGTHS]), []
    for k in np.flatnonzero(values < -ERROR[objective.likelihood.precision]):
        direction = np.zeros(point.theta.size)
        direction[free] = vectors[:, k] / scale / np.sqrt(-values[k])
        steps.append(lengths[:, None] * direction)
    return steps


def _steps_off_circle(objective: Objective, point: StationaryPoint) -> list[Array]:
    """Steps away from ends of priors with an angle turned by half its period, (n_length, n_param) each.

    For each angle that has no effect, and all parameters that are at an end whose slope points inwards only
    once the angle is turned.
    """
    angles = np.flatnonzero(np.isfinite(objective.period))
    if not (angles.size and point.side.any()):
        return []
    turns = np.zeros((angles.size, point.theta.size))
    turns[np.arange(angles.size), angles] = 0.5 * objective.period[angles]
    value, slope = objective.value_and_gradient(point.theta + turns)
    inwards = (point.side != 0) & (slope * point.side < 0.0) & (point.gradient * point.side >= 0.0)
    away = np.where(inwards, -point.side * objective.width, 0.0)
    promising = np.flatnonzero((value > point.value - NO_EFFECT) & inwards.any(axis=1))
    return [turns[k] + FRACTIONS[:, None] * away[k] for k in promising]


def curvature_modes(
    curvature: Array, side: NDArray[np.int64], width: Array
) -> tuple[NDArray[np.int64], Array, Array, Array]:
    """Eigenvalues and eigenvectors of a curvature, in parameters over their scale.

    Parameters
    ----------
    curvature : float64 (n_param, n_param)
        Minus the second derivatives of the log-posterior.
    side : int64 (n_param,)
        Not 0 for parameters at an end of their prior, which stay there.
    width : float64 (n_param,)
        Of the priors.

    Returns
    -------
    free : int64 (n_free,)
        Parameters that are not at an end.
    scale : float64 (n_free,)
        Curvature is divided by it on either side: one over a parameter's own sigma, or over its prior's width
        where that is less.
    values : float64 (n_free,)
    vectors : float64 (n_free, n_free)
        In columns.
    """
    free = np.flatnonzero(side == 0)
    inner = np.nan_to_num(curvature[np.ix_(free, free)])
    scale = np.sqrt(np.maximum(np.abs(np.diag(inner)), 1.0 / width[free] ** 2))
    values, vectors = np.linalg.eigh(inner / np.outer(scale, scale))
    return free, scale, values, vectors
