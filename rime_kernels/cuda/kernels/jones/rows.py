"""The RIME with 2x2 beams row by row on a CUDA device: a thread sums all sources for a row and a channel.

The matrices of a row's two antennas are worked out for each row anew.
"""

from __future__ import annotations

import functools

from numba import float32, float64, int32, uint64

from rime_kernels import device
from rime_kernels.compile.types import (
    Array,
    Compiled,
    DeviceKernel,
    Module,
)
from rime_kernels.cuda.kernels.arguments import DataColumns, DeviceSky, Results
from rime_kernels.cuda.kernels.jones.factors import make_enveloped, make_factor
from rime_kernels.cuda.kernels.jones.sums import make_add_product, make_to_stokes
from rime_kernels.cuda.kernels.jones.voltages import (
    CudaBeams,
    frame_of,
    is_circular,
    make_times_brightness,
    make_voltage,
    steps_of,
)
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
from rime_kernels.cuda.kernels.rows.sums import make_chi2_epilogue, make_visibilities_epilogue
from rime_kernels.cuda.kernels.samples import make_sample_arrays
from rime_kernels.jones_beam import matrices

# The simulator replaces a global of this name while a kernel runs: what declares arrays stands here.
cuda: Module = device.cuda


@functools.cache
def make_row_sums(kernel: RowKernel) -> DeviceKernel:
    """The kernel, ending in visibilities or in chi2, which it leaves as `rows.kernel.make_row_sums` does."""
    is_chi2, n_thread, run = kernel.is_chi2, kernel.shape.n_row, kernel.shape.run
    own_arrays, sample_arrays = make_row_registers(kernel), make_sample_arrays(kernel.end)
    index_block, find_row = make_index_block(kernel), make_find_row(kernel)
    sum_sources, sum_block = _make_sum_sources(kernel), make_sum_block(kernel)
    to_stokes = make_to_stokes(kernel.matrix, kernel.variant.single, run)
    chi2_epilogue, visibilities_epilogue = make_chi2_epilogue(kernel), make_visibilities_epilogue(kernel)

    @device.kernel(kernel.shape.max_register)
    def sum_rows(
        work: RowWork,
        tables: RowTables,
        sky: DeviceSky,
        columns: DataColumns,
        results: Results,
        beams: CudaBeams,
    ) -> None:
        partial = cuda.shared.array(n_thread, float64)
        own, samples = own_arrays(), sample_arrays()
        place, total = index_block(int32(cuda.threadIdx.x), cuda.blockIdx.x, cuda.blockIdx.y, work), 0.0
        # Threads without a row have nothing to sum, but do not return: all threads of a block reach the
        # barrier below.
        if place.local < work.n_row:
            row = find_row(place, work, tables, sky)
            sum_sources(place, row, work, tables, sky, beams, own.sums)
            to_stokes(own.sums)
            if is_chi2:
                # Nothing is left for matrices of antennas: any array may stand there.
                total = chi2_epilogue(
                    place, row, work, tables, sky, columns, sky.jones, samples, own.sums, own.of_kind
                )
            else:
                visibilities_epilogue(place, row, tables, sky, results.vis, sky.jones, samples, own.sums)
        if is_chi2:
            own.of_kind[0] = total
            sum_block(place, work, own.of_kind, partial, results.sums)

    return sum_rows


def _make_sum_sources(kernel: RowKernel) -> Compiled:
    """Function that sums all sources at one channel (runs have one) into a thread's `sums`, (8,)."""
    single, circular = kernel.variant.single, is_circular(kernel.matrix)
    real = float32 if single else float64
    voltage, times_brightness = make_voltage(single, circular), make_times_brightness(circular)
    factor_of, enveloped, next_source = make_factor(kernel), make_enveloped(kernel), make_next_source(kernel)
    add_product, times_number = make_add_product(1), device.inline(matrices.times_number.py_func)

    @device.part
    def sum_sources(
        place: Place,
        row: ThreadRow,
        work: RowWork,
        tables: RowTables,
        sky: DeviceSky,
        beams: CudaBeams,
        sums: Array,
    ) -> None:
        b, c, freq, offset = place.b, place.start, tables.chan_freq[place.start], row.bright
        n_source, steps = int32(sky.direction.shape[1]), steps_of(sky.beam_scale[place.b], beams)
        frame_p, frame_q = (
            frame_of(b, row.time, row.p, c, sky, beams),
            frame_of(b, row.time, row.q, c, sky, beams),
        )
        for k in range(8):
            sums[k] = real(0)
        for s in range(n_source):
            l, m = sky.direction[b, s, 0], sky.direction[b, s, 1]
            re, im = enveloped(b, s, freq, factor_of(b, s, row, freq, sky), sky)
            applies = beams.applies[min(s, beams.applies.size - 1)]
            p = times_number(voltage(frame_p, l, m, steps, applies, beams), re, im)
            q = voltage(frame_q, l, m, steps, applies, beams)
            p = times_brightness(p, sky.bright[offset], sky.bright[offset + uint64(1)])
            add_product(sums, 0, p, q)
            offset = next_source(offset, work)

    return sum_sources
