"""Pareto-smoothed importance sampling: weights whose tail is smoothed, and a figure that says what they are
worth.

Vehtari, Simpson, Gelman, Yao & Gabry (2024, JMLR 25, 72), with the fit of the generalised Pareto distribution
by Zhang & Stephens (2009, Technometrics 51, 316).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
TRUSTED = 0.7
"""Shape k of the tail up to which importance sampling is reliable (section 3.2.3 of the first paper)."""
WITH_VARIANCE = 0.5
"""Shape k up to which the weights have a variance."""
_FLAT = 4.0
"""Largest weight over the mean, up to which weights have no tail.

The shape k does not depend on the size of the tail: of weights that all lie near a plateau it is that of the
plateau. Where k is 0.7 the largest of 1000 weights is some 40 times the mean.
"""
_LEAST_TAIL = 5
"""Weights of which a tail can be fitted."""


class SmoothedWeights(NamedTuple):
    """Weights after smoothing.

    Attributes
    ----------
    log_weight : float64 (n,)
        As those given, the largest replaced by quantiles of the fitted tail.
    k : float
        Shape of the tail: below 0.5 the weights have a variance, above 1 not even a mean.
    """

    log_weight: Array
    k: float


def smoothed(log_weight: Array) -> SmoothedWeights:
    """Smooth the tail of importance weights.

    The M = min(n/5, 3 sqrt(n)) largest weights above the next one, u, get the values u + F^-1((i - 1/2) / M)
    of the generalised Pareto distribution F that fits them, and none is made larger than the largest was.

    Parameters
    ----------
    log_weight : float64 (n,)
        ln of the weights up to a constant, -inf for a weight of 0.
    """
    n, top = log_weight.size, log_weight.max()
    n_tail = math.ceil(min(0.2 * n, 3.0 * math.sqrt(n)))
    order = np.argsort(log_weight, kind="stable")
    tail, threshold = order[-n_tail:], log_weight[order[-n_tail - 1]] - top if n > n_tail else -np.inf
    excess = np.exp(log_weight[tail] - top) - np.exp(threshold)
    if np.mean(np.exp(log_weight - top)) > 1.0 / _FLAT:
        return SmoothedWeights(log_weight, -math.inf)
    if np.count_nonzero(excess > 0.0) < _LEAST_TAIL:  # a few weights are all
        return SmoothedWeights(log_weight, math.inf)
    k, scale = _fit(np.maximum(excess, 1e-300))
    result = log_weight.copy()
    if math.isfinite(k):
        level = (np.arange(n_tail) + 0.5) / n_tail
        value = -np.log1p(-level) if abs(k) < 1e-12 else np.expm1(-k * np.log1p(-level)) / k
        result[tail] = np.minimum(np.log(np.exp(threshold) + scale * value), 0.0) + top
    return SmoothedWeights(result, k)


def _fit(excess: Array) -> tuple[float, float]:
    """Shape and scale of the generalised Pareto distribution of an ascending sample, float64 (n,).

    The posterior mean of b in Zhang & Stephens' quasi-likelihood, over a grid; the shape is then drawn
    towards 1/2 as ten more observations would draw it (appendix C of Vehtari et al.).
    """
    n = excess.size
    n_grid = 30 + math.floor(math.sqrt(n))
    quartile = excess[math.floor(n / 4 + 0.5) - 1]
    grid = 1.0 / excess[-1] + (1.0 - np.sqrt(n_grid / (np.arange(n_grid) + 0.5))) / (3.0 * quartile)
    shape = np.log1p(-grid[:, None] * excess).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        profile = n * (np.log(-grid / shape) - shape - 1.0)
    weight = np.exp(profile - np.nanmax(profile))
    weight = np.where(np.isfinite(weight), weight, 0.0)
    b = float(np.sum(grid * weight) / np.sum(weight))
    k = float(np.log1p(-b * excess).mean())
    return (n * k + 5.0) / (n + 10.0), -k / b
