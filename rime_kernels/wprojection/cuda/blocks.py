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
from typing import Any, NamedTuple

from numba import int32, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.tiles import units
from rime_kernels.gridding.cuda.items import X, Y
from rime_kernels.wprojection.cuda.parts import (
    N_OWN,
    OF_IM,
    OF_T,
    OF_Z,
    START_X,
    START_Y,
    TOGETHER,
    Z_U,
    Z_V,
    T,
    Task,
    make_polynomials,
)

# Threads of a warp, visibilities of a batch, and words of what a thread of each of a warp reads at once.
WARP, N_STAGE, UNIT = 32, units.N_ROW, 128
# Numbers of its own that a thread needs for kernels: those of four visibilities at once, and of all of them.
N_BLOCK_OWN = N_OWN + 2 * TOGETHER
# Above the number of any plane of w.
_NO_PLANE = 1 << 30
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


class Staging(NamedTuple):
    """Functions that stage kernels along one axis.

    `begin(off, to)` says where the rows from `off` on, a multiple of four, are to lie;
    `put(v, at, re, im, where, off, to)` stages one of them, row off + v, at cell `at` of the block, and
    `put_zero(v, at, where)` stages 0 there.
    """

    begin: Compiled
    put: Compiled
    put_zero: Compiled


@functools.cache
def make_evaluate_block(kernel: BlockKernel, n_thread: int, of_x: Staging, of_y: Staging) -> Compiled:
    """Function with which all threads stage the kernels of a batch, of which `n` visibilities are there.

    Cells that a kernel does not reach get 0, and so do all cells of visibilities that are not there. Threads
    of a warp have eight cells and all rows, four each.
    """
    along_x = _make_evaluate_axis(kernel, n_thread, False, of_x)
    along_y = _make_evaluate_axis(kernel, n_thread, True, of_y)
    n_piece = N_STAGE // TOGETHER * kernel.block

    @device.part
    def evaluate(
        thread: Scalar, first: Scalar, n: Scalar, terms: Array, place: Array, plane: Array, number: Array,
        own: Array, planes: Array, to: Any,
    ) -> None:  # fmt: skip
        k = along_x(uint32(thread), first, n, terms, place, plane, number, own, planes, to)
        along_y(uint32(k - uint32(n_piece)), first, n, terms, place, plane, number, own, planes, to)

    return evaluate


def _make_evaluate_axis(kernel: BlockKernel, n_thread: int, is_v: bool, staging: Staging) -> Compiled:
    """Function that does so along one axis, for every n_thread-th cell from k on; gives the next k."""
    real, support, block, n_group = kernel.real, kernel.support, kernel.block, N_STAGE // TOGETHER
    polynomials, (begin, put, put_zero) = make_polynomials(kernel), staging
    of_z, of_start = (Z_V, START_Y) if is_v else (Z_U, START_X)

    @device.inline
    def evaluate_own(
        j: Scalar, first: Scalar, last: Scalar, terms: Array, plane: Array, number: Array, own: Array,
        planes: Array,
    ) -> None:  # fmt: skip
        of_plane = int32(_NO_PLANE)
        for v in range(TOGETHER):
            vis = min(uint32(first + uint32(v)), last)  # of what is not there nothing is staged
            own[OF_Z + v], own[OF_T + v] = number[vis, of_z], number[vis, T]
            planes[v] = plane[vis]
            of_plane = min(of_plane, planes[v])
        # Nearly always all visibilities are of one plane of w.
        while of_plane < int32(_NO_PLANE):
            polynomials(j, is_v, of_plane, terms, own)
            next_plane = int32(_NO_PLANE)
            for v in range(TOGETHER):
                is_own, is_behind = planes[v] == of_plane, planes[v] > of_plane
                own[N_OWN + v] = own[v] if is_own else own[N_OWN + v]
                own[N_OWN + OF_IM + v] = own[OF_IM + v] if is_own else own[N_OWN + OF_IM + v]
                next_plane = min(next_plane, planes[v]) if is_behind else next_plane
            of_plane = next_plane

    @device.inline
    def cell_of(j: Scalar, vis: Scalar, is_there: Scalar, place: Array) -> Scalar:
        """Where in the block cell j of a kernel lies; those behind its S cells follow round the edge."""
        start = place[vis, of_start] if is_there else int32(0)
        at = uint32(uint32(start) + j)
        return uint32(at - uint32(block)) if at >= uint32(block) else at

    @device.inline
    def evaluate_axis(
        k: Scalar, first: Scalar, n: Scalar, terms: Array, place: Array, plane: Array, number: Array,
        own: Array, planes: Array, to: Any,
    ) -> Scalar:  # fmt: skip
        while k < uint32(n_group * block):
            off, j = uint32(k % uint32(n_group) * uint32(TOGETHER)), uint32(k // uint32(n_group))
            first_vis, where = uint32(uint32(first) + off), begin(off, to)
            is_in = j < uint32(support)
            if is_in:
                last = uint32(uint32(first) + uint32(n) - uint32(1))
                evaluate_own(j, first_vis, last, terms, plane, number, own, planes)
                for v in range(TOGETHER):
                    is_there = off + uint32(v) < uint32(n)
                    at = cell_of(j, uint32(first_vis + uint32(v)), is_there, place)
                    re = own[N_OWN + v] if is_there else real(0)
                    im = own[N_OWN + OF_IM + v] if is_there else real(0)
                    put(v, at, re, im, where, off, to)
            else:
                for v in range(TOGETHER):
                    is_there = off + uint32(v) < uint32(n)
                    put_zero(v, cell_of(j, uint32(first_vis + uint32(v)), is_there, place), where)
            k = uint32(k + uint32(n_thread))
        return k

    return evaluate_axis


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
