"""A first image of large data, from which samples start: positive pixels, by the PSF, where JAX computes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.sampling.models.convolved_model import convolved, transform_of_psf

Array = NDArray[np.float64]
N_STEP = 300


def first_image(operator: ImageOperator, noise: float = 1.0) -> Array:
    """The image of the least chi2/2 + sigma sum of I with I >= 0, after 300 steps: float64 (N, N), Jy/pixel.

    sigma is the noise of a dirty image that is not divided, so that what is less bright than the noise is 0.
    Steps are those of FISTA (Beck and Teboulle 2009, SIAM J. Imaging Sci. 2, 183), which starts its momentum
    anew where it points uphill (O'Donoghue and Candes 2015, Found. Comput. Math. 15, 715).

    Parameters
    ----------
    operator : ImageOperator
        With the data.
    noise : float
        Factor by which the noise is larger than the weights state.
    """
    kernel = transform_of_psf(operator)
    dirty = jnp.asarray(operator.adjoint(operator.data, weighted=True)[0])
    return np.asarray(_descend(kernel, dirty - noise * np.sqrt(operator.weight_sum), N_STEP))


@partial(jax.jit, static_argnames="n_step")
def _descend(kernel: Any, pull: Any, n_step: int) -> Any:
    """The least I^T D I / 2 - pull^T I with I >= 0, nearly."""
    length = 1.0 / kernel.max()

    def step(_: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        image, ahead, momentum = state
        found = jnp.maximum(ahead - length * (convolved(kernel, ahead) - pull), 0.0)
        uphill = jnp.vdot(ahead - found, found - image) > 0.0
        momentum = jnp.where(uphill, 1.0, momentum)
        larger = 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * momentum**2))
        return found, found + (momentum - 1.0) / larger * (found - image), larger

    zero = jnp.zeros(pull.shape)
    return jax.lax.fori_loop(0, n_step, step, (zero, zero, jnp.ones(())))[0]
