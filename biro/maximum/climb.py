"""The climb from many starts side by side, by the quasi-Newton method L-BFGS-B.

Starts move in parameters y that may be any real number (`biro.models.bound.prior.unconstrained`). Each
start runs
SciPy's L-BFGS-B in a thread of its own, and the calls of all threads are answered in batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.maximum.ascent import Ascent, wrapped_difference
from biro.maximum.differences import sigmas, step_lengths
from biro.maximum.saddles import NEGATIVE, curvature_modes
from biro.target.batching import BatchingPool, ask

Array = NDArray[np.float64]
N_KEPT = 4
"""Starts that go on to the end."""
CLOSE_IN_HEIGHT, FAR_APART = 20.0, 5.0
"""More starts go on where they are lower by less than the one, and away by more than the other, in sigma."""
N_EARLY, N_LATE = 40, 1000
"""Iterations of L-BFGS-B: of all starts, and of those that go on."""
MEMORY = 30
"""Steps from which L-BFGS-B estimates the curvature; more parameters than that are first scaled by errors."""


class _Outcome(Protocol):
    """What is used of SciPy's `OptimizeResult`."""

    fun: float
    x: Array


def climb(ascent: Ascent, theta: Array) -> tuple[Array, Array]:
    """Climb from several starts to local maxima.

    All starts make some iterations; the best of them then go on to the end.

    Parameters
    ----------
    ascent : Ascent
    theta : float64 (n_start, n_param)

    Returns
    -------
    theta : float64 (n_end, n_param)
        The highest first.
    log_posterior : float64 (n_end,)
    """
    y, value = _minimise(ascent, ascent.y(theta), N_EARLY)
    if len(y) > N_KEPT:
        y = y[_kept(ascent, y, value)]
    scale = None
    if y.shape[1] > MEMORY:
        best, precision = ascent.theta(y[:1])[0], ascent.likelihood.precision
        first = 1e-4 * ascent.width
        ascent.step = step_lengths(ascent.gradient, best, ascent.low, ascent.high, first, precision)
        scale = _scale(ascent, y[0], sigmas(ascent.step, precision))
    y, value = _minimise(ascent, y, N_LATE, scale)
    return ascent.theta(y), value


def _kept(ascent: Ascent, y: Array, value: Array) -> NDArray[np.intp]:
    """Indices of the starts that go on: the highest, and more that may be on the way to other maxima.

    With few parameters, as many more are taken as are hardly lower than the highest, and far from each that
    goes on already.
    """
    kept = list(range(N_KEPT))
    if y.shape[1] > MEMORY:
        return np.array(kept)
    near = [i for i in range(N_KEPT, len(y)) if value[i] > value[0] - CLOSE_IN_HEIGHT]
    if not near:
        return np.array(kept)
    theta, precision = ascent.theta(y), ascent.likelihood.precision
    step = step_lengths(ascent.gradient, theta[0], ascent.low, ascent.high, 1e-4 * ascent.width, precision)
    far = FAR_APART * np.sqrt(y.shape[1]) * sigmas(step, precision)
    for i in near:
        away = wrapped_difference(theta[i] - theta[kept], ascent.period)
        if len(kept) < 2 * N_KEPT and (np.abs(away) > far).any(axis=1).all():
            kept.append(i)
    return np.array(kept)


def climb_on(ascent: Ascent, theta: Array, curvature: Array) -> Array:
    """The maximum that L-BFGS-B reaches from one point.

    Parameters
    ----------
    ascent : Ascent
    theta : float64 (n_param,)
    curvature : float64 (n_param, n_param)
        Minus the second derivatives of the log-posterior near theta: many parameters are scaled by the errors
        that it gives.

    Returns
    -------
    float64 (n_param,)
    """
    y, factor = ascent.y(theta[None]), None
    if theta.size > MEMORY:
        factor = _whitening(ascent, y[0], curvature)
    y, _ = _minimise(ascent, y, N_LATE, factor)
    end: Array = ascent.theta(y)[0]
    return end


def _scale(ascent: Ascent, y: Array, sigma: Array) -> Array:
    """About one sigma of each y, from those of theta, (n_param,)."""
    slope = np.diag(ascent.pull_back(y, np.eye(y.size)))
    with np.errstate(divide="ignore"):
        scale = sigma / np.abs(slope)
    return np.clip(np.where(np.isfinite(scale), scale, 1.0), 1e-9, 1.0)


def _whitening(ascent: Ascent, y: Array, curvature: Array) -> Array:
    """Steps of y, in columns, along which minus the log-posterior has the curvature 1, (n_param, n_param).

    Where that is no more than an error of differences, they are as long as for parameters by themselves.
    """
    _, scale, values, vectors = curvature_modes(curvature, np.zeros(y.size, np.int64), ascent.width)
    known = np.abs(values) > NEGATIVE[ascent.likelihood.precision]
    return _scale(ascent, y, 1.0 / scale)[:, None] * vectors / np.sqrt(np.where(known, np.abs(values), 1.0))


def _minimise(ascent: Ascent, y: Array, n_iteration: int, factor: Array | None = None) -> tuple[Array, Array]:
    """L-BFGS-B on minus the log-posterior from each start, side by side; the highest first.

    It moves in z, with y = start + factor z; a factor of one dimension is the diagonal of a matrix.
    """
    from scipy import optimize

    # SciPy's stubs know no function that returns its gradient too.
    minimize: Callable[..., _Outcome] = optimize.minimize
    by = np.ones(y.shape[1]) if factor is None else factor
    is_diagonal = by.ndim == 1

    def from_one_start(start: Array) -> tuple[float, Array]:
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
        return -float(outcome.fun), moved(outcome.x)

    with BatchingPool(ascent.descend, len(y)) as pool:
        ends = sorted(pool.map(from_one_start, list(y)), key=lambda end: -end[0])
    return np.array([end for _, end in ends]), np.array([value for value, _ in ends])
