"""Beams stay where the dishes pointed: REFERENCE_DIR, DELAY_DIR and POINTING as other programs leave them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy.coordinates import AltAz, EarthLocation, SkyCoord
from astropy.time import Time
from astropy.utils import iers
from casacore.tables import table
from uvfits_file import File

import biro
from biro.io.measurement_set import create_ms, read_ms
from biro.models import FunctionBeam, GaussianBeam, ModelError, PointSource, SkyModel
from biro.models.files.toml import from_toml
from biro.observation.feeds.pointing import DishPointing
from biro.simulation import predict
from biro.simulation.simulator import Channels, Track, simulate

C = 299792458.0
FWHM, FREQ = np.deg2rad(1.0), 1.4e9
FIELD = np.deg2rad([75.0, -30.0])
SOURCE = np.deg2rad([75.25, -(29.0 + 50.0 / 60.0)])  # 16.4 arcmin away
Angles = np.ndarray


def axes(ra: float, dec: float) -> Angles:
    """East, north and outward at a direction."""
    return np.array(
        [
            [-np.sin(ra), np.cos(ra), 0.0],
            [-np.sin(dec) * np.cos(ra), -np.sin(dec) * np.sin(ra), np.cos(dec)],
            [np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)],
        ]
    )


def voltage(source: Angles, centre: Angles) -> Angles:
    """A Gaussian beam at a source, about its own centre: r is the sine of their distance."""
    r = np.linalg.norm(np.cross(axes(*source)[2], axes(*centre)[2]))
    return np.exp(-2.0 * np.log(2.0) * (r / FWHM) ** 2)


def sky(flux: object = "1 Jy", centre: object = "pointing") -> SkyModel:
    ra, dec = (f"{x!r} rad" for x in SOURCE.tolist())
    beam = GaussianBeam("1 deg", "1.4 GHz", centre=centre)
    return SkyModel(
        [PointSource("a", ra=ra, dec=dec, I=flux)], beam=beam, noise=biro.models.Noise(factor=1.0)
    )


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of 7 antennas and 5 times whose visibilities are 0."""
    observation = simulate(
        "KAT-7",
        SkyModel([PointSource("a", east="0 deg", north="0 deg", I="0 Jy")]),
        phase_centre=(FIELD[0], FIELD[1]),
        times=Track("2026-03-01", 300.0, 60.0),
        channels=Channels(FREQ, 1e6, 2),
    )
    path = tmp_path_factory.mktemp("unit") / "unit.ms"
    create_ms(path, observation)
    return path


@pytest.fixture
def ms(unit: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unit, tmp_path / "copy.ms"))


def put_field(path: Path, **columns: Angles) -> None:
    with table(f"{path}::FIELD", readonly=False, ack=False) as field:
        for name, value in columns.items():
            field.putcell(name, 0, np.atleast_2d(value))


def put_pointing(
    path: Path,
    directions: Angles,
    *,
    times: Angles | None = None,
    frame: str = "J2000",
    interval: float = 60.0,
) -> None:
    """Fill POINTING: directions (n_time, n_antenna, 2), rad; by default at the times of the data."""
    if times is None:
        with table(str(path), ack=False) as main:
            times = np.unique(main.getcol("TIME"))
    with table(f"{path}::POINTING", readonly=False, ack=False) as pointing:
        pointing.removerows(range(pointing.nrows()))
        n_time, n_antenna = directions.shape[:2]
        pointing.addrows(n_time * n_antenna)
        pointing.putcol("ANTENNA_ID", np.tile(np.arange(n_antenna, dtype=np.int32), n_time))
        pointing.putcol("TIME", np.repeat(times, n_antenna))
        pointing.putcol("INTERVAL", np.full(n_time * n_antenna, interval))
        pointing.putcol("DIRECTION", directions.reshape(-1, 1, 2))
        keywords = pointing.getcolkeywords("DIRECTION")
        keywords["MEASINFO"]["Ref"] = frame
        pointing.putcolkeywords("DIRECTION", keywords)


def everywhere(direction: Angles, n_time: int = 5, n_antenna: int = 7) -> Angles:
    return np.tile(direction, (n_time, n_antenna, 1)).astype(np.float64)


