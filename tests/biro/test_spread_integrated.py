"""Standard deviations and correlation times of priors of gains, fitted where gains are integrated over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

import biro
from biro.errors import InputError
from biro.models import Gain, HalfNormal, LogNormal, LogUniform, Noise, PerSegment, SkyModel
from tests.biro import test_fitted_spread
from tests.biro.test_fitted_gains import TIMES, TURN, drifting, simulated, small
from tests.biro.test_inner_gains import one_point, outer_of, with_data

SPREAD = HalfNormal(0.3)
GAINS = {
    **test_fitted_spread.GAINS,
    "walk": Gain(
        amplitude=PerSegment(LogNormal(1.0), per="scan", sd=SPREAD),
        phase=PerSegment(TURN, per="integration", correlated=TIMES),
        feeds="separate",
    ),
}


def times(n: int, noise: float, logs: np.ndarray) -> biro.Observation:
    """One baseline at n times, of a point of 1 Jy whose ln gains are `logs`; without noise of its own."""
    uvw, index = np.tile([[100.0, 20.0, 5.0]], (n, 1)), np.zeros(n, int)
    vis = np.exp(logs)[:, None, None] * np.ones((n, 1, 1), complex)
    time = 5e9 + 10.0 * np.arange(n)
    return biro.Observation.from_arrays(
        vis, uvw, index, index + 1, time, [1.4e9], ("RR",),
        weight=noise**-2, antenna_names=["A", "B"], interval=10.0,
    )  # fmt: skip


def known_sky(gain: Gain) -> SkyModel:
    """A point whose flux is known."""
    sky = one_point(gain)
    return replace(sky, sources=[replace(sky.sources[0], I="1 Jy")])


def test_the_integral_is_that_of_quadrature() -> None:
    """Of two amplitudes, at several sd: exact where noise is small."""
    noise, logs = 0.01, np.array([0.15, -0.1])
    gain = Gain(antennas=["B"], amplitude=PerSegment(LogNormal(1.0), per="integration", sd=SPREAD))
    likelihood = biro.Likelihood(times(2, noise, logs), known_sky(gain), backend="cpu", gains="marginalise")
    assert tuple(likelihood.parameter_names) == ("gain.amplitude.sd",)

    def density(log: float, data: float, sd: float) -> float:
        like = stats.norm.pdf(data, np.exp(log), noise) * stats.norm.pdf(0.0, 0.0, noise)
        return float(like * stats.norm.pdf(log, scale=sd))

    for sd in (0.02, 0.1, 0.5):
        wanted = sum(
            np.log(integrate.quad(density, x - 0.2, x + 0.2, args=(np.exp(x), sd), points=[x])[0])
            for x in logs
        )
        # 1/(8 SNR^2)-like corrections of the next order.
        assert likelihood.log_likelihood([sd]) == pytest.approx(wanted, abs=1e-3)


@pytest.fixture(scope="module")
def linear() -> tuple[biro.Likelihood, np.ndarray, np.ndarray, np.ndarray]:
    """A likelihood of gains that are 1 to 2e-3, data less model, derivatives by ln gains, and times of these.

    Real and imaginary parts stand one after the other; gains are ln amplitudes, then phases.
    """
    gain = Gain(
        amplitude=PerSegment(LogNormal(1.0), per="integration", sd=HalfNormal(2e-3), correlated=TIMES)
    )
    a, b = drifting().sources
    sky = replace(
        drifting(),
        sources=[a, replace(b, I="1 Jy", north="-5 arcsec")],
        gain=gain,
        noise=Noise(factor=LogUniform(0.2, 5)),
    )
    data = small(n_chan=1, noise=2e-3)
    plain = biro.Likelihood(data, replace(sky, gain=None), backend="cpu")
    (part,), (vis,) = data.partitions, plain.predict([1.0])
    rng = np.random.default_rng(2)
    distance = np.abs(part.times[:, None] - part.times)
    logs = 2e-3 * np.linalg.cholesky(np.exp(-distance / 300.0)) @ rng.normal(size=(6, 5))
    sums = logs[part.time_index, part.antenna1] + logs[part.time_index, part.antenna2]
    noise = 2e-3 * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
    drawn = replace(part, vis=np.exp(sums)[:, None, None] * vis + noise)
    likelihood = biro.Likelihood(replace(data, partitions=(drawn,)), sky, backend="cpu", gains="marginalise")
    by = np.zeros((*vis.shape, 6, 5), complex)
    row = np.arange(part.n_row)
    for antenna in (part.antenna1, part.antenna2):
        by[row, :, :, part.time_index, antenna] = vis
    by = by.reshape(-1, 30)
    away = (drawn.vis - vis).reshape(-1)
    parts = np.concatenate([away.real, away.imag]), np.concatenate([by.real, by.imag])
    return likelihood, *parts, part.times


def covariance(by: np.ndarray, at: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Of the data: noise and prior, of a correlation time in minutes, an sd and a factor."""
    time, sd, factor = numbers
    of_times = sd**2 * np.exp(-np.abs(at[:, None] - at) / (60.0 * time))
    return (2e-3 * factor) ** 2 * np.eye(len(by)) + by @ np.kron(of_times, np.eye(5)) @ by.T


