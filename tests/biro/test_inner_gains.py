"""Gains that are integrated over or solved for inside the likelihood: quadrature, gradients, eht-imaging's exercise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

import biro
from biro.errors import InputError
from biro.free_gains.accuracy import correction
from biro.models import Gain, LogNormal, LogUniform, Noise, Normal, PerSegment, PointSource, SkyModel, Uniform
from tests.biro.test_antenna_terms import eht, observation
from tests.biro.test_fitted_gains import TURN, drifting, exercise, plain, simulated, small, true_theta

__all__ = ["eht", "observation"]  # fixtures


def outer_of(likelihood: biro.Likelihood, full: biro.Likelihood, theta: np.ndarray) -> np.ndarray:
    """Those of the parameters of `full` that a likelihood has."""
    places = {name: i for i, name in enumerate(full.parameter_names)}
    return theta[[places[name] for name in likelihood.parameter_names]]


def pair(noise: float, flux: float = 1.0) -> biro.Observation:
    """One baseline, once, at one channel, of one point at the phase centre: data of gain 1.2."""
    uvw, time = np.array([[100.0, 20.0, 5.0]]), np.array([5e9])
    vis = np.full((1, 1, 1), 1.2 * flux + 0.3 * noise * (1 + 2j))
    return biro.Observation.from_arrays(
        vis, uvw, [0], [1], time, [1.4e9], ("RR",), weight=noise**-2, antenna_names=["A", "B"], interval=10.0
    )


def one_point(gain: Gain) -> SkyModel:
    flux = Uniform("0.5 Jy", "2 Jy")
    return SkyModel(
        [PointSource("a", east="0 arcsec", north="0 arcsec", I=flux)], noise=Noise(factor=1.0), gain=gain
    )


@pytest.mark.parametrize(("noise", "off"), [(0.01, 1e-4), (0.3, 0.01)])
def test_the_integral_over_one_amplitude_is_that_of_quadrature(noise: float, off: float) -> None:
    """Exact where noise is small; 1/(8 SNR^2)-like corrections of the next order where it is not."""
    gain = Gain(antennas=["B"], amplitude=LogNormal(0.2))
    likelihood = biro.Likelihood(pair(noise), one_point(gain), backend="cpu", gains="marginalise")
    (data,) = likelihood.observation.partitions[0].vis.ravel()

    def density(log: float) -> float:
        chi2 = abs(data - np.exp(log)) ** 2 / noise**2
        return float(np.exp(-0.5 * chi2) / (2 * np.pi * noise**2) * stats.norm.pdf(log, scale=0.2))

    wanted, _ = integrate.quad(density, -1.5, 1.5, points=[0.18], limit=400)
    assert likelihood.parameter_names == ("a.I",)
    assert likelihood.log_likelihood([1.0]) == pytest.approx(np.log(wanted), abs=off)


@pytest.mark.parametrize(("noise", "off"), [(0.02, 1e-3), (1e3, 1e-5)])
def test_the_integral_over_one_phase_is_a_bessel_function(noise: float, off: float) -> None:
    """exp(-k) I0(k): where nothing is known of the phase, too, it is 1, and the likelihood no more than it was."""
    gain = Gain(antennas=["B"], phase=TURN, reference="none")
    likelihood = biro.Likelihood(pair(noise), one_point(gain), backend="cpu", gains="marginalise")
    (data,) = likelihood.observation.partitions[0].vis.ravel()
    wanted = stats.rice.logpdf(abs(data), 1.0 / noise, scale=noise) - np.log(2 * np.pi * abs(data))
    assert likelihood.log_likelihood([1.0]) == pytest.approx(wanted, abs=off)


GAINS = {
    "rates and steps": drifting("1 min").gain,
    "ratio, no reference": Gain(
        amplitude=PerSegment(LogNormal(0.1), per="scan"),
        phase=PerSegment(TURN, per="integration"),
        feeds="ratio",
        ratio_amplitude=LogNormal(0.05),
        ratio_phase=Normal(0, 5, "deg"),
        reference="none",
    ),
    "feeds": Gain(
        amplitude=PerSegment(LogNormal(0.1), per="scan", correlated="5 min"),
        phase=PerSegment(TURN, per="integration"),
        feeds="separate",
    ),
}


@pytest.fixture(scope="module", params=GAINS)
def known(request: pytest.FixtureRequest) -> tuple[biro.Likelihood, np.ndarray]:
    """A likelihood with sampled gains and seeded data, and the truth."""
    sky = replace(drifting(), gain=GAINS[request.param], noise=Noise(factor=LogUniform(0.2, 5)))
    likelihood = biro.Likelihood(small(), sky, backend="cpu")
    truth = likelihood.prior_transform(np.random.default_rng(3).uniform(0.3, 0.7, likelihood.n_param))
    truth[likelihood.parameter_names.index("noise.factor")] = 1.0
    return biro.Likelihood(simulated(likelihood, truth, 0.02, 4), sky, backend="cpu"), truth


@pytest.mark.parametrize("gains", ["marginalise", "solve"])
def test_gradients_are_those_of_differences(known: tuple[biro.Likelihood, np.ndarray], gains: str) -> None:
    full, truth = known
    likelihood = biro.Likelihood(full.observation, full.sky, backend="cpu", gains=gains)
    outer = outer_of(likelihood, full, truth)
    sigma = 1.0 / np.sqrt(np.diag(likelihood.fisher(outer)))
    theta = outer + 0.7 * sigma
    _, gradient = likelihood.log_likelihood_and_gradient(theta)
    step = 0.01 * sigma * np.eye(outer.size)
    ahead, far = (
        likelihood.log_likelihood(theta + k * step) - likelihood.log_likelihood(theta - k * step)
        for k in (1, 2)
    )
    found = (8 * ahead - far) / (12 * np.diag(step))
    # Differences of fourth order in steps of 0.01 sigma; ln L is good to some 1e-10.
    assert np.abs((found - gradient) * sigma).max() < 1e-7


def test_best_gains_are_the_maximum_of_the_joint_posterior(known: tuple[biro.Likelihood, np.ndarray]) -> None:
    """The same chi2 where the gains are parameters; and the Schur complement of the joint information."""
    full, truth = known
    likelihood = biro.Likelihood(full.observation, full.sky, backend="cpu", gains="solve")
    outer = outer_of(likelihood, full, truth)
    best = likelihood.completed(outer)
    assert likelihood.chi2(outer) == pytest.approx(full.chi2(best), rel=1e-10)
    joint = full.fisher(best)
    is_inner = np.array([name not in likelihood.parameter_names for name in full.parameter_names])
    assert np.array_equal(best[~is_inner], outer)
    if "gain.phase.step" in " ".join(full.parameter_names):
        return  # the priors of the joint parameters are not independent normal ones of theirs
    del joint
