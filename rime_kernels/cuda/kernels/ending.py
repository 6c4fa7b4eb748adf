"""The end of the sum over sources: visibilities, chi2, or chi2 and the residuals of its adjoint.

One ending serves the kernels over tiles and over rows. It takes some samples (a baseline and a channel each,
with all their correlations) at a time from the front of the sums, then moves the others up: so every index
into them is a constant once loops are unrolled, as an array must have it that is to lie in registers.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numba import float32, float64, int64, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.arguments import Columns, Sky
from rime_kernels.cuda.kernels.misfit import make_misfit
from rime_kernels.inputs import Variant
from rime_kernels.physics import phase
from rime_kernels.physics.feeds import feeds_of

_turns = phase.turns


class End(NamedTuple):
    """All that an ending is compiled for."""

    variant: Variant
    matrix: tuple[complex, ...]  # (n_corr, 4), flat: `Rows.stokes_to_corr`
    n_template: int
    has_adjoint: bool
    n: int  # samples whose sums a thread has
    width: int  # of them, those whose data are at hand together
    swaps: bool  # a weight below 0 says that the sums are those of the baseline turned round

    @property
    def n_corr(self) -> int:
        return len(self.matrix) // 4

    @property
    def n_datum(self) -> int:
        """Data at hand together."""
        return self.width * self.n_corr

    @property
    def n_factor(self) -> int:
        """Factors of templates for the samples at hand."""
        return max(1, self.n_template * self.width)

    @property
    def n_back(self) -> int:
        """Residuals, in Stokes parameters, of the samples at hand."""
        return 2 * self.variant.n_stokes * self.width if self.has_adjoint else 1


class Samples(NamedTuple):
    """A thread's memory for the samples at hand, in working precision; sizes are those of `End`."""

    re: Array  # (n_datum,): data without templates, then weighted residuals; real and imaginary part
    im: Array
    weight: Array  # (n_datum,)
    factor_re: Array  # (n_factor,): scale of each template and, where it is moved, its phase
    factor_im: Array
    back: Array  # (n_back,)
    model_re: Array  # (n_corr,), of one sample
    model_im: Array


@functools.cache
def make_correlation(matrix: tuple[complex, ...], single: bool) -> Compiled:
    """Function that makes correlation k of the Stokes sums at `at`, each n behind the one before.

    Real and imaginary part of (the matrix times the sums); with sign -1 of the sums' conjugates, which are
    those of the baseline turned round.
    """
    real = float32 if single else float64
    re_part = tuple(real(z.real) for z in matrix)
    im_part = tuple(real(z.imag) for z in matrix)

    @device.inline
    def correlation(
        k: int, n_stokes: int, n: int, at: int, sign: Scalar, sums: Array
    ) -> tuple[Scalar, Scalar]:
        re, im = real(0), real(0)
        for j in range(n_stokes):
            a, b = re_part[4 * k + j], im_part[4 * k + j]
            x, y = sums[n * j + at], sign * sums[n * (n_stokes + j) + at]
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
def make_jones_at(uses: bool) -> Compiled:
    """Function that says where in a row of `Sky.jones` the matrix of an antenna lies; 0 without matrices."""
    if not uses:
        return device.inline(lambda sky, b, time, antenna, c, n_chan: 0)

    @device.inline
    def jones_at(sky: Sky, b: Scalar, time: Scalar, antenna: Scalar, c: Scalar, n_chan: Scalar) -> Scalar:
        jones, n_time = sky.jones, int64(sky.n_jones_time)
        block, of_chan = int64(jones[b, time]), int64(jones[b, n_time + int64(c)])
        matrix = block * int64(sky.n_jones_antenna) + int64(antenna)
        return n_time + int64(n_chan) + int64(8) * (matrix * int64(sky.n_jones_chan) + of_chan)

    return jones_at


