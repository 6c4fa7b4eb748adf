"""The maximum of a posterior, its errors and evidence: closed forms, ends of priors, what is not known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gaussian_likelihood import Flat, SmoothGaussian
from numpy.typing import NDArray
from scipy import integrate, stats
from test_likelihood import FIXED_NOISE, ONE_SOURCE, joined, observation, sky

import biro
from biro.errors import InputError, LikelihoodError, ModelError
from biro.inference.maximum.climb import climb_on
from biro.inference.maximum.differences import curvature_by_steps
from biro.inference.maximum.laplace import Laplace
from biro.inference.maximum.newton import newton
from biro.inference.maximum.objective import Objective
from biro.inference.maximum.starts import with_best_noise
from biro.inference.maximum.stationary_point import StationaryPoint
from biro.inference.samplers.normal_approximation import draws_within
from biro.inference.target.checked import Target

Array = NDArray[np.float64]
ARCSEC = np.pi / 648000
C = 299792458.0


def point(name: str, east: str, north: str, flux: str) -> str:
    return f"""
[[source]]
name = "{name}"
type = "point"
east = {east}
north = {north}
I = {flux}
"""


def uniform(low: float, high: float, unit: str) -> str:
    return f'{{ prior = "uniform", low = {low}, high = {high}, unit = "{unit}" }}'


def normal(mean: float, sd: float, unit: str) -> str:
    return f'{{ prior = "normal", mean = {mean}, sd = {sd}, unit = "{unit}" }}'


def assert_weights_are_equal(likelihood, log_evidence: float, tolerance: float) -> None:
    """Without tails, draws are from the posterior itself: each weight is the evidence, up to rounding."""
    draws = draws_within(Target(likelihood), biro.maximise(likelihood, seed=1), 200, 1, tails=False)
    weight = draws.log_posterior - draws.log_density
    np.testing.assert_allclose(weight, log_evidence, rtol=0, atol=tolerance)


def simulated(
    *sources: tuple[float, float, float],
    noise: float = 0.1,
    seed: int = 0,
    n_row: int = 300,
    fwhm: float = 0.0,
) -> biro.Observation:
    """XX and YY of points or round Gaussians (flux, east, north in arcsec), seen at 2 cm over 1.2 km."""
    rng = np.random.default_rng(seed)
    uvw = np.column_stack([rng.normal(scale=400.0, size=(n_row, 2)), np.zeros(n_row)])
    freq = C / 0.02
    vis = np.zeros(n_row, complex)
    for flux, east, north in sources:
        vis += flux * np.exp(2j * np.pi * uvw[:, :2] @ [east, north] * ARCSEC / 0.02)
    vis *= np.exp(-((np.pi * fwhm * ARCSEC / 0.02) ** 2) * (uvw**2).sum(axis=1) / (4 * np.log(2)))
    error = rng.normal(size=(n_row, 1, 2)) + 1j * rng.normal(size=(n_row, 1, 2))
    return biro.Observation.from_arrays(
        vis=np.repeat(vis[:, None, None], 2, axis=2) + noise * error,
        uvw=uvw,
        antenna1=np.zeros(n_row, int),
        antenna2=np.ones(n_row, int),
        time=np.arange(n_row, dtype=float),
        chan_freq=[freq],
        corr_type=["XX", "YY"],
        weight=np.full((n_row, 1, 2), 1.0 / max(noise, 0.1) ** 2),
        flag=np.zeros((n_row, 1, 2), bool),
    )


# --- A linear problem has a closed form


PLACES = [(0.0, 0.0), (3.0, -2.0), (-4.0, 5.0)]


def design(obs: biro.Observation, places: list[tuple[float, float]]) -> tuple[Array, Array]:
    """Real and imaginary parts of unit points, and data, each divided by its sigma."""
    (part,) = obs.partitions
    phases = 2j * np.pi * part.uvw[:, :2] @ (np.array(places).T * ARCSEC / 0.02)
    columns = np.repeat(np.exp(phases)[:, None, :], 2, axis=1).reshape(-1, len(places))
    data = part.vis.reshape(-1)
    root = np.sqrt(part.weight.astype(float)).reshape(-1)
    stacked = [np.concatenate([x.real, x.imag]) for x in (columns * root[:, None], data * root)]
    return stacked[0], stacked[1]


def test_a_linear_problem_is_solved_exactly(tmp_path: Path) -> None:
    """Fluxes with normal priors: maximum, covariance and evidence of the normal equations."""
    obs = simulated((1.0, 0, 0), (0.5, 3, -2), (0.2, -4, 5))
    means, sds = np.array([0.8, 0.4, 0.3]), np.array([0.5, 0.3, 0.2])
    text = "".join(
        point(f"s{i}", f'"{x} arcsec"', f'"{y} arcsec"', normal(m, s, "Jy"))
        for i, ((x, y), m, s) in enumerate(zip(PLACES, means, sds, strict=True))
    )
    found = biro.maximise(biro.Likelihood(obs, sky(text + FIXED_NOISE, tmp_path)), seed=1)
    columns, data = design(obs, PLACES)
    precision = columns.T @ columns + np.diag(sds**-2.0)
    best = np.linalg.solve(precision, columns.T @ data + means / sds**2)
    # Rounding: ln p, whose terms are some 1e3, is flat to 1e-13 of that within 1e-5 of an error.
    np.testing.assert_allclose(found.best_fit, best, rtol=0, atol=2e-5 * found.error.max())
    np.testing.assert_allclose(found.covariance, np.linalg.inv(precision), rtol=1e-6, atol=1e-12)
    # ln Z: data are normal about the mean of the prior, with the covariance of noise and prior.
    covariance = np.eye(data.size) + columns @ np.diag(sds**2) @ columns.T
    evidence = stats.multivariate_normal(columns @ means, covariance).logpdf(data)
    weight = obs.partitions[0].weight.astype(float)
    evidence += np.log(weight).sum()  # of the data divided by sigma, two real numbers for each weight
    assert found.log_evidence == pytest.approx(evidence, abs=1e-5)
    assert found.converged
    assert found.n_agree == found.n_end
    assert found.unidentified == []


def test_the_noise_factor_and_chi2(tmp_path: Path) -> None:
    """ln p(s) = -chi2 / 2 s^2 - (2 N + 1) ln s: a log-uniform prior adds one to the 2 N."""
    obs = simulated((1.0, 0, 0), noise=0.2)
    text = point("s", '"0 arcsec"', '"0 arcsec"', uniform(-5, 5, "Jy"))
    found = biro.maximise(biro.Likelihood(obs, sky(text, tmp_path)), seed=1)
    columns, data = design(obs, PLACES[:1])
    flux, chi2 = np.linalg.lstsq(columns, data, rcond=None)[:2]
    n = data.size
    assert found["s.I"] == pytest.approx(flux[0], rel=1e-6)
    s = found["noise.factor"]
    assert s == pytest.approx(math.sqrt(chi2[0] / (n + 1)), rel=1e-6)
    assert found.error[1] == pytest.approx(s / math.sqrt(2 * (n + 1)), rel=1e-4)  # differences of 0.02 sigma
    assert found.error[0] == pytest.approx(s / math.sqrt((columns**2).sum()), rel=1e-4)
    assert found.chi2[0] == pytest.approx(chi2[0], rel=1e-9)
    assert found.reduced_chi2[0] == pytest.approx(chi2[0] / n, rel=1e-9)
    assert found.noise_factor[0] == s


# --- Ends of priors


@pytest.mark.parametrize(("flux", "seed"), [(-0.02, 0), (-0.003, 1), (0.0, 2)])
def test_a_flux_at_zero(tmp_path: Path, flux: float, seed: int) -> None:
    """The best flux is negative, which the prior forbids: errors and evidence are those of half a bell."""
    obs = simulated((1.0, 0, 0), (flux, 3, -2), noise=0.1, seed=seed)
    text = point("a", '"0 arcsec"', '"0 arcsec"', uniform(0, 2, "Jy"))
    text += point("b", '"3 arcsec"', '"-2 arcsec"', uniform(0, 2, "Jy"))
    likelihood = biro.Likelihood(obs, sky(text + FIXED_NOISE, tmp_path))
    found = biro.maximise(likelihood, seed=1)
    columns, data = design(obs, PLACES[:2])
    best = np.linalg.solve(columns.T @ columns, columns.T @ data)
    assert best[1] < 0
    alone = columns[:, 0] @ data / (columns[:, 0] @ columns[:, 0])
    np.testing.assert_allclose(found.best_fit, [alone, 0.0], rtol=0, atol=2e-5 * found.error[0])
    assert found.laplace.side.tolist() == [0, -1]
    # The marginal of b is a normal distribution cut at 0.
    sd = math.sqrt(np.linalg.inv(columns.T @ columns)[1, 1])
    cut = stats.truncnorm((0 - best[1]) / sd, np.inf, best[1], sd)
    assert found.error[1] == pytest.approx(cut.ppf(0.6826895), rel=1e-4)
    grid = np.linspace(0, 12 * sd, 20001)
    # Integrated over a in closed form: sqrt(2 pi / A_00) at the best a for each b.
    gram = columns.T @ columns
    ridge = alone - gram[0, 1] / gram[0, 0] * grid
    values = likelihood.log_posterior(np.column_stack([ridge, grid]))
    top = values.max()
    inside = integrate.simpson(np.exp(values - top), x=grid)
    evidence = top + np.log(inside) + 0.5 * np.log(2 * np.pi / gram[0, 0])
    assert found.log_evidence == pytest.approx(evidence, abs=1e-4)
    assert "at its lower end" in str(found)


@pytest.mark.parametrize("noise", ["", FIXED_NOISE])
@pytest.mark.parametrize("seed", [8, 16])
def test_a_flux_a_little_above_zero(tmp_path: Path, seed: int, noise: str) -> None:
    """The end of the prior costs next to nothing, and is not the maximum."""
    flux = np.random.default_rng(seed).uniform(-0.3, 0.9) * 0.1 / np.sqrt(600)
    obs = simulated((1.0, 0, 0), (flux, 3, -2), noise=0.1, seed=seed)
    wide = uniform(0, 50, "Jy")
    text = point("a", '"0 arcsec"', '"0 arcsec"', wide) + point("b", '"3 arcsec"', '"-2 arcsec"', wide)
    found = biro.maximise(biro.Likelihood(obs, sky(text + noise, tmp_path)), seed=3)
    columns, data = design(obs, PLACES[:2])
    best = np.linalg.solve(columns.T @ columns, columns.T @ data)[1]
    sigma = np.sqrt(np.linalg.inv(columns.T @ columns)[1, 1])
    assert 0.1 * sigma < best < 0.45 * sigma
    assert found["b.I"] == pytest.approx(best, abs=1e-3 * sigma)  # steps end where another adds 1e-7 to ln L
    assert found.converged


def test_a_start_without_a_posterior_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    likelihood = SmoothGaussian([Flat(-1, 1, "a")], [0.5], np.eye(1) * 0.01)
    inner = likelihood.log_posterior_and_gradient

    def half(theta: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        value, slope = inner(theta)
        return np.where(theta[:, 0] < 0, -np.inf, value), np.where(theta < 0, np.nan, slope)

    monkeypatch.setattr(likelihood, "log_posterior_and_gradient", half)
    with pytest.raises(LikelihoodError, match="none of the 1 starts has a finite posterior"):
        biro.maximise(likelihood, seed=1, starts=[[-0.9]])


def test_a_flux_at_zero_in_noise_that_is_fitted(tmp_path: Path) -> None:
    """The noise factor's own end, 0.001, is far from 1, but near by the width of its prior, 1000."""
    obs = simulated((-0.004, 0, 0), noise=0.2, seed=4)
    text = point("a", '"0 arcsec"', '"0 arcsec"', uniform(0, 2, "Jy"))
    found = biro.maximise(biro.Likelihood(obs, sky(text, tmp_path)), seed=1)
    data = design(obs, PLACES[:1])[1]
    assert found["a.I"] == 0.0
    assert found["noise.factor"] == pytest.approx(math.sqrt(data @ data / (data.size + 1)), rel=1e-6)
    assert found.laplace.side.tolist() == [-1, 0]
    assert found.converged


