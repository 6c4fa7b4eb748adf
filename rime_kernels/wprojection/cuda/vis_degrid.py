"""The degridder on a GPU for small kernels: threads have visibilities, and an item's block is shared memory.

Nothing is summed over threads, and there is one barrier for each item. A thread keeps its kernels in u in
registers, and goes through the cells of each row.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Scalar
from rime_kernels.cuda.kernels.tiles import tensor_cores
from rime_kernels.cuda.launch_shapes.cells import MOST_OF_VIS
from rime_kernels.gridding.cuda.items import FLIP, X, Y
from rime_kernels.wprojection.cuda.parts import (
    COS,
    N_NUMBER,
    N_PLACE,
    SIN,
    START_X,
    START_Y,
    Z_U,
    Z_V,
    ItemRows,
    LayerNumbers,
    Staged,
    Task,
    make_locate,
    make_of_corr,
    make_put_block,
    make_remainder,
    make_wrap,
)
from rime_kernels.wprojection.cuda.vis_terms import (
    N_EACH,
    N_UNROLLED,
    bytes_of_cell,
    bytes_of_kernel,
    make_cell_of_all,
    make_kernels,
)

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# Times of a visibility, ns: for a cell of its two kernels, for a cell and plane, and for each of those of its
# item's block. Those of kernels of 7 to 15 cells (H200) are within a fifth of what these say.
_STEP, _UPDATE, _BLOCK = 5.4e-3, 3.1e-4, 1.04e-2
# It replaces tensor cores where it is estimated to be so many times as fast.
_GAIN = 1.2
# Bytes of shared memory of a block of threads: three share a multiprocessor.
_MOST_BYTES = 72 * 1024


@dataclass(frozen=True)
class VisKernel(Task):
    """All that the kernel is compiled for.

    Attributes
    ----------
    reach : int
        Cells from the middle of an item's block to its farthest visibilities.
    n_thread : int
        Threads of a block.
    """

    reach: int
    n_thread: int

    @property
    def block(self) -> int:
        """Cells of an item's block along an axis."""
        return self.support + 2 * self.reach

    @property
    def pitch(self) -> int:
        """Cells from one row of the block to the next, odd: rows begin in different banks."""
        return self.block | 1

    @property
    def n_byte(self) -> int:
        """Bytes of a cell of a plane."""
        return 8 if self.single else 16

    @property
    def dynamic_bytes(self) -> int:
        """Bytes of dynamic shared memory of a block."""
        return self.n_byte * self.n_plane * self.block * self.pitch

    @property
    def max_register(self) -> int:
        """Registers of a thread: kernels in u and sums fit, up to the largest that are taken."""
        return 128 if self.single else 255

    def fits(self, n_grid: int) -> bool:
        """Whether a multiprocessor has room for blocks, and no cell of the grid is twice in one."""
        return self.dynamic_bytes <= _MOST_BYTES and self.block <= n_grid

    def pays(self, n_vis: float, tensor_core_time: float | None) -> bool:
        """Whether this is estimated to be faster than what would be taken else.

        That is tensor cores, with their time of a visibility in ns, or threads that own cells. Items have
        `n_vis` visibilities.
        """
        if tensor_core_time is None:
            return self.n_plane * self.support**2 <= MOST_OF_VIS
        of_plane = _UPDATE * self.support**2 + _BLOCK * self.block**2 / n_vis
        return _GAIN * (_STEP * self.support + self.n_plane * of_plane) < tensor_core_time


@functools.cache
def make_vis_degrid(kernel: VisKernel) -> DeviceKernel:
    """The kernel: writes the visibilities of items, as `cells.make_degrid` does.

    `inverse` is what the scale of both kernels was multiplied by. Numbers are summed in the order of cells.
    """
    real, n_plane, n_corr, n_thread = kernel.real, kernel.n_plane, kernel.n_corr, kernel.n_thread
    support, pitch, before = kernel.support, kernel.pitch, kernel.support // 2 + kernel.reach
    n_sum, n_own, n_part = 2 * n_plane * N_EACH, 2 * support * N_EACH, 2 * N_EACH
    n_byte_cell, n_byte_axis = bytes_of_cell(kernel), kernel.n_w_plane * bytes_of_kernel(kernel)
    locate, remainder = make_locate(kernel, make_put_block(before)), make_remainder()
    in_u, in_v, place_of = make_kernels(kernel, Z_U), make_cell_of_all(kernel, Z_V), tensor_cores.make_place()
    fill, add_row = _make_fill(kernel), _make_add_row(kernel, 0)
    write = tensor_cores.make_write_complex(kernel.single)
    of_corr = make_of_corr(kernel, _make_sum_of_plane(kernel))

    @device.kernel(kernel.max_register, kernel.dynamic_bytes)
    def vis_degrid(
        layer: LayerNumbers, inverse: float, rows: ItemRows, terms: Array, to_corr: Array, grid: Array,
        vis: Array,
    ) -> None:  # fmt: skip
        cells = cuda.shared.array(0, real)
        place, plane = cuda.local.array((N_EACH, N_PLACE), int32), cuda.local.array(N_EACH, int32)
        number, offset = cuda.local.array((N_EACH, N_NUMBER), real), cuda.local.array(N_EACH, int64)
        staged = Staged(place, plane, number, offset)
        of_u, of_v = cuda.local.array(n_own, real), cuda.local.array(n_part, real)
        part, sums = cuda.local.array(n_part, real), cuda.local.array(n_sum, real)
        corner = cuda.local.array(N_EACH, uint32)
        item, thread = int32(layer.first_item + cuda.blockIdx.x), int32(cuda.threadIdx.x)
        n_vis = int32(rows.start[item + 1] - rows.start[item])
        vis_before = rows.start[item] - int64(layer.first_vis)
        sign = real(1 - 2 * rows.items[item, FLIP])
        x = remainder(rows.items[item, X] - int32(before), layer.n_grid)
        y = remainder(rows.items[item, Y] - int32(before), layer.n_grid)
        fill(thread, x, y, uint32(layer.n_grid), grid, cells)
        cuda.syncthreads()
        k = thread * int32(N_EACH)
        while k < n_vis:
            for v in range(N_EACH):  # the last one may be there twice
                locate(v, min(k + int32(v), n_vis - int32(1)), item, vis_before, layer, rows, staged)
                corner[v] = uint32(place[v, START_Y]) * uint32(pitch) + uint32(place[v, START_X])
            of_terms = place_of(terms, uint64(0))
            in_u(of_terms, plane, number, part, of_u)
            for s in range(n_sum):
                sums[s] = real(0)
            of_cell, of_row = of_terms + uint64(n_byte_axis), uint32(0)
            for _ in range(support):
                in_v(of_cell, plane, number, part, of_v)
                add_row(cells, of_row, corner, of_v, of_u, sums)
                of_cell += uint64(n_byte_cell)
                of_row += uint32(pitch)
            for v in range(N_EACH):
                cos, sin = real(inverse) * number[v, COS], real(inverse) * number[v, SIN]
                for c in range(n_corr):
                    re, im = of_corr(c, cos, sin, sign, to_corr, (v, sums))
                    write(vis, uint64(offset[v] * int64(n_corr) + int64(c)), re, im)
            k += int32(N_EACH * n_thread)

    return vis_degrid


