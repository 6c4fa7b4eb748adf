"""From sums in Stokes parameters to correlations, and back: constant matrices without their zeros."""

from __future__ import annotations

import functools

from numba import float32, float64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar


@functools.cache
def make_correlation(matrix: tuple[complex, ...], single: bool) -> Compiled:
    """Function that makes correlation k of the Stokes sums at `offset`, each n behind the one before.

    Real and imaginary part of (the matrix times the sums); with sign -1 of the sums' conjugates, which are
    those of the baseline turned round.
    """
    real = float32 if single else float64
    re_part = tuple(real(z.real) for z in matrix)
    im_part = tuple(real(z.imag) for z in matrix)

    @device.inline
    def correlation(
        k: int, n_stokes: int, n: int, offset: int, sign: Scalar, sums: Array
    ) -> tuple[Scalar, Scalar]:
        re, im = real(0), real(0)
        for j in range(n_stokes):
            a, b = re_part[4 * k + j], im_part[4 * k + j]
            x, y = sums[n * j + offset], sign * sums[n * (n_stokes + j) + offset]
            # Most elements are 0 or real; the tests are of constants, so that no code is compiled for zeros.
            if a != real(0):
                re += a * x
                im += a * y
            if b != real(0):
                re -= b * y
                im += b * x
        return re, im

    return correlation


@functools.cache
def make_back(matrix: tuple[complex, ...], single: bool, n_stokes: int) -> Compiled:
    """Function that adds a weighted residual of correlation k to those in Stokes parameters, from `offset`
    on.

    The matrix' conjugate transpose; with sign -1 of a baseline that was turned round. Parameter j
    lies `n` behind the one before.
    """
    real = float32 if single else float64
    re_part = tuple(real(z.real) for z in matrix)
    im_part = tuple(real(z.imag) for z in matrix)

    @device.inline
    def add_back(k: int, re: Scalar, im: Scalar, sign: Scalar, into: Array, offset: int, n: int) -> None:
        for j in range(n_stokes):
            a, b = re_part[4 * k + j], im_part[4 * k + j]
            if a != real(0):
                into[offset + n * j] += a * re
                into[offset + n * (n_stokes + j)] += sign * (a * im)
            if b != real(0):
                into[offset + n * j] += b * im
                into[offset + n * (n_stokes + j)] -= sign * (b * re)

    return add_back
