"""The form and the number of sources that data ask for: jets that are known, errors of calibration."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from test_imaging import observe

import biro
from biro.inference.posterior.start_point import start_point
from biro.models import GaussianSource, PointSource, SkyModel
from biro.simulation.prediction import predict
from biro.source_finding.evidence import Coherence
from biro.source_finding.fitting.component import Component
from biro.source_finding.fitting.source_fit import SourceFit
from biro.source_finding.fitting.visibility_data import VisibilityData

ARCMIN = np.pi / 180 / 60
# A beam of 4 arcmin; knots are one to four beams apart.
JET = [
    GaussianSource(
        "core", east="0 arcmin", north="0 arcmin", I="3 Jy", emaj="2.5 arcmin", emin="1 arcmin", pa="20 deg"
    ),
    GaussianSource("k1", east="1.5 arcmin", north="4 arcmin", I="0.8 Jy", fwhm="2 arcmin"),
    GaussianSource("k2", east="2.5 arcmin", north="9 arcmin", I="0.5 Jy", fwhm="4 arcmin"),
    PointSource("k3", east="6 arcmin", north="16 arcmin", I="0.2 Jy"),
    GaussianSource("k4", east="8 arcmin", north="24 arcmin", I="0.6 Jy", fwhm="9 arcmin"),
]
KINDS = {"core": "ellipse", "k1": "circle", "k2": "circle", "k3": "point", "k4": "circle"}
OPTIONS = {"cell": "30 arcsec", "size": 256}


def observed(sources, *, sigma=0.03, gain=0.0, n_row=2000, seed=3):
    """Sources seen by an array of 8 antennas, in noise, with errors of their gains that last 20 times."""
    blank = observe(("XX", "YY"), n_row=n_row, sigma=sigma, weight=sigma**-2, w=0.05, seed=seed,
                    freq=np.array([1.0e8, 1.01e8]))  # fmt: skip
    part, (vis,) = blank.partitions[0], predict(blank, SkyModel(sources))
    if gain:
        rng = np.random.default_rng(seed)
        error = gain * rng.standard_normal((2, part.time_index.max() // 20 + 1, 8))
        term = (1.0 + error[0] + 1j * error[1])[part.time_index // 20]
        rows = np.arange(len(term))
        vis = vis * (term[rows, part.antenna1] * term[rows, part.antenna2].conj())[:, None, None]
    return dataclasses.replace(blank, partitions=(dataclasses.replace(part, vis=part.vis + vis),))


@pytest.fixture(scope="module")
def jet():
    return observed(JET)


@pytest.fixture(scope="module")
def found(jet):
    return biro.find_sources(jet, **OPTIONS)


def test_a_jet_is_found_as_it_is_made(found):
    assert len(found.sources) == len(JET)
    for made in JET:
        east, north = made.east.value * ARCMIN, made.north.value * ARCMIN
        source = min(found.sources, key=lambda s: np.hypot(s.east - east, s.north - north))
        assert source.kind == KINDS[made.name]
        # Errors are formal, of parameters that are correlated with their neighbours'.
        assert abs(source.flux - made.I[0].value) < 4 * source.flux_err
        assert np.hypot(source.east - east, source.north - north) < 4 * source.position_err
        if source.kind == "circle":
            assert source.emaj == pytest.approx(made.fwhm.value * ARCMIN, rel=0.1)
        if source.kind == "ellipse":
            assert (source.emaj, source.emin) == pytest.approx((2.5 * ARCMIN, ARCMIN), rel=0.1)
            assert np.rad2deg(source.pa) == pytest.approx(20.0, abs=3.0)
    # 4000 complex visibilities: chi2 / 2N = 1 +- 1 / sqrt(4000), of noise as it is stated.
    assert found.reduced_chi2 == pytest.approx(1.0, abs=4 / np.sqrt(4000))
    # Noise alone: correlations that are certain by chance add some per cent.
    assert found.error_factor < 1.1


def test_the_proposed_model_has_the_same_forms_and_fits_as_well(jet, found):
    forms = {"point": {"I"}, "circle": {"I", "fwhm"}, "ellipse": {"I", "emaj", "ratio", "pa"}}
    names = {name for name in biro.Likelihood(jet, found.sky).parameter_names if name.startswith("s")}
    expected = {f"{s.name}.{key}" for s in found.sources for key in forms[s.kind] | {"east", "north"}}
    assert names == expected
    likelihood = biro.Likelihood(jet, found.sky)
    start = start_point(likelihood, found.start)
    # Two hands of N visibilities each, whose noise is right: the values found are next to the maximum.
    assert likelihood.chi2(start).sum() == pytest.approx(16000, abs=4 * np.sqrt(2 * 16000))
    maximum = biro.maximise(likelihood, starts=start, seed=1)
    # chi2 of two hands: N is twice as large, and their difference, which no source changes, adds noise alone.
    assert maximum.reduced_chi2[0] == pytest.approx(1.0, abs=4 / np.sqrt(8000))


def test_stops_can_be_overridden(jet, found):
    fewer = biro.find_sources(jet, max_sources=2, **OPTIONS)
    assert len(fewer.sources) == 2
    more = biro.find_sources(jet, max_sources=2, add_circle=1, **OPTIONS)
    assert len(more.sources) == 3
    assert more.reduced_chi2 < fewer.reduced_chi2
    high = biro.find_sources(jet, threshold=30.0, **OPTIONS)
    assert len(high.sources) < len(found.sources)
    assert "times the image rms" in high.reason


def test_errors_of_gains_are_not_taken_for_sources():
    """A point with gains wrong by 10 %: chi2/2N is 24, and what lowers it by chance does so coherently."""
    sky = [PointSource("p", east="3 arcmin", north="-5 arcmin", I="1 Jy")]
    found = biro.find_sources(observed(sky, gain=0.1), **OPTIONS)
    assert found.reduced_chi2 > 10
    # 8 antennas, two numbers each, in intervals of 20 times of some 70: 0.1 +- 4 / sqrt(2 x 60) of it.
    assert found.gain_error == pytest.approx(0.1, rel=4 / np.sqrt(120))
    assert len(found.sources) <= 2
    first = found.sources[0]
    assert first.flux == pytest.approx(1.0, abs=4 * first.flux_err)
    assert first.flux_err > 3 * 0.03 / np.sqrt(8000)  # noise alone


def test_coherence_is_how_many_residuals_are_alike():
    blank = observed([PointSource("p", east="0 arcmin", north="0 arcmin", I="0 Jy")], sigma=1.0)
    data = VisibilityData(blank)
    measure = Coherence(data)
    assert measure([chunk.vis for chunk in data.chunks]) < 1.2
    # Alike within 16 times of a baseline and both channels: 32 residuals.
    rng = np.random.default_rng(1)
    (chunk,) = data.chunks
    slot, base = (np.unique(x, return_inverse=True)[1] for x in (chunk.time, chunk.baseline))
    alike = rng.standard_normal((slot.max() // 16 + 1, base.max() + 1))[slot // 16, base]
    # Blocks, about 126, of unequal variance by chance: 1 / (1 + 2 / sqrt(126)) is taken off.
    assert measure([alike + 0j * chunk.vis]) == pytest.approx(32, rel=0.3)
    # Half of the variance alike: 1 + (32 - 1) / 2.
    mixed = [np.sqrt(2) * alike + chunk.vis]
    assert measure(mixed) == pytest.approx(16.5, rel=0.3)


def test_derivatives_are_differences_of_the_measurement_equation(jet):
    data = VisibilityData(jet)
    (chunk,) = data.chunks
    components = (
        Component((0.01, -0.02), 1.3, 0.2),
        Component((-0.003, 0.005), 0.7, -0.5, (6e-4,)),
        Component((0.001, 0.002), 2.0, 0.1, (5e-4, 2e-4, 3e-4)),
    )
    model, jacobian = chunk.jacobian(components, True)
    assert np.allclose(model, chunk.model(components), atol=1e-12)
    i = 0
    for k, component in enumerate(components):
        vector = component.vector(True)
        for j, value in enumerate(vector):
            step = 1e-6 * max(abs(value), 1e-3) * np.eye(len(vector))[j]
            ends = [
                chunk.model([*components[:k], component.moved(vector + s * step, True), *components[k + 1 :]])
                for s in (1, -1)
            ]
            slope = (ends[0] - ends[1]) / (2 * step[j]) * chunk.root
            # The turn of a Gaussian's tangent plane with its position is left out: of the order of its place.
            assert np.abs(slope - jacobian[i]).max() < 1e-3 * np.abs(slope).max()
            i += 1


@pytest.fixture(scope="module")
def two_windows(measurement_set):
    return biro.read_ms(
        measurement_set("vlba_j1033p6051_ku"), spws=[3, 4], average_time="60 s", stokes="pseudoI"
    )


def test_j1033_is_fitted_as_well_as_by_the_reference(two_windows):
    """Ellipse and two circles of the reference data's README, fitted to the same visibilities."""
    mas = np.pi / 180 / 3600e3
    data = VisibilityData(two_windows)
    sigma = mas / np.sqrt(8 * np.log(2))
    north_south = (0.03 * sigma, 0.0, 0.1375 * sigma)
    reference = SourceFit(data, 1e-6).fit(
        [
            Component((-0.00063 * mas, -0.00112 * mas), 0.5236, root=north_south),
            Component((0.183 * mas, -1.062 * mas), 0.02566, root=(0.505 * sigma,)),
            Component((0.532 * mas, -3.689 * mas), 0.0162, root=(0.883 * sigma,)),
        ]
    )
    found = biro.find_sources(two_windows, size=512)
    limit = 1.02 * reference.chi2 / (2 * data.n_vis)
    assert found.reduced_chi2 < limit
    assert found.sources[0].kind == "ellipse"
    assert found.sources[0].flux == pytest.approx(0.5236, abs=0.005)
    maximum = biro.maximise(biro.Likelihood(two_windows, found.sky), starts=2, seed=1)
    assert maximum.chi2.sum() / (2 * maximum.n_vis.sum()) < limit
    assert all(s.emin / s.emaj > 0.049 for s in found.sources if s.kind == "ellipse")
