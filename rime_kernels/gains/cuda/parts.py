"""What the kernels over groups are made of: gains of cells, slopes, matrices of second derivatives.

Formulas are those of `rime_kernels.gains.curvature`. A block of threads has a group. Each sum is taken by one
thread, or by several whose results are added in their order, so that results repeat to the bit.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from numba import int64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.reductions import make_barrier, make_block_reduce
from rime_kernels.gains.cuda.tables import MOST, GroupTables
from rime_kernels.gains.laplace import FLAT, FLOOR


class GroupShape(NamedTuple):
    """What kernels are compiled for."""

    n_down: int  # threads of a block, as a rectangle over a matrix
    n_across: int
    n_wide: int  # coordinates that there is room for

    @property
    def n_thread(self) -> int:
        return self.n_down * self.n_across

    @property
    def n_a(self) -> int:
        """Rows of a matrix in which a thread has elements."""
        return self.n_wide // self.n_down

    @property
    def n_b(self) -> int:
        """Columns likewise."""
        return self.n_wide // self.n_across

    @property
    def n_own(self) -> int:
        """Elements of a thread."""
        return self.n_a * self.n_b

    @property
    def n_column(self) -> int:
        """Room for two columns."""
        return 2 * self.n_wide

    @property
    def n_lane(self) -> int:
        """Threads that share a sum for one coordinate."""
        return max(2, self.n_thread // self.n_wide)

    @property
    def n_partial(self) -> int:
        """Sums that are taken at once."""
        return self.n_lane * self.n_wide


def shape_for(largest: int) -> GroupShape:
    """For groups of so many coordinates."""
    if device.simulated():
        return GroupShape(2, 4, 4 * max(1, -(-largest // 4)))
    return GroupShape(16, 32, next(n for n in (32, 64, 128, 192, MOST) if largest <= n))


class Priors(NamedTuple):
    """Normal priors of coordinates, float64 (n,)."""

    middle: Array
    weight: Array  # 1/variance


class State(NamedTuple):
    """What is kept on the device, and work space; float64 but for `has_inverse`."""

    inverse: (
        Array  # of each group a matrix (`GroupTables.square`), inverse of the second derivatives somewhere
    )
    has_inverse: Array  # int32 (n_group,)
    by_entry: Array  # (2 n_place,): slopes by ln amplitude and by phase of a cell
    by_pair: Array  # (3 n_place,): its second derivatives by two logs, log and phase, two phases
    signal: Array  # (n,): the sum of Re r over the cells of each phase that is uniform over the circle


class GainGroup(NamedTuple):
    """Where a group lies."""

    number: Scalar
    first: int  # of its coordinates
    n: Scalar
    square: Scalar
    place: Scalar  # of its cells
    end: int


class Room(NamedTuple):
    """Memory that the threads of a block share."""

    total: Array  # (n_thread,)
    partial: Array  # (n_partial,)


class Sweep(NamedTuple):
    """Memory for the inverse of a matrix, float64: a thread's own (n_own,), (n_a,), and the block's."""

    own: Array
    left: Array
    column: Array  # (n_column,)
    before: Array  # (n_wide,): the diagonal
    rest: Array  # (n_wide,): what is left of it


class Turned(NamedTuple):
    """m, Re r and Im r of a cell."""

    power: Scalar
    real: Scalar
    imag: Scalar


@device.inline
def group_of(tables: GroupTables, number: Scalar) -> GainGroup:
    """The group of this number."""
    first, place = int64(tables.first[number]), int64(tables.cell_first[number])
    n, end = int64(tables.first[number + 1]) - first, int64(tables.cell_first[number + 1])
    return GainGroup(number, first, n, int64(tables.square[number]), place, end)


@device.inline
def log_gain(tables: GroupTables, place: Scalar, x: Array) -> tuple[Scalar, Scalar]:
    """ln amplitude and phase that the coordinates x of a group give a cell."""
    log, phase = 0.0, 0.0
    for e in range(int64(tables.entry_first[place]), int64(tables.entry_first[place + 1])):
        code = int64(tables.entry[e])
        by = tables.entry_factor[e] * x[code // 2]
        if code % 2 == 1:
            phase += by
        else:
            log += by
    return log, phase


@device.inline
def turned(tables: GroupTables, sums: Array, place: Scalar, x: Array) -> Turned:
    """What the gain makes of the sums of a cell (3, n_cell)."""
    log, phase = log_gain(tables, place, x)
    cell = int64(tables.cell[place])
    size, along, across = math.exp(log), math.cos(phase), math.sin(phase)
    real = size * (sums[1, cell] * along + sums[2, cell] * across)
    imag = size * (sums[2, cell] * along - sums[1, cell] * across)
    return Turned(size * size * sums[0, cell], real, imag)


@functools.cache
def make_accumulate(shape: GroupShape) -> Compiled:
    """Function that sums factors times `values` over the entries of each coordinate of a group, into `out`.

    `values` have the places of `GroupTables.slot`. The caller puts a barrier before the call and one after
    it.
    """
    n_thread, n_lane, n_partial, barrier = shape.n_thread, shape.n_lane, shape.n_partial, make_barrier()

    @device.inline
    def accumulate(
        thread: int, group: GainGroup, tables: GroupTables, values: Array, partial: Array, out: Array
    ) -> None:
        for k in range(thread, n_partial, n_thread):
            i, lane, total = k // n_lane, k % n_lane, 0.0
            if i < group.n:
                slot = int64(tables.slot_first[group.first + i])
                for s in range(slot + lane, int64(tables.slot_first[group.first + i + 1]), n_lane):
                    total += tables.slot_factor[s] * values[int64(tables.slot[s])]
            partial[k] = total
        barrier()
        for i in range(thread, group.n, n_thread):
            total = 0.0
            for lane in range(n_lane):
                total += partial[i * n_lane + lane]
            out[i] = total

    return accumulate


@functools.cache
def make_multiply(shape: GroupShape) -> Compiled:
    """Function that multiplies a group's symmetric matrix with a vector (n,), into `out`; as `accumulate`."""
    n_thread, n_lane, n_partial = shape.n_thread, shape.n_lane, shape.n_partial
    n_wide, barrier = shape.n_wide, make_barrier()

    @device.inline
    def multiply(
        thread: int, group: GainGroup, matrix: Array, vector: Array, partial: Array, out: Array
    ) -> None:
        for k in range(thread, n_partial, n_thread):
            i, lane, total = k % n_wide, k // n_wide, 0.0
            if i < group.n:
                # Down a column, so that neighbouring threads read neighbouring elements.
                for j in range(lane, group.n, n_lane):
                    total += matrix[group.square + j * group.n + i] * vector[j]
            partial[k] = total
        barrier()
        for i in range(thread, group.n, n_thread):
            total = 0.0
            for lane in range(n_lane):
                total += partial[lane * n_wide + i]
            out[i] = total

    return multiply


