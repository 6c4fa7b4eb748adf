"""Segments of time of gains: the whole track, scans, integrations, or stretches of a length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from biro.models.components.partition_view import PartitionView
from rime_kernels.arrays.time_slots import slot_width, time_slots

Array = NDArray[np.float64]
Index = NDArray[np.int64]
GAP_INTERVALS, GAP_LEAST = 3.0, 60.0
"""A scan ends at a gap longer than so many integrations, and than so many seconds."""
TOGETHER = 0.4
"""Integrations that overlap by more than 1 - 0.4 are solved together; two of one baseline never do."""
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
    number : int64 (n_segment,) or None
        Numbers that segments have in the data; None: they are counted from 1.
    """

    of_time: list[Index]
    middle: Array
    word: str
    number: Index | None = None

    def index(self, segment: int) -> str:
        """The index of a segment in the names of parameters: "[scan 3]"."""
        number = segment + 1 if self.number is None else self.number[segment]
        return f"[{self.word} {number}]" if self.word else ""


def cut(time: str | float, partitions: Sequence[PartitionView]) -> Segments:
    """The segments of all partitions.

    Parameters
    ----------
    time : "track", "scan", "integration", or a length in s
        Integrations that overlap by more than 60 % are one. Lengths count from the first time of all. A scan
        ends where the scan number of the data changes; where some partitions have no such numbers, it ends
        where all partitions pause for longer than three integrations and a minute, and where the field
        changes.
    partitions : sequence of PartitionView
    """
    number = None
    times, inverse = np.unique(np.concatenate([view.time for view in partitions]), return_inverse=True)
    inverse = inverse.reshape(-1)
    if time == "track":
        segment = np.zeros(times.size, np.int64)
    elif time == "integration":
        segment = _integrations(times, partitions)
    elif time == "scan":
        if numbers_scans(partitions):
            segment, number = _numbered_scans(times, inverse, partitions)
        else:
            segment = _scans_by_pauses(times, inverse, partitions)
    else:
        _, segment = np.unique(blocks_of(times, float(time), partitions), return_inverse=True)
        segment = segment.reshape(-1)
    n_segment = int(segment[-1]) + 1
    first, last = np.full(n_segment, np.inf), np.full(n_segment, -np.inf)
    np.minimum.at(first, segment, times)
    np.maximum.at(last, segment, times)
    ends = np.cumsum([view.time.size for view in partitions])[:-1]
    of_time = [segment[part].astype(np.int64) for part in np.split(inverse, ends)]
    return Segments(of_time, 0.5 * (first + last), _WORDS.get(str(time), "segment"), number)


def blocks_of(times: Array, length: float, partitions: Sequence[PartitionView]) -> Index:
    """Blocks of a length, s, from the first of ascending times; rounding moves no time into another block."""
    slack = min(slot_width(min(view.shortest for view in partitions)), 0.1 * length)
    return np.asarray(np.floor((times - times[0] + slack) / length), np.int64)


def _integrations(times: Array, partitions: Sequence[PartitionView]) -> Index:
    """The integration of each of the distinct times of all partitions.

    Integrations of baselines, windows or subarrays that begin within `TOGETHER` of the shortest one are one.
    """
    shortest = min(view.shortest for view in partitions)
    return time_slots(times, max(TOGETHER * shortest, slot_width(shortest)))[1]


def numbers_scans(partitions: Sequence[PartitionView]) -> bool:
    """Whether scans are told apart by their numbers in the data; else by pauses."""
    return all(view.scan is not None for view in partitions)


def _numbered_scans(
    times: Array, inverse: Index, partitions: Sequence[PartitionView]
) -> tuple[Index, Index | None]:
    """The scan of each of the distinct times of all partitions, and the numbers of the scans.

    A scan lasts as long as the numbers of all sets that were joined stay as they are. Numbers of sets that
    overlap in time are those of one observation, so that a set that begins or ends within a scan does not end
    it. Numbers that come twice, or differ between sets, are no names: None in place of them.
    """
    ends = np.cumsum([view.time.size for view in partitions])[:-1]
    sets = list(dict.fromkeys(view.set_name for view in partitions))
    of_set: list[dict[int, int]] = [{} for _ in sets]
    for view, slots in zip(partitions, np.split(inverse, ends), strict=True):
        assert view.scan is not None
        of_set[sets.index(view.set_name)].update(zip(slots.tolist(), view.scan.tolist(), strict=True))
    present: list[set[tuple[int, int]]] = [set() for _ in times]
    epochs, epoch, until = [], -1, -1
    of_set.sort(key=min)
    for slots_of in of_set:
        epoch, until = epoch + (min(slots_of) > until), max(*slots_of, until)
        epochs.append(epoch)
        for slot, scan in slots_of.items():
            present[slot].add((epoch, scan))
    in_force = [set(scans) for scans in present]
    for slots_of, epoch in zip(of_set, epochs, strict=True):
        for (slot, scan), (following, changed) in pairwise(sorted(slots_of.items())):
            for between in range(slot + 1, following):
                # Where another set has come to the next scan, this one has, too.
                begun = (epoch, changed) in present[between]
                in_force[between].add((epoch, changed if begun else scan))
    segment = np.cumsum([False, *(a != b for a, b in pairwise(in_force))])
    begins = np.searchsorted(segment, np.arange(int(segment[-1]) + 1))
    found = [in_force[slot] for slot in begins.tolist()]
    numbers = [scan for scans in found for _, scan in scans]
    alone = len(numbers) == len(found) == len(set(numbers))
    return segment, np.array(numbers, np.int64) if alone else None


def _scans_by_pauses(times: Array, inverse: Index, partitions: Sequence[PartitionView]) -> Index:
    """The scan of each of the distinct times of all partitions, by pauses and changes of the field."""
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
