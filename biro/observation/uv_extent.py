"""How far the projected baselines of partitions reach, and the field of view of their dishes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.observation.partition import Partition
from rime_kernels.physics.phase import SPEED_OF_LIGHT


@dataclass(frozen=True)
class UVExtent:
    """Shortest and longest projected baseline among usable visibilities; zeros where there is none.

    Attributes
    ----------
    metres, wavelengths : (float, float)
    """

    metres: tuple[float, float]
    wavelengths: tuple[float, float]


def uv_extent(partitions: Sequence[Partition]) -> UVExtent:
    """Shortest and longest projected baseline of two different antennas, over all partitions."""
    metres, shortest = [], []
    for part in partitions:
        used = (part.row_weight > 0) & (part.antenna1 != part.antenna2)
        length = np.hypot(part.uvw[used, 0], part.uvw[used, 1])
        if length.size:
            metres += [length.min(), length.max()]
            shortest.append(length.min() * part.chan_freq.min() / SPEED_OF_LIGHT)
    if not metres:
        return UVExtent((0.0, 0.0), (0.0, 0.0))
    longest = max(longest_wavelengths(part) for part in partitions)
    return UVExtent((float(min(metres)), float(max(metres))), (float(min(shortest)), longest))


def longest_wavelengths(part: Partition) -> float:
    """Longest projected baseline among usable visibilities, in wavelengths; 0 where there is none."""
    length = np.hypot(part.uvw[:, 0], part.uvw[:, 1])
    highest = part.by_row(_highest_freq, part.chan_freq)
    return float((length * highest / SPEED_OF_LIGHT).max(initial=0.0))


def _highest_freq(
    _: NDArray[np.complexfloating], weight: NDArray[np.floating], chan_freq: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Highest frequency of each row among usable visibilities, Hz; 0 where there is none."""
    return np.asarray(np.where(weight.any(axis=2), chan_freq, 0.0).max(axis=1))


def longest_of_rows(part: Partition) -> float:
    """Longest projected baseline at the highest frequency, flagged or not, in wavelengths."""
    length = np.hypot(part.uvw[:, 0], part.uvw[:, 1]).max(initial=0.0)
    return float(length * part.chan_freq.max(initial=0.0) / SPEED_OF_LIGHT)


def field_of_view(part: Partition, dish_diameter: NDArray[np.float64]) -> float:
    """lambda / D at the lowest frequency for the smallest dish used, rad; 0 where no diameter is known.

    Parameters
    ----------
    part : Partition
    dish_diameter : float64 (n_antenna,), m
        0 where it is not known; may be empty.
    """
    diameter = dish_diameter[np.union1d(part.antenna1, part.antenna2)] if len(dish_diameter) else np.zeros(1)
    known = diameter[diameter > 0]
    return float(SPEED_OF_LIGHT / part.chan_freq.min() / known.min()) if known.size else 0.0
