"""The factored RIME on a CUDA device: a thread sums all sources for one tile of antennas.

A block works on some items (a time and a channel) of one batch entry and, of each, on the tiles of one split
(`tile_table`). Chunk by chunk of the sources it puts the terms of its antennas and the brightness into shared
memory, where each thread reads `side` + `side` terms for the side^2 baselines whose sums it keeps in
registers. While one chunk is summed the next is made: there are two buffers. No antenna term ever
reaches the device's memory. Where `TileShape.operand_units` says so,
tensor cores sum the points (`operands`),
threads add the Gaussians to the same sums, and the rest goes on as said.

Numba keeps a local array in registers where every index is a constant once loops of constant length are
unrolled; hence the many such loops, and hence the sums that move up at the end instead of an
index that moves down.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import complex64, complex128, float32, float64, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Scalar
from rime_kernels.cuda.kernels.arguments import DataColumns, DeviceSky, Results
from rime_kernels.cuda.kernels.baseline import Corner, Staged
from rime_kernels.cuda.kernels.samples import EpilogueSamples, make_sample_arrays
from rime_kernels.cuda.kernels.tiles import adjoint, index, matrices, staging, sums, tensor_cores
from rime_kernels.cuda.kernels.tiles.adjoint import TileAccumulators, Voltages
from rime_kernels.cuda.kernels.tiles.item_sums import make_item_sums
from rime_kernels.cuda.kernels.tiles.parts import (
    Operands,
    Slots,
    Tile,
    TileBlock,
    TileKernel,
    TileRecords,
    TileSharedMemory,
    TileTables,
    TileWork,
    sizes_of,
)
from rime_kernels.cuda.kernels.tiles.profiles import (
    make_accumulate_profile_gradients,
    make_accumulate_profiles,
)
from rime_kernels.cuda.kernels.tiles.staging import Chunk, Stager
from rime_kernels.cuda.kernels.tiles.sweeps import make_sweep_points

# The simulator replaces a global of this name while a kernel runs: what declares arrays, or lets all threads
# of a block synchronise, stands here.
cuda: Module = device.cuda


class TileRegisters(NamedTuple):
    """A thread's own memory, which ends up in registers."""

    sums: Array  # (2 n_stokes side^2,), working precision: as in `baseline`
    second: Array  # (6 side n_own,), working precision
    of_kind: Array  # float64 (`TileKernel.n_kind`,)
    glance: Array  # (n_glance,), working precision
    samples: EpilogueSamples
    accumulators: TileAccumulators


