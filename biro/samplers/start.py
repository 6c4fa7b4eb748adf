"""Where an ensemble starts without gradients: the mode over the prior, and a cloud about it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import differential_evolution

from biro.errors import LikelihoodError
from biro.maximum.target import Target

log = logging.getLogger(__name__)

Watch = Callable[[float], None]
_STEPS = np.logspace(-12, -0.7, 46)
"""Step lengths tried along each axis of the unit cube."""
_N_SEARCH, _N_CONVERGE = 80, 200
"""Generations of differential evolution, at most: searching, then converging."""
_EDGE = 1e-12
"""Points stay this far inside of the unit cube, where unbounded priors are finite."""


@dataclass(frozen=True)
class Start:
    """Mode and a scale about it, both in the unit cube.

    Attributes
    ----------
    mode : float64 (n_param,)
    log_likelihood : float
    scale : float64 (n_param, n_param)
        Square root of the covariance that the curvature at the mode gives.
    """

    mode: NDArray[np.float64]
    log_likelihood: float
    scale: NDArray[np.float64]


def find_mode(target: Target, seed: int, watch: Watch | None = None) -> Start:
    """Highest likelihood over the prior: differential evolution, then Newton steps.

    Both work on whole populations, one batched likelihood call per generation or step. Parameters and errors
    as those of `search`.
    """
    return _polish(target, *search(target, seed, watch))


def search(target: Target, seed: int, watch: Watch | None = None) -> tuple[NDArray[np.float64], float]:
    """Near the highest likelihood over the prior, by differential evolution: point of the unit cube, ln L.

    Parameters
    ----------
    target : Target
    seed : int
    watch : function of the best log-likelihood so far, optional
        Called after each generation; what it raises ends the search.

    Raises
    ------
    LikelihoodError
        No point of the prior has a finite likelihood.
    """
    n_param = target.n_param
    rng = np.random.default_rng(seed)
    first = _first_population(target, rng, int(np.clip(32 * n_param, 64, 256)))
    value = target.log_likelihood_of_unit(first)
    worst = value[np.isfinite(value)].min() - 1e3

    def cost(columns: NDArray[np.float64]) -> NDArray[np.float64]:
        found = target.log_likelihood_of_unit(_inside(columns.T))
        return -np.where(np.isfinite(found), found, worst)

    def after_generation(intermediate_result: Any) -> None:
        if watch is not None:
            watch(-float(intermediate_result.fun))

    minimise: Any = differential_evolution  # its stubs know no vectorized costs
    common = {
        "bounds": [(0.0, 1.0)] * n_param,
        "mutation": (0.4, 0.9),
        "recombination": 0.9,
        "tol": 0.0,
        "atol": 0.1,
        "polish": False,
        "updating": "deferred",
        "vectorized": True,
        "rng": rng,
        "callback": after_generation,
    }
    # Random parents search, the best parent converges: among fringes the second alone ends in a sidelobe.
    outcome = minimise(cost, init=first, maxiter=_N_SEARCH, strategy="rand1bin", **common)
    outcome = minimise(cost, init=outcome.population, maxiter=_N_CONVERGE, strategy="best1bin", **common)
    log.info("search: log-likelihood %.3f after %d converging generations", -outcome.fun, outcome.nit)
    return _inside(outcome.x), float(-outcome.fun)


def scatter(target: Target, start: Start, n_walker: int, seed: int) -> NDArray[np.float64]:
    """Walkers about the mode, (n_walker, n_param) in theta; each within prior and constraints.

    Drawn with half the width of the curvature, in the unit cube. Parameters that wrap do so.

    Raises
    ------
    LikelihoodError
        Hardly any point about the mode is allowed.
    """
    rng = np.random.default_rng([seed, 1])
    width = 0.5
    kept = np.empty((0, target.n_param))
    for _ in range(60):
        unit = start.mode + width * rng.standard_normal((4 * n_walker, target.n_param)) @ start.scale.T
        unit = np.where(target.wraps, np.mod(unit, 1.0), unit)
        unit = unit[((unit > 0.0) & (unit < 1.0)).all(axis=1)]
        theta = target.theta(unit)
        fine = np.isfinite(target.log_prior(theta)) if len(theta) else np.zeros(0, bool)
        fine[fine] = np.isfinite(target.log_likelihood(theta[fine]))
        kept = np.concatenate([kept, theta[fine]])
        if len(kept) >= n_walker:
            return kept[:n_walker]
        width *= 0.8
    raise LikelihoodError(
        f"only {len(kept)} of {n_walker} walkers could be placed about the best point; "
        "is the allowed region of the prior thinner than its numbers can tell apart?"
    )


def _first_population(target: Target, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """The best n of prior draws; more are drawn while hardly any is allowed."""
    points, values = np.empty((0, target.n_param)), np.empty(0)
    for _ in range(50):
        draws = rng.random((8 * n, target.n_param))
        points = np.concatenate([points, draws])
        values = np.concatenate([values, target.log_likelihood_of_unit(draws)])
        if np.isfinite(values).sum() >= n:
            break
    good = np.isfinite(values)
    if not good.any():
        raise LikelihoodError(
            f"none of {len(points)} draws from the prior has a finite likelihood; check the model"
        )
    order = np.argsort(-values, kind="stable")[: min(n, max(int(good.sum()), 5))]
    return points[order]


def _inside(unit: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(unit, _EDGE, 1.0 - _EDGE)


def _polish(target: Target, mode: NDArray[np.float64], best: float) -> Start:
    """Newton steps with the curvature from finite differences of one-sigma size."""
    covariance = np.eye(len(mode))
    for _ in range(20):
        step = _one_sigma_steps(target, mode, best)
        gradient, hessian = _derivatives(target, mode, step)
        values, vectors = np.linalg.eigh(-hessian)
        # Directions that curve the wrong way, or hardly at all, are as wide as the step was.
        values = np.maximum(np.abs(values), 0.1)
        covariance = (vectors / values) @ vectors.T
        move = step * (covariance @ gradient)
        trial = _inside(mode + np.outer(np.concatenate([2.0 ** -np.arange(12), [2.0]]), move))
        found = target.log_likelihood_of_unit(trial)
        i = int(np.argmax(found))
        gain = found[i] - best
        if not gain > 0:
            break
        mode, best = trial[i], float(found[i])
        if gain < 1e-2:
            break
    values, vectors = np.linalg.eigh(covariance)
    return Start(mode, best, step[:, None] * (vectors * np.sqrt(values)))


def _one_sigma_steps(target: Target, mode: NDArray[np.float64], best: float) -> NDArray[np.float64]:
    """Step along each axis that lowers the log-likelihood by about 1/2, from one batched call."""
    n_param = len(mode)
    axes = np.eye(n_param)
    offsets = np.concatenate([_STEPS, -_STEPS])[:, None, None] * axes
    points = (mode + offsets).reshape(-1, n_param)
    value = target.log_likelihood_of_unit(_inside(points)).reshape(2, len(_STEPS), n_param)
    drop = np.max(best - value, axis=0)
    # The last step before the fall exceeds 1/2; a likelihood that never falls so far gets the longest.
    beyond = drop > 0.5
    first = np.where(beyond.any(axis=0), np.argmax(beyond, axis=0), len(_STEPS) - 1)
    return _STEPS[np.maximum(first - 1, 0)]


def _derivatives(
    target: Target, mode: NDArray[np.float64], step: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradient and Hessian in units of the steps, by central differences, from one batched call."""
    n_param = len(mode)
    centre = np.clip(mode, step * 1.01 + _EDGE, 1.0 - step * 1.01 - _EDGE)
    axes = np.diag(step)
    i, j = np.triu_indices(n_param, k=1)
    points = np.concatenate(
        [[centre], centre + axes, centre - axes, centre + axes[i] + axes[j], centre - axes[i] - axes[j]]
    )
    value = target.log_likelihood_of_unit(points)
    value = np.where(np.isfinite(value), value, value[np.isfinite(value)].min(initial=0.0))
    middle, plus, minus = value[0], value[1 : n_param + 1], value[n_param + 1 : 2 * n_param + 1]
    both_plus, both_minus = np.split(value[2 * n_param + 1 :], 2)
    gradient = 0.5 * (plus - minus)
    hessian = np.diag(plus - 2.0 * middle + minus)
    cross = 0.5 * (both_plus + both_minus - plus[i] - plus[j] - minus[i] - minus[j] + 2.0 * middle)
    hessian[i, j] = hessian[j, i] = cross
    return gradient, hessian
