"""Exact samples of a small image by Markov chains: HMC in numbers that the Fisher metric makes alike.

Hamiltonian Monte Carlo (Neal 2011, arXiv:1206.1901) by blackjax. Chains run beside one another in numbers z,

    xi = centre + z + U (1 / sqrt(1 + s) - 1) U^T z,

where U and s are the largest eigenvectors and eigenvalues of the Fisher metric of the likelihood, averaged
over places of the chains, so that the posterior of z is about as wide in all directions. Warm-up finds the
average anew each round, and the step by dual averaging; the samples that count come after it.

Where data determine a field well, it nearly gives its spectrum. Moves of all numbers therefore alternate with
moves of the spectrum at a fixed image, which need no likelihood (Yu and Meng 2011, JCGS 20, 531).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.diagnostics import effective_sample_size, potential_scale_reduction
from numpy.typing import NDArray
from scipy.optimize import minimize

from biro.errors import InputError
from biro.files.atomic import atomic_path
from biro.files.npz import read_npz
from biro.image_posterior.sampling.variational import Draws, Posterior, Settings

Array = NDArray[np.float64]
LogScale: TypeAlias = Callable[[Any], Any]
N_CHAIN = 8
WARM_UP = (50, 100, 150, 200)
"""Steps of each round of warm-up, after which the metric is averaged anew."""
BLOCK, THIN = 100, 4
"""Steps of a block, and how many of them make one sample that is kept."""
_LOOKS = tuple(400 * 2**k for k in range(12))
"""Steps after which the chains are compared."""
_START = 1_000_000
"""Stream of random numbers of the start; blocks have their numbers."""
_FIRST_SIZES = (float(np.log(0.05)), float(np.log(0.1)))
_ACCEPTANCE = 0.8
_LENGTH, _MOST_LEAPS = 2.0, 60
"""Mean length of a trajectory (of a normal distribution a quarter turn is pi/2), and its steps at most."""
_N_SPECTRUM = 3
"""Moves of the spectrum alone after each move of all numbers: they need no likelihood."""
R_HAT, N_EFFECTIVE = 1.05, 100.0
"""Chains have converged where all quantities have a smaller R-hat and more effective samples."""
_RANK, _SMALLEST = 192, 0.1
"""Eigenvectors of the metric that are looked for at first, and eigenvalues below which none matters."""
_PLACES = 16
"""Places over which the metric is averaged, at most."""
_AT_MAP = 2000
"""Evaluations of the search for the start, at most."""


class ChainPosterior(Posterior, Protocol):
    """What chains sample, and what is watched of it."""

    @property
    def log_scale(self) -> LogScale | None:
        """ln of what multiplies each number in the image, a function of the state; None: no spectrum."""

    def quantities(self, xi: Any) -> dict[str, Any]:
        """What must agree among chains: arrays (n_quantity,) by name, of a state."""


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


def _moved(
    key: Any, z: Any, context: Any, log_density: Callable[[Any, Any], Any], size: Any
) -> tuple[Any, Any]:
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


@partial(jax.jit, static_argnames=("log_scale", "n_kept", "n_thin", "adapts"))
def _steps(
    likelihood: Any, frames: Frames, states: Any, tuning: Tuning, key: Any, hyper: Any,
    *, log_scale: LogScale | None, n_kept: int, n_thin: int, adapts: bool,
) -> Any:  # fmt: skip
    """Move all chains (n_chain, n) by n_kept times n_thin steps."""
    _, tune, _ = dual_averaging_adaptation(_ACCEPTANCE)

    def size_of(one: Any) -> Any:
        return jnp.exp(one.log_step_size if adapts else one.log_step_size_avg)

    def tuned(one: Any, info: Any) -> Any:
        return tune(one, jnp.mean(info.acceptance_rate)) if adapts else one

    def whole(z: Any, context: Any) -> Any:
        xi = frames.whole.numbers(z)
        return -likelihood(xi) - 0.5 * jnp.vdot(xi, xi)

    def of_spectrum(y: Any, context: Any) -> Any:
        return with_spectrum(log_scale, hyper, context, frames.spectrum.numbers(y))[1]

    def move_spectrum(carry: Any, key: Any) -> Any:
        xi, one = carry
        y = jax.vmap(frames.spectrum.coordinates)(xi[:, hyper])
        y, info = _moved(key, y, xi, of_spectrum, size_of(one))
        xi, _ = jax.vmap(lambda xi, y: with_spectrum(log_scale, hyper, xi, frames.spectrum.numbers(y)))(xi, y)
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


@jax.jit
def _of_metric(likelihood: Any, places: Any, vectors: Any) -> Any:
    """The Fisher metric averaged over places (n_place, n), times vectors (n_vector, n)."""

    def of_one(at: Any) -> Any:
        return jax.vmap(lambda vector: likelihood.metric(at, vector))(vectors)

    return jax.lax.map(of_one, places).mean(axis=0)


@jax.jit
def _slope(likelihood: Any, at: Any) -> Any:
    """-ln of the posterior density, and its gradient."""
    return jax.value_and_grad(lambda xi: likelihood(xi) + 0.5 * jnp.vdot(xi, xi))(at)


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
    kept = values > _SMALLEST
    shrink = (1.0 + values[kept]) ** -0.5 - 1.0
    return Frame(*map(jnp.asarray, (centre, vectors[:, kept], shrink)))


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


def highest(likelihood: Any, start: Array, held: NDArray[np.bool_]) -> Array:
    """Where the posterior density is highest with some numbers held: MAP, from a start, by L-BFGS-B."""

    def function(free: Array) -> tuple[float, Array]:
        xi = start.copy()
        xi[~held] = free
        value, slope = _slope(likelihood, jnp.asarray(xi))
        value = float(value)
        return (value, np.asarray(slope)[~held]) if np.isfinite(value) else (1e300, np.zeros(len(free)))

    options = {"maxfun": _AT_MAP, "maxiter": _AT_MAP, "maxcor": 30}
    found = minimize(function, start[~held], jac=True, method="L-BFGS-B", options=options)
    made = start.copy()
    made[~held] = found.x
    return made


@dataclass
class Block:
    """A round of warm-up or a block of steps.

    Attributes
    ----------
    number : int
    steps : int
        Steps of each chain that count for the result so far; 0 in warm-up.
    gradients : float
        Of the likelihood, of each step.
    acceptance : float
        Mean probability of acceptance.
    n_divergent : int
        Trajectories of all chains that broke off: their energy was not kept.
    seconds : float
    r_hat, effective : float
        The largest and the smallest of all quantities; infinite and 0 where the chains were not looked at.
    slowest : str
        The group of the quantity with the smallest effective number.
    """

    number: int
    steps: int
    gradients: float
    acceptance: float
    n_divergent: int
    seconds: float
    r_hat: float = np.inf
    effective: float = 0.0
    slowest: str = ""

    def __str__(self) -> str:
        text = f"{self.steps} steps of {N_CHAIN} chains" if self.steps else f"warm-up {self.number}"
        text += f": {self.gradients:.0f} gradients a step, acceptance {self.acceptance:.2f}"
        if self.slowest:
            text += f", largest R-hat {self.r_hat:.3f}, at least {self.effective:.0f} effective samples"
            text += f" ({self.slowest})"
        return f"{text}, {self.seconds:.1f} s"


@dataclass
class ChainDraws(Draws):
    """Samples of chains.

    Attributes
    ----------
    blocks : list of Block
    r_hat, effective : float
        The largest R-hat, and the smallest number of effective samples, of all quantities.
    """

    blocks: list[Block] = field(default_factory=list)
    r_hat: float = np.inf
    effective: float = 0.0


def sample_chains(
    posterior: ChainPosterior,
    start: Array,
    settings: Settings,
    *,
    checkpoint: Path | None = None,
    identity: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> ChainDraws:
    """Exact samples of a posterior, by chains that run until they agree.

    Parameters
    ----------
    posterior : ChainPosterior
    start : float64 (n,)
        Such as the state of a fast map.
    settings : Settings
        n_samples, n_steps and seed.
    checkpoint : Path, optional
        A file that each block replaces; where it exists, the run goes on from it, with the same bits.
    identity : str
        Of data and model: a checkpoint of another one is refused.
    tell : function of str
        Is called with a line of each block.
    """
    run = ChainRun(posterior, settings.seed, identity)
    if checkpoint is not None and checkpoint.exists():
        run.read(checkpoint)
        tell(f"going on after {run.steps} steps of {checkpoint}")
    else:
        run.begin(np.asarray(start, np.float64))
    while not run.is_converged and run.steps < settings.n_steps:
        tell(str(run.advance()))
        if checkpoint is not None:
            run.write(checkpoint)
    return run.draws(settings.n_samples)


class ChainRun:
    """Chains of a posterior between two blocks.

    Parameters
    ----------
    posterior : ChainPosterior
    seed : int
    identity : str
    """

    def __init__(self, posterior: ChainPosterior, seed: int, identity: str = "") -> None:
        self.posterior, self.likelihood = posterior, posterior.likelihood()
        self._key = jax.random.PRNGKey(seed)
        self._digest = hashlib.sha256(repr((seed, posterior.n, N_CHAIN, identity)).encode()).hexdigest()
        self._hyper = np.flatnonzero(posterior.is_hyper)
        self._kept: list[Array] = []
        self._watched: list[dict[str, Array]] = []
        self.blocks: list[Block] = []
        self._sizes = _FIRST_SIZES

    def begin(self, start: Array) -> None:
        """Spread chains about the highest density with the spectrum of the start, by the metric there."""
        best = highest(self.likelihood, start, self.posterior.is_hyper)
        self._frames = self._frames_at(best[None], best)
        key = jax.random.fold_in(self._key, _START)
        z = jax.random.normal(key, (N_CHAIN, self.posterior.n))
        self._places = np.asarray(jax.vmap(self._frames.whole.numbers)(z))

    @property
    def steps(self) -> int:
        """Steps of each chain that count."""
        return len(self._kept) * BLOCK

    @property
    def is_converged(self) -> bool:
        """Whether all chains agreed when they were last looked at."""
        looked = [one for one in self.blocks if one.slowest]
        return bool(looked) and looked[-1].r_hat < R_HAT and looked[-1].effective > N_EFFECTIVE

    def advance(self) -> Block:
        """A round of warm-up, or a block of steps."""
        began, number = time.monotonic(), len(self.blocks)
        adapts = number < len(WARM_UP)
        init, _, _ = dual_averaging_adaptation(_ACCEPTANCE)
        given = [init(np.exp(size))._replace(log_step_size_avg=jnp.asarray(size)) for size in self._sizes]
        (_, tuning), found = _steps(
            self.likelihood, self._frames, jnp.asarray(self._places), Tuning(*given),
            jax.random.fold_in(self._key, number), jnp.asarray(self._hyper),
            log_scale=self.posterior.log_scale, n_kept=(WARM_UP[number] if adapts else BLOCK) // THIN,
            n_thin=THIN, adapts=adapts,
        )  # fmt: skip
        states, leaps, divergent, acceptance = map(np.asarray, found)
        self._places = states[-1]
        if adapts:
            self._sizes = (float(tuning.whole.log_step_size_avg), float(tuning.spectrum.log_step_size_avg))
            recent = states[len(states) // 2 :].reshape(-1, self.posterior.n)
            self._frames = self._frames_at(recent, recent.mean(axis=0))
        else:
            self._keep(states)
        counts = float(leaps.mean()), float(acceptance.mean()), int(divergent.sum())
        made = Block(number + 1, self.steps, *counts, time.monotonic() - began)
        if self.steps in _LOOKS:
            made.r_hat, made.effective, made.slowest = self._agreement()
        self.blocks.append(made)
        return made

    def _frames_at(self, states: Array, centre: Array) -> Frames:
        whole = frame_at(self.likelihood, states, centre)
        if self.posterior.log_scale is None:
            return Frames(whole, whole)
        return Frames(whole, spectrum_frame(self.posterior.log_scale, self._hyper, states))

    def _keep(self, states: Array) -> None:
        """Keep states (n_kept, n_chain, n), and what is watched of them."""
        self._kept.append(states)
        found = _mapped(self.posterior.quantities, jnp.asarray(states))
        self._watched.append({name: np.asarray(values, np.float32) for name, values in found.items()})

    def _agreement(self) -> tuple[float, float, str]:
        """Largest R-hat and smallest effective number of all quantities, and the group of the latter."""
        r_hats, least = [], {}
        for name in self._watched[0]:
            values = np.concatenate([one[name] for one in self._watched]).astype(np.float64)
            half = len(values) // 2
            halves = np.concatenate([values[:half], values[half:]], axis=1)  # a chain that drifts disagrees
            r_hats.append(float(np.max(potential_scale_reduction(halves, 1, 0))))
            least[name] = float(np.min(effective_sample_size(values, 1, 0)))
        slowest = min(least, key=lambda name: least[name])
        return max(r_hats), least[slowest], slowest

    def draws(self, n_samples: int) -> ChainDraws:
        """Samples at equal distances along all chains."""
        states = np.concatenate(self._kept).reshape(-1, self.posterior.n)
        n = min(n_samples, len(states))
        taken = states[((np.arange(n) + 0.5) * len(states) / n).astype(int)]
        looked = [one for one in self.blocks if one.slowest]
        last = looked[-1] if looked else Block(0, 0, 0.0, 0.0, 0, 0.0)
        return ChainDraws(
            states.mean(axis=0), taken, converged=self.is_converged, blocks=self.blocks,
            r_hat=last.r_hat, effective=last.effective,
        )  # fmt: skip

    def write(self, path: Path) -> None:
        """Keep the state in a file."""
        frames = {f"{one}_{key}": value for one, frame in self._frames._asdict().items()
                  for key, value in frame._asdict().items()}  # fmt: skip
        blocks = json.dumps([vars(one) for one in self.blocks])
        kept = np.array(self._kept)
        with atomic_path(path) as place, place.open("wb") as file:
            np.savez(
                file, digest=self._digest, places=self._places, sizes=self._sizes, kept=kept, blocks=blocks,
                **frames,
            )  # fmt: skip

    def read(self, path: Path) -> None:
        """Go on from a file.

        Raises
        ------
        InputError
            It is of other data, another model or other options.
        DataError
            It is broken.
        """
        found = read_npz(path, "a fit of an image that goes on")
        if "digest" not in found or str(found["digest"]) != self._digest:
            raise InputError(
                f"{path}: is of other data, another model, method or seed; remove it or choose another folder"
            )
        self._places, self._sizes = found["places"], tuple(map(float, found["sizes"]))
        names = Frames._fields
        self._frames = Frames(
            *(Frame(*(jnp.asarray(found[f"{one}_{key}"]) for key in Frame._fields)) for one in names)
        )
        for states in found["kept"]:
            self._keep(np.asarray(states, np.float64))
        self.blocks = [Block(**one) for one in json.loads(str(found["blocks"]))]


@partial(jax.jit, static_argnames="function")
def _mapped(function: Callable[[Any], Any], states: Any) -> Any:
    return jax.lax.map(jax.vmap(function), states)
