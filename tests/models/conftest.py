"""Frames for binding, as fixtures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from biro.models import Frame

CENTRE = (3.2686162621088966, 0.03582094364245918)


@pytest.fixture(scope="session")
def frame() -> Callable[..., Frame]:
    """A partition with times 0, 10, 20, ... s and antennas of one letter: frame("field/spw")."""

    def make(label: str = "f/spw0", centre: tuple = CENTRE, n_time: int = 3, antennas: str = "ABC") -> Frame:
        field, _, spw = label.partition("/")
        times = 10.0 * np.arange(n_time)
        return Frame(label, field, spw, centre, times, np.array([1.4e9]), tuple(antennas))

    return make
