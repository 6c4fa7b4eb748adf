"""Single against double precision: on real data, and what "auto" makes of it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import real
from commands import works
from scipy import stats
from test_real_data import CORE_AND_JET, START

import biro
from biro.io.measurement_set import create_ms
from biro.likelihood import precision

TWO_POINTS = """
[[source]]
name = "a"
type = "point"
east = { prior = "uniform", low = -20, high = 20, unit = "arcsec" }
north = { prior = "uniform", low = -20, high = 20, unit = "arcsec" }
I = { prior = "uniform", low = 0, high = 2, unit = "Jy" }
[noise]
factor = 1
"""
M87 = """
[[source]]
name = "ring"
type = "gaussian"
east = "0 uas"
north = "0 uas"
I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }
fwhm = { prior = "uniform", low = 20, high = 80, unit = "uas" }
[noise]
factor = 1
"""
START_3C273 = {"core.east": 0.0, "core.north": 0.0, "core.fwhm": 0.05, "noise.factor": 0.4}
START_3C273 |= {name: value for name, (value, _) in CORE_AND_JET.items()}
J1033 = real.j1033_core("ellipse") + real.j1033_blob("a", -1.0) + real.j1033_blob("b", -3.7)


def sky(text: str, tmp_path: Path) -> biro.SkyModel:
    (tmp_path / "sky.toml").write_text(text)
    return biro.read_model(tmp_path / "sky.toml")


def observed(noise: float, n_time: int = 30, n_chan: int = 4) -> biro.Observation:
    """Seven antennas looking at a source of 1 Jy, ten arcseconds off centre, at 1.4 GHz."""
    rng = np.random.default_rng(5)
    antenna1, antenna2 = np.triu_indices(7, k=1)
    place = rng.normal(scale=1500.0, size=(n_time, 7, 3))
    place[..., 2] = 0.0  # no w: the phase is 2 pi u l nu / c (physics, section 2)
    uvw = (place[:, antenna1] - place[:, antenna2]).reshape(-1, 3)
    freq = 1.4e9 + 1e6 * np.arange(n_chan)
    offset = math.radians(10.0 / 3600.0)
    vis = np.exp(2j * np.pi * (uvw[:, 0] * offset)[:, None] * freq / 299792458.0)[:, :, None]
    vis = vis + noise * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
    return biro.Observation.from_arrays(
        vis=vis, uvw=uvw, antenna1=np.tile(antenna1, n_time), antenna2=np.tile(antenna2, n_time),
        time=5e9 + np.repeat(10.0 * np.arange(n_time), antenna1.size), chan_freq=freq, corr_type=["I"],
        weight=noise**-2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "correlations", "text", "start"),
    [
        ("vla_3c273_x", ("RR", "LL"), real.CORE_3C273 + real.JET_3C273, START_3C273),
        ("vlba_j1033p6051_ku", ("RR", "LL"), J1033 + "\n[noise]\nfactor = 1\n", START),
        ("wsrt_3c343.1", ("XX", "YY"), real.WSRT_3C343, None),
        # Its phases are not calibrated: 44 times the noise is left, where roundings of squares would show.
        ("SR1_M87", ("RR", "LL"), M87, None),
    ],
)
def test_single_precision_on_real_data(name, correlations, text, start, measurement_set, tmp_path):
    obs = biro.read_ms(measurement_set(name), correlations=correlations)
    double, single = (
        biro.Likelihood(obs, sky(text, tmp_path), precision=each) for each in ("double", "single")
    )
    given = {"starts": [[start[name] for name in double.parameter_names]]} if start else {}
    found = biro.maximise(double, seed=1, **given)
    draws = found.laplace.draws(np.random.default_rng(1), 200)
    # Out to where 99.7 % of a normal distribution of so many dimensions lie: 3 sigma.
    size = np.sqrt(np.maximum(-2.0 * found.laplace.log_density(draws), 1e-9))
    reach = math.sqrt(stats.chi2.ppf(0.9973, double.n_param)) / size
    draws[100:] = found.best_fit + reach[100:, None] * (draws[100:] - found.best_fit)
    theta = np.concatenate([found.best_fit[None], draws])
    theta = theta[np.isfinite(double.log_prior(theta))]
    assert len(theta) > 20
    difference = single.log_likelihood(theta) - double.log_likelihood(theta)
    # What is asked for, of differences between parameters and of the values themselves.
    assert np.abs(difference - difference[0]).max() < 0.05
    assert np.abs(difference).max() < 0.05


def test_auto_is_single_for_ordinary_data_and_says_so(tmp_path, caplog):
    caplog.set_level("INFO", "biro")
    likelihood = biro.Likelihood(observed(noise=0.01), sky(TWO_POINTS, tmp_path), precision="auto")
    assert likelihood.precision == likelihood.description()["precision"] == "single"
    assert likelihood.choices.precision.startswith("single: single precision changes ln L by ")
    assert f"precision {likelihood.choices.precision}" in caplog.text
    assert likelihood.description()["precision_reason"] == likelihood.choices.precision


def test_auto_is_double_for_a_source_of_a_million_sigma_and_more(tmp_path):
    # A float32 is good to 3e-8 of 1 Jy, 0.3 sigma of this noise: ln L of 5040 numbers moves by several.
    obs, model = observed(noise=1e-7), sky(TWO_POINTS, tmp_path)

    def likelihood_of(data: biro.Observation, which: str) -> biro.Likelihood:
        return biro.Likelihood(data, model, precision=which)

    choice = precision.choose_precision(obs, likelihood_of)
    assert choice.precision == "double"
    assert 1.0 < choice.difference < 1000.0
    assert "not below 0.05" in choice.reason
    assert precision.choose_precision(obs, likelihood_of) == choice
    assert biro.Likelihood(obs, model, precision="auto").precision == "double"


def test_auto_is_double_where_it_cannot_tell(tmp_path):
    nothing_free = TWO_POINTS.replace(
        '{ prior = "uniform", low = -20, high = 20, unit = "arcsec" }', '"1 arcsec"'
    )
    nothing_free = nothing_free.replace('{ prior = "uniform", low = 0, high = 2, unit = "Jy" }', '"1 Jy"')
    likelihood = biro.Likelihood(observed(noise=0.01), sky(nothing_free, tmp_path), precision="auto")
    assert likelihood.precision == "double"
    assert "no free parameters" in likelihood.choices.precision


def test_a_part_of_the_data_is_whole_times_and_the_same_numbers():
    obs = observed(noise=0.01, n_time=60, n_chan=32)
    whole, part = obs.partitions[0], precision.thinned(obs, 5000).partitions[0]
    assert 2500 < part.vis.size <= 5000
    slots = np.searchsorted(whole.times, part.times)
    np.testing.assert_array_equal(whole.times[slots], part.times)
    assert len(slots) >= precision.N_TIME
    np.testing.assert_array_equal(part.times[part.time_index], part.time)
    rows = np.isin(whole.time_index, slots)
    channels = np.searchsorted(whole.chan_freq, part.chan_freq)
    np.testing.assert_array_equal(part.uvw, whole.uvw[rows])
    np.testing.assert_array_equal(part.vis, whole.vis[rows][:, channels])
    np.testing.assert_array_equal(part.weight, whole.weight[rows][:, channels])
    assert precision.thinned(obs, 10**6).partitions[0] is whole


def test_a_run_keeps_what_was_chosen(tmp_path):
    create_ms(tmp_path / "obs.ms", observed(noise=0.01))
    sky(TWO_POINTS, tmp_path)
    words = ["fit", tmp_path / "obs.ms", tmp_path / "sky.toml", "-o", tmp_path / "run", "--sampler", "none"]
    words += ["--precision", "auto", "--no-pictures", "--seed", "1", "--backend", "cpu"]
    words += ["--set", "n_sample=200", "--set", "starts=2"]
    first = works(*words)
    assert "precision single: single precision changes ln L by" in first.stderr
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["facts"]["likelihood"]
    assert facts["precision"] == "single"
    assert facts["precision_reason"].startswith("single: ")
    again = works(*words)
    assert "single precision," in again.stderr
    assert "precision single:" not in again.stderr  # what the run was begun with, without another look
