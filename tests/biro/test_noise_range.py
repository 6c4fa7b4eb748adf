"""The default prior of noise factors, and what a fit says that its prior cuts off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_likelihood import sky

import biro
from biro.likelihood.noise_range import noise_range

FLUX = """
[[source]]
name = "a"
type = "point"
east = "0 arcsec"
north = "0 arcsec"
I = { prior = "uniform", low = 0, high = 200, unit = "Jy" }
"""


def point_of_73_jy(units: float = 1.0, neighbours: bool = True) -> biro.Observation:
    """A source of 73 Jy with a noise of 5 Jy, whose weights are larger by 1/units^2 than they should be."""
    rng = np.random.default_rng(1)
    n_time, pairs = 40, np.array([(0, 1), (0, 2), (1, 2)])
    antenna1, antenna2 = np.tile(pairs, (n_time, 1)).T
    shape = (3 * n_time, 4, 2)
    # Times are 10 s apart, or so far that a scan has but one.
    time = 5e9 + np.repeat(np.arange(n_time), 3) * 10.0
    if not neighbours:
        order = np.argsort(antenna1 * 3 + antenna2, kind="stable")
        time[order] = 5e9 + 1e4 * np.arange(3 * n_time)
    return biro.Observation.from_arrays(
        vis=73.0 + 5.0 * (rng.normal(size=shape) + 1j * rng.normal(size=shape)),
        uvw=rng.normal(scale=300.0, size=(3 * n_time, 3)),
        antenna1=antenna1,
        antenna2=antenna2,
        time=time,
        interval=10.0,
        chan_freq=[1.0e9, 1.1e9, 1.2e9, 1.3e9],
        corr_type=["XX", "YY"],
        weight=np.full(shape, (units / 5.0) ** 2),
        flag=np.zeros(shape, bool),
    )


def test_weights_that_are_right_have_the_prior_of_the_docs() -> None:
    assert noise_range(point_of_73_jy().partitions) == (1e-3, 1e3)


@pytest.mark.parametrize("neighbours", [True, False])
@pytest.mark.parametrize("units", [5e5, 1e-6])
def test_weights_in_other_units_do_not_change_errors(tmp_path: Path, units: float, neighbours: bool) -> None:
    """The factor takes the units up: flux and error are those of weights that are right."""
    fits = [
        biro.maximise(biro.Likelihood(point_of_73_jy(u, neighbours), sky(FLUX, tmp_path)), seed=1)
        for u in (1.0, units)
    ]
    # sigma / sqrt(960 visibilities); the noise is fitted, and known to a percent or two.
    assert fits[0].error[0] == pytest.approx(5.0 / np.sqrt(960), rel=0.1)
    assert fits[1].error[0] == pytest.approx(fits[0].error[0], rel=1e-3)  # curvature from differences
    assert fits[1].noise_factor[0] == pytest.approx(units * fits[0].noise_factor[0], rel=1e-6)
    assert not any("TRUST" in line for line in fits[1].warnings())


def test_the_prior_that_was_used_is_in_the_model_of_the_run(tmp_path: Path) -> None:
    likelihood = biro.Likelihood(point_of_73_jy(5e5), sky(FLUX, tmp_path))
    text = likelihood.model.to_toml()
    path = tmp_path / "again.toml"
    path.write_text(text)
    again = biro.Likelihood(point_of_73_jy(5e5), biro.read_model(path))
    assert again.model.digest() == likelihood.model.digest()
    prior = likelihood.parameters[-1].prior
    assert (prior.low, prior.high) == (1e-3, 1e9)


@pytest.mark.parametrize("sampler", ["none", "emcee"])
def test_noise_that_is_cut_off_is_said_above_the_table(tmp_path: Path, sampler: str) -> None:
    noise = '[noise]\nfactor = { prior = "log-uniform", low = 1e-3, high = 1e3 }\n'
    likelihood = biro.Likelihood(point_of_73_jy(5e5), sky(FLUX + noise, tmp_path))
    table = biro.sample(likelihood, sampler, seed=1, progress=False).summary()
    first, *rest = str(table).splitlines()
    assert first.startswith("DO NOT TRUST THE ERRORS: noise.factor is CUT OFF at the upper limit")
    assert "too small" in first
    (flux,) = (line for line in rest if line.startswith("a.I"))
    assert flux.count("?") == 3
    assert table.to_dict()["warnings"]


def test_the_best_fit_of_a_sampler_is_the_maximum(tmp_path: Path) -> None:
    likelihood = biro.Likelihood(point_of_73_jy(), sky(FLUX, tmp_path))
    maximum = biro.maximise(likelihood, seed=1)
    found = biro.sample(likelihood, "dynesty", seed=1, n_live=60, progress=False)
    best = likelihood.log_posterior(found.best_fit)
    # L-BFGS-B ends where the log-posterior changes by 1e-11 of itself, some 1e-8; draws lie lower by 1/N.
    assert best == pytest.approx(maximum.log_posterior, abs=1e-4)
    assert best >= (found.log_likelihood + found.log_prior).max()
    assert found.summary().best_log_likelihood == pytest.approx(likelihood.log_likelihood(found.best_fit))
    found.save(tmp_path / "p.nc")
    assert biro.Posterior.load(tmp_path / "p.nc").best_fit.tolist() == found.best_fit.tolist()
    # Without its peak, as in files of before, it is the best sample.
    before = replace(found, peak=None, peak_log_likelihood=None)
    assert before.best_fit.tolist() == found.best_sample.tolist()
