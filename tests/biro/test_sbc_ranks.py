"""Ranks and what is read from them, on problems whose posterior is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from biro.errors import InputError, LikelihoodError
from biro.sbc.replicate import cut_open, rank
from biro.sbc.result import SBCResult
from biro.sbc.statistics import RankStatistics, ReducedChi2

N, L = 2000, 63
SIGMA = 0.7


def gaussian_ranks(width: float = 1.0, shift: float = 0.0, seed: int = 1) -> RankStatistics:
    """theta ~ N(0, 1), one datum theta + noise of 0.7: the posterior is N(d / (1 + s^2), s^2 / (1 + s^2)).

    Draws are exact, but for a width that is multiplied by `width` and a mean moved by `shift` sigma.
    """
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(N)
    datum = truth + SIGMA * rng.standard_normal(N)
    sd = SIGMA / math.sqrt(1 + SIGMA**2)
    draws = (datum / (1 + SIGMA**2) + shift * sd)[:, None] + width * sd * rng.standard_normal((N, L))
    return RankStatistics(("x",), np.array([[rank(t, d, rng)] for t, d in zip(truth, draws, strict=True)]), L)


def p_values(ranks: RankStatistics) -> list[float]:
    return [test.p_value for test in ranks.tests()]


def test_exact_draws_give_uniform_ranks_and_right_coverage() -> None:
    ranks = gaussian_ranks()
    assert min(p_values(ranks)) > 0.01  # of three tests; the seed is fixed
    assert ranks.shape(0) == ""
    for level in (0.3, 0.6827, 0.9545):
        scatter = math.sqrt(level * (1 - level) / N)
        assert abs(ranks.coverage(level)[0] - level) < 3.5 * scatter  # one in 2000


@pytest.mark.parametrize(
    ("width", "shift", "words"),
    [
        (0.8, 0.0, "intervals too narrow"),
        (1.3, 0.0, "intervals too wide"),
        (1.0, 0.3, "fits too high"),
        (1.0, -0.3, "fits too low"),
    ],
)
def test_wrong_posteriors_are_caught_and_named(width, shift, words) -> None:
    ranks = gaussian_ranks(width, shift)
    by_kind = {test.kind: test.p_value for test in ranks.tests()}
    assert by_kind["histogram"] < 1e-6
    assert by_kind["shift" if shift else "spread"] < 1e-9
    assert ranks.shape(0) == words


def test_shift_and_spread_have_a_scatter_of_one() -> None:
    """400 runs of 30 replicates each: z is normal, its mean 0 and its variance 1, within 4 sigma."""
    values = np.random.default_rng(7).integers(0, L + 1, size=(30, 400))
    ranks = RankStatistics(tuple(f"x{i}" for i in range(400)), values, L)
    for z in (ranks.shift, ranks.spread):
        assert abs(z.mean()) < 4 / math.sqrt(400)
        assert abs(z.var() - 1) < 4 * math.sqrt(2 / 400)


def test_shift_spread_and_their_p_values_are_the_formulas() -> None:
    """u has mean 1/2 and variance 1/12; (2u - 1)^2 has mean 1/3 and variance 4/45."""
    ranks = RankStatistics(("x",), np.random.default_rng(9).integers(0, 30, size=(50, 1)), L)
    u = ranks.u[:, 0]
    shift = (u.mean() - 0.5) / math.sqrt(1 / 12 / 50)
    spread = (np.mean((2 * u - 1) ** 2) - 1 / 3) / math.sqrt(4 / 45 / 50)
    assert (ranks.shift[0], ranks.spread[0]) == pytest.approx((shift, spread), rel=1e-12)
    found = {test.kind: test.p_value for test in ranks.tests()}
    assert found["shift"] == pytest.approx(math.erfc(abs(shift) / math.sqrt(2)), rel=1e-9)
    assert found["spread"] == pytest.approx(math.erfc(abs(spread) / math.sqrt(2)), rel=1e-9)
    expected = 50 / ranks.n_bin
    chi2 = np.sum((ranks.counts[0] - expected) ** 2) / expected
    assert found["histogram"] == pytest.approx(stats.chi2.sf(chi2, ranks.n_bin - 1), rel=1e-9)


def test_a_shift_below_3_sigma_has_no_words() -> None:
    ranks = RankStatistics(("x",), (64 * np.linspace(0.43, 0.99, 12)).astype(int)[:, None], L)
    assert 2.2 < ranks.shift[0] < 2.9
    assert ranks.shape(0) == ""


def test_coverage_of_a_narrow_posterior_is_the_closed_form() -> None:
    """Intervals of k times the width hold the truth with probability 2 Phi(k z) - 1."""
    ranks = gaussian_ranks(width=0.8)
    for level in (0.5, 0.6827, 0.9545):
        expected = 2 * stats.norm.cdf(0.8 * stats.norm.ppf(0.5 + 0.5 * level)) - 1
        # 3.5 binomial sigma, and the step of one rank of 64
        tolerance = 3.5 * math.sqrt(expected * (1 - expected) / N) + 1 / 64
        assert abs(ranks.coverage(level)[0] - expected) < tolerance


def test_where_draws_equal_the_truth_ranks_are_uniform_still() -> None:
    """A constant likelihood: every draw ties."""
    rng = np.random.default_rng(2)
    values = np.array([[rank(1.0, np.ones(L), rng)] for _ in range(N)])
    assert values.min() == 0
    assert values.max() == L
    assert min(p_values(RankStatistics(("x",), values, L))) > 0.01


def turned(offset: float) -> RankStatistics:
    """Angles of period 180 anywhere; draws scatter by 15 deg about a datum, as that does about the truth."""
    rng = np.random.default_rng(3)
    rows = []
    for truth in rng.uniform(0, 180, N):
        datum = truth + 15 * rng.standard_normal()
        draws = np.mod(datum + offset + 15 * rng.standard_normal(L), 180)
        open_ = cut_open(np.concatenate([[np.mod(truth, 180)], draws]), 180.0)
        rows.append([rank(open_[0], open_[1:], rng)])
    return RankStatistics(("pa",), np.array(rows), L)


def test_ranks_of_an_angle_know_no_ends() -> None:
    assert min(p_values(turned(0.0))) > 0.01
    assert turned(5.0).shape(0) == "fits too high"
    assert turned(-5.0).shape(0) == "fits too low"


def test_a_cut_circle_keeps_its_order() -> None:
    # 170, 175, 180 = 0, 5 deg lie side by side across the wrap
    open_ = cut_open(np.array([5.0, 170.0, 0.0, 175.0]), 180.0)
    assert np.argsort(open_).tolist() == [1, 3, 2, 0]
    assert np.ptp(open_) == pytest.approx(2 * np.pi * 15 / 180)  # rounding


def test_bands_are_those_of_the_binomial_distribution() -> None:
    ranks = RankStatistics(("x",), np.arange(320)[:, None] % 64, 63)
    assert ranks.n_bin == 16
    assert ranks.counts.tolist() == [[20] * 16]
    low, high = ranks.count_band(0.9545)
    inside = stats.binom.cdf(high, 320, 1 / 16) - stats.binom.cdf(low - 1, 320, 1 / 16)
    assert 0.9545 <= inside < 0.98  # discrete: at least, and not much more
    lower, upper = ranks.coverage_band(0.6827, 0.6827)
    assert 0.6827 - 1.2 * math.sqrt(0.6827 * 0.3173 / 320) < lower < 0.6827 < upper
    # Kolmogorov's 95 % for large n is 1.358 / sqrt(n); for 320, 1 % less.
    assert ranks.whole_curve(0.95) == pytest.approx(1.358 / math.sqrt(320), rel=0.02)


@pytest.mark.parametrize(
    ("n", "n_draw", "n_bin"), [(100, 63, 16), (300, 99, 20), (20, 63, 4), (100, 12, 13), (100, 22, 23)]
)
def test_bins_divide_the_ranks(n, n_draw, n_bin) -> None:
    assert RankStatistics(("x",), np.zeros((n, 1), dtype=np.int64), n_draw).n_bin == n_bin


def test_reduced_chi2_against_its_expectation() -> None:
    """Means over draws that scatter by a third of a single chi2 / (2 N); then with weights 10 % too large."""
    n_vis, rng = 500, np.random.default_rng(4)
    right = 1 + rng.standard_normal(100) / math.sqrt(n_vis) / 3
    found = ReducedChi2.of(right, n_vis)
    assert found.error == pytest.approx(1 / math.sqrt(n_vis) / 30, rel=0.25)  # of 100: 7 %, at 3.5 sigma
    assert abs(found.z) < 3.5
    assert found.p_value > 1e-3
    known = stats.ttest_1samp(right[:6], 1.0)
    few = ReducedChi2.of(right[:6], n_vis)
    assert (few.z, few.p_value) == pytest.approx((known.statistic, known.pvalue), rel=1e-9)
    assert few.expected_scatter == pytest.approx(1 / math.sqrt(n_vis))
    wrong = ReducedChi2.of(1.1 * right, n_vis)
    assert wrong.z > 30
    assert wrong.p_value < 1e-20


def sbc_result(ranks: RankStatistics, failed: int = 0) -> SBCResult:
    rows = [
        {"replicate": k, "ranks": row, "effective": 100.0, "converged": True, "reduced_chi2": [c, c]}
        for k, (row, c) in enumerate(
            zip(
                np.repeat(ranks.values, 2, axis=1).tolist(),
                np.random.default_rng(5).normal(1.0, 0.02, ranks.n).tolist(),
                strict=True,
            )
        )
    ]
    rows += [{"replicate": ranks.n + i, "error": "no maximum"} for i in range(failed)]
    about = {"sampler": "exact", "seed": 0, "draws": ranks.n_draw, "n_vis": 500}
    return SBCResult.of(rows[::-1], {**about, "names": ["x"]})


def test_the_verdict_counts_its_tests() -> None:
    right = sbc_result(gaussian_ranks(), failed=3)
    assert len(right.tests()) == 7  # three of each of two quantities, and the reduced chi2
    assert right.passed
    assert right.chance == pytest.approx(min(1.0, 7 * min(test.p_value for test in right.tests())))
    assert "PASSED: the ranks of" in str(right)
    assert "3 of 2003 replicates could not be fitted" in str(right)
    assert "no maximum" in str(right)
    wrong = sbc_result(gaussian_ranks(width=0.8))
    assert not wrong.passed
    assert wrong.suspects() == ["x", "log-likelihood"]
    assert "FAILED: chance does not explain x, log-likelihood" in str(wrong)
    record = wrong.to_dict()
    assert record["quantities"]["x"]["shape"] == "intervals too narrow"
    assert len(record["quantities"]["x"]["ranks"]) == N


def test_what_cannot_be_ranks_is_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(n_replicate, 1\), got \(3, 2\)"):
        RankStatistics(("x",), np.zeros((3, 2), dtype=np.int64), 63)
    with pytest.raises(InputError, match="from 0 to 63"):
        RankStatistics(("x",), np.full((3, 1), 64), 63)
    with pytest.raises(LikelihoodError, match="no replicate could be fitted: too far"):
        SBCResult.of([{"replicate": 0, "error": "too far"}], {"names": ["x"]})
