"""Sources found by themselves: in simulated fields, and in real ones whose sources are known."""

from __future__ import annotations

import dataclasses
import json
import shlex
import tomllib

import numpy as np
import pytest
from test_cli import biro as command
from test_imaging import CENTRE, observe

import biro
from biro.cli.options import read_options, reading_words
from biro.errors import BiroError
from biro.models import GaussianSource, PointSource, SkyModel, Uniform
from biro.simulation.prediction import predict
from biro.source_finding.fitting.component import Component
from biro.source_finding.fitting.source_fit import SourceFit
from biro.source_finding.fitting.visibility_data import VisibilityData

ARCMIN = np.pi / 180 / 60


def field(*sources, sigma=0.05, **change):
    """These sources in noise of sigma Jy in each part of each correlation."""
    blank = observe(n_row=1500, sigma=sigma, weight=sigma**-2, w=0.1, **change)
    vis = predict(blank, SkyModel(list(sources)))
    parts = zip(blank.partitions, vis, strict=True)
    return dataclasses.replace(
        blank, partitions=tuple(dataclasses.replace(part, vis=part.vis + model) for part, model in parts)
    )


POINT = PointSource("p", east="10 arcmin", north="-20 arcmin", I="1 Jy")
FAINT = PointSource("f", east="-33 arcmin", north="5 arcmin", I="60 mJy")
GAUSSIAN = GaussianSource(
    "g", east="-15 arcmin", north="12 arcmin", I="3 Jy", emaj="8 arcmin", emin="4 arcmin", pa="30 deg"
)
OPTIONS = {"cell": "40 arcsec", "size": 160}


def test_points_and_gaussians_are_told_apart_and_measured():
    found = biro.find_sources(field(POINT, GAUSSIAN, FAINT), **OPTIONS)
    assert [source.kind for source in found.sources] == ["ellipse", "point", "point"]
    gaussian, point, faint = found.sources
    # 1500 rows, 2 channels, XX and YY: 0.05 / sqrt(6000) = 0.65 mJy.
    assert point.flux_err == pytest.approx(0.05 / np.sqrt(6000), rel=0.1)
    for source, flux in ((point, 1.0), (faint, 0.06), (gaussian, 3.0)):
        assert abs(source.flux - flux) < 4 * source.flux_err
    for source, east, north in ((point, 10, -20), (faint, -33, 5), (gaussian, -15, 12)):
        apart = np.hypot(source.east - east * ARCMIN, source.north - north * ARCMIN)
        assert apart < 4 * source.position_err
    # A size in the direction of an axis is known to about the error of a position, or better.
    assert [gaussian.emaj, gaussian.emin] == pytest.approx(
        [8 * ARCMIN, 4 * ARCMIN], abs=8 * gaussian.position_err
    )
    assert np.rad2deg(gaussian.pa) == pytest.approx(30.0, abs=1.0)
    assert found.noise_factor == pytest.approx(1.0, abs=4 / np.sqrt(6000))
    assert found.residual.what == "residual"
    assert "times the image rms" in found.reason


def test_the_model_is_ready_for_a_fit(tmp_path):
    found = biro.find_sources(field(POINT, GAUSSIAN), **OPTIONS)
    path = tmp_path / "sky.toml"
    path.write_text(found.to_toml())
    sky = biro.read_model(path)
    assert sky == found.sky
    assert path.read_text().splitlines()[2].startswith("# s1      ellipse ")
    assert sky.centre == pytest.approx(CENTRE, abs=1e-15)
    truth = {"s1.east": -15, "s1.north": 12, "s2.east": 10, "s2.north": -20}
    for parameter in biro.Likelihood(field(POINT), sky).parameters:
        if parameter.name in truth:
            scale = {"arcmin": 1, "arcsec": 60}[parameter.unit]
            assert isinstance(parameter.prior, Uniform)
            assert parameter.prior.low < truth[parameter.name] * scale < parameter.prior.high
    table = tomllib.loads(path.read_text())
    flux = table["source"][0]["I"]
    assert (flux["prior"], flux["unit"]) == ("uniform", "Jy")
    assert [flux["low"], flux["high"]] == pytest.approx(
        [1.5, 4.5], abs=0.02
    )  # found to 3 mJy, three digits kept


def test_nothing_is_found_in_noise():
    with pytest.raises(BiroError, match="no source found: no "):
        biro.find_sources(field(dataclasses.replace(POINT, I="0 Jy")), **OPTIONS)


