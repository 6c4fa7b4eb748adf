"""Posteriors with several maxima, and skewed ones, against closed forms of evidence, places and weights."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest
from gaussian_likelihood import Flat, SmoothGaussian
from scipy import integrate, stats
from test_maximum import ARCSEC, FIXED_NOISE, Array, C, point, simulated, sky, uniform

import biro
from biro.errors import LikelihoodError
from biro.inference.maximum.bridge import (
    effective_of_modes,
    error_of_largest,
    errors_by_drift,
    evidence_of_mode,
)
from biro.inference.maximum.climbs import Climbs
from biro.inference.maximum.objective import Objective
from biro.inference.posterior.pareto import smoothed
from biro.inference.samplers.nuts import NutsRun
from biro.inference.samplers.sampling import sample
from biro.inference.target.checked import Target


class Analytic(SmoothGaussian):
    """A likelihood whose logarithm and slope are given as functions of theta (n, n_param)."""

    def __init__(self, priors, value_and_slope):
        super().__init__(priors, np.zeros(len(priors)), np.eye(len(priors)))
        self._value_and_slope = value_and_slope

    def log_likelihood(self, theta):
        return self._value_and_slope(theta)[0]

    def chi2(self, theta):
        return np.full((*theta.shape[:-1], 1), 2.0 * self.n_vis[0])  # weights and model are right

    def log_posterior_and_gradient(self, theta):
        value, slope = self.log_prior(theta), np.full(theta.shape, np.nan)
        inside = np.isfinite(value)
        log_likelihood, slope[inside] = self._value_and_slope(theta[inside])
        value[inside] += log_likelihood
        return value, slope


def two_peaks(centres, log_heights, sigma: float = 0.01) -> Analytic:
    """Round normal peaks in two dimensions, within a prior of -2 .. 2."""
    centres, log_heights = np.asarray(centres, float), np.asarray(log_heights, float)

    def value_and_slope(theta):
        away = theta[:, None] - centres
        each = log_heights - 0.5 * (away**2).sum(axis=2) / sigma**2
        value = np.logaddexp.reduce(each, axis=1)
        part = np.exp(each - value[:, None])
        return value, -np.einsum("nk,nki->ni", part, away) / sigma**2

    return Analytic([Flat(-2, 2, "x"), Flat(-2, 2, "y")], value_and_slope)


@pytest.mark.parametrize("gap", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_evidence_is_that_of_both_peaks(gap: float, seed: int) -> None:
    """Z = 2 pi sigma^2 (1 + e^-gap) / 16; the peaks are 240 sigma apart, and no height tells them apart."""
    found = sample(two_peaks([[-1.2, 0.3], [1.2, 0.3]], [0.0, -gap]), "none", seed=seed, progress=False)
    exact = np.log(2.0 * np.pi * 0.01**2 * (1.0 + np.exp(-gap)) / 16.0)
    # Four of its errors, and those are below 0.03: the proposal is the posterior but for its tails.
    assert found.log_evidence_err < 0.03
    assert abs(found.log_evidence - exact) < 4.0 * found.log_evidence_err + 1e-3
    x, weight = found.weighted_draws("x")
    share = weight[x > 0.0].sum()
    # As many draws as are effective, of two kinds: four of their sigma.
    assert abs(share - 1.0 / (1.0 + np.exp(gap))) < 4.0 * 0.5 / np.sqrt(found.effective[0])
    assert "SEVERAL MODES: the posterior has 2" in str(found.summary()).splitlines()[0]


def test_ends_at_two_places_do_not_agree() -> None:
    """Three starts beside one peak and one beside the other, which is as high."""
    likelihood = two_peaks([[-1.2, 0.3], [1.2, 0.3]], [0.0, -0.2])
    starts = [[-1.21, 0.3], [-1.19, 0.31], [-1.2, 0.29], [1.21, 0.3]]
    found = biro.maximise(likelihood, starts=starts, seed=1)
    assert (found.n_agree, found.n_end, len(found.modes)) == (3, 4, 2)
    other = found.modes[1]
    np.testing.assert_allclose(other.laplace.theta, [1.2, 0.3], atol=1e-6)  # of a sigma of 0.01
    np.testing.assert_allclose(other.laplace.error, 0.01, rtol=1e-3)  # from differences of the slope
    assert found.modes[0].log_evidence - other.log_evidence == pytest.approx(0.2, abs=1e-3)
    text = str(found)
    assert "SEVERAL MODES" in text.splitlines()[0]
    assert "mode 2: " in text
    assert len(found.to_dict()["modes"]) == 2


def test_one_peak_is_one_mode() -> None:
    found = biro.maximise(two_peaks([[-1.2, 0.3]], [0.0]), seed=1)
    assert (len(found.modes), found.warnings(), found.n_search) == (1, [], 0)


def test_emcee_visits_both_peaks() -> None:
    """Walkers begin at both and cross, so that their part of the draws is that of the evidence."""
    likelihood = two_peaks([[-1.2, 0.3], [1.2, 0.3]], [0.0, -1.0])
    found = sample(likelihood, "emcee", seed=2, n_walker=32, progress=False)
    share = float(np.mean(found["x"] > 0.0))
    # Some hundred independent crossings: 4 sigma of a fraction of 0.27.
    assert abs(share - 1.0 / (1.0 + np.e)) < 0.15
    assert found.diagnostics["n_mode"] == 2.0


def test_equal_sources_are_named_and_both_orders_count(tmp_path: Path) -> None:
    """With the order of fluxes as a constraint the prior is halved and so is the posterior: Z is the same."""
    text = "".join(
        point(name, uniform(-2, 2, "arcsec"), uniform(-2, 2, "arcsec"), uniform(0, 2, "Jy")) for name in "ab"
    )
    data = simulated((1.0, 0.8, 0.3), (0.7, -0.9, 0.1), seed=4)
    order = '\n[[constraint]]\norder = ["a.I", "b.I"]\n'
    free, ordered = (
        sample(
            biro.Likelihood(data, sky(text + FIXED_NOISE + more, tmp_path)), "none", seed=1, progress=False
        )
        for more in ("", order)
    )
    error = np.hypot(free.log_evidence_err, ordered.log_evidence_err)
    assert abs(free.log_evidence - ordered.log_evidence) < 4.0 * error + 1e-3
    assert np.mean(free["a.I"] > free["b.I"]) == pytest.approx(0.5, abs=0.1)
    assert "a constraint on the" in str(free.summary())
    assert "MODES" not in str(ordered.summary())
    maximum = biro.maximise(biro.Likelihood(data, sky(text + FIXED_NOISE, tmp_path)), seed=1)
    assert maximum.exchangeable == ("a, b",)
    assert len(maximum.modes) == 2


def skewed(shape: float) -> Analytic:
    """A gamma distribution in each of two dimensions, within a prior of 0 .. 60."""

    def value_and_slope(theta):
        with np.errstate(divide="ignore"):
            value = ((shape - 1.0) * np.log(theta) - theta).sum(axis=1)
        return value, (shape - 1.0) / theta - 1.0

    return Analytic([Flat(0, 60, "x"), Flat(0, 60, "y")], value_and_slope)


@pytest.mark.parametrize("shape", [4.0, 10.0])
def test_errors_of_the_evidence_are_honest_for_skewed_posteriors(shape: float) -> None:
    one, _ = integrate.quad(lambda x: x ** (shape - 1.0) * np.exp(-x), 0.0, 60.0)
    exact, pulls, means = 2.0 * np.log(one / 60.0), [], []
    for seed in range(20):
        found = sample(skewed(shape), "none", seed=seed, progress=False)
        assert found.diagnostics["pareto_k"] < 0.7
        pulls.append((found.log_evidence - exact) / found.log_evidence_err)
        x, weight = found.weighted_draws("x")
        means.append((weight @ x - shape) / np.sqrt(shape / found.effective[0]))
    # Sums of 20 squares: one case of a thousand is outside on either side.
    low, high = stats.chi2.ppf([0.0005, 0.9995], 20)
    assert np.sum(np.square(pulls)) < high, pulls
    # The draws have the mean of the gamma distribution, with errors as their effective number says.
    assert low < np.sum(np.square(means)) < high, means


def test_weights_without_bound_are_said_to_be_worth_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow peak on a pedestal that has most of the mass: the normal distribution does not know it.

    Draws by tempering do, and are covered by more than that distribution.
    """

    def value_and_slope(theta):
        peak = 4.0 - 0.5 * (theta**2).sum(axis=1) / 1e-4
        floor = -0.5 * (theta**2).sum(axis=1) / 4.0
        value = np.logaddexp(peak, floor)
        part = np.exp(peak - value)[:, None]
        return value, -theta * (part / 1e-4 + (1.0 - part) / 4.0)

    likelihood = Analytic([Flat(-20, 20, name) for name in "xyz"], value_and_slope)
    found = sample(likelihood, "none", seed=1, progress=False)
    exact = np.log((8.0 * np.pi) ** 1.5 + np.exp(4.0) * (2.0 * np.pi * 1e-4) ** 1.5) - 3.0 * np.log(40.0)
    assert found.log_evidence_err < 0.1
    assert abs(found.log_evidence - exact) < 4.0 * found.log_evidence_err
    monkeypatch.setattr("biro.inference.maximum.tempering.exploration.tempered", lambda *given: None)
    monkeypatch.setattr("biro.inference.maximum.proposal.OF_PRIOR", 0.0)
    found = sample(likelihood, "none", seed=1, progress=False)
    assert found.diagnostics["pareto_k"] > 0.7
    table = found.summary()
    assert str(table).startswith("DO NOT TRUST INTERVALS AND EVIDENCE")
    assert table.cells()[1][-1] == "-"  # no effective sample size


