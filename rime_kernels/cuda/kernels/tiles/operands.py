"""Point sources summed by matrix units: what a block puts into shared memory for them, and the products.

For each Stokes parameter S and antennas p, q with terms a + i b,

    Re V^S_pq = sum_s S_s (a_p a_q + b_p b_q),   Im V^S_pq = sum_s S_s (b_p a_q - a_p b_q):

products of the matrix of first antennas, pairs (a, b) or (b, -a), by that of second antennas, pairs S (a, b).
A chunk of sources fills 128 bytes of shared memory for each antenna and matrix, eight units of 16 bytes: two
sources each in single precision, one in double precision. Units lie in an order that differs from antenna to
antenna, so that the threads which read together read from different banks.

In single precision the brightness of a chunk is scaled by a power of two, for half precision reaches from
6e-8 to 65504 only, and the sums of a chunk are added to those of the others outside the matrix units, which
round towards 0.
"""

from __future__ import annotations

import functools
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
        start = int32(number) * int32(chunk)
        return Points(int32(number), start, max(int32(0), min(int32(chunk), int32(n_point) - start)))

    return points_of


@functools.cache
def make_element(kernel: TileKernel) -> Compiled:
    """Function that says where source s of a chunk lies for a slot: a number of complex elements.

    `turn` is 1 where the second half of the eight units comes first.
    """
    per_unit = 2 if kernel.variant.single else 1

    @device.inline
    def element(slot: Scalar, s: Scalar, turn: Scalar) -> Scalar:
        unit = uint32(uint32(s) // uint32(per_unit)) ^ uint32(uint32(4) * uint32(turn))
        return uint32(uint32(per_unit) * uint32(uint32(8) * slot + unit) + uint32(s) % uint32(per_unit))

    return element


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
    """Function that puts the scaled brightness of a chunk, of all items of a block, into shared memory.

    0 for sources that are not there. All threads of a block call it.
    """
    sizes, n_stokes, single = sizes_of(kernel), kernel.variant.n_stokes, kernel.variant.single
    chunk, n_item, per_source = sizes.n_operand_source, kernel.shape.n_item, sizes.per_source
    real, swapped, scale = float32 if single else float64, exchange(), make_scale(single)
    read_stokes = baseline.make_read_stokes(single, n_stokes, int64)

    @device.part
    def stage_bright(points: Points, block: Block, sky: Sky, shared: Shared) -> None:
        thread = uint32(block.thread)
        j, s = uint32(thread // uint32(chunk)), uint32(thread % uint32(chunk))
        i, q, u, v = real(0), real(0), real(0), real(0)
        is_one = int32(j) < block.n_here
        if is_one and int32(s) < points.n_source:
            at = shared.bright_at[j] + int64(points.start + int32(s)) * int64(per_source)
            stokes = read_stokes(sky.bright, at)
            i, q, u, v = stokes.i, stokes.q, stokes.u, stokes.v
        by, inverse = real(1), real(1)
        if single:
            # Over the threads of an item: 16 neighbours.
            most = max(max(abs(i), abs(q)), max(abs(u), abs(v)))
            most = max(most, swapped(most, 1))
            most = max(most, swapped(most, 2))
            most = max(most, swapped(most, 4))
            most = max(most, swapped(most, 8))
            by, inverse = scale(most)
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
def make_write(single: bool) -> Compiled:
    """Function that writes an element of the operands."""
    if device.simulated():

        def write(at: Any, element: Any, re: Any, im: Any) -> None:
            at[element] = complex(re, im)

        return write
    store, n_byte = units.make_store(single), 8 if single else 16

    @device.inline
    def write_bytes(at: Scalar, element: Scalar, re: Scalar, im: Scalar) -> None:
        store(uint32(at + uint32(n_byte) * uint32(element)), re, im)

    return write_bytes


@functools.cache
def make_fill_operands(kernel: TileKernel) -> Compiled:
    """Function that makes the operands of a chunk of point sources, in one of the two buffers."""
    variant, sizes = kernel.variant, sizes_of(kernel)
    single, code, n_stokes, chunk = variant.single, variant.beam, variant.n_stokes, sizes.n_operand_source
    n_item, n_slot, n_thread = kernel.shape.n_item, kernel.shape.n_slot, kernel.shape.n_thread
    real, cos_sin, write = float32 if single else float64, scalars.make_cos_sin(single), make_write(single)
    element, n_matrix, n_step = make_element(kernel), chunk * n_slot, n_thread // chunk

    @device.part
    def fill_operands(points: Points, at: Operands, block: Block, slots: Slots, sky: Sky) -> None:
        s = uint32(uint32(block.thread) % uint32(chunk))
        there = int32(s) < points.n_source
        k = points.start + int32(s if there else uint32(0))
        l, m, n_minus_1 = (
            sky.direction[block.b, k, 0], sky.direction[block.b, k, 1], sky.direction[block.b, k, 2],
        )  # fmt: skip
        odd, scale = uint32(points.number & int32(1)), sky.beam_scale[block.b]
        buffer = uint32(odd * uint32(n_matrix * (1 + n_stokes)))
        first = uint32(uint32(odd * uint32(n_item)) * uint32(chunk))
        x = uint32(uint32(block.thread) // uint32(chunk))
        while x < block.n_x:
            cos, sin = cos_sin(_turns(slots.u[x], slots.v[x], slots.w[x], l, m, n_minus_1))
            if code != _NO_BEAM:
                e = real(_voltage(code, _argument(scale, slots.nu[x], l - slots.dl[x], m - slots.dm[x])))
                cos, sin = e * cos, e * sin
            if not there:
                cos, sin = real(0), real(0)
            slot, j = slots.place[x], slots.item[x]
            write(at.at, uint32(buffer + element(slot, s, (slot >> uint32(1)) & uint32(1))), cos, sin)
            of_source = uint32(uint32(n_stokes) * uint32(first + uint32(j * uint32(chunk)) + s))
            into = uint32(buffer + uint32(n_matrix) + element(slot, s, slot & uint32(1)))
            for parameter in range(n_stokes):
                bright = at.bright[of_source + uint32(parameter)]
                write(at.at, into, bright * cos, bright * sin)
                into = uint32(into + uint32(n_matrix))
            x = uint32(x + uint32(n_step))

    return fill_operands


@functools.cache
def make_clear_operands(kernel: TileKernel) -> Compiled:
    """Function that puts 0 where no antenna is, in both buffers: products of it would not be 0 times NaN."""
    sizes, n_stokes, single = sizes_of(kernel), kernel.variant.n_stokes, kernel.variant.single
    chunk, n_thread, real = sizes.n_operand_source, kernel.shape.n_thread, float32 if single else float64
    write, element, n_matrix = make_write(single), make_element(kernel), chunk * kernel.shape.n_slot
    n_all = 2 * (1 + n_stokes)

    @device.part
    def clear_operands(block: Block, n_slot: Scalar, at: Operands) -> None:
        n_gap = uint32(uint32(n_slot) - block.n_used)
        e = uint32(block.thread)
        while e < uint32(uint32(block.n_here) * n_gap) * uint32(chunk * n_all):
            s, rest = uint32(e % uint32(chunk)), uint32(e // uint32(chunk))
            matrix, gap = uint32(rest % uint32(n_all)), uint32(rest // uint32(n_all))
            j = uint32(gap // n_gap)
            slot = uint32(j * uint32(n_slot) + block.n_used + uint32(gap - j * n_gap))
            into = uint32(matrix * uint32(n_matrix) + element(slot, s, uint32(0)))
            write(at.at, into, real(0), real(0))
            e = uint32(e + uint32(n_thread))

    return clear_operands


@functools.cache
def make_add_operands(kernel: TileKernel) -> Compiled:
    """Function that adds the products of a chunk to the sums of a thread; a warp calls it together."""
    if device.simulated():
        return _simulated_products(kernel)
    sizes, n_stokes, single = sizes_of(kernel), kernel.variant.n_stokes, kernel.variant.single
    n_item, n_matrix = kernel.shape.n_item, 128 * kernel.shape.n_slot
    # A step of the instruction takes four units, 64 bytes.
    half = sizes.n_operand_source // 2
    one, both = (_make_steps(single, n_stokes, n_step, n_matrix) for n_step in (1, 2))

    @device.part
    def add_operands(
        points: Points, corner: Corner, local: Scalar, lane: Scalar, at: Operands, sums: Array
    ) -> None:
        odd, inverse = uint32(points.number & int32(1)), at.inverse[0]
        if single:
            turn = uint32(uint32(points.number & int32(3)) * uint32(n_item) + uint32(local))
            inverse = at.inverse[turn]
        first = uint32(
            at.at + odd * uint32(n_matrix * (1 + n_stokes)) + uint32(16) * uint32(lane & uint32(3))
        )
        p = uint32(first + uint32(128) * corner.p)
        q = uint32(first + uint32(n_matrix) + uint32(128) * corner.q)
        by_p = uint32(uint32(64) * uint32((corner.p >> uint32(1)) & uint32(1)))
        by_q = uint32(uint32(64) * uint32(corner.q & uint32(1)))
        if points.n_source > half:
            both(p, q, by_p, by_q, inverse, sums)
        else:
            one(p, q, by_p, by_q, inverse, sums)

    return add_operands


@functools.cache
def _make_steps(single: bool, n_stokes: int, n_step: int, n_matrix: int) -> Compiled:
    """Function that adds one or two steps; `p`, `q` are addresses, `by_p`, `by_q` those of the first half."""
    load, product, turn = units.make_load(single), units.make_product(single), units.make_turn(single)
    n_own = units.N_OWN

    @device.inline
    def small(a: Any, other: Any, b: Any, c: Any) -> Any:
        # What is left of one number times the other, rounded: small, so that it comes first.
        c = product(a[1], other[1], a[3], other[3], b[0], b[2], c[0], c[1], c[2], c[3])
        return product(a[0], other[0], a[2], other[2], b[1], b[3], c[0], c[1], c[2], c[3])

    @device.inline
    def large(a: Any, other: Any, b: Any, c: Any) -> Any:
        return product(a[0], other[0], a[2], other[2], b[0], b[2], c[0], c[1], c[2], c[3])

    @device.inline
    def turned(a: Any) -> Any:
        return turn(a[0]), turn(a[1]), turn(a[2]), turn(a[3])

    @device.inline
    def add(sums: Array, at: int, inverse: Scalar, c: Any) -> None:
        sums[at] += inverse * c[0]
        sums[at + 1] += inverse * c[1]
        sums[at + 2] += inverse * c[2]
        sums[at + 3] += inverse * c[3]

    @device.part
    def single_steps(p: Scalar, q: Scalar, by_p: Scalar, by_q: Scalar, inverse: Scalar, sums: Array) -> None:
        zero = float32(0), float32(0), float32(0), float32(0)
        a0, b0 = load(uint32(p + by_p)), load(uint32(p + by_p + uint32(128)))
        x0, y0 = turned(a0), turned(b0)
        a1, b1, x1, y1 = a0, b0, x0, y0
        if n_step == 2:
            a1, b1 = (
                load(uint32(p + (by_p ^ uint32(64)))),
                load(uint32(p + (by_p ^ uint32(64)) + uint32(128))),
            )
            x1, y1 = turned(a1), turned(b1)
        for parameter in range(n_stokes):
            at = uint32(q + uint32(parameter) * uint32(n_matrix))
            second0 = load(uint32(at + by_q))
            re, im = small(a0, b0, second0, zero), small(x0, y0, second0, zero)
            if n_step == 2:
                second1 = load(uint32(at + (by_q ^ uint32(64))))
                re, im = small(a1, b1, second1, re), small(x1, y1, second1, im)
                re, im = large(a1, b1, second1, re), large(x1, y1, second1, im)
            re, im = large(a0, b0, second0, re), large(x0, y0, second0, im)
            add(sums, n_own * parameter, inverse, re)
            add(sums, n_own * (n_stokes + parameter), inverse, im)

    @device.inline
    def own(sums: Array, at: int) -> Any:
        return sums[at], sums[at + 1], sums[at + 2], sums[at + 3]

    @device.inline
    def keep(sums: Array, at: int, c: Any) -> None:
        sums[at], sums[at + 1], sums[at + 2], sums[at + 3] = c[0], c[1], c[2], c[3]

    @device.part
    def double_steps(p: Scalar, q: Scalar, by_p: Scalar, by_q: Scalar, inverse: Scalar, sums: Array) -> None:
        for step in range(n_step):
            turn_p = by_p ^ uint32(64 * step)
            a, b = load(uint32(p + turn_p)), load(uint32(p + turn_p + uint32(128)))
            minus_a, minus_b = turn(a[0]), turn(b[0])
            for parameter in range(n_stokes):
                at = uint32(q + uint32(parameter) * uint32(n_matrix) + (by_q ^ uint32(64 * step)))
                second = load(at)
                c = own(sums, n_own * parameter)
                c = product(a[0], b[0], a[1], b[1], second[0], second[1], c[0], c[1], c[2], c[3])
                keep(sums, n_own * parameter, c)
                c = own(sums, n_own * (n_stokes + parameter))
                c = product(a[1], b[1], minus_a, minus_b, second[0], second[1], c[0], c[1], c[2], c[3])
                keep(sums, n_own * (n_stokes + parameter), c)

    return single_steps if single else double_steps


def _simulated_products(kernel: TileKernel) -> Compiled:
    """The same sums one by one, for the simulator: it has no matrix units."""
    sizes, n_stokes, side = sizes_of(kernel), kernel.variant.n_stokes, kernel.shape.side
    n_matrix, n_item = sizes.n_operand_source * kernel.shape.n_slot, kernel.shape.n_item
    element, single = make_element(kernel), kernel.variant.single

    def add_operands(points: Any, corner: Any, local: Any, lane: Any, at: Any, sums: Any) -> None:
        first = (points.number & 1) * n_matrix * (1 + n_stokes)
        inverse = at.inverse[(points.number & 3) * n_item + local] if single else 1.0
        # Column g of the second matrix is what a thread reads; its own sums are of columns 2 t, 2 t + 1.
        second = int(corner.q) - (int(lane) >> 2) + side * (int(lane) & 3)
        for s in range(int(points.n_source)):
            for n in range(side * side):
                p, q = int(corner.p) + n // side, second + n % side
                a = complex(at.at[first + element(np.uint32(p), s, p >> 1 & 1)])
                for k in range(n_stokes):
                    b = complex(at.at[first + (1 + k) * n_matrix + element(np.uint32(q), s, q & 1)])
                    product = inverse * a * b.conjugate()
                    sums[k * side * side + n] += product.real
                    sums[(n_stokes + k) * side * side + n] += product.imag

    return add_operands
