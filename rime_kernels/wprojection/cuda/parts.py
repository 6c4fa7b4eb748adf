"""Shared by the kernels of W-projection on a GPU: who owns which cells, and visibilities in shared memory.

A block of threads works on an item: visibilities of one baseline in the order of time, whose kernels cover
nearly the same cells of the grid. As Romein (2012) has it, a thread owns one cell of each *bin*, a square at
least as large as a kernel: when the kernel's footprint moves on, the cell moves to the next bin, and what the
thread has summed is flushed. As Merry (2016) has it, the thread owns blocks of Mx x My cells instead, that
begin at multiples of M: each number of a kernel that is read serves several cells. A bin then has room for
the kernel wherever it begins, S + M - 1 cells.

Visibilities are staged in shared memory, a batch of them at a time, in steps that all threads share: where
they are (`make_locate`), their kernels, by polynomials (`make_evaluate`), and then what is to be done with
cells. There is one barrier for each batch: between two barriers threads locate one batch,
evaluate the kernels of
the batch before, and use those of the one before that. Kernels have zeros up to the end of a bin, so that a
thread need not look which of its cells they cover.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from numba import float32, float64, int32, int64, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Module, NumbaType, Scalar
from rime_kernels.cuda.launch_shapes.cells import LANES, n_thread, values_of
from rime_kernels.cuda.launch_shapes.choice import cells_of
from rime_kernels.gridding.cuda.items import FIRST_CHAN, FIRST_ROW, FLIP, N_CHAN, X, Y
from rime_kernels.gridding.cuda.planes import turn_function

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# Registers of a multiprocessor, and bytes of shared memory that a block may declare.
_REGISTERS, _SHARED = 65536, 48 * 1024
# Blocks of a multiprocessor beyond which registers become too few.
_MOST_BLOCKS = 20
# Whole numbers of a staged visibility: where the bin of its kernel begins, and the kernel's own place in it.
FIRST_X, FIRST_Y, START_X, START_Y = range(4)
N_PLACE = 4
# Numbers of a staged visibility beside: z of both kernels, t, cosine and sine of its phase.
Z_U, Z_V, T, COS, SIN = range(5)
N_NUMBER = 5
# The cell of threads that have none yet.
NOWHERE = -(1 << 29)
# Above the number of any cell, and of twice this there is a whole number of 32 bits.
_FAR = 1 << 30
# Visibilities whose kernels a thread evaluates together: each term that it reads serves all of them.
TOGETHER = 4
# Numbers of its own that a thread needs for that: real parts of kernels, imaginary parts, sums; z and t.
OF_IM, OF_Z, OF_T, N_OWN = TOGETHER, 4 * TOGETHER, 5 * TOGETHER, 6 * TOGETHER
# Batches that are kept: what is located serves until the last step of a batch is done.
N_KEPT = 4


class LayerNumbers(NamedTuple):
    """Plain numbers of a launch."""

    first_item: int
    first_vis: int  # visibilities before this batch of items, where arrays hold the batch alone
    layer_w: float  # w of the layer, wavelengths
    planes_per_w: float
    middle: float  # c0 of `kernel`
    n_grid: int


class ItemRows(NamedTuple):
    """Items and rows on the device: `items.item_table`, `items.starts`, `plan.SortedRows`."""

    items: Array
    start: Array
    uvw: Array
    order: Array
    shift: Array
    scale: Array


class Staged(NamedTuple):
    """Visibilities that are staged in shared memory, as `make_locate` leaves them."""

    place: Array
    plane: Array
    number: Array
    offset: Array


@dataclass(frozen=True)
class WProjectionShape:
    """How kernels are cut: measured per device, never needed for a right answer.

    Attributes
    ----------
    m_x, m_y : int
        Cells of a thread along u and v.
    n_stage : int
        Visibilities of a batch, a multiple of 4.
    n_block : int
        Blocks of a multiprocessor that there are registers for.
    whole_kernel : bool
        Cells are multiplied by the product of the kernels in u and v, 4 + 4 P multiply-adds a cell of P
        planes, and not first by one and then, for a row of a thread's cells together, by the other,
        4 P (1 + 1/Mx).
    """

    m_x: int
    m_y: int
    n_stage: int
    n_block: int = 1
    whole_kernel: bool = False


def shape_for(support: int, n_plane: int, single: bool, *, degrids: bool) -> WProjectionShape:
    """The shape of the gridder or the degridder, with the cells of a thread that `cells_of` gives.

    Blocks have registers for as many as can share a multiprocessor, and batches are as long as shared memory
    allows.
    """
    cells = cells_of(support, n_plane, single, degrids=degrids)
    n_number = 1 if single else 2  # registers of a number
    registers = n_number * 2 * n_plane * cells.m_x * cells.m_y + (70 if single else 110)
    n_block = max(1, min(_MOST_BLOCKS, _REGISTERS // (registers * n_thread(support, cells.m_x, cells.m_y))))
    for n_stage in (8, 4) if device.simulated() else (16, 8, 4):
        found = WProjectionShape(cells.m_x, cells.m_y, n_stage, n_block, bool(cells.whole_kernel))
        if _shared_bytes(support, n_plane, found, 4 * n_number) <= _SHARED:
            break
    return found


def _shared_bytes(support: int, n_plane: int, shape: WProjectionShape, n_byte: int) -> int:
    """Shared memory of the degridder, which takes more of it, for numbers of so many bytes."""
    n_stage, n_warp = shape.n_stage, n_thread(support, shape.m_x, shape.m_y) // LANES
    cells = sum(-(-(support + m - 1) // m) * m for m in (shape.m_x, shape.m_y))
    places = (N_KEPT * n_stage + 1) * (4 * N_PLACE + 4 + 8 + n_byte * N_NUMBER)
    return places + 2 * n_stage * n_byte * (2 * cells + n_warp * values_of(n_plane))


@dataclass(frozen=True)
class Task:
    """What kernels of any form are compiled for.

    Attributes
    ----------
    single : bool
    support : int
    n_plane, n_corr : int
    n_w, n_d, n_w_plane : int
        Terms of the polynomials, and planes of w.
    compact, has_weight : bool
        As `Visibilities` has them.
    """

    single: bool
    support: int
    n_plane: int
    n_corr: int
    n_w: int
    n_d: int
    n_w_plane: int
    compact: bool
    has_weight: bool

    @property
    def real(self) -> NumbaType:
        return float32 if self.single else float64


@dataclass(frozen=True)
class Kernel(Task):
    """All that a kernel is compiled for whose threads own cells."""

    shape: WProjectionShape

    @property
    def n_x(self) -> int:
        """Threads along u."""
        return -(-(self.support + self.shape.m_x - 1) // self.shape.m_x)

    @property
    def n_y(self) -> int:
        """Threads along v."""
        return -(-(self.support + self.shape.m_y - 1) // self.shape.m_y)

    @property
    def n_thread(self) -> int:
        """Threads of a block; those beyond the cells of a bin have none."""
        return n_thread(self.support, self.shape.m_x, self.shape.m_y)

    @property
    def max_register(self) -> int:
        """Registers that a thread may have, so that as many blocks as the shape wants can be launched.

        A multiprocessor has four parts, and each warp lies in one of them.
        """
        per_part = -(-self.n_thread * self.shape.n_block // (4 * LANES)) * LANES
        return min(255, _REGISTERS // 4 // per_part // 8 * 8)

    @property
    def bin_x(self) -> int:
        """Cells of a bin along u."""
        return self.n_x * self.shape.m_x

    @property
    def bin_y(self) -> int:
        """Cells of a bin along v."""
        return self.n_y * self.shape.m_y

    @property
    def n_cell(self) -> int:
        """Complex numbers of a staged visibility's kernels."""
        return self.bin_x + self.bin_y


