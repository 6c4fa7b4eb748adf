"""The gradient of chi2 with 2x2 beams: what each source did to chi2 by way of each antenna.

V_pq = sum over sources of f T_p B T_q^H, f the phase and the envelope. With R the weighted residual of a row,
an antenna accumulates from its rows, in their order,

    H = sum over rows of conj(f) R T_q          where it is p; f R^H T_p where it is q

which gives all that it has a part in:

    d chi2 = sum over antennas of 2 Re tr((H B)^H dT) + Re tr(H^H T dB)

and z = tr((T_p B)^H conj(f) R T_q) what positions and shapes have: see `Adjoint`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import float32, float64, int32, int64, uint64

from rime_kernels import device
from rime_kernels.compile.types import (
    Array,
    Compiled,
    DeviceKernel,
    Module,
    Scalar,
)
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.jones.factors import Factor, make_enveloped, make_factor
from rime_kernels.cuda.kernels.jones.residuals import read_residual
from rime_kernels.cuda.kernels.jones.slopes import make_pull_place
from rime_kernels.cuda.kernels.jones.table import Table, place_of, read_matrix
from rime_kernels.cuda.kernels.jones.voltages import (
    CudaBeams,
    frame_of,
    is_circular,
    make_times_brightness,
    steps_of,
)
from rime_kernels.cuda.kernels.profiles import COORDINATE_SCALE, make_slopes_of
from rime_kernels.cuda.kernels.rows.parts import RowKernel, RowTables, ThreadRow
from rime_kernels.jones_beam import matrices
from rime_kernels.physics import phase

# The simulator replaces a global of this name while a kernel runs: what declares arrays stands here.
cuda: Module = device.cuda
_C = phase.SPEED_OF_LIGHT


class Units(NamedTuple):
    """Which rows an antenna has: a unit is the rows of one time, or of a part of them."""

    time: Array  # int32 (n_unit,)
    starts: Array  # int32 (n_unit n_antenna + 1,): where those of each unit and antenna begin
    rows: Array  # int32: twice the number of a row, 1 more where the antenna is its second


class SlabNumbers(NamedTuple):
    """The rows and units that are at hand, in numbers."""

    first_row: int
    n_row: int
    first_unit: int
    n_unit: int


class AntennaItem(NamedTuple):
    """What a thread accumulates for."""

    b: int
    unit: int  # among all
    time: int
    c: int
    s: int
    a: Scalar


@functools.cache
def make_accumulate_gradient(kernel: RowKernel) -> DeviceKernel:
    """The kernel: a thread for each unit, channel, source and antenna, which leaves a record of `Moments`.

    `records` (n_batch, n_unit, n_chan, n_antenna, n_source, `Moments.n_value`), flat.
    """
    real, moments = float32 if kernel.variant.single else float64, kernel.record
    n_value, at_voltage = moments.n_value, moments.voltage
    accumulate_rows, put_brightness = _make_accumulate_rows(kernel), _make_put_brightness(kernel)
    circular = is_circular(kernel.matrix)
    pull_place = make_pull_place(kernel.variant.single, circular)
    times_brightness, has_turns = make_times_brightness(circular), moments.turned
    turned = device.inline((matrices.turned_circular if circular else matrices.turned_linear).py_func)
    dot = device.inline(matrices.dot.py_func)

    @device.kernel(0)
    def accumulate_gradient(
        slab: SlabNumbers, tables: RowTables, units: Units, sky: DeviceSky, beams: CudaBeams, table: Table,
        residual: Array,
        records: Array,
    ) -> None:  # fmt: skip
        i = int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        n_antenna, n_source = int64(table.n_antenna), int64(sky.direction.shape[1])
        if i >= records.size // n_value:
            return
        # Antennas are the fastest index, as in `table`: neighbouring threads read neighbouring matrices.
        a, rest = int32(i % n_antenna), i // n_antenna
        s, rest = int32(rest % n_source), rest // n_source
        c, rest = int32(rest % table.n_chan), rest // table.n_chan
        unit, b = int32(rest % slab.n_unit) + int32(slab.first_unit), int32(rest // slab.n_unit)
        item = AntennaItem(b, unit, units.time[unit], c, s, a)
        value = cuda.local.array(n_value, real)
        for k in range(n_value):
            value[k] = real(0)
        of_source = place_of(b, item.time, c, s, n_source, table)
        own = read_matrix(of_source, a, table)
        slot = int64(b) * sky.n_bright_time + min(item.time - table.first_time, int32(sky.n_bright_time - 1))
        bright = uint64(2) * uint64((slot * n_source + s) * table.n_chan + c)
        iq, uv = sky.bright[bright], sky.bright[bright + uint64(1)]
        # T_p B is the same for all rows of this antenna and source: made once.
        own_brightness = times_brightness(own, iq, uv)
        # One thread owns one antenna, source and channel: its rows are added in order, without atomics.
        h = accumulate_rows(item, of_source, slab, tables, units, sky, table, residual, own_brightness, value)
        put_brightness(h, own, value)
        if has_turns:
            # As of a place to which the antenna points, whose sign is the other one.
            of_angle, _ = dot(times_brightness(h, iq, uv), turned(own))
            value[at_voltage + 3] = -of_angle
        if beams.applies[min(s, int32(beams.applies.size - 1))] != 0:
            scale, frame = sky.beam_scale[b], frame_of(b, item.time, a, c, sky, beams)
            of_l, of_m, of_scale = pull_place(
                frame, sky.direction[b, s, 0], sky.direction[b, s, 1], steps_of(scale, beams), scale,
                times_brightness(h, iq, uv), beams,
            )  # fmt: skip
            value[at_voltage], value[at_voltage + 1] = real(of_l), real(of_m)
            value[at_voltage + 2] = real(of_scale)
        into = (int64(b) * slab.n_unit + (unit - slab.first_unit)) * table.n_chan + c
        into = ((into * n_antenna + a) * n_source + s) * n_value
        for k in range(n_value):
            records[into + k] = value[k]

    return accumulate_gradient


def _make_accumulate_rows(kernel: RowKernel) -> Compiled:
    """Function that sums H over the rows of an antenna, and puts what rows themselves have into a record."""
    real = float32 if kernel.variant.single else float64
    factor_of, of_row, enveloped = make_factor(kernel), _make_of_row(kernel), make_enveloped(kernel)
    times, adjoint = device.inline(matrices.times.py_func), device.inline(matrices.adjoint.py_func)
    times_number, dot = device.inline(matrices.times_number.py_func), device.inline(matrices.dot.py_func)

    @device.part
    def accumulate_rows(
        item: AntennaItem, of_source: Scalar, slab: SlabNumbers, tables: RowTables, units: Units,
        sky: DeviceSky, table: Table,
        residual: Array, own_brightness: tuple[Scalar, ...], value: Array,
    ) -> tuple[Scalar, ...]:  # fmt: skip
        zero = real(0)
        h, freq = (zero, zero, zero, zero, zero, zero, zero, zero), tables.chan_freq[item.c]
        first, uvw, b, s = int64(item.unit) * table.n_antenna + item.a, tables.uvw, item.b, item.s
        for k in range(units.starts[first], units.starts[first + 1]):
            number, is_second = units.rows[k] // int32(2), units.rows[k] % int32(2)
            p, q = tables.antenna1[number], tables.antenna2[number]
            row = ThreadRow(
                number, item.time, uvw[number, 0] / _C, uvw[number, 1] / _C, uvw[number, 2] / _C, p, q,
                int32(0), uint64(0),
            )  # fmt: skip
            factor = factor_of(b, s, row, freq, sky)
            r = read_residual(b, item.c, table.n_chan, number - slab.first_row, slab.n_row, residual)
            # V = T_p B T_q^H: a row counts for its first antenna by R T_q, and for its second by R^H T_p.
            if is_second == 0:
                half = times(r, read_matrix(of_source, q, table))
                y_re, y_im = dot(own_brightness, half)
                # What belongs to the row itself is taken where the antenna is the first: once, not twice.
                re, im = of_row(b, s, row, freq, factor, y_re, y_im, sky, value)
                half = times_number(half, re, -im)
            else:
                half = times(adjoint(r), read_matrix(of_source, p, table))
                re, im = enveloped(b, s, freq, factor, sky)
                half = times_number(half, re, im)
            h = (
                h[0] + half[0], h[1] + half[1], h[2] + half[2], h[3] + half[3], h[4] + half[4],
                h[5] + half[5], h[6] + half[6], h[7] + half[7],
            )  # fmt: skip
        return h

    return accumulate_rows


def _make_of_row(kernel: RowKernel) -> Compiled:
    """Function that adds what a row itself has of a source to a record; gives the factor with its envelope.

    From tr((T_p B)^H R T_q).
    """
    single, profiles, has_gaussian = kernel.variant.single, kernel.variant.profiles, kernel.has_gaussian
    real, slopes_of, moments = float32 if single else float64, make_slopes_of(profiles), kernel.record
    direction, offset, at_profile = moments.direction, moments.projection, moments.profile
    has_profile = profiles is not None

    @device.part
    def of_row(
        b: int, s: int, row: ThreadRow, freq: Scalar, factor: Factor, y_re: Scalar, y_im: Scalar,
        sky: DeviceSky,
        value: Array,
    ) -> tuple[Scalar, Scalar]:  # fmt: skip
        re, im = factor.re, factor.im
        # z = conj(K) y, K the factor of the row: phase and, for Gaussians, envelope.
        z_re, z_im = re * y_re + im * y_im, re * y_im - im * y_re
        n_source = int32(sky.direction.shape[1])
        j = s - (n_source - int32(sky.n_profile))
        of_along, of_across = 0.0, 0.0
        if has_profile and j >= 0:
            along, across = COORDINATE_SCALE * factor.along, COORDINATE_SCALE * factor.across
            e = slopes_of(sky, b, j, along, across, freq)
            of_along = e[2] * z_re + e[3] * z_im
            of_across = e[4] * z_re + e[5] * z_im
            for k in range(8):
                value[at_profile + k] += real(e[6 + 2 * k] * z_re + e[7 + 2 * k] * z_im)
            e_re, e_im = real(e[0]), real(e[1])
            re, im = e_re * factor.re - e_im * factor.im, e_re * factor.im + e_im * factor.re
            z_re, z_im = e_re * z_re + e_im * z_im, e_re * z_im - e_im * z_re
        elif has_gaussian and s >= n_source - int32(sky.n_gaussian):
            # Derivatives of exp(-(along^2 + across^2)), less factors that are put in at the end.
            of_along, of_across = factor.along * z_re, factor.across * z_re
        # In wavelengths: the row's coordinates are in seconds.
        u, v, w = row.u * freq, row.v * freq, row.w * freq
        value[direction] += real(z_im * u)
        value[direction + 1] += real(z_im * v)
        value[direction + 2] += real(z_im * w)
        if has_gaussian:
            value[offset] += real(of_along * u)
            value[offset + 1] += real(of_along * v)
            value[offset + 2] += real(of_along * w)
            value[offset + 3] += real(of_across * u)
            value[offset + 4] += real(of_across * v)
            value[offset + 5] += real(of_across * w)
        return re, im

    return of_row


def _make_put_brightness(kernel: RowKernel) -> Compiled:
    """Function that puts what an antenna has of the derivatives of the brightness into a record.

    Half of Re tr(H^H T dB): each row's are in the sums of both its antennas.
    """
    real, circular = float32 if kernel.variant.single else float64, is_circular(kernel.matrix)
    times, adjoint = device.inline(matrices.times.py_func), device.inline(matrices.adjoint.py_func)

    @device.inline
    def put_brightness(h: tuple[Scalar, ...], t: tuple[Scalar, ...], value: Array) -> None:
        w, half = times(adjoint(h), t), real(0.5)
        value[0] = half * (w[0] + w[6])
        # With B as in `matrices.times_hermitian`: (a, b, c, d) is (I, Q, U, V), or (I, V, Q, U) of circular.
        b, c, d = half * (w[0] - w[6]), half * (w[2] + w[4]), half * (w[3] - w[5])
        value[1], value[2], value[3] = (c, d, b) if circular else (b, c, d)

    return put_brightness


@functools.cache
def make_sum_pointing(kernel: RowKernel) -> DeviceKernel:
    """Kernel that sums what each antenna of a unit has of `JonesBeam.motion` over channels and sources.

    `records` as `make_accumulate_gradient` leaves them; `out` float64, flat (n_batch, n_unit, n_out, 2 or 4).
    """
    n_value, at_voltage = kernel.record.n_value, kernel.record.voltage
    n_axis = 4 if kernel.record.turned else 2

    @device.kernel(0)
    def sum_pointing(
        n_chan: int, n_antenna: int, n_source: int, n_out: int, beams: CudaBeams, records: Array, out: Array
    ) -> None:
        i = int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        if i >= out.size:
            return
        axis, a, unit = i % n_axis, i // n_axis % n_out, i // (n_axis * n_out)
        total, column = 0.0, at_voltage + (3 if axis > 1 else axis)
        if a < n_antenna:
            for c in range(n_chan):
                offset = ((unit * n_chan + c) * n_antenna + a) * n_source
                factor = -beams.wavelength2[c] if axis == 3 else 1.0
                for s in range(n_source):
                    total += factor * float64(records[(offset + s) * n_value + column])
        out[i] = total

    return sum_pointing
