"""The RIME on the CPU: loops over vectors (`_lanes` says of what), and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from rime_kernels import beam, brightness, envelope, phase
from rime_kernels._inputs import Inputs, Output
from rime_kernels._jit import loop, scalar, source_digest, vector_function
from rime_kernels._lanes import Lanes
from rime_kernels._simd import constant, convert, element, load, n_lanes, repeat, size, spread, store, zeros
from rime_kernels._vector_math import cos_sin_turns, exp

_DIGEST = source_digest(
    "phase", "envelope", "beam", "brightness", "_simd", "_vector_math", "_jit", "_rime_cpu"
)
_VIS, _RESIDUAL, _WEIGHTED, _CHI2 = (int(kind) for kind in Output)

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_turns, _exponent = phase.turns, envelope.exponent
_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM
_variable, _factor, _brightness = (
    brightness.spectral_variable,
    brightness.spectral_factor,
    brightness.brightness,
)
_C = phase.SPEED_OF_LIGHT

# Sources whose antenna terms are made and summed together: those of two antennas and the brightness lie in
# the first cache of a core (measured: 100 at once are a quarter slower, 32 gain nothing).
_PIECE = 64


@functools.cache
def make_spectra(single: bool) -> Callable[..., None]:
    """The loop that fills spectral factors, real (n_batch, n_block, n_source, n_stokes, n_lane).

    Each is S(nu)/S0 times the power E^2 of the beam that all antennas share.
    """
    digest, real = _DIGEST, np.float32 if single else np.float64

    @loop
    def spectra(beam_code: int, inputs: Inputs, scale: Any, out: Any) -> None:
        _ = digest
        n_batch, n_block, n_source, n_stokes, n_lane = out.shape
        n_term = inputs.spectral_terms.shape[3]
        for item in prange(n_batch * n_block):
            b, block = item // n_block, item % n_block
            for s in range(n_source):
                l, m = inputs.direction[b, s, 0], inputs.direction[b, s, 1]
                is_log = inputs.log_spectrum[s] != 0.0
                for i in range(n_lane):
                    if i > 0 and scale[block, i] == scale[block, i - 1]:
                        for k in range(n_stokes):
                            out[b, block, s, k, i] = out[b, block, s, k, i - 1]
                        continue
                    nu = scale[block, i] * _C
                    voltage = _voltage(beam_code, _argument(inputs.beam_scale[b], nu, l, m))
                    x = _variable(nu / inputs.ref_freq[s], is_log)
                    for k in range(n_stokes):
                        polynomial = 0.0
                        for j in range(n_term - 1, -1, -1):
                            polynomial = polynomial * x + inputs.spectral_terms[b, s, k, j]
                        out[b, block, s, k, i] = real(_factor(polynomial, x, is_log) * voltage * voltage)

    return spectra


@scalar
def _aligned(n: Any, real: Any) -> Any:
    """Room for n numbers, from the beginning of a cache line."""
    raw = np.empty(n + 16, real)
    start = (-raw.ctypes.data % 64) // raw.itemsize
    return raw[start : start + n]


@vector_function
def _lanes_at(array: Any, index: Any, like: Any) -> Any:
    """Item `index` of an array (..., 1 or n lanes)."""
    if array.shape[-1] == 1:
        return spread(element(array, index), like)
    return load(array, index * size(like), like)


@vector_function
def _wavelengths(metres: Any, index: Any, scale: Any) -> Any:
    """Item `index` of coordinates (..., 3, 1 or n lanes) in metres, times nu/c."""
    u, v = _lanes_at(metres, 3 * index, scale) * scale, _lanes_at(metres, 3 * index + 1, scale) * scale
    return u, v, _lanes_at(metres, 3 * index + 2, scale) * scale


# ---- what a task makes once: brightness, beams, antenna terms


@njit(error_model="numpy")
def _fill_brightness(stokes: Any, times: Any, spectra: Any, out: Any) -> None:
    """B, (n_source, n_stokes, n_lane) in one piece, of one slot and block of channels."""
    n_source, n_stokes, n_lane = spectra.shape
    for s in range(n_source):
        for k in range(n_stokes):
            at = (s * n_stokes + k) * n_lane
            for i in range(n_lane):
                t = min(times[min(i, times.size - 1)], stokes.shape[0] - 1)
                out[at + i] = _brightness(stokes[t, s, k], spectra[s, k, i])


@njit(error_model="numpy")
def _fill_voltages(
    code: Any, beam_scale: Any, direction: Any, pointing: Any, antenna: Any, times: Any, scale: Any, out: Any
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


@njit(error_model="numpy")
def _fill_terms(
    direction: Any, first: Any, stop: Any, antenna_uvw: Any, scale: Any, voltages: Any, out: Any, like: Any
) -> None:
    """E K of sources first .. stop - 1, (n_antenna, source, 2, n_lane) in one piece."""
    n_antenna, n_source, n = antenna_uvw.shape[0], direction.shape[0], size(like)
    wide = load(scale, 0, like)
    for a in range(n_antenna):
        u, v, w = _wavelengths(antenna_uvw, a, wide)
        at = a * (stop - first) * 2 * n
        for s in range(first, stop):
            cos, sin = _source_phase(u, v, w, direction, s, like)
            if voltages.size > 0:
                e = load(voltages, (a * n_source + s) * n, like)
                cos, sin = e * cos, e * sin
            store(out, at, cos)
            store(out, at + n, sin)
            at += 2 * n


@vector_function
def _dot(u: Any, v: Any, w: Any, array: Any, at: Any) -> Any:
    """(u, v, w) times the three elements of an array from `at`."""
    x, y, z = element(array, at), element(array, at + 1), element(array, at + 2)
    return _turns(u, v, w, spread(x, u), spread(y, u), spread(z, u))


@vector_function
def _source_phase(u: Any, v: Any, w: Any, direction: Any, s: Any, like: Any) -> Any:
    """cos and sin of source s at coordinates in wavelengths."""
    return cos_sin_turns(_dot(u, v, w, direction, 3 * s), like)


@vector_function
def _source_envelope(u: Any, v: Any, w: Any, projection: Any, g: Any, like: Any) -> Any:
    """The envelope of Gaussian g at coordinates in wavelengths."""
    along = _dot(u, v, w, projection, 6 * g)
    across = _dot(u, v, w, projection, 6 * g + 3)
    return exp(convert(_exponent(along, across, constant(_C, u)), like))


# ---- the sums over sources; `stokes` is a vector of all Stokes parameters, each of n lanes


@vector_function
def _product(terms: Any, p: Any, q: Any, like: Any) -> Any:
    """Antenna p times the conjugate of antenna q, by where their terms lie."""
    p_re, p_im = load(terms, p, like), load(terms, p + size(like), like)
    q_re, q_im = load(terms, q, like), load(terms, q + size(like), like)
    return p_re * q_re + p_im * q_im, p_im * q_re - p_re * q_im


@njit(error_model="numpy")
def _sum_points(
    terms: Any, p: Any, q: Any, p2: Any, q2: Any, bright: Any, at: Any, n: Any, sums: Any, to: Any, to2: Any,
    like: Any, stokes: Any,
) -> None:  # fmt: skip
    """Add n points to the sums of two entries: each brightness is loaded once for both."""
    n_all = size(stokes)
    re, im = load(sums, to, stokes), load(sums, to + n_all, stokes)
    re2, im2 = load(sums, to2, stokes), load(sums, to2 + n_all, stokes)
    for s in range(n):
        step = 2 * size(like) * s
        b = load(bright, at + n_all * s, stokes)
        k_re, k_im = _product(terms, p + step, q + step, like)
        re, im = re + b * repeat(k_re, stokes), im + b * repeat(k_im, stokes)
        k_re, k_im = _product(terms, p2 + step, q2 + step, like)
        re2, im2 = re2 + b * repeat(k_re, stokes), im2 + b * repeat(k_im, stokes)
    store(sums, to, re)
    store(sums, to + n_all, im)
    store(sums, to2, re2)
    store(sums, to2 + n_all, im2)


@njit(error_model="numpy")
def _sum_gaussians(
    terms: Any, p: Any, q: Any, u: Any, v: Any, w: Any, projection: Any, first: Any, stop: Any,
    bright: Any, at: Any, sums: Any, to: Any, like: Any, stokes: Any,
) -> None:  # fmt: skip
    """Add Gaussians first .. stop - 1 to the sums of one entry."""
    n_all = size(stokes)
    re, im = load(sums, to, stokes), load(sums, to + n_all, stokes)
    for g in range(first, stop):
        step = g - first
        b = load(bright, at + n_all * step, stokes)
        k_re, k_im = _product(terms, p + 2 * size(like) * step, q + 2 * size(like) * step, like)
        e = _source_envelope(u, v, w, projection, g, like)
        re, im = re + b * repeat(e * k_re, stokes), im + b * repeat(e * k_im, stokes)
    store(sums, to, re)
    store(sums, to + n_all, im)


@njit(error_model="numpy")
def _sum_row_form(
    u: Any, v: Any, w: Any, direction: Any, projection: Any, voltages: Any, p: Any, q: Any,
    bright: Any, sums: Any, to: Any, like: Any, stokes: Any,
) -> None:  # fmt: skip
    """The sums of one entry over all sources, with phases from its own coordinates."""
    n_all, n = size(stokes), size(like)
    re, im = constant(0.0, stokes), constant(0.0, stokes)
    n_source = direction.shape[0]
    n_point = n_source - projection.shape[0]
    for s in range(n_source):
        k_re, k_im = _source_phase(u, v, w, direction, s, like)
        if voltages.size > 0:
            e = load(voltages, p + n * s, like) * load(voltages, q + n * s, like)
            k_re, k_im = e * k_re, e * k_im
        if s >= n_point:
            e = _source_envelope(u, v, w, projection, s - n_point, like)
            k_re, k_im = e * k_re, e * k_im
        b = load(bright, n_all * s, stokes)
        re, im = re + b * repeat(k_re, stokes), im + b * repeat(k_im, stokes)
    store(sums, to, re)
    store(sums, to + n_all, im)


# ---- what becomes of the sums


class Correlations(NamedTuple):
    """The map from sums to correlations: each real and imaginary part as factors of a few parts of sums."""

    part: NDArray[np.int64]  # (2 n_corr, n_term): k for the real part of Stokes k, n_stokes + k for the other
    factor: NDArray[np.floating]  # (2 n_corr, n_term)


@vector_function
def _correlation_part(correlations: Any, i: Any, sums: Any, at: Any, like: Any) -> Any:
    """Real (i even) or imaginary part of correlation i // 2."""
    n_term = correlations.part.shape[1]
    value = constant(0.0, like)
    for j in range(n_term):
        part = load(sums, at + size(like) * element(correlations.part, n_term * i + j), like)
        value = value + spread(element(correlations.factor, n_term * i + j), like) * part
    return value


