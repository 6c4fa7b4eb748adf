"""Directions against astropy's world coordinates and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from astropy.coordinates import Angle, SkyCoord
from astropy.wcs import WCS

from biro.models import ModelError
from biro.models.bound.positions.places import TangentPlanes
from biro.models.components.direction import lm_to_radec, parse_direction

CENTRES = [(0.5236, 0.5236), (3.2686, 0.0358), (6.28, -1.4), (0.01, 1.5707)]


def radec_to_lm(ra: object, dec: object, centre: tuple[float, float]) -> np.ndarray:
    """Direction cosines (..., 2) about one centre."""
    ra, dec = np.atleast_1d(ra), np.atleast_1d(dec)
    return TangentPlanes([centre], centre).of_radec(ra[None], dec[None])[0, 0]


def offsets_to_lm(east: np.ndarray, north: np.ndarray, origin: tuple, centre: tuple) -> np.ndarray:
    return TangentPlanes([centre], origin).of_offsets(np.stack([east, north], -1)[None])[0, 0]


def sin_wcs(centre: tuple[float, float]) -> WCS:
    """A SIN projection whose pixel coordinates are l and m in degrees of 180/pi."""
    wcs = WCS(naxis=2)
    wcs.wcs.ctype = ["RA---SIN", "DEC--SIN"]
    wcs.wcs.crval = np.rad2deg(centre)
    wcs.wcs.cdelt = [1.0, 1.0]
    wcs.wcs.crpix = [0.0, 0.0]
    return wcs


@pytest.mark.parametrize("centre", CENTRES)
def test_lm_is_the_sin_projection(centre: tuple[float, float]) -> None:
    random = np.random.default_rng(5)
    distance, angle = random.uniform(0, 1.2, 200), random.uniform(0, 2 * np.pi, 200)
    start = SkyCoord(*centre, unit="rad")
    there = start.directional_offset_by(angle * 180 / np.pi * 1.0 * _deg(), distance * _rad())
    expected = np.deg2rad(sin_wcs(centre).all_world2pix(there.ra.deg, there.dec.deg, 0) + np.ones((2, 1)))
    lm = radec_to_lm(there.ra.rad, there.dec.rad, centre)
    # the world coordinate system works in degrees: 360 * 2e-16 deg of rounding, a few times
    np.testing.assert_allclose(lm, expected.T, atol=1e-14)


def _deg() -> object:
    from astropy import units

    return units.deg


def _rad() -> object:
    from astropy import units

    return units.rad


@pytest.mark.parametrize("centre", CENTRES)
def test_small_offsets_keep_their_digits(centre: tuple[float, float]) -> None:
    """A shift in declination alone by 1 milli-arcsec is m = sin(shift), l = 0."""
    shift = np.deg2rad(1e-3 / 3600)
    dec = centre[1] - shift
    (lm,) = radec_to_lm(centre[0], dec, centre)
    # the declination itself is rounded to 2e-16 rad
    assert lm[1] == pytest.approx(np.sin(dec - centre[1]), abs=1e-24)
    assert lm[0] == 0


def test_offsets_about_the_phase_centre_are_lm_to_the_bit() -> None:
    east, north = np.array([1e-5, -0.3, 0.1]), np.array([-3e-4, 0.4, 0.2])
    lm = offsets_to_lm(east, north, (1.0, 0.3), (1.0, 0.3))
    np.testing.assert_array_equal(lm, np.stack([east, north], -1))


@pytest.mark.parametrize("centre", CENTRES)
def test_offsets_from_elsewhere_are_the_same_direction(centre: tuple[float, float]) -> None:
    origin = (centre[0] + 0.02, centre[1] - 0.05)
    east, north = np.array([0.01, -0.02, 0.0]), np.array([0.003, 0.0, -0.04])
    world = sin_wcs(origin).all_pix2world(np.rad2deg(east) - 1, np.rad2deg(north) - 1, 0)
    expected = radec_to_lm(np.deg2rad(world[0]), np.deg2rad(world[1]), centre)
    np.testing.assert_allclose(offsets_to_lm(east, north, origin, centre), expected, atol=2e-15)
    ra, dec = lm_to_radec(0.01, 0.003, origin)
    assert ra == pytest.approx(np.deg2rad(world[0][0]), abs=1e-12)  # 1e-16 / cos(dec) near the pole
    assert dec == pytest.approx(np.deg2rad(world[1][0]), abs=2e-15)


def test_beyond_the_horizon_is_nan() -> None:
    centre = (0.0, 0.0)
    lm = radec_to_lm(np.array([0.0, np.pi, 1.5, 1.6]), np.zeros(4), centre)
    np.testing.assert_array_equal(np.isnan(lm[:, 0]), [False, True, False, True])
    turned = offsets_to_lm(np.array([0.9, 1.0, 0.1]), np.array([0.1, 0.1, 0.0]), (1.0, 0.0), centre)
    np.testing.assert_array_equal(np.isnan(turned[:, 0]), [True, True, False])


@pytest.mark.parametrize(
    ("text", "ra", "dec"),
    [
        ("12h29m06.7s +02d03m08.6s", "12h29m06.7s", "2d3m8.6s"),
        ("12:29:06.7 -00:03:08.6", "12h29m06.7s", "-0d3m8.6s"),
        ("187.277 deg 2.0524 deg", "187.277deg", "2.0524deg"),
        ("187.277deg, -2.0524deg", "187.277deg", "-2.0524deg"),
        (["3.2686 rad", "2.05 deg"], "3.2686rad", "2.05deg"),
    ],
)
def test_directions_are_read_as_astropy_reads_them(text: str, ra: str, dec: str) -> None:
    found = parse_direction(text)
    assert found == pytest.approx((Angle(ra).rad, Angle(dec).rad), rel=4e-16)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12h29m06.7s",
        "12:61:00 +02:00:00",
        "1 Jy 2 deg",
        "10 deg 91 deg",
        "a b",
        3,
        None,
        "1 2",
        "9 deg 9",
    ],
)
def test_what_is_no_direction_is_refused(text: object) -> None:
    with pytest.raises(ModelError):
        parse_direction(text)