@functools.cache
def make_evaluate(shape: GroupShape) -> Compiled:
    """Function that fills the slopes of f at x, and gives what cells and what priors have of f, to all."""
    n_thread, block_reduce, accumulate = (
        shape.n_thread,
        make_block_reduce(shape.n_thread),
        make_accumulate(shape),
    )

    @device.part
    def evaluate(
        thread: int, group: GainGroup, tables: GroupTables, priors: Priors, sums: Array, by_entry: Array,
        room: Room, x: Array, slope: Array,
    ) -> tuple[Scalar, Scalar]:  # fmt: skip
        total = 0.0
        for place in range(group.place + thread, group.end, n_thread):
            cell = turned(tables, sums, place, x)
            by_entry[2 * place] = cell.power - cell.real
            by_entry[2 * place + 1] = -cell.imag
            total += 0.5 * cell.power - cell.real
        of_cells = block_reduce(thread, total, room.total)
        accumulate(thread, group, tables, by_entry, room.partial, slope)
        total = 0.0
        for i in range(thread, group.n, n_thread):
            away, weight = x[i] - priors.middle[group.first + i], priors.weight[group.first + i]
            slope[i] += weight * away
            total += 0.5 * weight * away * away
        return of_cells, block_reduce(thread, total, room.total)

    return evaluate


