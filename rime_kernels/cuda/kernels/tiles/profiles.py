"""Profiles in the kernel over tiles: their sum, and what they accumulate."""

from __future__ import annotations

import functools

from numba import float32, float64, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import baseline
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.baseline import Corner, Staged, Stokes
from rime_kernels.cuda.kernels.profiles import make_bare_product, make_envelope_of, make_slopes_of
from rime_kernels.cuda.kernels.reductions import make_warp_reduce
from rime_kernels.cuda.kernels.tiles.adjoint import (
    TileAccumulators,
    Voltages,
    make_accumulate_voltage_gradients,
)
from rime_kernels.cuda.kernels.tiles.parts import TileKernel, sizes_of


def _nothing_to_add(
    n_source: int, b: int, j: int, nu: Scalar, sky: DeviceSky, staged: Staged, corner: Corner,
    sums: Array, second: Array,
) -> None:  # fmt: skip
    """In place of what a kernel without profiles never calls."""


def _nothing_to_accumulate(
    n_source: int, j: int, nu: Scalar, staged: Staged, corner: Corner, accumulators: TileAccumulators,
    partial: Array, first: int, voltages: Voltages,
) -> None:  # fmt: skip
    """Accumulate nothing: a kernel without an adjoint never calls this."""


@functools.cache
def make_accumulate_profiles(kernel: TileKernel) -> Compiled:
    """Function as that of `sums.make_accumulate`, for profiles from number j on of entry b, at nu."""
    if kernel.variant.profiles is None:
        return device.inline(_nothing_to_add)
    single, n_stokes, side = kernel.variant.single, kernel.variant.n_stokes, kernel.shape.side
    real, n_baseline, per_source = float32 if single else float64, side * side, 2 if n_stokes == 4 else 1
    read_first = baseline.make_read_first(single, True, single)
    read_second = baseline.make_read_second(side, True, single)
    read_stokes = baseline.make_read_stokes(single, n_stokes, uint32)
    add_stokes, product = baseline.make_add_stokes(n_stokes, n_baseline), make_bare_product(single, side)
    envelope_of = make_envelope_of(kernel.variant.profiles)

    @device.part
    def accumulate(
        n_source: int, b: int, j: int, nu: Scalar, sky: DeviceSky, staged: Staged, corner: Corner,
        sums: Array, second: Array,
    ) -> None:  # fmt: skip
        for s in range(n_source):
            # Terms of a source lie side by side for the antennas of a tile.
            here = uint32(uint32(s) * uint32(side))
            read_second(staged, uint32(corner.q + here), second, 0)
            stokes = read_stokes(staged.bright, uint32(corner.bright + uint32(s) * uint32(per_source)))
            for i in range(side):
                first = read_first(staged, uint32(corner.p + here + uint32(i)))
                # Second antennas in the inner loop: their terms have been read once for all first antennas.
                for k in range(side):
                    re, im, along, across = product(first, second, k)
                    x, y = envelope_of(sky, b, j + s, along, across, nu)
                    # An envelope comes in float64, as the literals of its function are.
                    x, y = real(x), real(y)
                    add_stokes(sums, i * side + k, stokes, x * re - y * im, x * im + y * re)

    return accumulate


