"""The Earth's rotation and the motion of its pole, from the tables that astropy brings along."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import ARCSEC

Array = NDArray[np.float64]
DAY = 86400.0
FIRST_DAY, LAST_DAY = 15020.0, 88069.0
"""MJD of 1900 and 2100, between which the formulas of precession and of the Earth's velocity hold."""


def ut1_and_pole(day: Array) -> tuple[Array, Array, Array]:
    """UT1 - UTC (s) and the position of the pole (rad), float64 (n_time,) each; zero outside the tables.

    Values are linear between days, as those of `astropy.utils.iers`, whose reading of the same tables takes
    a second.

    Parameters
    ----------
    day : float64 (n_time,)
        MJD, UTC.
    """
    days, *columns = _of_each_day()
    after = np.clip(np.searchsorted(days, day, side="right"), 1, len(days) - 1)
    part = (day - days[after - 1]) / (days[after] - days[after - 1])
    known = (day >= days[0]) & (day < days[-1])
    found = []
    for values in columns:
        step = values[after] - values[after - 1]
        step -= np.round(step)  # a leap second; the others are far below 0.5
        found.append(np.where(known, values[after - 1] + part * step, 0.0))
    return found[0], found[1] * ARCSEC, found[2] * ARCSEC


@functools.cache
def _of_each_day() -> Array:
    """MJD, UT1 - UTC (s), and the pole (arcsec), float64 (4, n_day): IERS B, then A with its predictions."""
    try:
        from astropy_iers_data import IERS_A_FILE, IERS_B_FILE

        final = _columns(IERS_B_FILE, b"1962", ((16, 26), (50, 62), (26, 38), (38, 50)))
        rapid = _columns(IERS_A_FILE, b"73 1 2", ((7, 15), (58, 68), (18, 27), (37, 46)))
    except (ImportError, ValueError):  # files of another form than those of 2020 to 2026
        from astropy.utils import iers

        with iers.conf.set_temp("auto_download", False), iers.conf.set_temp("auto_max_age", None):
            table = iers.IERS_Auto.open()
            return np.array([table[name].value for name in ("MJD", "UT1_UTC", "PM_x", "PM_y")])
    rapid = rapid[:, (rapid[0] > final[0, -1]) & np.isfinite(rapid).all(axis=0)]
    return np.concatenate([final, rapid], axis=1)


def _columns(path: str, first: bytes, places: Sequence[tuple[int, int]]) -> Array:
    """Numbers of a table of lines of equal length, from the line that begins so; NaN where it is blank."""
    text = b"\n" + Path(path).read_bytes()
    text = text[text.index(b"\n" + first) + 1 :]
    lines = np.frombuffer(text, np.uint8).reshape(-1, text.index(b"\n") + 1)
    found = []
    for start, stop in places:
        column = np.ascontiguousarray(lines[:, start:stop]).view(f"S{stop - start}")[:, 0]
        found.append(np.where(np.char.strip(column) == b"", b"nan", column).astype(np.float64))
    return np.array(found)


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