@pytest.mark.parametrize("dof", [1.5, 3.0, 20.0])
def test_smoothed_weights_are_those_of_arviz(dof: float) -> None:
    arviz = pytest.importorskip("arviz")
    log_weight = np.random.default_rng(3).standard_t(dof, 2000)
    ours = smoothed(log_weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, k = arviz.psislw(log_weight.copy())
    # Two programs of one formula in double precision.
    assert ours.k == pytest.approx(float(k), abs=1e-10)
    normalised = ours.log_weight - np.logaddexp.reduce(ours.log_weight)
    np.testing.assert_allclose(normalised, np.asarray(theirs), atol=1e-10)


def test_weights_on_a_plateau_have_no_tail() -> None:
    """Weights from 0.75 to 1 are bounded: nothing larger is missing, however their ends are shaped."""
    for seed in range(20):
        weight = 1.0 - 0.25 * np.random.default_rng(seed).random(1000) ** 3
        found = smoothed(np.log(weight))
        assert found.k < 0.0
        np.testing.assert_array_equal(found.log_weight, np.log(weight))


@pytest.mark.parametrize("n", [50, 1000])
def test_bridge_sampling_knows_the_evidence_of_a_mode_and_its_error(n: int) -> None:
    """Independent draws of one of two normal peaks: Z = 2 pi sigma^2 / 16."""
    likelihood = two_peaks([[-1.2, 0.3], [1.2, 0.3]], [0.0, -1.0])
    target, modes = Target(likelihood), biro.maximise(likelihood, seed=1).modes
    exact, pulls = np.log(2.0 * np.pi * 0.01**2 / 16.0), []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        theta = np.array([-1.2, 0.3]) + 0.01 * rng.normal(size=(n, 2))
        found = evidence_of_mode(target, modes, [0], (theta, target.log_posterior(theta)), n, rng)
        pulls.append((found.log_evidence - exact) / found.error)
    assert found.error < 0.03
    low, high = stats.chi2.ppf([0.0005, 0.9995], 40)  # one case of a thousand is outside
    assert low < np.sum(np.square(pulls)) < high, pulls


@pytest.mark.parametrize("part", [[0.5, 0.5], [0.9, 0.1], [0.2, 0.3, 0.5]])
def test_drift_is_that_of_points_which_are_drawn_anew(part: list[float]) -> None:
    """Parts of a multinomial number n / H have variances p (1 - p) H / n, and a mean of it follows."""
    parts, variance = np.array(part), 30.0 / 200
    errors = errors_by_drift(parts, 30.0, 200)
    largest = parts.max()
    assert error_of_largest(parts, errors) == pytest.approx(np.sqrt(largest * (1.0 - largest) * variance))
    means, nothing = np.arange(len(parts))[:, None] * 1.0, np.zeros((len(parts), 1))
    found = effective_of_modes(parts, errors, means, nothing, nothing + 1.0)
    # The variance of sum p_k m_k is that of m over n / H draws.
    assert found == pytest.approx(1.0 / variance)


def test_a_climb_that_fails_costs_no_nested_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAPACK may give up on a curvature after hours of sampling."""

    def gives_up(*given):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr("biro.inference.samplers.add_maximum.Climbs", gives_up)
    monkeypatch.setattr("biro.inference.samplers.add_maximum.climb_on", gives_up)
    likelihood = two_peaks([[-1.2, 0.3]], [0.0], sigma=0.3)
    found = sample(likelihood, "dynesty", seed=1, progress=False, n_live=50, dlogz=1.0)
    assert found.peak is None
    assert found.log_evidence is not None


def test_chains_begin_where_a_constraint_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the places about each peak are beyond the constraint, where nutpie begins no chain."""
    likelihood = two_peaks([[-1.2, 0.3], [1.2, 0.3]], [0.0, -1.0])
    modes = list(biro.maximise(likelihood, seed=1).modes)
    likelihood.allowed = lambda theta: theta[:, 1] >= 0.3
    monkeypatch.setattr(NutsRun, "_find_modes", lambda self, stop, progress: modes)
    found = sample(likelihood, "nuts", seed=1, progress=False, n_draw=50, n_tune=50)
    assert found["y"].min() >= 0.3
    assert set(np.sign(found["x"])) == {-1.0, 1.0}


def test_what_no_chain_explored_is_not_called_little() -> None:
    """All chains have left for one mode, while Laplace's method gives 30 % to the other."""
    found = sample(two_peaks([[-1.2, 0.3], [1.2, 0.3]], [0.0, -0.8]), "none", seed=1, progress=False)
    diagnostics = {**found.diagnostics, "n_explored": 1.0, "unexplored": 0.3, "share_error": 0.0}
    provenance = dataclasses.replace(found.provenance, sampler="nuts")
    table = dataclasses.replace(found, diagnostics=diagnostics, provenance=provenance).summary()
    text = " ".join(str(table).split())
    assert "30 % of the evidence is in modes that no chain explored" in text
    assert "less than 1 %" not in text


@pytest.mark.parametrize(
    ("sampler", "options"),
    [("nuts", {"n_draw": 300, "n_tune": 150}), ("dynesty", {"n_live": 100})],
    ids=["nuts", "dynesty"],
)
def test_parts_of_modes_have_honest_errors(sampler: str, options: dict) -> None:
    """NUTS stays in a mode; points of nested sampling drift between modes, by 0.09 with 100 of them."""
    likelihood = two_peaks([[-1.2, 0.3], [1.2, 0.3]], [0.0, -1.0])
    exact, pulls, means, errors = 1.0 / (1.0 + np.e), [], [], []
    for seed in range(4):
        found = sample(likelihood, sampler, seed=seed, progress=False, **options)
        x, weight = found.weighted_draws("x")
        share = weight[x > 0.0].sum()
        errors.append(found.diagnostics["share_error"])
        pulls.append((share - exact) / errors[-1])
        means.append((weight @ x - (2.4 * exact - 1.2)) ** 2 * found.effective[0])
    variance = 0.01**2 + 2.4**2 * exact * (1.0 - exact)
    high = stats.chi2.ppf(0.999, 4)
    assert np.sum(np.square(pulls)) < high, pulls
    assert np.sum(means) / variance < high, means
    # Of a mode with fewer than 30 effective samples the drift alone is known.
    assert np.median(errors) < 0.01
    text = str(found.summary()).replace("\n", " ")
    assert "SEVERAL MODES: the posterior has 2 separate maxima" in text


@pytest.fixture(scope="module")
def sidelobes(tmp_path_factory: pytest.TempPathFactory):
    """Three spacings close to multiples of one another: five places of a source fit, 10.3 arcsec apart.

    Likelihood; ln Z and parts of the five places, summed over a grid of east and flux.
    """
    rng = np.random.default_rng(2)
    uvw = np.column_stack([np.repeat([400.0, 803.0, 1196.0], 40), np.zeros(120), np.zeros(120)])
    signal = np.exp(2j * np.pi * uvw[:, 0] * 2.0 * ARCSEC / 0.02)[:, None, None]
    noise = rng.normal(size=(120, 1, 2)) + 1j * rng.normal(size=(120, 1, 2))
    data = biro.Observation.from_arrays(
        vis=signal + noise,
        uvw=uvw,
        antenna1=np.zeros(120, int),
        antenna2=np.ones(120, int),
        time=np.arange(120.0),
        chan_freq=[C / 0.02],
        corr_type=["XX", "YY"],
    )
    source = point("a", uniform(-25, 25, "arcsec"), '"0 arcsec"', uniform(0, 3, "Jy"))
    likelihood = biro.Likelihood(data, sky(source + FIXED_NOISE, tmp_path_factory.mktemp("sidelobes")))
    east, flux = np.linspace(-25, 25, 1001), np.linspace(0, 3, 151)  # steps of a fifth of a sigma, or less
    grid = np.stack(np.meshgrid(east, flux, indexing="ij"), axis=-1).reshape(-1, 2)
    value = np.concatenate([likelihood.log_likelihood(part) for part in np.array_split(grid, 40)])
    weight = np.exp(value - value.max()).reshape(1001, 151)
    parts = np.array([weight[lobe_of(east) == k].sum() for k in range(5)]) / weight.sum()
    return likelihood, float(np.log(weight.mean()) + value.max()), parts


FEW = {"n_tau": 25.0, "tau_change": 0.2}
"""Steps of emcee: half as many as usual, some hundred effective samples."""


def lobe_of(east: Array) -> Array:
    return np.clip(np.rint((east - 2.0) / (0.02 / 400.0 / ARCSEC)), -2, 2).astype(int) + 2


@pytest.mark.parametrize("sampler", ["none", "nuts", "dynesty", "emcee", "tempering"])
def test_sidelobes_have_the_parts_that_a_grid_has(sidelobes, sampler: str) -> None:
    likelihood, log_evidence, parts = sidelobes
    assert np.sum(parts > 0.04) == 5
    options = {"none": {}, "nuts": {"n_draw": 400, "n_tune": 200}, "dynesty": {"n_live": 200}, "emcee": FEW}
    options["tempering"] = {"n_walker": 8, "n_effective": 600}
    found = sample(likelihood, sampler, seed=1, progress=False, **options[sampler])
    east, weight = found.weighted_draws("a.east")
    got = np.bincount(lobe_of(east), weight, 5)
    # Four sigma of a part, with as many independent samples as are stated.
    error = np.sqrt(parts * (1.0 - parts) / found.effective.min())
    assert (np.abs(got - parts) < 4.0 * error).all(), (got, parts, error)
    assert error.max() < 0.05
    if found.log_evidence is not None:
        assert abs(found.log_evidence - log_evidence) < 4.0 * found.log_evidence_err
    assert "SEVERAL MODES: the posterior has 5 separate maxima" in str(found.summary())


def test_a_curvature_without_an_inverse_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAPACK gives up on matrices with numbers that are far apart; no user sees its traceback."""

    def gives_up(matrix):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr("biro.inference.maximum.laplace.np.linalg.eigh", gives_up)
    with pytest.raises(LikelihoodError, match=r"cannot be inverted \(Eigenvalues did not converge\)"):
        biro.maximise(two_peaks([[-1.2, 0.3]], [0.0]), seed=1)


def test_climbs_that_were_given_up_are_at_no_new_maximum() -> None:
    """A bent ridge in ten dimensions has one maximum, at 0: of climbs from draws none ends elsewhere."""
    width = 0.003

    def value_and_slope(theta):
        # ln L = -(x / 0.5)^2 / 2 - sum (y_i - x^2)^2 / (2 width^2)
        x, away = theta[:, 0], theta[:, 1:] - theta[:, :1] ** 2
        value = -2.0 * x**2 - 0.5 * (away**2).sum(axis=1) / width**2
        along = -4.0 * x + 2.0 * x * away.sum(axis=1) / width**2
        return value, np.concatenate([along[:, None], -away / width**2], axis=1)

    likelihood = Analytic([Flat(-3, 3, name) for name in "xabcdefghi"], value_and_slope)
    rng = np.random.default_rng(1)
    x = rng.normal(scale=0.5, size=(48, 1))
    draws = np.concatenate([x, x**2 + width * rng.normal(size=(48, 9))], axis=1)
    climbs = Climbs(Objective(likelihood), Target(likelihood).columns, draws[:16])
    assert climbs.add(draws[16:]) == 0.0
    assert climbs.n_climb < 48  # some were given up
    assert len(climbs.found.modes) == 1
    assert np.abs(climbs.rest.laplace.theta).max() < 0.01  # 0.02 sigma of x
