"""The degridder on a GPU: threads keep cells in registers until these move on, and sum over lanes."""

from __future__ import annotations

import functools

from numba import int32, int64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Module
from rime_kernels.cuda.kernels.lane_sums import make_lane_sums
from rime_kernels.gridding.cuda.items import FLIP
from rime_kernels.wprojection.cuda.parts import (
    COS,
    LANES,
    N_NUMBER,
    N_PLACE,
    SIN,
    Kernel,
    make_own,
    make_stage,
)

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# Visibilities whose sums go over the lanes together: as many values as lanes cost little more than one.
_AT_ONCE = 4


@functools.cache
def make_degrid(kernel: Kernel) -> Compiled:
    """The kernel: writes the visibilities of items.

    Of `_AT_ONCE` visibilities, each thread sums its own cells; the lanes of a warp join their sums by a
    butterfly, and the warps theirs in shared memory: always in the same order.
    """
    real, n_plane, n_corr, shape = kernel.real, kernel.n_plane, kernel.n_corr, kernel.shape
    m_x, m_y, n_stage, bin_x, bin_y = shape.m_x, shape.m_y, shape.n_stage, kernel.bin_x, kernel.bin_y
    n_x, n_y, n_sum, length_x, length_y = (
        kernel.n_x,
        kernel.n_y,
        2 * n_plane,
        kernel.length_x,
        kernel.length_y,
    )
    n_own, n_thread, n_warp = m_x * m_y * 2 * n_plane, kernel.n_thread, kernel.n_thread // LANES
    n_each = 2 if n_plane == 1 else 4 if n_plane == 2 else 8  # a power of two
    n_value = _AT_ONCE * n_each
    n_of_warp = n_stage * n_warp * n_each  # a name: Numba takes no product as the size of a shared array
    stage, own, load = make_stage(kernel), make_own(kernel), _make_load(kernel)
    sum_lanes = make_lane_sums(n_value, LANES)

    @device.kernel(kernel.max_register)
    def degrid(
        first_item: int, first_vis: int, layer_w: float, w_half: float, middle: float, items: Array,
        start: Array, uvw: Array, order: Array, shift: Array, scale: Array, terms: Array, to_corr: Array,
        grid: Array, vis: Array,
    ) -> None:  # fmt: skip
        place = cuda.shared.array((n_stage, N_PLACE), int32)
        plane = cuda.shared.array(n_stage, int32)
        number = cuda.shared.array((n_stage, N_NUMBER), real)
        at = cuda.shared.array(n_stage, int64)
        of_u = cuda.shared.array((n_stage, 2, length_x), real)
        of_v = cuda.shared.array((n_stage, 2, length_y), real)
        of_warp = cuda.shared.array(n_of_warp, real)
        cells = cuda.local.array(n_own, real)
        value = cuda.local.array(n_value, real)
        t = cuda.local.array(n_sum, real)
        item, thread = int32(first_item + cuda.blockIdx.x), int32(cuda.threadIdx.x)
        my_x, my_y = (thread % int32(n_x)) * int32(m_x), (thread // int32(n_x)) * int32(m_y)
        is_mine, warp = thread < int32(n_x * n_y), thread // int32(LANES)
        n_vis, before = int32(start[item + 1] - start[item]), start[item] - int64(first_vis)
        sign = real(1 - 2 * items[item, FLIP])
        now_x = now_y = int32(-(1 << 30))
        base = int32(0)
        while base < n_vis:
            n = min(int32(n_stage), n_vis - base)
            cuda.syncthreads()
            stage(
                thread, item, base, n, before, layer_w, w_half, middle, items, uvw, order, shift, scale,
                terms, place, plane, number, at, of_u, of_v,
            )  # fmt: skip
            cuda.syncthreads()
            first = int32(0)
            while first < n:
                for k in range(n_value):
                    value[k] = real(0)
                for q in range(_AT_ONCE):
                    i = first + int32(q)
                    if is_mine and i < n:
                        x, j_x = own(place[i, 0], place[i, 1], place[i, 2], my_x, bin_x, m_x)
                        y, j_y = own(place[i, 3], place[i, 4], place[i, 5], my_y, bin_y, m_y)
                        if x != now_x or y != now_y:
                            load(x, y, grid, cells)
                            now_x, now_y = x, y
                        for b in range(m_y):
                            for k in range(n_sum):
                                t[k] = real(0)
                            for a in range(m_x):
                                u_re, u_im = of_u[i, 0, j_x + a], of_u[i, 1, j_x + a]
                                for s in range(n_plane):
                                    k = (b * m_x + a) * n_sum + 2 * s
                                    t[2 * s] += cells[k] * u_re
                                    t[2 * s] -= cells[k + 1] * u_im
                                    t[2 * s + 1] += cells[k] * u_im
                                    t[2 * s + 1] += cells[k + 1] * u_re
                            v_re, v_im = of_v[i, 0, j_y + b], of_v[i, 1, j_y + b]
                            for s in range(n_plane):
                                k = q * n_each + 2 * s
                                value[k] += t[2 * s] * v_re
                                value[k] -= t[2 * s + 1] * v_im
                                value[k + 1] += t[2 * s] * v_im
                                value[k + 1] += t[2 * s + 1] * v_re
                sum_lanes(thread, value, of_warp, (warp * int32(n_stage) + first) * int32(n_each))
                first += int32(_AT_ONCE)
            cuda.syncthreads()
            i = thread
            while i < n:
                cos, sin = number[i, COS], number[i, SIN]
                for c in range(n_corr):
                    re, im = real(0), real(0)
                    for s in range(n_plane):
                        sum_re, sum_im = real(0), real(0)
                        for other in range(n_warp):
                            k = (other * n_stage + i) * n_each + 2 * s
                            sum_re += of_warp[k]
                            sum_im += sign * of_warp[k + 1]
                        m = to_corr[c, s]
                        re += m.real * sum_re - m.imag * sum_im
                        im += m.real * sum_im + m.imag * sum_re
                    j = 2 * (at[i] * int64(n_corr) + c)
                    vis[j], vis[j + 1] = cos * re - sin * im, sin * re + cos * im
                i += int32(n_thread)
            base += int32(n_stage)

    return degrid


def _make_load(kernel: Kernel) -> Compiled:
    """Function that reads the cells of a thread's block."""
    n_plane, m_x, m_y = kernel.n_plane, kernel.shape.m_x, kernel.shape.m_y

    @device.inline
    def load(x: int, y: int, grid: Array, cells: Array) -> None:
        n_grid = int32(grid.shape[1])
        for b in range(m_y):
            row = (y + int32(b)) % n_grid
            for a in range(m_x):
                column = (x + int32(a)) % n_grid
                for s in range(n_plane):
                    k, z = ((b * m_x + a) * n_plane + s) * 2, grid[s, row, column]
                    cells[k], cells[k + 1] = z.real, z.imag

    return load
