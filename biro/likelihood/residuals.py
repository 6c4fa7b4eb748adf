"""What a sky model leaves of the data, and the noise that is expected there, for one parameter vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.diagnosis.residual_data import ResidualData
from biro.likelihood.correlated_noise.visibilities import VisibilityLikelihoodWithCorrelatedNoise
from biro.likelihood.densities.gain_treatment import InnerGainTreatment
from biro.likelihood.density import Density
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.integrals.inner_fit import InnerLikelihood
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.noise import MAX_SAMPLES, some_rows
from biro.observation.observation import Observation
from rime_kernels import Sources

Array = NDArray[np.float64]
Models = Sequence[NDArray[np.complexfloating]] | None
"""Model visibilities (n_row, n_chan, n_corr), Jy, of each partition."""


class Residuals(Density):
    """Model visibilities and residuals of a likelihood.

    Attributes
    ----------
    observation : Observation
        All data.
    """

    observation: Observation
    _engines: PartitionEngines

    @property
    def _of_all_data(self) -> Residuals:
        """The likelihood of the same data without cells, whose visibilities are those of all rows."""
        return self

    def predict(self, theta: ArrayLike) -> list[NDArray[np.complexfloating]]:
        """Model visibilities (n_row, n_chan, n_corr) of each partition, for one vector theta.

        Marginalised quantities of the sky have their most probable values, given theta; gains that are
        integrated over or solved for are taken out of the data instead (`corrected`).
        """
        if self._of_all_data is not self:
            return self._of_all_data.predict(theta)
        return [vis[0] for vis in self._engines.predict(self._sky_batch(theta))]

    def residual_data(self, theta: ArrayLike) -> list[ResidualData]:
        """Data and model visibilities for one vector theta, with the gains of the fit taken out.

        Of large data some baselines and channels are taken, about a million visibilities in all.
        """
        every = self.predict(theta) if self._looks_at_all else None
        models = self.residual_models(theta) if every is None else every
        data, factors, found = self.independent(theta, every).partitions, self.noise_factor(theta), []
        sky = self._sky_batch(theta).sources()
        parts = zip(data, self._looked_at, models, factors, sky, strict=True)
        for part, (rows, channels), model, factor, sources in parts:
            where = _places(sources)
            found.append(ResidualData(part.some(rows, channels), model, float(factor), where))
        return found

    def residual_models(self, theta: ArrayLike) -> list[NDArray[np.complexfloating]]:
        """Model visibilities for one vector theta, where `residual_data` has them."""
        whole = self._of_all_data
        if self._looks_at_all:
            return whole.predict(theta)
        batch = whole._sky_batch(theta)
        return [whole._engines.predict_some(batch, i, *some) for i, some in enumerate(self._looked_at)]

    @property
    def _looked_at(self) -> list[tuple[NDArray[np.int64], slice]]:
        """Rows and channels of each partition that `residual_data` has."""
        parts = self.observation.partitions
        size = sum(part.vis.size for part in parts)
        return [some_rows(part, size) for part in parts]

    @property
    def _looks_at_all(self) -> bool:
        parts = self.observation.partitions
        return not self.observation.is_distributed and sum(part.vis.size for part in parts) <= MAX_SAMPLES

    def corrected(self, theta: ArrayLike, models: Models = None) -> Observation:
        """The data, with the gains taken out that fit best for one vector theta; as they are with "sample".

        With "closures", visibilities that no closures are made of have no weight. Where noise differs among
        baselines, weights are those that it has at theta, but for `noise_factor`. `models` is what `predict`
        gives for theta, where that is known.
        """
        if self.observation.is_distributed:  # which no gains are taken out of
            return self.observation
        if self._of_all_data is not self:
            return self._of_all_data.corrected(theta, models)
        return self._treatment.corrected(models or self.predict(theta), self._one(theta))

    def sigma(self, theta: ArrayLike, vis: Sequence[NDArray[np.complexfloating]]) -> list[Array]:
        """Noise of the real and of the imaginary part of data that are `vis` but for their noise, in Jy.

        Of each partition, float64 (n_row, n_chan, n_corr), for one vector theta; 0 where the weight is 0.
        """
        batch, found = self._one(theta), []
        weights = self._treatment.weights(batch, vis)
        for weight, factor in zip(weights, batch.noise_factor[0], strict=True):
            variance = np.divide(1.0, weight, out=np.zeros(weight.shape), where=weight > 0)
            found.append(factor * np.sqrt(variance))
        return found

    def noise(self, theta: ArrayLike, rng: np.random.Generator) -> list[NDArray[np.complex128]]:
        """A draw of Gaussian noise over `sigma`, (n_row, n_chan, n_corr) of each partition, for one theta.

        Real and imaginary parts have variance 1, and the correlation that the model states between samples.
        """
        shapes = [part.vis.shape for part in self.observation.partitions]
        drawn = [rng.standard_normal((*shape, 2)).view(np.complex128)[..., 0] for shape in shapes]
        if isinstance(self._treatment, VisibilityLikelihoodWithCorrelatedNoise):
            return self._treatment.coloured(self._one(theta), drawn)
        return drawn

    def independent(self, theta: ArrayLike, models: Models = None) -> Observation:
        """The data as for `corrected`, for tests that take residuals as independent of one another.

        Where the model has noise that is correlated, they are V + z / sqrt(w), with the model visibilities V
        and z what is left of the residuals without that correlation. `models` is as for `corrected`.
        """
        data = self.corrected(theta, models)
        if not isinstance(self._treatment, VisibilityLikelihoodWithCorrelatedNoise):
            return data
        models, parts = models or self.predict(theta), []
        white = self._treatment.whitened(self._one(theta), models)
        for part, model, z in zip(data.partitions, models, white, strict=True):
            root = np.sqrt(part.weight, dtype=np.float64)
            vis = np.where(
                root > 0.0, model + np.divide(z, root, out=np.zeros_like(z), where=root > 0.0), 0.0
            )
            parts.append(replace(part, vis=vis))
        return replace(data, partitions=tuple(parts))

    @property
    def _inner(self) -> InnerGainTreatment | None:
        """What parameters are integrated over or solved for by; None where theta has all of them."""
        is_inner = isinstance(self._treatment, InnerLikelihood)
        return cast("InnerGainTreatment", self._treatment) if is_inner else None

    def _sky_batch(self, theta: ArrayLike) -> ThetaBatch:
        """One vector theta, as visibilities are predicted from it."""
        batch = self._one(theta)
        return batch if self._inner is None else self._inner.of_sky(batch)


def _places(sources: Sources) -> NDArray[np.float64] | None:
    """Direction cosines and FWHM (rad) of sources, float64 (n_source, 3); None beside images."""
    if sources.template_scale is not None or not np.isfinite(sources.lm[0]).all():
        return None
    places = np.zeros((sources.lm.shape[1], 3))
    places[:, :2] = sources.lm[0]
    n_shape = sources.shape.shape[1]
    if n_shape:
        places[-n_shape:, 2] = np.sqrt(np.abs(sources.shape[0, :, 0] * sources.shape[0, :, 1]))
    return places
