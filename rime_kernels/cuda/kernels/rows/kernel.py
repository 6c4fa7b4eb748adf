"""The RIME row by row on a CUDA device: phases from each row's own uvw.

A thread sums all sources for one row and a run of channels. Where channels are evenly spaced the phase term
of a source turns by the same angle from one to the next: one cosine and sine for the first channel of a run,
one for the step, and a complex product a channel. Rounding grows with the steps: after 7 of them to
about 1e-6 in single precision at worst, 3e-15 in double.
"""

from __future__ import annotations

import functools

from numba import float32, float64, int32, int64, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Scalar
from rime_kernels.cuda.kernels.arguments import DataColumns, DeviceSky, Results
from rime_kernels.cuda.kernels.chi2_terms import n_kinds
from rime_kernels.cuda.kernels.reductions import make_block_reduce
from rime_kernels.cuda.kernels.rows.adjoint import RowAccumulators, make_accumulate_gradient
from rime_kernels.cuda.kernels.rows.parts import (
    Place,
    RowKernel,
    RowRecords,
    RowTables,
    RowWork,
    make_find_row,
    make_row_registers,
)
from rime_kernels.cuda.kernels.rows.sums import (
    make_chi2_epilogue,
    make_sum_sources,
    make_visibilities_epilogue,
)
from rime_kernels.cuda.kernels.samples import make_sample_arrays

# The simulator replaces a global of this name while a kernel runs: what declares arrays stands here.
cuda: Module = device.cuda


@functools.cache
def make_row_sums(kernel: RowKernel) -> DeviceKernel:
    """The kernel, ending in visibilities, in chi2, or in chi2 and its adjoint.

    A block takes a block of rows and a run of channels. It leaves `Results.vis`, or `Results.sums` (n_batch
    times `n_kinds`, n_sum): chi2 of each block of rows and run, blocks counted from the first of all; before
    an adjoint the sums for templates and the scaled degrees of freedom follow. Then it fills `RowRecords`.
    """
    is_chi2, has_adjoint, n_thread = kernel.is_chi2, kernel.has_adjoint, kernel.shape.n_row
    record, real = kernel.record, float32 if kernel.variant.single else float64
    per_group = record.bright_size + record.geometry_size
    n_accumulated = n_thread // kernel.n_lane * per_group if has_adjoint else 1
    own_arrays, sample_arrays, accumulator_arrays = (
        make_row_registers(kernel),
        make_sample_arrays(kernel.end),
        _make_accumulators(kernel),
    )
    index_block, find_row = make_index_block(kernel), make_find_row(kernel)
    sum_sources, accumulate_gradient = make_sum_sources(kernel), make_accumulate_gradient(kernel)
    chi2_epilogue, visibilities_epilogue = make_chi2_epilogue(kernel), make_visibilities_epilogue(kernel)
    sum_block = make_sum_block(kernel)

    @device.kernel(kernel.shape.max_register)
    def sum_rows(
        work: RowWork,
        tables: RowTables,
        sky: DeviceSky,
        columns: DataColumns,
        results: Results,
        records: RowRecords,
    ) -> None:
        # A line for each: the simulator tells shared arrays apart by their line.
        partial = cuda.shared.array(n_thread, float64)
        accumulated = cuda.shared.array(n_accumulated, real)
        own, samples, accumulators = own_arrays(), sample_arrays(), accumulator_arrays()
        place, total = index_block(int32(cuda.threadIdx.x), cuda.blockIdx.x, cuda.blockIdx.y, work), 0.0
        # Threads without a row have nothing to sum, but do not return: all threads of a block reach the
        # barrier below.
        if has_adjoint or place.local < work.n_row:
            row = find_row(place, work, tables, sky)
            sum_sources(place, row, work, tables, sky, own.sums, own.exponent)
            if is_chi2:
                total = chi2_epilogue(
                    place, row, work, tables, sky, columns, records.by_pair, samples, own.sums, own.of_kind
                )
            else:
                visibilities_epilogue(
                    place, row, tables, sky, results.vis, records.by_pair, samples, own.sums
                )
        if is_chi2:
            own.of_kind[0] = total
            sum_block(place, work, own.of_kind, partial, results.sums)
        if has_adjoint:
            accumulate_gradient(
                place, row, work, tables, sky, records, own.exponent, own.sums, accumulators, accumulated
            )

    return sum_rows


def _make_accumulators(kernel: RowKernel) -> Compiled:
    """Function that declares those of its adjoint; one element each without it."""
    real, record = float32 if kernel.variant.single else float64, kernel.record
    has_adjoint, n_voltage = kernel.has_adjoint, 4 if kernel.has_adjoint and record.has_beam else 1
    n_bright, n_geometry = (record.bright_size, record.geometry_size) if has_adjoint else (1, 1)

    @device.inline
    def accumulator_arrays() -> RowAccumulators:
        return RowAccumulators(
            cuda.local.array(n_bright, real), cuda.local.array(n_geometry, real),
            cuda.local.array(n_bright, real), cuda.local.array(n_geometry, real),
            cuda.local.array(n_voltage, float64),
        )  # fmt: skip

    return accumulator_arrays


def make_index_block(kernel: RowKernel) -> Compiled:
    """Function that says what a thread works on; runs of channels follow one another, then blocks of rows."""
    n_thread, run = kernel.shape.n_row, kernel.shape.run

    @device.inline
    def index_block(thread: int, number: Scalar, b: int, work: RowWork) -> Place:
        block = uint32(uint32(number) // uint32(work.n_run))
        start = int32(uint32(number) - block * uint32(work.n_run)) * int32(run)
        local = int32(block) * int32(n_thread) + thread
        return Place(thread, b, number, block, start, local)

    return index_block


def make_sum_block(kernel: RowKernel) -> Compiled:
    """Function that sums chi2, and what goes with it, over a block's threads: `Results.sums`."""
    n_thread, block_reduce = kernel.shape.n_row, make_block_reduce(kernel.shape.n_row)
    n_kind = n_kinds(kernel.n_template, kernel.variant.log, kernel.has_adjoint)

    @device.part
    def sum_block(place: Place, work: RowWork, of_kind: Array, partial: Array, sums: Array) -> None:
        for k in range(n_kind):
            of_block = block_reduce(place.thread, of_kind[k], partial)
            # One thread writes, always the same: no atomic sum, whose order would differ from call to call.
            if place.thread == 0:
                into = int64(work.first_row) // n_thread * work.n_run + place.number
                sums[int64(place.b) * n_kind + k, into] = of_block

    return sum_block


@functools.cache
def make_arrange(n_thread: int) -> DeviceKernel:
    """Kernel that lays values of some rows (data, weights, templates) out as the chi2 reads them.

    They become (n_block, n_chan, n_corr, rows of a block), flat: neighbouring threads read neighbouring
    rows; 0 where the last block has no row.
    """

    @device.kernel(0)
    def arrange(n_chan: int, n_corr: int, values: Array, out: Array) -> None:
        i = cuda.grid(1)
        if i >= out.size:
            return
        # One thread for each element of `out`, whose fastest axis are the rows of a block.
        k, c = i // n_thread % n_corr, i // (n_thread * n_corr) % n_chan
        row = i // (n_thread * n_corr * n_chan) * n_thread + i % n_thread
        out[i] = values[row, c, k] if row < values.shape[0] else 0.0

    return arrange
