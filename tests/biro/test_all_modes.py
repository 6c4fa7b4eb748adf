"""Posteriors of several modes, against quadrature: none is left out, or the table says so."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

import numpy as np
import pytest
from gaussian_likelihood import Flat, SmoothGaussian
from scipy import special, stats
from test_maximum import ARCSEC, FIXED_NOISE, C, point, sky, uniform
from test_modes import Analytic, two_peaks

import biro
from biro.inference.maximum.objective import Objective
from biro.inference.maximum.starts import cover, starting_points
from biro.inference.maximum.tempering import exploration
from biro.inference.maximum.tempering.particles import temper
from biro.inference.samplers.coordinates.bent import Bent
from biro.inference.samplers.regions import Regions
from biro.inference.samplers.sampling import sample
from biro.inference.target.checked import Target
from biro.run.interrupt import RunInterrupted

FLUX = '"1 Jy"'


def one_baseline(spacings: list[float], east: float, noise: float, seed: int) -> biro.Observation:
    """XX and YY of a point of 1 Jy at 2 cm, on baselines of these lengths in metres."""
    rng, n = np.random.default_rng(seed), len(spacings)
    uvw = np.column_stack([spacings, np.zeros(n), np.zeros(n)])
    vis = np.exp(2j * np.pi * uvw[:, 0] * east * ARCSEC / 0.02)[:, None, None]
    error = rng.normal(size=(n, 1, 2)) + 1j * rng.normal(size=(n, 1, 2))
    return biro.Observation.from_arrays(
        vis=vis + noise * error,
        uvw=uvw,
        antenna1=np.zeros(n, int),
        antenna2=np.ones(n, int),
        time=np.arange(float(n)),
        chan_freq=[C / 0.02],
        corr_type=["XX", "YY"],
        weight=np.full((n, 1, 2), noise**-2),
    )


def on_a_line(
    folder: Path, data: biro.Observation, half: float
) -> tuple[biro.Likelihood, np.ndarray, np.ndarray]:
    """Likelihood of east within -half .. half, a grid of it, and ln L there."""
    text = point("s", uniform(-half, half, "arcsec"), '"0 arcsec"', FLUX) + FIXED_NOISE
    likelihood = biro.Likelihood(data, sky(text, folder))
    east = np.linspace(-half, half, 12001)  # some thirty steps in a sigma, at least
    return likelihood, east, likelihood.log_likelihood(east[:, None])


def test_three_fringes_have_their_parts(tmp_path: Path) -> None:
    """Fringes of one baseline are 2 cm / 1760 m = 2.34 arcsec apart: three are inside the prior."""
    data = one_baseline([1760.0, 1750.0], 2.0, 0.6, seed=3)
    likelihood, east, height = on_a_line(tmp_path, data, 3.0)
    weight = np.exp(height - height.max())
    exact = float(np.log(weight.mean()) + height.max())
    fringe = lambda x: np.clip(np.rint((x - 2.0) / (0.02 / 1755.0 / ARCSEC)), -2, 0).astype(int) + 2  # noqa: E731
    parts = np.bincount(fringe(east), weight, 3) / weight.sum()
    assert parts.min() > 0.2
    for seed in range(3):
        found = sample(likelihood, "none", seed=seed, progress=False)
        assert found.log_evidence_err < 0.05
        assert abs(found.log_evidence - exact) < 4.0 * found.log_evidence_err
        draws, of_draws = found.weighted_draws("s.east")
        got = np.bincount(fringe(draws), of_draws, 3)
        # Four sigma of as many independent draws as are stated.
        assert (np.abs(got - parts) < 4.0 * np.sqrt(parts * (1.0 - parts) / found.effective[0])).all()
        assert found.summary().missed_mass < 0.01
        assert "SEVERAL MODES: the posterior has 3" in str(found.summary())


def test_chains_stay_in_the_fringes_that_they_began_in(tmp_path: Path) -> None:
    """Each of three fringes has chains, whose draws are weighted by its part; a run that goes on, too."""
    data = one_baseline([1760.0, 1750.0], 2.0, 0.6, seed=3)
    likelihood, east, height = on_a_line(tmp_path, data, 3.0)
    weight = np.exp(height - height.max())
    fringe = lambda x: np.clip(np.rint((x - 2.0) / (0.02 / 1755.0 / ARCSEC)), -2, 0).astype(int) + 2  # noqa: E731
    parts = np.bincount(fringe(east), weight, 3) / weight.sum()
    for n_draw in (150, 300):
        run = {"run_dir": tmp_path / "run", "n_draw": n_draw, "n_tune": 150}
        found = sample(likelihood, "nuts", seed=1, progress=False, **run)
        table = found.summary()
        assert table.missed_mass < 0.01
        assert not table.is_doubtful
        assert found.diagnostics["n_explored"] == 3.0
        draws, of_draws = found.weighted_draws("s.east")
        got = np.bincount(fringe(draws), of_draws, 3)
        assert (np.abs(got - parts) < 4.0 * found.diagnostics["share_error"]).all()
        assert found.diagnostics["share_error"] < 0.02
        mean = weight @ east / weight.sum()
        sd = np.sqrt(weight @ (east - mean) ** 2 / weight.sum())
        assert of_draws @ (draws - mean) ** 2 == pytest.approx(sd**2, rel=0.05)
        assert "Each chain stayed in one of 3 regions" in " ".join(str(table).split())


def test_chains_cross_where_the_barrier_is_low() -> None:
    """Normal peaks 2 a apart have a minimum between them that is lower by (a / sigma)^2 / 2 - ln 2."""
    for apart, n in ((2.0, 1), (3.5, 2)):  # barriers of 1.3 and 5.4
        likelihood = two_peaks([[-0.4 * apart, 0.0], [0.4 * apart, 0.0]], [0.0, 0.0], sigma=0.4)
        modes = biro.maximise(likelihood, seed=1).modes
        regions = Regions(Target(likelihood), modes)
        assert (len(modes), len(regions)) == (2, n)
        there = regions.of(np.array([[-0.5, 0.3], [0.5, -0.3]]))
        assert (there[0] == there[1]) == (n == 1)


def test_even_fringes_are_regions_of_their_own() -> None:
    """Between the outermost of 17 peaks 15 others lie, where evenly spaced points would all be high."""
    likelihood = two_peaks([[-1.6 + 0.2 * k, 0.0] for k in range(17)], [0.0] * 17, sigma=0.02)
    modes = biro.maximise(likelihood, seed=1, starts=64).modes
    assert len(Regions(Target(likelihood), modes)) == len(modes) >= 15


def test_intervals_hold_the_truth_among_fringes(tmp_path: Path) -> None:
    inside, rng = 0, np.random.default_rng(5)
    for seed in range(16):
        truth = rng.uniform(-3.0, 3.0)
        data = one_baseline([1760.0, 1750.0], truth, rng.uniform(0.3, 0.9), seed)
        row = sample(on_a_line(tmp_path, data, 3.0)[0], "none", seed=seed, progress=False).summary()["s.east"]
        inside += row.low_95 <= truth <= row.high_95
    # 15 of 16 are expected; of a binomial number with p = 0.95, one in 1000 is below 12.
    assert inside >= 12


def test_tens_of_modes_have_their_evidence(tmp_path: Path) -> None:
    """Three spacings whose ratios are not those of small numbers: more modes than were ever listed before."""
    data = one_baseline([11000.0, 15700.0, 4730.0], 7.0, 1.2, seed=5)
    likelihood, east, height = on_a_line(tmp_path, data, 20.0)
    found = sample(likelihood, "none", seed=1, progress=False)
    weight = np.exp(height - height.max())
    exact = float(np.log(weight.mean()) + height.max())
    is_top = (height[1:-1] > height[:-2]) & (height[1:-1] > height[2:]) & (weight[1:-1] > 0.05)
    assert is_top.sum() > 24
    assert found.log_evidence_err < 0.1
    assert abs(found.log_evidence - exact) < 4.0 * found.log_evidence_err
    mean = weight @ east / weight.sum()
    sd = np.sqrt(weight @ (east - mean) ** 2 / weight.sum())
    draws, of_draws = found.weighted_draws("s.east")
    assert abs(of_draws @ draws - mean) < 4.0 * sd / np.sqrt(found.effective[0])


def test_an_upper_limit_of_a_log_uniform_flux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No source: most of the posterior is where the flux makes no difference."""
    rng = np.random.default_rng(8)
    data = one_baseline([0.0] * 60, 0.0, 0.5, seed=8)
    error = 0.5 * (rng.normal(size=(60, 1, 2)) + 1j * rng.normal(size=(60, 1, 2)))
    (part,) = data.partitions
    data = dataclasses.replace(data, partitions=(dataclasses.replace(part, vis=error),))
    flux = '{ prior = "log-uniform", low = 1e-6, high = 10, unit = "Jy" }'
    text = point("s", '"0 arcsec"', '"0 arcsec"', flux) + FIXED_NOISE
    likelihood = biro.Likelihood(data, sky(text, tmp_path))
    grid = np.logspace(-6, 1, 20001)
    height = likelihood.log_likelihood(grid[:, None])
    weight = np.exp(height - height.max())
    exact, cumulated = float(np.log(weight.mean()) + height.max()), np.cumsum(weight) / weight.sum()
    ends = np.interp([0.025, 0.5, 0.975], cumulated, np.log(grid))
    for seed in range(3):
        found = sample(likelihood, "none", seed=seed, progress=False)
        assert found.log_evidence_err < 0.1
        assert abs(found.log_evidence - exact) < 4.0 * found.log_evidence_err
        row = found.summary()["s.I"]
        got = np.interp(np.log([row.low_95, row.median, row.high_95]), np.log(grid), cumulated)
        # Probabilities up to the quantiles: four sigma of the effective draws.
        p = np.array([0.025, 0.5, 0.975])
        assert (np.abs(got - p) < 4.0 * np.sqrt(p * (1.0 - p) / found.effective[0]) + 0.01).all(), (got, ends)

    for n_draw in (512, 0):
        if not n_draw:
            monkeypatch.setattr(exploration, "tempered", lambda *given: None)
        best = biro.maximise(likelihood, seed=1)
        assert not best.warnings()
        interval = best.intervals["s.I"]
        assert interval.low == pytest.approx(1e-6)
        got = np.interp(np.log([1e-6 + best.error[0], interval.high]), np.log(grid), cumulated)
        # Four sigma of 512 draws; of 64 points of the prior and straight lines between them, 1 %.
        levels = np.array([0.6827, 0.95])
        off = 4.0 * np.sqrt(levels * (1.0 - levels) / 512) if n_draw else 0.01
        assert (np.abs(got - levels) < off).all()
        assert abs(best.log_evidence - exact) < (0.4 if n_draw else 0.02)
        assert "95 %: below " in str(best)