@functools.cache
def make_accumulate_profile_gradients(kernel: TileKernel) -> Compiled:
    """Function as that of `adjoint.make_accumulate_gradients`, for profiles from number j on, at nu."""
    if kernel.variant.profiles is None or not kernel.has_adjoint:
        return device.inline(_nothing_to_accumulate)
    single, n_stokes, side = kernel.variant.single, kernel.variant.n_stokes, kernel.shape.side
    real, has_beam, step = float32 if single else float64, kernel.has_beam, sizes_of(kernel).partial_step
    n_antenna, n_value, per_source = 2 * side, kernel.record.most_size, 2 if n_stokes == 4 else 1
    warp_reduce, accumulate_voltage_gradients = (
        make_warp_reduce(n_value, kernel.n_lane),
        make_accumulate_voltage_gradients(kernel),
    )
    read_second = baseline.make_read_second(side, True, single)
    read_stokes = baseline.make_read_stokes(single, n_stokes, uint32)
    all_baselines = _make_all_baselines(kernel)

    @device.part
    def accumulate_gradients(
        n_source: int, j: int, nu: Scalar, staged: Staged, corner: Corner,
        accumulators: TileAccumulators,
        partial: Array, first: int, voltages: Voltages,
    ) -> None:  # fmt: skip
        thread, value, of_antenna = voltages.block.thread, accumulators.value, accumulators.of_antenna
        for s in range(n_source):
            # Each source begins from 0: the sums of the last one have gone to `partial`.
            for k in range(n_value):
                value[k] = real(0)
            if has_beam:
                for k in range(n_antenna):
                    of_antenna[k] = real(0)
            here = uint32(uint32(s) * uint32(side))
            read_second(staged, uint32(corner.q + here), accumulators.second, 0)
            stokes = read_stokes(staged.bright, uint32(corner.bright + uint32(s) * uint32(per_source)))
            p = uint32(corner.p + here)
            all_baselines(p, j + s, nu, stokes, staged, accumulators, voltages)
            if n_stokes == 1:
                # I alone is multiplied here, once for all baselines.
                for k in range(n_stokes, n_value):
                    value[k] *= stokes.i
                if has_beam:
                    for k in range(n_antenna):
                        of_antenna[k] *= stokes.i
            if has_beam:
                accumulate_voltage_gradients(uint32(s), of_antenna, value, voltages)
            # The threads that share an item add up here, all values of a source in one reduction.
            warp_reduce(thread, value, partial, uint32(first + uint32(s) * uint32(step)))

    return accumulate_gradients


def _make_all_baselines(kernel: TileKernel) -> Compiled:
    """Function that accumulates what profile j did to all baselines of a tile."""
    single, n_stokes, side = kernel.variant.single, kernel.variant.n_stokes, kernel.shape.side
    real, n_baseline, has_beam = float32 if single else float64, side * side, kernel.has_beam
    of_direction, of_projection = kernel.record.direction, kernel.record.projection
    of_profile = kernel.record.profile
    read_first, product = baseline.make_read_first(single, True, single), make_bare_product(single, side)
    weigh_residual = baseline.make_weigh_residual(n_stokes, n_baseline, False)
    turned_and_grown, slopes_of = baseline.turned_and_grown, make_slopes_of(kernel.variant.profiles)

    @device.part
    def all_baselines(
        p: Scalar, j: int, nu: Scalar, stokes: Stokes, staged: Staged, accumulators: TileAccumulators,
        voltages: Voltages,
    ) -> None:  # fmt: skip
        rest, uvw, value, sky = accumulators.rest, accumulators.uvw, accumulators.value, voltages.sky
        # Derivatives are linear in I: with 1 here, I is multiplied once for a source, not for each baseline.
        if n_stokes == 1:
            stokes = Stokes(real(1), real(0), real(0), real(0))
        for i in range(side):
            first = read_first(staged, uint32(p + uint32(i)))
            for k in range(side):
                n = i * side + k
                re, im, along, across = product(first, accumulators.second, k)
                slopes = slopes_of(sky, voltages.block.b, j, along, across, nu)
                rest_re, rest_im = weigh_residual(rest, n, stokes)
                # With conj(P) sum_S B_S R_S before the envelope: `adjoint.Adjoint`.
                y_im, y_re = turned_and_grown(re, im, rest_re, rest_im)
                x, y = real(slopes[0]), real(slopes[1])
                re, im = x * re - y * im, x * im + y * re
                # dchi2/dS is the residual times phase and envelope; other derivatives are of S times that.
                for m in range(n_stokes):
                    value[m] += re * rest[n + m * n_baseline]
                    value[m] += im * rest[n + (m + n_stokes) * n_baseline]
                # `turned` is of a change of the phase, `grown` of a change of the amplitude.
                turned, grown = turned_and_grown(re, im, rest_re, rest_im)
                of_a = real(slopes[2]) * y_re + real(slopes[3]) * y_im
                of_b = real(slopes[4]) * y_re + real(slopes[5]) * y_im
                for m in range(3):
                    value[of_direction + m] += turned * uvw[n + m * n_baseline]
                    value[of_projection + m] += of_a * uvw[n + m * n_baseline]
                    value[of_projection + 3 + m] += of_b * uvw[n + m * n_baseline]
                for m in range(8):
                    value[of_profile + m] += real(slopes[6 + 2 * m]) * y_re + real(slopes[7 + 2 * m]) * y_im
                if has_beam:
                    accumulators.of_antenna[i] += grown
                    accumulators.of_antenna[side + k] += grown

    return all_baselines
