"""The sum over a chunk of sources for a thread's tile, and how it ends in chi2 or in visibilities."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from numba import float32, float64, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import baseline, epilogue, scalars
from rime_kernels.cuda.kernels.antennas import Pair, make_pair_of
from rime_kernels.cuda.kernels.arguments import DataColumns, DeviceSky
from rime_kernels.cuda.kernels.baseline import AntennaTerm, Corner, Staged, Stokes
from rime_kernels.cuda.kernels.chi2_terms import make_chi2_terms
from rime_kernels.cuda.kernels.samples import EpilogueSamples
from rime_kernels.cuda.kernels.tiles.parts import (
    NO_ROW,
    Slots,
    Tile,
    TileBlock,
    TileKernel,
    TileTables,
    TileWork,
    sizes_of,
)
from rime_kernels.cuda.kernels.tiles.tensor_cores import N_COLUMN, make_fetch_line, make_read_complex
from rime_kernels.physics import phase

_turns = phase.turns


class SourceTerms(NamedTuple):
    """What a source is added to the sums of a thread from."""

    staged: Staged
    p: Scalar  # where the terms of the first antennas begin
    stokes: Stokes
    sums: Array
    second: Array


@functools.cache
def make_accumulate(kernel: TileKernel, gaussian: bool, wide: bool = False) -> Compiled:
    """Function that adds `n_source` sources to the sums of a thread's tiles, (2 n_stokes side^2,) each.

    Sources are points or Gaussians; coordinates of `wide` ones come in a high and a low part. `second` is
    memory for 6 numbers for each of the tiles' second antennas. Tiles of a thread share their first antennas
    (`layouts.tile_table.Bundle`).
    """
    single, n_stokes, side = kernel.variant.single, kernel.variant.n_stokes, kernel.shape.side
    sizes, n_own, n_baseline = sizes_of(kernel), kernel.shape.n_own, side * side
    n_sum, per_source, n_second = sizes.n_sum, sizes.per_source, 6 * side
    next_tile = N_COLUMN // side * sizes.step  # where the second antennas of the next tile are
    read_first = baseline.make_read_first(single, gaussian, wide)
    read_second = baseline.make_read_second(side, gaussian, wide)
    read_stokes, product = (
        baseline.make_read_stokes(single, per_source**2, uint32, kernel.variant.stokes),
        baseline.make_product(single, side, gaussian, wide),
    )
    add_stokes = baseline.make_add_stokes(n_stokes, n_baseline)

    @device.part
    def add_row(i: int, given: SourceTerms) -> None:
        stokes, sums, second = given.stokes, given.sums, given.second
        first = read_first(given.staged, given.p + uint32(i))
        if n_stokes == 1:
            # I goes into the first antenna's term: one product for all second ones.
            first = AntennaTerm(
                stokes.i * first.re, stokes.i * first.im,
                first.along, first.across, first.along_low, first.across_low,
            )  # fmt: skip
        for tile in range(n_own):
            for j in range(side):
                n, offset = tile * n_sum + i * side + j, tile * n_second + j
                if n_stokes == 1 and not gaussian:
                    # The product goes straight into the sums, which takes four multiply-adds.
                    sums[n] += first.re * second[offset]
                    sums[n] += first.im * second[side + offset]
                    sums[n + n_baseline] += first.im * second[offset]
                    sums[n + n_baseline] -= first.re * second[side + offset]
                    continue
                re, im, _, _ = product(first, second, offset)
                if n_stokes > 1:
                    add_stokes(sums, n, stokes, re, im)
                else:
                    sums[n] += re
                    sums[n + n_baseline] += im

    # The exponential takes a polynomial in double precision.
    add_rows = baseline.make_all_rows(add_row, side, is_short=single or not gaussian or side <= 3)

    @device.part
    def accumulate(n_source: int, staged: Staged, corner: Corner, sums: Array, second: Array) -> None:
        p, q, b = corner.p, corner.q, corner.bright
        end = uint32(p + uint32(n_source) * uint32(side))
        # The loop counts by the place of the terms: a counter of its own would take one more register.
        while p != end:
            # Both are the same for all first antennas, so that they are read once for a source.
            for k in range(n_own):
                read_second(staged, uint32(q + uint32(k * next_tile)), second, k * n_second)
            add_rows(SourceTerms(staged, p, read_stokes(staged.bright, b), sums, second))
            p, q, b = uint32(p + uint32(side)), uint32(q + uint32(side)), uint32(b + uint32(per_source))

    return accumulate


@functools.cache
def make_add_gaussians(kernel: TileKernel) -> Compiled:
    """Function that adds a chunk of Gaussians to the sums by the code for wide or narrow ones."""
    add_narrow, single = make_accumulate(kernel, True), kernel.variant.single
    add_wide = make_accumulate(kernel, True, True) if single else add_narrow

    @device.part
    def add_gaussians(
        n_source: int, any_wide: Scalar, corner: Corner, staged: Staged, sums: Array, second: Array
    ) -> None:
        if single and any_wide:
            add_wide(n_source, staged, corner, sums, second)
        else:
            add_narrow(n_source, staged, corner, sums, second)

    return add_gaussians


@functools.cache
def make_look_ahead(kernel: TileKernel) -> Compiled:
    """Function that reads one datum of every line of a tile's data, into `glance`.

    They are wanted at the end: now they come nearer meanwhile. Where tensor cores sum nothing is read: an
    instruction has the lines of data and weights brought.
    """
    if kernel.uses_tensor_cores:
        return _make_fetch_ahead(kernel)
    real, n_datum = float32 if kernel.variant.single else float64, kernel.shape.side**2 * kernel.end.n_corr
    sizes, reads_data = sizes_of(kernel), kernel.is_chi2 and kernel.rest_of is None
    line, n_glance = sizes.line, sizes.n_glance

    @device.inline
    def look_ahead(tile: Tile, tables: TileTables, columns: DataColumns, glance: Array) -> None:
        n_tile = uint32(tables.place.shape[3])
        for k in range(n_glance):
            # Neighbouring threads read neighbouring lines, so that the tiles of a split read each line once.
            far = uint32(tile.tile + int32(k) * int32(n_tile)) * uint32(line)
            # Set where nothing is read, too: the ending adds all of them.
            glance[k] = real(0)
            if reads_data and tile.active and far < n_datum * n_tile:
                glance[k] = columns.vis[tile.first_datum + uint64(far)].real

    return look_ahead


def _make_fetch_ahead(kernel: TileKernel) -> Compiled:
    """Function that has all data and weights of the item of a thread's tiles brought to L2; no `glance`."""
    fetch, sizes, n_datum = make_fetch_line(), sizes_of(kernel), kernel.shape.side**2 * kernel.end.n_corr
    line, n_line, is_chi2 = sizes.line, sizes.n_glance, kernel.is_chi2
    # A weight is half as long as a visibility.
    n_weight_line = (n_line + 1) // 2

    @device.inline
    def fetch_ahead(tile: Tile, tables: TileTables, columns: DataColumns, glance: Array) -> None:
        if is_chi2 and tile.active:
            n_all = uint32(uint32(n_datum) * uint32(tables.place.shape[3]))
            # Neighbouring threads have neighbouring lines.
            for k in range(n_line):
                far = uint32(uint32(tile.mine + int32(k) * tile.n_mine) * uint32(line))
                if far < n_all:
                    fetch(columns.vis, tile.first_datum + uint64(far))
            for k in range(n_weight_line):
                far = uint32(uint32(tile.mine + int32(k) * tile.n_mine) * uint32(2 * line))
                if far < n_all:
                    fetch(columns.weight, tile.first_datum + uint64(far))

    return fetch_ahead


