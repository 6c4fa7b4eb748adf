"""What weighted squares add to chi2 on a CUDA device: the squares, or logarithms for Student's t."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from numba import float32, float64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar

_LARGE = 64.0
"""Samples whose weighted squares come to more, which no model describes, are worked out in float64."""


def n_kinds(n_template: int, log: bool, has_adjoint: bool) -> int:
    """How many sums an ending makes: chi2; before an adjoint four for each template, one for scaled_dof.

    The last one exists for Student's t alone (`log`), whose scaled degrees of freedom it is about.
    """
    return 1 + (4 * n_template + log if has_adjoint else 0)


class Chi2Terms(NamedTuple):
    """Functions of scalars by which weighted squares c of a few samples add to chi2.

    For Gaussian noise they add sum c. For Student's t, with the scaled degrees of freedom of `Rime.chi2` and
    y = c / scaled_dof, they add the sum of ln(1 + y), computed as ln(1 + p) where
    1 + p = (1 + y1) (1 + y2) ...; p, of positive terms in float64, is right for any y, and loops with a
    logarithm in them would not be unrolled.
    """

    square: Compiled  # c of model, data and weight
    exact: Compiled  # the same in float64
    one_over_scaled_dof: Compiled  # 1/scaled_dof, from `Inputs.template` of an entry
    nothing: Compiled  # what the sum, or p, begins with
    more: Compiled  # what one more c adds to it
    factor: Compiled  # what c multiplies its weight by in the gradient
    total: Compiled  # what is to be added to chi2
    is_large: Compiled  # whether the sum has lost digits that would be seen in chi2: `exact` is to be added


@functools.cache
def make_chi2_terms(log: bool, single: bool, n_template: int, has_adjoint: bool) -> Chi2Terms:
    """The functions; before an adjoint `more` adds the sum of y/(1 + y) to the last sum of an ending."""
    real = float32 if single else float64
    last, large = 1 + 4 * n_template, real(_LARGE)

    @device.inline
    def square_of(x: Scalar, y: Scalar, re: Scalar, im: Scalar, weight: Scalar) -> Scalar:
        return weight * ((x - re) * (x - re) + (y - im) * (y - im))

    @device.inline
    def exact(x: Scalar, y: Scalar, re: Scalar, im: Scalar, weight: Scalar) -> Scalar:
        # Converted first: in float32 the difference itself would lose the digits that are wanted.
        x_away, y_away = float64(x) - float64(re), float64(y) - float64(im)
        return float64(weight) * (x_away * x_away + y_away * y_away)

    @device.inline
    def more_of_product(so_far: Scalar, square: Scalar, tail: Scalar, of_kind: Array) -> Scalar:
        y = float64(square) * tail
        if has_adjoint:
            # Divided in working precision, which is faster: this is part of a gradient, not of chi2.
            of_kind[last] += y * float64(real(1) / (real(1) + real(y)))
        # Added to p it gives (1 + p) (1 + y) - 1.
        return y + so_far * y

    if log:
        return Chi2Terms(
            square_of,
            exact,
            device.inline(lambda factors: factors[n_template, 0]),
            device.inline(lambda: 0.0),
            more_of_product,
            device.inline(lambda square, tail: real(1) / (real(1) + real(float64(square) * tail))),
            device.inline(lambda so_far: math.log1p(so_far)),
            # The product is float64 from the start, so that nothing has to be added again.
            device.inline(lambda so_far: False),
        )
    return Chi2Terms(
        square_of,
        exact,
        device.inline(lambda factors: 0.0),
        device.inline(lambda: real(0)),
        device.inline(lambda so_far, square, tail, of_kind: square),
        device.inline(lambda square, tail: real(1)),
        device.inline(lambda so_far: so_far),
        device.inline(lambda so_far: single and so_far > large),
    )