def seen(path: Path, model: SkyModel | None = None) -> Angles:
    """|V| of the source through the beam, by row: E_p E_q."""
    observation = read_ms(path)
    (found,) = predict(observation, sky() if model is None else model)
    return np.abs(np.asarray(found)[:, 0, 0])


def rephase(path: Path) -> None:
    """Turn uvw and data to the source, as chgcentre, DP3 and CASA do: PHASE_DIR alone moves."""
    turn = axes(*SOURCE) @ axes(*FIELD).T
    with table(str(path), readonly=False, ack=False) as main:
        uvw, data = main.getcol("UVW"), main.getcol("DATA")
        new = uvw @ turn.T
        freq = table(f"{path}::SPECTRAL_WINDOW", ack=False).getcell("CHAN_FREQ", 0)
        data = data * np.exp(-2j * np.pi * (new[:, 2] - uvw[:, 2])[:, None] * freq / C)[:, :, None]
        main.putcol("UVW", new)
        main.putcol("DATA", data.astype(np.complex64))
    put_field(path, PHASE_DIR=SOURCE)


# Beams are seen in the plane of the phase centre, which is exact for a source there. At 12 arcmin from it
# distances come out D^2 / 2 = 6e-6 too small, and the power here 8 ln 2 (r/fwhm)^2 times that too high, 2e-6.
PLANE = 1e-5


def test_a_beam_stays_where_the_dishes_pointed_after_a_phase_shift(ms: Path) -> None:
    rephase(ms)
    np.testing.assert_allclose(seen(ms), voltage(SOURCE, FIELD) ** 2, rtol=PLANE)
    np.testing.assert_allclose(seen(ms, sky(centre="phase")), 1.0, rtol=1e-12)
    place = tuple(f"{x!r} rad" for x in FIELD.tolist())
    np.testing.assert_allclose(seen(ms, sky(centre=place)), voltage(SOURCE, FIELD) ** 2, rtol=PLANE)


def test_a_fit_of_shifted_data_gives_the_flux_of_the_source(ms: Path) -> None:
    with table(str(ms), readonly=False, ack=False) as main:
        uvw = main.getcol("UVW")
        l, m, n = axes(*FIELD) @ axes(*SOURCE)[2]
        delay = uvw @ [l, m, n - 1.0]
        freq = FREQ + 1e6 * np.arange(2)
        own = np.exp(2j * np.pi * delay[:, None] * freq / C)
        scaled = np.exp(-4.0 * np.log(2.0) * (np.hypot(l, m) * freq / FREQ / FWHM) ** 2)
        data = np.zeros((len(uvw), 2, 4), np.complex64)
        data[:, :, [0, 3]] = (2.0 * own * scaled)[:, :, None]
        main.putcol("DATA", data)
    free = {"prior": "uniform", "low": 0, "high": 9, "unit": "Jy"}
    for shifted in (False, True):
        if shifted:
            rephase(ms)
        found = biro.maximise(biro.Likelihood(read_ms(ms), sky(free), smearing="off"))
        # complex64 data, and the plane of the phase centre.
        assert float(found.best_fit[0]) == pytest.approx(2.0, rel=2e-5)


@pytest.mark.parametrize("degrees", [0.5, 2.0, 5.0])
def test_the_error_of_the_plane_is_as_the_docs_state_it(ms: Path, degrees: float) -> None:
    # The source lies half a beam farther along the shift, where the plane is worst; the distance to it comes
    # out too small by between 1 and 2 times D^2 / 2 there, as the source lies beyond the centre of the beam.
    shift = np.deg2rad(degrees)
    pointing, source = FIELD + np.array([0.0, shift]), FIELD + np.array([0.0, shift + 0.5 * FWHM])
    put_field(ms, REFERENCE_DIR=pointing)
    ra, dec = (f"{x!r} rad" for x in source.tolist())
    model = replace(sky(), sources=(PointSource("a", ra=ra, dec=dec, I="1 Jy"),))
    error = seen(ms, model)[0] / voltage(source, pointing) ** 2 - 1.0
    expected = 2.0 * np.log(2.0) * 0.5 * shift**2  # d ln E^2 = -8 ln 2 (r/fwhm)^2 dr/r at r = fwhm / 2
    assert expected < error < 2.5 * expected


