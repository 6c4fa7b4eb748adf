"""Intervals of parameters whose posterior is far wider than its normal approximation, as of an upper limit.

About a source that the data do not show, the density of a log-uniform flux is highest at the low limit of
the prior, and falls from there as 1 / flux: its slope says nothing about how far it reaches. Draws by
tempering (`biro.inference.maximum.tempering.particles`) tell, also where the posterior has several modes.
Where there are none, and for parameters at a limit, the density along the parameter does, while the others
follow it as their normal distribution says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.laplace import ONE_SIGMA, Laplace
from biro.inference.maximum.modes import Mode
from biro.inference.maximum.objective import wrapped_difference
from biro.inference.maximum.tempering.particles import Particles
from biro.inference.target.checked import Target

Array = NDArray[np.float64]
NORMAL = 2.0
"""A posterior that is wider than its normal approximation by this factor is far from it."""
_OF_PRIOR, _OF_TAILS, _OF_LAPLACE = 64, 6, 16
"""Points along a parameter at a limit: quantiles of its prior, in its tails, of the one-sided density."""


class Interval(NamedTuple):
    """What is known of a parameter whose posterior is far from normal.

    Attributes
    ----------
    error : float
        Distance from the maximum that holds 68 %.
    low, high : float
        They hold 95 %; of a parameter at a limit of its prior one of them is that limit.
    ratio : float
        How many times as wide as its normal approximation the posterior is.
    """

    error: float
    low: float
    high: float
    ratio: float


class Skewed(NamedTuple):
    """Parameters whose posterior is far wider than its normal approximation.

    Attributes
    ----------
    intervals : dict
        By the index of the parameter.
    log_evidence : float or None
        ln Z by tempering, or by Laplace's method with the densities of these parameters in place of its own;
        None where all is about normal, or the data do not determine some parameter.
    """

    intervals: dict[int, Interval]
    log_evidence: float | None


def skewed(
    target: Target, modes: Sequence[Mode], particles: Particles | None, exchangeable: Sequence[str] = ()
) -> Skewed:
    """Parameters about whose posterior the normal approximation about the maximum is far too narrow.

    An error that is too large, as at a limit of a prior, misleads nobody into trusting a value too much.
    Sources that can change places keep the errors of the first order.
    """
    laplace = modes[0].laplace
    exchanged = bool(exchangeable) and len(modes) > 1
    if exchanged or not isinstance(laplace, Laplace):
        return Skewed({}, None)
    if particles is not None:
        found = _by_draws(target, laplace, particles.theta)
        at_limits = any(mode.laplace.side.any() for mode in modes)
        known = bool(found) and not laplace.is_singular and (len(modes) == 1 or at_limits)
        return Skewed(found, particles.log_evidence if known else None)
    if len(modes) > 1:
        return Skewed({}, None)
    found, log_evidence = {}, laplace.log_evidence(modes[0].log_posterior)
    for i in np.flatnonzero(laplace.side).tolist():
        interval, log_ratio = _along(target, laplace, i, modes[0].log_posterior)
        if interval.ratio > NORMAL:
            found[i] = interval
            log_evidence = None if log_evidence is None else log_evidence + log_ratio
    return Skewed(found, log_evidence if found else None)


def _by_draws(target: Target, laplace: Laplace, theta: Array) -> dict[int, Interval]:
    """From draws of the posterior (n, n_param)."""
    period = np.where(target.wraps, target.period, np.nan)
    away, found = wrapped_difference(theta - laplace.theta, period), {}
    for i, error in enumerate(laplace.error.tolist()):
        side, x = int(laplace.side[i]), away[:, i]
        distance = float(np.quantile(np.abs(x), ONE_SIGMA))
        middle = np.quantile(x, [0.5 - 0.5 * ONE_SIGMA, 0.5 + 0.5 * ONE_SIGMA])
        width = distance if side else 0.5 * float(np.diff(middle)[0])
        if width < NORMAL * error or not np.isfinite(error):
            continue
        levels = {-1: (0.0, 0.95), 0: (0.025, 0.975), 1: (0.05, 1.0)}[side]
        low, high = laplace.theta[i] + np.quantile(x, levels)
        ends = (laplace.theta[i] if side < 0 else low), (laplace.theta[i] if side > 0 else high)
        found[i] = Interval(distance, float(ends[0]), float(ends[1]), width / max(error, 1e-300))
    return found


def _along(target: Target, laplace: Laplace, i: int, at_maximum: float) -> tuple[Interval, float]:
    """The interval of a parameter at a limit; and ln of its integral over that of the one-sided density."""
    unit = np.full((_OF_PRIOR + 2 * _OF_TAILS, target.n_param), 0.5)
    tail = np.geomspace(1e-6, 0.25 / _OF_PRIOR, _OF_TAILS)
    unit[:, i] = np.concatenate([tail, (np.arange(_OF_PRIOR) + 0.5) / _OF_PRIOR, 1.0 - tail])
    part = np.append((np.arange(_OF_LAPLACE) + 0.5) / _OF_LAPLACE, 0.999)
    of_prior = np.abs(target.theta(unit)[:, i] - laplace.theta[i])
    x = np.unique(np.concatenate([[0.0], of_prior, laplace.distance(part, i)]))
    shift = np.zeros((len(x), target.n_param))
    shift[:, i] = -laplace.side[i] * x
    moved = np.arange(target.n_param) == i
    theta = laplace.theta + np.array([laplace.following(moved, row) for row in shift])
    value = target.log_posterior(theta) - at_maximum
    density = np.exp(np.minimum(np.nan_to_num(value, nan=-np.inf), 700.0))
    mass = np.append(0.0, np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(x)))
    error, reach = np.interp([ONE_SIGMA, 0.95], mass / mass[-1], x)
    here, there = float(laplace.theta[i]), float(laplace.theta[i] - laplace.side[i] * reach)
    ratio = float(error / max(laplace.error[i], 1e-300))
    interval = Interval(float(error), min(here, there), max(here, there), ratio)
    return interval, float(np.log(mass[-1])) - laplace.log_one_sided(i)
