"""The products of what a chunk of point sources is to antennas (`operands`), by tensor cores, and their sums.

In single precision the sums of eight sources, or of sixteen, are added to those of the others outside the
tensor cores, which round towards 0.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

from numba import float32, int32, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.baseline import Corner
from rime_kernels.cuda.kernels.tiles import tensor_cores
from rime_kernels.cuda.kernels.tiles.operands import Points
from rime_kernels.cuda.kernels.tiles.parts import Operands, TileKernel, sizes_of


@functools.cache
def make_add_operands(kernel: TileKernel) -> Compiled:
    """Function that adds the products of a chunk to the sums of a thread; a warp calls it together."""
    if device.simulated():
        return _simulated_products(kernel)
    single, n_row = kernel.variant.single, 16 * kernel.shape.operand_units
    n_buffer, n_matrix = sizes_of(kernel).n_buffer, n_row * kernel.shape.n_slot
    # A step takes four units, 64 bytes: of so many sources.
    per_step, add_step = 8 if single else 4, (_make_single_step if single else _make_double_step)(kernel)
    # With more Stokes parameters there are no registers for the operands of two steps.
    by_two = single and kernel.variant.n_stokes == 1
    add_two = _make_two_steps(kernel) if by_two else add_step

    @device.part
    def add_operands(points: Points, corner: Corner, lane: int, operands: Operands, sums: Array) -> None:
        odd, inverse = uint32(points.number & int32(1)), operands.inverse[uint32(points.number & int32(3))]
        first = uint32(operands.address + odd * uint32(n_buffer) + uint32(16) * uint32(lane & uint32(3)))
        pair = uint32(corner.p >> uint32(1))
        p = uint32(first + uint32(n_row) * pair)
        q = uint32(first + uint32(n_matrix) + uint32(n_row) * corner.q)
        by_p = uint32(uint32(64) * uint32(pair & uint32(1)))
        by_q = uint32(uint32(64) * uint32(corner.q & uint32(1)))
        p, q, left = uint32(p + by_p), uint32(q + by_q), int32(points.n_source)
        # Every other step is 64 bytes before or behind.
        p_next, q_next = uint32(p + uint32(64) - by_p - by_p), uint32(q + uint32(64) - by_q - by_q)
        while by_two and left > per_step:
            add_two(p, q, p_next, q_next, inverse, sums)
            p, q, left = uint32(p + uint32(128)), uint32(q + uint32(128)), int32(left - int32(2 * per_step))
            p_next, q_next = uint32(p_next + uint32(128)), uint32(q_next + uint32(128))
        while left > 0:
            add_step(p, q, inverse, sums)
            p, p_next, left = p_next, uint32(p + uint32(128)), int32(left - int32(per_step))
            q, q_next = q_next, uint32(q + uint32(128))

    return add_operands


class _Products(NamedTuple):
    """Parts of a step in single precision; a and b are operands as `tensor_cores.make_load` gives them."""

    turned: Compiled  # the pairs (b, -a) of pairs (a, b)
    small: Compiled  # adds the products of one rounded and one rest to c
    large: Compiled  # adds the product of both rounded
    add: Compiled  # adds c, times what the scale was divided by, to the sums


def _make_products() -> _Products:
    product, turn = tensor_cores.make_product(True, False), tensor_cores.make_turn(True)

    @device.inline
    def turned(a: Any) -> Any:
        return turn(a[0]), turn(a[1]), turn(a[2]), turn(a[3])

    @device.inline
    def small(high: Any, low: Any, b: Any, c: Any) -> Any:
        c = product(low[0], low[1], low[2], low[3], b[0], b[1], c[0], c[1], c[2], c[3])
        return product(high[0], high[1], high[2], high[3], b[2], b[3], c[0], c[1], c[2], c[3])

    @device.inline
    def large(high: Any, b: Any, c: Any) -> Any:
        return product(high[0], high[1], high[2], high[3], b[0], b[1], c[0], c[1], c[2], c[3])

    @device.inline
    def add(sums: Array, offset: int, inverse: Scalar, c: Any) -> None:
        sums[offset] += inverse * c[0]
        sums[offset + 1] += inverse * c[1]
        sums[offset + 2] += inverse * c[2]
        sums[offset + 3] += inverse * c[3]

    return _Products(turned, small, large, add)


@functools.cache
def _make_single_step(kernel: TileKernel) -> Compiled:
    """Function that adds the products of eight sources; `p`, `q` are the addresses of their units."""
    n_stokes, n_own, n_tile = kernel.variant.n_stokes, tensor_cores.N_OWN, kernel.shape.n_own
    load, (turned, small, large, add) = tensor_cores.make_load(True), _make_products()
    n_row = 16 * kernel.shape.operand_units
    n_matrix, n_block = n_row * kernel.shape.n_slot, n_row * tensor_cores.N_COLUMN
    second_half = n_matrix // 2

    @device.part
    def add_step(p: Scalar, q: Scalar, inverse: Scalar, sums: Array) -> None:
        zero = float32(0), float32(0), float32(0), float32(0)
        high, low = load(p), load(uint32(p + uint32(second_half)))
        high_im, low_im = turned(high), turned(low)
        for k in range(n_tile * n_stokes):
            tile, parameter = k // n_stokes, k % n_stokes
            b = load(uint32(q + uint32(parameter) * uint32(n_matrix) + uint32(tile) * uint32(n_block)))
            first = 2 * n_own * n_stokes * tile + n_own * parameter
            # Small ones first: an addition rounds by the size of the sum.
            add(sums, first, inverse, large(high, b, small(high, low, b, zero)))
            add(sums, first + n_own * n_stokes, inverse, large(high_im, b, small(high_im, low_im, b, zero)))

    return add_step


@functools.cache
def _make_two_steps(kernel: TileKernel) -> Compiled:
    """Function that adds up the products of two steps of one Stokes parameter, then adds them to the sums."""
    n_own, n_tile = tensor_cores.N_OWN, kernel.shape.n_own
    load, (turned, small, large, add) = tensor_cores.make_load(True), _make_products()
    n_row = 16 * kernel.shape.operand_units
    n_block, second_half = n_row * tensor_cores.N_COLUMN, n_row * kernel.shape.n_slot // 2

    @device.inline
    def both(high: Any, low: Any, b: Any, high_1: Any, low_1: Any, b_1: Any) -> Any:
        zero = float32(0), float32(0), float32(0), float32(0)
        c = small(high_1, low_1, b_1, small(high, low, b, zero))
        return large(high_1, b_1, large(high, b, c))

    @device.part
    def add_two(p: Scalar, q: Scalar, p_1: Scalar, q_1: Scalar, inverse: Scalar, sums: Array) -> None:
        high, low = load(p), load(uint32(p + uint32(second_half)))
        high_1, low_1 = load(p_1), load(uint32(p_1 + uint32(second_half)))
        high_im, low_im, high_im_1, low_im_1 = turned(high), turned(low), turned(high_1), turned(low_1)
        for tile in range(n_tile):
            of_tile, first = uint32(uint32(tile) * uint32(n_block)), 2 * n_own * tile
            b, b_1 = load(uint32(q + of_tile)), load(uint32(q_1 + of_tile))
            add(sums, first, inverse, both(high, low, b, high_1, low_1, b_1))
            add(sums, first + n_own, inverse, both(high_im, low_im, b, high_im_1, low_im_1, b_1))

    return add_two


@functools.cache
def _make_double_step(kernel: TileKernel) -> Compiled:
    """Function that adds the products of four sources in double precision; `inverse` is 1."""
    n_stokes, n_own, n_tile = kernel.variant.n_stokes, tensor_cores.N_OWN, kernel.shape.n_own
    load, turn = tensor_cores.make_load(False), tensor_cores.make_turn(False)
    product = tensor_cores.make_product(False, kernel.all_rows)
    n_row = 16 * kernel.shape.operand_units
    n_matrix, n_block = n_row * kernel.shape.n_slot, n_row * tensor_cores.N_COLUMN
    second_half = n_matrix // 2

    @device.inline
    def add(sums: Array, offset: int, a: Any, b: Any) -> None:
        c = product(
            a[0],
            a[1],
            a[2],
            a[3],
            b[0],
            b[1],
            sums[offset],
            sums[offset + 1],
            sums[offset + 2],
            sums[offset + 3],
        )
        sums[offset], sums[offset + 1], sums[offset + 2], sums[offset + 3] = c[0], c[1], c[2], c[3]

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
    """Function that adds the products one by one, for the simulator: it has no tensor cores."""
    sizes, n_stokes, side = sizes_of(kernel), kernel.variant.n_stokes, kernel.shape.side
    chunk, n_slot, n_buffer = sizes.n_operand_source, kernel.shape.n_slot, sizes.n_buffer

    def add_operands(points: Any, corner: Any, lane: Any, operands: Any, sums: Any) -> None:
        first = int(points.number & 1) * n_buffer
        inverse = operands.inverse[points.number & 3]
        # Column g of the second matrix is what a thread reads; its own sums are of columns 2 t, 2 t + 1.
        second = int(corner.q) - (int(lane) >> 2) + side * (int(lane) & 3)
        for s, tile, n, k in itertools.product(
            range(int(points.n_source)), range(kernel.shape.n_own), range(side * side), range(n_stokes)
        ):
            p, q = int(corner.p) + n // side, second + tensor_cores.N_COLUMN * tile + n % side
            a = complex(operands.address[first + p * chunk + s])
            b = complex(operands.address[first + ((1 + k) * n_slot + q) * chunk + s])
            product, into = inverse * a * b.conjugate(), 2 * n_stokes * side * side * tile
            sums[into + k * side * side + n] += product.real
            sums[into + (n_stokes + k) * side * side + n] += product.imag

    return add_operands
