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
from biro.inference.samplers.tempering.ensemble import Ensemble
from biro.inference.samplers.tempering.ladder import equalised, log_acceptance, rungs_of
from biro.inference.samplers.tempering.problem import Moves, Problem
from biro.inference.target.protocol import Watch

Array = NDArray[np.float64]
_TRIES = 50
"""Calls at most until there are enough possible draws of the prior."""
ROUNDS, _EVEN = (50, 100, 200, 400), 0.65
"""Steps of the rounds that adapt ladder and archives, two at least: until no pair rejects more than this."""


class _Draws(NamedTuple):
    """Draws at several temperatures: of each, float64 (n, n_row), and their ln L, (n,).

    `tuning` is what moves at each temperature but the prior are made with.
    """

    beta: Array
    rejection: Array
    tuning: Array
    rows: Sequence[Array]
    log_likelihood: Sequence[Array]


def warm_up(
    problem: Problem, n_walker: int, rng: np.random.Generator, watch: Watch
) -> tuple[Ensemble, Moves]:
    """Walkers near equilibrium on a ladder with equal rejections, and their moves.

    Parameters
    ----------
    problem : Problem
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
    draws, n_call = _particles(problem, rng, watch)
    ensemble, moves = _on_new_ladder(draws, problem, n_walker, rng, n_call)
    for n_step in ROUNDS:
        draws = _round(problem, ensemble, moves, n_step, rng, watch)
        ensemble, moves = _on_new_ladder(draws, problem, n_walker, rng, int(ensemble.n_call))
        if n_step > ROUNDS[0] and draws.rejection.max() < _EVEN:
            break
    return ensemble, moves


def _particles(problem: Problem, rng: np.random.Generator, watch: Watch) -> tuple[_Draws, int]:
    """Particles at all temperatures from the prior on, and likelihoods computed."""
    rows, value, n_call = _of_prior(problem, rng)
    beta, points, heights = [0.0], [rows], [value]
    for stage in problem.stages(rng, rows, value):
        beta.append(stage.temperature)
        points.append(stage.unit)
        heights.append(stage.log_likelihood)
        n_call += stage.n_call
        watch(float(stage.log_likelihood.max()))
    ladder = np.array(beta)
    # The prior's draws cover it evenly on average only: as many of them as there are particles.
    paired = np.stack([height[: problem.n_particle] for height in heights])
    rejection = 1.0 - np.exp(log_acceptance(ladder, paired)).mean(axis=1)
    tuning = np.full(len(rejection), problem.first_tuning)
    return _Draws(ladder, rejection, tuning, points, heights), n_call


def _of_prior(problem: Problem, rng: np.random.Generator) -> tuple[Array, Array, int]:
    """Possible draws of the prior, their ln L, and likelihoods computed.

    A constraint or the likelihood may leave few: particles from a handful of points would stay on them.
    """
    found, heights, n_call, n = list[Array](), list[Array](), 0, 0
    n_particle, per_call = problem.n_particle, 2 * problem.n_particle
    while n < n_particle and n_call < _TRIES * per_call:
        rows = problem.draw(rng, per_call)
        value = problem.heights(rows)
        possible = np.isfinite(value)
        found.append(rows[possible])
        heights.append(value[possible])
        n_call, n = n_call + per_call, n + int(possible.sum())
    if not n:
        words = f"none of {n_call} draws from the prior has a finite likelihood; check the priors"
        raise LikelihoodError(words)
    rows, value = np.concatenate(found), np.concatenate(heights)
    chosen = np.arange(n) if n >= n_particle else rng.choice(n, n_particle)
    return rows[chosen], value[chosen], n_call


def _round(
    problem: Problem,
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
        for _ in range(problem.moves_per_step):
            ensemble.move(moves, rng)
        if 2 * step >= n_step:
            kept.append((ensemble.rows.copy(), ensemble.log_likelihood.copy()))
        watch(float(ensemble.log_likelihood.max()))
    rows, value = (np.concatenate(of, axis=1) for of in zip(*kept, strict=True))
    tuning = moves.tuned(ensemble.counts)
    return _Draws(ensemble.beta, ensemble.rejection, tuning, list(rows), list(value))


def _on_new_ladder(
    draws: _Draws, problem: Problem, n_walker: int, rng: np.random.Generator, n_call: int
) -> tuple[Ensemble, Moves]:
    """Walkers on the ladder that draws suggest, each from those of the nearest temperature, and moves."""
    barrier = np.concatenate([[0.0], np.cumsum(draws.rejection)])
    beta = equalised(draws.beta, draws.rejection, rungs_of(float(barrier[-1])))
    places = np.interp(beta, draws.beta, barrier)
    nearest = np.abs(places[:, None] - barrier).argmin(axis=1)
    nearest[1:] = np.maximum(nearest[1:], 1)  # draws of the prior may be impossible
    n_kept = problem.n_particle
    rows = np.empty((len(beta), n_walker, problem.n_row))
    value = np.empty((len(beta), n_walker))
    archive = np.empty((len(beta) - 1, n_kept, problem.n_row))
    for k, i in enumerate(nearest.tolist()):
        points, heights = draws.rows[i], draws.log_likelihood[i]
        chosen = rng.choice(len(points), n_walker, replace=len(points) < n_walker)
        rows[k], value[k] = points[chosen], heights[chosen]
        if k:
            archive[k - 1] = points[rng.choice(len(points), n_kept, replace=len(points) < n_kept)]
    moves = problem.moves(beta, archive, draws.tuning[nearest[1:] - 1])
    return Ensemble.begin(beta, rows, value, n_call), moves
