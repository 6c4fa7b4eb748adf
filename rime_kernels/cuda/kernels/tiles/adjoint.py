"""The adjoint of the sum over sources for a tile of antennas.

After the sum over sources a thread has the weighted residuals of its tile, in Stokes parameters, where the
sums were. The sources come by a second time, and each accumulates from all tiles what it did to them.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import float32, float64, int32, int64, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import baseline
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.baseline import Corner, Staged, Stokes
from rime_kernels.cuda.kernels.reductions import make_barrier, make_warp_reduce
from rime_kernels.cuda.kernels.tiles.parts import (
    Slots,
    TileBlock,
    TileKernel,
    TileRecords,
    TileSharedMemory,
    TileWork,
    sizes_of,
)
from rime_kernels.cuda.kernels.tiles.staging import Chunk
from rime_kernels.cuda.kernels.tiles.sums import Baselines
from rime_kernels.physics import beam

_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM
_voltage_slope, _argument_slopes = beam.voltage_slope, beam.argument_slopes


class TileAccumulators(NamedTuple):
    """A thread's memory for what a source accumulates from its tile, in working precision."""

    rest: Array  # (2 n_stokes side^2,): residuals, as the sums lay
    # Wavelengths: the tile's baselines (3 side^2,); or, where sums are `TileKernel.by_antenna`, its antennas
    # (6 side,), u, v and w of the first ones and then of the second ones.
    uvw: Array
    second: Array  # (6 side,): terms of the second antennas
    value: Array  # (`Moments.most_size`,)
    of_antenna: Array  # (2 side,): what each antenna's voltage did
    column: Array  # (3 side,): slopes of each second antenna, where sums are by antenna


class SourceSlopes(NamedTuple):
    """What a source's sums over a tile are made of."""

    staged: Staged
    p: Scalar  # where the terms of the first antennas begin
    stokes: Stokes
    accumulators: TileAccumulators


class Voltages(NamedTuple):
    """What the sums by antenna are made of."""

    block: TileBlock
    n_lanes: Scalar  # threads of an item
    start: int  # the first source of the chunk
    records: TileRecords
    slots: Slots
    sky: DeviceSky
    shown: Array  # `TileSharedMemory.shown`
    by_slot: Array


# Of a baseline, or sums over a row: by phase, and by the coordinates along and across a Gaussian.
Slopes = tuple[Scalar, Scalar, Scalar]


def _nothing(
    n_source: int, staged: Staged, corner: Corner, accumulators: TileAccumulators, partial: Array,
    first: int,
    voltages: Voltages,
) -> None:  # fmt: skip
    """In place of what a kernel without an adjoint never calls."""