def closed_form(away: np.ndarray, by: np.ndarray, at: np.ndarray, numbers: np.ndarray) -> float:
    """ln N(data; model, covariance)."""
    root = np.linalg.cholesky(covariance(by, at, numbers))
    left = np.linalg.solve(root, away)
    return float(-np.log(np.diag(root)).sum() - 0.5 * left @ left - 0.5 * away.size * np.log(2 * np.pi))


def test_small_gains_have_a_normal_density(linear) -> None:
    """Values, gradients, curvature by priors and the information on the noise are those of this density."""
    likelihood, away, by, at = linear
    assert tuple(likelihood.parameter_names) == (
        "gain.amplitude.correlated",
        "gain.amplitude.sd",
        "noise.factor",
    )

    def wanted(numbers: np.ndarray) -> float:
        return closed_form(away, by, at, numbers)

    for numbers in ([5.0, 2e-3, 1.0], [1.0, 1e-3, 1.2], [20.0, 6e-3, 0.9]):
        theta = np.array(numbers)
        value, gradient = likelihood.log_likelihood_and_gradient(theta)
        # Products of ln gains, 4e-6 of signals with noise 2e-3: 2e-3 sigma each, in 30 gains.
        assert value == pytest.approx(wanted(theta), abs=0.1)
        step = 1e-3 * theta * np.eye(3)
        slopes = np.array([wanted(theta + h) - wanted(theta - h) for h in step]) / (2e-3 * theta)
        assert np.abs((gradient - slopes) * theta).max() < 0.2
        curved = np.array(
            [
                [wanted(theta + g + h) - wanted(theta + g - h) - wanted(theta - g + h) + wanted(theta - g - h)
                 for h in step] for g in step
            ]
        ) / (-4e-6)  # fmt: skip
        left = np.linalg.inv(covariance(by, at, theta))
        moved = [
            left @ (covariance(by, at, theta + h) - covariance(by, at, theta - h)) / 2e-3 for h in step
        ]  # fmt: skip
        curved[2] = curved[:, 2] = [0.5 * np.sum(one * moved[2].T) for one in moved]
        found = likelihood.fisher(theta) * np.outer(theta, theta)
        # Of 240 numbers and 30 gains, the same errors relative; differences of second order.
        assert np.abs(found - curved).max() < 2e-3 * np.abs(curved).max()


