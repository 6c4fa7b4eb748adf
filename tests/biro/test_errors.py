"""Every error that a user can get is a `BiroError`, and all classes of errors are names of `biro`."""

import ast
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from test_likelihood import observation

import biro
import biro.errors
import biro.models
import rime_kernels
from biro.models import PointSource

ROOT = Path(__file__).parents[2]
INTERNAL = {"ClosedError", "OutsideError", "RefusalError", "Stopped", "UnknownError", "_Cancelled"}
"""Exceptions that are caught before a user sees them."""


def classes() -> Iterator[type]:
    """All classes of exceptions of the three rooms."""
    for room in ("biro", "biro/models", "rime_kernels"):
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text()
            if not re.search(r"^class \w+\(.*(Error|Exception|Interrupted)\b", text, re.M):
                continue
            module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for node in ast.parse(text).body:
                found = getattr(module, node.name) if isinstance(node, ast.ClassDef) else None
                if isinstance(found, type) and issubclass(found, BaseException):
                    yield found


def test_all_classes_have_one_base() -> None:
    found = set(classes())
    assert {biro.InputError, biro.MeasurementSetError, biro.ModelError} < found
    others = {each.__name__ for each in found if not issubclass(each, biro.BiroError)}
    assert others - {"DataNote"} <= INTERNAL


def test_all_classes_are_names_of_biro_and_documented() -> None:
    page = (ROOT / "docs" / "reference" / "errors.rst").read_text()
    for name in biro.errors.__all__:
        assert getattr(biro, name) is getattr(biro.errors, name)
        assert f".. autoexception:: biro.errors.{name}\n" in page
    assert biro.models.ModelError is biro.ModelError
    for name in ("BackendError", "BiroError", "InputError"):
        assert getattr(rime_kernels, name) is getattr(biro, name)


def sky() -> biro.SkyModel:
    return biro.SkyModel([PointSource(name="core", ra="75 deg", dec="-45 deg", I="1 Jy")])


WRONG: dict[str, Callable[[biro.Observation], object]] = {
    "read": lambda _: biro.read("absent.ms"),
    "option of read": lambda _: biro.read("absent.ms", uv_range="3 apples.."),
    "read_ms": lambda _: biro.read_ms("absent.ms"),
    "read_uvfits": lambda _: biro.read_uvfits("absent.uvfits"),
    "read_model": lambda _: biro.read_model("absent.toml"),
    "read_sky": lambda _: biro.read_sky("absent.txt"),
    "read_image": lambda _: biro.read_image("absent.fits"),
    "read_gains": lambda _: biro.read_gains("absent.G"),
    "read_strategy": lambda _: biro.read_strategy("absent"),
    "flag": lambda _: biro.flag("absent.ms"),
    "undo_flags": lambda _: biro.undo_flags("absent.ms"),
    "posterior": lambda _: biro.Posterior.load("absent.nc"),
    "compare": lambda _: biro.compare({}),
    "simulate": lambda _: biro.simulate("KAT-8", sky(), phase_centre="05h00m00s -45d00m00s"),
    "likelihood": lambda _: biro.Likelihood("absent.ms", sky()),  # type: ignore[arg-type]
    "option of a likelihood": lambda obs: biro.Likelihood(obs, sky(), gains="samples"),  # type: ignore[arg-type]
    "sampler": lambda obs: biro.sample(biro.Likelihood(obs, sky(), backend="cpu"), "emceee"),
    "image": lambda obs: biro.image(obs, size=-1),
    "image of a model": lambda _: biro.image(sky()),  # type: ignore[arg-type]
    "find_sources": lambda obs: biro.find_sources(obs, size=-1),
    "solve_gains": lambda obs: biro.solve_gains(obs, sky(), interval="3 apples"),
    "predict": lambda _: rime_kernels.predict(
        np.zeros((3, 2)), np.ones(1), np.zeros((1, 2)), np.ones((1, 4))
    ),
    "tie": lambda _: PointSource(name="a", ra="75 deg", dec="-45 deg", I="b.I +"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_input_is_an_error_of_biro(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(biro.BiroError) as caught:
        WRONG[what](observation())
    assert "\n" not in str(caught.value)
    assert str(caught.value)
