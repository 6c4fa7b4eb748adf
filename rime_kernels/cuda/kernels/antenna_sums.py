"""Kernels that add up what samples leave for the matrices of their antennas, in an order of their own."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numba import float64, int64

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceKernel, Module, Scalar
from rime_kernels.cuda.kernels.antennas import half
from rime_kernels.cuda.kernels.tiles.parts import NO_ROW
from rime_kernels.physics.feeds import feeds_of

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
    group_block: Array  # int32 (n_group,): the block of each
    partner: Array  # int32 (2 n_row,): the other antenna of each of `rows`


@functools.cache
def make_collect_pairs() -> DeviceKernel:
    """Kernel that adds what some rows left to the totals of `n_group` groups, from `first_group` on.

    `records` (n_batch, n_row n_chan 16), rows counted from `first_row`; `totals` float64
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
                    offset = (int64(row) * n_chan + tables.chans[x]) * 16 + 8 * second + part
                    total += float64(records[b, offset])
        totals[b, g, antenna, block, part] = total

    return collect_pairs


@functools.cache
def make_tile_pairs() -> DeviceKernel:
    """`make_row_pairs` of records that lie as `tiles` reads data, (n_batch, .), for some layers of rows.

    `place` is that of `TileTables`. A thread for each place and block of channels; neighbouring threads read
    neighbouring tiles.
    """

    @device.kernel(0)
    def tile_pairs(
        first_layer: int, n_layer: int, first_row: int, tables: AntennaTables, place: Array, records: Array,
        out: Array,
    ) -> None:  # fmt: skip
        n_split, n_baseline, n_tile = int64(place.shape[1]), int64(place.shape[2]), int64(place.shape[3])
        n_block, n_corr, n_chan = int64(out.shape[2]), int64(out.shape[3]) // 2, int64(tables.chans.size)
        i = int64(cuda.grid(1))
        if i >= out.shape[0] * n_layer * n_split * n_block * n_baseline * n_tile:
            return
        tile, n, block = i % n_tile, i // n_tile % n_baseline, i // (n_tile * n_baseline) % n_block
        of_split = i // (n_tile * n_baseline * n_block)
        split, layer, b = of_split % n_split, of_split // n_split % n_layer, of_split // (n_split * n_layer)
        found = place[first_layer + layer, split, n, tile]
        if found == NO_ROW:
            return
        row = abs(found) - 1 - first_row
        for c in range(n_corr):
            re, im = 0.0, 0.0
            for x in range(tables.chan_start[block], tables.chan_start[block + 1]):
                item = (layer * n_chan + tables.chans[x]) * n_split + split
                offset = int64(2) * (((item * n_baseline + n) * n_corr + c) * n_tile + tile)
                re += float64(records[b, offset])
                im += float64(records[b, offset + 1])
            out[b, row, block, 2 * c], out[b, row, block, 2 * c + 1] = re, im

    return tile_pairs


@functools.cache
def make_row_pairs(n_corr: int, n_lane: int, n_unit: int) -> DeviceKernel:
    """Kernel that sums what samples left, R conj(X) of each correlation, over the channels of a block.

    `records` (n_batch, n_row n_chan 2 n_corr); `out` float64 (n_batch, n_row, n_chan_block, 2 n_corr).
    A block of threads has some `n_unit` rows and blocks of channels, and `n_lane` threads share the channels
    of one.
    """
    n_part = 2 * n_corr
    n_thread = n_unit * n_lane * n_part

    @device.kernel(0)
    def row_pairs(tables: AntennaTables, records: Array, out: Array) -> None:
        shown = cuda.shared.array(n_thread, float64)
        thread = int64(cuda.threadIdx.x)
        part, lane, own = thread % n_part, thread // n_part % n_lane, thread // (n_part * n_lane)
        n_row, n_block, n_chan = int64(out.shape[1]), int64(out.shape[2]), int64(tables.chans.size)
        i = int64(cuda.blockIdx.x) * n_unit + own
        is_there = i < out.shape[0] * n_row * n_block
        block, row, b, total = i % n_block, i // n_block % n_row, i // (n_block * n_row), 0.0
        if is_there:
            for x in range(tables.chan_start[block] + lane, tables.chan_start[block + 1], n_lane):
                total += float64(records[b, (row * n_chan + tables.chans[x]) * n_part + part])
        shown[thread] = total
        cuda.syncthreads()
        if is_there and lane == 0:
            total = 0.0
            for k in range(n_lane):
                total += shown[thread + k * n_part]
            out[b, row, block, part] = total

    return row_pairs


