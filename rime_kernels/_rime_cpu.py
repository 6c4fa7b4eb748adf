"""The RIME on the CPU: parallel loops, sources innermost, and nothing else."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import prange

from rime_kernels import beam, brightness, envelope, phase
from rime_kernels._inputs import Constants, Inputs, Output
from rime_kernels._jit import loop, scalar, source_digest

_DIGEST = source_digest("phase", "envelope", "beam", "brightness")
_VIS, _RESIDUAL, _WEIGHTED, _CHI2 = (int(kind) for kind in Output)

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_turns, _cos_sin = phase.turns, phase.cos_sin
_exponent = envelope.exponent
_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM
_variable, _factor, _brightness = (
    brightness.spectral_variable,
    brightness.spectral_factor,
    brightness.brightness,
)
_C = phase.SPEED_OF_LIGHT


@functools.cache
def make_spectra(single: bool) -> Callable[..., None]:
    """The loop that fills spectral factors, real (n_batch, n_chan, n_stokes, n_source).

    Each is S(nu)/S0 times the power E^2 of the beam that all antennas share.
    """
    digest, real = _DIGEST, np.float32 if single else np.float64

    @loop
    def spectra(beam_code: int, inputs: Inputs, chan_freq: Any, out: Any) -> None:
        _ = digest
        n_batch, n_chan, n_stokes, n_source = out.shape
        n_term = inputs.spectral_terms.shape[3]
        for item in prange(n_batch * n_chan):
            b, c = item // n_chan, item % n_chan
            nu = chan_freq[c]
            for s in range(n_source):
                l, m = inputs.direction[b, s, 0], inputs.direction[b, s, 1]
                voltage = _voltage(beam_code, _argument(inputs.beam_scale[b], nu, l, m))
                is_log = inputs.log_spectrum[s] != 0.0
                x = _variable(nu / inputs.ref_freq[s], is_log)
                for k in range(n_stokes):
                    polynomial = 0.0
                    for j in range(n_term - 1, -1, -1):
                        polynomial = polynomial * x + inputs.spectral_terms[b, s, k, j]
                    out[b, c, k, s] = real(_factor(polynomial, x, is_log) * voltage * voltage)

    return spectra


@scalar
def _fill_brightness(stokes: Any, spectra: Any, out: Any) -> None:
    """B (n_stokes, n_source) of one time slot and channel."""
    for k in range(out.shape[0]):
        for s in range(out.shape[1]):
            out[k, s] = _brightness(stokes[s, k], spectra[k, s])


@scalar
def _fill_antenna_terms(
    factored: Any, beam_code: Any, real: Any, inputs: Any, b: Any, t: Any, nu: Any, uvw: Any, terms: Any
) -> None:
    """E K of each antenna (2, n_antenna, n_source) in the factored form, E alone in the other."""
    pointing = inputs.pointing[b, min(t, inputs.pointing.shape[1] - 1)]
    for a in range(terms.shape[1]):
        for s in range(terms.shape[2]):
            l, m, n_minus_1 = inputs.direction[b, s, 0], inputs.direction[b, s, 1], inputs.direction[b, s, 2]
            voltage = 1.0
            if beam_code != _NO_BEAM:
                dl, dm = l - pointing[a, 0], m - pointing[a, 1]
                voltage = _voltage(beam_code, _argument(inputs.beam_scale[b], nu, dl, dm))
            if factored:
                turns = _turns(uvw[a, 0], uvw[a, 1], uvw[a, 2], l, m, n_minus_1) * (nu / _C)
                cos, sin = _cos_sin(turns, real)
                terms[0, a, s] = real(voltage) * cos
                terms[1, a, s] = real(voltage) * sin
            else:
                terms[0, a, s] = voltage


@scalar
def _fill_factored(p_re: Any, p_im: Any, q_re: Any, q_im: Any, re: Any, im: Any) -> None:
    """Antenna p times the conjugate of antenna q, for each source."""
    for s in range(re.size):
        re[s] = p_re[s] * q_re[s] + p_im[s] * q_im[s]
        im[s] = p_im[s] * q_re[s] - p_re[s] * q_im[s]


@scalar
def _fill_row(real: Any, uvw: Any, scale: Any, direction: Any, re: Any, im: Any) -> None:
    """The phase of one row, for each source; `scale` is nu/c."""
    for s in range(re.size):
        turns = _turns(uvw[0], uvw[1], uvw[2], direction[s, 0], direction[s, 1], direction[s, 2]) * scale
        re[s], im[s] = _cos_sin(turns, real)


@scalar
def _multiply_voltages(p: Any, q: Any, re: Any, im: Any) -> None:
    """Multiply by the beams of antennas p and q, for each source."""
    for s in range(re.size):
        e = p[s] * q[s]
        re[s] *= e
        im[s] *= e


@scalar
def _multiply_envelopes(real: Any, uvw: Any, nu: Any, projection: Any, re: Any, im: Any) -> None:
    """Multiply the last sources by their Gaussian envelopes."""
    first = re.size - projection.shape[0]
    for g in range(projection.shape[0]):
        x, y = projection[g, 0], projection[g, 1]
        along = _turns(uvw[0], uvw[1], uvw[2], x[0], x[1], x[2])
        across = _turns(uvw[0], uvw[1], uvw[2], y[0], y[1], y[2])
        e = math.exp(real(_exponent(along, across, nu)))
        re[first + g] *= e
        im[first + g] *= e


@scalar
def _sum_i(real: Any, bright: Any, re: Any, im: Any) -> Any:
    """Sum over sources of brightness times the row's term: I, and zeros for the other Stokes."""
    i_re, i_im = real(0), real(0)
    for s in range(re.size):
        i_re += bright[0, s] * re[s]
        i_im += bright[0, s] * im[s]
    zero = complex(real(0), real(0))
    return complex(i_re, i_im), zero, zero, zero