@functools.cache
def make_tile_sums(kernel: TileKernel) -> DeviceKernel:
    """The kernel, ending in visibilities, in chi2, or in chi2 and its adjoint.

    It leaves `Results.vis`, or `Results.sums` (n_batch times `n_kind`, n_sum): chi2 of each layer, channel
    and copy of a split, layers counted from the first of all; before an adjoint the sums for templates and
    the scaled degrees of freedom follow. Then it goes through the sources again and fills the `TileRecords`.
    Where another kernel has left the residuals (`TileKernel.rest_of`) it does the last of this alone.
    """
    is_chi2, has_adjoint, has_voltage = kernel.is_chi2, kernel.has_adjoint, kernel.has_voltage
    first_sweep = 0 if kernel.has_sums else 1
    n_sweep = 2 if has_adjoint else 1
    shared_arrays, own_arrays, clear = _make_shared(kernel), _make_own(kernel), _make_clear(kernel)
    index_block, place_antennas = index.make_index_block(kernel), index.make_place_antennas(kernel)
    clear_gaps, find_tile = index.make_clear_gaps(kernel), index.make_find_tile(kernel)
    find_corner, look_ahead = index.make_find_corner(kernel), sums.make_look_ahead(kernel)
    sweep_sources, chi2_epilogue = _make_sweep(kernel), make_finish(kernel)
    visibilities_epilogue, stage_gains = (
        sums.make_visibilities_epilogue(kernel),
        sums.make_stage_gains(kernel),
    )
    has_gains, uses_tensor_cores, sweep_points = (
        kernel.end.staged,
        kernel.uses_tensor_cores,
        make_sweep_points(kernel),
    )
    n_own, has_terms = kernel.shape.n_own, kernel.has_gaussian or not uses_tensor_cores
    next_tile, next_sums = index.make_next_tile(), sums.make_next_sums(kernel)
    stager_of, write_antennas = staging.make_stager(kernel), adjoint.make_write_antennas(kernel)
    # Where residuals are there, the first sweep is left out.
    begin = 0 if kernel.rest_of is None else 1
    take_rest = _make_take_rest(kernel)

    @device.kernel(kernel.shape.max_register, kernel.dynamic_bytes)
    def sum_tiles(
        work: TileWork,
        tables: TileTables,
        sky: DeviceSky,
        columns: DataColumns,
        results: Results,
        records: TileRecords,
    ) -> None:
        shared, own = shared_arrays(), own_arrays()
        block = index_block(int32(cuda.threadIdx.x), uint32(cuda.blockIdx.x), work, tables)
        place_antennas(block, work, tables, sky, shared)
        if has_terms:
            clear_gaps(block, tables, shared.staged)
        tile = find_tile(block, work, tables)
        look_ahead(tile, tables, columns, own.glance)
        # Coordinates and gaps must be in place before any thread stages terms from them.
        cuda.syncthreads()
        corner = find_corner(block, tile, tables)
        clear(block, own, shared)
        stager = stager_of(block, shared)
        # The adjoint needs the residuals of all sources before the first of them can accumulate.
        if uses_tensor_cores and first_sweep == 0:
            sweep_points(block, tile, corner, stager, work, tables, sky, shared, own.sums, own.second)
        if begin:
            take_rest(block, tile, tables, records, shared, own)
        for sweep in range(begin, n_sweep):
            if sweep >= first_sweep and not uses_tensor_cores:
                sweep_sources(sweep, block, tile, corner, stager, work, sky, records, shared, own)
            if has_gains and sweep == 0:
                # All threads have met since the last term was read.
                stage_gains(block, work, tables, sky, shared.staged.term)
                cuda.syncthreads()
            if is_chi2 and sweep == 0:
                chi2_epilogue(
                    block, tile, work, tables, sky, columns, results.sums, records.by_pair, shared, own
                )
        if not is_chi2 and tile.active:
            for number in range(n_own):
                visibilities_epilogue(
                    block, next_tile(tile, number), work, tables, sky, results.vis, shared.staged.term,
                    records.by_pair, own.sums, own.samples,
                )  # fmt: skip
                next_sums(own.sums)
        if has_voltage:
            write_antennas(block, work, uint32(tables.antenna.shape[1]), shared, records.by_antenna)

    return sum_tiles


def _make_shared(kernel: TileKernel) -> Compiled:
    """Function that declares a block's shared arrays."""
    sizes, shape, single = sizes_of(kernel), kernel.shape, kernel.variant.single
    real, cplx = (float32, complex64) if single else (float64, complex128)
    two_terms, n_high, n_low, two_brights = 2 * sizes.n_term, sizes.n_high, sizes.n_low, 2 * sizes.n_bright
    bright_type, n_pointing = cplx if sizes.per_source == 2 else real, sizes.n_pointing
    n_slot, n_item, n_thread = shape.n_slot, shape.n_item, shape.n_thread
    n_accumulated, n_shown, n_by_slot = sizes.n_accumulated, sizes.n_shown, sizes.n_by_slot
    uses_tensor_cores, n_operand_bright = kernel.uses_tensor_cores, sizes.n_operand_bright
    n_operand_place, n_inverse, element = (
        sizes.n_operand_place,
        4 if uses_tensor_cores else 1,
        cplx if device.simulated() or not single else uint64,
    )
    bright_word = uint64 if single and not device.simulated() else real
    address: Compiled = (lambda array: array) if device.simulated() else tensor_cores.make_address()

    @device.inline
    def shared_arrays() -> TileSharedMemory:
        # A line for each: the simulator tells shared arrays apart by their line.
        term = cuda.shared.array(two_terms, cplx)
        high = cuda.shared.array(n_high, cplx)
        low = cuda.shared.array(n_low, cplx)
        bright = cuda.shared.array(two_brights, bright_type)
        u = cuda.shared.array(n_slot, float64)
        v = cuda.shared.array(n_slot, float64)
        w = cuda.shared.array(n_slot, float64)
        offset = cuda.shared.array(n_slot, uint32)
        nu = cuda.shared.array(n_pointing, float64)
        dl = cuda.shared.array(n_pointing, float64)
        dm = cuda.shared.array(n_pointing, float64)
        bright_at = cuda.shared.array(n_item, int64)
        partial = cuda.shared.array(n_thread, float64)
        accumulated = cuda.shared.array(n_accumulated, real)
        shown = cuda.shared.array(n_shown, real)
        by_slot = cuda.shared.array(n_by_slot, float64)
        scaled = cuda.shared.array(n_operand_bright, bright_word)
        direction = cuda.shared.array(n_operand_place, float64)
        inverse = cuda.shared.array(n_inverse, real)
        staged, slots = Staged(term, high, low, bright), Slots(u, v, w, offset, nu, dl, dm)
        operands = Operands(uint32(0), scaled, inverse, direction)
        if uses_tensor_cores:
            # As much as the launch asks for.
            operands = Operands(address(cuda.shared.array(0, element)), scaled, inverse, direction)
        return TileSharedMemory(staged, slots, bright_at, partial, accumulated, shown, by_slot, operands)

    return shared_arrays


