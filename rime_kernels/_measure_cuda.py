"""What weighted squares add to chi2 on a CUDA device: themselves, or logarithms."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from numba import float32, float64

from rime_kernels import device

_LARGE = 64.0
"""Weighted squares beyond it, of data that the model does not describe, are worked out in float64."""


def n_kinds(n_template: int, log: bool, has_adjoint: bool) -> int:
    """Sums that an ending makes: chi2; before an adjoint four for each template, and one for turnovers."""
    return 1 + (4 * n_template + log if has_adjoint else 0)


class Measure(NamedTuple):
    """Functions of scalars by which weighted squares c of a few samples add to chi2.

    As they are: sum c. Or, with y = c / turnover: the sum of ln(1 + y) as ln(1 + p) where
    1 + p = (1 + y1) (1 + y2) ...; p, of positive terms in float64, is right for any y, and loops with a
    logarithm in them would not be unrolled.
    """

    away: Any  # model less data, re and im; its weighted square c; where large, 0 and c in float64
    turnover: Any  # 1/turnover, from `Inputs.template` of an entry
    nothing: Any  # what the sum, or p, begins with
    more: Any  # what one more c adds to it; and what its weight is multiplied by in the gradient
    total: Any  # what is to be added to chi2


@functools.cache
def make_measure(log: bool, single: bool, n_template: int, has_adjoint: bool) -> Measure:
    """The functions; before an adjoint `more` adds the sum of y/(1 + y) to the last sum of an ending."""
    real = float32 if single else float64
    last, large = 1 + 4 * n_template, real(_LARGE)

    @device.inline
    def away(x: Any, y: Any, re: Any, im: Any, weight: Any) -> Any:
        exact, x_away, y_away = 0.0, x - re, y - im
        square = weight * (x_away * x_away + y_away * y_away)
        if single and not log and square > large:
            # Its rounding would be seen in chi2; among small ones roundings are lost.
            of_x, of_y = float64(x) - float64(re), float64(y) - float64(im)
            exact = float64(weight) * (of_x * of_x + of_y * of_y)
            square = real(0)
        return x_away, y_away, square, exact

    @device.inline
    def square_itself(so_far: Any, square: Any, tail: Any, of_kind: Any) -> Any:
        return square, real(1)

    @device.inline
    def factor_of_product(so_far: Any, square: Any, tail: Any, of_kind: Any) -> Any:
        y = float64(square) * tail
        factor = real(1) / (real(1) + real(y))
        if has_adjoint:
            of_kind[last] += y * float64(factor)
        return y + so_far * y, factor

    if log:
        return Measure(
            away,
            device.inline(lambda factors: factors[n_template, 0]),
            device.inline(lambda: 0.0),
            factor_of_product,
            device.inline(lambda so_far: math.log1p(so_far)),
        )
    return Measure(
        away,
        device.inline(lambda factors: 0.0),
        device.inline(lambda: real(0)),
        square_itself,
        device.inline(lambda so_far: so_far),
    )