def test_errors_at_the_maximum_are_those_of_the_normal_density(linear) -> None:
    """Of ln T, ln sd and ln factor: the noise has fewer numbers than data, for gains take some."""
    likelihood, away, _, _ = linear
    best = biro.maximise(likelihood, seed=1, starts=4)
    assert best.converged
    theta = best.best_fit
    information = likelihood.fisher(theta)
    own, count = information[2, 2], 2.0 * away.size / theta[2] ** 2
    assert 0.7 < own / count < 0.97
    flat = np.zeros(3)  # log-uniform priors bend by 1/theta^2, half-normal ones by 1/sd^2
    flat[[0, 2]] = -(theta[[0, 2]] ** -2)
    flat[1] = 2e-3**-2
    wanted = np.linalg.inv(information + np.diag(flat))
    # Errors of a maximum are those of these data, the information on the noise is that of all alike: 240
    # numbers make them differ by sqrt(2 / 240) / 2.
    assert best.error == pytest.approx(np.sqrt(np.diag(wanted)), rel=0.05)


@pytest.mark.parametrize("name", GAINS)
def test_gradients_are_those_of_differences(name: str) -> None:
    sky = replace(drifting(), gain=GAINS[name], noise=Noise(factor=LogUniform(0.2, 5)))
    full, truth = with_data(sky)
    likelihood = biro.Likelihood(full.observation, sky, backend="cpu", gains="marginalise")
    theta = outer_of(likelihood, full, truth)
    scale = np.abs(np.diag(likelihood.fisher(theta))) ** -0.5
    _, gradient = likelihood.log_likelihood_and_gradient(theta)
    step = np.minimum(0.03 * scale, 0.01 * np.abs(theta)) * np.eye(theta.size)
    ahead, far = (
        likelihood.log_likelihood(theta + k * step) - likelihood.log_likelihood(theta - k * step)
        for k in (1, 2)
    )
    found = (8 * ahead - far) / (12 * np.diag(step))
    # Differences of fourth order, and ln L that is good to some 1e-10 over steps of 0.03 sigma or 1 %.
    assert np.abs((found - gradient) * scale).max() < 1e-6 * max(1.0, np.abs(gradient * scale).max())


def numbers_of(gain: Gain, value: dict[str, float]) -> Gain:
    """The same with numbers in place of what is fitted of priors."""
    found = {}
    for key in ("amplitude", "phase"):
        own, name = getattr(gain, key), f"gain.{key}"
        if f"{name}.sd" in value:
            own = replace(own, prior=replace(own.prior, sd=value[f"{name}.sd"]), sd=None)
        if f"{name}.correlated" in value:
            own = replace(own, correlated=f"{float(value[f'{name}.correlated'])!r} min")
        found[key] = own
    return replace(gain, **found)


@pytest.mark.parametrize("name", GAINS)
def test_values_are_those_of_known_numbers(name: str) -> None:
    """Wherever the search was before; and of gains, drawn beside theta, that the sampled likelihood has."""
    sky = replace(drifting(), gain=GAINS[name])
    full = biro.Likelihood(small(), sky, backend="cpu")
    truth = full.prior_transform(np.random.default_rng(3).uniform(0.2, 0.8, full.n_param))
    data = simulated(full, truth, 0.02, 4)
    likelihood = biro.Likelihood(data, sky, backend="cpu", gains="marginalise")
    draws = likelihood.prior_transform(np.random.default_rng(5).uniform(0.1, 0.9, (4, likelihood.n_param)))
    outer = outer_of(likelihood, full, truth)
    is_prior = np.array([name.startswith("gain") for name in likelihood.parameter_names])
    draws[:, ~is_prior] = outer[~is_prior]
    for theta in draws:
        value = dict(zip(likelihood.parameter_names, theta, strict=True))
        known = replace(sky, gain=numbers_of(GAINS[name], value))
        other = biro.Likelihood(data, known, backend="cpu", gains="marginalise")
        wanted = other.log_likelihood([value[n] for n in other.parameter_names])
        # ln L is good to some 1e-9, and to roundings of 1e-16 of a chi2 of thousands.
        assert likelihood.log_likelihood(theta) == pytest.approx(wanted, rel=1e-12, abs=1e-7)
    best = likelihood.completed(outer)
    assert likelihood.chi2(outer) == pytest.approx(full_of(full, data).chi2(best), rel=1e-9)