def _make_own(kernel: TileKernel) -> Compiled:
    """Function that declares a thread's own arrays."""
    sizes, side = sizes_of(kernel), kernel.shape.side
    real, n_sum = float32 if kernel.variant.single else float64, sizes.n_own_sum
    n_kind, n_glance = kernel.n_kind, sizes.n_glance
    sample_arrays = make_sample_arrays(kernel.end)
    n_uvw, n_value, n_antenna = sizes.n_uvw, kernel.record.most_size, 2 * side
    n_column = sizes.n_column
    n_second = 6 * side * kernel.shape.n_own

    @device.inline
    def own_arrays() -> TileRegisters:
        totals, second = cuda.local.array(n_sum, real), cuda.local.array(n_second, real)
        # The residuals of the adjoint lie where the sums did: there are no registers for both.
        accumulators = TileAccumulators(
            totals, cuda.local.array(n_uvw, real), second, cuda.local.array(n_value, real),
            cuda.local.array(n_antenna, real), cuda.local.array(n_column, real),
        )  # fmt: skip
        of_kind, glance = cuda.local.array(n_kind, float64), cuda.local.array(n_glance, real)
        return TileRegisters(totals, second, of_kind, glance, sample_arrays(), accumulators)

    return own_arrays


def _make_clear(kernel: TileKernel) -> Compiled:
    """Function that begins the sums of a thread and of the block's antennas."""
    real, n_sum = float32 if kernel.variant.single else float64, sizes_of(kernel).n_own_sum
    has_voltage, n_thread = kernel.has_voltage, kernel.shape.n_thread

    @device.inline
    def clear(block: TileBlock, own: TileRegisters, shared: TileSharedMemory) -> None:
        for k in range(n_sum):
            own.sums[k] = real(0)
        if has_voltage:
            x = uint32(block.thread)
            while x < uint32(2) * block.n_x:
                shared.by_slot[x] = 0.0
                x = uint32(x + uint32(n_thread))

    return clear


def _make_sweep(kernel: TileKernel) -> Compiled:
    """Function that takes sources chunk by chunk: all, to sum them, or in sweep 1 those that accumulate."""
    sizes, has_gaussian = sizes_of(kernel), kernel.has_gaussian
    n_term, n_bright, votes = sizes.n_term, sizes.n_bright, has_gaussian and kernel.variant.single
    stage, add_chunk = staging.make_stage(kernel), _make_add_chunk(kernel)
    accumulate_chunk, has_points = _make_accumulate_chunk(kernel), kernel.rest_of is None

    @device.part
    def sweep_sources(
        sweep: int, block: TileBlock, tile: Tile, corner: Corner, stager: Stager, work: TileWork,
        sky: DeviceSky, records: TileRecords, shared: TileSharedMemory, own: TileRegisters,
    ) -> None:  # fmt: skip
        n_source = int32(sky.direction.shape[1])
        n_point = n_source - sky.n_gaussian
        # Of the type they have later on, for the tuples they become part of: Numba makes one type of each.
        before, n_before, start, buffer = int64(-1), int64(0), int64(0), int64(0)
        stop = int64(n_source)
        if sweep == 1:
            start, stop = int64(sky.first_varied), int64(sky.stop_varied)
        any_wide = 0  # of the chunk that was made before
        while before < stop:
            n_now, wide = int64(0), False
            if start < stop:
                n_now, wide = stage(start, buffer, block, stager, work.reach, sky, shared)
            # In sweep 1 threads without a tile take part, too: all threads of a block reach the barriers
            # inside.
            if before >= 0 and (tile.active or sweep == 1):
                # The chunk that was made before, from the other buffer.
                of_term, of_bright = uint32((1 - buffer) * n_term), uint32((1 - buffer) * n_bright)
                here = Corner(corner.p + of_term, corner.q + of_term, corner.bright + of_bright)
                of_gaussian = has_gaussian and (before >= n_point or not has_points)
                if sweep == 1:
                    sources = Chunk(before, n_before, before - n_point, of_term)
                    accumulate_chunk(
                        sources, of_gaussian, any_wide, tile.nu, here, block, work, sky, records, shared, own
                    )
                else:
                    add_chunk(
                        before, n_before, of_gaussian, any_wide, tile.nu, here, block, sky, shared.staged, own
                    )
            if votes:
                # The block votes in the barrier that is needed anyway: all threads take the same code.
                any_wide = cuda.syncthreads_or(int32(wide))
            else:
                cuda.syncthreads()
            before, n_before = start, n_now
            start += n_now
            # One barrier a chunk is enough: it lies between the last read of a buffer and its next write.
            buffer = 1 - buffer

    return sweep_sources