def test_as_many_as_asked_for():
    found = biro.find_sources(field(POINT, GAUSSIAN, FAINT), max_sources=1, **OPTIONS)
    assert len(found.sources) == 1
    assert found.reason == "stopped at 1 sources (max_sources, --max-sources); there may be more"
    for wrong, message in (
        ({"max_sources": 0}, "^max_sources must be 1 to 100, got 0$"),
        ({"threshold": 0.0}, "^threshold must be above 0, got 0.0$"),
        ({"add_circle": -1}, "^add_circle must be 0 to 100, got -1$"),
        ({"stokes": "IQUV"}, "leave out stokes"),
        ({"sizes": 3}, "did you mean 'size'"),
    ):
        with pytest.raises(BiroError, match=message):
            biro.find_sources(field(POINT), **wrong)


def test_spectra_are_asked_for_where_the_band_is_wide():
    steep = dataclasses.replace(POINT, spectral_index=-0.9, ref_freq="109.5445 MHz")
    found = biro.find_sources(field(steep), **OPTIONS)
    (source,) = found.sources
    assert source.spectral_index == pytest.approx(-0.9, abs=4 * source.spectral_index_err)
    # Flux at the geometric mean of 100 and 120 MHz; half of the samples at each end: sigma / (ln(1.2) / 2).
    assert source.spectral_index_err == pytest.approx(source.flux_err / (np.log(1.2) / 2), rel=0.1)
    assert found.sky.ref_freq.value == pytest.approx(np.sqrt(1.2) * 1e8)
    narrow = biro.find_sources(field(POINT, freq=np.array([1.00e8, 1.01e8])), **OPTIONS)
    assert narrow.sources[0].spectral_index_err == 0.0
    assert narrow.sky.ref_freq is None


def test_a_fit_in_the_visibilities_is_least_squares():
    """Errors and chi2 of the linear problem in closed form: the flux of a point that is held in place."""
    observation = field(POINT)
    data = VisibilityData(observation)
    truth = Component((10 * ARCMIN, -20 * ARCMIN), 1.0)
    fit = SourceFit(data, 0.1).fit([dataclasses.replace(truth, lm=(9.9 * ARCMIN, -20.2 * ARCMIN), flux=0.7)])
    part = observation.partitions[0]
    n = part.vis.shape[0] * part.vis.shape[1]
    assert data.n_vis == n
    # chi2 of Stokes I at the minimum: 2 n real numbers less the parameters, +- sqrt(4 n).
    assert abs(fit.chi2 - 2 * n) < 4 * np.sqrt(4 * n)
    assert data.chi2(data.residual([truth])) - fit.chi2 < 4 * len(fit.covariance) + 10
    assert fit.covariance[0, 0] == pytest.approx(0.05**2 / (2 * n), rel=0.02)


def test_a_root_is_a_gaussian():
    fwhm = np.sqrt(8 * np.log(2))
    circle = Component((0.0, 0.0), 1.0, root=(2.0,))
    assert circle.shape[:2] == pytest.approx((2 * fwhm, 2 * fwhm))
    assert circle.as_ellipse().shape[:2] == pytest.approx((2 * fwhm, 2 * fwhm))
    # Covariance of axes 3 and 1, the long one at 30 deg from north through east: (sin 30, cos 30).
    axes = np.array([[0.5, np.sqrt(0.75)], [np.sqrt(0.75), -0.5]])
    covariance = axes.T @ np.diag([9.0, 1.0]) @ axes
    (a, _), (b, c) = np.linalg.cholesky(covariance)
    emaj, emin, pa = Component((0.0, 0.0), 1.0, root=(a, b, c)).shape
    # Both variances are larger by 1 / 399 of their sum, 10, which keeps axes apart from lines: 0.05^2 : 1.
    axes = fwhm * np.sqrt(np.array([9.0, 1.0]) + 10.0 / 399.0)
    assert (emaj, emin, np.rad2deg(pa)) == pytest.approx((*axes, 30.0))
    line = Component((0.0, 0.0), 1.0, root=(3.0, 1.0, 0.0)).shape
    assert line[1] / line[0] == pytest.approx(0.05)
    for root in ((2.0,), (a, b, c), (-1.0, 0.4, 2.0)):
        made = Component((0.0, 0.0), 1.0, root=root)
        # Central differences over 1e-5: the third derivatives leave 1e-9.
        ends = [
            [np.array(Component((0.0, 0.0), 1.0, root=tuple(root + s * 1e-5 * e)).shape) for s in (1.0, -1.0)]
            for e in np.eye(len(root))
        ]
        slopes = np.array([(high - low) / 2e-5 for high, low in ends]).T
        assert made.shape_slopes() == pytest.approx(slopes, abs=1e-7)


