"""The RIME row by row on a CUDA device: phases from each row's own uvw.

A thread sums all sources for one row and a run of channels. Where channels are evenly spaced the phase term
of a source turns by the same angle from one to the next: one cosine and sine for the first channel of a run,
one for the step, and a complex product a channel. Rounding grows with the steps: after 7 of them to
about 1e-6 in single precision at worst, 3e-15 in double.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, float64, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.adjoint_parts import make_back, make_gather_templates, moments_of
from rime_kernels.cuda.kernels.lane_sums import make_block_sum, make_lane_sums
from rime_kernels.cuda.kernels.misfit import make_measure, n_kinds
from rime_kernels.cuda.kernels.row_adjoint import make_gather
from rime_kernels.cuda.kernels.row_parts import RowKernel, make_term
from rime_kernels.cuda.kernels.tile_parts import make_correlation
from rime_kernels.physics import beam, phase

# The simulator replaces a global of this name while a kernel runs.
cuda: Any = device.cuda

_C = phase.SPEED_OF_LIGHT
_turns = phase.turns
_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM


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

    Before an adjoint `sum_out` is (n_batch * `n_kinds`, n_sum): chi2, what templates gather, and turnovers.
    `moments`, flat, are the records (n_batch, units of the slab, n_run, n_source, `Moments.n_value`) of
    sources; the units of block k of rows are those from `unit_start[k]` on, one, or one for each of its
    times. `by_row` float64 (n_batch, all rows, n_run, 4), flat, is what pointing errors gather: l and m of
    antenna1, and of antenna2.
    """
    variant, is_chi2, n_thread, run = kernel.variant, kernel.is_chi2, kernel.shape.n_row, kernel.shape.run
    single, n_stokes, code, has_gaussian = variant.single, variant.n_stokes, variant.beam, kernel.has_gaussian
    real = float32 if single else float64
    last, n_corr, n_sum = run - 1, len(kernel.matrix) // 4, 2 * n_stokes * run
    per_source, n_template, shifted = 2 if n_stokes == 4 else 1, kernel.n_template, variant.shifted
    n_factor = max(1, n_template)
    cos_sin = phase.make_cos_sin(
        single, *(scalars.nearest_function(kind, phase.nearest) for kind in (False, single))
    )
    exp2 = scalars.exp2_function(single)
    correlation = make_correlation(kernel.matrix, single)
    add = make_add(kernel)
    term = make_term(single, run, has_gaussian)
    has_adjoint, n_lane = kernel.has_adjoint, kernel.n_lane
    record = moments_of(variant, has_gaussian, run)
    add_back = make_back(kernel.matrix, single, n_stokes)
    gather_templates = make_gather_templates(single, n_template, shifted)
    gather = make_gather(kernel)
    n_kind, n_value = n_kinds(n_template, variant.log, has_adjoint), record.n_value
    measure = make_measure(variant.log, single, n_template, has_adjoint)
    square_of, exact, one_over, nothing, more, factor_of, total_of, is_large = measure
    n_bright, n_geometry = (record.bright_room, record.geometry_room) if has_adjoint else (1, 1)
    n_gathered = n_thread // n_lane * (n_bright + n_geometry) if has_adjoint else 1
    n_used_bright, n_back = record.n_bright, 2 * n_stokes if has_adjoint else 1
    sum_brights, sum_geometry = make_lane_sums(n_bright, n_lane), make_lane_sums(n_geometry, n_lane)
    block_sum = make_block_sum(n_thread)
    n_voltage = 4 if has_adjoint and code != _NO_BEAM else 1

    # fmt: off
    @device.kernel(kernel.shape.max_register)
    def sum_rows(
        n_row: int, first_row: int, n_run: int, n_gaussian: int, first_time: int, n_bright_time: int,
        step_freq: float,
        time_index: Any, antenna1: Any, antenna2: Any, uvw: Any, chan_freq: Any,
        direction: Any, projection: Any, beam_scale: Any, pointing: Any, factors: Any, bright: Any,
        vis: Any, weight: Any, template: Any, stride: int, vis_out: Any, sum_out: Any,
        unit_start: Any, moments: Any, by_row: Any,
    ) -> None:
        # fmt: on
        # A line for each: the simulator tells shared arrays apart by their line.
        partial = cuda.shared.array(n_thread, float64)
        gathered = cuda.shared.array(n_gathered, real)
        of_kind = cuda.local.array(n_kind, float64)
        value, geometry = cuda.local.array(n_bright, real), cuda.local.array(n_geometry, real)
        shown_value, shown_geometry = cuda.local.array(n_bright, real), cuda.local.array(n_geometry, real)
        voltage, back = cuda.local.array(n_voltage, float64), cuda.local.array(n_back, real)
        sums = cuda.local.array(n_sum, real)
        exponent = cuda.local.array(run, real)
        factor_re = cuda.local.array(n_factor, real)
        factor_im = cuda.local.array(n_factor, real)
        of_re, of_im = cuda.local.array(n_corr, real), cuda.local.array(n_corr, real)
        model_re, model_im = cuda.local.array(n_corr, real), cuda.local.array(n_corr, real)
        weights = cuda.local.array(n_corr, real)

        thread, b = int32(cuda.threadIdx.x), cuda.blockIdx.y
        n_source, n_chan = int32(direction.shape[1]), int32(chan_freq.size)
        block = uint32(uint32(cuda.blockIdx.x) // uint32(n_run))
        start = int32(uint32(cuda.blockIdx.x) - block * uint32(n_run)) * int32(run)
        local = int32(block) * int32(n_thread) + thread
        total = 0.0
        # Before an adjoint, threads without a row take the last one: their weights are 0.
        if has_adjoint or local < n_row:
            row = first_row + (min(local, int32(n_row - 1)) if has_adjoint else local)
            row_time = time_index[row]
            u, v, w = uvw[row, 0] / _C, uvw[row, 1] / _C, uvw[row, 2] / _C
            p, q, slot = antenna1[row], antenna2[row], min(row_time, pointing.shape[1] - 1)
            time, first_freq = min(row_time - first_time, n_bright_time - 1), chan_freq[start]
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
                l, m = direction[b, s, 0], direction[b, s, 1]
                re, im, step_re, step_im, along, across = term(
                    b, s, s - n_point, u, v, w, first_freq, step_freq, direction, projection
                )
                is_gaussian = has_gaussian and s >= n_point
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
            n_here, tail = min(int32(run), n_chan - start), one_over(factors[b])
            for k in range(1, n_kind):
                of_kind[k] = 0.0
            for k in range(n_here):
                square = nothing()
                for j in range(n_back):
                    back[j] = real(0)
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
                        datum, weights[j] = vis[at_datum], weight[at_datum]
                        of_re[j], of_im[j] = datum.real, datum.imag
                        for t in range(n_template):
                            z = template[at_datum + t * stride]
                            of_re[j] -= factor_re[t] * z.real - factor_im[t] * z.imag
                            of_im[j] -= factor_re[t] * z.imag + factor_im[t] * z.real
                        square += more(square, square_of(x, y, of_re[j], of_im[j], weights[j]), tail, of_kind)
                        model_re[j], model_im[j] = x, y
                    else:
                        vis_out[b, local, start + k, j] = complex(x, y)
                if is_large(square):
                    for j in range(n_corr):
                        total += exact(model_re[j], model_im[j], of_re[j], of_im[j], weights[j])
                else:
                    total += total_of(square)
                if has_adjoint:
                    for j in range(n_corr):
                        x, y = model_re[j], model_im[j]
                        each = weights[j] * factor_of(square_of(x, y, of_re[j], of_im[j], weights[j]), tail)
                        x, y = each * (x - of_re[j]), each * (y - of_im[j])
                        add_back(j, x, y, real(1), back, 0, 1)
                        nu = chan_freq[start + k]
                        gather_templates(
                            uint64(first + j * n_thread), x, y, weights[j], template, stride, factors[b],
                            u * nu, v * nu, w * nu, of_kind,
                        )  # fmt: skip
                for j in range(2 * n_stokes):
                    for i in range(last):
                        sums[j * run + i] = sums[j * run + i + 1]
                if has_adjoint:
                    for j in range(n_back):
                        sums[j * run + last] = back[j]
            if has_adjoint:
                for _ in range(n_here, run):
                    for j in range(2 * n_stokes):
                        for i in range(last):
                            sums[j * run + i] = sums[j * run + i + 1]
                        sums[j * run + last] = real(0)

        if is_chi2:
            of_kind[0] = total
            for k in range(n_kind):
                of_block = block_sum(thread, of_kind[k], partial)
                if thread == 0:
                    into = int64(first_row) // n_thread * n_run + cuda.blockIdx.x
                    sum_out[int64(b) * n_kind + k, into] = of_block

        if has_adjoint:
            first_block = first_row // n_thread
            first_unit = unit_start[first_block]
            n_unit = unit_start[first_block + (n_row + n_thread - 1) // n_thread] - first_unit
            unit, stop_unit = unit_start[first_block + block], unit_start[first_block + block + 1]
            own = unit
            if stop_unit - unit > 1:
                own += row_time - time_index[first_row + int32(block) * int32(n_thread)]
            at = uint64((at_time + start) * per_source)
            group_start = uint32(uint32(thread // n_lane) * uint32(n_bright + n_geometry))
            for k in range(n_voltage):
                voltage[k] = 0.0
            for s in range(n_source):
                gather(
                    b, s, s - n_point, u, v, w, p, q, slot, start, step_freq, chan_freq, direction,
                    projection, beam_scale, pointing, bright, at, exponent, sums, value, geometry, voltage,
                )  # fmt: skip
                for each_unit in range(unit, stop_unit):
                    for k in range(n_bright):
                        shown_value[k] = value[k] if own == each_unit else real(0)
                    for k in range(n_geometry):
                        shown_geometry[k] = geometry[k] if own == each_unit else real(0)
                    sum_brights(thread, shown_value, gathered, group_start)
                    sum_geometry(thread, shown_geometry, gathered, uint32(group_start + uint32(n_bright)))
                    cuda.syncthreads()
                    of_unit = int64(b) * n_unit + (each_unit - first_unit)
                    of_unit = of_unit * n_run + cuda.blockIdx.x - block * n_run
                    for kind in range(thread, n_value, n_thread):
                        at_kind = kind if kind < n_used_bright else kind - n_used_bright + n_bright
                        joined = 0.0
                        for k in range(n_thread // n_lane):
                            joined += float64(gathered[k * (n_bright + n_geometry) + at_kind])
                        moments[(of_unit * n_source + s) * n_value + kind] = real(joined)
                    cuda.syncthreads()
                at += uint64(n_run) * uint64(run * per_source)
            if code != _NO_BEAM and local < n_row:
                n_all = time_index.size
                for k in range(n_voltage):
                    of_row = (int64(b) * n_all + row) * n_run + cuda.blockIdx.x - block * n_run
                    by_row[of_row * n_voltage + k] = voltage[k]

    return sum_rows


@functools.cache
def make_arrange(n_thread: int) -> Any:
    """Kernel that lays values of some rows (data, weights, templates) out as the chi2 reads them.

    They become (n_block, n_chan, n_corr, rows of a block), flat: neighbouring threads read neighbouring
    rows; 0 where the last block has no row.
    """

    @device.kernel(0)
    def arrange(n_chan: int, n_corr: int, values: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i >= out.size:
            return
        k, c = i // n_thread % n_corr, i // (n_thread * n_corr) % n_chan
        row = i // (n_thread * n_corr * n_chan) * n_thread + i % n_thread
        out[i] = values[row, c, k] if row < values.shape[0] else 0.0

    return arrange
