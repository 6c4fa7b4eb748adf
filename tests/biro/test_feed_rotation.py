"""Mounts, parallactic angles, angles of feeds, and what is said about them."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import biro
from biro.errors import InputError
from biro.models import Feeds as FeedsOfModel
from biro.models import PointSource, SkyModel
from biro.observation.feeds.feeds import FeedMetadata
from biro.observation.feeds.mounts import mount_angles
from biro.observation.feeds.parallactic import ApparentPlace, apparent_place

ARCSEC = np.pi / 180 / 3600
TRUTH = "truth/jones/africanus_beam.npz"


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Largest difference of angles, arcsec."""
    return float(np.abs(np.angle(np.exp(1j * (one - other)))).max()) / ARCSEC


@pytest.fixture
def beam_truth(data_dir: Path) -> dict[str, np.ndarray]:
    with np.load(data_dir / TRUTH) as file:
        return dict(file)


def place_of(truth: dict[str, np.ndarray]) -> ApparentPlace:
    ra, dec = truth["phase_dir"]
    return apparent_place(truth["times"], (ra, dec), truth["antpos"])


def test_parallactic_angles_are_those_of_astropy_and_casacore(beam_truth: dict[str, np.ndarray]) -> None:
    place = place_of(beam_truth)
    angle = place.parallactic_angle - place.pole_angle  # both are from the north of date
    # 3 deg from the zenith; the README of the truth has 0.4 arcsec for its closed form.
    assert apart(angle, beam_truth["parallactic_angles_astropy"]) < 0.5
    # casacore and astropy differ by 1.9 arcsec among themselves.
    assert apart(angle, beam_truth["parallactic_angles_casa"]) < 2.0
    # The mean sidereal time and J2000 are off by 2 deg here: the test sees which of them is used.
    assert apart(angle, beam_truth["parallactic_angles_geodetic_mean"]) > 3600


@pytest.mark.parametrize("dec", [-85.0, -80.0, -30.0, 60.0])
def test_feed_angles_are_from_the_icrs_north(dec: float) -> None:
    """The frame of l, m, Q and U; the zenith's bearing is that of a small step up, by astropy."""
    from astropy import units
    from astropy.coordinates import ICRS, AltAz, EarthLocation, SkyCoord
    from astropy.time import Time

    position = np.array([[5109224.29, 2006790.36, -3239100.13]])
    location = EarthLocation.from_geocentric(*position[0], unit=units.m)
    time = Time("2026-03-01T12:00:00") + np.arange(3) * 1.7 * units.hour
    here = SkyCoord(90 * units.deg, dec * units.deg)
    frame = AltAz(obstime=time, location=location)
    seen = here.transform_to(frame)
    above = SkyCoord(az=seen.az, alt=seen.alt + 10 * units.arcsec, frame=frame).transform_to(ICRS())
    expected = seen.transform_to(ICRS()).position_angle(above).rad
    place = apparent_place(time.mjd * 86400, (np.pi / 2, np.radians(dec)), position)
    # Diurnal aberration, 0.3 arcsec, turns the north by 0.3 tan(dec) arcsec; a step of 10 arcsec is finite.
    assert apart(place.parallactic_angle[:, 0], expected) < 1.0 + 0.6 * abs(np.tan(np.radians(dec)))
    # The north of date is 0.1 to 1.7 deg away: the test sees which one is taken.
    assert apart(place.parallactic_angle[:, 0] - place.pole_angle[:, 0], expected) > 300


def test_equatorial_mounts_stand_along_the_pole_of_date() -> None:
    """Their polar axis is the Earth's, so that alt-az feeds turn against them by the angle of date alone."""
    angles = small(mounts=["alt-az", "equatorial"]).feed_angles[0]
    found = angles.feed_angle()
    place = apparent_place(angles.time + angles.utc_offset, angles.phase_centre, angles.positions[:1])
    of_date = place.parallactic_angle - place.pole_angle
    # Constant within an hour to 2 arcsec.
    assert apart(found[:, :1] - found[:, 1:], of_date) < 2.0


def test_hour_angle_and_declination_are_of_date(beam_truth: dict[str, np.ndarray]) -> None:
    place = place_of(beam_truth)
    assert apart(place.hour_angle, beam_truth["hour_angle_apparent"]) < 1e-3  # the same routines of ERFA
    assert apart(place.declination, beam_truth["dec_apparent"]) < 1e-3
    assert apart(place.latitude, beam_truth["latitude_geodetic"]) < 1e-3


def east_north(towards: np.ndarray, direction: np.ndarray, pole: np.ndarray) -> np.ndarray:
    """Position angle, north through east, of `towards` seen in `direction`, from vectors alone."""
    east = np.cross(pole, direction)
    north = np.cross(direction, east)
    return np.arctan2(
        (towards * east).sum(-1) / np.linalg.norm(east), (towards * north).sum(-1) / np.linalg.norm(north)
    )


