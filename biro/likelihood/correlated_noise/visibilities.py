"""Calibrated visibilities whose noise is correlated between neighbouring times or channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.correlated_noise.sequences import NoiseSequences, median_spacing
from biro.likelihood.densities.each_theta import (
    Complex,
    DensitySlopes,
    LikelihoodOfEachTheta,
    over_weight,
)
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.fisher import Fisher
from biro.likelihood.normalisation import Normalisation
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.models.quantities.parameter import Fixed
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from rime_kernels import Gradient, Sources
from rime_kernels.correlated_noise.covariance import Factors

Array = NDArray[np.float64]
_LAGS = (1, 2, 3, 4)
_SHARED = 0.6
"""Least over largest correlation of channels, at any distance, above which all share their noise."""
_SIGNIFICANCE, _LEAST = 5.0, 0.05
"""Standard deviations and size of a correlation that is left, below which the model of the noise is good."""


class VisibilityLikelihoodWithCorrelatedNoise(LikelihoodOfEachTheta):
    """The log-likelihood of visibilities with the noise covariance s^2 R; a `GainTreatment`.

    With x = sqrt(w) (D - V) of the N usable visibilities of a partition,

        ln L = -x^H R^-1 x / (2 s^2) - N ln(2 pi) + sum ln w - 2 N ln s - ln det R

    of complex samples whose real and imaginary parts have this covariance each
    (`rime_kernels.correlated_noise.covariance` has R). Model visibilities come from the engines, on any
    backend; the sums over them are taken here.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
        With correlated noise.
    engines : PartitionEngines

    Raises
    ------
    InputError
        Samples that no sequence can be made of (`NoiseSequences`).
    """

    def __init__(self, observation: Observation, model: BoundModel, engines: PartitionEngines) -> None:
        assert model.noise_correlation is not None
        self._normalisation = Normalisation.of_visibilities(observation.partitions)
        super().__init__(observation, model, engines, model.noise_correlation, self._normalisation)
        self._axis = str(model.model.noise.correlation)
        spacing = median_spacing(observation.partitions)
        self._each = [NoiseSequences(part, self._axis, spacing) for part in observation.partitions]
        over = f"times; rho is that over {spacing:.4g} s" if self._axis == "time" else "channels"
        self.noise = f"Gaussian noise, correlated between neighbouring {over}"
        self.identity: list[str] = []
        self.lines = [f"noise: {self.noise}"]

    def _densities(self, batch: ThetaBatch) -> list[CorrelatedNoiseOfTheta]:
        pairs = zip(self._numbers(batch.theta), batch.noise_factor, strict=True)
        shared = self._observation.partitions, self._each, self._normalisation
        return [
            CorrelatedNoiseOfTheta(*shared, [each.factors(numbers) for each in self._each], factor)
            for numbers, factor in pairs
        ]

    def fisher(self, batch: ThetaBatch) -> Fisher:
        """The Fisher information of a batch of one."""
        numbers, factor = self._numbers(batch.theta)[0], batch.noise_factor[0]
        of = [each.factors(numbers) for each in self._each]
        by_theta = self._numbers.pull_back(np.eye(2))
        by_factor = self._model.pull_back_noise(np.eye(len(self._each)))
        of_noise = np.zeros((self._model.n_param,) * 2)
        for each, one, s, slope in zip(self._each, of, factor, by_factor, strict=True):
            slopes = np.concatenate([by_theta, slope[None] / s])
            of_noise += slopes.T @ each.information(one) @ slopes
        sums = CorrelatedSums(self._engines, self._each, of)
        return Fisher(self._model, self._engines, sums, self.n_data, batch, of_noise)

    def corrected(self, vis: Sequence[NDArray[np.complexfloating]], batch: ThetaBatch) -> Observation:
        """The data as they are: gains are those of the model."""
        return self._observation

    def weights(
        self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None = None
    ) -> Sequence[NDArray[np.floating]]:
        """The weights that were stated: R has 1 on its diagonal."""
        return [part.weight for part in self._observation.partitions]

    def remarks(self, batch: ThetaBatch) -> list[str]:
        """Correlation that the model of the noise leaves in the residuals, for a batch of one."""
        models = self._predicted(batch)
        found, n = self._correlations(self.whitened(batch, models))
        far = [
            lag for lag, r in found.items() if abs(r) > max(_LEAST, _SIGNIFICANCE / math.sqrt(2.0 * n[lag]))
        ]
        if not far:
            return []
        worst = max(far, key=lambda lag: abs(found[lag]))
        what = f"{worst} {'times' if self._axis == 'time' else 'channels'} apart"
        remedy = "look at the residuals for a missing source or gain errors"
        if self._axis == "chan" and isinstance(self._model.model.noise.rho, Fixed):
            remedy = "fit rho of [noise], too, for correlation over more channels; or " + remedy
        parts = zip(self._observation.partitions, models, strict=True)
        raw, _ = self._correlations([np.sqrt(part.weight) * (part.vis - model) for part, model in parts])
        if self._axis == "chan" and len(raw) > 2 and min(raw.values()) > _SHARED * max(raw.values()):
            remedy = (
                "the noise of all channels of a row is correlated, which this model does not describe; "
                "average the channels (`--average-channels`)"
            )
        return [
            f"THE NOISE MODEL IS WRONG: residuals {what} still have a correlation of {found[worst]:.2f} "
            f"beyond the fitted one. {remedy[0].upper()}{remedy[1:]}"
        ]

    def _correlations(
        self, values: Sequence[NDArray[np.complex128]]
    ) -> tuple[dict[int, float], dict[int, int]]:
        """Correlation of neighbours at some distances, of all partitions, and numbers of pairs."""
        found, number = {}, {}
        for lag in _LAGS:
            pairs = [each.correlation(one, lag) for each, one in zip(self._each, values, strict=True)]
            n = sum(n for _, n in pairs)
            if n:
                found[lag], number[lag] = sum(r * n for r, n in pairs) / n, n
        return found, number

    def whitened(
        self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]]
    ) -> list[NDArray[np.complex128]]:
        """sqrt(w) (D - V) without its correlation, of variance s^2, for a batch of one.

        `vis` are model visibilities (n_row, n_chan, n_corr) of each partition.
        """
        numbers = self._numbers(batch.theta)[0]
        parts = zip(self._each, self._observation.partitions, vis, strict=True)
        return [each.whitened(part.vis - model, each.factors(numbers)) for each, part, model in parts]

    def coloured(
        self, batch: ThetaBatch, white: Sequence[NDArray[np.complex128]]
    ) -> list[NDArray[np.complex128]]:
        """Independent noise of variance 1 with the correlation of a batch of one."""
        numbers = self._numbers(batch.theta)[0]
        return [
            each.coloured(one, each.factors(numbers)) for each, one in zip(self._each, white, strict=True)
        ]


class CorrelatedNoiseOfTheta(NamedTuple):
    """The density of visibilities with the noise covariance of one theta: a `DataDensity`.

    Attributes
    ----------
    partitions : sequence of Partition
    each : sequence of NoiseSequences
        Of each partition.
    normalisation : Normalisation
        Of independent noise.
    of : sequence of Factors
        Of R^-1 of each partition.
    factor : float64 (n_partition,)
    """

    partitions: Sequence[Partition]
    each: Sequence[NoiseSequences]
    normalisation: Normalisation
    of: Sequence[Factors]
    factor: Array

    def chi2(self, i: int, vis: Complex) -> float:
        """x^H R^-1 x: with the noise factor left out."""
        return self.each[i].square(vis - self.partitions[i].vis, self.of[i])

    def log_likelihood(self, i: int, vis: Complex) -> float:
        """ln L."""
        value = self.normalisation.of_partition(i, self.chi2(i, vis), self.factor[i])
        return value - self.each[i].log_det(self.of[i])[0]

    def slopes(self, i: int, vis: Complex) -> DensitySlopes:
        """ln L with its derivatives."""
        part, factor = self.partitions[i], self.factor[i]
        squares = self.each[i].squares(vis - part.vis, self.of[i])
        log_det, by_log_det = self.each[i].log_det(self.of[i])
        value = self.normalisation.of_partition(i, squares.value, factor) - log_det
        by_factor = (squares.value / factor**2 - self.normalisation.n_data[i]) / factor
        by_number = -0.5 * squares.by_number / factor**2 - by_log_det
        return DensitySlopes(value, over_weight(squares.weighted / factor**2, part), by_number, by_factor)


class CorrelatedSums:
    """Products of derivatives of visibilities with the inverse of a covariance that is not diagonal.

    Parameters
    ----------
    engines : PartitionEngines
    each : sequence of NoiseSequences
    of : sequence of Factors
        Of each partition.
    """

    def __init__(
        self,
        engines: PartitionEngines,
        each: Sequence[NoiseSequences],
        of: Sequence[Factors],
    ) -> None:
        self._rimes, self._partitions, self._each, self._of = engines.rimes, engines.partitions, each, of

    def information(self, i: int, sources: Sources, change: Gradient) -> Array:
        """Re(J^H C^-1 J) s^2 between changes of the sources of partition i."""
        return self._each[i].products(self._rimes[i].tangent(sources, change), self._of[i])

    def information_product(self, i: int, sources: Sources, change: Gradient) -> Gradient:
        """Re(J^H C^-1 J v) s^2 for one change v of the sources of partition i."""
        (column,) = self._rimes[i].tangent(sources, change)
        weighted = self._each[i].weighted(column, self._of[i])[None]
        return self._rimes[i].adjoint(sources, over_weight(weighted, self._partitions[i]))
