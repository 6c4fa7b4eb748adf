"""The RIME on the CPU: parallel loops, sources innermost, and nothing else."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels import beam, brightness, envelope, phase
from rime_kernels._inputs import Constants, Inputs, Output, Variant
from rime_kernels._jit import loop, scalar, source_digest
from rime_kernels.geometry import RowTable, row_chunks

# Bytes of spectral factors and partial sums that one pass over a part of the batch may take.
_MEMORY_BUDGET = 256 << 20

_DIGEST = source_digest("phase", "envelope", "beam", "brightness")
_VIS, _RESIDUAL, _WEIGHTED, _CHI2 = (int(kind) for kind in Output)

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_turns, _angle = phase.turns, phase.angle
_exponent = envelope.exponent
_voltage, _argument = beam.voltage, beam.argument
_variable, _factor, _brightness = (
    brightness.spectral_variable,
    brightness.spectral_factor,
    brightness.brightness,
)
_C = phase.SPEED_OF_LIGHT


@functools.cache
def make_spectra(beam_code: int, n_stokes: int) -> Callable[..., None]:
    """The loop that fills spectral factors, float (n_batch, n_chan, n_stokes, n_source).

    Each is S(nu)/S0 times the power E^2 of the beam that all antennas share.
    """
    digest = _DIGEST

    @loop
    def spectra(inputs: Inputs, chan_freq: Any, out: Any) -> None:
        _ = digest
        n_batch, n_chan, _n, n_source = out.shape
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
                    out[b, c, k, s] = _factor(polynomial, x, is_log) * voltage * voltage

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
            if beam_code != 0:
                dl, dm = l - pointing[a, 0], m - pointing[a, 1]
                voltage = _voltage(beam_code, _argument(inputs.beam_scale[b], nu, dl, dm))
            if factored:
                turns = _turns(uvw[a, 0], uvw[a, 1], uvw[a, 2], l, m, n_minus_1) * (nu / _C)
                angle = real(_angle(turns))
                terms[0, a, s] = real(voltage) * math.cos(angle)
                terms[1, a, s] = real(voltage) * math.sin(angle)
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
        angle = real(_angle(turns))
        re[s] = math.cos(angle)
        im[s] = math.sin(angle)


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
def make_visibilities(variant: Variant) -> Callable[..., None]:
    """The loop over (batch, piece of a time slot, channel) that ends in what `Output` names.

    Each item makes its antenna terms for one channel, then its rows one by one. `vis_out` is
    complex (n_batch, n_row, n_chan, n_corr), `real_out` float64 of that shape for the weighted
    squares, or (n_batch, n_chunk, n_chan, 1) for the partial sums of chi2.
    """
    digest = _DIGEST
    real, n_stokes = variant.real, variant.n_stokes
    factored, beam_code, has_terms = variant.factored, variant.beam, variant.has_antenna_terms

    @loop
    def visibilities(
        fixed: Constants, chunks: Any, inputs: Inputs, spectra: Any, output: int, vis_out: Any, real_out: Any
    ) -> None:
        _ = digest
        n_batch, n_chan, _n, n_source = spectra.shape
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


class Engine:
    """The CPU's side of `Rime`: keeps the constants, cuts the batch, runs the loops."""

    def __init__(self, fixed: Constants, table: RowTable, *, single: bool, factored: bool) -> None:
        self._fixed = fixed
        self._single, self._factored = single, factored
        # Long pieces share their antenna terms among many rows, several pieces feed all threads.
        self._chunks = row_chunks(table, max(1024, 16 * fixed.antenna_uvw.shape[1]))

    def run(self, inputs: Inputs, codes: tuple[int, int], polarised: bool, output: Output) -> NDArray[Any]:
        """V, residual or weighted square, (n_batch, n_row, n_chan, n_corr); or chi2 (n_batch,)."""
        variant = Variant(self._single, self._factored, codes[1], polarised)
        n_batch, n_source = inputs.direction.shape[:2]
        n_chan, n_chunk = self._fixed.chan_freq.size, len(self._chunks)
        bytes_each = n_chan * 8 * (variant.n_stokes * n_source + n_chunk)
        step = max(1, min(n_batch, _MEMORY_BUDGET // max(1, bytes_each)))
        result = self._result(n_batch, variant, output)
        for start in range(0, n_batch, step):
            part = inputs.batch(start, min(start + step, n_batch))
            self._run_part(part, codes[0], variant, output, result[start : start + step])
        return result

    def _result(self, n_batch: int, variant: Variant, output: Output) -> NDArray[Any]:
        if output is Output.CHI2:
            return np.empty(n_batch)
        shape = (n_batch, self._fixed.uvw.shape[0], self._fixed.chan_freq.size, self._fixed.matrix.shape[0])
        return np.empty(shape, np.float64 if output is Output.WEIGHTED else variant.complex)

    def _run_part(
        self, inputs: Inputs, shared_beam: int, variant: Variant, output: Output, result: NDArray[Any]
    ) -> None:
        n_batch, n_source = inputs.direction.shape[:2]
        n_chan = self._fixed.chan_freq.size
        spectra = np.empty((n_batch, n_chan, variant.n_stokes, n_source), variant.real)
        make_spectra(shared_beam, variant.n_stokes)(inputs, self._fixed.chan_freq, spectra)
        vis_out, real_out = np.empty((0, 0, 0, 0), variant.complex), np.empty((0, 0, 0, 0))
        if output is Output.CHI2:
            real_out = np.empty((n_batch, len(self._chunks), n_chan, 1))
        elif output is Output.WEIGHTED:
            real_out = result
        else:
            vis_out = result
        visibilities = make_visibilities(variant)
        visibilities(self._fixed, self._chunks, inputs, spectra, int(output), vis_out, real_out)
        if output is Output.CHI2:
            # NumPy sums each row by itself, in an order that depends on its length alone.
            np.sum(real_out.reshape(n_batch, -1), axis=1, out=result)
