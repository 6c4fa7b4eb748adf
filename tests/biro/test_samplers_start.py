"""The start: the mode is found through awkward priors, and walkers lie where they may."""

import math

import numpy as np
import pytest
from gaussian_likelihood import Flat, GaussianLikelihood, five_parameters

from biro.errors import LikelihoodError
from biro.inference.samplers.ensemble_start import find_mode, scatter
from biro.inference.target.checked import Target


class FringesWithNoise(GaussianLikelihood):
    """One source on a line seen by four baselines: fringes in its position, and a noise factor
    whose prior is log-uniform over six decades. The likelihood is written out here by hand."""

    truth = np.array([2.0, 0.3712, -0.118])

    def __init__(self):
        priors = [Flat(0.1, 10, "flux"), Flat(-1, 1, "x"), Flat(-1, 1, "y"), Flat(-3, 3, "log s")]
        super().__init__(priors, [0] * 4, np.eye(4))
        rng = np.random.default_rng(5)
        self.uv = rng.uniform(-40, 40, (300, 2))
        phase = 2 * np.pi * self.uv @ self.truth[1:]
        self.sigma = 0.1
        noise = 0.37 * self.sigma * (rng.standard_normal(300) + 1j * rng.standard_normal(300))
        self.data = self.truth[0] * np.exp(1j * phase) + noise

    def prior_transform(self, unit):
        theta = super().prior_transform(unit)
        theta[..., 3] = 10.0 ** theta[..., 3]
        return theta

    def log_prior(self, theta):
        inside = ((theta[:, :3] >= self._low[:3]) & (theta[:, :3] <= (self._low + self.span)[:3])).all(axis=1)
        inside &= (theta[:, 3] >= 1e-3) & (theta[:, 3] <= 1e3)
        return np.where(inside, -np.log(np.where(theta[:, 3] > 0, theta[:, 3], 1.0)), -np.inf)

    def log_likelihood(self, theta):
        self.n_call += 1
        self.n_row += len(theta)
        model = theta[:, :1] * np.exp(2j * np.pi * theta[:, 1:3] @ self.uv.T)
        chi2 = np.sum(np.abs(self.data - model) ** 2, axis=1) / self.sigma**2
        return -0.5 * chi2 / theta[:, 3] ** 2 - 600 * np.log(theta[:, 3])


@pytest.mark.parametrize("seed", range(3))
def test_the_mode_among_fringes_is_found_with_noise_over_six_decades(seed):
    likelihood = FringesWithNoise()
    start = find_mode(Target(likelihood), seed)
    flux, x, y, noise = likelihood.prior_transform(start.mode)
    # Posterior widths: flux 0.037 / sqrt(300) = 0.002, positions about 2e-5; five of them.
    assert flux == pytest.approx(2.0, abs=0.011)
    assert (x, y) == pytest.approx((0.3712, -0.118), abs=1e-4)
    # 600 real numbers: the noise is known to 1 / sqrt(1200) = 3 %; four of them.
    assert noise == pytest.approx(0.37, rel=0.12)
    assert likelihood.n_call < 800


def test_the_scale_about_the_mode_is_the_covariance():
    likelihood = five_parameters()
    start = find_mode(Target(likelihood), 3)
    span = likelihood.span
    found = (start.scale @ start.scale.T) * np.outer(span, span)
    # A quadratic form has exact second differences; rounding of values of order 1e-16 / step^2.
    assert np.allclose(found, likelihood.covariance, rtol=1e-3, atol=1e-12)
    assert start.log_likelihood == pytest.approx(0.0, abs=1e-6)


def test_walkers_keep_to_constraints_and_wrap():
    priors = [Flat(0, 180, "pa", "deg", period=180.0), Flat(0, 1, "a"), Flat(0, 1, "b")]
    likelihood = GaussianLikelihood(
        priors,
        [179.0, 0.5, 0.5],
        np.diag([25.0, 0.01, 0.01]),
        allowed=lambda theta: theta[:, 1] > theta[:, 2],
    )
    target = Target(likelihood)
    walkers = scatter(target, find_mode(target, 1), 64, 1)
    assert walkers.shape == (64, 3)
    assert (walkers[:, 1] > walkers[:, 2]).all()
    assert ((walkers[:, 0] >= 0) & (walkers[:, 0] < 180)).all()
    assert (walkers[:, 0] < 90).any()
    assert (walkers[:, 0] > 90).any()


def test_a_prior_without_any_finite_likelihood_is_refused():
    likelihood = five_parameters()
    likelihood.log_likelihood = lambda theta: np.full(len(theta), -math.inf)
    with pytest.raises(LikelihoodError, match=r"none of .* draws"):
        find_mode(Target(likelihood), 1)
