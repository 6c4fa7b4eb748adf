"""The product of two antennas' terms for one source, and how it is added to sums in Stokes parameters.

Kernels over tiles and over rows, forwards and back, are made of these functions, each compiled into its
kernel. Sums lie parameter by parameter, `n` numbers apart: the real parts of I, Q, U, V (or of I alone), then
the imaginary ones.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import float32, float64, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import scalars
from rime_kernels.physics import envelope


class Stokes(NamedTuple):
    """The brightness of a source at one frequency, Jy; `i` alone counts where nothing is polarised."""

    i: int
    q: Scalar
    u: Scalar
    v: Scalar


class AntennaTerm(NamedTuple):
    """What a source is to one antenna, in working precision.

    The phase term times the voltage, and for a Gaussian the antenna's coordinates along and across it, in
    units in which the envelope of a baseline is 2^-(a^2 + b^2), each as a high and a low part.
    """

    re: Scalar
    im: Scalar
    along: Scalar
    across: Scalar
    along_low: Scalar
    across_low: Scalar


class Staged(NamedTuple):
    """Terms and brightness of some sources in shared memory, where all threads of a block read them."""

    term: Array  # complex, antenna after antenna of a group, source after source
    high: Array  # complex: coordinates along and across, where there are Gaussians
    low: Array  # complex: what is left of these, in single precision
    bright: Array  # I + iQ and U + iV, complex; or I, real


class Corner(NamedTuple):
    """Where in `Staged` the terms of a tile's first and second antennas and its brightness begin; uint32."""

    p: Scalar
    q: Scalar
    bright: Scalar


@functools.cache
def make_read_stokes(
    single: bool, n_stokes: int, index: type, chosen: tuple[int, ...] | None = None
) -> Compiled:
    """Function that reads the brightness at `offset`, an unsigned number of the type `index`.

    Of four Stokes parameters the two that are `chosen` come first, with 0 behind them.
    """
    real = float32 if single else float64
    one, two = chosen if chosen is not None else (0, 1)

    @device.inline
    def read_stokes(bright: Array, offset: int) -> Stokes:
        z = bright[offset]
        stokes_q, stokes_u, stokes_v = real(0), real(0), real(0)
        if n_stokes == 4:
            # Two parameters to a complex number: one load for both.
            stokes_q, other = z.imag, bright[offset + index(1)]
            stokes_u, stokes_v = other.real, other.imag
        stokes = Stokes(z.real, stokes_q, stokes_u, stokes_v)
        if chosen is not None:
            stokes = Stokes(stokes[one], stokes[two], real(0), real(0))
        return stokes

    return read_stokes


@functools.cache
def make_read_first(single: bool, gaussian: bool, wide: bool) -> Compiled:
    """Function that reads the term of one antenna; the low parts of coordinates where they are `wide`."""
    real = float32 if single else float64

    @device.inline
    def read_first(staged: Staged, offset: int) -> AntennaTerm:
        z = staged.term[offset]
        along, across, along_low, across_low = real(0), real(0), real(0), real(0)
        if gaussian:
            high = staged.high[offset]
            along, across = high.real, high.imag
            if wide:
                low = staged.low[offset]
                along_low, across_low = low.real, low.imag
        return AntennaTerm(z.real, z.imag, along, across, along_low, across_low)

    return read_first


@functools.cache
def make_read_second(side: int, gaussian: bool, wide: bool) -> Compiled:
    """Function that reads the terms of a tile's `side` second antennas, from `q` on, for all its first ones.

    `second` has, from `into` on, real parts, imaginary parts, coordinates along, across, and their low parts.
    """

    @device.inline
    def read_second(staged: Staged, q: Scalar, second: Array, into: int) -> None:
        for j in range(side):
            offset = into + j
            z = staged.term[q + uint32(j)]
            second[offset], second[side + offset] = z.real, z.imag
            if gaussian:
                z = staged.high[q + uint32(j)]
                second[2 * side + offset], second[3 * side + offset] = z.real, z.imag
                if wide:
                    z = staged.low[q + uint32(j)]
                    second[4 * side + offset], second[5 * side + offset] = z.real, z.imag

    return read_second


