"""Variational inference of an image by nifty: MAP, MGVI and geoVI, with checkpoints and a line per iteration.

MGVI (Knollmueller and Ensslin 2019, arXiv:1901.11033) takes samples of the normal distribution whose
precision is the Fisher metric about the mean, and moves the mean where the posterior of all samples is
highest. geoVI (Frank, Leike and Ensslin 2021, Entropy 23, 853) bends the samples along the metric. Samples
come in pairs, mirrored about the mean.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import nifty.re as jft
import numpy as np
from jax.tree_util import Partial
from nifty.re.optimize import _static_newton_cg
from numpy.typing import NDArray

from biro.files.atomic import atomic_path
from biro.image_posterior.sampling.checkpoint import read_checkpoint
from biro.image_posterior.sampling.draws import Draws, Iteration, Posterior, Settings
from biro.image_posterior.sampling.elbo import elbo_of
from biro.image_posterior.sampling.gradients import conjugate_gradients

Array = NDArray[np.float64]
_STRAIGHT = 1
"""Iterations whose samples are not bent: MAP. Straight ones would let the amplitude of a field collapse."""
_MOVED, _MAP_MOVED = 0.4, 0.3
"""Moves of the mean below which it has converged, in units of the spread of samples, and of the noise."""
_NEWTON, _CG = 10, 150
"""Steps of Newton's method in an iteration, and of conjugate gradients in each of them."""
_MAP_STEPS = 20
"""Times more steps for MAP, on which all further iterations rest."""
_SAMPLING, _BENDING = 200, 20
"""Steps of conjugate gradients for a sample, and of Newton's method that bend it."""
_ENERGY = 0.02
"""Change of the energy by which a step of Newton's method is the last."""
_WHILE_MOVING, _LAST_MOVE, _RESULT = 0, 1, 2
"""Streams of random numbers. One stream while the mean moves lets it come to rest."""
_CREPT, _TRAIL = 0.3, 3
"""Largest rms move of a group of `watched` numbers over so many iterations, in units of their spread."""


