"""Systematic errors as a fraction of the amplitude of the model: against data that are made so, and sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp

import biro
from biro.choices import Gains
from biro.models import Gain, LogNormal, LogUniform, Noise, PointSource, SkyModel, Uniform
from tests.biro.test_noise_of_antennas import array
from tests.rime_kernels.conftest import cuda_backend

__all__ = ["cuda_backend"]  # a fixture

Array = NDArray[np.float64]
SIGMA = 0.1
FITTED = Noise(factor=1.0, systematic=Uniform(0.0, 0.5))


def one_point(noise: Noise, gain: Gain | None = None) -> SkyModel:
    flux = Uniform("0 Jy", "10 Jy")
    return SkyModel([PointSource("a", east="0 arcsec", north="0 arcsec", I=flux)], noise=noise, gain=gain)


def drawn(
    rng: np.random.Generator, fraction: float, n_time: int = 6, gains: Array | None = None
) -> biro.Observation:
    """1 Jy at the phase centre, each visibility off by this fraction of its own, and thermal noise."""
    blank = array(n_time=n_time)
    (part,) = blank.partitions

    def normal() -> NDArray[np.complex128]:
        return rng.standard_normal((*part.vis.shape, 2)).view(np.complex128)[..., 0]

    scale = 1.0 if gains is None else (gains[part.antenna1] * gains[part.antenna2].conj())[:, None, None]
    vis = scale * (1.0 + fraction * normal()) + SIGMA * normal()
    weight = np.full(part.vis.shape, SIGMA**-2, np.float32)
    return replace(blank, partitions=(replace(part, vis=vis, weight=weight),))


def pulls(noise: Noise, fraction: float, n: int = 30) -> Array:
    """(flux - 1 Jy) / error of n sets of data."""
    found = []
    for seed in range(n):
        likelihood = biro.Likelihood(drawn(np.random.default_rng([7, seed]), fraction), one_point(noise))
        theta = np.array([1.1, 0.15][: likelihood.n_param])
        for _ in range(6):  # scoring
            information = likelihood.fisher(theta)
            theta = theta + np.linalg.solve(information, likelihood.log_likelihood_and_gradient(theta)[1])
        found.append((theta[0] - 1.0) / np.sqrt(np.linalg.inv(information)[0, 0]))
    return np.array(found)


@pytest.mark.parametrize("noise", [Noise(factor=1.0, systematic=0.2), FITTED], ids=["fixed", "fitted"])
def test_fluxes_are_unbiased_and_errors_hold(noise: Noise) -> None:
    """With the amplitude of the data in its place the mean pull is -4: the flux is 2 f^2 = 8 % too small."""
    found = pulls(noise, 0.2)
    # Of 30 standard normal numbers: four errors of the mean, and of the mean square.
    assert abs(found.mean()) < 4.0 / np.sqrt(30)
    assert np.mean(found**2) == pytest.approx(1.0, abs=4.0 * np.sqrt(2.0 / 30))


def test_the_density_of_data_is_normalised() -> None:
    """The integral over one visibility, of 1 Jy +- 0.2 Jy with a fraction of 0.17."""
    likelihood = biro.Likelihood(drawn(np.random.default_rng(0), 0.0, n_time=1), one_point(FITTED))
    (part,) = likelihood.observation.partitions
    weight = np.zeros_like(part.weight)
    weight[0, 0, 0] = SIGMA**-2
    total, sd = 0.0, np.hypot(SIGMA, 0.17)
    # The trapezoidal rule in steps of one sd is exact to 5e-9; what lies beyond 5 sd is 1e-6.
    for x, y in np.ndindex(11, 11):
        vis = part.vis.copy()
        vis[0, 0, 0] = 1.0 + sd * (x - 5 + 1j * (y - 5))
        data = replace(likelihood.observation, partitions=(replace(part, vis=vis, weight=weight),))
        total += float(np.exp(biro.Likelihood(data, one_point(FITTED)).log_likelihood([1.0, 0.17]))) * sd**2
    assert total == pytest.approx(1.0, rel=5e-6)


def test_the_evidence_is_that_of_quadrature_and_charges_for_a_fraction_that_is_not_there() -> None:
    """ln L is summed here, over a grid; the Bayes factor is what Occam's razor makes of the prior."""
    data = drawn(np.random.default_rng(3), 0.0)
    likelihood = biro.Likelihood(data, one_point(FITTED))
    (part,) = data.partitions
    flux, fraction = np.linspace(0.9, 1.1, 201), np.linspace(0.0, 0.5, 501)
    v = SIGMA**2 + np.multiply.outer(flux, fraction) ** 2
    squares = np.array([np.sum(np.abs(part.vis - one) ** 2) for one in flux])
    value = -0.5 * squares[:, None] / v - part.vis.size * np.log(2.0 * np.pi * v)
    theta = np.stack(np.broadcast_arrays(*np.ix_(flux, fraction)), axis=-1)[::50, ::125].reshape(-1, 2)
    # Weights are in single precision.
    np.testing.assert_allclose(likelihood.log_likelihood(theta), value[::50, ::125].ravel(), rtol=1e-6)
    weights = np.full(501, 0.001)
    weights[[0, -1]] *= 0.5
    step = 0.001 / 10.0  # the prior of the flux is over 10 Jy, that of the fraction over 0.5
    evidence = logsumexp(value, b=step * weights / 0.5)
    without = logsumexp(value[:, 0], b=step)
    assert -5.0 < evidence - without < -1.0
    posterior = biro.sample(likelihood, "none", seed=1, progress=False)
    # Four stated errors, and the steps of the grid.
    assert posterior.log_evidence == pytest.approx(evidence, abs=4.0 * posterior.log_evidence_err + 0.01)


