"""The function that is climbed: log-posterior and gradient, in theta and in unconstrained parameters."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.errors import LikelihoodError
from biro.inference.target.protocol import DifferentiableLikelihood, Watch

Array = NDArray[np.float64]
BATCH = 256
"""Parameter vectors in one call, at most."""
FAR = 1e30
"""Minus the log-posterior where it is -inf: line searches want a number."""


class Outcome(Protocol):
    """What is used of SciPy's `OptimizeResult`; `population` is that of differential evolution."""

    fun: float
    x: Array
    nit: int
    population: Array


class Objective:
    """Log-posterior and gradient of a likelihood, in theta and in unconstrained parameters y.

    Attributes
    ----------
    n_row : int
        Gradients asked for.
    low, high, width : float64 (n_param,)
        Ends of the priors, infinite where there is none, and their widths.
    period : float64 (n_param,)
        Of parameters that are taken modulo it; else NaN.
    best : float
        Highest log-posterior seen.
    best_theta : float64 (n_param,)
        Where that was; empty before anything was seen.
    step : float64 (n_param,) or None
        Of differences of the gradient (`biro.inference.maximum.differences`), as found last with many
        parameters.
    """

    def __init__(self, likelihood: DifferentiableLikelihood, watch: Watch | None = None) -> None:
        self.likelihood, self._watch = likelihood, watch
        self._change = likelihood.model.unconstrained
        self.low, self.high = likelihood.model.box
        bounded = np.isfinite(self.high - self.low)
        period = np.array([p.period or np.nan for p in likelihood.parameters], float)
        self.period: Array = np.where(bounded, np.nan, period)
        self.width = width_of_priors(likelihood)
        self.n_row, self.best, self.best_theta = 0, -np.inf, np.empty(0)
        self.step: Array | None = None

    def value_and_gradient(self, theta: Array) -> tuple[Array, Array]:
        """Log-posterior (n,) and gradient (n, n_param), in batches of at most `BATCH`.

        Raises
        ------
        LikelihoodError
            A gradient is not a number where the log-posterior is one.
        """
        answers = [
            self.likelihood.log_posterior_and_gradient(theta[i : i + BATCH])
            for i in range(0, len(theta), BATCH)
        ]
        value = np.concatenate([values for values, _ in answers])
        gradient = np.concatenate([gradients for _, gradients in answers])
        self._check(theta, value, gradient)
        self.n_row += len(theta)
        if value.max(initial=-np.inf) > self.best:
            self.best, self.best_theta = float(value.max()), theta[int(np.argmax(value))].copy()
        if self._watch is not None:
            self._watch(self.best)
        return value, gradient

    def gradient(self, theta: Array) -> Array:
        """Gradient of the log-posterior, (n, n_param); NaN where the log-posterior is -inf."""
        return self.value_and_gradient(theta)[1]

    def values(self, theta: Array) -> Array:
        """Log-posterior (n,) at the places of theta (n, n_param), or where they leave the prior."""
        return self.value_and_gradient(np.clip(theta, self.low, self.high))[0]

    def y(self, theta: Array) -> Array:
        return self._change.of_theta(theta)

    def pull_back(self, y: Array, slope: Array) -> Array:
        """Derivatives with respect to y from those with respect to theta, (n, n_param)."""
        return self._change.at(y).pull_back(slope)

    def theta(self, y: Array) -> Array:
        """Within the prior; periodic parameters in their range."""
        return np.clip(self.likelihood.model.wrap(self._change.theta(y)), self.low, self.high)

    def negative_log_posterior(self, y: Array) -> Array:
        """Minus the log-posterior and its derivatives with respect to y, (n, 1 + n_param)."""
        change = self._change.at(y)
        value, gradient = self.value_and_gradient(np.clip(change.theta, self.low, self.high))
        fine = np.isfinite(value)[:, None]
        slope = change.pull_back(np.where(fine, gradient, 0.0))
        return np.where(fine, -np.column_stack([value, slope]), FAR * (np.arange(slope.shape[1] + 1) == 0))

    def _check(self, theta: Array, value: Array, gradient: Array) -> None:
        bad = np.isfinite(value) & ~np.isfinite(gradient).all(axis=1)
        if bad.any():
            i = int(np.argmax(bad))
            names = self.likelihood.parameter_names
            culprit = names[int(np.argmin(np.isfinite(gradient[i])))]
            words = first_few(f"{name} = {x:.6g}" for name, x in zip(names, theta[i], strict=True))
            raise LikelihoodError(f"the derivative with respect to {culprit} is not a number at {words}")


def width_of_priors(likelihood: DifferentiableLikelihood) -> Array:
    """From end to end, or three times the middle 68 % of a prior without ends, float64 (n_param,)."""
    low, high = likelihood.model.box
    ends = likelihood.model.prior_transform(np.array([[0.16], [0.84]]) * np.ones(likelihood.n_param))
    return np.where(np.isfinite(high - low), high - low, 3.0 * (ends[1] - ends[0]))


def wrapped_difference(difference: Array, period: Array) -> Array:
    """A difference of theta, moved by whole periods to within half of one (NaN: no period)."""
    turns = np.rint(difference / period)
    return np.where(np.isfinite(period), difference - np.nan_to_num(turns * period), difference)
