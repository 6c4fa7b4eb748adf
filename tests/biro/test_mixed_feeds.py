"""Arrays whose antennas have circular and linear feeds: RX, RY, LX, LY, XR, XL, YR, YL in Measurement Sets.

The truth is the 2x2 matrix C = 1/sqrt(2) [[1, i], [1, -i]], which makes (R, L) of (X, Y): it turns the
correlations of a set with linear feeds into those of other feeds, V_pq -> C_p V_pq C_q^H.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from casacore.tables import table
from scipy.special import j1
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.cli.find import parallel_hands
from biro.diagnosis.diagnosis import diagnose
from biro.errors import BiroError
from biro.io.measurement_set import create_ms, read_ms
from biro.models import AiryBeam, Feeds, Gain, GainSolutions, Leakage, Noise, PointSource, SkyModel
from biro.simulation.prediction import predict
from biro.simulation.simulator import Channels, Track, simulate
from rime_kernels import stokes_to_corr

CIRCULAR = np.array([[1, 1j], [1, -1j]]) / np.sqrt(2)
FLUX = {"I": 1.5, "Q": 0.3, "U": -0.2, "V": 0.1}
SIGMA = 0.02
CODES = {"RR": 5, "RL": 6, "LR": 7, "LL": 8, "XX": 9, "XY": 10, "YX": 11, "YY": 12} | {
    name: 13 + i for i, name in enumerate(("RX", "RY", "LX", "LY", "XR", "XL", "YR", "YL"))
}
"""casacore, Stokes.h: StokesTypes."""


def products(first: str, second: str) -> tuple[str, ...]:
    return tuple(p + q for p in first for q in second)


def source(**flux: object) -> SkyModel:
    return SkyModel([PointSource("a", east="20 arcsec", north="-10 arcsec", **flux)])


TRUTH = source(**{name: f"{value} Jy" for name, value in FLUX.items()})


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mixed") / "linear.ms"
    times, channels = Track("2026-03-01", 600.0, 60.0), Channels(1.4e9, 1e6, 2)
    place = (1.3, -0.5)
    create_ms(
        path,
        simulate("KAT-7", TRUTH, phase_centre=place, times=times, channels=channels, noise=SIGMA, seed=3),
    )
    return path


def with_feeds(linear: Path, place: Path, kinds: str) -> Path:
    """A copy whose antennas have linear (x) and circular (o) feeds."""
    path = Path(shutil.copytree(linear, place))
    names = {"x": "XY", "o": "RL"}
    setups = [(p, q) for p in "xo" for q in "xo"]
    with table(f"{path}::POLARIZATION", readonly=False, ack=False) as polarization:
        polarization.copyrows(polarization, startrowin=0, nrow=1)
        polarization.copyrows(polarization, startrowin=0, nrow=2)
        for i, (p, q) in enumerate(setups):
            codes = [CODES[name] for name in products(names[p], names[q])]
            polarization.putcell("CORR_TYPE", i, np.array(codes, np.int32))
    with table(f"{path}::DATA_DESCRIPTION", readonly=False, ack=False) as description:
        description.addrows(3)
        description.putcol("POLARIZATION_ID", np.arange(4, dtype=np.int32))
        description.putcol("SPECTRAL_WINDOW_ID", np.zeros(4, np.int32))
    jones = np.array([CIRCULAR if kind == "o" else np.eye(2) for kind in kinds])
    with table(str(path), readonly=False, ack=False) as main:
        first, second = main.getcol("ANTENNA1"), main.getcol("ANTENNA2")
        data = main.getcol("DATA").reshape(len(first), -1, 2, 2)
        turned = np.einsum("rij,rcjk,rlk->rcil", jones[first], data, jones[second].conj())
        main.putcol("DATA", turned.reshape(*turned.shape[:2], 4).astype(np.complex64))
        numbers = [setups.index((kinds[p], kinds[q])) for p, q in zip(first, second, strict=True)]
        main.putcol("DATA_DESC_ID", np.array(numbers, np.int32))
    return path


@pytest.fixture(params=["ooxxxxx", "xxxxooo", "oxoxoxx"])
def mixed(request: pytest.FixtureRequest, linear: Path, tmp_path: Path) -> Path:
    return with_feeds(linear, tmp_path / "mixed.ms", request.param)


def test_the_matrices_are_those_of_the_feeds() -> None:
    xy = stokes_to_corr(("XX", "XY", "YX", "YY")).reshape(2, 2, 4)
    left, right = np.einsum("ij,jks->iks", CIRCULAR, xy), np.einsum("ijs,kj->iks", xy, CIRCULAR.conj())
    np.testing.assert_allclose(stokes_to_corr(products("RL", "XY")), left.reshape(4, 4), atol=1e-15)
    np.testing.assert_allclose(stokes_to_corr(products("XY", "RL")), right.reshape(4, 4), atol=1e-15)
    both = np.einsum("iks,lk->ils", left, CIRCULAR.conj()).reshape(4, 4)
    np.testing.assert_allclose(stokes_to_corr(("RR", "RL", "LR", "LL")), both, atol=1e-15)


def chi2_of(observation: biro.Observation, sky: SkyModel) -> float:
    """chi2 of all partitions where noise factors are 1."""
    likelihood = biro.Likelihood(observation, sky, smearing="off")
    return float(np.sum(likelihood.chi2(np.ones(len(likelihood.parameter_names)))))


def test_a_fit_of_all_feeds_together(mixed: Path) -> None:
    """The sky of a fit is that of the linear set, with its errors: C is unitary."""
    free = {name: {"prior": "uniform", "low": -9, "high": 9, "unit": "Jy"} for name in FLUX}
    observation = biro.read(mixed)
    likelihood = biro.Likelihood(observation, source(**free), smearing="off")
    best = dict(zip(likelihood.parameter_names, biro.maximise(likelihood).best_fit, strict=True))
    n = observation.counts["usable"] / 4
    for name, value in FLUX.items():
        # Each Stokes parameter is a mean of 2 n products of a real part of noise sigma; five of its errors.
        assert abs(best[f"a.{name}"] - value) < 5 * SIGMA / np.sqrt(2 * n)
    names = {name for part in observation.partitions for name in part.corr_type}
    assert names & {"RX", "XR"}
    # Of 2 N real numbers, chi2 has the mean 2 N and the variance 4 N; five of its standard deviations.
    total = 2 * observation.counts["usable"]
    assert abs(chi2_of(observation, TRUTH) - total) < 5 * np.sqrt(2 * total)


def stokes_of(path: Path, stokes: str) -> dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]]:
    """Visibilities and weights of each row, by its time and antennas."""
    return {
        (round(part.time[row]), part.antenna1[row], part.antenna2[row]): (part.vis[row], part.weight[row])
        for part in read_ms(path, stokes=stokes).partitions
        for row in range(part.n_row)
    }


def test_stokes_parameters_are_those_of_the_linear_set(mixed: Path, linear: Path) -> None:
    found, expected = stokes_of(mixed, "IQUV"), stokes_of(linear, "IQUV")
    assert found.keys() == expected.keys()
    for key, (vis, weight) in expected.items():
        np.testing.assert_allclose(found[key][0], vis, atol=1e-6)  # float32 numbers of about 1
        np.testing.assert_allclose(found[key][1], weight, rtol=1e-6)


def with_gains(path: Path, second_feed: float = 1.0) -> SkyModel:
    """Multiply the data of a set by gains, and give the model that has them."""
    factor = (1.0 + 0.1 * np.arange(7)) * np.exp(0.3j * np.arange(7))
    with table(str(path), readonly=False, ack=False) as main:
        pair = factor[main.getcol("ANTENNA1")] * factor[main.getcol("ANTENNA2")].conj()
        main.putcol("DATA", (main.getcol("DATA") * pair[:, None, None]).astype(np.complex64))
    gain = factor[None, :, None, None] * np.array([1.0, second_feed])
    names = read_ms(path).antenna_names
    solved = GainSolutions(
        "", read_ms(path).partitions[0].times[:1], np.array([1.4e9]), names, gain, np.ones(gain.shape, bool)
    )
    return SkyModel(TRUTH.sources, gain=Gain(table=solved))


def test_gains_of_both_feeds_act_on_them_and_others_are_refused(linear: Path, tmp_path: Path) -> None:
    path = with_feeds(linear, tmp_path / "mixed.ms", "oxoxoxx")
    before = chi2_of(biro.read(path), TRUTH)
    sky = with_gains(path)
    observation = biro.read(path)
    found = chi2_of(observation, sky)
    # The noise was multiplied, too: each term of chi2 by |g_p g_q|^2, of 1.1 to 2.4.
    assert 1.2 * before < found < 5.0 * before
    wrong = chi2_of(observation, TRUTH)
    assert wrong > 100 * found
    only = r"XR XL YR YL|RX RY LX LY"
    refused = {
        "so gains must be the same for both feeds": with_gains(path, second_feed=1.2),
        "feeds, leakage, gain and ionosphere belong": SkyModel(TRUTH.sources, leakage=Leakage(d_x=0.01)),
        "belong to the correlations of feeds": SkyModel(TRUTH.sources, feeds=Feeds(rotation="present")),
    }
    for said, model in refused.items():
        with pytest.raises(BiroError, match=said) as error:
            biro.Likelihood(observation, model, smearing="off")
        assert re.search(rf"correlations of circular with linear feeds \(({only})\)", str(error.value))
        assert "--antennas" in str(error.value)


def test_commands(linear: Path, tmp_path: Path) -> None:
    path = with_feeds(linear, tmp_path / "mixed.ms", "ooxxxxx")
    run = CliRunner().invoke
    said = run(app, ["info", str(path)])
    assert said.exit_code == 0, said.output
    assert "RX RY LX LY; 100 rows" in said.output
    said = run(app, ["image", str(path), "-o", str(tmp_path / "image"), "--stokes", "Q"])
    assert said.exit_code == 0, said.output
    # 20 mJy / sqrt(2 x 420) of noise and 2 % of the peak between the pixels.
    assert 0.27 < float(fits.getdata(tmp_path / "image.fits").max()) < 0.32


def test_a_new_set_has_the_feeds_of_its_antennas(linear: Path, tmp_path: Path) -> None:
    kinds = "xxxxooo"
    observation = biro.read(with_feeds(linear, tmp_path / "mixed.ms", kinds))
    create_ms(tmp_path / "again.ms", observation)
    with table(f"{tmp_path / 'again.ms'}::FEED", ack=False) as feed:
        types = [list(feed.getcell("POLARIZATION_TYPE", i)) for i in range(feed.nrows())]
    assert types == [["R", "L"] if kind == "o" else ["X", "Y"] for kind in kinds]
    again = biro.read(tmp_path / "again.ms")
    for one, other in zip(again.partitions, observation.partitions, strict=True):
        assert one.corr_type == other.corr_type
        np.testing.assert_array_equal(one.vis, other.vis)


@pytest.mark.parametrize("stokes", ["I", "V"])
def test_diagnosis_names_a_source_that_the_model_lacks(linear: Path, tmp_path: Path, stokes: str) -> None:
    observation = biro.read(with_feeds(linear, tmp_path / "mixed.ms", "oxoxoxx"))
    flux = {"I": "0 Jy"} | {stokes: "0.1 Jy"}
    place = {"east": "-1500 arcsec", "north": "1000 arcsec"}
    added = predict(observation, SkyModel([PointSource("b", **place, **flux)]), smearing="off")
    parts = [replace(p, vis=p.vis + more) for p, more in zip(observation.partitions, added, strict=True)]
    free = {"prior": "uniform", "low": 0, "high": 9, "unit": "Jy"}
    sky = replace(source(**{**{k: f"{v} Jy" for k, v in FLUX.items()}, "I": free}), noise=Noise(factor=1.0))
    likelihood = biro.Likelihood(replace(observation, partitions=tuple(parts)), sky, smearing="off")
    found = diagnose(likelihood, np.array([FLUX["I"]]), np.array([np.nan]), np.array([np.nan]), ())
    assert [finding.kind for finding in found.findings] == [f"missing {'polarised ' * (stokes == 'V')}source"]
    verdict = found.findings[0].verdict
    assert "30 arcmin north-west" in verdict
    # As above: five errors of a mean of 2 n products, in mJy.
    error = 1e3 * SIGMA / np.sqrt(observation.counts["usable"] / 2)
    flux = (
        1e3 * float(re.findall(r", I ([0-9.]+) Jy\)", found.findings[0].remedy)[0])  # refitted with the model
        if stokes == "I"
        else float(re.findall(r"\(([0-9.]+) \+- ", verdict)[0])
    )
    assert abs(flux - 100.0) < 5 * error


def test_gains_are_solved_for_feeds_of_one_kind(linear: Path, tmp_path: Path) -> None:
    path = with_feeds(linear, tmp_path / "mixed.ms", "ooxxxxx")
    with pytest.raises(BiroError, match=r"circular and linear feeds \(LL, .*, YY\).*--antennas"):
        biro.solve_gains(biro.read(path), TRUTH, feeds="common")
    linear_alone = biro.read(path, correlations=["XX", "XY", "YX", "YY"])
    solved = biro.solve_gains(linear_alone, TRUTH, feeds="common")
    solved.save(tmp_path / "gains.npz")


def test_sources_are_found_through_a_beam(linear: Path, tmp_path: Path) -> None:
    observation = biro.read(with_feeds(linear, tmp_path / "mixed.ms", "ooxxxxx"))
    beam = AiryBeam("12 m")
    sky = SkyModel([PointSource("b", east="-1500 arcsec", north="1000 arcsec", I="1 Jy")], beam=beam)
    before, after = (predict(observation, one, smearing="off") for one in (TRUTH, sky))
    parts = [
        replace(part, vis=part.vis - old + new)
        for part, old, new in zip(observation.partitions, before, after, strict=True)
    ]
    data = replace(observation, partitions=tuple(parts))
    found = biro.find_sources(data, beam=SkyModel([], beam=beam), cell="60 arcsec", size=128)
    (one,) = found.sources
    x = np.pi * 12.0 * 1.4e9 / 299792458.0 * np.hypot(1500.0, 1000.0) * np.pi / 648000
    kept = (2.0 * j1(x) / x) ** 2  # of the power, in both channels to 0.1 %
    error = SIGMA / np.sqrt(data.counts["usable"] / 2) / kept
    assert abs(one.flux - 1.0) < 5 * error
    # The fit of what was found reads all correlations that have I in them.
    words = parallel_hands(data)
    assert sorted(words["correlations"]) == ["LL", "LX", "LY", "RR", "RX", "RY", "XX", "YY"]
    read = biro.read(tmp_path / "mixed.ms", **words)
    assert {part.corr_type for part in read.partitions} == {("RR", "LL"), products("RL", "XY"), ("XX", "YY")}