def _make_add_chunk(kernel: TileKernel) -> Compiled:
    """Function that adds a chunk of sources to a thread's sums, by the code for what they are."""
    add_points, add_gaussians = sums.make_accumulate(kernel, False), sums.make_add_gaussians(kernel)
    add_profiles, has_profile = make_accumulate_profiles(kernel), kernel.variant.profiles is not None

    @device.part
    def add_chunk(
        start: int, n_source: int, of_gaussian: Scalar, any_wide: Scalar, nu: Scalar, corner: Corner,
        block: TileBlock, sky: DeviceSky, staged: Staged, own: TileRegisters,
    ) -> None:  # fmt: skip
        profile = start - (int32(sky.direction.shape[1]) - sky.n_profile)
        if has_profile and profile >= 0:
            add_profiles(n_source, block.b, profile, nu, sky, staged, corner, own.sums, own.second)
        elif of_gaussian:
            add_gaussians(n_source, any_wide, corner, staged, own.sums, own.second)
        else:
            add_points(n_source, staged, corner, own.sums, own.second)

    return add_chunk


def _make_accumulate_chunk(kernel: TileKernel) -> Compiled:
    """Function that has a chunk of sources accumulate from all tiles of the block, and
    leaves their records.
    """
    single, n_lane, record = kernel.variant.single, kernel.n_lane, kernel.record
    size, point_size, join = record.most_size, record.size(False), adjoint.make_join(kernel)
    gaussian_size, has_profile = record.size(record.has_gaussian), kernel.variant.profiles is not None
    accumulate_profile_gradients = make_accumulate_profile_gradients(kernel)
    accumulate_points, accumulate_narrow = (
        adjoint.make_accumulate_gradients(kernel, False),
        adjoint.make_accumulate_gradients(kernel, True),
    )
    accumulate_wide = adjoint.make_accumulate_gradients(kernel, True, True) if single else accumulate_narrow

    @device.part
    def accumulate_chunk(
        sources: Chunk, of_gaussian: Scalar, any_wide: Scalar, nu: Scalar, corner: Corner, block: TileBlock,
        work: TileWork, sky: DeviceSky, records: TileRecords, shared: TileSharedMemory, own: TileRegisters,
    ) -> None:  # fmt: skip
        staged, accumulators, accumulated = shared.staged, own.accumulators, shared.accumulated
        voltages = Voltages(
            block, work.n_lanes, sources.start, records, shared.slots, sky, shared.shown, shared.by_slot
        )
        into = uint32(uint32(block.thread // n_lane) * uint32(size))
        n_source = int32(sky.direction.shape[1])
        profile = sources.start - (n_source - sky.n_profile)
        n_made = gaussian_size if of_gaussian else point_size
        if has_profile and profile >= 0:
            n_made = size
            accumulate_profile_gradients(
                sources.n_source, profile, nu, staged, corner, accumulators, accumulated, into, voltages
            )
        elif of_gaussian and any_wide:
            accumulate_wide(sources.n_source, staged, corner, accumulators, accumulated, into, voltages)
        elif of_gaussian:
            accumulate_narrow(sources.n_source, staged, corner, accumulators, accumulated, into, voltages)
        else:
            accumulate_points(sources.n_source, staged, corner, accumulators, accumulated, into, voltages)
        cuda.syncthreads()
        join(block, work, sources, n_made, n_source, accumulated, records.moments)

    return accumulate_chunk


def _make_take_rest(kernel: TileKernel) -> Compiled:
    """Function that reads the residuals of a thread's tile, which another kernel has left in others."""
    if kernel.rest_of is None:
        return device.inline(lambda block, tile, tables, records, shared, own: None)
    n_uvw, n_baseline, n_stokes = sizes_of(kernel).n_uvw, kernel.shape.side**2, kernel.variant.n_stokes
    n_rest, real = len(kernel.rest_of), float32 if kernel.variant.single else float64
    is_whole, (one, two) = n_rest == n_stokes, (*kernel.rest_of, 0)[:2]
    baselines_of, fill_baselines = sums.make_baselines(kernel), adjoint.make_fill_baselines(kernel)

    @device.inline
    def read(of_all: Array, offset: int, is_there: Scalar) -> Scalar:
        value = of_all[offset]
        return value if is_there else real(0)

    @device.part
    def take_rest(
        block: TileBlock,
        tile: Tile,
        tables: TileTables,
        records: TileRecords,
        shared: TileSharedMemory,
        own: TileRegisters,
    ) -> None:
        rest, uvw, of_all, step = own.sums, own.accumulators.uvw, records.by_pair[block.b], records.rest_step
        for n in range(n_uvw):
            # Threads without a tile accumulate as well: 0 times what was left there could be NaN.
            uvw[n] = real(0)
        if tile.active:
            fill_baselines(shared.slots, baselines_of(block, tile, tables), uvw)
            of_item = int64(tile.item) * int64(2 * n_rest) * int64(step)
            for n in range(n_baseline):
                found = records.rest_at[block.split, n, tile.tile]
                offset, is_there = of_item + int64(max(found, int32(0))), found >= 0
                if is_whole:
                    for k in range(2 * n_stokes):
                        rest[n + k * n_baseline] = read(of_all, offset + int64(k) * int64(step), is_there)
                else:
                    rest[n + one * n_baseline] = read(of_all, offset, is_there)
                    rest[n + two * n_baseline] = read(of_all, offset + int64(step), is_there)
                    offset += int64(2) * int64(step)
                    rest[n + (n_stokes + one) * n_baseline] = read(of_all, offset, is_there)
                    rest[n + (n_stokes + two) * n_baseline] = read(of_all, offset + int64(step), is_there)

    return take_rest


def make_finish(kernel: TileKernel) -> Compiled:
    """Function that ends a thread's sums in chi2, and adds up over the tiles of each item: `Results.sums`."""
    sizes, n_kind, has_adjoint = sizes_of(kernel), kernel.n_kind, kernel.has_adjoint
    n_uvw, real = sizes.n_uvw, float32 if kernel.variant.single else float64
    n_glance = 0 if kernel.uses_tensor_cores else sizes.n_glance
    baselines_of, tile_chi2 = sums.make_baselines(kernel), sums.make_chi2_epilogue(kernel)
    fill_baselines, sum_tree = adjoint.make_fill_baselines(kernel), make_item_sums(kernel)
    next_tile, next_sums, n_own = index.make_next_tile(), sums.make_next_sums(kernel), kernel.shape.n_own
    leaves_rest, write_rest = kernel.leaves_rest, matrices.make_write_rest(kernel)

    @device.part
    def chi2_epilogue(
        block: TileBlock, tile: Tile, work: TileWork, tables: TileTables, sky: DeviceSky,
        columns: DataColumns,
        results: Array, by_pair: Array, shared: TileSharedMemory, own: TileRegisters,
    ) -> None:  # fmt: skip
        slots, of_kind, total = shared.slots, own.of_kind, 0.0
        for k in range(1, n_kind):
            of_kind[k] = 0.0
        if tile.active:
            for k in range(n_glance):
                # This adds 0, but without it the compiler would leave out the reads of `look_ahead`.
                total += own.glance[k] * real(0)
            for number in range(n_own):
                here = next_tile(tile, number)
                baselines = baselines_of(block, here, tables)
                total += tile_chi2(
                    block, here, work, tables, baselines, slots, sky, columns, shared.staged.term, by_pair,
                    own.samples, own.sums, of_kind,
                )  # fmt: skip
                if has_adjoint:
                    fill_baselines(slots, baselines, own.accumulators.uvw)
                if leaves_rest:
                    write_rest(block, here, tables, own.sums, by_pair)
                next_sums(own.sums)
        elif has_adjoint:
            # Threads without a tile accumulate as well: 0 times what was left there could be NaN.
            for n in range(n_uvw):
                own.accumulators.uvw[n] = real(0)
        of_kind[0] = total
        sum_tree(block, tile, work, uint32(tables.chan_freq.size), of_kind, shared.partial, results)

    return chi2_epilogue