@functools.cache
def make_locate(task: Task, put_place: Compiled) -> Compiled:
    """Function that finds where the visibility k of an item is, and leaves it at `i` of the staged ones.

    `number` gets z and t of `kernel.KernelTables` and the phase; `plane` the plane of w; `offset` the index
    of the visibility in the arrays. `put_place(i, x, y, item, items, place)` leaves where the kernel begins.
    """
    real, half, n_w_plane = task.real, task.support // 2, task.n_w_plane
    compact, cos_sin = task.compact, turn_function(task.single)

    @device.inline
    def locate(
        i: int, k: int, item: Scalar, first_vis: Scalar, layer: LayerNumbers, rows: ItemRows, staged: Staged
    ) -> None:
        items, _, uvw, order, shift, scale = rows
        place, plane, number, offset = staged
        n_chan = uint32(items[item, N_CHAN])
        off, chan = uint32(k) // n_chan, uint32(k) % n_chan
        if off % uint32(2) == uint32(1):  # there and back along channels: cells move on, and do not jump
            chan = n_chan - uint32(1) - chan
        k, row = off * n_chan + chan, items[item, FIRST_ROW] + int32(off)
        chan = items[item, FIRST_CHAN] + int32(chan)
        nu = scale[chan]
        u, v = uvw[row, 0] * nu, uvw[row, 1] * nu
        near_u, near_v = int32(math.floor(u + 0.5)), int32(math.floor(v + 0.5))
        delta = uvw[row, 2] * nu - layer.layer_w
        where = delta * layer.planes_per_w + 0.5 * n_w_plane
        in_plane = min(max(int32(where), int32(0)), int32(n_w_plane - 1))
        plane[i] = in_plane
        number[i, Z_U], number[i, Z_V] = real(2.0 * (u - near_u)), real(2.0 * (v - near_v))
        number[i, T] = real(2.0 * (where - in_plane) - 1.0)
        sign = 1.0 - 2.0 * items[item, FLIP]
        number[i, COS], number[i, SIN] = cos_sin(shift[row] * nu + sign * delta * layer.middle)
        put_place(i, near_u - int32(half), near_v - int32(half), item, items, place)
        if compact:
            offset[i] = int64(first_vis) + int64(k)
        else:
            offset[i] = int64(order[row]) * scale.size + chan

    return locate


