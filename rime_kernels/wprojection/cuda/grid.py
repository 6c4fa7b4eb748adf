"""The gridder on a GPU: threads own cells, sum in registers, and flush when their cells move on."""

from __future__ import annotations

import functools
import math

from numba import int32, int64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Module
from rime_kernels.gridding.cuda.items import FLIP
from rime_kernels.wprojection.cuda.parts import COS, N_NUMBER, N_PLACE, SIN, Kernel, make_own, make_stage

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda


@functools.cache
def make_grid(kernel: Kernel) -> Compiled:
    """The kernel: adds the visibilities of items to whole numbers, `fixed` times the cells of the grid.

    `total` has (n_plane, G, G, 2) of them. Sums of whole numbers do not depend on their order, so that
    results repeat to the bit; a thread's own sums, in working precision, have a fixed order.
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
    n_own, n_thread, has_weight = m_x * m_y * 2 * n_plane, kernel.n_thread, kernel.has_weight
    stage, own, flush = make_stage(kernel), make_own(kernel), _make_flush(kernel)

    @device.kernel(kernel.max_register)
    def grid(
        first_item: int, first_vis: int, layer_w: float, w_half: float, middle: float, fixed: float,
        items: Array, start: Array, uvw: Array, order: Array, shift: Array, scale: Array, terms: Array,
        to_corr: Array, vis: Array, weight: Array, total: Array,
    ) -> None:  # fmt: skip
        place = cuda.shared.array((n_stage, N_PLACE), int32)
        plane = cuda.shared.array(n_stage, int32)
        number = cuda.shared.array((n_stage, N_NUMBER), real)
        at = cuda.shared.array(n_stage, int64)
        of_u = cuda.shared.array((n_stage, 2, length_x), real)
        of_v = cuda.shared.array((n_stage, 2, length_y), real)
        share = cuda.shared.array((n_stage, n_sum), real)
        sums = cuda.local.array(n_own, real)
        t = cuda.local.array(n_sum, real)
        item, thread = int32(first_item + cuda.blockIdx.x), int32(cuda.threadIdx.x)
        my_x, my_y = (thread % int32(n_x)) * int32(m_x), (thread // int32(n_x)) * int32(m_y)
        is_mine = thread < int32(n_x * n_y)
        n_vis, before = int32(start[item + 1] - start[item]), start[item] - int64(first_vis)
        sign = real(1 - 2 * items[item, FLIP])
        now_x = now_y = int32(-(1 << 30))
        for k in range(n_own):
            sums[k] = real(0)
        base = int32(0)
        while base < n_vis:
            n = min(int32(n_stage), n_vis - base)
            cuda.syncthreads()
            stage(
                thread, item, base, n, before, layer_w, w_half, middle, items, uvw, order, shift, scale,
                terms, place, plane, number, at, of_u, of_v,
            )  # fmt: skip
            i = thread
            while i < n:
                for s in range(n_sum):
                    share[i, s] = real(0)
                cos, sin = number[i, COS], number[i, SIN]
                for c in range(n_corr):
                    j = at[i] * int64(n_corr) + c
                    w = real(weight[j]) if has_weight else real(1)
                    if w > real(0):  # what has no weight may be NaN
                        vis_re, vis_im = w * real(vis[2 * j]), w * real(vis[2 * j + 1])
                        re, im = cos * vis_re + sin * vis_im, cos * vis_im - sin * vis_re
                        for s in range(n_plane):
                            m = to_corr[c, s]
                            share[i, 2 * s] += m.real * re + m.imag * im
                            share[i, 2 * s + 1] += sign * (m.real * im - m.imag * re)
                i += int32(n_thread)
            cuda.syncthreads()
            if is_mine:
                for i in range(n):
                    x, j_x = own(place[i, 0], place[i, 1], place[i, 2], my_x, bin_x, m_x)
                    y, j_y = own(place[i, 3], place[i, 4], place[i, 5], my_y, bin_y, m_y)
                    if x != now_x or y != now_y:
                        flush(now_x, now_y, fixed, sums, total)
                        now_x, now_y = x, y
                    for b in range(m_y):
                        v_re, v_im = of_v[i, 0, j_y + b], of_v[i, 1, j_y + b]
                        for s in range(n_plane):
                            re, im = share[i, 2 * s], share[i, 2 * s + 1]
                            t[2 * s] = re * v_re + im * v_im
                            t[2 * s + 1] = im * v_re - re * v_im
                        for a in range(m_x):
                            u_re, u_im = of_u[i, 0, j_x + a], of_u[i, 1, j_x + a]
                            for s in range(n_plane):
                                k = (b * m_x + a) * n_sum + 2 * s
                                sums[k] += t[2 * s] * u_re
                                sums[k] += t[2 * s + 1] * u_im
                                sums[k + 1] += t[2 * s + 1] * u_re
                                sums[k + 1] -= t[2 * s] * u_im
            base += int32(n_stage)
        if is_mine:
            flush(now_x, now_y, fixed, sums, total)

    return grid


def _make_flush(kernel: Kernel) -> Compiled:
    """Function that adds a thread's sums to the cells of its block, and sets them to 0."""
    real, n_plane, m_x, m_y = kernel.real, kernel.n_plane, kernel.shape.m_x, kernel.shape.m_y

    @device.inline
    def flush(x: int, y: int, fixed: float, sums: Array, total: Array) -> None:
        n_grid = int32(total.shape[1])
        for b in range(m_y):
            row = (y + int32(b)) % n_grid
            for a in range(m_x):
                column = (x + int32(a)) % n_grid
                for s in range(n_plane):
                    for part in range(2):
                        k = ((b * m_x + a) * n_plane + s) * 2 + part
                        if sums[k] != real(0):
                            value = int64(math.floor(sums[k] * fixed + 0.5))
                            cuda.atomic.add(total, (s, row, column, part), value)
                            sums[k] = real(0)

    return flush


@functools.cache
def make_clear() -> Compiled:
    """Kernel that makes all whole numbers 0."""

    @device.kernel(0)
    def clear(total: Array) -> None:
        i = cuda.grid(1)
        while i < total.size:
            total[i] = 0
            i += cuda.gridsize(1)

    return clear


@functools.cache
def make_floats() -> Compiled:
    """Kernel that makes numbers of a grid of whole ones, real and imaginary parts one after the other."""

    @device.kernel(0)
    def floats(unit: float, total: Array, grid: Array) -> None:
        i = cuda.grid(1)
        while i < total.size:
            grid[i] = total[i] * unit
            i += cuda.gridsize(1)

    return floats
