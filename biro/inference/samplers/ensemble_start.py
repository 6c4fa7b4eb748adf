"""The start of an ensemble without gradients: the mode over the prior, and walkers about it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.errors import LikelihoodError
from biro.inference.maximum.search import EDGE, inside_cube, search
from biro.inference.target.checked import Target
from biro.inference.target.protocol import Watch

log = logging.getLogger(__name__)

_STEPS = np.logspace(-12, -0.7, 46)
"""Step lengths tried along each axis of the unit cube."""


@dataclass(frozen=True)
class EnsembleStart:
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


def find_mode(target: Target, seed: int, watch: Watch | None = None) -> EnsembleStart:
    """Highest likelihood over the prior: differential evolution, then Newton steps.

    Both work on whole populations, one batched likelihood call per generation or step. Parameters and errors
    as those of `search`.
    """
    return _polish(target, *search(target, seed, watch))


def scatter(target: Target, start: EnsembleStart, n_walker: int, seed: int) -> NDArray[np.float64]:
    """Walkers about the mode, (n_walker, n_param) in theta; each within prior and constraints.

    Drawn with half the width of the curvature, in the unit cube. Parameters that wrap do so.

    Raises
    ------
    LikelihoodError
        Hardly any point about the mode is allowed.
    """
    rng = np.random.default_rng([seed, 1])
    width = 0.5
    walkers = np.empty((0, target.n_param))
    for _ in range(60):
        unit = start.mode + width * rng.standard_normal((4 * n_walker, target.n_param)) @ start.scale.T
        unit = np.where(target.wraps, np.mod(unit, 1.0), unit)
        unit = unit[((unit > 0.0) & (unit < 1.0)).all(axis=1)]
        theta = target.theta(unit)
        if len(theta):
            theta = theta[np.isfinite(target.log_posterior(theta))]
        walkers = np.concatenate([walkers, theta])
        if len(walkers) >= n_walker:
            return walkers[:n_walker]
        width *= 0.8
    raise LikelihoodError(
        f"only {len(walkers)} of {n_walker} walkers could be placed around the best point; check the prior "
        "and the constraints (the allowed region may be too thin)"
    )


def _polish(target: Target, mode: NDArray[np.float64], best: float) -> EnsembleStart:
    """Newton steps with the curvature from finite differences of one-sigma size."""
    covariance = np.eye(len(mode))
    for _ in range(20):
        step = _one_sigma_steps(target, mode, best)
        gradient, hessian = _derivatives(target, mode, step)
        values, vectors = np.linalg.eigh(-hessian)
        # Along directions with no curvature, or with one of the wrong sign, the width is that of the step.
        values = np.maximum(np.abs(values), 0.1)
        covariance = (vectors / values) @ vectors.T
        move = step * (covariance @ gradient)
        trial = inside_cube(mode + np.outer(np.concatenate([2.0 ** -np.arange(12), [2.0]]), move))
        trial_values = target.log_likelihood_of_unit(trial)
        i = int(np.argmax(trial_values))
        gain = trial_values[i] - best
        if not gain > 0:
            break
        mode, best = trial[i], float(trial_values[i])
        if gain < 1e-2:
            break
    values, vectors = np.linalg.eigh(covariance)
    return EnsembleStart(mode, best, step[:, None] * (vectors * np.sqrt(values)))


def _one_sigma_steps(target: Target, mode: NDArray[np.float64], best: float) -> NDArray[np.float64]:
    """Step along each axis that lowers the log-likelihood by about 1/2, from one batched call."""
    n_param = len(mode)
    axes = np.eye(n_param)
    offsets = np.concatenate([_STEPS, -_STEPS])[:, None, None] * axes
    points = (mode + offsets).reshape(-1, n_param)
    value = target.log_likelihood_of_unit(inside_cube(points)).reshape(2, len(_STEPS), n_param)
    drop = np.max(best - value, axis=0)
    # The last step before the fall exceeds 1/2; a likelihood that never falls so far gets the longest.
    beyond = drop > 0.5
    first = np.where(beyond.any(axis=0), np.argmax(beyond, axis=0), len(_STEPS) - 1)
    step: NDArray[np.float64] = _STEPS[np.maximum(first - 1, 0)]
    return step


def _derivatives(
    target: Target, mode: NDArray[np.float64], step: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradient and Hessian in units of the steps, by central differences, from one batched call."""
    n_param = len(mode)
    centre = np.clip(mode, step * 1.01 + EDGE, 1.0 - step * 1.01 - EDGE)
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
