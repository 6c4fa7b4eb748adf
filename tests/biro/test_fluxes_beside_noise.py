"""Fluxes integrated over beside noise that differs among baselines, with gains and without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats
from test_gradient import check, snapshots
from test_likelihood import joined, observation, sky

import biro
from biro.choices import Gains
from biro.errors import InputError
from biro.models import Gain, LogNormal, Noise, Normal, PerSegment, PointSource, SkyModel, Uniform
from tests.biro.test_fluxes_beside_gains import FACTOR, TURNING, check_gradient, two, with_data
from tests.biro.test_inner_gains import outer_of, pair
from tests.biro.test_marginalised import INNER, MIXED, dense, full_theta, inner_of
from tests.biro.test_noise_beside_gains import PLAIN, TERMS, dense_information
from tests.biro.test_noise_of_antennas import array

Array = NDArray[np.float64]
NOISE = """
[noise]
per = ["antenna", "field"]
factor = { prior = "log-normal", sd = 0.5 }
edges = ["300 m"]
additive = ["0 Jy", { prior = "uniform", low = 0, high = 2, unit = "Jy" }]
"""


def variance(obs: biro.Observation, i: int, values: dict[str, float]) -> Array:
    """s_p s_q sigma^2 + a^2 of the noise above, of partition i; 1 without weight."""
    part = obs.partitions[i]
    group = f"[{part.field}]" if len(obs.partitions) > 1 else ""
    factors = [
        np.array([values.get(f"noise.factor[{obs.antenna_names[k]}]{group}", 1.0) for k in ends])
        for ends in (part.antenna1, part.antenna2)
    ]
    is_long = np.hypot(part.uvw[:, 0], part.uvw[:, 1]) >= 300.0
    added = np.where(is_long, values["noise.additive[above 300 m]"], 0.0)
    inverse = 1.0 / np.where(part.weight > 0, part.weight, 1.0)
    stated = (factors[0] * factors[1])[:, None, None] * inverse
    return stated + added[:, None, None] ** 2


@pytest.mark.parametrize("n_partition", [1, 2])
def test_it_is_the_density_of_the_data_with_their_dense_covariance(tmp_path: Path, n_partition: int) -> None:
    parts = [
        observation(i, n_row=12 + i, field=f"F{i}", phase_centre=(1.0 + 1e-4 * i, 0.5))
        for i in range(n_partition)
    ]
    obs, model = joined(*parts), sky(MIXED + NOISE, tmp_path)
    likelihood = biro.Likelihood(obs, model)
    assert list(likelihood.marginalised) == INNER
    outer = likelihood.prior_transform(np.random.default_rng(3).random((2, likelihood.n_param)))
    found, best = likelihood.log_likelihood(outer), likelihood.completed(outer)
    draws = likelihood.inner_draws(outer, np.random.default_rng(0))
    for k in range(2):
        values = dict(zip(likelihood.parameter_names, outer[k], strict=True))
        noise = [variance(obs, i, values) for i in range(n_partition)]
        value, mean, covariance = dense(obs, model, full_theta(likelihood, outer[k]), INNER, noise)
        assert found[k] == pytest.approx(value, rel=1e-11)  # a determinant of some 100 numbers
        np.testing.assert_allclose(inner_of(likelihood, best[k]), mean, rtol=1e-9)
        np.testing.assert_allclose(draws.sd[k], np.sqrt(np.diag(covariance)), rtol=1e-9)
        sigma = likelihood.sigma(outer[k], [part.vis for part in obs.partitions])
        for one, own, part in zip(sigma, noise, obs.partitions, strict=True):
            # Weights are in single precision.
            np.testing.assert_allclose(one, np.where(part.weight > 0, np.sqrt(own), 0.0), rtol=1e-6)
    # Roundings of sums of squares that are larger by the flux of the sources.
    np.testing.assert_allclose(likelihood.chi2(outer), likelihood.full.chi2(best), rtol=1e-10)
    np.testing.assert_allclose(draws.log_likelihood, likelihood.full.log_likelihood(draws.theta), rtol=1e-10)


def test_its_gradient_is_that_by_differences(tmp_path: Path) -> None:
    model = sky(MIXED + NOISE.replace(', "field"]', "]"), tmp_path)
    # With the first seed sources are so close that differences in these steps are good to 7e-6.
    check(biro.Likelihood(snapshots(), model), seed=1)


def fluxes(marginalise: bool) -> SkyModel:
    flux = Normal(1, 2, "Jy", marginalise=marginalise)
    return SkyModel(
        [
            PointSource("a", east="0 arcsec", north="0 arcsec", I=flux),
            PointSource("b", east="90 arcsec", north="-40 arcsec", I=flux),
        ],
        noise=Noise(per="antenna", factor=LogNormal(1.0)),
    )


def test_evidence_and_posterior_are_those_of_fluxes_that_are_sampled() -> None:
    found = []
    for marginalise in (True, False):
        likelihood = biro.Likelihood(array(n_time=20), fluxes(marginalise))
        assert bool(likelihood.marginalised) is marginalise
        found.append(biro.sample(likelihood, "none", seed=1, progress=False, n_sample=2000))
    assert found[0].names == found[1].names
    assert found[0].log_evidence == pytest.approx(found[1].log_evidence, abs=0.1)
    assert max(one.log_evidence_err for one in found) < 0.03
    for name in found[0].names:
        draws = [p.weighted_draws(name) for p in found]
        means = [weight @ values for values, weight in draws]
        sds = [np.sqrt(w @ (values - m) ** 2) for (values, w), m in zip(draws, means, strict=True)]
        # Of 1000 effective draws or more each: six errors of a mean, and of a standard deviation.
        assert means[1] == pytest.approx(means[0], abs=6.0 * sds[0] * np.sqrt(2.0 / 1000))
        assert sds[1] == pytest.approx(sds[0], rel=0.15)


@pytest.mark.parametrize(("factor", "additive"), [(1.0, 0.0), (1.5, 0.02)])
def test_beside_an_amplitude_it_is_the_integral_by_quadrature(factor: float, additive: float) -> None:
    """Over the flux in closed form, over ln of the amplitude numerically, with noises of 0.01 to 0.04 Jy."""
    noise = Noise(per="antenna", factor=LogNormal(0.5), additive=Uniform("0 Jy", "1 Jy"))
    flux = Normal(1.0, 0.1, "Jy", marginalise=True)
    model = SkyModel(
        [PointSource("a", east="0 arcsec", north="0 arcsec", I=flux)],
        noise=noise,
        gain=Gain(antennas=["B"], amplitude=LogNormal(0.05)),
    )
    likelihood = biro.Likelihood(pair(0.01), model, backend="cpu", gains="marginalise")
    (data,) = likelihood.observation.partitions[0].vis.ravel()
    own = factor * 0.8 * 0.01**2 + additive**2

    def density(log: float) -> float:
        g = np.exp(log)
        real = stats.norm.pdf(data.real, g, np.sqrt(own + (0.1 * g) ** 2))
        return float(real * stats.norm.pdf(data.imag, 0.0, np.sqrt(own)) * stats.norm.pdf(log, scale=0.05))

    wanted = np.log(integrate.quad(density, -0.5, 0.5, points=[0.0, 0.05], limit=400)[0])
    assert tuple(likelihood.parameter_names) == ("noise.factor[A]", "noise.factor[B]", "noise.additive")
    found = likelihood.log_likelihood([factor, 0.8, additive])
    # Next order of Laplace: of the fourth derivatives of exp(2 a) over ranges of 0.05, squared.
    assert found == pytest.approx(wanted, abs=1e-3)


def test_gains_that_are_known_leave_the_closed_form() -> None:
    """Priors of 1e-6 beside data that know gains to 1e-3."""
    known = Gain(amplitude=LogNormal(1e-6), phase=Normal(0, 1e-4, "deg"))
    likelihood, truth = with_data(two(known, noise=PLAIN))
    alone = biro.Likelihood(likelihood.observation, two(None, noise=PLAIN), backend="cpu")
    outer = outer_of(likelihood, likelihood.full, truth)
    assert alone.parameter_names == likelihood.parameter_names
    value, slope = likelihood.log_likelihood_and_gradient(outer)
    wanted, of_alone = alone.log_likelihood_and_gradient(outer)
    sigma = 1.0 / np.sqrt(np.diag(alone.fisher(outer)))
    # Gains move by up to 1e-3 of their error, in some directions: the square of it, and itself in slopes.
    assert value == pytest.approx(wanted, abs=1e-3)
    np.testing.assert_allclose(slope * sigma, of_alone * sigma, atol=2e-2)
    vis = likelihood.predict(outer)
    for one, other in zip(likelihood.sigma(outer, vis), alone.sigma(outer, vis), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("gains", ["marginalise", "solve"])
def test_gradients_beside_gains_are_those_of_differences(gains: Gains) -> None:
    likelihood, truth = with_data(two(TURNING, noise=PLAIN), gains=gains)
    outer = outer_of(likelihood, likelihood.full, truth)
    check_gradient(likelihood, outer)
    draws = likelihood.inner_draws(outer[None].repeat(4, axis=0), np.random.default_rng(0))
    np.testing.assert_allclose(draws.log_likelihood, likelihood.full.log_likelihood(draws.theta), rtol=1e-9)


@pytest.mark.parametrize("noise", [FACTOR, PLAIN], ids=["one factor", "terms"])
def test_solved_for_with_gains_the_maximum_is_that_of_fluxes_that_are_fitted(
    tmp_path: Path, noise: Noise
) -> None:
    """Values, errors and posterior density; what is solved for is at its place in the joint maximum."""
    model = two(TURNING, noise=noise)
    likelihood, _ = with_data(model, gains="solve")
    fitted = sky(model.to_toml().replace(", marginalise = true", ""), tmp_path)
    beside = biro.Likelihood(likelihood.observation, fitted, backend="cpu", gains="solve")
    assert beside.n_param == likelihood.n_param + 3
    one, other = (biro.maximise(each, seed=1, starts=1) for each in (likelihood, beside))
    assert one.log_posterior == pytest.approx(other.log_posterior, abs=1e-6)  # as climbs end
    completed = likelihood.completed(one.best_fit)
    for name, error in zip(beside.parameter_names, other.error, strict=True):
        found = completed[likelihood.full.parameter_names.index(name)]
        # A climb ends within 1e-3 of an error.
        assert found == pytest.approx(other[name], abs=2e-3 * error)
    for name, error in zip(one.names, one.error, strict=True):
        # Differences of gradients, in steps that are not the same.
        assert error == pytest.approx(other.error[other.names.index(name)], rel=1e-3)
    if noise is FACTOR:
        posterior = biro.sample(likelihood, "none", seed=1, progress=False, starts=1, n_sample=50)
        assert posterior.log_evidence is None
        assert list(posterior.names) == likelihood.full.parameter_names


@pytest.mark.parametrize("noise", [FACTOR, PLAIN], ids=["one factor", "terms"])
@pytest.mark.parametrize("gains", ["sample", "marginalise"])
def test_the_information_on_noise_is_that_of_the_dense_covariance(noise: Noise, gains: Gains) -> None:
    """Of 12 times, 2 channels and 4 correlations, with 3 fluxes and 35 gains integrated over."""
    gain = Gain(
        amplitude=PerSegment(LogNormal(0.1), per="scan"),
        phase=PerSegment(Normal(0, 20, "deg"), per="integration"),
    )
    model = two(None if gains == "sample" else gain, noise=noise)
    whole, truth = with_data(two(gain, noise=noise))
    likelihood = biro.Likelihood(whole.observation, model, backend="cpu", gains=gains)
    outer = outer_of(likelihood, whole.full, truth)
    wanted, is_noise = dense_information(likelihood, outer), np.zeros(outer.size, bool)
    is_noise[[name.startswith("noise") for name in likelihood.parameter_names]] = True
    found, scale = likelihood.fisher(outer), np.sqrt(np.diag(wanted))
    assert not found[np.ix_(is_noise, ~is_noise)].any()
    # Differences in steps of 1e-3 are good to some 1e-6.
    assert np.abs((found[np.ix_(is_noise, is_noise)] - wanted) / np.outer(scale, scale)).max() < 2e-5


@pytest.mark.parametrize("gains", ["sample", "marginalise", "solve"])
def test_noise_that_follows_the_fluxes_is_refused(gains: Gains) -> None:
    likelihood, _ = with_data(two(TURNING, noise=PLAIN))
    model = two(None if gains == "sample" else TURNING, noise=TERMS)
    with pytest.raises(InputError, match="This noise depends on the model"):
        biro.Likelihood(likelihood.observation, model, backend="cpu", gains=gains)
