"""Gains of raw data of linear feeds that turn on the sky, against the gains that were put in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import works
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.io.measurement_set import create_ms
from biro.models import SkyModel
from biro.models.components.antenna_terms.feeds import Feeds
from biro.observation.observation import Observation
from biro.simulation.gains import GainScatter
from biro.simulation.simulator import Channels, Track, simulate

SOURCES = """[sky]
centre = "05h00m00s -30d00m00s"
[[source]]
name = "a"
east = "4 arcmin"
north = "-6 arcmin"
I = "2 Jy"
"""
SECOND = '[[source]]\nname = "b"\neast = "-10 arcmin"\nnorth = "8 arcmin"\nI = "1 Jy"\n'


def sky_of(folder: Path, text: str) -> SkyModel:
    (folder / "sky.toml").write_text(text)
    return biro.read_model(folder / "sky.toml")


@pytest.fixture
def raw(tmp_path: Path) -> tuple[Observation, SkyModel, np.ndarray]:
    """Unpolarised sources, alt-az dishes, and gains (7, 2) that differ between X and Y: D = G V G^H."""
    sky = sky_of(tmp_path, SOURCES + SECOND)
    made = simulate(
        "KAT-7", sky, phase_centre="05h00m00s -30d00m00s", times=Track("2026-03-01", 480.0, 60.0),
        channels=Channels(1.4e9, 1e6, 2), noise=0.01, seed=1,
    )  # fmt: skip
    rng = np.random.default_rng(5)
    gain = np.exp(0.2 * rng.normal(size=(7, 2)) + 1j * rng.normal(size=(7, 2)))
    (part,) = made.partitions
    assert part.corr_type == ("XX", "XY", "YX", "YY")
    left, right = gain[part.antenna1][:, [0, 0, 1, 1]], gain[part.antenna2][:, [0, 1, 0, 1]].conj()
    return replace(made, partitions=(replace(part, vis=part.vis * (left * right)[:, None]),)), sky, gain


def test_the_state_of_the_feeds_that_fits_is_taken(raw: tuple[Observation, SkyModel, np.ndarray]) -> None:
    observation, sky, gain = raw
    solved = biro.solve_gains(observation, sky, interval="track")
    assert solved.fits
    assert "THE DATA ARE NOT CORRECTED FOR PARALLACTIC ANGLE" in solved.remarks[0]
    (window,) = solved.windows
    found = np.abs(window.gain[0, 0])
    # 8 times, 2 channels and 6 baselines of signal-to-noise ratio 100 or more: 1e-3 of a gain; 5 times that.
    assert found == pytest.approx(np.abs(gain), rel=5e-3)


CENTRE = "05h00m00s -30d00m00s"
LARGE, POLARISED = SOURCES.replace("2 Jy", "3 Jy"), SOURCES.replace("2 Jy", "3 Jy") + 'Q = "0.1 Jy"\n'


@pytest.mark.parametrize(
    ("made_of", "solved_with", "rotation", "noise", "remark"),
    [
        # chi2 of parallel hands differs by less than 10 %, ln of the likelihood far more than by noise.
        (LARGE, LARGE, "present", 0.1, "THE DATA ARE NOT CORRECTED"),
        # Gains that act after the rotation was taken out.
        (LARGE, LARGE, "corrected", 0.1, ""),
        # Calibrated data: one sky for both states, as P V P^H = V without polarisation, so either will do.
        (LARGE, LARGE, "", 0.1, ""),
        (POLARISED, POLARISED, "", 0.1, ""),
        # Polarisation whose rotation is below the noise.
        (POLARISED, POLARISED, "", 3.0, "do not show whether they contain the parallactic rotation"),
        # Gains of raw data that differ by sqrt(1 + Q/I) are a Q that the model lacks.
        (POLARISED, LARGE, "", 0.1, "or the sky has linear polarisation that the model lacks"),
        (POLARISED + SECOND, LARGE + SECOND, "", 0.02, "or the sky has linear polarisation that the model"),
    ],
)
def test_the_rotation_is_told_by_the_likelihood_or_not_at_all(
    tmp_path: Path, made_of: str, solved_with: str, rotation: str, noise: float, remark: str
) -> None:
    """30 min, simulated data that are raw, corrected before the gains act, or calibrated."""
    sky = sky_of(tmp_path, made_of)
    data = simulate(
        "KAT-7", replace(sky, feeds=Feeds(rotation=rotation)) if rotation else sky, phase_centre=CENTRE,
        times=Track("2026-03-01T16:00" if rotation else "2026-03-01", 1800.0, 60.0), noise=noise, seed=1,
        channels=Channels(1.4e9, 1e6, 1), gains=GainScatter(0.05, 0.1, 1e9) if rotation else None,
    )  # fmt: skip
    solved = biro.solve_gains(data, sky_of(tmp_path, solved_with), interval="track")
    assert [remark in text for text in solved.remarks[:1]] == ([True] if remark else [])
    assert bool(solved.taken_out) == (rotation == "present")


def test_a_partition_that_cannot_be_turned_is_named(raw: tuple[Observation, SkyModel, np.ndarray]) -> None:
    """XX and YY alone do not give the XX of other axes, so their rotation stays; the gains are the same."""
    observation, sky, gain = raw
    (part,) = observation.partitions
    two = replace(
        part, vis=part.vis[..., [0, 3]], weight=part.weight[..., [0, 3]], corr_type=("XX", "YY"),
        corr_id=None, spw_id=1,
    )  # fmt: skip
    solved = biro.solve_gains(replace(observation, partitions=(part, two)), sky, interval="track")
    assert f"Corrected data of {part.field}/spw1 (XX, YY) keep their rotation" in solved.remarks[0]
    _, kept = solved.corrected()
    left, right = gain[part.antenna1], gain[part.antenna2].conj()
    # Gains are known to 1e-3, as above, and products of two to 5 times that.
    assert kept == pytest.approx(two.vis / (left * right)[:, None], rel=5e-3)


def test_what_a_model_states_is_kept(raw: tuple[Observation, SkyModel, np.ndarray]) -> None:
    observation, sky, _ = raw
    solved = biro.solve_gains(observation, replace(sky, feeds=Feeds(rotation="corrected")), interval="track")
    assert not solved.fits
    assert 'the model states [feeds] rotation = "corrected"' in solved.remarks[0]
    assert "THE MODEL DOES NOT FIT" in solved.verdict[0]


def test_gains_that_do_not_fit_end_with_a_code_of_their_own(
    raw: tuple[Observation, SkyModel, np.ndarray], tmp_path: Path
) -> None:
    """A source of 1 Jy is missing, 100 times the noise; weights in other units change nothing.

    The result begins with the verdict. On stderr biro states what it does with the feeds of these raw data.
    """
    (part,) = raw[0].partitions
    create_ms(tmp_path / "raw.ms", replace(raw[0], partitions=(replace(part, weight=part.weight * 100),)))
    for text, code in ((SOURCES + SECOND, 0), (SOURCES, 4)):
        (tmp_path / "sky.toml").write_text(text)
        arguments = ["solve", str(tmp_path / "raw.ms"), str(tmp_path / "sky.toml"), "--interval", "track"]
        result = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "gains"), "--overwrite"])
        assert result.exit_code == code, result.output
        assert result.stdout.startswith("THE MODEL DOES NOT FIT THE CALIBRATED DATA") == (code == 4)
        assert "biro applies the parallactic angle to the model" in result.stderr or code == 4
        assert "assumes" not in result.stderr or code == 4
        assert (tmp_path / "gains" / "gains.npz").exists()


@pytest.mark.parametrize(
    ("telescope", "feeds"), [("KAT-7", "linear"), ("VLA-C", "circular"), ("KAT-7", "circular")]
)
def test_a_simulation_is_solved_and_corrected_with_the_sky_that_it_was_made_of(
    tmp_path: Path, telescope: str, feeds: str
) -> None:
    """simulate, solve --corrected: the sky without gains and without rotation, and a table for CASA."""
    polarised = SOURCES + 'Q = "0.4 Jy"\nU = "-0.3 Jy"\nV = "0.1 Jy"\n' + SECOND
    sky, data, gains = sky_of(tmp_path, polarised), tmp_path / "a.ms", tmp_path / "gains"
    words = [
        *("simulate", data, tmp_path / "sky.toml", "--telescope", telescope, "--noise", "0.01 Jy"),
        *("--phase-centre", "05h00m00s -30d00m00s", "--start", "2026-03-01", "--duration", "2 h"),
        *("--integration", "20 min", "--freq", "1.4 GHz", "--chan-width", "10 kHz", "--seed", "1"),
        *("--gain-amplitude", "0.4", "--gain-phase", "30 deg"),
        *(("--feeds", feeds) if telescope == "KAT-7" and feeds == "circular" else ()),
    ]
    done = works(*words)
    assert f"{feeds} feeds" in done.output
    assert ('rotation = "present"' in done.output) == (feeds == "linear")
    words = ["solve", data, tmp_path / "sky.toml", "-o", gains, "--interval", "track", "--corrected"]
    works(*words)
    assert (gains / "gains.G" / "table.dat").exists()
    corrected = biro.read(data, column="CORRECTED_DATA")
    (part,) = corrected.partitions
    (expected,) = biro.simulation.predict(corrected, sky)
    residual = (part.vis - expected)[..., [0, 3]]
    # The weights agree with the noise, for much and for little noise alike: 4 standard deviations of the rms
    # of 252 real numbers or more, 0.18, and 5 % of the power is in the solved gains. A sky that rotates by
    # 30 deg or more differs by 20 times the noise; with the weights of DATA the halves differ by 2 to 3.
    assert part.weight_origin == "CORRECTED_WEIGHT_SPECTRUM"
    weight = part.weight[..., [0, 3]].astype(float)
    for half in (weight > np.median(weight), weight < np.median(weight)):
        pulls = (residual * np.sqrt(weight))[half]
        assert np.std([pulls.real, pulls.imag]) == pytest.approx(0.98, abs=0.2)
    (raw,) = biro.read(data, column="DATA").partitions
    assert raw.weight_origin == "WEIGHT_SPECTRUM"
    assert np.ptp(raw.weight) == 0.0


def test_weights_of_other_corrected_data_are_not_used(
    raw: tuple[Observation, SkyModel, np.ndarray], tmp_path: Path
) -> None:
    """Where another program has written CORRECTED_DATA since, its weights are those that the set states."""
    from casacore import tables

    from biro.errors import DataNote

    create_ms(tmp_path / "raw.ms", raw[0])
    words = ["solve", str(tmp_path / "raw.ms"), str(tmp_path / "sky.toml"), "-o", str(tmp_path / "gains")]
    options = ["--interval", "track", "--antennas", "!ant1", "--corrected"]
    works(*words, *options)
    before = biro.read(tmp_path / "raw.ms")
    (part,) = before.partitions
    # Rows that were not selected have the weights of DATA.
    assert before.weight_origin == "CORRECTED_WEIGHT_SPECTRUM"
    name = before.antenna_names.index("ant1")
    rows = (part.antenna1 == name) | (part.antenna2 == name)
    assert part.weight[rows] == pytest.approx(raw[0].partitions[0].weight[rows])
    with tables.table(str(tmp_path / "raw.ms"), readonly=False, ack=False) as table:
        # One row of 168, neither the first nor the last.
        table.putcell("CORRECTED_DATA", 1, 2 * table.getcell("CORRECTED_DATA", 1))
    with pytest.warns(DataNote, match="was written for other values of CORRECTED_DATA"):
        found = biro.solve_gains(biro.read(tmp_path / "raw.ms"), raw[1], interval="track").observation
    assert found.weight_origin == "WEIGHT_SPECTRUM"
