"""The points from which the climb to a maximum begins: those of the user, or points that cover the prior."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.errors import InputError, LikelihoodError
from biro.inference.maximum.objective import BATCH, Objective
from biro.inference.maximum.search import EDGE
from biro.inference.target.checked import Target
from biro.inference.target.protocol import (
    DifferentiableLikelihood,
    StartPoints,
    n_data_of,
    solves_gains,
    starts_offered_by,
)

Array = NDArray[np.float64]
N_BESIDE = 2
"""Draws of the prior beside points that a likelihood offers, as one with gains does."""
N_SCREEN, N_SOLVED = 64, 4
"""Points of the prior for each start, and where gains are solved for beside each point."""


def starting_points(objective: Objective, starts: int | ArrayLike, rng: np.random.Generator) -> StartPoints:
    """Where to begin: points that a likelihood offers, and others beside them, or points of the user.

    Parameters
    ----------
    starts : int or float64 (n_start, n_param)
        How many, chosen among many points that cover the prior; or the points themselves.

    Raises
    ------
    InputError
        No such number, another shape, or points outside the prior.
    LikelihoodError
        No point has a finite posterior.
    """
    likelihood = objective.likelihood
    if isinstance(starts, (int, np.integer)) and not isinstance(starts, bool):
        if starts < 1:
            raise InputError(f"starts must be at least 1, got {starts}")
        offered = _offered(likelihood, rng)
        n_draw = min(int(starts), N_BESIDE) if offered.searched else int(starts)
        drawn = _covering(likelihood, n_draw, rng)
        return offered._replace(theta=np.concatenate([offered.theta, drawn]))
    theta = np.atleast_2d(np.asarray(starts, dtype=np.float64))
    if theta.ndim != 2 or theta.shape[1] != likelihood.n_param or not len(theta):
        raise InputError(
            f"starts must be a count, or points of shape (n_start, {likelihood.n_param}), got {theta.shape}"
        )
    outside = ~np.isfinite(likelihood.log_prior(theta))
    if outside.any():
        raise InputError(_outside(likelihood, theta[int(np.argmax(outside))]))
    return StartPoints(theta)


def _offered(likelihood: DifferentiableLikelihood, rng: np.random.Generator) -> StartPoints:
    """Points at which a likelihood expects its maximum, with fitted noise factors; none of most."""
    offered = starts_offered_by(likelihood, int(rng.integers(2**31)))
    if not len(offered.theta):
        return StartPoints(offered.theta)
    theta = likelihood.with_best_gains(offered.theta) if solves_gains(likelihood) else offered.theta
    theta = with_best_noise(likelihood, theta)
    theta = theta[np.isfinite(likelihood.log_posterior(theta))]
    return offered._replace(theta=theta) if len(theta) else StartPoints(theta)


def _outside(likelihood: DifferentiableLikelihood, theta: Array) -> str:
    """One line about a start outside of the prior."""
    reason = Target(likelihood).outside(theta)
    return (
        f"a start lies outside the prior: {reason}" if reason else "a start breaks a constraint of the model"
    )


def _covering(likelihood: DifferentiableLikelihood, n: int, rng: np.random.Generator) -> Array:
    """n points of the prior that are high and apart, gains solved for and noise factors fitted.

    Sobol points cover the prior evenly. The best of them may all lie about one maximum: each start stands for
    its nearest neighbours, among which there is no other. The best of all, and the middle of the prior, are
    always among them.
    """
    unit = cover(likelihood.n_param, (N_SOLVED if solves_gains(likelihood) else N_SCREEN) * n, rng)
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
    finite = np.isfinite(value)
    if not finite.any():
        raise LikelihoodError(
            f"none of {len(theta)} draws from the prior has a finite posterior; check the priors"
        )
    unit, theta, value = unit[finite], theta[finite], value[finite]
    chosen = _best_apart(unit, value, Target(likelihood).wraps, n)
    if finite[0] and n > 1 and 0 not in chosen:
        chosen[-1] = 0  # with small leakages, for instance, all is nearly linear
    return np.asarray(theta[chosen])


def cover(n_param: int, n: int, rng: np.random.Generator) -> Array:
    """Points that cover the unit cube evenly, float64 (n, n_param): scrambled Sobol points."""
    from scipy.stats import qmc

    sobol = qmc.Sobol(n_param, rng=rng)
    points = sobol.random_base2(max(0, (n - 1).bit_length()))[:n]
    return np.asarray(np.clip(points, EDGE, 1.0 - EDGE))


def _best_apart(unit: Array, value: Array, wraps: NDArray[np.bool_], n: int) -> list[int]:
    """Indices of the n highest points of the unit cube, each but the nearest neighbours of higher ones."""
    from scipy.spatial import KDTree

    places = np.mod(unit, 1.0)
    tree = KDTree(places, boxsize=np.where(wraps, 1.0, 0.0))
    n_near, free, chosen = max(1, len(unit) // n), np.ones(len(unit), bool), list[int]()
    for i in np.argsort(-value, kind="stable"):
        if free[i]:
            chosen.append(int(i))
            free[tree.query(places[i], n_near)[1]] = False
        if len(chosen) == n:
            break
    return chosen


def with_best_noise(likelihood: DifferentiableLikelihood, theta: Array) -> Array:
    """theta (n, n_param) with fitted noise factors where the likelihood is highest, within the prior.

    s^2 = sum chi2 / sum n over the partitions of a factor s, of n real data each.
    """
    chi2, n_data, moved = likelihood.chi2(theta), n_data_of(likelihood), theta.copy()
    low, high = likelihood.model.box
    for i, (together, unit) in likelihood.model.noise_parameters.items():
        with np.errstate(invalid="ignore"):  # 0 / 0 of partitions without data, as of hands without closures
            best = np.sqrt(chi2[:, together].sum(axis=1) / n_data[together].sum()) / unit
        moved[:, i] = np.where(np.isfinite(best), np.clip(best, low[i], high[i]), theta[:, i])
    return moved