def test_a_bent_posterior_is_followed() -> None:
    """x has a gamma distribution, and y is 1 - 2 / x to within 0.05: nowhere near a normal one."""

    def value_and_slope(theta):
        x, y = theta.T
        off = (y - 1.0 + 2.0 / x) / 0.05
        value = 2.0 * np.log(x) - 0.3 * x - 0.5 * off**2
        return value, np.column_stack([2.0 / x - 0.3 + off * 2.0 / x**2 / 0.05, -off / 0.05])

    likelihood = Analytic([Flat(1, 200, "x"), Flat(-3, 3, "y")], value_and_slope)
    bent = Bent.about(likelihood, biro.maximise(likelihood, seed=1).laplace)
    x = np.linspace(1.0, 200.0, 400_001)
    exact = np.log(np.trapezoid(x**2 * np.exp(-0.3 * x), x) * np.sqrt(2.0 * np.pi) * 0.05)
    for dof, least in ((np.inf, 0.7), (4.0, 0.3)):  # a normal distribution has 0.01
        theta = bent.draws(np.random.default_rng(1), 4000, dof)
        height = likelihood.log_posterior(theta) - likelihood.log_prior(theta)
        ratio = np.exp(height - bent.log_normalised(theta, dof) - exact)
        part = ratio.sum() ** 2 / (ratio**2).sum() / len(ratio)
        assert part > least
        # The density is normalised: the mean of posterior over density is Z, to four sigma.
        assert abs(ratio.mean() - 1.0) < 4.0 * np.sqrt((1.0 / part - 1.0) / len(ratio)) + 1e-3


