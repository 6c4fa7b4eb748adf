"""The kernel that brings the coordinates of each group from earlier ones to the maximum."""

from __future__ import annotations

import functools
import math

from numba import float64, int64

from rime_kernels import device
from rime_kernels.compile.types import (
    Array,
    Compiled,
    DeviceKernel,
    Module,
    Scalar,
)
from rime_kernels.cuda.kernels.reductions import make_barrier, make_block_reduce
from rime_kernels.gains.cuda.parts import (
    GainGroup,
    GroupShape,
    Priors,
    Room,
    State,
    Sweep,
    group_of,
    log_gain,
    make_assemble,
    make_evaluate,
    make_invert,
    make_multiply,
)
from rime_kernels.gains.cuda.tables import GroupTables
from rime_kernels.gains.newton import LONGEST, SHORTER, SLOW, TRIALS, arrived, better

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda
_MOST = 20
"""Steps; a group that needs more is left to the CPU, as one whose second derivatives are not positive."""
_TURN = 2.0 * math.pi


@functools.cache
def make_longest(shape: GroupShape) -> Compiled:
    """Function that gives the largest change of ln amplitude or phase that a cell would see."""
    n_thread, barrier = shape.n_thread, make_barrier()

    @device.inline
    def longest_of(thread: int, group: GainGroup, tables: GroupTables, step: Array, shown: Array) -> Scalar:
        longest = 0.0
        for place in range(group.place + thread, group.end, n_thread):
            log, phase = log_gain(tables, place, step)
            if abs(log) > longest:
                longest = abs(log)
            if abs(phase) > longest:
                longest = abs(phase)
        # A maximum over the block by a tree; every thread gets it.
        shown[thread] = longest
        barrier()
        half = n_thread // 2
        while half > 0:
            if thread < half and shown[thread + half] > shown[thread]:
                shown[thread] = shown[thread + half]
            barrier()
            half //= 2
        longest = shown[0]
        barrier()
        return longest

    return longest_of


@functools.cache
def make_direction(shape: GroupShape) -> Compiled:
    """Function that fills a step of Newton's method at x, by the group's inverse matrix.

    It gives twice what the step should gain, NaN without a step; whether the matrix is that of x; and whether
    there is one. One of another place is renewed where it leads on too slowly, after a step to gain `last`.
    """
    n_thread, block_reduce, multiply = shape.n_thread, make_block_reduce(shape.n_thread), make_multiply(shape)
    assemble, invert = make_assemble(shape), make_invert(shape)

    @device.inline
    def direction(
        thread: int, group: GainGroup, tables: GroupTables, priors: Priors, sums: Array, state: State,
        sweep: Sweep, room: Room, x: Array, slope: Array, last: int, has_inverse: Scalar, step: Array,
    ) -> tuple[Scalar, Scalar, Scalar]:  # fmt: skip
        gain, is_new, is_known = math.nan, False, has_inverse
        while True:
            if not is_known:
                assemble(thread, group, tables, priors, sums, state, x, 0)
                # ln det is -inf where the matrix is not positive: then there is no step, and the CPU has the
                # group.
                log = invert(thread, group, state.inverse, 1e-14, sweep, room.total)
                is_known = is_new = log > -math.inf
                if not is_known:
                    break
            multiply(thread, group, state.inverse, slope, room.partial, step)
            gain = 0.0
            for i in range(thread, group.n, n_thread):
                gain += slope[i] * step[i]
                step[i] = -step[i]
            gain = block_reduce(thread, gain, room.total)
            # The inverse of an earlier place is good while steps gain fast enough: an inversion costs n^3.
            if is_new or gain <= SLOW * last:
                break
            is_known = False
        return gain, is_new, is_known

    return direction


