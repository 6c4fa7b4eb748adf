"""The change to parameters of any size: back and forth, its Jacobian, and derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate

from biro.models import (
    Bounds,
    GaussianSource,
    HalfNormal,
    LogNormal,
    LogUniform,
    Noise,
    Normal,
    Order,
    PartitionView,
    PointSource,
    PowerLaw,
    Prior,
    SkyModel,
    Triangular,
    TruncatedNormal,
    Uniform,
)
from biro.models.bound.model import BoundModel

MakeView = Callable[..., PartitionView]
AT = {"east": "0 arcsec", "north": "0 arcsec"}


def of_fluxes(view: MakeView, *priors: Prior, constraints: object = ()) -> BoundModel:
    sources = [PointSource(f"s{i}", **AT, I=prior) for i, prior in enumerate(priors)]
    return SkyModel(sources, noise=Noise(1), constraints=constraints).bind([view()])


@pytest.fixture
def every_kind(view: MakeView) -> BoundModel:
    """Two ends, one end on either side, none, six decades, an angle, an order of three, bounds of a prior."""
    sources = [
        GaussianSource("g", **AT, I=Uniform(-2, 5, "mJy"), emaj=Normal(1, 2, "arcsec"), ratio=Normal(0.5, 1),
                       pa=Uniform(-20, 160, "deg")),
        PointSource("a", **AT, I=LogUniform(1e-3, 1e3, "Jy"), Q=HalfNormal(2, "Jy"),
                    U=TruncatedNormal(1, 2, high=3, unit="Jy"), V=Normal(3, 0.1, "Jy")),
        *(PointSource(name, **AT, I=Uniform(1, 4, "Jy")) for name in "bcd"),
        PointSource("e", **AT, I=TruncatedNormal(0, 1, low=0, unit="Jy")),
        PointSource("f", **AT, I=Triangular(0, 1, 5, "Jy"), V=LogNormal(0.7, "2 Jy")),
        GaussianSource("h", **AT, I="1 Jy", emaj="9 arcsec", emin=Uniform(1, 20, "arcsec"), pa="0 deg"),
    ]  # fmt: skip
    constraints = [Order(["b.I", "c.I", "d.I"]), Bounds("f.I", low="0.5 Jy")]
    return SkyModel(sources, noise=Noise(), constraints=constraints).bind([view()])


def some(model: BoundModel, n: int, width: float = 2.0) -> np.ndarray:
    return width * np.random.default_rng(2).normal(size=(n, model.n_param))


def test_every_y_is_a_theta_that_is_allowed(every_kind: BoundModel) -> None:
    theta = every_kind.unconstrained.theta(some(every_kind, 500))
    assert np.isfinite(every_kind.log_prior(theta)).all()
    low, high = every_kind.box
    names = every_kind.parameter_names
    # What follows from the meaning of a quantity is an end like that of a prior.
    assert (low[names.index("g.ratio")], high[names.index("g.ratio")]) == (0.0, 1.0)
    assert low[names.index("g.emaj")] == 0.0
    assert low[names.index("f.I")] == 0.5
    assert high[names.index("h.emin")] == pytest.approx(9.0, rel=1e-12)


def test_back_and_forth(every_kind: BoundModel) -> None:
    y = some(every_kind, 50)
    change = every_kind.unconstrained
    # ln(1 - p) of p within exp(-6) of 1 has lost three digits; z of an order up to 20 lie on either side.
    np.testing.assert_allclose(change.of_theta(change.theta(y)), y, rtol=1e-8, atol=1e-8)
    theta = every_kind.prior_transform(np.random.default_rng(0).random((50, every_kind.n_param)))
    theta = theta[every_kind.allowed(theta)]
    np.testing.assert_allclose(change.theta(change.of_theta(theta)), theta, rtol=1e-9)


def differences(function: Callable[[np.ndarray], np.ndarray], y: np.ndarray) -> np.ndarray:
    """Derivatives by 4th-order central differences: h^4 / 30 and 1e-16 / h are below 1e-12."""
    step = 2e-3
    found = []
    for axis in np.eye(y.shape[1]):
        f = [function(y + k * step * axis) for k in (-2, -1, 1, 2)]
        found.append((f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step))
    return np.stack(found, axis=-1)


def test_the_jacobian_is_that_of_theta(every_kind: BoundModel) -> None:
    y, change = some(every_kind, 5, 1.0), every_kind.unconstrained
    jacobian = differences(change.theta, y)
    np.testing.assert_allclose(change.at(y).log_jacobian(), np.linalg.slogdet(jacobian)[1], rtol=0, atol=1e-8)
    slopes = np.random.default_rng(4).normal(size=y.shape)
    expected = np.einsum("bi,bij->bj", slopes, jacobian)
    np.testing.assert_allclose(change.at(y).pull_back(slopes), expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(
        change.at(y).log_jacobian_slope(),
        differences(lambda y: change.at(y).log_jacobian(), y),
        rtol=1e-7,
        atol=1e-9,
    )


def test_the_slope_of_the_prior(every_kind: BoundModel) -> None:
    change = every_kind.unconstrained
    y = some(every_kind, 5, 1.0)
    theta = change.theta(y)
    found = change.at(y).pull_back(every_kind.log_prior_slope(theta))
    expected = differences(lambda y: every_kind.log_prior(change.theta(y)), y)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    assert np.isnan(every_kind.log_prior_slope(theta - 1e3)).all()


@pytest.mark.parametrize(
    "prior",
    [
        Uniform(1, 3, "Jy"),
        LogUniform(0.1, 10, "Jy"),
        PowerLaw(1.6, 0.1, 10, "Jy"),
        HalfNormal(2, "Jy"),
        TruncatedNormal(0, 1, high=1, unit="Jy"),
        Normal(4, 3, "Jy"),
        LogNormal(0.5, "2 Jy"),
    ],
    ids=lambda prior: prior.family,
)
def test_a_density_stays_normalised(view: MakeView, prior: Prior) -> None:
    model = of_fluxes(view, prior)
    change = model.unconstrained

    def density(y: float) -> float:
        at = np.array([y])
        return float(np.exp(model.log_prior(change.theta(at)) + change.at(at).log_jacobian()))

    total, _ = integrate.quad(density, -40, 40, points=[0.0], limit=200)
    assert total == pytest.approx(1.0, abs=1e-8)


def test_an_order_of_two_stays_normalised(view: MakeView) -> None:
    """Uniform a > b in 0 .. 1 has the density 2 on a triangle."""
    model = of_fluxes(view, *2 * [Uniform(0, 1, "Jy")], constraints=[Order(["s0.I", "s1.I"])])
    change = model.unconstrained

    # Sums over a grid are exact for a smooth function that falls off to all sides.
    grid = np.arange(-36.0, 36.0, 0.25)
    at = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    with np.errstate(divide="ignore"):
        density = np.exp(model.log_prior(change.theta(at)) + change.at(at).log_jacobian())
    assert 0.25**2 * density.sum() == pytest.approx(1.0, abs=1e-10)


def test_starts_at_an_end_are_moved_in(view: MakeView) -> None:
    model = of_fluxes(view, *3 * [Uniform(0, 1, "Jy")], constraints=[Order(["s0.I", "s1.I"])])
    change = model.unconstrained
    theta = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 1.0]])
    y = change.of_theta(theta)
    assert np.isfinite(y).all()
    np.testing.assert_allclose(change.theta(y), theta, rtol=0, atol=1e-11)
    assert np.isfinite(model.log_prior(change.theta(y))).all()


def test_what_is_nearer_to_an_end_than_its_spread_is_moved_in(view: MakeView) -> None:
    model = of_fluxes(
        view,
        Uniform(1, 5, "Jy"),
        LogUniform(0.1, 1000, "Jy"),
        Normal(1, 2, "Jy"),
        HalfNormal(2, "Jy"),
        *2 * [Uniform(0, 1, "Jy")],
        constraints=[Order(["s4.I", "s5.I"])],
    )
    change = model.unconstrained
    theta = np.array([1.0, 0.1, -3.0, 0.0, 0.4, 0.4])
    moved = change.theta(change.of_theta(theta, np.array([0.5, 2.0, 7.0, 0.3, 0.02, 0.02])))
    # By the spread; nothing without an end; one of a pair by the spread, to first order in the spread.
    np.testing.assert_allclose(moved[:4], [1.5, 2.1, -3.0, 0.3], rtol=1e-12)
    np.testing.assert_allclose(moved[4:], [0.42, 0.4], rtol=2e-3)
    theta = np.array([5.0, 1000.0, -3.0, 0.0, 1.0, 0.0])
    nothing_known = change.theta(change.of_theta(theta, np.full(6, np.inf)))
    np.testing.assert_allclose(nothing_known[:3], [3.0, 10.0, -3.0], rtol=1e-12)  # middles
    inside = np.array([3.0, 20.0, 0.0, 2.0, 0.8, 0.3])
    np.testing.assert_array_equal(change.of_theta(inside, np.full(6, 0.1)), change.of_theta(inside))
