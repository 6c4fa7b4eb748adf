"""chi2 with 2x2 beams row by row, from matrices in a table; the weighted residuals are left for the gradient.

A thread sums all sources for a row and a channel.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numba import float32, float64, int32, int64, uint64

from rime_kernels import device
from rime_kernels.compile.types import (
    Array,
    Compiled,
    DeviceKernel,
    Module,
    Scalar,
)
from rime_kernels.cuda.kernels.arguments import DataColumns, DeviceSky, Results
from rime_kernels.cuda.kernels.correlations import make_correlation
from rime_kernels.cuda.kernels.jones.factors import make_enveloped, make_factor
from rime_kernels.cuda.kernels.jones.sums import make_add_product, make_to_stokes
from rime_kernels.cuda.kernels.jones.table import Table, place_of, read_matrix
from rime_kernels.cuda.kernels.jones.voltages import is_circular, make_times_brightness
from rime_kernels.cuda.kernels.rows.kernel import make_index_block, make_sum_block
from rime_kernels.cuda.kernels.rows.parts import (
    Place,
    RowKernel,
    RowTables,
    RowWork,
    ThreadRow,
    make_find_row,
    make_next_source,
    make_row_registers,
)
from rime_kernels.cuda.kernels.rows.sums import make_chi2_epilogue
from rime_kernels.cuda.kernels.samples import make_sample_arrays
from rime_kernels.jones_beam import matrices
from rime_kernels.physics.feeds import feeds_of

# The simulator replaces a global of this name while a kernel runs: what declares arrays stands here.
cuda: Module = device.cuda


class JonesResiduals(NamedTuple):
    """What the rows of a slab leave for the gradient, in working precision."""

    residual: Array  # flat (n_batch, n_chan, n_row, 8): in the products of two feeds, as `matrices` has them
    by_pair: Array  # as in `RowRecords`


@functools.cache
def make_residuals(kernel: RowKernel) -> DeviceKernel:
    """The kernel; it leaves `Results.sums` as `rows.kernel.make_row_sums` does before an adjoint."""
    n_thread, own_arrays = kernel.shape.n_row, make_row_registers(kernel)
    sample_arrays = make_sample_arrays(kernel.end)
    index_block, find_row = make_index_block(kernel), make_find_row(kernel)
    sum_sources, sum_block = _make_sum_sources(kernel), make_sum_block(kernel)
    to_stokes = make_to_stokes(kernel.matrix, kernel.variant.single, 1)
    chi2_epilogue, leave = make_chi2_epilogue(kernel), _make_leave(kernel)

    @device.kernel(kernel.shape.max_register)
    def sum_rows(
        work: RowWork, tables: RowTables, sky: DeviceSky, columns: DataColumns, results: Results,
        table: Table,
        left: JonesResiduals,
    ) -> None:  # fmt: skip
        partial = cuda.shared.array(n_thread, float64)
        own, samples = own_arrays(), sample_arrays()
        place = index_block(int32(cuda.threadIdx.x), cuda.blockIdx.x, cuda.blockIdx.y, work)
        # Threads without a row have the last one again, with weights of 0: all threads of a block reach the
        # barrier below.
        row = find_row(place, work, tables, sky)
        sum_sources(place, row, work, tables, sky, table, own.sums)
        to_stokes(own.sums)
        own.of_kind[0] = chi2_epilogue(
            place, row, work, tables, sky, columns, left.by_pair, samples, own.sums, own.of_kind
        )
        sum_block(place, work, own.of_kind, partial, results.sums)
        if place.local < work.n_row:
            leave(place, work, own.sums, left.residual)

    return sum_rows


def _make_sum_sources(kernel: RowKernel) -> Compiled:
    """Function that sums all sources at one channel into a thread's `sums`, (8,)."""
    real = float32 if kernel.variant.single else float64
    times_brightness, factor_of = make_times_brightness(is_circular(kernel.matrix)), make_factor(kernel)
    add_product, times_number = make_add_product(1), device.inline(matrices.times_number.py_func)
    next_source, enveloped = make_next_source(kernel), make_enveloped(kernel)

    @device.part
    def sum_sources(
        place: Place,
        row: ThreadRow,
        work: RowWork,
        tables: RowTables,
        sky: DeviceSky,
        table: Table,
        sums: Array,
    ) -> None:
        b, c, offset = place.b, place.start, row.bright
        n_source, freq = int32(sky.direction.shape[1]), tables.chan_freq[c]
        for k in range(8):
            sums[k] = real(0)
        for s in range(n_source):
            re, im = enveloped(b, s, freq, factor_of(b, s, row, freq, sky), sky)
            of_source = place_of(b, row.time, c, s, n_source, table)
            p, q = read_matrix(of_source, row.p, table), read_matrix(of_source, row.q, table)
            p = times_brightness(times_number(p, re, im), sky.bright[offset], sky.bright[offset + uint64(1)])
            add_product(sums, 0, p, q)
            offset = next_source(offset, work)

    return sum_sources


def _make_leave(kernel: RowKernel) -> Compiled:
    """Function that leaves a thread's residuals, of which `sums` has those in Stokes parameters.

    With X the sums over sources, X_feeds = M X_stokes: R_stokes = M^H R_feeds.
    """
    full, _ = feeds_of(np.reshape(kernel.matrix, (-1, 4)))
    feeds = make_correlation(tuple(np.linalg.inv(full).conj().T.ravel().tolist()), kernel.variant.single)
    real = float32 if kernel.variant.single else float64

    @device.part
    def leave(place: Place, work: RowWork, sums: Array, residual: Array) -> None:
        offset = (int64(place.b) * work.n_run + place.start) * work.n_row + place.local
        for k in range(4):
            re, im = feeds(k, 4, 1, 0, real(1), sums)
            residual[8 * offset + 2 * k], residual[8 * offset + 2 * k + 1] = re, im

    return leave


@device.inline
def read_residual(b: int, c: int, n_chan: int, local: int, n_row: int, residual: Array) -> tuple[Scalar, ...]:
    """The residuals of a row of the slab."""
    r, offset = residual, int64(8) * ((int64(b) * n_chan + c) * n_row + local)
    return (
        r[offset], r[offset + 1], r[offset + 2], r[offset + 3], r[offset + 4], r[offset + 5], r[offset + 6],
        r[offset + 7]
    )  # fmt: skip
