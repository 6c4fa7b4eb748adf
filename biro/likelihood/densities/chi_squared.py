"""Log-likelihoods that are functions of the chi-squared of each partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.engines import PartitionEngines
from biro.likelihood.fisher import Fisher, JacobianProducts
from biro.likelihood.normalisation import Normalisation
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
    """The likelihood of data whose chi-squared the engines sum: ln L, derivatives, information.

    Noise is Gaussian, or Student's t: chi2 is then computed with t = nu s^2 of each partition, for the
    degrees of freedom nu and the factor s of the noise.

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
        self._normalisation = normalisation
        self.n_vis, self.n_data = normalisation.n_vis, normalisation.n_data
        self._is_student = model.model.noise.distribution == "student-t"
        self.noise = "Student-t noise" if self._is_student else "Gaussian noise"
        # Worked out once where no parameter changes it: that takes as long as to sum a small data set.
        fixed = model.parts.noise_factor.fixed
        self._of_fixed = None if fixed is None else normalisation.of_factor(fixed)

    def chi2(self, batch: ThetaBatch) -> Array:
        """Chi-squared (n_batch, n_partition) with weights as they are, whatever the noise."""
        return self._sums.chi2(batch)

    def log_likelihood(self, batch: ThetaBatch) -> Array:
        """ln L (n_batch,)."""
        scaled_dofs = self._scaled_dofs(batch) if self._is_student else None
        return self._of_chi2(batch, self._sums.chi2(batch, scaled_dofs))

    def log_likelihood_and_gradient(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """ln L (n_batch,) and its derivatives (n_batch, n_param)."""
        scaled_dofs = self._scaled_dofs(batch) if self._is_student else None
        chi2, by_sources = self._sums.chi2_and_gradient(batch, scaled_dofs)
        by_dof: Array | None = None
        if batch.noise_dof is None:
            by_chi2, by_factor = self._normalisation.slopes(chi2, batch.noise_factor)
        else:
            by_t = np.stack([one.scaled_dof for one in by_sources if one.scaled_dof is not None], axis=1)
            by_chi2, by_factor, by_dof = self._normalisation.student_slopes(
                chi2, by_t, batch.noise_factor, batch.noise_dof
            )
        by_noise = self._model.pull_back_noise(by_factor, by_dof)
        return self._of_chi2(batch, chi2), batch.pull_back(by_sources, by_chi2) + by_noise

    def _scaled_dofs(self, batch: ThetaBatch) -> list[Array]:
        """t = nu s^2 of Student's t in each partition, (n_batch,) each."""
        assert batch.noise_dof is not None, "a model of Student's t has degrees of freedom"
        return list((batch.noise_dof * batch.noise_factor**2).T)

    def _of_chi2(self, batch: ThetaBatch, chi2: Array) -> Array:
        of_factor = self._of_fixed or self._normalisation.of_factor(batch.noise_factor)
        dof = batch.noise_dof if self._is_student else None
        return self._normalisation.log_likelihood(chi2, of_factor, dof)

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