@njit(error_model="numpy")
def _chi2(correlations: Any, sums: Any, at: Any, data: Any, place: Any, like: Any) -> Any:
    """The weighted squares of an entry's lanes, summed over correlations; its data begin at `place`."""
    total, n = constant(0.0, like), size(like)
    for k in range(correlations.part.shape[0] // 2):
        re = _correlation_part(correlations, 2 * k, sums, at, like) - load(data, place, like)
        im = _correlation_part(correlations, 2 * k + 1, sums, at, like) - load(data, place + n, like)
        total = total + load(data, place + 2 * n, like) * (re * re + im * im)
        place += 3 * n
    return total


@njit(error_model="numpy")
def _write(
    correlations: Any, sums: Any, at: Any, data: Any, place: Any, output: Any, rows: Any, chans: Any,
    vis_out: Any, real_out: Any, scratch: Any, like: Any,
) -> None:  # fmt: skip
    """Write V, V - D or w |V - D|^2 of an entry's lanes to their rows and channels."""
    n = size(like)
    for k in range(correlations.part.shape[0] // 2):
        re = _correlation_part(correlations, 2 * k, sums, at, like)
        im = _correlation_part(correlations, 2 * k + 1, sums, at, like)
        if output != _VIS:
            re, im = re - load(data, place, like), im - load(data, place + n, like)
            weight = load(data, place + 2 * n, like)
            if output == _WEIGHTED:
                re = weight * (re * re + im * im)
            place += 3 * n
        store(scratch, 0, re)
        store(scratch, n, im)
        for i in range(n):
            row, chan = rows[min(i, rows.size - 1)], chans[i]
            if row >= 0 and chan >= 0:
                if output == _WEIGHTED:
                    real_out[row, chan, k] = scratch[i]
                else:
                    vis_out[row, chan, k] = complex(scratch[i], scratch[n + i])


@njit(error_model="numpy")
def _finish(
    correlations: Any, sums: Any, at: Any, lanes: Any, entry: Any, block: Any, output: Any,
    vis_out: Any, real_out: Any, scratch: Any, like: Any,
) -> Any:  # fmt: skip
    """Make what `Output` names of the sums of an entry; the chi2 of its lanes, or 0."""
    place = (entry * lanes.chan.shape[0] + block) * (correlations.part.shape[0] // 2) * 3 * size(like)
    if output == _CHI2:
        return _chi2(correlations, sums, at, lanes.data, place, like)
    _write(
        correlations, sums, at, lanes.data, place, output, lanes.row[entry], lanes.chan[block],
        vis_out, real_out, scratch, like,
    )  # fmt: skip
    return constant(0.0, like)


# ---- tasks: a block of channels, and some slots or some entries of one slot


@njit(error_model="numpy")
def _sum_factored(
    lanes: Any, entry: Any, stop: Any, scale: Any, projection: Any, first: Any, n_source: Any, n_point: Any,
    terms: Any, bright: Any, sums: Any, to: Any, to2: Any, like: Any, stokes: Any,
) -> None:  # fmt: skip
    """Add n_source sources from `first` to the sums of an entry and, where there is one, the next."""
    n, n_all = size(like), size(stokes)
    length, at = 2 * n * n_source, n_all * first
    entry2 = min(entry + 1, stop - 1)
    p, q = length * lanes.antenna[entry, 0, 0], length * lanes.antenna[entry, 1, 0]
    p2, q2 = length * lanes.antenna[entry2, 0, 0], length * lanes.antenna[entry2, 1, 0]
    if first == 0:
        for i in (to, to2):
            store(sums, i, constant(0.0, stokes))
            store(sums, i + n_all, constant(0.0, stokes))
    n_here = min(max(n_point - first, 0), n_source)
    if n_here > 0:
        _sum_points(terms, p, q, p2, q2, bright, at, n_here, sums, to, to2, like, stokes)
    if n_here < n_source:
        wide = load(scale, 0, like)
        g, g_stop, shift = first + n_here - n_point, first + n_source - n_point, 2 * n * n_here
        at += n_all * n_here
        u, v, w = _wavelengths(lanes.uvw, entry, wide)
        _sum_gaussians(
            terms, p + shift, q + shift, u, v, w, projection, g, g_stop, bright, at, sums, to, like, stokes
        )
        if entry2 > entry:
            u, v, w = _wavelengths(lanes.uvw, entry2, wide)
            _sum_gaussians(
                terms,
                p2 + shift,
                q2 + shift,
                u,
                v,
                w,
                projection,
                g,
                g_stop,
                bright,
                at,
                sums,
                to2,
                like,
                stokes,
            )


@njit(error_model="numpy")
def _factored_slot(
    lanes: Any, slot: Any, entry: Any, stop: Any, block: Any, direction: Any, projection: Any, bright: Any,
    voltages: Any, correlations: Any, output: Any, vis_out: Any, real_out: Any, terms: Any, sums: Any,
    scratch: Any, like: Any, stokes: Any, total: Any,
) -> Any:  # fmt: skip
    """Entries entry .. stop - 1 of a slot from its antenna terms, in pieces of the sources."""
    n_source, n_all, scale = direction.shape[0], size(stokes), lanes.scale[block]
    n_piece = -(-n_source // _PIECE)
    step = -(-n_source // n_piece)
    for first in range(0, n_source, step):
        n_here = min(step, n_source - first)
        _fill_terms(direction, first, first + n_here, lanes.antenna_uvw[slot], scale, voltages, terms, like)
        for e in range(entry, stop, 2):
            to, to2 = 0, 2 * n_all
            if n_piece > 1:
                to, to2 = 2 * n_all * (e - entry), 2 * n_all * (min(e + 1, stop - 1) - entry)
            _sum_factored(
                lanes, e, stop, scale, projection, first, n_here, n_source - projection.shape[0], terms,
                bright, sums, to, to2, like, stokes,
            )  # fmt: skip
            if first + n_here == n_source:
                done = _finish(
                    correlations, sums, to, lanes, e, block, output, vis_out, real_out, scratch, like
                )
                total = total + convert(done, total)
                if e + 1 < stop:
                    done = _finish(
                        correlations, sums, to2, lanes, e + 1, block, output, vis_out, real_out, scratch, like
                    )
                    total = total + convert(done, total)
    return total


@njit(error_model="numpy")
def _row_slot(
    lanes: Any, slot: Any, entry: Any, stop: Any, block: Any, direction: Any, projection: Any, bright: Any,
    voltages: Any, correlations: Any, output: Any, vis_out: Any, real_out: Any, sums: Any, scratch: Any,
    beam_code: Any, beam_scale: Any, pointing: Any, like: Any, stokes: Any, total: Any,
) -> Any:  # fmt: skip
    """Entries entry .. stop - 1 of a slot, each from its own coordinates."""
    n, n_source, scale = size(like), direction.shape[0], lanes.scale[block]
    for e in range(entry, stop):
        u, v, w = _wavelengths(lanes.uvw, e, load(scale, 0, like))
        p, q = n * n_source * lanes.antenna[e, 0, 0], n * n_source * lanes.antenna[e, 1, 0]
        if beam_code != _NO_BEAM and lanes.antenna.shape[2] > 1:
            p, q = 0, n * n_source
            _fill_voltages(
                beam_code,
                beam_scale,
                direction,
                pointing,
                lanes.antenna[e],
                lanes.slot_time[slot],
                scale,
                voltages,
            )
        _sum_row_form(u, v, w, direction, projection, voltages, p, q, bright, sums, 0, like, stokes)
        done = _finish(correlations, sums, 0, lanes, e, block, output, vis_out, real_out, scratch, like)
        total = total + convert(done, total)
    return total


@njit(error_model="numpy")
def _task(
    factored: Any, beam_code: Any, output: Any, task: Any, b: Any, lanes: Any, inputs: Any, spectra: Any,
    correlations: Any, vis_out: Any, real_out: Any, real: Any, like: Any, stokes: Any, total: Any,
) -> float:  # fmt: skip
    """One task of one entry of the batch; its chi2, or 0."""
    n, n_all = size(like), size(stokes)
    block, first_slot, stop_slot, first_entry, stop_entry = task[0], task[1], task[2], task[3], task[4]
    direction, projection, pointing = inputs.direction[b], inputs.projection[b], inputs.pointing[b]
    n_source, n_antenna = direction.shape[0], pointing.shape[1]
    n_piece = -(-n_source // _PIECE)
    bright, scratch = _aligned(n_source * n_all, real), _aligned(2 * n, real)
    n_sums = 2 if n_piece == 1 or not factored else stop_entry - first_entry
    sums = _aligned(2 * n_all * n_sums, real)
    terms = _aligned(2 * n * lanes.antenna_uvw.shape[1] * min(n_source, _PIECE) if factored else 0, real)
    by_entry = lanes.antenna.shape[2] > 1
    voltages = _aligned(0 if beam_code == _NO_BEAM else n * n_source * (2 if by_entry else n_antenna), real)
    antennas = np.arange(n_antenna).reshape(-1, 1)
    for slot in range(first_slot, stop_slot):
        entry = max(first_entry, lanes.slot_entry[slot])
        stop = min(stop_entry, lanes.slot_entry[slot + 1])
        if entry >= stop:
            continue
        times = lanes.slot_time[slot]
        if slot == first_slot or inputs.stokes.shape[1] > 1:
            _fill_brightness(inputs.stokes[b], times, spectra[b, block], bright)
        if beam_code != _NO_BEAM and not by_entry:
            _fill_voltages(
                beam_code,
                inputs.beam_scale[b],
                direction,
                pointing,
                antennas,
                times,
                lanes.scale[block],
                voltages,
            )
        if factored:
            total = _factored_slot(
                lanes, slot, entry, stop, block, direction, projection, bright, voltages, correlations,
                output, vis_out[b], real_out[b], terms, sums, scratch, like, stokes, total,
            )  # fmt: skip
        else:
            total = _row_slot(
                lanes, slot, entry, stop, block, direction, projection, bright, voltages, correlations,
                output, vis_out[b], real_out[b], sums, scratch, beam_code, inputs.beam_scale[b], pointing,
                like, stokes, total,
            )  # fmt: skip
    lane_sums = np.empty(n)
    store(lane_sums, 0, total)
    whole = 0.0
    for i in range(n):
        whole += lane_sums[i]
    return whole


@functools.cache
def make_visibilities(single: bool, n_stokes: int) -> Callable[..., None]:
    """The loop over (batch, task) that ends in what `Output` names.

    `vis_out` is complex (n_batch, n_row, n_chan, n_corr), `real_out` float64 of that shape for the
    weighted squares; `partial` float64 (n_batch, n_task) takes the parts of chi2.
    """
    digest, real = _DIGEST, np.float32 if single else np.float64
    n = n_lanes(real)
    n_all = n_stokes * n

    @loop
    def visibilities(
        factored: bool, beam_code: int, output: int, tasks: Any, lanes: Lanes, inputs: Inputs, spectra: Any,
        correlations: Correlations, vis_out: Any, real_out: Any, partial: Any,
    ) -> None:  # fmt: skip
        _ = digest
        n_batch, n_task = partial.shape
        for item in prange(n_batch * n_task):
            b, i = item // n_task, item % n_task
            partial[b, i] = _task(
                factored, beam_code, output, tasks[i], b, lanes, inputs, spectra, correlations,
                vis_out, real_out, real, zeros(real, n), zeros(real, n_all), zeros(np.float64, n),
            )  # fmt: skip

    return visibilities
