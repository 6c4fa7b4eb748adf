"""Higher places beside one where a search for the maximum has come to rest: saddles, and angles of circles.

A gradient is zero at a saddle too. And where the angle of an elongated source is wrong by a right angle, its
best axial ratio is 1, at the end of the prior, where the angle no longer matters: both stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from biro.maximum.climb import Ascent

Array = NDArray[np.float64]
WRONG = {"double": 1e-6, "single": 1e-3}
"""Curvature the wrong way, over that of the parameters alone, which differences do not make by themselves."""
LENGTHS = 2.0 ** np.arange(-1, 7)
"""Of steps along it, in units of 1 / sqrt(curvature)."""
PARTS = 0.5 ** np.arange(1, 9)
"""Of the prior's width, of steps away from an end."""
CHEAP = 1.0
"""What turning an angle costs at most of the log-posterior where it does not matter."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where a search is at rest.

    Attributes
    ----------
    theta : float64 (n_param,)
    value : float
        Log-posterior.
    gradient : float64 (n_param,)
    matrix : float64 (n_param, n_param)
        Minus the second derivatives.
    side : int (n_param,)
        -1 and +1 for a parameter at the low or high end of its prior, else 0.
    """

    theta: Array
    value: float
    gradient: Array
    matrix: Array
    side: NDArray[np.int64]


def look_beside(ascent: Ascent, place: Place) -> None:
    """Try the places that may be higher, each by itself and then together, for `ascent.best` to be seen.

    They are taken to be independent, as those of different sources are: the best step of each is added up,
    the one with the highest gain first.
    """
    moves = [*_off_saddles(ascent, place), *_off_circles(ascent, place)]  # (n_length, n_param) of each kind
    if not moves:
        return
    values = ascent.values(place.theta + np.concatenate(moves))  # of all at once: full batches
    tried = np.split(values, np.cumsum([len(each) for each in moves])[:-1])
    gains = np.array([found.max() - place.value for found in tried])
    best = np.array([each[np.argmax(found)] for each, found in zip(moves, tried, strict=True)])
    order = np.argsort(-gains, kind="stable")[: int((gains > 0.0).sum())]
    if order.size > 1:
        ascent.values(place.theta + np.cumsum(best[order], axis=0))


def _off_saddles(ascent: Ascent, place: Place) -> list[Array]:
    """Both ways along whatever curves the wrong way."""
    free, scale, values, vectors = modes(place.matrix, place.side, ascent.width)
    length, moves = np.concatenate([LENGTHS, -LENGTHS]), []
    for k in np.flatnonzero(values < -WRONG[ascent.likelihood.precision]):
        along = np.zeros(place.theta.size)
        along[free] = vectors[:, k] / scale / np.sqrt(-values[k])
        moves.append(length[:, None] * along)
    return moves


def _off_circles(ascent: Ascent, place: Place) -> list[Array]:
    """Half a period of each angle that does not matter, and away from ends that only then slope inwards."""
    angles = np.flatnonzero(np.isfinite(ascent.period))
    if not (angles.size and place.side.any()):
        return []
    turns = np.zeros((angles.size, place.theta.size))
    turns[np.arange(angles.size), angles] = 0.5 * ascent.period[angles]
    value, slope = ascent.value_and_gradient(place.theta + turns)
    inwards = (place.side != 0) & (slope * place.side < 0.0) & (place.gradient * place.side >= 0.0)
    away = np.where(inwards, -place.side * ascent.width, 0.0)
    worth = np.flatnonzero((value > place.value - CHEAP) & inwards.any(axis=1))
    return [turns[k] + PARTS[:, None] * away[k] for k in worth]


def modes(
    matrix: Array, side: NDArray[np.int64], width: Array
) -> tuple[NDArray[np.int64], Array, Array, Array]:
    """What may move, its scale, and eigenvalues and eigenvectors (columns) of P over that scale.

    P (n_param, n_param) are minus the second derivatives; the scale is one over a parameter's own sigma, or
    over its prior's width where that is less.
    """
    free = np.flatnonzero(side == 0)
    inner = np.nan_to_num(matrix[np.ix_(free, free)])
    scale = np.sqrt(np.maximum(np.abs(np.diag(inner)), 1.0 / width[free] ** 2))
    values, vectors = np.linalg.eigh(inner / np.outer(scale, scale))
    return free, scale, values, vectors
