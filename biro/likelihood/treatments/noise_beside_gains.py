"""Noise beside gains that are integrated over or solved for: as weights state it, or as theta says.

At the best gains, and with the determinant of Laplace's method, ln L depends on the weight u = 1/v of a
sample D with the model V and the gain g through

    ln u - u |D|^2 / 2 + u (a |g|^2 |V|^2 + Re(conj(b) conj(g) D conj(V)))

to first order, a and b being the derivatives by the sums |g|^2 sum u |V|^2 and conj(g) sum u D conj(V) of its
cell (`rime_kernels.gains.curvature`): -1/2 and 1 at the best gains alone, which makes |D - g V|^2 / 2 of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.free_gains.best_gains import BestGains, Slopes
from biro.likelihood.normalisation import Normalisation
from biro.likelihood.treatments.noise_of_baselines import squared
from biro.likelihood.treatments.varied_noise import VariedNoise
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from rime_kernels.gains.models import HostModel

Array = NDArray[np.float64]


class NoiseBesideGains(Protocol):
    """What the noise makes of a sky and its best gains; batches are of one theta."""

    lines: list[str]
    is_parameter: NDArray[np.bool_]
    """Whether each parameter of theta is one of the noise, (n_param,)."""

    def weights(self, batch: ThetaBatch) -> list[Array] | None:
        """s^2 / v of each partition, with the noise factor s of the partition; None where as stated."""
        ...

    def log_likelihood(self, batch: ThetaBatch, chi2: Array) -> float:
        """ln L, for chi2 (n_partition,) with these weights."""
        ...

    def slopes(self, batch: ThetaBatch, best: BestGains, slopes: Slopes) -> Array:
        """Derivatives by theta through the noise (n_param,), of what has these slopes by sums of cells."""
        ...

    def information(self, batch: ThetaBatch) -> Array | None:
        """The information on the noise (n_param, n_param); None where it is that of factors alone."""
        ...


class StatedNoise:
    """Noise as weights state it, times a factor for each partition; see `NoiseBesideGains`."""

    def __init__(self, observation: Observation, model: BoundModel) -> None:
        self._normalisation = Normalisation.of_visibilities(observation.partitions)
        self._model, self.lines = model, list[str]()
        self.is_parameter = np.isin(np.arange(model.n_param), list(model.noise_parameters))

    def weights(self, batch: ThetaBatch) -> list[Array] | None:
        """None: as stated."""
        return None

    def log_likelihood(self, batch: ThetaBatch, chi2: Array) -> float:
        """See `NoiseBesideGains`."""
        return float(self._normalisation.log_likelihood(chi2[None], batch.noise_factor)[0])

    def slopes(self, batch: ThetaBatch, best: BestGains, slopes: Slopes) -> Array:
        """See `NoiseBesideGains`."""
        _, by_factor = self._normalisation.slopes(best.chi2[None], batch.noise_factor)
        return np.asarray(self._model.pull_back_noise(by_factor + best.by_factor(slopes))[0])

    def information(self, batch: ThetaBatch) -> Array | None:
        """None: that of factors."""
        return None


class NoiseOfTheta:
    """Noise that differs among baselines as theta says; see `NoiseBesideGains`."""

    def __init__(self, observation: Observation, model: BoundModel) -> None:
        self._varied, self._data = VariedNoise(observation, model), [p.vis for p in observation.partitions]
        self.lines, self.is_parameter = self._varied.lines, self._varied.is_parameter

    def weights(
        self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None = None
    ) -> list[Array]:
        """See `NoiseBesideGains`; where the data are `vis`, if given."""
        return self._varied.weights(batch, vis)

    def log_likelihood(self, batch: ThetaBatch, chi2: Array) -> float:
        """See `NoiseBesideGains`."""
        numbers, factor = self._varied.terms(batch.theta)[0], batch.noise_factor[0]
        norm = sum(one.log_norm(numbers, s) for one, s in zip(self._varied.each, factor, strict=True))
        return float(norm - 0.5 * np.sum(chi2 / factor**2))

    def slopes(self, batch: ThetaBatch, best: BestGains, slopes: Slopes) -> Array:
        """See `NoiseBesideGains`."""
        numbers, factor = self._varied.terms(batch.theta)[0], batch.noise_factor[0]
        by_number, by_factor = np.zeros((1, numbers.size)), np.zeros((1, factor.size))
        by_power, by_cross = slopes[0], slopes[1] + 1j * slopes[2]
        for i, (cells, data) in enumerate(zip(best.free.layout.partitions, self._data, strict=True)):
            model, n_corr = best.models[i], data.shape[2]
            assert isinstance(model, HostModel), "weights of theta are not on a device"
            seen = cells.of_visibilities(best.gain, n_corr) * model.vis
            half = 0.5 * squared(data) - cells.of_visibilities(by_power, n_corr) * squared(seen)
            half -= (np.conj(cells.of_visibilities(by_cross, n_corr) * seen) * data).real
            found, by_factor[0, i] = self._varied.each[i].noise_slopes(half, numbers, factor[i])
            by_number += found
        return np.asarray(self._varied.pull_back(by_number, by_factor)[0])

    def information(self, batch: ThetaBatch) -> Array | None:
        """See `NoiseBesideGains`."""
        return self._varied.information(batch)
