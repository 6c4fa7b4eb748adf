"""The model of the data of an image with planes: Stokes parameters, frequencies, and antennas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from biro.files.json_value import JsonValue
from biro.image_posterior.operator import ImageOperator, Vis, with_data
from biro.image_posterior.sampling.jax_operator import UsedData, real_parts, visibility_function
from biro.image_posterior.sampling.models.leakage_model import AntennaModel
from biro.image_posterior.sampling.models.noise_model import NoiseModel
from biro.image_posterior.sampling.models.visibility_model import VisibilityModel
from biro.image_posterior.sampling.sky_priors import SkyPrior
from biro.models.sky import SkyModel

Array = NDArray[np.float64]


def all_correlations(used: UsedData) -> UsedData:
    """All four correlations of the rows and channels of which any counts: each is made of all by leakage."""
    return UsedData([np.broadcast_to(one.any(axis=2, keepdims=True), one.shape) for one in used.places])


class PlanesModel(VisibilityModel):
    """Visibilities of an image of several frequencies, as `VisibilityModel` of one.

    Parameters
    ----------
    operator, prior, gains, noise, fixed, used
        As of `VisibilityModel`.
    n_stokes : int
    """

    def __init__(self, operator: ImageOperator, prior: SkyPrior, *, n_stokes: int = 1, **others: Any) -> None:
        super().__init__(operator, prior, **others)
        self.predict = visibility_function(operator, self.used, n_stokes)

    def centre(self, mean: Array) -> Array:
        """The image of a state, as the operator predicts it, Jy/pixel."""
        return np.asarray(self.image(jnp.asarray(mean)))


class PolarisedModel(PlanesModel):
    """Visibilities of a polarised image, with leakages and gains of antennas (`AntennaModel`).

    Parameters
    ----------
    operator : ImageOperator
        Of data with four correlations.
    prior : SkyPrior
        Of I, Q, U or I, Q, U, V.
    sky : SkyModel
    n_stokes : 3 or 4
    noise : NoiseModel, optional
    fixed : sequence of complex (n_row, n_chan, 4), Jy, optional
        Components beside the image, as antennas without leakage see them.
    used : UsedData, optional
    """

    antennas: AntennaModel

    def __init__(
        self,
        operator: ImageOperator,
        prior: SkyPrior,
        sky: SkyModel,
        *,
        n_stokes: int,
        noise: NoiseModel | None = None,
        fixed: Sequence[Vis] | None = None,
        used: UsedData | None = None,
    ) -> None:
        used = used or UsedData(operator.weights)
        self.cells = all_correlations(used)
        self.antennas = AntennaModel(sky, operator.observation, self.cells)
        super().__init__(operator, prior, n_stokes=n_stokes, gains=self.antennas, noise=noise, used=used)
        self.predict = visibility_function(operator, self.cells, n_stokes)
        self._fixed = None if fixed is None else real_parts(self.cells.taken(fixed))
        self._kept = np.flatnonzero(self.cells.taken([1 * place for place in used.places]))

    def predicted(self, xi: Any) -> Any:
        """Real and imaginary parts of the model of the data, (2, n_data), Jy."""
        sky = self.predict(self.image(xi))
        if self._fixed is not None:
            sky = sky + self._fixed
        if not self.antennas.changes_nothing:
            matrices = (sky[0] + 1j * sky[1]).reshape(-1, 2, 2)
            vis = self.antennas.applied(xi[self.at.gains], matrices).reshape(-1)
            sky = jnp.stack([vis.real, vis.imag])
        return sky[:, self._kept]

    def calibrated(self, mean: Array, data: Sequence[Vis], operator: ImageOperator) -> ImageOperator:
        """Data with what antennas did taken out: those of the image of a state, plus the residuals of all.

        Residuals are divided by gains, and weights multiplied, so that chi2 is that of the whole model.
        """
        model = np.asarray(self.predicted(jnp.asarray(mean)))
        factor = self.antennas.factors(jnp.asarray(mean[self.at.gains])).reshape(-1)[self._kept]
        left = (self.used.taken(data) - (model[0] + 1j * model[1])) / factor
        plain = operator.predict(self.centre(mean))
        found = [vis + one for vis, one in zip(plain, self.used.put(left), strict=True)]
        by = self.used.put(np.abs(factor) ** 2)
        weights = [weight * one for weight, one in zip(operator.weights, by, strict=True)]
        return with_data(operator, found, weights)

    def leakages(self, states: Array) -> tuple[Array, dict[str, JsonValue]]:
        """Leakages of samples, (n_sample, n_leakage), and their means and errors by name."""
        xi = jnp.asarray(states[:, self.at.gains])
        found = np.asarray(jax.vmap(self.antennas.leakages)(xi))
        one = len(found) == 1
        spread = [None] * found.shape[1] if one else found.std(axis=0, ddof=1).tolist()
        names = self.antennas.leakage_names
        table: dict[str, JsonValue] = {
            name: {"mean": mean, "sd": sd}
            for name, mean, sd in zip(names, found.mean(axis=0).tolist(), spread, strict=True)
        }
        return found, table
