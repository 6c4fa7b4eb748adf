"""The gains of each group that fit best: Newton's method, from the better of two starts."""

from __future__ import annotations

import numpy as np
from numba import prange

from rime_kernels.compile.jit import loop, summing_function
from rime_kernels.gains.arrays import Array, Cells, Groups, Sums, Work
from rime_kernels.gains.curvature import assemble, objective, objective_and_slopes
from rime_kernels.gains.envelope import factorise, solve
from rime_kernels.gains.start import begin_cold

_MOST = 60
"""Steps."""
CLOSE = 1e-13
"""The search ends where a step is expected to gain less than half of this, times the group's coordinates."""
CLOSER = 1e-3 * CLOSE
"""The same where steps go by the factor of an earlier place."""
SLOW = 0.05
"""Second derivatives are worked out anew where a step gains more than this, times what that before gained."""
FAR = 4.0
"""Where the first step should gain more than half of this times the coordinates, both starts are tried."""
LONGEST = 1.0
"""Of a step in ln amplitude or phase, in e-folds and radians."""


@summing_function
def _factored(
    cells: Cells, groups: Groups, sums: Sums, g: int, x: Array, slope: Array, matrix: Array
) -> bool:
    """Fill slopes and a factor of second derivatives, of Gauss and Newton where the exact ones do not do."""
    first, end = groups.first[g], groups.first[g + 1]
    assemble(cells, groups, sums, g, x, True, slope, matrix, None)
    if factorise(groups, first, end, matrix, 1e-14) < 0:
        return True
    damping = 1e-9
    for _ in range(12):
        assemble(cells, groups, sums, g, x, False, slope, matrix, None)
        for i in range(first, end):
            matrix[groups.row[i] + i] = (1.0 + damping) * matrix[groups.row[i] + i] + 1e-12
        if factorise(groups, first, end, matrix, 1e-15) < 0:
            return True
        damping *= 20.0
    return False


@summing_function
def _longest(cells: Cells, groups: Groups, g: int, step: Array) -> float:
    """The largest change of ln amplitude or phase that a cell would see."""
    longest = 0.0
    for at in range(groups.cell_first[g], groups.cell_first[g + 1]):
        c = groups.cell[at]
        log, phase = 0.0, 0.0
        for e in range(cells.first[c], cells.first[c + 1]):
            by = cells.factor[e] * step[cells.coordinate[e]]
            if cells.is_phase[e]:
                phase += by
            else:
                log += by
        longest = max(longest, abs(log), abs(phase))
    return longest


@summing_function
def _climb(
    cells: Cells,
    groups: Groups,
    sums: Sums,
    g: int,
    x: Array,
    work: Work,
    far: float,
) -> int:
    """Improve x in place: the number of steps; -1 where there is no step, -2 where the first gains `far`.

    Steps go by the last factor as long as each gains far less than the one before.
    """
    first, end = groups.first[g], groups.first[g + 1]
    step, trial, slope, other, matrix = work.step, work.trial, work.slope, work.other, work.matrix
    value, last, is_new = objective_and_slopes(cells, groups, sums, g, x, slope), np.inf, False
    for n in range(_MOST):
        while True:
            if not work.has_factor[g]:
                is_new = _factored(cells, groups, sums, g, x, trial, matrix)
                if not is_new:
                    return -1
                work.has_factor[g] = True
            for i in range(first, end):
                step[i] = -slope[i]
            solve(groups, first, end, matrix, step)
            gain = 0.0
            for i in range(first, end):
                gain -= slope[i] * step[i]
            if is_new or gain <= SLOW * last:
                break
            work.has_factor[g] = False
        if n == 0 and gain > far * (end - first):
            return -2
        if not np.isfinite(gain):
            work.has_factor[g] = False
            return -1
        longest = _longest(cells, groups, g, step)
        part = min(1.0, LONGEST / longest) if longest > 0.0 else 1.0
        if gain < (CLOSE if is_new else CLOSER) * (end - first):
            for i in range(first, end):
                x[i] += part * step[i]
            return n
        better = False
        for _ in range(30):
            for i in range(first, end):
                trial[i] = x[i] + part * step[i]
            found = objective_and_slopes(cells, groups, sums, g, trial, other)
            # Close to the maximum differences of f are roundings.
            if found < value or gain * part < 1e-9 * (abs(value) + 1.0):
                better = True
                break
            if not is_new:
                break
            part *= 0.4
        if better:
            for i in range(first, end):
                x[i], slope[i] = trial[i], other[i]
            value, last = found, gain
        elif is_new:
            return n
        else:
            work.has_factor[g] = False
        is_new = False
    return -1


@loop
def climb_all(
    cells: Cells, groups: Groups, sums: Sums, x: Array, warm: bool, work: Work, done: Array
) -> None:
    """Bring the coordinates x (n,) to the maximum, all groups at once; `warm` where x is an earlier one.

    `done` (n_group,) becomes the number of steps, or -1 where no maximum was found.
    """
    for g in prange(len(groups.first) - 1):
        first, end = groups.first[g], groups.first[g + 1]
        n = -2
        if warm:
            n = _climb(cells, groups, sums, g, x, work, FAR)
        if n == -2:
            work.has_factor[g] = False
            begin_cold(cells, groups, sums, g, work.other, work.known, work.step, work.trial)
            cold = objective(cells, groups, sums, g, work.other)
            if not warm or not objective(cells, groups, sums, g, x) < cold:
                for i in range(first, end):
                    x[i] = work.other[i]
            n = _climb(cells, groups, sums, g, x, work, np.inf)
        done[g] = n
