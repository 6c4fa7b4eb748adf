"""Fourier transforms of subgrids on the CPU, by vectors: of one item at a time, so that they stay in the
cache.

A subgrid of S x S complex numbers is small: a radix-4 step and S/4 x S/4 matrices take fewer steps than
calls of a library, and what comes before and after needs no second pass through memory. Rows are transformed
against each other, so that lanes are neighbours in a row; then the subgrid is transposed, and that again.
Numbers are counted from -S/2 before and after: which rows are taken and written says so, and costs nothing.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function
from rime_kernels.compile.types import Pointer, Vector
from rime_kernels.cpu.lanes import copied
from rime_kernels.cpu.simd import ahead, constant, fma, load, size, spread, store
from rime_kernels.idg.cpu.shuffles import alternating, swapped


class DftTables(NamedTuple):
    """Factors of transforms of S numbers; `sign` that of the exponent.

    Attributes
    ----------
    twiddle : (4, S/4, 2)
        Real and imaginary part of exp(sign 2 pi i r k / S).
    matrix : (S/4, S/4, 2)
        Those of exp(sign 2 pi i q k / (S/4)).
    sign : float
    """

    twiddle: NDArray[np.floating]
    matrix: NDArray[np.floating]
    sign: float


@functools.cache
def tables(size: int, sign: int, single: bool) -> DftTables:
    """The factors, in working precision."""
    quarter, real = size // 4, np.float32 if single else np.float64

    def waves(rows: int, period: int) -> NDArray[np.floating]:
        # Whole turns come off as whole numbers, exactly, before the exponential.
        turns = np.outer(np.arange(rows), np.arange(quarter)) % period / period
        waves = np.exp(sign * 2j * np.pi * turns)
        return copied(np.stack([waves.real, waves.imag], axis=-1), real)

    return DftTables(waves(4, size), waves(quarter, quarter), float(sign))


@inner_function
def _columns(
    source: Pointer,
    stride: int,
    target: Pointer,
    scratch: Pointer,
    n: int,
    factors: tuple[Pointer, Pointer],
    sign: float,
    lanes_like: Vector,
) -> None:
    """Transform as many columns as `lanes_like` has lanes, of n rows; those of the target have 2n numbers.

    `factors` are the tables' `twiddle` and `matrix`; `scratch` takes 2n vectors.
    """
    quarter, lanes, row = n // 4, size(lanes_like), 2 * n
    twiddle, matrix = factors
    turn = alternating(1.0, lanes_like)  # times swapped parts: multiplication by i
    signed = alternating(sign, lanes_like)
    for k in range(quarter):
        # Counting from -S/2 takes the halves in exchanged order: 2, 3, 0, 1.
        g2, g3 = load(source, k * stride, lanes_like), load(source, (k + quarter) * stride, lanes_like)
        g0 = load(source, (k + 2 * quarter) * stride, lanes_like)
        g1 = load(source, (k + 3 * quarter) * stride, lanes_like)
        a, b, c, d = g0 + g2, g0 - g2, g1 + g3, swapped(g1 - g3) * signed
        offset = 2 * lanes * k
        # Each number is kept beside i times itself: a complex product is then two multiply-adds.
        _put(scratch, offset, a + c, turn)
        _put_twiddled(scratch, offset + 2 * lanes * quarter, b + d, turn, twiddle, 2 * (quarter + k))
        _put_twiddled(scratch, offset + 4 * lanes * quarter, a - c, turn, twiddle, 2 * (2 * quarter + k))
        _put_twiddled(scratch, offset + 6 * lanes * quarter, b - d, turn, twiddle, 2 * (3 * quarter + k))
    for r in range(4):
        here = ahead(scratch, 2 * lanes * quarter * r)
        # Two rows at a time: each number is loaded once for both.
        for q in range(0, quarter - 1, 2):
            total, other = constant(0.0, lanes_like), constant(0.0, lanes_like)
            w, w2 = ahead(matrix, 2 * quarter * q), ahead(matrix, 2 * quarter * (q + 1))
            for k in range(quarter):
                g, turned = (
                    load(here, 2 * lanes * k, lanes_like),
                    load(here, 2 * lanes * k + lanes, lanes_like),
                )
                total = fma(spread(w[2 * k], lanes_like), g, total)
                other = fma(spread(w2[2 * k], lanes_like), g, other)
                total = fma(spread(w[2 * k + 1], lanes_like), turned, total)
                other = fma(spread(w2[2 * k + 1], lanes_like), turned, other)
            store(target, (4 * q + r + 2 * quarter) % n * row, total)
            store(target, (4 * q + 4 + r + 2 * quarter) % n * row, other)
        # The last row of an odd number.
        if quarter % 2:
            total, w = constant(0.0, lanes_like), ahead(matrix, 2 * quarter * (quarter - 1))
            for k in range(quarter):
                g, turned = (
                    load(here, 2 * lanes * k, lanes_like),
                    load(here, 2 * lanes * k + lanes, lanes_like),
                )
                total = fma(spread(w[2 * k], lanes_like), g, total)
                total = fma(spread(w[2 * k + 1], lanes_like), turned, total)
            store(target, (4 * (quarter - 1) + r + 2 * quarter) % n * row, total)


@inner_function
def _put(scratch: Pointer, offset: int, value: Vector, turn: Vector) -> None:
    """Write a vector, and i times it."""
    store(scratch, offset, value)
    store(scratch, offset + size(value), swapped(value) * turn)


@inner_function
def _put_twiddled(
    scratch: Pointer, offset: int, value: Vector, turn: Vector, twiddle: Pointer, which: int
) -> None:
    turned = swapped(value) * turn
    re, im = spread(twiddle[which], value), spread(twiddle[which + 1], value)
    _put(scratch, offset, re * value + im * turned, turn)


@inner_function
def _rows(
    source: Pointer,
    stride: int,
    target: Pointer,
    scratch: Pointer,
    n: int,
    factors: tuple[Pointer, Pointer],
    sign: float,
    lanes_like: Vector,
    half: Vector,
) -> None:
    """Transform n x n complex numbers along their first axis; `half` has half of the
    lanes of `lanes_like`.
    """
    lanes = size(lanes_like)
    for first in range(0, 2 * n - lanes + 1, lanes):
        _columns(ahead(source, first), stride, ahead(target, first), scratch, n, factors, sign, lanes_like)
    # Sizes are multiples of four: what is left of a row is half a vector.
    if 2 * n % lanes:
        first = 2 * n - size(half)
        _columns(ahead(source, first), stride, ahead(target, first), scratch, n, factors, sign, half)


@inner_function
def _transpose(source: Pointer, target: Pointer, n: int, pair: Vector) -> None:
    """Exchange the axes of n x n complex numbers; `pair` is a vector of two."""
    for i in range(n):
        for j in range(n):
            store(target, 2 * (j * n + i), load(source, 2 * (i * n + j), pair))


@inner_function
def transform(
    source: Pointer, stride: int, target: Pointer, scratch: Pointer, n: int, factors: tuple[Pointer, Pointer],
    sign: float, lanes_like: Vector, half: Vector, pair: Vector,
) -> None:  # fmt: skip
    """The transform of n x n complex numbers along both axes, which change places.

        target[j, i] = sum over k, l of source[k, l] exp(sign 2 pi i (i k + j l)/n), all from -n/2

    Rows of the source begin `stride` numbers apart. `scratch` takes 4n (n + lanes) numbers; `half` is a
    vector of half the lanes of `lanes_like`, `pair` one of two.
    """
    first, second = (
        ahead(scratch, 4 * n * size(lanes_like)),
        ahead(scratch, 4 * n * size(lanes_like) + 2 * n * n),
    )
    _rows(source, stride, first, scratch, n, factors, sign, lanes_like, half)
    _transpose(first, second, n, pair)
    _rows(second, 2 * n, target, scratch, n, factors, sign, lanes_like, half)
