"""The adjoint of the sum over sources for a row and a run of channels.

After the sum a thread has the weighted residuals of its row, in Stokes parameters, where the sums were; the
sources come by a second time, and each accumulates from all rows of a unit what it did to them.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import float32, float64, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.baseline import make_read_stokes, make_weigh_residual, turned_and_grown
from rime_kernels.cuda.kernels.profiles import COORDINATE_SCALE, make_slopes_of
from rime_kernels.cuda.kernels.reductions import make_barrier, make_warp_reduce
from rime_kernels.cuda.kernels.rows.parts import (
    Place,
    RowKernel,
    RowRecords,
    RowTables,
    RowWork,
    ThreadRow,
    make_next_source,
    make_turning,
    turned_on,
)
from rime_kernels.physics import beam, envelope

_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM
_voltage_slope, _argument_slopes = beam.voltage_slope, beam.argument_slopes


class RowAccumulators(NamedTuple):
    """A thread's memory for what one source accumulates from its row, in working precision.

    Sizes are powers of two, as `make_warp_reduce` wants them: `Moments.bright_size`, `Moments.geometry_size`.
    """

    bright: Array  # of the brightness
    geometry: Array  # the others of `Moments`
    shown_bright: Array  # the same for one unit: 0 where the row belongs to another
    shown_geometry: Array
    voltage: Array  # float64 (4,): what the row's two antennas accumulate of all sources, l and m each


def _no_source(
    place: Place, s: int, n_point: int, row: ThreadRow, bright_offset: Scalar, work: RowWork,
    tables: RowTables, sky: DeviceSky,
    exponent: Array, rest: Array, accumulators: RowAccumulators,
) -> None:  # fmt: skip
    """In place of what a kernel without an adjoint never calls."""


@functools.cache
def make_accumulate_source_gradient(kernel: RowKernel) -> Compiled:
    """Function that gives what source s accumulates from a thread's row and channels.

    `rest` are the residuals, n_stokes real and n_stokes imaginary parts of the run; `exponent` the
    squares of its frequencies, by that of the first; `bright_offset` is where the source's brightness begins.
    """
    if not kernel.has_adjoint:
        return device.inline(_no_source)
    run, has_gaussian, code = kernel.shape.run, kernel.has_gaussian, kernel.variant.beam
    single, n_stokes, record = kernel.variant.single, kernel.variant.n_stokes, kernel.record
    real, per_source = float32 if single else float64, 2 if n_stokes == 4 else 1
    at_voltage, at_profile = record.voltage - record.n_bright, record.profile - record.n_bright
    has_profile, slopes_of = kernel.variant.profiles is not None, make_slopes_of(kernel.variant.profiles)
    exp2, turning_of = scalars.exp2_function(single), make_turning(kernel)
    squared = device.inline(envelope.squared.py_func)
    read_stokes = make_read_stokes(single, n_stokes, uint64)
    weigh_residual = make_weigh_residual(n_stokes, run, True)
    antenna_slopes, clear, place_geometry = (
        make_antenna_slopes(code),
        _make_clear(kernel),
        _make_geometry(kernel),
    )

    @device.part
    def accumulate_source_gradient(
        place: Place, s: int, n_point: int, row: ThreadRow, bright_offset: Scalar, work: RowWork,
        tables: RowTables, sky: DeviceSky,
        exponent: Array, rest: Array, accumulators: RowAccumulators,
    ) -> None:  # fmt: skip
        b, start, chan_freq, gaussian = place.b, place.start, tables.chan_freq, s - n_point
        value, geometry, voltage = accumulators.bright, accumulators.geometry, accumulators.voltage
        clear(accumulators)
        first_freq, n_chan = chan_freq[start], int32(chan_freq.size)
        turning = turning_of(b, s, gaussian, row, first_freq, work.step_freq, sky)
        re, im, along, across = turning.re, turning.im, turning.along, turning.across
        size2, all_turned, all_grown = real(squared(along, across)), 0.0, 0.0
        profile, of_along, of_across = s - (int32(sky.direction.shape[1]) - sky.n_profile), 0.0, 0.0
        for k in range(run):
            # A run may end behind the last channel: it takes that one again, with residuals of 0.
            e, nu = real(1), chan_freq[min(start + int32(k), n_chan - int32(1))]
            if has_gaussian and gaussian >= 0 and not (has_profile and profile >= 0):
                e = exp2(exponent[k] * size2)
            if code != _NO_BEAM:
                e_p, p_scale, p_l, p_m = antenna_slopes(b, s, nu, row.slot, row.p, sky)
                e_q, q_scale, q_l, q_m = antenna_slopes(b, s, nu, row.slot, row.q, sky)
                e *= real(e_p * e_q)
            x, y = e * re, e * im
            stokes = read_stokes(sky.bright, bright_offset + uint64(k * per_source))
            rest_re, rest_im = weigh_residual(rest, k, stokes)
            if has_profile and profile >= 0:
                # With conj(P) sum_S B_S R_S before the envelope: `adjoint.Adjoint`.
                y_im, y_re = turned_and_grown(x, y, rest_re, rest_im)
                scale = COORDINATE_SCALE * (nu / first_freq)
                slopes = slopes_of(sky, b, profile, scale * along, scale * across, nu)
                of_along += nu * (slopes[2] * y_re + slopes[3] * y_im)
                of_across += nu * (slopes[4] * y_re + slopes[5] * y_im)
                for j in range(8):
                    geometry[at_profile + j] += real(slopes[6 + 2 * j] * y_re + slopes[7 + 2 * j] * y_im)
                x, y = real(slopes[0]) * x - real(slopes[1]) * y, real(slopes[0]) * y + real(slopes[1]) * x
            for j in range(n_stokes):
                # Each channel has a brightness of its own, so nothing is summed over the run here.
                value[k * n_stokes + j] = x * rest[k + j * run] + y * rest[k + (j + n_stokes) * run]
            turned, grown = turned_and_grown(x, y, rest_re, rest_im)
            # The row's u, v, w are in seconds: times the frequency they are in wavelengths.
            all_turned += float64(turned) * nu
            if has_gaussian or code != _NO_BEAM:
                # The exponent of the envelope grows as the square of the frequency.
                all_grown += float64(exponent[k] * grown)
                if code != _NO_BEAM:
                    geometry[at_voltage] += real(grown * (p_l + q_l))
                    geometry[at_voltage + 1] += real(grown * (p_m + q_m))
                    geometry[at_voltage + 2] += real(grown * (p_scale + q_scale))
                    voltage[0] += grown * p_l
                    voltage[1] += grown * p_m
                    voltage[2] += grown * q_l
                    voltage[3] += grown * q_m
            re, im = turned_on(re, im, turning.step_re, turning.step_im)
        if not (has_profile and profile >= 0):
            of_along, of_across = along * all_grown * first_freq, across * all_grown * first_freq
        place_geometry(geometry, row, all_turned, of_along, of_across)

    return accumulate_source_gradient


def _make_clear(kernel: RowKernel) -> Compiled:
    """Function that begins what a source accumulates."""
    real, record = float32 if kernel.variant.single else float64, kernel.record
    n_bright, n_geometry = record.bright_size, record.geometry_size

    @device.inline
    def clear(accumulators: RowAccumulators) -> None:
        for k in range(n_bright):
            accumulators.bright[k] = real(0)
        for k in range(n_geometry):
            accumulators.geometry[k] = real(0)

    return clear


def _make_geometry(kernel: RowKernel) -> Compiled:
    """Function that multiplies sums over channels by the row's coordinates, in the order of `Moments`."""
    real, record, has_gaussian = (
        float32 if kernel.variant.single else float64,
        kernel.record,
        kernel.has_gaussian,
    )
    at_projection = record.projection - record.n_bright

    @device.part
    def place_geometry(
        geometry: Array, row: ThreadRow, turned: Scalar, along: Scalar, across: Scalar
    ) -> None:
        u, v, w = row.u, row.v, row.w
        geometry[0], geometry[1], geometry[2] = real(turned * u), real(turned * v), real(turned * w)
        if has_gaussian:
            geometry[at_projection] = real(along * u)
            geometry[at_projection + 1] = real(along * v)
            geometry[at_projection + 2] = real(along * w)
            geometry[at_projection + 3] = real(across * u)
            geometry[at_projection + 4] = real(across * v)
            geometry[at_projection + 5] = real(across * w)

    return place_geometry


