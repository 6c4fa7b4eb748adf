"""Prior of a movie: the brightness of all frames as a function of standard normal numbers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import nifty.re as jft
import numpy as np
from nifty.re.correlated_field import hartley, make_grid
from numpy.typing import NDArray

from biro.image_posterior.sampling.sky_priors import CorrelatedField

Array = NDArray[np.float64]
CHANGE, SLOPE = (0.3, 0.6), (-3.0, 1.0)
"""Log-normal prior (mean, sd) of the sd in time, from 0.04 to 0.5; normal prior of the slope of its power."""
_PADDED = 2
"""Times the frames that a period has: the first and the last frame are half a period apart at most."""


class MovieField:
    """Log-normal field of space and time: I(x, t) = F exp(s + c) / mean over frames of sum of exp(s + c).

    s(x) is the field of a `CorrelatedField`, and c(x, t) changes about it, with the power spectrum

        P_c(k, w) = P(k) P_t(w),    P(0) = 1,    w > 0

    Together they are the correlated field of two domains of Arras et al. 2022 (Nature Astronomy 6, 259).
    P_t is a power law, whose sd and slope are fitted. c has the sd of P_t in the mean over the image, and
    times that of ln I over the image in each pixel. The period in time is twice the frames, so that the end
    does not follow from the beginning.

    Parameters
    ----------
    still : CorrelatedField
        Of s, and the flux F, which is the mean over all frames.
    size : int
        Pixels along a side.
    n_frame : int

    Attributes
    ----------
    As those of `SkyPrior`.
    """

    def __init__(self, still: CorrelatedField, size: int, n_frame: int) -> None:
        self.still, self._size, self.n_frame = still, size, n_frame
        n_grid = _PADDED * n_frame
        maker = jft.CorrelatedFieldMaker("")
        maker.add_fluctuations(
            n_grid, 1.0 / n_grid, fluctuations=CHANGE, loglogavgslope=SLOPE, non_parametric_kind="power"
        )
        (self._time_amplitude,) = maker.fluctuations
        self._names = tuple(self._time_amplitude.domain)
        self._place = np.asarray(
            make_grid((size, size), 1.0 / size, "fourier").harmonic_grid.power_distributor
        )
        self._time_place = np.asarray(self._time_amplitude.grid.harmonic_grid.power_distributor)[1:]
        self._waves = np.asarray(hartley(jnp.eye(n_grid), axes=(0,)))[:n_frame, 1:]
        n_hyper, self._shape = len(self._names), (n_grid - 1, size, size)
        self._at = still.n, still.n + n_hyper
        self.n = self._at[1] + int(np.prod(self._shape))
        self.is_hyper = np.zeros(self.n, bool)
        self.is_hyper[: still.n] = still.is_hyper
        self.is_hyper[slice(*self._at)] = True
        self.wavenumbers = still.wavenumbers
        self.lines = (
            *still.lines,
            f"changes between {n_frame} frames: a correlated field, sd in time of the mean of ln I "
            f"{CHANGE[0]:g} +- {CHANGE[1]:g} (log-normal), of pixels times the sd of ln I; slope of power "
            f"in time {SLOPE[0]:g} +- {SLOPE[1]:g}",
        )

    def image(self, xi: Any) -> Any:
        """Brightness of all frames, (n_frame, N, N), Jy/pixel."""
        own = xi[: self._at[0]]
        field = self.still.log_shape(own) + self.change(xi)
        # One frame of all pixels, and then the mean of the frames in place of their sum.
        return self.n_frame * self.still.normalised(own, field)

    def planes(self, xi: Any) -> Any:
        """Mean over all frames, (1, N, N), Jy/pixel."""
        return self.image(xi).mean(axis=0)[None]

    def change(self, xi: Any) -> Any:
        """c, (n_frame, N, N)."""
        of_space, of_time = self._amplitudes(xi)
        modes = xi[self._at[1] :].reshape(self._shape) * of_time[:, None, None]
        return hartley(jnp.tensordot(self._waves, modes, axes=1) * of_space, axes=(1, 2))

    def time_numbers(self, xi: Any) -> Any:
        """The sd in time and the slope of the power spectrum in time, (2,)."""
        given = self._named(xi)
        amplitude = self._time_amplitude
        return jnp.stack([amplitude.fluctuations(given), amplitude._loglogavgslope(given)])

    def _named(self, xi: Any) -> dict[str, Any]:
        return dict(zip(self._names, xi[slice(*self._at)], strict=True))

    def _amplitudes(self, xi: Any) -> tuple[Any, Any]:
        """What numbers of the modes of c are multiplied by: (N, N) of space, (n_grid - 1,) of time."""
        of_space = jnp.append(1.0, jnp.sqrt(self.spectrum(xi)))[self._place]
        return of_space, self._time_amplitude(self._named(xi))[self._time_place]

    def spectrum(self, xi: Any) -> Any:
        """Power of s at `wavenumbers`."""
        return self.still.spectrum(xi[: self._at[0]])

    def log_scale(self, xi: Any) -> Any:
        """ln of what each number is multiplied by in ln I, (n,); 0 of others."""
        of_space, of_time = (jnp.log(one) for one in self._amplitudes(xi))
        of_change = (of_time[:, None, None] + of_space).ravel()
        of_still = self.still.log_scale(xi[: self._at[0]])
        return jnp.concatenate([of_still, jnp.zeros(self._at[1] - self._at[0]), of_change])

    def numbers(self, image: Array) -> Array:
        """Numbers (n,) of an image near this one, the same in all frames."""
        return np.append(self.still.numbers(image), np.zeros(self.n - self.still.n))
