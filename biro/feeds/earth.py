"""The Earth's rotation and the motion of its pole, from the tables that astropy brings along."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DAY = 86400.0
FIRST_DAY, LAST_DAY = 15020.0, 88069.0
"""MJD of 1900 and 2100, between which the formulas of precession and of the Earth's velocity hold."""


def ut1_and_pole(day: Array) -> tuple[Array, Array, Array]:
    """UT1 - UTC (s) and the position of the pole (rad), float64 (n_time,) each; zero outside the tables.

    Parameters
    ----------
    day : float64 (n_time,)
        MJD, UTC.
    """
    from astropy import units
    from astropy.time import Time
    from astropy.utils import iers

    time = Time(day, format="mjd", scale="utc")
    # The installed tables are used, however old they are; nothing is fetched from the network.
    with iers.conf.set_temp("auto_download", False), iers.conf.set_temp("auto_max_age", None):
        table = iers.IERS_Auto.open()
        difference, status = table.ut1_utc(time, return_status=True)
        x, y = table.pm_xy(time)
    known = np.asarray(status) >= 0
    if not known.any():
        return np.zeros_like(day), np.zeros_like(day), np.zeros_like(day)
    values = (difference.to_value(units.s), x.to_value(units.rad), y.to_value(units.rad))
    ut1_utc, pole_x, pole_y = (np.where(known, np.nan_to_num(value), 0.0) for value in values)
    return ut1_utc, pole_x, pole_y


def pole_of_date(time: Array, axes: Array) -> tuple[Array, Array]:
    """Declination of a direction and position angle of the celestial pole, both of date, rad.

    The pole about which the Earth turns is that of IAU 2006/2000A, with precession and nutation (third row
    of `erfa.pnm06a`, which needs no tables); axes are `aberrated`. Polar motion (1e-6 rad) is left out. Times
    before 1900 or after 2100, which arrays without real times have, get the pole of 2000.

    Parameters
    ----------
    time : float64 (n_time,), s
        MJD.
    axes : float64 (3, 3)
        As those of `aberrated`.

    Returns
    -------
    declination : float64 (n_time,)
    pole_angle : float64 (n_time,)
        From the axis to the north through that to the east.
    """
    import erfa

    day = np.where(is_date(time), time / DAY, erfa.DJM00)
    east, north, towards = np.moveaxis(aberrated(axes, np.full(day.shape, erfa.DJM0), day), 1, 0)
    pole = erfa.pnm06a(erfa.DJM0, day)[:, 2]
    along_east, along_north, sin_dec = (np.sum(axis * pole, axis=-1) for axis in (east, north, towards))
    return np.arcsin(np.clip(sin_dec, -1.0, 1.0)), np.arctan2(along_east, along_north)


def is_date(time: Array) -> NDArray[np.bool_]:
    """Whether times (MJD, s) are dates for which precession and the Earth's velocity are known."""
    return np.asarray((time >= FIRST_DAY * DAY) & (time <= LAST_DAY * DAY))


def aberrated(axes: Array, tt1: Array, tt2: Array) -> Array:
    """Axes u, v, w of a direction after the smallest rotation that takes it to its apparent place.

    The Earth's annual aberration turns the direction; diurnal aberration (at most 1.6e-6 rad) is left out.

    Parameters
    ----------
    axes : float64 (3, 3)
        Rows are unit vectors, ICRS: east, north, and the direction.
    tt1, tt2 : float64 (n_time,), d
        Terrestrial time as a Julian date in two parts.

    Returns
    -------
    float64 (n_time, 3, 3)
    """
    import erfa

    heliocentric, barycentric = erfa.epv00(tt1, tt2)
    velocity = barycentric["v"] * (erfa.DAU / erfa.DAYSEC / erfa.CMPS)
    sun_distance = np.linalg.norm(heliocentric["p"], axis=-1)
    lorentz = np.sqrt(1.0 - (velocity**2).sum(axis=-1))
    direction = np.broadcast_to(axes[2], velocity.shape).copy()
    apparent = erfa.ab(direction, velocity, sun_distance, lorentz)
    # Smallest rotation of s to a: x -> x + (k . x terms), with k = s x a (Rodrigues).
    k = np.cross(axes[2], apparent)[:, None, :]
    cosine = (apparent @ axes[2])[:, None, None]
    once = np.cross(k, axes[None])
    return np.asarray(axes + once + np.cross(k, once) / (1.0 + cosine), dtype=np.float64)
