"""The factored RIME with 2x2 beams on a CUDA device: a thread sums all sources for one tile of antennas.

As `tiles.kernel`, but what is put into shared memory for an antenna and a source are two matrices, T and T B:
a baseline's product of matrices takes 32 multiply-adds. No matrix ever reaches the device's memory.
"""

from __future__ import annotations

import functools

from numba import complex64, complex128, float32, float64, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import (
    Compiled,
    DeviceKernel,
    Module,
)
from rime_kernels.cuda.kernels.arguments import DataColumns, DeviceSky, Results
from rime_kernels.cuda.kernels.baseline import Corner, Staged
from rime_kernels.cuda.kernels.jones import staging, sums
from rime_kernels.cuda.kernels.jones.pairs import pairs_of
from rime_kernels.cuda.kernels.jones.staging import BlockFrames, FirstStaged
from rime_kernels.cuda.kernels.jones.voltages import CudaBeams, steps_of
from rime_kernels.cuda.kernels.samples import make_sample_arrays
from rime_kernels.cuda.kernels.tiles import index
from rime_kernels.cuda.kernels.tiles.adjoint import TileAccumulators
from rime_kernels.cuda.kernels.tiles.kernel import TileRegisters, make_finish
from rime_kernels.cuda.kernels.tiles.parts import (
    Operands,
    Slots,
    Tile,
    TileBlock,
    TileKernel,
    TileSharedMemory,
    TileTables,
    TileWork,
    sizes_of,
)
from rime_kernels.cuda.kernels.tiles.sums import make_look_ahead, make_visibilities_epilogue

# The simulator replaces a global of this name while a kernel runs: what declares arrays, or lets all threads
# of a block synchronise, stands here.
cuda: Module = device.cuda


@functools.cache
def make_tile_sums(kernel: TileKernel) -> DeviceKernel:
    """The kernel, ending in visibilities or in chi2, left where `tiles.kernel.make_tile_sums` leaves them."""
    is_chi2, n_sum = kernel.is_chi2, sizes_of(kernel).n_sum
    real = float32 if kernel.variant.single else float64
    shared_arrays, frame_arrays, own_arrays = _make_shared(kernel), _make_frames(kernel), _make_own(kernel)
    index_block, place_antennas = index.make_index_block(kernel), index.make_place_antennas(kernel)
    find_tile, find_corner = index.make_find_tile(kernel), index.make_find_corner(kernel)
    place_frames, clear = staging.make_place_frames(kernel), staging.make_clear(kernel)
    look_ahead, sum_sources = make_look_ahead(kernel), _make_sum_sources(kernel)
    to_stokes = sums.make_to_stokes(kernel.matrix, kernel.variant.single, kernel.shape.side**2)
    chi2_epilogue, visibilities_epilogue = make_finish(kernel), make_visibilities_epilogue(kernel)

    @device.kernel(kernel.shape.max_register)
    def sum_tiles(
        work: TileWork,
        tables: TileTables,
        sky: DeviceSky,
        columns: DataColumns,
        results: Results,
        beams: CudaBeams,
    ) -> None:
        shared, frames, own = shared_arrays(), frame_arrays(), own_arrays()
        block = index_block(int32(cuda.threadIdx.x), uint32(cuda.blockIdx.x), work, tables)
        place_antennas(block, work, tables, sky, shared)
        cuda.syncthreads()  # frames have what `place_antennas` found
        place_frames(block, work, tables, sky, beams, frames, shared.bright_at)
        clear(block, shared)
        tile = find_tile(block, work, tables)
        look_ahead(tile, tables, columns, own.glance)
        # Coordinates and gaps must be in place before any thread stages terms from them.
        cuda.syncthreads()
        corner = find_corner(block, tile, tables)
        for k in range(n_sum):
            own.sums[k] = real(0)
        sum_sources(block, tile, corner, sky, beams, shared, frames, own)
        to_stokes(own.sums)
        if is_chi2:
            # Nothing is left for matrices of antennas: any array may stand there.
            chi2_epilogue(block, tile, work, tables, sky, columns, results.sums, sky.jones, shared, own)
        elif tile.active:
            visibilities_epilogue(
                block, tile, work, tables, sky, results.vis, shared.staged.term, sky.jones, own.sums,
                own.samples,
            )  # fmt: skip

    return sum_tiles


