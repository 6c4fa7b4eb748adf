"""Priors of the brightness of an image, as functions of numbers that are normal with mean 0 and sd 1.

Nothing else of a prior is needed by variational inference: the posterior is that of these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import nifty.re as jft
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.special import ndtr
from nifty.re.correlated_field import hartley
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]
# exp of it is the sd of a flux that nobody gave: a factor of 2.
FLUX_SD = 0.7
_FAINT = 1e-4
"""Pixels fainter than this share of the brightest count as it where a search begins."""
_LARGEST = 3.0
"""Numbers are at most so far from 0 where a search begins."""


class SkyPrior(Protocol):
    """The brightness of an image as a function of standard normal numbers.

    Attributes
    ----------
    n : int
        How many numbers.
    lines : tuple of str
        What was assumed, for a user.
    wavenumbers : float64 (n_k,)
        Of the spectrum, cycles per width of the image; none where the prior has no spectrum.
    is_hyper : bool (n,)
        Which numbers describe the spectrum, and so the prior of all others.
    """

    n: int
    lines: tuple[str, ...]
    wavenumbers: Array
    is_hyper: NDArray[np.bool_]

    def image(self, xi: Any) -> Any:
        """What the operator predicts, of numbers (n,): (N, N), (n_stokes, N, N) or (n_freq, n_stokes, N, N).

        Unit: Jy/pixel.
        """

    def planes(self, xi: Any) -> Any:
        """Stokes parameters at the reference frequency, (n_stokes, N, N), Jy/pixel."""

    def spectrum(self, xi: Any) -> Any | None:
        """Power spectrum of ln I at `wavenumbers`; None where the prior has none."""

    def log_scale(self, xi: Any) -> Any | None:
        """ln of what each number is multiplied by in ln I, (n,); None where the prior has no spectrum."""

    def numbers(self, image: Array) -> Array:
        """Numbers (n,) of an image near this one, float64 (N, N), Jy/pixel: where a search begins."""


@dataclass(frozen=True)
class FieldNumbers:
    """Means and standard deviations of what describes a log-normal correlated field.

    Attributes
    ----------
    fluctuations : (float, float)
        Standard deviation of ln I over the image (log-normal prior: mean, sd).
    slope : (float, float)
        Exponent of the power spectrum of ln I (normal prior: mean, sd).
    flexibility : (float, float) or None
        Departures of the spectrum from a power law, in ln power per unit of ln k (log-normal prior); None:
        a power law.
    """

    fluctuations: tuple[float, float] = (2.5, 1.0)
    slope: tuple[float, float] = (-4.0, 0.7)
    flexibility: tuple[float, float] | None = (0.5, 0.3)


class Envelope(NamedTuple):
    """A circular Gaussian about the middle of the image, exp(-4 ln 2 r^2 / w^2) with w = fwhm e^(sd xi)."""

    fwhm: float
    """Pixels."""
    sd: float = 0.0
    """Standard deviation of ln w; 0: w is known."""

    def log(self, size: int, xi: Any) -> Any:
        """ln of it, (size, size)."""
        axis = np.arange(size) - size // 2
        width = self.fwhm * jnp.exp(self.sd * xi)
        return -4.0 * np.log(2.0) * (axis**2 + axis[:, None] ** 2) / width**2


def field_maker(size: int, numbers: FieldNumbers, offset: Any) -> Any:
    """The maker of nifty of a correlated field of size x size pixels.

    Parameters
    ----------
    size : int
    numbers : FieldNumbers
    offset : (float, float) or function
        Log-normal prior of the standard deviation of the mean of the field, or a function that gives it.
    """
    maker = jft.CorrelatedFieldMaker("")
    maker.set_amplitude_total_offset(0.0, offset)
    maker.add_fluctuations(
        (size, size),
        1.0 / size,
        fluctuations=numbers.fluctuations,
        loglogavgslope=numbers.slope,
        flexibility=numbers.flexibility,
        non_parametric_kind="power",
    )
    return maker


class CorrelatedField:
    """Log-normal field of a total flux: I = F E exp(s) / sum of E exp(s), F = F0 exp(sd xi).

    s is a Gaussian field with the power spectrum P(k), a power law with departures in ln k. Its sd, slope
    and departures are fitted (Arras et al. 2022, Nature Astronomy 6, 259). The field is periodic: structure
    at one edge of the image is correlated with the opposite one. E is 1, or an envelope that makes brightness
    less probable away from the middle.

    Parameters
    ----------
    size : int
        Pixels along a side.
    flux : float, Jy
        F0.
    flux_sd : float
        Of ln F.
    numbers : FieldNumbers
    envelope : Envelope, optional

    Attributes
    ----------
    wavenumbers : float64 (n_k,)
        Of the power spectrum, cycles per width of the image, from 1 on.
    is_hyper : bool (n,)
        The sd, slope and departures of the spectrum.
    """

    def __init__(
        self,
        size: int,
        flux: float,
        flux_sd: float = FLUX_SD,
        numbers: FieldNumbers | None = None,
        envelope: Envelope | None = None,
    ) -> None:
        numbers = numbers or FieldNumbers()
        maker = field_maker(size, numbers, lambda _: 1.0)  # the flux has its own number
        self._field = maker.finalize()
        zeros = {key: jnp.zeros(item.shape) for key, item in self._field.domain.items()}
        flat, self._unravel = ravel_pytree(zeros)
        self._size, self._envelope, is_wide = size, envelope, envelope is not None and envelope.sd > 0.0
        # The flux, the field, and the width of the envelope where it is fitted.
        self._of_field, self.n = slice(1, flat.size + 1), flat.size + 1 + is_wide
        moves = {k: jnp.full(v.shape, float(k == "xi")) for k, v in self._field.domain.items()}
        self.is_hyper = np.zeros(self.n, bool)
        self.is_hyper[self._of_field] = np.asarray(ravel_pytree(moves)[0]) == 0.0
        self._log_flux, self._flux_sd = float(np.log(flux)), flux_sd
        self.wavenumbers = np.asarray(self._field.target_grids[0].harmonic_grid.mode_lengths)[1:]
        self._amplitude = maker.amplitude
        self.lines: tuple[str, ...] = (
            f"log-normal correlated field: flux {flux:.3g} Jy times e^(+-{flux_sd:.2g}), sd of ln I "
            f"{numbers.fluctuations[0]:g} +- {numbers.fluctuations[1]:g}, slope of its power spectrum "
            f"{numbers.slope[0]:g} +- {numbers.slope[1]:g}",
        )

    def image(self, xi: Any) -> Any:
        """Brightness (N, N), Jy/pixel."""
        return self.normalised(xi, self.log_shape(xi))

    def planes(self, xi: Any) -> Any:
        """Brightness (1, N, N), Jy/pixel."""
        return self.image(xi)[None]

    def log_shape(self, xi: Any) -> Any:
        """ln E + s, (N, N)."""
        return self._field(self._unravel(xi[self._of_field])) + self._log_envelope(xi)

    def _log_envelope(self, xi: Any) -> Any:
        if self._envelope is None:
            return 0.0
        return self._envelope.log(self._size, xi[-1] if self._envelope.sd else 0.0)

    def normalised(self, xi: Any, log_shape: Any) -> Any:
        """F exp(s) / sum of exp(s) for a given s, with ln E in it, (N, N), Jy/pixel."""
        shape = jnp.exp(log_shape - log_shape.max())
        return jnp.exp(self._log_flux + self._flux_sd * xi[0]) * shape / shape.sum()

    def spectrum(self, xi: Any) -> Any:
        """Power of ln I at `wavenumbers`."""
        return self._amplitude(self._unravel(xi[self._of_field]))[1:] ** 2

    def log_scale(self, xi: Any) -> Any:
        """ln of what each number is multiplied by in ln I, (n,): the amplitude of its mode; 0 of others."""
        place = self._field.target_grids[0].harmonic_grid.power_distributor
        numbers = self._unravel(xi[self._of_field])
        scales = {key: jnp.zeros_like(value) for key, value in numbers.items()}
        scales["xi"] = jnp.log(self._amplitude(numbers))[place]
        return jnp.zeros(self.n).at[self._of_field].set(ravel_pytree(scales)[0])

    def numbers(self, image: Array) -> Array:
        """Numbers (n,) of an image near this one; the rest is that of the middle of the prior."""
        made = np.zeros(self.n)
        field = np.log(np.maximum(image, _FAINT * image.max())) - np.asarray(self._log_envelope(made))
        middle = self._unravel(jnp.zeros(made[self._of_field].size))
        place = self._field.target_grids[0].harmonic_grid.power_distributor
        power = np.asarray(jax.jit(self._amplitude)(middle))[place]
        # The Hartley transform is its own inverse, but for the number of pixels.
        modes = np.asarray(hartley(jnp.asarray(field - field.mean()))) / field.size
        found = {**middle, "xi": jnp.asarray(np.clip(modes / power, -_LARGEST, _LARGEST))}
        flux = (np.log(image.sum()) - self._log_flux) / self._flux_sd
        made[0], made[self._of_field] = np.clip(flux, -_LARGEST, _LARGEST), ravel_pytree(found)[0]
        return made


class Pixels:
    """Independent pixels with an inverse-gamma prior, p(I) = q I^-2 exp(-q / I): most of them are faint.

    The tail I^-2 is nearly that of counts of radio sources. q = ln 2 times the median, and all medians
    together are a small part of the flux, so that the image is dark where the data do not require
    brightness.

    Parameters
    ----------
    size : int
    flux : float, Jy
    dark : float
        Part of the flux that the medians of all pixels make.
    """

    def __init__(self, size: int, flux: float, dark: float = 0.02) -> None:
        self.n, self._size = size * size, size
        self.wavenumbers, self.is_hyper = np.zeros(0), np.zeros(self.n, bool)
        self._scale = float(np.log(2.0)) * dark * flux / size**2
        self.lines: tuple[str, ...] = (
            f"independent pixels, inverse-gamma with exponent 1 and median {dark * flux / size**2:.3g} "
            "Jy/pixel",
        )

    def image(self, xi: Any) -> Any:
        """Brightness (N, N), Jy/pixel: the quantile of the cumulative probability exp(-q / I)."""
        return (self._scale / -_log_cumulative(xi)).reshape(self._size, self._size)

    def planes(self, xi: Any) -> Any:
        """Brightness (1, N, N), Jy/pixel."""
        return self.image(xi)[None]

    def spectrum(self, xi: Any) -> None:
        """Independent pixels have no spectrum."""
        return

    def log_scale(self, xi: Any) -> None:
        """Independent pixels have no spectrum."""
        return

    def numbers(self, image: Array) -> Array:
        """Numbers (n,) of an image near this one."""
        log_cumulative = -self._scale / np.maximum(image, _FAINT * image.max())
        found = np.clip(special.ndtri_exp(log_cumulative).ravel(), -_LARGEST, _LARGEST)
        return np.asarray(found)


def _log_cumulative(xi: Any) -> Any:
    """ln of the cumulative normal probability; for large xi from the upper tail, where 1 is near."""
    return jnp.where(xi < 0.0, jnp.log(ndtr(jnp.minimum(xi, 0.0))), jnp.log1p(-ndtr(-jnp.maximum(xi, 0.0))))
