"""`biro.sample(start=...)` and `biro.add_source`: fits that go on from an earlier one."""

from __future__ import annotations

import dataclasses
import logging
import pickle

import numpy as np
import pytest
from gaussian_likelihood import Flat, GaussianLikelihood
from test_find_forms import ARCMIN, observed

import biro
from biro.errors import InputError
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.start_point import start_point
from biro.inference.target.checked import Target
from biro.models import PointSource, SkyModel, Uniform
from biro.simulation.prediction import predict

FLUX = {"a": 1.0, "b": 0.4}
PLACE = {"a": (3.0, -5.0), "b": (-14.0, 9.0)}


def source(name, unit="arcmin", factor=1.0):
    """A source with uniform priors about its true place and flux."""
    east, north = (Uniform(factor * (x - 2.0), factor * (x + 2.5), unit) for x in PLACE[name])
    return PointSource(name, east=east, north=north, I=Uniform(0.1, 2.0, "Jy"))


@pytest.fixture(scope="module")
def data():
    truth = [
        PointSource(name, east=f"{x} arcmin", north=f"{y} arcmin", I=f"{FLUX[name]} Jy")
        for name, (x, y) in PLACE.items()
    ]
    return observed(truth, n_row=800)


@pytest.fixture(scope="module")
def likelihood(data):
    return biro.Likelihood(data, SkyModel([source("a"), source("b")]))


@pytest.fixture(scope="module")
def posterior(likelihood):
    return biro.sample(likelihood, "none", seed=1, progress=False)


def test_a_start_is_taken_by_name_and_unit(data, likelihood, posterior, caplog):
    names = list(likelihood.parameter_names)
    assert start_point(likelihood, posterior) == pytest.approx(posterior.best_fit)
    maximum = biro.maximise(likelihood, starts=posterior.best_fit, seed=1)
    assert start_point(likelihood, maximum) == pytest.approx(maximum.best_fit)
    given = start_point(likelihood, {"b.I": 0.41, "a.east": 3.1})
    assert (given[names.index("b.I")], given[names.index("a.east")]) == (0.41, 3.1)
    assert given[names.index("a.I")] == pytest.approx(1.05)  # the middle of 0.1 .. 2
    # The same sources in other units, in another order, with one more.
    far = PointSource("c", east="30 arcmin", north="0 arcmin", I=Uniform(0.0, 1.0, "Jy"))
    other = biro.Likelihood(data, SkyModel([source("b", "arcsec", 60.0), far, source("a", "arcsec", 60.0)]))
    with caplog.at_level(logging.INFO, "biro"):
        moved = dict(zip(other.parameter_names, start_point(other, posterior), strict=True))
    assert "no start value for c.I, so the middle of the prior is used" in caplog.text
    best = dict(zip(names, posterior.best_fit, strict=True))
    assert moved["a.east"] == pytest.approx(60.0 * best["a.east"])
    assert moved["b.I"] == pytest.approx(best["b.I"])
    assert moved["c.I"] == 0.5


def test_samplers_climb_from_the_start_and_say_so(likelihood, posterior, caplog):
    with caplog.at_level(logging.INFO, "biro"):
        again = biro.sample(likelihood, "none", seed=1, progress=False, start=posterior)
    assert "searching the maximum from the best fit of the posterior given" in caplog.text
    # One climb that begins at the maximum: a few gradients in place of 16 starts.
    assert again.diagnostics["n_start"] == 1
    assert again.diagnostics["n_gradient"] < 0.2 * posterior.diagnostics["n_gradient"]
    assert again.best_fit == pytest.approx(posterior.best_fit, rel=1e-3)
    with caplog.at_level(logging.INFO, "biro"):
        biro.sample(likelihood, "emcee", seed=1, progress=False, max_steps=20, start={"a.I": 1.1})
        biro.sample(likelihood, "dynesty", seed=1, progress=False, n_live=50, dlogz=5.0, start=posterior)
    assert "from the values given. Walkers begin around it" in caplog.text
    assert "dynesty starts from the prior and does not use the best fit of the posterior given" in caplog.text


def test_starts_that_cannot_be_are_refused(likelihood, posterior):
    for start, message in (
        ({"a.J": 1.0}, r"^start: no parameter a\.J; there are a\.east"),
        ({"a.I": "1 Jy"}, "^start: a.I must be a finite number, got '1 Jy'$"),
        ({"a.I": np.nan}, "^start: a.I must be a finite number, got nan$"),
        ({"a.I": 3.0}, r"^start lies outside the prior: a\.I = 3, which must be within 0\.1 \.\. 2 Jy$"),
        ({}, "^start has no parameter of this model"),
        ([1.0, 2.0], "^start must be a maximum, a posterior, or a dict of numbers by name, got list$"),
    ):
        with pytest.raises(InputError, match=message):
            biro.sample(likelihood, "none", start=start)
    renamed = tuple(dataclasses.replace(c, unit="Hz") for c in posterior.columns)
    with pytest.raises(InputError, match="is in 'Hz' there, and in 'arcmin' here"):
        biro.sample(likelihood, "none", start=dataclasses.replace(posterior, columns=renamed))


