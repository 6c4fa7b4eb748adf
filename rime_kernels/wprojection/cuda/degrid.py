"""The degridder on a GPU: threads keep cells in registers until these move on, and sum over lanes."""

from __future__ import annotations

import functools
from typing import Any

from numba import int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import (
    Array,
    Compiled,
    DeviceKernel,
    Module,
    Scalar,
)
from rime_kernels.cuda.kernels.reductions import make_warp_reduce
from rime_kernels.cuda.launch_shapes.cells import LANES, values_of
from rime_kernels.gridding.cuda.items import FLIP
from rime_kernels.wprojection.cuda.parts import (
    FIRST_X,
    FIRST_Y,
    N_KEPT,
    N_NUMBER,
    N_OWN,
    N_PLACE,
    NOWHERE,
    Kernel,
    make_evaluate,
    make_locate,
    make_put_bins,
    make_remainder,
    make_write_vis,
)

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# Values that go over the lanes together, of one visibility or several: so many cost little more than one.
_VALUES = 8


@functools.cache
def make_degrid(kernel: Kernel) -> DeviceKernel:
    """The kernel: writes the visibilities of items.

    Of one visibility or several, each thread sums its own cells; the lanes of a warp join their sums by a
    butterfly, and the warps theirs in shared memory: always in the same order.
    """
    real, n_plane, n_corr, shape = kernel.real, kernel.n_plane, kernel.n_corr, kernel.shape
    m_x, m_y, n_stage, bin_x, bin_y = shape.m_x, shape.m_y, shape.n_stage, kernel.bin_x, kernel.bin_y
    n_x, n_y, n_sum, n_cell = kernel.n_x, kernel.n_y, 2 * n_plane, kernel.n_cell
    n_own, n_thread, n_warp = m_x * m_y * 2 * n_plane, kernel.n_thread, kernel.n_thread // LANES
    whole_kernel = shape.whole_kernel
    n_each, n_together = values_of(n_plane), _VALUES // values_of(n_plane)
    # Names: Numba takes no product as the size of a shared array. One place more is read, and not used.
    n_place, n_factor = N_KEPT * n_stage + 1, 2 * n_stage * n_cell * 2
    n_batch_sum, n_of_warp = n_stage * n_warp * n_each, 2 * n_stage * n_warp * n_each
    locate, evaluate = make_locate(kernel, make_put_bins(kernel)), make_evaluate(kernel)
    write_vis, remainder = make_write_vis(kernel, _make_sum_of_warps(kernel)), make_remainder()
    load, warp_reduce = _make_load(kernel), make_warp_reduce(_VALUES, LANES)

    @device.kernel(kernel.max_register)
    def degrid(
        first_item: int, first_vis: int, layer_w: float, planes_per_w: float, middle: float, n_grid: int,
        items: Array, start: Array, uvw: Array, order: Array, shift: Array, scale: Array, terms: Array,
        to_corr: Array, grid: Array, vis: Array,
    ) -> None:  # fmt: skip
        place = cuda.shared.array((n_place, N_PLACE), int32)
        plane = cuda.shared.array(n_place, int32)
        number = cuda.shared.array((n_place, N_NUMBER), real)
        offset = cuda.shared.array(n_place, int64)
        factor = cuda.shared.array(n_factor, real)
        of_warp = cuda.shared.array(n_of_warp, real)
        cells = cuda.local.array(n_own, real)
        value = cuda.local.array(_VALUES, real)
        t, numbers = cuda.local.array(n_sum, real), cuda.local.array(N_OWN, real)
        item, thread = int32(first_item + cuda.blockIdx.x), int32(cuda.threadIdx.x)
        # As in the gridder a thread owns cells at fixed places of a bin, which it reads when they move on.
        my_x, my_y = (thread % int32(n_x)) * int32(m_x), (thread // int32(n_x)) * int32(m_y)
        is_mine, warp = thread < int32(n_x * n_y), thread // int32(LANES)
        at_x, at_y = thread % int32(n_x), my_y + int32(bin_x)
        n_vis, before = int32(start[item + 1] - start[item]), start[item] - int64(first_vis)
        sign = real(1 - 2 * items[item, FLIP])
        now_x = now_y = last_x = last_y = int32(NOWHERE)
        n_batch, batch = (n_vis + int32(n_stage - 1)) // int32(n_stage), int32(0)
        # Four stages in one loop, one barrier a round: locate, evaluate kernels, sum over cells, write.
        while batch < n_batch + int32(3):
            base = batch * int32(n_stage)
            i = thread
            while i < min(int32(n_stage), n_vis - base):
                locate(
                    batch % int32(N_KEPT) * int32(n_stage) + i, base + i, item, before, layer_w, planes_per_w,
                    middle, items, uvw, order, shift, scale, place, plane, number, offset,
                )  # fmt: skip
                i += int32(n_thread)
            # ---- of the batch before this one: kernels
            base -= int32(n_stage)
            if base >= int32(0) and base < n_vis:
                evaluate(
                    thread, (batch - int32(1)) % int32(N_KEPT) * int32(n_stage),
                    min(int32(n_stage), n_vis - base), terms, place, plane, number, numbers,
                    (batch - int32(1)) % int32(2) * int32(2 * n_stage * n_cell), factor,
                )  # fmt: skip
            # ---- of the one before that: sums over the cells of a warp
            base -= int32(n_stage)
            if base >= int32(0) and base < n_vis:
                n, half = uint64(min(int32(n_stage), n_vis - base)), uint64(batch % int32(2))
                kept = uint64((batch - int32(2)) % int32(N_KEPT)) * uint64(n_stage)
                next_x, next_y = place[kept, FIRST_X], place[kept, FIRST_Y]
                first = uint64(0)
                while first < n:
                    for k in range(_VALUES):
                        value[k] = real(0)
                    for q in range(n_together):
                        i = first + uint64(q)
                        first_x, first_y = next_x, next_y
                        kept += uint64(1)
                        next_x, next_y = place[kept, FIRST_X], place[kept, FIRST_Y]
                        if is_mine and i < n:
                            if first_x != last_x or first_y != last_y:
                                last_x, last_y = first_x, first_y
                                x = last_x + int32(remainder(my_x - last_x, bin_x))
                                y = last_y + int32(remainder(my_y - last_y, bin_y))
                                if x != now_x or y != now_y:
                                    load(x, y, n_grid, grid, cells)
                                    now_x, now_y = x, y
                            of_vis = (half * uint64(n_stage) + i) * uint64(2 * n_cell)
                            if whole_kernel:
                                for b in range(m_y):
                                    k = of_vis + uint64(2 * b) + uint64(2 * at_y)
                                    v_re, v_im = factor[k], factor[k + uint64(1)]
                                    for a in range(m_x):
                                        k = of_vis + uint64(2 * a * n_x) + uint64(2 * at_x)
                                        u_re, u_im = factor[k], factor[k + uint64(1)]
                                        u_re, u_im = u_re * v_re - u_im * v_im, u_re * v_im + u_im * v_re
                                        for s in range(n_plane):
                                            k, z = q * n_each + 2 * s, (b * m_x + a) * n_sum + 2 * s
                                            value[k] += cells[z] * u_re
                                            value[k] -= cells[z + 1] * u_im
                                            value[k + 1] += cells[z] * u_im
                                            value[k + 1] += cells[z + 1] * u_re
                            else:
                                for b in range(m_y):
                                    for k in range(n_sum):
                                        t[k] = real(0)
                                    for a in range(m_x):
                                        k = of_vis + uint64(2 * a * n_x) + uint64(2 * at_x)
                                        u_re, u_im = factor[k], factor[k + uint64(1)]
                                        for s in range(n_plane):
                                            k = (b * m_x + a) * n_sum + 2 * s
                                            t[2 * s] += cells[k] * u_re
                                            t[2 * s] -= cells[k + 1] * u_im
                                            t[2 * s + 1] += cells[k] * u_im
                                            t[2 * s + 1] += cells[k + 1] * u_re
                                    k = of_vis + uint64(2 * b) + uint64(2 * at_y)
                                    v_re, v_im = factor[k], factor[k + uint64(1)]
                                    for s in range(n_plane):
                                        k = q * n_each + 2 * s
                                        value[k] += t[2 * s] * v_re
                                        value[k] -= t[2 * s + 1] * v_im
                                        value[k + 1] += t[2 * s] * v_im
                                        value[k + 1] += t[2 * s + 1] * v_re
                    into = half * uint64(n_batch_sum) + (uint64(warp) * uint64(n_stage) + first) * uint64(
                        n_each
                    )
                    warp_reduce(thread, value, of_warp, into)
                    first += uint64(n_together)
            # ---- of the one before that: sums over warps, and visibilities
            base -= int32(n_stage)
            if base >= int32(0):
                i = thread
                while i < min(int32(n_stage), n_vis - base) * int32(n_corr):
                    j, c = i // int32(n_corr), i % int32(n_corr)
                    first_sum = (batch - int32(1)) % int32(2) * int32(n_batch_sum) + j * int32(n_each)
                    j += (batch - int32(3)) % int32(N_KEPT) * int32(n_stage)
                    write_vis(j, c, sign, to_corr, number, offset, (uint32(first_sum), of_warp), vis)
                    i += int32(n_thread)
            cuda.syncthreads()
            batch += int32(1)

    return degrid


def _make_sum_of_warps(kernel: Kernel) -> Compiled:
    """Function that adds up the sums of the warps, those of one visibility from `first_sum` on."""
    real, n_warp = kernel.real, kernel.n_thread // LANES
    n_of_warp = kernel.shape.n_stage * values_of(kernel.n_plane)

    @device.inline
    def sum_of_warps(s: int, of: Any) -> tuple[Scalar, Scalar]:
        first_sum, of_warp = of
        sum_re = sum_im = real(0)
        for other in range(n_warp):
            k = first_sum + uint32(other * n_of_warp + 2 * s)
            sum_re, sum_im = sum_re + of_warp[k], sum_im + of_warp[k + uint32(1)]
        return sum_re, sum_im

    return sum_of_warps


def _make_load(kernel: Kernel) -> Compiled:
    """Function that reads the cells of a thread's block."""
    load_from, remainder = _make_load_from(kernel, 0), make_remainder()

    @device.inline
    def load(x: Scalar, y: Scalar, n_grid: int, grid: Array, cells: Array) -> None:
        load_from(remainder(x, n_grid), remainder(y, n_grid), uint32(n_grid), grid, cells)

    return load


def _make_load_from(kernel: Kernel, cell: int) -> Compiled:
    """Function that does so from a cell of the block on: one for each cell, as the gridder has them."""
    n_plane, n_own = kernel.n_plane, kernel.shape.m_x * kernel.shape.m_y
    if cell == n_own:
        return device.inline(lambda x, y, n_grid, grid, cells: None)
    b, a = divmod(cell, kernel.shape.m_x)
    rest = _make_load_from(kernel, cell + 1)

    @device.part
    def load_from(x: Scalar, y: Scalar, n_grid: int, grid: Array, cells: Array) -> None:
        row, column = y + uint32(b), x + uint32(a)
        row -= n_grid if row >= n_grid else uint32(0)
        column -= n_grid if column >= n_grid else uint32(0)
        offset = uint64(row) * uint64(n_grid) + uint64(column)
        for s in range(n_plane):
            k, z = (cell * n_plane + s) * 2, grid[offset]
            cells[k], cells[k + 1] = z.real, z.imag
            offset += uint64(n_grid) * uint64(n_grid)
        rest(x, y, n_grid, grid, cells)

    return load_from