def test_images_find_and_simulations_have_the_same_centre(ms: Path, tmp_path: Path) -> None:
    from biro.source_finding.fitting.beam_factors import BeamFactors, SeenThrough

    rephase(ms)
    observation = read_ms(ms)
    (beam,) = SeenThrough.of(observation, sky()).beams
    factors = BeamFactors.of(observation.partitions[0], np.arange(3), beam, "cpu")
    np.testing.assert_allclose(factors.kept((0.0, 0.0))[:, 0], voltage(SOURCE, FIELD) ** 2, rtol=PLANE)
    pixels = np.zeros((64, 64))
    pixels[32, 32] = 1.0
    cell = np.deg2rad(20.0 / 3600.0)
    image = biro.models.ImageModel(
        pixels[None, None], cell, (SOURCE[0], SOURCE[1]), chan_freq=np.array([FREQ])
    )
    imaged = replace(sky(), sources=(), images=(biro.models.ImageTerm("i", file=image),))
    (found,) = predict(observation, imaged)
    # The error of the gridder is 1e-5 of the flux.
    np.testing.assert_allclose(np.asarray(found)[:, 0, 0], voltage(SOURCE, FIELD) ** 2, rtol=3e-5)


def test_a_beam_of_matrices_has_the_same_centre(ms: Path) -> None:
    rephase(ms)

    def matrices(x: Angles, y: Angles, freq: float) -> Angles:
        e = np.exp(-2.0 * np.log(2.0) * (x**2 + y**2) * (freq / FREQ / FWHM) ** 2)
        return e[..., None, None] * np.eye(2)

    beam = FunctionBeam(function=matrices, extent="1 deg", turns=False)
    found = biro.Likelihood(read_ms(ms), replace(sky(), beam=beam), smearing="off").predict(np.zeros(0))
    # Splines of the beam are good to 1e-6.
    np.testing.assert_allclose(np.abs(found[0][..., 0, 0]).ravel(), voltage(SOURCE, FIELD) ** 2, rtol=PLANE)


def test_predict_says_what_it_smears_and_where_the_beam_is(ms: Path) -> None:
    rephase(ms)
    lines: list[str] = []
    predict(read_ms(ms), sky(), smearing="on", say=lines.append)
    assert [line.split(":")[0] for line in lines] == ["smearing on", "beam"]
    observation = read_ms(ms)
    other = replace(observation.partitions[0], spw="other", spw_id=1, data_desc_id=1)
    two = replace(observation, partitions=(observation.partitions[0], other))
    lines.clear()
    predict(two, SkyModel([PointSource("a", east="0.2 deg", north="0 deg", I="1 Jy")]), say=lines.append)
    assert len(lines) == 1


def test_a_simulation_writes_where_its_dishes_pointed(tmp_path: Path) -> None:
    made = simulate(
        "KAT-7",
        sky(centre=tuple(f"{x!r} rad" for x in FIELD.tolist())),
        phase_centre=(SOURCE[0], SOURCE[1]),
        times=Track("2026-03-01", 120.0, 60.0),
        channels=Channels(FREQ, 1e6, 1),
    )
    create_ms(tmp_path / "out.ms", made)
    with table(f"{tmp_path}/out.ms::FIELD", ack=False) as field:
        for column in ("REFERENCE_DIR", "DELAY_DIR"):
            np.testing.assert_allclose(field.getcell(column, 0)[0], FIELD, atol=1e-15)
        np.testing.assert_allclose(field.getcell("PHASE_DIR", 0)[0], SOURCE, atol=1e-15)
    back = read_ms(tmp_path / "out.ms", allow_unusable=True)  # cross hands of 0 are no data
    (again,) = predict(back, sky())
    np.testing.assert_allclose(np.asarray(again), made.partitions[0].vis, rtol=1e-12)


