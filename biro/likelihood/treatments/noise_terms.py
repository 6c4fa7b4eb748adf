"""Calibrated visibilities whose noise differs among baselines, or follows the model, as the model says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.engines import PartitionEngines
from biro.likelihood.fisher import Fisher
from biro.likelihood.noise.noise_fisher import NoiseFisher
from biro.likelihood.normalisation import Normalisation
from biro.likelihood.treatments.varied_noise import VariedNoise, weight_ratios
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from rime_kernels import Gradient, Sources
from rime_kernels.tangent.grouped import GroupedInformation

Array = NDArray[np.float64]


class VisibilityLikelihoodWithNoiseTerms:
    """The log-likelihood of visibilities whose weights follow theta; a `GainTreatment`.

    Model visibilities come from the engines, on any backend; the sums over them are taken here, on the CPU
    (`biro.likelihood.treatments.noise_of_baselines`).

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
        self._observation, self._model, self._engines = observation, model, engines
        self._varied = VariedNoise(observation, model)
        self._terms, self._noise = self._varied.terms, self._varied.each
        normalisation = Normalisation.of_visibilities(observation.partitions)
        self.n_vis, self.n_data = normalisation.n_vis, normalisation.n_data
        law = "Student-t" if model.model.noise.distribution == "student-t" else "Gaussian"
        self.noise = f"{law} noise that differs among baselines"
        # Until version 0.2 it followed the data: other values of the same model.
        self.identity = ["systematic of the model"] if self._terms.follows_model else []
        self.lines = self._varied.lines

    def chi2(self, batch: ThetaBatch) -> Array:
        """sum |D - V|^2 s^2 / v, (n_batch, n_partition): with the noise factor s left out of v."""
        numbers, chi2 = self._terms(batch.theta), np.full((len(batch), len(self._noise)), np.nan)
        for i, b, sources in self._each(batch):
            factor = batch.noise_factor[b, i]
            vis = self._engines.rimes[i].predict(sources)[0]
            weight = self._noise[i].weight(vis, numbers[b], factor)
            residual = vis - self._observation.partitions[i].vis
            chi2[b, i] = factor**2 * np.sum(weight * np.abs(residual) ** 2)
        return chi2

    def log_likelihood(self, batch: ThetaBatch) -> Array:
        """ln L (n_batch,)."""
        numbers, found = self._terms(batch.theta), np.full((len(batch), len(self._noise)), np.nan)
        for i, b, sources in self._each(batch):
            vis = self._engines.rimes[i].predict(sources)[0]
            factor = batch.noise_factor[b, i]
            found[b, i] = self._noise[i].log_likelihood(vis, numbers[b], factor, _dof(batch, b, i))
        return np.asarray(found.sum(axis=1))

    def log_likelihood_and_gradient(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """ln L (n_batch,) and its derivatives (n_batch, n_param)."""
        numbers, by_number = self._terms(batch.theta), np.zeros((len(batch), self._terms.n_number))
        value, (by_factor, by_dof) = np.zeros(len(batch)), np.zeros((2, len(batch), len(self._noise)))
        gradients, of_model = [], list(batch.sources())
        for i, sources in enumerate(self._engines.shifts.of_all(iter(of_model))):
            rime, parts = self._engines.rimes[i], []
            for b in range(len(batch)):
                one = sources.entries(b, b + 1)
                if one.invalid().any():
                    parts.append(rime.chi2_and_gradient(one)[1])
                    value[b] = np.nan
                    continue
                factor = batch.noise_factor[b, i]
                slopes = self._noise[i].slopes(rime.predict(one)[0], numbers[b], factor, _dof(batch, b, i))
                parts.append(rime.adjoint(one, slopes.residual[None]))
                value[b] += slopes.value
                by_number[b] += slopes.by_number
                by_factor[b, i], by_dof[b, i] = slopes.by_factor, slopes.by_dof
            joined = Gradient.joined(parts)
            gradients.append(self._engines.shifts.pull_back(i, of_model[i], joined))
        return value, self._varied.pull_back(by_number, by_factor, by_dof) - batch.pull_back(gradients)

    def fisher(self, batch: ThetaBatch) -> Fisher:
        """The Fisher information of a batch of one."""
        vis = self._predicted(batch)
        stated = [part.weight for part in self._observation.partitions]
        sums = WeightedSums(self._engines, stated, self.weights(batch, vis))
        shared = self._model, self._engines, sums, self.n_data, batch
        if self._terms.follows_model:
            return NoiseFisher(*shared, self._varied, vis)
        return Fisher(*shared, self._varied.information(batch, None))

    def corrected(self, vis: Sequence[NDArray[np.complexfloating]], batch: ThetaBatch) -> Observation:
        """The data with the weights that their noise has, but for the noise factor of the partition."""
        return self._varied.observed(batch, vis)

    def remarks(self, batch: ThetaBatch) -> list[str]:
        """Nothing: the value is exact."""
        return []

    def weights(
        self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None = None
    ) -> list[Array]:
        """s^2 / v of each partition for a batch of one, of a model with `vis`; by default that of theta."""
        return self._varied.weights(batch, self._predicted(batch) if vis is None else vis)

    def _predicted(self, batch: ThetaBatch) -> list[NDArray[np.complexfloating]]:
        """Model visibilities (n_row, n_chan, n_corr) of each partition for a batch of one."""
        return [vis[0] for vis in self._engines.predict(batch)]

    def _each(self, batch: ThetaBatch) -> list[tuple[int, int, Sources]]:
        """Partition, entry of the batch, and its sources, where these are possible."""
        return [
            (i, b, sources.entries(b, b + 1))
            for i, sources in enumerate(self._engines.sources(batch))
            for b in np.flatnonzero(~sources.invalid()).tolist()
        ]


def _dof(batch: ThetaBatch, b: int, i: int) -> float | None:
    """Degrees of freedom of Student's t in partition i; None where noise is Gaussian."""
    return None if batch.noise_dof is None else float(batch.noise_dof[b, i])


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
