"""Noise of an image that is fitted: a factor, and a systematic fraction of the model, with their priors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from numpy.typing import NDArray

from biro.errors import InputError
from biro.image_posterior.sampling.jax_operator import UsedData
from biro.models.components.noise import HIGHEST, LOWEST, Noise
from biro.models.components.partition_view import PartitionView
from biro.models.quantities.parameter import Fixed
from biro.models.quantities.prior import HalfNormal, LogNormal, LogUniform, Normal, Prior, Uniform

Array = NDArray[np.float64]
_DEFAULT = LogUniform(LOWEST, HIGHEST)
_BEYOND = 8.0
"""Numbers beyond this count as it: a probability of 1e-15."""


def from_normal(prior: Prior) -> Callable[[Any], Any]:
    """The value of a quantity as a function of a standard normal number.

    Raises
    ------
    InputError
        A prior of another family than uniform, log-uniform, normal, log-normal and half-normal.
    """
    if isinstance(prior, Uniform):
        return lambda xi: prior.low + (prior.high - prior.low) * ndtr(xi)
    if isinstance(prior, LogUniform):
        return lambda xi: prior.low * jnp.exp(np.log(prior.high / prior.low) * ndtr(xi))
    if isinstance(prior, LogNormal):
        return lambda xi: prior.median * jnp.exp(prior.sd * xi)
    if isinstance(prior, Normal):
        return lambda xi: prior.mean + prior.sd * xi
    if isinstance(prior, HalfNormal):
        return lambda xi: -prior.sd * ndtri(0.5 * ndtr(-jnp.clip(xi, -_BEYOND, _BEYOND)))
    raise InputError(
        "a number beside an image that is sampled has a uniform, log-uniform, normal, log-normal or "
        f"half-normal prior, found {prior.family}"
    )


class NoiseModel:
    """sigma^2 -> s^2 sigma^2 + f^2 |V|^2 with the visibilities V of the model (physics: section 7).

    A number f is multiplied by the factor, too, as `Noise.factor_of_all` has it: s^2 (sigma^2 + f^2 |V|^2).

    Parameters
    ----------
    noise : Noise
    views : sequence of PartitionView
    used : UsedData
    root_weight : float64 (n_data,)
        1/sigma of each sample.

    Attributes
    ----------
    n : int
    names : list of str
        Of the fitted quantities.
    """

    def __init__(self, noise: Noise, views: Sequence[PartitionView], used: UsedData) -> None:
        groups = noise.groups(views)
        order = list(dict.fromkeys(groups))
        n_each = [place.sum() for place in used.places]
        self._group = np.repeat([order.index(group) for group in groups], n_each)
        factor = _DEFAULT if noise.factor is None else noise.factor
        self._factor, self._n_factor = _value(factor), len(order) * isinstance(factor, Prior)
        fraction = (noise.systematic or (Fixed(0.0),))[0]
        self._fraction, self._has_fraction = _value(fraction), noise.follows_model
        self._n_fraction = int(isinstance(fraction, Prior))
        self._of_all = noise.factor_of_all
        self.n = self._n_factor + self._n_fraction
        self.names = [f"noise.factor{f'[{group}]' * bool(group)}" for group in order][: self._n_factor]
        self.names += ["noise.systematic"] * self._n_fraction

    @property
    def changes_nothing(self) -> bool:
        """Whether the noise is as stated."""
        return not self.n and not self._has_fraction and float(self._factor(0.0)) == 1.0

    def values(self, xi: Any) -> tuple[Any, Any]:
        """The factor of each group, or of all, and the fraction."""
        factor = self._factor(xi[: self._n_factor] if self._n_factor else 0.0)
        fraction = self._fraction(xi[self._n_factor] if self._n_fraction else 0.0)
        return factor, fraction

    def scale(self, xi: Any, mean: Any) -> Any:
        """The noise in units of the stated one, (2, n_data), for the model in these units."""
        factor, fraction = self.values(xi)
        variance = (factor[self._group] if self._n_factor else factor) ** 2
        variance = jnp.broadcast_to(variance, mean.shape)
        if self._has_fraction:
            share = fraction**2 * jnp.sum(mean**2, axis=0)
            variance = variance * (1.0 + share) if self._of_all else variance + share
        return jnp.sqrt(variance)


def _value(given: Any) -> Callable[[Any], Any]:
    if isinstance(given, Prior):
        return from_normal(given)
    number = float(given.value)
    return lambda _: number
