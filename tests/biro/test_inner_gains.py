"""Gains integrated over or solved for in the likelihood: quadrature, gradients, eht-imaging's exercise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

import biro
from biro.errors import InputError
from biro.inference.posterior.start_point import start_point
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
    assert tuple(likelihood.parameter_names) == ("a.I",)
    assert likelihood.log_likelihood([1.0]) == pytest.approx(np.log(wanted), abs=off)


@pytest.mark.parametrize(("noise", "off"), [(0.02, 1e-3), (1.0, 0.2), (1e3, 2e-3)])
def test_the_integral_over_one_phase_is_a_bessel_function(noise: float, off: float) -> None:
    """I0(k): where nothing is known of the phase, 1, and off by some k; by 1/(8 k) where much is known."""
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
    return with_data(replace(sky, sources=[replace(one, Q="0.4 Jy", U="-0.3 Jy") for one in sky.sources]))


def with_data(sky: SkyModel) -> tuple[biro.Likelihood, np.ndarray]:
    """A likelihood of seeded data, and the truth."""
    likelihood = biro.Likelihood(small(), sky, backend="cpu")
    truth = likelihood.prior_transform(np.random.default_rng(3).uniform(0.3, 0.7, likelihood.n_param))
    truth[likelihood.parameter_names.index("noise.factor")] = 1.0
    return biro.Likelihood(simulated(likelihood, truth, 0.02, 4), sky, backend="cpu"), truth


@pytest.mark.parametrize("gains", ["marginalise", "solve"])
def test_gradients_are_those_of_differences(known: tuple[biro.Likelihood, np.ndarray], gains: str) -> None:
    assert_slopes(*known, gains)


@pytest.mark.parametrize("gains", ["marginalise", "solve"])
def test_phases_that_no_data_see(gains: str) -> None:
    """The phase between the feeds, of an unpolarised sky in data with cross hands."""
    sky = replace(drifting(), gain=GAINS["feeds"], noise=Noise(factor=LogUniform(0.2, 5)))
    assert_slopes(*with_data(sky), gains)


def assert_slopes(full: biro.Likelihood, truth: np.ndarray, gains: str) -> None:
    """Gradients are those of differences."""
    likelihood = biro.Likelihood(full.observation, full.sky, backend="cpu", gains=gains)
    outer = outer_of(likelihood, full, truth)
    # The information on noise is of these data, and may be negative where they are not at a maximum.
    sigma = 1.0 / np.sqrt(np.abs(np.diag(likelihood.fisher(outer))))
    theta = outer + 0.7 * sigma
    _, gradient = likelihood.log_likelihood_and_gradient(theta)
    step = 0.03 * sigma * np.eye(outer.size)
    ahead, far = (
        likelihood.log_likelihood(theta + k * step) - likelihood.log_likelihood(theta - k * step)
        for k in (1, 2)
    )
    found = (8 * ahead - far) / (12 * np.diag(step))
    # Differences of fourth order in steps of 0.03 sigma. ln L is good to some 1e-10; to 1e-9 where a phase
    # between the feeds is held by 1e-2 and phases of antennas by 1e5 rad^-2, so that 1e7 roundings remain.
    assert np.abs((found - gradient) * sigma).max() < 1e-7


@pytest.mark.parametrize("gains", ["marginalise", "solve"])
def test_skies_that_were_asked_for_before_do_not_matter(
    known: tuple[biro.Likelihood, np.ndarray], gains: str
) -> None:
    """The search begins at the last gains and with their factor: near or far, it ends at the same maximum."""
    full, truth = known
    used, new = (biro.Likelihood(full.observation, full.sky, backend="cpu", gains=gains) for _ in range(2))
    outer = outer_of(used, full, truth)
    sigma = 1.0 / np.sqrt(np.diag(used.fisher(outer)))
    away = np.random.default_rng(5).choice([-1.0, 1.0], (6, outer.size))
    asked = outer + np.array([0.01, 1.0, 30.0, 0.01, 100.0, 1.0])[:, None] * sigma * away
    values = [float(np.squeeze(used.log_likelihood(theta))) for theta in asked]
    for theta, value in zip(asked[::-1], values[::-1], strict=True):
        # ln L is good to some 1e-9 (`assert_slopes`), and to roundings of 1e-16 of a chi2 of thousands.
        assert float(np.squeeze(new.log_likelihood(theta))) == pytest.approx(value, rel=1e-12, abs=1e-8)


def test_best_gains_are_those_of_the_joint_posterior(known: tuple[biro.Likelihood, np.ndarray]) -> None:
    """chi2 where gains are parameters, and of data without gains; the joint log-posterior is a maximum."""
    full, truth = known
    likelihood = biro.Likelihood(full.observation, full.sky, backend="cpu", gains="solve")
    outer = outer_of(likelihood, full, truth)
    best = likelihood.completed(outer)
    assert np.array_equal(outer_of(likelihood, full, best), outer)
    chi2 = likelihood.chi2(outer)
    assert chi2 == pytest.approx(full.chi2(best), rel=1e-10)  # roundings
    (part,), (vis,) = likelihood.corrected(outer).partitions, likelihood.predict(outer)
    # Of predicted visibilities, `predict` of all parameters has the gains, corrected data have none.
    assert (part.weight * np.abs(part.vis - vis) ** 2).sum() == pytest.approx(chi2[0], rel=1e-10)
    inner = np.array([name not in likelihood.parameter_names for name in full.parameter_names])
    rng = np.random.default_rng(1)
    sigma = 1.0 / np.sqrt(np.diag(full.fisher(best)) + 1e-30)
    away = np.minimum(sigma, 0.05 * np.abs(best) + 0.05) * inner
    others = best + 0.3 * away * rng.choice([-1.0, 1.0], (20, best.size))
    # Amplitudes have priors per unit of their logarithm here, and per unit of themselves there.
    is_amplitude = np.array(["amplitude" in name and "step" not in name for name in full.parameter_names])
    per_log = [np.log(theta[is_amplitude]).sum() for theta in (best, *others)]
    values = full.log_posterior(np.vstack([best, others])) + per_log
    assert (values[1:] < values[0]).all()


def test_a_start_without_gains_has_those_that_fit_its_sky_best(
    known: tuple[biro.Likelihood, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    """At the true sky they leave no more than the noise: chi2 is at most N + 5 sqrt(2 N). One given stays."""
    full, truth = known
    sky_alone = biro.Likelihood(full.observation, full.sky, backend="cpu", gains="solve")
    start = dict(zip(sky_alone.parameter_names, outer_of(sky_alone, full, truth), strict=True))
    with caplog.at_level("INFO", "biro"):
        found = start_point(full, start)
    assert "so the best-fitting values are used" in caplog.text
    n = 2 * np.count_nonzero(full.observation.partitions[0].weight)
    assert full.chi2(found).sum() < n + 5.0 * np.sqrt(2.0 * n)
    first = next(i for i, name in enumerate(full.parameter_names) if name not in start)
    again = start_point(full, {**start, full.parameter_names[first]: truth[first]})
    assert again[first] == truth[first]
    others = np.arange(found.size) != first
    # The second search begins where the first one ended.
    np.testing.assert_allclose(again[others], found[others], rtol=0, atol=1e-6)


def test_errors_are_those_of_the_joint_information(known: tuple[biro.Likelihood, np.ndarray]) -> None:
    """The Schur complement, with the priors' curvature in ln amplitude and phase."""
    full, truth = known
    if any("step" in name for name in full.parameter_names):
        pytest.skip("parameters of processes are steps")
    likelihood = biro.Likelihood(full.observation, full.sky, backend="cpu", gains="solve")
    outer = outer_of(likelihood, full, truth)
    best = likelihood.completed(outer)
    by = np.ones(best.size)  # derivatives of parameters by ln amplitudes and degrees
    prior = np.zeros(best.size)
    for i, (name, parameter) in enumerate(zip(full.parameter_names, full.parameters, strict=True)):
        if isinstance(parameter.prior, LogNormal):
            by[i], prior[i] = best[i], parameter.prior.sd**-2
        if isinstance(parameter.prior, Normal) and name.startswith("gain"):
            prior[i] = parameter.prior.sd**-2
    joint = full.fisher(best) * np.outer(by, by) + np.diag(prior)
    inner = np.array([name not in likelihood.parameter_names for name in full.parameter_names])
    # One phase of each integration is open: of all, and of the reference, alike.
    across = joint[np.ix_(~inner, inner)]
    open_ = np.linalg.pinv(joint[np.ix_(inner, inner)], rcond=1e-10, hermitian=True)
    wanted = joint[np.ix_(~inner, ~inner)] - across @ open_ @ across.T
    scale = np.sqrt(np.diag(wanted))
    # Inverting loses some six digits of sixteen; a part of J that is lost shows as 1e-2.
    assert np.abs((likelihood.fisher(outer) - wanted) / np.outer(scale, scale)).max() < 1e-6