@functools.cache
def make_near(shape: GroupShape) -> Compiled:
    """Function that says whether sums are close to those of an anchor (`rime_kernels.gains.maximum`)."""
    n_thread, barrier, block_reduce = shape.n_thread, make_barrier(), make_block_reduce(shape.n_thread)

    @device.inline
    def near(
        thread: int, group: GainGroup, tables: GroupTables, sums: Array, anchor: Array, most: Scalar,
        by_pair: Array, total: Array,
    ) -> Scalar:  # fmt: skip
        now, before = 0.0, 0.0
        for place in range(group.place + thread, group.end, n_thread):
            cell = int64(tables.cell[place])
            now += sums[0, cell]
            before += anchor[0, cell]
        now = block_reduce(thread, now, total)
        before = block_reduce(thread, before, total)
        # Sums are compared after a common factor is taken out; beyond a factor of 2 an anchor is far anyway.
        if not (before > 0.0 and now > 0.5 * before and now < 2.0 * before):
            return False
        by = before / now
        by_root = math.sqrt(by)
        for place in range(group.place + thread, group.end, n_thread):
            cell = int64(tables.cell[place])
            power, real, imag = anchor[0, cell], anchor[1, cell], anchor[2, cell]
            off_real, off_imag = sums[1, cell] * by_root - real, sums[2, cell] * by_root - imag
            off = math.sqrt(off_real * off_real + off_imag * off_imag)
            by_pair[3 * place] = off + 0.5 * abs(sums[0, cell] * by - power)
            by_pair[3 * place + 1] = math.sqrt(real * real + imag * imag) + 0.5 * power
        barrier()
        n_far = 0.0
        for i in range(thread, group.n, n_thread):
            moved, whole, coordinate = 0.0, 0.0, group.first + i
            for s in range(int64(tables.slot_first[coordinate]), int64(tables.slot_first[coordinate + 1])):
                place = int64(tables.slot[s]) // 2
                moved += by_pair[3 * place]
                whole += by_pair[3 * place + 1]
            # Written so that NaN counts as far.
            if not moved <= most * whole:
                n_far += 1.0
        return block_reduce(thread, n_far, total) == 0.0

    return near


@functools.cache
def make_turn_back(shape: GroupShape) -> Compiled:
    """Function that brings phases within half a turn of the means of their priors, and counts turns."""
    n_thread = shape.n_thread

    @device.inline
    def turn_back(thread: int, group: GainGroup, tables: GroupTables, priors: Priors, x: Array) -> Scalar:
        n_turned = 0.0
        for i in range(thread, group.n, n_thread):
            if tables.returns[group.first + i] == 1:
                # Whole turns change no cell, but they do change the prior.
                turns = math.floor((x[i] - priors.middle[group.first + i]) / _TURN + 0.5)
                x[i] -= _TURN * turns
                n_turned += abs(turns)
        return n_turned

    return turn_back


