"""What a row multiplies the matrices of its two antennas by: a source's phase and envelope."""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import float32, float64, int32

from rime_kernels import device
from rime_kernels.compile.types import Compiled, Scalar
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.profiles import COORDINATE_SCALE, make_envelope_of
from rime_kernels.cuda.kernels.rows.parts import RowKernel, ThreadRow, make_turning
from rime_kernels.physics import envelope


class Factor(NamedTuple):
    """Phase times envelope; of a profile the phase alone."""

    re: Scalar
    im: Scalar
    along: Scalar  # float64: coordinates as those of `parts.Turning`
    across: Scalar


@functools.cache
def make_factor(kernel: RowKernel) -> Compiled:
    """Function that gives the factor of source s."""
    single, has_gaussian, has_profile = (
        kernel.variant.single,
        kernel.has_gaussian,
        kernel.variant.profiles is not None,
    )
    real, exp2 = float32 if single else float64, scalars.exp2_function(single)
    turning_of, squared = make_turning(kernel), device.inline(envelope.squared.py_func)

    @device.inline
    def factor_of(b: int, s: int, row: ThreadRow, freq: Scalar, sky: DeviceSky) -> Factor:
        n_source = int32(sky.direction.shape[1])
        n_point = n_source - int32(sky.n_gaussian)
        # The phase of the baseline, from the row's own u, v and w: no antenna's matrix has it here.
        turning = turning_of(b, s, s - n_point, row, freq, 0.0, sky)
        re, im, along, across = turning.re, turning.im, turning.along, turning.across
        is_gaussian = has_gaussian and s >= n_point
        if has_profile and s >= n_source - int32(sky.n_profile):
            # Profiles stand behind the Gaussians and have their coordinates, but an envelope of their own.
            is_gaussian = False
        if is_gaussian:
            e = exp2(real(squared(along, across)))
            re, im = e * re, e * im
        return Factor(re, im, along, across)

    return factor_of


@functools.cache
def make_enveloped(kernel: RowKernel) -> Compiled:
    """Function that gives the factor of source s, a profile's with its envelope; real and imaginary part."""
    real, envelope_of = (
        float32 if kernel.variant.single else float64,
        make_envelope_of(kernel.variant.profiles),
    )
    has_profile = kernel.variant.profiles is not None

    @device.inline
    def enveloped(b: int, s: int, freq: Scalar, factor: Factor, sky: DeviceSky) -> tuple[Scalar, Scalar]:
        re, im = factor.re, factor.im
        j = s - (int32(sky.direction.shape[1]) - int32(sky.n_profile))
        if has_profile and j >= 0:
            along, across = COORDINATE_SCALE * factor.along, COORDINATE_SCALE * factor.across
            x, y = envelope_of(sky, b, j, along, across, freq)
            # An envelope may be complex: that of a source without point symmetry.
            re, im = real(x) * re - real(y) * im, real(x) * im + real(y) * re
        return re, im

    return enveloped
