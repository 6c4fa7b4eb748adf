"""Public functions refuse arguments of a wrong kind in one line that names what was given and expected."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import biro
from biro import plots
from biro.errors import BiroError, InputError
from biro.models import PointSource, SkyModel
from biro.observation.observation import Observation

SKY = SkyModel([PointSource("a", east="0 mas", north="0 mas", I="1 Jy")])
WRONG = [Path("a.ms"), None, 3, [1], {"a": SKY}, SKY, object(), Observation]
"""A path, things that are none of biro's, a model, and a class in place of an instance."""
OTHERWISE = {"add_source", "fit_each", "read_strategy", "simulate"}
"""Functions whose first argument is judged together with others, or may be of many kinds."""


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in (biro, plots):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found) and name not in OTHERWISE:
                yield name, found
    yield "Posterior.load", biro.Posterior.load


@pytest.mark.parametrize(("name", "function"), list(functions()))
def test_the_first_argument_of_a_wrong_kind(name: str, function: Callable[..., Any]) -> None:
    """All public functions but four: one line, without the text of an object that was given."""
    parameters = list(inspect.signature(function).parameters.values())
    needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    is_reader = {"path", "files"} & {needed[0].name}
    for given in WRONG:
        if is_reader and isinstance(given, Path):
            continue
        if isinstance(given, dict | list) and needed[0].name in ("posteriors", "observations"):
            continue
        with pytest.raises(BiroError) as caught:
            function(given, *(SKY if p.name == "sky" else None for p in needed[1:]))
        text = str(caught.value)
        assert "\n" not in text
        assert "got" in text or "found" in text
        assert (str(given) if isinstance(given, Path) else type(given).__name__) in text
        assert "object at 0x" not in text


def test_what_to_do_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'compare takes several Posteriors, got SkyModel.*"two": second'):
        biro.compare(SKY)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"corner takes a Posterior, got SkyModel. Make one: biro.sample"):
        plots.corner(SKY)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"solve_gains takes an Observation, got the path '.*'. Read one"):
        biro.solve_gains(str(tmp_path), SKY)  # type: ignore[arg-type]
    with pytest.raises(BiroError, match="pixels must be an array of numbers, got SkyModel"):
        biro.ImageModel(SKY, 1e-6, (0.0, 0.0), np.ones(1))  # type: ignore[arg-type]
