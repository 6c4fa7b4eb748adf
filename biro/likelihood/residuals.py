"""What a sky model leaves of the data, and the noise that is expected there, for one parameter vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.likelihood.correlated_noise.visibilities import VisibilitiesWithCorrelatedNoise
from biro.likelihood.density import Density
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.treatments.fluxes_beside_gains import FluxesBesideGains
from biro.likelihood.treatments.inner_gains import InnerGains
from biro.likelihood.treatments.linear import Linear
from biro.likelihood.treatments.treatment import InnerTreatment
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.noise import residual_scatter
from biro.observation.observation import Observation

Array = NDArray[np.float64]


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

    def residual_scatter(self, theta: ArrayLike, partitions: Sequence[int]) -> list[tuple[float, float]]:
        """How the residuals of these partitions scatter, and how from one time to the next.

        See `biro.observation.noise.residual_scatter`; for one vector theta.
        """
        data, whole = self.independent(theta).partitions, self._of_all_data
        # Gains that fit best make residuals smaller: so many of them are independent.
        share = np.sqrt(2.0 * self.n_vis / np.maximum(self.n_data, 1))
        model_of = partial(whole._engines.predict_some, whole._sky_batch(theta))
        found = [(share[i], residual_scatter(data[i], partial(model_of, i))) for i in partitions]
        return [(factor * scatter, factor * step) for factor, (scatter, step) in found]

    def corrected(self, theta: ArrayLike) -> Observation:
        """The data, with the gains taken out that fit best for one vector theta; as they are with "sample".

        With "closures", visibilities that no closures are made of have no weight. Where noise differs among
        baselines, weights are those that it has at theta, but for `noise_factor`.
        """
        if self.observation.is_held:  # which no gains are taken out of
            return self.observation
        if self._of_all_data is not self:
            return self._of_all_data.corrected(theta)
        return self._treatment.corrected(self.predict(theta), self._one(theta))

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
        if isinstance(self._treatment, VisibilitiesWithCorrelatedNoise):
            return self._treatment.coloured(self._one(theta), drawn)
        return drawn

    def independent(self, theta: ArrayLike) -> Observation:
        """The data as for `corrected`, for tests that take residuals as independent of one another.

        Where the model has noise that is correlated, they are V + z / sqrt(w), with the model visibilities V
        and z what is left of the residuals without that correlation.
        """
        data = self.corrected(theta)
        if not isinstance(self._treatment, VisibilitiesWithCorrelatedNoise):
            return data
        models, parts = self.predict(theta), []
        white = self._treatment.whitened(self._one(theta), models)
        for part, model, z in zip(data.partitions, models, white, strict=True):
            root = np.sqrt(part.weight, dtype=np.float64)
            vis = np.where(
                root > 0.0, model + np.divide(z, root, out=np.zeros_like(z), where=root > 0.0), 0.0
            )
            parts.append(replace(part, vis=vis))
        return replace(data, partitions=tuple(parts))

    @property
    def _inner(self) -> InnerTreatment | None:
        """What parameters are integrated over or solved for by; None where theta has all of them."""
        found = self._treatment
        return found if isinstance(found, Linear | InnerGains | FluxesBesideGains) else None

    def _sky_batch(self, theta: ArrayLike) -> ThetaBatch:
        """One vector theta, as visibilities are predicted from it."""
        batch = self._one(theta)
        return batch if self._inner is None else self._inner.of_sky(batch)