@functools.cache
def make_see(end: End) -> Compiled:
    """Function that makes all correlations of sample j of the sums, as its row has them: A_p X A_q^H.

    `jones` is the row of `Sky.jones` of an entry, `p` and `q` say where in it the matrices of the row's two
    antennas lie; the sums are of the conjugates where sign is -1. Without matrices, V is X.
    """
    single, n_stokes, n, n_corr = end.variant.single, end.variant.n_stokes, end.n, end.n_corr
    own = make_correlation(end.matrix, single)
    if not end.variant.jones:

        @device.inline
        def see(
            j: int, sign: Scalar, sums: Array, jones: Array, p: Scalar, q: Scalar, re: Array, im: Array
        ) -> None:
            for k in range(n_corr):
                re[k], im[k] = own(k, n_stokes, n, j, sign, sums)

        return see
    real = float32 if single else float64
    full, place = feeds_of(np.reshape(end.matrix, (-1, 4)))
    of_feeds = make_correlation(tuple(full.ravel().tolist()), single)
    first, second = tuple(k // 2 for k in place), tuple(k % 2 for k in place)

    @device.inline
    def half(a_re: Scalar, a_im: Scalar, x_re: Scalar, x_im: Scalar) -> tuple[Scalar, Scalar]:
        return a_re * x_re - a_im * x_im, a_re * x_im + a_im * x_re

    @device.inline
    def see_through(
        j: int, sign: Scalar, sums: Array, jones: Array, p: Scalar, q: Scalar, re: Array, im: Array
    ) -> None:
        a_re, a_im = of_feeds(0, n_stokes, n, j, sign, sums)
        b_re, b_im = of_feeds(1, n_stokes, n, j, sign, sums)
        c_re, c_im = of_feeds(2, n_stokes, n, j, sign, sums)
        d_re, d_im = of_feeds(3, n_stokes, n, j, sign, sums)
        for k in range(n_corr):
            row, column = p + 4 * first[k], q + 4 * second[k]
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


@functools.cache
def make_back(matrix: tuple[complex, ...], single: bool, n_stokes: int) -> Compiled:
    """Function that adds a weighted residual of correlation k to those in Stokes parameters, from `at` on.

    The matrix' conjugate transpose; with sign -1 of a baseline that was turned round. Parameter j
    lies `n` behind the one before.
    """
    real = float32 if single else float64
    re_part = tuple(real(z.real) for z in matrix)
    im_part = tuple(real(z.imag) for z in matrix)

    @device.inline
    def add_back(k: int, re: Scalar, im: Scalar, sign: Scalar, into: Array, at: int, n: int) -> None:
        for j in range(n_stokes):
            a, b = re_part[4 * k + j], im_part[4 * k + j]
            if a != real(0):
                into[at + n * j] += a * re
                into[at + n * (n_stokes + j)] += sign * (a * im)
            if b != real(0):
                into[at + n * j] += b * im
                into[at + n * (n_stokes + j)] -= sign * (b * re)

    return add_back


@functools.cache
def make_sample_chi2(end: End) -> Compiled:
    """Function that adds chi2 of sample j of those at hand, or its logarithm, to a total in float64.

    Before an adjoint the data of the sample become its weighted residuals, `Samples.back` has them in Stokes
    parameters, and the last of `of_kind` has the sum that `misfit` makes for the derivative with respect to
    the scaled degrees of freedom. `tail` is 1/scaled_dof.
    """
    single, n_stokes, n_corr = end.variant.single, end.variant.n_stokes, end.n_corr
    real, n, width = float32 if single else float64, end.n, end.width
    has_adjoint, swaps = end.has_adjoint, end.swaps
    correlation, add_back = make_correlation(end.matrix, single), make_back(end.matrix, single, n_stokes)
    see, uses_jones = make_see(end), end.variant.jones
    misfit = make_misfit(end.variant.log, single, end.n_template, has_adjoint)
    square_of, exact, nothing, more = misfit.square, misfit.exact, misfit.nothing, misfit.more
    factor_of, total_of, is_large = misfit.factor, misfit.total, misfit.is_large

    @device.inline
    def sign_and_weight(weight: Scalar) -> tuple[Scalar, Scalar]:
        if swaps:
            return math.copysign(real(1), weight), abs(weight)
        return real(1), weight

    @device.inline
    def sample_chi2(
        total: Scalar, j: int, samples: Samples, sums: Array, tail: Scalar, of_kind: Array, jones: Array,
        p: Scalar, q: Scalar,
    ) -> Scalar:  # fmt: skip
        re, im, model_re, model_im = samples.re, samples.im, samples.model_re, samples.model_im
        if uses_jones:
            sign, _ = sign_and_weight(samples.weight[j * n_corr])
            see(j, sign, sums, jones, p, q, model_re, model_im)
        # All correlations come first: the sum of their squares decides whether float32 is exact enough.
        square = nothing()
        for k in range(n_corr):
            d = j * n_corr + k
            sign, weight = sign_and_weight(samples.weight[d])
            if uses_jones:
                x, y = model_re[k], model_im[k]
            else:
                x, y = correlation(k, n_stokes, n, j, sign, sums)
            square += more(square, square_of(x, y, re[d], im[d], weight), tail, of_kind)
            # Kept for the exact sum, and for the adjoint.
            model_re[k], model_im[k] = x, y
        if is_large(square):
            for k in range(n_corr):
                d = j * n_corr + k
                sign, weight = sign_and_weight(samples.weight[d])
                total += exact(model_re[k], model_im[k], re[d], im[d], weight)
        else:
            total += total_of(square)
        if has_adjoint:
            for k in range(n_corr):
                d = j * n_corr + k
                sign, weight = sign_and_weight(samples.weight[d])
                x, y = model_re[k], model_im[k]
                each = weight * factor_of(square_of(x, y, re[d], im[d], weight), tail)
                # The data are not needed any more, so the residuals take their place.
                re[d], im[d] = each * (x - re[d]), each * (y - im[d])
                add_back(k, re[d], im[d], sign, samples.back, j, width)
        return total

    return sample_chi2


@functools.cache
def make_move_up(end: End) -> Compiled:
    """Function that takes `width` samples off the front of the sums and moves the others up.

    Before an adjoint the residuals in `back` take the places that fall free: once all samples have been
    taken, residuals lie where the sums did.
    """
    n_part, n, width, has_adjoint = 2 * end.variant.n_stokes, end.n, end.width, end.has_adjoint

    @device.inline
    def move_up(sums: Array, back: Array) -> None:
        for j in range(n_part):
            # A copy from register to register, which costs nothing once the loop around it is unrolled.
            for k in range(n - width):
                sums[j * n + k] = sums[j * n + k + width]
        if has_adjoint:
            for j in range(n_part):
                for k in range(width):
                    sums[j * n + n - width + k] = back[j * width + k]

    return move_up


@functools.cache
def make_clear_back(end: End) -> Compiled:
    """Function that begins the residuals of the samples at hand."""
    real, n_back = float32 if end.variant.single else float64, end.n_back

    @device.inline
    def clear_back(back: Array) -> None:
        for k in range(n_back):
            back[k] = real(0)

    return clear_back


@functools.cache
def make_write_visibilities(end: End) -> Compiled:
    """Function that writes all correlations of the first sample of the sums to (entry, row, channel, .)."""
    n_corr, see = end.n_corr, make_see(end)

    @device.inline
    def write_visibilities(
        vis: Array, b: int, row: int, c: int, sign: Scalar, sums: Array, samples: Samples, jones: Array,
        p: Scalar, q: Scalar,
    ) -> None:  # fmt: skip
        see(0, sign, sums, jones, p, q, samples.model_re, samples.model_im)
        for k in range(n_corr):
            vis[b, row, c, k] = complex(samples.model_re[k], samples.model_im[k])

    return write_visibilities


@functools.cache
def make_gather_templates(single: bool, n_template: int, shifted: bool) -> Compiled:
    """Function that adds what each template gathers from a weighted residual re + i im of datum `at`.

    With x = conj(the template, where it is moved to) times the residual: Re(x); and where templates are
    moved, 2 pi scale Im(x) (u, v, w). `u`, `v`, `w` in wavelengths, of the baseline as tiles have it;
    `weight` says by its sign whether the row has it turned round. `factor` is (n_template, 4), as
    `Inputs.template`; those of template t lie in `into` from 4 t + 1 on.
    """
    real = float32 if single else float64
    cos_sin = scalars.make_cos_sin(single)
    two_pi = 2.0 * math.pi

    @device.inline
    def gather_templates(
        at: Scalar, re: Scalar, im: Scalar, weight: Scalar, columns: Columns, factor: Array, u: Scalar,
        v: Scalar, w: Scalar, into: Array,
    ) -> None:  # fmt: skip
        for t in range(n_template):
            # Templates are read again, not kept: they would take registers that the sums need.
            z = columns.template[at + uint64(t) * uint64(columns.stride)]
            x_re, x_im = z.real * re + z.imag * im, z.real * im - z.imag * re
            if shifted:
                cos, sin = cos_sin(_turns(u, v, w, factor[t, 1], factor[t, 2], factor[t, 3]))
                sign = math.copysign(real(1), weight)
                # The phase is conjugated where the row has its antennas in the other order.
                sin *= sign
                x_re, x_im = cos * x_re + sin * x_im, cos * x_im - sin * x_re
                turned = two_pi * factor[t, 0] * sign * x_im
                into[4 * t + 2] += turned * u
                into[4 * t + 3] += turned * v
                into[4 * t + 4] += turned * w
            into[4 * t + 1] += x_re

    return gather_templates