def test_pointing_of_two_antennas_in_time_is_interpolated_and_written_again(ms: Path, tmp_path: Path) -> None:
    directions = everywhere(FIELD)
    directions[:, 1, 1] += np.deg2rad(0.1)
    directions[:, 2, 0] += np.deg2rad(0.15) * np.linspace(-1.0, 1.0, 5)
    with table(str(ms), ack=False) as main:
        first, second, time = (main.getcol(name) for name in ("ANTENNA1", "ANTENNA2", "TIME"))
    times = np.unique(time)
    # Rows half way between the times of the data, whose means are those at the times.
    between = np.concatenate([[times[0] - 30.0], times + 30.0])
    beside = np.concatenate([2 * directions[:1] - directions[1:2], directions])
    beside = np.concatenate(
        [0.5 * (beside[:-1] + beside[1:]), 1.5 * directions[-1:] - 0.5 * directions[-2:-1]]
    )
    put_pointing(ms, beside, times=between)
    slot = np.searchsorted(times, time)
    each = np.array([[voltage(SOURCE, directions[t, a]) for a in range(7)] for t in range(5)])
    # The mean of two directions is the direction half way to 1e-9; the plane of the phase centre to 1e-5.
    np.testing.assert_allclose(seen(ms), each[slot, first] * each[slot, second], rtol=PLANE)
    create_ms(tmp_path / "again.ms", read_ms(ms))
    np.testing.assert_allclose(seen(tmp_path / "again.ms"), seen(ms), rtol=1e-9)
    assert "antennas up to" in str(read_ms(ms).summary())


def test_pointing_in_azelgeo_is_converted(ms: Path) -> None:
    place = np.deg2rad([75.3, -30.2])
    with table(f"{ms}::ANTENNA", ack=False) as antenna:
        positions = antenna.getcol("POSITION")
    with table(str(ms), ack=False) as main:
        times = np.unique(main.getcol("TIME"))
    directions = np.zeros((5, 7, 2))
    with iers.conf.set_temp("auto_download", False), iers.conf.set_temp("iers_degraded_accuracy", "ignore"):
        for a, position in enumerate(positions):
            frame = AltAz(
                obstime=Time(times / 86400.0, format="mjd", scale="utc"),
                location=EarthLocation.from_geocentric(*position, unit="m"),
            )
            seen_at = SkyCoord(*place, unit="rad").transform_to(frame)
            directions[:, a] = np.stack([seen_at.az.rad, seen_at.alt.rad], axis=-1)
    put_pointing(ms, directions, frame="AZELGEO")
    pointing = read_ms(ms).partitions[0].pointing
    assert pointing is not None
    assert pointing.origin == "POINTING"
    # casacore and astropy agree to some arcsec where tables of the Earth's rotation differ.
    assert np.linalg.norm(axes(*pointing.centre)[2] - axes(*place)[2]) < np.deg2rad(3.0 / 3600.0)


def unfilled(value: float) -> Callable[[], Angles]:
    return lambda: everywhere(np.full(2, value))


@pytest.mark.parametrize(
    ("directions", "times", "words"),
    [
        (unfilled(0.0), None, "not filled in"),
        (unfilled(np.nan), None, "not filled in"),
        (lambda: everywhere(FIELD + np.array([0.2, 0.0])), None, "more than a beam"),
        (lambda: everywhere(FIELD + 0.001), 1e9, "no rows at these times"),
    ],
)
def test_pointing_that_cannot_be_meant_leaves_reference_dir(
    ms: Path, directions: Callable[[], Angles], times: float | None, words: str
) -> None:
    put_pointing(ms, directions(), times=None if times is None else times + 60.0 * np.arange(5))
    observation = read_ms(ms)
    pointing = observation.partitions[0].pointing
    assert pointing is not None
    assert pointing.origin == "REFERENCE_DIR"
    assert any(words in note for note in observation.notes)
    np.testing.assert_allclose(seen(ms), voltage(SOURCE, FIELD) ** 2, rtol=1e-12)


