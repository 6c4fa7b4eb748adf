"""The degridder on a GPU by tensor cores: an item's block of the grid stays in registers."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import complex64, float32, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Scalar
from rime_kernels.cuda.kernels.reductions import make_barrier, make_shuffle_xor, make_warp_reduce
from rime_kernels.cuda.kernels.tiles import tensor_cores
from rime_kernels.cuda.kernels.tiles.operands import make_scale
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
    make_wrap,
    make_write_vis,
)

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# The most words of a thread for its cells; registers that it needs beside those and its sums, and the fewest
# that hold its kernels.
_MOST_WORDS, _MORE_REGISTERS, _LEAST_REGISTERS = 96, 40, 72


@dataclass(frozen=True)
class DegridKernel(BlockKernel):
    """A warp has some columns of eight cells, whole ones of the block, in some planes."""

    @property
    def n_step(self) -> int:
        """Steps of eight cells along a column."""
        return self.block // 8

    @property
    def n_own_plane(self) -> int:
        """Planes of a warp."""
        most = max(1, _MOST_WORDS // (4 * self.n_step))
        return max(k for k in (1, 2, 4) if self.n_plane % k == 0 and k <= most)

    @property
    def n_column(self) -> int:
        """Columns of a warp in each of its planes, up to three, which read a kernel in v once.

        There are two warps or more, for kernels in u and in v.
        """
        most = _MOST_WORDS // (4 * self.n_step * self.n_own_plane)
        most = max(1, min(most, self.n_step * self.n_plane // self.n_own_plane // 2))
        return max(k for k in (1, 2, 3) if self.n_step % k == 0 and k <= most)

    @property
    def n_group(self) -> int:
        """Warps that have columns of the same plane."""
        return self.block // 8 // self.n_column

    @property
    def n_warp(self) -> int:
        return self.n_group * (self.n_plane // self.n_own_plane)

    @property
    def n_thread(self) -> int:
        return WARP * self.n_warp

    @property
    def n_tile(self) -> int:
        """Columns of a warp in all planes."""
        return self.n_column * self.n_own_plane

    @property
    def n_own(self) -> int:
        """Numbers of the cells of a thread, and words of their pairs, rounded and what is left."""
        return 4 * self.n_step * self.n_tile

    @property
    def pitch_x(self) -> int:
        """Complex numbers from one visibility to the next, of kernels in u: other banks for each."""
        return self.block + 1

    @property
    def n_pair(self) -> int:
        """Pairs of a batch, kernels in v, and complex numbers, those in u."""
        return self.n_left + N_STAGE * self.pitch_x

    @property
    def max_register(self) -> int:
        """Registers of a thread: for its cells, its sums and some more."""
        wanted = self.n_own + 8 * self.n_tile + _MORE_REGISTERS
        return registers(self.n_thread, max(_LEAST_REGISTERS, wanted))


@functools.cache
def make_block_degrid(kernel: DegridKernel) -> DeviceKernel:
    """The kernel: writes the visibilities of items, as `cells.make_degrid` does.

    `inverse` is what the scale of both kernels was multiplied by.
    """
    real, n_corr, n_thread = kernel.real, kernel.n_corr, kernel.n_thread
    n_pair, n_warp, n_value = kernel.n_pair, kernel.n_warp, 4 * kernel.n_own_plane
    n_own, n_sum, n_batch_sum = kernel.n_own, 8 * kernel.n_tile, n_warp * 8 * n_value
    before, n_place = kernel.before, N_KEPT * N_STAGE
    n_of_warp = 2 * n_batch_sum
    locate = make_locate(kernel, make_put_block(before))
    evaluate = make_evaluate_block(kernel, n_warp, _stage_x(kernel), _stage_y())
    n_number, n_word = numbers_of(kernel)
    write_vis, remainder = make_write_vis(kernel, _make_sum_of_groups(kernel)), make_remainder()
    load, multiply, warp_reduce = _make_load(kernel), _make_multiply(kernel), make_warp_reduce(n_value, 4)
    weigh, address = _make_weigh(kernel), tensor_cores.make_address()

    @device.kernel(kernel.max_register, kernel.dynamic_bytes)
    def block_degrid(
        layer: LayerNumbers, inverse: float, rows: ItemRows, terms: Array, to_corr: Array, grid: Array,
        vis: Array,
    ) -> None:  # fmt: skip
        place = cuda.shared.array((n_place, N_PLACE), int32)
        plane = cuda.shared.array(n_place, int32)
        number = cuda.shared.array((n_place, N_NUMBER), real)
        offset = cuda.shared.array(n_place, int64)
        staged = Staged(place, plane, number, offset)
        of_warp = cuda.shared.array(n_of_warp, real)
        # The same memory: pairs, and complex numbers behind them.
        pairs, of_x = cuda.shared.array(0, uint32), cuda.shared.array(0, complex64)
        raw, cells = cuda.local.array(n_own, real), cuda.local.array(n_own, uint32)
        sums, value = cuda.local.array(n_sum, real), cuda.local.array(n_value, real)
        numbers, words = cuda.local.array(n_number, real), cuda.local.array(n_word, uint32)
        item, thread = int32(layer.first_item + cuda.blockIdx.x), int32(cuda.threadIdx.x)
        n_vis = int32(rows.start[item + 1] - rows.start[item])
        vis_before = rows.start[item] - int64(layer.first_vis)
        sign = real(1 - 2 * rows.items[item, FLIP])
        # Later warps have less to evaluate: the last one locates, those before it write.
        in_locate = int32(n_thread - 1) - thread
        in_write = in_locate - int32(WARP) if in_locate >= int32(WARP) else in_locate + int32(n_thread - WARP)
        x = remainder(rows.items[item, X] - int32(before), layer.n_grid)
        y = remainder(rows.items[item, Y] - int32(before), layer.n_grid)
        # The block is read once for all visibilities of the item; its largest number sets the scale.
        by = load(thread, x, y, uint32(layer.n_grid), grid, raw, cells, of_warp) * real(inverse)
        n_batch, batch = (n_vis + int32(N_STAGE - 1)) // int32(N_STAGE), int32(0)
        while batch < n_batch + int32(3):
            base = batch * int32(N_STAGE)
            i = in_locate if batch % int32(2) == int32(0) else int32(2 * N_STAGE)  # two batches at once
            while i < min(int32(2 * N_STAGE), n_vis - base):
                kept = batch % int32(N_KEPT) * int32(N_STAGE)
                locate(kept + i, base + i, item, vis_before, layer, rows, staged)
                i += int32(n_thread)
            # ---- of the batch before this one: kernels
            base -= int32(N_STAGE)
            half = uint32(batch % int32(2))
            if base >= int32(0) and base < n_vis:
                evaluate(
                    thread, (batch - int32(1)) % int32(N_KEPT) * int32(N_STAGE),
                    min(int32(N_STAGE), n_vis - base), terms, staged, numbers, words,
                    (
                        address(pairs) + uint32(8 * n_pair) * (uint32(1) - half),
                        (uint32(1) - half) * uint32(n_pair), of_x,
                    ),
                )  # fmt: skip
            # ---- of the one before that: sums over the cells of a warp
            base -= int32(N_STAGE)
            # Sums over v by tensor cores; then a thread has columns, and sums over u by multiply-adds.
            if base >= int32(0) and base < n_vis:
                multiply(thread, half * uint32(n_pair), pairs, cells, sums)
                weigh(thread, half * uint32(n_pair), of_x, by, sums, value)
                group = uint32(thread) // uint32(4)
                warp_reduce(thread, value, of_warp, half * uint32(n_batch_sum) + group * uint32(n_value))
            # These sums lie in the other half than those that this round writes: one barrier is enough.
            # ---- of the one before that: sums over warps, and visibilities
            base -= int32(N_STAGE)
            i = in_write
            while base >= int32(0) and i < min(int32(N_STAGE), n_vis - base) * int32(n_corr):
                row, c = i // int32(n_corr), i % int32(n_corr)
                j = (batch - int32(3)) % int32(N_KEPT) * int32(N_STAGE) + row
                of = uint32(row), (uint32(1) - half) * uint32(n_batch_sum), of_warp
                write_vis(j, c, sign, to_corr, staged, of, vis)
                i += int32(n_thread)
            cuda.syncthreads()
            batch += int32(1)

    return block_degrid


def _stage_y() -> AxisStaging:
    """Kernels in v, as `_make_multiply` reads them.

    Units of 16 bytes have cells t and t + 4 of a step, of visibilities g and g + 8: all rounded, or what is
    left of them. Their order lets threads that read or write together do so in different banks.
    """
    unit_of = _make_unit_of()

    @device.inline
    def begin(row: int, cell: int, to: Any) -> Any:
        of_unit = unit_of(uint32(row & uint32(7)), uint32(cell & uint32(3)))
        of_pair = uint32(uint32((cell << uint32(1)) & uint32(8)) + uint32((row >> uint32(1)) & uint32(4)))
        return to[0] + uint32(uint32(16) * of_unit + of_pair)

    return stage_v(2, False, begin, device.inline(lambda group: uint32(uint32(8 * UNIT) * group)))


def _stage_x(kernel: DegridKernel) -> AxisStaging:
    """Kernels in u."""
    n_left, pitch_x = kernel.n_left, kernel.pitch_x

    @device.inline
    def begin(row: int, cell: int, to: Any) -> Any:
        return uint32(to[1] + uint32(n_left) + row * uint32(pitch_x) + cell), to[2]

    @device.inline
    def put(re: Scalar, im: Scalar, group: int, where: Any) -> None:
        where[1][uint32(where[0] + uint32(8) * group)] = complex64(complex(re, im))

    @device.inline
    def put_zero(group: int, where: Any) -> None:
        where[1][uint32(where[0] + uint32(8) * group)] = complex64(0)

    return AxisStaging(2, begin, put, put_zero)


@functools.cache
def _make_unit_of() -> Compiled:
    """Function that says which unit of a step thread 4 g + t of a warp reads."""

    @device.inline
    def unit_of(g: Scalar, t: Scalar) -> Scalar:
        # Eight threads that read 16 bytes at a time cover all 32 banks once, in this order.
        return uint32(uint32(8) * (g >> uint32(1)) + (t ^ (g & uint32(2))) + uint32(4) * (g & uint32(1)))

    return unit_of


def _make_load(kernel: DegridKernel) -> Compiled:
    """Function that reads the cells of a thread, scaled by a power of two; gives what undoes that.

    (x, y) is the first cell of the block; `shown` is memory for a number of each warp.
    """
    read, swapped, scale, barrier = _make_read(kernel), make_shuffle_xor(), make_scale(True), make_barrier()
    n_own, n_warp, split_raw = kernel.n_own, kernel.n_warp, _make_split_raw(kernel)

    @device.inline
    def load(
        thread: int, x: Scalar, y: Scalar, n_grid: int, grid: Array, raw: Array, cells: Array,
        shown: Array,
    ) -> Scalar:  # fmt: skip
        read(thread, x, y, n_grid, grid, raw)
        most = float32(0)
        for k in range(n_own):
            most = max(most, abs(raw[k]))
        # The largest number of a warp by a butterfly, of the block through shared memory.
        most = max(most, swapped(most, 1))
        most = max(most, swapped(most, 2))
        most = max(most, swapped(most, 4))
        most = max(most, swapped(most, 8))
        most = max(most, swapped(most, 16))
        shown[uint32(thread) // uint32(WARP)] = most
        barrier()
        for other in range(n_warp):
            most = max(most, shown[other])
        barrier()  # `shown` is written again later
        # Half precision ends at 65504 and loses digits below 6e-5: cells are brought to 2^10 .. 2^11.
        by, inverse = scale(most)
        split_raw(by, raw, cells)
        return inverse

    return load


def _make_read(kernel: DegridKernel) -> Compiled:
    """Function that reads cells: t and t + 4 of each step of column g, real and imaginary parts."""
    n_each, n_group, n_tile = 2 * kernel.n_step, kernel.n_group, kernel.n_tile
    n_own_plane, n_column, wrap = kernel.n_own_plane, kernel.n_column, make_wrap()

    @device.part
    def read(thread: int, x: Scalar, y: Scalar, n_grid: int, grid: Array, raw: Array) -> None:
        lane, warp = uint32(thread) % uint32(WARP), uint32(thread) // uint32(WARP)
        g, t = lane >> uint32(2), lane & uint32(3)
        first_column = uint32(8 * n_column) * (warp % uint32(n_group))
        first_plane = uint32(n_own_plane) * (warp // uint32(n_group))
        for n in range(n_tile):
            s, of_tile = first_plane + uint32(n % n_own_plane), first_column + uint32(8 * (n // n_own_plane))
            for k in range(n_each):
                row, column = wrap(y + t + uint32(4 * k), n_grid), wrap(x + of_tile + g, n_grid)
                # The grid is periodic: a block may lie across its edge.
                offset = (uint64(s) * uint64(n_grid) + uint64(row)) * uint64(n_grid) + uint64(column)
                z = grid[offset]
                raw[2 * (n * n_each + k)], raw[2 * (n * n_each + k) + 1] = z.real, z.imag

    return read


def _make_split_raw(kernel: DegridKernel) -> Compiled:
    """Function that makes packed pairs of numbers that were read, times a power of two.

    Of each step cells t and t + 4 rounded, then what is left of them.
    """
    n_unit, split = kernel.n_tile * kernel.n_step, tensor_cores.make_split()

    @device.inline
    def split_raw(by: Scalar, raw: Array, cells: Array) -> None:
        for k in range(n_unit):
            a = split(by * raw[4 * k], by * raw[4 * k + 1])
            b = split(by * raw[4 * k + 2], by * raw[4 * k + 3])
            cells[4 * k], cells[4 * k + 1], cells[4 * k + 2], cells[4 * k + 3] = a[0], b[0], a[1], b[1]

    return split_raw


def _make_multiply(kernel: DegridKernel) -> Compiled:
    """Function that makes the sums over v of a batch: visibilities g and g + 8 of columns 2 t and 2 t + 1.

    Real parts of a tile of 16 visibilities and eight columns, then imaginary parts.
    """
    n_tile, n_step = kernel.n_tile, kernel.n_step
    load, turn, product = tensor_cores.make_load(True), tensor_cores.make_turn(True), make_product()
    address, unit_of = tensor_cores.make_address(), _make_unit_of()

    @device.inline
    def add_tile(offset: int, high: Any, low: Any, b_high: Any, b_low: Any, sums: Array) -> None:
        c = product(
            high, low, b_high, b_low, (sums[offset], sums[offset + 1], sums[offset + 2], sums[offset + 3])
        )
        sums[offset], sums[offset + 1], sums[offset + 2], sums[offset + 3] = c[0], c[1], c[2], c[3]

    @device.part
    def multiply(thread: int, first: int, pairs: Array, cells: Array, sums: Array) -> None:
        lane = uint32(thread) % uint32(WARP)
        offset = address(pairs) + uint32(8) * first
        offset += uint32(16) * unit_of(lane >> uint32(2), lane & uint32(3))
        for k in range(8 * n_tile):
            sums[k] = float32(0)
        for step in range(n_step):
            high = load(offset + uint32(8 * UNIT * step))
            low = load(offset + uint32(8 * UNIT * step + 4 * UNIT))
            # Pairs hold (im, re): turned to (re, -im) they give real parts, as they are imaginary parts.
            high_turned = turn(high[0]), turn(high[1]), turn(high[2]), turn(high[3])
            low_turned = turn(low[0]), turn(low[1]), turn(low[2]), turn(low[3])
            for n in range(n_tile):
                k = 4 * (n * n_step + step)
                b_high, b_low = (cells[k], cells[k + 1]), (cells[k + 2], cells[k + 3])
                add_tile(8 * n, high_turned, low_turned, b_high, b_low, sums)
                add_tile(8 * n + 4, high, low, b_high, b_low, sums)

    return multiply


def _make_weigh(kernel: DegridKernel) -> Compiled:
    """Function that sums over a thread's columns of each plane, times kernels in u, and `by`.

    Of visibility g: real and imaginary parts plane by plane; then of g + 8.
    """
    n_own_plane, n_column, n_group = kernel.n_own_plane, kernel.n_column, kernel.n_group
    n_left, pitch_x = kernel.n_left, kernel.pitch_x

    @device.part
    def weigh(thread: int, first: int, of_x: Array, by: Scalar, sums: Array, value: Array) -> None:
        lane, warp = uint32(thread) % uint32(WARP), uint32(thread) // uint32(WARP)
        offset = (
            first + uint32(n_left) + (lane >> uint32(2)) * uint32(pitch_x) + uint32(2) * (lane & uint32(3))
        )
        offset += uint32(8 * n_column) * (warp % uint32(n_group))
        for k in range(4 * n_own_plane):
            value[k] = float32(0)
        for m in range(n_column):
            for q in range(4):
                # Of the result a thread has columns 2 t and 2 t + 1 of visibilities g and g + 8.
                u = of_x[offset + uint32(8 * m + q // 2 * 8 * pitch_x + q % 2)]
                for s in range(n_own_plane):
                    k, into = 8 * (m * n_own_plane + s) + q, 2 * (q // 2 * n_own_plane + s)
                    value[into] += sums[k] * u.real
                    value[into] -= sums[k + 4] * u.imag
                    value[into + 1] += sums[k + 4] * u.real
                    value[into + 1] += sums[k] * u.imag
        for k in range(4 * n_own_plane):
            value[k] *= by

    return weigh


def _make_sum_of_groups(kernel: DegridKernel) -> Compiled:
    """Function that adds up the sums of the warps that have columns of a plane, for visibility `row`."""
    real, n_group, n_own_plane = kernel.real, kernel.n_group, kernel.n_own_plane
    n_value = 4 * n_own_plane

    @device.inline
    def sum_of_groups(s: int, of: Any) -> tuple[Scalar, Scalar]:
        row, first, of_warp = of
        k = first + (row & uint32(7)) * uint32(n_value) + (row >> uint32(3)) * uint32(2 * n_own_plane)
        k += uint32(s // n_own_plane * n_group * 8 * n_value + 2 * (s % n_own_plane))
        sum_re = sum_im = real(0)
        # In the order of warps, so that results repeat to the bit.
        for other in range(n_group):
            sum_re += of_warp[k + uint32(8 * n_value * other)]
            sum_im += of_warp[k + uint32(8 * n_value * other + 1)]
        return sum_re, sum_im

    return sum_of_groups
