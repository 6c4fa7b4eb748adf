"""Which items and tiles a block and its threads work on, and what the antennas of these are.

Indices into shared memory are unsigned: signed ones cost a comparison each, since Python's may count from the
end.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Compiled, Scalar
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.baseline import Corner, Staged
from rime_kernels.cuda.kernels.tiles.parts import (
    Tile,
    TileBlock,
    TileKernel,
    TileSharedMemory,
    TileTables,
    TileWork,
    sizes_of,
)
from rime_kernels.physics import phase

_C = phase.SPEED_OF_LIGHT


@device.inline
def _term_at(slot: int, side: Any, step: Any) -> Scalar:
    """Where the terms of a slot begin in shared memory: group by group, `step` apart."""
    group = uint32(slot // uint32(side))
    return uint32(group * uint32(step) + uint32(slot - group * uint32(side)))


@functools.cache
def make_index_block(kernel: TileKernel) -> Compiled:
    """Function that says what block `number` works on."""
    has_adjoint = kernel.has_adjoint

    @device.inline
    def index_block(thread: int, number: Scalar, work: TileWork, tables: TileTables) -> TileBlock:
        n_split = uint32(tables.place.shape[1])
        n_copy = n_split
        if has_adjoint:
            n_copy = uint32(n_split * uint32(work.n_part))
        # Divisions take tens of instructions, and most layouts have one split and one entry.
        copy, rest = uint32(0), uint32(number)
        if n_copy > 1:
            copy, rest = uint32(number % n_copy), uint32(number // n_copy)
        split = copy
        if has_adjoint:
            split = uint32(copy // uint32(work.n_part))
        # Entries of the batch follow one another, and read the same data.
        b = uint32(0)
        if work.n_batch > 1:
            b, rest = uint32(rest % uint32(work.n_batch)), uint32(rest // uint32(work.n_batch))
        first_item = uint32(rest * uint32(work.n_item))
        n_here = min(int32(work.n_item), int32(work.n_total) - int32(first_item))
        n_used = uint32(work.n_used)
        return TileBlock(
            thread, b, copy, n_copy, split, first_item, n_here, n_used, uint32(uint32(n_here) * n_used)
        )

    return index_block


@functools.cache
def make_place_antennas(kernel: TileKernel) -> Compiled:
    """Function that fills `Slots` for the block's antennas, and
    `TileSharedMemory.bright_at` for its items.
    """
    sizes, has_beam, n_thread, side = (
        sizes_of(kernel),
        kernel.has_beam,
        kernel.shape.n_thread,
        kernel.shape.side,
    )
    step, per_source = sizes.step, sizes.per_source

    @device.part
    def place_antennas(
        block: TileBlock, work: TileWork, tables: TileTables, sky: DeviceSky, shared: TileSharedMemory
    ) -> None:
        slots, antenna_uvw, n_used = shared.slots, tables.antenna_uvw, block.n_used
        n_chan, n_slot = uint32(tables.chan_freq.size), uint32(tables.antenna.shape[1])
        n_source = int32(sky.direction.shape[1])
        x = uint32(block.thread)
        while x < block.n_x:
            j = uint32(x // n_used)
            slot, item = uint32(x - j * n_used), uint32(block.first_item + j)
            layer = uint32(item // n_chan)
            c = uint32(item - layer * n_chan)
            # 32 bits hold every index here: `launch.MAX_ITEM`.
            t, a = tables.layer_time[uint32(work.first_layer) + layer], tables.antenna[block.split, slot]
            scale = tables.chan_freq[c] / _C
            # In wavelengths and once for all sources: in the sum a phase takes three products.
            slots.u[x], slots.v[x], slots.w[x] = (
                antenna_uvw[t, a, 0] * scale,
                antenna_uvw[t, a, 1] * scale,
                antenna_uvw[t, a, 2] * scale,
            )
            slots.term_offset[x] = _term_at(uint32(uint32(j * n_slot) + slot), side, step)
            if has_beam:
                # Pointing errors that do not change have a single time.
                time = min(t, sky.pointing.shape[1] - 1)
                slots.nu[x] = tables.chan_freq[c]
                slots.dl[x], slots.dm[x] = (
                    sky.pointing[block.b, time, a, 0],
                    sky.pointing[block.b, time, a, 1],
                )
            # The thread of the first antenna does this for its item, so that it is done once.
            if slot == 0:
                # Brightness that does not change has a single time, which all times read.
                at_time = int64(block.b) * sky.n_bright_time + min(t - work.first_time, sky.n_bright_time - 1)
                shared.bright_at[j] = (at_time * int64(n_chan) + int64(c)) * n_source * per_source
            x = uint32(x + uint32(n_thread))

    return place_antennas


@functools.cache
def make_clear_gaps(kernel: TileKernel) -> Compiled:
    """Function that puts 0 where no antenna is, in both chunks.

    Sums from there meet weights of 0, which would not make 0 of NaN.
    """
    sizes, shape, has_gaussian, single = (
        sizes_of(kernel),
        kernel.shape,
        kernel.has_gaussian,
        kernel.variant.single,
    )
    side, step, n_term, chunk, n_thread = shape.side, sizes.step, sizes.n_term, shape.chunk, shape.n_thread

    @device.part
    def clear_gaps(block: TileBlock, tables: TileTables, staged: Staged) -> None:
        n_slot, n_used = uint32(tables.antenna.shape[1]), block.n_used
        n_gap = uint32(n_slot - n_used)
        # The last threads begin: where antennas are not shared evenly, the first ones have one more.
        x = uint32(uint32(n_thread - 1) - uint32(block.thread))
        while x < uint32(block.n_here) * n_gap * uint32(2 * chunk):
            of_slot, k = uint32(x // uint32(2 * chunk)), uint32(x % uint32(2 * chunk))
            j = uint32(of_slot // n_gap)
            slot = uint32(uint32(j * n_slot) + n_used + uint32(of_slot - j * n_gap))
            into = uint32(_term_at(slot, side, step) + uint32(k % uint32(chunk)) * uint32(side))
            into = uint32(into + uint32(k // uint32(chunk)) * uint32(n_term))
            staged.term[into] = 0.0
            if has_gaussian:
                staged.high[into] = 0.0
                if single:
                    staged.low[into] = 0.0
            x = uint32(x + uint32(n_thread))

    return clear_gaps


@functools.cache
def make_find_tile(kernel: TileKernel) -> Compiled:
    """Function that says which tile a thread has.

    Before an adjoint the tiles of a split are shared out over `n_part` blocks, and an item has `n_lanes`
    threads.
    """
    has_adjoint, n_baseline, n_corr = kernel.has_adjoint, kernel.shape.side**2, kernel.end.n_corr
    has_profile, n_own = kernel.variant.profiles is not None, kernel.shape.n_own
    tensor_cores, n_item = kernel.uses_tensor_cores, kernel.shape.n_item

    @device.inline
    def find_tile(block: TileBlock, work: TileWork, tables: TileTables) -> Tile:
        n_split, n_tile = uint32(tables.place.shape[1]), uint32(tables.place.shape[3])
        thread = block.thread
        n_mine, local, mine = int32(uint32(n_tile) // uint32(n_own)), int32(0), int32(thread)
        if n_item > 1:
            local = int32(uint32(thread) // uint32(n_mine))
            mine = int32(uint32(thread) - uint32(local * n_mine))
        active = local < block.n_here and mine < n_mine
        tile = mine if active else int32(0)
        if tensor_cores:
            # Those of a warp lie one behind the other, first tile by first tile: `tile_table.Bundle`.
            tile = (tile >> int32(5)) * int32(32 * n_own) + (tile & int32(31))
        if has_adjoint:
            per_part = int32(uint32(n_tile + uint32(work.n_part - 1)) // uint32(work.n_part))
            first_tile = int32(uint32(block.copy - block.split * uint32(work.n_part))) * per_part
            n_mine = min(per_part, int32(n_tile) - first_tile)
            local = int32(uint32(thread) // uint32(work.n_lanes))
            mine = int32(thread - local * int32(work.n_lanes))
            active = local < block.n_here and mine < n_mine
            # A tile that is there: what idle threads read is thrown away, but must be within the arrays.
            tile = first_tile + (mine if active else int32(0))
        item = uint32(block.first_item + uint32(local if active else 0))
        of_split = uint64(item) * uint64(n_split) + uint64(block.split)
        # 64 bits: data of a slab may be more than 2^31.
        first_datum = of_split * uint64(n_baseline * n_corr) * uint64(n_tile)
        nu = 0.0
        if has_profile:
            nu = tables.chan_freq[uint32(item % uint32(tables.chan_freq.size))]
        return Tile(active, local, item, tile, mine, n_mine, first_datum, nu)

    return find_tile


@functools.cache
def make_next_tile() -> Compiled:
    """Function that gives tile `number` of a thread's own."""

    @device.inline
    def next_tile(tile: Tile, number: Scalar) -> Tile:
        return Tile(
            tile.active, tile.local, tile.item, int32(tile.tile + int32(32) * int32(number)), tile.mine,
            tile.n_mine, tile.first_datum, tile.nu,
        )  # fmt: skip

    return next_tile


