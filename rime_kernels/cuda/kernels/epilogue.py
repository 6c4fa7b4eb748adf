"""The end of the sum over sources: visibilities, chi2, or chi2 and the residuals of its adjoint.

One ending serves the kernels over tiles and over rows. It takes some samples (a baseline and a channel each,
with all their correlations) at a time from the front of the sums, then moves the others up: so every index
into them is a constant once loops are unrolled, as an array must have it that is to lie in registers.
"""

from __future__ import annotations

import functools
import math

from numba import float32, float64, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.antennas import Pair, make_pull, make_see
from rime_kernels.cuda.kernels.arguments import DataColumns
from rime_kernels.cuda.kernels.chi2_terms import make_chi2_terms
from rime_kernels.cuda.kernels.correlations import make_back, make_correlation
from rime_kernels.cuda.kernels.samples import EpilogueKernel, EpilogueSamples
from rime_kernels.physics import phase

_turns = phase.turns


@functools.cache
def make_sample_chi2(end: EpilogueKernel) -> Compiled:
    """Function that adds chi2 of sample j of those at hand, or its logarithm, to a total in float64.

    Before an adjoint the data of the sample become its weighted residuals, `EpilogueSamples.back` has them in
    Stokes parameters, and the last of `of_kind` has the sum that `chi2_terms` makes for the derivative with
    respect to the scaled degrees of freedom. `tail` is 1/scaled_dof.
    """
    single, n_stokes, n_corr = end.variant.single, end.variant.n_stokes, end.n_corr
    real, n, width = float32 if single else float64, end.n, end.width
    has_adjoint, swaps, given = end.has_adjoint, end.swaps, end.variant.given
    correlation, add_back = make_correlation(end.matrix, single), make_back(end.matrix, single, n_stokes)
    see, uses_jones = make_see(end), end.variant.jones
    pull = make_pull(end) if uses_jones and has_adjoint else _nothing_to_pull
    terms = make_chi2_terms(end.variant.log, single, end.n_template, has_adjoint)
    square_of, exact, nothing, more = terms.square, terms.exact, terms.nothing, terms.more
    factor_of, total_of, is_large = terms.factor, terms.total, terms.is_large

    @device.inline
    def sign_and_weight(weight: Scalar) -> tuple[Scalar, Scalar]:
        if swaps:
            return math.copysign(real(1), weight), abs(weight)
        return real(1), weight

    @device.inline
    def sample_chi2(
        total: Scalar, j: int, samples: EpilogueSamples, sums: Array, tail: Scalar, of_kind: Array, pair: Pair
    ) -> Scalar:
        re, im, model_re, model_im = samples.re, samples.im, samples.model_re, samples.model_im
        if uses_jones:
            sign, _ = sign_and_weight(samples.weight[j * n_corr])
            see(j, sign, sums, samples, pair)
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
                if given:
                    re[d], im[d] = weight * re[d], weight * im[d]
                else:
                    re[d], im[d] = each * (x - re[d]), each * (y - im[d])
                if not uses_jones:
                    add_back(k, re[d], im[d], sign, samples.back, j, width)
            if uses_jones:
                sign, _ = sign_and_weight(samples.weight[j * n_corr])
                pull(j, sign, samples, pair)
        return total

    return sample_chi2


@device.inline
def _nothing_to_pull(j: int, sign: Scalar, samples: EpilogueSamples, pair: Pair) -> None:
    """In place of what a kernel without matrices or without an adjoint never calls."""


@functools.cache
def make_move_up(end: EpilogueKernel) -> Compiled:
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
def make_clear_back(end: EpilogueKernel) -> Compiled:
    """Function that begins the residuals of the samples at hand."""
    real, n_back = float32 if end.variant.single else float64, end.n_back

    @device.inline
    def clear_back(back: Array) -> None:
        for k in range(n_back):
            back[k] = real(0)

    return clear_back


@functools.cache
def make_write_visibilities(end: EpilogueKernel) -> Compiled:
    """Function that writes all correlations of the first sample of the sums to (entry, row, channel, .)."""
    n_corr, see = end.n_corr, make_see(end)

    @device.inline
    def write_visibilities(
        vis: Array, b: int, row: int, c: int, sign: Scalar, sums: Array, samples: EpilogueSamples, pair: Pair
    ) -> None:
        see(0, sign, sums, samples, pair)
        for k in range(n_corr):
            vis[b, row, c, k] = complex(samples.model_re[k], samples.model_im[k])

    return write_visibilities


@functools.cache
def make_accumulate_template_gradients(single: bool, n_template: int, shifted: bool) -> Compiled:
    """Function that adds what each template accumulates from a weighted residual re + i im of datum `datum`.

    With x = conj(the template, where it is moved to) times the residual: Re(x); and where templates are
    moved, 2 pi scale Im(x) (u, v, w). `u`, `v`, `w` in wavelengths, of the baseline as tiles have it;
    `weight` says by its sign whether the row has it turned round. `factor` is (n_template, 4), as
    `Inputs.template`; those of template t lie in `into` from 4 t + 1 on.
    """
    real = float32 if single else float64
    cos_sin = scalars.make_cos_sin(single)
    two_pi = 2.0 * math.pi

    @device.inline
    def accumulate_template_gradients(
        datum: Scalar, re: Scalar, im: Scalar, weight: Scalar, columns: DataColumns, factor: Array, u: Scalar,
        v: Scalar, w: Scalar, into: Array,
    ) -> None:  # fmt: skip
        for t in range(n_template):
            # Templates are read again, not kept: they would take registers that the sums need.
            z = columns.template[datum + uint64(t) * uint64(columns.stride)]
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

    return accumulate_template_gradients
