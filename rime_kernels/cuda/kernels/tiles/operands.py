"""Point sources summed by tensor cores: what a block puts into shared memory for them.

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
6e-8 to 65504 only. Brightness is split as terms are, and the products of both are split sums of products in
half precision, with the rounding of the largest one added (a fused multiply-add gives it exactly).
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
from numba import float32, float64, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import baseline, scalars
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.reductions import make_shuffle_xor
from rime_kernels.cuda.kernels.tiles import tensor_cores
from rime_kernels.cuda.kernels.tiles.parts import (
    Operands,
    Slots,
    TileBlock,
    TileKernel,
    TileSharedMemory,
    sizes_of,
)
from rime_kernels.physics import beam, phase

_turns = phase.turns
_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM


class Points(NamedTuple):
    """A chunk of point sources."""

    number: Scalar  # of the chunk
    start: int  # its first source
    n_source: int


@functools.cache
def make_points(chunk: int) -> Compiled:
    """Function that says which sources a chunk has."""

    @device.inline
    def points_of(number: Scalar, n_point: Scalar) -> Points:
        start = int32(int32(number) * int32(chunk))
        return Points(int32(number), start, min(int32(chunk), int32(int32(n_point) - start)))

    return points_of


@functools.cache
def make_put(kernel: TileKernel) -> Compiled:
    """Function that writes what the sources of a unit are to two antennas, into all matrices of a buffer.

    `terms` has the real and imaginary parts of both antennas for the first source, then, in single precision,
    for the second; `bright` is the brightness of each as `stage_bright` leaves it. `offset` is where the
    buffer begins, `slot` that of the first antenna, an even number.
    """
    single, n_stokes, n_slot = kernel.variant.single, kernel.variant.n_stokes, kernel.shape.n_slot
    if device.simulated():
        return _simulated_put(single, n_stokes, n_slot, sizes_of(kernel).n_operand_source)
    n_row = 16 * kernel.shape.operand_units
    return (_single_put if single else _double_put)(n_stokes, n_row, n_row * n_slot)


def _simulated_put(single: bool, n_stokes: int, n_slot: int, chunk: int) -> Compiled:
    """Function that puts operands of a source for the simulator, where matrices lie number by number."""
    per_unit = 2 if single else 1

    def put(array: Any, offset: Any, slot: Any, unit: Any, terms: Any, bright: Any) -> None:
        for s, antenna in itertools.product(range(per_unit), range(2)):
            k = 4 * s + 2 * antenna
            term = complex(terms[k], terms[k + 1])
            into = int(offset) + (int(slot) + antenna) * chunk + per_unit * int(unit) + s
            array[into] = term
            for j in range(n_stokes):
                # Matrix 0 is of first antennas, 1 + j of second antennas times Stokes parameter j.
                array[into + (1 + j) * n_slot * chunk] = bright[s][j] * term

    return put


def _single_put(n_stokes: int, n_row: int, n_matrix: int) -> Compiled:
    """Function that puts operands in single precision: the products of terms and brightness are those of
    their halves.
    """
    split, store, weigh = (
        tensor_cores.make_split(),
        tensor_cores.make_store(True),
        (tensor_cores.make_weigh(0), tensor_cores.make_weigh(1)),
    )
    weigh_even, weigh_odd = weigh

    @device.inline
    def put_second(offset: int, x: Any, y: Any, bright: Any) -> None:
        a, b = weigh_even(x[0], x[1], bright[0][0]), weigh_even(y[0], y[1], bright[1][0])
        store(offset, a[0], b[0], a[1], b[1])
        if n_stokes > 1:
            a, b = weigh_odd(x[0], x[1], bright[0][0]), weigh_odd(y[0], y[1], bright[1][0])
            store(uint32(offset + uint32(n_matrix)), a[0], b[0], a[1], b[1])
        if n_stokes == 4:
            a, b = weigh_even(x[0], x[1], bright[0][1]), weigh_even(y[0], y[1], bright[1][1])
            store(uint32(offset + uint32(2 * n_matrix)), a[0], b[0], a[1], b[1])
            a, b = weigh_odd(x[0], x[1], bright[0][1]), weigh_odd(y[0], y[1], bright[1][1])
            store(uint32(offset + uint32(3 * n_matrix)), a[0], b[0], a[1], b[1])

    @device.inline
    def put(start: int, offset: int, slot: int, unit: int, terms: Any, bright: Any) -> None:
        a, b = split(terms[0], terms[1]), split(terms[2], terms[3])
        c, d = split(terms[4], terms[5]), split(terms[6], terms[7])
        # Two first antennas share a unit; odd pairs have their units in another order (exclusive or with 4),
        # which puts threads that read together into different banks.
        pair, start = uint32(slot >> uint32(1)), uint32(start + offset)
        of_pair = uint32(uint32(4) * uint32(pair & uint32(1)))
        first = uint32(start + uint32(n_row) * pair + uint32(16) * uint32(unit ^ of_pair))
        store(first, a[0], b[0], c[0], d[0])
        store(uint32(first + uint32(n_matrix // 2)), a[1], b[1], c[1], d[1])
        second = uint32(start + uint32(n_matrix) + uint32(n_row) * slot)
        put_second(uint32(second + uint32(16) * unit), a, c, bright)
        # The odd antenna of the pair: again in the order with bit 2 turned, for the banks.
        second = uint32(second + uint32(n_row))
        put_second(uint32(second + uint32(16) * uint32(unit ^ uint32(4))), b, d, bright)

    return put


def _double_put(n_stokes: int, n_row: int, n_matrix: int) -> Compiled:
    """Function that puts operands in double precision."""
    store = tensor_cores.make_store(False)

    @device.inline
    def put_second(offset: int, re: Scalar, im: Scalar, bright: Any) -> None:
        store(offset, bright[0] * re, bright[0] * im)
        if n_stokes > 1:
            store(uint32(offset + uint32(n_matrix)), bright[1] * re, bright[1] * im)
        if n_stokes == 4:
            store(uint32(offset + uint32(2 * n_matrix)), bright[2] * re, bright[2] * im)
            store(uint32(offset + uint32(3 * n_matrix)), bright[3] * re, bright[3] * im)

    @device.inline
    def put(start: int, offset: int, slot: int, unit: int, terms: Any, bright: Any) -> None:
        pair, start = uint32(slot >> uint32(1)), uint32(start + offset)
        of_pair = uint32(uint32(4) * uint32(pair & uint32(1)))
        first = uint32(start + uint32(n_row) * pair + uint32(16) * uint32(unit ^ of_pair))
        store(first, terms[0], terms[2])
        store(uint32(first + uint32(n_matrix // 2)), terms[1], terms[3])
        second = uint32(start + uint32(n_matrix) + uint32(n_row) * slot)
        put_second(uint32(second + uint32(16) * unit), terms[0], terms[1], bright[0])
        second = uint32(second + uint32(n_row))
        put_second(uint32(second + uint32(16) * uint32(unit ^ uint32(4))), terms[2], terms[3], bright[0])

    return put


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
        # The exponent straight from the bits: a power of two scales without rounding.
        exponent = min(max(bits_of(most) >> int32(23), int32(20)), int32(250))
        return (
            number_of(int32((int32(264) - exponent) << int32(23))),
            number_of(int32((exponent - int32(10)) << int32(23))),
        )

    return scale


@functools.cache
def make_stage_bright(kernel: TileKernel) -> Compiled:
    """Function that puts brightness, scaled, and directions of a chunk into shared memory.

    0 for sources that are not there. All threads of a block call it, and those of a warp together. In single
    precision the brightness is split into halves: I and Q rounded and what is left of both, then U and V.
    One warp has work, the first of the last four: where there are 64 antennas those make fewest operands.
    """
    sizes, n_stokes, single = sizes_of(kernel), kernel.variant.n_stokes, kernel.variant.single
    in_halves, n_word, split = (
        single and not device.simulated(),
        sizes.n_bright_word,
        tensor_cores.make_split(),
    )
    chunk, per_source = sizes.n_operand_source, sizes.per_source
    real, swapped, scale = float32 if single else float64, make_shuffle_xor(), make_scale(single)
    n_read, meets = 4 if kernel.variant.polarised else 1, device.simulated()
    read_stokes = baseline.make_read_stokes(single, n_read, int64, kernel.variant.stokes)
    # In the simulator a shuffle is a barrier of the whole block.
    first_thread = 0 if meets else 32 * max(0, kernel.shape.n_thread // 32 - 4)

    @device.part
    def stage_bright(points: Points, block: TileBlock, sky: DeviceSky, shared: TileSharedMemory) -> None:
        # Threads before those wrap around to large numbers.
        s = uint32(uint32(block.thread) - uint32(first_thread))
        if not meets and s >= 32:
            return
        i, q, u, v = real(0), real(0), real(0), real(0)
        l, m, n_minus_1 = 0.0, 0.0, 0.0
        if s < uint32(points.n_source):
            # All loads stand together, so that their waits overlap.
            k, direction = points.start + int32(s), sky.direction
            l, m, n_minus_1 = direction[block.b, k, 0], direction[block.b, k, 1], direction[block.b, k, 2]
            offset = shared.bright_at[0] + int64(k) * int64(per_source)
            stokes = read_stokes(sky.bright, offset)
            i, q, u, v = stokes.i, stokes.q, stokes.u, stokes.v
        by, inverse = real(1), real(1)
        if single:
            most = max(max(abs(i), abs(q)), max(abs(u), abs(v)))
            # A maximum over the lanes of a warp, by a butterfly: 4 or 5 shuffles for 16 or 32 sources.
            most = max(most, swapped(most, 1))
            most = max(most, swapped(most, 2))
            most = max(most, swapped(most, 4))
            most = max(most, swapped(most, 8))
            if chunk == 32:
                most = max(most, swapped(most, 16))
            by, inverse = scale(most)
        if s < chunk:
            into = uint32(uint32(points.number & int32(1)) * uint32(chunk) + s)
            shared.operands.direction[uint32(3) * into] = l
            shared.operands.direction[uint32(3) * into + uint32(1)] = m
            shared.operands.direction[uint32(3) * into + uint32(2)] = n_minus_1
            into = uint32(uint32(n_word) * into)
            if in_halves:
                # Two words of packed halves, rounded and left over, in one store of 8 bytes.
                high, low = split(by * i, by * q)
                shared.operands.bright[into] = uint64(high) | uint64(uint64(low) << uint64(32))
                if n_stokes == 4:
                    high, low = split(by * u, by * v)
                    shared.operands.bright[into + uint32(1)] = uint64(high) | uint64(
                        uint64(low) << uint64(32)
                    )
            else:
                shared.operands.bright[into] = by * i
                if n_stokes > 1:
                    shared.operands.bright[into + uint32(1)] = by * q
                if n_stokes == 4:
                    shared.operands.bright[into + uint32(2)] = by * u
                    shared.operands.bright[into + uint32(3)] = by * v
            if s == 0:
                # The terms of a chunk are made after its brightness and before its sum: four in turn.
                shared.operands.inverse[uint32(points.number & int32(3))] = inverse

    return stage_bright


@functools.cache
def _make_read_bright(n_word: int) -> Compiled:
    """Function that reads what `stage_bright` has left of a source, from `offset` on."""

    @device.inline
    def read_one(bright: Array, offset: int) -> Any:
        return (bright[offset],)

    @device.inline
    def read_two(bright: Array, offset: int) -> Any:
        return bright[offset], bright[offset + uint32(1)]

    @device.inline
    def read_four(bright: Array, offset: int) -> Any:
        return (
            bright[offset],
            bright[offset + uint32(1)],
            bright[offset + uint32(2)],
            bright[offset + uint32(3)],
        )

    return {1: read_one, 2: read_two, 4: read_four}[n_word]


@functools.cache
def _make_term(kernel: TileKernel) -> Compiled:
    """Function that gives the term of the antenna of slot x for one source, real and imaginary part."""
    single, code = kernel.variant.single, kernel.variant.beam
    real, cos_sin = float32 if single else float64, scalars.make_cos_sin(single)

    @device.inline
    def term(
        slots: Slots, x: Scalar, scale: Scalar, l: Scalar, m: Scalar, n_minus_1: Scalar
    ) -> tuple[Scalar, Scalar]:
        cos, sin = cos_sin(_turns(slots.u[x], slots.v[x], slots.w[x], l, m, n_minus_1))
        if code != _NO_BEAM:
            e = real(_voltage(code, _argument(scale, slots.nu[x], l - slots.dl[x], m - slots.dm[x])))
            cos, sin = e * cos, e * sin
        return cos, sin

    return term


@functools.cache
def make_fill_operands(kernel: TileKernel) -> Compiled:
    """Function that makes the operands of a chunk of point sources, in one of the two buffers.

    A thread makes those of two antennas and the sources of a unit at a time, which are a write for each
    matrix. Where an item has an odd number of antennas, the last one takes the place of its neighbour:
    data there have no weight.
    """
    single, sizes, chunk = kernel.variant.single, sizes_of(kernel), sizes_of(kernel).n_operand_source
    n_thread, n_buffer = kernel.shape.n_thread, sizes.n_buffer
    per_unit, n_word, most = (
        2 if single else 1,
        sizes.n_bright_word,
        kernel.shape.operand_units.bit_length() - 1,
    )
    put, term, read_bright = make_put(kernel), _make_term(kernel), _make_read_bright(n_word)

    @device.part
    def fill_operands(
        points: Points, offset: Operands, block: TileBlock, slots: Slots, sky: DeviceSky
    ) -> None:
        # As few threads for a pair as a multiple of a step has units: a power of two.
        shift = uint32(most)
        while shift > 2 and int32(int32(per_unit) << int32(shift - uint32(1))) >= points.n_source:
            shift = uint32(shift - uint32(1))
        thread, n_step = uint32(block.thread), uint32(uint32(n_thread) >> shift)
        y = uint32(thread >> shift)
        unit = uint32(thread - uint32(y << shift))
        odd, scale = uint32(points.number & int32(1)), sky.beam_scale[block.b]
        s = uint32(odd * uint32(chunk) + uint32(per_unit) * unit)
        k, bright = uint32(uint32(3) * s), uint32(uint32(n_word) * s)
        l, m, n_minus_1 = (
            offset.direction[k],
            offset.direction[k + uint32(1)],
            offset.direction[k + uint32(2)],
        )
        if single:
            l_1, m_1 = offset.direction[k + uint32(3)], offset.direction[k + uint32(4)]
            n_minus_1_1 = offset.direction[k + uint32(5)]
        into, n_used = uint32(odd * uint32(n_buffer)), block.n_used
        n_pair = uint32(uint32(n_used + uint32(1)) >> uint32(1))
        while y < n_pair:
            x = uint32(uint32(2) * y)
            z = x if uint32(x + uint32(1)) == n_used else uint32(x + uint32(1))
            a, b = term(slots, x, scale, l, m, n_minus_1), term(slots, z, scale, l, m, n_minus_1)
            if single:
                c, d = (
                    term(slots, x, scale, l_1, m_1, n_minus_1_1),
                    term(slots, z, scale, l_1, m_1, n_minus_1_1),
                )
                put(
                    offset.address, into, x, unit, (a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]),
                    (read_bright(offset.bright, bright), read_bright(offset.bright,
                    uint32(bright + uint32(n_word)))),
                )  # fmt: skip
            else:
                put(
                    offset.address, into, x, unit, (a[0], a[1], b[0], b[1]),
                    (read_bright(offset.bright, bright),),
                )  # fmt: skip
            y = uint32(y + n_step)

    return fill_operands


@functools.cache
def make_clear_operands(kernel: TileKernel) -> Compiled:
    """Function that puts 0 where no antenna is, in both buffers: products of it would not be 0 times NaN."""
    sizes, single, n_unit = sizes_of(kernel), kernel.variant.single, kernel.shape.operand_units
    n_thread, n_buffer, put = kernel.shape.n_thread, sizes.n_buffer, make_put(kernel)
    number = (uint64 if single and not device.simulated() else float32 if single else float64)(0)
    zero, no_bright = (float32 if single else float64)(0), (number,) * sizes.n_bright_word
    terms, brights = (zero,) * (8 if single else 4), (no_bright,) * (2 if single else 1)

    @device.part
    def clear_operands(block: TileBlock, n_slot: Scalar, offset: Operands) -> None:
        n_pair = uint32(uint32(block.n_used + uint32(1)) >> uint32(1))
        n_gap = uint32(uint32(uint32(n_slot) >> uint32(1)) - n_pair)
        e = uint32(block.thread)
        while e < uint32(n_gap * uint32(2 * n_unit)):
            unit, rest = uint32(e % uint32(n_unit)), uint32(e // uint32(n_unit))
            into, gap = uint32(uint32(rest & uint32(1)) * uint32(n_buffer)), uint32(rest // uint32(2))
            put(offset.address, into, uint32(uint32(2) * uint32(n_pair + gap)), unit, terms, brights)
            e = uint32(e + uint32(n_thread))

    return clear_operands
