"""Variational inference of an image by nifty: MAP, MGVI and geoVI, with checkpoints and a line per iteration.

MGVI (Knollmueller and Ensslin 2019, arXiv:1901.11033) takes samples of the normal distribution whose
precision is the Fisher metric about the mean, and moves the mean where the posterior of all samples is
highest. geoVI (Frank, Leike and Ensslin 2021, Entropy 23, 853) bends the samples along the metric. Samples
come in pairs, mirrored about the mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import nifty.re as jft
import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.files.atomic import atomic_path

Array = NDArray[np.float64]
Method = Literal["map", "mgvi", "geovi"]
_STRAIGHT = 3
"""Iterations whose samples are not bent: MAP, and two of MGVI."""
_MOVED, _MAP_MOVED = 0.4, 0.3
"""Moves of the mean below which it has converged, in units of the spread of samples, and of the noise."""


class Posterior(Protocol):
    """What is sampled: a likelihood of standard normal numbers."""

    n: int
    n_data: int

    def likelihood(self) -> Any:
        """Of nifty, a function of one array (n,); the squares of its normalised residuals add up to chi2."""

    def visibilities(self, xi: Any) -> Any:
        """The model of the data in units of the noise, any shape: what tells whether the mean has moved."""


@dataclass(frozen=True)
class Settings:
    """How the posterior is approximated.

    Attributes
    ----------
    method : "geovi", "mgvi" or "map"
    n_samples : int
        Samples of the result, even: pairs.
    n_iterations : int
        At most so many moves of the mean; it ends when the mean moves by less than its Monte Carlo error.
    seed : int
    n_pairs : int
        Pairs of samples while the mean moves.
    newton, cg : int
        Steps of Newton's method in an iteration, and of conjugate gradients in each.
    sampling : int
        Steps of conjugate gradients for a sample.
    bending : int
        Steps of Newton's method that bend a sample.
    energy : float
        Energy below which a step of Newton's method is the last.
    """

    method: Method = "geovi"
    n_samples: int = 16
    n_iterations: int = 12
    seed: int = 1
    n_pairs: int = 3
    newton: int = 10
    cg: int = 150
    sampling: int = 200
    bending: int = 5
    energy: float = 0.02

    def __post_init__(self) -> None:
        if self.n_samples < 2 or self.n_samples % 2:
            raise InputError(f"n_samples: an even number from 2 on, found {self.n_samples}")
        if self.n_iterations < 1:
            raise InputError(f"n_iterations: from 1 on, found {self.n_iterations}")


@dataclass
class Iteration:
    """One move of the mean.

    Attributes
    ----------
    number : int
    energy : float
        -ln of likelihood times prior at the mean, averaged over the samples, less a constant.
    reduced_chi2 : float
        chi2/2N, averaged over the samples.
    moved : float
        Rms move of the mean in units of the samples' sd.
    seconds : float
    """

    number: int
    energy: float
    reduced_chi2: float
    moved: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"iteration {self.number}: chi2/2N {self.reduced_chi2:.4g}, energy {self.energy:.6g}, "
            f"mean moved by {self.moved:.2g} sd, {self.seconds:.1f} s"
        )


@dataclass
class Draws:
    """What came out.

    Attributes
    ----------
    mean : float64 (n,)
    samples : float64 (n_samples, n)
        Empty for MAP.
    iterations : list of Iteration
    converged : bool
    """

    mean: Array
    samples: Array
    iterations: list[Iteration] = field(default_factory=list)
    converged: bool = False


def sample(
    posterior: Posterior,
    start: Array,
    settings: Settings,
    *,
    checkpoint: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
    between: Callable[[Array], None] | None = None,
) -> Draws:
    """Approximate a posterior by samples.

    Parameters
    ----------
    posterior : Posterior
    start : float64 (n,)
        Such as the state of a fast map.
    settings : Settings
    checkpoint : Path, optional
        A file that each iteration replaces; where it exists, the run goes on from it.
    tell : function of str
        Is called with a line of each iteration.
    between : function of float64 (n,), optional
        Is called with the mean before each iteration but the first: a major cycle.
    """
    state = _State(posterior, start, settings)
    if checkpoint is not None and checkpoint.exists():
        state.read(checkpoint)
        tell(f"going on after iteration {state.number} of {checkpoint}")
    draws = state.draws
    while state.number < settings.n_iterations and not draws.converged:
        if between is not None and state.number:
            between(draws.mean)
            state.renew()
        tell(str(state.iterate()))
        if checkpoint is not None:
            state.write(checkpoint)
    state.finish()
    return draws


@partial(jax.jit, static_argnames="visibilities")
def _of_all(likelihood: Any, visibilities: Callable[[Any], Any], points: Any) -> tuple[Any, Any]:
    """chi2 and model of the data of each point."""

    def of_one(xi: Any) -> tuple[Any, Any]:
        residual = jax.tree_util.tree_leaves(likelihood.normalized_residual(xi))
        return sum(jnp.sum(part**2) for part in residual), visibilities(xi)

    found: tuple[Any, Any] = jax.vmap(of_one)(points)
    return found


class _State:
    """The mean and its samples between two iterations."""

    def __init__(self, posterior: Posterior, start: Array, settings: Settings) -> None:
        self.posterior, self.settings = posterior, settings
        self.draws = Draws(np.asarray(start, np.float64), np.zeros((0, len(start))))
        self.number = 0
        self._key = jax.random.PRNGKey(settings.seed)
        self._close = 0
        self.renew()

    def renew(self) -> None:
        """Take the likelihood of the posterior anew, which a major cycle has changed."""
        self.likelihood = self.posterior.likelihood()
        self._vi = jft.OptimizeVI(self.likelihood, self.settings.n_iterations, linear_minimizer_jit=False)

    @property
    def _bends(self) -> bool:
        return self.settings.method == "geovi" and self.number >= _STRAIGHT

    def iterate(self) -> Iteration:
        """Draw samples about the mean, and move the mean. The first iteration is MAP, the next two MGVI."""
        began, settings = time.monotonic(), self.settings
        key = jax.random.fold_in(self._key, self.number)
        is_map = settings.method == "map" or self.number == 0
        samples = self._without_spread() if is_map else self._sampled(key, settings.n_pairs)
        steps = settings.newton * (2 if is_map else 1)
        limits = {"maxiter": steps, "absdelta": settings.energy, "cg_kwargs": self._gradients}
        found = self._vi.kl_minimize(samples, minimize_kwargs=limits)
        mean, about = np.asarray(found.x), samples.at(found.x).samples
        chi2, moved = self._compare(mean, np.asarray(about), is_map)
        reduced = chi2 / (2 * self.posterior.n_data)
        self.number += 1
        made = Iteration(self.number, float(found.fun), reduced, moved, time.monotonic() - began)
        self.draws.mean = mean
        self.draws.iterations.append(made)
        self._judge(moved)
        return made

    @property
    def _gradients(self) -> dict[str, float]:
        """How far conjugate gradients go: by energy, as residuals are small where weak data still pull."""
        return {"maxiter": self.settings.cg, "absdelta": self.settings.energy / 200.0, "resnorm": 0.0}

    def _without_spread(self) -> Any:
        """Samples that all are the mean: MAP, in the compiled functions of the iterations that follow."""
        zeros = jnp.zeros((2 * self.settings.n_pairs, self.posterior.n))
        keys = jax.random.split(self._key, self.settings.n_pairs)
        return jft.Samples(pos=jnp.asarray(self.draws.mean), samples=zeros, keys=keys)

    def _sampled(self, key: Any, n_pairs: int) -> Any:
        """Pairs of samples about the mean."""
        settings, keys = self.settings, jax.random.split(key, n_pairs)
        samples, _ = self._vi.draw_linear_samples(
            jnp.asarray(self.draws.mean),
            keys,
            point_estimates=(),
            cg_kwargs={"absdelta": 1e-3, "maxiter": settings.sampling},
        )
        if self._bends:
            samples, _ = self._vi.nonlinearly_update_samples(
                samples,
                point_estimates=(),
                minimize_kwargs={
                    "xtol": 1e-3,
                    "maxiter": settings.bending,
                    "cg_kwargs": {"maxiter": settings.cg},
                },
            )
        return samples

    def _compare(self, mean: Array, about: Array, is_map: bool) -> tuple[float, float]:
        """Mean chi2 of the samples, and how far the mean has moved in the space of the data.

        The move is in units of the rms of the samples about the mean there; for MAP in units of the noise.
        """
        points = np.concatenate([self.draws.mean[None], mean[None], about])
        chi2, vis = _of_all(self.likelihood, self.posterior.visibilities, points)
        vis = np.asarray(vis).reshape(len(points), -1)
        spread = 1.0 if is_map else np.sqrt(np.mean(np.sum((vis[2:] - vis[1]) ** 2, axis=1)))
        return float(np.mean(chi2[2:])), float(np.linalg.norm(vis[1] - vis[0]) / max(spread, 1e-12))

    def _judge(self, moved: float) -> None:
        """Converged: twice in a row the mean moves by little of what the samples spread."""
        if self.settings.method == "map":
            self.draws.converged = moved < _MAP_MOVED
            return
        bends = self.settings.method != "geovi" or self.number > _STRAIGHT
        self._close = self._close + 1 if moved < _MOVED and bends else 0
        self.draws.converged = self._close >= 2

    def finish(self) -> None:
        """Draw the samples of the result about the last mean."""
        if self.settings.method == "map":
            return
        key = jax.random.fold_in(self._key, 1 << 20)
        samples = self._sampled(key, self.settings.n_samples // 2)
        self.draws.samples = np.asarray(samples.samples)

    def write(self, path: Path) -> None:
        """Keep the state in a file."""
        rows = [
            [one.number, one.energy, one.reduced_chi2, one.moved, one.seconds]
            for one in self.draws.iterations
        ]
        with atomic_path(path) as place, place.open("wb") as file:
            np.savez(
                file,
                mean=self.draws.mean,
                iterations=np.array(rows),
                seed=self.settings.seed,
                converged=self.draws.converged,
                close=self._close,
            )

    def read(self, path: Path) -> None:
        """Go on from a file.

        Raises
        ------
        InputError
            It is of another problem or seed.
        """
        with np.load(path, allow_pickle=False) as kept:
            if kept["mean"].shape != self.draws.mean.shape or int(kept["seed"]) != self.settings.seed:
                raise InputError(f"{path}: is of another image or seed; remove it or choose another folder")
            self.draws.mean = kept["mean"]
            rows = kept["iterations"]
            self.draws.converged, self._close = bool(kept["converged"]), int(kept["close"])
        self.draws.iterations = [Iteration(int(row[0]), *map(float, row[1:])) for row in rows]
        self.number = len(rows)
