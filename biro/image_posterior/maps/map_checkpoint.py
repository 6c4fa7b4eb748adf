"""The state of a fast map after each major cycle, in a file from which an interrupted fit goes on."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.files.atomic import write_atomic
from biro.files.npz import read_npz, reading

Array = NDArray[np.float64]
NAME = "map-{}.npz"
"""Name of the file of each map of a fit: the first one, and those with less noise."""


@dataclass
class MapState:
    """A fast map between two major cycles.

    Attributes
    ----------
    z, best_z : float64
        Variables of the last cycle, and of the best one.
    best : float
        chi2/2 of the best cycle.
    history : list of float
        chi2 of each cycle.
    strength : float or None
        Of the penalty, once it is chosen.
    is_done : bool
        Whether chi2 has stopped falling.
    """

    z: Array
    best_z: Array
    best: float
    history: list[float]
    strength: float | None
    is_done: bool = False

    def write(self, path: Path) -> None:
        """Replace the file."""
        buffer = io.BytesIO()
        strength = np.nan if self.strength is None else self.strength
        numbers = np.array([self.best, strength, self.is_done])
        np.savez(buffer, z=self.z, best_z=self.best_z, history=np.array(self.history), numbers=numbers)
        write_atomic(path, buffer.getvalue())


def read_state(path: Path | None, size: int) -> MapState | None:
    """The state in a file; None where there is none, or where it has another number of variables.

    Raises
    ------
    DataError
        The file is damaged.
    """
    if path is None or not path.exists():
        return None
    arrays = read_npz(path, "the checkpoint of a map")
    with reading(path, "the checkpoint of a map"):
        best, strength, is_done = (float(value) for value in arrays["numbers"])
        found = MapState(
            np.asarray(arrays["z"], np.float64),
            np.asarray(arrays["best_z"], np.float64),
            best,
            [float(value) for value in arrays["history"]],
            None if np.isnan(strength) else strength,
            bool(is_done),
        )
    return found if found.z.size == size else None
