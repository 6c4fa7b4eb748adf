"""Log-likelihoods that are functions of the chi-squared of each partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.engines import PartitionEngines
from biro.likelihood.fisher import Fisher, JacobianProducts
from biro.likelihood.normalisation import NoiseLaw, Normalisation
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from rime_kernels import Gradient

Array = NDArray[np.float64]


class PartitionChiSquared(JacobianProducts, Protocol):
    """Chi-squared of all partitions: of their visibilities (`PartitionEngines`), or of closures."""

    def chi2(self, batch: ThetaBatch, scaled_dofs: Sequence[Array] | None = None) -> Array:
        """float64 (n_batch, n_partition)."""

    def chi2_and_gradient(
        self, batch: ThetaBatch, scaled_dofs: Sequence[Array] | None
    ) -> tuple[Array, Sequence[Gradient]]:
        """`chi2`, and its derivatives with respect to the sources of each partition as the model has them."""


class ChiSquaredLikelihood:
    """The likelihood of data whose chi-squared the engines sum: noise law, derivatives, information.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
    engines : PartitionEngines
        Which compute visibilities.
    sums : PartitionChiSquared
    normalisation : Normalisation

    Attributes
    ----------
    n_vis, n_data : int64 (n_partition,)
        Complex visibilities, and real numbers, that count.
    noise : str
        How noise is distributed, in words.
    """

    def __init__(
        self,
        observation: Observation,
        model: BoundModel,
        engines: PartitionEngines,
        sums: PartitionChiSquared,
        normalisation: Normalisation,
    ) -> None:
        self._observation, self._model, self._engines, self._sums = observation, model, engines, sums
        self._law = NoiseLaw(model, normalisation)
        self.n_vis, self.n_data = normalisation.n_vis, normalisation.n_data
        self.noise = str(self._law)

    def chi2(self, batch: ThetaBatch) -> Array:
        """Chi-squared (n_batch, n_partition) with weights as they are, whatever the noise."""
        return self._sums.chi2(batch)

    def log_likelihood(self, batch: ThetaBatch) -> Array:
        """ln L (n_batch,)."""
        return self._law.log_likelihood(batch, self._sums.chi2(batch, self._law.scaled_dofs(batch)))

    def log_likelihood_and_gradient(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """ln L (n_batch,) and its derivatives (n_batch, n_param)."""
        chi2, by_sources = self._sums.chi2_and_gradient(batch, self._law.scaled_dofs(batch))
        value = self._law.log_likelihood(batch, chi2)
        by_chi2, by_noise = self._law.slopes(batch, chi2, [slopes.scaled_dof for slopes in by_sources])
        return value, batch.pull_back(by_sources, by_chi2) + by_noise

    def fisher(self, batch: ThetaBatch) -> Fisher:
        """The Fisher information of a batch of one."""
        return Fisher(self._model, self._engines, self._sums, self.n_data, batch)

    def weights(
        self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None = None
    ) -> Sequence[NDArray[np.floating]]:
        """The weights that the data state, whatever theta is."""
        return [part.weight for part in self._observation.partitions]

    def remarks(self, batch: ThetaBatch) -> list[str]:
        """Nothing: the value is exact."""
        return []
