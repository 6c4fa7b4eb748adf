"""Kernels over the cells of visibilities that have one gain each: sums, chi2, and slopes.

A block of threads has all correlations of a baseline, a block of times and a block of channels. Some `n_lane`
threads share the samples of each of its cells; what they have summed is added in their order, so that results
repeat to the bit.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import float64, int64, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Scalar

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda


class CellTables(NamedTuple):
    """`RowCells` as kernels read them; rows are places in the order of time."""

    starts: Array  # int64 (n_baseline + 1,): where in `rows` those of a baseline begin
    rows: Array  # int32 (n_row,)
    chan_start: Array  # int32 (n_block + 1,): where in `chans` those of a block begin
    chans: Array  # int32 (n_chan,)


class Span(NamedTuple):
    """The samples of a cell: rows by channels."""

    row: int  # where in `CellTables.rows` they begin
    chan: Scalar  # where in `CellTables.chans`
    n_chan: int
    n: Scalar  # of all of them


@device.inline
def span_of(tables: CellTables, unit: int) -> Span:
    """The rows and channels of a baseline and a block of channels."""
    n_block = int64(tables.chan_start.size - 1)
    baseline, block = unit // n_block, unit % n_block
    row, chan = int64(tables.starts[baseline]), int64(tables.chan_start[block])
    n_chan = int64(tables.chan_start[block + 1]) - chan
    return Span(row, chan, n_chan, (int64(tables.starts[baseline + 1]) - row) * n_chan)


@functools.cache
def make_place(n_corr: int) -> Compiled:
    """Function that gives where sample s of a span lies, of correlation c, among all samples."""

    @device.inline
    def place(tables: CellTables, span: Span, s: int, c: int) -> Scalar:
        row = int64(tables.rows[span.row + s // span.n_chan])
        chan = int64(tables.chans[span.chan + s % span.n_chan])
        return uint64((row * int64(tables.chans.size) + chan) * n_corr + c)

    return place


@functools.cache
def make_cell_sums(n_corr: int, n_lane: int) -> DeviceKernel:
    """Kernel that sums w |V|^2 and w D conj(V), times `scale`: `out` float64 (3, n_cell).

    Model V, data D and weights w are flat, (n_row, n_chan, n_corr), rows in the order of time.
    """
    n_thread, place = n_lane * n_corr, make_place(n_corr)
    # A name, for Numba takes no product as the size of a shared array.
    n_shown = 3 * n_thread

    @device.kernel(0)
    def cell_sums(
        scale: float, tables: CellTables, model: Array, data: Array, weight: Array, out: Array
    ) -> None:
        shown = cuda.shared.array(n_shown, float64)
        thread, unit = int64(cuda.threadIdx.x), int64(cuda.blockIdx.x)
        span, c = span_of(tables, unit), thread % n_corr
        power, real, imag = 0.0, 0.0, 0.0
        for s in range(thread // n_corr, span.n, n_lane):
            i = place(tables, span, s, c)
            w = float64(weight[i])
            if w > 0.0:
                v, d = model[i], data[i]
                v_re, v_im = float64(v.real), float64(v.imag)
                d_re, d_im = float64(d.real), float64(d.imag)
                power += w * (v_re * v_re + v_im * v_im)
                real += w * (d_re * v_re + d_im * v_im)
                imag += w * (d_im * v_re - d_re * v_im)
        shown[thread] = power
        shown[n_thread + thread] = real
        shown[2 * n_thread + thread] = imag
        cuda.syncthreads()
        if thread < 3 * n_corr:
            kind, total = thread // n_corr, 0.0
            for lane in range(n_lane):
                total += shown[kind * n_thread + lane * n_corr + c]
            out[kind, unit * n_corr + c] = scale * total

    return cell_sums


@functools.cache
def make_cell_chi2(n_corr: int, n_lane: int) -> DeviceKernel:
    """Kernel that sums w |D - g V|^2 of each cell into `out` float64 (1, n_cell).

    `gain` are real and imaginary parts of g, float64 (2 n_cell,); arrays otherwise as in `make_cell_sums`.
    """
    n_thread, place = n_lane * n_corr, make_place(n_corr)

    @device.kernel(0)
    def cell_chi2(
        tables: CellTables, model: Array, data: Array, weight: Array, gain: Array, out: Array
    ) -> None:
        shown = cuda.shared.array(n_thread, float64)
        thread, unit = int64(cuda.threadIdx.x), int64(cuda.blockIdx.x)
        span, c = span_of(tables, unit), thread % n_corr
        cell = unit * n_corr + c
        g_re, g_im, total = gain[2 * cell], gain[2 * cell + 1], 0.0
        for s in range(thread // n_corr, span.n, n_lane):
            i = place(tables, span, s, c)
            w = float64(weight[i])
            if w > 0.0:
                v, d = model[i], data[i]
                v_re, v_im = float64(v.real), float64(v.imag)
                re = float64(d.real) - (g_re * v_re - g_im * v_im)
                im = float64(d.imag) - (g_re * v_im + g_im * v_re)
                total += w * (re * re + im * im)
        shown[thread] = total
        cuda.syncthreads()
        if thread < n_corr:
            total = 0.0
            for lane in range(n_lane):
                total += shown[lane * n_corr + c]
            out[0, cell] = total

    return cell_chi2


@functools.cache
def make_cell_slopes(n_corr: int, n_lane: int) -> DeviceKernel:
    """Kernel that puts 2 a |g|^2 V + conj(b) conj(g) D in the place of V, and 0 where the weight is 0.

    `by_power` a, `by_real` and `by_imag` b (n_cell,), all three times `scale`, and `gain` g as real and
    imaginary parts (2 n_cell,), all float64 (`rime_kernels.gains.cell_sums.slopes_of_rows`).
    """
    place = make_place(n_corr)

    @device.kernel(0)
    def cell_slopes(
        scale: float, tables: CellTables, model: Array, data: Array, weight: Array, gain: Array,
        by_power: Array, by_real: Array, by_imag: Array,
    ) -> None:  # fmt: skip
        thread, unit = int64(cuda.threadIdx.x), int64(cuda.blockIdx.x)
        span, c = span_of(tables, unit), thread % n_corr
        cell = unit * n_corr + c
        g_re, g_im = gain[2 * cell], gain[2 * cell + 1]
        b_re, b_im = scale * by_real[cell], scale * by_imag[cell]
        own = 2.0 * scale * by_power[cell] * (g_re * g_re + g_im * g_im)
        h_re, h_im = b_re * g_re - b_im * g_im, -(b_re * g_im + b_im * g_re)
        for s in range(thread // n_corr, span.n, n_lane):
            i = place(tables, span, s, c)
            re, im = 0.0, 0.0
            if weight[i] > 0.0:
                v, d = model[i], data[i]
                d_re, d_im = float64(d.real), float64(d.imag)
                re = own * float64(v.real) + h_re * d_re - h_im * d_im
                im = own * float64(v.imag) + h_re * d_im + h_im * d_re
            model[i] = complex(re, im)

    return cell_slopes
