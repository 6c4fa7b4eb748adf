"""Kernels that add up what samples leave for the matrices of their antennas, in an order of their own."""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import float64, int64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Module
from rime_kernels.cuda.kernels.antennas import N_RECORD

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda


class AntennaTables(NamedTuple):
    """Which samples belong to which sum; a group is a run of rows whose times have the same block."""

    group_start: Array  # int32 (n_group + 1,): the first row of each, in the order of time
    row_start: Array  # int32 (n_group n_antenna + 1,): where in `rows` those of a group and an antenna begin
    rows: Array  # int32 (2 n_row,): twice the row, 1 more where the antenna is its second
    chan_start: Array  # int32 (n_chan_block + 1,): where in `chans` those of a block begin
    chans: Array  # int32 (n_chan,)
    block_start: Array  # int32 (n_time_block + 1,): where in `groups` those of a block begin
    groups: Array  # int32 (n_group,)


@functools.cache
def make_collect_pairs() -> Compiled:
    """Kernel that adds what some rows left to the totals of `n_group` groups, from `first_group` on.

    `records` (n_batch, n_row n_chan `N_RECORD`), rows counted from `first_row`; `totals` float64
    (n_batch, all groups, n_antenna, n_chan_block, 8). A group whose first row is among these begins anew.
    """

    @device.kernel(0)
    def collect_pairs(
        first_row: int, n_row: int, first_group: int, n_group: int, tables: AntennaTables, records: Array,
        totals: Array,
    ) -> None:  # fmt: skip
        n_antenna, n_block = totals.shape[2], totals.shape[3]
        i = cuda.grid(1)
        if i >= totals.shape[0] * n_group * n_antenna * n_block * 8:
            return
        # Neighbouring threads have the eight numbers of a matrix, which lie side by side.
        part, block, antenna = i % 8, i // 8 % n_block, i // (8 * n_block) % n_antenna
        b, g = (
            i // (8 * n_block * n_antenna * n_group),
            i // (8 * n_block * n_antenna) % n_group + first_group,
        )
        # Rows are added in their order, across slabs, so that the sums do not depend on how they are cut.
        total = totals[b, g, antenna, block, part] if tables.group_start[g] < first_row else 0.0
        entry, n_chan = g * n_antenna + antenna, int64(tables.chans.size)
        for k in range(tables.row_start[entry], tables.row_start[entry + 1]):
            row, second = tables.rows[k] // 2 - first_row, tables.rows[k] % 2
            if 0 <= row < n_row:
                for x in range(tables.chan_start[block], tables.chan_start[block + 1]):
                    at = (int64(row) * n_chan + tables.chans[x]) * N_RECORD + 8 * second + part
                    total += float64(records[b, at])
        totals[b, g, antenna, block, part] = total

    return collect_pairs


@functools.cache
def make_add_groups() -> Compiled:
    """Kernel that sums totals (n_batch, n_group, .) over groups of a block: `out` (n_batch, n_block, .)."""

    @device.kernel(0)
    def add_groups(tables: AntennaTables, totals: Array, out: Array) -> None:
        n_block, n_item = out.shape[1], out.shape[2]
        i = cuda.grid(1)
        if i >= out.size:
            return
        item, block, b = i % n_item, i // n_item % n_block, i // (n_item * n_block)
        total = 0.0
        for k in range(tables.block_start[block], tables.block_start[block + 1]):
            total += totals[b, tables.groups[k], item]
        out[b, block, item] = total

    return add_groups
