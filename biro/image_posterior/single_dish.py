"""A single-dish map as data of an image: what the dish sees of it, and how its noise counts.

    d_k = c (B * x)(l_k, m_k) + noise,    B = exp(-r^T S^-1 r / 2)

x is the image in Jy/pixel, d_k the map in Jy/beam at its pixels inside the image, B the beam of the dish and
c the scale of its fluxes, ln c = ln c0 + sd xi with a standard normal xi. B * x is a convolution of twice the
field; cubic splines interpolate it at the pixels of the map.

Noise of a map with pixels finer than the beam is correlated. It is taken as white noise smoothed with the
beam, whose covariance has the integral 2 sigma^2 Omega for a beam of solid angle Omega. Each pixel therefore
counts as the share a / (2 Omega) of an independent measurement, where a is its area: the error of the flux of
a region much larger than the beam is then right, and that of a point is up to sqrt(2) too large. All pixels
together count as one measurement at least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from biro.display.formatting import FLUXES, angle_text, unit_for
from biro.errors import InputError
from biro.image_posterior.field import ImageField
from biro.image_posterior.single_dish_file import SingleDishMap

Array = NDArray[np.float64]
COVERED = 0.9
"""Share of the image that the map must cover."""
FAR = 0.1
"""Relative distance from the band of the data up to which the frequency of a map may lie."""
_PER_BEAM = 4.0
"""Pixels of the map along the minor axis of the beam that are enough: others are left out."""
_COARSE = 3.0
"""Pixels of the image across the minor axis of the beam at least."""
_BORDER = 2
"""Pixels from the edge of the image in which the map is not compared: splines reach beyond them."""
_FARTHEST = 10.0
"""Scales of the map are within so many of their standard deviations."""
_FWHM2 = 8.0 * np.log(2.0)


@dataclass(frozen=True, eq=False)
class SingleDishData:
    """Pixels of a map that an image is fitted to, and their response.

    Attributes
    ----------
    field : ImageField
    data : float64 (n,), Jy/beam
    weight : float64 (n,), 1 / (Jy/beam)^2
    lobe : float64 (2N, N + 1)
        Transform of the beam over that of the spline.
    nodes : int64 (n, 16)
        Pixels of twice the field, counted along rows, of which each sample is a sum.
    spline : float64 (n, 16)
        Their coefficients.
    noise : float, Jy/beam
        sigma.
    scale, scale_sd : float
        c0, and the standard deviation of ln c.
    lines : tuple of str
        What was assumed, for a user.
    """

    field: ImageField
    data: Array
    weight: Array
    lobe: Array
    nodes: NDArray[np.int64]
    spline: Array
    noise: float
    scale: float
    scale_sd: float
    lines: tuple[str, ...] = ()

    @property
    def n_independent(self) -> float:
        """How many independent measurements the samples count as: the expectation of chi2."""
        return float(self.weight.sum() * self.noise**2)

    def seen(self, image: Any, xp: Any = np) -> Any:
        """B * x at the samples, (n,), Jy/beam, by numpy or jax.numpy.

        Parameters
        ----------
        image : (N, N), Jy/pixel
        xp : module
        """
        size = self.field.size
        shape = 2 * size, 2 * size
        smooth = xp.fft.irfft2(xp.fft.rfft2(image, s=shape) * self.lobe, s=shape)
        return (smooth.ravel()[self.nodes] * self.spline).sum(axis=1)

    def adjoint(self, values: Array) -> Array:
        """The transpose of `seen`: an image (N, N) of values (n,)."""
        size = self.field.size
        shape = 2 * size, 2 * size
        spread = (self.spline * values[:, None]).ravel()
        smooth = np.bincount(self.nodes.ravel(), spread, minlength=4 * size**2).reshape(shape)
        found = np.fft.irfft2(np.fft.rfft2(smooth) * self.lobe, s=shape)
        return np.asarray(found[:size, :size])

    def scale_of(self, xi: Any, xp: Any = np) -> Any:
        """c of a standard normal number."""
        return self.scale * xp.exp(self.scale_sd * xi)

    def chi2(self, seen: Array, scale: float) -> float:
        """Sum of w (d - c B * x)^2; `n_independent` is expected of noise."""
        return float((self.weight * (self.data - scale * seen) ** 2).sum())

    def best_number(self, seen: Array) -> float:
        """xi of the most probable scale beside an image, of which `seen` is given."""
        power = float((self.weight * seen**2).sum())
        along = float((self.weight * seen * self.data).sum())

        def cost(xi: float) -> float:
            c = self.scale_of(xi)
            return float(0.5 * c * c * power - c * along + 0.5 * xi * xi)

        if not self.scale_sd:
            return 0.0
        ends = -_FARTHEST, _FARTHEST
        return float(minimize_scalar(cost, bounds=ends, method="bounded", options={"xatol": 1e-9}).x)

    def flux_ratio(self, image: Array) -> float:
        """What makes an image (N, N) fit best at the median scale, as a factor; 1 where none above 0 does."""
        seen = np.asarray(self.seen(image))
        power = self.scale * float((self.weight * seen**2).sum())
        along = float((self.weight * seen * self.data).sum())
        return along / power if along > 0.0 and power > 0.0 else 1.0

    def penalty(self, image: Array) -> tuple[float, Array]:
        """chi2/2 of an image at the most probable scale, with its prior, and the derivatives (N, N)."""
        seen = np.asarray(self.seen(image))
        xi = self.best_number(seen)
        c = float(self.scale_of(xi))
        left = self.weight * (c * seen - self.data)
        value = 0.5 * self.chi2(seen, c) + 0.5 * xi * xi
        return value, c * self.adjoint(left)


def single_dish_data(found: SingleDishMap, field: ImageField, band: tuple[float, float]) -> SingleDishData:
    """The pixels of a map inside an image.

    Parameters
    ----------
    found : SingleDishMap
    field : ImageField
    band : (float, float), Hz
        Lowest and highest frequency of the visibilities.

    Raises
    ------
    InputError
        A frequency far from that of the data, a map that does not cover the image, or a beam that is not
        sampled by the pixels of the image.
    """
    frequency = _frequency_line(found, band)
    _check_cover(found, field)
    x0, y0 = found.place_of(np.zeros(1), np.zeros(1), field.centre)
    steps = np.array([[0.5, -0.5, 0.0, 0.0], [0.0, 0.0, 0.5, -0.5]])
    near = found.direction_cosines(x0 + steps[0], y0 + steps[1], field.centre)
    turn = np.stack([near[:, 0] - near[:, 1], near[:, 2] - near[:, 3]], axis=1)
    area = abs(float(np.linalg.det(turn)))
    covariance = _covariance(found, turn)
    omega = 2.0 * np.pi * float(np.sqrt(np.linalg.det(covariance)))
    minor = float(np.sqrt(_FWHM2 * np.linalg.eigvalsh(covariance)[0]))
    if minor < _COARSE * field.cell:
        raise InputError(
            f"{found.name}: the beam, {angle_text(minor)}, has less than {_COARSE:g} pixels of the image, "
            f"{angle_text(field.cell)} each; give a smaller cell"
        )
    stride = max(1, int(minor / _PER_BEAM / np.sqrt(area)))
    place, data = _inside(found, field, stride)
    values = data if found.per_beam else data * omega / area
    one = found.noise**-2
    weight = np.full(len(data), min(1.0, area * stride**2 / (2.0 * omega)) * one)
    weight *= max(1.0, one / weight.sum())
    nodes, spline = _splines(place, field.size)
    unit = unit_for([found.noise], FLUXES)
    lines = (
        f"single-dish map {found.name}: {len(data)} samples, which count as {weight.sum() / one:.3g} "
        f"independent ones (noise of {unit.text(found.noise, 3)} {unit.name}/beam, taken as correlated over "
        f"the beam of {angle_text(found.beam.major)} x {angle_text(found.beam.minor)})",
        f"fluxes of the map are {found.scale:.4g} times those of the sky"
        + (f", within {found.scale_sd:.2g} of their logarithm" if found.scale_sd else ", exactly"),
        *([frequency] if frequency else []),
    )
    lobe = _lobe(covariance, field)
    return SingleDishData(
        field, values, weight, lobe, nodes, spline, found.noise, found.scale, found.scale_sd, lines
    )


def _frequency_line(found: SingleDishMap, band: tuple[float, float]) -> str:
    """What is assumed of the frequency of a map; "" where nothing is."""
    low, high = band
    if found.freq is None:
        return f"{found.name} has no frequency in its header: it is taken as that of the data"
    if not (1.0 - FAR) * low <= found.freq <= (1.0 + FAR) * high:
        raise InputError(
            f"{found.name}: is at {found.freq / 1e9:.4g} GHz, the data are at {low / 1e9:.4g} to "
            f"{high / 1e9:.4g} GHz; scale the map to the frequency of the data, and write it into its header"
        )
    if low <= found.freq <= high:
        return ""
    return (
        f"{found.name} is at {found.freq / 1e9:.4g} GHz, outside the band of the data: its brightness is "
        "taken as that of the data"
    )


def _covariance(found: SingleDishMap, turn: Array) -> Array:
    """S of the beam in direction cosines about the centre of the image, float64 (2, 2).

    Parameters
    ----------
    found : SingleDishMap
    turn : float64 (2, 2)
        Derivatives of (l, m) with respect to the pixels of the map, there.
    """
    along = np.array([np.sin(found.beam.pa), np.cos(found.beam.pa)])
    across = np.array([along[1], -along[0]])
    own = found.beam.major**2 * np.outer(along, along) + found.beam.minor**2 * np.outer(across, across)
    # Degrees of the map's coordinates, east and north at their reference, to pixels, to direction cosines.
    whole = turn @ np.linalg.inv(np.deg2rad(found.wcs.pixel_scale_matrix))
    return np.asarray(whole @ own @ whole.T / _FWHM2)


def _check_cover(found: SingleDishMap, field: ImageField) -> None:
    """Refuse a map without numbers at more than a tenth of the image."""
    m, l = np.meshgrid(*[field.axis[:: max(1, field.size // 64)]] * 2, indexing="ij")
    x, y = found.place_of(-l, m, field.centre)
    with np.errstate(invalid="ignore"):
        on_map = (np.abs(x - 0.5 * (found.data.shape[1] - 1)) < 0.5 * found.data.shape[1]) & (
            np.abs(y - 0.5 * (found.data.shape[0] - 1)) < 0.5 * found.data.shape[0]
        )
    values = found.data[np.rint(y[on_map]).astype(int), np.rint(x[on_map]).astype(int)]
    covered = np.count_nonzero(np.isfinite(values)) / on_map.size
    if covered < COVERED:
        raise InputError(
            f"{found.name}: covers {covered:.0%} of the image, of which it must cover {COVERED:.0%}; give a "
            "larger map, or a smaller image (size, field)"
        )


def _inside(found: SingleDishMap, field: ImageField, stride: int) -> tuple[Array, Array]:
    """Places in pixels of the image, float64 (2, n), x and y, of samples of a map, and their brightness."""
    y, x = np.indices(found.data.shape)[:, ::stride, ::stride]
    l, m = found.direction_cosines(x.astype(np.float64), y.astype(np.float64), field.centre)
    place = np.stack([-l, m]) / field.cell + field.size // 2
    with np.errstate(invalid="ignore"):
        counts = ((place >= _BORDER) & (place <= field.size - 1 - _BORDER)).all(axis=0)
    counts &= np.isfinite(found.data[::stride, ::stride])
    if not counts.any():
        raise InputError(
            f"{found.name}: no pixel of the map lies inside the image; give a map with finer pixels, or the "
            "flux of the image"
        )
    return place[:, counts], found.data[::stride, ::stride][counts]


def _splines(place: Array, size: int) -> tuple[NDArray[np.int64], Array]:
    """Nodes in twice the field and coefficients of cubic splines at places (2, n), x and y in pixels."""
    first = np.floor(place).astype(np.int64)
    t = place - first
    one = np.stack([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3]) / 6.0
    at = first + np.arange(-1, 3)[:, None, None]
    nodes = at[:, None, 1] * 2 * size + at[None, :, 0]
    spline = one[:, None, 1] * one[None, :, 0]
    return nodes.reshape(16, -1).T.copy(), spline.reshape(16, -1).T.copy()


def _lobe(covariance: Array, field: ImageField) -> Array:
    """Transform of the beam on twice the field, over that of the spline, float64 (2N, N + 1)."""
    n = 2 * field.size
    offset = np.fft.fftfreq(n, 1.0 / n) * field.cell
    east, north = np.meshgrid(-offset, offset)
    inverse = np.linalg.inv(covariance)
    height = inverse[0, 0] * east**2 + 2.0 * inverse[0, 1] * east * north + inverse[1, 1] * north**2
    turns = np.fft.fftfreq(n)
    of_spline = (2.0 + np.cos(2.0 * np.pi * turns)) / 3.0
    whole = np.fft.rfft2(np.exp(-0.5 * height)).real
    return np.asarray(whole / (of_spline[:, None] * of_spline[None, : field.size + 1]))
