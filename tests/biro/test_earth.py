"""UT1 and the pole of the Earth against astropy's own reading of the tables that it brings along."""

import numpy as np
from astropy import units
from astropy.time import Time
from astropy.utils import iers

from biro.observation.feeds.earth import ut1_and_pole

LEAP_SECONDS = (49169.0, 53736.0, 57754.0)
"""MJD at whose beginning UT1 - UTC has jumped by a second."""


def test_ut1_and_pole_are_those_of_astropy() -> None:
    """Days of all decades, and both sides of leap seconds, against `IERS_Auto`."""
    rng = np.random.default_rng(1)
    day = np.concatenate(
        [rng.uniform(41685.0, 61000.0, 500), *(np.array(LEAP_SECONDS) + s for s in (-1e-3, 0.0, 1e-3))]
    )
    with iers.conf.set_temp("auto_download", False), iers.conf.set_temp("auto_max_age", None):
        table, time = iers.IERS_Auto.open(), Time(day, format="mjd", scale="utc")
        expected = [
            table.ut1_utc(time).to_value(units.s),
            *(p.to_value(units.rad) for p in table.pm_xy(time)),
        ]
    for found, values in zip(ut1_and_pole(day), expected, strict=True):
        # Both interpolate the same values; a day of MJD 6e4 has 7e-12 of rounding, and UT1 moves 3 ms a day.
        np.testing.assert_allclose(found, values, rtol=0.0, atol=1e-12)


def test_days_outside_the_tables_give_nothing() -> None:
    """Before 1962 and after the predictions UT1 is taken to be UTC."""
    assert not np.any(ut1_and_pole(np.array([10.0, 37000.0, 90000.0])))