@pytest.mark.parametrize("start", [0.03, 0.05])
def test_a_last_step_to_an_end_ends_there(start: float) -> None:
    """What is left to gain is less than matters in single precision, and the step to it leads to the end."""
    likelihood = SmoothGaussian([Flat(0, 1, "ratio")], [-0.02], [[0.25]])
    likelihood.precision = "single"
    laplace = newton(Objective(likelihood), np.array([start])).laplace
    assert laplace.theta[0] == 0.0
    assert laplace.side[0] == -1
    cut = stats.truncnorm(0.04, 2.04, -0.02, 0.5)
    # The quantile of the bell that the prior leaves; its curvature is known from differences.
    assert laplace.error[0] == pytest.approx(cut.ppf(0.682689492137086), rel=1e-6)


@pytest.mark.parametrize(("mean", "sigma"), [(0.5, 0.05), (0.5, 0.4), (0.9, 0.3), (0.1, 0.5), (1e-4, 0.2)])
def test_a_bell_that_the_prior_cuts_off(mean: float, sigma: float) -> None:
    """Beside a parameter that depends on it and lies well within: the evidence has its closed form."""
    covariance = np.array([[sigma**2, 0.5 * sigma * 1e-3], [0.5 * sigma * 1e-3, 1e-6]])
    likelihood = SmoothGaussian([Flat(0, 1, "ratio"), Flat(-2, 2, "east")], [mean, 0.3], covariance)
    found = biro.maximise(likelihood)
    part = stats.norm.cdf((1.0 - mean) / sigma) - stats.norm.cdf(-mean / sigma)
    expected = math.log(2 * math.pi) + 0.5 * np.linalg.slogdet(covariance)[1] + math.log(part / 4.0)
    # The curvature is a difference of gradients: 1e-9 of it; beside an end the search may stop at it.
    assert found.log_evidence == pytest.approx(expected, abs=1e-6)
    posterior = biro.sample(likelihood, "none", seed=1, progress=False, n_sample=2000)
    # Draws beyond the prior have no weight: what is within is a share of all that were drawn.
    assert posterior.log_evidence == pytest.approx(expected, abs=4 * posterior.log_evidence_err + 1e-6)
    assert posterior.log_evidence_err < 0.03


