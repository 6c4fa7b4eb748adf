"""Spectra, brightness and antenna beams on the CPU, which many visibilities share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numba import prange

from rime_kernels.compile.jit import inner_function, loop, scalar
from rime_kernels.compile.types import Array, NumbaType, Pointer, Scalar, Vector
from rime_kernels.cpu.simd import constant, convert, load, n_lanes, pointer, size, spread, store, zeros
from rime_kernels.cpu.vector_math import exp
from rime_kernels.inputs import Inputs
from rime_kernels.physics import beam, brightness, form_codes, phase, spectral_forms

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_voltage, _argument, NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM
_variable, _brightness = brightness.spectral_variable, brightness.brightness
_faraday, _C, POWER_LAW = brightness.faraday, phase.SPEED_OF_LIGHT, form_codes.POWER_LAW
_first_term, _log_power = spectral_forms.first_term, spectral_forms.log_power
_form_factor = spectral_forms.form_factor

# Parts of a batch that threads take, and numbers that one thread makes faster than it wakes the others.
_BATCH_PARTS, _SMALL = 16, 8192


@scalar
def workspace(n: Scalar, real: NumbaType) -> Array:
    """Scratch memory for n numbers, aligned to a cache line."""
    raw = np.empty(n + 16, real)
    start = (-raw.ctypes.data % 64) // raw.itemsize
    return raw[start : start + n]


@inner_function
def _fill_variables(inputs: Inputs, scale: Array, out: Array) -> None:
    """The variable of the spectral polynomial (n_source, n) of one block of channels."""
    n = scale.size
    for s in range(inputs.ref_freq.size):
        is_log = inputs.spectral_form[s] != 0.0
        for i in range(n):
            if i > 0 and scale[i] == scale[i - 1]:
                out[n * s + i] = out[n * s + i - 1]
            else:
                out[n * s + i] = _variable(scale[i] * _C / inputs.ref_freq[s], is_log)


@inner_function
def _fill_form(inputs: Inputs, s: int, terms: Array, scale: Array, variables: Pointer, out: Pointer) -> None:
    """S(nu)/S0 (n,) of a source whose spectrum is more than a polynomial, from its terms."""
    n, form = scale.size, inputs.spectral_form[s]
    for i in range(n):
        nu = scale[i] * _C
        first, power = _first_term(form, nu, terms), math.exp(_log_power(form, variables[n * s + i], terms))
        out[i] = _form_factor(
            form, nu, power, terms[first], terms[first + 1], terms[first + 2], terms[first + 3]
        )


@inner_function
def _turn(faraday: Array, scale: Array, out: Array) -> None:
    """Turn Q and U of a source (n_row, n): 1 and 2 keep what is left, 4 is what U adds to Q, 5 Q to U."""
    for i in range(scale.size):
        wave = 1.0 / scale[i]
        re, im = _faraday(wave * wave, faraday[0], faraday[1], faraday[2], faraday[3])
        q, u = out[1, i], out[2, i]
        out[1, i], out[5, i] = q * re, q * im
        out[2, i], out[4, i] = u * re, -u * im


@inner_function
def _fill_spectra(
    beam_code: int,
    inputs: Inputs,
    b: int,
    scale: Array,
    variables: Pointer,
    voltages: Pointer,
    out: Array,
    lanes_like: Vector,
    wide: Vector,
) -> None:
    """Spectral factors (n_source, n_row, n) of one entry of the batch and block of channels.

    A row for each Stokes parameter, and two more where Q and U are turned: `_turn`.
    """
    n_source, n_row, n = out.shape
    n_stokes = min(n_row, 4)
    terms, n_term = inputs.spectral_terms[b], inputs.spectral_terms.shape[3]
    one = constant(1.0, wide)
    for s in range(n_source):
        power = one
        if beam_code != NO_BEAM:
            l, m = inputs.direction[b, s, 0], inputs.direction[b, s, 1]
            for i in range(n):
                voltages[i] = _voltage(beam_code, _argument(inputs.beam_scale[b], scale[i] * _C, l, m))
            power = load(voltages, 0, wide) * load(voltages, 0, wide)
        x, is_log = load(variables, n * s, wide), inputs.spectral_form[s] != 0.0
        if inputs.spectral_form[s] > POWER_LAW:
            for k in range(n_stokes):
                _fill_form(inputs, s, terms[s, k], scale, variables, voltages)
                store(pointer(out), (s * n_row + k) * n, convert(load(voltages, 0, wide) * power, lanes_like))
        for k in range(n_stokes if inputs.spectral_form[s] <= POWER_LAW else 0):
            polynomial = constant(0.0, wide)
            for j in range(n_term - 1, -1, -1):
                polynomial = polynomial * x + spread(terms[s, k, j], wide)
            factor = (
                exp(x * polynomial) if is_log else one + x * polynomial
            )  # as `brightness.spectral_factor`
            store(pointer(out), (s * n_row + k) * n, convert(factor * power, lanes_like))
        if n_row > 4:
            _turn(inputs.faraday[b, s], scale, out[s])


@inner_function
def _fill_batch(
    beam_code: int,
    inputs: Inputs,
    block: int,
    first: int,
    step: int,
    scale: Array,
    out: Array,
    lanes_like: Vector,
    wide: Vector,
) -> None:
    """Spectral factors of one block of channels and the entries first, first + step, ... of the batch.

    They share the logarithms of frequencies.
    """
    n_batch, n_source, n = out.shape[0], out.shape[2], size(lanes_like)
    if first >= n_batch:
        return
    variables, voltages = workspace(n_source * n, np.float64), workspace(n, np.float64)
    _fill_variables(inputs, scale[block], variables)
    for b in range(first, n_batch, step):
        _fill_spectra(
            beam_code,
            inputs,
            b,
            scale[block],
            pointer(variables),
            pointer(voltages),
            out[b, block],
            lanes_like,
            wide,
        )


@functools.cache
def make_spectra(single: bool) -> Callable[..., None]:
    """The loop that fills spectral factors, real (n_batch, n_block, n_source, n_row, n_lane).

    Each is S(nu)/S0 times the power E^2 of the beam that all antennas share: a row for each Stokes
    parameter. Where Q and U are turned there are six rows, two for what they give to each other.
    """
    real = np.float32 if single else np.float64
    n = n_lanes(real)

    @loop
    def spectra(beam_code: int, inputs: Inputs, scale: Array, out: Array) -> None:
        n_block = out.shape[1]
        # Numbers of one type, or Numba would compile the function twice.
        none, one, n_part = np.int64(0), np.int64(1), np.int64(_BATCH_PARTS)
        if out.size < _SMALL:
            for k in range(n_block):
                _fill_batch(beam_code, inputs, k, none, one, scale, out, zeros(real, n), zeros(np.float64, n))
            return
        for item in prange(n_block * _BATCH_PARTS):
            block, part = np.int64(item // _BATCH_PARTS), np.int64(item % _BATCH_PARTS)
            _fill_batch(
                beam_code, inputs, block, part, n_part, scale, out, zeros(real, n), zeros(np.float64, n)
            )

    return spectra


@inner_function
def fill_brightness(stokes: Array, times: Array, spectra: Array, out: Pointer, lanes_like: Vector) -> None:
    """B (n_source, n_stokes, n) of one slot and block of channels."""
    n_source, n_row, n = spectra.shape
    n_stokes, n_time = min(n_row, 4), stokes.shape[0]
    for s in range(n_source):
        for k in range(n_stokes):
            offset = (s * n_stokes + k) * n
            if times.size == 1 or n_time == 1:
                s0 = stokes[min(times[0], n_time - 1), s, k]
                value = constant(s0, lanes_like)
                if s0 != 0.0:  # as `brightness.brightness`
                    value = value * load(pointer(spectra), (s * n_row + k) * n, lanes_like)
                store(out, offset, value)
            else:
                for i in range(n):
                    out[offset + i] = _brightness(stokes[times[i], s, k], spectra[s, k, i])
        if n_row > 4:
            offset = (s * n_stokes + 1) * n
            for i in range(n):
                time = min(times[min(i, times.size - 1)], n_time - 1)
                out[offset + i] += _brightness(stokes[time, s, 2], spectra[s, 4, i])
                out[offset + n + i] += _brightness(stokes[time, s, 1], spectra[s, 5, i])


@inner_function
def fill_voltages(
    code: int,
    beam_scale: float,
    direction: Array,
    pointing: Array,
    antenna: Array,
    times: Array,
    scale: Array,
    out: Array,
) -> None:
    """E, (n, n_source, n_lane) in one piece, of the antennas (n, 1 or n_lane)."""
    n_source, n_lane = direction.shape[0], scale.size
    for a in range(antenna.shape[0]):
        for s in range(n_source):
            for i in range(n_lane):
                t = min(times[min(i, times.size - 1)], pointing.shape[0] - 1)
                error = pointing[t, antenna[a, min(i, antenna.shape[1] - 1)]]
                x = _argument(
                    beam_scale, scale[i] * _C, direction[s, 0] - error[0], direction[s, 1] - error[1]
                )
                out[(a * n_source + s) * n_lane + i] = _voltage(code, x)
