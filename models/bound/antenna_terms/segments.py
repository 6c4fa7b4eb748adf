"""Segments of time of gains: the whole track, scans, integrations, or stretches of a length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.models.components.partition_view import PartitionView

Array = NDArray[np.float64]
Index = NDArray[np.int64]
GAP_INTERVALS, GAP_LEAST = 3.0, 60.0
"""A scan ends at a gap longer than so many integrations, and than so many seconds."""
_WORDS = {"track": "", "scan": "scan", "integration": "time"}


@dataclass(frozen=True, eq=False)
class Segments:
    """The times of all partitions, cut into segments.

    Attributes
    ----------
    of_time : list of int (n_time,)
        The segment of each time of each partition.
    middle : float64 (n_segment,), s
        MJD.
    word : str
        What a segment is called: "scan", "time", "segment"; empty of a single one.
    """

    of_time: list[Index]
    middle: Array
    word: str

    def index(self, segment: int) -> str:
        """The index of a segment in the names of parameters: "[scan 3]", counted from 1."""
        return f"[{self.word} {segment + 1}]" if self.word else ""


def cut(time: str | float, partitions: Sequence[PartitionView]) -> Segments:
    """The segments of all partitions.

    Parameters
    ----------
    time : "track", "scan", "integration", or a length in s
        Lengths count from the first time of all. A scan ends where all partitions pause for longer than three
        integrations and a minute, and where the field changes.
    partitions : sequence of PartitionView
    """
    times, inverse = np.unique(np.concatenate([view.time for view in partitions]), return_inverse=True)
    inverse = inverse.reshape(-1)
    if time == "track":
        segment = np.zeros(times.size, np.int64)
    elif time == "integration":
        segment = np.arange(times.size)
    elif time == "scan":
        segment = _scans(times, inverse, partitions)
    else:
        _, segment = np.unique(np.floor((times - times[0]) / float(time) + 1e-9), return_inverse=True)
        segment = segment.reshape(-1)
    n_segment = int(segment[-1]) + 1
    first, last = np.full(n_segment, np.inf), np.full(n_segment, -np.inf)
    np.minimum.at(first, segment, times)
    np.maximum.at(last, segment, times)
    ends = np.cumsum([view.time.size for view in partitions])[:-1]
    of_time = [segment[part].astype(np.int64) for part in np.split(inverse, ends)]
    return Segments(of_time, 0.5 * (first + last), _WORDS.get(str(time), "segment"))


def _scans(times: Array, inverse: Index, partitions: Sequence[PartitionView]) -> Index:
    """The scan of each of the distinct times of all partitions."""
    interval = max(view.interval for view in partitions)
    if not interval > 0.0 and times.size > 1:
        interval = float(np.median(np.diff(times)))
    fields = list(dict.fromkeys(view.field for view in partitions))
    seen = np.zeros((times.size, len(fields)), bool)
    of_each = [fields.index(view.field) for view in partitions for _ in range(view.time.size)]
    seen[inverse, of_each] = True
    pause = np.diff(times) > max(GAP_INTERVALS * interval, GAP_LEAST)
    changes = (seen[1:] != seen[:-1]).any(axis=1)
    return np.concatenate([[0], np.cumsum(pause | changes)])
