"""Orders, bounds and functions: built into the transform, or kept with the mass that they leave."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate, stats

from biro.models import (
    AiryBeam,
    Bounds,
    Condition,
    GaussianSource,
    LogUniform,
    ModelError,
    Noise,
    Normal,
    Order,
    PartitionView,
    PointSource,
    SkyModel,
    Uniform,
)

MakeView = Callable[..., PartitionView]
HERE = {"east": "0 arcsec", "north": "0 arcsec"}
Z = Noise(1)


def fluxes(*priors: object, constraints: object = (), view: MakeView) -> object:
    sources = [PointSource(name, **HERE, I=prior) for name, prior in zip("abcd", priors, strict=False)]
    return SkyModel(sources, noise=Z, constraints=constraints).bind([view()])


def ellipse(view: MakeView, emaj: object, **second: object) -> object:
    source = GaussianSource("g", **HERE, I="1 Jy", pa="0 deg", emaj=emaj, **second)
    return SkyModel([source], noise=Z).bind([view()])


def test_an_order_of_alike_parameters_is_built_in(view: MakeView) -> None:
    """Order statistics of three: the largest has cdf F^3, the smallest 1 - (1 - F)^3."""
    prior, oracle = LogUniform(1, 100, "Jy"), stats.loguniform(1, 100)
    model = fluxes(prior, prior, prior, constraints=[Order(["b.I", "c.I"]), Order(["c.I", "a.I"])], view=view)
    theta = model.prior_transform(np.random.default_rng(0).random((4000, 3)))
    assert (theta[:, 1] > theta[:, 2]).all()
    assert (theta[:, 2] > theta[:, 0]).all()
    assert stats.kstest(theta[:, 1], lambda x: oracle.cdf(x) ** 3).pvalue > 1e-3
    assert stats.kstest(theta[:, 0], lambda x: 1 - oracle.sf(x) ** 3).pvalue > 1e-3
    middle = stats.kstest(theta[:, 2], lambda x: 3 * oracle.cdf(x) ** 2 - 2 * oracle.cdf(x) ** 3)
    assert middle.pvalue > 1e-3
    np.testing.assert_allclose(model.log_prior(theta), oracle.logpdf(theta).sum(-1) + np.log(6), rtol=1e-12)
    assert model.allowed(theta).all()
    assert model.log_constraint_mass == 0.0
    assert np.isneginf(model.log_prior(theta[:, [1, 0, 2]])).all()
    assert np.isneginf(model.log_prior(theta[:, [2, 1, 0]])).all()


def test_the_transform_of_an_order_has_the_density_it_says(view: MakeView) -> None:
    """|d theta / d u| p(theta) = 1 for the ordered pair, by central differences."""
    model = fluxes(Normal(0, 1, "Jy"), Normal(0, 1, "Jy"), constraints=[Order(["a.I", "b.I"])], view=view)
    u, step = np.array([0.3, 0.6]), 1e-6
    columns = []
    for axis in np.eye(2):
        columns.append(
            (model.prior_transform(u + step * axis) - model.prior_transform(u - step * axis)) / (2 * step)
        )
    jacobian = abs(np.linalg.det(np.array(columns)))
    assert jacobian * np.exp(model.log_prior(model.prior_transform(u))) == pytest.approx(1, rel=1e-8)


def test_two_separate_chains(view: MakeView) -> None:
    alike = Uniform(0, 1, "Jy")
    model = fluxes(*[alike] * 4, constraints=[Order(["a.I", "b.I"]), Order(["d.I", "c.I"])], view=view)
    theta = model.prior_transform(np.random.default_rng(0).random((100, 4)))
    np.testing.assert_allclose(model.log_prior(theta), np.log(4), rtol=1e-14)


def test_an_order_of_unlike_parameters_keeps_its_mass(view: MakeView) -> None:
    """P(X > Y), X ~ U(0, 1), Y ~ U(0, 2): 1/4."""
    model = fluxes(
        Uniform(0, 1, "Jy"), Uniform(0, 2000, "mJy"), constraints=[Order(["a.I", "b.I"])], view=view
    )
    assert model.log_constraint_mass == pytest.approx(np.log(0.25), abs=1e-9)  # quadrature to 1e-11
    assert model.log_constraint_mass_error == 0
    theta = np.array([[0.5, 400.0], [0.5, 600.0]])
    np.testing.assert_array_equal(model.allowed(theta), [True, False])
    assert model.log_prior(theta)[0] == pytest.approx(np.log(4 / 2000), rel=1e-9)
    assert np.isneginf(model.log_prior(theta)[1])
    total, _ = integrate.dblquad(
        lambda y, x: np.exp(model.log_prior(np.array([x, y]))), 0, 1, 0, lambda x: 1000 * x
    )
    assert total == pytest.approx(1, abs=1e-6)


def test_orders_of_normals(view: MakeView) -> None:
    """P(X > Y) = Phi((mu_x - mu_y) / sqrt(s_x^2 + s_y^2))."""
    model = fluxes(Normal(1, 2, "Jy"), Normal(2, 3, "Jy"), constraints=[Order(["a.I", "b.I"])], view=view)
    assert model.log_constraint_mass == pytest.approx(stats.norm.logcdf(-1 / np.sqrt(13)), abs=1e-8)


def test_an_order_that_always_holds_costs_nothing(view: MakeView) -> None:
    model = fluxes(Uniform(3, 4, "Jy"), Uniform(1, 2, "Jy"), constraints=[Order(["a.I", "b.I"])], view=view)
    assert model.log_constraint_mass == 0.0


def test_orders_that_cross_are_counted(view: MakeView) -> None:
    """a > b and a > c for three alike: P = 1/3, by Monte Carlo with its error said."""
    alike = Uniform(0, 1, "Jy")
    model = fluxes(alike, alike, alike, constraints=[Order(["a.I", "b.I"]), Order(["a.I", "c.I"])], view=view)
    error = model.log_constraint_mass_error
    assert 0 < error < 5e-3
    assert abs(model.log_constraint_mass - np.log(1 / 3)) < 4 * error


def test_order_against_a_number(view: MakeView) -> None:
    model = fluxes(Uniform(0, 4, "Jy"), "1 Jy", constraints=[Order(["a.I", "b.I"])], view=view)
    assert model.log_constraint_mass == pytest.approx(np.log(0.75), abs=1e-12)


def test_bounds(view: MakeView) -> None:
    given = [Bounds("a.I", low="-1000 mJy"), Bounds("b.I", low="0.1 Jy", high="0.3 Jy")]
    model = fluxes(Normal(0, 1, "Jy"), Uniform(0, 1, "Jy"), constraints=given, view=view)
    assert model.log_constraint_mass == pytest.approx(stats.norm.logcdf(1) + np.log(0.2), abs=1e-12)
    np.testing.assert_array_equal(model.allowed([[0, 0.2], [-1.1, 0.2], [0, 0.4]]), [True, False, False])


def test_functions(view: MakeView) -> None:
    """a^2 + b^2 < 1 on the unit square: pi / 4."""

    def inside(p: dict[str, np.ndarray]) -> np.ndarray:
        return p["a.I"] ** 2 + p["b.I"] ** 2 < 1

    model = fluxes(Uniform(0, 1, "Jy"), Uniform(0, 1, "Jy"), constraints=[inside], view=view)
    assert abs(model.log_constraint_mass - np.log(np.pi / 4)) < 4 * model.log_constraint_mass_error
    assert model.log_constraint_mass_error < 2e-3
    assert np.isneginf(model.log_prior([0.9, 0.9]))
    assert model.log_prior([0.1, 0.9]) == -model.log_constraint_mass
    again = fluxes(Uniform(0, 1, "Jy"), Uniform(0, 1, "Jy"), constraints=[inside], view=view)
    assert again.log_constraint_mass == model.log_constraint_mass  # fixed seed


def test_functions_meet_built_in_orders(view: MakeView) -> None:
    """Given a > b, both uniform: P(a > 1/2) = 3/4."""
    alike = Uniform(0, 1, "Jy")
    given = [Order(["a.I", "b.I"]), Condition(lambda p: p["a.I"] > 0.5)]
    model = fluxes(alike, alike, constraints=given, view=view)
    assert abs(model.log_constraint_mass - np.log(0.75)) < 4 * model.log_constraint_mass_error
    assert model.log_prior([0.6, 0.5]) == pytest.approx(np.log(2) - model.log_constraint_mass, rel=1e-14)


def test_a_function_must_answer_for_every_row(view: MakeView) -> None:
    for bad in (lambda p: True, lambda p: p["a.I"], lambda p: p["a.I"][:1] > 0):
        with pytest.raises(ModelError, match="must return bool"):
            fluxes(Uniform(0, 1, "Jy"), constraints=[bad], view=view)


def test_axes_of_an_ellipse_are_ordered(view: MakeView) -> None:
    """Alike priors: built in, density times 2. Unlike: mass 3/4 for U(0, 2) over U(0, 1)."""
    alike = ellipse(view, Uniform(0, 1, "arcsec"), emin=Uniform(0, 1, "arcsec"))
    draws = alike.prior_transform(np.random.default_rng(0).random((50, 2)))
    assert (draws[:, 0] > draws[:, 1]).all()
    np.testing.assert_allclose(alike.log_prior(draws), np.log(2), rtol=1e-14)
    unlike = ellipse(view, Uniform(0, 2, "arcsec"), emin=Uniform(0, 1, "arcsec"))
    assert unlike.log_constraint_mass == pytest.approx(np.log(0.75), abs=1e-9)
    assert np.isneginf(unlike.log_prior([0.2, 0.3]))
    against = ellipse(view, Uniform(0, 2, "arcsec"), emin="0.5 arcsec")
    assert against.log_constraint_mass == pytest.approx(np.log(0.75), abs=1e-12)


def test_sizes_are_not_negative(view: MakeView) -> None:
    model = ellipse(view, Normal(1, 1, "arcsec"), ratio=Uniform(0, 2))
    expected = stats.norm.logcdf(1) + np.log(0.5)
    assert model.log_constraint_mass == pytest.approx(expected, abs=1e-12)
    np.testing.assert_array_equal(model.allowed([[1, 0.5], [-0.1, 0.5], [1, 1.1]]), [True, False, False])


def test_fractions_of_polarisation_stay_fractions(view: MakeView) -> None:
    """The same limits as for numbers: 0 .. 1 linear (-p at chi is p at chi + 90 deg), -1 .. 1 circular."""
    source = PointSource(
        "a", **HERE, I="1 Jy", pol_fraction=Normal(0.1, 0.2), pol_angle="0 deg", v_fraction=Normal(0, 0.5)
    )
    model = SkyModel(source, noise=Z).bind([view()])
    assert np.isneginf(model.log_prior([[-0.01, 0.0], [1.01, 0.0], [0.5, -1.01], [0.5, 1.01]])).all()
    linear, circular = stats.norm(0.1, 0.2), stats.norm(0, 0.5)
    kept = np.log(linear.cdf(1) - linear.cdf(0)) + np.log(circular.cdf(1) - circular.cdf(-1))
    assert model.log_constraint_mass == pytest.approx(kept, rel=1e-9)
    expected = linear.logpdf(0.3) + circular.logpdf(-0.9) - kept
    assert model.log_prior([0.3, -0.9]) == pytest.approx(expected, rel=1e-9)
    beyond = SkyModel(PointSource("a", **HERE, I="1 Jy", pol_fraction=Uniform(1.5, 2), pol_angle="0 deg"))
    with pytest.raises(ModelError, match=r"a\.pol_fraction must be within 0 \.\. 1, found"):
        beyond.bind([view()])
    free = PointSource("a", **HERE, I="1 Jy", pol_fraction=Uniform(0, 1), pol_angle=Uniform(0, 180, "deg"))
    assert SkyModel(free, noise=Z).bind([view()]).log_constraint_mass == 0.0


def test_instruments_are_positive(view: MakeView) -> None:
    source = PointSource("a", **HERE, I="1 Jy")
    model = SkyModel([source], beam=AiryBeam(Normal(1, 1, "m")), noise=Noise(Uniform(-1, 1))).bind([view()])
    assert model.log_constraint_mass == pytest.approx(stats.norm.logcdf(1) + np.log(0.5), abs=1e-12)
    for given in ({"noise": Noise(0)}, {"beam": AiryBeam("0 m")}, {"noise": Noise(Uniform(-2, -1))}):
        with pytest.raises(ModelError, match="must be positive"):
            SkyModel([source], **given).bind([view()])


def test_sources_stay_above_the_horizon(view: MakeView) -> None:
    """l uniform on -2 .. 2 with m = 0: half of it is on the sky."""
    source = PointSource("a", east=Uniform(-2, 2, "rad"), north="0 rad", I="1 Jy")
    model = SkyModel([source], noise=Z).bind([view()])
    assert abs(model.log_constraint_mass - np.log(0.5)) < 4 * model.log_constraint_mass_error
    assert np.isneginf(model.log_prior([1.5]))
    assert np.isnan(model.sources([1.5], 0).lm).any()
    assert np.isfinite(model.sources([0.5], 0).lm).all()


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        ([Order(["a.I", "b.I"]), Order(["b.I", "a.I"])], "no parameters within the priors fulfil"),
        ([lambda p: p["a.I"] > 2], "no parameters within the priors fulfil"),
        ([Bounds("a.I", low="2 Jy")], "a.I must be 2 Jy or more, found a.I within 0 .. 1 Jy"),
        ([Bounds("b.I", high="-2 Jy")], "b.I must be at most -2 Jy"),
        ([Bounds("b.I", low="2 Jy", high="3000 mJy")], "b.I must be within 2 .. 3 Jy"),
        ([Bounds("a.east", low="2 arcmin")], "a.east must be 120 arcsec or more"),
        ([Bounds("a.I", low=2)], "constraint: bounds of 'a.I': low: a number without unit"),
        ([Bounds("a.I", low="2 Jy", high="1 Jy")], "low < high"),
        ([Bounds("a.I", low="2 deg")], "not a flux density"),
        ([Order(["a.I", "b.Q"])], "no quantity is called 'b.Q' (did you mean 'b.I'?)"),
        ([Order(["a.I", "b.north"])], "is a flux density, 'b.north' is an angle"),
        ([Order(["c.I", "a.I"])], "tied, so neither is larger"),
    ],
)
def test_constraints_that_cannot_be(constraints: list, words: str, view: MakeView) -> None:
    with pytest.raises(ModelError) as caught:
        fluxes(Uniform(0, 1, "Jy"), Uniform(0, 1, "Jy"), "a.I", constraints=constraints, view=view)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Order("a.I"),
        lambda: Order(["a.I"]),
        lambda: Order(["a.I", "a.I"]),
        lambda: Order([1, 2]),
        lambda: Bounds("a.I"),
        lambda: Condition(3),
        lambda: SkyModel([PointSource("a", **HERE, I="1 Jy")], constraints=[3]),
    ],
)
def test_malformed_constraints(make: Callable[[], object]) -> None:
    with pytest.raises(ModelError):
        make()