def _make_fill(kernel: VisKernel) -> Compiled:
    """Function with which all threads read the block, plane behind plane."""
    n_plane, block, pitch, n_thread, wrap = (
        kernel.n_plane, kernel.block, kernel.pitch, kernel.n_thread, make_wrap(),
    )  # fmt: skip

    @device.part
    def fill(thread: int, x: Scalar, y: Scalar, n_grid: int, grid: Array, cells: Array) -> None:
        i = uint32(thread)
        while i < uint32(block * block):
            of_row, of_column = uint32(i // uint32(block)), uint32(i % uint32(block))
            row, column = wrap(y + of_row, n_grid), wrap(x + of_column, n_grid)
            offset = uint64(row) * uint64(n_grid) + uint64(column)
            into = uint32(2) * (of_row * uint32(pitch) + of_column)
            for _ in range(n_plane):
                z = grid[offset]
                cells[into], cells[into + uint32(1)] = z.real, z.imag
                into += uint32(2 * block * pitch)
                offset += uint64(n_grid) * uint64(n_grid)
            i += uint32(n_thread)

    return fill


def _make_add_row(kernel: VisKernel, s: int) -> Compiled:
    """Function that adds a row of cells of planes from s on to the sums of a thread's visibilities.

    The row is `of_row` cells behind the first one of a kernel, which lies at `corner`.
    """
    if s == kernel.n_plane:
        return device.inline(lambda cells, of_row, corner, of_v, of_u, sums: None)
    rest, sum_row = _make_add_row(kernel, s + 1), _make_sum_row(kernel, 0)
    address = tensor_cores.make_address()
    n_plane, n_byte, step, real = kernel.n_plane, kernel.n_byte, 2 * kernel.support, kernel.real
    of_plane = s * kernel.block * kernel.pitch

    @device.part
    def add_row(cells: Array, of_row: Scalar, corner: Array, of_v: Array, of_u: Array, sums: Array) -> None:
        for v in range(N_EACH):
            offset = address(cells) + uint32(corner[v] + of_row) * uint32(n_byte)
            re, im = sum_row(offset + uint32(of_plane * n_byte), v * step, of_u, real(0), real(0))
            v_re, v_im, k = of_v[2 * v], of_v[2 * v + 1], 2 * (v * n_plane + s)
            sums[k] += re * v_re
            sums[k] -= im * v_im
            sums[k + 1] += re * v_im
            sums[k + 1] += im * v_re
        rest(cells, of_row, corner, of_v, of_u, sums)

    return add_row


@functools.cache
def _make_sum_row(kernel: VisKernel, first: int) -> Compiled:
    """Function that sums cells of a row from `first` on, times a kernel in u that begins at `begin`."""
    if first >= kernel.support:
        return device.inline(lambda offset, begin, of_u, re, im: (re, im))
    rest, load = _make_sum_row(kernel, first + N_UNROLLED), tensor_cores.make_load_complex(kernel.single)
    end, n_byte = min(first + N_UNROLLED, kernel.support), kernel.n_byte

    @device.part
    def sum_row(offset: int, begin: int, of_u: Array, re: Scalar, im: Scalar) -> tuple[Scalar, Scalar]:
        for i in range(first, end):
            z, k = load(offset + uint32(n_byte * i)), begin + 2 * i
            re += z[0] * of_u[k]
            re -= z[1] * of_u[k + 1]
            im += z[0] * of_u[k + 1]
            im += z[1] * of_u[k]
        return rest(offset, begin, of_u, re, im)

    return sum_row


def _make_sum_of_plane(kernel: VisKernel) -> Compiled:
    """Function that gives the sum of plane s of visibility v of a thread."""
    n_plane = kernel.n_plane

    @device.inline
    def sum_of_plane(s: int, of: Any) -> tuple[Scalar, Scalar]:
        v, sums = of
        k = 2 * (v * n_plane + s)
        return sums[k], sums[k + 1]

    return sum_of_plane
