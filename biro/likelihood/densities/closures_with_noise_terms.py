"""`gains="closures"` where the noise differs among the baselines of a partition as the model says.

The variances of phases and log amplitudes of the visibilities D are S = s^2 s_p s_q (sigma / |D|)^2 + f^2 +
(a / |D|)^2, with s, f and a of `biro.likelihood.noise.noise_of_baselines`; their thermal part is
S' = S - f^2. A fraction f of the amplitude is f in its logarithm whatever the amplitude is. The thermal part
has |D|, for gains are not known: the model has no amplitude to be compared with sigma.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.closures.legs import SNR_LIMIT
from biro.likelihood.closures.partition_closures import PartitionClosures
from biro.likelihood.densities.closures import ClosureSums, refuse_model
from biro.likelihood.densities.each_theta import (
    Complex,
    DensitySlopes,
    LikelihoodOfEachTheta,
    over_weight,
)
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.fisher import Fisher
from biro.likelihood.noise.varied_noise import VariedNoise
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from biro.observation.partition import Partition

Array = NDArray[np.float64]


class ClosureLikelihoodWithNoiseTerms(LikelihoodOfEachTheta):
    """The log-likelihood of closures whose covariance follows theta; a `GainTreatment`.

    Which visibilities closures are made of is decided by the stated noise: the data are the same for every
    theta.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
        With noise terms.
    engines : PartitionEngines

    Raises
    ------
    InputError
        There are no closures; or the model has gains with priors; or a class of baseline length has no data.
    """

    def __init__(self, observation: Observation, model: BoundModel, engines: PartitionEngines) -> None:
        refuse_model(model)
        self._stated, self._varied = ClosureSums.of(observation, engines), VariedNoise(observation, model)
        super().__init__(observation, model, engines, self._varied.terms, self._stated.normalisation())
        self._data = [part.vis for part in observation.partitions]
        self.noise = "Gaussian noise that differs among baselines"
        self.lines, self.identity = [*self._stated.tally.lines(), *self._varied.lines], [repr(SNR_LIMIT)]

    def _densities(self, batch: ThetaBatch) -> list[ClosuresOfTheta]:
        return [
            ClosuresOfTheta(
                self._closures(batch, b),
                batch.noise_factor[b],
                partial(self._variance_slopes, batch, b),
                self._observation.partitions,
            )
            for b in range(len(batch))
        ]

    def fisher(self, batch: ThetaBatch) -> Fisher:
        """The Fisher information of a batch of one; of the noise to the lowest order in its variance."""
        factor, closures, slopes = batch.noise_factor[0], [], self._varied.slopes()
        of_noise = np.zeros((self._model.n_param,) * 2)
        for i, each in enumerate(self._closures(batch, 0)):
            legs = each.sets.legs
            systematic, rest = self._variance_slopes(batch, 0, i)
            of_noise += each.noise_information((systematic + rest) @ slopes[i])
            # What Fisher divides by s^2.
            closures.append(each.with_noise(legs.variance / factor[i] ** 2, legs.thermal))
        sums = self._stated.with_closures(closures)
        return Fisher(self._model, self._engines, sums, self.n_data, batch, of_noise)

    def corrected(self, vis: Sequence[NDArray[np.complexfloating]], batch: ThetaBatch) -> Observation:
        """The data with the gains taken out that fit best, and the weights that their noise has then.

        But for the noise factor of the partition. Visibilities that no closures are made of have no weight.
        """
        sums = self._stated.with_closures(self._closures(batch, 0))
        return sums.corrected(self._varied.observed(batch, self._data), vis)

    def weights(
        self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None = None
    ) -> list[Array]:
        """s^2 / v of each partition for a batch of one, where the data are `vis`; by default as they are."""
        return self._varied.weights(batch, self._data if vis is None else vis)

    def _closures(self, batch: ThetaBatch, b: int) -> list[PartitionClosures]:
        """The closures of each partition, with the noise of entry b of a batch."""
        numbers, found = self._varied.terms(batch.theta)[b], []
        for i, (stated, noise) in enumerate(zip(self._stated.closures, self._varied.each, strict=True)):
            legs = stated.sets.legs
            weight = noise.weight(self._data[i], numbers, batch.noise_factor[b, i])[stated.at]
            variance = np.exp(-2.0 * legs.log_vis.real) / weight
            fraction2 = noise.fraction2(numbers, batch.noise_factor[b, i])[legs.row]
            found.append(stated.with_noise(variance, variance - fraction2))
        return found

    def _variance_slopes(self, batch: ThetaBatch, b: int, i: int) -> tuple[Array, Array]:
        """Derivatives of f^2 and of S' of the legs by the numbers and, last, s, (n_leg, n_number + 1)."""
        stated, numbers = self._stated.closures[i], self._varied.terms(batch.theta)[b]
        parts = self._varied.each[i].variance_slopes(stated.at, numbers, batch.noise_factor[b, i])
        relative = np.exp(-2.0 * stated.sets.legs.log_vis.real)[:, None]
        return relative * parts[0], relative * parts[1]


class ClosuresOfTheta(NamedTuple):
    """The density of closures with the noise of one theta: a `DataDensity`.

    Attributes
    ----------
    closures : sequence of PartitionClosures
        Of each partition.
    factor : float64 (n_partition,)
    variance_slopes : function of i
        Derivatives of the variances of legs, as `VariedNoise` has them.
    partitions : sequence of Partition
    """

    closures: Sequence[PartitionClosures]
    factor: Array
    variance_slopes: Callable[[int], tuple[Array, Array]]
    partitions: Sequence[Partition]

    def chi2(self, i: int, vis: Complex) -> float:
        """Chi-squared of closures without the noise factor s."""
        return float(self.closures[i].chi2(vis[None]).sum() * self.factor[i] ** 2)

    def log_likelihood(self, i: int, vis: Complex) -> float:
        """ln L."""
        return self.closures[i].log_norm - 0.5 * float(self.closures[i].chi2(vis[None]).sum())

    def slopes(self, i: int, vis: Complex) -> DensitySlopes:
        """ln L with its derivatives; 0 where it is not a number."""
        closures, (systematic, rest) = self.closures[i], self.variance_slopes(i)
        chi2, slope = closures.chi2_and_slope(vis[None])
        value = closures.log_norm - 0.5 * float(chi2.sum())
        if not np.isfinite(value):
            return DensitySlopes(value, np.zeros_like(slope[0]), np.zeros(rest.shape[1] - 1), 0.0)
        by_variance, by_thermal = closures.noise_slopes(vis)
        slopes = by_variance @ systematic + (by_variance + by_thermal) @ rest
        residual = over_weight(0.5 * slope[0], self.partitions[i])
        return DensitySlopes(value, residual, slopes[:-1], float(slopes[-1]))
