"""What a weighted square adds to chi2 on a CUDA device: itself, or a logarithm of it."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import float32, float64

from rime_kernels import device


def n_kinds(n_template: int, log: bool, has_adjoint: bool) -> int:
    """Sums that an ending makes: chi2; before an adjoint four for each template, and one for turnovers."""
    return 1 + (4 * n_template + log if has_adjoint else 0)


@functools.cache
def make_turnover(log: bool, single: bool, n_template: int) -> Any:
    """Function that gives 1/turnover from `Inputs.template` of an entry; 0 where there is none."""
    real = float32 if single else float64

    @device.inline
    def one_over(factors: Any) -> Any:
        return real(factors[n_template, 0])

    return one_over if log else device.inline(lambda factors: real(0))


@functools.cache
def make_measure(log: bool, single: bool, n_template: int, has_adjoint: bool) -> Any:
    """Function that gives what a weighted square adds to chi2, and what its weight is multiplied by.

    The square and 1; or ln(1 + y) and 1/(1 + y) where y is the square over the turnover. Before an adjoint
    the sum of y/(1 + y) is the last of the ending's sums.
    """
    real = float32 if single else float64
    last = 1 + 4 * n_template

    @device.inline
    def as_it_is(square: Any, tail: Any, of_kind: Any) -> Any:
        return square, real(1)

    @device.inline
    def as_a_log(square: Any, tail: Any, of_kind: Any) -> Any:
        y = square * tail
        factor = real(1) / (real(1) + y)
        if has_adjoint:
            of_kind[last] += y * factor
        return real(math.log1p(y)), factor

    return as_a_log if log else as_it_is