def sample(
    posterior: Posterior,
    start: Array,
    settings: Settings,
    *,
    checkpoint: Path | None = None,
    identity: str = "",
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
    identity : str
        Of data and model: a checkpoint of another one is refused.
    tell : function of str
        Is called with a line of each iteration.
    between : function of float64 (n,), optional
        Is called with the mean before each iteration but the first: a major cycle.
    """
    state = _State(posterior, start, settings, identity)
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
    if between is not None:
        between(draws.mean)
        state.renew()
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


def _held_at(held: Any, at: Any, xi: Any) -> Any:
    """Numbers with some of them held."""
    return jnp.where(held, at, xi)


def _of_ended(samples: Any, has_ended: NDArray[np.bool_]) -> tuple[Any, int]:
    """Pairs of samples that both have ended, and how many samples are left out; all where no pair has."""
    pairs = has_ended.reshape(-1, 2).all(axis=1)
    n_out = 2 * int(np.count_nonzero(~pairs))
    if not n_out or not pairs.any():
        return samples, n_out
    away = samples.samples - samples.pos
    kept = jft.Samples(pos=samples.pos, samples=away[np.repeat(pairs, 2)], keys=samples.keys[pairs])
    return kept, n_out


class _State:
    """The mean and its samples between two iterations."""

    def __init__(self, posterior: Posterior, start: Array, settings: Settings, identity: str = "") -> None:
        self.posterior, self.settings = posterior, settings
        self.draws = Draws(np.asarray(start, np.float64), np.zeros((0, len(start))))
        self.number = 0
        self._key = jax.random.PRNGKey(settings.seed)
        self._close = 0
        watched = [np.zeros(0, np.int64), *posterior.watched]
        self._ends = np.cumsum([len(one) for one in watched])
        self._watched = np.concatenate(watched)
        self._trail: list[Array] = []
        run = (settings.method, settings.n_pairs, settings.seed, posterior.n, identity)
        self._digest = hashlib.sha256(repr(run).encode()).hexdigest()
        self.renew()

    def renew(self) -> None:
        """Take the likelihood of the posterior anew, which a major cycle has changed."""
        self.likelihood = self.posterior.likelihood()
        self._vi = jft.OptimizeVI(self.likelihood, self.settings.n_iterations, nonlinear_minimizer_jit=True)

    @property
    def _bends(self) -> bool:
        return self.settings.method == "geovi" and self.number >= _STRAIGHT

    def iterate(self) -> Iteration:
        """Draw samples about the mean, and move the mean. The first iteration is MAP, without spectrum."""
        began, settings = time.monotonic(), self.settings
        is_map = settings.method == "map" or self.number == 0
        samples = self._without_spread() if is_map else self._sampled(_WHILE_MOVING, settings.n_pairs)[0]
        found = self._climbed(samples, is_map)
        mean = np.asarray(found.x)
        if is_map:
            mean = np.where(self.posterior.is_hyper, self.draws.mean, mean)
        about = np.asarray(samples.at(jnp.asarray(mean)).samples)
        chi2, moved = self._compare(mean, about, is_map)
        crept = self._creep(mean, about)
        self.number += 1
        energy, reduced = float(found.fun), chi2 / (2 * self.posterior.n_data)
        made = Iteration(self.number, energy, reduced, moved, crept, time.monotonic() - began)
        self.draws.mean = mean
        self.draws.iterations.append(made)
        self._judge(moved if int(found.status) == 0 else np.inf, crept)
        return made

    def _climbed(self, samples: Any, is_map: bool) -> Any:
        """The mean where the posterior of all samples is highest.

        Conjugate gradients end by energy, as residuals are small where weak data still pull.
        """
        gradients = {"maxiter": _CG, "absdelta": _ENERGY / 200.0, "resnorm": 0.0}
        steps = _NEWTON * (_MAP_STEPS if is_map else 1)
        likelihood = self._held() if is_map else self.likelihood
        solver = conjugate_gradients(likelihood, samples)
        limits = {"maxiter": steps, "absdelta": _ENERGY, "cg": solver, "cg_kwargs": gradients}
        vi = jft.OptimizeVI(likelihood, self.settings.n_iterations)
        return vi.kl_minimize(samples, minimize_kwargs=limits)

    def _held(self) -> Any:
        """The likelihood whose hyperparameters stay where they are."""
        hold = Partial(_held_at, jnp.asarray(self.posterior.is_hyper), jnp.asarray(self.draws.mean))
        domain = jax.ShapeDtypeStruct((self.posterior.n,), jnp.float64)
        return self.likelihood.amend(hold, domain=domain)

    def _without_spread(self) -> Any:
        """A pair of samples that both are the mean: MAP."""
        keys = jax.random.split(self._key, 1)
        return jft.Samples(
            pos=jnp.asarray(self.draws.mean), samples=jnp.zeros((2, self.posterior.n)), keys=keys
        )

    def _sampled(self, stream: int, n_pairs: int) -> tuple[Any, int]:
        """Pairs of samples about the mean, and how many of the samples did not end.

        Pairs whose bending did not end lie far out, and are left out.
        """
        keys = jax.random.split(jax.random.fold_in(self._key, stream), n_pairs)
        samples, ended = self._vi.draw_linear_samples(
            jnp.asarray(self.draws.mean),
            keys,
            point_estimates=(),
            cg=jft.static_cg,
            cg_kwargs={"absdelta": 1e-3, "maxiter": _SAMPLING},
        )
        unfinished = np.repeat(np.asarray(ended) != 0, 2)
        if self._bends:
            samples, states = self._vi.nonlinearly_update_samples(
                samples,
                point_estimates=(),
                minimize=_static_newton_cg,
                minimize_kwargs={
                    # nifty multiplies it by the number of unknowns: steps of 0.03 sd of each.
                    "xtol": 0.03 / np.sqrt(self.posterior.n),
                    "maxiter": _BENDING,
                    "cg_kwargs": {"maxiter": _CG},
                },
            )
            return _of_ended(samples, np.asarray(states.status) == 0)
        return samples, int(unfinished.sum())

    def _compare(self, mean: Array, about: Array, is_map: bool) -> tuple[float, float]:
        """Mean chi2 of the samples, and how far the mean has moved in the space of the data.

        The move is in units of the rms of the samples about the mean there; for MAP in units of the noise.
        """
        points = np.concatenate([self.draws.mean[None], mean[None], about])
        chi2, vis = _of_all(self.likelihood, self.posterior.visibilities, points)
        vis = np.asarray(vis).reshape(len(points), -1)
        spread = 1.0 if is_map else np.sqrt(np.mean(np.sum((vis[2:] - vis[1]) ** 2, axis=1)))
        return float(np.mean(chi2[2:])), float(np.linalg.norm(vis[1] - vis[0]) / max(spread, 1e-12))

    def _creep(self, mean: Array, about: Array) -> float:
        """How far watched numbers have moved over three iterations: what leaves visibilities as they are."""
        self._trail = [*self._trail[-_TRAIL:], mean[self._watched]]
        if not len(self._watched):
            return 0.0
        if len(self._trail) <= _TRAIL or self.settings.method == "map":
            return np.inf
        spread = np.sqrt(np.mean((about[:, self._watched] - self._trail[-1]) ** 2, axis=0))
        moves = ((self._trail[-1] - self._trail[0]) / np.maximum(spread, 1e-12)) ** 2
        groups = np.split(moves, self._ends[1:-1])
        return float(np.sqrt(max(group.mean() for group in groups if len(group))))

    def _judge(self, moved: float, crept: float) -> None:
        """Converged: twice in a row the mean moves by little of what the samples spread."""
        if self.settings.method == "map":
            self.draws.converged = moved < _MAP_MOVED
            return
        bends = self.settings.method != "geovi" or self.number > _STRAIGHT
        self._close = self._close + 1 if moved < _MOVED and crept < _CREPT and bends else 0
        self.draws.converged = self._close >= 2

    def finish(self) -> None:
        """Move the mean once with all pairs where these are more, and draw the samples of the result."""
        settings = self.settings
        if settings.method == "map":
            return
        n_pairs = settings.n_samples // 2
        if n_pairs > settings.n_pairs:
            about, _ = self._sampled(_LAST_MOVE, n_pairs)
            self.draws.mean = np.asarray(self._climbed(about, is_map=False).x)
        samples, self.draws.n_unfinished = self._sampled(_RESULT, n_pairs)
        self.draws.samples = np.asarray(samples.samples)
        if settings.elbo:
            self.draws.elbo = elbo_of(self.likelihood, self.draws.mean, self.draws.samples, bends=self._bends)

    def write(self, path: Path) -> None:
        """Keep the state in a file."""
        rows = [
            [one.number, one.energy, one.reduced_chi2, one.moved, one.crept, one.seconds]
            for one in self.draws.iterations
        ]
        with atomic_path(path) as place, place.open("wb") as file:
            np.savez(
                file,
                mean=self.draws.mean,
                iterations=np.array(rows),
                trail=np.array(self._trail),
                digest=self._digest,
                converged=self.draws.converged,
                close=self._close,
            )

    def read(self, path: Path) -> None:
        """Go on from a file; raises what `read_checkpoint` does."""
        kept = read_checkpoint(path, self._digest, "method, n_pairs or seed")
        self.draws.mean = np.asarray(kept["mean"], np.float64)
        rows, self._trail = kept["iterations"], [*np.asarray(kept["trail"], np.float64)]
        self.draws.converged, self._close = bool(kept["converged"]), int(kept["close"])
        self.draws.iterations = [Iteration(int(row[0]), *map(float, row[1:])) for row in rows]
        self.number = len(rows)
