"""Components with free parameters beside an image that is fitted: a core, a ring, points.

Their parameters theta are functions of standard normal numbers xi by the transforms of their priors,
theta = T(Phi(xi)) with the cumulative normal probability Phi, as are all numbers of an image with samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import ndtr

from biro.errors import InputError
from biro.image_posterior.operator import Vis
from biro.likelihood.jacobian import Jacobian
from biro.likelihood.likelihood import Likelihood
from biro.models import Noise, SkyModel
from biro.observation.observation import Observation
from rime_kernels.choices import Backend

Array = NDArray[np.float64]
BEYOND = 8.0
"""Numbers beyond this count as it: a probability of 1e-15."""
_N_DRAWN, _N_CLIMBED = 256, 4
"""Draws of the prior, and those with the least chi2 from which parameters are sought."""


class FreeComponents:
    """The components of a model, some of whose parameters have priors.

    Parameters
    ----------
    observation : Observation
        Stokes I.
    sky : SkyModel
        With these components; its images with a prior, gains and noise are left aside.
    backend : "auto", "cpu" or "cuda"

    Attributes
    ----------
    likelihood : Likelihood
        Of the components alone, with the noise of the weights.
    names, units : tuple of str
        Of the parameters.

    Raises
    ------
    InputError
        Parameters with constraints, or fluxes with `marginalise`.
    """

    def __init__(self, observation: Observation, sky: SkyModel, backend: Backend) -> None:
        alone = replace(sky, image_priors=(), gain=None, constraints=(), noise=Noise(factor=1.0))
        if sky.constraints:
            raise InputError(
                "[[constraint]] cannot stand beside a fitted image with free components; leave it out and "
                "narrow the priors"
            )
        self.likelihood = Likelihood(observation, alone, backend=backend)
        self._model, self._products = self.likelihood.model, Jacobian(self.likelihood)
        if self._model.is_constrained:
            raise InputError(
                "priors of components beside a fitted image allow values that no source has, such as a minor "
                "axis above the major one; narrow them, or give emaj and ratio"
            )
        self.names = tuple(one.name for one in self._model.parameters)
        self.units = tuple(one.unit for one in self._model.parameters)

    @property
    def n(self) -> int:
        """Number of parameters."""
        return len(self.names)

    def theta(self, xi: Array) -> Array:
        """Parameters (..., n) of standard normal numbers (..., n), in the units of the model."""
        return self._model.prior_transform(ndtr(np.clip(xi, -BEYOND, BEYOND)))

    def visibilities(self, xi: Array) -> list[Vis]:
        """V of each partition, complex128 (n_row, n_chan, n_corr), Jy, for xi (n,); 0 without weight."""
        return [vis[0] for vis in self._products.visibilities(self.theta(xi)[None])]

    def residuals(self, xi: Array, data: Sequence[Vis], weights: Sequence[Array]) -> Array:
        """(d - V) / sigma, real and imaginary parts, and then xi: squares add up to chi2 - 2 ln prior."""
        model = self.visibilities(xi)
        return np.append(_over_noise([d - vis for d, vis in zip(data, model, strict=True)], weights), xi)

    def changes(self, xi: Array) -> list[list[Vis]]:
        """Derivatives of `visibilities` with respect to each number, complex (n_row, n_chan, n_corr) each."""
        inside = np.clip(xi, -BEYOND, BEYOND)
        slope = np.where(np.abs(xi) <= BEYOND, np.exp(-0.5 * inside**2) / np.sqrt(2.0 * np.pi), 0.0)
        at = self._model.prior_transform_at(np.tile(ndtr(inside), (self.n, 1)))
        columns = self._products.push_forward(at.theta, at.push_forward(np.diag(slope)))
        return [[vis[k] for vis in columns] for k in range(self.n)]

    def derivatives(self, xi: Array, weights: Sequence[Array]) -> Array:
        """Derivatives of `residuals` with respect to xi, float64 (n_residual, n)."""
        of_data = [_over_noise(change, weights) for change in self.changes(xi)]
        return np.vstack([-np.stack(of_data, axis=1), np.eye(self.n)])

    def most_probable(
        self, data: Sequence[Vis], weights: Sequence[Array], start: Array | None = None, *, seed: int = 1
    ) -> Array:
        """The numbers xi, float64 (n,), of the highest posterior of data that the components alone explain.

        It is the maximum of the density of xi, by steps of Gauss and Newton, from a start or from the best of
        many draws of the prior.

        Parameters
        ----------
        data : sequence of complex (n_row, n_chan, n_corr), Jy
        weights : sequence of float64, shapes as data, 1/Jy^2
        start : float64 (n,), optional
        seed : int
            Of the draws.
        """
        starts = [start] if start is not None else self._draws(data, weights, seed)
        found = [
            least_squares(
                self.residuals, one, lambda xi, *_: self.derivatives(xi, weights), args=(data, weights)
            )
            for one in starts
        ]
        return np.asarray(np.clip(min(found, key=lambda each: each.cost).x, -BEYOND, BEYOND))

    def _draws(self, data: Sequence[Vis], weights: Sequence[Array], seed: int) -> list[Array]:
        """The draws of the prior with the highest posterior, and its median among them."""
        drawn = np.random.default_rng(seed).normal(size=(_N_DRAWN, self.n))
        drawn[0] = 0.0
        costs = [float((self.residuals(xi, data, weights) ** 2).sum()) for xi in drawn]
        return [drawn[i] for i in np.argsort(costs)[:_N_CLIMBED]]


def _over_noise(vis: Sequence[Vis], weights: Sequence[Array]) -> Array:
    """Real and imaginary parts of visibilities with weight, over their sigma."""
    each = [v[w > 0.0] * np.sqrt(w[w > 0.0]) for v, w in zip(vis, weights, strict=True)]
    flat = np.concatenate(each)
    return np.concatenate([flat.real, flat.imag])
