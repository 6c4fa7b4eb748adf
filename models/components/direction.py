"""Directions on the sky: read from what a user wrote, and turned between right ascension and offsets."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.strict import short_repr

Array = NDArray[np.float64]
Centre = tuple[float, float]


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


def north_bearing(direction: Centre, centre: Centre) -> float:
    """Angle of the north at a direction in the tangent plane of a centre, from m through l, rad."""
    east, north = basis(centre)[:2] @ basis(direction)[1]
    return float(np.arctan2(east, north))


def lm_to_radec(east: float, north: float, origin: Centre) -> tuple[float, float]:
    """Right ascension in [0, 2 pi) and declination, rad, of direction cosines about `origin`."""
    outward = np.sqrt(1 - east * east - north * north)
    x, y, z = np.array([east, north, outward]) @ basis(origin)
    return float(np.arctan2(y, x) % (2 * np.pi)), float(np.arctan2(z, np.hypot(x, y)))


def radec_to_lm(ra: float, dec: float, origin: Centre) -> tuple[float, float]:
    """Direction cosines about `origin` of a direction, rad; the reverse of `lm_to_radec`.

    Raises
    ------
    ModelError
        The direction is 90 deg or more from the origin.
    """
    ra0, dec0 = origin
    turn = ra - ra0
    # sin(dec - dec0) and 1 - cos(turn) as products, so that nothing cancels near the origin.
    bulge = 2 * np.sin(turn / 2) ** 2 * np.cos(dec)
    if np.sin(dec) * np.sin(dec0) + np.cos(dec) * np.cos(dec0) * np.cos(turn) <= 0:
        raise ModelError("a source is 90 deg or more from the centre")
    return float(np.cos(dec) * np.sin(turn)), float(np.sin(dec - dec0) + bulge * np.sin(dec0))


def separation(one: Centre, other: Centre) -> float:
    """Angle between two directions (ra, dec), rad; exact for small ones, too."""
    bulge = np.cos(one[1]) * np.cos(other[1]) * np.sin((one[0] - other[0]) / 2) ** 2
    return float(2 * np.arcsin(np.sqrt(min(1.0, np.sin((one[1] - other[1]) / 2) ** 2 + bulge))))


def parse_direction(value: object) -> Centre:
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
            f"found {short_repr(value)}"
        )
    ra, dec = (_angle(part, hours) for part, hours in zip(parts, (True, False), strict=True))
    if not abs(dec) <= np.pi / 2 * (1 + 1e-15) or not abs(ra) <= 4 * np.pi:
        raise ModelError(f"direction out of range: {short_repr(value)}")
    return ra, dec


def direction_text(centre: Centre) -> list[str]:
    """The texts of a direction that `parse_direction` reads back to the last bit, such as "05h00m00.000s".

    An angle that no such text gives exactly is written in deg, or in rad.
    """
    return [_exact_text(angle, hours) for angle, hours in zip(centre, (True, False), strict=True)]


def _exact_text(angle: float, hours: bool) -> str:
    """The shortest text in hours or degrees, minutes and seconds that is exactly this angle, rad."""
    for decimals in range(2 + hours, 14):
        ticks = round(abs(math.degrees(angle)) * (240 if hours else 3600) * 10**decimals)
        seconds, fraction = divmod(ticks, 10**decimals)
        minutes, seconds = divmod(seconds, 60)
        whole, minutes = divmod(minutes, 60)
        sign = "-" if angle < 0 else "" if hours else "+"
        text = f"{sign}{whole:02d}{'h' if hours else 'd'}{minutes:02d}m{seconds:02d}.{fraction:0{decimals}d}s"
        if not (hours and (angle < 0 or whole >= 24)) and _angle(text, hours) == angle:
            return text
    degrees = f"{math.degrees(angle)!r} deg"
    return degrees if _angle(degrees, hours) == angle else f"{angle!r} rad"


def _angle(part: object, hours: bool) -> float:
    if isinstance(part, str):
        degrees = units.sexagesimal(part, hours)
        if degrees is not None:
            return float(np.deg2rad(degrees))
    number, unit = units.number(part)
    if unit is None and isinstance(part, str):
        raise ModelError(f"{short_repr(part)} has no unit; write for example '{part} deg'")
    return number if unit is None else number * units.factor(unit, units.ANGLE)
