"""Calibrated visibilities whose noise differs among baselines, or follows the model, as the model says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.densities.each_theta import Complex, DensitySlopes, LikelihoodOfEachTheta
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.fisher import Fisher
from biro.likelihood.noise.noise_fisher import NoiseFisher
from biro.likelihood.noise.noise_of_baselines import NoiseOfBaselines
from biro.likelihood.noise.varied_noise import VariedNoise, weight_ratios
from biro.likelihood.normalisation import Normalisation
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from rime_kernels import Gradient, Sources
from rime_kernels.tangent.grouped import GroupedInformation

Array = NDArray[np.float64]


class VisibilityLikelihoodWithNoiseTerms(LikelihoodOfEachTheta):
    """The log-likelihood of visibilities whose weights follow theta; a `GainTreatment`.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
        With noise terms.
    engines : PartitionEngines

    Raises
    ------
    InputError
        A class of baseline length without data.
    """

    def __init__(self, observation: Observation, model: BoundModel, engines: PartitionEngines) -> None:
        self._varied = varied = VariedNoise(observation, model)
        normalisation = Normalisation.of_visibilities(observation.partitions)
        super().__init__(observation, model, engines, varied.terms, normalisation)
        law = "Student-t" if model.model.noise.distribution == "student-t" else "Gaussian"
        self.noise = f"{law} noise that differs among baselines"
        # Until version 0.2 it followed the data: other values of the same model.
        self.identity = ["systematic of the model"] if varied.terms.follows_model else []
        self.lines = varied.lines

    def _densities(self, batch: ThetaBatch) -> list[NoiseOfTheta]:
        numbers, factor, dof = self._varied.terms(batch.theta), batch.noise_factor, batch.noise_dof
        return [
            NoiseOfTheta(self._varied.each, numbers[b], factor[b], None if dof is None else dof[b])
            for b in range(len(batch))
        ]

    def fisher(self, batch: ThetaBatch) -> Fisher:
        """The Fisher information of a batch of one."""
        vis = self._predicted(batch)
        stated = [part.weight for part in self._observation.partitions]
        sums = WeightedSums(self._engines, stated, self.weights(batch, vis))
        shared = self._model, self._engines, sums, self.n_data, batch
        if self._varied.terms.follows_model:
            return NoiseFisher(*shared, self._varied, vis)
        return Fisher(*shared, self._varied.information(batch, None))

    def corrected(self, vis: Sequence[NDArray[np.complexfloating]], batch: ThetaBatch) -> Observation:
        """The data with the weights that their noise has, but for the noise factor of the partition."""
        return self._varied.observed(batch, vis)

    def weights(
        self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None = None
    ) -> list[Array]:
        """s^2 / v of each partition for a batch of one, of a model with `vis`; by default that of theta."""
        return self._varied.weights(batch, self._predicted(batch) if vis is None else vis)


class NoiseOfTheta(NamedTuple):
    """The density of visibilities with the noise of one theta: a `DataDensity`.

    Attributes
    ----------
    each : sequence of NoiseOfBaselines
        Of each partition.
    numbers : float64 (n_number,)
    factor : float64 (n_partition,)
    dof : float64 (n_partition,) or None
        Degrees of freedom of Student's t.
    """

    each: Sequence[NoiseOfBaselines]
    numbers: Array
    factor: Array
    dof: Array | None

    def chi2(self, i: int, vis: Complex) -> float:
        """Sum of |D - V|^2 s^2 / v: with the noise factor s left out of v."""
        return float(self.factor[i] ** 2 * self.each[i].chi2(vis, self.numbers, self.factor[i]))

    def log_likelihood(self, i: int, vis: Complex) -> float:
        """ln L."""
        return self.each[i].log_likelihood(vis, *self._of(i))

    def slopes(self, i: int, vis: Complex) -> DensitySlopes:
        """ln L with its derivatives."""
        return self.each[i].slopes(vis, *self._of(i))

    def _of(self, i: int) -> tuple[Array, float, float | None]:
        return self.numbers, self.factor[i], None if self.dof is None else float(self.dof[i])


class WeightedSums:
    """Products of derivatives of visibilities with weights other than those that were stated.

    Parameters
    ----------
    engines : PartitionEngines
    stated, weights : sequence of (n_row, n_chan, n_corr)
        Of each partition.
    """

    def __init__(
        self,
        engines: PartitionEngines,
        stated: Sequence[NDArray[np.floating]],
        weights: Sequence[Array],
    ) -> None:
        self._rimes, self._weights = engines.rimes, weights
        self._ratios = weight_ratios(weights, stated)

    def information(self, i: int, sources: Sources, change: Gradient) -> Array:
        """Re(J^H W J) between changes of the sources of partition i."""
        return self._rimes[i].information(sources, change, self._weights[i])

    def segment_information(
        self, i: int, sources: Sources, change: Gradient, segments: NDArray[np.int64], n_inner: int
    ) -> GroupedInformation:
        """`information` in blocks of the segments of times."""
        groups = segments[self._rimes[i].rows.time_index]
        return self._rimes[i].grouped_information(sources, change, groups, n_inner, self._weights[i])

    def information_product(self, i: int, sources: Sources, change: Gradient) -> Gradient:
        """Re(J^H W J v) for one change v of the sources of partition i."""
        return self._rimes[i].adjoint(sources, self._rimes[i].tangent(sources, change) * self._ratios[i])