def test_the_determinant_is_right(known: tuple[biro.Likelihood, np.ndarray]) -> None:
    """Importance sampling gives the integral that Laplace gives, where signals are high (100 sigma)."""
    full, truth = known
    likelihood = biro.Likelihood(full.observation, full.sky, backend="cpu", gains="marginalise")
    outer = outer_of(likelihood, full, truth)
    found, error, share = likelihood.integral_correction(outer)
    assert share > 0.9
    # Next order: 1/8 of (0.01)^2 for each of 40 gains; what bounds phases costs 0.01 for some with rates.
    assert abs(found) < 3.0 * error + 0.05
    assert likelihood.doubts(outer) == []


def test_the_exercise_with_gains_solved(eht: dict[str, np.ndarray], observation: biro.Observation) -> None:
    """The README's maximum with gains free, by Gauss and Newton in sky and leakages alone."""
    sky = exercise(eht, "auto")
    full = biro.Likelihood(observation, sky, backend="cpu")
    likelihood = biro.Likelihood(observation, sky, backend="cpu", gains="solve")
    theta = outer_of(likelihood, full, true_theta(eht, full))
    assert likelihood.n_param == 47
    for _ in range(3):
        information = likelihood.fisher(theta)
        by = 1.0 / np.sqrt(np.diag(information))
        inverse = np.linalg.pinv(information * np.outer(by, by), rcond=1e-9, hermitian=True)
        theta = theta + by * (inverse @ (by * likelihood.log_likelihood_and_gradient(theta)[1]))
    # As many digits as the README has; what steps leave is squared.
    assert likelihood.chi2(theta)[0] == pytest.approx(3978.194, abs=2e-3)


