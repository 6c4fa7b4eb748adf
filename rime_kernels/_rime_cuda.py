"""The RIME on a CUDA device: plain kernels, one thread per output, channels fastest.

Brightness, then antenna terms, then one thread per (batch, row, channel) for the sum over sources,
then sums of fixed order. `_engine_cuda` launches them on slabs of the problem.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import float64

from rime_kernels import beam, brightness, device, envelope, phase
from rime_kernels._inputs import Output, Variant

_VIS, _RESIDUAL, _WEIGHTED, _CHI2 = (int(kind) for kind in Output)
# The simulator replaces a global of this name while a kernel runs.
cuda: Any = device.cuda

_C = phase.SPEED_OF_LIGHT

_turns, _cos_sin = phase.turns, phase.cos_sin
_exponent = envelope.exponent
_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM
_variable, _factor, _brightness = (
    brightness.spectral_variable,
    brightness.spectral_factor,
    brightness.brightness,
)


@functools.cache
def make_brightness(variant: Variant, beam_code: int) -> Any:
    """Kernel that fills B, real (n_batch, n_time or 1, n_source, n_stokes, n_chan).

    Stokes parameters times the spectral factor and the power of the beam that all antennas share;
    `first_time` is the slot of the first entry.
    """
    real, n_stokes = variant.real, variant.n_stokes

    @cuda.jit
    def fill_brightness(
        first_time: int, chan_freq: Any, direction: Any, stokes: Any, ref_freq: Any, log_spectrum: Any,
        spectral_terms: Any, beam_scale: Any, out: Any,
    ) -> None:  # fmt: skip
        i = cuda.grid(1)
        n_batch, n_time, n_source, n_chan = out.shape[0], out.shape[1], out.shape[2], out.shape[4]
        if i >= n_batch * n_time * n_source * n_chan:
            return
        c, s = i % n_chan, i // n_chan % n_source
        t, b = i // (n_chan * n_source) % n_time, i // (n_chan * n_source * n_time)
        nu = chan_freq[c]
        l, m = direction[b, s, 0], direction[b, s, 1]
        voltage = _voltage(beam_code, _argument(beam_scale[b], nu, l, m))
        is_log = log_spectrum[s] != 0.0
        x = _variable(nu / ref_freq[s], is_log)
        for k in range(n_stokes):
            polynomial = 0.0
            for j in range(spectral_terms.shape[3] - 1, -1, -1):
                polynomial = polynomial * x + spectral_terms[b, s, k, j]
            factor = _factor(polynomial, x, is_log) * voltage * voltage
            out[b, t, s, k, c] = real(_brightness(stokes[b, first_time + t, s, k], factor))

    return fill_brightness


@functools.cache
def make_antenna_terms(variant: Variant) -> Any:
    """Kernel that fills the antenna terms (n_batch, n_time, n_source, n_antenna, n_chan).

    E K, complex, in the factored form; E alone, real, in the row form.
    """
    real, factored, beam_code = variant.real, variant.factored, variant.beam

    @cuda.jit
    def fill_antenna_terms(
        first_time: int,
        chan_freq: Any,
        antenna_uvw: Any,
        direction: Any,
        beam_scale: Any,
        pointing: Any,
        out: Any,
    ) -> None:
        i = cuda.grid(1)
        n_batch, n_time, n_source, n_antenna, n_chan = out.shape
        if i >= n_batch * n_time * n_source * n_antenna * n_chan:
            return
        c, a, s = i % n_chan, i // n_chan % n_antenna, i // (n_chan * n_antenna) % n_source
        item = i // (n_chan * n_antenna * n_source)
        t, b = item % n_time, item // n_time
        nu, time = chan_freq[c], first_time + t
        l, m = direction[b, s, 0], direction[b, s, 1]
        voltage = 1.0
        if beam_code != _NO_BEAM:
            slot = min(time, pointing.shape[1] - 1)
            dl, dm = l - pointing[b, slot, a, 0], m - pointing[b, slot, a, 1]
            voltage = _voltage(beam_code, _argument(beam_scale[b], nu, dl, dm))
        if factored:
            u, v, w = antenna_uvw[time, a, 0], antenna_uvw[time, a, 1], antenna_uvw[time, a, 2]
            turns = _turns(u, v, w, l, m, direction[b, s, 2]) * (nu / _C)
            cos, sin = _cos_sin(turns, real)
            out[b, t, s, a, c] = complex(real(voltage) * cos, real(voltage) * sin)
        else:
            out[b, t, s, a, c] = voltage

    return fill_antenna_terms


@functools.cache
def make_visibilities(variant: Variant) -> Any:
    """Kernel of the sum over sources, one thread per (batch, row, channel).

    The slab begins at `first_place` of `order`, in time slot `first_time`. Ends in what `Output`
    names: `vis_out` complex or `real_out` float64 (n_batch, rows of the slab, n_chan, n_corr), the
    latter with one entry for all correlations when it is the chi2.
    """
    real, n_stokes = variant.real, variant.n_stokes
    factored, has_terms = variant.factored, variant.has_antenna_terms

    # fmt: off
    @cuda.jit
    def sum_sources(
        n_row: int, n_gaussian: int, first_place: int, first_time: int,
        uvw: Any, antenna1: Any, antenna2: Any, time_index: Any, order: Any, chan_freq: Any,
        matrix: Any, vis: Any, weight: Any, direction: Any, projection: Any,
        bright: Any, terms: Any, output: int, vis_out: Any, real_out: Any,
    ) -> None:
        # fmt: on
        b = cuda.blockIdx.y
        i = cuda.grid(1)
        n_chan, n_source = chan_freq.size, direction.shape[1]
        if i >= n_row * n_chan:
            return
        place, c = i // n_chan, i % n_chan
        row = order[first_place + place]
        p, q, t = antenna1[row], antenna2[row], time_index[row] - first_time
        t_bright = min(t, bright.shape[1] - 1)
        u, v, w, nu = uvw[row, 0], uvw[row, 1], uvw[row, 2], chan_freq[c]
        scale = nu / _C
        i_re, q_re, u_re, v_re = real(0), real(0), real(0), real(0)
        i_im, q_im, u_im, v_im = real(0), real(0), real(0), real(0)
        for s in range(n_source):
            if factored:
                x, y = terms[b, t, s, p, c], terms[b, t, s, q, c]
                re = x.real * y.real + x.imag * y.imag
                im = x.imag * y.real - x.real * y.imag
            else:
                turns = _turns(u, v, w, direction[b, s, 0], direction[b, s, 1], direction[b, s, 2])
                re, im = _cos_sin(turns * scale, real)
                if has_terms:
                    e = terms[b, t, s, p, c] * terms[b, t, s, q, c]
                    re, im = re * e, im * e
            g = s - (n_source - n_gaussian)
            if g >= 0:
                along = _turns(
                    u, v, w, projection[b, g, 0, 0], projection[b, g, 0, 1], projection[b, g, 0, 2]
                )
                across = _turns(
                    u, v, w, projection[b, g, 1, 0], projection[b, g, 1, 1], projection[b, g, 1, 2]
                )
                e = math.exp(real(_exponent(along, across, nu)))
                re, im = re * e, im * e
            i_re += bright[b, t_bright, s, 0, c] * re
            i_im += bright[b, t_bright, s, 0, c] * im
            if n_stokes == 4:
                q_re += bright[b, t_bright, s, 1, c] * re
                q_im += bright[b, t_bright, s, 1, c] * im
                u_re += bright[b, t_bright, s, 2, c] * re
                u_im += bright[b, t_bright, s, 2, c] * im
                v_re += bright[b, t_bright, s, 3, c] * re
                v_im += bright[b, t_bright, s, 3, c] * im
        total = 0.0
        for k in range(matrix.shape[0]):
            value = matrix[k, 0] * complex(i_re, i_im)
            if n_stokes == 4:
                value += matrix[k, 1] * complex(q_re, q_im)
                value += matrix[k, 2] * complex(u_re, u_im)
                value += matrix[k, 3] * complex(v_re, v_im)
            if output != _VIS:
                value -= vis[row, c, k]
            if output in (_VIS, _RESIDUAL):
                vis_out[b, place, c, k] = value
            else:
                square = weight[row, c, k] * (value.real * value.real + value.imag * value.imag)
                if output == _WEIGHTED:
                    real_out[b, place, c, k] = square
                else:
                    total += square
        if output == _CHI2:
            real_out[b, place, c, 0] = total

    return sum_sources


@functools.cache
def make_range_sums(n_thread: int) -> Any:
    """Kernel in which block (j, b) sums values[b, start[j] - offset : stop[j] - offset].

    Each thread takes every n_thread-th value, then a tree joins the threads: an order that depends
    on the range alone. Writes out[b, first + j].
    """

    @cuda.jit
    def sum_ranges(start: Any, stop: Any, offset: int, values: Any, first: int, out: Any) -> None:
        shared = cuda.shared.array(n_thread, float64)
        j, b, thread = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
        total = 0.0
        for i in range(start[first + j] - offset + thread, stop[first + j] - offset, n_thread):
            total += values[b, i]
        shared[thread] = total
        cuda.syncthreads()
        half = n_thread // 2
        while half > 0:
            if thread < half:
                shared[thread] += shared[thread + half]
            cuda.syncthreads()
            half //= 2
        if thread == 0:
            out[b, first + j] = shared[0]

    return sum_ranges
