"""Probabilities and intervals from draws, with the Monte Carlo error of as many draws as are independent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.files.json_value import JsonValue
from biro.inference.posterior.statistics import unwrap

Array = NDArray[np.float64]
SIGMA = 0.8413447460685429
"""The upper end of a central interval of 68.27 %, as a probability."""


def probability_error(probability: ArrayLike, n_effective: float) -> Array:
    """Standard error of a probability that draws give.

    Of k = p n independent draws that have a property, the probability of it follows
    Beta(a, b) with a = k + 1/2, b = n - k + 1/2 (Jeffreys prior), whose standard deviation is
    sqrt(a b / (n + 2)) / (n + 1). Unlike sqrt(p (1 - p) / n) it is not 0 where p is 0 or 1.

    Parameters
    ----------
    probability : array
    n_effective : float
        Independent draws.
    """
    k = np.asarray(probability, np.float64) * n_effective
    a, b = k + 0.5, n_effective - k + 0.5
    return np.asarray(np.sqrt(a * b / (n_effective + 2.0)) / (n_effective + 1.0))


def mean_error(values: ArrayLike, n_effective: float) -> float:
    """Standard error of the mean number of things in a draw, not 0 where all draws agree.

    sqrt(variance / n), or sqrt(1/2) / n where that is larger: the standard deviation of a Poisson rate of
    which n draws have seen nothing (Jeffreys prior).

    Parameters
    ----------
    values : array (n_draw,)
    n_effective : float
    """
    scatter = float(np.std(np.asarray(values, np.float64)) / math.sqrt(n_effective))
    return max(scatter, math.sqrt(0.5) / n_effective)


@dataclass(frozen=True)
class Estimate:
    """One quantity: mean, median, and the ends of the central 68 % interval; NaN where draws are too few."""

    mean: float
    median: float
    low_68: float
    high_68: float

    @property
    def error(self) -> float:
        """Half the width of the 68 % interval."""
        return 0.5 * (self.high_68 - self.low_68)

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON; null for NaN."""
        return {name: number if math.isfinite(number) else None for name, number in vars(self).items()}


def estimate(values: Array, n_effective: float, period: float | None = None) -> Estimate:
    """Mean, median and 68 % interval of draws of one quantity.

    The i-th of n ascending draws is the quantile i / (n + 1), so that the next draw lies in the interval with
    a probability of 68 % however small n is: exactly for a uniform distribution, and for a normal one with
    up to 3 % more. Fewer than 5.3 independent draws hold no such interval, and both ends are NaN.

    Parameters
    ----------
    values : float64 (n,)
    n_effective : float
        Independent draws among them.
    period : float, optional
        Of a quantity that wraps; the interval is continued through the wrap.
    """
    if not len(values):
        return Estimate(*[math.nan] * 4)
    if period is not None:
        values = unwrap(values, np.ones(len(values)), period)
    low, median, high = np.quantile(values, (1.0 - SIGMA, 0.5, SIGMA), method="weibull").tolist()
    if not has_interval(n_effective):
        low = high = math.nan
    mean = float(np.mean(values))
    if period is not None:
        turns = period * math.floor(median / period)
        low, median, high, mean = (each - turns for each in (low, median, high, mean))
    return Estimate(mean, median, low, high)


def has_interval(n_effective: float) -> bool:
    """Whether so many independent draws hold a 68 % interval between the least and the largest."""
    return (1.0 - SIGMA) * (n_effective + 1.0) >= 1.0