@functools.cache
def make_assemble(shape: GroupShape) -> Compiled:
    """Function that puts the second derivatives H of f at x, or H + P, in the place of a group's inverse.

    P, for `is_held`, is that of `rime_kernels.gains.laplace`; then `State.signal` is filled, too.
    """
    n_thread, barrier = shape.n_thread, make_barrier()

    @device.part
    def assemble(
        thread: int, group: GainGroup, tables: GroupTables, priors: Priors, sums: Array, state: State,
        x: Array, is_held: Scalar,
    ) -> None:  # fmt: skip
        n, by_pair, matrix = group.n, state.by_pair, state.inverse
        for place in range(group.place + thread, group.end, n_thread):
            cell = turned(tables, sums, place, x)
            by_pair[3 * place] = 2.0 * cell.power - cell.real
            by_pair[3 * place + 1] = -cell.imag
            by_pair[3 * place + 2] = cell.real
        for k in range(thread, n * n, n_thread):
            matrix[group.square + k] = 0.0
        barrier()
        begin = int64(tables.element_first[group.number])
        for e in range(begin + thread, int64(tables.element_first[group.number + 1]), n_thread):
            total = 0.0
            for k in range(int64(tables.pair_first[e]), int64(tables.pair_first[e + 1])):
                total += tables.pair_factor[k] * by_pair[int64(tables.pair[k])]
            i, j = int64(tables.element[e]) // n, int64(tables.element[e]) % n
            if i == j:
                total += priors.weight[group.first + i]
                if is_held == 1 and tables.circle[group.first + i] == 1:
                    signal, coordinate = 0.0, group.first + i
                    for s in range(
                        int64(tables.slot_first[coordinate]), int64(tables.slot_first[coordinate + 1])
                    ):
                        signal += by_pair[3 * (int64(tables.slot[s]) // 2) + 2]
                    state.signal[coordinate] = signal
                    total += FLAT * (FLOOR + (1.0 - FLOOR) * (math.exp(-signal) if signal > 0.0 else 1.0))
            matrix[group.square + i * n + j] = total
            matrix[group.square + j * n + i] = total
        barrier()

    return assemble


@functools.cache
def make_invert(shape: GroupShape) -> Compiled:
    """Function that inverts a group's matrix in place and gives ln of its determinant; NaN if not positive.

    By the sweep operator (Goodnight 1979, The American Statistician 33, 149): all elements of a matrix change
    at once for one row after the other. Each thread has its own ones, in registers. What is left of the
    diagonal is that of a Cholesky factor, squared; a matrix is positive if of each more than `least` of the
    diagonal is left.
    """
    n_down, n_across, n_wide, n_thread = shape.n_down, shape.n_across, shape.n_wide, shape.n_thread
    n_a, n_b = shape.n_a, shape.n_b
    barrier, block_reduce = make_barrier(), make_block_reduce(n_thread)

    @device.inline
    def invert(
        thread: int, group: GainGroup, matrix: Array, least: Scalar, sweep: Sweep, total: Array
    ) -> Scalar:
        own, left, column = sweep.own, sweep.left, sweep.column
        before, rest = sweep.before, sweep.rest
        n, row, col = group.n, thread // n_across, thread % n_across
        for a in range(n_a):
            for b in range(n_b):
                i, j = row + a * n_down, col + b * n_across
                own[a * n_b + b] = 0.0
                if i < n and j < n:
                    own[a * n_b + b] = matrix[group.square + i * n + j]
        for i in range(thread, n, n_thread):
            before[i] = matrix[group.square + i * n + i]
        is_positive = True
        for k in range(n):
            # Two columns by turns: threads that are late still read the one before.
            half = (k % 2) * n_wide
            for b in range(n_b):
                if col + b * n_across == k:
                    for a in range(n_a):
                        column[half + row + a * n_down] = own[a * n_b + b]
            barrier()
            pivot = column[half + k]
            if not pivot > least * abs(before[k]):
                is_positive = False
                break
            if thread == 0:
                rest[k] = pivot
            inverse = 1.0 / pivot
            for a in range(n_a):
                i = row + a * n_down
                left[a] = -1.0 if i == k else column[half + i]
            for b in range(n_b):
                j = col + b * n_across
                right = -inverse if j == k else inverse * column[half + j]
                for a in range(n_a):
                    old = own[a * n_b + b]
                    if j == k or row + a * n_down == k:
                        old = 0.0
                    own[a * n_b + b] = old - left[a] * right
        barrier()
        log = 0.0 if is_positive else math.nan
        if is_positive:
            for a in range(n_a):
                for b in range(n_b):
                    i, j = row + a * n_down, col + b * n_across
                    if i < n and j < n:
                        matrix[group.square + i * n + j] = -own[a * n_b + b]
            for k in range(thread, n, n_thread):
                log += math.log(rest[k])
        return block_reduce(thread, log, total)

    return invert
