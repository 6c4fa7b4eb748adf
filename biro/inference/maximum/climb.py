"""The climb from many starts side by side, by the quasi-Newton method L-BFGS-B.

Starts move in parameters y that may be any real number (`biro.models.bound.prior.unconstrained`). Each
start runs
SciPy's L-BFGS-B in a thread of its own, and the calls of all threads are answered in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.differences import ERROR, curvature, sigmas, step_lengths
from biro.inference.maximum.objective import Objective, Outcome, wrapped_difference
from biro.inference.maximum.saddles import curvature_modes
from biro.inference.target.batching import BatchingPool, ask

Array = NDArray[np.float64]
N_KEPT, FEW = 4, 8
"""Starts that go on to the end, at least; up to so many parameters all that are in places of their own do."""
CLOSE_IN_HEIGHT, FAR_APART = 20.0, 5.0
"""More starts go on where they are lower by less than the one, and away by more than the other, in sigma."""
N_EARLY, N_LATE = 40, 1000
"""Iterations of L-BFGS-B: of all starts, and of those that go on."""
MEMORY = 30
"""Steps from which L-BFGS-B estimates the curvature.

More parameters than that are first scaled by their errors, fewer by the curvature."""


def climb(objective: Objective, theta: Array) -> tuple[Array, Array, NDArray[np.int64]]:
    """Climb from several starts to local maxima.

    All starts make some iterations; the best of them then go on to the end, and stand for those that were
    near to them by then.

    Parameters
    ----------
    objective : Objective
    theta : float64 (n_start, n_param)

    Returns
    -------
    theta : float64 (n_end, n_param)
        The highest first.
    log_posterior : float64 (n_end,)
        All finite: there are no ends where no start has a finite posterior.
    votes : int64 (n_end,)
        Starts that came near to where each end came from.
    """
    early = _minimise(objective, objective.y(theta), N_EARLY)
    y, is_done, votes = early.y, early.is_done, np.ones(len(early.y), np.int64)
    if len(y) > N_KEPT:
        kept, votes = _kept(objective, y, early.value)
        y, is_done = y[kept], is_done[kept]
    factors = None
    if y.shape[1] > MEMORY:
        best, precision = objective.theta(y[:1])[0], objective.likelihood.precision
        objective.step = _steps_at(objective, best)
        factors = [_scale(objective, y[0], sigmas(objective.step, precision))] * len(y)
    elif not is_done.all():
        factors = _own_factors(objective, y)
    late = _minimise(objective, y, N_LATE, factors)
    return _possible(objective, objective.theta(late.y), votes[late.order])


def _steps_at(objective: Objective, theta: Array) -> Array:
    first, precision = 1e-4 * objective.width, objective.likelihood.precision
    return step_lengths(objective.gradient, theta, objective.low, objective.high, first, precision)


def _own_factors(objective: Objective, y: Array) -> list[Array]:
    """Factors of `_minimise` by the curvature at each of some points y (n, n_param), the highest first.

    Few parameters have one for twice as many gradients. It saves hundreds of iterations where parameters are
    correlated, and each start is in the valley of its own maximum by then.
    """
    theta, box = objective.theta(y), (objective.low, objective.high)
    step = _steps_at(objective, theta[0])
    return [
        _whitening(objective, at, curvature(objective.gradient, of, *box, step))
        for at, of in zip(y, theta, strict=True)
    ]


def _possible(
    objective: Objective, theta: Array, votes: NDArray[np.int64]
) -> tuple[Array, Array, NDArray[np.int64]]:
    """The ends of climbs whose log-posterior is finite, the highest first.

    An end at a constraint (equal axes of a Gaussian) may be beyond it by a rounding. The highest point that
    was seen takes the place of the highest end where this is so.
    """
    value = objective.values(theta)
    if not np.isfinite(value[0]) and objective.best_theta.size:
        theta, value = theta.copy(), value.copy()
        theta[0], value[0] = objective.best_theta, objective.best
    order = np.argsort(-value, kind="stable")
    order = order[np.isfinite(value[order])]
    return theta[order], value[order], votes[order]


def _kept(objective: Objective, y: Array, value: Array) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Indices of the starts that go on, and how many each stands for, itself among them.

    They are the highest, and more that may be on the way to other maxima. With few parameters, as many more
    are taken as are hardly lower than the highest, and far from each that goes on already.
    """
    kept, votes = list(range(N_KEPT)), [1] * N_KEPT
    near = [i for i in range(N_KEPT, len(y)) if value[i] > value[0] - CLOSE_IN_HEIGHT]
    if y.shape[1] > MEMORY or not near:
        return np.array(kept), np.array(votes)
    theta, precision = objective.theta(y), objective.likelihood.precision
    far = FAR_APART * np.sqrt(y.shape[1]) * sigmas(_steps_at(objective, theta[0]), precision)
    most = len(y) if y.shape[1] <= FEW else 2 * N_KEPT
    for i in near:
        away = np.abs(wrapped_difference(theta[i] - theta[kept], objective.period)) / far
        nearest = int(np.argmin(away.max(axis=1)))
        if away[nearest].max() <= 1.0:
            votes[nearest] += 1
        elif len(kept) < most:
            kept.append(i)
            votes.append(1)
    return np.array(kept), np.array(votes)


