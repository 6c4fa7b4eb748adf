"""The RIME on a CUDA device: plain kernels, one thread per output, channels fastest.

A pass works on a part of the batch and a slab of time slots, as large as the memory budget allows:
brightness, then antenna terms, then one thread per (batch, row, channel) for the sum over sources.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import float64
from numpy.typing import NDArray

from rime_kernels import beam, brightness, device, envelope, phase
from rime_kernels._inputs import Constants, Inputs, Output, Variant
from rime_kernels.device import cuda
from rime_kernels.errors import BackendError
from rime_kernels.geometry import RowTable, row_chunks

_VIS, _RESIDUAL, _WEIGHTED, _CHI2 = (int(kind) for kind in Output)
_C = phase.SPEED_OF_LIGHT

_turns, _angle = phase.turns, phase.angle
_exponent = envelope.exponent
_voltage, _argument = beam.voltage, beam.argument
_variable, _factor, _brightness = (
    brightness.spectral_variable,
    brightness.spectral_factor,
    brightness.brightness,
)

# Blocks of the batch axis of a grid; CUDA allows 65535.
_MAX_BATCH = 32768
# Rows whose chi2 one block of threads sums.
_CHUNK_ROWS = 256


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
        if beam_code != 0:
            slot = min(time, pointing.shape[1] - 1)
            dl, dm = l - pointing[b, slot, a, 0], m - pointing[b, slot, a, 1]
            voltage = _voltage(beam_code, _argument(beam_scale[b], nu, dl, dm))
        if factored:
            u, v, w = antenna_uvw[time, a, 0], antenna_uvw[time, a, 1], antenna_uvw[time, a, 2]
            turns = _turns(u, v, w, l, m, direction[b, s, 2]) * (nu / _C)
            angle = real(_angle(turns))
            out[b, t, s, a, c] = complex(real(voltage) * math.cos(angle), real(voltage) * math.sin(angle))
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

    @cuda.jit
    def sum_sources(
        n_row: int, n_gaussian: int, first_place: int, first_time: int, uvw: Any, antenna1: Any, antenna2: Any,
        time_index: Any, order: Any, chan_freq: Any, matrix: Any, vis: Any, weight: Any, direction: Any,
        projection: Any, bright: Any, terms: Any, output: int, vis_out: Any, real_out: Any,
    ) -> None:  # fmt: skip
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
                angle = real(_angle(turns * scale))
                re, im = math.cos(angle), math.sin(angle)
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


class _Slab(NamedTuple):
    """A part of the batch and of the time slots that is computed in one pass."""

    batch: slice
    time: slice
    place: slice  # rows, as places in `order`
    chunk: slice  # ranges of rows that are summed by themselves


class Engine:
    """The device's side of `Rime`: uploads the constants, cuts batch and time to the memory budget."""

    def __init__(self, fixed: Constants, table: RowTable, *, single: bool, factored: bool) -> None:
        self._fixed, self._table = fixed, table
        self._single, self._factored = single, factored
        self._n_thread = device.threads_per_block()
        self._chunks = row_chunks(table, _CHUNK_ROWS)
        self._on_device = Constants(*(device.upload(value) for value in fixed))
        n_chan = fixed.chan_freq.size
        self._start, self._stop = (device.upload(self._chunks[:, k] * n_chan) for k in (1, 2))
        self._whole = device.upload(np.array([0])), device.upload(np.array([len(self._chunks)]))
        self._workspace = device.Workspace()

    def run(self, inputs: Inputs, codes: tuple[int, int], polarised: bool, output: Output) -> NDArray[Any]:
        """V, residual or weighted square, (n_batch, n_row, n_chan, n_corr); or chi2 (n_batch,).

        When the device runs out of memory the slabs are halved until they fit.
        """
        variant = Variant(self._single, self._factored, codes[1], polarised)
        self._n_gaussian = inputs.projection.shape[1]
        n_slot, budget = 1 << 62, device.memory_budget()
        while True:
            n_slot = min(n_slot, self._slots_within(budget, variant, inputs, output))
            try:
                return self._run(inputs, codes[0], variant, output, n_slot)
            except device.DeviceMemoryError as error:
                self._workspace.clear()
                if n_slot == 1:
                    raise BackendError(f"{error}, and the work cannot be cut smaller") from error
                n_slot //= 2

    def _slots_within(self, budget: int, variant: Variant, inputs: Inputs, output: Output) -> int:
        """How many (batch entry, time slot) pairs fit the budget, at least 1."""
        n_source, n_chan = inputs.direction.shape[1], self._fixed.chan_freq.size
        n_antenna = self._fixed.antenna_uvw.shape[1] if variant.has_antenna_terms else 0
        real = np.dtype(variant.real).itemsize
        per_source = real * (2 * n_antenna + variant.n_stokes)
        n_row = int(np.diff(self._table.slot_start).max())
        per_row = 8 if output is Output.CHI2 else 2 * real * self._fixed.matrix.shape[0]
        n_time, n_batch = self._fixed.antenna_uvw.shape[0], inputs.direction.shape[0]
        n_slot = max(1, budget // (n_chan * (n_source * per_source + n_row * per_row)))
        return min(n_slot, n_time * n_batch)

    def _slabs(self, n_batch: int, n_slot: int) -> Iterator[_Slab]:
        """Parts of the batch with all times; where not one entry fits, parts of its times."""
        n_time = self._fixed.antenna_uvw.shape[0]
        batch_step = min(max(1, n_slot // n_time), _MAX_BATCH)
        time_step = min(n_slot, n_time)
        for b in range(0, n_batch, batch_step):
            for t in range(0, n_time, time_step):
                stop = min(t + time_step, n_time)
                place = slice(int(self._table.slot_start[t]), int(self._table.slot_start[stop]))
                if place.stop > place.start:
                    first, last = np.searchsorted(self._chunks[:, 0], (t, stop))
                    batch = slice(b, min(b + batch_step, n_batch))
                    yield _Slab(batch, slice(t, stop), place, slice(int(first), int(last)))

    def _run(
        self, inputs: Inputs, shared_beam: int, variant: Variant, output: Output, n_slot: int
    ) -> NDArray[Any]:
        n_batch = inputs.direction.shape[0]
        n_row, n_chan, n_corr = self._fixed.uvw.shape[0], self._fixed.chan_freq.size, len(self._fixed.matrix)
        if output is Output.CHI2:
            result = np.empty((n_batch, 1))
        else:
            kind = np.float64 if output is Output.WEIGHTED else variant.complex
            result = np.empty((n_batch, n_row, n_chan, n_corr), kind)
        uploaded: tuple[int, Inputs] | None = None
        for slab in self._slabs(n_batch, n_slot):
            if uploaded is None or uploaded[0] != slab.batch.start:
                part = inputs.batch(slab.batch.start, slab.batch.stop)
                uploaded = slab.batch.start, _upload_packed(part)
            values = self._launch(slab, uploaded[1], shared_beam, variant, output)
            if output is not Output.CHI2:
                rows = self._fixed.order[slab.place]
                result[slab.batch, rows] = values.copy_to_host()
            elif slab.place.stop == n_row:
                result[slab.batch] = self._total(values)
        return result[:, 0] if output is Output.CHI2 else result

    def _launch(self, slab: _Slab, inputs: Inputs, shared_beam: int, variant: Variant, output: Output) -> Any:
        """Run one slab: its visibilities or weighted squares, or the partial sums of chi2 so far."""
        bright = self._brightness(slab, inputs, shared_beam, variant)
        terms = self._antenna_terms(slab, inputs, variant)
        n_batch, n_row = slab.batch.stop - slab.batch.start, slab.place.stop - slab.place.start
        n_chan, n_corr = self._fixed.chan_freq.size, len(self._fixed.matrix)
        shape = (n_batch, n_row, n_chan, 1 if output is Output.CHI2 else n_corr)
        none = (1, 1, 1, 1)
        is_real = output in (Output.CHI2, Output.WEIGHTED)
        vis_out = self._workspace.array("vis", none if is_real else shape, variant.complex)
        real_out = self._workspace.array("real", shape if is_real else none, np.float64)
        fixed = self._on_device
        make_visibilities(variant)[(self._n_block(n_row * n_chan), n_batch), self._n_thread](
            n_row, self._n_gaussian, slab.place.start, slab.time.start,
            fixed.uvw, fixed.antenna1, fixed.antenna2, fixed.time_index, fixed.order, fixed.chan_freq,
            fixed.matrix, fixed.vis, fixed.weight,
            inputs.direction, inputs.projection, bright, terms, int(output), vis_out, real_out,
        )  # fmt: skip
        if output is not Output.CHI2:
            return real_out if is_real else vis_out
        return self._sum_chunks(slab, real_out.reshape((n_batch, n_row * n_chan)))

    def _brightness(self, slab: _Slab, inputs: Inputs, shared_beam: int, variant: Variant) -> Any:
        per_time = inputs.stokes.shape[1] > 1
        n_batch, n_source = inputs.direction.shape[:2]
        n_time = slab.time.stop - slab.time.start if per_time else 1
        shape = (n_batch, n_time, n_source, variant.n_stokes, self._fixed.chan_freq.size)
        bright = self._workspace.array("brightness", shape, variant.real)
        n_item = int(np.prod(shape)) // variant.n_stokes
        make_brightness(variant, shared_beam)[self._n_block(n_item), self._n_thread](
            slab.time.start if per_time else 0, self._on_device.chan_freq, inputs.direction, inputs.stokes,
                inputs.ref_freq, inputs.log_spectrum, inputs.spectral_terms, inputs.beam_scale, bright,
            )  # fmt: skip
        return bright

    def _antenna_terms(self, slab: _Slab, inputs: Inputs, variant: Variant) -> Any:
        n_batch, n_source = inputs.direction.shape[:2]
        n_antenna = self._fixed.antenna_uvw.shape[1]
        shape = (n_batch, slab.time.stop - slab.time.start, n_source, n_antenna, self._fixed.chan_freq.size)
        if not variant.has_antenna_terms:
            shape = (1, 1, 1, 1, 1)
        kind = variant.complex if variant.factored else variant.real
        terms = self._workspace.array("terms", shape, kind)
        if variant.has_antenna_terms:
            make_antenna_terms(variant)[self._n_block(int(np.prod(shape))), self._n_thread](
                slab.time.start, self._on_device.chan_freq, self._on_device.antenna_uvw,
                inputs.direction, inputs.beam_scale, inputs.pointing, terms,
            )  # fmt: skip
        return terms

    def _sum_chunks(self, slab: _Slab, values: Any) -> Any:
        """Add the sums of this slab's chunks to those of the slabs before; float64 (n_batch, n_chunk)."""
        partial = self._workspace.array("partial", (values.shape[0], len(self._chunks)), np.float64)
        offset = slab.place.start * self._fixed.chan_freq.size
        grid = (slab.chunk.stop - slab.chunk.start, values.shape[0])
        make_range_sums(self._n_thread)[grid, self._n_thread](
            self._start, self._stop, offset, values, slab.chunk.start, partial
        )
        return partial

    def _total(self, partial: Any) -> NDArray[np.float64]:
        """The sums over all chunks, float64 (n_batch, 1), on the host."""
        out = self._workspace.array("chi2", (partial.shape[0], 1), np.float64)
        start, stop = self._whole
        make_range_sums(self._n_thread)[(1, partial.shape[0]), self._n_thread](
            start, stop, 0, partial, 0, out
        )
        return out.copy_to_host()

    def _n_block(self, n_item: int) -> int:
        return -(-n_item // self._n_thread)


def _upload_packed(inputs: Inputs) -> Inputs:
    """All parameters of a call as views of one array on the device: one transfer.

    An empty array becomes one zero: no spectral terms are a term of 0.
    """
    parts = [value if value.size else np.zeros((1,) * value.ndim) for value in inputs]
    packed = device.upload(np.concatenate([part.ravel() for part in parts]))
    ends = np.cumsum([part.size for part in parts])
    views = (packed[end - part.size : end].reshape(part.shape) for end, part in zip(ends, parts, strict=True))
    return Inputs(*views)
