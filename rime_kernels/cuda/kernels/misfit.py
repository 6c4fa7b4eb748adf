"""What weighted squares add to chi2 on a CUDA device: themselves, or logarithms."""

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
    """Sums that an ending makes: chi2; before an adjoint four for each template, and one for turnovers."""
    return 1 + (4 * n_template + log if has_adjoint else 0)


class Misfit(NamedTuple):
    """Functions of scalars by which weighted squares c of a few samples add to chi2.

    As they are: sum c. Or, with y = c / turnover: the sum of ln(1 + y) as ln(1 + p) where
    1 + p = (1 + y1) (1 + y2) ...; p, of positive terms in float64, is right for any y, and loops with a
    logarithm in them would not be unrolled.
    """

    square: Compiled  # c of model, data and weight
    exact: Compiled  # the same in float64
    turnover: Compiled  # 1/turnover, from `Inputs.template` of an entry
    nothing: Compiled  # what the sum, or p, begins with
    more: Compiled  # what one more c adds to it
    factor: Compiled  # what c multiplies its weight by in the gradient
    total: Compiled  # what is to be added to chi2
    is_large: Compiled  # whether the sum has lost digits that would be seen in chi2: `exact` is to be added


@functools.cache
def make_misfit(log: bool, single: bool, n_template: int, has_adjoint: bool) -> Misfit:
    """The functions; before an adjoint `more` adds the sum of y/(1 + y) to the last sum of an ending."""
    real = float32 if single else float64
    last, large = 1 + 4 * n_template, real(_LARGE)

    @device.inline
    def square_of(x: Scalar, y: Scalar, re: Scalar, im: Scalar, weight: Scalar) -> Scalar:
        return weight * ((x - re) * (x - re) + (y - im) * (y - im))

    @device.inline
    def exact(x: Scalar, y: Scalar, re: Scalar, im: Scalar, weight: Scalar) -> Scalar:
        x_away, y_away = float64(x) - float64(re), float64(y) - float64(im)
        return float64(weight) * (x_away * x_away + y_away * y_away)

    @device.inline
    def more_of_product(so_far: Scalar, square: Scalar, tail: Scalar, of_kind: Array) -> Scalar:
        y = float64(square) * tail
        if has_adjoint:
            of_kind[last] += y * float64(real(1) / (real(1) + real(y)))
        return y + so_far * y

    if log:
        return Misfit(
            square_of,
            exact,
            device.inline(lambda factors: factors[n_template, 0]),
            device.inline(lambda: 0.0),
            more_of_product,
            device.inline(lambda square, tail: real(1) / (real(1) + real(float64(square) * tail))),
            device.inline(lambda so_far: math.log1p(so_far)),
            device.inline(lambda so_far: False),
        )
    return Misfit(
        square_of,
        exact,
        device.inline(lambda factors: 0.0),
        device.inline(lambda: real(0)),
        device.inline(lambda so_far, square, tail, of_kind: square),
        device.inline(lambda square, tail: real(1)),
        device.inline(lambda so_far: so_far),
        device.inline(lambda so_far: single and so_far > large),
    )
