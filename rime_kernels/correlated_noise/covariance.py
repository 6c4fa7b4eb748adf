"""The covariance of samples whose noise is correlated with that of their neighbours in a sequence.

The covariance of a sequence at the places p_1 < p_2 < ..., in units of its spacing, is R_jk = c(|p_j - p_k|),
the autocorrelation of the noise: that of a first-order autoregressive process u with correlation rho between
neighbours, smoothed over three neighbours with the weights (h, 1 - 2h, h) where channels are smoothed,

    c(m) ~ A0 rho^|m| + A1 (rho^|m-1| + rho^|m+1|) + A2 (rho^|m-2| + rho^|m+2|),     c(0) = 1
    A0 = (1 - 2h)^2 + 2 h^2,   A1 = 2 h (1 - 2h),   A2 = h^2

h = 1/4 is Hanning smoothing. Without smoothing places may be any numbers, with it they are integers. The
differences w_k = x_k - rho^(p_k - p_(k-1)) x_(k-1) of samples with any gaps then are correlated over two
neighbours at most (as in Ansley 1979, Biometrika 66, 59), and not at all without smoothing, so that
R^-1 = B^T L^-T L^-1 B with B of the differences and L, the Cholesky factor of their covariance, of two
diagonals below the main one: work grows as the number of samples, and gaps are exact.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function, loop, serial_loop

Array = NDArray[np.float64]
Index = NDArray[np.int64]
INDEPENDENT = 1e-6
"""Part of the variance that is independent where channels are smoothed: data that are stored in single
precision have roundings of this size, which smoothing alone would make infinitely unlikely."""


class Patterns(NamedTuple):
    """Places of the samples of sequences; those that have the same share one pattern.

    Attributes
    ----------
    place : float64 (n_place,)
        Of one pattern after the other, ascending, in units of the spacing.
    begin : int64 (n_pattern + 1,)
        Where each pattern begins among the places.
    """

    place: Array
    begin: Index


class Factors(NamedTuple):
    """The factors of R^-1 of each pattern, with derivatives by rho and h.

    Attributes
    ----------
    rows : float64 (n_place, 4)
        rho^(gap before the sample), and the row of L from the diagonal to the left.
    slopes : float64 (2, n_place, 4)
    log_det : float64 (n_pattern,)
        ln det R.
    log_det_slopes : float64 (2, n_pattern)
    """

    rows: Array
    slopes: Array
    log_det: Array
    log_det_slopes: Array


def factors(patterns: Patterns, rho: float, h: float, *, smoothed: bool) -> Factors:
    """The factors of R^-1; NaN where rho or h are none of a covariance."""
    n = len(patterns.place)
    rows, slopes = np.zeros((n, 4)), np.zeros((2, n, 4))
    if smoothed:
        longest = int(np.diff(patterns.place).max(initial=0.0)) * 3 + 3
        lags = _lags(longest, rho, h)
        _smoothed_factors(patterns.place.astype(np.int64), patterns.begin, *lags, rows, slopes)
    else:
        _plain_factors(patterns.place, patterns.begin, rho, rows, slopes)
    begin = patterns.begin[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_det = 2.0 * np.add.reduceat(np.log(rows[:, 1]), begin) if n else np.zeros(0)
        by = [2.0 * np.add.reduceat(slope[:, 1] / rows[:, 1], begin) for slope in slopes] if n else []
    return Factors(rows, slopes, log_det, np.array(by).reshape(2, -1))


def _lags(longest: int, rho: float, h: float) -> tuple[Array, Array]:
    """rho^m and c(m) with their derivatives by rho and h, (3, longest + 1) each, for m = 0, 1, ..."""
    powers, m = np.zeros((3, longest + 3)), np.arange(longest + 3.0)
    powers[0] = rho**m
    powers[1, 1:] = m[1:] * powers[0, :-1]
    weights = np.array([(1.0 - 2.0 * h) ** 2 + 2.0 * h * h, 2.0 * h * (1.0 - 2.0 * h), h * h])
    by_h = np.array([12.0 * h - 4.0, 2.0 - 8.0 * h, 2.0 * h])
    near = np.abs(m[: longest + 1, None].astype(np.int64) + np.arange(-2, 3))
    each = np.array([2, 1, 0, 1, 2])
    sums = np.stack(
        [powers[0][near] @ weights[each], powers[1][near] @ weights[each], powers[0][near] @ by_h[each]]
    )
    norm, correlation = sums[:, 0].copy(), np.empty((3, longest + 1))
    correlation[0] = sums[0] / norm[0]
    correlation[1:] = (sums[1:] - correlation[0] * norm[1:, None]) / norm[0]
    correlation *= 1.0 - INDEPENDENT
    correlation[0, 0] = 1.0
    return np.ascontiguousarray(powers[:, : longest + 1]), correlation


@serial_loop
def _plain_factors(place: Array, begin: Index, rho: float, rows: Array, slopes: Array) -> None:
    """Without smoothing: differences are independent, with variances 1 - rho^(2 gap)."""
    for pattern in range(begin.size - 1):
        rows[begin[pattern], 1] = 1.0
        for k in range(begin[pattern] + 1, begin[pattern + 1]):
            gap = place[k] - place[k - 1]
            a = math.pow(rho, gap)
            root = math.sqrt(1.0 - a * a)
            by = gap * a / rho if rho != 0.0 else (1.0 if gap == 1.0 else 0.0)
            rows[k, 0], rows[k, 1] = a, root
            slopes[0, k, 0], slopes[0, k, 1] = by, -a * by / root


@inner_function
def _cholesky_row(k: int, n_before: int, cov: Array, rows: Array, slopes: Array) -> None:
    """Row k of L, of a matrix with two diagonals beside the main one, and its derivatives."""
    second = cov[2, 0] / rows[k - 2, 1] if n_before > 1 else 0.0
    first = (
        (cov[1, 0] - (second * rows[k - 1, 2] if n_before > 1 else 0.0)) / rows[k - 1, 1] if n_before else 0.0
    )
    root = math.sqrt(cov[0, 0] - first * first - second * second)
    rows[k, 1], rows[k, 2], rows[k, 3] = root, first, second
    for d in range(2):
        by_second = by_first = 0.0
        if n_before > 1:
            by_second = (cov[2, d + 1] - second * slopes[d, k - 2, 1]) / rows[k - 2, 1]
        if n_before > 0:
            total = cov[1, d + 1] - first * slopes[d, k - 1, 1]
            if n_before > 1:
                total -= by_second * rows[k - 1, 2] + second * slopes[d, k - 1, 2]
            by_first = total / rows[k - 1, 1]
        slopes[d, k, 1] = (0.5 * cov[0, d + 1] - first * by_first - second * by_second) / root
        slopes[d, k, 2], slopes[d, k, 3] = by_first, by_second


@serial_loop
def _smoothed_factors(
    place: Index, begin: Index, powers: Array, correlation: Array, rows: Array, slopes: Array
) -> None:
    """Factors of the covariance with smoothing, and their derivatives."""
    cov = np.zeros((3, 3))  # of difference k with k, k - 1, k - 2; value, derivatives by rho and h
    for pattern in range(begin.size - 1):
        start = begin[pattern]
        for k in range(start, begin[pattern + 1]):
            a, by_a = 0.0, 0.0
            if k > start:
                a, by_a = powers[0, place[k] - place[k - 1]], powers[1, place[k] - place[k - 1]]
            rows[k, 0], slopes[0, k, 0] = a, by_a
            for back in range(min(3, k - start + 1)):
                j = k - back
                b, by_b = rows[j, 0], slopes[0, j, 0]
                # The sample before the first has the factor 0; that one's own place stands in for it.
                before, other = place[max(k - 1, start)], place[max(j - 1, start)]
                m = abs(place[k] - place[j])
                m1, m2, m3 = abs(before - place[j]), abs(place[k] - other), abs(before - other)
                for d in range(3):
                    cov[back, d] = (
                        correlation[d, m]
                        - a * correlation[d, m1]
                        - b * correlation[d, m2]
                        + a * b * correlation[d, m3]
                    )
                cov[back, 1] += (
                    -by_a * correlation[0, m1]
                    - by_b * correlation[0, m2]
                    + (by_a * b + a * by_b) * correlation[0, m3]
                )
            _cholesky_row(k, k - start, cov, rows, slopes)


def information(patterns: Patterns, of: Factors, *, smoothed: bool) -> Array:
    """tr(R^-1 R_a R^-1 R_b) of each pattern, between rho and h: float64 (n_pattern, 2, 2).

    It is the Fisher information of a sequence of complex samples (Kay 1993, section 3.9).
    """
    found = np.zeros((len(patterns.begin) - 1, 2, 2))
    if smoothed:
        _smoothed_information(patterns.begin, of.rows, of.slopes, found)
        return found
    # Of each sample given the one before: mean rho^gap x_(k-1), variance v = 1 - rho^(2 gap).
    a, by, variance = of.rows[:, 0], of.slopes[0, :, 0], of.rows[:, 1] ** 2
    found[:, 0, 0] = np.add.reduceat(2.0 * by**2 * (1.0 + a**2) / variance**2, patterns.begin[:-1])
    return found


@loop
def _smoothed_information(begin: Index, rows: Array, slopes: Array, found: Array) -> None:
    """The Fisher information with smoothing: with E_a = (L^-1 B)_a (L^-1 B)^-1, a lower triangle: 2 tr(E_a
    E_b) + 2 tr(E_a E_b^T), by columns.
    """
    for pattern in prange(begin.size - 1):
        start, end = begin[pattern], begin[pattern + 1]
        for j in range(start, end):
            # x and x before it of (L^-1 B)^-1 e_j; u and the two before it of E_a e_j, a = rho, h.
            x = x1 = 0.0
            u1, u2 = np.zeros(2), np.zeros(2)
            u = np.zeros(2)
            for k in range(j, end):
                x1 = x
                x = rows[k, 0] * x1 + (rows[k, 1 + k - j] if k - j < 3 else 0.0)
                for d in range(2):
                    value = -slopes[d, k, 0] * x1 - (slopes[d, k, 1 + k - j] if k - j < 3 else 0.0)
                    value -= rows[k, 2] * u1[d] + rows[k, 3] * u2[d]
                    u[d] = value / rows[k, 1]
                times = 4.0 if k == j else 2.0
                for a in range(2):
                    for b in range(2):
                        found[pattern, a, b] += times * u[a] * u[b]
                for d in range(2):
                    u2[d], u1[d] = u1[d], u[d]
