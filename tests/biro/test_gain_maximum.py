"""Where the maximum beside gains is looked for, and what it is biased in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import biro
from biro.models import Gain, GaussianSource, LogNormal, Noise, PerSegment, PointSource, SkyModel, Uniform
from tests.biro.test_fitted_gains import TURN, simulated, small

SD = 0.2
SKY = SkyModel(
    [
        PointSource("a", east="0 arcsec", north="0 arcsec", I=Uniform("0.1 Jy", "10 Jy")),
        GaussianSource(
            "b", east=Uniform(5, 25, "arcsec"), north=Uniform(-10, 10, "arcsec"),
            I=Uniform("0.1 Jy", "10 Jy"), fwhm="2 arcsec",
        ),
    ],
    noise=Noise(factor=1.0),
    gain=Gain(
        amplitude=PerSegment(LogNormal(SD), per="scan"), phase=PerSegment(TURN, per="integration"),
        feeds="common",
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def data() -> biro.Observation:
    full = biro.Likelihood(small(), SKY, backend="cpu")
    return simulated(
        full, full.prior_transform(np.random.default_rng(2).uniform(0.3, 0.7, full.n_param)), 0.02, 4
    )


def test_the_climb_begins_at_the_maximum_of_closures(data: biro.Observation) -> None:
    """Within 5 sigma of the end but for the flux scale, which amplitudes of 0.2 leave open; few gradients."""
    likelihood = biro.Likelihood(data, SKY, backend="cpu", gains="marginalise")
    offered = likelihood.start_points(1).theta
    found = biro.maximise(likelihood, seed=1)
    is_place = np.array([name in ("b.east", "b.north") for name in found.names])
    assert (np.abs(offered - found.best_fit) / found.error)[:, is_place].max() < 5.0
    assert found.n_start <= len(offered) + 2
    assert found.n_search == 0
    assert found.missed_mass == 0.0  # of the posterior of closures, which has one maximum
    assert np.abs(offered - found.best_fit)[:, ~is_place].min() < 5.0 * found.error[~is_place].max()


def test_gains_among_the_parameters_begin_there_too(data: biro.Observation) -> None:
    """The maximum of 38 parameters, found from the prior, is that found from the maximum of 4 of the sky."""
    sampled = biro.Likelihood(data, SKY, backend="cpu")
    assert sampled.n_param > 30
    offered = sampled.start_points(1)
    assert offered.searched
    solved = biro.maximise(biro.Likelihood(data, SKY, backend="cpu", gains="solve"), seed=1)
    found = biro.maximise(sampled, seed=1, starts=1)
    # Places do not depend on the unit of densities of amplitudes, as the flux scale does (see below).
    for name in ("b.east", "b.north"):
        assert found[name] == pytest.approx(solved[name], abs=1e-4 * solved.error.min())
    assert found["a.I"] / solved["a.I"] == pytest.approx(found["b.I"] / solved["b.I"], rel=1e-4)


def test_a_maximum_of_log_normal_amplitudes_says_that_its_flux_scale_is_high(data: biro.Observation) -> None:
    """Ten amplitudes of sd 0.2: flux times exp(2 sd^2), which is sd sqrt(10) = 0.63 of its error."""
    sampled = biro.Likelihood(data, SKY, backend="cpu")
    (line,) = sampled.doubts_of_maximum()
    assert line.startswith(
        "FLUXES ARE BIASED: at this maximum they are 8.3% too high, 0.6 times the error, because "
    )
    start = sampled.prior_transform(np.full(sampled.n_param, 0.5))
    integrated = biro.Likelihood(data, SKY, backend="cpu", gains="marginalise")
    mean = biro.maximise(integrated, seed=1)
    for name in mean.names:
        start[sampled.parameter_names.index(name)] = mean[name]
    mode = biro.maximise(sampled, seed=1, starts=sampled.with_best_gains(start[None]))
    assert line in mode.warnings()
    # Both are maxima of densities per unit of flux. Curvature of ln L beside the prior leaves 1e-4.
    assert np.log(mode["a.I"] / mean["a.I"]) == pytest.approx(2 * SD**2, abs=1e-3)
    assert integrated.doubts_of_maximum() == []
    known = replace(SKY, sources=[replace(SKY.sources[0], I="1 Jy"), SKY.sources[1]])
    assert biro.Likelihood(data, known, backend="cpu").doubts_of_maximum() == []
