"""Shared by the kernels that work on an item as products of matrices, by matrix units in single precision.

All visibilities of an item have their kernels within a block of B x B cells. With the kernels C_k(x) in u and
C_k(y) in v of visibilities k, 0 outside the S cells of each, the block is a product of two matrices,

    G[y, x] = sum_k conj(C_k(y)) (V_k conj(C_k(x))),

and the inner sum of V_k = sum_x C_k(x) (sum_y C_k(y) G[y, x]) is another. Planes lie side by side along x.

A complex product is two real ones of pairs (x, y) and (a, b): with x = Im, y = Re of the first factor, and
a = Re, b = Im of the second, x a + y b is the imaginary part and y a - x b the real part. For that one the
pairs of one matrix are turned.

Each number goes in as two of half precision, as in `tiles.units`: rounded, and what is left, 22 bits in all.
Powers of two bring the largest numbers near the top of what half precision holds. Threads stage kernels in
shared memory, batch after batch, as those of the other form do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import int32, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.tiles import units
from rime_kernels.gridding.cuda.items import X, Y
from rime_kernels.wprojection.cuda.parts import (
    START_X,
    START_Y,
    TOGETHER,
    Task,
    make_of_cell,
)

# Threads of a warp, visibilities of a batch, and words of what a thread of each of a warp reads at once.
WARP, N_STAGE, UNIT = 32, units.N_ROW, 128
# Registers of a multiprocessor.
_REGISTERS = 65536


@dataclass(frozen=True)
class BlockKernel(Task):
    """All that a kernel for blocks is compiled for.

    Attributes
    ----------
    reach : int
        Cells from the middle of an item's block to its farthest visibilities.
    block : int
        B, a multiple of 16, at least S + 2 reach.
    """

    reach: int
    block: int


def registers(n_thread: int, wanted: int) -> int:
    """Registers that a thread may have: as many as let no fewer blocks of threads share a multiprocessor."""
    n_block = max(1, _REGISTERS // (wanted * n_thread))
    return min(255, _REGISTERS // (n_block * n_thread)) // 8 * 8


@functools.cache
def make_put_block(kernel: BlockKernel) -> Compiled:
    """Function for `parts.make_locate`: where a kernel begins within its item's block."""
    before = kernel.support // 2 + kernel.reach

    @device.inline
    def put_block(i: Scalar, x: Scalar, y: Scalar, item: Scalar, items: Array, place: Array) -> None:
        place[i, START_X] = x - items[item, X] + int32(before)
        place[i, START_Y] = y - items[item, Y] + int32(before)

    return put_block


@functools.cache
def make_evaluate_block(
    kernel: BlockKernel, n_thread: int, conjugates: bool, put_y: Compiled, put_x: Compiled
) -> Compiled:
    """Function with which all threads stage the kernels of a batch, of which `n` visibilities are there.

    `put_y(row, cell, is_in, x, y, to)` stages the imaginary part, negative if asked for, and the real part of
    a kernel in v at a cell of the block; `put_x` the real and the imaginary part of one in u. Both stage 0
    unless the cell `is_in` the kernel of a visibility that is there. Threads of a warp have eight cells and
    all rows, four each.
    """
    real, support, block, n_group = kernel.real, kernel.support, kernel.block, N_STAGE // TOGETHER

    @device.inline
    def put_at(
        row: Scalar, at: Scalar, is_v: Scalar, is_in: Scalar, re: Scalar, im: Scalar, to: Any
    ) -> None:  # fmt: skip
        if is_v:
            put_y(row, at, is_in, -im if conjugates else im, re, to)
        else:
            put_x(row, at, is_in, re, im, to)

    @device.inline
    def write(vis: Scalar, v: int, j: Scalar, is_v: Scalar, re: Scalar, im: Scalar, given: Any) -> None:
        first_row, place, to = given
        at = uint32(uint32(place[vis, uint32(START_Y) if is_v else uint32(START_X)]) + j)
        at = uint32(at - uint32(block)) if at >= uint32(block) else at
        put_at(uint32(first_row + uint32(v)), at, is_v, j < uint32(support), re, im, to)

    of_cell = make_of_cell(kernel, write)

    @device.part
    def evaluate(
        thread: Scalar, first: Scalar, n: Scalar, terms: Array, place: Array, plane: Array, number: Array,
        own: Array, to: Any,
    ) -> None:  # fmt: skip
        k = uint32(thread)
        while k < uint32(n_group * 2 * block):
            off, cell = uint32(k % uint32(n_group) * uint32(TOGETHER)), uint32(k // uint32(n_group))
            is_v = cell >= uint32(block)
            j = uint32(cell - uint32(block)) if is_v else cell
            of_cell(
                uint32(uint32(first) + off), uint32(uint32(first) + uint32(n)), j, is_v, terms, plane, number,
                own, (off, place, to),
            )  # fmt: skip
            for v in range(TOGETHER):
                if off + uint32(v) >= uint32(n):
                    put_at(uint32(off + uint32(v)), j, is_v, False, real(0), real(0), to)
            k = uint32(k + uint32(n_thread))

    return evaluate


@functools.cache
def make_product() -> Compiled:
    """Function that adds a product, 16 rows by 8 columns, to the four numbers `c`.

    Of four packed pairs of the rows, rounded and what is left of them, and two of the columns.
    """
    product = units.make_product(True, False)

    @device.inline
    def add_product(high: Any, low: Any, b_high: Any, b_low: Any, c: Any) -> Any:
        # Small ones first: an addition rounds by the size of the sum.
        c = product(low[0], low[1], low[2], low[3], b_high[0], b_high[1], c[0], c[1], c[2], c[3])
        c = product(high[0], high[1], high[2], high[3], b_low[0], b_low[1], c[0], c[1], c[2], c[3])
        return product(high[0], high[1], high[2], high[3], b_high[0], b_high[1], c[0], c[1], c[2], c[3])

    return add_product
