"""A search like that of a VLBI user: a core and a jet, errors of gains, a core of the wrong shape, a stop."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal

import numpy as np
import pytest
from test_cli import biro as command
from test_imaging import observe

import biro
from biro.errors import BiroError
from biro.models import GaussianSource, PointSource, SkyModel
from biro.run.interrupt import RunInterrupted
from biro.simulation.prediction import predict
from biro.simulation.simulator import Channels, Track, simulate
from biro.source_finding import find as finding
from biro.source_finding.changes import ModelChanges
from biro.source_finding.evidence import DetectionEvidence
from biro.source_finding.fitting.component import Component
from biro.source_finding.fitting.gain_errors import GainErrors
from biro.source_finding.fitting.search_data import averaged
from biro.source_finding.fitting.source_fit import SourceFit
from biro.source_finding.fitting.visibility_data import VisibilityData

ARCSEC = np.pi / 180 / 3600
# A beam of about 4 arcmin (KAT-7 at 1.3 GHz); knots are a fraction of a beam to three beams apart.
KNOTS = [
    ("core", 0.0, 0.0, 3.0, 40.0),
    ("k1", -80.0, 90.0, 1.5, 60.0),
    ("k2", -150.0, 210.0, 0.8, 90.0),
    ("k3", -200.0, 400.0, 0.5, 150.0),
    ("k4", -260.0, 700.0, 0.3, 200.0),
    ("k5", -330.0, 1200.0, 0.2, 300.0),
]
SKY = SkyModel(
    [
        GaussianSource(name, east=f"{x} arcsec", north=f"{y} arcsec", I=f"{s} Jy", fwhm=f"{w} arcsec")
        for name, x, y, s, w in KNOTS
    ]
)
OPTIONS = {"cell": "30 arcsec", "size": 256, "backend": "cpu"}


def with_gain_errors(observation, size, n_time, seed=5):
    """Gains of the antennas wrong by `size` in their real and imaginary parts, constant over some times."""
    (part,) = observation.partitions
    rng, n = np.random.default_rng(seed), part.n_antenna
    block = part.time_index // n_time
    shape = block.max() + 1, n
    gain = 1.0 + size * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
    factor = gain[block, part.antenna1] * gain[block, part.antenna2].conj()
    return factor[:, None, None]


@pytest.fixture(scope="module")
def jet():
    """Seven antennas, 8 h, noise of 20 mJy and gains wrong by 1 %: 30 mJy on most baselines."""
    common = {
        "phase_centre": (1.3, -0.75),
        "times": Track("2026-03-01", 8 * 3600.0, 120.0),
        "channels": Channels(1.3e9, 1e6, 1),
        "backend": "cpu",
    }
    clean = simulate("KAT-7", SKY, noise=0.0, seed=4, **common)
    noise = simulate("KAT-7", SKY, noise=0.02, seed=4, **common)
    factor = with_gain_errors(clean, 0.01, 16)
    (part,), (noisy,) = clean.partitions, noise.partitions
    vis = part.vis * factor + (noisy.vis - part.vis)
    return dataclasses.replace(
        noise, partitions=(dataclasses.replace(noisy, vis=vis.astype(noisy.vis.dtype)),)
    )


@pytest.fixture(scope="module")
def found(jet):
    return biro.find_sources(jet, **OPTIONS)


def truth():
    sigma = ARCSEC / np.sqrt(8 * np.log(2))
    return [Component((x * ARCSEC, y * ARCSEC), s, root=(w * sigma,)) for _, x, y, s, w in KNOTS]


def test_a_jet_in_gain_errors_is_fitted_as_well_as_by_the_truth(jet, found):
    data = VisibilityData(jet)
    best = SourceFit(data, 0.1).fit(truth())
    # The aim of a search: within 5 % of a fit that begins with the right components.
    assert found.reduced_chi2 < 1.05 * best.chi2 / (2 * data.n_vis)
    # One component more or less where two blend, and one more for what gains leave.
    assert abs(len(found.sources) - len(KNOTS)) <= 1
    total = sum(source.flux for source in found.sources)
    # Gains that are wrong by 1 % at 15 times of 7 antennas move the flux scale by 4 x 2 x 1 % / sqrt(105).
    assert total == pytest.approx(sum(knot[3] for knot in KNOTS), rel=0.01)


def test_what_was_varied_is_marked_and_each_note_comes_once(found):
    rows = found.cells()
    assert rows[0][-1] == "fitted"
    names = {"point": "I east north", "circle": "I east north fwhm", "ellipse": "I east north emaj ratio pa"}
    assert [row[-1] for row in rows[1:]] == [names[source.kind] for source in found.sources]
    lines = str(found).splitlines()
    assert len(lines) == len(set(lines))
    assert "count as one" not in str(found)
    assert found.to_dict()["sources"][0]["varied"][0] == "I"


def test_gain_errors_are_told_from_structure(jet):
    """The rms of the gains is what was made; a component that is missing is not explained by gains."""
    data = VisibilityData(jet)
    evidence = DetectionEvidence(data)
    fit = SourceFit(data, 0.1).fit(truth())
    whole, explained = evidence.judge(fit), evidence.explain(fit)
    fewer = evidence.judge(SourceFit(data, 0.1).fit(truth()[:-1]))
    # 7 antennas in 15 intervals of 16 times, two numbers each: 0.01 +- 4 / sqrt(2 x 210) of it.
    assert explained.gain_error == pytest.approx(0.01, rel=4 / np.sqrt(420))
    # What is left once gains are out, where intervals of 16 times are not those of the gains at both ends.
    assert explained.noise < 1.2 < np.sqrt(whole.fit.chi2 / (2 * data.n_vis))
    assert evidence.gain(fewer, whole) > 10 * evidence.needed(4, 1, 1000.0)


def test_errors_of_gains_bend_no_source_and_are_named():
    """Gains wrong by 3 %, and one antenna by 5 % more: the flux is within its error."""
    sky = {
        "phase_centre": (1.3, -0.75),
        "times": Track("2026-03-01", 8 * 3600.0, 240.0),
        "channels": Channels(1.3e9, 1e6, 1),
        "backend": "cpu",
    }
    clean = simulate("KAT-7", SKY, noise=0.0, seed=4, **sky)
    noisy = simulate("KAT-7", SKY, noise=0.02, seed=4, **sky)
    (part,), (other,) = clean.partitions, noisy.partitions
    bad = np.where(part.antenna1 == 3, 0.95, 1.0) * np.where(part.antenna2 == 3, 0.95, 1.0)
    vis = part.vis * with_gain_errors(clean, 0.03, 16) * bad[:, None, None] + (other.vis - part.vis)
    made = dataclasses.replace(other, vis=vis.astype(other.vis.dtype))
    result = biro.find_sources(dataclasses.replace(noisy, partitions=(made,)), **OPTIONS)
    core = result.sources[0]
    # An error of 4 sigma has a chance of 1 in 16 000. The core blends with a knot 2 arcmin away, half
    # a beam: errors of 5 % move some 0.4 Jy from one to the other.
    assert core.flux == pytest.approx(3.0, abs=4 * core.flux_err)
    assert core.flux_err < 0.6
    said = " ".join(result.notes())
    assert "GAIN ERRORS:" in said
    # The misfit line, or the line about gains where that has none, names the antenna that is wrong most.
    assert noisy.antenna_names[3] in said


def test_a_fit_with_gains_is_generalised_least_squares():
    """chi2 and the covariance of a flux in closed form, with the covariance of the data written out."""
    blank = observe(("XX", "YY"), n_row=112, sigma=1.0, weight=1.0, w=0.0, freq=np.array([1e8]))
    data = VisibilityData(blank)
    first, second = np.array(list(itertools.combinations(range(8), 2)))[np.arange(112) % 28].T
    chunk = dataclasses.replace(data.chunks[0], antenna1=first, antenna2=second)
    rng, n = np.random.default_rng(3), len(chunk.vis)
    point = Component((1e-3, 2e-3), 30.0)
    model = chunk.model([point])
    gains = 0.1 * (rng.standard_normal((8, 2)) @ [1.0, 1j])
    both = gains[chunk.antenna1] + gains[chunk.antenna2].conj()
    vis = model * (1.0 + both) + (rng.standard_normal(n) + 1j * rng.standard_normal(n)) / chunk.root
    data.chunks = [dataclasses.replace(chunk, vis=vis)]
    errors = GainErrors(data)
    explained = errors([vis - model], [model])
    noise = errors.noise_of(explained, [model])
    fit = SourceFit(data, 0.1, gains=noise).fit([point], n_step=0)
    # Real and imaginary parts, over sigma, and their derivatives by the errors of each interval and antenna.
    flat = (model * chunk.root).view(np.float64)
    turned = (1j * model * chunk.root).view(np.float64)
    index, covariance = explained.modes.index, np.eye(2 * n)
    for i in range(index.max() + 1):
        for antenna in range(8):
            one, two = (((end == antenna) & (index == i)) * 1.0 for end in (chunk.antenna1, chunk.antenna2))
            for column in (np.repeat(one + two, 2) * flat, np.repeat(one - two, 2) * turned):
                covariance += explained.modes.k * np.outer(column, column)
    left = ((vis - model - explained.second) * chunk.root).view(np.float64)
    assert fit.chi2 == pytest.approx(left @ np.linalg.solve(covariance, left), rel=1e-9)
    slopes = chunk.jacobian([point], False)[1][:3].view(np.float64)
    expected = np.linalg.inv(slopes @ np.linalg.solve(covariance, slopes.T))
    np.testing.assert_allclose(fit.covariance, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


def test_the_likelihood_with_gains_is_that_of_their_covariance():
    """-2 ln L in closed form: residuals of covariance s^2 / w + t^2 |V|^2 A A^T, by dense algebra."""
    blank = observe(("XX", "YY"), n_row=42, sigma=1.0, weight=1.0, w=0.0, freq=np.array([1e8]))
    data = VisibilityData(blank)
    (chunk,) = data.chunks
    rng = np.random.default_rng(2)
    model = 3.0 * np.exp(2j * np.pi * rng.random(42))
    gains = 0.3 * (rng.standard_normal((8, 2)) @ [1.0, 1j])
    both = gains[chunk.antenna1] + gains[chunk.antenna2].conj()
    residual = model * both + (rng.standard_normal(42) + 1j * rng.standard_normal(42)) / chunk.root
    explained = GainErrors(data)([residual], [model])
    # Terms of second order belong to the model; they are products of errors of some 0.2 each.
    assert np.abs(explained.second / model).max() < 0.5
    residual = residual - explained.second
    turned = residual * chunk.root * model.conj() / np.abs(model)
    slot = np.unique(chunk.time, return_inverse=True)[1]
    best = np.inf
    for length in (1, 4, 16):
        where = np.eye(8)[chunk.antenna1], np.eye(8)[chunk.antenna2]
        group = np.eye(int(slot.max()) // length + 1)[slot // length]
        value = 0.0
        s, t = explained.noise, explained.gain_error
        for sign, part in ((1.0, turned.real), (-1.0, turned.imag)):
            design = (where[0] + sign * where[1])[:, None, :] * group[:, :, None]
            design = design.reshape(42, -1) * (np.abs(model) * chunk.root)[:, None]
            covariance = s**2 * np.eye(42) + t**2 * design @ design.T
            value += part @ np.linalg.solve(covariance, part) + np.linalg.slogdet(covariance)[1]
        best = min(best, value)
    # The code leaves out the constant 2N of the best s, for which chi2 / s^2 = 2N = 84.
    assert explained.minus_2_log == pytest.approx(best - 84, abs=1e-6 * abs(best) + 1e-6)
    removed = residual - explained.left[0]
    # Most of the gains' part is recognised.
    assert np.std(removed - model * both) < 0.5 * np.std(model * both)


def test_a_core_of_the_wrong_shape_is_reshaped_not_covered_by_points():
    """An elongated core: about a point the residual is negative in the middle, and one ellipse is right."""
    blank = observe(n_row=1500, sigma=0.05, weight=400.0, w=0.0, freq=np.array([1.00e8, 1.01e8]))
    core = GaussianSource(
        "c", east="0 arcmin", north="0 arcmin", I="3 Jy", emaj="5 arcmin", emin="1.5 arcmin", pa="30 deg"
    )
    knot = PointSource("k", east="8 arcmin", north="14 arcmin", I="0.3 Jy")
    (vis,) = predict(blank, SkyModel([core, knot]))
    (part,) = blank.partitions
    sky = dataclasses.replace(blank, partitions=(dataclasses.replace(part, vis=part.vis + vis),))
    found = biro.find_sources(sky, cell="40 arcsec", size=160)
    assert [source.kind for source in found.sources] == ["ellipse", "point"]
    # 3000 visibilities of right weights: 1 +- 4 / sqrt(2 x 3000) and a parameter or two.
    assert found.reduced_chi2 == pytest.approx(1.0, abs=4 / np.sqrt(3000))


def test_an_ellipse_that_hides_two_components_is_split(jet):
    data, sigma = VisibilityData(jet), ARCSEC / np.sqrt(8 * np.log(2))
    pair = [Component((200 * ARCSEC * s, 300 * ARCSEC * s), 1.0, root=(60 * sigma,)) for s in (1.0, -1.0)]
    data.chunks = [dataclasses.replace(chunk, vis=chunk.model(pair)) for chunk in data.chunks]
    fitter = SourceFit(data, 0.1)
    one = fitter.fit([Component((0.0, 0.0), 2.0, root=(500 * sigma, 0.0, 500 * sigma))])
    left = data.residual(one.components)
    (change,) = ModelChanges(fitter, 240 * ARCSEC, one.components, left).splits()
    # There is no noise: two circles fit all, the ellipse does not.
    assert change.chi2 < 1e-6 * one.chi2
    assert sorted(c.flux for c in change.components) == pytest.approx([1.0, 1.0], rel=1e-4)


def test_averages_are_of_uvw_that_turn_alone():
    """4000 of 9000 visibilities would do; but uvw that jump from one time to the next are not averaged."""
    random = observe(n_row=9000, w=0.1, freq=np.array([1e8]))
    assert averaged(random, 1e-4) is random


def stopping(monkeypatch, after, act):
    """Do something at the end of a step of the search."""
    tell, steps = finding._tell, []

    def told(search, shown):
        tell(search, shown)
        steps.append(search.reduced_chi2)
        if len(steps) == after:
            act()

    monkeypatch.setattr(finding, "_tell", told)
    return steps


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_the_best_model(jet, monkeypatch, number):
    steps = stopping(monkeypatch, 4, lambda: os.kill(os.getpid(), number))
    stopped = biro.find_sources(jet, **OPTIONS)
    assert len(steps) == 4
    assert stopped.stopped == f"stopped by {signal.Signals(number).name}"
    assert str(stopped).startswith("NOT FINISHED: ")
    # The last step is the best; the same data, so that chi2 is the same.
    assert stopped.reduced_chi2 == pytest.approx(min(steps), rel=1e-6)


def test_an_error_after_the_first_source_keeps_the_model(jet, monkeypatch):
    def fail():
        raise BiroError("the disk is on fire")

    stopping(monkeypatch, 2, fail)
    kept = biro.find_sources(jet, **OPTIONS)
    assert isinstance(kept.fault, BiroError)
    assert len(kept.sources) >= 1


def test_a_signal_before_a_source_is_an_interruption(jet, monkeypatch):
    step = finding.Search.step

    def stopped_step(self, *options):
        os.kill(os.getpid(), signal.SIGINT)
        return step(self, *options)

    monkeypatch.setattr(finding.Search, "step", stopped_step)
    with pytest.raises(RunInterrupted, match="no source was found before the interruption"):
        biro.find_sources(jet, **OPTIONS)


def test_the_command_writes_the_model_when_it_is_stopped(tmp_path, measurement_set, monkeypatch):
    stopping(monkeypatch, 2, lambda: os.kill(os.getpid(), signal.SIGINT))
    out = tmp_path / "sky.toml"
    code, _, said = command("find", measurement_set("vla_3c273_x"), "-o", out)
    assert code == 130, said
    assert "The best model so far is in" in said
    assert biro.read_model(out).sources