def test_an_antenna_without_rows_points_as_the_mean_of_the_others(ms: Path) -> None:
    place = FIELD + np.deg2rad([0.0, 0.2])
    put_pointing(ms, everywhere(place, n_antenna=5))
    observation = read_ms(ms)
    assert any("2 of 7 antennas" in note for note in observation.notes)
    np.testing.assert_allclose(seen(ms), voltage(SOURCE, place) ** 2, rtol=PLANE)


def test_a_slew_at_the_ends_of_a_scan_does_not_count(ms: Path) -> None:
    directions = everywhere(FIELD + np.deg2rad([0.0, 0.2]))
    directions[0] += [0.3, 0.1]
    put_pointing(ms, directions)
    np.testing.assert_allclose(seen(ms), voltage(SOURCE, FIELD + np.deg2rad([0.0, 0.2])) ** 2, rtol=PLANE)
    assert any("% of the times" in note for note in read_ms(ms).notes)


def test_a_polynomial_of_one_row_is_taken_at_the_times_of_the_data(ms: Path) -> None:
    with table(str(ms), ack=False) as main:
        time, first, second = (main.getcol(name) for name in ("TIME", "ANTENNA1", "ANTENNA2"))
    rate, middle = np.deg2rad(0.2) / 240.0, float(np.mean(time))
    put_pointing(ms, everywhere(FIELD, n_time=1), times=np.array([middle]), interval=400.0)
    with table(f"{ms}::POINTING", readonly=False, ack=False) as pointing:
        for row in range(7):
            pointing.putcell("NUM_POLY", row, 1)
            pointing.putcell("TIME_ORIGIN", row, middle)
            pointing.putcell("DIRECTION", row, np.array([FIELD, [0.0, rate]]))
    each = np.array([voltage(SOURCE, FIELD + np.array([0.0, rate * (t - middle)])) for t in time])
    np.testing.assert_allclose(seen(ms), each**2, rtol=PLANE)
    assert len(first) == len(second)


@pytest.mark.parametrize(
    ("columns", "telescope", "expected", "origin"),
    [
        ({"REFERENCE_DIR": np.zeros(2)}, "KAT-7", SOURCE, "DELAY_DIR"),
        ({"REFERENCE_DIR": np.zeros(2), "DELAY_DIR": np.full(2, np.nan)}, "KAT-7", FIELD, "PHASE_DIR"),
        ({"REFERENCE_DIR": FIELD + 1.0}, "KAT-7", SOURCE, "DELAY_DIR"),
        ({}, "LOFAR", SOURCE, "DELAY_DIR"),
        ({}, "KAT-7", FIELD, "REFERENCE_DIR"),
    ],
)
def test_stations_point_to_delay_dir_and_empty_cells_leave_the_other(
    ms: Path, columns: dict[str, Angles], telescope: str, expected: Angles, origin: str
) -> None:
    put_field(ms, **({"DELAY_DIR": SOURCE} | columns))
    with table(f"{ms}::OBSERVATION", readonly=False, ack=False) as observation:
        observation.putcell("TELESCOPE_NAME", 0, telescope)
    pointing = read_ms(ms).partitions[0].pointing
    assert pointing is not None
    assert pointing.origin == origin
    np.testing.assert_allclose(pointing.centre, expected, atol=1e-14)


def test_a_column_that_kept_b1950_is_the_phase_centre(ms: Path) -> None:
    """A converter may turn PHASE_DIR to J2000 and leave REFERENCE_DIR as it was."""
    b1950 = SkyCoord(*FIELD, unit="rad", frame="fk5").transform_to("fk4")
    put_field(ms, REFERENCE_DIR=np.array([b1950.ra.rad, b1950.dec.rad]))
    observation = read_ms(ms)
    pointing = observation.partitions[0].pointing
    assert pointing is not None
    np.testing.assert_allclose(pointing.centre, FIELD, atol=1e-14)
    assert any("are the phase centre in B1950" in note for note in observation.notes)


