"""The adjoint of the sum over sources for a row and a run of channels.

After the sum a thread has the weighted residuals of its row, in Stokes parameters, where the sums were; the
sources come by a second time.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, float64, int32, uint64

from rime_kernels import device
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.adjoint_parts import moments_of
from rime_kernels.cuda.kernels.row_parts import RowKernel, make_term
from rime_kernels.physics import beam, phase

_C = phase.SPEED_OF_LIGHT
_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM
_voltage_slope, _argument_slopes = beam.voltage_slope, beam.argument_slopes


def _nothing(
    b: Any, s: Any, gaussian: Any, u: Any, v: Any, w: Any, p: Any, q: Any, slot: Any, start: Any,
    step_freq: Any, chan_freq: Any, direction: Any, projection: Any, beam_scale: Any, pointing: Any,
    bright: Any, at: Any, exponent: Any, rest: Any, value: Any, geometry: Any, voltage: Any,
) -> None:  # fmt: skip
    """In place of what a kernel without an adjoint never calls."""


@functools.cache
def make_gather(kernel: RowKernel) -> Any:
    """Function that gives what source s gathers from a thread's row and channels.

    `rest` are the residuals, n_stokes real and n_stokes imaginary parts of the run; `exponent` the
    squares of its frequencies, by that of the first. `value` is for the brightness, `geometry` for the
    others of `Moments`; to `voltage` is added what the row's two antennas gather, l and m each.
    """
    if not kernel.has_adjoint:
        return device.inline(_nothing)
    variant, run, has_gaussian = kernel.variant, kernel.shape.run, kernel.has_gaussian
    single, n_stokes, code = variant.single, variant.n_stokes, variant.beam
    real = float32 if single else float64
    per_source = 2 if n_stokes == 4 else 1
    record = moments_of(variant, has_gaussian, run)
    n_bright, n_geometry = record.bright_room, record.geometry_room
    at_voltage, at_projection = record.voltage - record.n_bright, record.projection - record.n_bright
    exp2, term = scalars.exp2_function(single), make_term(single, run, has_gaussian)
    antenna_slopes = make_antenna_slopes(code)

    @device.inline
    def gather(
        b: Any, s: Any, gaussian: Any, u: Any, v: Any, w: Any, p: Any, q: Any, slot: Any, start: Any,
        step_freq: Any, chan_freq: Any, direction: Any, projection: Any, beam_scale: Any, pointing: Any,
        bright: Any, at: Any, exponent: Any, rest: Any, value: Any, geometry: Any, voltage: Any,
    ) -> None:  # fmt: skip
        for k in range(n_bright):
            value[k] = real(0)
        for k in range(n_geometry):
            geometry[k] = real(0)
        first_freq, n_chan = chan_freq[start], int32(chan_freq.size)
        re, im, step_re, step_im, along, across = term(
            b, s, gaussian, u, v, w, first_freq, step_freq, direction, projection
        )
        size2, turned, grown = real(along * along + across * across), 0.0, 0.0
        for k in range(run):
            e, nu = real(1), chan_freq[min(start + int32(k), n_chan - int32(1))]
            if has_gaussian and gaussian >= 0:
                e = exp2(exponent[k] * size2)
            if code != _NO_BEAM:
                e_p, p_scale, p_l, p_m = antenna_slopes(b, s, nu, slot, p, direction, beam_scale, pointing)
                e_q, q_scale, q_l, q_m = antenna_slopes(b, s, nu, slot, q, direction, beam_scale, pointing)
                e *= real(e_p * e_q)
            x, y, of_k = e * re, e * im, at + uint64(k * per_source)
            z = bright[of_k]
            rest_re, rest_im = z.real * rest[k], z.real * rest[k + n_stokes * run]
            if n_stokes == 4:
                rest_re += z.imag * rest[k + run]
                rest_im += z.imag * rest[k + 5 * run]
                z = bright[of_k + uint64(1)]
                rest_re += z.real * rest[k + 2 * run] + z.imag * rest[k + 3 * run]
                rest_im += z.real * rest[k + 6 * run] + z.imag * rest[k + 7 * run]
            for j in range(n_stokes):
                value[k * n_stokes + j] = x * rest[k + j * run] + y * rest[k + (j + n_stokes) * run]
            turned += float64(x * rest_im - y * rest_re) * nu
            if has_gaussian or code != _NO_BEAM:
                each = x * rest_re + y * rest_im
                grown += float64(exponent[k] * each)
                if code != _NO_BEAM:
                    geometry[at_voltage] += real(each * (p_l + q_l))
                    geometry[at_voltage + 1] += real(each * (p_m + q_m))
                    geometry[at_voltage + 2] += real(each * (p_scale + q_scale))
                    voltage[0] += each * p_l
                    voltage[1] += each * p_m
                    voltage[2] += each * q_l
                    voltage[3] += each * q_m
            next_re = re * step_re - im * step_im
            im = im * step_re + re * step_im
            re = next_re
        geometry[0], geometry[1], geometry[2] = real(turned * u), real(turned * v), real(turned * w)
        if has_gaussian:
            along, across = along * grown * first_freq, across * grown * first_freq
            geometry[at_projection] = real(along * u)
            geometry[at_projection + 1] = real(along * v)
            geometry[at_projection + 2] = real(along * w)
            geometry[at_projection + 3] = real(across * u)
            geometry[at_projection + 4] = real(across * v)
            geometry[at_projection + 5] = real(across * w)

    return gather


@functools.cache
def make_antenna_slopes(code: int) -> Any:
    """Function that gives an antenna's voltage E, and the derivatives of ln E: of the scale, of l, of m."""

    @device.inline
    def antenna_slopes(
        b: Any, s: Any, nu: Any, slot: Any, antenna: Any, direction: Any, beam_scale: Any, pointing: Any
    ) -> Any:
        l = direction[b, s, 0] - pointing[b, slot, antenna, 0]
        m = direction[b, s, 1] - pointing[b, slot, antenna, 1]
        argument = _argument(beam_scale[b], nu, l, m)
        e = _voltage(code, argument)
        by_scale, by_l, by_m = _argument_slopes(beam_scale[b], nu, l, m)
        slope = _voltage_slope(code, argument) / e if e != 0.0 else 0.0
        return e, slope * by_scale, slope * by_l, slope * by_m

    return antenna_slopes
