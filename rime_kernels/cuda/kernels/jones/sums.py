"""Sums over sources of T_p B T_q^H for a tile of antennas, and their end as sums in Stokes parameters.

Until the end a thread's sums are the products of two feeds, 00, 01, 10, 11, real parts before imaginary ones,
each `n` numbers behind the one before. The four become I, Q, U and V of what a source without any beam would
show, which is exact for any 2x2 matrix: so the endings are those of scalar beams.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import float32, float64, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.baseline import Corner, Staged
from rime_kernels.cuda.kernels.correlations import make_correlation
from rime_kernels.cuda.kernels.jones.pairs import pairs_of
from rime_kernels.cuda.kernels.tiles.parts import TileKernel, sizes_of
from rime_kernels.jones_beam import matrices
from rime_kernels.physics import envelope
from rime_kernels.physics.feeds import feeds_of


@functools.cache
def make_add_product(n: int) -> Compiled:
    """Function that adds a b^H to the sums, those of the first product at `offset`, each
    n behind the other.
    """
    product = device.inline(matrices.add_times_adjoint.py_func)

    @device.inline
    def add_product(sums: Array, offset: int, a: tuple[Scalar, ...], b: tuple[Scalar, ...]) -> None:
        c = (
            sums[offset], sums[offset + 4 * n], sums[offset + n], sums[offset + 5 * n], sums[offset + 2 * n],
            sums[offset + 6 * n],
            sums[offset + 3 * n], sums[offset + 7 * n],
        )  # fmt: skip
        # Sums are read into a tuple and written back: the compiler keeps them in registers throughout.
        c = product(c, a, b)
        sums[offset], sums[offset + 4 * n], sums[offset + n], sums[offset + 5 * n] = c[0], c[1], c[2], c[3]
        sums[offset + 2 * n], sums[offset + 6 * n], sums[offset + 3 * n], sums[offset + 7 * n] = (
            c[4],
            c[5],
            c[6],
            c[7],
        )

    return add_product


@functools.cache
def make_to_stokes(matrix: tuple[complex, ...], single: bool, n: int) -> Compiled:
    """Function that turns the sums of the products of feeds into those of Stokes parameters."""
    full, _ = feeds_of(np.reshape(matrix, (-1, 4)))
    stokes = make_correlation(tuple(np.linalg.inv(full).ravel().tolist()), single)
    real = float32 if single else float64

    @device.inline
    def to_stokes(sums: Array) -> None:
        for _ in range(n):
            i_re, i_im = stokes(0, 4, n, 0, real(1), sums)
            q_re, q_im = stokes(1, 4, n, 0, real(1), sums)
            u_re, u_im = stokes(2, 4, n, 0, real(1), sums)
            v_re, v_im = stokes(3, 4, n, 0, real(1), sums)
            # From the front to the end, so that every index is a constant: see `tiles.kernel` on registers.
            for j in range(8):
                for k in range(n - 1):
                    sums[j * n + k] = sums[j * n + k + 1]
            sums[n - 1], sums[2 * n - 1], sums[3 * n - 1], sums[4 * n - 1] = i_re, q_re, u_re, v_re
            sums[5 * n - 1], sums[6 * n - 1], sums[7 * n - 1], sums[8 * n - 1] = i_im, q_im, u_im, v_im

    return to_stokes


@functools.cache
def make_accumulate(kernel: TileKernel, gaussian: bool) -> Compiled:
    """Function that adds `n_source` sources to the sums of a thread's tile.

    `Staged.term` has the elements of T, then those of T B, each of both chunks. `second`, (8 side,), is for T
    of the tile's second antennas.
    """
    single, side, n_baseline = kernel.variant.single, kernel.shape.side, kernel.shape.side**2
    plane = 2 * sizes_of(kernel).n_term
    add_product, exp2 = make_add_product(n_baseline), scalars.exp2_function(single)
    unpack, scaled = pairs_of(single).unpack, device.inline(matrices.scaled.py_func)
    squared = device.inline(envelope.squared.py_func)

    @device.inline
    def coordinate(staged: Staged, x: Scalar, y: Scalar) -> Scalar:
        """The square of a baseline's coordinates along and across."""
        a, b = staged.high[x], staged.high[y]
        along, across = a.real - b.real, a.imag - b.imag
        if single:
            # Added last: high parts cancel most of each other, and a small rest meets a small number.
            a, b = staged.low[x], staged.low[y]
            along, across = along + (a.real - b.real), across + (a.imag - b.imag)
        return squared(along, across)

    @device.part
    def accumulate(n_source: int, staged: Staged, corner: Corner, sums: Array, second: Array) -> None:
        p, q, term = corner.p, corner.q, staged.term
        # A running address compared with its end is one counter less than an index of the source.
        end = uint32(p + uint32(n_source) * uint32(side))
        while p != end:
            for j in range(side):
                for k in range(4):
                    z = unpack(term[q + uint32(j + k * plane)])
                    second[8 * j + 2 * k], second[8 * j + 2 * k + 1] = z[0], z[1]
            # T of second antennas stays in registers while first antennas pass, of which each is read once.
            for i in range(side):
                a, b = unpack(term[p + uint32(i + 4 * plane)]), unpack(term[p + uint32(i + 5 * plane)])
                c, d = unpack(term[p + uint32(i + 6 * plane)]), unpack(term[p + uint32(i + 7 * plane)])
                first = a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]
                for j in range(side):
                    offset = 8 * j
                    other = (
                        second[offset], second[offset + 1], second[offset + 2], second[offset + 3],
                        second[offset + 4],
                        second[offset + 5], second[offset + 6], second[offset + 7],
                    )  # fmt: skip
                    seen = first
                    if gaussian:
                        # The envelope is one number for a baseline: it multiplies T B before the product.
                        seen = scaled(first, exp2(coordinate(staged, p + uint32(i), q + uint32(j))))
                    add_product(sums, i * side + j, seen, other)
            p, q = uint32(p + uint32(side)), uint32(q + uint32(side))

    return accumulate