def test_a_field_that_follows_an_ephemeris_is_pointed_at(ms: Path) -> None:
    with table(f"{ms}::FIELD", readonly=False, ack=False) as field:
        from casacore.tables import makescacoldesc, maketabdesc

        field.addcols(maketabdesc([makescacoldesc("EPHEMERIS_ID", 0)]))
        field.putcell("EPHEMERIS_ID", 0, 0)
    put_field(ms, REFERENCE_DIR=FIELD + 0.01)
    put_pointing(ms, everywhere(FIELD + np.deg2rad(0.3)))
    pointing = read_ms(ms).partitions[0].pointing
    assert pointing is not None
    np.testing.assert_allclose(pointing.centre, FIELD, atol=1e-14)


def test_a_dish_turns_about_where_it_points(ms: Path) -> None:
    """Angles of an alt-az dish are those of a set whose phase centre is there, in the turned plane."""
    there = np.deg2rad([77.0, -29.0])
    put_field(ms, REFERENCE_DIR=there)
    shifted = read_ms(ms)
    put_field(ms, PHASE_DIR=there)
    (moved,), (own,) = shifted.feed_angles, read_ms(ms).feed_angles
    # North at `there`, by a small step, in the plane of the phase centre.
    step = axes(*(there + np.array([0.0, 1e-6])))[2] - axes(*(there - np.array([0.0, 1e-6])))[2]
    east, north, _ = axes(*FIELD) @ step
    np.testing.assert_allclose(moved.frame_angle(), own.frame_angle() + np.arctan2(east, north), atol=1e-9)


def test_two_fields_of_a_mosaic_have_their_own_centres(ms: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(ms, tmp_path / "other.ms"))
    put_field(ms, REFERENCE_DIR=FIELD + np.deg2rad([0.0, 0.3]))
    put_field(other, REFERENCE_DIR=FIELD + np.deg2rad([0.0, 0.1]))
    with table(str(other), readonly=False, ack=False) as main:
        main.putcol("TIME", main.getcol("TIME") + 3600.0)
    both = biro.join([read_ms(ms), read_ms(other)])
    for found, dec in zip(predict(both, sky()), (0.3, 0.1), strict=True):
        expected = voltage(SOURCE, FIELD + np.deg2rad([0.0, dec])) ** 2
        np.testing.assert_allclose(np.abs(np.asarray(found)[:, 0, 0]), expected, rtol=PLANE)


def test_fields_of_one_set_have_the_pointing_of_their_own_times(ms: Path) -> None:
    second = FIELD + np.deg2rad([0.0, 0.8])
    with table(str(ms), readonly=False, ack=False) as main:
        times, slot = np.unique(main.getcol("TIME"), return_inverse=True)
        main.putcol("FIELD_ID", (slot >= 3).astype(np.int32))
    with table(f"{ms}::FIELD", readonly=False, ack=False) as field:
        field.addrows(1)
        for name in ("PHASE_DIR", "REFERENCE_DIR", "DELAY_DIR"):
            field.putcell(name, 1, second[None])
        field.putcell("NAME", 1, "second")
    north = np.deg2rad([0.0, 0.1])
    directions = everywhere(FIELD + north)
    directions[3:] = second - north
    put_pointing(ms, directions, times=times)
    for part, expected in zip(read_ms(ms).partitions, (FIELD + north, second - north), strict=True):
        assert part.pointing is not None
        assert part.pointing.origin == "POINTING"
        np.testing.assert_allclose(part.pointing.centre, expected, atol=1e-12)


def test_pointing_errors_are_relative_to_the_centre(ms: Path) -> None:
    rephase(ms)
    names = read_ms(ms).antenna_names
    model = replace(sky(), pointing=biro.models.Pointing(antenna={names[1]: {"north": "0.1 deg"}}))
    with table(str(ms), ack=False) as main:
        first, second = main.getcol("ANTENNA1"), main.getcol("ANTENNA2")
    # East and north are l and m of the phase centre, of which beams are seen in the plane.
    l, m, _ = axes(*SOURCE) @ axes(*FIELD)[2]
    power = {
        own: np.exp(-2.0 * np.log(2.0) * (l**2 + (m + own) ** 2) / FWHM**2) for own in (0.0, np.deg2rad(0.1))
    }
    each = np.where(np.arange(7) == 1, power[np.deg2rad(0.1)], power[0.0])
    np.testing.assert_allclose(seen(ms, model), each[first] * each[second], rtol=1e-12)


