"""What the kernel over rows is made of, but for its loops: shape, and what a source is to a row."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import float32, float64

from rime_kernels import device
from rime_kernels.cuda.kernels import scalars
from rime_kernels.inputs import Variant
from rime_kernels.physics import phase

_C = phase.SPEED_OF_LIGHT
_turns = phase.turns


@dataclass(frozen=True)
class RowShape:
    """How a kernel is cut: rows of a block, a thread for each, and channels of a thread (1 where uneven)."""

    n_row: int
    run: int
    max_register: int = 0


@dataclass(frozen=True)
class RowKernel:
    """All that a kernel is compiled for: the model's variant, its end, the shape of the work."""

    variant: Variant
    is_chi2: bool
    matrix: tuple[complex, ...]  # (n_corr, 4), flat
    has_gaussian: bool
    n_template: int
    shape: RowShape
    has_adjoint: bool = False  # after chi2
    n_lane: int = 32  # neighbouring threads whose sums are joined at once; for the adjoint


@functools.cache
def make_term(single: bool, run: int, has_gaussian: bool) -> Any:
    """Function that gives a source's phase term at the first channel of a run, and what leads to the next.

    And the coordinates of the row along and across it, in units in which a Gaussian is 2^-(a^2 + b^2).
    `gaussian` is its number, negative for a point.
    """
    real = float32 if single else float64
    cos_sin = phase.make_cos_sin(
        single, *(scalars.nearest_function(kind, phase.nearest) for kind in (False, single))
    )
    scale_exponent = scalars.EXPONENT_SCALE * _C

    @device.inline
    def term(
        b: Any, s: Any, gaussian: Any, u: Any, v: Any, w: Any, first_freq: Any, step_freq: Any,
        direction: Any, projection: Any,
    ) -> Any:  # fmt: skip
        delay = _turns(u, v, w, direction[b, s, 0], direction[b, s, 1], direction[b, s, 2])
        re, im = cos_sin(delay * first_freq)
        step_re, step_im = real(1), real(0)
        if run > 1:
            step_re, step_im = cos_sin(delay * step_freq)
        along, across = 0.0, 0.0
        if has_gaussian and gaussian >= 0:
            g, scale = gaussian, scale_exponent * first_freq
            along = scale * _turns(
                u, v, w, projection[b, g, 0, 0], projection[b, g, 0, 1], projection[b, g, 0, 2]
            )
            across = scale * _turns(
                u, v, w, projection[b, g, 1, 0], projection[b, g, 1, 1], projection[b, g, 1, 2]
            )
        return re, im, step_re, step_im, along, across

    return term
