"""The gridder and the degridder on a GPU by threads that own cells, which they keep in registers.

A thread of the gridder sums in registers, and adds to the grid when its cells move on; one of the degridder
reads its cells when they move on, and sums visibilities over lanes.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Scalar
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
    ItemRows,
    Kernel,
    LayerNumbers,
    Staged,
    make_evaluate,
    make_locate,
    make_put_bins,
    make_remainder,
    make_share,
    make_wrap,
    make_write_vis,
)

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# Values of the degridder that go over the lanes together, of one visibility or several: so many cost little
# more than one.
_VALUES = 8


def make_grid(kernel: Kernel) -> DeviceKernel:
    """The kernel that adds the visibilities of items to whole numbers, `fixed` times the cells of the grid.

    `grid` has (G^2, 2 n_plane) of them: those of a cell lie together. Sums of whole numbers do not depend on
    their order, so that results repeat to the bit; a thread's own sums, in working precision, have a fixed
    order.
    """
    return _make_kernel(kernel, True)


def make_degrid(kernel: Kernel) -> DeviceKernel:
    """The kernel that writes the visibilities of items, from the cells of `grid`; without weights.

    Of one visibility or several, each thread sums its own cells; the lanes of a warp join their sums by a
    butterfly, and the warps theirs in shared memory: always in the same order.
    """
    return _make_kernel(kernel, False)


@functools.cache
def _make_kernel(kernel: Kernel, grids: bool) -> DeviceKernel:
    real, n_plane, n_corr, shape = kernel.real, kernel.n_plane, kernel.n_corr, kernel.shape
    m_x, m_y, n_stage, bin_x, bin_y = shape.m_x, shape.m_y, shape.n_stage, kernel.bin_x, kernel.bin_y
    n_x, n_y, n_sum, n_cell = kernel.n_x, kernel.n_y, 2 * n_plane, kernel.n_cell
    n_own, n_thread, n_warp = m_x * m_y * 2 * n_plane, kernel.n_thread, kernel.n_thread // LANES
    n_each, n_together = values_of(n_plane), 1 if grids else _VALUES // values_of(n_plane)
    # Names: Numba takes no product as the size of a shared array. One place more is read, and not used.
    n_place, n_share, n_factor = N_KEPT * n_stage + 1, 2 * n_stage, 2 * n_stage * n_cell * 2
    n_batch_sum, n_of_warp = n_stage * n_warp * n_each, 2 * n_stage * n_warp * n_each
    n_step, nowhere = 2 if grids else 3, NOWHERE
    locate, evaluate = make_locate(kernel, make_put_bins(kernel)), make_evaluate(kernel)
    share_of, write_vis = make_share(kernel), make_write_vis(kernel, _make_sum_of_warps(kernel))
    flush, load, remainder = _make_flush(kernel), _make_load(kernel), make_remainder()
    add, sum_cells = _make_add(kernel), _make_sum_cells(kernel)
    warp_reduce = make_warp_reduce(_VALUES, LANES)

    @device.kernel(kernel.max_register)
    def own_cells(
        layer: LayerNumbers, fixed: float, rows: ItemRows, terms: Array, to_corr: Array, vis: Array,
        weight: Array, grid: Array,
    ) -> None:  # fmt: skip
        place = cuda.shared.array((n_place, N_PLACE), int32)
        plane = cuda.shared.array(n_place, int32)
        number = cuda.shared.array((n_place, N_NUMBER), real)
        offset = cuda.shared.array(n_place, int64)
        staged = Staged(place, plane, number, offset)
        factor = cuda.shared.array(n_factor, real)
        cells, numbers = cuda.local.array(n_own, real), cuda.local.array(N_OWN, real)
        t = cuda.local.array(n_sum, real)
        if grids:
            share = cuda.shared.array((n_share, n_sum), real)
            for k in range(n_own):
                cells[k] = real(0)
        else:
            of_warp = cuda.shared.array(n_of_warp, real)
            value = cuda.local.array(_VALUES, real)
        item, thread = int32(layer.first_item + cuda.blockIdx.x), int32(cuda.threadIdx.x)
        # A thread owns a block of m_x m_y cells at each place of a bin: whatever a kernel's place, each
        # thread has one block of it, and no two threads the same cell.
        my_x, my_y = (thread % int32(n_x)) * int32(m_x), (thread // int32(n_x)) * int32(m_y)
        is_mine, warp = thread < int32(n_x * n_y), thread // int32(LANES)
        at_x, at_y = thread % int32(n_x), my_y + int32(bin_x)
        n_vis = int32(rows.start[item + 1] - rows.start[item])
        before = rows.start[item] - int64(layer.first_vis)
        sign = real(1 - 2 * rows.items[item, FLIP])
        now_x = now_y = last_x = last_y = int32(nowhere)
        n_batch, batch = (n_vis + int32(n_stage - 1)) // int32(n_stage), int32(0)
        # A pipeline in one loop: while one batch is located, the kernels of the one before are evaluated, the
        # one before that is summed, and by the degridder one more is written. So one barrier a round is
        # enough.
        while batch < n_batch + int32(n_step):
            base = batch * int32(n_stage)
            i = thread
            while i < min(int32(n_stage), n_vis - base):
                kept = batch % int32(N_KEPT) * int32(n_stage)
                locate(kept + i, base + i, item, before, layer, rows, staged)
                i += int32(n_thread)
            # ---- of the batch before this one: kernels, and what it adds to each plane
            base -= int32(n_stage)
            if base >= int32(0) and base < n_vis:
                n, half = min(int32(n_stage), n_vis - base), (batch - int32(1)) % int32(2)
                kept = (batch - int32(1)) % int32(N_KEPT) * int32(n_stage)
                evaluate(thread, kept, n, terms, staged, numbers, half * int32(2 * n_stage * n_cell), factor)
                if grids:
                    i = thread
                    while i < n * int32(n_plane):
                        j, s = kept + i // int32(n_plane), i % int32(n_plane)
                        re, im = share_of(j, s, sign, staged, vis, weight, to_corr)
                        k = half * int32(n_stage) + i // int32(n_plane)
                        share[k, 2 * s], share[k, 2 * s + 1] = re, im
                        i += int32(n_thread)
            # ---- of the one before that: sums over the cells of a thread
            base -= int32(n_stage)
            if base >= int32(0) and base < n_vis:
                n, half = uint64(min(int32(n_stage), n_vis - base)), uint64(batch % int32(2))
                if grids and not is_mine:
                    n = uint64(0)
                kept = uint64((batch - int32(2)) % int32(N_KEPT)) * uint64(n_stage)
                next_x, next_y = place[kept, FIRST_X], place[kept, FIRST_Y]
                first = uint64(0)
                while first < n:
                    if not grids:
                        for k in range(_VALUES):
                            value[k] = real(0)
                    for q in range(n_together):
                        i = first + uint64(q)
                        first_x, first_y = next_x, next_y
                        kept += uint64(1)
                        next_x, next_y = place[kept, FIRST_X], place[kept, FIRST_Y]
                        if grids or (is_mine and i < n):
                            # Visibilities are sorted: often the kernel begins where the last one did, and
                            # nothing moves.
                            if first_x != last_x or first_y != last_y:
                                last_x, last_y = first_x, first_y
                                x = last_x + int32(remainder(my_x - last_x, bin_x))
                                y = last_y + int32(remainder(my_y - last_y, bin_y))
                                if x != now_x or y != now_y:
                                    # The cells of this thread move on: what it has summed goes to memory,
                                    # once for many visibilities, or what it sums comes from there.
                                    if not grids:
                                        load(x, y, layer.n_grid, grid, cells)
                                    elif now_x != nowhere:
                                        flush(now_x, now_y, layer.n_grid, fixed, cells, grid)
                                    now_x, now_y = x, y
                            i += half * uint64(n_stage)
                            of_vis = i * uint64(2 * n_cell)
                            of_u, of_v = of_vis + uint64(2 * at_x), of_vis + uint64(2 * at_y)
                            if grids:
                                add(i, of_u, of_v, factor, share, t, cells)
                            else:
                                sum_cells(q * n_each, of_u, of_v, factor, cells, t, value)
                    if not grids:
                        into = half * uint64(n_batch_sum)
                        into += (uint64(warp) * uint64(n_stage) + first) * uint64(n_each)
                        warp_reduce(thread, value, of_warp, into)
                    first += uint64(n_together)
            # ---- of the one before that: sums over warps, and visibilities
            base -= int32(n_stage)
            if not grids:
                i = thread
                while base >= int32(0) and i < min(int32(n_stage), n_vis - base) * int32(n_corr):
                    j, c = i // int32(n_corr), i % int32(n_corr)
                    first_sum = (batch - int32(1)) % int32(2) * int32(n_batch_sum) + j * int32(n_each)
                    j += (batch - int32(3)) % int32(N_KEPT) * int32(n_stage)
                    write_vis(j, c, sign, to_corr, staged, (uint32(first_sum), of_warp), vis)
                    i += int32(n_thread)
            # Between the last read of a buffer and its next write: buffers are used in turn.
            cuda.syncthreads()
            batch += int32(1)
        if grids and now_x != nowhere:
            flush(now_x, now_y, layer.n_grid, fixed, cells, grid)

    return own_cells


def _make_add(kernel: Kernel) -> Compiled:
    """Function that adds what visibility i adds to each plane, times its kernels, to a thread's cells.

    Two orders of multiplication: (kernel u times v) times shares, or shares times v, then times u. Which is
    less work depends on the number of planes and cells. `t` is room for the shares of a row of cells.
    """
    m_x, m_y, n_x, n_plane, whole = (
        kernel.shape.m_x, kernel.shape.m_y, kernel.n_x, kernel.n_plane, kernel.shape.whole_kernel,
    )  # fmt: skip

    @device.inline
    def add(
        i: Scalar, of_u: Scalar, of_v: Scalar, factor: Array, share: Array, t: Array, cells: Array
    ) -> None:
        if whole:
            for s in range(2 * n_plane):
                t[s] = share[i, s]
        for b in range(m_y):
            k = of_v + uint64(2 * b)
            v_re, v_im = factor[k], factor[k + uint64(1)]
            if not whole:
                for s in range(n_plane):
                    re, im = share[i, 2 * s], share[i, 2 * s + 1]
                    t[2 * s] = re * v_re + im * v_im
                    t[2 * s + 1] = im * v_re - re * v_im
            for a in range(m_x):
                k = of_u + uint64(2 * a * n_x)
                u_re, u_im = factor[k], factor[k + uint64(1)]
                if whole:
                    u_re, u_im = u_re * v_re - u_im * v_im, u_re * v_im + u_im * v_re
                for s in range(n_plane):
                    k = 2 * ((b * m_x + a) * n_plane + s)
                    # Times the conjugate of the kernel in u: gridding is the adjoint of degridding.
                    cells[k] += t[2 * s] * u_re
                    cells[k] += t[2 * s + 1] * u_im
                    cells[k + 1] += t[2 * s + 1] * u_re
                    cells[k + 1] -= t[2 * s] * u_im

    return add


def _make_add_product(n_plane: int) -> Compiled:
    """Function that adds planes, from `first` on, times a factor to sums from `into` on."""

    @device.inline
    def add_product(first: int, planes: Array, re: Scalar, im: Scalar, into: int, sums: Array) -> None:
        for s in range(n_plane):
            z, k = first + 2 * s, into + 2 * s
            sums[k] += planes[z] * re
            sums[k] -= planes[z + 1] * im
            sums[k + 1] += planes[z] * im
            sums[k + 1] += planes[z + 1] * re

    return add_product


def _make_sum_cells(kernel: Kernel) -> Compiled:
    """Function that sums a thread's cells times the kernels of a visibility; the orders are those of `add`.

    `value` gets the sums of planes from `into` on; `t` is room for those of a row of cells.
    """
    m_x, m_y, n_x, n_sum, whole = (
        kernel.shape.m_x, kernel.shape.m_y, kernel.n_x, 2 * kernel.n_plane, kernel.shape.whole_kernel,
    )  # fmt: skip
    add_product, real = _make_add_product(kernel.n_plane), kernel.real

    @device.inline
    def sum_cells(
        into: int, of_u: Scalar, of_v: Scalar, factor: Array, cells: Array, t: Array, value: Array
    ) -> None:
        for b in range(m_y):
            k = of_v + uint64(2 * b)
            v_re, v_im = factor[k], factor[k + uint64(1)]
            if not whole:
                for k in range(n_sum):
                    t[k] = real(0)
            for a in range(m_x):
                k = of_u + uint64(2 * a * n_x)
                u_re, u_im = factor[k], factor[k + uint64(1)]
                if whole:
                    u_re, u_im = u_re * v_re - u_im * v_im, u_re * v_im + u_im * v_re
                    add_product((b * m_x + a) * n_sum, cells, u_re, u_im, into, value)
                else:
                    add_product((b * m_x + a) * n_sum, cells, u_re, u_im, 0, t)
            if not whole:
                add_product(0, t, v_re, v_im, into, value)

    return sum_cells


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


def _make_over_block(kernel: Kernel, at_cell: Compiled, cell: int = 0) -> Compiled:
    """Function that does something at the cells of a thread's block, from a cell on.

    `at_cell(cell, offset, n_grid, own, of)` gets the number of a cell in the block, its place in the grid,
    what the thread has of all cells, and what `of` says. One function for each cell, for a loop of so many
    statements would not be unrolled, and numbers to which a loop's counter leads lie in memory.
    """
    if cell == kernel.shape.m_x * kernel.shape.m_y:
        return device.inline(lambda x, y, n_grid, own, of: None)
    (b, a), wrap = divmod(cell, kernel.shape.m_x), make_wrap()
    rest = _make_over_block(kernel, at_cell, cell + 1)

    @device.part
    def over_block(x: Scalar, y: Scalar, n_grid: int, own: Array, of: Any) -> None:
        row, column = wrap(y + uint32(b), n_grid), wrap(x + uint32(a), n_grid)
        at_cell(cell, uint64(row) * uint64(n_grid) + uint64(column), n_grid, own, of)
        rest(x, y, n_grid, own, of)

    return over_block


def _make_flush(kernel: Kernel) -> Compiled:
    """Function that adds a thread's sums to the cells of its block, and sets them to 0."""
    real, n_sum = kernel.real, 2 * kernel.n_plane
    whole, remainder = _make_whole(kernel.single), make_remainder()

    @device.inline
    def add(cell: int, offset: Scalar, n_grid: Scalar, sums: Array, of: Any) -> None:
        for s in range(n_sum):
            k = cell * n_sum + s
            # Integers: additions in any order give one result, unlike floating-point atomics.
            cuda.atomic.add(of[1], (offset, s), whole(sums[k] * of[0]))
            sums[k] = real(0)

    over_block = _make_over_block(kernel, add)

    @device.inline
    def flush(x: Scalar, y: Scalar, n_grid: int, fixed: float, sums: Array, total: Array) -> None:
        over_block(remainder(x, n_grid), remainder(y, n_grid), uint32(n_grid), sums, (real(fixed), total))

    return flush


def _make_load(kernel: Kernel) -> Compiled:
    """Function that reads the cells of a thread's block."""
    n_plane, remainder = kernel.n_plane, make_remainder()

    @device.inline
    def read(cell: int, offset: Scalar, n_grid: Scalar, cells: Array, grid: Array) -> None:
        for s in range(n_plane):
            k, z = (cell * n_plane + s) * 2, grid[offset]
            cells[k], cells[k + 1] = z.real, z.imag
            offset += uint64(n_grid) * uint64(n_grid)

    over_block = _make_over_block(kernel, read)

    @device.inline
    def load(x: Scalar, y: Scalar, n_grid: int, grid: Array, cells: Array) -> None:
        over_block(remainder(x, n_grid), remainder(y, n_grid), uint32(n_grid), cells, grid)

    return load


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
