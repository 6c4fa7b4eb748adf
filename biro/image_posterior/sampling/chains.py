"""Exact samples of a small image by Markov chains that run until they agree.

Chains start about the highest density with the spectrum held, as wide as the Fisher metric says. Rounds of
warm-up tune the coordinates and the steps of `moves`; the samples that count come after them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.diagnostics import effective_sample_size, potential_scale_reduction
from numpy.typing import NDArray

from biro.files.atomic import atomic_path
from biro.image_posterior.sampling.checkpoint import read_checkpoint
from biro.image_posterior.sampling.draws import Draws, Posterior, Settings
from biro.image_posterior.sampling.moves import (
    Frame,
    Frames,
    LogScale,
    begun,
    frame_at,
    highest,
    slopes,
    spectrum_frame,
    spread,
    steps,
)

Array = NDArray[np.float64]
N_CHAIN = 8
CALL, THIN = 50, 5
"""Steps that are compiled as one call, and how many of them make one sample that is kept."""
WARM_UP = (1, 2, 3, 4)
"""Calls of each round of warm-up, after which the metric is averaged anew."""
BLOCK = 2
"""Calls of a block of steps that count."""
_LOOKS = tuple(400 * 2**k for k in range(12))
"""Steps after which the chains are compared."""
_START = 1_000_000
"""Stream of random numbers of the start; blocks have their numbers."""
_FIRST_SIZES = (0.05, 0.1)
"""Steps of both kinds of moves before they are tuned."""
R_HAT, N_EFFECTIVE = 1.05, 100.0
"""Chains have converged where all quantities have a smaller R-hat and more effective samples."""


class ChainPosterior(Posterior, Protocol):
    """What chains sample, and what is watched of it."""

    @property
    def log_scale(self) -> LogScale | None:
        """ln of what multiplies each number in the image, a function of the state; None: no spectrum."""

    @property
    def circles(self) -> NDArray[np.int64]:
        """Places of numbers to which 2 may be added: phases in units of half a turn."""

    def quantities(self, xi: Any) -> dict[str, Any]:
        """What must agree among chains: arrays (n_quantity,) by name, of a state."""


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
        block = run.advance(settings.n_steps)
        if checkpoint is not None:
            run.write(checkpoint)
        tell(str(block))
    return run.draws(settings.n_samples)


def gradients_in(steps: int) -> int:
    """Gradients that warm-up and so many steps of each chain take, about."""
    return CALL * (80 * WARM_UP[0] + 30 * sum(WARM_UP[1:])) + 30 * steps


def seconds_per_gradient(posterior: ChainPosterior) -> float:
    """Time of a gradient of the likelihood of all chains."""
    likelihood, states = posterior.likelihood(), jnp.zeros((N_CHAIN, posterior.n))
    jax.block_until_ready(slopes(likelihood, states))  # compiled
    seconds = []
    for _ in range(5):
        began = time.monotonic()
        jax.block_until_ready(slopes(likelihood, states))
        seconds.append(time.monotonic() - began)
    return min(seconds)


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
        z = jax.random.normal(jax.random.fold_in(self._key, _START), (N_CHAIN, self.posterior.n))
        # Samples of a normal posterior have -ln L above that of its mean by at most N of 2N numbers.
        most = float(self.likelihood(jnp.asarray(best))) + 2.0 * self.posterior.n_data
        self._places = spread(self.likelihood, self._frames.whole, np.asarray(z), most)

    @property
    def steps(self) -> int:
        """Steps of each chain that count."""
        return len(self._kept) * BLOCK * CALL

    @property
    def is_converged(self) -> bool:
        """Whether all chains agreed when they were last looked at."""
        looked = [one for one in self.blocks if one.slowest]
        return bool(looked) and looked[-1].r_hat < R_HAT and looked[-1].effective > N_EFFECTIVE

    def advance(self, n_steps: int) -> Block:
        """A round of warm-up, or a block of steps; chains are compared at n_steps at the latest."""
        began, number = time.monotonic(), len(self.blocks)
        adapts = number < len(WARM_UP)
        calls = [self._call(number, part, adapts) for part in range(WARM_UP[number] if adapts else BLOCK)]
        states, leaps, divergent, acceptance = map(np.concatenate, zip(*calls, strict=True))
        if adapts:
            recent = states[len(states) // 2 :].reshape(-1, self.posterior.n)
            self._frames = self._frames_at(recent, recent.mean(axis=0))
        else:
            self._keep(states)
        counts = float(leaps.mean()), float(acceptance.mean()), int(divergent.sum())
        made = Block(number + 1, self.steps, *counts, time.monotonic() - began)
        if self.steps in _LOOKS or self.steps >= n_steps:
            made.r_hat, made.effective, made.slowest = self._agreement()
        self.blocks.append(made)
        return made

    def _call(self, number: int, part: int, adapts: bool) -> tuple[Array, ...]:
        """States (n_kept, n_chain, n) of some steps, with their counts."""
        key = jax.random.fold_in(jax.random.fold_in(self._key, number), part)
        if part == 0:
            self._tuning = begun(self._sizes)
        (_, self._tuning), found = steps(
            self.likelihood, self._frames, jnp.asarray(self._places), self._tuning, adapts, key,
            jnp.asarray(self._hyper), log_scale=self.posterior.log_scale, n_kept=CALL // THIN, n_thin=THIN,
        )  # fmt: skip
        self._places = np.asarray(found[0][-1])
        if adapts:
            whole, spectrum = (float(np.exp(one.log_step_size_avg)) for one in self._tuning)
            self._sizes = whole, spectrum
        return tuple(map(np.asarray, found))

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
        names, parts = list(self._watched[0]), self._watched
        values = np.concatenate([np.concatenate([one[name] for one in parts]) for name in names], axis=2)
        r_hat, effective = map(np.asarray, _compared(jnp.asarray(values, jnp.float64)))
        ends = np.cumsum([parts[0][name].shape[2] for name in names])
        slowest = names[int(np.searchsorted(ends, np.argmin(effective), side="right"))]
        return float(r_hat.max()), float(effective.min()), slowest

    def draws(self, n_samples: int) -> ChainDraws:
        """Samples at equal distances along all chains."""
        states = np.concatenate(self._kept).reshape(-1, self.posterior.n)
        n = min(n_samples, len(states))
        taken = states[((np.arange(n) + 0.5) * len(states) / n).astype(int)]
        looked = [one for one in self.blocks if one.slowest]
        last = looked[-1] if looked else Block(0, 0, 0.0, 0.0, 0, 0.0)
        return ChainDraws(
            _mean_of(states, self.posterior.circles), taken, converged=self.is_converged, blocks=self.blocks,
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
        """Go on from a file; raises what `read_checkpoint` does."""
        found = read_checkpoint(path, self._digest, "method or seed")
        whole, spectrum = map(float, found["sizes"])
        self._sizes, names = (whole, spectrum), Frames._fields
        self._places = np.asarray(found["places"], np.float64)
        self._frames = Frames(
            *(Frame(*(jnp.asarray(found[f"{one}_{key}"]) for key in Frame._fields)) for one in names)
        )
        for states in found["kept"]:
            self._keep(np.asarray(states, np.float64))
        self.blocks = [Block(**one) for one in json.loads(str(found["blocks"]))]


def _mean_of(states: Array, circles: NDArray[np.int64]) -> Array:
    """The mean of states (n_state, n), of phases (half turns) that on the circle: turns do not count."""
    mean = states.mean(axis=0)
    mean[circles] = np.angle(np.exp(1j * np.pi * states[:, circles]).mean(axis=0)) / np.pi
    return np.asarray(mean)


@partial(jax.jit)
def _compared(values: Any) -> Any:
    """R-hat and effective number of quantities, (n_kept, n_chain, n_quantity)."""
    half = len(values) // 2
    # Halves of a chain that drifts disagree.
    halves = jnp.concatenate([values[:half], values[-half:]], axis=1)
    return potential_scale_reduction(halves, 1, 0), effective_sample_size(values, 1, 0)


@partial(jax.jit, static_argnames="function")
def _mapped(function: Callable[[Any], Any], states: Any) -> Any:
    return jax.lax.map(jax.vmap(function), states)
