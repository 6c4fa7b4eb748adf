"""The adjoint of the sum over sources for a tile of antennas.

After the sum over sources a thread has the weighted residuals of its tile, in Stokes parameters, where the
sums were. The sources come by a second time, and each gathers from all tiles what it did to them.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, float64, int32, int64, uint32

from rime_kernels import device
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.adjoint_parts import moments_of
from rime_kernels.cuda.kernels.lane_sums import make_lane_sums, meet
from rime_kernels.cuda.kernels.tile_parts import TileKernel
from rime_kernels.physics import beam

_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM
_voltage_slope, _argument_slopes = beam.voltage_slope, beam.argument_slopes


def _nothing(
    thread: Any, n_source: Any, term: Any, high: Any, low: Any, bright: Any, p: Any, q: Any, b: Any,
    rest: Any, uvw: Any, terms: Any, value: Any, partial: Any, first: Any, step: Any, of_antenna: Any,
    voltage: Any,
) -> None:  # fmt: skip
    """In place of what a kernel without an adjoint never calls."""


@functools.cache
def make_gather(kernel: TileKernel, gaussian: bool, wide: bool = False) -> Any:
    """Function that adds up what `n_source` sources gather from the tiles of each item.

    Arguments as those of `_tile_cuda.make_accumulate`; `rest` are the residuals where it has the sums, `uvw`
    the tile's baselines in wavelengths. The sums of source k lie in `partial` from
    `first` + k `step` on, in the order of `_adjoint_parts_cuda.Moments`.
    """
    if not kernel.has_adjoint:
        return device.inline(_nothing)
    variant, shape = kernel.variant, kernel.shape
    single, n_stokes, side = variant.single, variant.n_stokes, shape.side
    real = float32 if single else float64
    n_antenna, n_value = 2 * side, moments_of(variant, kernel.has_gaussian).room(gaussian)
    of_direction, has_beam = n_stokes, variant.beam != _NO_BEAM
    n_step = 2 if n_stokes == 4 else 1
    sum_lanes, gather_voltages = make_lane_sums(n_value, kernel.n_lane), make_gather_voltages(kernel)
    all_rows = _make_rows(kernel, gaussian, wide)

    @device.inline
    def gather(
        thread: Any, n_source: int, term: Any, high: Any, low: Any, bright: Any, p: Any, q: Any, b: Any,
        rest: Any, uvw: Any, terms: Any, value: Any, partial: Any, first: Any, step: Any, of_antenna: Any,
        voltage: Any,
    ) -> None:  # fmt: skip
        end = uint32(p + uint32(n_source) * uint32(side))
        source = uint32(0)
        while p != end:
            for k in range(n_value):
                value[k] = real(0)
            if has_beam:
                for k in range(n_antenna):
                    of_antenna[k] = real(0)
            for j in range(side):
                z = term[q + uint32(j)]
                terms[j], terms[side + j] = z.real, z.imag
                if gaussian:
                    z = high[q + uint32(j)]
                    terms[2 * side + j], terms[3 * side + j] = z.real, z.imag
                    if wide:
                        z = low[q + uint32(j)]
                        terms[4 * side + j], terms[5 * side + j] = z.real, z.imag
            stokes_i, stokes_q, stokes_u, stokes_v = bright[b].real, real(0), real(0), real(0)
            if n_stokes == 4:
                stokes_q, z = bright[b].imag, bright[b + uint32(1)]
                stokes_u, stokes_v = z.real, z.imag
            all_rows(
                (
                    term, high, low, p, rest, uvw, terms, value, of_antenna,
                    stokes_i, stokes_q, stokes_u, stokes_v,
                )
            )  # fmt: skip
            if n_stokes == 1:
                for k in range(of_direction, n_value):
                    value[k] *= stokes_i
                if has_beam:
                    for k in range(n_antenna):
                        of_antenna[k] *= stokes_i
            if has_beam:
                gather_voltages(thread, source, of_antenna, value, voltage)
            sum_lanes(thread, value, partial, first)
            p, q, b = uint32(p + uint32(side)), uint32(q + uint32(side)), uint32(b + uint32(n_step))
            first, source = uint32(first + uint32(step)), uint32(source + uint32(1))

    return gather


def _make_rows(kernel: TileKernel, gaussian: bool, wide: bool) -> Any:
    """Function that gathers from all rows of a tile.

    In double precision a loop over the rows of Gaussians is too long for the compiler to unroll, and what is
    indexed in it leaves the registers; a function that calls another for each row takes long to compile.
    """
    side, row = kernel.shape.side, _make_row(kernel, gaussian, wide)
    if kernel.variant.single or not gaussian or device.simulated():

        @device.inline
        def all_rows(given: Any) -> None:
            for i in range(side):
                row(i, given)

        return all_rows

    def from_row(i: int) -> Any:
        if i == side:
            return device.inline(lambda given: None)
        behind = from_row(i + 1)

        @device.inline
        def rows(given: Any) -> None:
            row(i, given)
            behind(given)

        return rows

    return from_row(0)


def _make_row(kernel: TileKernel, gaussian: bool, wide: bool) -> Any:
    """Function that gathers from row `i` of a tile."""
    variant, side = kernel.variant, kernel.shape.side
    single, n_stokes, has_beam = variant.single, variant.n_stokes, variant.beam != _NO_BEAM
    n_baseline = side * side
    moments = moments_of(variant, kernel.has_gaussian)
    of_direction, of_projection = n_stokes, moments.projection
    exp2 = scalars.exp2_function(single)

    @device.inline
    def row(i: Any, given: Any) -> None:
        term, high, low, p, rest, uvw, terms, value, of_antenna, stokes_i, stokes_q, stokes_u, stokes_v = (
            given
        )
        z = term[p + uint32(i)]
        p_re, p_im = z.real, z.imag
        if gaussian:
            z = high[p + uint32(i)]
            p_along, p_across = z.real, z.imag
            if wide:
                z = low[p + uint32(i)]
                p_along_low, p_across_low = z.real, z.imag
        for j in range(side):
            n = i * side + j
            re = p_re * terms[j] + p_im * terms[side + j]
            im = p_im * terms[j] - p_re * terms[side + j]
            if gaussian:
                along, across = p_along - terms[2 * side + j], p_across - terms[3 * side + j]
                if wide:
                    along += p_along_low - terms[4 * side + j]
                    across += p_across_low - terms[5 * side + j]
                e = exp2(along * along + across * across)
                re *= e
                im *= e
            for k in range(n_stokes):
                value[k] += re * rest[n + k * n_baseline]
                value[k] += im * rest[n + (k + n_stokes) * n_baseline]
            # I alone is multiplied at the end.
            rest_re, rest_im = rest[n], rest[n + n_stokes * n_baseline]
            if n_stokes == 4:
                rest_re = stokes_i * rest_re
                rest_re += stokes_q * rest[n + n_baseline]
                rest_re += stokes_u * rest[n + 2 * n_baseline]
                rest_re += stokes_v * rest[n + 3 * n_baseline]
                rest_im = stokes_i * rest_im
                rest_im += stokes_q * rest[n + 5 * n_baseline]
                rest_im += stokes_u * rest[n + 6 * n_baseline]
                rest_im += stokes_v * rest[n + 7 * n_baseline]
            turned = re * rest_im - im * rest_re
            for k in range(3):
                value[of_direction + k] += turned * uvw[n + k * n_baseline]
            if gaussian or has_beam:
                grown = re * rest_re + im * rest_im
                if gaussian:
                    along *= grown
                    across *= grown
                    for k in range(3):
                        value[of_projection + k] += along * uvw[n + k * n_baseline]
                        value[of_projection + 3 + k] += across * uvw[n + k * n_baseline]
                if has_beam:
                    of_antenna[i] += grown
                    of_antenna[side + j] += grown

    return row


@functools.cache
def make_gather_voltages(kernel: TileKernel) -> Any:
    """Function that turns what each antenna's voltage did into sums by source and by antenna.

    Tiles show what they have of their antennas in `shown`; the threads of an item each sum up some of its
    antennas, add the source's part to its `value` and the antenna's to `of_slot`, float64 (l, m) of
    each antenna term of the block. `members` of a group are its tiles (of those at hand), twice
    their number, and 1 more where it is on the second side.
    """
    code, side, n_thread = kernel.variant.beam, kernel.shape.side, kernel.shape.n_thread
    real = float32 if kernel.variant.single else float64
    n_antenna = 2 * side
    if code == _NO_BEAM:
        return device.inline(lambda thread, source, of_antenna, value, voltage: None)
    at_voltage = moments_of(kernel.variant, kernel.has_gaussian).voltage
    wait = meet()

    @device.inline
    def gather_voltages(thread: Any, source: Any, of_antenna: Any, value: Any, voltage: Any) -> None:
        (
            shown, of_slot, n_lane, n_here, n_used, member_start, member, nu_of, dl, dm, direction, b, start,
            scale,
        ) = voltage  # fmt: skip
        for k in range(n_antenna):
            shown[uint32(k * n_thread) + uint32(thread)] = of_antenna[k]
        wait()
        local = uint32(uint32(thread) // uint32(n_lane))
        slot = uint32(uint32(thread) - local * uint32(n_lane))
        s = start + source
        while slot < n_used and local < n_here:
            group = uint32(slot // uint32(side))
            first = uint32(uint32(slot - group * uint32(side)) * uint32(n_thread) + local * uint32(n_lane))
            total = 0.0
            for e in range(member_start[group], member_start[group + uint32(1)]):
                tile, second = uint32(member[e]) >> uint32(1), uint32(member[e]) & uint32(1)
                total += float64(shown[first + second * uint32(side * n_thread) + tile])
            x = uint32(local * uint32(n_used) + slot)
            l, m = direction[b, s, 0] - dl[x], direction[b, s, 1] - dm[x]
            argument = _argument(scale, nu_of[x], l, m)
            e = _voltage(code, argument)
            of_argument = total * _voltage_slope(code, argument) / e if e != 0.0 else 0.0
            by_scale, by_l, by_m = _argument_slopes(scale, nu_of[x], l, m)
            of_slot[2 * x] += of_argument * by_l
            of_slot[2 * x + 1] += of_argument * by_m
            value[at_voltage] += real(of_argument * by_l)
            value[at_voltage + 1] += real(of_argument * by_m)
            value[at_voltage + 2] += real(of_argument * by_scale)
            slot = uint32(slot + uint32(n_lane))
        wait()

    return gather_voltages


@functools.cache
def make_join(kernel: TileKernel) -> Any:
    """Function that joins what all threads of an item gathered from a chunk of sources, into its records.

    The record of the first item's first source is number `first`; those of its sources follow one another,
    those of the next item come `step` later. Sources have gathered `n_made` values.
    """
    if not kernel.has_adjoint:
        return device.inline(_nothing_to_join)
    n_thread, n_lane, single = kernel.shape.n_thread, kernel.n_lane, kernel.variant.single
    real = float32 if single else float64
    moments = moments_of(kernel.variant, kernel.has_gaussian)
    room, n_value = moments.most_room, moments.n_value
    of_source = n_thread // n_lane * room

    @device.inline
    def join(
        thread: Any, n_source: Any, n_item: Any, n_lanes: Any, n_made: Any, gathered: Any, records: Any,
        first: Any, step: Any,
    ) -> None:  # fmt: skip
        n_group = int32(uint32(n_lanes) // uint32(n_lane))
        x = uint32(thread)
        while x < uint32(n_source) * uint32(n_item) * uint32(n_value):
            of_item = uint32(x // uint32(n_value))
            value = uint32(x - of_item * uint32(n_value))
            source = uint32(of_item // uint32(n_item))
            item = uint32(of_item - source * uint32(n_item))
            at = uint32(source * uint32(of_source) + item * uint32(n_group * room) + value)
            total = 0.0
            if value < n_made:
                for k in range(n_group):
                    total += float64(gathered[uint32(at + uint32(k * room))])
            record = first + int64(item) * step + int64(source)
            records[record * n_value + int64(value)] = real(total)
            x = uint32(x + uint32(n_thread))

    return join


def _nothing_to_join(
    thread: Any, n_source: Any, n_item: Any, n_lanes: Any, n_made: Any, gathered: Any, records: Any,
    first: Any, step: Any,
) -> None:  # fmt: skip
    """In place of what a kernel without an adjoint never calls."""
