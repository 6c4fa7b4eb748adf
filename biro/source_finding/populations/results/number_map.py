"""Map of the expected number of sources in each pixel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro._version import __version__
from biro.display.formatting import angle_text
from biro.errors import InputError
from biro.imaging.fits import write_image
from biro.imaging.fits_header import Cards, celestial_axes
from biro.imaging.psf import RestoringBeam
from biro.models.components.direction import Centre
from biro.source_finding.populations.results.draws import SourceDraws

Array = NDArray[np.float64]
PER_BEAM = 5.0
"""Pixels along the FWHM of the beam's minor axis."""
MOST_BY_DEFAULT = 2048
MOST = 16384
"""Pixels along a side."""


@dataclass(frozen=True, eq=False)
class NumberMap:
    """Expected number of sources in each pixel; its sum is the mean number of sources.

    Attributes
    ----------
    plane, error : float64 (N, N)
        Pixel (x, y) of `plane[y, x]` lies at l = -(x - N/2) cell, m = (y - N/2) cell. The error is that by
        the finite number of draws.
    cell : float, rad
    centre : (float, float), rad
        ICRS right ascension and declination of pixel (N/2, N/2).
    """

    plane: Array
    error: Array
    cell: float
    centre: Centre

    def per_beam(self, beam: RestoringBeam) -> Array:
        """Expected number in the solid angle of a beam, if it were that of the pixel everywhere."""
        return self.plane * (beam.area / self.cell**2)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """East of the left and right edge, and north of the lower and upper edge, rad."""
        half = 0.5 * len(self.plane) * self.cell
        low, high = -half - 0.5 * self.cell, half - 0.5 * self.cell
        return -low, -high, low, high

    def write(self, path: Path, *, error: bool = False) -> None:
        """Write a FITS image of the number per pixel, or of its error.

        Raises
        ------
        OSError
            It cannot be written.
        """
        cards: Cards = {"BTYPE": "Number of sources", "BUNIT": "1/pixel", "RADESYS": "ICRS"}
        for i, axis in enumerate(celestial_axes(self.centre, self.cell, len(self.plane)), start=1):
            cards |= {f"CTYPE{i}": axis.kind, f"CRVAL{i}": axis.value, f"CDELT{i}": axis.delta}
            cards |= {f"CRPIX{i}": axis.reference, f"CUNIT{i}": axis.unit}
        what = "Monte Carlo error of the expected number" if error else "expected number"
        history = [f"biro {__version__}: {what} of sources in each pixel"]
        write_image(path, self.error if error else self.plane, cards, history)


def number_map(
    draws: SourceDraws,
    centre: Centre,
    beam: RestoringBeam,
    n_effective: float,
    cell: float | None = None,
    chosen: NDArray[np.bool_] | None = None,
) -> NumberMap:
    """The expected number of sources in each pixel, as wide as the sources of all draws lie.

    Parameters
    ----------
    draws : SourceDraws
    centre : (float, float), rad
    beam : RestoringBeam
    n_effective : float
        Independent draws.
    cell : float, rad, optional
        By default a fifth of the beam's minor axis, or so that the map has 2048 pixels along a side.
    chosen : bool (n,), optional
        Sources that count; by default all.

    Raises
    ------
    InputError
        A cell of 0 or less, or one so small that the map has more than 16384 pixels along a side.
    """
    reach = max(float(np.abs(draws.east).max(initial=0.0)), float(np.abs(draws.north).max(initial=0.0)))
    if cell is None:
        cell = max(beam.minor / PER_BEAM, 2.0 * reach / (MOST_BY_DEFAULT - 4))
    if not 0.0 < cell < math.inf:
        raise InputError(f"cell: an angle above 0, in rad, got {cell!r}")
    if 2.0 * reach / cell + 4.0 > MOST:
        raise InputError(
            f"cell: {angle_text(cell)} makes a map of {2.0 * reach / cell:.3g} pixels along a side, at most "
            f"{MOST}; give {angle_text(2.0 * reach / (MOST - 4))} or more"
        )
    half = math.ceil(reach / cell) + 1
    used = np.ones(len(draws), bool) if chosen is None else chosen
    x = half - np.rint(draws.east[used] / cell).astype(np.int64)
    y = half + np.rint(draws.north[used] / cell).astype(np.int64)
    n_pixel = 4 * half * half
    pixel = y * 2 * half + x
    plane = np.bincount(pixel, minlength=n_pixel) / draws.n_draw
    # The mean square of the number of one draw: mostly it is 0 or 1.
    each, count = np.unique(draws.draw[used] * n_pixel + pixel, return_counts=True)
    square = np.bincount(each % n_pixel, count.astype(np.float64) ** 2, minlength=n_pixel) / draws.n_draw
    scatter = np.sqrt(np.maximum(square - plane**2, 0.0) / n_effective)
    error = np.maximum(scatter, math.sqrt(0.5) / n_effective)  # as `mean_error`
    shape = (2 * half, 2 * half)
    return NumberMap(plane.reshape(shape), error.reshape(shape), cell, centre)