@functools.cache
def make_put_bins(kernel: Kernel) -> Compiled:
    """Function for `make_locate`: along x and y, where a kernel begins among the bins.

    That is the cell where the kernel's bin begins, a multiple of M at most M - 1 before the kernel, and the
    kernel's first cell within the bins, which repeat.
    """
    m_x, m_y, bin_x, bin_y = kernel.shape.m_x, kernel.shape.m_y, kernel.bin_x, kernel.bin_y
    remainder = make_remainder()

    @device.inline
    def put_bins(i: int, x: Scalar, y: Scalar, item: Scalar, items: Array, place: Array) -> None:
        start_x, start_y = remainder(x, bin_x), remainder(y, bin_y)
        place[i, FIRST_X], place[i, START_X] = x - int32(start_x % uint32(m_x)), start_x
        place[i, FIRST_Y], place[i, START_Y] = y - int32(start_y % uint32(m_y)), start_y

    return put_bins


@functools.cache
def make_put_block(before: int) -> Compiled:
    """Function for `make_locate`: where a kernel begins within its item's block.

    The block begins `before` cells before the item's middle.
    """

    @device.inline
    def put_block(i: int, x: Scalar, y: Scalar, item: Scalar, items: Array, place: Array) -> None:
        place[i, START_X] = x - items[item, X] + int32(before)
        place[i, START_Y] = y - items[item, Y] + int32(before)

    return put_block


@functools.cache
def make_evaluate(kernel: Kernel) -> Compiled:
    """Function with which all threads evaluate the kernels of staged visibilities first ... first + n - 1."""
    n_cell, n_thread, of_cell = kernel.n_cell, kernel.n_thread, _make_of_cell(kernel)

    @device.inline
    def evaluate(
        thread: int, first: int, n: Scalar, terms: Array, staged: Staged, own: Array, into: Scalar,
        factor: Array,
    ) -> None:  # fmt: skip
        k, n_group = uint32(thread), (uint32(n) + uint32(TOGETHER - 1)) // uint32(TOGETHER)
        while k < n_group * uint32(n_cell):
            off, cell = k // uint32(n_cell) * uint32(TOGETHER), k % uint32(n_cell)
            of_cell(
                uint32(first) + off, uint32(first) + uint32(n), cell, terms, staged, own,
                uint32(into) + off * uint32(2 * n_cell), factor,
            )  # fmt: skip
            k += uint32(n_thread)

    return evaluate


