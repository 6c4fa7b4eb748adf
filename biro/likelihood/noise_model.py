"""How noise is distributed, for a model bound to data: from chi-squared and theta to the log-likelihood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.normalisation import Normalisation
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch

Array = NDArray[np.float64]


class NoiseLaw:
    """Gaussian noise, or Student's t, with the factors and degrees of freedom of a model.

    Parameters
    ----------
    model : BoundModel
    normalisation : Normalisation

    Attributes
    ----------
    n_vis, n_data : int64 (n_partition,)
        Complex visibilities, and real numbers, that count.
    is_student : bool
    """

    def __init__(self, model: BoundModel, normalisation: Normalisation) -> None:
        self._model, self._normalisation = model, normalisation
        self.n_vis, self.n_data = normalisation.n_vis, normalisation.n_data
        self.is_student: bool = model.model.noise.distribution == "student-t"
        # Worked out once where no parameter changes it: that takes as long as to sum a small data set.
        fixed = model.parts.noise_factor.fixed
        self._of_fixed = None if fixed is None else normalisation.of_factor(fixed)

    def __str__(self) -> str:
        return "Student-t noise" if self.is_student else "Gaussian noise"

    def scaled_dofs(self, batch: ThetaBatch) -> list[Array] | None:
        """t = nu s^2 of Student's t in each partition, (n_batch,) each; None where noise is Gaussian."""
        dof = batch.noise_dof if self.is_student else None
        return None if dof is None else list((dof * batch.noise_factor**2).T)

    def log_likelihood(self, batch: ThetaBatch, chi2: Array) -> Array:
        """ln L (n_batch,) for chi2 (n_batch, n_partition) worked out with those `scaled_dofs`."""
        of_factor = self._of_fixed or self._normalisation.of_factor(batch.noise_factor)
        dof = batch.noise_dof if self.is_student else None
        return self._normalisation.log_likelihood(chi2, of_factor, dof)

    def slopes(
        self, batch: ThetaBatch, chi2: Array, by_scaled_dof: Sequence[Array | None]
    ) -> tuple[Array, Array]:
        """d ln L / d chi2 (n_batch, n_partition), and d ln L / d theta (n_batch, n_param) through the noise.

        `by_scaled_dof` are the derivatives of each partition's chi2 with respect to its t = nu s^2.
        """
        factor, dof = batch.noise_factor, batch.noise_dof if self.is_student else None
        if dof is None:
            by_chi2, by_factor = self._normalisation.slopes(chi2, factor)
            return by_chi2, self._model.pull_back_noise(by_factor)
        by_t = np.stack([slope for slope in by_scaled_dof if slope is not None], axis=1)
        by_chi2, by_factor, by_dof = self._normalisation.student_slopes(chi2, by_t, factor, dof)
        return by_chi2, self._model.pull_back_noise(by_factor, by_dof)