def test_degrees_of_freedom_with_a_long_tail_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gaussian noise fitted with Student's t, without a tempered run, against sums over a grid."""
    monkeypatch.setattr(exploration, "tempered", lambda *given: None)
    noise = '\n[noise]\nfactor = 1\ndistribution = "student-t"\n'
    pulls = []
    for seed in range(4):
        text = point("s", '"0 arcsec"', '"0 arcsec"', uniform(0, 2, "Jy")) + noise
        likelihood = biro.Likelihood(one_baseline([0.0] * 200, 0.0, 0.5, seed), sky(text, tmp_path))
        quantile = [(np.arange(n) + 0.5) / n for n in (400, 100)]
        unit = np.stack(np.meshgrid(*quantile, indexing="ij"), axis=-1).reshape(-1, 2)
        if likelihood.parameter_names[0] != "s.I":
            unit = unit[:, ::-1]
        value = np.concatenate([
            likelihood.log_likelihood(likelihood.prior_transform(part)) for part in np.array_split(unit, 100)
        ])  # fmt: skip
        exact = np.logaddexp.reduce(value) - np.log(len(value))
        found = sample(likelihood, "none", seed=seed, progress=False)
        assert not found.summary().warnings()
        pulls.append((found.log_evidence - exact) / found.log_evidence_err)
        assert found.log_evidence_err < 0.05
    assert np.sum(np.square(pulls)) < stats.chi2.ppf(0.999, len(pulls)), pulls


