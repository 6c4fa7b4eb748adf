"""The sum over sources for a row and a run of channels, and how it ends in chi2 or in visibilities."""

from __future__ import annotations

import functools

from numba import float32, float64, int32, int64, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import epilogue, scalars
from rime_kernels.cuda.kernels.antennas import make_pair_of
from rime_kernels.cuda.kernels.arguments import DataColumns, DeviceSky
from rime_kernels.cuda.kernels.baseline import make_add_stokes, make_read_stokes
from rime_kernels.cuda.kernels.chi2_terms import make_chi2_terms, n_kinds
from rime_kernels.cuda.kernels.profiles import COORDINATE_SCALE, make_envelope_of
from rime_kernels.cuda.kernels.rows.parts import (
    Place,
    RowKernel,
    RowTables,
    RowWork,
    ThreadRow,
    make_next_source,
    make_turning,
    turned_on,
)
from rime_kernels.cuda.kernels.samples import EpilogueSamples
from rime_kernels.physics import beam, envelope, phase

_turns = phase.turns
_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM


@functools.cache
def make_sum_sources(kernel: RowKernel) -> Compiled:
    """Function that sums all sources into a thread's `sums`, (2 n_stokes run,) as in `baseline`.

    `exponent`, (run,), becomes the squares of the frequencies by that of the first channel.
    """
    single, n_stokes, code = kernel.variant.single, kernel.variant.n_stokes, kernel.variant.beam
    run, has_gaussian = kernel.shape.run, kernel.has_gaussian
    real, n_sum, per_source = float32 if single else float64, 2 * n_stokes * run, 2 if n_stokes == 4 else 1
    exp2, turning_of = scalars.exp2_function(single), make_turning(kernel)
    squared = device.inline(envelope.squared.py_func)
    read_stokes, add_stokes = make_read_stokes(single, n_stokes, uint64), make_add_stokes(n_stokes, run)
    next_source, envelope_of = make_next_source(kernel), make_envelope_of(kernel.variant.profiles)
    has_profile, has_sums = kernel.variant.profiles is not None, kernel.has_sums

    @device.part
    def sum_sources(
        place: Place,
        row: ThreadRow,
        work: RowWork,
        tables: RowTables,
        sky: DeviceSky,
        sums: Array,
        exponent: Array,
    ) -> None:
        b, start, chan_freq = place.b, place.start, tables.chan_freq
        n_source, n_chan, first_freq = int32(sky.direction.shape[1]), int32(chan_freq.size), chan_freq[start]
        for k in range(n_sum):
            sums[k] = real(0)
        for k in range(run):
            # A run that ends behind the last channel takes that one again; its sums are never read.
            c = min(start + int32(k), n_chan - int32(1))
            ratio = chan_freq[c] / first_freq
            exponent[k] = real(ratio * ratio)
        n_point, offset = n_source - sky.n_gaussian, row.bright
        for s in range(n_source if has_sums else int32(0)):
            l, m = sky.direction[b, s, 0], sky.direction[b, s, 1]
            turning = turning_of(b, s, s - n_point, row, first_freq, work.step_freq, sky)
            re, im, step_re, step_im = turning.re, turning.im, turning.step_re, turning.step_im
            profile = s - (n_source - sky.n_profile)
            is_gaussian = has_gaussian and s >= n_point
            if has_profile and profile >= 0:
                is_gaussian = False
            # The envelope's exponent grows as the square of the frequency: one number for the whole run.
            size2 = real(squared(turning.along, turning.across))
            for k in range(run):
                e = real(1)
                if is_gaussian:
                    e = exp2(exponent[k] * size2)
                if code != _NO_BEAM:
                    nu, pointing = chan_freq[min(start + int32(k), n_chan - int32(1))], sky.pointing
                    dl, dm = l - pointing[b, row.slot, row.p, 0], m - pointing[b, row.slot, row.p, 1]
                    x_p = _argument(sky.beam_scale[b], nu, dl, dm)
                    dl, dm = l - pointing[b, row.slot, row.q, 0], m - pointing[b, row.slot, row.q, 1]
                    x_q = _argument(sky.beam_scale[b], nu, dl, dm)
                    e *= real(_voltage(code, x_p) * _voltage(code, x_q))
                stokes = read_stokes(sky.bright, offset + uint64(k * per_source))
                x, y = e * re, e * im
                if has_profile and profile >= 0:
                    at_freq = chan_freq[min(start + int32(k), n_chan - int32(1))]
                    scale = COORDINATE_SCALE * (at_freq / first_freq)
                    along, across = scale * turning.along, scale * turning.across
                    e_re, e_im = envelope_of(sky, b, profile, along, across, at_freq)
                    x, y = real(e_re) * x - real(e_im) * y, real(e_re) * y + real(e_im) * x
                add_stokes(sums, k, stokes, x, y)
                re, im = turned_on(re, im, step_re, step_im)
            offset = next_source(offset, work)

    return sum_sources


