"""The evidence of each of several modes, from draws that a sampler made in it: bridge sampling.

With draws of the posterior in the part of the prior that is next to a mode, and draws of the distribution q
about it (`biro.inference.maximum.proposal`),

    Z = mean over q of [p / (a p + b Z q)]  /  mean over draws of p of [q / (a p + b Z q)]

for the posterior p that is not normalised, and for a and b the parts of both kinds of draws, is solved for Z
by iteration (Meng & Wong 1996, Statistica Sinica 6, 831). The error is that of Fruehwirth-Schnatter (2004,
Econometrics Journal 7, 143), with the effective number of the sampler's draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.modes import Mode
from biro.inference.maximum.objective import wrapped_difference
from biro.inference.maximum.proposal import Proposal
from biro.inference.target.checked import Target

Array = NDArray[np.float64]
N_PROPOSED = 1000
"""Draws about each mode."""
_BATCH = 256
_ROUNDS, _ENOUGH = 1000, 1e-10
_MOST = 300.0
"""Logarithms of p / q differ from their median by no more, so that all numbers are finite."""


class ModeEvidence(NamedTuple):
    """Evidence of one mode: ln Z, and one sigma of it."""

    log_evidence: float
    error: float


def nearest_mode(modes: Sequence[Mode], theta: Array, period: Array) -> NDArray[np.int64]:
    """Index of the mode, int64 (n,), whose normal approximation is highest at each theta (n, n_param).

    Parameters
    ----------
    modes : sequence of Mode
    theta : float64 (n, n_param)
    period : float64 (n_param,)
        NaN where a parameter has none.
    """
    heights = []
    for mode in modes:
        middle = mode.laplace.theta
        away = wrapped_difference(theta - middle, period)
        heights.append(mode.log_posterior + mode.laplace.log_density(middle + away))
    return np.asarray(np.argmax(heights, axis=0))


def evidence_of_mode(
    target: Target,
    modes: Sequence[Mode],
    members: Sequence[int],
    draws: tuple[Array, Array],
    n_effective: float,
    rng: np.random.Generator,
) -> ModeEvidence:
    """The part of the evidence that belongs to some modes: to all theta to which one of them is the nearest.

    Parameters
    ----------
    target : Target
    modes : sequence of Mode
        None of them singular.
    members : sequence of int
        Which of the modes, one or several.
    draws : float64 (n, n_param) and (n,)
        Draws of the posterior to which one of these is the nearest, and their log-posteriors.
    n_effective : float
        How many independent draws they are worth.
    rng : numpy.random.Generator
    """
    period = np.where(target.wraps, target.period, np.nan)
    proposal = Proposal([modes[i] for i in members], period)
    proposed = proposal.draws(rng, N_PROPOSED)
    height = np.concatenate([
        target.log_posterior(proposed[i : i + _BATCH]) for i in range(0, len(proposed), _BATCH)
    ])  # fmt: skip
    height[~np.isin(nearest_mode(modes, proposed, period), members)] = -np.inf
    about_q = np.full(N_PROPOSED, -np.inf)  # draws that the proposal left out are outside, too
    about_q[: len(proposed)] = height - proposal.log_density(proposed)
    theta, log_posterior = draws
    return bridge(log_posterior - proposal.log_density(theta), about_q, n_effective)


def bridge(of_posterior: Array, of_proposal: Array, n_effective: float) -> ModeEvidence:
    """Z from ln(p / q) at draws of p and at draws of q, both float64 (n,); the latter may be -inf.

    Parameters
    ----------
    of_posterior, of_proposal : float64 (n,)
    n_effective : float
        How many independent draws those of p are worth.
    """
    middle = float(np.median(of_posterior))
    p, q = (np.exp(np.clip(of - middle, -_MOST, _MOST)) for of in (of_posterior, of_proposal))
    q[np.isneginf(of_proposal)] = 0.0
    part = n_effective / (n_effective + len(q))
    value = 1.0
    for _ in range(_ROUNDS):
        above, below = q / (part * q + (1.0 - part) * value), 1.0 / (part * p + (1.0 - part) * value)
        before, value = value, float(above.mean() / below.mean())
        if not value > 0.0 or abs(value - before) < _ENOUGH * value:
            break
    if not value > 0.0:
        return ModeEvidence(-np.inf, np.inf)  # no draw of q is in the part that belongs to the mode
    variance = (
        np.var(above) / np.mean(above) ** 2 / len(q) + np.var(below) / np.mean(below) ** 2 / n_effective
    )
    return ModeEvidence(middle + float(np.log(value)), float(np.sqrt(variance)))


def errors_by_drift(part: Array, information: float, n_live: int) -> Array:
    """Errors of the modes' ln Z, float64 (n_mode,), of live points that stay in their mode and drift.

    sqrt(H / (n_live p)). Independent errors of that size, as of Poisson numbers of points, make the variance
    of the part of each mode p (1 - p) H / n_live in `effective_of_modes` and `error_of_largest`.

    Parameters
    ----------
    part : float64 (n_mode,)
        Parts of the evidence, p.
    information : float
        H, nat.
    n_live : int
        Live points.
    """
    return np.asarray(np.sqrt(max(information, 0.0) / (n_live * part)))


def effective_of_modes(part: Array, errors: Array, means: Array, variances: Array, effective: Array) -> Array:
    """Effective numbers, float64 (n_param,), of draws of modes whose parts of the evidence have errors.

    The variance of a mean is sum_k p_k^2 (v_k / n_k + e_k^2 (m_k - m)^2), with p_k the part of mode k, e_k
    the error of its ln Z, and m_k, v_k, n_k mean, variance and effective number of its draws. The result is
    the number of independent draws of the whole posterior whose mean has that variance.

    Parameters
    ----------
    part, errors : float64 (n_mode,)
    means, variances, effective : float64 (n_mode, n_param)
    """
    share, away = part[:, None], (means - part @ means) ** 2
    whole = np.sum(share * (variances + away), axis=0)
    of_mean = np.sum(share**2 * (variances / effective + errors[:, None] ** 2 * away), axis=0)
    return np.asarray(whole / of_mean)


def error_of_largest(part: Array, errors: Array) -> float:
    """One sigma of the part of the evidence that the largest mode has.

    Parameters
    ----------
    part, errors : float64 (n_mode,)
        Parts of the evidence, and errors of ln Z, of the modes.
    """
    largest = int(np.argmax(part))
    change = -part * errors  # of ln of the largest part, for one sigma of each evidence
    change[largest] += errors[largest]
    return float(part[largest] * np.linalg.norm(change))