@functools.cache
def make_accumulate_gradients(kernel: TileKernel, gaussian: bool, wide: bool = False) -> Compiled:
    """Function that adds up what `n_source` sources accumulate from the tiles of each item.

    Sources and arguments as those of `sums.make_accumulate`. The sums of source k lie in `partial` from
    `first` + k `Sizes.partial_step` on, in the order of `Moments`.
    """
    if not kernel.has_adjoint:
        return device.inline(_nothing)
    single, n_stokes, side = kernel.variant.single, kernel.variant.n_stokes, kernel.shape.side
    real, has_beam, step = float32 if single else float64, kernel.has_beam, sizes_of(kernel).partial_step
    n_antenna, n_value, of_direction = 2 * side, kernel.record.size(gaussian), n_stokes
    per_source = 2 if n_stokes == 4 else 1
    warp_reduce, accumulate_voltage_gradients = (
        make_warp_reduce(n_value, kernel.n_lane),
        make_accumulate_voltage_gradients(kernel),
    )
    read_second = baseline.make_read_second(side, gaussian, wide)
    read_stokes, all_rows, add_columns = (
        baseline.make_read_stokes(single, n_stokes, uint32),
        baseline.make_all_rows(
            _make_row(kernel, gaussian, wide), side, is_short=not gaussian or (single and side <= 3)
        ),
        _make_add_columns(kernel, gaussian),
    )
    n_column = sizes_of(kernel).n_column

    @device.part
    def accumulate_gradients(
        n_source: int, staged: Staged, corner: Corner, accumulators: TileAccumulators, partial: Array,
        first: int, voltages: Voltages,
    ) -> None:  # fmt: skip
        thread, value, of_antenna = voltages.block.thread, accumulators.value, accumulators.of_antenna
        p, q, b = corner.p, corner.q, corner.bright
        end = uint32(p + uint32(n_source) * uint32(side))
        source = uint32(0)
        while p != end:
            for k in range(n_value):
                value[k] = real(0)
            if has_beam:
                for k in range(n_antenna):
                    of_antenna[k] = real(0)
            for k in range(n_column):
                accumulators.column[k] = real(0)
            read_second(staged, q, accumulators.second, 0)
            stokes = read_stokes(staged.bright, b)
            all_rows(SourceSlopes(staged, p, stokes, accumulators))
            add_columns(accumulators)
            if n_stokes == 1:
                # I alone is multiplied here, once for all baselines.
                for k in range(of_direction, n_value):
                    value[k] *= stokes.i
                if has_beam:
                    for k in range(n_antenna):
                        of_antenna[k] *= stokes.i
            if has_beam:
                accumulate_voltage_gradients(source, of_antenna, value, voltages)
            warp_reduce(thread, value, partial, first)
            p, q, b = uint32(p + uint32(side)), uint32(q + uint32(side)), uint32(b + uint32(per_source))
            first, source = uint32(first + uint32(step)), uint32(source + uint32(1))

    return accumulate_gradients


def _make_row(kernel: TileKernel, gaussian: bool, wide: bool) -> Compiled:
    """Function that accumulates from row `i` of a tile: one first antenna with all second ones."""
    side, single, n_stokes = kernel.shape.side, kernel.variant.single, kernel.variant.n_stokes
    has_beam, n_baseline, real = kernel.has_beam, side * side, float32 if single else float64
    read_first = baseline.make_read_first(single, gaussian, wide)
    product = baseline.make_product(single, side, gaussian, wide)
    weigh_residual = baseline.make_weigh_residual(n_stokes, n_baseline, False)
    turned_and_grown, add_slopes = baseline.turned_and_grown, _make_add_slopes(kernel, gaussian)
    add_row = _make_add_row(kernel, gaussian)

    @device.part
    def row(i: int, given: SourceSlopes) -> None:
        rest, value = given.accumulators.rest, given.accumulators.value
        of_antenna, stokes = given.accumulators.of_antenna, given.stokes
        if n_stokes == 1:
            # `accumulate_gradients` multiplies the sums by I, once for all baselines.
            stokes = Stokes(real(1), real(0), real(0), real(0))
        first = read_first(given.staged, given.p + uint32(i))
        of_row = real(0), real(0), real(0)
        for j in range(side):
            n = i * side + j
            re, im, along, across = product(first, given.accumulators.second, j)
            for k in range(n_stokes):
                value[k] += re * rest[n + k * n_baseline]
                value[k] += im * rest[n + (k + n_stokes) * n_baseline]
            rest_re, rest_im = weigh_residual(rest, n, stokes)
            turned, grown = turned_and_grown(re, im, rest_re, rest_im)
            # ln of the envelope falls as the square of a coordinate: its slope is this coordinate again.
            of_row = add_slopes(j, n, (turned, along * grown, across * grown), of_row, given.accumulators)
            if has_beam:
                of_antenna[i] += grown
                of_antenna[side + j] += grown
        add_row(i, of_row, given.accumulators)

    return row


