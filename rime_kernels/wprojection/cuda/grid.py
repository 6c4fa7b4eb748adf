"""The gridder on a GPU: threads own cells, sum in registers, and flush when their cells move on."""

from __future__ import annotations

import functools
import math

from numba import int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import (
    Array,
    Compiled,
    DeviceKernel,
    Module,
    Scalar,
)
from rime_kernels.gridding.cuda.items import FLIP
from rime_kernels.wprojection.cuda.parts import (
    COS,
    FIRST_X,
    FIRST_Y,
    N_KEPT,
    N_NUMBER,
    N_OWN,
    N_PLACE,
    NOWHERE,
    SIN,
    Kernel,
    make_evaluate,
    make_locate,
    make_put_bins,
    make_remainder,
    make_share,
)

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda


@functools.cache
def make_grid(kernel: Kernel) -> DeviceKernel:
    """The kernel: adds the visibilities of items to whole numbers, `fixed` times the cells of the grid.

    `total` has (G^2, 2 n_plane) of them: those of a cell lie together. Sums of whole numbers do not depend on
    their order, so that results repeat to the bit; a thread's own sums, in working precision, have a fixed
    order.
    """
    real, n_plane, shape = kernel.real, kernel.n_plane, kernel.shape
    m_x, m_y, n_stage, bin_x, bin_y = shape.m_x, shape.m_y, shape.n_stage, kernel.bin_x, kernel.bin_y
    n_x, n_y, n_sum, n_cell = kernel.n_x, kernel.n_y, 2 * n_plane, kernel.n_cell
    n_own, n_thread = m_x * m_y * 2 * n_plane, kernel.n_thread
    whole_kernel = shape.whole_kernel
    # Names: Numba takes no product as the size of a shared array. One place more is read, and not used.
    n_place, n_share, n_factor = N_KEPT * n_stage + 1, 2 * n_stage, 2 * n_stage * n_cell * 2
    locate, share_of = make_locate(kernel, make_put_bins(kernel)), make_share(kernel)
    evaluate, remainder = make_evaluate(kernel), make_remainder()
    flush, nowhere = _make_flush(kernel), NOWHERE

    @device.kernel(kernel.max_register)
    def grid(
        first_item: int, first_vis: int, layer_w: float, planes_per_w: float, middle: float, n_grid: int,
        fixed: float, items: Array, start: Array, uvw: Array, order: Array, shift: Array, scale: Array,
        terms: Array, to_corr: Array, vis: Array, weight: Array, total: Array,
    ) -> None:  # fmt: skip
        place = cuda.shared.array((n_place, N_PLACE), int32)
        plane = cuda.shared.array(n_place, int32)
        number = cuda.shared.array((n_place, N_NUMBER), real)
        offset = cuda.shared.array(n_place, int64)
        factor = cuda.shared.array(n_factor, real)
        share = cuda.shared.array((n_share, n_sum), real)
        sums = cuda.local.array(n_own, real)
        t, numbers = cuda.local.array(n_sum, real), cuda.local.array(N_OWN, real)
        item, thread = int32(first_item + cuda.blockIdx.x), int32(cuda.threadIdx.x)
        # A thread owns a block of m_x m_y cells at each place of a bin: whatever a kernel's place, each
        # thread has one block of it, and no two threads the same cell.
        my_x, my_y = (thread % int32(n_x)) * int32(m_x), (thread // int32(n_x)) * int32(m_y)
        is_mine, at_x, at_y = thread < int32(n_x * n_y), thread % int32(n_x), my_y + int32(bin_x)
        n_vis, before = int32(start[item + 1] - start[item]), start[item] - int64(first_vis)
        sign = real(1 - 2 * items[item, FLIP])
        now_x = now_y = last_x = last_y = int32(nowhere)
        for k in range(n_own):
            sums[k] = real(0)
        n_batch, batch = (n_vis + int32(n_stage - 1)) // int32(n_stage), int32(0)
        # A pipeline of three stages in one loop: while one batch is located, the kernels of the one before
        # are evaluated and the one before that is summed. So one barrier a round is enough.
        while batch < n_batch + int32(2):
            base = batch * int32(n_stage)
            i = thread
            while i < min(int32(n_stage), n_vis - base):
                locate(
                    batch % int32(N_KEPT) * int32(n_stage) + i, base + i, item, before, layer_w, planes_per_w,
                    middle, items, uvw, order, shift, scale, place, plane, number, offset,
                )  # fmt: skip
                i += int32(n_thread)
            # ---- of the batch before this one: kernels, and what it adds to each plane
            base -= int32(n_stage)
            if base >= int32(0) and base < n_vis:
                n, kept = (
                    min(int32(n_stage), n_vis - base),
                    (batch - int32(1)) % int32(N_KEPT) * int32(n_stage),
                )
                half = (batch - int32(1)) % int32(2)
                evaluate(
                    thread, kept, n, terms, place, plane, number, numbers, half * int32(2 * n_stage * n_cell),
                    factor,
                )  # fmt: skip
                i = thread
                while i < n * int32(n_plane):
                    j, s = kept + i // int32(n_plane), i % int32(n_plane)
                    sum_re, sum_im = share_of(
                        offset[j], s, number[j, COS], number[j, SIN], sign, vis, weight, to_corr
                    )
                    k = half * int32(n_stage) + i // int32(n_plane)
                    share[k, 2 * s], share[k, 2 * s + 1] = sum_re, sum_im
                    i += int32(n_thread)
            # ---- of the one before that: sums
            base -= int32(n_stage)
            if is_mine and base >= int32(0):
                n, half = min(int32(n_stage), n_vis - base), uint64(batch % int32(2))
                kept = uint64((batch - int32(2)) % int32(N_KEPT)) * uint64(n_stage)
                next_x, next_y = place[kept, FIRST_X], place[kept, FIRST_Y]
                for i in range(half * uint64(n_stage), half * uint64(n_stage) + uint64(n)):
                    first_x, first_y = next_x, next_y
                    kept += uint64(1)
                    next_x, next_y = place[kept, FIRST_X], place[kept, FIRST_Y]
                    # Visibilities are sorted: often the kernel begins where the last one did, and nothing
                    # moves.
                    if first_x != last_x or first_y != last_y:
                        last_x, last_y = first_x, first_y
                        x = last_x + int32(remainder(my_x - last_x, bin_x))
                        y = last_y + int32(remainder(my_y - last_y, bin_y))
                        if x != now_x or y != now_y:
                            # The cells of this thread move on: what it has summed goes to memory, once for
                            # many visibilities.
                            if now_x != nowhere:
                                flush(now_x, now_y, n_grid, fixed, sums, total)
                            now_x, now_y = x, y
                    of_vis = i * uint64(2 * n_cell)
                    # Two orders of multiplication: (kernel u times v) times shares, or shares times v, then
                    # times u. Which is less work depends on the number of planes and cells.
                    if whole_kernel:
                        for s in range(n_sum):
                            t[s] = share[i, s]
                    for b in range(m_y):
                        k = of_vis + uint64(2 * b) + uint64(2 * at_y)
                        v_re, v_im = factor[k], factor[k + uint64(1)]
                        if not whole_kernel:
                            for s in range(n_plane):
                                re, im = share[i, 2 * s], share[i, 2 * s + 1]
                                t[2 * s] = re * v_re + im * v_im
                                t[2 * s + 1] = im * v_re - re * v_im
                        for a in range(m_x):
                            k = of_vis + uint64(2 * a * n_x) + uint64(2 * at_x)
                            u_re, u_im = factor[k], factor[k + uint64(1)]
                            if whole_kernel:
                                u_re, u_im = u_re * v_re - u_im * v_im, u_re * v_im + u_im * v_re
                            for s in range(n_plane):
                                k = (b * m_x + a) * n_sum + 2 * s
                                # Times the conjugate of the kernel in u: gridding is the adjoint of
                                # degridding.
                                sums[k] += t[2 * s] * u_re
                                sums[k] += t[2 * s + 1] * u_im
                                sums[k + 1] += t[2 * s + 1] * u_re
                                sums[k + 1] -= t[2 * s] * u_im
            # Between the last read of a buffer and its next write: buffers are used in turn.
            cuda.syncthreads()
            batch += int32(1)
        if now_x != nowhere:
            flush(now_x, now_y, n_grid, fixed, sums, total)

    return grid


def _make_flush(kernel: Kernel) -> Compiled:
    """Function that adds a thread's sums to the cells of its block, and sets them to 0."""
    flush_from, remainder, real = _make_flush_from(kernel, 0), make_remainder(), kernel.real

    @device.inline
    def flush(x: Scalar, y: Scalar, n_grid: int, fixed: float, sums: Array, total: Array) -> None:
        flush_from(remainder(x, n_grid), remainder(y, n_grid), uint32(n_grid), real(fixed), sums, total)

    return flush


def _make_flush_from(kernel: Kernel, cell: int) -> Compiled:
    """Function that does so from a cell of the block on.

    One function for each cell, for a loop of so many statements would not be unrolled, and sums to which a
    loop's counter leads lie in memory.
    """
    real, n_plane, n_own = kernel.real, kernel.n_plane, kernel.shape.m_x * kernel.shape.m_y
    if cell == n_own:
        return device.inline(lambda x, y, n_grid, fixed, sums, total: None)
    b, a = divmod(cell, kernel.shape.m_x)
    rest, whole = _make_flush_from(kernel, cell + 1), _make_whole(kernel.single)

    @device.part
    def flush_from(
        x: Scalar, y: Scalar, n_grid: int, fixed: Scalar, sums: Array, total: Array
    ) -> None:  # fmt: skip
        row, column = y + uint32(b), x + uint32(a)
        row -= n_grid if row >= n_grid else uint32(0)
        column -= n_grid if column >= n_grid else uint32(0)
        offset = uint64(row) * uint64(n_grid) + uint64(column)
        for s in range(2 * n_plane):
            k = cell * 2 * n_plane + s
            # Integers: additions in any order give one result, unlike floating-point atomics.
            cuda.atomic.add(total, (offset, s), whole(sums[k] * fixed))
            sums[k] = real(0)
        rest(x, y, n_grid, fixed, sums, total)

    return flush_from


@functools.cache
def _make_whole(single: bool) -> Compiled:
    """Function that makes a number whole; roundings of float32 are far larger than what is cut off there."""
    if single:
        return device.inline(lambda number: int64(number))
    return device.inline(lambda number: int64(math.floor(number + 0.5)))


@functools.cache
def make_clear() -> DeviceKernel:
    """Kernel that makes all whole numbers 0."""

    @device.kernel(0)
    def clear(total: Array) -> None:
        i, n = cuda.grid(1), total.shape[1]
        while i < total.size:
            total[i // n, i % n] = 0
            i += cuda.gridsize(1)

    return clear


@functools.cache
def make_floats() -> DeviceKernel:
    """Kernel that makes numbers of a grid of whole ones, real and imaginary parts, plane by plane."""

    @device.kernel(0)
    def floats(unit: float, total: Array, grid: Array) -> None:
        i, n = cuda.grid(1), total.shape[1]
        while i < total.size:
            cell, part = i // n, i % n
            grid[part // 2, 2 * cell + part % 2] = total[cell, part] * unit
            i += cuda.gridsize(1)

    return floats
