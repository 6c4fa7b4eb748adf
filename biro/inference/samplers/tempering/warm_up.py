"""The warm-up of a tempered run: where walkers begin, the ladder, and the archives of the moves.

Particles go from the prior to the posterior first (`biro.inference.maximum.tempering.particles`). The
rejections of swaps between them make the ladder, whose rungs get walkers and archives from them. Rounds
of tempering then measure the rejections again, equalise these, and replace the archives by their own draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.errors import LikelihoodError
from biro.inference.maximum.tempering.particles import N_PARTICLE, stages
from biro.inference.samplers.tempering.ensemble import Ensemble
from biro.inference.samplers.tempering.ladder import equalised, log_acceptance, rungs_of
from biro.inference.samplers.tempering.moves import Moves, share_of
from biro.inference.target.checked import Target
from biro.inference.target.protocol import Watch

Array = NDArray[np.float64]
_N_PRIOR, _TRIES = 1024, 50
"""Draws of the prior in one call, and calls at most until there are enough possible ones."""
_SHARE = 0.5
"""Part of the moves of the first round that are draws of a mixture."""
ROUNDS, _EVEN = (50, 100, 200, 400), 0.65
"""Steps of the rounds that adapt ladder and archives, two at least: until no pair rejects more than this."""


class _Draws(NamedTuple):
    """Draws at several temperatures: of each, float64 (n, n_param), and their ln L, (n,).

    `share` is the part of the moves of each temperature but the prior that are to be draws of a mixture.
    """

    beta: Array
    rejection: Array
    share: Array
    unit: Sequence[Array]
    log_likelihood: Sequence[Array]


def moves_per_step(n_param: int) -> int:
    """Moves and swaps of a step: draws after fewer are hardly any different from those before."""
    return max(1, n_param // 2)


def warm_up(target: Target, n_walker: int, rng: np.random.Generator, watch: Watch) -> tuple[Ensemble, Moves]:
    """Walkers near equilibrium on a ladder with equal rejections, and their moves.

    Parameters
    ----------
    target : Target
    n_walker : int
        On each rung.
    rng : Generator
    watch : function of the highest log-likelihood so far
        Called after each step; what it raises ends the warm-up.

    Raises
    ------
    LikelihoodError
        No draw of the prior has a finite likelihood.
    """
    draws, n_call = _particles(target, rng, watch)
    ensemble, moves = _on_new_ladder(draws, target, n_walker, rng, n_call)
    for n_step in ROUNDS:
        draws = _round(target, ensemble, moves, n_step, rng, watch)
        ensemble, moves = _on_new_ladder(draws, target, n_walker, rng, int(ensemble.n_call))
        if n_step > ROUNDS[0] and draws.rejection.max() < _EVEN:
            break
    return ensemble, moves


def _particles(target: Target, rng: np.random.Generator, watch: Watch) -> tuple[_Draws, int]:
    """Particles at all temperatures from the prior on, and likelihoods computed."""
    unit, value, n_call = _of_prior(target, rng)
    beta, points, heights = [0.0], [unit], [value]
    for stage in stages(target, rng, unit, value):
        beta.append(stage.temperature)
        points.append(stage.unit)
        heights.append(stage.log_likelihood)
        n_call += stage.n_call
        watch(float(stage.log_likelihood.max()))
    ladder = np.array(beta)
    # The prior's draws cover it evenly on average only: as many of them as there are particles.
    paired = np.stack([height[:N_PARTICLE] for height in heights])
    rejection = 1.0 - np.exp(log_acceptance(ladder, paired)).mean(axis=1)
    return _Draws(ladder, rejection, np.full(len(rejection), _SHARE), points, heights), n_call


def _of_prior(target: Target, rng: np.random.Generator) -> tuple[Array, Array, int]:
    """Possible draws of the prior, their ln L, and likelihoods computed.

    A constraint or the likelihood may leave few: particles from a handful of points would stay on them.
    """
    found, heights, n_call, n = list[Array](), list[Array](), 0, 0
    while n < N_PARTICLE and n_call < _TRIES * _N_PRIOR:
        unit = rng.random((_N_PRIOR, target.n_param))
        value = target.log_likelihood_of_unit(unit)
        possible = np.isfinite(value)
        found.append(unit[possible])
        heights.append(value[possible])
        n_call, n = n_call + _N_PRIOR, n + int(possible.sum())
    if not n:
        words = f"none of {n_call} draws from the prior has a finite likelihood; check the priors"
        raise LikelihoodError(words)
    unit, value = np.concatenate(found), np.concatenate(heights)
    chosen = np.arange(n) if n >= N_PARTICLE else rng.choice(n, N_PARTICLE)
    return unit[chosen], value[chosen], n_call


def _round(
    target: Target,
    ensemble: Ensemble,
    moves: Moves,
    n_step: int,
    rng: np.random.Generator,
    watch: Watch,
) -> _Draws:
    """Move the walkers for some steps; the draws of the second half."""
    kept: list[tuple[Array, Array]] = []
    for step in range(n_step):
        if 2 * step == n_step:
            ensemble.count_anew()
        for _ in range(moves_per_step(target.n_param)):
            ensemble.move(target, moves, rng)
        if 2 * step >= n_step:
            kept.append((ensemble.unit.copy(), ensemble.log_likelihood.copy()))
        watch(float(ensemble.log_likelihood.max()))
    unit, value = (np.concatenate(of, axis=1) for of in zip(*kept, strict=True))
    share = share_of(ensemble.drawn[0] / np.maximum(ensemble.drawn[1], 1.0))
    return _Draws(ensemble.beta, ensemble.rejection, share, list(unit), list(value))


def _on_new_ladder(
    draws: _Draws, target: Target, n_walker: int, rng: np.random.Generator, n_call: int
) -> tuple[Ensemble, Moves]:
    """Walkers on the ladder that draws suggest, each from those of the nearest temperature, and moves."""
    barrier = np.concatenate([[0.0], np.cumsum(draws.rejection)])
    beta = equalised(draws.beta, draws.rejection, rungs_of(float(barrier[-1])))
    places = np.interp(beta, draws.beta, barrier)
    nearest = np.abs(places[:, None] - barrier).argmin(axis=1)
    nearest[1:] = np.maximum(nearest[1:], 1)  # draws of the prior may be impossible
    unit = np.empty((len(beta), n_walker, target.n_param))
    value = np.empty((len(beta), n_walker))
    archive = np.empty((len(beta) - 1, N_PARTICLE, target.n_param))
    for k, i in enumerate(nearest.tolist()):
        points, heights = draws.unit[i], draws.log_likelihood[i]
        chosen = rng.choice(len(points), n_walker, replace=len(points) < n_walker)
        unit[k], value[k] = points[chosen], heights[chosen]
        if k:
            archive[k - 1] = points[rng.choice(len(points), N_PARTICLE, replace=len(points) < N_PARTICLE)]
    moves = Moves(archive, target.wraps, draws.share[nearest[1:] - 1])
    return Ensemble.begin(beta, unit, value, n_call), moves