def test_a_source_is_added_where_the_fit_leaves_a_peak(data, tmp_path):
    alone = biro.sample(biro.Likelihood(data, SkyModel([source("a")])), "none", seed=1, progress=False)
    options = {"cell": "30 arcsec", "size": 256}
    sky = biro.add_source(alone, kind="point", **options)
    new = sky.sources[1]
    assert (new.name, sky.sources[0]) == ("s1", source("a"))
    for prior, truth in zip((new.east, new.north), PLACE["b"], strict=True):
        scale = {"arcmin": 1.0, "arcsec": 60.0}[prior.unit]
        assert prior.low < truth * scale < prior.high
    both = biro.sample(biro.Likelihood(data, sky), "none", seed=1, progress=False, start=alone)
    # 1600 complex visibilities of two hands each.
    assert both.fits[0].reduced_chi2 == pytest.approx(1.0, abs=4 / np.sqrt(3200))
    unit = {"Jy": 1.0, "mJy": 1000.0}[new.I[0].unit]
    assert np.median(both["s1.I"]) == pytest.approx(0.4 * unit, abs=0.005 * unit)
    circle = biro.add_source(alone, name="knot", **options).sources[1]
    assert (circle.name, circle.fwhm is None) == ("knot", False)

    alone.save(tmp_path / "p.nc")
    read = Posterior.load(tmp_path / "p.nc")
    assert read.likelihood is None
    assert pickle.loads(pickle.dumps(alone)).likelihood is None
    for wrong, message in (
        ((read,), r"needs the likelihood of the fit"),
        ((read, biro.Likelihood(data, sky)), "give the likelihood of the fit"),
    ):
        with pytest.raises(InputError, match=message):
            biro.add_source(*wrong)
    with pytest.raises(InputError, match=r"^kind must be point, circle, ellipse, got 'disc'$"):
        biro.add_source(alone, kind="disc")
    assert biro.add_source(read, alone.likelihood, kind="point", **options) == sky


def test_the_flux_of_a_new_source_is_that_in_the_band(data):
    """A model normalised at 1.4 GHz, and a flat source at 100 .. 106 MHz, whose index is hardly known."""
    part = data.partitions[0]
    wide = dataclasses.replace(part, chan_freq=np.array([1.0e8, 1.06e8]))
    truth = [PointSource("b", east="-14 arcmin", north="9 arcmin", I="0.4 Jy")]
    (vis,) = predict(dataclasses.replace(data, partitions=(wide,)), SkyModel(truth))
    noise = np.random.default_rng(1).normal(size=(2, *vis.shape)) / np.sqrt(part.weight)
    wide = dataclasses.replace(wide, vis=vis + noise[0] + 1j * noise[1])
    observation = dataclasses.replace(data, partitions=(wide,))
    a = PointSource("a", east="3 arcmin", north="-5 arcmin", I=Uniform(0.0, 2.0, "Jy"))
    likelihood = biro.Likelihood(observation, SkyModel([a], ref_freq="1.4 GHz"))
    fitted = biro.maximise(likelihood, seed=1)
    sky = biro.add_source(fitted, likelihood, kind="point", cell="30 arcsec", size=256)
    flux, index = sky.sources[1].I[0], sky.sources[1].spectral_index[0]
    ref_freq = sky.sources[1].ref_freq or sky.ref_freq
    scale = {"Hz": 1.0, "GHz": 1e9}[ref_freq.unit]
    in_band = (1.03e8 / (ref_freq.value * scale)) ** np.array([index.mean - index.sd, index.mean + index.sd])
    unit = {"Jy": 1.0, "mJy": 1e-3}[flux.unit]
    assert (flux.low * unit * in_band < 0.4).all()
    assert (flux.high * unit * in_band > 0.4).all()


def test_positions_count_from_the_centre_of_the_model(data):
    """A model whose centre lies 10 arcmin west of the phase centre: offsets are larger by as much."""
    ra, dec = data.partitions[0].phase_centre
    centre = (ra - 10 * ARCMIN / np.cos(dec), dec)
    a = dataclasses.replace(source("a"), east=Uniform(11.0, 15.0, "arcmin"))
    likelihood = biro.Likelihood(data, SkyModel([a], centre=centre))
    fitted = biro.maximise(likelihood, seed=1)
    new = biro.add_source(fitted, likelihood, kind="point", cell="30 arcsec", size=256).sources[1]
    scale = {"arcmin": 1.0, "arcsec": 60.0}[new.east.unit]
    assert new.east.low < -4.0 * scale < new.east.high


def test_what_lies_outside_is_named_and_not_what_a_turn_brings_back() -> None:
    """An angle of 190 deg is one of 10 deg."""
    priors = [Flat(0, 90, "pa", "deg", period=180.0), Flat(0, 5, "I")]
    target = Target(GaussianLikelihood(priors, [45.0, 2.0], np.eye(2)))
    assert target.outside(np.array([190.0, 2.0])) == ""
    assert target.outside(np.array([190.0, 7.0])).startswith("I = 7, which must be within 0 .. 5")
    assert target.outside(np.array([100.0, 2.0])).startswith("pa = 100, which must be within 0 .. 90")