@pytest.mark.parametrize("mount", ["alt-az", "equatorial", "nasmyth-right", "nasmyth-left", "x-y"])
def test_mounts_turn_feeds_towards_their_axes(mount: str) -> None:
    """Feeds are turned towards the mount's first axis, and in Nasmyth by the elevation as well."""
    latitude, hour_angle, dec = 0.6, 0.9, -0.2
    # East, north and up at the antenna.
    up = np.array([0.0, 0.0, 1.0])
    pole = np.array([0.0, np.cos(latitude), np.sin(latitude)])
    equator = np.array([0.0, -np.sin(latitude), np.cos(latitude)])  # hour angle 0
    west = np.array([-1.0, 0.0, 0.0])
    direction = np.cos(dec) * (np.cos(hour_angle) * equator + np.sin(hour_angle) * west) + np.sin(dec) * pole
    elevation = np.arcsin(direction[2])
    wanted = {
        "alt-az": east_north(up, direction, pole),
        "equatorial": 0.0,
        "nasmyth-right": east_north(up, direction, pole) + elevation,
        "nasmyth-left": east_north(up, direction, pole) - elevation,
        "x-y": east_north(west, direction, pole),
    }[mount]
    angles = (np.array([[x]]) for x in (hour_angle, dec, elevation))
    place = ApparentPlace(*angles, np.array([latitude]), np.zeros((1, 1)))
    assert mount_angles(place, [mount])[0, 0] == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wsrt_3c343.1_tNDPPP_tmp", "all mounts are equatorial. The feeds do not rotate on the sky"),
        (
            "vla_3c273_x",
            "the parallactic angle changes by up to 56.3 deg (all mounts are alt-az). biro assumes that the "
            "data (DATA) "
            "are",
        ),
        (
            "vlba_j1033p6051_ku",
            "the parallactic angle changes by up to 230 deg (all mounts are alt-az). biro assumes that the "
            "data (DATA) "
            "are corrected",
        ),
        ("SR1_M87_2017_100_lo_hops_netcal_StokesI", "the data are Stokes parameters"),
        (
            "sim_7_lin",
            "the data (CORRECTED_DATA) are corrected for parallactic angle. If they are not, write",
        ),
        (
            "eht_fr_d_g_noisy",
            "the parallactic angle changes by up to 189 deg (all mounts are alt-az). biro assumes",
        ),
    ],
)
def test_info_says_what_is_assumed(measurement_set: Callable[[str], Path], name: str, said: str) -> None:
    summary = biro.read_ms(measurement_set(name)).summary()
    assert said in summary.feeds
    assert f"  feeds         {summary.feeds}" in str(summary)
    assert summary.to_dict()["feeds"] == summary.feeds


def test_rotation_that_is_present_in_stokes_parameters_has_a_statement_too() -> None:
    stokes = biro.Observation.from_arrays(
        np.ones((1, 1, 1), complex), np.zeros((1, 3)), [0], [1], [5.1e9], [1.4e9], ["I"]
    )
    sky = SkyModel(
        [PointSource("a", east="0 rad", north="0 rad", I="1 Jy")], feeds=FeedsOfModel(rotation="present")
    )
    (line,) = stokes.instrument_lines(sky)
    assert line == (
        "feeds: the data are Stokes parameters. biro assumes that they come from data corrected for "
        "parallactic "
        "angle"
    )


def test_uvfits_has_the_mounts_of_its_measurement_set(
    data_dir: Path, measurement_set: Callable[[str], Path]
) -> None:
    one = biro.read(data_dir / "vla_3c273_x.uvfits")
    other = biro.read_ms(measurement_set("vla_3c273_x"))
    # Positions of the two differ by up to 39 m, 1.3 arcsec seen from the Earth's centre.
    assert apart(one.feed_angles[0].feed_angle(), other.feed_angles[0].feed_angle()) < 3.0


def test_the_second_receptor_of_circular_feeds_turns_nothing(measurement_set: Callable[[str], Path]) -> None:
    """importuvfits wrote RECEPTOR_ANGLE = (0, 90 deg) here."""
    observation = biro.read_ms(measurement_set("eht_fr_d_g_noisy"))
    feeds = observation.partitions[0].feeds
    assert feeds is not None
    assert (feeds.receptor_angle == 0.0).all()


def small(**metadata: object) -> biro.Observation:
    """Two times of a baseline at the VLA."""
    positions = np.array([[-1601185.4, -5041977.5, 3554875.9], [-1601085.4, -5042377.5, 3554475.9]])
    return biro.Observation.from_arrays(
        np.ones((2, 1, 4), complex),
        np.zeros((2, 3)),
        [0, 0],
        [1, 1],
        5.1e9 + np.array([0.0, 3600.0]),
        [1.4e9],
        ["XX", "XY", "YX", "YY"],
        phase_centre=(1.0, 0.5),
        **({"antenna_names": ["A", "B"], "antenna_positions": positions} | metadata),
    )