class Baselines(NamedTuple):
    """Where the antennas of a tile lie in `Slots`, uint32; the last stands for those that are not there."""

    p: Scalar
    q: Scalar
    last: int


@functools.cache
def make_baselines(kernel: TileKernel) -> Compiled:
    """Function that says where a tile's antennas lie."""
    side = kernel.shape.side

    @device.inline
    def baselines_of(block: TileBlock, tile: Tile, tables: TileTables) -> Baselines:
        of_item = uint32(tile.local) * block.n_used
        p = uint32(of_item + uint32(tables.group[0, block.split, tile.tile] * side))
        q = uint32(of_item + uint32(tables.group[1, block.split, tile.tile] * side))
        # Behind the last antenna that is there, `Slots` goes on with those of the next item.
        return Baselines(p, q, uint32(of_item + block.n_used - uint32(1)))

    return baselines_of


@functools.cache
def make_ends(kernel: TileKernel) -> Compiled:
    """Function that says where the two antennas of sample j of step i of an ending lie."""
    side, width = kernel.shape.side, kernel.end.width

    @device.inline
    def ends(i: int, j: int, baselines: Baselines) -> tuple[Scalar, Scalar]:
        n = uint32(uint32(i) * uint32(width) + uint32(j))
        row = uint32(n // uint32(side))
        # Where the last group of antennas is not full, its last antenna stands in: weights are 0 there.
        x = min(uint32(baselines.p + row), baselines.last)
        return x, min(uint32(baselines.q + (n - row * uint32(side))), baselines.last)

    return ends


@functools.cache
def make_tile_pair(kernel: TileKernel) -> Compiled:
    """Function that gives the `Pair` of sample j of step i, in the order of its row's antennas.

    `offset` is where the first datum of the sample lies,
    `term` the shared memory in which `make_stage_gains` has
    put matrices that stay diagonal.
    """
    ends, uses, has_adjoint = make_ends(kernel), kernel.variant.jones, kernel.has_adjoint
    pair_of, width = make_pair_of(kernel.end), kernel.end.width
    if kernel.end.staged:

        @device.inline
        def staged_pair(
            i: int, j: int, sign: Scalar, offset: int, term: Array, block: TileBlock, tile: Tile,
            work: TileWork, tables: TileTables, baselines: Baselines, sky: DeviceSky, by_pair: Array,
        ) -> Pair:  # fmt: skip
            x, y = ends(i, j, baselines)
            if sign < 0:  # the row has its antennas in the other order
                x, y = y, x
            into, b = int64(-1), int64(0)
            if has_adjoint:
                into, b = int64(2) * int64(offset), int64(block.b)
            step = int64(2) * int64(tables.place.shape[3])
            return Pair(term, uint32(uint32(2) * x), uint32(uint32(2) * y), by_pair[b], into, step)

        return staged_pair

    @device.inline
    def tile_pair(
        i: int, j: int, sign: Scalar, offset: int, term: Array, block: TileBlock, tile: Tile,
        work: TileWork,
        tables: TileTables, baselines: Baselines, sky: DeviceSky, by_pair: Array,
    ) -> Pair:  # fmt: skip
        if not uses:
            return pair_of(sky, by_pair, block.b, 0, 0, 0, 0, 0, 0)
        n_chan = uint32(tables.chan_freq.size)
        layer = uint32(tile.item // n_chan)
        c, time = uint32(tile.item - layer * n_chan), tables.layer_time[uint32(work.first_layer) + layer]
        x, y = ends(i, j, baselines)
        of_item, row = uint32(tile.local) * block.n_used, int32(-1)
        first = tables.antenna[block.split, uint32(x - of_item)]
        second = tables.antenna[block.split, uint32(y - of_item)]
        if has_adjoint:
            found = tables.place[uint32(work.first_layer) + layer, block.split, i * width + j, tile.tile]
            if found != NO_ROW:
                row = int32(abs(found) - 1 - work.first_place)
        if sign < 0:  # the row has its antennas in the other order
            first, second = second, first
        return pair_of(sky, by_pair, block.b, time, first, second, row, c, n_chan)

    return tile_pair


@functools.cache
def make_stage_gains(kernel: TileKernel) -> Compiled:
    """Function that puts the elements of matrices that stay diagonal where the terms of sources were.

    Those of both feeds of each of a block's slots, `Slots`; no thread may still read terms.
    """
    n_thread, real = kernel.shape.n_thread, float32 if kernel.variant.single else float64

    @device.part
    def stage_gains(
        block: TileBlock, work: TileWork, tables: TileTables, sky: DeviceSky, term: Array
    ) -> None:
        n_used, n_chan = block.n_used, uint32(tables.chan_freq.size)
        jones = sky.jones[min(int64(block.b), int64(sky.jones.shape[0] - 1))]
        n_time, n_block = int64(sky.n_jones_time), int64(sky.n_jones_chan)
        x = uint32(block.thread)
        while x < block.n_x:
            j = uint32(x // n_used)
            slot, item = uint32(x - j * n_used), uint32(block.first_item + j)
            layer = uint32(item // n_chan)
            c = uint32(item - layer * n_chan)
            time, antenna = (
                tables.layer_time[uint32(work.first_layer) + layer],
                tables.antenna[block.split, slot],
            )
            matrix = int64(jones[time]) * int64(sky.n_jones_antenna) + int64(antenna)
            offset = n_time + int64(n_chan) + int64(8) * (matrix * n_block + int64(jones[n_time + int64(c)]))
            term[uint32(2) * x] = complex(real(jones[offset]), real(jones[offset + 1]))
            term[uint32(2) * x + uint32(1)] = complex(real(jones[offset + 6]), real(jones[offset + 7]))
            x = uint32(x + uint32(n_thread))

    return stage_gains


@functools.cache
def make_fill_factors(kernel: TileKernel) -> Compiled:
    """Function that fills the factors of the templates for the samples of step i: scale, and phase."""
    single, n_template, shifted = kernel.variant.single, kernel.n_template, kernel.variant.shifted
    real, width = float32 if single else float64, kernel.end.width
    cos_sin, ends = scalars.make_cos_sin(single), make_ends(kernel)

    @device.inline
    def fill_factors(
        i: int, baselines: Baselines, slots: Slots, factor: Array, samples: EpilogueSamples
    ) -> None:
        u, v, w = slots.u, slots.v, slots.w
        for t in range(n_template):
            for j in range(width):
                samples.factor_re[t * width + j] = real(factor[t, 0])
                samples.factor_im[t * width + j] = real(0)
                if shifted:
                    x, y = ends(i, j, baselines)
                    turns = _turns(
                        u[x] - u[y], v[x] - v[y], w[x] - w[y], factor[t, 1], factor[t, 2], factor[t, 3]
                    )
                    cos, sin = cos_sin(turns)
                    samples.factor_re[t * width + j] = real(factor[t, 0]) * cos
                    samples.factor_im[t * width + j] = real(factor[t, 0]) * sin

    return fill_factors


@functools.cache
def make_read_samples(kernel: TileKernel) -> Compiled:
    """Function that reads the data of the samples at hand, templates taken off, and the weights.

    Templates that are seen through matrices are summed by themselves.
    A tile's neighbour lies beside it, its next datum `n_tile` behind. Gives where the next ones begin.
    """
    single, n_template, shifted = kernel.variant.single, kernel.n_template, kernel.variant.shifted
    real, width, end = float32 if single else float64, kernel.end.width, kernel.end
    n_corr, n_datum, through = end.n_corr, end.n_datum, kernel.variant.jones and n_template > 0
    n_taken = 0 if kernel.variant.given and not through else n_template
    # By one load; the compiler does not know that complex numbers begin at multiples of their size.
    at_once, read_complex = single and kernel.uses_tensor_cores, make_read_complex()

    @device.inline
    def read_samples(offset: int, n_tile: Scalar, columns: DataColumns, samples: EpilogueSamples) -> Scalar:
        re, im, weight = samples.re, samples.im, samples.weight
        # All loads stand together, before chi2 is computed, so that their waits overlap.
        for k in range(n_datum):
            if at_once:
                re[k], im[k] = read_complex(columns.vis, offset)
            else:
                z = columns.vis[offset]
                re[k], im[k] = z.real, z.imag
            weight[k] = columns.weight[offset]
            if through:
                samples.template_re[k], samples.template_im[k] = real(0), real(0)
            for t in range(n_taken):
                z = columns.template[offset + uint64(t) * uint64(columns.stride)]
                factor = samples.factor_re[t * width + k // n_corr]
                if through:
                    # As below: the opposite phase where antennas are in the other order.
                    other = math.copysign(real(1), weight[k]) * samples.factor_im[t * width + k // n_corr]
                    samples.template_re[k] += factor * z.real - other * z.imag
                    samples.template_im[k] += factor * z.imag + other * z.real
                    continue
                re[k] -= factor * z.real
                im[k] -= factor * z.imag
                if shifted:
                    # Antennas in the other order make the opposite phase; the weight's sign says so.
                    factor = math.copysign(real(1), weight[k]) * samples.factor_im[t * width + k // n_corr]
                    re[k] += factor * z.imag
                    im[k] -= factor * z.real
            offset += uint64(n_tile)
        return offset

    return read_samples


@functools.cache
def make_chi2_epilogue(kernel: TileKernel) -> Compiled:
    """Function that gives the chi2 of a thread's tile, or its sum of logarithms; spends the sums.

    Before an adjoint they become the weighted residuals in Stokes parameters, and `of_kind` what the
    templates of the tile accumulate: four sums each, halved derivatives of `Inputs.template`; and one sum of
    `chi2_terms`. A weight below 0 says that antenna2 is on the tile's first side.
    """
    single, n_template, end, has_rest = (
        kernel.variant.single,
        kernel.n_template,
        kernel.end,
        kernel.has_rest,
    )
    n, width, n_corr, n_datum = end.n, end.width, end.n_corr, end.n_datum
    one_over = make_chi2_terms(kernel.variant.log, single, n_template, has_rest).one_over_scaled_dof
    fill_factors, read_samples, ends = make_fill_factors(kernel), make_read_samples(kernel), make_ends(kernel)
    sample_chi2, move_up, clear_back = (
        epilogue.make_sample_chi2(end),
        epilogue.make_move_up(end),
        epilogue.make_clear_back(end),
    )
    accumulate_template_gradients = epilogue.make_accumulate_template_gradients(
        single, n_template, kernel.variant.shifted
    )
    tile_pair, real = make_tile_pair(kernel), float32 if single else float64

    @device.part
    def chi2_epilogue(
        block: TileBlock, tile: Tile, work: TileWork, tables: TileTables, baselines: Baselines, slots: Slots,
        sky: DeviceSky, columns: DataColumns, term: Array, by_pair: Array, samples: EpilogueSamples,
        sums: Array, of_kind: Array,
    ) -> Scalar:  # fmt: skip
        u, v, w = slots.u, slots.v, slots.w
        n_tile, factor = uint32(tables.place.shape[3]), sky.template_factor[block.b]
        # Total in float64: a sum over few samples, but part of one over millions.
        total, tail = 0.0, one_over(factor)
        offset = uint64(tile.first_datum + uint64(tile.tile))
        for i in range(n // width):
            fill_factors(i, baselines, slots, factor, samples)
            begin = offset
            offset = read_samples(offset, n_tile, columns, samples)
            if has_rest:
                clear_back(samples.back)
            for j in range(width):
                sign = math.copysign(real(1), samples.weight[j * n_corr])
                first = begin + uint64(j * n_corr) * uint64(n_tile)
                pair = tile_pair(i, j, sign, first, term, block, tile, work, tables, baselines, sky, by_pair)
                total = sample_chi2(total, j, samples, sums, tail, of_kind, pair)
            # The samples at hand are always the first sums, so that every index is a constant (registers).
            move_up(sums, samples.back)
            if has_rest and n_template:
                for k in range(n_datum):
                    # `offset` lies behind the data that were read, so it is counted back from there.
                    x, y = ends(i, k // n_corr, baselines)
                    accumulate_template_gradients(
                        offset - uint64(n_datum - k) * uint64(n_tile), samples.re[k], samples.im[k],
                        samples.weight[k], columns, factor, u[x] - u[y], v[x] - v[y], w[x] - w[y], of_kind,
                    )  # fmt: skip
        return total

    return chi2_epilogue


@functools.cache
def make_visibilities_epilogue(kernel: TileKernel) -> Compiled:
    """Function that writes the visibilities of a thread's tile, `Results.vis`, and spends its sums."""
    n, real = kernel.shape.side**2, float32 if kernel.variant.single else float64
    # One sample at a time: the place of the next is looked up while the last is written.
    one = kernel.end._replace(width=1)
    write, move_up = epilogue.make_write_visibilities(one), epilogue.make_move_up(one)
    tile_pair, baselines_of = make_tile_pair(kernel), make_baselines(kernel)
    width = kernel.end.width

    @device.part
    def visibilities_epilogue(
        block: TileBlock, tile: Tile, work: TileWork, tables: TileTables, sky: DeviceSky, vis: Array,
        term: Array,
        by_pair: Array, sums: Array, samples: EpilogueSamples,
    ) -> None:  # fmt: skip
        baselines, back = baselines_of(block, tile, tables), samples.back
        n_chan = uint32(tables.chan_freq.size)
        layer = uint32(tile.item // n_chan)
        c = uint32(tile.item - layer * n_chan)
        for k in range(n):
            found = tables.place[uint32(work.first_layer) + layer, block.split, k, tile.tile]
            # Places are numbered from 1, for 0 has no sign; a minus sign: antennas in the other order.
            if found != NO_ROW:
                sign = real(1) if found > 0 else real(-1)
                i, j = k // width, k % width
                pair = tile_pair(
                    i, j, sign, uint64(0), term, block, tile, work, tables, baselines, sky, by_pair
                )
                row = abs(found) - 1 - work.first_place
                write(vis, block.b, row, c, sign, sums, samples, pair)
            move_up(sums, back)

    return visibilities_epilogue


@functools.cache
def make_next_sums(kernel: TileKernel) -> Compiled:
    """Function that brings the sums of the next one of a thread's tiles to the front, once it has one."""
    sizes = sizes_of(kernel)
    n_sum, n_more = sizes.n_sum, sizes.n_own_sum - sizes.n_sum

    @device.inline
    def next_sums(sums: Array) -> None:
        for k in range(n_more):
            sums[k] = sums[n_sum + k]

    return next_sums
