"""Sources whose visibility is a function of the user's own, in models."""

from __future__ import annotations

import math

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