@pytest.mark.parametrize(
    ("n", "rho", "mean"), [(2, 0.9, 1e-4), (2, -0.9, 0.01), (5, 0.9, 0.01), (5, 0.5, 0.02)]
)
def test_bells_that_priors_cut_off_together(n: int, rho: float, mean: float) -> None:
    """With equal correlations, x = sqrt(rho) z + sqrt(1 - rho) e: one integral; of two, by quadrature."""
    sigma = 0.05
    covariance = sigma**2 * (rho * np.ones((n, n)) + (1.0 - rho) * np.eye(n))
    found = biro.maximise(SmoothGaussian([Flat(0, 1, f"p{i}") for i in range(n)], [mean] * n, covariance))
    if rho > 0.0:
        low = lambda z: (-mean / sigma - math.sqrt(rho) * z) / math.sqrt(1.0 - rho)  # noqa: E731
        part = integrate.quad(lambda z: stats.norm.pdf(z) * stats.norm.sf(low(z)) ** n, -9, 9)[0]
    else:
        inner = lambda x: stats.norm.sf((-mean / sigma - rho * x) / math.sqrt(1.0 - rho**2))  # noqa: E731
        part = integrate.quad(lambda x: stats.norm.pdf(x) * inner(x), -mean / sigma, 9)[0]
    expected = 0.5 * n * math.log(2 * math.pi) + 0.5 * np.linalg.slogdet(covariance)[1] + math.log(part)
    # Genz' method is asked for 1e-4.
    assert found.log_evidence == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("width", [1e3, 0.8])
