"""Sums over complex samples whose noise is correlated: R^-1 = B^T L^-T L^-1 B of each sequence.

B and L are those of `rime_kernels.correlated_noise.covariance`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels.compile.jit import loop

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Index = NDArray[np.int64]


class Sequences(NamedTuple):
    """Which samples are neighbours.

    Attributes
    ----------
    begin : int64 (n_sequence + 1,)
        Where each sequence begins among the samples.
    pattern : int64 (n_sequence,)
    first : int64 (n_sequence,)
        Where its pattern begins among the places.
    """

    begin: Index
    pattern: Index
    first: Index


@loop
def whiten(x: Complex, begin: Index, first: Index, rows: Array, white: Complex) -> None:
    """z = L^-1 B x of each sequence: independent samples, of variance 1 where x has the covariance R."""
    for sequence in prange(first.size):
        start, shift = begin[sequence], first[sequence] - begin[sequence]
        for k in range(start, begin[sequence + 1]):
            value = x[k]
            if k > start:
                value -= rows[k + shift, 0] * x[k - 1] + rows[k + shift, 2] * white[k - 1]
            if k > start + 1:
                value -= rows[k + shift, 3] * white[k - 2]
            white[k] = value * (1.0 / rows[k + shift, 1])  # complex numbers are never divided by 0


@loop
def colour(white: Complex, begin: Index, first: Index, rows: Array, x: Complex) -> None:
    """x = B^-1 L z: samples with the covariance R, from independent ones of variance 1."""
    for sequence in prange(first.size):
        start, shift = begin[sequence], first[sequence] - begin[sequence]
        for k in range(start, begin[sequence + 1]):
            value = rows[k + shift, 1] * white[k]
            if k > start:
                value += rows[k + shift, 0] * x[k - 1] + rows[k + shift, 2] * white[k - 1]
            if k > start + 1:
                value += rows[k + shift, 3] * white[k - 2]
            x[k] = value


@loop
def unwhiten(white: Complex, begin: Index, first: Index, rows: Array, middle: Complex, y: Complex) -> None:
    """y = B^T L^-T z, which is R^-1 x for z = L^-1 B x; `middle` gets L^-T z."""
    for sequence in prange(first.size):
        start, end, shift = begin[sequence], begin[sequence + 1], first[sequence] - begin[sequence]
        for k in range(end - 1, start - 1, -1):
            value = white[k]
            if k + 1 < end:
                value -= rows[k + 1 + shift, 2] * middle[k + 1]
            if k + 2 < end:
                value -= rows[k + 2 + shift, 3] * middle[k + 2]
            middle[k] = value * (1.0 / rows[k + shift, 1])
            y[k] = middle[k]
            if k + 1 < end:
                y[k] -= rows[k + 1 + shift, 0] * middle[k + 1]


@loop
def square_slopes(
    x: Complex, white: Complex, middle: Complex, begin: Index, first: Index, slopes: Array, found: Array
) -> None:
    """Derivatives of x^H R^-1 x of each sequence, (n_sequence, n): 2 Re v^H (B' x - L' z).

    By rho, or by rho and h: as many as there are `slopes` (n, n_place, 4). v = L^-T z is `middle` of
    `unwhiten`.
    """
    for sequence in prange(first.size):
        start, shift = begin[sequence], first[sequence] - begin[sequence]
        for d in range(slopes.shape[0]):
            total = 0.0
            for k in range(start, begin[sequence + 1]):
                change = slopes[d, k + shift, 1] * white[k]
                if k > start:
                    change += slopes[d, k + shift, 0] * x[k - 1] + slopes[d, k + shift, 2] * white[k - 1]
                if k > start + 1:
                    change += slopes[d, k + shift, 3] * white[k - 2]
                total -= 2.0 * (middle[k].real * change.real + middle[k].imag * change.imag)
            found[sequence, d] = total