def full_of(full: biro.Likelihood, data: biro.Observation) -> biro.Likelihood:
    return biro.Likelihood(data, full.sky, backend="cpu")


def test_climbs_of_sampled_gains_begin_at_the_best_beside_an_sd() -> None:
    """Slopes of the joint posterior by the steps, of which gains are linear functions, are 0."""
    sky = test_fitted_spread.sky("both")
    full = biro.Likelihood(small(), sky, backend="cpu")
    truth = full.prior_transform(np.random.default_rng(3).uniform(0.3, 0.7, full.n_param))
    full = full_of(full, simulated(full, truth, 0.02, 4))
    assert full.solves_gains
    best = full.with_best_gains(truth)[0]
    is_step = np.array(["step" in name for name in full.parameter_names])
    assert np.array_equal(best[~is_step], truth[~is_step])
    _, before = full.log_posterior_and_gradient(truth)
    _, after = full.log_posterior_and_gradient(best)
    # The search ends where a step would gain 1e-13 for each gain.
    assert np.abs(after[is_step]).max() < 1e-5 * np.abs(before[is_step]).max()


def test_posteriors_of_an_sd_cover_the_truth() -> None:
    """Ranks of sd that were drawn from their prior, in posteriors of 20 gains each, are uniform."""
    gain = Gain(antennas=["B"], amplitude=PerSegment(LogNormal(1.0), per="integration", sd=SPREAD))
    rng, sky, grid = np.random.default_rng(6), known_sky(gain), np.linspace(0.004, 1.2, 60)
    ranks = []
    for sd in np.abs(0.3 * rng.normal(size=30)):
        data = times(20, 0.05, sd * rng.normal(size=20))
        (part,) = data.partitions
        noise = 0.05 * (rng.normal(size=part.vis.shape) + 1j * rng.normal(size=part.vis.shape))
        data = replace(data, partitions=(replace(part, vis=part.vis + noise),))
        likelihood = biro.Likelihood(data, sky, backend="cpu", gains="marginalise")
        log = likelihood.log_posterior(grid[:, None])
        density = np.exp(log - log.max())
        ranks.append(density[grid < sd].sum() / density.sum())
    # 30 ranks; a prior whose normalisation does not follow sd puts all of them at an end.
    assert stats.kstest(ranks, "uniform").pvalue > 0.01


def test_gains_without_spread() -> None:
    """Data that agree better than their noise: the maximum is at an sd of 0, with nothing doubtful."""
    gain = Gain(antennas=["B"], amplitude=PerSegment(LogNormal(1.0), per="integration", sd=SPREAD))
    likelihood = biro.Likelihood(
        times(20, 0.05, np.zeros(20)), known_sky(gain), backend="cpu", gains="marginalise"
    )
    # Of 20 complex samples that are as the model has them.
    wanted = -20 * np.log(2 * np.pi * 0.05**2)
    assert likelihood.log_likelihood([0.0]) == pytest.approx(wanted, rel=1e-12)  # roundings
    assert likelihood.log_likelihood([-0.1]) == -np.inf
    posterior = biro.sample(likelihood, "none", seed=1, progress=False)
    assert posterior["gain.amplitude.sd"].min() >= 0.0
    assert posterior.best_fit[posterior.names.index("gain.amplitude.sd")] < 1e-3
    noiseless, line = posterior.remarks
    assert noiseless.startswith("MODEL OR WEIGHTS ARE WRONG (field/spw0): the residuals scatter 0 times")
    assert line.startswith("20 parameters of gains have a single baseline")


def test_a_maximum_over_gains_and_their_sd_is_refused() -> None:
    for name in ("independent", "walk"):
        with pytest.raises(InputError, match=r"have no joint maximum. Give it a number") as caught:
            biro.Likelihood(small(), replace(drifting(), gain=GAINS[name]), backend="cpu", gains="solve")
        assert "\n" not in str(caught.value)
