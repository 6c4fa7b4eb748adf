"""The model of the data of an image: visibilities with gains and noise, as functions of normal numbers.

The whole state is one row of numbers xi with a standard normal prior: those of the sky, gains, noise and
components.
Data and model are divided by the stated noise, so that the likelihood is that of unit noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import nifty.re as jft
import numpy as np
from jax import ShapeDtypeStruct
from jax.tree_util import Partial
from numpy.typing import NDArray

from biro.image_posterior.operator import ImageOperator, Vis
from biro.image_posterior.sampling.jax_operator import UsedData, real_parts, visibility_function
from biro.image_posterior.sampling.models.closure_model import ClosureModel
from biro.image_posterior.sampling.models.component_model import ComponentModel
from biro.image_posterior.sampling.models.gain_model import GainModel
from biro.image_posterior.sampling.models.noise_model import NoiseModel
from biro.image_posterior.sampling.sky_priors import SkyPrior

Array = NDArray[np.float64]
_CENTRED = 0.5
"""Error of a centroid that is a convention, pixels."""


class Sections(NamedTuple):
    """Where the numbers of each part stand in the row of all of them."""

    sky: slice
    gains: slice
    noise: slice
    components: slice = slice(0, 0)


class VisibilityModel:
    """Visibilities of an image with gains, noise and components beside it.

        V = g_p conj(g_q) (R I + V_0)

    Parameters
    ----------
    operator : ImageOperator
        R, the data and their weights.
    prior : SkyPrior
        I.
    gains : GainModel, optional
    noise : NoiseModel, optional
        By default the noise is as stated.
    fixed : sequence of complex (n_row, n_chan, n_corr), Jy, optional
        V_0 of each partition: components beside the image.
    components : ComponentModel, optional
        V_0 where components have free parameters.
    used : UsedData, optional
        The samples that count; those of the operator.

    Attributes
    ----------
    n : int
        Numbers of the state.
    n_data : int
        Complex samples that count; half the number of closures where these are compared.
    """

    is_convolved = False

    def __init__(
        self,
        operator: ImageOperator,
        prior: SkyPrior,
        *,
        gains: GainModel | None = None,
        noise: NoiseModel | None = None,
        fixed: Sequence[Vis] | None = None,
        used: UsedData | None = None,
        components: ComponentModel | None = None,
        closures: ClosureModel | None = None,
        is_adrift: bool = False,
    ) -> None:
        self.operator, self.prior, self.gains, self.noise = operator, prior, gains, noise
        self.components, self.closures, self._is_adrift = components, closures, is_adrift
        self.used = used or UsedData(operator.weights)
        self.n_data = self.used.n if closures is None else -(-closures.n // 2)
        self.predict = visibility_function(operator, self.used)
        ends = np.cumsum([prior.n, *(part.n if part else 0 for part in (gains, noise, components))])
        self.at = Sections(*(slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)))
        self.n = int(ends[-1])
        self.is_hyper = np.zeros(self.n, bool)
        self.is_hyper[self.at.sky] = prior.is_hyper
        places = np.arange(self.n)
        self.watched: list[NDArray[Any]] = [
            places[self.is_hyper],
            places[self.at.gains],
            places[self.at.noise],
            places[self.at.components],
        ]
        self._root_weight = np.sqrt(self.used.taken(operator.weights))
        self._data = real_parts(self.used.taken(operator.data)) * self._root_weight
        if closures is not None:
            self._data = np.zeros(closures.n + 2 * is_adrift)
        self._fixed = None if fixed is None else real_parts(self.used.taken(fixed))

    def image(self, xi: Any) -> Any:
        """Brightness (N, N), Jy/pixel, or that of all planes."""
        return self.prior.image(xi[self.at.sky])

    def operand(self, xi: Any) -> Array:
        """The image of a state as the operator predicts it, with all axes, Jy/pixel."""
        n = self.operator.field.size
        return np.asarray(self.image(jnp.asarray(xi))).reshape(*self.operator.plane_axis, -1, n, n)

    def predicted(self, xi: Any) -> Any:
        """Real and imaginary parts of the model of the data, (2, n_data), Jy."""
        vis = self.predict(self.image(xi))
        if self._fixed is not None:
            vis = vis + self._fixed
        if self.components is not None:
            vis = vis + self.components.predicted(xi[self.at.components])
        if self.gains is None:
            return vis
        log_amplitude, phase = self.gains.factors(xi[self.at.gains])
        amplitude = jnp.exp(log_amplitude)
        cos, sin = amplitude * jnp.cos(phase), amplitude * jnp.sin(phase)
        return jnp.stack([cos * vis[0] - sin * vis[1], sin * vis[0] + cos * vis[1]])

    def visibilities(self, xi: Any) -> Any:
        """The model of the data divided by the stated noise, (2, n_data), or of closures."""
        if self.closures is None:
            return self.predicted(xi) * self._root_weight
        found = -self.closures.residuals(self.predicted(xi))
        return jnp.concatenate([found, self._centroid(xi)]) if self._is_adrift else found

    def _centroid(self, xi: Any) -> Any:
        """Centroid of the image, in units of half a pixel from the middle, (2,)."""
        image, n = self.image(xi), self.operator.field.size
        image = image.reshape(-1, n, n).mean(axis=0)  # over frames
        axis = jnp.arange(n) - n // 2
        sums = jnp.stack([image.sum(axis=0) @ axis, image.sum(axis=1) @ axis])
        return sums / image.sum() / _CENTRED

    def likelihood(self) -> Any:
        """The likelihood of nifty; without fitted noise it is that of unit noise."""
        domain, data = ShapeDtypeStruct((self.n,), jnp.float64), jnp.asarray(self._data)
        if self.noise is None:
            made = jft.Gaussian(data, noise_cov_inv=Partial(unit_noise), noise_std_inv=Partial(unit_noise))
            return made.amend(self.visibilities, domain=domain)
        return jft.VariableCovarianceGaussian(data).amend(self._with_noise, domain=domain)

    def _with_noise(self, xi: Any) -> Any:
        assert self.noise is not None
        mean, n = self.visibilities(xi), 0 if self.closures is None else self.closures.n
        if not n:
            return mean, 1.0 / self.noise.scale(xi[self.at.noise], mean)
        # The centroid, beyond the closures, has an error of its own.
        scale = self.noise.scale(xi[self.at.noise], mean[:n])
        return mean, jnp.concatenate([1.0 / scale, jnp.ones(len(mean) - n)])

    def take_data(self, data: Sequence[Vis]) -> None:
        """Fit other data of the same rows and weights, without compiling anything anew.

        Parameters
        ----------
        data : sequence of complex (n_row, n_chan, n_corr), Jy
        """
        self._data = real_parts(self.used.taken(data)) * self._root_weight


def unit_noise(x: Any) -> Any:
    """Unit noise: what inverse covariances do."""
    return x
