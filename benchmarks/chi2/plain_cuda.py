"""The project's first CUDA kernels, reduced as `plain` says: one thread per output, channels fastest."""

from __future__ import annotations

import functools
import math

import numpy as np
from common.types import OnDevice, Value
from numba import float64

from chi2.cases import Field
from chi2.plain import SPEED_OF_LIGHT, cos_sin, exponent, parameters, turns
from rime_kernels import Sources, device

# The simulator replaces a global of this name while a kernel runs.
cuda: OnDevice = device.cuda
# Rows whose chi2 one block of threads sums.
_CHUNK_ROWS = 256


@functools.cache
def _make_brightness(single: bool) -> Value:
    real = np.float32 if single else np.float64

    @cuda.jit
    def fill_brightness(chan_freq: Value, stokes: Value, index: Value, ref_freq: Value, out: Value) -> None:
        """B, real (n_batch, n_source, n_stokes, n_chan)."""
        i = cuda.grid(1)
        n_batch, n_source, n_stokes, n_chan = out.shape
        if i >= n_batch * n_source * n_chan:
            return
        c, s, b = i % n_chan, i // n_chan % n_source, i // (n_chan * n_source)
        factor = math.exp(math.log(chan_freq[c] / ref_freq[s]) * index[b, s])
        for k in range(n_stokes):
            out[b, s, k, c] = real(stokes[b, s, k] * factor)

    return fill_brightness


@functools.cache
def _make_antenna_terms(single: bool) -> Value:
    real = np.float32 if single else np.float64

    @cuda.jit
    def fill_antenna_terms(chan_freq: Value, antenna_uvw: Value, direction: Value, out: Value) -> None:
        """K, complex (n_batch, n_time, n_source, n_antenna, n_chan)."""
        i = cuda.grid(1)
        n_batch, n_time, n_source, n_antenna, n_chan = out.shape
        if i >= n_batch * n_time * n_source * n_antenna * n_chan:
            return
        c, a, s = i % n_chan, i // n_chan % n_antenna, i // (n_chan * n_antenna) % n_source
        item = i // (n_chan * n_antenna * n_source)
        t, b = item % n_time, item // n_time
        u, v, w = antenna_uvw[t, a, 0], antenna_uvw[t, a, 1], antenna_uvw[t, a, 2]
        l, m, n_minus_1 = direction[b, s, 0], direction[b, s, 1], direction[b, s, 2]
        cos, sin = cos_sin(turns(u, v, w, l, m, n_minus_1) * (chan_freq[c] / SPEED_OF_LIGHT), real)
        out[b, t, s, a, c] = complex(cos, sin)

    return fill_antenna_terms


@functools.cache
def _make_visibilities(single: bool, n_stokes: int) -> Value:
    real = np.float32 if single else np.float64

    @cuda.jit
    def sum_sources(
        uvw: Value, antenna1: Value, antenna2: Value, time_index: Value, chan_freq: Value, matrix: Value,
        vis: Value, weight: Value, n_gaussian: int, projection: Value, bright: Value, terms: Value,
        out: Value,
    ) -> None:  # fmt: skip
        """Weighted squared residuals, float64 (n_batch, n_row * n_chan), summed over correlations."""
        b = cuda.blockIdx.y
        i = cuda.grid(1)
        n_chan, n_source = chan_freq.size, terms.shape[2]
        if i >= out.shape[1]:
            return
        row, c = i // n_chan, i % n_chan
        p, q, t = antenna1[row], antenna2[row], time_index[row]
        u, v, w, nu = uvw[row, 0], uvw[row, 1], uvw[row, 2], chan_freq[c]
        i_re, q_re, u_re, v_re = real(0), real(0), real(0), real(0)
        i_im, q_im, u_im, v_im = real(0), real(0), real(0), real(0)
        for s in range(n_source):
            x, y = terms[b, t, s, p, c], terms[b, t, s, q, c]
            re = x.real * y.real + x.imag * y.imag
            im = x.imag * y.real - x.real * y.imag
            g = s - (n_source - n_gaussian)
            if g >= 0:
                x0, x1, x2 = projection[b, g, 0, 0], projection[b, g, 0, 1], projection[b, g, 0, 2]
                y0, y1, y2 = projection[b, g, 1, 0], projection[b, g, 1, 1], projection[b, g, 1, 2]
                along, across = turns(u, v, w, x0, x1, x2), turns(u, v, w, y0, y1, y2)
                e = math.exp(real(exponent(along, across, nu)))
                re, im = re * e, im * e
            i_re += bright[b, s, 0, c] * re
            i_im += bright[b, s, 0, c] * im
            if n_stokes == 4:
                q_re += bright[b, s, 1, c] * re
                q_im += bright[b, s, 1, c] * im
                u_re += bright[b, s, 2, c] * re
                u_im += bright[b, s, 2, c] * im
                v_re += bright[b, s, 3, c] * re
                v_im += bright[b, s, 3, c] * im
        total = 0.0
        for k in range(matrix.shape[0]):
            value = matrix[k, 0] * complex(i_re, i_im)
            if n_stokes == 4:
                value += matrix[k, 1] * complex(q_re, q_im)
                value += matrix[k, 2] * complex(u_re, u_im)
                value += matrix[k, 3] * complex(v_re, v_im)
            value -= vis[row, c, k]
            total += weight[row, c, k] * (value.real * value.real + value.imag * value.imag)
        out[b, i] = total

    return sum_sources