def test_draws_about_an_end_follow_the_posterior(width: float) -> None:
    """One parameter at its end, one inside, correlated: moments by quadrature.

    Where y goes no further than 0.8, the density there is still a third of what it is at the end.
    """
    matrix, slope = np.array([[4.0, 1.5], [1.5, 1.0]]), 0.7
    gradient, side = np.array([0.0, -slope]), np.array([0, -1])
    room = np.array([[1e3, 0.0], [1e3, width]]) if width < 1e3 else np.full((2, 2), 1e3)
    point = StationaryPoint(np.zeros(2), 0.0, gradient, side, matrix)
    laplace = Laplace.about(point, np.array([1e3, width]), room, "double")
    draws = laplace.draws(np.random.default_rng(0), 200_000)
    assert 0.0 <= draws[:, 1].min() < draws[:, 1].max() <= width

    def density(x: float, y: float) -> float:
        return float(np.exp(-slope * y - 0.5 * np.array([x, y]) @ matrix @ [x, y]))

    def moment(i: int, j: int) -> float:
        return float(
            integrate.dblquad(lambda x, y: x**i * y**j * density(x, y), 0, min(width, 12), -12, 12)[0]
        )

    mass = moment(0, 0)
    # Standard errors 1 / sqrt(200000) of some 0.5 and 0.7 (0.3 where y is narrow): four of them.
    tolerance = 0.007 if width > 1.0 else 0.005
    assert draws.mean(axis=0) == pytest.approx([moment(1, 0) / mass, moment(0, 1) / mass], abs=tolerance)
    assert laplace.log_evidence(0.0) == pytest.approx(math.log(mass), abs=1e-6 if width > 1.0 else 1e-9)
    if width < 1.0:
        return
    products = [moment(2, 0) / mass, moment(1, 1) / mass, moment(0, 2) / mass]
    # Gauss' rule of 64 quantiles; x alone, while y stays at its end, would have 0.25 instead of 0.40.
    np.testing.assert_allclose(laplace.spread, [products[:2], products[1:]], rtol=2e-3)
    assert laplace.error[0] == pytest.approx(math.sqrt(products[0]), rel=1e-3)
    np.testing.assert_allclose(
        laplace.log_density(draws[:5]), [math.log(density(*row)) for row in draws[:5]], rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(
    ("best", "low", "high"),
    [
        (-4.0, 0.0, 4.0),
        (-4.0, 0.0, 0.2),
        (-60.0, 0.0, 0.1),
        (-1.0, 0.0, 8.0),
        (10.0, 0.0, 3.0),
        (-9.0, 0.0, 1e3),
    ],
)
def test_an_end_of_a_prior_that_data_hardly_narrow(best: float, low: float, high: float) -> None:
    """A flux known to 4 whose prior is as wide, or much narrower: error, evidence, draws by quadrature."""
    likelihood = SmoothGaussian([Flat(low, high, "flux")], [best], [[16.0]])
    found = biro.maximise(likelihood, seed=1)
    end = low if best < low else high
    assert found["flux"] == end

    def mass(first: float, last: float) -> float:
        top = likelihood.log_likelihood(found.best_fit[None])[0]
        density = lambda x: math.exp(likelihood.log_likelihood(np.array([[x]]))[0] - top)  # noqa: E731
        return float(integrate.quad(density, first, last, epsabs=0, epsrel=1e-11, limit=200)[0])

    near, far = (low, min(high, low + 60.0)) if end == low else (low, high)
    whole = mass(near, far)
    # The curvature is a difference of gradients: 1e-9 of it.
    expected = found.log_likelihood + math.log(whole / (high - low))
    assert found.log_evidence == pytest.approx(expected, abs=1e-7)
    within = mass(low, low + found.error[0]) if end == low else mass(high - found.error[0], high)
    assert within == pytest.approx(0.682689492 * whole, rel=1e-6)
    draws = found.laplace.draws(np.random.default_rng(1), 2000)
    assert ((draws >= low) & (draws <= high)).all()
    grid = np.linspace(near, far, 2001)
    values = np.exp(likelihood.log_likelihood(grid[:, None]) - likelihood.log_likelihood(grid[:, None]).max())
    cumulative = integrate.cumulative_simpson(values, x=grid, initial=0.0)
    cdf = lambda x: np.interp(x, grid, cumulative / cumulative[-1])  # noqa: E731
    assert stats.kstest(draws[:, 0], cdf).pvalue > 1e-3
    # The approximation is exact here, so that the weights are bounded by those of the tails.
    posterior = biro.sample(likelihood, "none", seed=1, progress=False, n_sample=200)
    assert posterior.diagnostics["overlap"] > 0.9  # three draws of ten are from a density twice as wide
    assert abs(posterior.log_evidence - expected) < 4.0 * posterior.log_evidence_err
    assert posterior.diagnostics["log_evidence_laplace"] == pytest.approx(expected, abs=1e-7)
    assert_weights_are_equal(likelihood, expected, 1e-7)


@pytest.mark.parametrize(
    ("slope", "bend"), [(3.0, 1e-9), (1e-3, 30.0), (40.0, 1e-6), (1e-4, 0.5), (1e6, 1.0)]
)
def test_small_slopes_and_curvatures_at_an_end(slope: float, bend: float) -> None:
    """Where one of both does not matter: mass and quantiles by quadrature."""
    width, side, room = 1.0, np.array([-1]), np.array([[0.0], [1.0]])
    gradient, matrix = np.array([-slope]), np.array([[bend]])
    point = StationaryPoint(np.zeros(1), 0.0, gradient, side, matrix)
    laplace = Laplace.about(point, np.array([width]), room, "double")

    def mass(last: float) -> float:
        far = min(last, 50.0 / slope, 10.0 / math.sqrt(bend))
        density = lambda x: math.exp(-slope * x - 0.5 * bend * x * x)  # noqa: E731
        return float(integrate.quad(density, 0.0, far, epsabs=0, epsrel=1e-12, limit=500)[0])

    assert laplace.log_evidence(0.0) == pytest.approx(math.log(mass(width)), abs=1e-8)
    assert mass(laplace.error[0]) == pytest.approx(0.682689492137086 * mass(width), rel=1e-7)


def test_an_end_of_a_prior_without_another(tmp_path: Path) -> None:
    """A half-normal prior that is narrower than the data tell: nothing is cut off."""
    obs = simulated((-0.003, 0, 0), noise=0.1, seed=1)
    prior = '{ prior = "half-normal", sd = 0.002, unit = "Jy" }'
    text = point("s", '"0 arcsec"', '"0 arcsec"', prior) + FIXED_NOISE
    likelihood = biro.Likelihood(obs, sky(text, tmp_path))
    found = biro.maximise(likelihood, seed=1)
    assert found["s.I"] == 0.0
    columns, data = design(obs, PLACES[:1])
    precision = columns[:, 0] @ columns[:, 0] + 0.002**-2
    cut = stats.truncnorm(-(columns[:, 0] @ data) / math.sqrt(precision), np.inf, scale=precision**-0.5)
    cut = stats.truncnorm(*cut.args, loc=columns[:, 0] @ data / precision, scale=precision**-0.5)
    assert found.error[0] == pytest.approx(cut.ppf(0.682689492), rel=1e-5)
    assert found.log_evidence == pytest.approx(found.log_posterior - cut.logpdf(0.0), abs=1e-5)


@pytest.mark.parametrize("best", [-0.3, 0.005, 0.3])
def test_a_flux_that_data_do_not_know_at_all(best: float) -> None:
    """Known to 40 by the data, to 0.01 beforehand: wherever the maximum lies, it is not known."""
    likelihood = SmoothGaussian(
        [Flat(0.0, 0.01, "flux"), Flat(-5.0, 5.0, "b")], [best, 1.0], [[1600.0, 2.0], [2.0, 0.01]]
    )
    found = biro.maximise(likelihood, seed=1)
    assert found.unidentified == ["flux"]
    assert np.isnan(found.error[0])
    assert found.error[1] == pytest.approx(math.sqrt(0.01 - 4.0 / 1600.0), rel=1e-3)  # the flux held
    assert found.log_evidence is None


# --- What the data do not determine


def test_two_sources_at_one_place_are_named(tmp_path: Path) -> None:
    obs = simulated((1.0, 0, 0))
    text = "".join(point(name, '"0 arcsec"', '"0 arcsec"', uniform(0, 2, "Jy")) for name in "ab")
    text += point("c", '"3 arcsec"', '"0 arcsec"', uniform(-1, 1, "Jy"))
    likelihood = biro.Likelihood(obs, sky(text + FIXED_NOISE, tmp_path))
    found = biro.maximise(likelihood, seed=1)
    assert found.unidentified in (["a.I - 1 b.I"], ["b.I - 1 a.I"])
    assert np.isnan(found.error).tolist() == [True, True, False]
    assert found.log_evidence is None
    assert found["a.I"] + found["b.I"] == pytest.approx(1.0, abs=0.02)  # 0.1 / sqrt(600) = 0.004
    assert "DEGENERATE: the data do not constrain " in str(found)
    json.dumps(found.to_dict(), allow_nan=False)
    with pytest.raises(
        LikelihoodError, match=r"the data do not constrain (a\.I - 1 b\.I|b\.I - 1 a\.I)\. Fix or tie"
    ):
        biro.sample(likelihood, "none", seed=1, progress=False)


def test_the_position_of_no_flux_is_not_known(tmp_path: Path) -> None:
    obs = simulated((1.0, 0, 0))
    text = point("a", '"0 arcsec"', '"0 arcsec"', uniform(0, 2, "Jy"))
    text += point("b", uniform(-1, 1, "arcsec"), uniform(-1, 1, "arcsec"), '"0 Jy"')
    found = biro.maximise(biro.Likelihood(obs, sky(text + FIXED_NOISE, tmp_path)), seed=1)
    assert sorted(found.unidentified) == ["b.east", "b.north"]
    assert np.isfinite(found.error[found.names.index("a.I")])


def test_the_angle_of_a_circle_is_not_known(tmp_path: Path) -> None:
    """Round without noise: the ratio of the axes is 1, at its end, and the angle means nothing."""
    obs = simulated((1.0, 0.0, 0.0), noise=0.0, fwhm=4.0)
    text = f"""
[[source]]
name = "g"
type = "gaussian"
east = "0 arcsec"
north = "0 arcsec"
I = {uniform(0, 2, "Jy")}
emaj = {uniform(1, 10, "arcsec")}
ratio = {{ prior = "uniform", low = 0.1, high = 1 }}
pa = {uniform(0, 180, "deg")}
"""
    found = biro.maximise(biro.Likelihood(obs, sky(text + FIXED_NOISE, tmp_path)), seed=1)
    assert found["g.emaj"] == pytest.approx(4.0, rel=1e-3)
    assert found["g.ratio"] == pytest.approx(1.0, abs=1e-3)
    assert found.unidentified == ["g.pa"]


def test_an_angle_at_the_ends_of_its_range_is_within_it(tmp_path: Path) -> None:
    """Data that are the same on both sides of north: rounding decides on which of them the angle ends."""
    u, v = np.random.default_rng(4).normal(scale=400.0 / 0.02, size=(2, 200))
    u, v = np.concatenate([u, -u]), np.concatenate([v, v])
    vis = np.exp(-((np.pi * ARCSEC) ** 2) / (4 * np.log(2)) * ((5.0 * v) ** 2 + (2.5 * u) ** 2))
    obs, uvw = simulated(noise=0.0, n_row=400), 0.02 * np.column_stack([u, v, np.zeros(400)])
    vis = np.repeat(vis[:, None, None], 2, axis=2).astype(np.complex64)
    text = point("g", '"0 arcsec"', '"0 arcsec"', '"1 Jy"').replace("point", "gaussian")
    text += f'emaj = "5 arcsec"\nemin = "2.5 arcsec"\npa = {uniform(0, 180, "deg")}\n'
    obs = replace(obs, partitions=(replace(obs.partitions[0], uvw=uvw, vis=vis),))
    likelihood = biro.Likelihood(obs, sky(text + FIXED_NOISE, tmp_path))
    for starts in (10.0, 150.0, 175.0, -1e-14):
        angle = biro.maximise(likelihood, seed=1, starts=[[starts]])["g.pa"]
        assert 0.0 <= angle < 180.0
        assert math.sin(math.radians(angle)) == pytest.approx(0.0, abs=1e-9)


# --- Errors of positions


def test_the_error_of_a_position_is_beam_over_snr(tmp_path: Path) -> None:
    """sigma = theta / (sqrt(8 ln 2) SNR) = theta / (2.35 SNR), theta the FWHM of a Gaussian beam.

    Condon (1997): for uv that scatter normally with sigma_u the beam is exp(-(2 pi sigma_u x)^2 / 2).
    """
    obs = simulated((1.0, 0.3, -0.2), noise=0.5, n_row=3000)
    text = point("s", uniform(-5, 5, "arcsec"), uniform(-5, 5, "arcsec"), uniform(0, 2, "Jy"))
    found = biro.maximise(biro.Likelihood(obs, sky(text + FIXED_NOISE, tmp_path)), seed=1)
    east, north, flux = found.error
    theta = math.sqrt(8 * math.log(2)) / (2 * math.pi * 400.0 / 0.02) / ARCSEC
    expected = theta / math.sqrt(8 * math.log(2)) * flux / found["s.I"]
    # 3000 draws of u have a scatter known to 1.3 %, and real data a curvature that noise changes by 1 / SNR.
    assert east == pytest.approx(expected, rel=0.04)
    assert north == pytest.approx(expected, rel=0.04)
    assert flux == pytest.approx(0.5 / math.sqrt(2 * 2 * 3000 / 2), rel=0.01)


# --- Starts, and what goes wrong


def fit_of_one(tmp_path: Path, more: str = "") -> biro.Likelihood:
    text = point("s", uniform(-5, 5, "arcsec"), uniform(-5, 5, "arcsec"), uniform(0, 2, "Jy"))
    return biro.Likelihood(simulated((1.0, 0.3, -0.2)), sky(text + FIXED_NOISE + more, tmp_path))


def test_the_noise_that_fits_best(tmp_path: Path) -> None:
    """Where d ln L / ds is 0, for a prior that is flat; within the prior where that is not."""
    flat = '\n[noise]\nfactor = { prior = "uniform", low = 0.1, high = 50 }\n'
    both = joined(observation(1, field="A"), observation(2, field="B"))
    likelihood = biro.Likelihood(both, sky(ONE_SOURCE + flat, tmp_path))
    theta = with_best_noise(likelihood, np.array([[1.0, 0.2, 1.0, 1.0], [3.0, 0.2, 1.0, 1.0]]))
    _, gradient = likelihood.log_likelihood_and_gradient(theta)
    # 2N / s is some 150: rounding of that.
    np.testing.assert_allclose(gradient[:, 2:], 0.0, atol=1e-10)
    assert theta[0].tolist()[:2] == [1.0, 0.2]
    narrow = flat.replace("0.1", "20")
    likelihood = biro.Likelihood(both, sky(ONE_SOURCE + narrow, tmp_path))
    assert with_best_noise(likelihood, np.array([[1.0, 0.0, 30.0, 30.0]]))[0, 2] == 20.0


def test_given_starts_are_used_and_seeds_repeat(tmp_path: Path) -> None:
    likelihood = fit_of_one(tmp_path)
    given = biro.maximise(likelihood, starts=[0.2, -0.2, 0.5], seed=1)
    assert (given.n_start, given.n_end, given.searched) == (1, 1, False)
    first, second = (biro.maximise(likelihood, seed=5) for _ in range(2))
    assert first.best_fit.tolist() == second.best_fit.tolist()
    # Each is at rest to a thousandth of its error: what is left of ln p is below 1e-6.
    np.testing.assert_allclose(given.best_fit, first.best_fit, atol=2e-3 * first.error.min())
    assert first.n_start >= 16  # the search of the prior adds more


def test_fringes_are_searched_where_starts_disagree(tmp_path: Path) -> None:
    """A source anywhere within some hundred beams of 5 arcsec; few starts, if any, come near."""
    obs = simulated((1.0, 171.0, -92.0), seed=3)
    text = point("s", uniform(-250, 250, "arcsec"), uniform(-250, 250, "arcsec"), uniform(0, 2, "Jy"))
    found = biro.maximise(biro.Likelihood(obs, sky(text, tmp_path)), seed=1)
    assert (found["s.east"], found["s.north"]) == pytest.approx((171.0, -92.0), abs=0.1)
    assert found.noise_factor[0] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        (
            [9.0, 0.0, 1.0],
            r"a start lies outside the prior: s\.east = 9, which must be within -5 \.\. 5 arcsec",
        ),
        ([0.0, 0.0, -1.0], r"s\.I = -1, which must be within 0 \.\. 2 Jy"),
        ([1.0, 2.0], r"starts must be a count, or points of shape \(n_start, 3\), got \(1, 2\)"),
        (0, "starts must be at least 1, got 0"),
    ],
)
def test_starts_that_cannot_be_meant(tmp_path: Path, starts: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        biro.maximise(fit_of_one(tmp_path), starts=starts)


def test_a_start_that_breaks_a_constraint(tmp_path: Path) -> None:
    more = (
        point("t", '"1 arcsec"', '"0 arcsec"', uniform(0, 3, "Jy"))
        + '[[constraint]]\norder = ["s.I", "t.I"]\n'
    )
    with pytest.raises(InputError, match="a start breaks a constraint of the model"):
        biro.maximise(fit_of_one(tmp_path, more), starts=[0.0, 0.0, 1.0, 1.5])


def test_nothing_to_fit(tmp_path: Path) -> None:
    text = point("s", '"0 arcsec"', '"0 arcsec"', '"1 Jy"') + FIXED_NOISE
    with pytest.raises(InputError, match="nothing to"):
        biro.maximise(biro.Likelihood(observation(), sky(text, tmp_path)))


def test_a_derivative_that_is_not_a_number_is_an_error(tmp_path: Path, monkeypatch) -> None:
    likelihood = fit_of_one(tmp_path)
    good = likelihood.log_posterior_and_gradient

    def bad(theta: Array) -> tuple[Array, Array]:
        value, gradient = good(theta)
        gradient[:, 1] = np.inf
        return value, gradient

    monkeypatch.setattr(likelihood, "log_posterior_and_gradient", bad)
    with pytest.raises(
        LikelihoodError, match=r"the derivative with respect to s\.north is not a number at s\.east = "
    ):
        biro.maximise(likelihood, seed=1)


def test_a_forbidden_prior_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        fit_of_one(tmp_path, '[[constraint]]\nbounds = "s.I"\nlow = "5 Jy"\n')


def test_it_prints_and_saves(tmp_path: Path) -> None:
    found = biro.maximise(fit_of_one(tmp_path), seed=1)
    text = str(found)
    assert "s.north" in text
    assert "log-evidence" in text
    assert "chi2/dof" in text
    with pytest.raises(InputError, match=r"no parameter 's\.Q'; there are s\.east"):
        found["s.Q"]
    found.save(tmp_path / "maximum.json")
    record = json.loads((tmp_path / "maximum.json").read_text())
    assert record["parameters"]["s.I"]["value"] == found["s.I"]
    assert record["parameters"]["s.I"]["unit"] == "Jy"
    assert record["converged"] is True
    assert np.array(record["covariance"]).shape == (3, 3)


def test_a_partition_without_visibilities_has_no_chi2(tmp_path: Path) -> None:
    """Its 0 / 0 is null in the file, which is JSON to those who do not know NaN."""
    both = joined(observation(1, field="A"), observation(2, field="B"))
    empty = replace(both.partitions[1], weight=np.zeros_like(both.partitions[1].weight))
    obs = replace(both, partitions=(both.partitions[0], empty))
    found = biro.maximise(biro.Likelihood(obs, sky(ONE_SOURCE + FIXED_NOISE, tmp_path)), seed=1)
    assert found.n_vis[1] == 0
    assert np.isnan(found.reduced_chi2).tolist() == [False, True]
    found.save(tmp_path / "maximum.json")

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    record = json.loads((tmp_path / "maximum.json").read_text(), parse_constant=refuse)
    assert [part["reduced_chi2"] for part in record["partitions"]] == [found.reduced_chi2[0], None]
    assert record["partitions"][1]["n_vis"] == 0
    assert f"{found.labels[1]}: no visibilities" in str(found)


def test_single_precision_finds_the_same(tmp_path: Path) -> None:
    text = ONE_SOURCE
    double, single = (
        biro.maximise(biro.Likelihood(observation(), sky(text, tmp_path), precision=precision), seed=1)
        for precision in ("double", "single")
    )
    assert single.converged
    # At rest to a hundredth of ln p: a tenth of an error.
    assert np.abs((single.best_fit - double.best_fit) / double.error).max() < 0.1
    np.testing.assert_allclose(single.error, double.error, rtol=0.05)


# --- As a sampler


def test_draws_about_the_maximum_are_a_posterior(tmp_path: Path) -> None:
    obs = simulated((1.0, 0, 0), (0.5, 3, -2), (0.2, -4, 5))
    text = "".join(
        point(f"s{i}", f'"{x} arcsec"', f'"{y} arcsec"', uniform(-3, 3, "Jy"))
        for i, (x, y) in enumerate(PLACES)
    )
    likelihood = biro.Likelihood(obs, sky(text + FIXED_NOISE, tmp_path))
    posterior = biro.sample(likelihood, "none", seed=2, progress=False, n_sample=4000)
    columns, data = design(obs, PLACES)
    best, covariance = (
        np.linalg.solve(columns.T @ columns, columns.T @ data),
        np.linalg.inv(columns.T @ columns),
    )
    np.testing.assert_allclose(posterior.best_fit, best, rtol=1e-6)
    # The posterior is normal, and three draws of ten come from wider tails: 4000 are worth 3000.
    assert posterior.diagnostics["overlap"] > 0.75
    sd, weight = np.sqrt(np.diag(covariance)), posterior.weight
    assert np.abs((weight @ posterior.samples - best) / sd).max() < 4.0 / np.sqrt(3000)
    np.testing.assert_allclose(
        np.cov(posterior.samples.T, aweights=weight), covariance, atol=0.1 * np.outer(sd, sd).max()
    )
    residual = data - columns @ best
    evidence = -0.5 * residual @ residual - 0.5 * data.size * np.log(2 * np.pi)
    evidence += (
        np.log(obs.partitions[0].weight.astype(float)).sum() + 1.5 * np.log(2 * np.pi) - 3 * np.log(6.0)
    )
    evidence += 0.5 * np.linalg.slogdet(covariance)[1]
    assert abs(posterior.log_evidence - evidence) < 4.0 * posterior.log_evidence_err
    assert posterior.diagnostics["log_evidence_laplace"] == pytest.approx(evidence, abs=1e-5)
    assert_weights_are_equal(likelihood, evidence, 1e-5)
    np.testing.assert_allclose(
        posterior.log_likelihood[:5], likelihood.log_likelihood(posterior.samples[:5]), rtol=1e-12
    )


def test_an_angle_that_is_hardly_known_counts_one_turn(tmp_path: Path) -> None:
    """The angle of an almost round Gaussian: the evidence is an integral over one half turn."""
    obs = simulated((1.0, 0.0, 0.0), noise=0.1, fwhm=4.0)
    text = f"""
[[source]]
name = "g"
type = "gaussian"
east = "0 arcsec"
north = "0 arcsec"
I = "1 Jy"
emaj = "4.05 arcsec"
ratio = 0.975
pa = {uniform(0, 180, "deg")}
"""
    likelihood = biro.Likelihood(obs, sky(text + FIXED_NOISE, tmp_path))
    posterior = biro.sample(likelihood, "none", seed=1, progress=False, n_sample=4000)
    assert posterior.samples.min() >= 0.0
    assert posterior.samples.max() < 180.0
    assert np.ptp(posterior.samples) > 120.0  # hardly known
    grid = np.linspace(0.0, 180.0, 721)[:-1, None]
    values = likelihood.log_likelihood(grid)
    evidence = values.max() + np.log(np.mean(np.exp(values - values.max())))
    assert posterior.log_evidence == pytest.approx(evidence, abs=4 * posterior.log_evidence_err)
    assert posterior.log_evidence_err < 0.03


@pytest.mark.slow
def test_evidences_of_laplace_and_nested_sampling_agree(tmp_path: Path) -> None:
    """Six parameters, as good as normal: two points whose positions are known to a tenth of a beam."""
    obs = simulated((1.0, 0, 0), (0.5, 3, -2), noise=0.2)
    text = point("a", uniform(-2, 2, "arcsec"), uniform(-2, 2, "arcsec"), uniform(0, 3, "Jy"))
    text += point("b", uniform(1, 5, "arcsec"), uniform(-4, 0, "arcsec"), uniform(0, 3, "Jy"))
    likelihood = biro.Likelihood(obs, sky(text + FIXED_NOISE, tmp_path))
    found = biro.maximise(likelihood, seed=1)
    assert likelihood.n_param == 6
    posterior = biro.sample(likelihood, "none", seed=1, progress=False)
    nested = biro.sample(likelihood, "dynesty", seed=1, progress=False, n_live=50)
    # Importance sampling says how far from normal it is; nested sampling knows ln Z to some 0.5.
    assert posterior.diagnostics["overlap"] > 0.7
    assert found.log_evidence == pytest.approx(posterior.log_evidence, abs=0.1)
    assert nested.log_evidence == pytest.approx(posterior.log_evidence, abs=4 * nested.log_evidence_err)


def test_a_run_directory_has_the_maximum(tmp_path: Path) -> None:
    likelihood = fit_of_one(tmp_path)
    run = tmp_path / "run"
    posterior = biro.sample(likelihood, "none", run_dir=run, seed=1, progress=False, n_sample=50)
    record = json.loads((run / "maximum.json").read_text())
    assert record["parameters"]["s.I"]["value"] == posterior.best_fit[2]
    again = biro.sample(likelihood, "none", run_dir=run, progress=False, n_sample=50)
    assert again.samples.tolist() == posterior.samples.tolist()
    assert "weighted draws around it" in str(posterior.summary())


# --- Places where a gradient is zero and nothing is highest


class Saddle(SmoothGaussian):
    """ln L = -20 (p^2 - 1)^2 - 1000 q^2 - 12.5 (c - 1/2)^2 with p and q (a + b) and (a - b) over sqrt(2).

    At p = 0 it curves the wrong way along neither a nor b, but between them.
    """

    def __init__(self) -> None:
        super().__init__([Flat(-3, 3, name) for name in "abc"], [0.0, 0.0, 0.5], np.eye(3))

    def log_posterior_and_gradient(self, theta: Array) -> tuple[Array, Array]:
        turn = np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [0.0, 0.0, math.sqrt(2.0)]]) / math.sqrt(2.0)
        p, q, c = turn @ theta.T
        value = -20 * (p**2 - 1) ** 2 - 1000 * q**2 - 12.5 * (c - 0.5) ** 2 + self.log_prior(theta)
        slope = np.array([-80 * p * (p**2 - 1), -2000 * q, -25 * (c - 0.5)]).T @ turn
        return value, np.where(np.isfinite(value)[:, None], slope, np.nan)


