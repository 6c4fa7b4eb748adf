"""The sums over sources where tensor cores take the points: chunk by chunk, for all threads of a block."""

from __future__ import annotations

import functools

from numba import int32, int64, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.baseline import Corner
from rime_kernels.cuda.kernels.reductions import make_barrier, make_barrier_or
from rime_kernels.cuda.kernels.tiles import index, operands, products, staging, sums
from rime_kernels.cuda.kernels.tiles.parts import (
    Tile,
    TileBlock,
    TileKernel,
    TileSharedMemory,
    TileTables,
    TileWork,
    sizes_of,
)
from rime_kernels.cuda.kernels.tiles.staging import Stager


@device.inline
def _no_points(
    block: TileBlock, tile: Tile, corner: Corner, stager: Stager, work: TileWork, tables: TileTables,
    sky: DeviceSky,
    shared: TileSharedMemory, totals: Array, second: Array,
) -> None:  # fmt: skip
    """In place of what a kernel without tensor cores never calls."""


@functools.cache
def make_sweep_points(kernel: TileKernel) -> Compiled:
    """Function in which tensor cores sum the point sources, chunk by chunk."""
    if not kernel.uses_tensor_cores:
        return _no_points
    if kernel.has_gaussian:
        return _make_sweep_both(kernel)
    chunk = sizes_of(kernel).n_operand_source
    points_of = operands.make_points(chunk)
    stage_bright, fill = operands.make_stage_bright(kernel), operands.make_fill_operands(kernel)
    clear, add = operands.make_clear_operands(kernel), products.make_add_operands(kernel)
    find_operands, barrier = index.make_find_operands(kernel), make_barrier()

    @device.part
    def sweep_points(
        block: TileBlock, tile: Tile, corner: Corner, stager: Stager, work: TileWork, tables: TileTables,
        sky: DeviceSky, shared: TileSharedMemory, totals: Array, second: Array,
    ) -> None:  # fmt: skip
        n_point = int32(sky.direction.shape[1]) - int32(sky.n_gaussian)
        first, memory = find_operands(block, tile, tables), shared.operands
        lane = uint32(uint32(block.thread) & uint32(31))
        # Half of the warps make operands first, the others multiply first: so all units are at work.
        late = (uint32(block.thread) >> uint32(5)) & uint32(1)
        clear(block, uint32(tables.antenna.shape[1]), memory)
        # Brightness is one chunk ahead of the operands, and these are one ahead of the sums.
        stage_bright(points_of(0, n_point), block, sky, shared)
        barrier()
        number, stop = int32(0), int32(int32(n_point + (chunk - 1)) // int32(chunk))
        while number <= stop:
            before = points_of(int32(number - 1), n_point)
            if number + 1 < stop:
                stage_bright(points_of(int32(number + 1), n_point), block, sky, shared)
            # All threads of a warp have tiles, or none.
            if late != 0 and number > 0 and tile.active:
                add(before, first, lane, memory, totals)
            if number < stop:
                fill(points_of(number, n_point), memory, block, shared.slots, sky)
            if late == 0 and number > 0 and tile.active:
                add(before, first, lane, memory, totals)
            barrier()
            number = int32(number + 1)

    return sweep_points


def _make_sweep_both(kernel: TileKernel) -> Compiled:
    """Function in which tensor cores sum the points and threads the Gaussians, a chunk of each at a time."""
    chunk, n_next = sizes_of(kernel).n_operand_source, kernel.shape.chunk
    n_term, n_bright, votes = sizes_of(kernel).n_term, sizes_of(kernel).n_bright, kernel.variant.single
    points_of, find_operands = operands.make_points(chunk), index.make_find_operands(kernel)
    stage_bright, fill = operands.make_stage_bright(kernel), operands.make_fill_operands(kernel)
    clear, add = operands.make_clear_operands(kernel), products.make_add_operands(kernel)
    stage, add_gaussians = staging.make_stage(kernel), sums.make_add_gaussians(kernel)
    barrier, vote = make_barrier(), make_barrier_or()

    @device.part
    def sweep_both(
        block: TileBlock, tile: Tile, corner: Corner, stager: Stager, work: TileWork, tables: TileTables,
        sky: DeviceSky, shared: TileSharedMemory, totals: Array, second: Array,
    ) -> None:  # fmt: skip
        n_gaussian = int32(sky.n_gaussian)
        n_point = int32(int32(sky.direction.shape[1]) - n_gaussian)
        first, memory = find_operands(block, tile, tables), shared.operands
        lane = uint32(uint32(block.thread) & uint32(31))
        # Half of the warps that share a scheduler multiply first, then make operands and add Gaussians; the
        # others go the other way round: so tensor cores and multiply-adds work at the same time.
        late = (uint32(block.thread) >> uint32(7)) & uint32(1)
        clear(block, uint32(tables.antenna.shape[1]), memory)
        stage_bright(points_of(0, n_point), block, sky, shared)
        barrier()
        number, any_wide = int32(0), 0
        stop_points = int32(int32(n_point + (chunk - 1)) // int32(chunk))
        stop_gaussians = int32(int32(n_gaussian + (n_next - 1)) // int32(n_next))
        while number <= max(stop_points, stop_gaussians):
            # Brightness of points is one chunk ahead of the operands, and these, as terms of Gaussians, are
            # one ahead of the sums.
            if number + 1 < stop_points:
                stage_bright(points_of(int32(number + 1), n_point), block, sky, shared)
            step, wide = uint32(0), False
            # Three times, in a way that the compiler does not know: it would make copies of the code.
            last = uint32(uint32(work.n_item) + uint32(1))
            while step <= last:
                task = step if late == 0 else uint32(last - step)
                if task == 0:
                    # All threads of a warp have tiles, or none.
                    if 0 < number <= stop_points and tile.active:
                        add(points_of(int32(number - 1), n_point), first, lane, memory, totals)
                elif task == 1:
                    if number < stop_points:
                        fill(points_of(number, n_point), memory, block, shared.slots, sky)
                else:
                    if 0 < number <= stop_gaussians and tile.active:
                        start = int32(int32(number - 1) * int32(n_next))
                        odd = uint32(uint32(number - 1) & uint32(1))
                        of_term, of_bright = uint32(odd * uint32(n_term)), uint32(odd * uint32(n_bright))
                        here = Corner(corner.p + of_term, corner.q + of_term, corner.bright + of_bright)
                        n_here = min(int32(n_next), int32(n_gaussian - start))
                        add_gaussians(n_here, any_wide, here, shared.staged, totals, second)
                    if number < stop_gaussians:
                        start, odd = int64(n_point + number * int32(n_next)), int64(number & int32(1))
                        _, wide = stage(start, odd, block, stager, work.reach, sky, shared)
                step = uint32(step + uint32(1))
            if votes:
                any_wide = vote(wide)
            else:
                barrier()
            number = int32(number + 1)

    return sweep_both
