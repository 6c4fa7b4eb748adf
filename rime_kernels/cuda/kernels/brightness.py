"""CUDA kernels for both forms of the RIME: directions and brightness of sources, and sums over a batch."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from numba import float64

from rime_kernels import device
from rime_kernels.arrays import Sources
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Scalar
from rime_kernels.cuda.kernels.reductions import make_block_reduce
from rime_kernels.inputs import Variant
from rime_kernels.physics import beam, brightness, envelope, form_codes, phase, spectral_forms

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

_n_minus_1, _projection = phase.n_minus_1, envelope.projection
_voltage, _argument = beam.voltage, beam.argument
_variable, _factor, _brightness = (
    brightness.spectral_variable,
    brightness.spectral_factor,
    brightness.brightness,
)
_factor_slope, _voltage_slope = brightness.spectral_slope, beam.voltage_slope
_is_table, _form_factor = spectral_forms.is_table, spectral_forms.form_factor
_form_slopes, _N_OWN, _POWER_LAW = spectral_forms.form_slopes, form_codes.N_OWN, form_codes.POWER_LAW
_faraday, _faraday_slopes, _C = brightness.faraday, brightness.faraday_slopes, phase.SPEED_OF_LIGHT


@functools.cache
def make_geometry(tangent: bool) -> DeviceKernel:
    """Kernel that fills directions (n_batch, n_source, 3) and Gaussian axes (n_batch, n_gaussian, 2, 3).

    As `phase.directions` and `envelope.projections` have them. n_point sources come before the Gaussians.
    """

    @device.kernel(0)
    def fill_geometry(n_point: int, lm: Array, shape: Array, direction: Array, projection: Array) -> None:
        i = cuda.grid(1)
        n_source = lm.shape[1]
        if i >= lm.shape[0] * n_source:
            return
        b, s = i // n_source, i % n_source
        l, m = lm[b, s, 0], lm[b, s, 1]
        n_minus_1 = _n_minus_1(l, m)
        direction[b, s, 0], direction[b, s, 1], direction[b, s, 2] = l, m, n_minus_1
        if s >= n_point:
            g = s - n_point
            slope_l, slope_m = 0.0, 0.0
            if tangent:
                # 1 + n_minus_1 is n. Only n - 1 is kept, which has all its digits near the centre.
                slope_l, slope_m = l / (1.0 + n_minus_1), m / (1.0 + n_minus_1)
            sin, cos = math.sin(shape[b, g, 2]), math.cos(shape[b, g, 2])
            x = _projection(shape[b, g, 0], sin, cos, slope_l, slope_m)
            projection[b, g, 0, 0], projection[b, g, 0, 1], projection[b, g, 0, 2] = x
            y = _projection(shape[b, g, 1], cos, -sin, slope_l, slope_m)
            projection[b, g, 1, 0], projection[b, g, 1, 1], projection[b, g, 1, 2] = y

    return fill_geometry


class SpectrumKernel(NamedTuple):
    """What kernels of the brightness are compiled for.

    Attributes
    ----------
    forms : bool
        Some spectra are more than polynomials: `spectral_forms`.
    turned : bool
        Q and U are turned: `brightness.faraday`.
    """

    forms: bool = False
    turned: bool = False

    @classmethod
    def of(cls, sources: Sources) -> SpectrumKernel:
        """The kernel variant that these sources need."""
        return cls(sources.spectral_form is not None, sources.faraday is not None and sources.polarised)


@functools.cache
def _make_polynomial(forms: bool) -> Compiled:
    """Function that gives where a spectrum's own numbers and its polynomial begin, and the polynomial at x.

    They are the last axis of `terms`, of entry b, source s and Stokes parameter k.
    """

    @device.inline
    def polynomial(
        form: Scalar, nu: Scalar, x: Scalar, terms: Array, b: int, s: int, k: int, n_term: int
    ) -> tuple[int, int, Scalar]:
        first, offset = 0, 0
        if forms and form > _POWER_LAW:
            offset = _N_OWN
            if _is_table(form):
                offset = n_term
                # The segment of the table that holds nu; tables have few rows, a search in order is short.
                while first + 5 < n_term:
                    if not (terms[b, s, k, first + 4] > 0.0):
                        break
                    if nu < terms[b, s, k, first + 2]:
                        break
                    first += 2
        value = 0.0
        # Horner's rule from the highest term; a form's own numbers come before the polynomial's.
        for j in range(n_term - 1, offset - 1, -1):
            value = value * x + terms[b, s, k, j]
        return first, offset, value

    return polynomial


@functools.cache
def make_brightness(
    variant: Variant, beam_code: int, source_first: bool, spectrum: SpectrumKernel
) -> DeviceKernel:
    """Kernel that fills B (n_batch, n_time or 1, n_chan, n_source), or with the last two axes exchanged.

    Stokes parameters times the spectral factor and the power of the beam that all antennas share, Q and U
    turned: pairs I + iQ and U + iV, complex, or I alone, real, as a flat array. `n_chan` may exceed the
    frequencies, for kernels that read whole runs of channels: the last one is repeated.
    """
    real, n_stokes, (forms, turned) = variant.real, variant.n_stokes, spectrum
    polynomial = _make_polynomial(forms)

    @device.kernel(0)
    def fill_brightness(
        n_chan: int, first_time: int, n_time: int, chan_freq: Array, lm: Array, stokes: Array,
        ref_freq: Array, spectral_form: Array, spectral_terms: Array, faraday: Array, beam_scale: Array,
        out: Array,
    ) -> None:  # fmt: skip
        i = cuda.grid(1)
        n_batch, n_source = lm.shape[0], lm.shape[1]
        if i >= n_batch * n_time * n_source * n_chan:
            return
        # The fastest index of a thread is the fastest of the array: writes are coalesced.
        if source_first:
            c, s = i % n_chan, i // n_chan % n_source
        else:
            s, c = i % n_source, i // n_source % n_chan
        t, b = i // (n_chan * n_source) % n_time, i // (n_chan * n_source * n_time)
        # Runs of channels may go beyond the last one, which is then repeated.
        nu = chan_freq[min(c, chan_freq.size - 1)]
        l, m = lm[b, s, 0], lm[b, s, 1]
        voltage = _voltage(beam_code, _argument(beam_scale[b], nu, l, m))
        form = spectral_form[s]
        is_log = form != 0.0
        x = _variable(nu / ref_freq[s], is_log)
        previous = real(0)
        re, im, q, u = 1.0, 0.0, 0.0, 0.0
        if turned:
            wave = _C / nu
            re, im = _faraday(
                wave * wave, faraday[b, s, 0], faraday[b, s, 1], faraday[b, s, 2], faraday[b, s, 3]
            )
        for k in range(n_stokes):
            first, _, value = polynomial(form, nu, x, spectral_terms, b, s, k, spectral_terms.shape[3])
            factor = _factor(value, x, is_log)
            if forms and form > _POWER_LAW:
                factor = _form_factor(
                    form, nu, factor, spectral_terms[b, s, k, first], spectral_terms[b, s, k, first + 1],
                    spectral_terms[b, s, k, first + 2], spectral_terms[b, s, k, first + 3],
                )  # fmt: skip
            # Both antennas of a baseline have the beam that all share, hence the square.
            bright = _brightness(stokes[b, first_time + t, s, k], factor * voltage * voltage)
            value = real(bright)
            if n_stokes == 1:
                out[i] = value
            elif turned:
                if k == 1:
                    q = bright
                elif k == 2:
                    u = bright
                elif k == 3:
                    # Faraday rotation turns Q + i U: both must be known, so Q waits until U has come.
                    out[2 * i] = complex(previous, real(re * q - im * u))
                    out[2 * i + 1] = complex(real(im * q + re * u), value)
                if k == 0:
                    previous = value
            else:
                if k % 2 == 1:
                    # I with Q, and U with V: the sums read two parameters with one load.
                    out[2 * i + k // 2] = complex(previous, value)
                previous = value

    return fill_brightness


def pull_threads() -> int:
    """Threads of a block of `make_pull_brightness`: one warp on a device."""
    return device.threads_per_block() // 4


@functools.cache
def make_pull_brightness(
    variant: Variant, beam_code: int, n_term: int, spectrum: SpectrumKernel
) -> DeviceKernel:
    """Kernel in which a block goes back through the brightness of one entry, time and source.

    As `spectra.pull_brightness`, from `gradient` float64 (n_batch, n_time or 1, n_column, n_source, run,
    n_stokes), columns of runs of channels, half the derivatives with respect to B: `of_stokes` (n_batch,
    n_time or 1, n_source, n_stokes), and still for each time and Stokes parameter `of_terms` (.., n_term),
    `of_argument` and, where Q and U are turned, `of_faraday` (.., 4). Each thread takes every n_thread-th
    channel, then a tree joins them.
    """
    n_stokes, n_thread, (forms, turned) = variant.n_stokes, pull_threads(), spectrum
    n_kind, has_beam = n_term + (6 if turned else 2), beam_code != beam.NO_BEAM
    block_reduce, polynomial = make_block_reduce(n_thread), _make_polynomial(forms)

    @device.kernel(0)
    def pull(
        gradient: Array, chan_freq: Array, lm: Array, stokes: Array, ref_freq: Array,
        spectral_form: Array, spectral_terms: Array, faraday: Array, beam_scale: Array, of_stokes: Array,
        of_terms: Array, of_argument: Array, of_faraday: Array,
    ) -> None:  # fmt: skip
        shared = cuda.shared.array(n_thread, float64)
        sums = cuda.local.array(n_kind, float64)
        n_time, n_source, n_chan = stokes.shape[1], stokes.shape[2], chan_freq.size
        run = gradient.shape[4]
        thread, s = cuda.threadIdx.x, cuda.blockIdx.x % n_source
        t, b = cuda.blockIdx.x // n_source % n_time, cuda.blockIdx.x // (n_source * n_time)
        form, l, m = spectral_form[s], lm[b, s, 0], lm[b, s, 1]
        is_log = form != 0.0
        for k in range(n_stokes):
            for j in range(n_kind):
                sums[j] = 0.0
            for c in range(thread, n_chan, n_thread):
                # The record has half of the derivative: the factor of |V - D|^2 is put in here.
                nu, of_bright = chan_freq[c], 2.0 * gradient[b, t, c // run, s, c % run, k]
                x, voltage, slope = _variable(nu / ref_freq[s], is_log), 1.0, 0.0
                if has_beam:
                    argument = _argument(beam_scale[b], nu, l, m)
                    voltage, slope = _voltage(beam_code, argument), _voltage_slope(beam_code, argument)
                first, offset, value = polynomial(form, nu, x, spectral_terms, b, s, k, n_term)
                factor = _factor(value, x, is_log)
                of_polynomial, by_0, by_1, by_2, by_3 = 0.0, 0.0, 0.0, 0.0, 0.0
                if forms and form > _POWER_LAW:
                    factor, of_polynomial, by_0, by_1, by_2, by_3 = _form_slopes(
                        form, nu, factor, spectral_terms[b, s, k, first], spectral_terms[b, s, k, first + 1],
                        spectral_terms[b, s, k, first + 2], spectral_terms[b, s, k, first + 3],
                    )  # fmt: skip
                    of_polynomial *= x
                else:
                    of_polynomial = _factor_slope(factor, x, is_log)
                if turned and (k == 1 or k == 2):
                    of_q = 2.0 * gradient[b, t, c // run, s, c % run, 1]
                    of_u = 2.0 * gradient[b, t, c // run, s, c % run, 2]
                    wave2, is_q = (_C / nu) * (_C / nu), k == 1
                    rm, wave2_0, slab = faraday[b, s, 0], faraday[b, s, 1], faraday[b, s, 2]
                    re, im = _faraday(wave2, rm, wave2_0, slab, faraday[b, s, 3])
                    # The transposed rotation brings the derivatives by rotated Q and U back to those before
                    # it.
                    of_bright = of_q * re + of_u * im if is_q else of_u * re - of_q * im
                    bright = _brightness(stokes[b, t, s, k], factor * voltage * voltage)
                    of = _faraday_slopes(wave2, rm, wave2_0, slab, faraday[b, s, 3])
                    for j in range(4):
                        re, im = of[2 * j], of[2 * j + 1]
                        turned_by = of_q * re + of_u * im if is_q else of_u * re - of_q * im
                        sums[n_term + 2 + j] += bright * turned_by
                of_factor = of_bright * stokes[b, t, s, k]
                sums[n_term] += of_bright * factor * voltage * voltage
                if of_factor != 0.0:  # no flux: whatever the spectrum
                    sums[n_term + 1] += 2.0 * voltage * slope * of_factor * factor * nu
                    of_power = of_factor * voltage * voltage
                    of_term = of_power * of_polynomial
                    # dB/dterm j is the derivative by the polynomial times x^j.
                    for j in range(offset, n_term):
                        sums[j] += of_term
                        of_term *= x
                    if forms and form > _POWER_LAW:
                        sums[first] += of_power * by_0
                        sums[first + 1] += of_power * by_1
                        sums[first + 2] += of_power * by_2
                        sums[first + 3] += of_power * by_3
            # One reduction after the other in one shared array: each ends with a barrier.
            for j in range(n_kind):
                total = block_reduce(thread, sums[j], shared)
                if thread == 0:
                    if j < n_term:
                        of_terms[b, t, s, k, j] = total
                    elif j == n_term:
                        of_stokes[b, t, s, k] = total
                    elif j == n_term + 1:
                        of_argument[b, t, s, k] = total
                    else:
                        of_faraday[b, t, s, k, j - n_term - 2] = total

    return pull
