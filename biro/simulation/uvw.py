"""UVW of antennas from their ITRF positions: the orientation of the Earth under a phase centre."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.models.components.direction import basis
from biro.observation.feeds.earth import aberrated, ut1_and_pole
from biro.simulation.telescopes import up

DAY = 86400.0
FIRST_DAY, LAST_DAY = 41317.0, 88069.0
"""MJD. UTC in its present form began in 1972; the formula of the Earth's velocity is good until 2100."""


@dataclass(frozen=True, eq=False)
class EarthOrientation:
    """Orientation of the Earth under a phase centre, at each of a number of times.

    Attributes
    ----------
    itrf_to_uvw : float64 (n_time, 3, 3)
        Rows are the unit vectors of u (east), v (north) and w (towards the phase centre) in ITRF.
    """

    itrf_to_uvw: NDArray[np.float64]

    def antenna_uvw(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """uvw of each antenna, float64 (n_time, n_antenna, 3), m, for ITRF positions (n_antenna, 3), m.

        The uvw of a baseline is that of antenna1 minus that of antenna2: then the phase of physics,
        section 2, holds.
        """
        uvw: NDArray[np.float64] = np.einsum("tij,aj->tai", self.itrf_to_uvw, positions)
        return uvw

    def elevation(self, position: NDArray[np.float64]) -> NDArray[np.float64]:
        """Elevation of the phase centre above the horizon at an ITRF position, float64 (n_time,), rad."""
        return np.arcsin(np.clip(self.itrf_to_uvw[:, 2] @ up(position), -1.0, 1.0))


def earth_orientation(
    time: NDArray[np.float64], phase_centre: tuple[float, float], *, ut1_utc: float | None = None
) -> EarthOrientation:
    """Orientation of u, v and w in ITRF at each time.

    The celestial axes of the phase centre (ICRS east, north and the direction itself) are turned as
    the Earth's annual aberration turns the direction, and then into ITRF with precession and nutation
    (IAU 2006/2000A, `erfa.c2t06a`), the Earth's rotation angle and the motion of the pole. Diurnal
    aberration (at most 1.6e-6 rad) is left out. UT1 - UTC and the pole come from the tables that are
    installed with astropy, never from the network; beyond their end they are taken as zero (UT1 - UTC is
    below 0.9 s: 14 arcsec of rotation about the pole, without effect on anything that is simulated and fitted
    with the same uvw).

    Parameters
    ----------
    time : float64 (n_time,), s
        MJD, UTC.
    phase_centre : (float, float), rad
        ICRS right ascension and declination.
    ut1_utc : float, s, optional
        Use this difference, and no motion of the pole, in place of the tables.

    Raises
    ------
    InputError
        A time before UTC began (1972) or after 2100.
    """
    import erfa

    day = np.asarray(time, dtype=np.float64) / DAY
    if day.size and not (day.min() >= FIRST_DAY and day.max() <= LAST_DAY):
        raise InputError(
            f"times must lie between 1972 and 2100 (MJD in seconds, UTC), got MJD {day.min():.6g}"
        )
    zero = np.zeros_like(day)
    d_ut1, pole_x, pole_y = ut1_and_pole(day) if ut1_utc is None else (zero + ut1_utc, zero, zero)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*dubious year")  # future leap seconds are not known
        tt1, tt2 = erfa.taitt(*erfa.utctai(zero + erfa.DJM0, day))
        ut1 = erfa.utcut1(zero + erfa.DJM0, day, d_ut1)
    turn = erfa.c2t06a(tt1, tt2, *ut1, pole_x, pole_y)
    axes = aberrated(basis(phase_centre), tt1, tt2)
    return EarthOrientation(np.einsum("tij,tkj->tki", turn, axes))


def transit(day: float, phase_centre: tuple[float, float], position: NDArray[np.float64]) -> float:
    """Time at which a direction culminates at an ITRF position on a day, MJD s, UTC, to half a minute.

    From the Earth's rotation angle, theta(t) = ra - longitude (mean equinox of J2000, UT1 = UTC).

    Parameters
    ----------
    day : float
        MJD.
    phase_centre : (float, float), rad
        ICRS right ascension and declination.
    position : float64 (3,), m
        ITRF.
    """
    import erfa

    longitude = np.arctan2(position[1], position[0])
    ahead = phase_centre[0] - longitude - erfa.era00(erfa.DJM0, day)
    return float(DAY * (day + np.mod(ahead, 2 * np.pi) / (2 * np.pi * 1.00273781191135448)))
