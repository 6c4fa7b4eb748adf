"""The degridder on a GPU: threads keep cells in registers until these move on, and sum over lanes."""

from __future__ import annotations

import functools

from numba import int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Module, Scalar
from rime_kernels.cuda.kernels.lane_sums import make_lane_sums
from rime_kernels.gridding.cuda.items import FLIP
from rime_kernels.wprojection.cuda.parts import (
    COS,
    FIRST_X,
    FIRST_Y,
    LANES,
    N_NUMBER,
    N_OWN,
    N_PLACE,
    SIN,
    Kernel,
    make_remainder,
    make_stage,
)

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# Values that go over the lanes together, of one visibility or several: so many cost little more than one.
_VALUES = 8


@functools.cache
def make_degrid(kernel: Kernel) -> Compiled:
    """The kernel: writes the visibilities of items.

    Of one visibility or several, each thread sums its own cells; the lanes of a warp join their sums by a
    butterfly, and the warps theirs in shared memory: always in the same order.
    """
    real, n_plane, n_corr, shape = kernel.real, kernel.n_plane, kernel.n_corr, kernel.shape
    m_x, m_y, n_stage, bin_x, bin_y = shape.m_x, shape.m_y, shape.n_stage, kernel.bin_x, kernel.bin_y
    n_x, n_y, n_sum, n_cell = kernel.n_x, kernel.n_y, 2 * n_plane, bin_x + bin_y
    n_own, n_thread, n_warp = m_x * m_y * 2 * n_plane, kernel.n_thread, kernel.n_thread // LANES
    n_each = 2 if n_plane == 1 else 4 if n_plane == 2 else 8  # a power of two
    n_together = _VALUES // n_each
    # Names: Numba takes no product as the size of a shared array.
    n_of_warp, n_factor = n_stage * n_warp * n_each, n_stage * n_cell * 2
    stage, remainder, load = make_stage(kernel), make_remainder(), _make_load(kernel)
    sum_lanes = make_lane_sums(_VALUES, LANES)

    @device.kernel(kernel.max_register)
    def degrid(
        first_item: int, first_vis: int, layer_w: float, planes_per_w: float, middle: float, items: Array,
        start: Array, uvw: Array, order: Array, shift: Array, scale: Array, terms: Array, to_corr: Array,
        grid: Array, vis: Array,
    ) -> None:  # fmt: skip
        place = cuda.shared.array((n_stage, N_PLACE), int32)
        plane = cuda.shared.array(n_stage, int32)
        number = cuda.shared.array((n_stage, N_NUMBER), real)
        at = cuda.shared.array(n_stage, int64)
        factor = cuda.shared.array(n_factor, real)
        of_warp = cuda.shared.array(n_of_warp, real)
        cells = cuda.local.array(n_own, real)
        value = cuda.local.array(_VALUES, real)
        t, numbers = cuda.local.array(n_sum, real), cuda.local.array(N_OWN, real)
        item, thread = int32(first_item + cuda.blockIdx.x), int32(cuda.threadIdx.x)
        my_x, my_y = (thread % int32(n_x)) * int32(m_x), (thread // int32(n_x)) * int32(m_y)
        is_mine, warp = thread < int32(n_x * n_y), thread // int32(LANES)
        at_x, at_y = thread % int32(n_x), my_y + int32(bin_x)
        n_vis, before = int32(start[item + 1] - start[item]), start[item] - int64(first_vis)
        sign = real(1 - 2 * items[item, FLIP])
        now_x = now_y = last_x = last_y = int32(-(1 << 30))
        base = int32(0)
        while base < n_vis:
            n = min(int32(n_stage), n_vis - base)
            cuda.syncthreads()
            stage(
                thread, item, base, n, before, layer_w, planes_per_w, middle, items, uvw, order, shift, scale,
                terms, place, plane, number, at, numbers, factor,
            )  # fmt: skip
            cuda.syncthreads()
            first = int32(0)
            while first < n:
                for k in range(_VALUES):
                    value[k] = real(0)
                for q in range(n_together):
                    i = uint32(first + q)
                    if is_mine and i < uint32(n):
                        if place[i, FIRST_X] != last_x or place[i, FIRST_Y] != last_y:
                            last_x, last_y = place[i, FIRST_X], place[i, FIRST_Y]
                            x = last_x + int32(remainder(my_x - last_x, bin_x))
                            y = last_y + int32(remainder(my_y - last_y, bin_y))
                            if x != now_x or y != now_y:
                                load(x, y, grid, cells)
                                now_x, now_y = x, y
                        of_vis = uint64(i) * uint64(2 * n_cell)
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
                sum_lanes(thread, value, of_warp, (warp * int32(n_stage) + first) * int32(n_each))
                first += int32(n_together)
            cuda.syncthreads()
            if n_warp > 1:
                i = thread
                while i < n * int32(n_each):
                    total = of_warp[uint32(i)]
                    for other in range(1, n_warp):
                        total += of_warp[uint32(i) + uint32(other * n_stage * n_each)]
                    of_warp[uint32(i)] = total
                    i += int32(n_thread)
                cuda.syncthreads()
            i = thread
            while i < n * int32(n_corr):
                i_vis, c = i // int32(n_corr), i % int32(n_corr)
                cos, sin = number[i_vis, COS], number[i_vis, SIN]
                re = im = real(0)
                for s in range(n_plane):
                    k = uint32(i_vis) * uint32(n_each) + uint32(2 * s)
                    sum_re, sum_im, m = of_warp[k], sign * of_warp[k + uint32(1)], to_corr[c, s]
                    re += m.real * sum_re - m.imag * sum_im
                    im += m.real * sum_im + m.imag * sum_re
                j = 2 * (at[i_vis] * int64(n_corr) + c)
                vis[j], vis[j + 1] = cos * re - sin * im, sin * re + cos * im
                i += int32(n_thread)
            base += int32(n_stage)

    return degrid


def _make_load(kernel: Kernel) -> Compiled:
    """Function that reads the cells of a thread's block."""
    load_from, remainder = _make_load_from(kernel, 0), make_remainder()

    @device.inline
    def load(x: Scalar, y: Scalar, grid: Array, cells: Array) -> None:
        n_grid = uint32(grid.shape[1])
        load_from(remainder(x, n_grid), remainder(y, n_grid), n_grid, grid, cells)

    return load


def _make_load_from(kernel: Kernel, cell: int) -> Compiled:
    """Function that does so from a cell of the block on: one for each cell, as the gridder's flush has them."""
    n_plane, n_own = kernel.n_plane, kernel.shape.m_x * kernel.shape.m_y
    if cell == n_own:
        return device.inline(lambda x, y, n_grid, grid, cells: None)
    b, a = divmod(cell, kernel.shape.m_x)
    rest = _make_load_from(kernel, cell + 1)

    @device.inline
    def load_from(x: Scalar, y: Scalar, n_grid: Scalar, grid: Array, cells: Array) -> None:
        row, column = y + uint32(b), x + uint32(a)
        row -= n_grid if row >= n_grid else uint32(0)
        column -= n_grid if column >= n_grid else uint32(0)
        for s in range(n_plane):
            k, z = (cell * n_plane + s) * 2, grid[s, row, column]
            cells[k], cells[k + 1] = z.real, z.imag
        rest(x, y, n_grid, grid, cells)

    return load_from
