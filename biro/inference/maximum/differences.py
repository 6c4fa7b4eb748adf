"""The curvature of a log-posterior by differences of its gradient, and how long their steps are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rime_kernels.choices import Precision

Array = NDArray[np.float64]
Gradient = Callable[[Array], Array]
"""Function of theta (n_batch, n_param) to the derivatives of the log-posterior; NaN where that is -inf."""
_ROUNDS = 5
_STEP = {"double": 0.02, "single": 0.3}
"""Length of a step of differences, in standard deviations of the parameter while the others are fixed."""
ERROR = {"double": 1e-6, "single": 1e-3}
"""Relative error of a curvature by differences along single parameters, over that of the parameters alone."""
_WEAK, _WEAK_STEP, _SURE = 1e-4, 0.3, 0.3
"""Curvature, over that of parameters alone, below which it is measured along a combination; steps for that,
in standard deviations of the combination if parameters were independent; and what is left, over what the
steps differ by, at least."""
_ROUNDING = 1e-15
"""Error of a curvature along a combination, times the largest parameter over its own standard deviation."""


def step_lengths(
    gradient: Gradient,
    theta: Array,
    low: Array,
    high: Array,
    first: Array,
    precision: Precision,
    which: NDArray[np.intp] | None = None,
) -> Array:
    """Lengths of steps for differences, float64 (n_param,): a fraction of one sigma of each parameter.

    This sigma is that of a parameter while all others are fixed.

    Parameters
    ----------
    gradient : function
    theta : float64 (n_param,)
    low, high : float64 (n_param,)
        The limits of each parameter: no step is longer than a quarter of what lies between them.
    first : float64 (n_param,)
        A first guess, above 0; no step is longer than a thousand times that.
    precision : "double" or "single"
    which : int (n,), optional
        Parameters whose steps are looked for; by default all. The others keep `first`.
    """
    longest = _longest(low, high, first)
    step, axes = np.minimum(first, longest), np.eye(theta.size)
    unsettled = np.arange(theta.size) if which is None else which
    for _ in range(_ROUNDS):
        along = (np.where(theta + step <= high, 1.0, -1.0) * step)[unsettled]
        rise = gradient(np.concatenate([theta[None], theta + along[:, None] * axes[unsettled]]))
        bend = -(rise[1 + np.arange(unsettled.size), unsettled] - rise[0, unsettled]) / along
        wanted, far = _wanted(bend, step[unsettled], longest[unsettled], precision)
        step[unsettled] = wanted
        unsettled = unsettled[far]
        if not unsettled.size:
            break
    return step


def _longest(low: Array, high: Array, first: Array) -> Array:
    return np.minimum(0.25 * (high - low), 1e3 * first)


def _wanted(
    bend: Array, step: Array, longest: Array, precision: Precision
) -> tuple[Array, NDArray[np.bool_]]:
    """The steps that curvatures found with other steps ask for, and whether they differ by three times."""
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = np.where(bend > 0.0, _STEP[precision] / np.sqrt(bend), 10.0 * step)
    wanted = np.minimum(np.where(np.isfinite(bend), wanted, 0.1 * step), longest)
    return wanted, np.abs(np.log(wanted / step)) >= np.log(3.0)


def sigmas(step: Array, precision: Precision) -> Array:
    """The sigma of each parameter, float64 (n_param,), from which `step_lengths` took a fraction."""
    return step / _STEP[precision]


def curvature(gradient: Gradient, theta: Array, low: Array, high: Array, step: Array) -> Array:
    """P, float64 (n_param, n_param), by central differences of the gradient; one-sided at a limit."""
    matrix = falls(gradient, theta, low, high, step)
    return 0.5 * (matrix + matrix.T)


def curvature_by_steps(
    gradient: Gradient,
    theta: Array,
    low: Array,
    high: Array,
    step: Array,
    first: Array,
    precision: Precision,
) -> tuple[Array, Array]:
    """P as of `curvature`, with the steps of another point; and the steps that are right for this one.

    To look for the steps of many parameters takes as long as the differences. So the differences are made
    first, and again along those parameters for which they show other steps to be right.

    Parameters
    ----------
    gradient, theta, low, high, precision
        See `step_lengths`.
    step : float64 (n_param,)
        Of the other point.
    first : float64 (n_param,)
        A first guess for steps that have to be looked for; see `step_lengths`.
    """
    slopes = falls(gradient, theta, low, high, step)
    _, is_far = _wanted(np.diag(slopes), step, _longest(low, high, first), precision)
    again = np.flatnonzero(is_far)
    if again.size:
        guess = np.where(is_far, first, step)
        step = step_lengths(gradient, theta, low, high, guess, precision, again)
        slopes[again] = falls(gradient, theta, low, high, step, again)
    return 0.5 * (slopes + slopes.T), step


def with_weak_modes(
    gradient: Gradient, theta: Array, low: Array, high: Array, matrix: Array, precision: Precision
) -> Array:
    """The curvature P, float64 (n_param, n_param), measured along combinations that data hardly determine.

    Differences along single parameters have an error of some 1e-6 of their own curvature. A combination along
    which many parameters make up for each other may have less: errors of it would be those of the
    differences. Its curvature comes from differences along it, with two steps, extrapolated to none
    (Richardson). It is 0 where the two steps differ by far more than what is left, as in a bent valley
    without a slope, and where it is no more than roundings.
    """
    inner = np.flatnonzero((theta > low) & (theta < high) & (np.diag(matrix) > 0.0))
    if precision != "double" or not inner.size:
        return matrix
    scale = np.sqrt(np.diag(matrix)[inner])
    values, vectors = np.linalg.eigh(matrix[np.ix_(inner, inner)] / np.outer(scale, scale))
    weak = np.flatnonzero(np.abs(values) < _WEAK)
    if not weak.size:
        return matrix
    along = np.zeros((weak.size, theta.size))
    along[:, inner] = vectors[:, weak].T / scale
    with np.errstate(divide="ignore"):  # a combination does not have all parameters
        room = np.min(np.minimum(theta - low, high - theta)[inner] / np.abs(along[:, inner]), axis=1)
    step = np.minimum(_WEAK_STEP, 0.4 * room)[:, None] * along
    slopes = gradient(np.concatenate([theta + k * step for k in (1.0, -1.0, 2.0, -2.0)]))
    up, down, far_up, far_down = slopes.reshape(4, weak.size, -1)[:, :, inner] / scale
    length = np.linalg.norm(step[:, inner] * scale, axis=1)[:, None]
    near, far = (down - up) / (2.0 * length) @ vectors, (far_down - far_up) / (4.0 * length) @ vectors
    rows, at = (4.0 * near - far) / 3.0, np.arange(weak.size)
    rounding = _ROUNDING * float(np.abs(theta[inner] * scale).max())
    sure = np.abs(rows[at, weak]) > np.maximum(_SURE * np.abs(rows - near)[at, weak], rounding)
    modes, lost, known = np.diag(values), weak[~sure & (np.abs(values[weak]) < ERROR[precision])], weak[sure]
    modes[known] = rows[sure]
    modes[np.ix_(known, known)] = 0.5 * (rows[sure][:, known] + rows[sure][:, known].T)
    modes[:, known] = modes[known].T
    modes[lost], modes[:, lost] = 0.0, 0.0
    found = matrix.copy()
    found[np.ix_(inner, inner)] = vectors @ modes @ vectors.T * np.outer(scale, scale)
    return found if np.isfinite(slopes).all() else matrix


def falls(
    function: Gradient,
    theta: Array,
    low: Array,
    high: Array,
    step: Array,
    which: NDArray[np.intp] | None = None,
) -> Array:
    """Minus the derivatives of values (n, n_value) of vectors (n, n_param), float64 (n_param, n_value).

    By central differences, one-sided at a limit; with `which`, those with respect to these parameters alone.
    """
    which = np.arange(theta.size) if which is None else which
    row, axes = np.arange(which.size), np.diag(step)[which]
    up, down = np.minimum(theta + axes, high), np.maximum(theta - axes, low)
    values = function(np.concatenate([up, down, theta[None]]))
    rise, fall, middle = values[: which.size], values[which.size : -1], values[-1]
    above, below = up[row, which] - theta[which], theta[which] - down[row, which]
    # Where a constraint forbids the step to one side, the difference is taken to the other side alone.
    above, rise = np.where(np.isnan(rise).any(axis=1), 0.0, above), np.where(np.isnan(rise), middle, rise)
    below, fall = np.where(np.isnan(fall).any(axis=1), 0.0, below), np.where(np.isnan(fall), middle, fall)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(-(rise - fall) / (above + below)[:, None])
