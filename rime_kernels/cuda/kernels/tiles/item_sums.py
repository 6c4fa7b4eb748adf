"""Sums over the tiles of an item: chi2, and what goes with it before an adjoint."""

from __future__ import annotations

import functools

from numba import int32, int64, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.reductions import make_barrier, make_shuffle_xor
from rime_kernels.cuda.kernels.tiles.parts import Tile, TileBlock, TileKernel, TileWork


@functools.cache
def make_item_sums(kernel: TileKernel) -> Compiled:
    """Function that adds up over the tiles of an item by a tree: its order depends on their number alone."""
    n_kind, barrier = kernel.n_kind, make_barrier()
    if kernel.uses_tensor_cores:
        return _make_sum_warps(n_kind)

    @device.part
    def sum_tree(
        block: TileBlock, tile: Tile, work: TileWork, n_chan: int, of_kind: Array, partial: Array,
        results: Array,
    ) -> None:  # fmt: skip
        thread, mine, n_mine, active = block.thread, tile.mine, tile.n_mine, tile.active
        for k in range(n_kind):
            # One sum after the other in the same memory.
            partial[thread] = of_kind[k]
            barrier()
            width = int32(1)
            while width < n_mine:
                width *= 2
            while width > 1:
                width //= 2
                if active and mine < width and mine + width < n_mine:
                    partial[thread] += partial[thread + width]
                barrier()
            if active and mine == 0:
                into = int64(work.first_layer) * int64(n_chan) + int64(tile.item)
                into = into * int64(block.n_copy) + int64(block.copy)
                results[int64(block.b) * n_kind + k, into] = partial[thread]
            # The next sum is written to the same memory only after the first thread has read this one.
            if k + 1 < n_kind:
                barrier()

    return sum_tree


def _make_sum_warps(n_kind: int) -> Compiled:
    """Function that sums over the tiles of an item where these are whole warps, at most 32 of them."""
    swapped, barrier = make_shuffle_xor(), make_barrier()

    @device.inline
    def over_lanes(value: Scalar) -> Scalar:
        value += swapped(value, 16)
        value += swapped(value, 8)
        value += swapped(value, 4)
        value += swapped(value, 2)
        value += swapped(value, 1)
        return value

    @device.part
    def sum_warps(
        block: TileBlock, tile: Tile, work: TileWork, n_chan: int, of_kind: Array, partial: Array,
        results: Array,
    ) -> None:  # fmt: skip
        thread, lane = uint32(block.thread), uint32(uint32(block.thread) & uint32(31))
        warp = uint32(thread >> uint32(5))
        for k in range(n_kind):
            value = over_lanes(of_kind[k])
            if lane == 0:
                partial[warp] = value
            barrier()
            # The first warp of an item adds up over its warps.
            value = 0.0
            if tile.active and tile.mine < 32 and lane < uint32(tile.n_mine) >> uint32(5):
                value = partial[uint32(warp + lane)]
            value = over_lanes(value)
            if tile.active and tile.mine == 0:
                into = int64(work.first_layer) * int64(n_chan) + int64(tile.item)
                into = into * int64(block.n_copy) + int64(block.copy)
                results[int64(block.b) * n_kind + k, into] = value
            # The next sum is written to the same memory only after all have read this one.
            if k + 1 < n_kind:
                barrier()

    return sum_warps
