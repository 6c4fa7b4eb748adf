"""Jones matrices of the antennas where a sum over sources ends: V_pq = A_p X_pq A_q^H, and the way back.

X is the 2x2 matrix of all correlations of the feeds, from the sums over sources and the templates. With the
weighted residuals R = w (V - D), 0 where a correlation was not observed (physics: section 6),

    d chi2 / d X   = 2 A_p^H R A_q
    d chi2 / d A_p = 2 R A_q X^H          d chi2 / d A_q = 2 R^H A_p X

Kernels without matrices are compiled without any of this.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numba import float32, float64, int64, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.correlations import make_back, make_correlation
from rime_kernels.cuda.kernels.samples import EpilogueKernel, EpilogueSamples
from rime_kernels.physics.feeds import feeds_of


class Pair(NamedTuple):
    """The two antennas of a sample, in the order of its row."""

    jones: (
        Array  # the row of `DeviceSky.jones` of the entry; shared memory where it is `EpilogueKernel.staged`
    )
    p: Scalar  # where in it their matrices lie
    q: Scalar
    records: Array  # of the entry: what its samples leave
    into: Scalar  # where those of this one begin; below 0 where there is no row
    step: Scalar  # between correlations, where matrices stay diagonal


@functools.cache
def make_pair_of(end: EpilogueKernel) -> Compiled:
    """Function that gives the `Pair` of a row's antennas at a time slot and a channel.

    `records` is (n_batch, .), `row` the row's number in the slab; below 0 where there is none.
    """
    n_record, has_adjoint = end.n_record, end.has_adjoint
    if not end.variant.jones:

        @device.inline
        def no_pair(
            sky: DeviceSky, records: Array, b: int, time: int, first: int, second: Scalar,
            row: int,
            c: int, n_chan: int,
        ) -> Pair:  # fmt: skip
            return Pair(sky.jones[0], int64(0), int64(0), records[0], int64(-1), int64(2))

        return no_pair

    @device.inline
    def pair_of(
        sky: DeviceSky, records: Array, b: int, time: int, first: int, second: Scalar, row: int,
        c: int, n_chan: int,
    ) -> Pair:  # fmt: skip
        # One list of matrices may stand for all entries.
        jones, n_time = sky.jones[min(int64(b), int64(sky.jones.shape[0] - 1))], int64(sky.n_jones_time)
        block, of_chan = int64(jones[time]), int64(jones[n_time + int64(c)])
        start, n_block = n_time + int64(n_chan), int64(sky.n_jones_chan)
        matrix = block * int64(sky.n_jones_antenna)
        p = start + int64(8) * ((matrix + int64(first)) * n_block + of_chan)
        q = start + int64(8) * ((matrix + int64(second)) * n_block + of_chan)
        into = int64(-1)
        if has_adjoint and row >= 0:
            into = int64(n_record) * (int64(row) * int64(n_chan) + int64(c))
        return Pair(jones, p, q, records[int64(b) if has_adjoint else int64(0)], into, int64(2))

    return pair_of


@device.inline
def half(a_re: Scalar, a_im: Scalar, x_re: Scalar, x_im: Scalar) -> tuple[Scalar, Scalar]:
    """The product of two complex numbers."""
    return a_re * x_re - a_im * x_im, a_re * x_im + a_im * x_re


@functools.cache
def _make_gain(real: Compiled, staged: bool) -> Compiled:
    """Function that reads the element of a feed on the diagonal of the matrix that begins at `offset`."""
    if staged:

        @device.inline
        def staged_gain(terms: Array, offset: int, feed: int) -> tuple[Scalar, Scalar]:
            z = terms[uint32(offset + uint32(feed))]
            return z.real, z.imag

        return staged_gain

    @device.inline
    def gain(jones: Array, offset: int, feed: int) -> tuple[Scalar, Scalar]:
        return real(jones[offset + 6 * feed]), real(jones[offset + 6 * feed + 1])

    return gain


@functools.cache
def make_see(end: EpilogueKernel) -> Compiled:
    """Function that makes all correlations of sample j of the sums, as its row has them: A_p X A_q^H.

    The sums are of the conjugates where sign is -1. Before an adjoint it leaves X in `Matrices.full`.
    Without matrices, V is X.
    """
    single, n_stokes, n, n_corr = end.variant.single, end.variant.n_stokes, end.n, end.n_corr
    own = make_correlation(end.matrix, single)
    if not end.variant.jones:

        @device.inline
        def see(j: int, sign: Scalar, sums: Array, samples: EpilogueSamples, pair: Pair) -> None:
            for k in range(n_corr):
                samples.model_re[k], samples.model_im[k] = own(k, n_stokes, n, j, sign, sums)

        return see
    real = float32 if single else float64
    place = feeds_of(np.reshape(end.matrix, (-1, 4)))[1]
    first, second = tuple(k // 2 for k in place), tuple(k % 2 for k in place)
    element, has_adjoint = _make_element(end), end.has_adjoint
    if end.variant.diagonal:
        gain = _make_gain(real, end.staged)

        @device.inline
        def see_gains(j: int, sign: Scalar, sums: Array, samples: EpilogueSamples, pair: Pair) -> None:
            re, im, full = samples.model_re, samples.model_im, samples.matrices.full
            for k in range(n_corr):
                x_re, x_im = element(place[k], j, sign, sums, samples)
                if has_adjoint:
                    full[place[k]], full[4 + place[k]] = x_re, x_im
                a_re, a_im = gain(pair.jones, pair.p, first[k])
                b_re, b_im = gain(pair.jones, pair.q, second[k])
                g_re, g_im = half(a_re, a_im, b_re, -b_im)
                re[k], im[k] = half(g_re, g_im, x_re, x_im)

        return see_gains

    @device.inline
    def see_through(j: int, sign: Scalar, sums: Array, samples: EpilogueSamples, pair: Pair) -> None:
        jones, re, im, full = pair.jones, samples.model_re, samples.model_im, samples.matrices.full
        a_re, a_im = element(0, j, sign, sums, samples)
        b_re, b_im = element(1, j, sign, sums, samples)
        c_re, c_im = element(2, j, sign, sums, samples)
        d_re, d_im = element(3, j, sign, sums, samples)
        if has_adjoint:
            full[0], full[1], full[2], full[3] = a_re, b_re, c_re, d_re
            full[4], full[5], full[6], full[7] = a_im, b_im, c_im, d_im
        for k in range(n_corr):
            row, column = pair.p + 4 * first[k], pair.q + 4 * second[k]
            # The row of A_p times X, then times the conjugate of the row of A_q.
            u_re, u_im = real(jones[row]), real(jones[row + 1])
            v_re, v_im = real(jones[row + 2]), real(jones[row + 3])
            x_re, x_im = half(u_re, u_im, a_re, a_im)
            y_re, y_im = half(v_re, v_im, c_re, c_im)
            s_re, s_im = half(real(jones[column]), -real(jones[column + 1]), x_re + y_re, x_im + y_im)
            x_re, x_im = half(u_re, u_im, b_re, b_im)
            y_re, y_im = half(v_re, v_im, d_re, d_im)
            t_re, t_im = half(real(jones[column + 2]), -real(jones[column + 3]), x_re + y_re, x_im + y_im)
            re[k], im[k] = s_re + t_re, s_im + t_im

    return see_through


def _make_element(end: EpilogueKernel) -> Compiled:
    """Function that makes one element of X of sample j: of the sums, and of the templates at hand."""
    matrix, place = feeds_of(np.reshape(end.matrix, (-1, 4)))
    of_feeds = make_correlation(tuple(matrix.ravel().tolist()), end.variant.single)
    n_stokes, n, n_corr, has_template = end.variant.n_stokes, end.n, end.n_corr, end.n_template > 0

    @device.inline
    def element(i: int, j: int, sign: Scalar, sums: Array, samples: EpilogueSamples) -> tuple[Scalar, Scalar]:
        re, im = of_feeds(i, n_stokes, n, j, sign, sums)
        if has_template:
            for k in range(n_corr):
                if place[k] == i:
                    re += samples.template_re[j * n_corr + k]
                    im += samples.template_im[j * n_corr + k]
        return re, im

    return element


@functools.cache
def make_pull(end: EpilogueKernel) -> Compiled:
    """Function that takes the weighted residuals of sample j from V to X.

    In `EpilogueSamples.re` and `im` those of X take their place, which templates are part of;
    `EpilogueSamples.back` has them in Stokes parameters, of all correlations of the feeds. What the matrices
    of the two antennas accumulate, R A_q X^H and R^H A_p X, goes to `Pair.records`; of matrices that stay
    diagonal, R conj(X).
    """
    n_corr, n_stokes, width = end.n_corr, end.variant.n_stokes, end.width
    real = float32 if end.variant.single else float64
    full, place = feeds_of(np.reshape(end.matrix, (-1, 4)))
    add_back = make_back(tuple(full.ravel().tolist()), end.variant.single, n_stokes)
    if end.variant.diagonal:
        return _make_pull_gains(end, real, place, add_back)
    product, product_with_adjoint = _make_product(real, False, False), _make_product(real, False, True)
    product_of_adjoint = _make_product(real, True, False)

    @device.inline
    def look_up(jones: Array, offset: int, into: Array) -> None:
        for k in range(4):
            into[k], into[4 + k] = real(jones[offset + 2 * k]), real(jones[offset + 2 * k + 1])

    @device.part
    def leave(matrix: Array, records: Array, into: Scalar) -> None:
        for k in range(8):
            records[into + k] = matrix[k]

    @device.inline
    def pull(j: int, sign: Scalar, samples: EpilogueSamples, pair: Pair) -> None:
        x, p, q = samples.matrices.full, samples.matrices.first, samples.matrices.second
        seen, half, rest = samples.matrices.seen, samples.matrices.half, samples.matrices.rest
        look_up(pair.jones, pair.p, p)
        look_up(pair.jones, pair.q, q)
        for k in range(8):
            seen[k] = real(0)
        for k in range(n_corr):
            seen[place[k]], seen[4 + place[k]] = samples.re[j * n_corr + k], samples.im[j * n_corr + k]
        product(seen, q, half)
        product_with_adjoint(half, x, rest)
        if pair.into >= 0:
            leave(rest, pair.records, pair.into)
        product_of_adjoint(p, half, rest)
        for k in range(4):
            add_back(k, rest[k], rest[4 + k], sign, samples.back, j, width)
        for k in range(n_corr):
            samples.re[j * n_corr + k], samples.im[j * n_corr + k] = rest[place[k]], rest[4 + place[k]]
        product(p, x, half)
        product_of_adjoint(seen, half, rest)
        if pair.into >= 0:
            leave(rest, pair.records, pair.into + int64(8))

    return pull


def _make_pull_gains(
    end: EpilogueKernel, real: Compiled, place: tuple[int, ...], add_back: Compiled
) -> Compiled:
    """Function for matrices that stay diagonal: it pulls the residual through them element by element."""
    n_corr, width, gain = end.n_corr, end.width, _make_gain(real, end.staged)
    first, second = tuple(k // 2 for k in place), tuple(k % 2 for k in place)

    @device.part
    def leave(re: Scalar, im: Scalar, records: Array, into: Scalar) -> None:
        records[into], records[into + 1] = re, im

    @device.inline
    def pull_gains(j: int, sign: Scalar, samples: EpilogueSamples, pair: Pair) -> None:
        full = samples.matrices.full
        for k in range(n_corr):
            d = j * n_corr + k
            r_re, r_im = samples.re[d], samples.im[d]
            if pair.into >= 0:
                u_re, u_im = half(r_re, r_im, full[place[k]], -full[4 + place[k]])
                leave(u_re, u_im, pair.records, pair.into + int64(k) * pair.step)
            a_re, a_im = gain(pair.jones, pair.p, first[k])
            b_re, b_im = gain(pair.jones, pair.q, second[k])
            g_re, g_im = half(a_re, -a_im, b_re, b_im)
            x_re, x_im = half(g_re, g_im, r_re, r_im)
            add_back(place[k], x_re, x_im, sign, samples.back, j, width)
            samples.re[d], samples.im[d] = x_re, x_im

    return pull_gains


@functools.cache
def _make_product(real: Compiled, left_adjoint: bool, right_adjoint: bool) -> Compiled:
    """Function that multiplies two matrices, as `Matrices` has them, or their adjoints; `out` is neither."""
    left_sign, right_sign = real(-1 if left_adjoint else 1), real(-1 if right_adjoint else 1)
    left_row, left_column = (1, 2) if left_adjoint else (2, 1)
    right_row, right_column = (1, 2) if right_adjoint else (2, 1)

    @device.inline
    def product(left: Array, right: Array, out: Array) -> None:
        for i in range(2):
            for j in range(2):
                re, im = real(0), real(0)
                for k in range(2):
                    a, b = left_row * i + left_column * k, right_row * k + right_column * j
                    a_im, b_im = left_sign * left[4 + a], right_sign * right[4 + b]
                    re += left[a] * right[b] - a_im * b_im
                    im += left[a] * b_im + a_im * right[b]
                out[2 * i + j], out[4 + 2 * i + j] = re, im

    return product