@functools.cache
def _make_of_cell(kernel: Kernel) -> Compiled:
    """Function that evaluates one cell of the kernels of `TOGETHER` visibilities, from `first` on.

    `cell` counts along u and then along v, to the end of the bin, where a kernel is 0. `factor` gets,
    from `into` on, bin_x + bin_y numbers of each, of cells at their place within the bins: along u those that
    are the first of a thread, then the second ones, and so on, for threads that are neighbours read along u;
    along v those of a thread follow each other. `own` has `N_OWN` numbers of the thread's own.
    """
    m_x, n_x, bin_x, bin_y = kernel.shape.m_x, kernel.n_x, kernel.bin_x, kernel.bin_y
    real, support, n_cell, polynomials = kernel.real, kernel.support, kernel.n_cell, make_polynomials(kernel)

    @device.inline
    def of_cell(
        first: int, end: int, cell: int, terms: Array, staged: Staged, own: Array, into: Scalar, factor: Array
    ) -> None:
        place, plane, number, _ = staged
        is_v = cell >= uint32(bin_x)
        j, n_bin = (cell - uint32(bin_x), uint32(bin_y)) if is_v else (cell, uint32(bin_x))
        of_z, of_start = (uint32(Z_V), uint32(START_Y)) if is_v else (uint32(Z_U), uint32(START_X))
        for v in range(TOGETHER):
            own[OF_Z + v], own[OF_T + v] = (
                number[first + uint32(v), of_z],
                number[first + uint32(v), uint32(T)],
            )
        i = first
        while i < min(end, first + uint32(TOGETHER)):
            # Nearly always all visibilities are of one plane of w, for which this is done once.
            of_plane = plane[i]
            if i == first or of_plane != plane[i - uint32(1)]:
                if j < uint32(support):
                    polynomials(j, is_v, of_plane, terms, own)
                else:
                    for v in range(2 * TOGETHER):
                        own[v] = real(0)
                for v in range(TOGETHER):
                    if first + uint32(v) < end and plane[first + uint32(v)] == of_plane:
                        offset = uint32(place[first + uint32(v), of_start]) + j
                        offset -= n_bin if offset >= n_bin else uint32(0)
                        if is_v:
                            offset += uint32(bin_x)
                        else:
                            offset = offset % uint32(m_x) * uint32(n_x) + offset // uint32(m_x)
                        k = into + (uint32(v * n_cell) + offset) * uint32(2)
                        factor[k], factor[k + uint32(1)] = own[v], own[OF_IM + v]
            i += uint32(1)

    return of_cell


@functools.cache
def make_polynomials(task: Task) -> Compiled:
    """Function that evaluates cell j of the kernels in u or v of `TOGETHER` visibilities, in one plane of w.

    `own` has z and t of these; it gets the real and the imaginary parts.
    """
    real, support, n_w, n_d, n_w_plane = task.real, task.support, task.n_w, task.n_d, task.n_w_plane
    size_of_plane, n = n_w * n_d * 2 * support, TOGETHER
    im, part, part_im, z, t = OF_IM, 2 * n, 3 * n, OF_Z, OF_T

    @device.inline
    def polynomials(j: int, is_v: Scalar, of_plane: Scalar, terms: Array, own: Array) -> None:
        term = uint32(of_plane + int32(n_w_plane) if is_v else of_plane) * uint32(size_of_plane)
        term += uint32(size_of_plane) + j
        for v in range(n):
            own[v] = own[im + v] = real(0)
        for _ in range(n_w):
            for v in range(n):
                own[part + v] = own[part_im + v] = real(0)
            for _ in range(n_d):
                term -= uint32(2 * support)
                term_re, term_im = terms[term], terms[term + uint32(support)]
                for v in range(n):
                    own[part + v] = own[part + v] * own[z + v] + term_re
                    own[part_im + v] = own[part_im + v] * own[z + v] + term_im
            for v in range(n):
                own[v] = own[v] * own[t + v] + own[part + v]
                own[im + v] = own[im + v] * own[t + v] + own[part_im + v]

    return polynomials


