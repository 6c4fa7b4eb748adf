"""Priors against scipy.stats, and against themselves: transform and density say the same."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from biro.models import (
    Cosine,
    Frozen,
    HalfNormal,
    LogNormal,
    LogUniform,
    ModelError,
    Normal,
    PowerLaw,
    Prior,
    Sine,
    Triangular,
    TruncatedNormal,
    Uniform,
)
from biro.models.quantities.prior_table import from_table, to_table

PAIRS = [
    (Uniform(-2, 3), stats.uniform(-2, 5)),
    (LogUniform(1e-3, 1e3), stats.loguniform(1e-3, 1e3)),
    (Normal(-13.9, 2), stats.norm(-13.9, 2)),
    (LogNormal(0.3, 5), stats.lognorm(0.3, scale=5)),
    (TruncatedNormal(1, 2, low=0), stats.truncnorm(-0.5, np.inf, 1, 2)),
    (TruncatedNormal(1, 2, high=0), stats.truncnorm(-np.inf, -0.5, 1, 2)),
    (TruncatedNormal(0, 1, 8, 9), stats.truncnorm(8, 9)),
    (TruncatedNormal(0, 1, -9, -8), stats.truncnorm(-9, -8)),
    (HalfNormal(3), stats.halfnorm(0, 3)),
    (Triangular(1, 2, 5), stats.triang(0.25, 1, 4)),
    (Triangular(1, 1, 5), stats.triang(0, 1, 4)),
    (Triangular(1, 5, 5), stats.triang(1, 1, 4)),
    (Cosine(unit="rad"), stats.cosine(0, 0.5)),  # for the support only: see test_sine_and_cosine
]
FAMILIES = [
    *(prior for prior, _ in PAIRS),
    *(PowerLaw(index, 0.1, 5000) for index in (-1, 0, 1, 1 + 1e-9, 1.6, 2.5)),
    PowerLaw(-40, 2, 3),
    PowerLaw(60, 1e-4, 5),
    Sine(),
    Sine("20 deg", "50 deg"),
    Cosine("-10 deg", "80 deg"),
    Frozen(stats.beta(2, 3)),
]


@pytest.mark.parametrize(("prior", "oracle"), PAIRS[:-1])
def test_scipy_agrees(prior: Prior, oracle: stats.distributions.rv_frozen) -> None:
    u = np.array([0.001, 0.02, 0.3, 0.5, 0.77, 0.98, 0.999])
    x = oracle.ppf(u)
    # ppf of a truncated tail is solved to about 1e-12 in scipy itself
    np.testing.assert_allclose(prior.transform(u), x, rtol=1e-11, atol=1e-13)
    # the log density of a tail 8 sigma out subtracts numbers of size 35: 1e-13 of that, and scipy's own error
    np.testing.assert_allclose(prior.log_density(x), oracle.logpdf(x), rtol=1e-10, atol=1e-11)
    outside = np.array([prior.support[0] - 1, prior.support[1] + 1])
    expected = oracle.logpdf(outside)
    np.testing.assert_array_equal(prior.log_density(outside)[np.isneginf(expected)], -np.inf)


def test_sine_and_cosine_are_isotropic() -> None:
    """Polar angles with p = sin(x) / 2: cos(x) is uniform on -1 .. 1; latitudes likewise with sin."""
    u = np.linspace(0, 1, 11)
    np.testing.assert_allclose(np.cos(np.deg2rad(Sine().transform(u))), 1 - 2 * u, atol=1e-15)
    np.testing.assert_allclose(np.sin(np.deg2rad(Cosine().transform(u))), 2 * u - 1, atol=1e-15)
    per_degree = np.pi / 180
    assert np.exp(Sine().log_density(np.array(30.0))) == pytest.approx(0.25 * per_degree, rel=1e-14)
    assert np.exp(Cosine().log_density(np.array(60.0))) == pytest.approx(0.25 * per_degree, rel=1e-14)


@pytest.mark.parametrize("index", [-1.5, 0.0, 0.3, 1.6, 2.5])
def test_power_laws(index: float) -> None:
    """p = (1 - a) x^-a / (h^(1 - a) - l^(1 - a)), and its integral."""
    low, high, q = 0.1, 5000.0, 1.0 - index
    prior, x = PowerLaw(index, low, high), np.geomspace(0.1, 5000.0, 9)
    mass = high**q - low**q
    # Powers of 5e4 are rounded to 1e-15 of their exponents.
    np.testing.assert_allclose(np.exp(prior.log_density(x)), q * x**-index / mass, rtol=1e-12)
    u = np.linspace(0.001, 0.999, 9)
    # 1 - u, which counts from the far end, is rounded to 1e-16: 1e-13 of 0.001.
    np.testing.assert_allclose(prior.transform(u), (low**q + u * mass) ** (1.0 / q), rtol=1e-12)
    np.testing.assert_allclose(prior.log_slope(x), -index / x, rtol=1e-15)
    np.testing.assert_array_equal(prior.log_density(np.array([0.09, 5001.0, -1.0])), -np.inf)


def test_power_laws_of_index_0_and_1_are_other_priors() -> None:
    u = np.linspace(0.0, 1.0, 21)
    for index, same in ((0.0, Uniform(2, 7)), (1.0, LogUniform(2, 7)), (1.0 + 1e-14, LogUniform(2, 7))):
        prior = PowerLaw(index, 2, 7)
        # An index that is 1e-14 away changes x by 1e-14 of its logarithm.
        np.testing.assert_allclose(prior.transform(u), same.transform(u), rtol=1e-13)
        np.testing.assert_allclose(
            prior.log_density(same.transform(u)), same.log_density(same.transform(u)), rtol=1e-13
        )


@pytest.mark.parametrize("prior", FAMILIES, ids=repr)
def test_transform_and_density_are_one(prior: Prior) -> None:
    """dx/du p(x) = 1 everywhere inside."""
    u, step = np.linspace(0.03, 0.97, 41), 1e-6
    slope = (prior.transform(u + step) - prior.transform(u - step)) / (2 * step)
    # central differences: step^2 of truncation and 1e-16 / step of rounding; the mode of a triangle is a kink
    np.testing.assert_allclose(slope * np.exp(prior.log_density(prior.transform(u))), 1, rtol=2e-6)


@pytest.mark.parametrize("prior", FAMILIES, ids=repr)
def test_density_is_normalised(prior: Prior) -> None:
    low, high = prior.quantile_range(1e-13)
    edges = prior.transform(np.linspace(0, 1, 41))
    edges[0], edges[-1] = max(edges[0], low), min(edges[-1], high)

    def density(x: float) -> float:
        return float(np.exp(prior.log_density(np.array(x))))

    total = sum(integrate.quad(density, a, b)[0] for a, b in pairwise(edges))
    assert total == pytest.approx(1, abs=1e-8)  # the quadrature's own tolerance, forty times


@pytest.mark.parametrize("prior", FAMILIES, ids=repr)
def test_draws_follow_the_cumulative(prior: Prior) -> None:
    draws = prior.transform(np.random.default_rng(3).random(2000))
    assert stats.kstest(draws, prior.cumulative).pvalue > 1e-3
    x = prior.transform(np.array([0.1, 0.5, 0.9]))
    np.testing.assert_allclose(prior.cumulative(x), [0.1, 0.5, 0.9], atol=1e-12)


@pytest.mark.parametrize(
    "cls",
    [Uniform, LogUniform, PowerLaw, Normal, LogNormal, TruncatedNormal, HalfNormal, Triangular, Sine],
)
def test_a_stack_is_its_members(cls: type[Prior]) -> None:
    made = {
        Uniform: [Uniform(0, 1), Uniform("1 Jy", "5 Jy")],
        LogUniform: [LogUniform(1, 2), LogUniform(0.1, 50)],
        PowerLaw: [PowerLaw(1, 0.1, 50), PowerLaw(1.6, 1, 2), PowerLaw(-3, 2, 7)],
        Normal: [Normal(0, 1), Normal(-3, 0.1)],
        LogNormal: [LogNormal(0.1), LogNormal(1.0, 3.0)],
        TruncatedNormal: [TruncatedNormal(0, 1, 2), TruncatedNormal(1, 3, -1, 2)],
        HalfNormal: [HalfNormal(1), HalfNormal(4)],
        Triangular: [Triangular(0, 1, 2), Triangular(0, 0, 1), Triangular(1, 3, 3)],
        Sine: [Sine(), Sine(unit="rad")],
    }[cls]
    stacked = cls.stack(made)
    u = np.random.default_rng(1).random((50, len(made)))
    x = stacked.transform(u)
    for i, prior in enumerate(made):
        np.testing.assert_array_equal(x[:, i], prior.transform(u[:, i]))
        np.testing.assert_array_equal(stacked.log_density(x)[:, i], prior.log_density(x[:, i]))


def test_ends_are_finite_densities() -> None:
    for prior in (Uniform(0.1, 0.3), LogUniform(0.1, 0.3), Triangular(0, 0, 1)):
        assert np.isfinite(prior.log_density(prior.transform(np.array([0.0])))).all(), prior
    assert np.isfinite(Uniform(0.1, 0.3).log_density(Uniform(0.1, 0.3).transform(np.array([1.0])))).all()


def test_units_are_read_once() -> None:
    assert Uniform("1 mJy", "2 Jy") == Uniform(1, 2000, "mJy")
    assert Uniform("0.1 Jy", "50 Jy", unit="mJy") == Uniform(100, 50000, "mJy")
    assert Normal(-13.9, sd=2, unit="arcsec").unit == "arcsec"
    assert Uniform(low="12h00m00s", high="12h00m04s") == Uniform(180, 180 + 4 / 240, "deg")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Uniform(3, 1), "low < high, found low = 3.0, high = 1.0"),
        (lambda: Uniform(1, 1), "low < high"),
        (lambda: Uniform(0, float("inf")), "high must be finite"),
        (lambda: Uniform(float("nan"), 1), "low: expected a finite number"),
        (lambda: LogUniform(0, 1), "0 < low < high"),
        (lambda: LogUniform(-1, 1), "0 < low < high"),
        (lambda: PowerLaw(1.6, 0, 1), "0 < low < high"),
        (lambda: PowerLaw(1.6, 2, 1), "0 < low < high"),
        (lambda: PowerLaw(float("inf"), 1, 2), "index must be finite"),
        (lambda: PowerLaw("1 Jy", 1, 2), "index is a plain number"),
        (lambda: PowerLaw(1e60, 1, 2), "a middle half"),
        (lambda: Normal(0, 0), "sd > 0"),
        (lambda: Normal(0, -1), "sd > 0"),
        (lambda: HalfNormal(-1), "sd > 0"),
        (lambda: TruncatedNormal(0, 1, 2, 1), "low < high"),
        (lambda: TruncatedNormal(0, 1, 1e200), "some probability"),
        (lambda: Triangular(0, 2, 1), "low <= mode <= high"),
        (lambda: Sine("-1 deg", "20 deg"), "0.0 deg <= low < high <= 180.0 deg"),
        (lambda: Cosine(0, 1, "Jy"), "not an angle"),
        (lambda: Uniform("1 Jy", "3 deg"), "cannot be expressed in"),
        (lambda: Uniform("1 Jyy", "3 Jy"), "did you mean 'Jy'?"),
        (lambda: Uniform(low=0, hihg=1), "unknown key 'hihg' (did you mean 'high'?)"),
        (lambda: Uniform(0), "'high' is missing"),
        (lambda: Uniform([0], 1), "expected a number"),
        (lambda: Uniform(0, True), "expected a number"),
        (lambda: Uniform(0, 1, unit="furlong per"), "unknown unit"),
        (lambda: Frozen(stats.poisson(3)), "frozen continuous scipy.stats distribution"),
        (lambda: Frozen(3), "frozen continuous scipy.stats distribution"),
        (lambda: Frozen(stats.norm([0, 1], 1)), "not a proper distribution"),
        (lambda: from_table({"prior": "unifrom", "low": 0}), "did you mean 'uniform'?"),
        (lambda: from_table({"prior": 3}), "unknown prior 3"),
    ],
)
def test_what_is_no_prior_is_refused(make: object, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        make()  # type: ignore[operator]
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("prior", FAMILIES[:-1], ids=repr)
def test_tables_read_back(prior: Prior) -> None:
    assert from_table(to_table(prior)) == prior


def test_a_frozen_distribution_has_no_table() -> None:
    with pytest.raises(ModelError, match="Python only"):
        to_table(Frozen(stats.beta(2, 3)))
    assert Frozen(stats.beta(2, 3)) == Frozen(stats.beta(2, 3))
    assert Frozen(stats.beta(2, 3)) != Frozen(stats.beta(2, 4))


@pytest.mark.parametrize("prior", FAMILIES, ids=lambda prior: repr(prior)[:40])
def test_the_slope_is_the_derivative_of_the_log_density(prior: Prior) -> None:
    x = prior.transform(np.array([0.01, 0.1, 0.3, 0.62, 0.9, 0.99]))
    # Fourth order: fifth derivatives times h^4 / 30 below 1e-10 of the slope, rounding 1e-16 / h below 1e-11.
    step = 1e-3 * np.minimum(1e-1 * np.ptp(x), np.min([np.abs(x - end) for end in prior.support], axis=0))
    f = [prior.log_density(x + k * step) for k in (-2, -1, 1, 2)]
    expected = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step)
    scale = 1.0 / np.ptp(x)
    np.testing.assert_allclose(prior.log_slope(x), expected, rtol=1e-7, atol=1e-7 * scale)
