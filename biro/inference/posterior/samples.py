"""What a sampler returns, as plain data: samples with names, units, weights, evidence and provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.partition_fit import PartitionFit
from biro.errors import InputError
from biro.models.quantities.parameter import Column

_PACKAGE_OF = {"dynesty-dynamic": "dynesty", "nuts": "nutpie"}
"""Packages whose name is not that of the sampler."""


@dataclass(frozen=True)
class Provenance:
    """Where a posterior came from; enough to see whether two of them may be compared.

    Attributes
    ----------
    sampler : str
        "emcee", "dynesty", "dynesty-dynamic", "tempering", "nuts" or "none".
    seed : int
    options : mapping
        Of the sampler, with every default filled in.
    data_digest, model_digest : str
        sha256 of the observation and of the resolved model.
    model_toml : str
    versions : mapping str -> str
        Of packages, by name.
    """

    sampler: str
    seed: int
    options: Mapping[str, object] = field(default_factory=dict)
    data_digest: str = ""
    model_digest: str = ""
    model_toml: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """The package that the sampler comes from."""
        return package_of(self.sampler)


def package_of(sampler: str) -> str:
    """The Python package that a sampler comes from."""
    return _PACKAGE_OF.get(sampler, sampler)


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of a posterior, in the units of the model file: the data of a `Posterior`.

    Attributes
    ----------
    columns : tuple of Column
        Parameters, in the order of the samples' second axis.
    samples : float64 (n_sample, n_param)
    log_weight : float64 (n_sample,) or None
        Normalised log weights; None for samples of equal weight.
    log_likelihood, log_prior : float64 (n_sample,)
        log_prior is the normalised density in the units of the parameters.
    provenance : Provenance
    n_walker : int
        Samples come step after step, `n_walker` of each; 1 when they are no chains.
    log_evidence, log_evidence_err : float or None
        Of the normalised prior (constraints included), and one sigma.
    tau : float64 (n_param,) or None
        Integrated autocorrelation time, in steps of the sampler.
    effective : float64 (n_param,)
        Effective sample size of each parameter.
    diagnostics : mapping str -> float
        What the sampler says about itself (acceptance, calls, burn-in ...).
    fits : tuple of PartitionFit
        How well the best fit describes each partition; none where a likelihood does not know chi-squared.
    peak : float64 (n_param,) or None
        Where the climb from the best sample ended: the maximum of the posterior there.
    peak_log_likelihood : float or None
        There.
    remarks : tuple of str
        What is wrong with model, data, priors or errors (`biro.diagnosis.diagnosis`), as lines above the
        table.
    likelihood : Likelihood or None
        What was sampled, in the session that sampled it; no file keeps it.

    Raises
    ------
    InputError
        Shapes that do not belong together, or values that are not finite.
    """

    columns: tuple[Column, ...]
    samples: NDArray[np.float64]
    log_likelihood: NDArray[np.float64]
    log_prior: NDArray[np.float64]
    provenance: Provenance
    effective: NDArray[np.float64]
    log_weight: NDArray[np.float64] | None = None
    n_walker: int = 1
    log_evidence: float | None = None
    log_evidence_err: float | None = None
    tau: NDArray[np.float64] | None = None
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    fits: tuple[PartitionFit, ...] = ()
    peak: NDArray[np.float64] | None = None
    peak_log_likelihood: float | None = None
    remarks: tuple[str, ...] = ()
    likelihood: object = field(default=None, repr=False)

    def __post_init__(self) -> None:
        n_param = len(self.columns)
        if self.samples.ndim != 2 or self.samples.shape[1] != n_param or not len(self.samples):
            raise InputError(f"samples must have shape (n_sample, {n_param}), got {self.samples.shape}")
        n_sample = len(self.samples)
        for name in ("log_likelihood", "log_prior", "log_weight"):
            value = getattr(self, name)
            if value is not None and value.shape != (n_sample,):
                raise InputError(f"{name} must have shape ({n_sample},), got {value.shape}")
        if self.n_walker < 1 or n_sample % self.n_walker:
            raise InputError(f"{n_sample} samples cannot be steps of {self.n_walker} walkers")
        if len(set(self.names)) != n_param:
            raise InputError(f"parameter names must differ, got {', '.join(self.names)}")
        if not np.isfinite(self.samples).all():
            raise InputError("samples must be finite numbers")
        if (self.peak is None) != (self.peak_log_likelihood is None):
            raise InputError("peak and peak_log_likelihood must be given both, or neither")
        for name in ("effective", "tau", "peak"):
            value = getattr(self, name)
            if value is not None and value.shape != (n_param,):
                raise InputError(f"{name} must have shape ({n_param},), got {value.shape}")

    def __getstate__(self) -> dict[str, object]:
        """Without the likelihood, whose data and machine code no other process could take over."""
        return {**self.__dict__, "likelihood": None}

    @property
    def names(self) -> tuple[str, ...]:
        """Parameter names."""
        return tuple(column.name for column in self.columns)

    @property
    def n_param(self) -> int:
        """Number of parameters."""
        return len(self.columns)

    @property
    def weight(self) -> NDArray[np.float64]:
        """Weights (n_sample,), summing to 1."""
        if self.log_weight is None:
            return np.full(len(self.samples), 1.0 / len(self.samples))
        weight: NDArray[np.float64] = np.exp(self.log_weight - self.log_weight.max())
        weight /= weight.sum()
        return weight

    @property
    def best_fit(self) -> NDArray[np.float64]:
        """The maximum of the posterior that is next to the best sample, (n_param,); else `best_sample`.

        A likelihood without gradients has no such maximum.
        """
        return self.best_sample if self.peak is None else self.peak.copy()

    @property
    def best_values(self) -> dict[str, float]:
        """`best_fit` by names of parameters, as `SkyModel.at` and arguments called `values` take it."""
        return dict(zip(self.names, self.best_fit.tolist(), strict=True))

    @property
    def best_sample(self) -> NDArray[np.float64]:
        """The sample of highest posterior density, (n_param,)."""
        best: NDArray[np.float64] = self.samples[self._i_best]
        return best.copy()

    @property
    def best_log_likelihood(self) -> float:
        """The log-likelihood at `best_fit`."""
        if self.peak_log_likelihood is not None:
            return self.peak_log_likelihood
        return float(self.log_likelihood[self._i_best])

    @property
    def _i_best(self) -> int:
        density = self.log_likelihood + self.log_prior
        return int(np.argmax(np.where(np.isfinite(density), density, -np.inf)))

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """Draws of one parameter that all count alike, float64 (n_draw,), in the unit of its column.

        Their mean, standard deviation and percentiles are those of the posterior. Weighted draws (of
        dynesty, none, and nuts with several modes) are resampled by `equal_weight`, each time to the same
        draws: element i of two parameters belongs to one point. `weighted_draws` gives the draws as the
        sampler returned them.

        Raises
        ------
        InputError
            No such parameter.
        """
        return self.samples[self._equal(), self._number(name)]

    def weighted_draws(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draws of one parameter as the sampler returned them, and their weights, both float64 (n_sample,).

        The weights sum to 1; they are all 1/n_sample for a sampler whose draws count alike. The posterior
        mean is `weights @ draws`.

        Raises
        ------
        InputError
            No such parameter.
        """
        return self.samples[:, self._number(name)], self.weight

    def equal_weight(self, n: int | None = None) -> Self:
        """This posterior as samples of equal weight (systematic resampling, the run's seed).

        Parameters
        ----------
        n : int, optional
            How many; by default all samples where they have equal weight already, and as many as the
            effective sample size of weighted ones, so that few are repeated.
        """
        if self.log_weight is None and n is None:
            return self
        index = self._equal(n)
        return replace(
            self,
            samples=self.samples[index],
            log_likelihood=self.log_likelihood[index],
            log_prior=self.log_prior[index],
            log_weight=None,
            n_walker=1,
        )

    def _number(self, name: str) -> int:
        if name not in self.names:
            raise InputError(f"no parameter {name!r}; there are {', '.join(self.names)}")
        return self.names.index(name)

    def _equal(self, n: int | None = None) -> NDArray[np.int64] | slice:
        """Which samples, some of them repeatedly, have equal weight."""
        if self.log_weight is None and n is None:
            return slice(None)
        weight = self.weight
        count = n if n is not None else max(1, round(1.0 / float(np.sum(weight**2))))
        rng = np.random.default_rng(self.provenance.seed)
        positions = (rng.random() + np.arange(count)) / count
        index = np.searchsorted(np.cumsum(weight), positions).clip(max=len(weight) - 1)
        rng.shuffle(index)
        return index