def _make_add_slopes(kernel: TileKernel, gaussian: bool) -> Compiled:
    """Function that adds the slopes of baseline n to the values; or to sums of its row and of its column j.

    Slopes are those by phase, and of Gaussians by the coordinates along and across.
    """
    side, n_baseline = kernel.shape.side, kernel.shape.side**2
    of_direction, of_projection = kernel.variant.n_stokes, kernel.record.projection
    if kernel.by_antenna:

        @device.inline
        def add_to_antennas(
            j: int, n: int, slopes: Slopes, of_row: Slopes, accumulators: TileAccumulators
        ) -> Slopes:
            column = accumulators.column
            column[j] += slopes[0]
            if gaussian:
                column[side + j] += slopes[1]
                column[2 * side + j] += slopes[2]
            return of_row[0] + slopes[0], of_row[1] + slopes[1], of_row[2] + slopes[2]

        return add_to_antennas

    @device.inline
    def add_slopes(j: int, n: int, slopes: Slopes, of_row: Slopes, accumulators: TileAccumulators) -> Slopes:
        value, uvw = accumulators.value, accumulators.uvw
        for k in range(3):
            value[of_direction + k] += slopes[0] * uvw[n + k * n_baseline]
        if gaussian:
            for k in range(3):
                value[of_projection + k] += slopes[1] * uvw[n + k * n_baseline]
                value[of_projection + 3 + k] += slopes[2] * uvw[n + k * n_baseline]
        return of_row

    return add_slopes


def _make_add_row(kernel: TileKernel, gaussian: bool) -> Compiled:
    """Function that adds the sums of row i, times the coordinates of its antenna, to the values."""
    of_direction, of_projection = kernel.variant.n_stokes, kernel.record.projection
    if not kernel.by_antenna:
        return device.inline(lambda i, of_row, accumulators: None)

    @device.inline
    def add_row(i: int, of_row: Slopes, accumulators: TileAccumulators) -> None:
        value, uvw = accumulators.value, accumulators.uvw
        for k in range(3):
            value[of_direction + k] += of_row[0] * uvw[3 * i + k]
            if gaussian:
                value[of_projection + k] += of_row[1] * uvw[3 * i + k]
                value[of_projection + 3 + k] += of_row[2] * uvw[3 * i + k]

    return add_row


def _make_add_columns(kernel: TileKernel, gaussian: bool) -> Compiled:
    """Function that takes the sums of all columns, times their antennas' coordinates, off the values."""
    of_direction, of_projection = kernel.variant.n_stokes, kernel.record.projection
    side = kernel.shape.side
    if not kernel.by_antenna:
        return device.inline(lambda accumulators: None)

    @device.inline
    def add_columns(accumulators: TileAccumulators) -> None:
        value, uvw, column = accumulators.value, accumulators.uvw, accumulators.column
        for j in range(side):
            offset = 3 * (side + j)
            for k in range(3):
                value[of_direction + k] -= column[j] * uvw[offset + k]
                if gaussian:
                    value[of_projection + k] -= column[side + j] * uvw[offset + k]
                    value[of_projection + 3 + k] -= column[2 * side + j] * uvw[offset + k]

    return add_columns