def _make_shared(kernel: TileKernel) -> Compiled:
    """Function that declares a block's shared arrays, as `tiles.kernel` has them."""
    sizes, shape, single = sizes_of(kernel), kernel.shape, kernel.variant.single
    real, cplx = (float32, complex64) if single else (float64, complex128)
    terms, n_high, n_low = 16 * sizes.n_term, sizes.n_high, sizes.n_low
    pair = pairs_of(single).kind
    n_slot, n_item, n_thread = shape.n_slot, shape.n_item, shape.n_thread

    @device.inline
    def shared_arrays() -> TileSharedMemory:
        # A line for each: the simulator tells shared arrays apart by their line.
        term = cuda.shared.array(terms, pair)
        high = cuda.shared.array(n_high, cplx)
        low = cuda.shared.array(n_low, cplx)
        u = cuda.shared.array(n_slot, float64)
        v = cuda.shared.array(n_slot, float64)
        w = cuda.shared.array(n_slot, float64)
        term_offset = cuda.shared.array(n_slot, uint32)
        bright_at = cuda.shared.array(n_item, int64)
        partial = cuda.shared.array(n_thread, float64)
        # Brightness, beams of formulas and adjoints have nothing here.
        none = cuda.shared.array(1, real)
        nothing = cuda.shared.array(1, float64)
        staged, slots = Staged(term, high, low, none), Slots(u, v, w, term_offset, nothing, nothing, nothing)
        units = Operands(uint32(0), none, none, nothing)
        return TileSharedMemory(staged, slots, bright_at, partial, none, none, nothing, units)

    return shared_arrays


def _make_own(kernel: TileKernel) -> Compiled:
    """Function that declares a thread's own arrays, as `tiles.kernel` has them."""
    sizes, real = sizes_of(kernel), float32 if kernel.variant.single else float64
    n_sum, n_second, n_glance = sizes.n_sum, 8 * kernel.shape.side, sizes.n_glance
    sample_arrays = make_sample_arrays(kernel.end)

    @device.inline
    def own_arrays() -> TileRegisters:
        totals, second = cuda.local.array(n_sum, real), cuda.local.array(n_second, real)
        # Nothing is accumulated here.
        accumulators = TileAccumulators(totals, totals, totals, totals, totals, totals)
        of_kind, glance = cuda.local.array(1, float64), cuda.local.array(n_glance, real)
        return TileRegisters(totals, second, of_kind, glance, sample_arrays(), accumulators)

    return own_arrays


def _make_frames(kernel: TileKernel) -> Compiled:
    """Function that declares the frames of a block's antennas."""
    n_slot = kernel.shape.n_slot

    @device.inline
    def frame_arrays() -> BlockFrames:
        dl = cuda.shared.array(n_slot, float64)
        dm = cuda.shared.array(n_slot, float64)
        cos = cuda.shared.array(n_slot, float64)
        sin = cuda.shared.array(n_slot, float64)
        feed_cos = cuda.shared.array(n_slot, float64)
        feed_sin = cuda.shared.array(n_slot, float64)
        first = cuda.shared.array(n_slot, uint64)
        bright = cuda.shared.array(n_slot, uint64)
        return BlockFrames(dl, dm, cos, sin, feed_cos, feed_sin, first, bright)

    return frame_arrays


def _make_sum_sources(kernel: TileKernel) -> Compiled:
    """Function that sums all sources, chunk by chunk."""
    n_term, has_gaussian = sizes_of(kernel).n_term, kernel.has_gaussian
    stage, add_points = staging.make_stage(kernel), sums.make_accumulate(kernel, False)
    add_gaussians = sums.make_accumulate(kernel, True)

    @device.part
    def sum_sources(
        block: TileBlock, tile: Tile, corner: Corner, sky: DeviceSky, beams: CudaBeams,
        shared: TileSharedMemory, frames: BlockFrames,
        own: TileRegisters,
    ) -> None:  # fmt: skip
        n_source = int32(sky.direction.shape[1])
        n_point, steps = n_source - sky.n_gaussian, steps_of(sky.beam_scale[block.b], beams)
        # Of the type they have later on, for the tuples they become part of: Numba makes one type of each.
        before, n_before, start, buffer = int64(-1), int64(0), int64(0), int64(0)
        first = uint32(uint32(block.thread) // block.n_x)
        mine = FirstStaged(first, uint32(uint32(block.thread) - first * block.n_x))
        # One half of the warps stages while the other half sums: waits of the one are the other's work.
        late = (block.thread >> int32(7)) & int32(1)
        while before < n_source:
            n_now = int64(0)
            for half in range(2):
                if int32(half) == late:
                    if start < n_source:
                        n_now = stage(start, buffer, block, steps, sky, beams, shared, frames, mine)
                elif before >= 0 and tile.active:
                    # The chunk that was made before, from the other buffer.
                    of_term = uint32((1 - buffer) * n_term)
                    here = Corner(uint32(corner.p + of_term), uint32(corner.q + of_term), uint32(0))
                    if has_gaussian and before >= n_point:
                        add_gaussians(n_before, shared.staged, here, own.sums, own.second)
                    else:
                        add_points(n_before, shared.staged, here, own.sums, own.second)
            # One barrier a chunk is enough: it lies between the last read of a buffer and its next write.
            cuda.syncthreads()
            before, n_before = start, n_now
            start += n_now
            buffer = 1 - buffer

    return sum_sources
