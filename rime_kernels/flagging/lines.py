"""Functions of one line of float32 numbers, which the loops of flagging share: medians, thresholds, ranks.

A line is a contiguous array. Where numbers are not negative, infinity stands for a sample that is left out:
it sorts behind all that count.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function

Line = NDArray[np.float32]
Mask = NDArray[np.bool_]
Bits = NDArray[np.int32]

MAD_NORMAL = 1.4826
"""Standard deviation of a normal distribution over the median of its absolute deviations."""
MIN_SAMPLES = 32
"""Fewest samples that a noise is the median of. With so many it scatters by 20 %."""
INFINITY_BITS = 0x7F800000
"""Infinity as an integer; floats that are not negative sort as the integers of their bits do."""
RANK_MARGIN = 1e-9
"""Sums of ranks may be so far below zero: rounding, which is 1e-11 for a line of 1e5 samples."""


@inner_function
def _n_up_to(bits: Bits, bound: np.int32) -> np.int32:
    n = np.int32(0)
    for i in range(len(bits)):
        n = np.int32(n + np.int32(bits[i] <= bound))
    return n


@inner_function
def _least_above(bits: Bits, bound: np.int32) -> np.int32:
    least = np.int32(INFINITY_BITS)
    for i in range(len(bits)):
        above = bits[i] if bits[i] > bound else np.int32(INFINITY_BITS)
        least = above if above < least else least
    return least


@inner_function
def _float_of(bits: np.int32) -> float:
    return np.float64(np.int32(bits).view(np.float32))


@inner_function
def median_of_line(line: Line, n: int) -> float:
    """Median of the `n` smallest numbers of a line, none of them negative; NaN where n is 0.

    By counting the numbers up to a bound, so that none is moved; the mean of the middle two for even n. The
    next bound is interpolated among the bits of float32, which numbers that are not negative sort as, or in
    the middle of these, where that did not halve how many numbers are left.
    """
    if n == 0:
        return math.nan
    bits = line.view(np.int32)
    rank = (n + 1) // 2
    low, high = np.int32(-1), np.int32(INFINITY_BITS)
    n_low, n_high, in_middle = 0, n, False
    while n_high - n_low > 1 and high - low > 1:
        share = 0.5 if in_middle else (rank - 0.5 - n_low) / (n_high - n_low)
        step = min(int(high) - int(low) - 1, int(share * (high - low)))
        bound = np.int32(int(low) + max(1, step))
        n_left, n_bound = n_high - n_low, int(_n_up_to(bits, bound))
        if n_bound >= rank:
            high, n_high = bound, n_bound
        else:
            low, n_low = bound, n_bound
        in_middle = 2 * (n_high - n_low) > n_left
    found = high if high - low == 1 else _least_above(bits, low)
    value = _float_of(found)
    if n % 2 == 1 or n_high > rank:
        return value
    return 0.5 * (value + _float_of(_least_above(bits, found)))


@inner_function
def _held_one_sided(line: Line, found: Mask, threshold: np.float32, held: Line) -> None:
    for i in range(len(line)):
        held[i] = threshold if found[i] else line[i]


@inner_function
def _held_two_sided(line: Line, high: Mask, low: Mask, threshold: np.float32, held: Line) -> None:
    for i in range(len(line)):
        value = line[i]
        if high[i]:
            value = min(value, threshold)
        elif low[i]:
            value = max(value, -threshold)
        held[i] = value


@inner_function
def _add(values: Line, later: Line) -> None:
    for i in range(len(later)):
        values[i] += later[i]


@inner_function
def _sum_windows(held: Line, summed: int, window: int) -> int:
    """Replace sums of windows by those of larger ones that begin at the same numbers; how many these are.

    Numbers are windows of 1. By doubling, so that a sum does not depend on what was summed before.
    """
    half = summed
    while half < window:
        _add(held, held[half : len(held) - half + 1])
        half *= 2
    return len(held) - window + 1


@inner_function
def _some_exceed(sums: Line, bound: np.float32) -> bool:
    """Whether a sum is above a bound, or below minus that."""
    some = False
    for i in range(len(sums)):
        some |= abs(sums[i]) > bound
    return some


@inner_function
def _flag_windows(sums: Line, sign: np.float32, bound: np.float32, window: int, found: Mask) -> None:
    """Flag the windows whose sum, times the sign, exceeds a bound."""
    for i in range(len(sums)):
        if sign * sums[i] > bound:
            found[i : i + window] = True


@inner_function
def sum_threshold_one_sided(line: Line, thresholds: Line, found: Mask, held: Line) -> None:
    """SumThreshold of high values of one line; see `rime_kernels.flagging.spectra.sum_threshold`.

    Parameters
    ----------
    line : float32 (n,)
    thresholds : float32 (n_window,)
        Of windows of 1, 2, 4, ... samples.
    found : bool (n,)
        Filled.
    held : float32 (n,)
        Workspace.
    """
    found[:] = False
    held[: len(line)] = line
    summed, some = 1, False
    for i in range(len(thresholds)):
        window, threshold = 1 << i, thresholds[i]
        if window > len(line):
            return
        if some:
            _held_one_sided(line, found, threshold, held)
            summed = 1
        sums, bound = held[: _sum_windows(held, summed, window)], np.float32(threshold * np.float32(window))
        summed = window
        if _some_exceed(sums, bound):
            _flag_windows(sums, np.float32(1.0), bound, window, found)
            some = True


@inner_function
def sum_threshold_two_sided(line: Line, thresholds: Line, high: Mask, low: Mask, held: Line) -> None:
    """SumThreshold of high and low values of one line, which differ in how flagged samples are held.

    Before each window, a sample that was found high is held at the window's threshold where it exceeds it,
    and one that was found low at minus the threshold.

    Parameters
    ----------
    line, thresholds, held : as of `sum_threshold_one_sided`
    high, low : bool (n,)
        Filled.
    """
    high[:] = False
    low[:] = False
    held[: len(line)] = line
    summed, some = 1, False
    for i in range(len(thresholds)):
        window, threshold = 1 << i, thresholds[i]
        if window > len(line):
            return
        if some:
            _held_two_sided(line, high, low, threshold, held)
            summed = 1
        sums, bound = held[: _sum_windows(held, summed, window)], np.float32(threshold * np.float32(window))
        summed = window
        if _some_exceed(sums, bound):
            _flag_windows(sums, np.float32(1.0), bound, window, high)
            _flag_windows(sums, np.float32(-1.0), bound, window, low)
            some = True


@inner_function
def rank_line(found: Mask, given: Mask, eta: float, sums: NDArray[np.float64], out: Mask) -> None:
    """Scale-invariant rank operator of one line; see `rime_kernels.flagging.rank`.

    Parameters
    ----------
    found, given : bool (n,)
        Flags that were found, and samples that were left out from the start, which count neither way.
    eta : float
    sums : float64 (n + 1,)
        Workspace.
    out : bool (n,)
        Filled: `found` and what the operator adds; may be `found` itself.
    """
    n_flagged, n_clear = 0, 0
    sums[0] = 0.0
    for i in range(len(found)):
        if not given[i]:
            n_flagged += found[i]
            n_clear += not found[i]
        sums[i + 1] = eta * n_flagged - (1.0 - eta) * n_clear
    for k in range(1, len(found) + 1):  # the largest sum up to any later end
        i = len(found) - k
        sums[i] = max(sums[i], sums[i + 1])
    n_flagged, n_clear, smallest = 0, 0, 0.0
    for i in range(len(found)):
        smallest = min(smallest, eta * n_flagged - (1.0 - eta) * n_clear)
        was_found = found[i]
        if not given[i]:
            n_flagged += was_found
            n_clear += not was_found
        out[i] = was_found or (not given[i] and sums[i + 1] - smallest >= -RANK_MARGIN)
