"""The gains of each group that fit best: Newton's method, from a maximum nearby or from the data alone.

A likelihood is a function of theta: what was searched for before must not decide which of several maxima a
search ends at. A search without a start (`rime_kernels.gains.start`) depends on the sums of cells and on the
priors alone. Its maximum is kept as an anchor; searches whose sums are close to those of the anchor begin
there, and others begin anew. Steps are those of `rime_kernels.gains.newton`.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from rime_kernels.compile.jit import loop, summing_function
from rime_kernels.compile.types import Record
from rime_kernels.gains.arrays import Anchor, Array, GainCells, GainGroups, GainSums, GainWork, Starts
from rime_kernels.gains.curvature import assemble, log_gain, objective, objective_and_slopes
from rime_kernels.gains.envelope import keep_factor
from rime_kernels.gains.newton import make_climb
from rime_kernels.gains.start import begin_cold

_MOST = 60
"""Steps."""
FAR = 4.0
"""Where the first step should gain more than half of this times the coordinates, both starts are tried."""
COLD, ANCHORED, WARM = 0, 1, 2
"""Where a search begins: from the data; at x; or at x, but where x is far from the better of both."""
ROOM, LITTLE_ROOM = 0.3, 0.01
"""By how much sums may differ from those of an anchor, which was close to its start, or was not."""
CLOSE_START = 0.8
"""Change of ln amplitude or phase of a cell, from its start to an anchor, up to which that is close."""
_TURN = 2.0 * np.pi


@summing_function
def _evaluate(problem: Record, x: Array, slope: Array) -> float:
    """f of a group and its slopes, as `make_climb` calls for them."""
    cells, groups, sums, g = problem
    return objective_and_slopes(cells, groups, sums, g, x, slope)


@summing_function
def _assemble(problem: Record, x: Array, exact: bool, matrix: Array, slope: Array) -> None:
    """Fill the second derivatives of a group, as `make_climb` calls for them."""
    cells, groups, sums, g = problem
    assemble(cells, groups, sums, g, x, exact, slope, matrix, None)


@summing_function
def _longest(problem: Record, step: Array) -> float:
    """The largest change of ln amplitude or phase that a cell would see."""
    cells, groups, _, g = problem
    longest = 0.0
    for entry in range(groups.cell_first[g], groups.cell_first[g + 1]):
        log, phase = log_gain(cells, groups.cell[entry], step)
        longest = max(longest, abs(log), abs(phase))
    return longest


_climb_rows = make_climb(_evaluate, _assemble, _longest)


@summing_function
def _climb(
    cells: GainCells, groups: GainGroups, sums: GainSums, g: int, x: Array, work: GainWork, far: float
) -> int:
    """Improve x of a group: `make_climb`."""
    first, end = groups.first[g], groups.first[g + 1]
    return _climb_rows((cells, groups, sums, g), groups, g, first, end, x, work, far, _MOST, 1.0)


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
        log, phase = log_gain(cells, c, x)
        log_before, phase_before = log_gain(cells, c, cold)
        turn = phase - phase_before
        longest = max(longest, abs(log - log_before), abs(turn - _TURN * np.rint(turn / _TURN)))
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