def test_a_mode_that_a_constraint_cuts_counts() -> None:
    """Half of the first peak is allowed, and of the second what lies above 0.5 sigma: no maximum is there."""
    likelihood = two_peaks([[-1.2, 0.3], [1.2, 0.295]], [0.0, 0.0])
    likelihood.allowed = lambda theta: theta[:, 1] >= 0.3
    found = sample(likelihood, "none", seed=2, progress=False)
    part = special.ndtr(-0.5) / (special.ndtr(-0.5) + 0.5)
    x, weight = found.weighted_draws("x")
    share = weight[x > 0.0].sum()
    assert abs(share - part) < 4.0 * np.sqrt(part * (1.0 - part) / found.effective[0])


def test_particles_are_draws_of_the_posterior() -> None:
    likelihood = two_peaks([[-1.2, 0.3], [1.2, 0.3]], [0.0, -1.0], sigma=0.05)
    target, exact = Target(likelihood), np.log(2.0 * np.pi * 0.05**2 * (1.0 + np.exp(-1.0)) / 16.0)
    off, share = [], []
    for seed in range(8):
        unit = cover(2, 1024, np.random.default_rng(seed))
        found = temper(target, unit, target.log_likelihood_of_unit(unit), seed, 10**6)
        assert found.complete
        off.append(found.log_evidence - exact)
        share.append(np.mean(found.theta[:, 0] > 0.0))
    # Each of some ten steps has weights that are worth half of 512 particles, and modes drift as much.
    assert np.std(off) < 0.3
    assert abs(np.mean(off)) < 4.0 * 0.3 / np.sqrt(8)
    assert abs(np.mean(share) - 1.0 / (1.0 + np.e)) < 4.0 * 0.15 / np.sqrt(8)


def test_starts_cover_the_prior() -> None:
    """Draws about the higher of two broad peaks are all better than any about the lower."""
    likelihood = two_peaks([[-1.0, 0.0], [1.0, 0.0]], [2.0, 0.0], sigma=0.5)
    for seed in range(5):
        starts = starting_points(Objective(likelihood), 16, np.random.default_rng(seed)).theta
        assert (starts[:, 0] > 0.3).any()
        assert (
            likelihood.log_posterior(starts).max() > likelihood.log_posterior(np.array([[-1.0, 0.0]])) - 0.1
        )


def test_the_search_is_short_where_all_climbs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peaks one sigma apart are one maximum. Of two, or after one climb, others may be unknown."""
    short: list[bool] = []
    monkeypatch.setattr(exploration, "tempered", lambda *given: short.append(given[-1]))
    one, two = [[0.3, -0.4], [0.35, -0.4]], [[-1.2, 0.3], [1.2, 0.3]]
    for centres, starts in ((one, 16), (two, 16), (one, 1)):
        biro.maximise(two_peaks(centres, [0.0, 0.0], sigma=0.05), seed=1, starts=starts)
    assert short == [True, False, False]


def test_missed_modes_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tempering and more rounds, a mode that a single climb has found could have been missed."""
    monkeypatch.setattr(exploration, "tempered", lambda *given: None)
    monkeypatch.setattr(exploration, "_ROUNDS", 0)
    likelihood = two_peaks([[-1.2, 0.3], [1.2, 0.3]], [0.0, -1.0])
    found = biro.maximise(likelihood, seed=1, starts=1)
    assert found.missed_mass == 1.0
    found = dataclasses.replace(found, missed_mass=0.12)
    text = str(found)
    assert text.startswith("MODES ARE MISSING: about 12 %")
    assert "--sampler dynesty" in text
    assert found.cells()[1][3].endswith("?")
    assert "?" in next(line for line in found.notes() if line.startswith("log-evidence"))
    assert found.to_dict()["missed_mass"] == 0.12
    posterior = sample(two_peaks([[-1.2, 0.3]], [0.0]), "none", seed=1, progress=False)
    assert "MISSING" not in str(posterior.summary())
    table = dataclasses.replace(
        posterior, diagnostics={**posterior.diagnostics, "missed_mass": 0.12}
    ).summary()
    assert str(table).startswith("MODES ARE MISSING: about 12 %")
    assert table.cells()[1][4].endswith("?")
    assert table.to_dict()["missed_mass"] == 0.12
    assert "?" in table.evidence_lines()[0]


