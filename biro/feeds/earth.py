"""The Earth's rotation and the motion of its pole, from the tables that astropy brings along."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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
