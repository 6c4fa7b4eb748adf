"""The model of visibilities with that of a single-dish map beside it, as samplers take it.

The state has one number more than that of visibilities, the last one: the scale of the map's fluxes.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import nifty.re as jft
import numpy as np
from jax import ShapeDtypeStruct
from jax.tree_util import Partial
from nifty.re.likelihood import LikelihoodSum
from numpy.typing import NDArray

from biro.image_posterior.sampling.models.convolved_model import ConvolvedModel
from biro.image_posterior.sampling.models.visibility_model import VisibilityModel, unit_noise
from biro.image_posterior.single_dish import SingleDishData

Array = NDArray[np.float64]


class MapModel:
    """Visibilities and a map, as `variational.sample` and `chains.sample_chains` take them.

    Parameters
    ----------
    model : VisibilityModel or ConvolvedModel
    single_dish : SingleDishData

    Attributes
    ----------
    n, n_data : int
        Numbers of the state; complex samples, of which half the independent samples of the map are some.
    """

    def __init__(self, model: VisibilityModel | ConvolvedModel, single_dish: SingleDishData) -> None:
        self.model, self._dish, self.n = model, single_dish, model.n + 1
        self.n_data = model.n_data + round(0.5 * single_dish.n_independent)
        self.is_hyper = np.append(model.is_hyper, False)
        self.watched: list[NDArray[Any]] = [*model.watched, np.array([model.n])]
        self._root = jnp.sqrt(jnp.asarray(single_dish.weight))
        log_scale = getattr(model, "log_scale", None)
        self.log_scale = None if log_scale is None else lambda xi: jnp.append(log_scale(xi[:-1]), 0.0)

    def seen(self, xi: Any) -> Any:
        """The model of the map at its samples in units of their noise, (n_sample,)."""
        image = self.model.prior.planes(xi[self.model.at.sky])[0]
        return self._dish.scale_of(xi[-1], jnp) * self._dish.seen(image, jnp) * self._root

    def visibilities(self, xi: Any) -> Any:
        """The model of all data in units of their noise, (n,)."""
        return jnp.concatenate([self.model.visibilities(xi[:-1]).ravel(), self.seen(xi)])

    @property
    def circles(self) -> NDArray[np.int64]:
        """Numbers to which 2 may be added; see `CompactModel.circles`."""
        found: NDArray[np.int64] = self.model.circles  # type: ignore[union-attr]
        return found

    def quantities(self, xi: Any) -> dict[str, Any]:
        """What must agree among chains; see `CompactModel.quantities`."""
        of_model: dict[str, Any] = self.model.quantities(xi[:-1])  # type: ignore[union-attr]
        return of_model | {"flux scale of the map": xi[-1:]}

    def major_cycle(self, xi: Array) -> None:
        """Make the residual of a `ConvolvedModel` exact at the image of a state."""
        assert isinstance(self.model, ConvolvedModel)
        self.model.major_cycle(xi[:-1])

    def likelihood(self) -> Any:
        """The likelihood of nifty of both."""
        domain, same = ShapeDtypeStruct((self.n,), jnp.float64), Partial(unit_noise)
        data = jnp.asarray(self._dish.data) * self._root
        of_map = jft.Gaussian(data, noise_cov_inv=same, noise_std_inv=same).amend(self.seen, domain=domain)
        of_model = self.model.likelihood().amend(_without_last, domain=domain)
        return LikelihoodSum(of_model, of_map, domain=domain)


def _without_last(xi: Any) -> Any:
    """The numbers of the visibilities."""
    return xi[:-1]
