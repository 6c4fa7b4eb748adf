"""The ring of an image: its diameter, its width and the depth of its hole, of each sample.

The centre is the point about which the radius of the brightest point has the smallest spread over position
angles, relative to its mean (Event Horizon Telescope Collaboration 2019, ApJ 875, L4, section 9). The
diameter is twice the radius where the azimuthal mean about this centre is brightest, and the width is the
FWHM of that mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from biro.display.formatting import ANGLES, Printed, angle_text, unit_for
from biro.errors import InputError
from biro.image_posterior.field import ImageField

Array = NDArray[np.float64]
_N_ANGLE = 72
"""Position angles along which profiles are taken."""
_FINE = 0.25
"""Distance of the points of a profile, pixels."""
_STEPS = (2.0, 1.0, 0.5, 0.25)
"""Distances of the centres that are compared, one after the other, pixels."""
_N_SECTOR = 8
"""Sectors of position angle, in all of which a ring is brighter than its hole."""
_FAINTEST = 0.25
"""Brightness of the faintest sector of a ring, over the mean: blobs about a void are no ring."""
_HOLE = 0.25
"""Radius over which the brightness of the hole is averaged, in radii of the ring."""
_HALF, _FEW = 0.5, 0.9
"""Shares of samples with a ring below which there is none, or a warning."""


@dataclass(frozen=True, eq=False, repr=False)
class Ring(Printed):
    """A ring in each sample of an image.

    Attributes
    ----------
    is_ring : bool (n_sample,)
        Whether a hole is enclosed: in each of 8 sectors of position angle the brightest part is brighter than
        the hole, and than a quarter of the mean of all sectors.
    diameter : float64 (n_sample,), rad
        Twice the radius where the azimuthal mean is brightest; NaN where there is no ring.
    width : float64 (n_sample,), rad
        FWHM of the azimuthal mean; twice the outer half where the hole is brighter than half of the ring.
    depth : float64 (n_sample,)
        Brightness at the centre over that of the ring.
    east, north : float64 (n_sample,), rad
        Centre.
    resolution : float, rad
        FWHM of the Gaussian with which the samples were convolved.
    in_mean : bool
        Whether the mean image has a ring.
    is_map : bool
        Whether there is the most probable image alone, without errors.
    """

    is_ring: NDArray[np.bool_]
    diameter: Array
    width: Array
    depth: Array
    east: Array
    north: Array
    resolution: float
    in_mean: bool
    is_map: bool

    @property
    def share(self) -> float:
        """Share of the samples that have a ring."""
        return float(self.is_ring.mean())

    def __str__(self) -> str:
        n, n_ring = len(self.is_ring), int(self.is_ring.sum())
        if not n_ring or (self.share < _HALF and not self.in_mean):
            return f"NO RING: {n_ring} of {n} {'images' if self.is_map else 'samples'} have one"
        lines = []
        if self.share < _FEW or not self.in_mean:
            mean = "has one" if self.in_mean else "has none"
            lines.append(
                f"NOT CERTAINLY A RING: {n_ring} of {n} samples have a ring, and the mean image {mean}. "
                "Figures are those of samples with a ring, which may be noise"
            )
        unit = unit_for([float(np.nanmean(self.diameter))], ANGLES)
        resolution = f"convolved to {angle_text(self.resolution)}" if self.resolution else "not convolved"
        for name, values, size, text in (
            ("diameter", self.diameter, unit.size, f" {unit.name}"),
            ("width", self.width, unit.size, f" {unit.name} (FWHM; {resolution})"),
            ("hole/ring", self.depth, 1.0, ""),
        ):
            seen = values[self.is_ring] / size
            error = f" +- {seen.std(ddof=1):.2g}" if n_ring > 1 else ""
            lines.append(f"  {name:<12}{seen.mean():.3g}{error}{text}")
        if not self.is_map:
            lines.append(f"  {n_ring} of {n} samples have a ring")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Ring in {int(self.is_ring.sum())} of {len(self.is_ring)} images; print() shows more>"


def ring_of(samples: Array, field: ImageField, resolution: float = 0.0, *, is_map: bool = False) -> Ring:
    """The ring of each image, float64 (n_sample, N, N), at a resolution (FWHM, rad; 0: as they are).

    Raises
    ------
    InputError
        An image that is dark.
    """
    if not (samples.max(axis=(1, 2)) > 0.0).all():
        raise InputError("an image without positive brightness has no ring")
    sigma = resolution / field.cell / np.sqrt(8.0 * np.log(2.0))
    images = [gaussian_filter(image, sigma, mode="constant") for image in samples]
    in_mean = _ring_of_one(np.mean(images, axis=0))[0]
    is_ring, diameter, width, depth, x, y = map(np.array, zip(*map(_ring_of_one, images), strict=True))
    middle, cell = field.size // 2, field.cell
    found = [np.where(is_ring, values, np.nan) for values in (diameter * cell, width * cell, depth)]
    place = (middle - x) * cell, (y - middle) * cell
    return Ring(
        is_ring, found[0], found[1], found[2], *place, resolution=resolution, in_mean=in_mean, is_map=is_map
    )


def _ring_of_one(image: Array) -> tuple[bool, float, float, float, float, float]:
    """Whether there is a ring, diameter and width (pixels), depth, and centre (x, y) in pixels."""
    x, y = _centre(image)
    rays, radius = _rays(image, x, y, order=3)
    mean = rays.mean(axis=0)
    peak = int(mean.argmax())
    r = _summit(mean, radius, peak)
    hole = float(rays[:, radius <= _HOLE * r].mean())
    near = (radius >= 0.5 * r) & (radius <= 1.5 * r)
    sectors = rays[:, near].reshape(_N_SECTOR, -1, np.count_nonzero(near)).mean(axis=1)
    ridge = sectors.max(axis=1)
    is_ring = peak > 0 and bool(ridge.min() > max(hole, _FAINTEST * ridge.mean()))
    return is_ring, 2.0 * r, _width(mean, radius, peak), float(mean[0] / mean[peak]), x, y


def _summit(mean: Array, radius: Array, peak: int) -> float:
    """Where the parabola through a peak and its neighbours is highest."""
    if not 0 < peak < len(mean) - 1:
        return float(radius[peak])
    before, at, after = mean[peak - 1 : peak + 2]
    return float(radius[peak] + 0.5 * _FINE * (before - after) / (before - 2.0 * at + after))


def _width(mean: Array, radius: Array, peak: int) -> float:
    """FWHM about the peak of an azimuthal mean, by linear interpolation."""
    half = 0.5 * mean[peak]

    def crossing(values: Array, at: Array) -> float | None:
        below = np.flatnonzero(values < half)
        if not below.size:
            return None
        k = int(below[0])
        return float(np.interp(half, values[[k, k - 1]], at[[k, k - 1]]))

    outer = crossing(mean[peak:], radius[peak:])
    inner = crossing(mean[peak::-1], radius[peak::-1])
    far = float(radius[-1]) if outer is None else outer
    return far - inner if inner is not None else 2.0 * (far - float(radius[peak]))


def _centre(image: Array) -> tuple[float, float]:
    """The point (x, y) about which the relative spread of the radius of the brightest point is smallest."""
    axis, total = np.arange(len(image)), image.sum()
    best = (float(image.sum(axis=0) @ axis / total), float(image.sum(axis=1) @ axis / total))
    # A ring that is bright on one side has its centroid there: the search reaches an eighth of the image.
    n = max(2, round(len(image) / 8.0 / _STEPS[0]))
    for step in _STEPS:
        offsets = step * np.arange(-n, n + 1)
        places = [(best[0] + dx, best[1] + dy) for dy in offsets for dx in offsets]
        best = min(places, key=lambda place: _spread(image, *place))
        n = 1
    return best


def _spread(image: Array, x: float, y: float) -> float:
    """Relative spread over angles of the radius of the brightest point; infinite for a single blob."""
    rays, radius = _rays(image, x, y, order=1, n_angle=_N_ANGLE // 2)
    brightest = radius[rays.argmax(axis=1)]
    mean = float(brightest.mean())
    return float(brightest.std()) / mean if mean > 0.0 else np.inf


def _rays(
    image: Array, x: float, y: float, *, order: Literal[1, 3], n_angle: int = _N_ANGLE
) -> tuple[Array, Array]:
    """Brightness along rays from a point, (n_angle, n_radius), and the radii (n_radius,), pixels."""
    radius, angle = np.arange(0.0, len(image) / 2.0, _FINE), 2.0 * np.pi * np.arange(n_angle) / n_angle
    at = [y + np.outer(np.cos(angle), radius), x + np.outer(np.sin(angle), radius)]
    return np.asarray(map_coordinates(image, at, order=order, mode="constant")), radius
