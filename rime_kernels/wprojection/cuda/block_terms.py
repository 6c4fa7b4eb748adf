"""Kernels of visibilities by tensor cores: polynomials of 16 visibilities and some cells as a product.

A kernel is a sum over terms, C(j) = sum_ab z^a t^b terms[b, a, j]: powers of each visibility, a row of one
matrix, times the terms of each cell, two columns of the other, which give the real and the imaginary part.
Both are split into rounded numbers and what is left, as all that goes through the tensor cores here.

Terms come in steps of 16, in an order that lets thread 4 g + q of a warp work out its own by few products:
its powers of z are q, q + 4, ..., times all powers of t. Cells come in tasks of eight, two tiles each. The
thread then has cell q of each tile, of two visibilities: `_cell_of_tile` and `_make_row_of` say which, so
that threads which write together do so in different banks of the shared memory.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import float32, int32, uint32
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.reductions import make_shuffle_xor
from rime_kernels.cuda.kernels.tiles import tensor_cores
from rime_kernels.wprojection.cuda.blocks import N_STAGE, UNIT, WARP, BlockKernel, make_product
from rime_kernels.wprojection.cuda.parts import START_X, START_Y, Z_U, Z_V, Staged, T

# Cells of a task, and tiles of a task; terms that a thread has in a step of a product.
_N_CELL, _N_TILE, _N_SLOT = 8, 2, 4


class TermShares(NamedTuple):
    """How terms and cells are shared out.

    Attributes
    ----------
    n_high : int
        Terms in z of each thread, for each power of t.
    n_step : int
        Steps of a product.
    n_task : int
        Tasks that have cells of a kernel.
    """

    n_high: int
    n_step: int
    n_task: int


def shares_of(n_w: int, n_d: int, support: int) -> TermShares:
    n_high = -(-n_d // 4)
    return TermShares(n_high, -(-n_w * n_high // _N_SLOT), -(-support // _N_CELL))


def packed_terms(terms: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Terms of `kernel.KernelTables`, times a power of two, as threads read them: 16 bytes each.

    Axis, plane of w, task, tile, step, thread: two pairs rounded, and two of what is left.
    """
    n_axis, n_plane, n_w, n_d, _, support = terms.shape
    n_high, n_step, n_task = shares_of(n_w, n_d, support)
    # By slot and thread of four, part and cell.
    each = np.zeros((n_axis, n_plane, _N_SLOT * n_step, 4, 2, _N_CELL * n_task))
    for slot in range(n_w * n_high):
        b, first = slot // n_high, slot % n_high * 4
        there = terms[:, :, b, first : first + 4]
        each[:, :, slot, : there.shape[2], :, :support] = there
    group = np.arange(8)
    cell = np.array(
        [
            [[_N_CELL * task + _cell_of_tile(tile, int(g) // 2) for g in group] for tile in range(_N_TILE)]
            for task in range(n_task)
        ]
    )
    found = each[:, :, :, :, group % 2, cell]  # axis, plane, slot, t, task, tile, g
    found = found.reshape(n_axis, n_plane, n_step, _N_SLOT, 4, n_task, _N_TILE, 8)
    found = np.ascontiguousarray(found.transpose(0, 1, 5, 6, 2, 7, 4, 3))
    # A term rounded to 11 bits, and 11 bits of what is left.
    high = found.astype(np.float16)
    low = (found - high).astype(np.float16)
    return np.stack([high, low], axis=-2).view(np.uint32).ravel()


def _cell_of_tile(tile: int, t: int) -> int:
    """Cell t of a tile among the eight of its task."""
    return (t & 1) + 4 * (t >> 1) + 2 * tile


class AxisStaging(NamedTuple):
    """How kernels along one axis are staged.

    A thread has visibilities `row_of(g, 0)` and `row_of(g, 1)` of a batch, which differ in the bit `half_bit`
    of their number. `begin(row, cell, to)` says where cells `cell`, below eight, of each group of eight
    cells are to lie; `put(re, im, group, where)` stages one of them, and `put_zero(group, where)` a 0.
    """

    half_bit: int
    begin: Compiled
    put: Compiled
    put_zero: Compiled


def stage_v(half_bit: int, conjugate: bool, begin: Compiled, place_of: Compiled) -> AxisStaging:
    """Staging of kernels in v, or of their conjugates, as packed pairs: rounded, then what is left of them.

    `place_of(group)` says how many bytes behind the first group a group of eight cells lies.
    """
    split, store = tensor_cores.make_split(), tensor_cores.make_store_pair()

    @device.inline
    def put(re: Scalar, im: Scalar, group: int, where: Any) -> None:
        high, low = split(-im if conjugate else im, re)
        into = where + place_of(group)
        store(into, high)
        store(into + uint32(4 * UNIT), low)

    @device.inline
    def put_zero(group: int, where: Any) -> None:
        into = where + place_of(group)
        store(into, uint32(0))
        store(into + uint32(4 * UNIT), uint32(0))

    return AxisStaging(half_bit, begin, put, put_zero)


@functools.cache
def _make_row_of(half_bit: int) -> Compiled:
    """Function that gives visibility `half`, 0 or 1, of the threads 4 g + q: g with this bit put in."""
    low = (1 << half_bit) - 1

    @device.inline
    def row_of(g: Scalar, half: int) -> Scalar:
        return uint32((g & uint32(low)) + uint32(2) * (g & uint32(7 - low)) + uint32(half << half_bit))

    return row_of


def numbers_of(kernel: BlockKernel) -> tuple[int, int]:
    """Numbers of single precision of its own that a thread needs for kernels, and packed pairs."""
    n_step = shares_of(kernel.n_w, kernel.n_d, kernel.support).n_step
    return _N_SLOT * n_step + 8, 8 * n_step


@functools.cache
def make_evaluate_block(kernel: BlockKernel, n_warp: int, of_x: AxisStaging, of_y: AxisStaging) -> Compiled:
    """Function with which all threads stage the kernels of a batch, of which `n` visibilities are there.

    Cells that a kernel does not reach get 0, and so do all cells of visibilities that are not there. `own`
    and `words` have what `numbers_of` says.
    """
    along_x, along_y = _make_evaluate_axis(kernel, False, of_x), _make_evaluate_axis(kernel, True, of_y)
    swapped, n_group = make_shuffle_xor(), kernel.block // _N_CELL
    n_own = -(-2 * n_group // n_warp)  # tasks of a warp, most often along one axis

    @device.part
    def evaluate(
        thread: int, first: int, n: Scalar, terms: Array, staged: Staged, own: Array, words: Array, to: Any
    ) -> None:
        place, plane, number, _ = staged
        lane, task = uint32(thread) % uint32(WARP), int32(uint32(thread) // uint32(WARP) * uint32(n_own))
        last = uint32(uint32(n) - uint32(1))
        # The lanes of a warp compare their visibilities: four exchanges find the range of all 16.
        least = most = plane[uint32(first) + min(uint32(lane % uint32(N_STAGE)), last)]
        for k in range(4):
            least = min(least, swapped(least, 1 << k))
            most = max(most, swapped(most, 1 << k))
        of = uint32(first), last, least, most
        end = min(task + int32(n_own), int32(n_group))
        along_x(lane, task, end, of, terms, place, plane, number, own, words, to)
        end = min(task + int32(n_own - n_group), int32(n_group))
        task = max(task - int32(n_group), int32(0))
        along_y(lane, task, end, of, terms, place, plane, number, own, words, to)

    return evaluate


def _make_evaluate_axis(kernel: BlockKernel, is_v: bool, staging: AxisStaging) -> Compiled:
    """Function that does so along one axis, for tasks from `task` on to the one before `end`.

    `of` has the first visibility of the batch, the number of the last one in it, and the planes of w of all.
    """
    half_bit, begin, put, put_zero = staging
    n_task = shares_of(kernel.n_w, kernel.n_d, kernel.support).n_task
    n_group, n_power, row_of = kernel.block // _N_CELL, numbers_of(kernel)[0] - 8, _make_row_of(half_bit)
    of_start, n_w_plane = START_Y if is_v else START_X, int(is_v) * kernel.n_w_plane
    powers, multiply = _make_powers(kernel, is_v, half_bit), _make_multiply_terms(kernel)

    @device.inline
    def group_of(start: int, task: int) -> Scalar:
        """Groups behind the block's last one follow round the edge: the lesser, as there are no signs."""
        group = uint32(start + uint32(task))
        return uint32(min(group, uint32(group - uint32(n_group))))

    @device.inline
    def evaluate_axis(
        lane: int, task: int, end: int, of: Any, terms: Array, place: Array, plane: Array,
        number: Array, own: Array, words: Array, to: Any,
    ) -> None:  # fmt: skip
        if task >= end:
            return
        first, last, least, most = of
        g, t = uint32(lane >> uint32(2)), uint32(lane & uint32(3))
        row, other = row_of(g, 0), row_of(g, 1)
        cell = uint32((t & uint32(1)) + uint32(4) * (t >> uint32(1)))  # `_cell_of_tile`
        # Visibilities that are not there repeat the last one: no thread reads beyond the batch.
        start = uint32(uint32(place[uint32(first + min(row, last)), of_start]) + cell)
        start_other = uint32(uint32(place[uint32(first + min(other, last)), of_start]) + cell)
        second, second_other = uint32(start + uint32(2)), uint32(start_other + uint32(2))
        where = (
            begin(row, uint32(start & uint32(7)), to), begin(other, uint32(start_other & uint32(7)), to),
            begin(row, uint32(second & uint32(7)), to), begin(other, uint32(second_other & uint32(7)), to),
        )  # fmt: skip
        group = (
            uint32(uint32(start) >> uint32(3)), uint32(uint32(start_other) >> uint32(3)),
            uint32(second >> uint32(3)), uint32(second_other >> uint32(3)),
        )  # fmt: skip
        # Powers depend on visibilities alone: all tasks of a warp share them.
        if task < int32(n_task):
            powers(g, t, first, last, least, plane, number, own, words)
        while task < end:
            if task < int32(n_task):
                for k in range(8):
                    own[n_power + k] = float32(0)
                multiply(lane, task, int32(least + int32(n_w_plane)), terms, words, own)
                # Nearly always all visibilities are of one plane of w.
                of_plane = int32(least + int32(1))
                if of_plane <= most:
                    while of_plane <= most:
                        powers(g, t, first, last, of_plane, plane, number, own, words)
                        multiply(lane, task, int32(of_plane + int32(n_w_plane)), terms, words, own)
                        of_plane = int32(of_plane + int32(1))
                    powers(g, t, first, last, least, plane, number, own, words)
                put(own[n_power], own[n_power + 1], group_of(group[0], task), where[0])
                put(own[n_power + 2], own[n_power + 3], group_of(group[1], task), where[1])
                put(own[n_power + 4], own[n_power + 5], group_of(group[2], task), where[2])
                put(own[n_power + 6], own[n_power + 7], group_of(group[3], task), where[3])
            else:
                put_zero(group_of(group[0], task), where[0])
                put_zero(group_of(group[1], task), where[1])
                put_zero(group_of(group[2], task), where[2])
                put_zero(group_of(group[3], task), where[3])
            task = int32(task + int32(1))

    return evaluate_axis


def _make_powers(kernel: BlockKernel, is_v: bool, half_bit: int) -> Compiled:
    """Function that makes a thread's part of the powers of a batch, as pairs, of those in a plane of w.

    Of the others it is 0.
    """
    n_high, n_step, _ = shares_of(kernel.n_w, kernel.n_d, kernel.support)
    n_w, n_slot, of_z = kernel.n_w, _N_SLOT * n_step, Z_V if is_v else Z_U
    row_of, split = _make_row_of(half_bit), tensor_cores.make_split()

    @device.inline
    def fill(t: Scalar, z: Scalar, of_w: Scalar, is_in: Scalar, own: Array) -> None:
        square = z * z
        # z^t without a loop: thread t of four begins with its own power and goes on in steps of z^4.
        power = (z if t & uint32(1) else float32(1)) * (square if t & uint32(2) else float32(1))
        # Zero, not left out: all threads of a warp take part in a product.
        power = power if is_in else float32(0)
        of_four = square * square
        for b in range(n_w):
            own[b * n_high] = power
            for k in range(1, n_high):
                own[b * n_high + k] = own[b * n_high + k - 1] * of_four
            power *= of_w
        for k in range(n_w * n_high, n_slot):
            own[k] = float32(0)

    @device.part
    def powers(
        g: Scalar, t: Scalar, first: int, last: int, of_plane: Scalar, plane: Array, number: Array,
        own: Array, words: Array,
    ) -> None:  # fmt: skip
        for half in range(2):
            row = row_of(g, half)
            vis = uint32(first + min(row, last))
            is_in = row <= last and plane[vis] == of_plane
            fill(t, number[vis, of_z], number[vis, T], is_in, own)
            for k in range(2 * n_step):
                high, low = split(own[2 * k], own[2 * k + 1])
                offset = 8 * (k // 2) + 2 * (k % 2) + half
                words[offset], words[offset + 4] = high, low

    return powers


def _make_multiply_terms(kernel: BlockKernel) -> Compiled:
    """Function that adds powers times the terms of a task in a plane to eight numbers of `own`."""
    _, n_step, n_task = shares_of(kernel.n_w, kernel.n_d, kernel.support)
    first, load, product = numbers_of(kernel)[0] - 8, tensor_cores.make_load_global(), make_product()

    @device.part
    def multiply(lane: int, task: int, of_plane: Scalar, terms: Array, words: Array, own: Array) -> None:
        offset = (
            uint32(uint32(of_plane) * uint32(n_task) + uint32(task)) * uint32(_N_TILE * n_step * WARP) + lane
        )
        for tile in range(2):
            k = first + 4 * tile
            for step in range(n_step):
                b = load(terms, uint32(offset + uint32((tile * n_step + step) * WARP)))
                high = words[8 * step], words[8 * step + 1], words[8 * step + 2], words[8 * step + 3]
                low = words[8 * step + 4], words[8 * step + 5], words[8 * step + 6], words[8 * step + 7]
                c = own[k], own[k + 1], own[k + 2], own[k + 3]
                c = product(high, low, (b[0], b[1]), (b[2], b[3]), c)
                own[k], own[k + 1], own[k + 2], own[k + 3] = c[0], c[1], c[2], c[3]

    return multiply
