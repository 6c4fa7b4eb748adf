"""The gridder on a GPU by tensor cores: an item's block stays in registers until all of it is summed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import float32, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Scalar
from rime_kernels.cuda.kernels.reductions import make_barrier
from rime_kernels.cuda.kernels.tiles import tensor_cores
from rime_kernels.gridding.cuda.items import FLIP, X, Y
from rime_kernels.wprojection.cuda.block_terms import AxisStaging, make_evaluate_block, numbers_of, stage_v
from rime_kernels.wprojection.cuda.blocks import (
    N_KEPT,
    N_STAGE,
    UNIT,
    WARP,
    BlockKernel,
    make_product,
    registers,
)
from rime_kernels.wprojection.cuda.parts import (
    N_NUMBER,
    N_PLACE,
    ItemRows,
    LayerNumbers,
    Staged,
    make_locate,
    make_put_block,
    make_remainder,
    make_share,
    make_wrap,
)

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# Numbers of a tile of 16 x 8 cells that a thread has, real and imaginary parts; the most of all its tiles.
_TILE, _MOST_SUMS = 2 * tensor_cores.N_OWN, 96
# Registers that a thread needs beside these, and the fewest that hold its kernels.
_MORE_REGISTERS, _LEAST_REGISTERS = 72, 96


@dataclass(frozen=True)
class GridKernel(BlockKernel):
    """A warp has some columns of tiles, whole ones, of the block and its planes side by side."""

    @property
    def n_tile_row(self) -> int:
        """Tiles of a column."""
        return self.block // tensor_cores.N_ROW

    @property
    def n_column(self) -> int:
        """Columns of tiles of a warp; there are two warps or more, for kernels in u and in v."""
        n = self.n_plane * self.block // tensor_cores.N_COLUMN
        most = max(1, min(_MOST_SUMS // (_TILE * self.n_tile_row), n // 2))
        return max(k for k in range(1, most + 1) if n % k == 0)

    @property
    def n_thread(self) -> int:
        return WARP * (self.n_plane * self.block // tensor_cores.N_COLUMN // self.n_column)

    @property
    def n_pair(self) -> int:
        """Pairs of a batch: kernels in v, and those in u times what is added to planes.

        Sums of a row of tiles, which lie in the same memory later, take less.
        """
        return self.n_left * (1 + self.n_plane)

    @property
    def pitch_row(self) -> int:
        """Numbers from one row of cells to the next, where sums lie that are to be added to the grid."""
        return 2 * self.n_plane * self.block + 8

    @property
    def max_register(self) -> int:
        """Registers of a thread: for its sums and some more."""
        wanted = _TILE * self.n_tile_row * self.n_column + _MORE_REGISTERS
        return registers(self.n_thread, max(_LEAST_REGISTERS, wanted))


@functools.cache
def make_block_grid(kernel: GridKernel) -> DeviceKernel:
    """The kernel: adds the visibilities of items to whole numbers, as `cells.make_grid` does.

    What is added is multiplied by `unit` as it is staged, and sums by `fixed` as they become whole numbers.
    """
    real, n_plane, n_thread = kernel.real, kernel.n_plane, kernel.n_thread
    n_pair, n_sum, of_x, of_y = kernel.n_pair, 2 * kernel.n_plane, _stage_x(kernel), _stage_y(kernel)
    n_own, before = _TILE * kernel.n_tile_row * kernel.n_column, kernel.before
    n_place, n_share, n_left_own = N_KEPT * N_STAGE, 2 * N_STAGE, 8 * kernel.n_tile_row
    locate, share_of = make_locate(kernel, make_put_block(before)), make_share(kernel)
    evaluate = make_evaluate_block(kernel, n_thread // WARP, of_x, of_y)
    n_number, n_word = numbers_of(kernel)
    add, flush, remainder = _make_add(kernel), _make_flush(kernel, 0), make_remainder()
    address = tensor_cores.make_address()

    @device.kernel(kernel.max_register, kernel.dynamic_bytes)
    def block_grid(
        layer: LayerNumbers, unit: float, fixed: float, rows: ItemRows, terms: Array, to_corr: Array,
        vis: Array, weight: Array, total: Array,
    ) -> None:  # fmt: skip
        place = cuda.shared.array((n_place, N_PLACE), int32)
        plane = cuda.shared.array(n_place, int32)
        number = cuda.shared.array((n_place, N_NUMBER), real)
        offset = cuda.shared.array(n_place, int64)
        staged = Staged(place, plane, number, offset)
        share = cuda.shared.array((n_share, n_sum), real)
        # The same memory: pairs, and when all are used, sums.
        pairs, shown = cuda.shared.array(0, uint32), cuda.shared.array(0, float32)
        sums, numbers = cuda.local.array(n_own, real), cuda.local.array(n_number, real)
        left, words = cuda.local.array(n_left_own, uint32), cuda.local.array(n_word, uint32)
        item, thread = int32(layer.first_item + cuda.blockIdx.x), int32(cuda.threadIdx.x)
        n_vis = int32(rows.start[item + 1] - rows.start[item])
        vis_before = rows.start[item] - int64(layer.first_vis)
        sign, by = real(1 - 2 * rows.items[item, FLIP]), real(unit)
        # Later warps have less to evaluate: the last one locates, those before it read what is added.
        in_locate = int32(n_thread - 1) - thread
        in_share = in_locate - int32(WARP) if in_locate >= int32(WARP) else in_locate + int32(n_thread - WARP)
        for k in range(n_own):
            sums[k] = real(0)
        n_batch, batch = (n_vis + int32(N_STAGE - 1)) // int32(N_STAGE), int32(0)
        while batch < n_batch + int32(3):
            base = batch * int32(N_STAGE)
            i = in_locate if batch % int32(2) == int32(0) else int32(2 * N_STAGE)  # two batches at once
            while i < min(int32(2 * N_STAGE), n_vis - base):
                kept = batch % int32(N_KEPT) * int32(N_STAGE)
                locate(kept + i, base + i, item, vis_before, layer, rows, staged)
                i += int32(n_thread)
            # ---- of the batch before this one: what it adds to each plane
            base -= int32(N_STAGE)
            i = in_share
            while base >= int32(0) and i < int32(N_STAGE * n_plane):
                row, s = i // int32(n_plane), i % int32(n_plane)
                j = (batch - int32(1)) % int32(N_KEPT) * int32(N_STAGE) + row
                re = im = real(0)  # of what is not there
                if row < n_vis - base:
                    re, im = share_of(j, s, sign, staged, vis, weight, to_corr)
                row += (batch - int32(1)) % int32(2) * int32(N_STAGE)
                share[row, 2 * s], share[row, 2 * s + 1] = by * re, by * im
                i += int32(n_thread)
            # ---- of the one before that: kernels
            base -= int32(N_STAGE)
            half = uint32(batch % int32(2))
            if base >= int32(0) and base < n_vis:
                evaluate(
                    thread, (batch - int32(2)) % int32(N_KEPT) * int32(N_STAGE),
                    min(int32(N_STAGE), n_vis - base), terms, staged, numbers, words,
                    (address(pairs) + uint32(8 * n_pair) * half, half * uint32(N_STAGE), share),
                )  # fmt: skip
            # ---- of the one before that: sums
            if base >= int32(N_STAGE):
                add(thread, (uint32(1) - half) * uint32(n_pair), pairs, left, sums)
            cuda.syncthreads()
            batch += int32(1)
        x = remainder(rows.items[item, X] - int32(before), layer.n_grid)
        y = remainder(rows.items[item, Y] - int32(before), layer.n_grid)
        flush(thread, x, y, uint32(layer.n_grid), real(fixed), sums, shown, total)

    return block_grid


def _stage_y(kernel: GridKernel) -> AxisStaging:
    """Conjugate kernels in v, as `_make_add` reads them.

    Units of 16 bytes have cells g and g + 8 of a tile, of visibilities t and t + 4 of a step: all rounded, or
    what is left of them. Their order lets threads that read or write together do so in different banks.
    """
    n_of_step = kernel.n_tile_row * 8 * UNIT

    @device.inline
    def begin(row: int, cell: int, to: Any) -> Any:
        v = uint32(row & uint32(3))
        of_cell = uint32(uint32(16) * uint32(cell ^ uint32(uint32(2) * v)) + uint32(UNIT) * v)
        of_row = uint32(uint32((row << uint32(1)) & uint32(8)) + uint32(n_of_step) * uint32(row >> uint32(3)))
        return to[0] + uint32(of_cell + of_row)

    @device.inline
    def place_of(group: int) -> Scalar:
        of_tile = uint32(uint32(8 * UNIT) * uint32(group >> uint32(1)))
        return uint32(of_tile + uint32(4) * uint32(group & uint32(1)))

    return stage_v(1, True, begin, place_of)


def _stage_x(kernel: GridKernel) -> AxisStaging:
    """What a visibility adds to planes, times the conjugate of its kernel in u.

    Units have a cell of visibilities t and t + 4 of a step, rounded, and what is left of them; in the other
    order in the second step.
    """
    n_plane, split, store = kernel.n_plane, tensor_cores.make_split(), tensor_cores.make_store_pair()
    n_of_plane = kernel.block // tensor_cores.N_COLUMN * 4 * UNIT
    n_of_step, n_left = n_plane * n_of_plane, 8 * kernel.n_left

    @device.inline
    def begin(row: int, cell: int, to: Any) -> Any:
        v, of_step = uint32(row & uint32(3)), uint32(row >> uint32(3))
        place = uint32(uint32(16) * uint32(cell ^ uint32(uint32(2) * v)) + uint32(UNIT) * v)
        place = uint32(place + uint32(n_left) + uint32(row & uint32(4)) + uint32(n_of_step) * of_step)
        to_low = int32(int32(8) - int32(16) * int32(of_step))
        return to[0] + uint32(place + uint32(8) * of_step), to_low, to[2], uint32(to[1] + row)

    @device.inline
    def put(re: Scalar, im: Scalar, group: int, where: Any) -> None:
        of_group = uint32(uint32(4 * UNIT) * group)
        into, row = where[0] + of_group, where[3]
        into_low = into + where[1]
        for s in range(n_plane):
            of_re, of_im = where[2][row, 2 * s], where[2][row, 2 * s + 1]
            high, low = split(of_re * re + of_im * im, of_im * re - of_re * im)
            store(into + uint32(s * n_of_plane), high)
            store(into_low + uint32(s * n_of_plane), low)

    @device.inline
    def put_zero(group: int, where: Any) -> None:
        of_group = uint32(uint32(4 * UNIT) * group)
        into = where[0] + of_group
        into_low = into + where[1]
        for s in range(n_plane):
            store(into + uint32(s * n_of_plane), uint32(0))
            store(into_low + uint32(s * n_of_plane), uint32(0))

    return AxisStaging(1, begin, put, put_zero)


def _make_add(kernel: GridKernel) -> Compiled:
    """Function that adds the products of a batch to the sums of a thread; a warp calls it together."""
    n_row, n_column, n_left = kernel.n_tile_row, kernel.n_column, kernel.n_left
    n_of_step = kernel.n_plane * kernel.block // tensor_cores.N_COLUMN
    load, turn, product, address = (
        tensor_cores.make_load(True),
        tensor_cores.make_turn(True),
        make_product(),
        tensor_cores.make_address(),
    )

    @device.inline
    def add_tile(offset: int, k: int, left: Array, b_high: Any, b_low: Any, sums: Array) -> None:
        high = left[k], left[k + 1], left[k + 2], left[k + 3]
        low = left[k + 4], left[k + 5], left[k + 6], left[k + 7]
        c = product(high, low, b_high, b_low, (float32(0), float32(0), float32(0), float32(0)))
        sums[offset] += c[0]
        sums[offset + 1] += c[1]
        sums[offset + 2] += c[2]
        sums[offset + 3] += c[3]

    @device.inline
    def add_step(step: int, left_at: Scalar, right_at: Scalar, left: Array, sums: Array) -> None:
        for r in range(n_row):
            for k in range(2):
                a = load(left_at + uint32(4 * UNIT * ((step * n_row + r) * 2 + k)))
                offset = 8 * r + 4 * k
                left[offset], left[offset + 1], left[offset + 2], left[offset + 3] = a[0], a[1], a[2], a[3]
        for n in range(n_column):
            b = load(right_at + uint32(4 * UNIT * (step * n_of_step + n)))
            high, low = (b[2 * step], b[2 * step + 1]), (b[2 - 2 * step], b[3 - 2 * step])
            high_turned, low_turned = (turn(high[0]), turn(high[1])), (turn(low[0]), turn(low[1]))
            for r in range(n_row):
                offset = 8 * (n * n_row + r)
                add_tile(offset, 8 * r, left, high_turned, low_turned, sums)
                add_tile(offset + 4, 8 * r, left, high, low, sums)

    @device.part
    def add(thread: int, first: int, pairs: Array, left: Array, sums: Array) -> None:
        lane, warp = uint32(thread) % uint32(WARP), uint32(thread) // uint32(WARP)
        g, t = lane >> uint32(2), lane & uint32(3)
        left_at = address(pairs) + uint32(8) * first + uint32(16) * (uint32(8) * t + (g ^ (uint32(2) * t)))
        right_at = left_at + uint32(8 * n_left) + warp * uint32(4 * UNIT * n_column)
        add_step(0, left_at, right_at, left, sums)
        add_step(1, left_at, right_at, left, sums)

    return add


def _make_flush(kernel: GridKernel, row: int) -> Compiled:
    """Function that adds the sums of a block to cells of the grid, from a row of tiles on.

    (x, y) is the first cell of the block. Threads show their sums of a row of tiles, and then add those that
    lie side by side.
    """
    if row == kernel.n_tile_row:
        return device.inline(lambda thread, x, y, n_grid, fixed, sums, shown, total: None)
    rest, show, n_sum = _make_flush(kernel, row + 1), _make_show(kernel, row), 2 * kernel.n_plane
    barrier, wrap = make_barrier(), make_wrap()
    n_of_row, pitch_row, n_warp = n_sum * kernel.block, kernel.pitch_row, kernel.n_thread // WARP

    @device.part
    def add_shown(
        thread: int, x: Scalar, y: Scalar, n_grid: int, fixed: Scalar, shown: Array, total: Array
    ) -> None:
        lane, r = uint32(thread) % uint32(WARP), uint32(thread) // uint32(WARP)
        while r < uint32(tensor_cores.N_ROW):
            in_grid = wrap(y + uint32(row * tensor_cores.N_ROW) + r, n_grid)
            first, k = uint64(in_grid) * uint64(n_grid), lane
            while k < uint32(n_of_row):
                value = shown[r * uint32(pitch_row) + k]
                if value != float32(0):  # most cells that no kernel reaches
                    column = wrap(x + k // uint32(n_sum), n_grid)
                    cuda.atomic.add(total, (first + uint64(column), k % uint32(n_sum)), int64(value * fixed))
                k += uint32(WARP)
            r += uint32(n_warp)

    @device.inline
    def flush(
        thread: int, x: Scalar, y: Scalar, n_grid: int, fixed: Scalar, sums: Array, shown: Array,
        total: Array,
    ) -> None:  # fmt: skip
        show(thread, sums, shown)
        barrier()
        add_shown(thread, x, y, n_grid, fixed, shown, total)
        barrier()
        rest(thread, x, y, n_grid, fixed, sums, shown, total)

    return flush


def _make_show(kernel: GridKernel, row: int) -> Compiled:
    """Function that puts a thread's sums of a row of tiles where all can read them.

    Those of a cell lie together, real and imaginary parts plane by plane.
    """
    n_column, n_row, n_plane, pitch_row = (
        kernel.n_column, kernel.n_tile_row, kernel.n_plane, kernel.pitch_row,
    )  # fmt: skip
    n_of_plane = kernel.block // tensor_cores.N_COLUMN

    @device.part
    def show(thread: int, sums: Array, shown: Array) -> None:
        lane, warp = uint32(thread) % uint32(WARP), uint32(thread) // uint32(WARP)
        g, t = lane >> uint32(2), lane & uint32(3)
        for n in range(n_column):
            column = warp * uint32(n_column) + uint32(n)
            s, x = column // uint32(n_of_plane), column % uint32(n_of_plane) * uint32(8) + uint32(2) * t
            first = g * uint32(pitch_row) + x * uint32(2 * n_plane) + uint32(2) * s
            for q in range(4):
                into = first + uint32(q // 2 * 8 * pitch_row + q % 2 * 2 * n_plane)
                k = 8 * (n * n_row + row) + q
                shown[into], shown[into + uint32(1)] = -sums[k], sums[k + 4]

    return show