def make_all_rows(row: Compiled, side: int, *, is_short: bool) -> Compiled:
    """Function that calls row(i, given) for all rows i of a tile, in their order.

    A loop over rows that are not short is too long for the compiler to unroll, and what is indexed in it
    leaves the registers; a function that calls another for each row takes longer to compile.
    """
    if is_short or device.simulated():

        @device.part
        def all_rows(given: NamedTuple) -> None:
            for i in range(side):
                row(i, given)

        return all_rows

    def from_row(i: int) -> Compiled:
        if i == side:
            return device.inline(lambda given: None)
        behind = from_row(i + 1)

        @device.part
        def rows(given: NamedTuple) -> None:
            row(i, given)
            behind(given)

        return rows

    return from_row(0)


@functools.cache
def make_product(single: bool, side: int, gaussian: bool, wide: bool) -> Compiled:
    """Function that multiplies one antenna's term by the conjugate of a second one, and the envelope.

    The terms of the second one lie `side` apart, from `second[j]` on.

    Gives real and imaginary part, and the baseline's coordinates along and across the source (0 for a point).
    """
    real, exp2 = float32 if single else float64, scalars.exp2_function(single)
    squared = device.inline(envelope.squared.py_func)

    @device.inline
    def product(first: AntennaTerm, second: Array, j: int) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        # P = p conj(q).
        re = first.re * second[j] + first.im * second[side + j]
        im = first.im * second[j] - first.re * second[side + j]
        along, across = real(0), real(0)
        if gaussian:
            # The envelope is one of the baseline, whose coordinates are differences: no product of antennas'
            # terms gives it.
            along, across = first.along - second[2 * side + j], first.across - second[3 * side + j]
            if wide:
                # Added last: high parts cancel most of each other, and a small rest meets a small number.
                along += first.along_low - second[4 * side + j]
                across += first.across_low - second[5 * side + j]
            e = exp2(squared(along, across))
            re *= e
            im *= e
        return re, im, along, across

    return product


@functools.cache
def make_add_stokes(n_stokes: int, n: int) -> Compiled:
    """Function that adds brightness times a baseline's product to the sums, those of I at `offset`."""

    @device.inline
    def add_stokes(sums: Array, offset: int, stokes: Stokes, re: Scalar, im: Scalar) -> None:
        # One line for each sum, every offset a constant: see `tiles.kernel` on registers.
        sums[offset] += stokes.i * re
        if n_stokes == 1:
            sums[offset + n] += stokes.i * im
        elif n_stokes == 2:
            sums[offset + n] += stokes.q * re
            sums[offset + 2 * n] += stokes.i * im
            sums[offset + 3 * n] += stokes.q * im
        else:
            sums[offset + n] += stokes.q * re
            sums[offset + 2 * n] += stokes.u * re
            sums[offset + 3 * n] += stokes.v * re
            sums[offset + 4 * n] += stokes.i * im
            sums[offset + 5 * n] += stokes.q * im
            sums[offset + 6 * n] += stokes.u * im
            sums[offset + 7 * n] += stokes.v * im

    return add_stokes


@functools.cache
def make_weigh_residual(n_stokes: int, n: int, in_pairs: bool) -> Compiled:
    """Function that gives sum_S B_S R_S, real and imaginary part, from residuals that lie as sums do.

    `in_pairs` adds the parts of U and V to one another first. By this the kernels over tiles and over rows
    have always differed in their roundings, and results stay the same to the bit.
    """

    @device.inline
    def weigh_residual(rest: Array, offset: int, stokes: Stokes) -> tuple[Scalar, Scalar]:
        re, im = stokes.i * rest[offset], stokes.i * rest[offset + n_stokes * n]
        if n_stokes == 4:
            re += stokes.q * rest[offset + n]
            im += stokes.q * rest[offset + 5 * n]
            if in_pairs:
                re += stokes.u * rest[offset + 2 * n] + stokes.v * rest[offset + 3 * n]
                im += stokes.u * rest[offset + 6 * n] + stokes.v * rest[offset + 7 * n]
            else:
                re += stokes.u * rest[offset + 2 * n]
                re += stokes.v * rest[offset + 3 * n]
                im += stokes.u * rest[offset + 6 * n]
                im += stokes.v * rest[offset + 7 * n]
        return re, im

    return weigh_residual


@device.inline
def turned_and_grown(re: Scalar, im: Scalar, rest_re: Scalar, rest_im: Scalar) -> tuple[Scalar, Scalar]:
    """Im and Re of conj(P) sum_S B_S R_S: half of what chi2 gains as P turns and as ln P grows."""
    return re * rest_im - im * rest_re, re * rest_re + im * rest_im
