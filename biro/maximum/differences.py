"""The curvature of a log-posterior by differences of its gradient, and how long their steps are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rime_kernels.geometry import Precision

Array = NDArray[np.float64]
Gradient = Callable[[Array], Array]
"""Function of theta (n_batch, n_param) to the derivatives of the log-posterior; NaN where that is -inf."""
_ROUNDS = 5
_STEP = {"double": 0.02, "single": 0.3}
"""Length of a step of differences, in standard deviations of the parameter while the others are fixed."""


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