@pytest.fixture(scope="module")
def vla(measurement_set):
    return measurement_set("vla_3c273_x")


def test_core_and_jet_of_3c273(vla, tmp_path):
    """The reference fit with the core and two Gaussians in the jet (README of the reference data)."""
    code, out, said = command("find", vla, "-o", tmp_path / "sky.toml", "--max-sources", "3", "--json")
    assert code == 0, said
    core, *jet = json.loads(out)["sources"]
    arcsec = 180 / np.pi * 3600
    assert core["flux"] == pytest.approx(29.91, abs=0.02)
    assert np.hypot(core["east"], core["north"]) * arcsec < 0.002
    reference = [(2.354, -14.182, -15.674, 1.821, 0.335, 52.7), (1.325, -12.203, -13.668, 5.810, 0.214, 40.1)]
    for source, (flux, east, north, major, ratio, pa) in zip(jet, reference, strict=True):
        # The reference states no errors here; ours are formal: 0.016 Jy and 0.01 arcsec.
        assert source["flux"] == pytest.approx(flux, abs=0.03)
        assert source["east"] * arcsec == pytest.approx(east, abs=0.03)
        assert source["north"] * arcsec == pytest.approx(north, abs=0.03)
        assert source["emaj"] * arcsec == pytest.approx(major, rel=0.02)
        assert source["emin"] / source["emaj"] == pytest.approx(ratio, abs=0.01)
        assert np.rad2deg(source["pa"]) == pytest.approx(pa, abs=0.5)
    # Here the core may be an ellipse, with two parameters more: 0.1814.
    assert json.loads(out)["noise_factor"] == pytest.approx(0.183, abs=0.002)
    assert "next: biro fit" in said
    assert biro.read_model(tmp_path / "sky.toml").sources[0].name == "s1"
    code, _, said = command("find", vla, "-o", tmp_path / "sky.toml")
    assert (code, "exists already" in said) == (2, True)


def test_the_fit_that_is_proposed_reads_the_same_data(vla, tmp_path):
    given = ["--scans", "1,2", "--time-range", "..2030-01-01T00:00", "--average-channels", "2"]
    given = ["--antennas", "!VA01 a", "--autocorrelations", "--uv-range", "0 m..90 km", *given]
    words = reading_words(read_options(options_of(given)))
    assert read_options(options_of(words)) == read_options(options_of(given))
    place = tmp_path / "sky.toml"
    options = ("--average-channels", "2", "--column", "DATA", "--max-sources", "1")
    code, _, said = command("find", vla, "-o", place, *options)
    assert code == 0, said
    assert shlex.split(said.splitlines()[-1].split("next: biro ")[1])[:5] == [
        "fit", str(vla), str(place), "-o", "RUN"
    ]  # fmt: skip
    proposed = shlex.split(said.splitlines()[-1].split(" RUN ")[1])
    assert options_of(proposed) == {
        "column": "DATA", "average_channels": "2", "correlations": "RR,LL",
    }  # fmt: skip


def options_of(words):
    """Options of a command line as typer gives them, by name."""
    found = {}
    for word, value in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word[2:].replace("-", "_")] = True if value.startswith("--") else value
    return found


def test_two_sources_in_six_baselines(measurement_set):
    """Sidelobes as high as the sources, every 7 arcmin: the visibilities tell which one is meant."""
    found = biro.find_sources(biro.read_ms(measurement_set("wsrt_3c343.1")))
    assert len(found.sources) == 2
    arcsec = 180 / np.pi * 3600
    first, second = found.sources
    # The reference's free positions: (-41, -1) and (-45, -1) arcsec beside (0, 0) and (-26.82, 11.06) arcmin.
    # To the east the beam is half a degree long, and whether the second is a Gaussian moves it by as much.
    assert [first.east * arcsec, first.north * arcsec] == pytest.approx([-41, -1], abs=3)
    assert second.north * arcsec == pytest.approx(11.06 * 60 - 1, abs=3)
    assert second.east * arcsec == pytest.approx(-26.82 * 60 - 45, abs=30)
    assert first.flux == pytest.approx(2.92, abs=0.02)
    assert second.flux == pytest.approx(0.82, abs=0.2)
