"""Ties that are sums of multiples of quantities: values, derivatives, prior, constraints, files, errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from biro.models import (
    Bounds,
    GaussianSource,
    LogUniform,
    ModelError,
    Noise,
    Normal,
    Order,
    PartitionView,
    PointSource,
    SkyModel,
    Tie,
    Uniform,
    read_model,
    write_model,
)
from biro.models.bound.model import BoundModel
from biro.models.quantities.tie import read_sum
from rime_kernels.gradient import Gradient

MakeView = Callable[..., PartitionView]
MAS = np.pi / 648000e3
FREE_FLUX = LogUniform("0.1 Jy", "10 Jy")
PLACE = {"east": "0 mas", "north": "0 mas"}


def ladder() -> SkyModel:
    """Offset, ratio, sum, difference, chain of ties, units that differ, and a tie to a constant."""
    return SkyModel(
        [
            PointSource("a", east=Uniform(-9, 9, "mas"), north="2 mas", I=FREE_FLUX),
            PointSource("b-1", east="a.east + 3 mas", north="-a.east*0.5", I="a.I * 0.5"),
            PointSource("c", east=Normal(0, 2, "arcsec"), north="(b-1.east - c.east) / 2 - 4 uas",
                        I=Normal(1, 1, "mJy")),
            PointSource("d", east="2 * (a.north + 1 mas)", north="c.north",
                        I="a.I + c.I - 2 * b-1.I + 7 mJy"),
            GaussianSource("g", **PLACE, I="d.I", emaj=Uniform(1, 5, "mas"), ratio=Uniform(0, 1),
                           pa="10 deg"),
            GaussianSource("h", **PLACE, I="1 Jy", emaj="g.emaj * 2 + 1 mas", emin="g.emaj",
                           pa="g.pa + 90 deg"),
        ],
        noise=Noise(1),
    )  # fmt: skip


def meant(theta: np.ndarray) -> dict[str, np.ndarray]:
    """What the texts of the ties above say, worked out by hand; rad and Jy."""
    east, flux, other, faint, size, ratio = theta.T
    east, other, faint, size = east * MAS, other * 1e3 * MAS, faint * 1e-3, size * MAS
    nil, one = 0 * east, 1 + 0 * east
    third = (east + 3 * MAS - other) / 2 - 0.004 * MAS
    places = [(east, 2 * MAS + nil), (east + 3 * MAS, -0.5 * east), (other, third), (6 * MAS + nil, third)]
    last = flux + faint - 2 * (0.5 * flux) + 0.007
    return {
        "lm": np.stack([np.stack(p, -1) for p in (*places, (nil, nil), (nil, nil))], 1),
        "stokes": np.stack([flux, 0.5 * flux, faint, last, last, one], -1)[:, None],
        "shape": np.stack(
            [
                np.stack([size, ratio * size, np.radians(10) + nil], -1),
                np.stack([2 * size + MAS, size, np.radians(100) + nil], -1),
            ],
            1,
        ),
    }


@pytest.fixture
def model(view: MakeView) -> BoundModel:
    return ladder().bind([view("a/x")])


def draws(model: BoundModel, n: int = 5) -> np.ndarray:
    return model.prior_transform(np.random.default_rng(3).random((n, model.n_param)))


def test_sources_are_what_the_ties_say(model: BoundModel) -> None:
    assert model.parameter_names == ("a.east", "a.I", "c.east", "c.I", "g.emaj", "g.ratio")
    theta = draws(model)
    sources, expected = model.sources(theta, 0), meant(theta)
    # Rounding; of fluxes of 10 Jy that cancel to some mJy.
    np.testing.assert_allclose(sources.lm, expected["lm"], rtol=1e-13, atol=1e-22)
    np.testing.assert_allclose(sources.stokes[..., 0], expected["stokes"], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(sources.shape, expected["shape"], rtol=1e-13)


def test_derivatives_are_those_of_the_sums(model: BoundModel) -> None:
    """Of a linear map the difference of two values is the derivative, whatever the step."""
    theta, random = draws(model, 1), np.random.default_rng(4)
    now = meant(theta)
    slopes = {name: random.normal(size=array.shape) for name, array in now.items()}
    size = (1, 6, 4)
    stokes = np.zeros((1, 1, 6, 4))
    stokes[..., 0] = slopes["stokes"]
    gradient = Gradient(slopes["lm"], stokes, np.zeros((*size, 0)), slopes["shape"])
    found = model.pull_back(theta, [gradient])[0]
    (pushed,) = model.push_forward(theta, np.eye(model.n_param))
    for i in range(model.n_param):
        step = np.zeros_like(theta)
        step[0, i] = 1e-2  # small only for the product ratio x size, which is not linear
        low, high = meant(theta - step), meant(theta + step)
        by = {name: (high[name] - low[name])[0] / 2e-2 for name in now}
        expected = sum(float((by[name] * slopes[name][0]).sum()) for name in now)
        scale = sum(float(np.abs(by[name] * slopes[name][0]).sum()) for name in now)
        # Differences over a step of 0.01 have rounding of 1e-16 / 0.01 of the values.
        assert found[i] == pytest.approx(expected, abs=1e-11 * scale + 1e-12)
        np.testing.assert_allclose(pushed.lm[i], by["lm"], rtol=1e-9, atol=1e-20)
        np.testing.assert_allclose(pushed.stokes[i, ..., 0], by["stokes"], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(pushed.shape[i], by["shape"], rtol=1e-9, atol=1e-20)


def test_a_model_file_keeps_ties(tmp_path: Path, view: MakeView) -> None:
    write_model(ladder(), tmp_path / "sky.toml")
    again = read_model(tmp_path / "sky.toml")
    assert again == ladder()
    assert again.bind([view()]).digest() == ladder().bind([view()]).digest()
    assert Tie("(b-1.east - c.east) / 2 - 4 uas") in (s.north for s in again.sources)


def test_noise_factors_may_be_sums(view: MakeView) -> None:
    point = PointSource("s", **PLACE, I=Uniform(0, 1, "Jy"))
    source = GaussianSource("g", **PLACE, I="1 Jy", emaj="2 mas", ratio=Uniform(0.1, 1), pa="0 deg")
    sky = SkyModel([point, source], noise=Noise("2 * g.ratio + 1"))
    model = sky.bind([view("a/x"), view("b/x")])
    theta = np.array([[0.5, 0.25], [0.1, 0.75]])
    np.testing.assert_allclose(model.noise_factor(theta), [[1.5, 1.5], [2.5, 2.5]], rtol=1e-15)
    np.testing.assert_allclose(model.pull_back_noise(np.array([[3.0, 4.0]])), [[0.0, 14.0]], rtol=1e-15)
    assert model.noise_parameters == {}  # none of which chi-squared alone tells the best value


def mass(view: MakeView, *sources: PointSource, constraints: object = ()) -> tuple[float, float]:
    """What constraints leave of the prior, and its relative error."""
    bound = SkyModel(list(sources), noise=Noise(1), constraints=constraints).bind([view()])
    return float(np.exp(bound.log_constraint_mass)), bound.log_constraint_mass_error


def test_limits_and_orders_see_through_ties(view: MakeView) -> None:
    a, b = PointSource("a", **PLACE, I=Uniform(0, 4, "Jy")), PointSource("b", **PLACE, I=Uniform(0, 4, "Jy"))

    def tied(text: str) -> PointSource:
        return PointSource("t", **PLACE, I=text)

    # a - 1 >= 0 keeps 3 parts of 4; 2 - a >= 0 keeps half; a > 6 - 2 a, which is a > 2, too.
    assert mass(view, a, tied("a.I - 1 Jy"), constraints=Bounds("t.I", low="0 Jy")) == (0.75, 0.0)
    assert mass(view, a, tied("2 Jy - a.I"), constraints=Bounds("t.I", low="0 Jy")) == (0.5, 0.0)
    found = mass(view, a, tied("6 Jy - 2 * a.I"), constraints=Order(["a.I", "t.I"]))
    assert found == (pytest.approx(0.5, rel=1e-14), 0.0)
    assert mass(view, a, tied("a.I * 0.5"), constraints=Order(["a.I", "t.I"])) == (1.0, 0.0)
    # Of the square of a and b the corner a + b < 2 is an eighth; counted on draws, to four of its errors.
    found = mass(view, a, b, tied("a.I + b.I"), constraints=Bounds("t.I", high="2 Jy"))
    assert found[1] > 0
    assert found[0] == pytest.approx(0.125, rel=4 * found[1])
    # b >= a / 2 of two uniform numbers leaves 3 parts of 4, by quadrature.
    found = mass(view, a, b, tied("a.I * 0.5"), constraints=Order(["b.I", "t.I"]))
    assert found == (pytest.approx(0.75, rel=1e-9), 0.0)


def test_a_bound_of_a_tied_flux_is_one_of_its_parameter(view: MakeView) -> None:
    sky = SkyModel(
        [PointSource("a", **PLACE, I=Normal(1, 1, "Jy")), PointSource("b", **PLACE, I="3 Jy - a.I * 2")],
        noise=Noise(1),
        constraints=Bounds("b.I", low="1 Jy", high="2 Jy"),
    )
    model = sky.bind([view()])
    low, high = model.box
    assert (low[0], high[0]) == (pytest.approx(0.5), pytest.approx(1.0))
    between = stats.norm.cdf(0.0) - stats.norm.cdf(-0.5)
    assert model.log_constraint_mass == pytest.approx(np.log(between), rel=1e-12)
    assert model.allowed([[0.4], [0.75], [1.1]]).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("tie", "period"),
    [("g.pa + 90 deg", 180.0), ("g.pa", 180.0), ("-g.pa", 180.0), ("g.pa * 0.5", None), ("g.pa * 2", 180.0)],
)
def test_an_angle_turns_round_only_with_all_that_follow_it(view: MakeView, tie: str, period: object) -> None:
    sizes = {"emaj": "2 mas", "emin": "1 mas", "I": "1 Jy"}
    sky = SkyModel(
        [
            GaussianSource("g", **PLACE, **sizes, pa=Uniform(0, 180, "deg")),
            GaussianSource("h", **PLACE, **sizes, pa=tie),
        ],
        noise=Noise(1),
    )
    (parameter,) = sky.bind([view()]).parameters
    assert parameter.period == period


def test_a_long_chain_and_cancelling_ties(view: MakeView) -> None:
    """Neither depth nor rounding stops a chain: 3000 steps of 1 mJy, and 0.1 + 0.2 - 0.3 of a flux."""
    steps = [PointSource(f"s{i}", **PLACE, I=f"s{i + 1}.I + 1 mJy") for i in range(3000)]
    first = PointSource("s3000", **PLACE, I=Uniform(0, 1, "Jy"))
    last = PointSource("z", **PLACE, I="s3000.I * 0.1 + s3000.I * 0.2 - 0.3 * s3000.I + 5 Jy")
    model = SkyModel([*steps, first, last], noise=Noise(1)).bind([view()])
    flux = model.sources([[0.25]], 0).stokes[0, 0, :, 0]
    assert flux[0] == pytest.approx(3.25, rel=1e-12)
    assert flux[-1] == 5.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("b.I + 3", "a number without unit is not a flux density"),
        ("b.I + 3 mas", "unit 'mas' is not a flux density"),
        ("b.I + b.east", "a.I: is a flux density and cannot be tied to 'b.east', an angle"),
        ("b.I * b.I", "cannot be a product of quantities"),
        ("b.I * 2 Jy", "one must be a plain number"),
        ("1 / b.I", "divided by a plain number only"),
        ("b.I / 0", "division by 0"),
        ("sqrt(b.I)", "there are no functions"),
        ("b.I ** 2", "expected a number or a quantity"),
        ("b.I + ", "expected a number or a quantity"),
        ("(b.I + c.I", "expected )"),
        ("b.I c.I", "expected +, -, * or /"),
        ("b.I+3 Jy", "with spaces around + and -"),
        ("b.I+c.I", "+ and - need a space on either side"),
        ("d.I * 2", "no quantity is called so"),
        ("a.I + 1 Jy", "a.I: tied to itself, by way of 'a.I'"),
        ("c.I * 2", "tied to itself"),
        ("1e300 * (1e300 * b.I)", "too large"),
        ("(" * 40 + "b.I" + ")" * 40, "parentheses go deeper"),
        ("b.I" + " + b.I" * 1000, "2000 characters at most"),
        ({"tie": "b.I", "prior": "uniform", "low": 0, "high": 1}, "a tied quantity has no prior of its own"),
        (Tie("3 Jy * 2"), "names no quantity"),
        ("__import__('os.path').system('x')", "there are no functions"),
    ],
)
def test_a_tie_that_cannot_be_is_one_line(text: object, words: str) -> None:
    others = [PointSource("b", **PLACE, I="1 Jy"), PointSource("c", **PLACE, I="a.I - 1 Jy")]
    with pytest.raises(ModelError) as caught:
        SkyModel([PointSource("a", **PLACE, I=text), *others])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_may_have_what_operators_look_like() -> None:
    assert read_sum("3C273.I * 2").terms == {"3C273.I": 2.0}
    assert read_sum("a-b.east - c+d.east").terms == {"a-b.east": 1.0, "c+d.east": -1.0}
    found = read_sum("noise.factor[3C 273/spw0]/2 - 1e-3 * pointing.east[RT0][1]")
    assert found.terms == {"noise.factor[3C 273/spw0]": 0.5, "pointing.east[RT0][1]": -1e-3}
    assert read_sum("65 1/GHz - 2 * beam.coefficient").unit == "1/GHz"
