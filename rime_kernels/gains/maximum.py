"""The gains of each group that fit best: Newton's method, from a maximum nearby or from the data alone.

A likelihood is a function of theta: what was searched for before must not decide which of several maxima a
search ends at. A search without a start (`rime_kernels.gains.start`) depends on the sums of cells and on the
priors alone. Its maximum is kept as an anchor; searches whose sums are close to those of the anchor begin
there, and others begin anew. All end where a step gains nothing but roundings.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from rime_kernels.compile.jit import loop, summing_function
from rime_kernels.gains.arrays import Anchor, Array, GainCells, GainGroups, GainSums, GainWork, Starts
from rime_kernels.gains.curvature import assemble, objective, objective_and_slopes
from rime_kernels.gains.envelope import factorise, keep_factor, solve
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
ROUNDING = 1e-24
"""The search ends as well where a step gains less than this of f: roundings of slopes gain 1e-32 of it."""
ENOUGH = 1e-12
"""What the last step may gain, of f, where `_MOST` steps did not end the search."""
COLD, ANCHORED, WARM = 0, 1, 2
"""Where a search begins: from the data; at x; or at x, but where x is far from the better of both."""
ROOM, LITTLE_ROOM = 0.3, 0.01
"""By how much sums may differ from those of an anchor, which was close to its start, or was not."""
CLOSE_START = 0.8
"""Change of ln amplitude or phase of a cell, from its start to an anchor, up to which that is close."""
_TURN = 2.0 * np.pi
LONGEST = 1.0
"""Of a step in ln amplitude or phase, in e-folds and radians."""


@summing_function
def _factored(
    cells: GainCells, groups: GainGroups, sums: GainSums, g: int, x: Array, slope: Array, matrix: Array
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
def _longest(cells: GainCells, groups: GainGroups, g: int, step: Array) -> float:
    """The largest change of ln amplitude or phase that a cell would see."""
    longest = 0.0
    for entry in range(groups.cell_first[g], groups.cell_first[g + 1]):
        c = groups.cell[entry]
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
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    g: int,
    x: Array,
    work: GainWork,
    far: float,
) -> int:
    """Improve x in place: the number of steps; -1 where there is no step, -2 where the first gains `far`.

    Steps go by the last factor as long as each gains far less than the one before.
    """
    first, end = groups.first[g], groups.first[g + 1]
    step, trial, slope, other, matrix = work.step, work.trial, work.slope, work.other, work.matrix
    value, last, is_new = objective_and_slopes(cells, groups, sums, g, x, slope), np.inf, False
    gain = np.inf
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
        if gain < (CLOSE if is_new else CLOSER) * (end - first) + ROUNDING * abs(value):
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
    # Where noise is so small that priors are roundings beside data, steps along what these know are poor.
    return _MOST if gain < ENOUGH * abs(value) else -1


@loop
def climb_all(
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    x: Array,
    start: Starts,
    work: GainWork,
    cold: Array,
    done: Array,
) -> None:
    """Bring the coordinates x (n,) to the maximum, all groups at once.

    `start` (n_group,) says where each search begins, and becomes `COLD` where it has begun from the data; for
    these `cold` (n,) becomes where that was. `done` (n_group,) becomes the number of steps, or -1 where no
    maximum was found.
    """
    for g in prange(len(groups.first) - 1):
        first, end = groups.first[g], groups.first[g + 1]
        n = -2
        if start[g] != COLD:
            n = _climb(cells, groups, sums, g, x, work, FAR if start[g] == WARM else np.inf)
        if n < 0:
            keep_factor(work, g, False)
            begin_cold(cells, groups, sums, g, cold, work.known, work.step, work.trial)
            if start[g] != WARM or not (
                objective(cells, groups, sums, g, x) < objective(cells, groups, sums, g, cold)
            ):
                for i in range(first, end):
                    x[i] = cold[i]
            start[g] = COLD
            n = _climb(cells, groups, sums, g, x, work, np.inf)
        done[g] = n


@summing_function
def _strength(groups: GainGroups, power: Array, g: int) -> float:
    """Sum of the powers of cells."""
    total = 0.0
    for entry in range(groups.cell_first[g], groups.cell_first[g + 1]):
        total += power[groups.cell[entry]]
    return total


@summing_function
def _is_near(
    cells: GainCells, groups: GainGroups, sums: GainSums, g: int, anchor: Anchor, work: GainWork
) -> bool:
    """Whether the search of a group begins at its anchor; see `near`."""
    first, end, moved, whole = groups.first[g], groups.first[g + 1], work.step, work.trial
    before = _strength(groups, anchor.power, g)
    if not (anchor.room[g] > 0.0 and before > 0.0):
        return False
    ratio = _strength(groups, sums.power, g) / before
    if not 0.5 < ratio < 2.0:
        return False
    by_root, by = 1.0 / np.sqrt(ratio), 1.0 / ratio
    for i in range(first, end):
        moved[i], whole[i] = 0.0, 0.0
    for entry in range(groups.cell_first[g], groups.cell_first[g + 1]):
        c = groups.cell[entry]
        real, imag, power = anchor.real[c], anchor.imag[c], anchor.power[c]
        off = np.sqrt((sums.real[c] * by_root - real) ** 2 + (sums.imag[c] * by_root - imag) ** 2)
        off += 0.5 * abs(sums.power[c] * by - power)
        of_all = np.sqrt(real * real + imag * imag) + 0.5 * power
        for e in range(cells.first[c], cells.first[c + 1]):
            moved[cells.coordinate[e]] += off
            whole[cells.coordinate[e]] += of_all
    n_far = 0
    for i in range(first, end):
        n_far += not moved[i] <= anchor.room[g] * whole[i]
    return n_far == 0


@loop
def near(
    cells: GainCells, groups: GainGroups, sums: GainSums, anchor: Anchor, work: GainWork, start: Starts
) -> None:
    """Fill where the search of each group begins (n_group,): `ANCHORED`, or `COLD`.

    With the sums P and t of cells, those of the anchor P' and t', and q the ratio of sum P to sum P', a
    search begins at the anchor if for each coordinate, over its cells,

        sum |t / sqrt(q) - t'| + |P / q - P'| / 2  <=  room * sum |t'| + P' / 2    and    1/2 < q < 2

    so that a scale of the model's flux, which turns no phase, does not count.
    """
    for g in prange(len(groups.first) - 1):
        start[g] = ANCHORED if _is_near(cells, groups, sums, g, anchor, work) else COLD


@summing_function
def _make_anchor(
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    g: int,
    x: Array,
    cold: Array,
    found: bool,
    anchor: Anchor,
) -> None:
    """Make an anchor of the maximum x of a group, if one was `found` from its start `cold`."""
    for i in range(groups.first[g], groups.first[g + 1]):
        anchor.x[i] = x[i]
    longest = 0.0
    for entry in range(groups.cell_first[g], groups.cell_first[g + 1]):
        c = groups.cell[entry]
        anchor.power[c], anchor.real[c], anchor.imag[c] = sums.power[c], sums.real[c], sums.imag[c]
        log, phase = 0.0, 0.0
        for e in range(cells.first[c], cells.first[c + 1]):
            by = cells.factor[e] * (x[cells.coordinate[e]] - cold[cells.coordinate[e]])
            if cells.is_phase[e]:
                phase += by
            else:
                log += by
        longest = max(longest, abs(log), abs(phase - _TURN * np.rint(phase / _TURN)))
    anchor.room[g] = 0.0
    if found:
        anchor.room[g] = ROOM if longest < CLOSE_START else LITTLE_ROOM


@loop
def make_anchors(
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    x: Array,
    start: Starts,
    cold: Array,
    done: Array,
    anchor: Anchor,
) -> None:
    """Make anchors of the maxima x (n,) of searches that began `cold`; the rest is as in `climb_all`."""
    for g in prange(len(groups.first) - 1):
        if start[g] == COLD:
            _make_anchor(cells, groups, sums, g, x, cold, done[g] >= 0.0, anchor)
