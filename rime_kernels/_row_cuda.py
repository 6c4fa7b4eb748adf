"""The RIME row by row on a CUDA device: phases from each row's own uvw.

A thread sums all sources for one row and a run of channels. Where channels are evenly spaced the phase term
of a source turns by the same angle from one to the next: one cosine and sine for the first channel of a run,
one for the step, and a complex product a channel. Rounding grows with the steps: after 7 of them to
about 1e-6 in single precision at worst, 3e-15 in double.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import float32, float64, int32, int64, uint32, uint64

from rime_kernels import _scalars_cuda, beam, device, phase
from rime_kernels._inputs import Variant
from rime_kernels._tile_parts_cuda import make_correlation

# The simulator replaces a global of this name while a kernel runs.
cuda: Any = device.cuda

_C = phase.SPEED_OF_LIGHT
_turns = phase.turns
_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM


@dataclass(frozen=True)
class RowShape:
    """How a kernel is cut: rows of a block, a thread for each, and channels of a thread (1 where uneven)."""

    n_row: int
    run: int
    max_register: int = 0


@dataclass(frozen=True)
class RowKernel:
    """All that a kernel is compiled for: the model's variant, its end, the shape of the work."""

    variant: Variant
    is_chi2: bool
    matrix: tuple[complex, ...]  # (n_corr, 4), flat
    has_gaussian: bool
    n_template: int
    shape: RowShape


@functools.cache
def make_add(kernel: RowKernel) -> Any:
    """Function that adds one source's term in channel k of the run to its sums."""
    n_stokes, run = kernel.variant.n_stokes, kernel.shape.run

    @device.inline
    def add(k: int, re: Any, im: Any, bright: Any, at: Any, sums: Any) -> None:
        if n_stokes == 4:
            z = bright[at]
            stokes_i, stokes_q = z.real, z.imag
            z = bright[at + uint64(1)]
            stokes_u, stokes_v = z.real, z.imag
            sums[k] += stokes_i * re
            sums[k + run] += stokes_q * re
            sums[k + 2 * run] += stokes_u * re
            sums[k + 3 * run] += stokes_v * re
            sums[k + 4 * run] += stokes_i * im
            sums[k + 5 * run] += stokes_q * im
            sums[k + 6 * run] += stokes_u * im
            sums[k + 7 * run] += stokes_v * im
        else:
            stokes_i = bright[at].real
            sums[k] += stokes_i * re
            sums[k + run] += stokes_i * im

    return add


