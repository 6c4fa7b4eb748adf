"""Where a source is in the tangent plane of a field (physics: section 1)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.models import units
from biro.models.errors import ModelError
from biro.models.strict import shown

Array = NDArray[np.float64]
Centre = tuple[float, float]


def radec_to_lm(ra: Array, dec: Array, centre: Centre) -> Array:
    """Direction cosines (l east, m north) of a direction about a phase centre.

    l = cos(dec) sin(ra - ra0),  m = sin(dec - dec0) + 2 cos(dec) sin(dec0) sin^2((ra - ra0) / 2),
    which is physics: section 1 with its cancellation for small angles taken out.

    Parameters
    ----------
    ra, dec : float64, any shape, rad
    centre : (float, float), rad

    Returns
    -------
    float64 (..., 2); NaN where the direction lies 90 degrees or more from the centre.
    """
    ra0, dec0 = centre
    shift = ra - ra0
    cos_dec = np.cos(dec)
    l = cos_dec * np.sin(shift)
    m = np.sin(dec - dec0) + 2 * cos_dec * np.sin(dec0) * np.sin(0.5 * shift) ** 2
    n = np.sin(dec) * np.sin(dec0) + cos_dec * np.cos(dec0) * np.cos(shift)
    lm = np.stack([l, m], axis=-1)
    lm[~(n > 0)] = np.nan
    return lm


def basis(centre: Centre) -> Array:
    """Rows are the unit vectors east, north and outward at a direction (float64 (3, 3), equatorial axes)."""
    (sin_ra, sin_dec), (cos_ra, cos_dec) = np.sin(centre), np.cos(centre)
    return np.array(
        [
            [-sin_ra, cos_ra, 0.0],
            [-sin_dec * cos_ra, -sin_dec * sin_ra, cos_dec],
            [cos_dec * cos_ra, cos_dec * sin_ra, sin_dec],
        ]
    )


def offsets_to_lm(east: Array, north: Array, origin: Centre, centre: Centre) -> Array:
    """Direction cosines about `centre` of a source given by direction cosines about `origin`.

    With (east, north, n) along the axes at `origin`, the turn to the axes at `centre` is exact; where
    both are the same the offsets are returned to the bit.

    Parameters
    ----------
    east, north : float64, any shape, direction cosines
    origin, centre : (float, float), rad

    Returns
    -------
    float64 (..., 2); NaN for offsets beyond the horizon of either plane.
    """
    squared = east * east + north * north
    lm = np.empty((*squared.shape, 2))
    lm[..., 0], lm[..., 1] = east, north
    above = squared < 1
    if not above.all():
        lm[~above] = np.nan
    if origin == centre:
        return lm
    turn = basis(centre) @ basis(origin).T
    with np.errstate(invalid="ignore"):
        outward = np.sqrt(1 - squared)
    turned = np.concatenate([lm, outward[..., None]], axis=-1) @ turn.T
    turned[~(turned[..., 2] > 0)] = np.nan
    return np.asarray(turned[..., :2])


def lm_to_radec(east: float, north: float, origin: Centre) -> tuple[float, float]:
    """Right ascension in [0, 2 pi) and declination, rad, of direction cosines about `origin`."""
    outward = np.sqrt(1 - east * east - north * north)
    x, y, z = np.array([east, north, outward]) @ basis(origin)
    return float(np.arctan2(y, x) % (2 * np.pi)), float(np.arctan2(z, np.hypot(x, y)))


def parse_direction(value: Any) -> Centre:
    """Radians of "12h29m06.7s +02d03m08.6s", "12:29:06.7 +02:03:08.6", "187.28 deg 2.05 deg", or a pair.

    Colons part hours in the right ascension and degrees in the declination. A pair of floats is in radians.

    Raises
    ------
    ModelError
        Neither, or a declination beyond the poles.
    """
    if isinstance(value, str):
        parts = re.split(r"[\s,]+(?=[+-]?[\d.])", value.strip())
    elif isinstance(value, (tuple, list)):
        parts = list(value)
    else:
        parts = []
    if len(parts) != 2:
        raise ModelError(
            "expected a direction such as '12h29m06.7s +02d03m08.6s' or '187.28 deg 2.05 deg', "
            f"found {shown(value)}"
        )
    ra, dec = (_angle(part, hours) for part, hours in zip(parts, (True, False), strict=True))
    if not abs(dec) <= np.pi / 2 * (1 + 1e-15) or not abs(ra) <= 4 * np.pi:
        raise ModelError(f"direction out of range: {shown(value)}")
    return ra, dec


def _angle(part: Any, hours: bool) -> float:
    if isinstance(part, str):
        degrees = units.sexagesimal(part, hours)
        if degrees is not None:
            return float(np.deg2rad(degrees))
    number, unit = units.number(part)
    if unit is None and isinstance(part, str):
        raise ModelError(f"{shown(part)} has no unit; write for example '{part} deg'")
    return number if unit is None else number * units.factor(unit, units.ANGLE)
