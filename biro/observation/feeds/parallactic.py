"""Parallactic angle, elevation and hour angle of a direction, seen from each antenna at each time."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.models.components.direction import basis
from biro.observation.feeds.earth import pole_of_date, ut1_and_pole

Array = NDArray[np.float64]
DAY = 86400.0
MOST_KEPT = 1 << 14
"""Times, each for all antennas, up to which a place is kept for the next call."""
LOWEST, HIGHEST = 6.0e6, 7.0e6
"""Distances from the Earth's centre between which an antenna stands, m."""


@dataclass(frozen=True, eq=False)
class ApparentPlace:
    """Where a direction is seen from each antenna at each time; nothing is refracted.

    Attributes
    ----------
    hour_angle : float64 (n_time, n_antenna), rad
        Of date, to the west.
    declination : float64 (n_time, n_antenna), rad
        Of date.
    elevation : float64 (n_time, n_antenna), rad
        Above the horizon of the ellipsoid.
    latitude : float64 (n_antenna,), rad
        Geodetic, of the WGS84 ellipsoid.
    pole_angle : float64 (n_time, 1), rad
        Position angle of the pole of date from the ICRS north: `earth.pole_of_date`.
    """

    hour_angle: Array
    declination: Array
    elevation: Array
    latitude: Array
    pole_angle: Array

    @property
    def parallactic_angle(self) -> Array:
        """Position angle of the zenith, ICRS north through east, float64 (n_time, n_antenna), rad.

            q = atan2(sin H cos lat, sin lat cos dec - cos lat sin dec cos H) + pole_angle

        with hour angle H and declination of date and the geodetic latitude (physics: section 6): the first
        term is from the north of date, and l, m, Q and U are relative to the ICRS north.
        """
        sin_dec, cos_dec = np.sin(self.declination), np.cos(self.declination)
        sin_lat, cos_lat = np.sin(self.latitude), np.cos(self.latitude)
        east = np.sin(self.hour_angle) * cos_lat
        north = sin_lat * cos_dec - cos_lat * sin_dec * np.cos(self.hour_angle)
        return np.asarray(np.arctan2(east, north) + self.pole_angle)

    @property
    def east_west_angle(self) -> Array:
        """Position angle of the western horizon, the axis of an X-Y mount, (n_time, n_antenna), rad.

            q = atan2(-cos H, -sin H sin dec) + pole_angle

        whose first term is that of casacore's MSDerivedValues. The eastern end of the axis would add half a
        turn, which is a change of sign of what the antenna measures.
        """
        south = np.sin(self.hour_angle) * np.sin(self.declination)
        return np.asarray(np.arctan2(-np.cos(self.hour_angle), -south) + self.pole_angle)


def apparent_place(time: Array, direction: tuple[float, float], positions: Array) -> ApparentPlace:
    """The place of a direction at each time, as each antenna sees it.

    Precession and nutation are IAU 2006/2000A, with annual and diurnal aberration (`erfa.atci13`, `atio13`).

    Parameters
    ----------
    time : float64 (n_time,), s
        MJD, UTC.
    direction : (float, float), rad
        ICRS right ascension and declination.
    positions : float64 (n_antenna, 3), m
        ITRF.

    Raises
    ------
    InputError
        A position that is not on the Earth, or a time that is not finite.
    """
    time, positions = np.asarray(time, np.float64), np.asarray(positions, np.float64)
    if time.size * len(positions) > MOST_KEPT:
        return _apparent_place(time, direction, positions)
    return _kept_place(time.tobytes(), direction, positions.tobytes())


@functools.lru_cache(maxsize=4)
def _kept_place(time: bytes, direction: tuple[float, float], positions: bytes) -> ApparentPlace:
    """The place from arrays as bytes: spectral windows share times and antennas."""
    return _apparent_place(np.frombuffer(time), direction, np.frombuffer(positions).reshape(-1, 3))


def _apparent_place(time: Array, direction: tuple[float, float], positions: Array) -> ApparentPlace:
    import erfa

    radius = np.linalg.norm(positions, axis=1)
    if not ((radius > LOWEST) & (radius < HIGHEST)).all():
        raise InputError(
            "parallactic angles need ITRF positions of the antennas, about 6.37e6 m from the Earth's centre, "
            f"got {radius.min():.6g} to {radius.max():.6g} m"
        )
    day = time / DAY
    if not np.isfinite(day).all():
        raise InputError("parallactic angles need times that are finite")
    longitude, latitude, height = erfa.gc2gd(1, positions)  # 1: WGS84
    ut1_utc, pole_x, pole_y = ut1_and_pole(day)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*dubious year")  # future leap seconds are not known
        tt1, tt2 = erfa.taitt(*erfa.utctai(erfa.DJM0, day))
        cirs_ra, cirs_dec, _ = erfa.atci13(*direction, 0.0, 0.0, 0.0, 0.0, tt1, tt2)
        earth = (erfa.DJM0, day[:, None], ut1_utc[:, None])
        pole = (pole_x[:, None], pole_y[:, None])
        air = (0.0, 0.0, 0.0, 1.0)  # no pressure: no refraction
        _, zenith, hour_angle, declination, _ = erfa.atio13(
            cirs_ra[:, None], cirs_dec[:, None], *earth, longitude, latitude, height, *pole, *air
        )
    _, pole_angle = pole_of_date(day * DAY, basis(direction))
    return ApparentPlace(hour_angle, declination, 0.5 * np.pi - zenith, latitude, pole_angle[:, None])
