"""Matrices of weighted residuals: one kernel with tensor cores leaves them, another one multiplies by them.

R^S_pq is the weighted residual of Stokes parameter S for antennas p and q, and conj(R^S_qp) where the row has
them in the other order. With a_ps what source s is to antenna p, and T^S_ps = sum_q R^S_pq a_qs,

    sum over baselines of Re(conj(P) R^S) = sum_p Re(conj(a_ps) T^S_ps) / 2,
    sum over baselines of Im(conj(P) R^S) (u_p - u_q) = sum_p u_p Im(conj(a_ps) T^S_ps),

where P = a_ps conj(a_qs), and the matrix has R + R^H of the residuals that there are: of an autocorrelation
twice the real part. So the work for each baseline and source is a product of matrices.

A warp has 16 rows of one matrix, in registers: thread 4 g + t has antennas 2 g and 2 g + 1 of them, and of
each eight columns, a step, those of antennas 2 t and 2 t + 1. That is the tile of the same thread where the
residual was made, or the conjugate of the one on the other side of the diagonal.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float32, float64, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.moments import Moments
from rime_kernels.cuda.kernels.reductions import make_shuffle_xor
from rime_kernels.cuda.kernels.tiles import tensor_cores
from rime_kernels.cuda.kernels.tiles.operands import make_scale
from rime_kernels.cuda.kernels.tiles.parts import Tile, TileBlock, TileKernel, TileTables
from rime_kernels.inputs import Variant

# Numbers of a thread in a step: real parts of two antennas with two others, then imaginary parts.
N_STEP = 8
# Antennas on a side of the tiles of tensor cores, and numbers of a tile in each matrix and part.
SIDE, N_TILE = 2, 4


@dataclass(frozen=True)
class TensorCoreAdjointKernel:
    """All that the kernel is compiled for in which sources accumulate gradients by tensor cores
    (`tensor_core_adjoint`).

    Attributes
    ----------
    variant : Variant
        That of the kernel which left the residuals.
    n_slot, n_tile : int
        Slots of antennas, a multiple of 16, and tiles of that kernel.
    n_parameter : int
        Stokes parameters of a block, of which a warp has 16 rows of one matrix.
    chunk : int
        Sources whose terms lie in shared memory together: a multiple of 8.
    max_register : int
    all_rows : bool
        See `TileKernel`.
    has_gaussian : bool
        Records have places for what Gaussians accumulate elsewhere.
    """

    variant: Variant
    n_slot: int
    n_tile: int
    n_parameter: int
    chunk: int
    max_register: int
    all_rows: bool
    has_gaussian: bool

    @property
    def n_rows(self) -> int:
        """Blocks of 16 rows of a matrix."""
        return self.n_slot // tensor_cores.N_ROW

    @property
    def n_step(self) -> int:
        return self.n_slot // tensor_cores.N_COLUMN

    @property
    def n_warp(self) -> int:
        """Warps of a block."""
        return self.n_parameter * self.n_rows

    @property
    def n_copy(self) -> int:
        """Blocks among which the Stokes parameters of an item are shared out."""
        return self.variant.n_stokes // self.n_parameter

    @property
    def n_own(self) -> int:
        """Numbers of the matrix that a thread has."""
        return N_STEP * self.n_step

    @property
    def plane_bytes(self) -> int:
        """Shared memory of one plane of the terms of a chunk."""
        return self.chunk // tensor_cores.N_COLUMN * 512

    @property
    def n_plane(self) -> int:
        return self.n_step if self.variant.single else 2 * self.n_step

    @property
    def dynamic_bytes(self) -> int:
        """Shared memory that a launch asks for: the terms of two chunks."""
        return 2 * self.n_plane * self.plane_bytes

    @property
    def record(self) -> Moments:
        """What a source leaves: that of all Stokes parameters, seen or not."""
        n_bright = 4 if self.variant.polarised else 1
        return Moments(n_bright, False, self.has_gaussian)


@functools.cache
def make_write_rest(kernel: TileKernel) -> Compiled:
    """Function that leaves the residuals of a thread's tile, which lie first among its sums."""
    n_part = 2 * kernel.variant.n_stokes * kernel.shape.side**2

    @device.inline
    def write_rest(block: TileBlock, tile: Tile, tables: TileTables, sums: Array, rest: Array) -> None:
        n_tile = uint32(tables.place.shape[3])
        offset = int64(tile.item) * int64(n_part) * int64(n_tile) + int64(tile.tile)
        for k in range(n_part):
            rest[block.b, offset] = sums[k]
            offset += int64(n_tile)

    return write_rest