@functools.cache
def make_collect_gains(matrix: tuple[complex, ...]) -> DeviceKernel:
    """`make_collect_pairs` of matrices that stay diagonal, from sums of `make_row_pairs`.

    With u = sum R conj(X) of correlation ij, the elements i of A_p and j of A_q accumulate u A_q,jj and
    conj(u) A_p,ii. `jones` is as `DeviceSky` has it, (n_batch or 1, .), of `n_time` times.
    """
    place = feeds_of(np.reshape(matrix, (-1, 4)))[1]
    n_corr, first, second = len(place), tuple(k // 2 for k in place), tuple(k % 2 for k in place)

    @device.inline
    def element(jones: Array, offset: int, feed: Scalar) -> tuple[Scalar, Scalar]:
        return float64(jones[offset + 6 * feed]), float64(jones[offset + 6 * feed + 1])

    @device.kernel(0)
    def collect_gains(
        first_row: int, n_row: int, first_group: int, n_group: int, tables: AntennaTables, pairs: Array,
        jones: Array, n_time: int, totals: Array,
    ) -> None:  # fmt: skip
        n_antenna, n_block = totals.shape[2], totals.shape[3]
        i = cuda.grid(1)
        if i >= totals.shape[0] * n_group * n_antenna * n_block * 2:
            return
        feed, block, antenna = i % 2, i // 2 % n_block, i // (2 * n_block) % n_antenna
        b, g = (
            i // (2 * n_block * n_antenna * n_group),
            i // (2 * n_block * n_antenna) % n_group + first_group,
        )
        # Rows are added in their order, across slabs, so that the sums do not depend on how they are cut.
        re, im = 0.0, 0.0
        if tables.group_start[g] < first_row:
            re, im = totals[b, g, antenna, block, 3 * feed], totals[b, g, antenna, block, 4 + 3 * feed]
        entry, matrices = g * n_antenna + antenna, jones[min(int64(b), int64(jones.shape[0] - 1))]
        start = int64(n_time) + int64(tables.chans.size)
        of_block = int64(tables.group_block[g]) * n_antenna
        for k in range(tables.row_start[entry], tables.row_start[entry + 1]):
            row, is_second = tables.rows[k] // 2 - first_row, tables.rows[k] % 2 == 1
            if 0 <= row < n_row:
                offset = start + int64(8) * ((of_block + int64(tables.partner[k])) * n_block + block)
                for c in range(n_corr):
                    mine, other = (second[c], first[c]) if is_second else (first[c], second[c])
                    if mine == feed:
                        u_re, u_im = pairs[b, row, block, 2 * c], pairs[b, row, block, 2 * c + 1]
                        a_re, a_im = element(matrices, offset, other)
                        x_re, x_im = half(u_re, -u_im if is_second else u_im, a_re, a_im)
                        re, im = re + x_re, im + x_im
        totals[b, g, antenna, block, feed + 1], totals[b, g, antenna, block, feed + 5] = 0.0, 0.0
        totals[b, g, antenna, block, 3 * feed], totals[b, g, antenna, block, 4 + 3 * feed] = re, im

    return collect_gains


@functools.cache
def make_add_groups() -> DeviceKernel:
    """Kernel that sums totals (n_batch, n_group, .) over groups of a block: `out` (n_batch, n_block, .).

    Of the eight numbers of a matrix, four real and four imaginary parts, it makes four complex ones, twice as
    large: what chi2 has of V is 2 w (V - D).
    """

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
        part = item % 8
        out[b, block, item - part + part % 4 * 2 + part // 4] = 2.0 * total

    return add_groups