def test_a_saddle_is_left() -> None:
    found = biro.maximise(Saddle(), seed=1, starts=[[0.0, 0.0, 2.0]])
    # Another step adds less than 1e-6 to ln p, whose curvature along p is 160: 1e-4.
    np.testing.assert_allclose(np.abs(found.best_fit), [0.5**0.5, 0.5**0.5, 0.5], rtol=0, atol=2e-4)
    along = math.sqrt(0.5 / 160 + 0.5 / 2000)
    np.testing.assert_allclose(found.error, [along, along, 0.2], rtol=5e-3)  # differences of 0.02 sigma
    assert found.converged
    assert found.unidentified == []


def test_a_search_that_is_cut_short_tells_of_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last step leads off the saddle: value and errors are those of the place, not of the saddle."""
    monkeypatch.setattr("biro.inference.maximum.newton.N_NEWTON", 1)
    likelihood = Saddle()
    found = biro.maximise(likelihood, seed=1, starts=[[0.0, 0.0, 2.0]])
    np.testing.assert_allclose(np.abs(found.best_fit), [0.5**0.5, 0.5**0.5, 0.5], rtol=0, atol=2e-3)
    assert found.log_posterior == likelihood.log_posterior(found.best_fit[None])[0]
    along = math.sqrt(0.5 / 160 + 0.5 / 2000)
    np.testing.assert_allclose(found.error, [along, along, 0.2], rtol=2e-2)  # it is at rest to 0.02 sigma


def test_an_ellipse_across_the_true_one_turns(tmp_path: Path) -> None:
    """At right angles to the truth a circle fits best, whose angle does not matter; two sources at once."""
    u, v = np.random.default_rng(4).normal(scale=400.0 / 0.02, size=(2, 200))
    # The same on both sides of north: the slope of an angle across the truth is then exactly 0.
    u, v = np.concatenate([u, -u]), np.concatenate([v, v])
    major, minor = 5.0 * ARCSEC, 2.5 * ARCSEC
    shape = np.exp(-(np.pi**2) / (4 * np.log(2)) * ((major * v) ** 2 + (minor * u) ** 2))
    obs = simulated(noise=0.0, n_row=400)
    places = {"a": 0.0, "b": 40.0}
    vis = shape * sum(np.exp(2j * np.pi * u * east * ARCSEC) for east in places.values())
    uvw = 0.02 * np.column_stack([u, v, np.zeros(400)])
    part = replace(
        obs.partitions[0], uvw=uvw, vis=np.repeat(vis[:, None, None], 2, axis=2).astype(np.complex64)
    )
    free = f"""emaj = {uniform(1, 20, "arcsec")}
