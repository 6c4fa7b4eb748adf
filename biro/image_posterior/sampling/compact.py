"""Visibilities of small images by the few modes that the data measure, in place of a gridder.

    W^(1/2) R  =  Q B  nearly,    Q^T Q = 1,    chi2(I) = |Q^T W^(1/2) d - B I|^2 + |(1 - Q Q^T) W^(1/2) d|^2

Q spans what R makes of images (Halko, Martinsson and Tropp 2011, SIAM Review 53, 217, algorithm 4.1). A mode
is left out where an image with all of its flux in one pixel changes it by less than 0.01 of the noise.
Data without gains and fitted noise then are as few numbers as there are modes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import nifty.re as jft
import numpy as np
from jax import ShapeDtypeStruct
from jax.tree_util import Partial
from numpy.typing import NDArray

from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.sampling.jax_operator import UsedData, real_parts
from biro.image_posterior.sampling.models.visibility_model import VisibilityModel, unit_noise
from biro.image_posterior.sampling.sky_priors import SkyPrior

Array = NDArray[np.float64]
_NEGLIGIBLE = 0.01
_BRIGHTER = 10.0
"""Samples are at most so much brighter than the fast map: what modes of the data are looked for."""
_BLOCK = 128
"""Random images that are predicted at a time."""
LARGEST = 64 * 64
"""Pixels of the largest image that is treated so."""
_QUICK = 12_000_000
"""Numbers in Q and B below which a gradient of all chains takes some milliseconds."""
MOST_VALUES, MOST_MODES = 50_000_000, 1600
"""Numbers in Q, and modes, at most."""


@dataclass(frozen=True, eq=False)
class Modes:
    """What data measure of an image.

    Attributes
    ----------
    basis : float64 (2 n_data, n_mode)
        Q.
    response : float64 (n_mode, N^2)
        B, of Jy/pixel in units of the noise. With frames N^2 is the number of pixels of all.
    """

    basis: Array
    response: Array


def find_modes(operator: ImageOperator, used: UsedData, flux: float) -> Modes | None:
    """The modes that the data measure of images of a flux (Jy); None where there are too many."""
    shape = (*operator.plane_axis, 1, operator.field.size, operator.field.size)
    n_pixel, n_row = int(np.prod(shape)), 2 * used.n
    if n_pixel > LARGEST:
        return None
    most = min(n_pixel, n_row, MOST_MODES, MOST_VALUES // n_row)
    root, rng = np.sqrt(used.taken(operator.weights)), np.random.default_rng(1)
    basis, is_complete = np.zeros((n_row, 0)), False
    while not is_complete:
        n_more = min(_BLOCK, most - basis.shape[1])
        if n_more <= 0:
            return None
        images = rng.normal(size=(n_more, *shape))
        columns = np.stack([_forward(operator, used, root, image) for image in images], axis=1)
        for _ in range(2):  # twice is enough for orthogonality to rounding
            columns -= basis @ (basis.T @ columns)
        # Rms of what these modes lack, for an image N times as strong as a point with all of the flux.
        left = np.sqrt((columns**2).sum(axis=0).mean()) * flux / np.sqrt(n_row)
        q, _ = np.linalg.qr(columns)
        basis = np.concatenate([basis, q], axis=1)
        is_complete = left < _NEGLIGIBLE or basis.shape[1] == min(n_pixel, n_row)
    response = np.stack([_back(operator, used, root, column) for column in basis.T])
    u, s, vt = np.linalg.svd(response, full_matrices=False)
    kept = s * flux > _NEGLIGIBLE
    return Modes(np.ascontiguousarray(basis @ u[:, kept]), s[kept, None] * vt[kept])


def _forward(operator: ImageOperator, used: UsedData, root: Array, image: Array) -> Array:
    """W^(1/2) R of an image, (2 n_data,)."""
    return (real_parts(used.taken(operator.predict(image))) * root).ravel()


def _back(operator: ImageOperator, used: UsedData, root: Array, column: Array) -> Array:
    """R^T W^(1/2) of numbers (2 n_data,), (N^2,)."""
    parts = column.reshape(2, -1) * root
    return np.asarray(operator.adjoint(used.put(parts[0] + 1j * parts[1]))).ravel()


class CompactModel(VisibilityModel):
    """Visibilities of a small image by its modes; see `VisibilityModel` for gains and noise.

    Parameters
    ----------
    operator, prior, **options
        See `VisibilityModel`.
    modes : Modes
    """

    @property
    def is_quick(self) -> bool:
        """Whether chains end within minutes: of an image alone, by the multiplications of a gradient."""
        if self.gains is not None or self.components is not None:
            return False
        of_data = 0 if self._is_projected else self._basis.size
        return bool(self._response.size + of_data < _QUICK)

    def __init__(self, operator: ImageOperator, prior: SkyPrior, modes: Modes, **options: Any) -> None:
        super().__init__(operator, prior, **options)
        self._basis, self._response = jnp.asarray(modes.basis), jnp.asarray(modes.response)
        beside = (self.gains, self.noise, self._fixed, self.components, self.closures)
        self._is_projected = all(part is None for part in beside)
        self.predict, self.n_mode = self._by_modes, len(modes.response)
        self._structure: Any = None
        self._project()

    def _by_modes(self, image: Any) -> Any:
        modes = self._response @ image.ravel()
        return (self._basis @ modes).reshape(2, -1) / self._root_weight

    @property
    def circles(self) -> NDArray[np.int64]:
        """Numbers to which 2 may be added."""
        nothing = np.zeros(0, np.int64)
        return nothing if self.gains is None else self.at.gains.start + self.gains.circles

    @property
    def log_scale(self) -> Any:
        """What multiplies numbers in the image, as a function of the state; None without a spectrum."""
        return self._log_scale if self.prior.is_hyper.any() else None

    def _log_scale(self, xi: Any) -> Any:
        of_sky: Any = self.prior.log_scale(xi[self.at.sky])
        return jnp.concatenate([of_sky, jnp.zeros(self.n - self.prior.n)])

    def quantities(self, xi: Any) -> dict[str, Any]:
        """What must agree among chains: brightness, flux, spectrum, gains and noise."""
        log_image = jnp.log(self.image(xi)).ravel()
        found = {"brightness": log_image, "flux": jax.nn.logsumexp(log_image)[None]}
        spectrum = self.prior.spectrum(xi[self.at.sky])
        if spectrum is not None:
            found |= {"spectrum": jnp.log(spectrum), "numbers of the spectrum": xi[self.is_hyper]}
        if self.gains is not None:
            # Phases that differ by a turn are alike.
            log_amplitude, phase = self.gains.factors(xi[self.at.gains])
            parts = log_amplitude, jnp.cos(phase), jnp.sin(phase)
            # Amplitudes or phases that are not fitted are one number.
            found |= {"gains": jnp.concatenate([part for part in parts if jnp.ndim(part)])}
        if self.noise is not None:
            found |= {"noise": xi[self.at.noise]}
        if self.components is not None:
            found |= {"components": xi[self.at.components]}
        return {name: values for name, values in found.items() if values.size}

    def take_data(self, data: Any) -> None:
        """Fit other data of the same rows and weights, complex (n_row, n_chan, n_corr), Jy, each."""
        super().take_data(data)
        self._project()

    def _project(self) -> None:
        """Data as amplitudes of the modes, and as the last number what no image explains."""
        if not self._is_projected:
            return
        given = self._data.ravel()
        along = np.asarray(self._basis).T @ given
        rest = max(float(given @ given - along @ along), 0.0)
        self._projected = jnp.asarray(np.append(along, np.sqrt(rest)))

    def _amplitudes(self, response: Any, xi: Any) -> Any:
        return jnp.append(response @ self.image(xi).ravel(), 0.0)

    def likelihood(self) -> Any:
        """The likelihood of nifty, of few numbers where neither gains nor noise are fitted."""
        if not self._is_projected:
            return super().likelihood()
        same = Partial(unit_noise)
        made = jft.Gaussian(self._projected, noise_cov_inv=same, noise_std_inv=same)
        forward = Partial(self._amplitudes, self._response)
        made = made.amend(forward, domain=ShapeDtypeStruct((self.n,), jnp.float64))
        # One structure for all data: what JAX has compiled of the likelihood stays valid.
        leaves, structure = jax.tree_util.tree_flatten(made)
        self._structure = self._structure or structure
        return jax.tree_util.tree_unflatten(self._structure, leaves)


def with_modes(
    operator: ImageOperator, prior: SkyPrior, flux: float, used: UsedData, **options: Any
) -> VisibilityModel:
    """A model by modes where these are few enough for images of about this flux (Jy), else by the gridder."""
    modes = find_modes(operator, used, _BRIGHTER * flux)
    if modes is None:
        return VisibilityModel(operator, prior, used=used, **options)
    return CompactModel(operator, prior, modes, used=used, **options)
