"""Whether the likelihood prefers values that the prior of a parameter all but excludes.

A normal prior of mean m and sd p and a normal likelihood give a posterior of mean x and sd q < p. Without its
prior the parameter would be x_L +- s_L, with 1/s_L^2 = 1/q^2 - 1/p^2, and

    (x_L - m) / sqrt(s_L^2 + p^2) = (x - m) / sqrt(p^2 - q^2)

is how many standard deviations the two are apart. Of a log-normal prior x is the logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import digits_after_point
from biro.errors import BiroError
from biro.models.quantities.parameter import Column, Parameter
from biro.models.quantities.prior import HalfNormal, LogNormal, Normal, TruncatedNormal

Array = NDArray[np.float64]
CONFLICT = "PRIOR AND DATA DISAGREE"
FAR = 4.0
"""Standard deviations between likelihood and prior above which they are in conflict."""
_N_STEP = 14
"""Steps beyond a limit: to 2000 times the error."""
SHARP = 0.9
"""A posterior that is wider than this part of its prior says nothing against it."""


@dataclass(frozen=True)
class Conflict:
    """A parameter whose likelihood and prior disagree.

    Attributes
    ----------
    name : str
    sigma : float
        How many standard deviations they are apart; infinite where that is not known.
    text : str
        The line above the table.
    """

    name: str
    sigma: float
    text: str


def prior_conflicts(parameters: Sequence[Parameter], mean: Array, sd: Array) -> list[Conflict]:
    """Parameters with normal priors that are more than four standard deviations off, the farthest first.

    Parameters
    ----------
    parameters : sequence of Parameter
    mean, sd : float64 (n_param,)
        Of the posterior; NaN where they are not known.
    """
    found = []
    for parameter, x, q in zip(parameters, mean.tolist(), sd.tolist(), strict=True):
        prior = getattr(parameter, "prior", None)
        if not isinstance(prior, Normal | TruncatedNormal | HalfNormal | LogNormal) or not x - q < x:
            continue
        m, p = float(getattr(prior, "mean", 0.0)), float(prior.sd)
        if isinstance(prior, LogNormal):
            x, q = math.log(max(x, 1e-300) / prior.median), q / abs(x)
        if not 0.0 < q < SHARP * p:
            continue
        sigma = abs(x - m) / math.sqrt(p**2 - q**2)
        if sigma > FAR:
            weight = 1.0 / q**2 - 1.0 / p**2
            preferred, error = (x / q**2 - m / p**2) / weight, weight**-0.5
            if isinstance(prior, LogNormal):
                preferred = prior.median * math.exp(preferred)
                error *= preferred
            found.append(Conflict(parameter.name, sigma, _of_normal(parameter, preferred, error, sigma)))
    return sorted(found, key=lambda each: -each.sigma)


def edge_conflicts(
    columns: Sequence[Column], theta: Array, sd: Array, log_likelihood: Callable[[Array], Array]
) -> list[Conflict]:
    """Parameters at a limit of their prior beyond which ln L rises by more than eight, the most first.

    From the limit outwards, all others staying where they are, steps double as long as ln L rises. A rise of
    d is sqrt(2 d) standard deviations.

    Parameters
    ----------
    columns : sequence of Column
    theta, sd : float64 (n_param,)
        Best fit and errors.
    log_likelihood : function of theta (n_batch, n_param)
    """
    found = []
    for i, column in enumerate(columns):
        side = _side(column, theta[i])
        if not side or column.name.startswith("noise."):  # a noise factor has a line of its own
            continue
        first = min(sd[i] if sd[i] > 0.0 else math.inf, _width(column)) / 4.0
        beyond = np.repeat(theta[None], _N_STEP + 1, axis=0)
        beyond[1:, i] += side * first * 2.0 ** np.arange(_N_STEP)
        try:
            with np.errstate(all="ignore"):  # a formula may have no value beyond the limit
                height = np.nan_to_num(log_likelihood(beyond), nan=-np.inf)
        except (BiroError, ValueError, ArithmeticError):  # nothing there that could be computed
            continue
        falls = np.flatnonzero(~(height[1:] > height[:-1]))
        top = int(falls[0]) if falls.size else _N_STEP
        sigma = math.sqrt(max(0.0, 2.0 * float(height[top] - height[0])))
        if sigma > FAR:
            found.append(Conflict(column.name, sigma, _of_edge(column, side, sigma)))
    return sorted(found, key=lambda each: -each.sigma)


def _side(column: Column, x: float) -> int:
    """-1 at the lower limit of a prior, +1 at its upper one, else 0."""
    close = 1e-6 * _width(column)
    if column.low is not None and x - column.low <= close:
        return -1
    return 1 if column.high is not None and column.high - x <= close else 0


def _width(column: Column) -> float:
    if column.low is None or column.high is None:
        return math.inf
    return column.high - column.low


def _of_normal(parameter: Parameter, preferred: float, error: float, sigma: float) -> str:
    digits, unit = digits_after_point(error), f" {parameter.unit}" if parameter.unit else ""
    return (
        f"{CONFLICT}: without its prior {parameter.name} would be {preferred:.{digits}f} +- "
        f"{error:.{digits}f}{unit}, {sigma:.0f} sigma from its prior{_in_words(parameter)}. Check the prior "
        "and its unit, or widen it"
    )


def _in_words(parameter: Parameter) -> str:
    """Centre and width of a prior."""
    prior, unit = parameter.prior, f" {parameter.unit}" if parameter.unit else ""
    if isinstance(prior, LogNormal):
        return f" (median {prior.median:g}{unit}, sd {prior.sd:g} of the logarithm)"
    return f" ({getattr(prior, 'mean', 0.0):g} +- {getattr(prior, 'sd', math.nan):g}{unit})"


def _of_edge(column: Column, side: int, sigma: float) -> str:
    unit, where = f" {column.unit}" if column.unit else "", "lower" if side < 0 else "upper"
    limit = column.low if side < 0 else column.high
    return (
        f"{CONFLICT}: {column.name} is CUT OFF at the {where} limit of its prior, {limit:g}{unit}. The "
        f"best value lies beyond it, by {sigma:.0f} sigma. Check the limit and its unit, or widen the "
        "prior"
    )
