"""Noise of antennas and baselines that is fitted to closures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import linalg, stats
from test_closures import SKY, TRUTH, observed, of_hand
from test_likelihood import sky
from test_noise_of_antennas import step_to_maximum

import biro
from biro.observation.observation import Observation

SOURCES = SKY.partition("[noise]")[0]
FIXED = SOURCES + "[noise]\nfactor = 1\n"
TERMS = """
[noise]
per = "antenna"
factor = { prior = "log-normal", sd = 0.5 }
edges = ["3000 km"]
systematic = { prior = "uniform", low = 0, high = 0.2 }
additive = [{ prior = "uniform", low = 0, high = 20, unit = "mJy" }, "0 mJy"]
"""
OF_GROUP = TERMS.replace('per = "antenna"', 'per = "hands"')


@pytest.fixture(scope="module")
def eht(truth: Any) -> dict[str, np.ndarray]:
    return {**truth("jones/eht"), **truth("jones/eht_closure")}


@pytest.fixture(scope="module")
def observation(eht: dict[str, np.ndarray]) -> Observation:
    """Visibilities of an array of stations, of Stokes I."""
    _, data, sigma = of_hand(eht, "i")
    return observed(eht, data, sigma, ("RR", "LL"))


def of_closures(observation: Observation, text: str, folder: Path) -> biro.Likelihood:
    model = sky(text, folder)
    return biro.Likelihood(observation, model, gains="closures", backend="cpu", precision="double")


def theta_of(likelihood: biro.Likelihood, rng: np.random.Generator) -> np.ndarray:
    """The sky of the data, and noise that differs from the stated one everywhere."""
    theta = []
    for name in likelihood.parameter_names:
        if name.startswith("noise.factor"):
            theta.append(rng.uniform(0.7, 1.5))
        elif name.startswith("noise"):
            theta.append(rng.uniform(0.02, 0.05) if "systematic" in name else rng.uniform(2.0, 6.0))
        else:
            theta.append(TRUTH[name])
    return np.array(theta)


def variances(likelihood: biro.Likelihood, theta: np.ndarray) -> np.ndarray:
    """v of physics, section 7, of the one partition: written out row by row."""
    numbers = dict(zip(likelihood.parameter_names, theta, strict=True))
    (part,), names = likelihood.observation.partitions, likelihood.observation.antenna_names
    found = np.empty(part.vis.shape)
    for row, (p, q) in enumerate(zip(part.antenna1, part.antenna2, strict=True)):
        scale = np.prod([numbers.get(f"noise.factor[{names[a]}]", 1.0) for a in (p, q)])
        scale *= next((x**2 for name, x in numbers.items() if name.startswith("noise.factor[spw")), 1.0)
        short = np.hypot(*part.uvw[row, :2]) < 3e6
        fraction = numbers[f"noise.systematic[{'below' if short else 'above'} 3000 km]"]
        added = numbers["noise.additive[below 3000 km]"] * 1e-3 if short else 0.0  # mJy
        found[row] = scale / part.weight[row] + (fraction * np.abs(part.vis[row])) ** 2 + added**2
    return found


def brute_force(likelihood: biro.Likelihood, theta: np.ndarray) -> float:
    """ln of the density of closures in a basis of the null space of what antennas do, set by set."""
    (part,), (model,) = likelihood.observation.partitions, likelihood.predict(theta)
    numbers, total = dict(zip(likelihood.parameter_names, theta, strict=True)), 0.0
    variance, n_antenna = variances(likelihood, theta), 1 + part.antenna2.max()
    for t in np.unique(part.time_index):
        rows = np.flatnonzero(part.time_index == t)
        for corr in range(part.n_corr):
            data, leg = part.vis[rows, 0, corr], np.arange(len(rows))
            spread = variance[rows, 0, corr] / np.abs(data) ** 2
            short = np.hypot(*part.uvw[rows, :2].T) < 3e6
            fraction = np.array([numbers[f"noise.systematic[{c} 3000 km]"] for c in ("below", "above")])
            thermal = spread - fraction[np.where(short, 0, 1)] ** 2
            ratio = np.log(data / model[rows, 0, corr])
            for x, sign in ((ratio.imag, -1.0), (ratio.real, 1.0)):
                antennas = np.zeros((len(rows), n_antenna))
                antennas[leg, part.antenna1[rows]], antennas[leg, part.antenna2[rows]] = 1.0, sign
                basis = linalg.null_space(antennas.T).T
                covariance = (basis * spread) @ basis.T
                seen = basis.T @ np.linalg.solve(covariance, basis)
                shift = 2.0 * spread * np.diag(seen) * thermal if sign > 0 else 0.0
                closure = basis @ (x - shift)
                total += stats.multivariate_normal.logpdf(closure, cov=covariance)
    return total


def test_ln_l_is_the_density_of_closures_with_this_noise(observation: Observation, tmp_path: Path) -> None:
    """By differences: the volume of an orthonormal basis is another, whatever the noise."""
    likelihood = of_closures(observation, SOURCES + TERMS, tmp_path)
    rng = np.random.default_rng(1)
    thetas = np.array([theta_of(likelihood, rng) for _ in range(3)])
    found = likelihood.log_likelihood(thetas)
    wanted = [brute_force(likelihood, theta) for theta in thetas]
    # Phases stay within half a turn at the true sky; sums of 1356 logarithms, of the order of 1000.
    np.testing.assert_allclose(np.diff(found), np.diff(wanted), rtol=1e-9, atol=1e-8)


def test_a_fixed_fraction_is_that_of_theta(observation: Observation, tmp_path: Path) -> None:
    """Factors of 1 and a systematic error of 3 %, as numbers of theta and as one that is fixed."""
    fitted = of_closures(observation, SOURCES + TERMS.partition("additive")[0], tmp_path)
    fixed = of_closures(observation, FIXED + "systematic = 0.03\n", tmp_path)
    theta = np.array([TRUTH[name] for name in fixed.parameter_names])
    noise = [0.03 if "systematic" in name else 1.0 for name in fitted.parameter_names[len(theta) :]]
    at = np.concatenate([theta, noise])
    # Roundings of some thousand terms.
    np.testing.assert_allclose(fitted.log_likelihood(at), fixed.log_likelihood(theta), rtol=1e-11)
    np.testing.assert_allclose(fitted.chi2(at), fixed.chi2(theta), rtol=1e-11)
    assert fitted.n_data.tolist() == fixed.n_data.tolist()


@pytest.mark.parametrize("text", [TERMS, OF_GROUP])
def test_derivatives_are_those_of_differences(observation: Observation, tmp_path: Path, text: str) -> None:
    likelihood = of_closures(observation, SOURCES + text, tmp_path)
    theta = theta_of(likelihood, np.random.default_rng(2))
    value, gradient = likelihood.log_likelihood_and_gradient(np.array([theta, 1.02 * theta]))
    np.testing.assert_allclose(value, likelihood.log_likelihood(np.array([theta, 1.02 * theta])), rtol=1e-12)
    for k, name in enumerate(likelihood.parameter_names):
        step = np.zeros(likelihood.n_param)
        step[k] = 1e-4 * theta[k]
        # Five points: the error is of the fourth order in the step; the rest is rounding of ln L, 1e-12.
        ends = [likelihood.log_likelihood(theta + i * step) for i in (-2, -1, 1, 2)]
        slope = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * step[k])
        error = likelihood.fisher(theta)[k, k] ** -0.5
        assert gradient[0, k] * error == pytest.approx(slope * error, abs=1e-6), name


def simulated(likelihood: biro.Likelihood, theta: np.ndarray, rng: np.random.Generator) -> Observation:
    """The model with the noise that it has at theta, and weights as they were."""
    (part,), (model,) = likelihood.observation.partitions, likelihood.predict(theta)
    (sigma,) = likelihood.sigma(theta, [model])
    noise = sigma * rng.standard_normal((*model.shape, 2)).view(np.complex128)[..., 0]
    return replace(likelihood.observation, partitions=(replace(part, vis=model + noise),))


def test_the_fisher_information_is_the_mean_of_squared_slopes(
    observation: Observation, tmp_path: Path
) -> None:
    """Of data of high signal: what is of the next order in the noise is left out of the information."""
    (part,) = observation.partitions
    bright = replace(observation, partitions=(replace(part, weight=part.weight * 100),))
    likelihood = of_closures(bright, SOURCES + TERMS, tmp_path)
    theta = theta_of(likelihood, np.random.default_rng(3))
    theta[[("additive" in name) for name in likelihood.parameter_names]] = 0.5
    theta[[("systematic" in name) for name in likelihood.parameter_names]] = 0.004
    rng, slopes = np.random.default_rng(4), []
    for _ in range(300):
        drawn = of_closures(simulated(likelihood, theta, rng), SOURCES + TERMS, tmp_path)
        slopes.append(drawn.log_likelihood_and_gradient(theta)[1])
    root = np.linalg.cholesky(np.linalg.inv(likelihood.fisher(theta)))
    white = np.array(slopes) @ root
    found = white.T @ white / len(white)
    # Of 300 draws a variance is known to 8 %, a covariance to 6 %: four of these.
    np.testing.assert_allclose(found, np.eye(len(theta)), atol=0.33)


def test_a_noisy_station_is_found(observation: Observation, tmp_path: Path) -> None:
    text = SOURCES + TERMS.partition("edges")[0]
    likelihood = of_closures(observation, text, tmp_path)
    names = likelihood.parameter_names
    truth = np.array([TRUTH.get(name, 1.0) for name in names])
    noisy = [k for k, name in enumerate(names) if name.startswith("noise")][2]
    truth[noisy] = 9.0
    data = simulated(likelihood, truth, np.random.default_rng(5))
    fitted = of_closures(data, text, tmp_path)
    found = step_to_maximum(fitted, np.array([TRUTH.get(name, 1.0) for name in names]), 10)
    error = np.sqrt(np.diag(np.linalg.inv(fitted.fisher(found))))
    pull = (found - truth) / error
    # A dozen numbers of one draw; the largest is below 3.5 of their errors but once in 200.
    assert np.abs(pull).max() < 3.5
    assert error[noisy] < truth[noisy] / 3.0, "known from the data, not only allowed"
    # Residuals, with best gains taken out, have the noise that was found.
    (part,), (model,) = fitted.corrected(found).partitions, fitted.predict(found)
    used = part.weight > 0
    chi2 = np.sum((part.weight * np.abs(part.vis - model) ** 2)[used])
    # sqrt(2 / 1356) is 4 %: somewhat less than four of these.
    assert chi2 == pytest.approx(fitted.n_data.sum(), rel=0.15)