@functools.cache
def make_find_corner(kernel: TileKernel) -> Compiled:
    """Function that says where a tile's antennas and its brightness lie in the first chunk of `Staged`."""
    sizes, side = sizes_of(kernel), kernel.shape.side
    step, bright_step = sizes.step, sizes.bright_step

    @device.inline
    def find_corner(block: TileBlock, tile: Tile, tables: TileTables) -> Corner:
        p, q, bright = uint32(0), uint32(0), uint32(0)
        # A thread without a tile accumulates, too: from the first places, with residuals of 0.
        if tile.active:
            first_group = tile.local * int32(uint32(tables.antenna.shape[1])) // side
            p = uint32((first_group + tables.group[0, block.split, tile.tile]) * step)
            q = uint32((first_group + tables.group[1, block.split, tile.tile]) * step)
            bright = uint32(tile.local * bright_step)
        return Corner(p, q, bright)

    return find_corner


@functools.cache
def make_find_operands(kernel: TileKernel) -> Compiled:
    """Function that says from which slots a thread reads operands.

    The first of its own two rows; and column g, as thread 4 g + t of a warp, where its own are 2 t, 2 t + 1.
    """
    side = kernel.shape.side

    @device.inline
    def find_operands(block: TileBlock, tile: Tile, tables: TileTables) -> Corner:
        lane = uint32(uint32(block.thread) & uint32(31))
        first = uint32(uint32(tile.local) * uint32(tables.antenna.shape[1]))
        p = uint32(first + uint32(side) * uint32(tables.group[0, block.split, tile.tile]))
        q = uint32(first + uint32(side) * uint32(tables.group[1, block.split, tile.tile]))
        column = uint32(q + uint32(lane >> uint32(2)) - uint32(side) * uint32(lane & uint32(3)))
        return Corner(p, column, uint32(0))

    return find_operands
