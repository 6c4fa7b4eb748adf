"""The gains of each group that fit best: Newton's method, from the better of two starts."""

from __future__ import annotations

import numpy as np
from numba import prange

from rime_kernels.compile.jit import loop, summing_function
from rime_kernels.gains.arrays import Array, Cells, Flag, Groups, Sums
from rime_kernels.gains.curvature import assemble, objective
from rime_kernels.gains.envelope import factorise, solve
from rime_kernels.gains.start import begin_cold

_MOST = 60
"""Steps."""
_CLOSE = 1e-13
"""The search ends where a step is expected to gain less than half of this, times the group's coordinates."""
_FAR = 4.0
"""Where the first step should gain more than half of this times the coordinates, both starts are tried."""
_LONGEST = 1.0
"""Of a step in ln amplitude or phase, in e-folds and radians."""


@summing_function
def _factored(
    cells: Cells, groups: Groups, sums: Sums, g: int, x: Array, slope: Array, matrix: Array
) -> bool:
    """Fill slopes and a factor of second derivatives, of Gauss and Newton where the exact ones do not do."""
    first, end = groups.first[g], groups.first[g + 1]
    assemble(cells, groups, sums, g, x, True, slope, matrix)
    if factorise(groups, first, end, matrix, 1e-14) < 0:
        return True
    damping = 1e-9
    for _ in range(12):
        assemble(cells, groups, sums, g, x, False, slope, matrix)
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
    step: Array,
    trial: Array,
    matrix: Array,
    far: float,
) -> int:
    """Improve x in place: the number of steps; -1 where there is no step, -2 where the first gains `far`."""
    first, end = groups.first[g], groups.first[g + 1]
    value = objective(cells, groups, sums, g, x)
    for n in range(_MOST):
        if not _factored(cells, groups, sums, g, x, trial, matrix):
            return -1
        for i in range(first, end):
            step[i] = -trial[i]
        solve(groups, first, end, matrix, step)
        gain = 0.0
        for i in range(first, end):
            gain -= trial[i] * step[i]
        if n == 0 and gain > far * (end - first):
            return -2
        if not np.isfinite(gain):
            return -1
        longest = _longest(cells, groups, g, step)
        part = min(1.0, _LONGEST / longest) if longest > 0.0 else 1.0
        if gain < _CLOSE * (end - first):
            for i in range(first, end):
                x[i] += part * step[i]
            return n
        better = False
        for _ in range(30):
            for i in range(first, end):
                trial[i] = x[i] + part * step[i]
            found = objective(cells, groups, sums, g, trial)
            # Close to the maximum differences of f are roundings.
            if found < value or gain * part < 1e-9 * (abs(value) + 1.0):
                better = True
                break
            part *= 0.4
        if not better:
            return n
        for i in range(first, end):
            x[i] = trial[i]
        value = found
    return -1


@loop
def climb_all(
    cells: Cells,
    groups: Groups,
    sums: Sums,
    x: Array,
    warm: bool,
    step: Array,
    trial: Array,
    other: Array,
    known: Flag,
    matrix: Array,
    done: Array,
) -> None:
    """Bring the coordinates x (n,) to the maximum, all groups at once; `warm` where x is an earlier one.

    `done` (n_group,) becomes the number of steps, or -1 where no maximum was found; `step`, `trial`, `other`
    (n,), `known` (n,) and `matrix` are work space.
    """
    for g in prange(len(groups.first) - 1):
        first, end = groups.first[g], groups.first[g + 1]
        n = -2
        if warm:
            n = _climb(cells, groups, sums, g, x, step, trial, matrix, _FAR)
        if n == -2:
            begin_cold(cells, groups, sums, g, other, known, step, trial)
            cold = objective(cells, groups, sums, g, other)
            if not warm or not objective(cells, groups, sums, g, x) < cold:
                for i in range(first, end):
                    x[i] = other[i]
            n = _climb(cells, groups, sums, g, x, step, trial, matrix, np.inf)
        done[g] = n