def climb_on(objective: Objective, theta: Array, curvature_near: Array) -> Array:
    """The maximum that L-BFGS-B reaches from one point.

    Parameters
    ----------
    objective : Objective
    theta : float64 (n_param,)
    curvature_near : float64 (n_param, n_param)
        Minus the second derivatives of the log-posterior near theta: many parameters are scaled by the errors
        that it gives.

    Returns
    -------
    float64 (n_param,)
    """
    y, factors = objective.y(theta[None]), None
    if theta.size > MEMORY:
        factors = [_whitening(objective, y[0], curvature_near)]
    end: Array = objective.theta(_minimise(objective, y, N_LATE, factors).y)[0]
    # An end at a constraint may be beyond it by a rounding.
    return end if np.isfinite(objective.values(end[None])[0]) else objective.best_theta


def _scale(objective: Objective, y: Array, sigma: Array) -> Array:
    """About one sigma of each y, from those of theta, (n_param,)."""
    slope = np.diag(objective.pull_back(y, np.eye(y.size)))
    with np.errstate(divide="ignore"):
        scale = sigma / np.abs(slope)
    return np.clip(np.where(np.isfinite(scale), scale, 1.0), 1e-9, 1.0)


def _whitening(objective: Objective, y: Array, matrix: Array) -> Array:
    """Steps of y, in columns, along which minus the log-posterior has the curvature 1, (n_param, n_param).

    `matrix` is the curvature with respect to theta.

    Where that is no more than an error of differences, they are as long as for parameters by themselves.
    """
    _, scale, values, vectors = curvature_modes(matrix, np.zeros(y.size, np.int64), objective.width)
    known = np.abs(values) > ERROR[objective.likelihood.precision]
    return (
        _scale(objective, y, 1.0 / scale)[:, None] * vectors / np.sqrt(np.where(known, np.abs(values), 1.0))
    )


class _Ends(NamedTuple):
    """Where climbs ended, the highest first.

    Attributes
    ----------
    y : float64 (n, n_param)
    value : float64 (n,)
        Log-posteriors.
    is_done : bool (n,)
        Whether a climb ended before its last iteration.
    order : int64 (n,)
        Which start each comes from.
    """

    y: Array
    value: Array
    is_done: NDArray[np.bool_]
    order: NDArray[np.intp]


def _minimise(
    objective: Objective, y: Array, n_iteration: int, factors: Sequence[Array] | None = None
) -> _Ends:
    """L-BFGS-B on minus the log-posterior from each start, side by side.

    Each moves in z, with y = start + factor z; a factor of one dimension is the diagonal of a matrix.
    """
    from scipy import optimize

    # SciPy's stubs know no function that returns its gradient too.
    minimize: Callable[..., Outcome] = optimize.minimize
    by = [np.ones(y.shape[1])] * len(y) if factors is None else factors

    def from_one_start(given: tuple[Array, Array]) -> tuple[float, Array, bool]:
        start, by = given
        is_diagonal = by.ndim == 1

        def moved(z: Array) -> Array:
            return np.asarray(start + (by * z if is_diagonal else by @ z))

        def value_and_gradient(z: Array) -> tuple[float, Array]:
            answer = ask(moved(z))
            return float(answer[0]), answer[1:] * by if is_diagonal else answer[1:] @ by

        options = {
            "maxiter": n_iteration,
            "maxfun": 2 * n_iteration,
            "maxcor": MEMORY,
            "ftol": 1e-11,
            "gtol": 1e-9,
        }
        zero = np.zeros(start.size)
        outcome = minimize(value_and_gradient, zero, jac=True, method="L-BFGS-B", options=options)
        return -float(outcome.fun), moved(outcome.x), outcome.nit < n_iteration

    with BatchingPool(objective.negative_log_posterior, len(y)) as pool:
        ends = pool.map(from_one_start, list(zip(y, by, strict=True)))
    value, end, is_done = (np.array(column) for column in zip(*ends, strict=True))
    order = np.argsort(-value, kind="stable")
    return _Ends(end[order], value[order], is_done[order], order)