@functools.cache
def make_row_sums(kernel: RowKernel) -> Any:
    """The kernel, ending in visibilities or in chi2.

    A block takes a block of rows and a run of channels. `vis_out` complex (n_batch, rows of the slab,
    n_chan, n_corr), or `sum_out` float64 (n_batch, n_sum): chi2 of each block of rows and run, blocks
    counted from the first of all. Data and weights are those of the slab as `make_arrange`
    lays them out.
    """
    variant, is_chi2, n_thread, run = kernel.variant, kernel.is_chi2, kernel.shape.n_row, kernel.shape.run
    single, n_stokes, code, has_gaussian = variant.single, variant.n_stokes, variant.beam, kernel.has_gaussian
    real = float32 if single else float64
    last, n_corr, n_sum = run - 1, len(kernel.matrix) // 4, 2 * n_stokes * run
    per_source, n_template, shifted = 2 if n_stokes == 4 else 1, kernel.n_template, variant.shifted
    n_factor = max(1, n_template)
    cos_sin = phase.make_cos_sin(
        single, *(_scalars_cuda.nearest_function(kind, phase.nearest) for kind in (False, single))
    )
    exp2 = _scalars_cuda.exp2_function(single)
    correlation = make_correlation(kernel.matrix, single)
    add = make_add(kernel)
    scale_exponent = _scalars_cuda.EXPONENT_SCALE * _C

    # fmt: off
    @device.kernel(kernel.shape.max_register)
    def sum_rows(
        n_row: int, first_row: int, n_run: int, n_gaussian: int, first_time: int, n_bright_time: int,
        step_freq: float,
        time_index: Any, antenna1: Any, antenna2: Any, uvw: Any, chan_freq: Any,
        direction: Any, projection: Any, beam_scale: Any, pointing: Any, factors: Any, bright: Any,
        vis: Any, weight: Any, template: Any, stride: int, vis_out: Any, sum_out: Any,
    ) -> None:
        # fmt: on
        partial = cuda.shared.array(n_thread, float64)
        sums = cuda.local.array(n_sum, real)
        exponent = cuda.local.array(run, real)
        factor_re = cuda.local.array(n_factor, real)
        factor_im = cuda.local.array(n_factor, real)

        thread, b = int32(cuda.threadIdx.x), cuda.blockIdx.y
        n_source, n_chan = int32(direction.shape[1]), int32(chan_freq.size)
        block = uint32(uint32(cuda.blockIdx.x) // uint32(n_run))
        start = int32(uint32(cuda.blockIdx.x) - block * uint32(n_run)) * int32(run)
        local = int32(block) * int32(n_thread) + thread
        total = 0.0
        if local < n_row:
            row = first_row + local
            t = time_index[row]
            u, v, w = uvw[row, 0] / _C, uvw[row, 1] / _C, uvw[row, 2] / _C
            p, q, slot = antenna1[row], antenna2[row], min(t, pointing.shape[1] - 1)
            time, first_freq = min(t - first_time, n_bright_time - 1), chan_freq[start]
            for k in range(n_sum):
                sums[k] = real(0)
            for k in range(run):
                c = min(start + int32(k), n_chan - int32(1))
                ratio = chan_freq[c] / first_freq
                exponent[k] = real(ratio * ratio)
            n_point = n_source - n_gaussian
            at_time = (int64(b) * n_bright_time + time) * n_source * int64(n_run) * run
            at = uint64((at_time + start) * per_source)
            for s in range(n_source):
                l, m, n_minus_1 = direction[b, s, 0], direction[b, s, 1], direction[b, s, 2]
                delay = _turns(u, v, w, l, m, n_minus_1)
                re, im = cos_sin(delay * first_freq)
                step_re, step_im = real(1), real(0)
                if run > 1:
                    step_re, step_im = cos_sin(delay * step_freq)
                is_gaussian, size2 = has_gaussian and s >= n_point, real(0)
                if is_gaussian:
                    g, scale = s - n_point, scale_exponent * first_freq
                    along = scale * _turns(
                        u, v, w, projection[b, g, 0, 0], projection[b, g, 0, 1], projection[b, g, 0, 2]
                    )
                    across = scale * _turns(
                        u, v, w, projection[b, g, 1, 0], projection[b, g, 1, 1], projection[b, g, 1, 2]
                    )
                    size2 = real(along * along + across * across)
                for k in range(run):
                    e = real(1)
                    if is_gaussian:
                        e = exp2(exponent[k] * size2)
                    if code != _NO_BEAM:
                        nu = chan_freq[min(start + int32(k), n_chan - int32(1))]
                        dl, dm = l - pointing[b, slot, p, 0], m - pointing[b, slot, p, 1]
                        x_p = _argument(beam_scale[b], nu, dl, dm)
                        dl, dm = l - pointing[b, slot, q, 0], m - pointing[b, slot, q, 1]
                        x_q = _argument(beam_scale[b], nu, dl, dm)
                        e *= real(_voltage(code, x_p) * _voltage(code, x_q))
                    add(k, e * re, e * im, bright, at + uint64(k * per_source), sums)
                    turned = re * step_re - im * step_im
                    im = im * step_re + re * step_im
                    re = turned
                at += uint64(n_run) * uint64(run * per_source)
            n_here = min(int32(run), n_chan - start)
            for k in range(n_here):
                square = real(0)
                for t in range(n_template):
                    factor_re[t], factor_im[t] = real(factors[b, t, 0]), real(0)
                    if shifted:
                        turns = _turns(u, v, w, factors[b, t, 1], factors[b, t, 2], factors[b, t, 3])
                        cos, sin = cos_sin(turns * chan_freq[start + k])
                        factor_re[t], factor_im[t] = factor_re[t] * cos, factor_re[t] * sin
                first = ((int64(block) * n_chan + start + k) * n_corr) * n_thread + thread
                for j in range(n_corr):
                    x, y = correlation(j, n_stokes, run, 0, real(1), sums)
                    if is_chi2:
                        at_datum = first + j * n_thread
                        datum, each = vis[at_datum], weight[at_datum]
                        x, y = x - datum.real, y - datum.imag
                        for t in range(n_template):
                            datum = template[at_datum + t * stride]
                            x += factor_re[t] * datum.real - factor_im[t] * datum.imag
                            y += factor_re[t] * datum.imag + factor_im[t] * datum.real
                        square += each * (x * x + y * y)
                    else:
                        vis_out[b, local, start + k, j] = complex(x, y)
                total += square
                for j in range(2 * n_stokes):
                    for i in range(last):
                        sums[j * run + i] = sums[j * run + i + 1]

        if is_chi2:
            partial[thread] = total
            cuda.syncthreads()
            width = n_thread // 2
            while width > 0:
                if thread < width:
                    partial[thread] += partial[thread + width]
                cuda.syncthreads()
                width //= 2
            if thread == 0:
                sum_out[b, int64(first_row) // n_thread * n_run + cuda.blockIdx.x] = partial[0]

    return sum_rows


@functools.cache
def make_arrange(n_thread: int) -> Any:
    """Kernel that lays values of some rows (data, weights, templates) out as the chi2 reads them.

    They become (n_block, n_chan, n_corr, rows of a block), flat: neighbouring threads read neighbouring
    rows; 0 where the last block has no row.
    """

    @cuda.jit
    def arrange(n_chan: int, n_corr: int, values: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i >= out.size:
            return
        k, c = i // n_thread % n_corr, i // (n_thread * n_corr) % n_chan
        row = i // (n_thread * n_corr * n_chan) * n_thread + i % n_thread
        out[i] = values[row, c, k] if row < values.shape[0] else 0.0

    return arrange