def test_unknown_mounts_and_missing_feed_rows_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r'antenna A, B: no mount. .* \[feeds\] mount = "alt-az": one of'):
        small().feed_angles[0].feed_angle()
    orbiting = small(mounts="alt-az")
    part = orbiting.partitions[0]
    assert part.feeds is not None
    strange = replace(part, feeds=replace(part.feeds, mounts=("alt-az", "SPACE-HALCA")))
    with pytest.raises(
        InputError, match=r"antenna B: the mount 'SPACE-HALCA' is not supported. .* mount = \{ B = "
    ):
        replace(orbiting, partitions=(strange,)).feed_angles[0].feed_angle()
    lost = replace(part, feeds=replace(part.feeds, receptor_angle=np.array([0.0, np.nan])))
    angles = replace(orbiting, partitions=(lost,)).feed_angles[0]
    with pytest.raises(InputError, match=r"FEED has no row for antenna B.* or \[feeds.antenna.B\]"):
        angles.feed_angle()
    assert np.array_equal(angles.feed_angle({}, ["B"]), orbiting.feed_angles[0].feed_angle())
    with pytest.raises(InputError, match=r"mounts: each one of alt-az, .*, got 'altazimuth'"):
        small(mounts="altazimuth")
    with pytest.raises(InputError, match="need ITRF positions"):
        small(mounts="alt-az", antenna_positions=np.zeros((2, 3))).feed_angles[0].feed_angle()


def test_mounts_of_a_model_go_before_those_of_the_data() -> None:
    observation = small(mounts="alt-az", receptor_angle=[0.1, 0.2])
    angle = observation.feed_angles[0].feed_angle({"A": "EQUATORIAL"})
    # The pole of date lies up to 0.2 deg from the ICRS north here, constant within an hour.
    assert (angle[:, 0] == angle[0, 0]).all()
    assert 0 < abs(angle[0, 0] - 0.1) < np.radians(0.2)
    assert np.ptp(angle[:, 1]) > 0.001


def test_a_nasmyth_mount_turns_its_dish_as_an_alt_az_one() -> None:
    angles = small(mounts="alt-az", receptor_angle=0.3).feed_angles[0]
    plain = angles.feed_angle() - 0.3
    assert np.array_equal(angles.frame_angle(), angles.frame_angle({"": "nasmyth-left"}))
    assert np.allclose(angles.frame_angle(), plain, atol=1e-15)  # the rounding of one sum
    assert (np.abs(angles.frame_angle({"": "equatorial"})) < np.radians(0.2)).all()


def test_angles_that_are_given_take_the_place_of_mounts() -> None:
    given = np.array([[0.1, 0.2], [0.3, 0.4]])
    observation = small().with_feed_angles([given])
    assert np.array_equal(observation.feed_angles[0].feed_angle(), given)
    later = observation.partitions[0]
    assert np.array_equal(replace(observation, partitions=(later,)).feed_angles[0].feed_angle(), given)
    with pytest.raises(InputError, match=r"shape \(time, antenna\) = \(2, 2\), got \(2, 3\)"):
        small().with_feed_angles([np.zeros((2, 3))])
    with pytest.raises(InputError, match="each of 1 partitions, got 2"):
        small().with_feed_angles([given, given])


def test_joined_sets_keep_the_feeds_of_each_antenna() -> None:
    one = small(mounts=["alt-az", "equatorial"], receptor_angle=[0.1, 0.2], antenna_names=["A", "B"])
    other = small(mounts=["x-y", "equatorial"], receptor_angle=[0.3, 0.2], antenna_names=["C", "B"])
    other = replace(other, partitions=(replace(other.partitions[0], time=other.partitions[0].time + 1e5),))
    joined = biro.join([one, other])
    first, second = (part.feeds for part in joined.partitions)
    assert first is not None
    assert second is not None
    assert first.mounts[:2] == ("alt-az", "equatorial")
    assert dict(zip(joined.antenna_names, second.mounts, strict=True)) == {
        "A": "",
        "B": "equatorial",
        "C": "x-y",
    }
    assert second.receptor_angle[joined.antenna_names.index("C")] == 0.3


def test_feeds_are_no_part_of_the_digest_of_data() -> None:
    assert small().digest() == small(mounts="alt-az").digest()


def test_unknown_feeds() -> None:
    assert FeedMetadata.unknown(3).mounts == ("", "", "")


def test_the_command_says_it(data_dir: Path, tmp_path: Path) -> None:
    path = data_dir / "vla_3c273_x.uvfits"
    shutil.copy(path, tmp_path)
    command = [sys.executable, "-m", "biro", "info", str(tmp_path / path.name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\n  feeds         the parallactic angle changes by up to 56.3 deg" in done.stdout
