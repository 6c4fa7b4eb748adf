"""An image of the sky as a model: pixels, where they are, and how they change with frequency."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from biro.models.choices import Interpolation
from biro.models.errors import ModelError
from biro.models.quantities.strict import did_you_mean, short_repr

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ImageModel:
    """Pixels as point sources on a grid in the SIN projection, north up and east to the left.

    Pixel (x, y), that is `pixels[..., y, x]`, is a point source at the direction cosines

        l = l0 - (x - N/2) cell,    m = m0 + (y - N/2) cell

    about the centre (physics: sections 1 and 8). Between planes of a cube each pixel follows a straight line
    in frequency ("linear"), or a power law, S1 (nu/nu1)^(ln(S2/S1) / ln(nu2/nu1)), where both planes have the
    same sign and a straight line elsewhere ("spectral-index"); or the plane that is nearest holds. One plane
    holds at all frequencies.

    Attributes
    ----------
    pixels : float64 (n_stokes, n_freq, N, N), Jy per pixel
        Not divided by n; n_stokes is 1 (I) or 4 (I, Q, U, V), N even.
    cell : float, rad
        Direction cosine from a pixel to the next, > 0.
    centre : (float, float), rad
        ICRS right ascension and declination where the plane touches the sky.
    offset : (float, float)
        (l0, m0), direction cosines of pixel (N/2, N/2).
    chan_freq : float64 (n_freq,), Hz, ascending, or None
        Of the planes; None for a single one.
    interpolation : "nearest", "linear" or "spectral-index"

    Raises
    ------
    ModelError
        Shapes that do not fit, values that are not finite, a pixel with brightness beyond the horizon.
    """

    pixels: Array
    cell: float
    centre: tuple[float, float]
    offset: tuple[float, float] = (0.0, 0.0)
    chan_freq: Array | None = None
    interpolation: Interpolation = "linear"

    def __repr__(self) -> str:
        n_stokes, n_plane, n, _ = self.pixels.shape
        planes = f"{n_plane} plane{'s' * (n_plane != 1)}"
        return (
            f"<ImageModel of {n} x {n} pixels of {np.rad2deg(self.cell) * 3600.0:.4g} arcsec, {planes}, "
            f"{'Stokes I Q U V' if n_stokes == 4 else 'Stokes I'}>"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def __post_init__(self) -> None:
        try:
            pixels = np.ascontiguousarray(self.pixels, dtype=np.float64)
        except (TypeError, ValueError):
            raise ModelError(
                f"pixels must be an array of numbers, got {type(self.pixels).__name__}"
            ) from None
        n_stokes, n_freq, n_y, n_x = pixels.shape if pixels.ndim == 4 else (0, 0, 0, 0)
        if n_stokes not in (1, 4) or n_x != n_y or n_x < 2 or n_x % 2 or not n_freq:
            raise ModelError(
                "pixels must have shape (n_stokes, n_freq, N, N) with n_stokes 1 or 4 and N even, "
                f"got {np.shape(self.pixels)}"
            )
        bad = int(np.count_nonzero(~np.isfinite(pixels)))
        if bad:
            raise ModelError(f"pixels must be finite; {bad} of {pixels.size} are not")
        if not 0.0 < self.cell < np.inf:
            raise ModelError(f"cell must be above 0 (rad), got {self.cell}")
        if not (np.isfinite(self.centre).all() and abs(self.centre[1]) <= np.pi / 2 * (1 + 1e-15)):
            raise ModelError(f"centre must be (ra, dec) in radians with |dec| <= pi/2, got {self.centre}")
        names = get_args(Interpolation)
        if self.interpolation not in names:
            found, hint = short_repr(self.interpolation), did_you_mean(self.interpolation, names)
            raise ModelError(f"interpolation: one of {', '.join(names)}, found {found}{hint}")
        pixels.flags.writeable = False
        object.__setattr__(self, "pixels", pixels)
        self._check_freq(n_freq)
        self._check_horizon()

    def _check_freq(self, n_freq: int) -> None:
        if self.chan_freq is None:
            if n_freq > 1:
                raise ModelError(f"chan_freq is needed, for there are {n_freq} planes")
            return
        freq = np.array(self.chan_freq, dtype=np.float64)
        if freq.shape != (n_freq,) or not np.isfinite(freq).all() or not (freq > 0.0).all():
            raise ModelError(
                f"chan_freq must be {n_freq} frequencies above 0 Hz, got {short_repr(self.chan_freq)}"
            )
        if not (np.diff(freq) > 0.0).all():
            raise ModelError("chan_freq must ascend, and no plane may have the frequency of another")
        freq.flags.writeable = False
        object.__setattr__(self, "chan_freq", freq)

    def _check_horizon(self) -> None:
        l, m = self.axes
        corner = max(abs(l[0]), abs(l[-1])) ** 2 + max(abs(m[0]), abs(m[-1])) ** 2
        if corner < 1.0:
            return
        beyond = l[None, :] ** 2 + m[:, None] ** 2 >= 1.0
        lost = int(np.count_nonzero(self.pixels[:, :, beyond].any(axis=(0, 1))))
        if lost:
            raise ModelError(
                f"{lost} pixels with brightness lie beyond the horizon of the plane, l^2 + m^2 >= 1; "
                "check the size of its pixels"
            )

    @property
    def n_stokes(self) -> int:
        """1 for Stokes I alone, 4 for I, Q, U and V."""
        return int(self.pixels.shape[0])

    @property
    def n_freq(self) -> int:
        """Number of planes."""
        return int(self.pixels.shape[1])

    @property
    def n_pixel(self) -> int:
        """N: pixels along each side."""
        return int(self.pixels.shape[-1])

    @property
    def axes(self) -> tuple[Array, Array]:
        """l of each column and m of each row, float64 (N,) each."""
        step = (np.arange(self.n_pixel, dtype=np.float64) - self.n_pixel // 2) * self.cell
        return np.asarray(self.offset[0] - step), np.asarray(self.offset[1] + step)

    def at(self, freq: float, where: NDArray[np.int64] | None = None) -> Array:
        """Brightness at one frequency, Jy per pixel.

        Parameters
        ----------
        freq : float, Hz
        where : int64 (n,), optional
            Only these pixels, counted along rows: y N + x.

        Returns
        -------
        float64 (n_stokes, N, N), or (n_stokes, n)
        """
        if self.chan_freq is None or self.n_freq == 1:
            return self._plane(0, where)
        if self.interpolation == "nearest":
            return self._plane(int(np.argmin(np.abs(self.chan_freq - freq))), where)
        i = int(self._interval(np.array(freq)))
        low, high = self.chan_freq[i : i + 2]
        first, second = self._plane(i, where), self._plane(i + 1, where)
        part = (freq - low) / (high - low)
        between = (1.0 - part) * first + part * second
        if self.interpolation == "spectral-index":
            alike = first * second > 0.0
            power = np.log(freq / low) / np.log(high / low)
            between[alike] = first[alike] * (second[alike] / first[alike]) ** power
        return np.asarray(between)

    def _plane(self, i: int, where: NDArray[np.int64] | None) -> Array:
        plane = self.pixels[:, i]
        return plane if where is None else plane.reshape(self.n_stokes, -1)[:, where]

    def bands(self, freq: Array) -> list[NDArray[np.int64]]:
        """Channels in groups within which `at` is smooth in frequency.

        Parameters
        ----------
        freq : float64 (n_chan,), Hz

        Returns
        -------
        list of int64 arrays
            Indices of channels: together, each once.

        Raises
        ------
        ModelError
            Channels farther outside of the planes than half of the outermost spacing; "nearest" takes
            the outermost plane for these.
        """
        if self.chan_freq is None or self.n_freq == 1:
            group = np.zeros(len(freq), dtype=np.int64)
        elif self.interpolation == "nearest":
            group = np.argmin(np.abs(self.chan_freq[:, None] - freq), axis=0)
        else:
            self._check_reach(freq)
            group = self._interval(freq)
        return [np.flatnonzero(group == i) for i in np.unique(group)]

    def _interval(self, freq: Array) -> NDArray[np.int64]:
        """Which pair of planes a frequency lies between; the outermost ones reach beyond."""
        assert self.chan_freq is not None
        return np.clip(np.searchsorted(self.chan_freq, freq) - 1, 0, self.n_freq - 2)

    def _check_reach(self, freq: Array) -> None:
        assert self.chan_freq is not None
        first, second, *_ = self.chan_freq
        *_, before, last = self.chan_freq
        low, high = 1.5 * first - 0.5 * second, 1.5 * last - 0.5 * before
        slack = 1e-9 * last
        if freq.min() < low - slack or freq.max() > high + slack:
            raise ModelError(
                f"channels from {freq.min() / 1e6:.9g} to {freq.max() / 1e6:.9g} MHz reach beyond the planes "
                f"of the image, {first / 1e6:.9g} to {last / 1e6:.9g} MHz, by more than half a spacing; give "
                'more planes, or interpolation="nearest" to hold the outermost'
            )
