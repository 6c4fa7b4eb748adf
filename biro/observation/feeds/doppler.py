"""Doppler factors between the frames in which frequencies are stated, with the velocities of astropy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

import numpy as np
from numpy.typing import NDArray

from biro.choices import SpectralFrame
from biro.errors import InputError
from biro.models.components.direction import basis
from biro.observation.feeds.earth import DAY, FIRST_DAY, LAST_DAY
from biro.observation.feeds.parallactic import HIGHEST
from rime_kernels.physics.phase import SPEED_OF_LIGHT

if TYPE_CHECKING:
    from biro.models.sky import SkyModel

Array = NDArray[np.float64]
SUN_IN_LSRK = 2.0e4
"""Speed of the Sun in the kinematic local standard of rest, m/s."""
APEX = (float(np.deg2rad(270.959542)), float(np.deg2rad(30.004667)))
"""Where the Sun moves to in it: 18h, +30 deg of B1900, ICRS here (as in casacore and in astropy), rad."""


def doppler_factors(
    time: Array, direction: tuple[float, float], position: Array, origin: SpectralFrame, target: SpectralFrame
) -> Array:
    """Frequencies in one frame over those in another, for a source at rest in neither.

        nu_target / nu_origin = d(v_target) / d(v_origin),   d(v) = sqrt((1 + v/c) / (1 - v/c))

    with v the component towards the source of a frame's velocity relative to the barycentre of the solar
    system: 0 for BARY; for LSRK minus the Sun's motion, 20 km/s towards 18h, +30 deg of B1900; that of the
    Earth's centre for GEO; that of the array for TOPO. It is the formula of casacore's measures; the
    transverse Doppler effect (1.5 m/s) and gravity (3 m/s) are left out there and here.

    Parameters
    ----------
    time : float64 (n_time,), s
        MJD, UTC.
    direction : (float, float), rad
        ICRS right ascension and declination.
    position : float64 (3,), m
        ITRF, of the array.
    origin, target : "TOPO", "GEO", "BARY" or "LSRK"

    Returns
    -------
    float64 (n_time,)

    Raises
    ------
    InputError
        Times before 1900 or after 2100, or a position that is not on the Earth.
    """
    if origin == target:
        return np.ones(len(time))
    towards = basis(direction)[2]
    beta = {frame: _velocity(time, position, frame) @ towards / SPEED_OF_LIGHT for frame in (origin, target)}
    shift = {frame: np.sqrt((1.0 + b) / (1.0 - b)) for frame, b in beta.items()}
    return np.broadcast_to(np.asarray(shift[target] / shift[origin], np.float64), len(time))


def factors_between(
    time: Array, direction: tuple[float, float], position: Array, origin: str, target: str, what: str
) -> Array:
    """Doppler factors as `doppler_factors` gives them, between frames as data state them.

    Raises
    ------
    InputError
        Also of a frame whose velocity is not known; `what` is what has it.
    """
    for name in (origin, target):
        if origin != target and name not in get_args(SpectralFrame):
            raise InputError(
                f"biro cannot convert the frequencies of {what} from {origin or 'an unknown frame'} to "
                f"{target}, "
                "only between TOPO, GEO, BARY and LSRK; leave out --frame (frame= in Python) or "
                "velocity_frame"
            )
    return doppler_factors(time, direction, position, origin, target)  # type: ignore[arg-type]


def velocity_lines(sky: SkyModel, own: str, drift: Callable[[str], float]) -> list[str]:
    """In which frame the velocities of a model's lines are, a line for each frame.

    Parameters
    ----------
    sky : SkyModel
    own : str
        Frame of the data.
    drift : function of a frame
        By how much frequencies in it change over those of the data within a partition, relatively.
    """
    given = [source.line for source in sky.sources if source.line and "velocity" in source.line]
    lines = []
    for frame in sorted({str(line.get("velocity_frame", "")) for line in given}):
        text = f"in the frame of the data ({own}); velocity_frame would change it"
        if frame:
            text = (
                f"in {frame}, converted to the frame of the data ({own}) at the middle of each partition. "
                f"They drift by {drift(frame) * SPEED_OF_LIGHT / 1e3:.3g} km/s within one"
            )
        lines.append(f"velocities: {text}")
    return lines


def _velocity(time: Array, position: Array, frame: SpectralFrame) -> Array:
    """Velocity of a frame relative to the barycentre, ICRS axes, float64 (n_time, 3) or (3,), m/s."""
    from astropy import coordinates
    from astropy.time import Time
    from astropy.utils import iers

    if frame == "BARY":
        return np.zeros(3)
    if frame == "LSRK":
        return np.asarray(-SUN_IN_LSRK * basis(APEX)[2])
    day = time / DAY
    if not ((day > FIRST_DAY) & (day < LAST_DAY)).all():
        raise InputError(
            f"frequencies in {frame} need times between 1900 and 2100, got MJD {day.min():.6g} to "
            f"{day.max():.6g}"
        )
    with (
        warnings.catch_warnings(),
        iers.conf.set_temp("auto_download", False),
        iers.conf.set_temp("auto_max_age", None),
        iers.conf.set_temp("iers_degraded_accuracy", "ignore"),
    ):
        warnings.simplefilter("ignore")  # leap seconds of the future are not known
        moment = Time(day, format="mjd", scale="utc")
        velocity = coordinates.get_body_barycentric_posvel("earth", moment)[1].xyz
        if frame == "TOPO":
            _check_on_earth(position)
            place = coordinates.EarthLocation.from_geocentric(*position, unit="m")
            velocity = velocity + place.get_gcrs_posvel(moment)[1].xyz
        return np.asarray(velocity.to_value("m/s").T)


def _check_on_earth(position: Array) -> None:
    """Refuse a position without which the velocity of the Earth's surface is not known."""
    radius = float(np.linalg.norm(position))
    if not 0.0 < radius < HIGHEST:
        raise InputError(
            "frequencies in TOPO need ITRF positions of the antennas, whose mean lies within 7e6 m of the "
            f"Earth's centre, got {radius:.6g} m"
        )
