"""The search for the gains that fit best: the step, when it is shortened, and when the search ends.

All searches for gains go by these rules: on the CPU from sums of cells (`rime_kernels.gains.maximum`) and of
solution intervals (`rime_kernels.gain_solving`), on a GPU (`rime_kernels.gains.cuda.climb`), and beside
linear parameters of the sky. What is minimised is f, half of chi-squared but for a constant, plus minus ln
prior (`rime_kernels.gains.curvature`). A step s goes by the inverse of the second derivatives H, or of those
of Gauss and Newton where H is not positive. It should gain s H s / 2, and "gain" is twice that.
"""

from __future__ import annotations

import numpy as np

from rime_kernels.compile.jit import scalar, summing_function
from rime_kernels.compile.types import Compiled, Record
from rime_kernels.gains.arrays import Array, GainWork
from rime_kernels.gains.envelope import factorise, solve

CLOSE = 1e-13
"""The search ends where a step is expected to gain less than half of this, times the coordinates."""
CLOSER = 1e-3 * CLOSE
"""This limit where steps go by the factor of an earlier place."""
SLOW = 0.05
"""Second derivatives are worked out anew where a step gains more than this, times what that before gained."""
ROUNDING = 1e-24
"""The search ends as well where a step gains less than this of f: roundings of slopes gain 1e-32 of it."""
ENOUGH = 1e-12
"""What the last step may gain, of f, where the number of steps ended the search."""
LONGEST = 1.0
"""Largest step in ln amplitude or phase of a cell, in e-folds and radians."""
SHORTER, TRIALS = 0.4, 30
"""What a step that does not lead to a smaller f is multiplied by, and how often."""


def has_arrived(gain: float, n: int, value: float, unit: float, is_new: bool) -> bool:
    """Whether a step of n coordinates ends the search; no trial follows it.

    Parameters
    ----------
    gain : float
        Twice what the step should gain.
    n : int
    value : float
        f.
    unit : float
        What noise makes of chi-squared: 1 where weights are 1/sigma^2.
    is_new : bool
        Whether the step goes by second derivatives of this place.
    """
    return gain <= (CLOSE if is_new else CLOSER) * n * unit + ROUNDING * abs(value)


def is_better(found: float, value: float, gain: float, unit: float) -> bool:
    """Whether a step that leads from `value` to `found` is made; `gain` and `unit` as in `has_arrived`."""
    # Close to the maximum differences of f are roundings.
    return found < value or gain < 1e-9 * (abs(value) + unit)


arrived, better = scalar(has_arrived), scalar(is_better)
"""Both rules for compiled loops and kernels."""


def make_climb(evaluate: Compiled, assemble: Compiled, longest: Compiled) -> Compiled:
    """Function that improves x in place; it gives the number of steps, -1 without a step.

    It gives -2 where the first step gains `far` times the coordinates. Steps go by the last factor as long as
    each gains far less than the one before. Arguments are a problem; where elements of its matrix are kept
    (`GainGroups.begin` and `row`); its number in `GainWork.has_factor`; its first coordinate and where they
    end; x; work space; `far`; the most steps; and the unit of `has_arrived`.

    Parameters
    ----------
    evaluate : compiled (problem, x, slope) -> float
        Gives f and fills its slopes.
    assemble : compiled (problem, x, exact, matrix, slope)
        Fills the second derivatives, or those of Gauss and Newton; `slope` may be overwritten.
    longest : compiled (problem, step) -> float
        Gives the largest change of ln amplitude or phase of a cell.
    """

    @summing_function
    def factored(
        problem: Record,
        rows: Record,
        first: int,
        end: int,
        x: Array,
        unit: float,
        slope: Array,
        matrix: Array,
    ) -> bool:
        assemble(problem, x, True, matrix, slope)
        if factorise(rows, first, end, matrix, 1e-14) < 0:
            return True
        damping = 1e-9
        for _ in range(12):
            assemble(problem, x, False, matrix, slope)
            for i in range(first, end):
                matrix[rows.row[i] + i] = (1.0 + damping) * matrix[rows.row[i] + i] + 1e-12 * unit
            if factorise(rows, first, end, matrix, 1e-15) < 0:
                return True
            damping *= 20.0
        return False

    @summing_function
    def climb(
        problem: Record, rows: Record, g: int, first: int, end: int, x: Array, work: GainWork, far: float,
        most: int, unit: float,
    ) -> int:  # fmt: skip
        step, trial, slope, other, matrix = work.step, work.trial, work.slope, work.other, work.matrix
        value, last, is_new, gain = evaluate(problem, x, slope), np.inf, False, np.inf
        for n in range(most):
            while True:
                if not work.has_factor[g]:
                    is_new = factored(problem, rows, first, end, x, unit, trial, matrix)
                    if not is_new:
                        return -1
                    work.has_factor[g] = True
                for i in range(first, end):
                    step[i] = -slope[i]
                solve(rows, first, end, matrix, step)
                gain = 0.0
                for i in range(first, end):
                    gain -= slope[i] * step[i]
                # The factor of an earlier place is good while steps gain fast enough.
                if is_new or gain <= SLOW * last:
                    break
                work.has_factor[g] = False
            if n == 0 and gain > far * (end - first):
                return -2
            if not np.isfinite(gain):
                work.has_factor[g] = False
                return -1
            most_changed = longest(problem, step)
            part = min(1.0, LONGEST / most_changed) if most_changed > 0.0 else 1.0
            if arrived(gain, end - first, value, unit, is_new):
                for i in range(first, end):
                    x[i] += part * step[i]
                return n
            found, goes = value, False
            for _ in range(TRIALS):
                for i in range(first, end):
                    trial[i] = x[i] + part * step[i]
                found = evaluate(problem, trial, other)
                goes = better(found, value, gain * part, unit)
                # A bad step by an earlier factor: a new one is made before the step is shortened.
                if goes or not is_new:
                    break
                part *= SHORTER
            if goes:
                for i in range(first, end):
                    x[i], slope[i] = trial[i], other[i]
                value, last = found, gain
            elif is_new:
                return n
            else:
                work.has_factor[g] = False
            is_new = False
        # Where noise is so small that priors are roundings beside data, steps along what these know are poor.
        return most if gain < ENOUGH * abs(value) else -1

    return climb