@functools.cache
def make_read_rest(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function that reads what a thread has of the matrix of a Stokes parameter, into `own` (n_own,).

    `item` counts all of the slab and the batch, uint64. `first_tile` (n_rows n_step,) has the first tile of
    each 16 by 8 antennas, -1 where no rows are. The imaginary parts are negative, as products need them.
    """
    n_step, n_stokes, n_tile = kernel.n_step, kernel.variant.n_stokes, kernel.n_tile
    real = float32 if kernel.variant.single else float64

    @device.part
    def read_rest(
        item: Scalar, parameter: Scalar, rows: Scalar, lane: int, first_tile: Array, rest: Array,
        own: Array,
    ) -> None:  # fmt: skip
        row = uint32(uint32(8) * rows + (lane >> uint32(2)))
        of_item = (item * uint64(2 * n_stokes) + uint64(parameter)) * uint64(N_TILE * n_tile)
        # All loads come first, so that their waits overlap: a tile that is not there is read, but does not
        # count.
        for k in range(n_step):
            column = uint32(uint32(4 * k) + (lane & uint32(3)))
            first, second = min(row, column), max(row, column)
            start = first_tile[uint32((first >> uint32(3)) * uint32(n_step) + (second >> uint32(2)))]
            within = uint32(uint32(4) * uint32(first & uint32(7)) + uint32(second & uint32(3)))
            offset = of_item + uint64(uint32(max(start, int32(0))) + within)
            for c in range(N_TILE):
                own[N_STEP * k + c] = rest[offset + uint64(n_tile * c)]
                own[N_STEP * k + N_TILE + c] = rest[offset + uint64(n_tile * (c + N_TILE * n_stokes))]
        for k in range(n_step):
            column = uint32(uint32(4 * k) + (lane & uint32(3)))
            first, second = min(row, column), max(row, column)
            start = first_tile[uint32((first >> uint32(3)) * uint32(n_step) + (second >> uint32(2)))]
            # The tile itself, or the conjugate of its transpose, in which numbers 1 and 2 change places;
            # both on the diagonal.
            here = real(1) if start >= 0 and row <= column else real(0)
            there = real(1) if start >= 0 and row >= column else real(0)
            offset = N_STEP * k
            own[offset], own[offset + 3] = (here + there) * own[offset], (here + there) * own[offset + 3]
            own[offset + 4], own[offset + 7] = (
                (there - here) * own[offset + 4],
                (there - here) * own[offset + 7],
            )
            one, other = own[offset + 1], own[offset + 2]
            own[offset + 1], own[offset + 2] = here * one + there * other, here * other + there * one
            one, other = own[offset + 5], own[offset + 6]
            own[offset + 5], own[offset + 6] = there * other - here * one, there * one - here * other

    return read_rest


@functools.cache
def make_split_rest(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function that makes of a thread's `own` numbers what instructions take, in `words`; gives a factor.

    In single precision packed pairs, of numbers scaled by a power of two: for each step four rounded ones,
    and what is left of these. Products are to be multiplied by the factor. A warp calls it together. In
    double precision numbers go in as they are.
    """
    n_step, n_own, swapped = kernel.n_step, kernel.n_own, make_shuffle_xor()
    if device.simulated():
        return _simulated_split(kernel)
    if not kernel.variant.single:
        return device.inline(lambda own, words: 1.0)
    scale, split = make_scale(True), tensor_cores.make_split()

    @device.part
    def split_rest(own: Array, words: Array) -> Scalar:
        most = float32(0)
        for k in range(n_own):
            most = max(most, abs(own[k]))
        most = max(most, swapped(most, 1))
        most = max(most, swapped(most, 2))
        most = max(most, swapped(most, 4))
        most = max(most, swapped(most, 8))
        most = max(most, swapped(most, 16))
        by, inverse = scale(most)
        for k in range(n_step):
            offset = N_STEP * k
            # Rows 2 g and 2 g + 1 with column 2 t, then with column 2 t + 1.
            high, low = split(by * own[offset], by * own[offset + 4])
            words[offset], words[offset + 4] = high, low
            high, low = split(by * own[offset + 2], by * own[offset + 6])
            words[offset + 1], words[offset + 5] = high, low
            high, low = split(by * own[offset + 1], by * own[offset + 5])
            words[offset + 2], words[offset + 6] = high, low
            high, low = split(by * own[offset + 3], by * own[offset + 7])
            words[offset + 3], words[offset + 7] = high, low
        return inverse

    return split_rest


# What each thread of the simulator's block has: it has no instruction that reads all of a warp.
SHOWN_REST: dict[int, Any] = {}


def _simulated_split(kernel: TensorCoreAdjointKernel) -> Compiled:
    real = np.float32 if kernel.variant.single else np.float64

    def split_rest(own: Any, words: Any) -> Any:
        thread: Any = threading.current_thread()
        SHOWN_REST[thread.thread_id] = np.array([own[k] for k in range(kernel.n_own)])
        thread.syncthreads()
        return real(1)

    return split_rest


@functools.cache
def make_multiply(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function that multiplies a warp's rows by the terms of eight sources, which begin at `offset`.

    `product` (8,) gets real parts, then imaginary parts: row 2 g with sources 2 t and 2 t + 1, then row
    2 g + 1.
    """
    if device.simulated():
        return _simulated_multiply(kernel)
    return _single_multiply(kernel) if kernel.variant.single else _double_multiply(kernel)


def place_in_plane(lane: int) -> Scalar:
    """Where in 512 bytes thread 4 g + t of a warp finds the unit of source g and antennas 2 t, 2 t + 1."""
    g, t = uint32(lane >> uint32(2)), uint32(lane & uint32(3))
    half = uint32(g >> uint32(1))
    number = uint32(uint32(uint32(4) * uint32(g & uint32(1)) + t) ^ uint32(uint32(2) * half))
    return uint32(uint32(16) * uint32(uint32(8) * half + number))


def _single_multiply(kernel: TensorCoreAdjointKernel) -> Compiled:
    """In single precision: products of two steps are added up, small ones first, then added to the others."""
    n_step, plane = kernel.n_step, kernel.plane_bytes
    multiply, turn, load = (
        tensor_cores.make_product(True, False),
        tensor_cores.make_turn(True),
        tensor_cores.make_load(True),
    )
    place = device.inline(place_in_plane)

    @device.inline
    def small(words: Array, k: int, b: Any, c: Any) -> Any:
        c = multiply(
            words[k + 4], words[k + 5], words[k + 6], words[k + 7], b[0], b[1], c[0], c[1], c[2], c[3]
        )
        return multiply(
            words[k], words[k + 1], words[k + 2], words[k + 3], b[2], b[3], c[0], c[1], c[2], c[3]
        )

    @device.inline
    def large(words: Array, k: int, b: Any, c: Any) -> Any:
        return multiply(
            words[k], words[k + 1], words[k + 2], words[k + 3], b[0], b[1], c[0], c[1], c[2], c[3]
        )

    @device.inline
    def add(words: Array, k: int, b: Any, b_1: Any, product: Array, into: int) -> None:
        zero = float32(0), float32(0), float32(0), float32(0)
        c = small(words, k + N_STEP, b_1, small(words, k, b, zero))
        c = large(words, k + N_STEP, b_1, large(words, k, b, c))
        if k > 0:
            c = (
                product[into] + c[0],
                product[into + 1] + c[1],
                product[into + 2] + c[2],
                product[into + 3] + c[3],
            )
        product[into], product[into + 1], product[into + 2], product[into + 3] = c[0], c[1], c[2], c[3]

    @device.inline
    def turned(b: Any) -> Any:
        return turn(b[0]), turn(b[1]), turn(b[2]), turn(b[3])

    @device.part
    def multiply_all(offset: int, lane: int, words: Array, product: Array) -> None:
        first = uint32(offset + place(lane))
        for k in range(n_step // 2):
            b = load(uint32(first + uint32(2 * k * plane)))
            b_1 = load(uint32(first + uint32((2 * k + 1) * plane)))
            add(words, 2 * N_STEP * k, b, b_1, product, 0)
            add(words, 2 * N_STEP * k, turned(b), turned(b_1), product, 4)

    return multiply_all


def _double_multiply(kernel: TensorCoreAdjointKernel) -> Compiled:
    """In double precision: a step is two instructions for each part, of antennas 2 t and of 2 t + 1."""
    n_step, plane, zero = kernel.n_step, kernel.plane_bytes, 0.0
    multiply, turn = tensor_cores.make_product(False, kernel.all_rows), tensor_cores.make_turn(False)
    load, place = tensor_cores.make_load(False), device.inline(place_in_plane)

    @device.inline
    def add(own: Array, k: int, b_0: Scalar, b_1: Scalar, product: Array, into: int) -> None:
        c = multiply(
            own[k], own[k + 2], own[k + 4], own[k + 6], b_0, b_1,
            product[into], product[into + 1], product[into + 2], product[into + 3],
        )  # fmt: skip
        product[into], product[into + 1], product[into + 2], product[into + 3] = c[0], c[1], c[2], c[3]

    @device.part
    def multiply_all(offset: int, lane: int, own: Array, product: Array) -> None:
        for k in range(8):
            product[k] = zero
        first = uint32(offset + place(lane))
        for k in range(n_step):
            for j in range(2):
                b = load(uint32(first + uint32((2 * k + j) * plane)))
                add(own, N_STEP * k + j, b[0], b[1], product, 0)
                add(own, N_STEP * k + j, b[1], turn(b[0]), product, 4)

    return multiply_all


def _simulated_multiply(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Multiply one number after the other, for the simulator; `offset` is (terms, where
    the sources' begin).
    """
    n_step, chunk = kernel.n_step, kernel.chunk

    def multiply_all(offset: Any, lane: Any, words: Any, product: Any) -> None:
        terms, first = offset
        thread = int(threading.current_thread().thread_id)  # type: ignore[attr-defined]
        g, t = divmod(int(lane), 4)
        for i, x in np.ndindex(2, 2):
            total = 0j
            for other, k, j in np.ndindex(4, n_step, 2):
                own = SHOWN_REST[thread - int(lane) + 4 * g + other]
                number = N_STEP * k + 2 * i + j
                slot = 8 * k + 2 * other + j
                term = complex(terms[first + slot * chunk + 2 * t + x])
                total += complex(own[number], -own[number + N_TILE]) * term
            product[2 * i + x], product[4 + 2 * i + x] = total.real, total.imag

    return multiply_all
