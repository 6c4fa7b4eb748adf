"""Rows in shards of whole time slots: what several devices share, and what is added up in a fixed order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays.slices import as_slice
from rime_kernels.geometry import RowTable, row_table
from rime_kernels.inputs import Constants

Index = NDArray[np.int64]

MOST_SHARDS = 24
"""So many shards at most: a number that 1, 2, 3, 4, 6, 8, 12 and 24 devices share equally."""


def shard_bounds(table: RowTable) -> Index:
    """Where shards of rows in the order of time begin, int64 (n_shard + 1,).

    They follow from the rows alone, whatever computes them: sums over shards are therefore the same to the
    bit for any number of devices. Shards are as equal in rows as whole time slots allow.
    """
    starts = np.unique(table.slot_start)  # slots that have rows
    n_row, n_shard = int(starts[-1]), min(MOST_SHARDS, starts.size - 1)
    wanted = np.arange(n_shard + 1) * n_row / n_shard
    return np.unique(starts[np.abs(starts - wanted[:, None]).argmin(axis=1)])


def shards_of(time_index: NDArray[np.int32], n_time: int) -> tuple[Index, ...]:
    """The rows of each shard, in the order of time."""
    if not time_index.size:
        return ()
    table = row_table(time_index, n_time)
    return tuple(table.order[start:stop] for start, stop in pairwise(shard_bounds(table)))


def shared_out(bounds: Index, n_device: int) -> list[list[int]]:
    """The shards of each device, neighbours together, so that the device with most rows has as few as can be.

    Parameters
    ----------
    bounds : int64 (n_shard + 1,)
        As `shard_bounds` gives them.
    n_device : int
        Those that are more than shards have none.
    """
    rows = np.diff(bounds)
    low, high = int(rows.max(initial=0)), int(rows.sum())
    while low < high:  # the least number of rows of a device with which all shards find a place
        most = (low + high) // 2
        low, high = (low, most) if len(_filled(rows, most)) <= n_device else (most + 1, high)
    found = _filled(rows, low)
    return found + [[] for _ in range(n_device - len(found))]


def _filled(rows: Index, most: int) -> list[list[int]]:
    """Shards in turn to devices that take at most so many rows."""
    found: list[list[int]] = []
    taken = most
    for shard, n in enumerate(rows.tolist()):
        if taken + n > most:
            found.append([])
            taken = 0
        found[-1].append(shard)
        taken += n
    return found


def rows_of(fixed: Constants, rows: Index) -> Constants:
    """The constants of some of the rows, which are in the order of time."""
    n_row, which = fixed.uvw.shape[0], as_slice(rows)
    data = [name for name in ("vis", "weight") if getattr(fixed, name).shape[0] == n_row]
    names = ("uvw", "antenna1", "antenna2", "time_index", *data)
    template = np.ascontiguousarray(fixed.template[:, which])
    some = {name: np.ascontiguousarray(getattr(fixed, name)[which]) for name in names}
    return fixed._replace(template=template, order=np.arange(rows.size), **some)


def table_of(fixed: Constants, n_start: int) -> RowTable:
    """Where each of the time slots begins in rows that are in the order of time."""
    return RowTable(fixed.order, np.searchsorted(fixed.time_index, np.arange(n_start)).astype(np.int64))
