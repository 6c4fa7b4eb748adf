"""One replicate of SBC: a truth drawn from the prior, data simulated from it, a fit, and ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError, LikelihoodError
from biro.inference.posterior.posterior import Posterior
from biro.inference.samplers.sampling import sample
from biro.inference.target.checked import Target
from biro.likelihood.likelihood import Likelihood
from biro.models import SkyModel
from biro.observation.observation import Observation
from biro.sbc.rows import ReplicateRecord

Array = NDArray[np.float64]
FitWith = Callable[[Observation], Likelihood]
"""Makes the likelihood that is fitted to simulated data."""
LOG_LIKELIHOOD = "log-likelihood"
_MAX_TRIES = 1_000_000


def prior_draw(likelihood: Likelihood, rng: np.random.Generator) -> Array:
    """One parameter vector from the prior, constraints included, float64 (n_param,).

    Constraints that the prior transform does not build in are met by rejection.

    Raises
    ------
    LikelihoodError
        Hardly any point of the prior meets the constraints.
    """
    n_param, n_tried, n = len(likelihood.parameters), 0, 1
    while n_tried < _MAX_TRIES:
        theta = np.asarray(likelihood.prior_transform(rng.random((n, n_param))))
        allowed = np.flatnonzero(np.isfinite(theta).all(axis=1) & likelihood.allowed(theta))
        if allowed.size:
            return np.asarray(theta[allowed[0]], dtype=np.float64)
        n_tried += n
        n = min(10 * n, 10_000)
    raise LikelihoodError(f"none of {n_tried} draws from the prior satisfies the constraints of the model")


def simulated(likelihood: Likelihood, theta: Array, rng: np.random.Generator) -> Observation:
    """The observation as it would be with these parameters: layout, flags and weights are its own.

    V(theta) + sigma (x + i y), with sigma = s / sqrt(w) and the model's noise factor s, or what noise that
    differs among baselines makes of it (`Likelihood.sigma`), and x and y standard normal, correlated where
    the model says so (`Likelihood.noise`), or Student's t in two dimensions; 0 where the weight is 0.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
    rng : Generator
    """
    observation, dof = likelihood.observation, likelihood.model.noise_dof(theta[None])
    models, parts = likelihood.predict(theta), []
    sigmas, drawn = likelihood.sigma(theta, models), likelihood.noise(theta, rng)
    for i, (part, model) in enumerate(zip(observation.partitions, models, strict=True)):
        noise = drawn[i]
        if dof is not None:
            noise = noise / np.sqrt(rng.chisquare(dof[0, i], noise.shape) / dof[0, i])
        vis = np.where(part.weight > 0, model + sigmas[i] * noise, 0.0)
        parts.append(replace(part, vis=vis.astype(part.vis.dtype)))
    return replace(observation, partitions=tuple(parts), source="simulated")


@dataclass(frozen=True)
class LikelihoodRecipe:
    """The arguments of a likelihood, from which one is made for other data, also in another process.

    Parameters
    ----------
    cls : type
        Likelihood, or a subclass of it.
    sky : SkyModel
    options : mapping
        Arguments by name.
    """

    cls: type[Likelihood]
    sky: SkyModel
    options: Mapping[str, Any]  # arguments of any type

    @classmethod
    def of(cls, likelihood: Likelihood) -> LikelihoodRecipe:
        """The recipe of an existing likelihood."""
        forms = set(likelihood.choices.forms)
        form = forms.pop() if len(forms) == 1 else "auto"
        chosen = replace(likelihood.options, backend=likelihood.backend, form=form, comm=None)
        options = {"options": chosen, "gains": likelihood.gains}
        sky = cast(SkyModel, likelihood.full_model.model)  # which a likelihood has bound to its data
        return cls(type(likelihood), sky, options)

    def __call__(self, observation: Observation) -> Likelihood:
        return self.cls(observation, self.sky, **self.options)


def rank(truth: float, draws: Array, rng: np.random.Generator) -> int:
    """How many draws lie below the truth; where some are equal to it, a random number of those too."""
    below, equal = int(np.sum(draws < truth)), int(np.sum(draws == truth))
    return below + int(rng.integers(0, equal + 1))


def cut_open(values: Array, period: float) -> Array:
    """Values on a circle, as numbers from where the circle is cut: opposite their mean.

    The mean treats all values alike. With the truth among them, its rank is uniform where it is one of
    them, wherever they lie, and means "before or behind" where they lie close together.
    """
    angle = 2.0 * np.pi * values / period
    mean = np.angle(np.exp(1j * angle).mean())
    opened: Array = np.mod(angle - mean + np.pi, 2.0 * np.pi)
    return opened


def independent(posterior: Posterior, n: int) -> Posterior:
    """So many draws of equal weight, as far apart in a chain as can be."""
    return posterior.equal_weight(n)


class Replicates:
    """The replicates of a run of SBC, each worked out from its number and the seed alone.

    Parameters
    ----------
    likelihood : Likelihood
        Whose prior and noise the data are drawn from.
    fit_with : function of Observation
        Gives the likelihood that is fitted.
    sampler : str
    options : mapping
        Of the sampler.
    n_draw : int
        Draws among which a truth is ranked.
    seed : int
    """

    def __init__(
        self,
        likelihood: Likelihood,
        fit_with: FitWith | None,
        sampler: str,
        options: Mapping[str, object],
        n_draw: int,
        seed: int,
    ) -> None:
        # Truths and ranks are of all parameters, also of those that a fit integrates over.
        self._likelihood, self._recipe = likelihood.full, LikelihoodRecipe.of(likelihood)
        self.fit_with: FitWith = fit_with or self._recipe
        self._sampler, self._n_draw, self._seed = sampler, n_draw, seed
        self._options: dict[str, Any] = dict(options)  # keyword arguments of several types
        self.backend = likelihood.backend
        target = Target(self._likelihood)
        self._period = np.where(target.wraps, target.period, np.inf)

    def __getstate__(self) -> dict[str, object]:
        """Without the likelihood's device arrays, which another process makes for itself."""
        state = {**self.__dict__, "_observation": self._likelihood.observation}
        del state["_likelihood"]
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._likelihood = self._recipe(self.__dict__.pop("_observation")).full

    def __call__(self, k: int) -> ReplicateRecord:
        """Replicate k as plain values; "error" instead of ranks where it could not be fitted."""
        start = time.monotonic()
        rng = np.random.default_rng([self._seed, k])
        truth = prior_draw(self._likelihood, rng)
        row: ReplicateRecord = {"replicate": k, "truth": truth.tolist()}
        fitted = self.fit_with(simulated(self._likelihood, truth, rng))
        try:
            posterior = self._fit(fitted, int(rng.integers(0, 2**32)))
        except LikelihoodError as error:
            row["error"] = str(error)
        else:
            row |= self._ranked(fitted.full, posterior, truth, rng)
        row["seconds"] = round(time.monotonic() - start, 3)
        return row

    def ranked_names(self, fitted: Likelihood) -> list[str]:
        """Parameters that are both simulated and fitted, in the order of the simulated ones.

        Raises
        ------
        InputError
            Parameters that are fitted, but have no truth; or have another unit.
        """
        known = {p.name: p.unit for p in self._likelihood.parameters}
        for p in fitted.parameters:
            if p.name not in known:
                raise InputError(
                    f"fit_with has {p.name}, which the simulated model lacks ({', '.join(known)})"
                )
            if (p.unit or "") != (known[p.name] or ""):
                raise InputError(f"{p.name} is simulated in {known[p.name]!r} but fitted in {p.unit!r}")
        fitted_names = {p.name for p in fitted.parameters}
        return [name for name in known if name in fitted_names]

    def _fit(self, fitted: Likelihood, seed: int) -> Posterior:
        return sample(fitted, self._sampler, seed=seed, progress=False, **self._options)

    def _ranked(
        self, fitted: Likelihood, posterior: Posterior, truth: Array, rng: np.random.Generator
    ) -> ReplicateRecord:
        draws = independent(posterior, self._n_draw)
        true = {p.name: value for p, value in zip(self._likelihood.parameters, truth, strict=True)}
        names = self.ranked_names(fitted)
        ranks = [self.rank_of(name, true[name], draws[name], rng) for name in names]
        own = np.array([[true[p.name] for p in fitted.parameters]])
        ranks.append(rank(float(fitted.log_likelihood(own)[0]), draws.log_likelihood, rng))
        chi2 = reduced_chi2(fitted, draws.samples)
        row: ReplicateRecord = {
            "ranks": ranks,
            "effective": round(float(posterior.effective.min()), 1),
            "converged": bool(posterior.diagnostics.get("converged", 1.0)),
        }
        if chi2 is not None:
            row["reduced_chi2"] = [float(chi2.mean()), float(chi2[0])]
        return row

    def rank_of(self, name: str, truth: float, draws: Array, rng: np.random.Generator) -> int:
        i = [p.name for p in self._likelihood.parameters].index(name)
        if np.isfinite(self._period[i]):  # it wraps
            turned = cut_open(np.concatenate([[truth], draws]), self._period[i])
            truth, draws = turned[0], turned[1:]
        return rank(truth, draws, rng)


def reduced_chi2(likelihood: Likelihood, theta: Array) -> Array | None:
    """chi2 over the number of real data, with the noise factor of each vector, float64 (n,).

        sum_p chi2_p / s_p^2 / n        over partitions p; n real data in all, two of each visibility

    None where the noise is not Gaussian.
    """
    if likelihood.model.noise_dof(theta) is not None:
        return None
    factor = likelihood.model.noise_factor(theta)
    total = (likelihood.chi2(theta) / factor**2).sum(axis=1)
    return np.asarray(total / likelihood.n_data.sum())
