"""Noise that differs among antennas, correlations and baselines: against sums and simulated data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from test_likelihood import ONE_SOURCE, observation, sky

import biro

Array = NDArray[np.float64]
ANTENNAS = """
[noise]
per = "antenna"
factor = { prior = "log-normal", sd = 0.5 }
"""
ALL_TERMS = """
[noise]
per = "antenna"
factor = { prior = "log-normal", sd = 0.5 }
edges = ["400 m"]
systematic = [{ prior = "uniform", low = 0, high = 0.9 }, 0.2]
additive = { prior = "uniform", low = 0, high = 3000, unit = "mJy" }

[noise.antenna.2]
factor = 1.3
"""


ADDITIVE = 'additive = { prior = "uniform", low = 0, high = 3, unit = "Jy" }\n'
WITH_SYSTEMATIC = """
[noise]
factor = { prior = "log-normal", sd = 0.5 }
systematic = { prior = "uniform", low = 0, high = 0.9 }
"""
STUDENT = WITH_SYSTEMATIC + 'distribution = "student-t"\n'


def by_hand(part: biro.Partition, model: Array, s: Array, f: Array, a: Array) -> float:
    """ln L, visibility by visibility: s of antennas, f and a of baselines below and above 400 m."""
    total = 0.0
    for row, chan, corr in zip(*np.nonzero(part.weight), strict=True):
        far = int(np.hypot(*part.uvw[row, :2]) >= 400.0)
        sigma2 = s[part.antenna1[row]] * s[part.antenna2[row]] / part.weight[row, chan, corr]
        data = part.vis[row, chan, corr]
        v = sigma2 + f[far] ** 2 * abs(model[row, chan, corr]) ** 2 + a[far] ** 2
        for x in (data - model[row, chan, corr]).real, (data - model[row, chan, corr]).imag:
            total += -0.5 * x * x / v - 0.5 * np.log(2 * np.pi * v)
    return total


def long_and_short() -> biro.Observation:
    """`observation` with baselines on both sides of 400 m."""
    obs = observation()
    (part,) = obs.partitions
    return replace(obs, partitions=(replace(part, uvw=part.uvw * (400.0 / np.median(np.abs(part.uvw)))),))


def test_the_likelihood_is_a_sum_of_gaussians(tmp_path: Path) -> None:
    obs = long_and_short()
    likelihood = biro.Likelihood(obs, sky(ONE_SOURCE + ALL_TERMS, tmp_path))
    assert tuple(likelihood.parameter_names) == (
        "a.I",
        "a.V",
        *(f"noise.factor[{name}]" for name in ("0", "1", "3")),
        "noise.systematic[below 400 m]",
        "noise.additive[below 400 m]",
        "noise.additive[above 400 m]",
    )
    theta = np.array(
        [[1.5, 0.3, 0.8, 1.2, 2.5, 0.3, 700.0, 300.0], [0.5, 0.1, 1.0, 3.0, 0.4, 0.0, 0.0, 100.0]]
    )
    found = likelihood.log_likelihood(theta)
    for one, value in zip(theta, found, strict=True):
        (model,) = likelihood.predict(one)
        s = np.array([one[2], one[3], 1.3, one[4]])
        expected = by_hand(obs.partitions[0], model, s, np.array([one[5], 0.2]), one[6:] / 1000.0)
        # Rounding of some hundred terms.
        np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        ALL_TERMS,
        ANTENNAS,
        '[noise]\nsystematic = { prior = "half-normal", sd = 0.3 }\n',
        "[noise]\nsystematic = 0.4\n",
        STUDENT,
    ],
)
def test_its_gradient(tmp_path: Path, text: str) -> None:
    place = '{ prior = "uniform", low = -60, high = 60, unit = "arcsec" }'
    model = sky(ONE_SOURCE.replace('"0 arcsec"', place) + text, tmp_path)
    likelihood = biro.Likelihood(long_and_short(), model)
    theta = likelihood.prior_transform(np.random.default_rng(2).uniform(0.3, 0.7, (3, likelihood.n_param)))
    # Per sigma: rounding of a value of some hundred, 1e-13, over 1e-3 sigma.
    check_gradient(likelihood, theta, tolerance=1e-7)


def check_gradient(likelihood: biro.Likelihood, theta: np.ndarray, tolerance: float) -> None:
    """Compare the gradient of ln L, per sigma, with central differences of sixth order."""
    value, gradient = likelihood.log_likelihood_and_gradient(theta)
    np.testing.assert_allclose(value, likelihood.log_likelihood(theta), rtol=1e-13)
    scale = 1.0 / np.sqrt(np.diag(likelihood.fisher(theta[0])))
    for i, axis in enumerate(np.diag(1e-3 * scale)):
        rise = [
            likelihood.log_likelihood(theta + k * axis) - likelihood.log_likelihood(theta - k * axis)
            for k in (1, 2, 3)
        ]
        expected = (0.75 * rise[0] - 0.15 * rise[1] + rise[2] / 60.0) / 1e-3
        np.testing.assert_allclose(gradient[:, i] * scale[i], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("factor", [1.0, 1.7])
def test_the_factor_multiplies_a_fixed_fraction_that_stands_alone(tmp_path: Path, factor: float) -> None:
    """With a fraction that theta has it does not: both are sums of Gaussians by hand."""
    obs, text = long_and_short(), f"[noise]\nfactor = {factor}\nsystematic = "
    fixed = biro.Likelihood(obs, sky(ONE_SOURCE + text + "0.3\n", tmp_path))
    fitted = biro.Likelihood(
        obs, sky(ONE_SOURCE + text + '{ prior = "uniform", low = 0, high = 0.9 }\n', tmp_path)
    )
    (part,), (model,), one = obs.partitions, fixed.predict([1.5, 0.3]), np.ones(2)
    for likelihood, theta, f in ((fixed, [1.5, 0.3], 0.3 * factor), (fitted, [1.5, 0.3, 0.3], 0.3)):
        expected = by_hand(part, model, np.full(4, factor), f * one, 0.0 * one)
        # Rounding of some hundred terms.
        np.testing.assert_allclose(likelihood.log_likelihood(theta), expected, rtol=1e-12)


def test_students_t_has_the_variance_of_each_visibility(tmp_path: Path) -> None:
    likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE + STUDENT, tmp_path))
    (part,), theta = likelihood.observation.partitions, [1.5, 0.3, 0.6, 0.8, 4.0]
    assert tuple(likelihood.parameter_names) == (
        "a.I",
        "a.V",
        "noise.systematic",
        "noise.factor",
        "noise.dof",
    )
    (model,), used = likelihood.predict(theta), part.weight > 0
    v = 0.8**2 / part.weight[used] + 0.6**2 * np.abs(model[used]) ** 2
    t = stats.multivariate_t([0.0, 0.0], np.eye(2), df=4.0)
    x = (part.vis - model)[used] / np.sqrt(v)
    # The density of both parts, divided by the two scales; rounding of some hundred terms.
    wanted = np.sum(t.logpdf(np.stack([x.real, x.imag], axis=-1)) - np.log(v))
    assert likelihood.log_likelihood(theta) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    "text", [ANTENNAS + ADDITIVE, WITH_SYSTEMATIC, "[noise]\nsystematic = 0.5\n", STUDENT]
)
def test_fisher_information_is_the_mean_of_squared_slopes(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over data that are drawn with the noise of one theta: E (d ln L) (d ln L)^T."""
    model = sky(ONE_SOURCE + text, tmp_path)
    likelihood = biro.Likelihood(observation(), model)
    values = {"a.I": 1.5, "a.V": 0.3, "noise.systematic": 0.6, "noise.additive": 0.6, "noise.factor": 0.8}
    values["noise.dof"] = 4.0
    values |= {f"noise.factor[{k}]": s for k, s in enumerate((0.7, 1.0, 1.5, 2.0))}
    theta = np.array([values[name.replace(" [Jy]", "")] for name in likelihood.parameter_names])
    rng, (vis,) = np.random.default_rng(1), likelihood.predict(theta)
    (sigma,) = likelihood.sigma(theta, [vis])
    (part,), slopes = likelihood.observation.partitions, []
    for _ in range(200):
        noise = rng.standard_normal((2, *vis.shape))
        if text == STUDENT:
            noise /= np.sqrt(rng.chisquare(4.0, vis.shape) / 4.0)
        drawn = replace(part, vis=vis + sigma * (noise[0] + 1j * noise[1]))
        one = biro.Likelihood(replace(likelihood.observation, partitions=(drawn,)), model)
        slopes.append(one.log_likelihood_and_gradient(theta)[1])
    # An unbiased score: the density of the data is a normalised one. 4.5 errors of its mean.
    assert (np.abs(np.mean(slopes, axis=0)) < 4.5 * np.std(slopes, axis=0) / np.sqrt(len(slopes))).all()
    found, mean = likelihood.fisher(theta), np.cov(np.transpose(slopes), bias=True)
    scale = np.sqrt(np.outer(np.diag(found), np.diag(found)))
    # Of 200 draws a mean square is known to sqrt(2 / 200) = 10 %, of which 4 sigma.
    np.testing.assert_allclose(mean / scale, found / scale, atol=0.4)
    np.testing.assert_allclose(found, found.T, rtol=1e-12)
    change = rng.standard_normal(likelihood.n_param)
    np.testing.assert_allclose(likelihood.fisher_product(theta, change), found @ change, rtol=1e-10)
    # Of large data the matrix is made of products.
    monkeypatch.setattr("biro.likelihood.noise.noise_fisher.MOST_BYTES", 0)
    np.testing.assert_allclose(likelihood.fisher(theta), found, rtol=1e-9, atol=1e-9 * np.abs(found).max())
