"""Shared by the kernels of W-projection on a GPU: who owns which cells, and visibilities in shared memory.

A block of threads works on an item: visibilities of one baseline in the order of time, whose kernels cover
nearly the same cells of the grid. As Romein (2012) has it, a thread owns one cell of each *bin*, a square at
least as large as a kernel: when the kernel's footprint moves on, the cell moves to the next bin, and what the
thread has summed is flushed. As Merry (2016) has it, the thread owns blocks of Mx x My cells instead, that
begin at multiples of M: each number of a kernel that is read serves several cells. A bin then has room for
the kernel wherever it begins, S + M - 1 cells.

The numbers of some visibilities are staged in shared memory, worked out by all threads together: kernels, by
their polynomials, with zeros around so that a thread need not look which of its cells they cover.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from numba import float32, float64, int32, int64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Module, NumbaType, Scalar
from rime_kernels.cuda.kernels.lane_sums import meet
from rime_kernels.gridding.cuda.items import FIRST_CHAN, FIRST_ROW, FLIP, N_CHAN
from rime_kernels.gridding.cuda.planes import turn_function

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# Threads whose sums meet without shared memory, and by whose number blocks are rounded up.
LANES = 4 if device.simulated() else 32
# Registers of a multiprocessor.
_REGISTERS = 65536
# Whole numbers of a staged visibility: along x and y, those of `place` in `make_stage`.
N_PLACE = 6
# Numbers of a staged visibility beside: z of both kernels, t, cosine and sine of its phase.
Z_U, Z_V, T, COS, SIN = range(5)
N_NUMBER = 5


@dataclass(frozen=True)
class Shape:
    """How kernels are cut: measured per device, never needed for a right answer.

    Attributes
    ----------
    m_x, m_y : int
        Cells of a thread along u and v.
    n_stage : int
        Visibilities in shared memory at a time, a multiple of 4.
    """

    m_x: int
    m_y: int
    n_stage: int


def shape_for(support: int, n_plane: int) -> Shape:
    """A shape whose sums stay in registers, and whose blocks have at most 1024 threads."""
    m_x = m_y = 2
    while -(-(support + m_x - 1) // m_x) * -(-(support + m_y - 1) // m_y) > 1024 // (2 * n_plane):
        m_x, m_y = (2 * m_x, m_y) if m_x == m_y else (m_x, 2 * m_y)
        if m_x * m_y == 16:
            break
    return Shape(m_x, m_y, 8 if device.simulated() or support > 32 else 16)


@dataclass(frozen=True)
class Kernel:
    """All that a kernel is compiled for.

    Attributes
    ----------
    single : bool
    support : int
    n_plane, n_corr : int
    n_w, n_d, n_w_plane : int
        Terms of the polynomials, and planes of w.
    shape : Shape
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
    shape: Shape
    compact: bool
    has_weight: bool

    @property
    def real(self) -> NumbaType:
        return float32 if self.single else float64

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
        return -(-(self.n_x * self.n_y) // LANES) * LANES

    @property
    def max_register(self) -> int:
        """Registers that a thread may have, so that a block of all of them can be launched.

        A multiprocessor has four parts, and each warp lies in one of them.
        """
        per_part = -(-self.n_thread // (4 * LANES)) * LANES
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
    def length_x(self) -> int:
        """Numbers of a staged kernel along u, with the zeros on both sides."""
        return self.bin_x + self.shape.m_x - 1

    @property
    def length_y(self) -> int:
        """Numbers of a staged kernel along v."""
        return self.bin_y + self.shape.m_y - 1


@functools.cache
def make_stage(kernel: Kernel) -> Compiled:
    """Function that stages visibilities base ... base + n - 1 of an item.

    `place` gets, along x and y, the cell where the kernel's bin begins, a multiple of M at most M - 1 before
    the kernel, how far before, and the remainder of that cell in the bin; `number` z and t of `kernel.Tables`
    and the phase; `at` the index of the visibility in the arrays; `of_u`, `of_v` the kernels, real parts and
    imaginary parts.
    """
    real, support, n_thread, shape = kernel.real, kernel.support, kernel.n_thread, kernel.shape
    m_x, m_y, bin_x, bin_y, half = shape.m_x, shape.m_y, kernel.bin_x, kernel.bin_y, kernel.support // 2
    length_x, length_y, n_w_plane = kernel.length_x, kernel.length_y, kernel.n_w_plane
    n_w, n_d, compact, cos_sin = kernel.n_w, kernel.n_d, kernel.compact, turn_function(kernel.single)
    wait, size_of_plane = meet(), n_w * n_d * 2 * support

    @device.inline
    def stage(
        thread: Scalar, item: Scalar, base: Scalar, n: Scalar, first_vis: Scalar, layer_w: Scalar,
        w_half: Scalar, middle: Scalar, items: Array, uvw: Array, order: Array, shift: Array, scale: Array,
        terms: Array, place: Array, plane: Array, number: Array, at: Array, of_u: Array, of_v: Array,
    ) -> None:  # fmt: skip
        n_chan = items[item, N_CHAN]
        i = int32(thread)
        while i < n:
            k = int32(base) + i
            row, chan = items[item, FIRST_ROW] + k // n_chan, items[item, FIRST_CHAN] + k % n_chan
            nu = scale[chan]
            u, v = uvw[row, 0] * nu, uvw[row, 1] * nu
            near_u, near_v = int32(math.floor(u + 0.5)), int32(math.floor(v + 0.5))
            delta = uvw[row, 2] * nu - layer_w
            where = 0.5
            if w_half > 0.0:
                where = 0.5 * n_w_plane * (delta / w_half + 1.0)
            in_plane = min(max(int32(where), int32(0)), int32(n_w_plane - 1))
            plane[i] = in_plane
            number[i, Z_U], number[i, Z_V] = real(2.0 * (u - near_u)), real(2.0 * (v - near_v))
            number[i, T] = real(2.0 * (where - in_plane) - 1.0)
            sign = 1.0 - 2.0 * items[item, FLIP]
            number[i, COS], number[i, SIN] = cos_sin(shift[row] * nu + sign * delta * middle)
            x, y = near_u - int32(half), near_v - int32(half)
            lead_x, lead_y = x % int32(m_x), y % int32(m_y)
            place[i, 0], place[i, 1], place[i, 2] = x - lead_x, lead_x, (x - lead_x) % int32(bin_x)
            place[i, 3], place[i, 4], place[i, 5] = y - lead_y, lead_y, (y - lead_y) % int32(bin_y)
            if compact:
                at[i] = int64(first_vis) + k
            else:
                at[i] = int64(order[row]) * scale.size + chan
            i += int32(n_thread)
        wait()
        k = int32(thread)
        while k < n * int32(length_x + length_y):
            i = k // int32(length_x + length_y)
            j = k - i * int32(length_x + length_y)
            is_u = j < int32(length_x)
            cell = j - int32(m_x - 1) if is_u else j - int32(length_x + m_y - 1)
            re = im = real(0)
            if cell >= 0 and cell < int32(support):
                z, t = number[i, Z_U] if is_u else number[i, Z_V], number[i, T]
                first = (plane[i] if is_u else int32(n_w_plane) + plane[i]) * int32(size_of_plane) + cell
                for b in range(n_w - 1, -1, -1):
                    term = first + int32((b + 1) * n_d * 2 * support)
                    part_re = part_im = real(0)
                    for _ in range(n_d):
                        term -= int32(2 * support)
                        part_re = part_re * z + terms[term]
                        part_im = part_im * z + terms[term + int32(support)]
                    re, im = re * t + part_re, im * t + part_im
            if is_u:
                of_u[i, 0, j], of_u[i, 1, j] = re, im
            else:
                of_v[i, 0, j - int32(length_x)], of_v[i, 1, j - int32(length_x)] = re, im
            k += int32(n_thread)

    return stage


@functools.cache
def make_own(kernel: Kernel) -> Compiled:
    """Function that tells where a thread's cells are for a staged visibility.

    It gives the cell where the thread's block begins along an axis, and the place of the kernel's number for
    this cell, from the visibility's `place` and the thread's first cell of the bin.
    """

    @device.inline
    def own(first: Scalar, lead: Scalar, rest: Scalar, of_thread: Scalar, n_bin: int, m: int) -> Scalar:
        off = int32(of_thread) - rest
        if off < 0:
            off += int32(n_bin)
        return first + off, off - lead + int32(m - 1)

    return own