pa = {uniform(0, 180, "deg")}
ratio = {{ prior = "uniform", low = 0.1, high = 1 }}
"""
    text = "".join(
        point(name, f'"{east} arcsec"', '"0 arcsec"', uniform(0, 3, "Jy")).replace("point", "gaussian") + free
        for name, east in places.items()
    )
    likelihood = biro.Likelihood(replace(obs, partitions=(part,)), sky(text + FIXED_NOISE, tmp_path))
    start = {"I": 1.0, "emaj": 5.0, "ratio": 0.55, "pa": 90.0}
    theta = [start[name.split(".")[1]] for name in likelihood.parameter_names]
    found = biro.maximise(likelihood, seed=1, starts=[theta])
    assert found.converged
    for name in places:
        assert found[f"{name}.ratio"] == pytest.approx(0.5, abs=1e-4)  # data are in single precision
        assert math.sin(math.radians(found[f"{name}.pa"])) == pytest.approx(0.0, abs=1e-4)


def test_many_parameters_keep_the_steps_of_their_differences() -> None:
    """A curvature costs two gradients a parameter; more only where a step is far from what it should be."""
    rng, n = np.random.default_rng(3), 40
    sigma = 10.0 ** rng.uniform(-3, 0, n)
    mixed = np.eye(n) + 0.02 * rng.normal(size=(n, n))
    covariance = sigma[:, None] * (mixed @ mixed.T) * sigma
    precision = np.linalg.inv(covariance)
    low, high, theta, n_row = -1000.0 * sigma, 1000.0 * sigma, 0.5 * sigma, 0

    def gradient(rows: Array) -> Array:
        nonlocal n_row
        n_row += len(rows)
        return -rows @ precision

    right = 0.02 / np.sqrt(np.diag(precision))  # the stated fraction of one sigma with the others fixed
    scale = np.sqrt(np.diag(precision))
    for step, n_far in ((right, 0), (1.2 * right, 0), (np.where(np.arange(n) < 3, 20.0, 1.0) * right, 3)):
        n_row = 0
        # The first guess is 10 times too long: one round finds the right step, and one that it is right.
        matrix, found = curvature_by_steps(gradient, theta, low, high, step, 10.0 * right, "double")
        # Differences of a linear gradient are exact but for rounding, 1e-16 x 0.5 sigma in 0.02 sigma.
        np.testing.assert_allclose(
            matrix / np.outer(scale, scale), precision / np.outer(scale, scale), rtol=0, atol=1e-12
        )
        looked_for = 2 * (1 + n_far) + 2 * n_far + 1 if n_far else 0  # two rounds, then both sides again
        assert n_row == 2 * n + 1 + looked_for
        np.testing.assert_allclose(found, np.where(np.arange(n) < n_far, right, step), rtol=1e-9)


def test_a_climb_of_many_parameters_goes_by_all_of_the_curvature() -> None:
    """Parameters depend on each other: where the curvature is known, hills are round and climbs short."""
    rng, n = np.random.default_rng(4), 40
    sigma = 10.0 ** rng.uniform(-3, 0, n)
    directions, _ = np.linalg.qr(rng.normal(size=(n, n)))
    correlation = directions * np.geomspace(1e-4, 1.0, n) @ directions.T
    covariance = sigma[:, None] * correlation * sigma
    priors = [Flat(-1000 * x, 1000 * x, f"p{i}") for i, x in enumerate(sigma)]
    objective = Objective(SmoothGaussian(priors, np.zeros(n), covariance))
    end = climb_on(objective, sigma * rng.normal(size=n), np.linalg.inv(covariance))
    away = np.linalg.solve(np.linalg.cholesky(covariance), end)
    # In parameters over their errors lengths differ by 100: some hundred gradients without the curvature.
    assert objective.n_row < 40
    # It ends where the last step gained less than 1e-11 of ln p, some 100: about 1e-9 = away^2 / 2.
    assert np.linalg.norm(away) < 1e-3