@functools.cache
def make_antenna_slopes(code: int) -> Compiled:
    """Function that gives an antenna's voltage E, and the derivatives of ln E: of the scale, of l, of m."""

    @device.inline
    def antenna_slopes(
        b: int, s: int, nu: Scalar, slot: int, antenna: int, sky: DeviceSky
    ) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        l = sky.direction[b, s, 0] - sky.pointing[b, slot, antenna, 0]
        m = sky.direction[b, s, 1] - sky.pointing[b, slot, antenna, 1]
        argument = _argument(sky.beam_scale[b], nu, l, m)
        e = _voltage(code, argument)
        by_scale, by_l, by_m = _argument_slopes(sky.beam_scale[b], nu, l, m)
        # Where the voltage is 0, what it multiplies is 0 as well: no 0/0.
        slope = _voltage_slope(code, argument) / e if e != 0.0 else 0.0
        return e, slope * by_scale, slope * by_l, slope * by_m

    return antenna_slopes


@functools.cache
def make_join_unit(kernel: RowKernel) -> Compiled:
    """Function that sums what a source accumulated over all rows of a unit, and writes its record.

    `is_own` says whether the thread's row is of the unit,
    `record` is the number of the record. `accumulated` is
    shared memory for the sums of each group of `n_lane` threads.
    """
    single, n_row, n_lane, record = kernel.variant.single, kernel.shape.n_row, kernel.n_lane, kernel.record
    real, n_bright, n_geometry = float32 if single else float64, record.bright_size, record.geometry_size
    n_used_bright, n_value, per_group = record.n_bright, record.n_value, n_bright + n_geometry
    sum_brights, sum_geometry = make_warp_reduce(n_bright, n_lane), make_warp_reduce(n_geometry, n_lane)
    barrier = make_barrier()

    @device.part
    def join_unit(
        thread: int,
        is_own: Scalar,
        accumulators: RowAccumulators,
        accumulated: Array,
        moments: Array,
        number: Scalar,
    ) -> None:
        start = uint32(uint32(thread // n_lane) * uint32(per_group))
        for k in range(n_bright):
            accumulators.shown_bright[k] = accumulators.bright[k] if is_own else real(0)
        for k in range(n_geometry):
            accumulators.shown_geometry[k] = accumulators.geometry[k] if is_own else real(0)
        # These are copies, since `warp_reduce` overwrites what it sums, and the next unit needs the values.
        sum_brights(thread, accumulators.shown_bright, accumulated, start)
        sum_geometry(thread, accumulators.shown_geometry, accumulated, uint32(start + uint32(n_bright)))
        barrier()
        for kind in range(thread, n_value, n_row):
            # Behind the sums of the brightness are unused places, up to a power of two.
            at_kind = kind if kind < n_used_bright else kind - n_used_bright + n_bright
            joined = 0.0
            for k in range(n_row // n_lane):
                joined += float64(accumulated[k * per_group + at_kind])
            moments[number * n_value + kind] = real(joined)
        # `accumulated` is written again, for the next unit, only after all threads have read it.
        barrier()

    return join_unit


@functools.cache
def make_accumulate_gradient(kernel: RowKernel) -> Compiled:
    """Function that has all sources accumulate from a block's rows, and leaves their records."""
    n_row, code = kernel.shape.n_row, kernel.variant.beam
    n_voltage = 4 if code != _NO_BEAM else 1
    accumulate_source_gradient, join_unit, next_source = (
        make_accumulate_source_gradient(kernel),
        make_join_unit(kernel),
        make_next_source(kernel),
    )

    @device.part
    def accumulate_gradient(
        place: Place, row: ThreadRow, work: RowWork, tables: RowTables, sky: DeviceSky, records: RowRecords,
        exponent: Array, rest: Array, accumulators: RowAccumulators, accumulated: Array,
    ) -> None:  # fmt: skip
        first_block, unit_start = work.first_row // n_row, records.unit_start
        first_unit = unit_start[first_block]
        n_unit = unit_start[first_block + (work.n_row + n_row - 1) // n_row] - first_unit
        unit, stop_unit = unit_start[first_block + place.block], unit_start[first_block + place.block + 1]
        own = unit
        if stop_unit - unit > 1:
            # Units of a block are its times, without gaps.
            own += row.time - tables.time_index[work.first_row + int32(place.block) * int32(n_row)]
        n_source, bright_offset = int32(sky.direction.shape[1]), row.bright
        n_point = n_source - sky.n_gaussian
        for k in range(n_voltage):
            accumulators.voltage[k] = 0.0
        for s in range(n_source):
            accumulate_source_gradient(
                place, s, n_point, row, bright_offset, work, tables, sky, exponent, rest, accumulators
            )
            # All threads of a block take the same units: each unit has a barrier.
            for each in range(unit, stop_unit):
                of_unit = int64(place.b) * n_unit + (each - first_unit)
                of_unit = of_unit * work.n_run + place.number - place.block * work.n_run
                join_unit(
                    place.thread,
                    own == each,
                    accumulators,
                    accumulated,
                    records.moments,
                    of_unit * n_source + s,
                )
            bright_offset = next_source(bright_offset, work)
        if code != _NO_BEAM and place.local < work.n_row:
            # By row, not by antenna: rows of one antenna are in several blocks.
            of_row = (int64(place.b) * tables.time_index.size + row.row) * work.n_run
            of_row = of_row + place.number - place.block * work.n_run
            for k in range(n_voltage):
                records.by_row[of_row * n_voltage + k] = accumulators.voltage[k]

    return accumulate_gradient
