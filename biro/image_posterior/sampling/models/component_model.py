"""Visibilities of components with free parameters as functions of standard normal numbers, in JAX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

import biro.jax
from biro.image_posterior.components import BEYOND, FreeComponents
from biro.image_posterior.sampling.jax_operator import UsedData


class ComponentModel:
    """Parameters theta = T(Phi(xi)) of components beside an image, and their visibilities.

    Parameters
    ----------
    free : FreeComponents
    used : UsedData

    Attributes
    ----------
    n : int
        Standard normal numbers, one for each parameter.
    names, units : tuple of str
    """

    def __init__(self, free: FreeComponents, used: UsedData) -> None:
        self.n, self.names, self.units = free.n, free.names, free.units
        self._visibilities = biro.jax.model(free.likelihood)
        self._transform = biro.jax.likelihood(free.likelihood).prior_transform
        self._places = [np.flatnonzero(place) for place in used.places]

    def theta(self, xi: Any) -> Any:
        """Parameters (n,) of standard normal numbers (n,), in the units of the model."""
        return self._transform(ndtr(jnp.clip(xi, -BEYOND, BEYOND)))

    def predicted(self, xi: Any) -> Any:
        """Real and imaginary parts of the visibilities that count, (2, n_data), Jy."""
        found = self._visibilities(self.theta(xi))
        vis = jnp.concatenate([one.ravel()[place] for one, place in zip(found, self._places, strict=True)])
        return jnp.stack([vis.real, vis.imag])