@functools.cache
def make_accumulate_voltage_gradients(kernel: TileKernel) -> Compiled:
    """Function that turns what each antenna's voltage did into sums by source and by antenna.

    Tiles show what they have of their antennas; the threads of an item each sum up some of its antennas, add
    the source's part to its `value` and the antenna's to `by_slot`, float64 (l, m) of each antenna term of
    the block.
    """
    code, side, n_thread = kernel.variant.beam, kernel.shape.side, kernel.shape.n_thread
    real, n_antenna = float32 if kernel.variant.single else float64, 2 * kernel.shape.side
    if code == _NO_BEAM:
        return device.inline(lambda source, of_antenna, value, voltages: None)
    at_voltage, barrier = kernel.record.voltage, make_barrier()

    @device.part
    def accumulate_voltage_gradients(
        source: Scalar, of_antenna: Array, value: Array, voltages: Voltages
    ) -> None:
        block, slots, shown, by_slot = voltages.block, voltages.slots, voltages.shown, voltages.by_slot
        thread, n_lanes, n_used = block.thread, voltages.n_lanes, block.n_used
        member_start = voltages.records.member_start[block.copy]
        member, direction = voltages.records.member[block.copy], voltages.sky.direction
        scale, b, s = voltages.sky.beam_scale[block.b], block.b, voltages.start + source
        for k in range(n_antenna):
            # Neighbouring threads write neighbouring numbers, which lie in different banks of the memory.
            shown[uint32(k * n_thread) + uint32(thread)] = of_antenna[k]
        barrier()
        local = uint32(uint32(thread) // uint32(n_lanes))
        slot = uint32(uint32(thread) - local * uint32(n_lanes))
        while slot < n_used and local < block.n_here:
            group = uint32(slot // uint32(side))
            first = uint32(uint32(slot - group * uint32(side)) * uint32(n_thread) + local * uint32(n_lanes))
            total = 0.0
            # In the order of the members, by one thread: results repeat to the bit.
            for e in range(member_start[group], member_start[group + uint32(1)]):
                # Twice the number of a tile, and 1 more where the antenna is on its second side.
                tile, second = uint32(member[e]) >> uint32(1), uint32(member[e]) & uint32(1)
                total += float64(shown[first + second * uint32(side * n_thread) + tile])
            x = uint32(local * uint32(n_used) + slot)
            l, m = direction[b, s, 0] - slots.dl[x], direction[b, s, 1] - slots.dm[x]
            argument = _argument(scale, slots.nu[x], l, m)
            e = _voltage(code, argument)
            # Where the voltage is 0, what it multiplies is 0 as well: no 0/0.
            of_argument = total * _voltage_slope(code, argument) / e if e != 0.0 else 0.0
            by_scale, by_l, by_m = _argument_slopes(scale, slots.nu[x], l, m)
            by_slot[2 * x] += of_argument * by_l
            by_slot[2 * x + 1] += of_argument * by_m
            # Of the antennas of this thread: `warp_reduce` adds up what all threads have.
            value[at_voltage] += real(of_argument * by_l)
            value[at_voltage + 1] += real(of_argument * by_m)
            value[at_voltage + 2] += real(of_argument * by_scale)
            slot = uint32(slot + uint32(n_lanes))
        # `shown` is written again for the next source only after all threads have read it.
        barrier()

    return accumulate_voltage_gradients


@functools.cache
def make_join(kernel: TileKernel) -> Compiled:
    """Function that joins what all threads of an item accumulated from a chunk of sources, into its records.

    Sources have accumulated `n_made` values; those behind, which only Gaussians have, are 0.
    """
    if not kernel.has_adjoint:
        return device.inline(_nothing_to_join)
    n_thread, n_lane, record = kernel.shape.n_thread, kernel.n_lane, kernel.record
    real, step = float32 if kernel.variant.single else float64, sizes_of(kernel).partial_step
    size, n_value = record.most_size, record.n_value

    @device.part
    def join(
        block: TileBlock, work: TileWork, sources: Chunk, n_made: Scalar, n_source: int,
        accumulated: Array,
        moments: Array,
    ) -> None:  # fmt: skip
        # Number of the record of the first item's first source; the next item's come n_copy * n_source later.
        first_record = (int64(block.b) * work.n_total + block.first_item) * int64(block.n_copy)
        first = (first_record + int64(block.copy)) * n_source + sources.start
        n_group = int32(uint32(work.n_lanes) // uint32(n_lane))
        x = uint32(block.thread)
        while x < uint32(sources.n_source) * uint32(block.n_here) * uint32(n_value):
            of_item = uint32(x // uint32(n_value))
            value = uint32(x - of_item * uint32(n_value))
            source = uint32(of_item // uint32(block.n_here))
            item = uint32(of_item - source * uint32(block.n_here))
            offset = uint32(source * uint32(step) + item * uint32(n_group * size) + value)
            total = 0.0
            if value < n_made:
                # In float64, and always in the same order.
                for k in range(n_group):
                    total += float64(accumulated[uint32(offset + uint32(k * size))])
            number = first + int64(item) * (int64(block.n_copy) * n_source) + int64(source)
            moments[number * n_value + int64(value)] = real(total)
            x = uint32(x + uint32(n_thread))

    return join


def _nothing_to_join(
    block: TileBlock, work: TileWork, sources: Chunk, n_made: Scalar, n_source: int, accumulated: Array,
    moments: Array,
) -> None:  # fmt: skip
    """In place of what a kernel without an adjoint never calls."""


@functools.cache
def make_fill_baselines(kernel: TileKernel) -> Compiled:
    """Function that fills `TileAccumulators.uvw`: coordinates of a tile's baselines, u of all, then v, then
    w.

    Or those of its antennas, from the middle one of three of them on: differences alone matter, and these are
    the more precise the smaller the coordinates are. One antenna may be far away, and without data.
    """
    side, real = kernel.shape.side, float32 if kernel.variant.single else float64
    n_baseline = side * side
    if kernel.by_antenna:

        @device.inline
        def antennas(of: Array, baselines: Baselines, into: Array, first: int) -> None:
            """One coordinate."""
            a, b = of[baselines.p], of[min(uint32(baselines.p + uint32(1)), baselines.last)]
            c = of[min(uint32(baselines.q + uint32(side - 1)), baselines.last)]
            origin = max(min(a, b), min(max(a, b), c))
            for i in range(side):
                x = min(uint32(baselines.p + uint32(i)), baselines.last)
                y = min(uint32(baselines.q + uint32(i)), baselines.last)
                into[first + 3 * i] = real(of[x] - origin)
                into[first + 3 * (side + i)] = real(of[y] - origin)

        @device.inline
        def fill_antennas(slots: Slots, baselines: Baselines, uvw: Array) -> None:
            antennas(slots.u, baselines, uvw, 0)
            antennas(slots.v, baselines, uvw, 1)
            antennas(slots.w, baselines, uvw, 2)

        return fill_antennas

    @device.inline
    def differences(of: Array, baselines: Baselines, into: Array, first: int) -> None:
        """One coordinate; short loops, which are unrolled."""
        for i in range(side):
            x = min(uint32(baselines.p + uint32(i)), baselines.last)
            for j in range(side):
                y = min(uint32(baselines.q + uint32(j)), baselines.last)
                into[first + i * side + j] = real(of[x] - of[y])

    @device.inline
    def fill_baselines(slots: Slots, baselines: Baselines, uvw: Array) -> None:
        differences(slots.u, baselines, uvw, 0)
        differences(slots.v, baselines, uvw, n_baseline)
        differences(slots.w, baselines, uvw, 2 * n_baseline)

    return fill_baselines


@functools.cache
def make_write_antennas(kernel: TileKernel) -> Compiled:
    """Function that writes what each slot of the block accumulated, `TileRecords.by_antenna`."""
    n_thread = kernel.shape.n_thread

    @device.part
    def write_antennas(
        block: TileBlock, work: TileWork, n_slot: Scalar, shared: TileSharedMemory, by_antenna: Array
    ) -> None:
        x, per_copy = uint32(block.thread), uint32(2) * n_slot
        while x < uint32(block.n_here) * per_copy:
            j = uint32(x // per_copy)
            k = uint32(x - j * per_copy)
            row = (int64(block.b) * work.n_total + int64(block.first_item + j)) * int64(block.n_copy)
            row += int64(block.copy)
            # Slots without an antenna accumulate nothing.
            is_used = k < uint32(2) * block.n_used
            at_slot = uint32(j * uint32(2) * block.n_used + k)
            by_antenna[row * int64(per_copy) + int64(k)] = shared.by_slot[at_slot] if is_used else 0.0
            x = uint32(x + uint32(n_thread))

    return write_antennas