@functools.cache
def make_read_samples(kernel: RowKernel) -> Compiled:
    """Function that reads the data of the thread's row at channel c, templates taken off, and the weights.

    Templates that are seen through matrices are summed by themselves.

    From `first` on, a correlation every n_row: neighbouring threads have neighbouring rows.
    """
    single, n_template, shifted = kernel.variant.single, kernel.n_template, kernel.variant.shifted
    n_corr, n_row = kernel.end.n_corr, kernel.shape.n_row
    real, cos_sin = float32 if single else float64, scalars.make_series_cos_sin(single)
    through = kernel.variant.jones and n_template > 0
    n_taken = 0 if kernel.variant.given and not through else n_template

    @device.inline
    def read_samples(
        first: int, nu: Scalar, row: ThreadRow, columns: DataColumns, factor: Array, samples: EpilogueSamples
    ) -> None:
        for t in range(n_template):
            samples.factor_re[t], samples.factor_im[t] = real(factor[t, 0]), real(0)
            if shifted:
                # The phase is computed for this row alone: the row form has no coordinates of antennas.
                turns = _turns(row.u, row.v, row.w, factor[t, 1], factor[t, 2], factor[t, 3])
                cos, sin = cos_sin(turns * nu)
                samples.factor_re[t], samples.factor_im[t] = (
                    samples.factor_re[t] * cos,
                    samples.factor_re[t] * sin,
                )
        for j in range(n_corr):
            offset = first + j * n_row
            datum, samples.weight[j] = columns.vis[offset], columns.weight[offset]
            samples.re[j], samples.im[j] = datum.real, datum.imag
            if through:
                samples.template_re[j], samples.template_im[j] = real(0), real(0)
            for t in range(n_taken):
                z = columns.template[offset + t * columns.stride]
                if through:
                    factor_re, factor_im = samples.factor_re[t], samples.factor_im[t]
                    samples.template_re[j] += factor_re * z.real - factor_im * z.imag
                    samples.template_im[j] += factor_re * z.imag + factor_im * z.real
                    continue
                # `tiles.sums` takes off term by term, which rounds otherwise: both stay as they are.
                samples.re[j] -= samples.factor_re[t] * z.real - samples.factor_im[t] * z.imag
                samples.im[j] -= samples.factor_re[t] * z.imag + samples.factor_im[t] * z.real

    return read_samples


@functools.cache
def make_chi2_epilogue(kernel: RowKernel) -> Compiled:
    """Function that gives the chi2 of a thread's row and channels, and spends its sums.

    Before an adjoint the weighted residuals take the place of the sums, and `of_kind` has the sums for the
    derivatives with respect to templates and the scaled degrees of freedom.
    """
    end, run, n_row = kernel.end, kernel.shape.run, kernel.shape.n_row
    single, has_adjoint = kernel.variant.single, kernel.has_adjoint
    n_corr, n_kind = end.n_corr, n_kinds(kernel.n_template, kernel.variant.log, has_adjoint)
    one_over = make_chi2_terms(kernel.variant.log, single, kernel.n_template, has_adjoint).one_over_scaled_dof
    read_samples, sample_chi2 = make_read_samples(kernel), epilogue.make_sample_chi2(end)
    move_up, clear_back = epilogue.make_move_up(end), epilogue.make_clear_back(end)
    accumulate_template_gradients = epilogue.make_accumulate_template_gradients(
        single, kernel.n_template, kernel.variant.shifted
    )
    pair_of = make_pair_of(end)

    @device.part
    def chi2_epilogue(
        place: Place, row: ThreadRow, work: RowWork, tables: RowTables, sky: DeviceSky, columns: DataColumns,
        by_pair: Array,
        samples: EpilogueSamples, sums: Array, of_kind: Array,
    ) -> Scalar:  # fmt: skip
        n_chan, factor = int32(tables.chan_freq.size), sky.template_factor[place.b]
        n_here, tail, total = min(int32(run), n_chan - place.start), one_over(factor), 0.0
        # Before an adjoint threads without a row have the last one again: nothing of theirs is left.
        of_row = place.local if place.local < work.n_row else int32(-1)
        for k in range(1, n_kind):
            of_kind[k] = 0.0
        for k in range(n_here):
            # The last run may be shorter, so the loop is not unrolled: hence the sums that move up.
            nu = tables.chan_freq[place.start + k]
            # 64 bits: data of a slab may be more than 2^31.
            first = ((int64(place.block) * n_chan + place.start + k) * n_corr) * n_row + place.thread
            clear_back(samples.back)
            read_samples(first, nu, row, columns, factor, samples)
            pair = pair_of(sky, by_pair, place.b, row.time, row.p, row.q, of_row, place.start + k, n_chan)
            total = sample_chi2(total, 0, samples, sums, tail, of_kind, pair)
            if has_adjoint:
                for j in range(n_corr):
                    accumulate_template_gradients(
                        uint64(first + j * n_row), samples.re[j], samples.im[j], samples.weight[j], columns,
                        factor, row.u * nu, row.v * nu, row.w * nu, of_kind,
                    )  # fmt: skip
            move_up(sums, samples.back)
        if has_adjoint:
            # Channels behind the last one have no residuals.
            for _ in range(n_here, run):
                clear_back(samples.back)
                move_up(sums, samples.back)
        return total

    return chi2_epilogue


@functools.cache
def make_visibilities_epilogue(kernel: RowKernel) -> Compiled:
    """Function that writes a thread's visibilities, `Results.vis`, and spends its sums."""
    end, run, real = kernel.end, kernel.shape.run, float32 if kernel.variant.single else float64
    write, move_up = epilogue.make_write_visibilities(end), epilogue.make_move_up(end)
    pair_of = make_pair_of(end)

    @device.part
    def visibilities_epilogue(
        place: Place, row: ThreadRow, tables: RowTables, sky: DeviceSky, vis: Array, by_pair: Array,
        samples: EpilogueSamples,
        sums: Array,
    ) -> None:  # fmt: skip
        n_chan = int32(tables.chan_freq.size)
        for k in range(min(int32(run), n_chan - place.start)):
            c = place.start + k
            pair = pair_of(sky, by_pair, place.b, row.time, row.p, row.q, place.local, c, n_chan)
            write(vis, place.b, place.local, c, real(1), sums, samples, pair)
            move_up(sums, samples.back)

    return visibilities_epilogue