@functools.cache
def make_climb(shape: GroupShape) -> DeviceKernel:
    """Kernel of one block for each group, as `rime_kernels.gains.maximum.climb_all` from anchors.

    `answer` float64: of each group the number of steps, or less than 0 where its anchor is far or no maximum
    was found; what cells and what priors have of f there; then its coordinates (n,). `start` (n,) and
    `anchor` (3, n_cell) are coordinates and sums of the anchors, `most` (n_group,) their `room`.
    """
    n_thread, n_wide, n_partial = shape.n_thread, shape.n_wide, shape.n_partial
    n_own, n_a, n_column = shape.n_own, shape.n_a, shape.n_column
    barrier, block_reduce, longest_of = make_barrier(), make_block_reduce(n_thread), make_longest(shape)
    evaluate, direction, turn_back = make_evaluate(shape), make_direction(shape), make_turn_back(shape)
    near = make_near(shape)

    @device.kernel(128)
    def climb(
        tables: GroupTables, priors: Priors, sums: Array, state: State, start: Array, anchor: Array,
        most: Array, answer: Array,
    ) -> None:  # fmt: skip
        x = cuda.shared.array(n_wide, float64)
        trial = cuda.shared.array(n_wide, float64)
        slope = cuda.shared.array(n_wide, float64)
        other = cuda.shared.array(n_wide, float64)
        step = cuda.shared.array(n_wide, float64)
        total = cuda.shared.array(n_thread, float64)
        partial = cuda.shared.array(n_partial, float64)
        own = cuda.local.array(n_own, float64)
        left = cuda.local.array(n_a, float64)
        column = cuda.shared.array(n_column, float64)
        before = cuda.shared.array(n_wide, float64)
        rest = cuda.shared.array(n_wide, float64)
        sweep = Sweep(own, left, column, before, rest)
        room = Room(total, partial)
        thread, group = int64(cuda.threadIdx.x), group_of(tables, int64(cuda.blockIdx.x))
        n_group = int64(tables.first.size) - 1
        for i in range(thread, group.n, n_thread):
            x[i] = start[group.first + i]
        has_inverse, n_turned, n_step, is_done = state.has_inverse[group.number] == 1, 1.0, 0, False
        barrier()
        # A search from a far anchor could end at another maximum than the CPU's: it is not begun.
        if group.n > 0 and not near(
            thread, group, tables, sums, anchor, most[group.number], state.by_pair, total
        ):
            n_turned = 0.0
        while n_turned > 0.0:
            of_cells, of_priors = evaluate(
                thread, group, tables, priors, sums, state.by_entry, room, x, slope
            )
            value, last, is_new, is_done = of_cells + of_priors, math.inf, False, False
            while n_step < _MOST and not is_done:
                gain, is_new, has_inverse = direction(
                    thread, group, tables, priors, sums, state, sweep, room, x, slope, last, has_inverse, step
                )
                if not gain < math.inf:  # NaN as well
                    has_inverse = False
                    break
                longest, part = longest_of(thread, group, tables, step, total), 1.0
                # Newton's step trusts a quadratic model: no cell changes by more than LONGEST in one step.
                if longest > LONGEST:
                    part = LONGEST / longest
                # So close to the maximum the step needs no trial: it gains next to nothing.
                if arrived(gain, group.n, value, 1.0, is_new):
                    for i in range(thread, group.n, n_thread):
                        x[i] += part * step[i]
                    barrier()
                    is_done = True
                    break
                goes, found = False, value
                for _ in range(TRIALS):
                    for i in range(thread, group.n, n_thread):
                        trial[i] = x[i] + part * step[i]
                    barrier()
                    of_cells, of_priors = evaluate(
                        thread, group, tables, priors, sums, state.by_entry, room, trial, other
                    )
                    found = of_cells + of_priors
                    goes = better(found, value, gain * part, 1.0)
                    # With an old inverse a bad step says little: a new one is made before the step is
                    # shortened.
                    if goes or not is_new:
                        break
                    part *= SHORTER
                if goes:
                    for i in range(thread, group.n, n_thread):
                        x[i], slope[i] = trial[i], other[i]
                    value, last = found, gain
                    barrier()
                # No part of Newton's own step is better: f cannot be told from its maximum.
                elif is_new:
                    is_done = True
                else:
                    has_inverse = False
                n_step += 1
            # Phases that were turned back stand elsewhere beside their priors: the climb goes on from there.
            n_turned = turn_back(thread, group, tables, priors, x) if is_done else 0.0
            n_turned = block_reduce(thread, n_turned, total)
        of_cells, of_priors = evaluate(thread, group, tables, priors, sums, state.by_entry, room, x, slope)
        if thread == 0:
            # The next call begins with this inverse: skies change little from one to the next.
            state.has_inverse[group.number] = 1 if has_inverse else 0
            answer[group.number] = n_step if is_done else -1
            answer[n_group + group.number], answer[2 * n_group + group.number] = of_cells, of_priors
        for i in range(thread, group.n, n_thread):
            answer[3 * n_group + group.first + i] = x[i]

    return climb
