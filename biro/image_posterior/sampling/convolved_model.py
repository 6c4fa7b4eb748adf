"""Large data: the likelihood of an image by convolution with the PSF, corrected by exact residuals.

    chi2(I) = chi2(I_0) - 2 (I - I_0)^T r + (I - I_0)^T D (I - I_0),    r = R^T W (d - R I_0)

D is the convolution with the PSF of twice the field, which is R^T W R as far as w-terms do not change the PSF
across the field; its spectrum is taken as it is, negative values included. A major cycle makes r exact at
I_0, so that the maximum is exact whatever D is, and D decides the errors (Roth et al. 2024, arXiv:2406.09144,
where the spectrum is clipped). Noise of samples is the exact R^T W^(1/2) of white noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import nifty.re as jft
import numpy as np
from jax import ShapeDtypeStruct
from jax.tree_util import Partial
from numpy.typing import NDArray

from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.sampling.jax_operator import UsedData, visibility_function
from biro.image_posterior.sampling.sky_priors import SkyPrior
from biro.image_posterior.sampling.visibility_model import Sections

Array = NDArray[np.float64]
LARGE = 200_000
"""Complex samples from which on images are fitted so."""


def convolved(kernel: Any, image: Any) -> Any:
    """D I, (N, N), for the transform of the PSF of twice the field, (2N, N + 1)."""
    n = image.shape[-1]
    padded = jnp.pad(image, ((0, n), (0, n)))
    return jnp.fft.irfft2(kernel * jnp.fft.rfft2(padded), s=(2 * n, 2 * n))[:n, :n]


class ConvolvedGaussian(jft.Likelihood):  # type: ignore[misc]
    """-ln L of an image, 1/2 I^T D I - j^T I + constant, with the metric D.

    Parameters
    ----------
    kernel : complex128 (2N, N + 1)
    dirty : float64 (N, N)
        j = r + D I_0.
    constant : float
    adjoint : function of float64 (2, n_data)
        R^T.
    root_weight : float64 (n_data,)
        1/sigma.
    """

    kernel: Any = dataclasses.field(metadata={"static": False})
    dirty: Any = dataclasses.field(metadata={"static": False})
    constant: Any = dataclasses.field(metadata={"static": False})
    root_weight: Any = dataclasses.field(metadata={"static": False})
    adjoint: Any = dataclasses.field(metadata={"static": False})

    def __init__(
        self, kernel: Any, dirty: Any, constant: Any, adjoint: Callable[[Any], Any], root_weight: Any
    ) -> None:
        self.kernel, self.dirty, self.constant = kernel, dirty, constant
        self.root_weight, self.adjoint = root_weight, Partial(adjoint)
        super().__init__(
            domain=ShapeDtypeStruct(dirty.shape, jnp.float64),
            lsm_tangents_shape=ShapeDtypeStruct((2, len(root_weight)), jnp.float64),
        )

    def energy(self, primals: Any) -> Any:
        """-ln L of an image, less the constant of the noise."""
        half = 0.5 * jnp.vdot(primals, convolved(self.kernel, primals))
        return half - jnp.vdot(self.dirty, primals) + self.constant

    def metric(self, primals: Any, tangents: Any) -> Any:
        """D of a change of the image."""
        return convolved(self.kernel, tangents)

    def left_sqrt_metric(self, primals: Any, tangents: Any) -> Any:
        """The image of white noise of the data."""
        return self.adjoint(self.root_weight * tangents)

    def normalized_residual(self, primals: Any) -> Any:
        """One number whose square is chi2."""
        return jnp.sqrt(jnp.maximum(2.0 * self.energy(primals), 0.0))[None]


class ConvolvedModel:
    """An image of large data, as `variational.sample` takes it.

    Parameters
    ----------
    operator : ImageOperator
        R, the data and their weights, with the noise as it is.
    prior : SkyPrior

    Attributes
    ----------
    n, n_data : int
        Numbers of the state, and complex samples.
    chi2 : float
        Exact, of the image of the last major cycle.
    """

    gains = noise = components = None
    is_convolved = True

    def __init__(self, operator: ImageOperator, prior: SkyPrior) -> None:
        self.operator, self.prior, self.n = operator, prior, prior.n
        self.is_hyper = prior.is_hyper
        self.watched: list[NDArray[Any]] = [np.flatnonzero(prior.is_hyper)]
        self.at = Sections(slice(0, self.n), slice(0, 0), slice(0, 0))
        self.used = UsedData(operator.weights)
        self.n_data = self.used.n
        self._root_weight = jnp.asarray(np.sqrt(self.used.taken(operator.weights)))
        self._kernel = jnp.asarray(np.fft.rfft2(np.fft.ifftshift(operator.psf)))
        self._adjoint = _transposed(operator, self.used)
        size = operator.field.size
        self.expand_about(np.zeros((size, size)))

    def image(self, xi: Any) -> Any:
        """Brightness (N, N), Jy/pixel."""
        return self.prior.image(xi)

    def major_cycle(self, xi: Array) -> None:
        """Make the residual exact at the image of a state."""
        self.expand_about(np.asarray(self.image(jnp.asarray(xi))))

    def expand_about(self, image: Array) -> None:
        """Make the residual exact at an image, float64 (N, N)."""
        model = self.operator.predict(image[None])
        self.chi2 = sum(self.operator.chi2(model))
        residual = self.operator.adjoint(self.operator.residuals(model), weighted=True)[0]
        smoothed = np.asarray(convolved(self._kernel, jnp.asarray(image)))
        self._dirty = jnp.asarray(residual + smoothed)
        # The energy at this image is chi2 / 2.
        at_image = 0.5 * float((image * smoothed).sum()) - float((self._dirty * image).sum())
        self._constant = jnp.asarray(0.5 * self.chi2 - at_image)

    def visibilities(self, xi: Any) -> Any:
        """Transform of the image times the root of that of the PSF, whose square is I^T D I nearly."""
        image = self.image(xi)
        n = image.shape[-1]
        modes = jnp.fft.rfft2(jnp.pad(image, ((0, n), (0, n))))
        modes = modes * jnp.sqrt(jnp.maximum(self._kernel.real, 0.0)) / n
        return jnp.stack([modes.real, modes.imag])

    def likelihood(self) -> Any:
        """The likelihood of nifty about the last major cycle."""
        made = ConvolvedGaussian(self._kernel, self._dirty, self._constant, self._adjoint, self._root_weight)
        return made.amend(self.image, domain=ShapeDtypeStruct((self.n,), jnp.float64))


def _transposed(operator: ImageOperator, used: UsedData) -> Callable[[Any], Any]:
    """R^T as a function of JAX of (2, n_data)."""
    forward = visibility_function(operator, used)
    shape = ShapeDtypeStruct((operator.field.size, operator.field.size), jnp.float64)
    back = jax.linear_transpose(forward, shape)
    return lambda parts: back(parts)[0]