def refused(sky: SkyModel, data: biro.Observation, match: str, gains: str = "marginalise") -> None:
    with pytest.raises(biro.BiroError, match=match) as caught:
        biro.Likelihood(data, sky, backend="cpu", gains=gains)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_is_one_line() -> None:
    data, phase = pair(0.1), Gain(phase=TURN)
    refused(replace(one_point(phase), noise=Noise(distribution="student-t")), data, "Gaussian noise")
    refused(one_point(Gain(phase="10 deg")), data, "nothing has a prior")
    refused(one_point(Gain(phase=Uniform(-30, 30, "deg"))), data, "found the prior uniform")
    refused(one_point(Gain(amplitude=LogUniform(0.1, 10))), data, "neither by the data nor by its prior")
    with pytest.raises(InputError, match="gains must be one of"):
        biro.Likelihood(data, one_point(phase), gains="guess")
    with pytest.raises(InputError, match="profile likelihood"):
        biro.sample(biro.Likelihood(data, one_point(phase), backend="cpu", gains="solve"), "emcee")


def test_a_phase_without_reference_is_said() -> None:
    likelihood = biro.Likelihood(
        pair(0.1), one_point(Gain(phase=TURN, reference="none")), backend="cpu", gains="marginalise"
    )
    assert any(
        "neither a reference nor a prior fixes gain.phase[" in line for line in likelihood.choices.gains
    )


@pytest.fixture(scope="module")
def sampled() -> dict[str, biro.Posterior]:
    """Posteriors of one set of data by NUTS: gains as parameters, and integrated over."""
    sky = replace(plain(), noise=Noise(factor=LogUniform(0.2, 5)))
    likelihood = biro.Likelihood(small(), sky, backend="cpu")
    truth = likelihood.prior_transform(np.random.default_rng(5).random(likelihood.n_param))
    truth[likelihood.parameter_names.index("noise.factor")] = 1.0
    data = simulated(likelihood, truth, 0.1, 6)
    found = {}
    for gains in ("sample", "marginalise"):
        one = biro.Likelihood(data, sky, backend="cpu", gains=gains)
        start = dict(zip(one.parameter_names, outer_of(one, likelihood, truth), strict=True))
        options = {"n_tune": 500, "n_draw": 1000, "n_chain": 2}
        found[gains] = biro.sample(one, "nuts", seed=1, progress=False, start=start, **options)
    return found


@pytest.mark.thorough
def test_sampling_and_integrating_agree(sampled: dict[str, biro.Posterior]) -> None:
    """Means and sigmas of sky, noise and of gains that were drawn afterwards."""
    joint, integrated = sampled["sample"], sampled["marginalise"]
    assert set(joint.names) == set(integrated.names)
    for name in ("b.north", "b.I", "noise.factor", "gain.amplitude[B][scan 1]", "gain.phase[B][time 2]"):
        one, other = joint[name], integrated[name]
        sigma = one.std()
        # Means of 500 independent draws or more of each: 0.06 sigma, three times; sigmas 5 % alike.
        assert abs(one.mean() - other.mean()) < 0.2 * sigma
        assert other.std() == pytest.approx(sigma, rel=0.15)


@pytest.mark.thorough
def test_evidence_is_that_of_all_parameters() -> None:
    """By dynesty, with two gains as parameters, and with them integrated over."""
    gain = Gain(antennas=["B"], amplitude=LogNormal(0.2), phase=Normal(0, 20, "deg"))
    found = {}
    for gains in ("sample", "marginalise"):
        likelihood = biro.Likelihood(pair(0.02), one_point(gain), backend="cpu", gains=gains)
        posterior = biro.sample(likelihood, "dynesty", seed=1, progress=False, n_live=400)
        found[gains] = posterior.log_evidence, posterior.log_evidence_err
    error = np.hypot(found["sample"][1], found["marginalise"][1])
    assert abs(found["sample"][0] - found["marginalise"][0]) < 3.0 * error
