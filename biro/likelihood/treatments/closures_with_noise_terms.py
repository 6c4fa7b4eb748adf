"""`gains="closures"` where the noise differs among the baselines of a partition as the model says.

The variances of phases and log amplitudes of the visibilities D are S = s^2 s_p s_q (sigma / |D|)^2 + f^2 +
(a / |D|)^2, with s, f and a of `biro.likelihood.treatments.noise_of_baselines`; their thermal part is
S' = S - f^2. A fraction f of the amplitude is f in its logarithm whatever the amplitude is. The thermal part
has |D|, for gains are not known: the model has no amplitude to be compared with sigma.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.closures.legs import SNR_LIMIT
from biro.likelihood.closures.partition_closures import PartitionClosures
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.fisher import Fisher
from biro.likelihood.treatments.closures import ClosureSums, possible, refuse_model
from biro.likelihood.treatments.varied_noise import VariedNoise
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from rime_kernels import Gradient

Array = NDArray[np.float64]


class ClosureLikelihoodWithNoiseTerms:
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
        self._observation, self._model, self._engines = observation, model, engines
        self._data = [part.vis for part in observation.partitions]
        self._stated, self._varied = ClosureSums.of(observation, engines), VariedNoise(observation, model)
        normalisation = self._stated.normalisation()
        self.n_vis, self.n_data = normalisation.n_vis, normalisation.n_data
        self.noise = "Gaussian noise that differs among baselines"
        self.lines, self.identity = [*self._stated.tally.lines(), *self._varied.lines], [repr(SNR_LIMIT)]

    def chi2(self, batch: ThetaBatch) -> Array:
        """Chi-squared of closures without the noise factor s, (n_batch, n_partition)."""
        return self._values(batch)[0] * batch.noise_factor**2

    def log_likelihood(self, batch: ThetaBatch) -> Array:
        """ln L (n_batch,)."""
        return np.asarray(self._values(batch)[1].sum(axis=1))

    def log_likelihood_and_gradient(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """ln L (n_batch,) and its derivatives (n_batch, n_param)."""
        value, by_number = np.zeros(len(batch)), np.zeros((len(batch), self._varied.terms.n_number))
        by_factor, gradients = np.zeros(batch.noise_factor.shape), []
        sums = [self._stated.with_closures(self._closures(batch, b)) for b in range(len(batch))]
        of_model = list(batch.sources())
        for i, sources in enumerate(self._engines.shifts.of_all(iter(of_model))):
            parts = []
            for b, each in enumerate(sums):
                chi2, gradient, vis = each.of_one(i, sources.entries(b, b + 1))
                parts.append(gradient)
                value[b] += each.closures[i].log_norm - 0.5 * chi2
                if vis is not None and np.isfinite(chi2):
                    by_variance, by_thermal = each.closures[i].noise_slopes(vis)
                    systematic, rest = self._variance_slopes(batch, b, i)
                    slopes = by_variance @ systematic + (by_variance + by_thermal) @ rest
                    by_number[b] += slopes[:-1]
                    by_factor[b, i] = slopes[-1]
            joined = Gradient.joined(parts)
            gradients.append(self._engines.shifts.pull_back(i, of_model[i], joined))
        by_chi2 = np.full(batch.noise_factor.shape, -0.5)
        return value, self._varied.pull_back(by_number, by_factor) + batch.pull_back(gradients, by_chi2)

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

    def remarks(self, batch: ThetaBatch) -> list[str]:
        """Nothing: the value is exact."""
        return []

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

    def _values(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """chi2 and ln L, (n_batch, n_partition); NaN for impossible sources."""
        chi2 = np.full((len(batch), len(self.n_vis)), np.nan)
        norm = chi2.copy()
        closures = [self._closures(batch, b) for b in range(len(batch))]
        for i, sources in enumerate(self._engines.sources(batch)):
            for rows, some in possible(sources, self._observation.partitions[i]):
                vis = self._engines.rimes[i].predict(some)
                for b, one in zip(range(rows.start, rows.stop), vis, strict=True):
                    chi2[b, i] = closures[b][i].chi2(one[None]).sum()
                    norm[b, i] = closures[b][i].log_norm
        return chi2, norm - 0.5 * chi2

    def _variance_slopes(self, batch: ThetaBatch, b: int, i: int) -> tuple[Array, Array]:
        """Derivatives of f^2 and of S' of the legs by the numbers and, last, s, (n_leg, n_number + 1)."""
        stated, numbers = self._stated.closures[i], self._varied.terms(batch.theta)[b]
        parts = self._varied.each[i].variance_slopes(stated.at, numbers, batch.noise_factor[b, i])
        relative = np.exp(-2.0 * stated.sets.legs.log_vis.real)[:, None]
        return relative * parts[0], relative * parts[1]
