"""The points from which the climb to a maximum begins: those of the user, or the best draws of the prior."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.errors import InputError, LikelihoodError
from biro.maximum.ascent import BATCH, Ascent
from biro.target.checked import Target
from biro.target.protocol import DifferentiableLikelihood, n_data_of, solves_gains

Array = NDArray[np.float64]
N_BESIDE = 2
"""Draws of the prior beside points that a likelihood offers, as one with gains does."""
N_SCREEN, N_SOLVED = 64, 4
"""Draws of the prior for each start, and where gains are solved for beside each draw."""


def starting_points(ascent: Ascent, starts: int | ArrayLike, rng: np.random.Generator) -> Array:
    """Where to begin, theta (n_start, n_param).

    Parameters
    ----------
    starts : int or float64 (n_start, n_param)
        How many, the best of many draws from the prior beside its middle; or the points themselves.

    Raises
    ------
    InputError
        No such number, another shape, or points outside the prior.
    LikelihoodError
        No draw has a finite posterior.
    """
    likelihood = ascent.likelihood
    if isinstance(starts, (int, np.integer)) and not isinstance(starts, bool):
        if starts < 1:
            raise InputError(f"starts must be at least 1, got {starts}")
        offered = _offered(likelihood, rng)
        n_draw = min(int(starts), N_BESIDE) if len(offered) else int(starts)
        return np.concatenate([offered, _best_draws(likelihood, n_draw, rng)])
    theta = np.atleast_2d(np.asarray(starts, dtype=np.float64))
    if theta.ndim != 2 or theta.shape[1] != likelihood.n_param or not len(theta):
        raise InputError(
            f"starts must be a number, or points of shape (n_start, {likelihood.n_param}), got {theta.shape}"
        )
    outside = ~np.isfinite(likelihood.log_prior(theta))
    if outside.any():
        raise InputError(_outside(likelihood, theta[int(np.argmax(outside))]))
    return theta


def _offered(likelihood: DifferentiableLikelihood, rng: np.random.Generator) -> Array:
    """Points (n_point, n_param) at which a likelihood expects its maximum, with fitted noise factors."""
    nothing = np.empty((0, likelihood.n_param))
    theta: Array = getattr(likelihood, "start_points", lambda seed: nothing)(int(rng.integers(2**31)))
    if not len(theta):
        return nothing
    theta = with_best_noise(likelihood, theta)
    return theta[np.isfinite(likelihood.log_posterior(theta))]


def _outside(likelihood: DifferentiableLikelihood, theta: Array) -> str:
    """One line about a start outside of the prior."""
    reason = Target(likelihood).outside(theta)
    return (
        f"a start lies outside the prior: {reason}" if reason else "a start breaks a constraint of the model"
    )


def _best_draws(likelihood: DifferentiableLikelihood, n: int, rng: np.random.Generator) -> Array:
    """The best n of the middle of the prior and draws from it, gains solved for and noise factors fitted."""
    unit = rng.random(((N_SOLVED if solves_gains(likelihood) else N_SCREEN) * n, likelihood.n_param))
    unit[0] = 0.5
    theta = likelihood.prior_transform(unit)
    value = np.full(len(theta), -np.inf)
    for i in range(0, len(theta), BATCH):
        batch = slice(i, i + BATCH)
        inside = np.flatnonzero(np.isfinite(likelihood.log_prior(theta[batch]))) + i
        if inside.size:
            if solves_gains(likelihood):
                theta[inside] = likelihood.with_best_gains(theta[inside])
            theta[inside] = with_best_noise(likelihood, theta[inside])
            value[inside] = likelihood.log_posterior(theta[inside])
    if not np.isfinite(value).any():
        raise LikelihoodError(
            f"none of {len(theta)} draws from the prior has a finite posterior; check the model"
        )
    order = np.argsort(-value, kind="stable")[:n]
    best: Array = theta[order[np.isfinite(value[order])]]
    return best


def with_best_noise(likelihood: DifferentiableLikelihood, theta: Array) -> Array:
    """theta (n, n_param) with fitted noise factors where the likelihood is highest, within the prior.

    s^2 = sum chi2 / sum n over the partitions of a factor s, of n real data each.
    """
    chi2, n_data, moved = likelihood.chi2(theta), n_data_of(likelihood), theta.copy()
    low, high = likelihood.model.box
    for i, (together, unit) in likelihood.model.noise_parameters.items():
        best = np.sqrt(chi2[:, together].sum(axis=1) / n_data[together].sum()) / unit
        moved[:, i] = np.where(np.isfinite(best), np.clip(best, low[i], high[i]), theta[:, i])
    return moved
