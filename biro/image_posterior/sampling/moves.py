"""Moves of Markov chains in numbers that the Fisher metric makes alike: HMC by blackjax.

Hamiltonian Monte Carlo (Neal 2011, arXiv:1206.1901) moves all chains beside one another in numbers z,

    xi = centre + z + U (1 / sqrt(1 + s) - 1) U^T z,

where U and s are the largest eigenvectors and eigenvalues of the Fisher metric of the likelihood, averaged
over places of the chains, so that the posterior of z is about as wide in all directions.

Where data determine a field well, it nearly gives its spectrum. Moves of all numbers therefore alternate with
moves of the spectrum at a fixed image, which need no likelihood (Yu and Meng 2011, JCGS 20, 531).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]
LogScale: TypeAlias = Callable[[Any], Any]
_ACCEPTANCE, _LEAST = 0.65, 0.05
"""Harmonic mean over the chains of the probability of acceptance, and what a smaller one counts as."""
_LENGTH, _MOST_LEAPS = 5.0, 100
"""Mean length of a trajectory, in sd, and its steps at most.

A normal distribution needs pi/2. Distributions of pixels that share flux are curved: on one sky that did not
converge with 2, a length of 5 gave twice the effective samples in the same time.
"""
_N_SPECTRUM = 3
"""Moves of the spectrum alone after each move of all numbers: they need no likelihood."""
_RANK, _SMALLEST = 192, 0.1
"""Eigenvectors of the metric that are looked for at first, and eigenvalues below which none matters."""
_ROUND = 64
"""Numbers of eigenvectors are multiples of it."""
_PLACES = 16
"""Places over which the metric is averaged, at most."""
_HALVINGS = 8
_AT_MAP = 2000
"""Evaluations of the search for the start, at most."""


class Frame(NamedTuple):
    """Coordinates in which the posterior is about as wide in all directions."""

    centre: Any
    vectors: Any
    """U, float64 (n, n_vector)."""
    shrink: Any
    """1 / sqrt(1 + s) - 1, float64 (n_vector,)."""

    def numbers(self, z: Any) -> Any:
        """xi of z."""
        return self.centre + z + self.vectors @ (self.shrink * (self.vectors.T @ z))

    def coordinates(self, xi: Any) -> Any:
        """z of xi."""
        away = xi - self.centre
        return away + self.vectors @ ((1.0 / (1.0 + self.shrink) - 1.0) * (self.vectors.T @ away))


class Frames(NamedTuple):
    """Coordinates of moves of all numbers, and of those of the spectrum alone."""

    whole: Frame
    spectrum: Frame


class Tuning(NamedTuple):
    """Sizes of steps by dual averaging: of moves of all numbers, and of those of the spectrum alone."""

    whole: Any
    spectrum: Any


def begun(sizes: tuple[float, float]) -> Tuning:
    """Tuning that begins with sizes of steps."""
    init, _, _ = dual_averaging_adaptation(_ACCEPTANCE)
    tuning = Tuning(*(init(size)._replace(log_step_size_avg=np.log(size)) for size in sizes))
    # All of one type, as later states are: it compiles once.
    made: Tuning = jax.tree_util.tree_map(lambda value: jnp.asarray(value, jnp.float64), tuning)
    return made


def _moved(key: Any, z: Any, context: Any, log_density: Callable[..., Any], size: Any) -> tuple[Any, Any]:
    """One step of HMC of all chains, (n_chain, n_z), whose trajectories share their random length."""
    key, of_length = jax.random.split(key)
    n_leap = jnp.ceil(_LENGTH * jax.random.uniform(of_length, minval=0.5, maxval=1.5) / size)
    n_leap = jnp.clip(n_leap, 1, _MOST_LEAPS).astype(int)
    kernel, unit = blackjax.hmc.build_kernel(), jnp.ones(z.shape[1])

    def of_one(key: Any, z: Any, context: Any) -> Any:
        density = partial(log_density, context=context)
        return kernel(key, blackjax.hmc.init(z, density), density, size, unit, n_leap)

    state, info = jax.vmap(of_one)(jax.random.split(key, len(z)), z, context)
    return state.position, info


def with_spectrum(log_scale: LogScale, places: Any, xi: Any, hyper: Any) -> tuple[Any, Any]:
    """A state with another spectrum and the same image, and ln of its density less a constant.

    Numbers are divided by what their sd in the image has changed, so that the density at a fixed image is

        ln p = -|xi'|^2 / 2 - sum of ln A(h'),        xi'_k = xi_k A_k(h) / A_k(h').
    """
    moved = xi.at[places].set(hyper)
    scale = log_scale(moved)
    made = moved * jnp.exp(log_scale(xi) - scale)
    return made, -0.5 * jnp.vdot(made, made) - scale.sum()


@partial(jax.jit, static_argnames=("log_scale", "n_kept", "n_thin"))
def steps(
    likelihood: Any, frames: Frames, states: Any, tuning: Tuning, adapts: Any, key: Any, hyper: Any,
    *, log_scale: LogScale | None, n_kept: int, n_thin: int,
) -> Any:  # fmt: skip
    """Move all chains (n_chain, n) by n_kept times n_thin steps; `adapts`: tune the sizes of steps."""
    _, tune, _ = dual_averaging_adaptation(_ACCEPTANCE)

    def size_of(one: Any) -> Any:
        return jnp.exp(jnp.where(adapts, one.log_step_size, one.log_step_size_avg))

    def tuned(one: Any, info: Any) -> Any:
        # The harmonic mean: a single chain that is stuck makes steps smaller.
        rate = 1.0 / jnp.mean(1.0 / jnp.maximum(info.acceptance_rate, _LEAST))
        found = tune(one, rate)
        return jax.tree_util.tree_map(lambda new, old: jnp.where(adapts, new, old), found, one)

    def whole(z: Any, context: Any) -> Any:
        xi = frames.whole.numbers(z)
        return -likelihood(xi) - 0.5 * jnp.vdot(xi, xi)

    def of_spectrum(y: Any, context: Any) -> Any:
        assert log_scale is not None
        return with_spectrum(log_scale, hyper, context, frames.spectrum.numbers(y))[1]

    def move_spectrum(carry: Any, key: Any) -> Any:
        assert log_scale is not None
        scale, (xi, one) = log_scale, carry
        y = jax.vmap(frames.spectrum.coordinates)(xi[:, hyper])
        y, info = _moved(key, y, xi, of_spectrum, size_of(one))
        xi, _ = jax.vmap(lambda xi, y: with_spectrum(scale, hyper, xi, frames.spectrum.numbers(y)))(xi, y)
        return (xi, tuned(one, info)), None

    def step(carry: Any, key: Any) -> Any:
        xi, tuning = carry
        key, other = jax.random.split(key)
        z, info = _moved(key, jax.vmap(frames.whole.coordinates)(xi), xi[:, :1], whole, size_of(tuning.whole))
        xi, spectrum = jax.vmap(frames.whole.numbers)(z), tuning.spectrum
        if log_scale is not None:
            keys = jax.random.split(other, _N_SPECTRUM)
            (xi, spectrum), _ = jax.lax.scan(move_spectrum, (xi, spectrum), keys)
        counts = info.num_integration_steps[0], info.is_divergent, info.acceptance_rate
        return (xi, Tuning(tuned(tuning.whole, info), spectrum)), counts

    def keep(carry: Any, key: Any) -> Any:
        carry, counts = jax.lax.scan(step, carry, jax.random.split(key, n_thin))
        return carry, (carry[0], *counts)

    return jax.lax.scan(keep, (states, tuning), jax.random.split(key, n_kept))


@partial(jax.jit)
def _of_metric(likelihood: Any, places: Any, vectors: Any) -> Any:
    """The Fisher metric averaged over places (n_place, n), times vectors (n_vector, n)."""

    def of_one(at: Any) -> Any:
        return jax.vmap(lambda vector: likelihood.metric(at, vector))(vectors)

    return jax.lax.map(of_one, places).mean(axis=0)


@partial(jax.jit)
def _slope(likelihood: Any, at: Any) -> Any:
    """-ln of the posterior density, and its gradient."""
    return jax.value_and_grad(lambda xi: likelihood(xi) + 0.5 * jnp.vdot(xi, xi))(at)


@partial(jax.jit)
def slopes(likelihood: Any, states: Any) -> Any:
    """Gradients at many states."""
    return jax.vmap(jax.grad(lambda xi: likelihood(xi)))(states)


def frame_at(likelihood: Any, places: Array, centre: Array) -> Frame:
    """Coordinates for the metric averaged over places, float64 (n_place, n)."""
    n, rank = places.shape[1], min(_RANK, places.shape[1])
    if len(places) > _PLACES:
        places = places[np.linspace(0, len(places) - 1, _PLACES).astype(int)]
    at, rng = jnp.asarray(places), np.random.default_rng(1)
    while True:
        block = rng.normal(size=(rank, n))
        for _ in range(2):  # one power iteration
            block = np.linalg.qr(np.asarray(_of_metric(likelihood, at, jnp.asarray(block))).T)[0].T
        small = np.asarray(_of_metric(likelihood, at, jnp.asarray(block))) @ block.T
        values, turn = np.linalg.eigh(0.5 * (small + small.T))
        if values[0] < 1.0 or rank == n:
            break
        rank = min(2 * rank, n)
    return _frame(centre, values, (turn.T @ block).T)


def _frame(centre: Array, values: Array, vectors: Array) -> Frame:
    """Coordinates by eigenvectors (n, n_vector); zeros pad them, so that few shapes are compiled."""
    kept = values > _SMALLEST
    n_pad = -int(np.count_nonzero(kept)) % _ROUND
    shrink = np.pad((1.0 + values[kept]) ** -0.5 - 1.0, (0, n_pad))
    return Frame(*map(jnp.asarray, (centre, np.pad(vectors[:, kept], ((0, 0), (0, n_pad))), shrink)))


@partial(jax.jit, static_argnames="log_scale")
def _of_scales(log_scale: LogScale, hyper: Any, states: Any) -> Any:
    """2 sum of dlnA_k dlnA_k^T over the numbers k, averaged over states: Fisher metric of a spectrum."""

    def of_one(xi: Any) -> Any:
        slopes = jax.jacfwd(lambda h: log_scale(xi.at[hyper].set(h)))(xi[hyper])
        return 2.0 * slopes.T @ slopes

    return jax.lax.map(of_one, states).mean(axis=0)


def spectrum_frame(log_scale: LogScale, hyper: NDArray[Any], states: Array) -> Frame:
    """Coordinates of the numbers of the spectrum for a given image."""
    places = jnp.asarray(states[:: max(1, len(states) // 4)][:4])
    values, vectors = np.linalg.eigh(np.asarray(_of_scales(log_scale, jnp.asarray(hyper), places)))
    return _frame(states[:, hyper].mean(axis=0), values, vectors)


@partial(jax.jit)
def _energies(likelihood: Any, states: Any) -> Any:
    """-ln L at many states."""
    return jax.vmap(likelihood)(states)


def spread(likelihood: Any, frame: Frame, z: Array, most: float) -> Array:
    """States xi about the centre of a frame, at z or nearer by powers of 2 where -ln L is above `most`.

    The metric does not hold far out, where a step that suits other chains would leave one stuck.
    """
    for _ in range(_HALVINGS):
        states = np.asarray(jax.vmap(frame.numbers)(jnp.asarray(z)))
        energies = np.asarray(_energies(likelihood, jnp.asarray(states)))
        is_far = ~(energies < most)
        if not is_far.any():
            break
        z = np.where(is_far[:, None], 0.5 * z, z)
    return states


def highest(likelihood: Any, start: Array, held: NDArray[np.bool_]) -> Array:
    """Where the posterior density is highest with some numbers held: MAP, from a start, by L-BFGS-B."""

    def function(free: Any) -> tuple[float, Any]:
        xi = start.copy()
        xi[~held] = free
        value, slope = _slope(likelihood, jnp.asarray(xi))
        value = float(value)
        return (value, np.asarray(slope)[~held]) if np.isfinite(value) else (1e300, np.zeros(len(free)))

    options = {"maxfun": _AT_MAP, "maxiter": _AT_MAP, "maxcor": 30}
    found: Any = minimize(function, start[~held], jac=True, method="L-BFGS-B", options=options)  # type: ignore[call-overload]
    made = start.copy()
    made[~held] = found.x
    return made
