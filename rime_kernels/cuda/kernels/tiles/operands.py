"""Point sources summed by matrix units: what a block puts into shared memory for them, and the products.

For each Stokes parameter S and antennas p, q with terms a + i b,

    Re V^S_pq = sum_s S_s (a_p a_q + b_p b_q),   Im V^S_pq = sum_s S_s (b_p a_q - a_p b_q):

products of the matrix of first antennas, pairs (a, b) or (b, -a), by that of second antennas, pairs S (a, b).
A chunk of sources has some units of 16 bytes in shared memory for each antenna and matrix, of two sources in
single and of one in double precision. What a thread reads at once is what an instruction takes, in its order:

- first antennas, in twos, have two halves: of single precision the numbers rounded to half precision, then
  what is left of them; of double precision a, then b. A unit has (s, p), (s, p + 1), (s + 1, p),
  (s + 1, p + 1), or (s, p), (s, p + 1).
- second antennas: both sources rounded, then what is left of them; or S a, S b.

Units lie in an order that differs from antenna to antenna, so that the threads which read together read
from different banks.

In single precision the brightness of a chunk is scaled by a power of two, for half precision reaches from
6e-8 to 65504 only, and the sums of eight sources are added to those of the others outside the matrix units,
which round towards 0.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
from numba import float32, float64, int32, int64, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import baseline, scalars
from rime_kernels.cuda.kernels.arguments import Sky
from rime_kernels.cuda.kernels.baseline import Corner
from rime_kernels.cuda.kernels.lane_sums import exchange
from rime_kernels.cuda.kernels.tiles import units
from rime_kernels.cuda.kernels.tiles.parts import Block, Operands, Shared, Slots, TileKernel, sizes_of
from rime_kernels.physics import beam, phase

_turns = phase.turns
_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM


class Points(NamedTuple):
    """A chunk of point sources."""

    number: Scalar  # of the chunk
    start: Scalar  # its first source
    n_source: Scalar


@functools.cache
def make_points() -> Compiled:
    """Function that says which sources a chunk has."""

    @device.inline
    def points_of(number: Scalar, chunk: int, n_point: Scalar) -> Points:
        start, n_source = int32(int32(number) * int32(chunk)), int32(0)
        if start >= 0:
            n_source = int32(max(int32(0), min(int32(chunk), int32(int32(n_point) - start))))
        return Points(int32(number), start, n_source)

    return points_of


@functools.cache
def make_write(kernel: TileKernel) -> Compiled:
    """Function that writes the term of source s of a chunk to one of the matrices of a buffer.

    Matrix 0 is that of first antennas; `at` is where the buffer begins.
    """
    single, n_unit, n_slot = kernel.variant.single, kernel.shape.units, kernel.shape.n_slot
    if device.simulated():
        chunk = sizes_of(kernel).n_operand_source

        def simulated(array: Any, at: Any, matrix: int, slot: Any, s: Any, re: Any, im: Any) -> None:
            array[int(at) + (matrix * n_slot + int(slot)) * chunk + int(s)] = complex(re, im)

        return simulated
    store, split = units.make_store(single), units.make_split()
    n_row, n_matrix, shift = 16 * n_unit, 16 * n_unit * n_slot, 1 if single else 0

    @device.inline
    def write(
        start: Scalar, at: Scalar, matrix: int, slot: Scalar, s: Scalar, re: Scalar, im: Scalar
    ) -> None:
        first, second = start, start
        if matrix == 0:
            pair = uint32(slot >> uint32(1))
            unit = uint32(s >> uint32(shift)) ^ uint32(uint32(4) * uint32(pair & uint32(1)))
            first = uint32(start + at + uint32(n_row) * pair + uint32(16) * unit)
            if single:
                first = uint32(first + uint32(8) * (s & uint32(1)) + uint32(4) * (slot & uint32(1)))
            else:
                first = uint32(first + uint32(8) * (slot & uint32(1)))
            second = uint32(first + uint32(n_matrix // 2))
        else:
            unit = uint32(s >> uint32(shift)) ^ uint32(uint32(4) * uint32(slot & uint32(1)))
            first = uint32(start + at + uint32(n_row) * slot + uint32(16) * unit)
            if single:
                first = uint32(first + uint32(4) * (s & uint32(1)))
            first = uint32(first + uint32(n_matrix) * uint32(matrix))
            second = uint32(first + uint32(8))
        if single:
            high, low = split(re, im)
            store(first, high)
            store(second, low)
        else:
            store(first, re)
            store(second, im)

    return write


@functools.cache
def make_scale(single: bool) -> Compiled:
    """Function that gives the power of two that brings a number to 2^10 .. 2^11, and its inverse."""
    if not single:
        return device.inline(lambda most: (1.0, 1.0))
    if device.simulated():

        def simulated(most: Any) -> tuple[Any, Any]:
            exponent = int(np.clip(np.frexp(most)[1], -106, 124))
            return np.float32(2.0) ** (11 - exponent), np.float32(2.0) ** (exponent - 11)

        return simulated
    libdevice = device.libdevice()
    bits_of, number_of = libdevice.float_as_int, libdevice.int_as_float

    @device.inline
    def scale(most: Scalar) -> tuple[Scalar, Scalar]:
        # Sources fainter than 2^-106 Jy are taken as they are.
        exponent = min(max(bits_of(most) >> int32(23), int32(20)), int32(250))
        return (
            number_of(int32((int32(264) - exponent) << int32(23))),
            number_of(int32((exponent - int32(10)) << int32(23))),
        )

    return scale


@functools.cache
def make_stage_bright(kernel: TileKernel) -> Compiled:
    """Function that puts brightness, scaled, of all items and directions of a chunk into shared memory.

    0 for sources that are not there. All threads of a block call it, and those of a warp together.
    """
    sizes, n_stokes, single = sizes_of(kernel), kernel.variant.n_stokes, kernel.variant.single
    chunk, n_item, per_source = sizes.n_operand_source, kernel.shape.n_item, sizes.per_source
    real, swapped, scale = float32 if single else float64, exchange(), make_scale(single)
    read_stokes, meets = baseline.make_read_stokes(single, n_stokes, int64), device.simulated()

    @device.part
    def stage_bright(points: Points, block: Block, sky: Sky, shared: Shared) -> None:
        thread = uint32(block.thread)
        j, s = uint32(thread // uint32(chunk)), uint32(thread % uint32(chunk))
        if not meets and int32(uint32(thread & uint32(0xFFFFFFE0)) // uint32(chunk)) >= block.n_here:
            return  # a warp without items
        i, q, u, v = real(0), real(0), real(0), real(0)
        is_one = int32(j) < block.n_here
        if is_one and int32(s) < points.n_source:
            at = shared.bright_at[j] + int64(points.start + int32(s)) * int64(per_source)
            stokes = read_stokes(sky.bright, at)
            i, q, u, v = stokes.i, stokes.q, stokes.u, stokes.v
        by, inverse = real(1), real(1)
        if single:
            # Over the threads of an item: neighbours.
            most = max(max(abs(i), abs(q)), max(abs(u), abs(v)))
            most = max(most, swapped(most, 1))
            most = max(most, swapped(most, 2))
            most = max(most, swapped(most, 4))
            most = max(most, swapped(most, 8))
            if chunk == 32:
                most = max(most, swapped(most, 16))
            by, inverse = scale(most)
        if j == 0 and int32(s) < points.n_source:
            into, k = uint32(uint32(points.number & int32(1)) * uint32(chunk) + s), points.start + int32(s)
            shared.operands.direction[uint32(3) * into] = sky.direction[block.b, k, 0]
            shared.operands.direction[uint32(3) * into + uint32(1)] = sky.direction[block.b, k, 1]
            shared.operands.direction[uint32(3) * into + uint32(2)] = sky.direction[block.b, k, 2]
        if is_one:
            # The terms of a chunk are made after its brightness and before its sum: two and four in turn.
            turn = uint32(uint32(points.number & int32(1)) * uint32(n_item) + j)
            into = uint32(uint32(n_stokes) * uint32(turn * uint32(chunk) + s))
            shared.operands.bright[into] = by * i
            if n_stokes == 4:
                shared.operands.bright[into + uint32(1)] = by * q
                shared.operands.bright[into + uint32(2)] = by * u
                shared.operands.bright[into + uint32(3)] = by * v
            if s == 0:
                turn = uint32(uint32(points.number & int32(3)) * uint32(n_item) + j)
                shared.operands.inverse[turn] = inverse

    return stage_bright


@functools.cache
def make_fill_operands(kernel: TileKernel) -> Compiled:
    """Function that makes the operands of a chunk of point sources, in one of the two buffers."""
    variant, sizes = kernel.variant, sizes_of(kernel)
    single, code, n_stokes, chunk = variant.single, variant.beam, variant.n_stokes, sizes.n_operand_source
    n_item, n_thread, n_buffer = kernel.shape.n_item, kernel.shape.n_thread, sizes.n_buffer
    real, cos_sin, write = float32 if single else float64, scalars.make_cos_sin(single), make_write(kernel)
    polarised = n_stokes == 4

    @device.part
    def fill_operands(points: Points, at: Operands, block: Block, slots: Slots, sky: Sky) -> None:
        # As few threads for an antenna as there are sources: a power of two.
        shift = uint32(3)
        while int32(int32(1) << int32(shift)) < points.n_source:
            shift = uint32(shift + uint32(1))
        thread, n_step = uint32(block.thread), uint32(uint32(n_thread) >> shift)
        x = uint32(thread >> shift)
        s = uint32(thread - uint32(x << shift))
        there = int32(s) < points.n_source
        odd, scale = uint32(points.number & int32(1)), sky.beam_scale[block.b]
        k = uint32(uint32(3) * uint32(odd * uint32(chunk) + (s if there else uint32(0))))
        l, m, n_minus_1 = at.direction[k], at.direction[k + uint32(1)], at.direction[k + uint32(2)]
        into, first = uint32(odd * uint32(n_buffer)), uint32(uint32(odd * uint32(n_item)) * uint32(chunk) + s)
        while x < block.n_x:
            cos, sin = cos_sin(_turns(slots.u[x], slots.v[x], slots.w[x], l, m, n_minus_1))
            if code != _NO_BEAM:
                e = real(_voltage(code, _argument(scale, slots.nu[x], l - slots.dl[x], m - slots.dm[x])))
                cos, sin = e * cos, e * sin
            if not there:
                cos, sin = real(0), real(0)
            slot, j = slots.place[x], slots.item[x]
            write(at.at, into, 0, slot, s, cos, sin)
            bright = uint32(uint32(n_stokes) * uint32(first + uint32(j * uint32(chunk))))
            # One line for each matrix: their places are constants then.
            value = at.bright[bright]
            write(at.at, into, 1, slot, s, value * cos, value * sin)
            if polarised:
                value = at.bright[bright + uint32(1)]
                write(at.at, into, 2, slot, s, value * cos, value * sin)
                value = at.bright[bright + uint32(2)]
                write(at.at, into, 3, slot, s, value * cos, value * sin)
                value = at.bright[bright + uint32(3)]
                write(at.at, into, 4, slot, s, value * cos, value * sin)
            x = uint32(x + n_step)

    return fill_operands


@functools.cache
def make_clear_operands(kernel: TileKernel) -> Compiled:
    """Function that puts 0 where no antenna is, in both buffers: products of it would not be 0 times NaN."""
    sizes, n_stokes, single = sizes_of(kernel), kernel.variant.n_stokes, kernel.variant.single
    chunk, n_thread, real = sizes.n_operand_source, kernel.shape.n_thread, float32 if single else float64
    write, n_buffer, polarised = make_write(kernel), sizes.n_buffer, n_stokes == 4

    @device.part
    def clear_operands(block: Block, n_slot: Scalar, at: Operands) -> None:
        n_gap, zero = uint32(uint32(n_slot) - block.n_used), real(0)
        e = uint32(block.thread)
        while e < uint32(uint32(block.n_here) * n_gap) * uint32(2 * chunk):
            s, rest = uint32(e % uint32(chunk)), uint32(e // uint32(chunk))
            into, gap = uint32(uint32(rest & uint32(1)) * uint32(n_buffer)), uint32(rest // uint32(2))
            j = uint32(gap // n_gap)
            slot = uint32(j * uint32(n_slot) + block.n_used + uint32(gap - j * n_gap))
            write(at.at, into, 0, slot, s, zero, zero)
            write(at.at, into, 1, slot, s, zero, zero)
            if polarised:
                write(at.at, into, 2, slot, s, zero, zero)
                write(at.at, into, 3, slot, s, zero, zero)
                write(at.at, into, 4, slot, s, zero, zero)
            e = uint32(e + uint32(n_thread))

    return clear_operands


@functools.cache
def make_add_operands(kernel: TileKernel) -> Compiled:
    """Function that adds the products of a chunk to the sums of a thread; a warp calls it together."""
    if device.simulated():
        return _simulated_products(kernel)
    single, n_item, n_row = kernel.variant.single, kernel.shape.n_item, 16 * kernel.shape.units
    n_buffer, n_matrix = sizes_of(kernel).n_buffer, n_row * kernel.shape.n_slot
    # A step takes four units, 64 bytes: of so many sources.
    per_step, add_step = 8 if single else 4, (_make_single_step if single else _make_double_step)(kernel)

    @device.part
    def add_operands(
        points: Points, corner: Corner, local: Scalar, lane: Scalar, at: Operands, sums: Array
    ) -> None:
        odd, inverse = uint32(points.number & int32(1)), at.inverse[0]
        if single:
            turn = uint32(uint32(points.number & int32(3)) * uint32(n_item) + uint32(local))
            inverse = at.inverse[turn]
        first = uint32(at.at + odd * uint32(n_buffer) + uint32(16) * uint32(lane & uint32(3)))
        pair = uint32(corner.p >> uint32(1))
        p = uint32(first + uint32(n_row) * pair)
        q = uint32(first + uint32(n_matrix) + uint32(n_row) * corner.q)
        by_p = uint32(uint32(64) * uint32(pair & uint32(1)))
        by_q = uint32(uint32(64) * uint32(corner.q & uint32(1)))
        left, half = points.n_source, uint32(0)
        while left > 0:
            add_step(uint32(p + (by_p ^ half)), uint32(q + (by_q ^ half)), inverse, sums)
            left -= per_step
            if half != 0:
                p, q = uint32(p + uint32(128)), uint32(q + uint32(128))
            half = uint32(half ^ uint32(64))

    return add_operands


@functools.cache
def _make_single_step(kernel: TileKernel) -> Compiled:
    """Function that adds the products of eight sources; `p`, `q` are the addresses of their units."""
    n_stokes, n_own, n_tile = kernel.variant.n_stokes, units.N_OWN, kernel.shape.n_own
    load, product, turn = units.make_load(True), units.make_product(True, False), units.make_turn(True)
    n_row = 16 * kernel.shape.units
    n_matrix, n_block = n_row * kernel.shape.n_slot, n_row * units.N_COLUMN
    second_half = n_matrix // 2

    @device.inline
    def turned(a: Any) -> Any:
        return turn(a[0]), turn(a[1]), turn(a[2]), turn(a[3])

    @device.inline
    def three_products(high: Any, low: Any, b: Any) -> Any:
        # Small ones first: an addition rounds by the size of the sum.
        zero = float32(0)
        c = product(low[0], low[1], low[2], low[3], b[0], b[1], zero, zero, zero, zero)
        c = product(high[0], high[1], high[2], high[3], b[2], b[3], c[0], c[1], c[2], c[3])
        return product(high[0], high[1], high[2], high[3], b[0], b[1], c[0], c[1], c[2], c[3])

    @device.inline
    def add(sums: Array, at: int, inverse: Scalar, c: Any) -> None:
        sums[at] += inverse * c[0]
        sums[at + 1] += inverse * c[1]
        sums[at + 2] += inverse * c[2]
        sums[at + 3] += inverse * c[3]

    @device.part
    def add_step(p: Scalar, q: Scalar, inverse: Scalar, sums: Array) -> None:
        high, low = load(p), load(uint32(p + uint32(second_half)))
        high_im, low_im = turned(high), turned(low)
        for k in range(n_tile * n_stokes):
            tile, parameter = k // n_stokes, k % n_stokes
            b = load(uint32(q + uint32(parameter) * uint32(n_matrix) + uint32(tile) * uint32(n_block)))
            first = 2 * n_own * n_stokes * tile + n_own * parameter
            add(sums, first, inverse, three_products(high, low, b))
            add(sums, first + n_own * n_stokes, inverse, three_products(high_im, low_im, b))

    return add_step


@functools.cache
def _make_double_step(kernel: TileKernel) -> Compiled:
    """The same in double precision, of four sources; `inverse` is 1."""
    n_stokes, n_own, n_tile = kernel.variant.n_stokes, units.N_OWN, kernel.shape.n_own
    load, turn = units.make_load(False), units.make_turn(False)
    product = units.make_product(False, kernel.all_rows)
    n_row = 16 * kernel.shape.units
    n_matrix, n_block = n_row * kernel.shape.n_slot, n_row * units.N_COLUMN
    second_half = n_matrix // 2

    @device.inline
    def add(sums: Array, at: int, a: Any, b: Any) -> None:
        c = product(a[0], a[1], a[2], a[3], b[0], b[1], sums[at], sums[at + 1], sums[at + 2], sums[at + 3])
        sums[at], sums[at + 1], sums[at + 2], sums[at + 3] = c[0], c[1], c[2], c[3]

    @device.part
    def add_step(p: Scalar, q: Scalar, inverse: Scalar, sums: Array) -> None:
        a, b = load(p), load(uint32(p + uint32(second_half)))
        re, im = (a[0], a[1], b[0], b[1]), (b[0], b[1], turn(a[0]), turn(a[1]))
        for k in range(n_tile * n_stokes):
            tile, parameter = k // n_stokes, k % n_stokes
            other = load(uint32(q + uint32(parameter) * uint32(n_matrix) + uint32(tile) * uint32(n_block)))
            first = 2 * n_own * n_stokes * tile + n_own * parameter
            add(sums, first, re, other)
            add(sums, first + n_own * n_stokes, im, other)

    return add_step


def _simulated_products(kernel: TileKernel) -> Compiled:
    """The same sums one by one, for the simulator: it has no matrix units."""
    sizes, n_stokes, side = sizes_of(kernel), kernel.variant.n_stokes, kernel.shape.side
    chunk, n_slot, n_item = sizes.n_operand_source, kernel.shape.n_slot, kernel.shape.n_item
    single, n_buffer = kernel.variant.single, sizes.n_buffer

    def add_operands(points: Any, corner: Any, local: Any, lane: Any, at: Any, sums: Any) -> None:
        first = int(points.number & 1) * n_buffer
        inverse = at.inverse[(points.number & 3) * n_item + local] if single else 1.0
        # Column g of the second matrix is what a thread reads; its own sums are of columns 2 t, 2 t + 1.
        second = int(corner.q) - (int(lane) >> 2) + side * (int(lane) & 3)
        for s, tile, n, k in itertools.product(
            range(int(points.n_source)), range(kernel.shape.n_own), range(side * side), range(n_stokes)
        ):
            p, q = int(corner.p) + n // side, second + units.N_COLUMN * tile + n % side
            a = complex(at.at[first + p * chunk + s])
            b = complex(at.at[first + ((1 + k) * n_slot + q) * chunk + s])
            product, into = inverse * a * b.conjugate(), 2 * n_stokes * side * side * tile
            sums[into + k * side * side + n] += product.real
            sums[into + (n_stokes + k) * side * side + n] += product.imag

    return add_operands
