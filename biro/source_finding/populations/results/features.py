"""What tells sources of different draws from each other: place in beams, flux and size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.imaging.psf import RestoringBeam
from biro.source_finding.populations.results.draws import SourceDraws

Array = NDArray[np.float64]
FLOOR = np.array([0.02, 0.02, 0.05, 0.05])
"""Least standard deviation of an entry: of a beam (FWHM) for places, of ln flux, and of ln size."""
TYPICAL = np.array([0.1, 0.1, 0.3, 0.2])
"""Standard deviation of an entry of which nothing is known yet."""


def features(draws: SourceDraws, beam: RestoringBeam) -> Array:
    """Coordinates in which the sources of an entry lie close together, float64 (n, 3), or (n, 4) with sizes.

    East and north are turned and divided so that the beam is a circle with a FWHM of 1. Then ln flux, as
    asinh of the flux over a tenth of the smallest, which is finite for fluxes of 0 and below. Then
    ln sqrt(1 + (emaj / beam)^2), which is 0 for points.
    """
    place = in_beams(draws.east, draws.north, beam)
    size = np.abs(draws.flux)
    small = 0.1 * float(np.min(size[size > 0.0], initial=np.inf))
    flux = np.arcsinh(draws.flux / (small if np.isfinite(small) else 1.0))
    columns = [*place.T, flux]
    if "emaj" in draws.values:
        emaj = np.nan_to_num(draws.values["emaj"])
        columns.append(0.5 * np.log1p((emaj / np.sqrt(beam.major * beam.minor)) ** 2))
    return np.stack(columns, axis=1)


def in_beams(east: Array, north: Array, beam: RestoringBeam) -> Array:
    """Offsets along the major and minor axis of the beam in units of its FWHM, float64 (n, 2)."""
    sin, cos = np.sin(beam.pa), np.cos(beam.pa)
    along = (east * sin + north * cos) / beam.major
    across = (east * cos - north * sin) / beam.minor
    return np.stack([along, across], axis=-1)
