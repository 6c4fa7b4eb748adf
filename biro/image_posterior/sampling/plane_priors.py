"""Priors of polarised brightness and of spectra, as functions of standard normal numbers.

They stand on the log-normal field of Stokes I (`sky_priors.CorrelatedField`), whose numbers come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from biro.image_posterior.sampling.sky_priors import CorrelatedField, FieldNumbers, field_maker
from biro.models import Fixed, Normal

Array = NDArray[np.float64]
POLARISED, CIRCULAR = (0.2, 0.2), (0.05, 0.05)
"""Log-normal priors (mean, sd) of the sd of the fields q and u, and of v: about Q/I, U/I and V/I."""
_SLOPE = (-4.0, 0.7)
_SMALL = 1e-4
"""Added to p in quadrature, so that derivatives exist at p = 0; P stays below I."""


class Fields:
    """Correlated fields of mean 0 with one power spectrum, whose numbers are shared.

    Parameters
    ----------
    size : int
        Pixels along a side.
    n_field : int
    numbers : FieldNumbers
    offset : (float, float) or function
        Of the mean of each field; see `field_maker`.

    Attributes
    ----------
    n : int
    is_hyper : bool (n,)
        Numbers that describe the spectrum.
    """

    def __init__(self, size: int, n_field: int, numbers: FieldNumbers, offset: Any) -> None:
        self._field, self._n_field, self._size = field_maker(size, numbers, offset).finalize(), n_field, size
        shared = {key: jnp.zeros(v.shape) for key, v in self._field.domain.items() if key != "xi"}
        flat, self._unravel = ravel_pytree(shared)
        self._n_shared = flat.size
        self.n = flat.size + n_field * size * size
        self.is_hyper = np.arange(self.n) < flat.size

    def __call__(self, xi: Any) -> list[Any]:
        """The fields, (N, N) each."""
        shared = self._unravel(xi[: self._n_shared])
        each = xi[self._n_shared :].reshape(self._n_field, self._size, self._size)
        return [self._field({**shared, "xi": one}) for one in each]


class PolarisedField:
    """Brightness matrix that is the exponential of a Hermitian matrix of correlated fields.

        [[I+Q, U+iV], [U-iV, I-Q]] = exp(a 1 + [[q, u+iv], [u-iv, -q]])
        I = e^a cosh p,   (Q, U, V) = e^a (sinh p / p) (q, u, v),   p = sqrt(q^2 + u^2 + v^2)

    I is then above sqrt(Q^2 + U^2 + V^2) (Arras et al. 2022, Nature Astronomy 6, 259). a is the field of a
    `CorrelatedField`, and e^a cosh p has its total flux. q and u share a power spectrum, v has its own.

    Parameters
    ----------
    intensity : CorrelatedField
        Of a, and the flux.
    size : int
    stokes : "IQU" or "IQUV"

    Attributes
    ----------
    As those of `SkyPrior`.
    """

    def __init__(self, intensity: CorrelatedField, size: int, stokes: str) -> None:
        self._intensity = intensity
        self._fields = [Fields(size, 2, FieldNumbers(POLARISED, _SLOPE, None), POLARISED)]
        self.lines = (
            *intensity.lines,
            f"Q/I and U/I: sd {POLARISED[0]:g} +- {POLARISED[1]:g}, of each pixel and of the mean",
        )
        if stokes == "IQUV":
            self._fields.append(Fields(size, 1, FieldNumbers(CIRCULAR, _SLOPE, None), CIRCULAR))
            self.lines += (f"V/I: sd {CIRCULAR[0]:g} +- {CIRCULAR[1]:g}",)
        self._ends = np.cumsum([intensity.n, *(each.n for each in self._fields)])
        self.n = int(self._ends[-1])
        self.is_hyper = np.concatenate([intensity.is_hyper, *(each.is_hyper for each in self._fields)])
        self.wavenumbers = intensity.wavenumbers

    def planes(self, xi: Any) -> Any:
        """I, Q, U or I, Q, U, V, (n_stokes, N, N), Jy/pixel."""
        vector, own = self.vector(xi), xi[: self._intensity.n]
        p = jnp.sqrt(_SMALL**2 + jnp.sum(vector**2, axis=0))
        # ln cosh p and tanh p / p do not overflow.
        log_cosh = p + jnp.log1p(jnp.exp(-2.0 * p)) - np.log(2.0)
        brightness = self._intensity.normalised(own, self._intensity.log_shape(own) + log_cosh)
        return jnp.concatenate([brightness[None], brightness * jnp.tanh(p) / p * vector])

    def vector(self, xi: Any) -> Any:
        """q, u or q, u, v, (n, N, N)."""
        parts = jnp.split(xi, self._ends[:-1])[1:]
        return jnp.stack([one for own, part in zip(self._fields, parts, strict=True) for one in own(part)])

    def image(self, xi: Any) -> Any:
        """What the operator predicts: the planes."""
        return self.planes(xi)

    def spectrum(self, xi: Any) -> Any:
        """Power of a at `wavenumbers`: that of ln I where little is polarised."""
        return self._intensity.spectrum(xi[: self._intensity.n])

    def log_scale(self, xi: Any) -> None:
        """Chains, which alone need it, are for Stokes I at one frequency."""
        return

    def numbers(self, image: Array) -> Array:
        """Numbers (n,) of an unpolarised image near this one."""
        return np.append(self._intensity.numbers(image), np.zeros(self.n - self._intensity.n))


class SpectralField:
    """Brightness at several frequencies: all Stokes parameters times a log-polynomial of each pixel.

        I(nu) = I(nu0) exp(a0 L + a1 L^2 + ...),   L = ln(nu / nu0)                  (physics: section 4)

    A coefficient is a number, or a correlated field about the mean of its prior; half of the variance of the
    prior is that of the mean over the image, half that of pixels about it.

    Parameters
    ----------
    brightness : CorrelatedField or PolarisedField
        At nu0.
    size : int
    coefficients : sequence of Fixed or Normal
        a0, a1, ...
    freq : float64 (n_freq,), Hz
    reference : float, Hz
        nu0.

    Attributes
    ----------
    As those of `SkyPrior`.
    """

    def __init__(
        self,
        brightness: CorrelatedField | PolarisedField,
        size: int,
        coefficients: Sequence[Fixed | Normal],
        freq: Array,
        reference: float,
    ) -> None:
        self._brightness, self._size, self.reference = brightness, size, reference
        self._log_freq = np.log(np.asarray(freq) / reference)
        self._means = [mean_of(one) for one in coefficients]
        self._fields = [_varied(size, one) for one in coefficients]
        known = [each for each in self._fields if each is not None]
        self._ends = np.cumsum([brightness.n, *(0 if each is None else each.n for each in self._fields)])
        self.n = int(self._ends[-1])
        self.is_hyper = np.concatenate([brightness.is_hyper, *(each.is_hyper for each in known)])
        self.wavenumbers = brightness.wavenumbers
        self.lines = (*brightness.lines, *(_line(k, one) for k, one in enumerate(coefficients)))

    def coefficients(self, xi: Any) -> Any:
        """a0, a1, ... of each pixel, (n_order, N, N)."""
        parts = jnp.split(xi, self._ends[:-1])[1:]
        found = []
        for mean, field, part in zip(self._means, self._fields, parts, strict=True):
            varied = jnp.zeros((self._size, self._size)) if field is None else field(part)[0]
            found.append(mean + varied)
        return jnp.stack(found)

    def planes(self, xi: Any) -> Any:
        """Stokes parameters at the reference frequency, (n_stokes, N, N), Jy/pixel."""
        return self._brightness.planes(xi[: self._brightness.n])

    def image(self, xi: Any) -> Any:
        """Stokes parameters at all frequencies, (n_freq, n_stokes, N, N), Jy/pixel."""
        powers = self._log_freq[:, None] ** (1 + np.arange(len(self._means)))
        factor = jnp.exp(jnp.tensordot(powers, self.coefficients(xi), axes=1))
        return self.planes(xi)[None] * factor[:, None]

    def spectrum(self, xi: Any) -> Any:
        """Power spectrum of the field of Stokes I."""
        return self._brightness.spectrum(xi[: self._brightness.n])

    def log_scale(self, xi: Any) -> None:
        """Chains, which alone need it, are for Stokes I at one frequency."""
        return

    def numbers(self, image: Array) -> Array:
        """Numbers (n,) of an image near this one, with the mean spectrum."""
        return np.append(self._brightness.numbers(image), np.zeros(self.n - self._brightness.n))


def mean_of(given: Fixed | Normal) -> float:
    return float(given.value if isinstance(given, Fixed) else given.mean)


def _varied(size: int, given: Fixed | Normal) -> Fields | None:
    """The field of a coefficient about its mean; None of a number."""
    if isinstance(given, Fixed):
        return None
    sd = float(given.sd) / np.sqrt(2.0)
    return Fields(size, 1, FieldNumbers((sd, 0.5 * sd), _SLOPE, None), lambda _: sd)


def _line(order: int, given: Fixed | Normal) -> str:
    name = "spectral index" if order == 0 else f"coefficient {order} of the spectrum"
    if isinstance(given, Fixed):
        return f"{name}: {given.value:g}"
    return f"{name}: {given.mean:g} +- {given.sd:g}, a correlated field"