def test_beside_unknown_gains_fluxes_are_unbiased() -> None:
    """Phases of gains are free, amplitudes known to 5 %: the flux of 1 Jy is known to 4 %."""
    gain = Gain(amplitude=LogNormal(0.05), phase=Uniform(-180, 180, "deg"))
    found = []
    for seed in range(12):
        rng = np.random.default_rng([8, seed])
        gains = np.exp(0.05 * rng.standard_normal(6) + 2j * np.pi * rng.random(6))
        sky = one_point(Noise(factor=1.0, systematic=0.2), gain)
        likelihood = biro.Likelihood(drawn(rng, 0.2, 20, gains), sky, gains="marginalise")
        grid = np.linspace(0.8, 1.25, 46)
        value = likelihood.log_likelihood(grid[:, None])
        weight = np.exp(value - value.max())
        weight /= weight.sum()
        mean = weight @ grid
        found.append((mean - 1.0) / np.sqrt(weight @ (grid - mean) ** 2))
    # Of 12 standard normal numbers.
    assert abs(np.mean(found)) < 4.0 / np.sqrt(12)
    assert np.mean(np.square(found)) == pytest.approx(1.0, abs=4.0 * np.sqrt(2.0 / 12))


def test_beside_gains_the_density_is_normalised() -> None:
    """The mean of its ratio to the exact density, over data of the latter, with gains that are known."""
    gain, noise = Gain(amplitude=LogNormal(1e-6)), Noise(factor=1.0, systematic=0.1)
    ratios = []
    for seed in range(120):
        data = drawn(np.random.default_rng([9, seed]), 0.1)
        exact = biro.Likelihood(data, one_point(noise)).log_likelihood([1.0])
        beside = biro.Likelihood(data, one_point(noise, gain), gains="marginalise").log_likelihood([1.0])
        ratios.append(np.exp(beside - exact))
    error = np.std(ratios) / np.sqrt(len(ratios))
    # Unless 2 f^2 were taken off for each of 15 baselines, it would be exp(0.3) = 1.35.
    assert error < 0.1
    assert np.mean(ratios) == pytest.approx(1.0, abs=3.0 * error)


@pytest.mark.parametrize("gains", ["marginalise", "solve"])
def test_beside_gains_without_a_scale_the_fraction_is_found(gains: Gains) -> None:
    """Amplitudes about 30, which log-uniform priors do not know, in 2 x 900 numbers and more."""
    rng = np.random.default_rng(11)
    scales = 30.0 * np.exp(0.5 * rng.standard_normal(6) + 2j * np.pi * rng.random(6))
    gain = Gain(amplitude=LogUniform(0.1, 1e3), phase=Uniform(-180, 180, "deg"))
    source = PointSource("a", east="0 arcsec", north="0 arcsec", I="1 Jy")
    sky = SkyModel([source], noise=FITTED, gain=gain)
    likelihood = biro.Likelihood(drawn(rng, 0.1, 60, scales), sky, gains=gains)
    grid = np.linspace(0.08, 0.12, 81)
    value = likelihood.log_likelihood(grid[:, None])
    # The error of a standard deviation from 2 n numbers is 1 / (2 sqrt(n)) of it: 1.2 %, of which four.
    assert grid[np.argmax(value)] == pytest.approx(0.1, rel=0.05)


def test_solved_gains_are_unbiased() -> None:
    """With the amplitude of the data in the weights, amplitudes are f^2 = 4 % too small."""
    sky = SkyModel(
        [PointSource("a", east="0 arcsec", north="0 arcsec", I="1 Jy")],
        noise=Noise(factor=1.0, systematic=0.2),
    )
    data = drawn(np.random.default_rng(5), 0.2, 60)
    (window,) = biro.solve_gains(data, sky, interval="track", feeds="common").windows
    # 1800 visibilities of 1 +- 0.22 Jy, whose square root is a gain: 0.2 %, of which four.
    assert np.abs(window.gain).mean() == pytest.approx(1.0, abs=0.008)


@pytest.mark.cuda
@pytest.mark.parametrize("gains", ["sample", "marginalise"])
def test_a_gpu_gives_the_same(cuda_backend: str, gains: Gains) -> None:
    gain = None if gains == "sample" else Gain(amplitude=LogNormal(0.05))
    data = drawn(np.random.default_rng(0), 0.2, n_time=1)
    each = [
        biro.Likelihood(data, one_point(FITTED, gain), gains=gains, backend=backend)
        for backend in ("cpu", cuda_backend)
    ]
    theta = [0.9, 0.15]
    (value, gradient), (wanted, slopes) = (one.log_likelihood_and_gradient(theta) for one in each)
    # Double precision, sums in another order.
    assert value == pytest.approx(wanted, rel=1e-10)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-8)
