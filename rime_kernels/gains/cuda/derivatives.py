"""The determinant at the maximum of each group, and derivatives of the integral by the sums of cells.

Formulas are those of `rime_kernels.gains.laplace`, where S, t and u are explained. Kernels follow each other,
of one block for each group: `determinants` with P leaves S, which `derive` uses; `determinants` without P
leaves H^-1, with which `finish` adds how the maximum moves.
"""

from __future__ import annotations

import functools
import math

from numba import float64, int64

from rime_kernels import device
from rime_kernels.compile.types import (
    Array,
    DeviceKernel,
    Module,
    Scalar,
)
from rime_kernels.cuda.kernels.reductions import make_barrier, make_block_reduce
from rime_kernels.gains.cuda.parts import (
    GainGroup,
    GroupShape,
    Priors,
    State,
    Sweep,
    group_of,
    log_gain,
    make_accumulate,
    make_assemble,
    make_invert,
    make_multiply,
    turned,
)
from rime_kernels.gains.cuda.tables import GroupTables
from rime_kernels.gains.laplace import FLAT, FLOOR

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda


@functools.cache
def make_determinants(shape: GroupShape) -> DeviceKernel:
    """Kernel that gives ln det(H + P), or ln det H where `is_held` is 0, and leaves the inverse.

    `found` float64 (n_group,), NaN where the matrix is not positive; `best` (n,) are coordinates.
    """
    n_thread, n_wide = shape.n_thread, shape.n_wide
    n_own, n_a, n_column = shape.n_own, shape.n_a, shape.n_column
    assemble, invert, barrier = make_assemble(shape), make_invert(shape), make_barrier()

    @device.kernel(128)
    def determinants(
        tables: GroupTables,
        priors: Priors,
        sums: Array,
        state: State,
        best: Array,
        is_held: int,
        found: Array,
    ) -> None:
        x = cuda.shared.array(n_wide, float64)
        total = cuda.shared.array(n_thread, float64)
        own = cuda.local.array(n_own, float64)
        left = cuda.local.array(n_a, float64)
        column = cuda.shared.array(n_column, float64)
        before = cuda.shared.array(n_wide, float64)
        rest = cuda.shared.array(n_wide, float64)
        sweep = Sweep(own, left, column, before, rest)
        thread, group = int64(cuda.threadIdx.x), group_of(tables, int64(cuda.blockIdx.x))
        for i in range(thread, group.n, n_thread):
            x[i] = best[group.first + i]
        barrier()
        assemble(thread, group, tables, priors, sums, state, x, is_held)
        log = invert(thread, group, state.inverse, 0.0, sweep, total)
        if thread == 0:
            found[group.number] = log
            state.has_inverse[group.number] = 1 if log > -math.inf else 0

    return determinants


