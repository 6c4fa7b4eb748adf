"""Calibrated visibilities whose noise is correlated between neighbouring times or channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.correlated_noise.sequences import NoiseSequences, median_spacing
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.fisher import Fisher
from biro.likelihood.normalisation import Normalisation
from biro.likelihood.treatments.closures import possible
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.models.quantities.parameter import Fixed
from biro.observation.observation import Observation
from rime_kernels import Gradient, Sources
from rime_kernels.correlated_noise.covariance import Factors

Array = NDArray[np.float64]
_LAGS = (1, 2, 3, 4)
_SHARED = 0.6
"""Least over largest correlation of channels, at any distance, above which all share their noise."""
_SIGNIFICANCE, _LEAST = 5.0, 0.05
"""Standard deviations and size of a correlation that is left, below which the model of the noise is good."""


class VisibilityLikelihoodWithCorrelatedNoise:
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
        self._observation, self._model, self._engines = observation, model, engines
        self._numbers, self._axis = model.noise_correlation, str(model.model.noise.correlation)
        spacing = median_spacing(observation.partitions)
        self._each = [NoiseSequences(part, self._axis, spacing) for part in observation.partitions]
        self._normalisation = Normalisation.of_visibilities(observation.partitions)
        self.n_vis, self.n_data = self._normalisation.n_vis, self._normalisation.n_data
        over = f"times; rho is that over {spacing:.4g} s" if self._axis == "time" else "channels"
        self.noise = f"Gaussian noise, correlated between neighbouring {over}"
        self.identity: list[str] = []
        self.lines = [f"noise: {self.noise}"]

    def chi2(self, batch: ThetaBatch) -> Array:
        """x^H R^-1 x, (n_batch, n_partition): with the noise factor left out."""
        return self._chi2_and_log_det(batch)[0]

    def log_likelihood(self, batch: ThetaBatch) -> Array:
        """ln L (n_batch,)."""
        chi2, log_det = self._chi2_and_log_det(batch)
        return self._log_likelihood(batch, chi2) - log_det

    def log_likelihood_and_gradient(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """ln L (n_batch,) and its derivatives (n_batch, n_param)."""
        numbers, factor = self._numbers(batch.theta), batch.noise_factor
        chi2, log_det = np.full(factor.shape, np.nan), np.zeros(len(batch))
        by_number, gradients, of_model = np.zeros_like(numbers), [], list(batch.sources())
        for i, sources in enumerate(self._engines.shifts.of_all(iter(of_model))):
            each = self._each[i]
            parts = {
                b: self._engines.rimes[i].chi2_and_gradient(sources.entries(b, b + 1))[1]
                for b in np.flatnonzero(sources.invalid()).tolist()
            }
            for rows, some, residuals in self._residuals(i, sources):
                for b, residual in zip(range(rows.start, rows.stop), residuals, strict=True):
                    of = each.factors(numbers[b])
                    squares, (volume, by_volume) = each.squares(residual, of), each.log_det(of)
                    chi2[b, i], log_det[b] = squares.value, log_det[b] + volume
                    by_number[b] -= 0.5 * squares.by_number / factor[b, i] ** 2 + by_volume
                    residual[...] = squares.weighted
                parts[rows.start] = self._pulled(i, some, residuals)
            joined = Gradient.joined([parts[b] for b in sorted(parts)])
            gradients.append(self._engines.shifts.pull_back(i, of_model[i], joined))
        by_factor = self._normalisation.slopes(chi2, factor)[1]
        of_noise = self._model.pull_back_noise(by_factor) + self._numbers.pull_back(by_number)
        value = self._log_likelihood(batch, chi2) - log_det
        return value, of_noise + batch.pull_back(gradients, -1.0 / factor**2)

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
        sums = CorrelatedSums(self._engines, self._each, of, self._pulled)
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
        models = [vis[0] for vis in self._engines.predict(batch)]
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

    def _chi2_and_log_det(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """x^H R^-1 x (n_batch, n_partition), and ln det R (n_batch,)."""
        numbers, log_det = self._numbers(batch.theta), np.zeros(len(batch))
        chi2 = np.full((len(batch), len(self._each)), np.nan)
        for i, sources in enumerate(self._engines.sources(batch)):
            for rows, _, residuals in self._residuals(i, sources):
                for b, residual in zip(range(rows.start, rows.stop), residuals, strict=True):
                    of = self._each[i].factors(numbers[b])
                    chi2[b, i] = self._each[i].square(residual, of)
                    log_det[b] += self._each[i].log_det(of)[0]
        return chi2, log_det

    def _log_likelihood(self, batch: ThetaBatch, chi2: Array) -> Array:
        """ln L of independent noise."""
        return self._normalisation.log_likelihood(chi2, self._normalisation.of_factor(batch.noise_factor))

    def _residuals(self, i: int, sources: Sources) -> Iterator[tuple[slice, Sources, NDArray[np.complex128]]]:
        """Entries of a batch that are possible, some at a time, with V - D of partition i."""
        part = self._observation.partitions[i]
        for rows, some in possible(sources, part):
            yield rows, some, np.asarray(self._engines.rimes[i].predict(some) - part.vis, np.complex128)

    def _pulled(self, i: int, sources: Sources, weighted: NDArray[np.complex128]) -> Gradient:
        """Re(J^H y) of y (n_batch, n_row, n_chan, n_corr), for which an adjoint takes y over the weights."""
        weight = self._observation.partitions[i].weight
        divided = np.divide(weighted, weight, out=np.zeros_like(weighted), where=weight > 0)
        return self._engines.rimes[i].adjoint(sources, divided)


class CorrelatedSums:
    """Products of derivatives of visibilities with the inverse of a covariance that is not diagonal.

    Parameters
    ----------
    engines : PartitionEngines
    each : sequence of NoiseSequences
    of : sequence of Factors
        Of each partition.
    pulled : function of i, sources and y
        Re(J^H y) of partition i.
    """

    def __init__(
        self,
        engines: PartitionEngines,
        each: Sequence[NoiseSequences],
        of: Sequence[Factors],
        pulled: Callable[[int, Sources, NDArray[np.complex128]], Gradient],
    ) -> None:
        self._rimes, self._each, self._of, self._pulled = engines.rimes, each, of, pulled

    def information(self, i: int, sources: Sources, change: Gradient) -> Array:
        """Re(J^H C^-1 J) s^2 between changes of the sources of partition i."""
        return self._each[i].products(self._rimes[i].tangent(sources, change), self._of[i])

    def information_product(self, i: int, sources: Sources, change: Gradient) -> Gradient:
        """Re(J^H C^-1 J v) s^2 for one change v of the sources of partition i."""
        (column,) = self._rimes[i].tangent(sources, change)
        return self._pulled(i, sources, self._each[i].weighted(column, self._of[i])[None])
