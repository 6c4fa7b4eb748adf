"""The factored RIME on a CUDA device: a thread sums all sources for one tile of antennas.

A block works on some items (a time and a channel) of one batch entry and, of each, on the tiles of one split
(`_tiles`). Chunk by chunk of the sources it puts the terms of its antennas and the brightness into shared
memory, where each thread reads `side` + `side` terms for the side^2 baselines whose sums it keeps in
registers. While one chunk is summed the next is made: there are two buffers. No antenna term ever
reaches the device's memory.

Numba keeps a local array in registers where every index is a constant once loops of constant length are
unrolled; hence the many such loops, and hence the sums that move up at the end instead of an
index that moves down. Indices into shared memory are unsigned: signed ones cost a comparison each.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import complex64, complex128, float32, float64, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.cuda.kernels.adjoint_parts import moments_of
from rime_kernels.cuda.kernels.misfit import n_kinds
from rime_kernels.cuda.kernels.tile_adjoint import make_gather, make_join
from rime_kernels.cuda.kernels.tile_end import make_chi2, rooms
from rime_kernels.cuda.kernels.tile_parts import NO_ROW, TileKernel, make_correlation, make_terms
from rime_kernels.cuda.kernels.tile_sum import make_accumulate
from rime_kernels.physics import beam, phase

# The simulator replaces a global of this name while a kernel runs.
cuda: Any = device.cuda

_C = phase.SPEED_OF_LIGHT
_NO_BEAM = beam.NO_BEAM


@device.inline
def _term_at(slot: Any, side: Any, step: Any) -> Any:
    """Where the terms of a slot begin in shared memory: group by group, `step` apart."""
    group = uint32(slot // uint32(side))
    return uint32(group * uint32(step) + uint32(slot - group * uint32(side)))


@functools.cache
def make_tile_sums(kernel: TileKernel) -> Any:
    """The kernel, ending in visibilities, in chi2, or in chi2 and its adjoint.

    `vis_out` complex (n_batch, places of the slab, n_chan, n_corr), or `sum_out` float64 (n_batch, n_sum):
    chi2 of each layer, channel and split, layers counted from the first of all. Data and weights
    are those of the slab as `make_arrange` lays them out.

    Before an adjoint the tiles of a split are shared out over `n_part` blocks, and an item has `n_lanes`
    threads, a multiple of `TileKernel.n_lane`. `sum_out` then is (n_batch * `n_kinds`, n_sum), chi2
    followed by what templates gather, and turnovers; `moments` are the records (n_batch, items of the slab,
    n_split * n_part, n_source, `Moments.n_value`) of sources, and `by_antenna` what pointing errors gather at
    each antenna of the split, (n_batch, items of the slab, n_split * n_part, n_slot, 2); both flat.
    """
    variant, shape, has_gaussian = kernel.variant, kernel.shape, kernel.has_gaussian
    single, n_stokes, code, is_chi2 = variant.single, variant.n_stokes, variant.beam, kernel.is_chi2
    real, cplx = (float32, complex64) if single else (float64, complex128)
    side, n_thread, chunk = shape.side, shape.n_thread, shape.chunk
    max_slot, max_item = shape.n_slot, shape.n_item
    n_baseline, last, n_corr = side * side, side * side - 1, len(kernel.matrix) // 4
    n_sum = 2 * n_stokes * n_baseline
    # One element more than a group's terms: groups then begin in different banks.
    step = chunk * side + 1
    n_term = max_slot // side * step
    n_gauss, n_low = (2 * n_term if has_gaussian else 1), (2 * n_term if has_gaussian and single else 1)
    per_source = 2 if n_stokes == 4 else 1
    bright_step, per_item = (chunk + 1) * per_source, chunk * per_source
    n_bright = max_item * bright_step
    bright_type = cplx if n_stokes == 4 else real
    n_pointing = max_slot if code != _NO_BEAM else 1
    two_terms, two_brights, line = 2 * n_term, 2 * n_bright, 16 if single else 8
    n_glance = -(-n_baseline * n_corr // line)
    has_adjoint, n_sweep = kernel.has_adjoint, 2 if kernel.has_adjoint else 1
    n_lane, n_kind = kernel.n_lane, n_kinds(kernel.n_template, variant.log, kernel.has_adjoint)
    record = moments_of(variant, has_gaussian)
    room, point_room = record.most_room, record.room(False)
    n_partial = chunk * (n_thread // n_lane) * room if has_adjoint else 1
    partial_step = n_thread // n_lane * room
    n_uvw, n_terms, n_of_antenna = 3 * n_baseline if has_adjoint else 1, 6 * side, 2 * side
    has_voltage = has_adjoint and code != _NO_BEAM
    n_shown, n_by_slot = (2 * side * n_thread, 2 * max_slot) if has_voltage else (1, 1)
    n_datum, n_factor, n_back, n_model = rooms(kernel)
    join = make_join(kernel)
    gather_points, gather_narrow = make_gather(kernel, False), make_gather(kernel, True)
    gather_wide = make_gather(kernel, True, True) if single else gather_narrow
    correlation = make_correlation(kernel.matrix, single)
    fill_terms, tile_chi2 = make_terms(kernel), make_chi2(kernel)
    add_points, add_narrow = make_accumulate(kernel, False), make_accumulate(kernel, True)
    add_wide = make_accumulate(kernel, True, True) if single else add_narrow
    votes = has_gaussian and single

    @device.inline
    def differences(of: Any, p: Any, q: Any, last_slot: Any, into: Any, first: int) -> None:
        """One coordinate of the tile's baselines; short loops, which are unrolled."""
        for i in range(side):
            x = min(uint32(p + uint32(i)), last_slot)
            for j in range(side):
                y = min(uint32(q + uint32(j)), last_slot)
                into[first + i * side + j] = real(of[x] - of[y])

    # fmt: off
    @device.kernel(shape.max_register)
    def sum_tiles(
        n_item: int, n_used: int, n_total: int, n_batch: int, first_layer: int, first_place: int,
        n_gaussian: int, first_time: int, n_bright_time: int, reach: float,
        place: Any, layer_time: Any, antenna: Any, group: Any, antenna_uvw: Any, chan_freq: Any,
        direction: Any, projection: Any, beam_scale: Any, pointing: Any, factors: Any, bright: Any,
        vis: Any, weight: Any, template: Any, stride: int, vis_out: Any, sum_out: Any,
        n_part: int, n_lanes: int, member_start: Any, member: Any, moments: Any, by_antenna: Any,
    ) -> None:
        # fmt: on
        # A line for each: the simulator tells shared arrays apart by their line.
        term = cuda.shared.array(two_terms, cplx)
        high = cuda.shared.array(n_gauss, cplx)
        low = cuda.shared.array(n_low, cplx)
        stage = cuda.shared.array(two_brights, bright_type)
        u = cuda.shared.array(max_slot, float64)
        v = cuda.shared.array(max_slot, float64)
        w = cuda.shared.array(max_slot, float64)
        at = cuda.shared.array(max_slot, uint32)
        nu_of = cuda.shared.array(n_pointing, float64)
        dl = cuda.shared.array(n_pointing, float64)
        dm = cuda.shared.array(n_pointing, float64)
        bright_at = cuda.shared.array(max_item, int64)
        partial = cuda.shared.array(n_thread, float64)
        gathered = cuda.shared.array(n_partial, real)
        shown = cuda.shared.array(n_shown, real)
        by_slot = cuda.shared.array(n_by_slot, float64)
        sums = cuda.local.array(n_sum, real)
        of_kind = cuda.local.array(n_kind, float64)
        uvw, terms = cuda.local.array(n_uvw, real), cuda.local.array(n_terms, real)
        re, im = cuda.local.array(n_datum, real), cuda.local.array(n_datum, real)
        weights, back = cuda.local.array(n_datum, real), cuda.local.array(n_back, real)
        factor_re, factor_im = cuda.local.array(n_factor, real), cuda.local.array(n_factor, real)
        model_re, model_im = cuda.local.array(n_model, real), cuda.local.array(n_model, real)
        value, of_antenna = cuda.local.array(room, real), cuda.local.array(n_of_antenna, real)

        thread = int32(cuda.threadIdx.x)
        n_chan, n_slot, n_source = uint32(chan_freq.size), uint32(antenna.shape[1]), int32(direction.shape[1])
        n_split, n_tile = uint32(place.shape[1]), uint32(place.shape[3])
        block = uint32(cuda.blockIdx.x)
        n_copy = n_split
        if has_adjoint:
            n_copy = uint32(n_split * uint32(n_part))
        copy, rest = uint32(block % n_copy), uint32(block // n_copy)
        split = copy
        if has_adjoint:
            split = uint32(copy // uint32(n_part))
        # Entries of the batch follow one another, and read the same data.
        b = uint32(rest % uint32(n_batch))
        first_item = uint32(uint32(rest // uint32(n_batch)) * uint32(n_item))
        n_here = min(int32(n_item), int32(n_total) - int32(first_item))
        n_used = uint32(n_used)
        n_x = uint32(uint32(n_here) * n_used)

        # What each antenna term of the block needs.
        x = uint32(thread)
        while x < n_x:
            j = uint32(x // n_used)
            slot, item = uint32(x - j * n_used), uint32(first_item + j)
            layer = uint32(item // n_chan)
            c = uint32(item - layer * n_chan)
            t, a = layer_time[uint32(first_layer) + layer], antenna[split, slot]
            scale = chan_freq[c] / _C
            u[x], v[x], w[x] = (
                antenna_uvw[t, a, 0] * scale,
                antenna_uvw[t, a, 1] * scale,
                antenna_uvw[t, a, 2] * scale,
            )
            at[x] = _term_at(uint32(uint32(j * n_slot) + slot), side, step)
            if code != _NO_BEAM:
                pointing_time = min(t, pointing.shape[1] - 1)
                nu_of[x] = chan_freq[c]
                dl[x], dm[x] = pointing[b, pointing_time, a, 0], pointing[b, pointing_time, a, 1]
            if slot == 0:
                at_time = int64(b) * n_bright_time + min(t - first_time, n_bright_time - 1)
                bright_at[j] = (at_time * int64(n_chan) + int64(c)) * n_source * per_source
            x = uint32(x + uint32(n_thread))
        # Places without an antenna, whose sums meet weights of 0, must not hold NaN.
        n_gap = uint32(n_slot - n_used)
        x = uint32(uint32(n_thread - 1) - uint32(thread))
        while x < uint32(n_here) * n_gap * uint32(2 * chunk):
            of_slot, k = uint32(x // uint32(2 * chunk)), uint32(x % uint32(2 * chunk))
            j = uint32(of_slot // n_gap)
            slot = uint32(uint32(j * n_slot) + n_used + uint32(of_slot - j * n_gap))
            into = uint32(_term_at(slot, side, step) + uint32(k % uint32(chunk)) * uint32(side))
            into = uint32(into + uint32(k // uint32(chunk)) * uint32(n_term))
            term[into] = 0.0
            if has_gaussian:
                high[into] = 0.0
                if single:
                    low[into] = 0.0
            x = uint32(x + uint32(n_thread))
        local, tile = int32(uint32(thread) // n_tile), int32(uint32(thread) % n_tile)
        active = local < n_here
        # Tiles that the block takes of the split, and which of them is this thread's.
        n_mine, mine = int32(n_tile), tile
        if has_adjoint:
            per_part = int32(uint32(n_tile + uint32(n_part - 1)) // uint32(n_part))
            first_tile = int32(uint32(copy - split * uint32(n_part))) * per_part
            n_mine = min(per_part, int32(n_tile) - first_tile)
            local = int32(uint32(thread) // uint32(n_lanes))
            mine = int32(thread - local * int32(n_lanes))
            active = local < n_here and mine < n_mine
            tile = first_tile + (mine if active else int32(0))
        item = uint32(first_item + uint32(local if active else 0))
        of_split = uint64(item) * uint64(n_split) + uint64(split)
        first_datum = of_split * uint64(n_baseline * n_corr) * uint64(n_tile)
        # The data are wanted at the end: a glance at every line of them now brings them near.
        glance = cuda.local.array(n_glance, real)
        for k in range(n_glance):
            far = uint32(tile + int32(k) * int32(n_tile)) * uint32(line)
            glance[k] = real(0)
            if is_chi2 and active and far < n_baseline * n_corr * n_tile:
                glance[k] = vis[first_datum + uint64(far)].real
        cuda.syncthreads()

        p, q, of_bright = uint32(0), uint32(0), uint32(0)
        if active:
            first_group = local * int32(n_slot) // side
            p = uint32((first_group + group[0, split, tile]) * step)
            q = uint32((first_group + group[1, split, tile]) * step)
            of_bright = uint32(local * bright_step)
        for k in range(n_sum):
            sums[k] = real(0)
        if has_voltage:
            x = uint32(thread)
            while x < uint32(2) * n_x:
                by_slot[x] = 0.0
                x = uint32(x + uint32(n_thread))

        # Chunk after chunk; of points or of Gaussians, not of both.
        n_stage = uint32(n_here * int32(per_item))
        is_stager = uint32(thread) < n_stage
        j_mine = uint32(uint32(thread) // uint32(per_item))
        k_mine = uint32(uint32(thread) - j_mine * uint32(per_item))
        into_mine = uint32(j_mine * uint32(bright_step) + k_mine)
        at_mine = bright_at[j_mine] + int64(k_mine) if is_stager else int64(0)
        n_point = n_source - n_gaussian
        for sweep in range(n_sweep):
            before, n_before, start, buffer = int32(-1), int32(0), int32(0), int32(0)
            any_wide = 0  # of the chunk that was made before
            while before < n_source:
                n_now, wide = int32(0), False
                if start < n_source:
                    gaussian = start - n_point
                    n_now = min(int32(chunk), (n_source if gaussian >= 0 else n_point) - start)
                    # Asked for before the terms are made, put down after: the wait goes by meanwhile.
                    early = bright_type(0)
                    if is_stager and k_mine < uint32(n_now * per_source):
                        early = bright[at_mine + int64(start * per_source)]
                    wide = fill_terms(
                        thread, n_x, b, start, n_now, gaussian, uint32(buffer * n_term), reach, u, v, w, at,
                        nu_of, dl, dm, direction, projection, beam_scale[b], term, high, low,
                    )  # fmt: skip
                    if is_stager:
                        stage[uint32(uint32(buffer * n_bright) + into_mine)] = early
                    e = uint32(thread + n_thread)
                    while e < n_stage:
                        j = uint32(e // uint32(per_item))
                        k = uint32(e - j * uint32(per_item))
                        if k < n_now * per_source:
                            into = uint32(uint32(buffer * n_bright) + j * uint32(bright_step) + k)
                            stage[into] = bright[bright_at[j] + int64(k) + int64(start * per_source)]
                        e = uint32(e + uint32(n_thread))
                if before >= 0 and (active or sweep == 1):
                    # The chunk that was made before, from the other buffer.
                    of_term, of_stage = uint32((1 - buffer) * n_term), uint32((1 - buffer) * n_bright)
                    at_p, at_q, at_b = p + of_term, q + of_term, of_bright + of_stage
                    of_gaussian = has_gaussian and before >= n_point
                    if sweep == 1:
                        voltage = (
                            shown, by_slot, n_lanes, n_here, n_used, member_start[copy], member[copy],
                            nu_of, dl, dm, direction, b, before, beam_scale[b],
                        )  # fmt: skip
                        into = uint32(uint32(thread // n_lane) * uint32(room))
                        if of_gaussian and any_wide:
                            gather_wide(
                                thread, n_before, term, high, low, stage, at_p, at_q, at_b, sums, uvw, terms,
                                value, gathered, into, partial_step, of_antenna, voltage,
                            )  # fmt: skip
                        elif of_gaussian:
                            gather_narrow(
                                thread, n_before, term, high, low, stage, at_p, at_q, at_b, sums, uvw, terms,
                                value, gathered, into, partial_step, of_antenna, voltage,
                            )  # fmt: skip
                        else:
                            gather_points(
                                thread, n_before, term, high, low, stage, at_p, at_q, at_b, sums, uvw, terms,
                                value, gathered, into, partial_step, of_antenna, voltage,
                            )  # fmt: skip
                        cuda.syncthreads()
                        first_record = (int64(b) * n_total + first_item) * int64(n_copy) + int64(copy)
                        join(
                            thread, n_before, n_here, n_lanes, room if of_gaussian else point_room, gathered,
                            moments, first_record * n_source + before, int64(n_copy) * n_source,
                        )  # fmt: skip
                    elif of_gaussian:
                        if any_wide:
                            add_wide(n_before, term, high, low, stage, at_p, at_q, at_b, sums, terms)
                        else:
                            add_narrow(n_before, term, high, low, stage, at_p, at_q, at_b, sums, terms)
                    else:
                        add_points(n_before, term, high, low, stage, at_p, at_q, at_b, sums, terms)
                if votes:
                    any_wide = cuda.syncthreads_or(int32(wide))
                else:
                    cuda.syncthreads()
                before, n_before = start, n_now
                start += n_now
                buffer = 1 - buffer

            if is_chi2 and sweep == 0:
                total = 0.0
                for k in range(1, n_kind):
                    of_kind[k] = 0.0
                if active:
                    for k in range(n_glance):
                        total += glance[k] * real(0)
                    at_datum = first_datum + uint64(tile)
                    of_item = uint32(local) * n_used
                    first_p = uint32(of_item + uint32(group[0, split, tile] * side))
                    first_q = uint32(of_item + uint32(group[1, split, tile] * side))
                    last_slot = uint32(of_item + n_used - uint32(1))
                    total += tile_chi2(
                        at_datum, n_tile, vis, weight, template, stride, factors[b], sums,
                        first_p, first_q, last_slot, u, v, w, of_kind,
                        (re, im, weights, factor_re, factor_im, back, model_re, model_im),
                    )  # fmt: skip
                    if has_adjoint:
                        differences(u, first_p, first_q, last_slot, uvw, 0)
                        differences(v, first_p, first_q, last_slot, uvw, n_baseline)
                        differences(w, first_p, first_q, last_slot, uvw, 2 * n_baseline)
                elif has_adjoint:
                    for n in range(n_uvw):
                        uvw[n] = real(0)
                # A tree over the tiles of each item: an order that depends on their number alone.
                of_kind[0] = total
                for k in range(n_kind):
                    partial[thread] = of_kind[k]
                    cuda.syncthreads()
                    width = int32(1)
                    while width < n_mine:
                        width *= 2
                    while width > 1:
                        width //= 2
                        if active and mine < width and mine + width < n_mine:
                            partial[thread] += partial[thread + width]
                        cuda.syncthreads()
                    if active and mine == 0:
                        into_sum = int64(first_layer) * int64(n_chan) + int64(item)
                        into_sum = into_sum * int64(n_copy) + int64(copy)
                        sum_out[int64(b) * n_kind + k, into_sum] = partial[thread]
                    if k + 1 < n_kind:
                        cuda.syncthreads()
        if not is_chi2 and active:
            layer = uint32(item // n_chan)
            c = uint32(item - layer * n_chan)
            for n in range(n_baseline):
                found = place[uint32(first_layer) + layer, split, n, tile]
                if found != NO_ROW:
                    sign = real(1) if found > 0 else real(-1)
                    row = abs(found) - 1 - first_place
                    for k in range(n_corr):
                        x_re, x_im = correlation(k, n_stokes, n_baseline, 0, sign, sums)
                        vis_out[b, row, c, k] = complex(x_re, x_im)
                for j in range(2 * n_stokes):
                    for k in range(last):
                        sums[j * n_baseline + k] = sums[j * n_baseline + k + 1]
        if has_voltage:
            x = uint32(thread)
            per_copy = uint32(2) * n_slot
            while x < uint32(n_here) * per_copy:
                j = uint32(x // per_copy)
                k = uint32(x - j * per_copy)
                row = (int64(b) * n_total + int64(first_item + j)) * int64(n_copy) + int64(copy)
                # Slots without an antenna gather nothing.
                is_used = k < uint32(2) * n_used
                at_slot = uint32(j * uint32(2) * n_used + k)
                by_antenna[row * int64(per_copy) + int64(k)] = by_slot[at_slot] if is_used else 0.0
                x = uint32(x + uint32(n_thread))

    return sum_tiles
