"""The whole posterior by tempering: particles that go from the prior to the posterior in small steps.

Sequential Monte Carlo (Del Moral, Doucet & Jasra 2006, J. R. Statist. Soc. B 68, 411): particles in the unit
cube follow the densities L^b, with b from 0 (the prior) to 1 (the posterior). Each step raises b until the
weights L^(b' - b) are worth half of the particles, draws particles by these weights, and moves them by
Markov chains. The logarithm of the evidence is the sum of those of the mean weights. Modes keep the part of
the particles that belongs to them, whatever their basins of attraction are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.inference.target.checked import Target
from biro.inference.target.protocol import Watch

Array = NDArray[np.float64]
Mover = Callable[[np.random.Generator, Array, Array, float], tuple[Array, Array, int]]
"""Moves particles (n, n_param), whose ln L is known, at a temperature; their ln L, and calls made."""
N_PARTICLE = 512
_WORTH = 0.5
"""Part of the particles that the weights of one step are worth."""
_MOVES, _SWEEPS = 3.0, 12
"""Accepted moves of a particle between two steps, on average, and attempts at most."""
_JITTER = 0.1
"""Scatter of the components of a move, relative to themselves."""
_EARLY, _N_EARLY = 0.3, 8
"""Temperature up to which some particles of each step are kept, and how many."""
_BATCH = 256


class Particles(NamedTuple):
    """The end of a tempered run.

    Attributes
    ----------
    theta : float64 (n, n_param)
        Draws of the tempered posterior, of equal weight.
    log_likelihood : float64 (n,)
    log_evidence : float
        ln Z of the normalised prior; of the tempered density where the run was cut short.
    temperature : float
        b: 1 where the particles are draws of the posterior, less where the run was cut short.
    early : float64 (n_early, n_param)
        Draws of densities between the prior and the posterior, some of each step: they lie in modes that the
        particles lost later, too.
    n_call : int
        Likelihoods that were worked out.
    """

    theta: Array
    log_likelihood: Array
    log_evidence: float
    temperature: float
    early: Array
    n_call: int

    @property
    def complete(self) -> bool:
        """Whether the particles are draws of the posterior itself."""
        return self.temperature == 1.0


class Stage(NamedTuple):
    """The particles at one temperature on the way from the prior to the posterior.

    Attributes
    ----------
    temperature : float
        b: they are draws of L^b times the prior.
    unit : float64 (n, n_param)
        Points of the unit cube, or other states.
    log_likelihood : float64 (n,)
    log_ratio : float
        ln of the mean weight of the step that led here.
    n_call : int
        Likelihoods that it took.
    """

    temperature: float
    unit: Array
    log_likelihood: Array
    log_ratio: float
    n_call: int


def temper(
    target: Target, unit: Array, log_likelihood: Array, seed: int, most: int, watch: Watch | None = None
) -> Particles:
    """Particles of the posterior, or of a tempered one where `most` calls did not reach it.

    Parameters
    ----------
    target : Target
    unit : float64 (n, n_param)
        Points that cover the unit cube evenly, from which the particles begin.
    log_likelihood : float64 (n,)
        There; finite for one of them at least.
    seed : int
    most : int
        Likelihoods that may be worked out, about.
    watch : function, optional
        Called with the highest log-likelihood after each step; what it raises ends the run.
    """
    rng = np.random.default_rng([seed, 3])
    log_z, n_call, early = -target.likelihood.log_constraint_mass, 0, list[Array]()
    for stage in stages(mover_of(target), rng, unit, log_likelihood, N_PARTICLE):
        log_z += stage.log_ratio
        n_call += stage.n_call
        if stage.temperature < _EARLY:
            early.append(stage.unit[:_N_EARLY])
        if watch is not None:
            watch(float(stage.log_likelihood.max()))
        if n_call >= most:
            break
    between = target.theta(np.concatenate(early) if early else stage.unit[:0])
    theta = target.theta(stage.unit)
    return Particles(theta, stage.log_likelihood, log_z, stage.temperature, between, n_call)


def mover_of(target: Target) -> Mover:
    """What moves particles in the unit cube of the parameters."""
    return partial(_moved, target)


def stages(
    move: Mover, rng: np.random.Generator, unit: Array, log_likelihood: Array, n_particle: int
) -> Iterator[Stage]:
    """The particles after each step from the prior to the posterior.

    Parameters
    ----------
    move : function
    rng : Generator
    unit : float64 (n, n_param)
        Draws of the prior, from which the particles begin: points of the unit cube, or other states.
    log_likelihood : float64 (n,)
        There; finite for one of them at least.
    n_particle : int
    """
    b = 0.0
    while b < 1.0:
        step = _step(log_likelihood, 1.0 - b)
        weight = np.exp(step * (log_likelihood - log_likelihood.max()))
        log_ratio = float(np.log(weight.mean()) + step * log_likelihood.max())
        b = 1.0 if b + step > 1.0 - 1e-9 else b + step
        chosen = _resampled(rng, weight, n_particle)
        unit, log_likelihood = unit[chosen], log_likelihood[chosen]
        unit, log_likelihood, n_row = move(rng, unit, log_likelihood, b)
        yield Stage(b, unit, log_likelihood, log_ratio, n_row)


def _step(log_likelihood: Array, most: float) -> float:
    """How far b rises, at most by `most`: until the weights are worth `_WORTH` of the particles."""
    possible = np.isfinite(log_likelihood)
    height = log_likelihood[possible] - log_likelihood[possible].max()
    least = _WORTH * possible.sum()

    def worth(step: float) -> float:
        weight = np.exp(step * height)
        return float(weight.sum() ** 2 / (weight**2).sum())

    if worth(most) >= least:
        return most
    low, high = 0.0, most
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if worth(middle) >= least else (low, middle)
    return high


def _resampled(rng: np.random.Generator, weight: Array, n: int) -> NDArray[np.intp]:
    """Indices of n particles drawn by weight, systematically, in random order."""
    edges = np.cumsum(weight) / weight.sum()
    places = (rng.random() + np.arange(n)) / n
    chosen = np.minimum(np.searchsorted(edges, places), len(weight) - 1)
    return np.asarray(rng.permutation(chosen))


def _moved(
    target: Target, rng: np.random.Generator, unit: Array, value: Array, b: float
) -> tuple[Array, Array, int]:
    """The particles after some sweeps of Markov chains that leave L^b as it is, and calls made.

    One half moves by differences of pairs of the other: pairs of near neighbours make steps inside a mode,
    pairs of distant ones make steps from one mode to another.
    """
    unit, value = unit.copy(), value.copy()
    half, n_call, accepted = len(unit) // 2, 0, 0
    for _ in range(_SWEEPS):
        for here, there in ((slice(None, half), slice(half, None)), (slice(half, None), slice(None, half))):
            moved = unit[here] + _differences(rng, unit[there], len(unit[here]))
            moved = np.where(target.wraps, np.mod(moved, 1.0), moved)
            inside = np.flatnonzero(((moved > 0.0) & (moved < 1.0)).all(axis=1))
            height = np.full(len(moved), -np.inf)
            for i in range(0, len(inside), _BATCH):
                batch = inside[i : i + _BATCH]
                height[batch] = target.log_likelihood_of_unit(moved[batch])
            n_call += len(inside)
            with np.errstate(over="ignore"):
                take = np.log(rng.random(len(moved))) < b * (height - value[here])
            accepted += int((take & (height != value[here])).sum())
            unit[here] = np.where(take[:, None], moved, unit[here])
            value[here] = np.where(take, height, value[here])
        if accepted >= _MOVES * len(unit):
            break
    return unit, value, n_call


def _differences(rng: np.random.Generator, points: Array, n: int) -> Array:
    """Steps (n, n_param) by differences of pairs of points, of all sizes from near neighbours to distant."""
    n_point, n_param = points.shape
    scale = points.std(axis=0)
    scaled = points / np.where(scale > 0.0, scale, 1.0)
    first = rng.integers(n_point, size=n)
    squared = (scaled**2).sum(axis=1)
    away = squared[first, None] + squared - 2.0 * scaled[first] @ scaled.T
    rank = np.exp(rng.random(n) * np.log(n_point)).astype(int).clip(1, n_point - 1)
    second = np.argsort(away, axis=1)[np.arange(n), rank]
    factor = np.where(rng.random(n) < 0.5, 1.0, 2.38 / np.sqrt(2.0 * n_param))
    step = (points[first] - points[second]) * (factor * rng.choice([-1.0, 1.0], n))[:, None]
    return np.asarray(step * (1.0 + _JITTER * rng.standard_normal(step.shape)))