@scalar
def _sum_iquv(real: Any, bright: Any, re: Any, im: Any) -> Any:
    """Sum over sources of brightness times the row's term: I, Q, U, V."""
    i_re, q_re, u_re, v_re = real(0), real(0), real(0), real(0)
    i_im, q_im, u_im, v_im = real(0), real(0), real(0), real(0)
    for s in range(re.size):
        i_re += bright[0, s] * re[s]
        i_im += bright[0, s] * im[s]
        q_re += bright[1, s] * re[s]
        q_im += bright[1, s] * im[s]
        u_re += bright[2, s] * re[s]
        u_im += bright[2, s] * im[s]
        v_re += bright[3, s] * re[s]
        v_im += bright[3, s] * im[s]
    return complex(i_re, i_im), complex(q_re, q_im), complex(u_re, u_im), complex(v_re, v_im)


@scalar
def _finish(fixed: Any, output: Any, b: Any, row: Any, c: Any, sums: Any, vis_out: Any, real_out: Any) -> Any:
    """Make what `Output` names of the Stokes sums of one row and channel; its chi2, or 0."""
    total = 0.0
    for k in range(fixed.matrix.shape[0]):
        value = fixed.matrix[k, 0] * sums[0] + fixed.matrix[k, 1] * sums[1]
        value += fixed.matrix[k, 2] * sums[2] + fixed.matrix[k, 3] * sums[3]
        if output == _VIS:
            vis_out[b, row, c, k] = value
            continue
        difference = value - fixed.vis[row, c, k]
        if output == _RESIDUAL:
            vis_out[b, row, c, k] = difference
            continue
        square = difference.real * difference.real + difference.imag * difference.imag
        if output == _WEIGHTED:
            real_out[b, row, c, k] = fixed.weight[row, c, k] * square
        else:
            total += fixed.weight[row, c, k] * square
    return total


@functools.cache
def make_visibilities(single: bool) -> Callable[..., None]:
    """The loop over (batch, piece of a time slot, channel) that ends in what `Output` names.

    Each item makes its antenna terms for one channel, then its rows one by one. `variant` is
    (factored, beam code, output): asked once a row, outside the loops over sources, so that one
    compilation serves every model. `vis_out` is complex (n_batch, n_row, n_chan, n_corr),
    `real_out` float64 of that shape for the weighted squares, or (n_batch, n_chunk, n_chan, 1) for
    the partial sums of chi2.
    """
    digest, real = _DIGEST, np.float32 if single else np.float64

    @loop
    def visibilities(
        variant: Any, fixed: Constants, chunks: Any, inputs: Inputs, spectra: Any, vis_out: Any, real_out: Any
    ) -> None:
        _ = digest
        factored, beam_code, output = variant
        has_terms = factored or beam_code != _NO_BEAM
        n_batch, n_chan, n_stokes, n_source = spectra.shape
        n_antenna = fixed.antenna_uvw.shape[1] if has_terms else 0
        n_chunk = chunks.shape[0]
        for item in prange(n_batch * n_chunk * n_chan):
            b, chunk, c = item // (n_chunk * n_chan), item // n_chan % n_chunk, item % n_chan
            t, nu = chunks[chunk, 0], fixed.chan_freq[c]
            bright = np.empty((n_stokes, n_source), real)
            terms = np.empty((2, n_antenna, n_source), real)
            re, im = np.empty(n_source, real), np.empty(n_source, real)
            _fill_brightness(inputs.stokes[b, min(t, inputs.stokes.shape[1] - 1)], spectra[b, c], bright)
            if has_terms:
                _fill_antenna_terms(factored, beam_code, real, inputs, b, t, nu, fixed.antenna_uvw[t], terms)
            total = 0.0
            for place in range(chunks[chunk, 1], chunks[chunk, 2]):
                row = fixed.order[place]
                p, q, uvw = fixed.antenna1[row], fixed.antenna2[row], fixed.uvw[row]
                if factored:
                    _fill_factored(terms[0, p], terms[1, p], terms[0, q], terms[1, q], re, im)
                else:
                    _fill_row(real, uvw, nu / _C, inputs.direction[b], re, im)
                    if has_terms:
                        _multiply_voltages(terms[0, p], terms[0, q], re, im)
                _multiply_envelopes(real, uvw, nu, inputs.projection[b], re, im)
                sums = _sum_iquv(real, bright, re, im) if n_stokes == 4 else _sum_i(real, bright, re, im)
                total += _finish(fixed, output, b, row, c, sums, vis_out, real_out)
            if output == _CHI2:
                real_out[b, chunk, c, 0] = total

    return visibilities