@device.inline
def elements(
    tables: GroupTables, group: GainGroup, place: Scalar, inverse: Array
) -> tuple[Scalar, Scalar, Scalar]:
    """S_aa, S_ap and S_pp of a cell."""
    both, mixed, twist = 0.0, 0.0, 0.0
    first, end = int64(tables.entry_first[place]), int64(tables.entry_first[place + 1])
    for e in range(first, end):
        one = int64(tables.entry[e])
        for k in range(first, end):
            other = int64(tables.entry[k])
            value = inverse[group.square + one // 2 * group.n + other // 2]
            value *= tables.entry_factor[e] * tables.entry_factor[k]
            if one % 2 == 1 and other % 2 == 1:
                twist += value
            elif one % 2 == 1:
                mixed += value
            elif other % 2 == 0:
                both += value
    return both, mixed, twist


@functools.cache
def make_derive(shape: GroupShape) -> DeviceKernel:
    """Kernel that gives derivatives of ln Z, the gains being held, and t.

    `slopes` float64 (3, n_cell) become those by m, Re r and Im r; `moved` (n,) becomes t.
    """
    n_thread, n_wide, n_partial, barrier = shape.n_thread, shape.n_wide, shape.n_partial, make_barrier()
    accumulate = make_accumulate(shape)

    @device.kernel(128)
    def derive(
        tables: GroupTables, sums: Array, state: State, best: Array, slopes: Array, moved: Array
    ) -> None:
        x = cuda.shared.array(n_wide, float64)
        tilt = cuda.shared.array(n_wide, float64)
        by = cuda.shared.array(n_wide, float64)
        partial = cuda.shared.array(n_partial, float64)
        thread, group = int64(cuda.threadIdx.x), group_of(tables, int64(cuda.blockIdx.x))
        inverse, by_entry = state.inverse, state.by_entry
        for i in range(thread, group.n, n_thread):
            coordinate = group.first + i
            x[i], tilt[i] = best[coordinate], 0.0
            if tables.circle[coordinate] == 1 and state.signal[coordinate] > 0.0:  # S_ii P'/2
                slope = -FLAT * (1.0 - FLOOR) * math.exp(-state.signal[coordinate])
                tilt[i] = 0.5 * slope * inverse[group.square + i * (group.n + 1)]
        barrier()
        for place in range(group.place + thread, group.end, n_thread):
            cell, number = turned(tables, sums, place, x), int64(tables.cell[place])
            both, mixed, twist = elements(tables, group, place, inverse)
            tilted = 0.0
            for e in range(int64(tables.entry_first[place]), int64(tables.entry_first[place + 1])):
                if int64(tables.entry[e]) % 2 == 1:
                    tilted += tilt[int64(tables.entry[e]) // 2]
            slopes[0, number] = -0.5 - both
            slopes[1, number] = 1.0 + 0.5 * (both - twist) - tilted
            slopes[2, number] = mixed
            by_log = 0.5 * ((4.0 * cell.power - cell.real) * both + cell.real * twist) - cell.imag * mixed
            by_phase = 0.5 * cell.imag * (twist - both) + cell.real * mixed
            by_entry[2 * place] = by_log + tilted * cell.real
            by_entry[2 * place + 1] = by_phase + tilted * cell.imag
        barrier()
        accumulate(thread, group, tables, by_entry, partial, by)
        for i in range(thread, group.n, n_thread):
            moved[group.first + i] = by[i]

    return derive


@functools.cache
def make_finish(shape: GroupShape) -> DeviceKernel:
    """Kernel that adds how the maximum moves to the derivatives of `derive`, and gives gains of cells.

    `gain` float64 (2 n_cell,) are real and imaginary parts. `by_scale` (n_group,) becomes the sum over
    cells of these sums times what the derivatives differ by from those of ln L, -1/2, 1 and 0.
    """
    n_thread, n_wide, n_partial, barrier = shape.n_thread, shape.n_wide, shape.n_partial, make_barrier()
    multiply, block_reduce = make_multiply(shape), make_block_reduce(n_thread)

    @device.kernel(128)
    def finish(
        tables: GroupTables, sums: Array, state: State, best: Array, moved: Array, slopes: Array,
        gain: Array, by_scale: Array,
    ) -> None:  # fmt: skip
        x = cuda.shared.array(n_wide, float64)
        by = cuda.shared.array(n_wide, float64)
        u = cuda.shared.array(n_wide, float64)
        partial = cuda.shared.array(n_partial, float64)
        shown = cuda.shared.array(n_thread, float64)
        thread = int64(cuda.threadIdx.x)
        group, total = group_of(tables, int64(cuda.blockIdx.x)), 0.0
        for i in range(thread, group.n, n_thread):
            x[i], by[i] = best[group.first + i], moved[group.first + i]
        barrier()
        multiply(thread, group, state.inverse, by, partial, u)
        barrier()
        for place in range(group.place + thread, group.end, n_thread):
            cell, number = turned(tables, sums, place, x), int64(tables.cell[place])
            log, phase = log_gain(tables, place, x)
            by_log, by_phase = log_gain(tables, place, u)
            # How the maximum moves: sums of cells enter its equations by m, Re r and Im r.
            slopes[0, number] += by_log
            slopes[1, number] -= by_log
            slopes[2, number] -= by_phase
            # The derivative by a factor of all sums of cells.
            total += (slopes[0, number] + 0.5) * cell.power + (slopes[1, number] - 1.0) * cell.real
            total += slopes[2, number] * cell.imag
            size = math.exp(log)
            gain[2 * number], gain[2 * number + 1] = size * math.cos(phase), size * math.sin(phase)
        total = block_reduce(thread, total, shown)
        if thread == 0:
            by_scale[group.number] = total

    return finish
