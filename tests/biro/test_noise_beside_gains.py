"""Noise of antennas and baselines fitted beside gains that are integrated over or solved for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

import biro
from biro.models import Gain, LogNormal, Noise, Normal, PerSegment, Uniform
from tests.biro.test_fitted_gains import TURN, drifting, simulated, small
from tests.biro.test_inner_gains import GAINS, assert_slopes, one_point, outer_of, pair

Array = NDArray[np.float64]
TERMS = Noise(
    per="antenna",
    factor=LogNormal(0.5),
    systematic=Uniform(0, 0.5),
    additive=[Uniform("0 Jy", "0.1 Jy"), "0 Jy"],
    edges=["1500 m"],
)
PLAIN = replace(TERMS, systematic=None)
"""Noise that does not follow the model."""


@pytest.mark.parametrize(
    ("factor", "systematic", "additive"), [(1.0, 0.0, 0.0), (1.5, 0.01, 0.02), (0.7, 0.03, 0.0)]
)
def test_the_integral_over_one_amplitude_is_that_of_quadrature(
    factor: float, systematic: float, additive: float
) -> None:
    """The density is normalised over the data: exact up to 1/(8 SNR^2), noises being 0.01 to 0.04.

    Of one visibility alone, the amplitude of the sky with its gain is that of the data, and the integral over
    these is exp(2 f^2), which is taken off.
    """
    noise = Noise(
        per="antenna", factor=LogNormal(0.5), systematic=Uniform(0, 0.5), additive=Uniform("0 Jy", "1 Jy")
    )
    sky = replace(one_point(Gain(antennas=["B"], amplitude=LogNormal(0.2))), noise=noise)
    likelihood = biro.Likelihood(pair(0.01), sky, backend="cpu", gains="marginalise")
    assert tuple(likelihood.parameter_names) == (
        "a.I",
        *("noise.factor[A]", "noise.factor[B]", "noise.systematic", "noise.additive"),
    )
    (data,) = likelihood.observation.partitions[0].vis.ravel()
    variance = factor * 0.8 * 0.01**2 + systematic**2 * abs(data) ** 2 + additive**2

    def density(log: float) -> float:
        chi2 = abs(data - np.exp(log)) ** 2 / variance
        return float(np.exp(-0.5 * chi2) / (2 * np.pi * variance) * stats.norm.pdf(log, scale=0.2))

    wanted, _ = integrate.quad(density, -1.0, 1.0, points=[0.18], limit=400)
    found = likelihood.log_likelihood([1.0, factor, 0.8, systematic, additive])
    assert found == pytest.approx(np.log(wanted) - 2.0 * systematic**2, abs=1e-3)


@pytest.fixture(scope="module")
def known() -> tuple[biro.Likelihood, np.ndarray]:
    """Gains of both feeds beside all kinds of noise, seeded data, and the truth."""
    sources = [replace(one, Q="0.4 Jy", U="-0.3 Jy") for one in drifting().sources]
    sky = replace(drifting(), gain=GAINS["feeds"], noise=TERMS, sources=sources)
    likelihood = biro.Likelihood(small(), sky, backend="cpu")
    truth = likelihood.prior_transform(np.random.default_rng(3).uniform(0.3, 0.7, likelihood.n_param))
    return biro.Likelihood(simulated(likelihood, truth, 0.02, 4), sky, backend="cpu"), truth


@pytest.mark.parametrize("gains", ["marginalise", "solve"])
def test_gradients_are_those_of_differences(known: tuple[biro.Likelihood, np.ndarray], gains: str) -> None:
    assert_slopes(*known, gains)


def test_best_gains_are_those_of_the_joint_posterior(known: tuple[biro.Likelihood, np.ndarray]) -> None:
    """ln L of theta with the gains as parameters is that of the profile; data without gains have its chi2."""
    fitted, truth = known
    sky = replace(fitted.sky, noise=PLAIN)
    full = biro.Likelihood(fitted.observation, sky, backend="cpu")
    truth = truth[[name in full.parameter_names for name in fitted.parameter_names]]
    likelihood = biro.Likelihood(full.observation, sky, backend="cpu", gains="solve")
    outer = outer_of(likelihood, full, truth)
    best = likelihood.completed(outer)
    chi2 = likelihood.chi2(outer)
    assert chi2 == pytest.approx(full.chi2(best), rel=1e-10)  # roundings
    (part,), (vis,) = likelihood.corrected(outer).partitions, likelihood.predict(outer)
    assert (part.weight * np.abs(part.vis - vis) ** 2).sum() == pytest.approx(chi2[0], rel=1e-10)
    # The noise is that of the joint likelihood: of the data of the truth.
    for one, other in zip(likelihood.sigma(outer, [vis]), full.sigma(best, [vis]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("noise", [PLAIN, TERMS], ids=["plain", "follows the model"])
def test_errors_are_those_of_the_joint_information(noise: Noise) -> None:
    """The sky's is the Schur complement over ln amplitudes, with weights of theta.

    The noise's is tr(S^-1 S_a S^-1 S_b) / 2 of the dense covariance S that gains make of the data. Where the
    noise follows the model, the joint one knows the sky from it as well.
    """
    gain = Gain(
        amplitude=PerSegment(LogNormal(0.1), per="scan"), phase=PerSegment(Normal(0, 20, "deg"), per="scan")
    )
    sky = replace(drifting(), gain=gain, noise=noise)
    full = biro.Likelihood(small(), sky, backend="cpu")
    truth = full.prior_transform(np.random.default_rng(3).uniform(0.3, 0.7, full.n_param))
    full = biro.Likelihood(simulated(full, truth, 0.02, 4), sky, backend="cpu")
    likelihood = biro.Likelihood(full.observation, sky, backend="cpu", gains="marginalise")
    outer = outer_of(likelihood, full, truth)
    best = likelihood.completed(outer)
    inner = np.array([name.startswith("gain") for name in full.parameter_names])
    by, prior = np.ones(best.size), np.zeros(best.size)
    for i in np.flatnonzero(inner):
        own = full.parameters[i].prior
        by[i], prior[i] = (best[i], own.sd**-2) if isinstance(own, LogNormal) else (1.0, own.sd**-2)
    joint = full.fisher(best) * np.outer(by, by) + np.diag(prior)
    across = joint[np.ix_(~inner, inner)]
    wanted = joint[np.ix_(~inner, ~inner)] - across @ np.linalg.solve(joint[np.ix_(inner, inner)], across.T)
    scale, found = np.sqrt(np.diag(wanted)), likelihood.fisher(outer)
    is_noise = np.array([name.startswith("noise") for name in likelihood.parameter_names])
    of_sky = np.ix_(~is_noise, ~is_noise)
    if noise is PLAIN:
        # Inverting loses some six digits of sixteen.
        assert np.abs((found - wanted) / np.outer(scale, scale))[of_sky].max() < 1e-8
    assert not found[np.ix_(is_noise, ~is_noise)].any()
    wanted = dense_information(likelihood, outer)
    scale = np.sqrt(np.diag(wanted))
    # Differences in steps of 1e-3 are good to some 1e-6.
    off = np.abs(found[np.ix_(is_noise, is_noise)] - wanted) / np.outer(scale, scale)
    assert off.max() < 2e-5
    # Far from a maximum, with noise that is three times too large, it is that of an average over data, too.
    far = outer * np.where(is_noise, 3.0, 1.0)
    assert np.linalg.eigvalsh(likelihood.fisher(far)[np.ix_(is_noise, is_noise)]).min() > 0.0


def dense_information(likelihood: biro.Likelihood, outer: Array) -> Array:
    """tr(S^-1 S_a S^-1 S_b) / 2 of the noise, S = N + J P^-1 J^T, J by differences of predictions.

    Of inner parameters with normal and log-normal priors, the latter with a derivative by the logarithm.
    """
    full, sky = likelihood.full, likelihood.predict(outer)
    used = np.concatenate([part.weight.ravel() > 0.0 for part in likelihood.observation.partitions])

    def numbers(parts: list[Array]) -> Array:
        flat = np.concatenate([part.ravel() for part in parts])[used]
        return np.concatenate([flat.real, flat.imag]) if np.iscomplexobj(flat) else np.tile(flat, 2)

    def slope(function: Callable[[Array], list[Array]], at: Array, i: int, step: float) -> Array:
        move = step * np.eye(at.size)[i]
        return (numbers(function(at + move)) - numbers(function(at - move))) / (2.0 * step)

    def variance(theta: Array) -> list[Array]:
        return [sigma**2 for sigma in likelihood.sigma(theta, sky)]

    best, covariance = likelihood.completed(outer), np.diag(numbers(variance(outer)))
    for i, (name, parameter) in enumerate(zip(full.parameter_names, full.parameters, strict=True)):
        if name in likelihood.marginalised:
            by = best[i] if isinstance(parameter.prior, LogNormal) else 1.0
            column = slope(full.predict, best, i, 1e-4) * by * parameter.prior.sd
            covariance += np.outer(column, column)
    inverse = np.linalg.inv(covariance)
    is_noise = [name.startswith("noise") for name in likelihood.parameter_names]
    moved = [inverse * slope(variance, outer, i, 1e-4 * outer[i]) for i in np.flatnonzero(is_noise)]
    return 0.5 * np.array([[np.sum(one * other.T) for other in moved] for one in moved])


def test_a_noisy_antenna_is_found_beside_its_gains() -> None:
    """The factor of antenna B is 9, and it has a gain of its own at each time, as all antennas have.

    Gains that fit best take up noise, 9 of 80 numbers at each time: "solve" finds variances s_p s_q that are
    too small by 71/80; where gains are integrated over, they are right.
    """
    gain = Gain(
        amplitude=PerSegment(LogNormal(0.3), per="integration"), phase=PerSegment(TURN, per="integration")
    )
    sky = replace(drifting(), gain=gain, noise=Noise(per="antenna", factor=LogNormal(2.0)))
    data = small(n_chan=1, n_time=40, times=tuple(range(0, 400, 10)))
    known = biro.Likelihood(data, sky, backend="cpu")
    truth = known.prior_transform(np.random.default_rng(1).uniform(0.3, 0.7, known.n_param))
    factors = np.array([1.0, 9.0, 1.0, 1.0, 1.0])
    truth[[known.parameter_names.index(f"noise.factor[{name}]") for name in "ABCDE"]] = factors
    (part,), (vis,) = known.observation.partitions, known.predict(truth)
    # The noise of a baseline is the stated one, 0.02 Jy, times sqrt(s_p s_q).
    sigma = 0.02 * np.sqrt(factors[part.antenna1] * factors[part.antenna2])[:, None, None]
    rng = np.random.default_rng(8)
    drawn = replace(part, vis=vis + sigma * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape)))
    logs = {}
    for gains in ("marginalise", "solve"):
        likelihood = biro.Likelihood(replace(data, partitions=(drawn,)), sky, backend="cpu", gains=gains)
        theta = outer_of(likelihood, known, truth)
        is_noise = np.array([name.startswith("noise") for name in likelihood.parameter_names])
        for _ in range(4):  # scoring: steps by the Fisher information
            information = likelihood.fisher(theta) + np.diag(is_noise / (2.0 * theta) ** 2)
            theta = theta + np.linalg.solve(information, likelihood.log_posterior_and_gradient(theta)[1])
        logs[gains] = np.log(theta[is_noise] / factors)
        error = np.sqrt(np.diag(np.linalg.inv(information)))[is_noise] / theta[is_noise]
    # Five errors of about 0.06, four of them.
    assert (np.abs(logs["marginalise"]) < 4.0 * error).all()
    # Half of ln of a variance that 3200 numbers have: sqrt(2 / 3200) / 2 = 0.0125, four of them.
    assert abs(logs["marginalise"].mean()) < 0.05
    # Of the same data: what each antenna's share of the 9 is makes the difference uneven, by some tenth.
    away = logs["solve"].mean() - logs["marginalise"].mean()
    assert away == pytest.approx(0.5 * np.log(71 / 80), rel=0.1)
