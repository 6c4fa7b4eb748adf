"""Likelihoods that integrate over parameters, or solve for them, at each theta: one loop over a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.inference.target.protocol import InnerDraws
from biro.likelihood.free_gains.accuracy import Accuracy
from biro.likelihood.integrals.inner_noise import InnerNoise
from biro.likelihood.integrals.inner_parameters import InnerParameters
from biro.likelihood.normalisation import Normalisation
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation

Array = NDArray[np.float64]


Fit = TypeVar("Fit")
"""What fits best beside one theta."""


class InnerLikelihood(ABC, Generic[Fit]):
    """The likelihood of a theta that lacks some parameters: a `GainTreatment`.

    Parameters
    ----------
    observation : Observation
    inner : InnerParameters
        The parameters that theta lacks.
    law : InnerNoise
        The noise.

    Attributes
    ----------
    inner : InnerParameters
    law : InnerNoise
    noise : str
        How noise is distributed, in words.
    n_vis, n_data : int64 (n_partition,)
        Complex visibilities, and real numbers, that count.
    """

    def __init__(self, observation: Observation, inner: InnerParameters, law: InnerNoise) -> None:
        self._observation, self.inner, self.law, self.noise = observation, inner, law, law.text
        normalisation = Normalisation.of_visibilities(observation.partitions)
        self.n_vis, self.n_data = normalisation.n_vis, normalisation.n_data

    @abstractmethod
    def fit(self, one: ThetaBatch) -> Fit | None:
        """What fits best for a batch of one; None where nothing does, such as for impossible sources."""

    @abstractmethod
    def chi2_of(self, fit: Fit) -> Array:
        """Chi-squared of each partition with the most probable values, float64 (n_partition,)."""

    @abstractmethod
    def values(self, fit: Fit) -> Array:
        """The most probable values of the inner parameters, float64 (n_inner,)."""

    @abstractmethod
    def value_and_gradient(self, fit: Fit) -> tuple[float, Array]:
        """ln L, and its derivatives with respect to theta, float64 (n_param,)."""

    def chi2(self, batch: ThetaBatch) -> Array:
        """Chi-squared with the most probable values, float64 (n_batch, n_partition)."""
        found = np.full((len(batch), len(self.n_vis)), np.nan)
        for b, fit in self._fits(batch):
            found[b] = self.chi2_of(fit)
        return found

    def log_likelihood_and_gradient(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """ln L (n_batch,), and its derivatives with respect to theta, float64 (n_batch, n_param)."""
        value, gradient = np.full(len(batch), np.nan), np.full(batch.theta.shape, np.nan)
        for b, fit in self._fits(batch):
            value[b], gradient[b] = self.value_and_gradient(fit)
        return value, gradient

    def weights(
        self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None = None
    ) -> Sequence[NDArray[np.floating]]:
        """Weights of the residuals of each partition: `GainTreatment.weights`."""
        return self.law.weights(batch, vis) or self.law.stated

    def _fits(self, batch: ThetaBatch) -> Iterator[tuple[int, Fit]]:
        """What fits best for each vector, one after the other: a device has room for one.

        Vectors for which nothing fits are left out.
        """
        for b in range(len(batch)):
            fit = self.fit(batch.rows(np.array([b])))
            if fit is not None:
                yield b, fit


class LaplaceLikelihood(InnerLikelihood[Fit]):
    """The likelihood of a theta beside which a maximum is found, and integrated about (Laplace).

    Parameters
    ----------
    observation, inner, law
        As `InnerLikelihood`.
    integrate : bool
        Whether there is an integral, or the value at the maximum: a profile likelihood.

    Attributes
    ----------
    integrates : bool
    """

    def __init__(
        self, observation: Observation, inner: InnerParameters, law: InnerNoise, *, integrate: bool
    ) -> None:
        super().__init__(observation, inner, law)
        self.integrates = integrate

    @abstractmethod
    def value(self, fit: Fit) -> float:
        """ln L."""

    @abstractmethod
    def draw(self, fit: Fit, rng: np.random.Generator) -> tuple[Array, float]:
        """Values of the inner parameters (n_inner,) from the normal approximation, and ln L of these."""

    @abstractmethod
    def accuracy(self, fit: Fit) -> Accuracy:
        """How good the approximation is."""

    def log_likelihood(self, batch: ThetaBatch) -> Array:
        """ln L (n_batch,); NaN where nothing fits."""
        found = np.full(len(batch), np.nan)
        for b, fit in self._fits(batch):
            found[b] = self.value(fit)
        return found

    def best(self, batch: ThetaBatch) -> ThetaBatch:
        """Vectors of the full model, with the most probable values; NaN where there are none."""
        inner, full = np.full((len(batch), self.inner.of_inner.size), np.nan), self.inner.full
        for b, fit in self._fits(batch):
            inner[b] = self.values(fit)
        return full.at(full.wrap(self.inner.theta(batch.theta, inner)))

    def remarks(self, batch: ThetaBatch) -> list[str]:
        """Where the Laplace approximation is doubtful, for a batch of one."""
        fit = self.fit(batch) if self.integrates else None
        line = "" if fit is None else self.accuracy(fit).line
        return [line] if line else []

    def correction(self, batch: ThetaBatch) -> tuple[float, float, float] | None:
        """Correction of the integral, as `InnerGainTreatment` describes it."""
        fit = self.fit(batch) if self.integrates else None
        return None if fit is None else self.accuracy(fit).correction

    def draws(self, batch: ThetaBatch, rng: np.random.Generator) -> InnerDraws:
        """A draw of the inner parameters for each vector of the others, from the normal approximation.

        Raises
        ------
        InputError
            The likelihood is not a number for a vector.
        """
        drawn, centre = np.full((2, len(batch), self.inner.of_inner.size), np.nan)
        value = np.full(len(batch), np.nan)
        for b, fit in self._fits(batch):
            (drawn[b], value[b]), centre[b] = self.draw(fit, rng), self.values(fit)
        if np.isnan(value).any():
            raise InputError(
                "the likelihood is NaN for one of the parameter vectors, so there is no best fit"
            )
        return self.inner.draws(batch.theta, drawn, centre, value)
