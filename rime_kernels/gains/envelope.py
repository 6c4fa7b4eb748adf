"""Cholesky factors of symmetric matrices of which each row is kept from its first element to the diagonal.

The factor fills no more than that (George & Liu 1981, section 4.1), and so a matrix of chained blocks with a
border costs no more than its blocks, where the border comes last. Elements of the inverse in the same places
follow from those below and to the right (Takahashi, Fagan & Chen 1973, in Rue & Held 2005, section 2.4).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rime_kernels.compile.jit import inlined_summing_function, summing_function
from rime_kernels.gains.arrays import Array, GainGroups, GainWork, Index


class Rows(NamedTuple):
    """Where elements are kept, as `GainGroups` has it for its coordinates: both int64 (n,)."""

    begin: Index
    row: Index


@inlined_summing_function
def add(rows: Rows | GainGroups, matrix: Array, i: int, j: int, value: float) -> None:
    """Add to an element."""
    matrix[rows.row[max(i, j)] + min(i, j)] += value


@summing_function
def factorise(rows: Rows | GainGroups, first: int, end: int, matrix: Array, least: float) -> int:
    """Replace A by L, with A = L L^T; give -1, or the row where A is not positive.

    A row is not positive where what is left of its diagonal is `least` of it, or less.
    """
    begin, row = rows.begin, rows.row
    for i in range(first, end):
        # Unsigned offsets: what may be negative counts from the end, and loops do not become vectors.
        own, begin_i, end_i = np.uint64(row[i]), np.uint64(begin[i]), np.uint64(i)
        for j in range(begin_i, end_i):
            other = np.uint64(row[j])
            total = matrix[own + j]
            for k in range(max(begin_i, np.uint64(begin[j])), j):
                total -= matrix[own + k] * matrix[other + k]
            matrix[own + j] = total / matrix[other + j]
        before = matrix[own + end_i]
        total = before
        for k in range(begin_i, end_i):
            total -= matrix[own + k] * matrix[own + k]
        if not total > least * abs(before):
            return i
        matrix[own + end_i] = math.sqrt(total)
    return -1


@summing_function
def solve(rows: Rows | GainGroups, first: int, end: int, factor: Array, vector: Array) -> None:
    """Replace b by A^-1 b, of the factor L of A."""
    begin, row = rows.begin, rows.row
    for i in range(first, end):
        own, begin_i, end_i = np.uint64(row[i]), np.uint64(begin[i]), np.uint64(i)
        total = vector[end_i]
        for k in range(begin_i, end_i):
            total -= factor[own + k] * vector[k]
        vector[end_i] = total / factor[own + end_i]
    back_substitute(rows, first, end, factor, vector)


@summing_function
def back_substitute(rows: Rows | GainGroups, first: int, end: int, factor: Array, vector: Array) -> None:
    """Replace b by L^-T b."""
    begin, row = rows.begin, rows.row
    for i in range(end - 1, first - 1, -1):
        own, begin_i, end_i = np.uint64(row[i]), np.uint64(begin[i]), np.uint64(i)
        value = vector[end_i] / factor[own + end_i]
        vector[end_i] = value
        for k in range(begin_i, end_i):
            vector[k] -= factor[own + k] * value


@summing_function
def log_determinant(rows: Rows | GainGroups, first: int, end: int, factor: Array) -> float:
    """ln det A, of the factor L of A."""
    total = 0.0
    for i in range(first, end):
        total += math.log(factor[rows.row[i] + i])
    return 2.0 * total


@summing_function
def invert(
    rows: Rows | GainGroups, first: int, end: int, matrix: Array, column: Array, product: Array
) -> None:
    """Replace the factor L by the elements of A^-1 in its places; the last two are work space (n,)."""
    begin, row = rows.begin, rows.row
    for j in range(end - 1, first - 1, -1):
        diagonal = matrix[row[j] + j]
        for i in range(j + 1, end):
            column[i] = matrix[row[i] + j] if begin[i] <= j else 0.0
            product[i] = 0.0
        for i in range(j + 1, end):
            if begin[i] > j:
                continue
            own, end_i, x_i = np.uint64(row[i]), np.uint64(i), column[i]
            total = matrix[own + end_i] * x_i
            for k in range(np.uint64(j + 1), end_i):
                total += matrix[own + k] * column[k]
                product[k] += matrix[own + k] * x_i
            product[i] += total
        total = 1.0 / diagonal
        for i in range(j + 1, end):
            if begin[i] <= j:
                value = -product[i] / diagonal
                matrix[row[i] + j] = value
                total -= value * column[i]
        matrix[row[j] + j] = total / diagonal


@summing_function
def keep_factor(work: GainWork, g: int, is_there: bool) -> None:
    """Note whether a group has a factor.

    Not in the loops themselves: Numba leaves out what a parallel loop writes into arrays of a tuple.
    """
    work.has_factor[g] = is_there
