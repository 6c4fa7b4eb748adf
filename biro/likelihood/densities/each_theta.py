"""Likelihoods whose data have other noise for each theta: one loop over the vectors of a batch for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.engines import PartitionEngines
from biro.likelihood.normalisation import Normalisation
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating]


class DensitySlopes(NamedTuple):
    """ln L of one partition and its derivatives.

    Attributes
    ----------
    value : float
    residual : complex128 (n_row, n_chan, n_corr), Jy
        Minus the derivatives with respect to V, over the weights w of the data: (V - D) s_w, with the ratio
        s_w of the weights that theta makes of w, and what these add where they follow V.
    by_number : float64 (n_number,)
        With respect to the numbers of the noise.
    by_factor : float
        With respect to the noise factor s.
    by_dof : float
        With respect to the degrees of freedom of Student's t; 0 of Gaussian noise.
    """

    value: float
    residual: NDArray[np.complex128]
    by_number: Array
    by_factor: float
    by_dof: float = 0.0


class DataDensity(Protocol):
    """The density of the data of each partition i, for model visibilities (n_row, n_chan, n_corr) in Jy."""

    def chi2(self, i: int, vis: Complex) -> float:
        """Chi-squared without the noise factor s."""

    def log_likelihood(self, i: int, vis: Complex) -> float:
        """ln L."""

    def slopes(self, i: int, vis: Complex) -> DensitySlopes:
        """ln L with its derivatives."""


class NoiseNumbers(Protocol):
    """The numbers of the noise beside the factors of partitions, from theta and back."""

    def __call__(self, theta: Array) -> Array:
        """float64 (n_batch, n_number)."""

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to theta (n_batch, n_param), from those to the numbers."""


class LikelihoodOfEachTheta(ABC):
    """The likelihood of data whose noise follows theta: ln L and its derivatives of a batch.

    Model visibilities come from the engines, on any backend; the sums over them are taken on the CPU.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
    engines : PartitionEngines
    numbers : NoiseNumbers
    normalisation : Normalisation
        Of the stated noise.

    Attributes
    ----------
    n_vis, n_data : int64 (n_partition,)
        Complex visibilities, and real numbers, that count.
    """

    def __init__(
        self,
        observation: Observation,
        model: BoundModel,
        engines: PartitionEngines,
        numbers: NoiseNumbers,
        normalisation: Normalisation,
    ) -> None:
        self._observation, self._model, self._engines = observation, model, engines
        self._numbers = numbers
        self.n_vis, self.n_data = normalisation.n_vis, normalisation.n_data

    @abstractmethod
    def _densities(self, batch: ThetaBatch) -> Sequence[DataDensity]:
        """The density of the data with the noise of each vector of a batch."""

    def chi2(self, batch: ThetaBatch) -> Array:
        """Chi-squared without the noise factor s, (n_batch, n_partition)."""
        return self._of_densities(batch, lambda density, i, vis: density.chi2(i, vis))

    def log_likelihood(self, batch: ThetaBatch) -> Array:
        """ln L (n_batch,)."""
        found = self._of_densities(batch, lambda density, i, vis: density.log_likelihood(i, vis))
        return np.asarray(found.sum(axis=1))

    def log_likelihood_and_gradient(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """ln L (n_batch,) and its derivatives (n_batch, n_param)."""
        densities, by_number = self._densities(batch), np.zeros_like(self._numbers(batch.theta))
        value = np.full(batch.noise_factor.shape, np.nan)
        by_factor, by_dof = np.zeros(value.shape), np.zeros(value.shape)

        def residuals(i: int, rows: slice, vis: Complex) -> NDArray[np.complex128]:
            found = np.empty(vis.shape, np.complex128)
            for k, b in enumerate(range(rows.start, rows.stop)):
                slopes = densities[b].slopes(i, vis[k])
                value[b, i], found[k] = slopes.value, slopes.residual
                by_number[b] += slopes.by_number
                by_factor[b, i], by_dof[b, i] = slopes.by_factor, slopes.by_dof
            return found

        gradients = self._engines.gradients(batch, residuals)
        of_noise = self._numbers.pull_back(by_number) + self._model.pull_back_noise(by_factor, by_dof)
        return value.sum(axis=1), of_noise - batch.pull_back(gradients)

    def remarks(self, batch: ThetaBatch) -> list[str]:
        """Nothing: the value is exact."""
        return []

    def _of_densities(
        self, batch: ThetaBatch, function: Callable[[DataDensity, int, Complex], float]
    ) -> Array:
        """A number of each vector and partition, (n_batch, n_partition); NaN for impossible sources."""
        densities, found = self._densities(batch), np.full((len(batch), len(self.n_vis)), np.nan)
        for i, rows, vis in self._engines.visibilities(batch):
            for b, one in zip(range(rows.start, rows.stop), vis, strict=True):
                found[b, i] = function(densities[b], i, one)
        return found

    def _predicted(self, batch: ThetaBatch) -> list[Complex]:
        """Model visibilities (n_row, n_chan, n_corr) of each partition for a batch of one."""
        return [vis[0] for vis in self._engines.predict(batch)]


def over_weight(slope: Complex, part: Partition) -> NDArray[np.complex128]:
    """Derivatives (..., n_row, n_chan, n_corr) by V over the weights, as an adjoint takes them."""
    found = np.zeros(slope.shape, np.complex128)
    np.divide(slope, part.weight, out=found, where=part.weight > 0)
    return found
