"""Sources whose visibility is a function of the user's own, in models."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rime_kernels
from biro.models import CustomSource, ModelError, Noise, PartitionView, SkyModel, Uniform
from biro.models.files.toml import from_toml
from rime_kernels.physics.registered import registered_profile

PLACE = {"east": "0 mas", "north": "0 mas", "I": "1 Jy"}


def binary(u: float, v: float, x: float, y: float, share: float) -> complex:
    """A point with a share of the flux beside another at the centre."""
    turns = 2.0 * math.pi * (u * x + v * y)
    return 1.0 - share + share * complex(math.cos(turns), math.sin(turns))


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    rime_kernels.register_profile("test binary", binary)
    rime_kernels.register_profile(
        "test clash", lambda rho, east: 1.0 + 0.0 * rho * east, coordinates="radial"
    )


def view() -> PartitionView:
    return PartitionView("f/s", "f", "s", (1.0, 0.5), np.zeros(1), np.array([1e9]), ("A", "B"))


def source(**changes: object) -> CustomSource:
    given = {
        "profile": "test binary",
        "parameters": {"share": Uniform(0, 1)},
        "angles": {"y": "3 mas", "x": Uniform(-5, 5, "mas")},
    }
    return CustomSource("s", **PLACE, **given | changes)


def test_quantities_reach_the_function_in_its_order() -> None:
    rime_kernels.register_profile("test pair", lambda u, v, x, y: 1.0 + 0.0 * (u + v + x + y))
    made = CustomSource(
        "s", **PLACE, profile="test pair", parameters={"y": Uniform(0, 1)}, angles={"x": "3 mas"}
    )
    sky = SkyModel([made], noise=Noise(factor=1))
    bound = sky.bind([view()])
    assert [p.name for p in bound.parameters] == ["s.y"]
    found = bound.sources(np.array([[0.25]]), 0)
    np.testing.assert_allclose(found.profile[0, 0], [3e-3 * math.pi / 648e3, 0.25, *[0] * 6], rtol=1e-15)
    np.testing.assert_array_equal(found.shape[0, 0], [1, 1, 0])  # u and v in wavelengths
    known = registered_profile("test pair")
    assert known is not None
    assert found.profile_kind.tolist() == [known.code]
    assert from_toml(sky.to_toml()) == sky


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": "nothing"}, "'nothing' is not registered; call rime_kernels.register_profile"),
        ({"parameters": {}}, "share: is missing"),
        ({"parameters": {"shares": 1}}, "'shares' is no argument of it .did you mean 'share'"),
        ({"parameters": {"share": 0.1, "far": 1}}, "'far' is no argument of it"),
        ({"angles": {"x": "1 mas", "y": "1 mas", "share": "1 deg"}}, "share: is given twice"),
        ({"parameters": [1.0]}, "expected a table"),
        (
            {"profile": "test clash", "size": "1 mas", "parameters": {"east": 1}, "angles": {}},
            "east: no argument can be called so",
        ),
    ],
)
def test_refuses_what_the_function_does_not_take(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        source(**changes)
    assert "\n" not in str(error.value)


def test_a_function_that_gives_nan_is_named() -> None:
    rime_kernels.register_profile("test hole", lambda u, v, p: math.sqrt(p - 1e-3 * (u * u + v * v)))
    made = CustomSource("hole", **PLACE, profile="test hole", parameters={"p": Uniform(2, 4)})
    message = (
        r"source 'hole': the function of profile 'test hole' gives NaN or infinity at u = .*, v = .* "
        r"wavelengths with p = 3 \(the middle of the priors\)"
    )
    with pytest.raises(ModelError, match=message) as error:
        SkyModel([made], noise=Noise(factor=1)).bind([view()])
    assert "\n" not in str(error.value)
    # Within 30 wavelengths it is a number.
    SkyModel([made], noise=Noise(factor=1)).bind([replace(view(), longest=30.0)])


def test_an_installed_package_registers_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shapes_of_mine.py").write_text(
        "import rime_kernels\n"
        "def register():\n"
        "    rime_kernels.register_profile('test entry', lambda u, v, p: p + 0.0 * u * v)\n"
        "def nothing():\n    pass\n"
        "def broken():\n    raise OSError('no such\\nluck')\n"
    )
    info = tmp_path / "shapes_of_mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shapes-of-mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[biro.profiles]\ntest entry = shapes_of_mine:register\ntest none = shapes_of_mine:nothing\n"
        "test broken = shapes_of_mine:broken\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = '[[source]]\nname = "s"\neast = "0 mas"\nnorth = "0 mas"\nI = "1 Jy"\ntype = "custom"\n'
    sky = from_toml(f'{text}profile = "test entry"\nparameters = {{ p = 0.5 }}\n')
    assert sky.bind([view()]).sources(np.ones((1, 1)), 0).profile[0, 0, 0] == 0.5
    with pytest.raises(ModelError, match="the entry point 'shapes_of_mine:nothing' registers no profile"):
        from_toml(f'{text}profile = "test none"\n')
    with pytest.raises(ModelError, match=r"for 'test broken' fails: OSError: no such$"):
        from_toml(f'{text}profile = "test broken"\n')


def test_the_documented_example() -> None:
    page = (Path(__file__).parents[2] / "docs" / "model_files.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "triangle" in block]
    assert len(code.strip().splitlines()) <= 21
    names: dict[str, object] = {}
    exec(code, names)
    bound = names["sky"].bind([view()])
    found = bound.sources(bound.prior_transform(np.full((1, bound.n_param), 0.5)), 0)
    side = 5e-3 * math.pi / 648e3
    np.testing.assert_allclose(found.profile[0, 0, 0], side, rtol=1e-14)
    known = registered_profile("triangle")
    u, v = 3e7, -2e7
    # Corners at (0, r), (r sin 120 deg, r cos 120 deg), ..., r = side / sqrt 3.
    corners = side / math.sqrt(3) * np.array([[0, 1], [math.sqrt(0.75), -0.5], [-math.sqrt(0.75), -0.5]])
    expected = np.exp(2j * np.pi * (corners @ [u, v])).mean()
    assert complex(*known.visibility(v, u, side, *[0.0] * 7)) == pytest.approx(expected, abs=1e-13)