def test_a_normal_posterior_carries_no_warning() -> None:
    """One peak, of a noise that is fitted or not: nothing is missed, and nothing is said."""
    for seed in range(5):
        found = biro.maximise(two_peaks([[0.3, -0.4]], [0.0], sigma=0.1), seed=seed)
        assert (found.missed_mass, found.warnings(), found.is_doubtful) == (0.0, [], False)


def test_a_maximum_that_is_not_normal_is_said() -> None:
    """A narrow peak on a wide one with most of the probability: its curvature is that of the first."""

    def value_and_slope(theta):
        peak = 1.0 - 0.5 * (theta**2).sum(axis=1) / 0.1**2
        floor = -0.5 * (theta**2).sum(axis=1)
        value = np.logaddexp(peak, floor)
        part = np.exp(peak - value)[:, None]
        return value, -theta * (part / 0.1**2 + (1.0 - part))

    likelihood = Analytic([Flat(-6, 6, "x"), Flat(-6, 6, "y")], value_and_slope)
    best = biro.maximise(likelihood, seed=1)
    assert not best.warnings()[1:]  # but for two parameters that can change places
    assert "not normal: the posterior of " in str(best)
    exact = np.log(2.0 * np.pi * (1.0 + np.e * 0.1**2) / 144.0)
    # Of 512 particles of a tempered run; Laplace's value is lower by 3.6.
    assert abs(best.log_evidence - exact) < 0.4
    # The wide peak has 97 %, a sigma of 1: 512 draws tell its 97.5 % point to 0.12, five sigma of that.
    assert np.allclose([best.intervals["x"].low, best.intervals["x"].high], [-1.95, 1.95], atol=0.6)
    assert np.allclose(best.error, 0.98, atol=0.25)
    found = sample(likelihood, "none", seed=1, progress=False)
    exact = np.log(2.0 * np.pi * (1.0 + np.e * 0.1**2) / 144.0)
    assert abs(found.log_evidence - exact) < 4.0 * found.log_evidence_err
    assert found.log_evidence_err < 0.1


def test_an_end_beyond_a_constraint_costs_no_other() -> None:
    """The density rises to the end of the prior, and is 0 there, as of equal axes by a rounding."""

    class Open(SmoothGaussian):
        def log_likelihood(self, theta):
            return np.where(theta[:, 0] < 1.0, super().log_likelihood(theta), -np.inf)

        def log_posterior_and_gradient(self, theta):
            value, slope = super().log_posterior_and_gradient(theta)
            out = ~(theta[:, 0] < 1.0)
            return np.where(out, -np.inf, value), np.where(out[:, None], np.nan, slope)

    likelihood = Open([Flat(0, 1, "a"), Flat(-1, 1, "b")], [5.0, 0.2], np.eye(2) * 0.1)
    found = biro.maximise(likelihood, seed=1, starts=64)
    assert found["a"] == pytest.approx(1.0, abs=1e-3)
    assert found["b"] == pytest.approx(0.2, abs=1e-3)


@pytest.mark.parametrize("sampler", ["emcee", "nuts", "none"])
def test_an_interrupted_run_without_a_folder_saves_nothing(sampler: str) -> None:
    likelihood, n_call = two_peaks([[-1.2, 0.3]], [0.0]), 0
    inner = likelihood.log_posterior_and_gradient

    def interrupted(theta):
        nonlocal n_call
        n_call += 1
        if n_call == 3:
            signal.raise_signal(signal.SIGINT)
        return inner(theta)

    likelihood.log_posterior_and_gradient = interrupted
    with pytest.raises(RunInterrupted, match="nothing was saved, because there is no run directory"):
        sample(likelihood, sampler, seed=1, progress=False)


def test_emcee_begins_in_all_fringes(tmp_path: Path) -> None:
    data = one_baseline([1760.0, 1750.0], 2.0, 0.6, seed=3)
    likelihood, east, height = on_a_line(tmp_path, data, 3.0)
    weight = np.exp(height - height.max())
    mean = weight @ east / weight.sum()
    sd = np.sqrt(weight @ (east - mean) ** 2 / weight.sum())
    found = sample(likelihood, "emcee", seed=1, progress=False, n_tau=25.0, tau_change=0.2)
    assert abs(found["s.east"].mean() - mean) < 4.0 * sd / np.sqrt(found.effective[0])
    assert found["s.east"].std() == pytest.approx(sd, rel=0.2)  # some hundred effective draws