@functools.cache
def _make_range_sums(n_thread: int) -> Value:
    @cuda.jit
    def sum_ranges(length: int, values: Value, out: Value) -> None:
        """Block (j, b) sums values[b, j * length : (j + 1) * length] into out[b, j], in a fixed order."""
        shared = cuda.shared.array(n_thread, float64)
        j, b, thread = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
        total = 0.0
        for i in range(j * length + thread, min((j + 1) * length, values.shape[1]), n_thread):
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
            out[b, j] = shared[0]

    return sum_ranges


class Plain:
    """chi2 of a batch of skies on the device: parameters up, four kernels, float64 down."""

    def __init__(self, field: Field, single: bool) -> None:
        rows = field.rows
        self._single = single
        self._complex = np.complex64 if single else np.complex128
        self._real = np.float32 if single else np.float64
        self._n_stokes = 4 if np.any(rows.stokes_to_corr[:, 1:]) else 1
        self._n_thread = 16 if device.simulated() else 128
        self._n_antenna, self._n_time = rows.n_antenna, rows.n_time
        self._n_chan, self._n_sample = rows.n_chan, rows.n_row * rows.n_chan
        self._uvw = [cuda.to_device(np.array(x)) for x in (rows.uvw, rows.antenna1, rows.antenna2)]
        self._time_index, self._antenna_uvw = (
            cuda.to_device(np.array(x)) for x in (rows.time_index, field.antenna_uvw)
        )
        self._chan_freq = cuda.to_device(np.array(rows.chan_freq))
        self._data = [
            cuda.to_device(rows.stokes_to_corr.astype(self._complex)),
            cuda.to_device(field.vis.astype(self._complex)),
            cuda.to_device(field.weight.astype(self._real)),
        ]
        self._kept: dict[tuple[str, tuple[int, ...]], Value] = {}

    def chi2(self, sources: Sources) -> np.ndarray:
        # An array without elements cannot be uploaded; the kernel does not look at this one.
        given = [cuda.to_device(x if x.size else np.zeros((1, 1, 2, 3))) for x in self._parameters(sources)]
        direction, projection, stokes, index, ref_freq = given
        n_batch, n_source, n_thread = sources.n_batch, sources.n_source, self._n_thread
        bright = self._array("bright", (n_batch, n_source, self._n_stokes, self._n_chan), self._real)
        _make_brightness(self._single)[self._blocks(n_batch * n_source * self._n_chan), n_thread](
            self._chan_freq, stokes, index, ref_freq, bright
        )
        shape = (n_batch, self._n_time, n_source, self._n_antenna, self._n_chan)
        terms = self._array("terms", shape, self._complex)
        _make_antenna_terms(self._single)[self._blocks(math.prod(shape)), n_thread](
            self._chan_freq, self._antenna_uvw, direction, terms
        )
        squares = self._array("squares", (n_batch, self._n_sample), np.float64)
        _make_visibilities(self._single, self._n_stokes)[(self._blocks(self._n_sample), n_batch), n_thread](
            *self._uvw,
            self._time_index,
            self._chan_freq,
            *self._data,
            sources.n_gaussian,
            projection,
            bright,
            terms,
            squares,
        )
        return self._sum(squares, n_batch)

    def _parameters(self, sources: Sources) -> list[np.ndarray]:
        return list(parameters(sources, self._n_stokes))

    def _sum(self, squares: Value, n_batch: int) -> np.ndarray:
        n_chunk = -(-self._n_sample // (_CHUNK_ROWS * self._n_chan))
        partial = self._array("partial", (n_batch, n_chunk), np.float64)
        chi2 = self._array("chi2", (n_batch, 1), np.float64)
        sums = _make_range_sums(self._n_thread)
        sums[(n_chunk, n_batch), self._n_thread](_CHUNK_ROWS * self._n_chan, squares, partial)
        sums[(1, n_batch), self._n_thread](n_chunk, partial, chi2)
        return chi2.copy_to_host()[:, 0]

    def _array(self, name: str, shape: tuple[int, ...], dtype: type) -> Value:
        """A device array that is kept for the next call."""
        if (name, shape) not in self._kept:
            self._kept[name, shape] = cuda.device_array(shape, dtype)
        return self._kept[name, shape]

    def _blocks(self, n_item: int) -> int:
        return -(-n_item // self._n_thread)
