"""Brightness between knots in time."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.si_values import IndexedValues, SIValues
from biro.models.components.light_curve import Times, seconds
from biro.models.components.partition_view import PartitionView

Array = NDArray[np.float64]
Index = NDArray[np.int64]


class LightCurve(NamedTuple):
    """A source with knots.

    Attributes
    ----------
    source : int
        Its place among the sources.
    times : Times
    between : str
        "linear" or "constant".
    stokes : int (n_knot, 4)
        Slots of I, Q, U, V at each knot.
    """

    source: int
    times: Times
    between: str
    stokes: Index


class KnotTable:
    """The knots about each time of a partition.

    Attributes
    ----------
    before, after : int (n_time, n_source, 4)
        Slots; the same where a brightness has no knots, and before the first and after the last knot.
    share : float64 (n_time, n_source, 1)
        What the value is of that after, the rest of that before.
    """

    before: Index
    after: Index
    share: Array

    def __init__(self, stokes: Index, curves: Sequence[LightCurve], time: Array, start: float) -> None:
        shape = time.size, *stokes.shape[1:]
        self.before = np.broadcast_to(stokes, shape).copy()
        self.after, self.share = self.before.copy(), np.zeros((*shape[:2], 1))
        for curve in curves:
            knots = seconds(curve.times, start)
            last = np.clip(np.searchsorted(knots, time, side="right") - 1, 0, knots.size - 1)
            following = np.minimum(last + 1, knots.size - 1)
            self.before[:, curve.source] = curve.stokes[last]
            self.after[:, curve.source] = curve.stokes[following]
            if curve.between == "linear":
                width = np.where(following > last, knots[following] - knots[last], 1.0)
                share = np.clip((time - knots[last]) / width, 0.0, 1.0)
                self.share[:, curve.source, 0] = np.where(following > last, share, 0.0)

    def taken(self, times: Index) -> KnotTable:
        """The knots about some of the times."""
        found = copy.copy(self)
        found.before, found.after = self.before[times], self.after[times]
        found.share = self.share[times]
        return found


def knot_tables(
    stokes: Index, curves: Sequence[LightCurve], partitions: Sequence[PartitionView]
) -> list[KnotTable | None]:
    """The table of each partition; one object for those with the same times, None where nothing has knots."""
    if not curves:
        return [None] * len(partitions)
    start = min(float(partition.time.min()) for partition in partitions)
    made: dict[bytes, KnotTable] = {}
    found: list[KnotTable | None] = []
    for partition in partitions:
        key = partition.time.tobytes()
        if key not in made:
            made[key] = KnotTable(stokes, curves, partition.time, start)
        found.append(made[key])
    return found


def brightness_tables(
    stokes: Index, knots: Sequence[KnotTable | None], partitions: Sequence[PartitionView]
) -> list[KnotTable | None]:
    """Tables of each partition; with several items in `stokes`, brightness has one for each time."""
    if len(stokes) == 1:
        return list(knots)
    return [KnotTable(stokes, (), partition.time, 0.0) for partition in partitions]


class Interpolated:
    """Values between knots, (n_batch, n_time, n_source, 4), as `IndexedValues`."""

    def __init__(self, values: SIValues, table: KnotTable) -> None:
        self._before, self._after = IndexedValues(values, table.before), IndexedValues(values, table.after)
        self._share = table.share

    def __call__(self, values: Array) -> Array:
        found = self._before(values)
        found += self._share * (self._after(values) - found)
        return found

    def push_forward(self, values: Array, changes: Array) -> Array:
        """Changes between the knots, from those of the values."""
        return self(changes)

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """Derivatives with respect to the values at the knots."""
        self._before.pull_back(values, slopes * (1.0 - self._share), into)
        self._after.pull_back(values, slopes * self._share, into)
