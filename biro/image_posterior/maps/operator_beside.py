"""The operator of an image whose components beside it are fitted anew for each image.

With parameters xi at the maximum for an image x, chi2/2 + |xi|^2/2 is a function of x alone. Its gradient is
that at fixed parameters, and its curvature near an image is less than that of chi2/2,

    R^T W R - C F^-1 C^T,    C = R^T W J,    F = J^T W J + 1    (in units of the noise),

with the derivatives J of the components' visibilities (variable projection, Golub & Pereyra 1973).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.image_posterior.components import FreeComponents
from biro.image_posterior.operator import ImageOperator, Vis

Array = NDArray[np.float64]
_PART = 0.98
"""Share of what parameters take up that the curvature lacks: it stays positive where the PSF is inexact."""


class OperatorBeside(ImageOperator):
    """R of an image, with residuals that components with free parameters have left.

    Parameters
    ----------
    operator : ImageOperator
        Its data lack the components.
    free : FreeComponents
    components : sequence of complex (n_row, n_chan, 1), Jy
        What the data lack.
    noise : float
        Factor by which the noise is larger than the weights state.
    xi : float64 (n,)
        Where the first search for parameters starts; each later one starts from the one before.
    """

    def __init__(
        self,
        operator: ImageOperator,
        free: FreeComponents,
        components: Sequence[Vis],
        noise: float,
        xi: Array,
    ) -> None:
        _ = operator.responses  # worked out once, for this one and that of the result
        self.__dict__.update(operator.__dict__)
        self._free, self._components, self._noise, self._xi = free, list(components), noise, xi
        self._taken: tuple[Array, Array] | None = None

    def residuals(self, model: Sequence[Vis]) -> list[Vis]:
        """Data less a model of the image and less the components that fit best beside it."""
        left = [vis + own for vis, own in zip(super().residuals(model), self._components, strict=True)]
        weights = [weight / self._noise**2 for weight in self.weights]
        self._xi, self._taken = self._free.most_probable(left, weights, self._xi), None
        return [vis - own for vis, own in zip(left, self._free.visibilities(self._xi), strict=True)]

    def absorbed(self, image: Array) -> Array:
        """C F^-1 C^T x at the parameters of the last residuals, with the weights as stated."""
        if self._taken is None:
            self._taken = self._low_rank()
        dirty, inverse = self._taken
        flat = dirty.reshape(len(dirty), -1)
        return np.asarray(_PART * (inverse @ (flat @ image.ravel()) @ flat).reshape(image.shape))

    def _low_rank(self) -> tuple[Array, Array]:
        """C as images (n, N, N), and F^-1, times and over the noise squared."""
        columns = self._free.changes(self._xi)
        dirty = np.stack([self.adjoint(column, weighted=True)[0] for column in columns])
        slopes = self._free.derivatives(self._xi, [weight / self._noise**2 for weight in self.weights])
        return dirty, np.asarray(np.linalg.inv(slopes.T @ slopes) / self._noise**2, np.float64)
