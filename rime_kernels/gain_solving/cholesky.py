"""Triangular factors of small symmetric matrices, called from within parallel loops."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function

Array = NDArray[np.float64]
LEAST_PIVOT = 1e-11
"""A pivot that is less than this share of its diagonal element counts as 0: rounding leaves about 1e-14."""


@inner_function
def factor(matrix: Array) -> bool:
    """Overwrite the lower triangle by L with L L^T = matrix; whether the matrix is positive definite."""
    n = matrix.shape[0]
    for j in range(n):
        whole = matrix[j, j]
        pivot = whole
        for k in range(j):
            pivot -= matrix[j, k] * matrix[j, k]
        if not pivot > LEAST_PIVOT * whole:
            return False
        root = math.sqrt(pivot)
        matrix[j, j] = root
        for i in range(j + 1, n):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / root
    return True


@inner_function
def solve(lower: Array, vector: Array) -> None:
    """Overwrite b by x with L L^T x = b."""
    n = lower.shape[0]
    for i in range(n):
        total = vector[i]
        for k in range(i):
            total -= lower[i, k] * vector[k]
        vector[i] = total / lower[i, i]
    for i in range(n - 1, -1, -1):
        vector[i] /= lower[i, i]
        for k in range(i):
            vector[k] -= lower[i, k] * vector[i]


@inner_function
def diagonal_of_inverse(lower: Array, found: Array) -> None:
    """The diagonal of (L L^T)^-1; L is overwritten by its inverse."""
    n = lower.shape[0]
    found[:] = 0.0
    for i in range(n):
        inverse = 1.0 / lower[i, i]
        # Row i of L^-1 is -(L_i L^-1) / L_ii, from the rows above it, which are inverted already.
        for j in range(i):
            total = 0.0
            for k in range(j, i):
                total += lower[i, k] * lower[k, j]
            lower[i, j] = -total * inverse
            found[j] += lower[i, j] * lower[i, j]
        lower[i, i] = inverse
        found[i] += inverse * inverse
