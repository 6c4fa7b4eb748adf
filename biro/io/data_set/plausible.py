"""Find numbers of a Measurement Set that cannot be meant: not finite, or beyond anything that is observed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Mask = NDArray[np.bool_]
LATEST = 5e10
"""Times are within this of MJD 0, s: from the year 274 to 3443."""
LONGEST = 1e12
"""Coordinates of baselines are below this, m: some distances from the earth to the sun."""
HIGHEST = 1e18
"""Frequencies and widths of channels are below this, Hz: X-rays."""
MOST_TURNS = 100.0
"""Right ascensions are below this, rad: beyond it, an angle has been spoilt, not counted on."""


def is_time(time: ArrayLike) -> Mask:
    """Which numbers can be times, MJD in s."""
    return np.asarray(np.abs(time) <= LATEST)


def is_baseline(uvw: NDArray[np.float64]) -> Mask:
    """Which rows of uvw (n_row, 3), m, can be baselines."""
    return np.asarray((np.abs(uvw) <= LONGEST).all(axis=1))


def is_frequency(frequency: ArrayLike) -> Mask:
    """Which numbers can be frequencies of channels, Hz."""
    values = np.asarray(frequency)
    return np.asarray((values > 0.0) & (values <= HIGHEST))


def is_width(width: ArrayLike) -> Mask:
    """Which numbers can be widths of channels, Hz; a negative one says that frequencies fall."""
    return np.asarray(np.abs(width) <= HIGHEST)


def is_direction(ra: float, dec: float) -> bool:
    """Whether two angles, rad, can be a right ascension and a declination."""
    return abs(ra) <= MOST_TURNS and abs(dec) <= np.pi / 2 + 1e-9
