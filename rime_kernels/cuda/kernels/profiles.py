"""The envelopes of profiles in the kernels over tiles and over rows; functions of float64, not inlined."""

from __future__ import annotations

import functools

from numba import float64, int32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.baseline import AntennaTerm
from rime_kernels.physics import envelope, phase
from rime_kernels.physics.registered import RegisteredProfile, make_slopes, make_visibility

# From coordinates in which the envelope of a Gaussian is 2^-(a^2 + b^2) to maj a and min b of a profile.
COORDINATE_SCALE = envelope.AXIS_SCALE / (scalars.EXPONENT_SCALE * phase.SPEED_OF_LIGHT)


@functools.cache
def make_envelope_of(profiles: tuple[RegisteredProfile, ...] | None) -> Compiled:
    """Function that gives the envelope of profile j of entry b at a, b and nu (Hz): re, im, float64."""
    if profiles is None:
        return device.inline(lambda sky, b, j, along, across, nu: (1.0, 0.0))
    visibility = make_visibility(profiles)

    @device.inline
    def envelope_of(
        sky: DeviceSky, b: int, j: int, along: Scalar, across: Scalar, nu: Scalar
    ) -> tuple[Scalar, Scalar]:
        p = sky.profile
        return visibility(
            int32(sky.profile_kind[j]), along, across, p[b, j, 0], p[b, j, 1], p[b, j, 2], p[b, j, 3],
            p[b, j, 4], p[b, j, 5], p[b, j, 6], p[b, j, 7], nu,
        )  # fmt: skip

    return envelope_of


@functools.cache
def make_slopes_of(profiles: tuple[RegisteredProfile, ...] | None) -> Compiled:
    """Function that gives the envelope of profile j and its derivatives: `profiles.profile_slopes`."""
    if profiles is None:
        nothing = (1.0, 0.0, *[0.0] * 20)
        return device.inline(lambda sky, b, j, along, across, nu: nothing)
    slopes = make_slopes(profiles)

    @device.inline
    def slopes_of(sky: DeviceSky, b: int, j: int, along: Scalar, across: Scalar, nu: Scalar) -> Scalar:
        p = sky.profile
        return slopes(
            int32(sky.profile_kind[j]), along, across, p[b, j, 0], p[b, j, 1], p[b, j, 2], p[b, j, 3],
            p[b, j, 4], p[b, j, 5], p[b, j, 6], p[b, j, 7], nu,
        )  # fmt: skip

    return slopes_of


@functools.cache
def make_bare_product(single: bool, side: int) -> Compiled:
    """Function as that of `baseline.make_product` without an envelope; maj a and min b in float64."""
    scale = COORDINATE_SCALE

    @device.inline
    def product(first: AntennaTerm, second: Array, j: int) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        re = first.re * second[j] + first.im * second[side + j]
        im = first.im * second[j] - first.re * second[side + j]
        along = float64(first.along) - float64(second[2 * side + j])
        across = float64(first.across) - float64(second[3 * side + j])
        if single:
            along += float64(first.along_low) - float64(second[4 * side + j])
            across += float64(first.across_low) - float64(second[5 * side + j])
        return re, im, scale * along, scale * across

    return product