def test_slopes_by_pointing_errors_leave_the_centre_out() -> None:
    free = {"prior": "normal", "mean": "0 deg", "sd": "0.1 deg"}
    model = replace(sky(), pointing=biro.models.Pointing(north=["0 deg", free]))
    view = biro.models.PartitionView(
        "a",
        "f",
        "s",
        (FIELD[0], FIELD[1]),
        np.arange(3.0),
        np.ones(1) * FREQ,
        ("A", "B"),
        pointed=np.full((1, 2, 2), 0.01),
    )
    bound = model.bind([view])
    theta, step = np.array([[0.1, 0.3]]), np.array([[0.2, -0.1]])
    (change,) = bound.push_forward(theta, step)
    moved = bound.sources(theta + step, 0).beam.pointing - bound.sources(theta, 0).beam.pointing
    assert change.pointing is not None
    np.testing.assert_allclose(change.pointing, moved, atol=1e-16)  # linear: the rounding of 0.01 alone
    np.testing.assert_allclose(bound.sources(0 * theta, 0).beam.pointing, 0.01)


def test_the_centre_of_a_beam_is_read_and_written() -> None:
    text = '[beam]\nkind = "airy"\ndiameter = "12 m"\n'
    plain = from_toml(text)
    assert plain.beam.centre == "pointing"
    assert "centre" not in plain.to_toml().split("[beam]")[1]
    for given in ("phase", "05h00m00s -30d00m00s"):
        model = from_toml(text + f'centre = "{given}"\n')
        assert from_toml(model.to_toml()) == model
    assert model.beam.centre == pytest.approx(tuple(FIELD))
    with pytest.raises(ModelError, match="did you mean 'pointing'"):
        from_toml(text + 'centre = "pointed"\n')
    far = replace(sky(), beam=GaussianBeam("1 deg", "1.4 GHz", centre=("200 deg", "0 deg")))
    view = biro.models.PartitionView(
        "a", "f", "s", (FIELD[0], FIELD[1]), np.zeros(1), np.ones(1) * FREQ, ("A", "B")
    )
    with pytest.raises(ModelError, match="90 deg or more"):
        far.bind([view])


def test_a_fit_states_the_centre_of_its_beam(ms: Path) -> None:
    rephase(ms)
    observation = read_ms(ms)
    assert "16.4 arcmin from the phase centre (REFERENCE_DIR)" in str(observation.summary())
    (line,) = (one for one in observation.instrument_lines(sky()) if one.startswith("beam: "))
    assert line == "beam: centred where the dishes pointed: 16.4 arcmin from the phase centre (REFERENCE_DIR)"
    far = replace(
        observation.partitions[0], pointing=DishPointing((FIELD[0], FIELD[1] + 0.06), "REFERENCE_DIR")
    )
    (line, *_) = replace(observation, partitions=(far,)).instrument_lines(sky())
    assert line.endswith("phase the data to the pointing centre")


@pytest.mark.parametrize(
    ("given", "origin", "apart"),
    [
        ((187.5, 12.75), "OBSRA, OBSDEC", 0.5),
        ((0.0, 0.0), None, 0.0),
        ((87.5, 12.25), None, 0.0),
        (("unknown", 12.25), None, 0.0),
    ],
)
def test_uvfits_points_to_obsra(
    tmp_path: Path, given: tuple[object, float], origin: str | None, apart: float
) -> None:
    file = File(cards={"OBJECT": "M87", "EQUINOX": 2000.0, "OBSRA": given[0], "OBSDEC": given[1]})
    observation = biro.read(file.write(tmp_path / "a.uvfits"), allow_unusable=True)
    pointing = observation.partitions[0].pointing
    assert (None if pointing is None else pointing.origin) == origin
    if pointing is not None:
        np.testing.assert_allclose(np.rad2deg(pointing.centre), given)
    assert any("biro does not use" in note for note in observation.notes) == (given[0] == 87.5)
    assert apart == 0.0 or f"{apart * 60:.0f} arcmin" in str(observation.summary())
