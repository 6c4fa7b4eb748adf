"""Phase centres of UVFITS files, which give right ascension and declination with an equinox, as ICRS."""

from __future__ import annotations

import math

import numpy as np

from biro.io.data_set.metadata import FieldMetadata, PointingMetadata, turned_axes
from biro.io.data_set.plausible import is_direction

FARTHEST = math.radians(5.0)
"""Farther from the phase centre no dish is taken to have pointed, rad."""
VLA_EPOCH = "J1979.9"
"""Epoch of the E-terms and of precession in B1950 positions of the VLA (casacore's B1950_VLA)."""


def make_field(
    name: str,
    direction: tuple[float, float],
    equinox: float,
    telescope: str,
    mjd: float,
    pointing: tuple[float, float] | None = None,
    origin: str = "",
) -> FieldMetadata:
    """A field of an observation.

    Parameters
    ----------
    name : str
    direction : (float, float), deg
        Right ascension and declination.
    equinox : float
        Of these: 2000 or 1950.
    telescope : str
    mjd : float
        When it was observed, d.
    pointing : (float, float), deg, optional
        Where the dishes pointed, of the same equinox; zeros are not filled in.
    origin : str
        What states it.
    """
    ra, dec = math.radians(direction[0]), math.radians(direction[1])
    problem = note = None
    frame = "J2000"
    if not (math.isfinite(ra) and abs(dec) <= math.pi / 2):
        problem = (
            f"its phase centre is at ra {direction[0]:g}, dec {direction[1]:g} deg, which is not a sky "
            "position"
        )
    elif equinox == 1950.0:
        vla = "VLA" in telescope.upper()
        frame = "B1950_VLA" if vla else "B1950"
        epoch = VLA_EPOCH if vla else f"J{2000.0 + (mjd - 51544.5) / 365.25!r}"
        there = _from_b1950(ra, dec + (1e-4 if dec < 0 else -1e-4), epoch)
        ra, dec = _from_b1950(ra, dec, epoch)
        note = turned_axes(frame, _north((ra, dec), there))
    elif equinox != 2000.0:
        problem = f"its phase centre has the equinox {equinox:g}; expected 2000 or 1950"
    place = [ra % (2 * math.pi) if problem is None else ra, dec]
    found: PointingMetadata | None = None
    if problem is None and pointing is not None:
        there = math.radians(pointing[0]), math.radians(pointing[1])
        if is_direction(*there) and any(there):
            there = there if frame == "J2000" else _from_b1950(*there, epoch)
            found, odd = _pointing((place[0], place[1]), (there[0] % (2 * math.pi), there[1]), origin)
            note = "; ".join(filter(None, (note, odd))) or None
    return {
        "name": name,
        "direction": place,
        "frame": frame,
        "problem": problem,
        "note": note,
        "pointing": found,
    }


def _pointing(
    phase_centre: tuple[float, float], there: tuple[float, float], origin: str
) -> tuple[PointingMetadata | None, str | None]:
    """Where the dishes pointed, or None and why: a file has no diameters by which a beam would be known."""
    (ra0, dec0), (ra, dec) = phase_centre, there
    half = (
        math.sin(0.5 * (dec - dec0)) ** 2 + math.cos(dec) * math.cos(dec0) * math.sin(0.5 * (ra - ra0)) ** 2
    )
    apart = 2.0 * math.asin(min(1.0, math.sqrt(half)))
    if apart > FARTHEST:
        return (
            None,
            f"the pointing centre ({origin}) lies {math.degrees(apart):.3g} deg from the phase centre, so "
            "biro does not use it",
        )
    return {"centre": list(there), "origin": origin, "time": [], "offset": []}, None


def _from_b1950(ra: float, dec: float, epoch: str) -> tuple[float, float]:
    """A direction of B1950 in J2000, which is taken as ICRS as in Measurement Sets, rad."""
    from astropy.coordinates import FK4, FK5, SkyCoord

    frame = FK4(equinox="B1950", obstime=epoch)
    place = SkyCoord(ra, dec, unit="rad", frame=frame).transform_to(FK5(equinox="J2000"))
    return float(place.ra.rad), float(place.dec.rad)


def _north(here: tuple[float, float], there: tuple[float, float]) -> float:
    """Position angle, modulo 180 deg about 0, of the line between two near directions, rad."""
    east = (there[0] - here[0] + np.pi) % (2 * np.pi) - np.pi
    north = there[1] - here[1]
    return math.atan2(math.copysign(1.0, north) * east * math.cos(here[1]), abs(north))


def utc_offset(mjd: float, scale: str) -> float:
    """Seconds to add to a time on a scale to make it UTC."""
    if scale == "UTC":
        return 0.0
    from astropy.time import Time

    return float(round((Time(mjd, format="mjd", scale="tai").utc.mjd - mjd) * 86400.0, 3))
