"""Frames for binding, as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from biro.models import ModelError, PartitionView, read_sky

CENTRE = (3.2686162621088966, 0.03582094364245918)


@pytest.fixture(scope="session")
def view() -> Callable[..., PartitionView]:
    """A partition with times 0, 10, 20, ... s and antennas of one letter: view("field/spw")."""

    def make(
        label: str = "f/spw0", centre: tuple = CENTRE, n_time: int = 3, antennas: str = "ABC"
    ) -> PartitionView:
        field, _, spw = label.partition("/")
        times = 10.0 * np.arange(n_time)
        return PartitionView(label, field, spw, centre, times, np.array([1.4e9]), tuple(antennas))

    return make


@pytest.fixture
def refused(tmp_path: Path) -> Callable[[str, str, str], None]:
    """Check that a sky file is refused: refused("bad.mod", "its text", "a pattern of the error")."""

    def check(name: str, text: str, message: str) -> None:
        place = tmp_path / name
        place.write_text(text)
        with pytest.raises(ModelError, match=message):
            read_sky(place)

    return check