@functools.cache
def make_share(task: Task) -> Compiled:
    """Function that gives what the staged visibility j adds to plane s: weighted, its phase taken off.

    `sign` is -1 for a flipped item, and 1 else.
    """
    real, n_corr, has_weight = task.real, task.n_corr, task.has_weight

    @device.inline
    def share_of(
        j: int, s: int, sign: Scalar, staged: Staged, vis: Array, weight: Array, to_corr: Array
    ) -> tuple[Scalar, Scalar]:
        k, cos, sin = staged.offset[j], staged.number[j, COS], staged.number[j, SIN]
        sum_re = sum_im = real(0)
        for c in range(n_corr):
            of_corr = k * int64(n_corr) + c
            w = real(weight[of_corr]) if has_weight else real(1)
            if w > real(0):  # what has no weight may be NaN
                vis_re, vis_im = w * real(vis[2 * of_corr]), w * real(vis[2 * of_corr + 1])
                re, im = cos * vis_re + sin * vis_im, cos * vis_im - sin * vis_re
                m = to_corr[c, s]
                sum_re += m.real * re + m.imag * im
                sum_im += sign * (m.real * im - m.imag * re)
        return sum_re, sum_im

    return share_of


@functools.cache
def make_of_corr(task: Task, sum_of: Compiled) -> Compiled:
    """Function that gives correlation c of a visibility, real and imaginary part, from sums of planes.

    `sum_of(s, of)` gives the sum of plane s, of what `of` says; cos and sin are those of the phase.
    """
    real, n_plane = task.real, task.n_plane

    @device.inline
    def of_corr(
        c: int, cos: Scalar, sin: Scalar, sign: Scalar, to_corr: Array, of: Any
    ) -> tuple[Scalar, Scalar]:
        re = im = real(0)
        for s in range(n_plane):
            sum_re, sum_im = sum_of(s, of)
            sum_im *= sign
            m = to_corr[c, s]
            re += m.real * sum_re - m.imag * sum_im
            im += m.real * sum_im + m.imag * sum_re
        return cos * re - sin * im, sin * re + cos * im

    return of_corr


@functools.cache
def make_write_vis(task: Task, sum_of: Compiled) -> Compiled:
    """Function that writes correlation c of the staged visibility j; see `make_of_corr`."""
    n_corr, of_corr = task.n_corr, make_of_corr(task, sum_of)

    @device.inline
    def write_vis(j: int, c: int, sign: Scalar, to_corr: Array, staged: Staged, of: Any, vis: Array) -> None:
        number, offset = staged.number, staged.offset
        re, im = of_corr(c, number[j, COS], number[j, SIN], sign, to_corr, of)
        k = 2 * (offset[j] * int64(n_corr) + c)
        vis[k], vis[k + 1] = re, im

    return write_vis


@functools.cache
def make_wrap() -> Compiled:
    """Function that gives a row or column of a block, below 2 G, in the periodic grid."""
    return device.inline(lambda cell, n_grid: cell - (n_grid if cell >= n_grid else uint32(0)))


@functools.cache
def make_remainder() -> Compiled:
    """Function that gives the remainder of a cell, from 0 on, by some number of cells: those of a bin, or G.

    Without signs, for there is no short way to divide numbers of 64 bits, which sums of signed ones are to
    Numba. A multiple of the divisor makes the dividend positive.
    """

    @device.inline
    def remainder(cell: int, n: Scalar) -> Scalar:
        return uint32(cell + uint32(_FAR) // uint32(n) * uint32(n)) % uint32(n)

    return remainder
