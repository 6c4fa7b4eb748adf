"""The gradient of chi2 on the CPU: for each source, sums over visibilities of the weighted residuals.

The order of the loops is the reverse of that in `forward.py`: for one source after the other, the entries of
a chunk that fits in the cache are added to sums in registers. Lanes are added up at the end of a task.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import Array, Pointer, Record, Vector
from rime_kernels.cpu.entries import (
    CHUNK,
    Entries,
    GradientSums,
    GradientWorkspace,
    add_columns,
    add_vector,
    chunk_of,
    fill_phases,
    fill_shape,
    fill_turns,
    put_envelope,
)
from rime_kernels.cpu.jones.adjoint import begin_piece, piece_of, pull_antennas, pull_chunk
from rime_kernels.cpu.jones.slot import JonesSlot
from rime_kernels.cpu.lanes import Nodes
from rime_kernels.cpu.outputs import Backward
from rime_kernels.cpu.profiles import pull_profile
from rime_kernels.cpu.simd import ahead, constant, dot, load, repeat, size, store
from rime_kernels.cpu.sums import CpuSky, EntryPointers, fill_terms, product
from rime_kernels.physics import beam, phase

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_argument, _argument_slopes, _voltage_slope = beam.argument, beam.argument_slopes, beam.voltage_slope
_C = phase.SPEED_OF_LIGHT

# Sources whose antenna terms fit in the L2 cache of a core.
PIECE = 48
# Numbers as arguments: Numba would compile a function once for each number in its text.
_0, _1, _4 = np.int64(0), np.int64(1), np.int64(4)


class Gains(NamedTuple):
    """Voltages of the antennas, and the sums for their derivatives."""

    voltage: Pointer  # (n_antenna, n_source, n)
    gradient: Pointer  # the same shape
    n_source: int


@inner_function
def _fill_products(entries: Entries, terms: Pointer, out: Pointer, lanes_like: Vector) -> None:
    """K_pq of a source from its antenna terms (n_antenna, 2, n), (n_entry, 2, n)."""
    n = size(lanes_like)
    for e in range(entries.n_entry):
        p, q = entries.antenna[2 * e], entries.antenna[2 * e + 1]
        re, im = product(ahead(terms, 2 * n * p), ahead(terms, 2 * n * q), _0, lanes_like)
        store(out, 2 * n * e, re)
        store(out, 2 * n * e + n, im)


@vector_function
def _through_gains(gains: Gains, p: int, q: int, re: Vector, lanes_like: Vector) -> Vector:
    """E_p E_q of a source; adds Re(z)/(E_p E_q) times the other voltage to the sums for E_p and E_q."""
    n = size(lanes_like)
    at_p, at_q = n * gains.n_source * p, n * gains.n_source * q
    e_p, e_q = load(gains.voltage, at_p, lanes_like), load(gains.voltage, at_q, lanes_like)
    store(gains.gradient, at_p, load(gains.gradient, at_p, lanes_like) + e_q * re)
    store(gains.gradient, at_q, load(gains.gradient, at_q, lanes_like) + e_p * re)
    return e_p * e_q


@inner_function
def _add_source(
    entries: Entries, products: Pointer, gains: Gains | None, shape: Record, bright: Pointer,
    of_brightness: Pointer, of_direction: Pointer, of_projection: Pointer, lane: Vector, lanes_like: Vector,
    stokes: Vector, wide: Vector,
) -> None:  # fmt: skip
    """Add a chunk of entries to the sums of a source, from K_pq times its envelope, (n_entry, 2, n).

    `gains` is None without antennas' voltages, `shape` (`fill_shape`) for points.
    """
    n, n_all, n_flat, zero = size(lanes_like), size(stokes), entries.n_flat, constant(0.0, lanes_like)
    b, of_b = load(bright, 0, stokes), constant(0.0, stokes)
    of_lmn, of_along, of_across = (zero, zero, zero), (zero, zero, zero), (zero, zero, zero)
    for e in range(entries.n_entry):
        k_re, k_im = load(products, 2 * n * e, lanes_like), load(products, 2 * n * e + n, lanes_like)
        r_re = load(entries.residual, 2 * n_all * e, stokes)
        r_im = load(entries.residual, 2 * n_all * e + n_all, stokes)
        s_re, s_im = dot(b, r_re, lanes_like), dot(b, r_im, lanes_like)
        if gains is not None:
            p, q = entries.antenna[2 * e], entries.antenna[2 * e + 1]
            power = _through_gains(gains, p, q, k_re * s_re + k_im * s_im, lanes_like)
            k_re, k_im = power * k_re, power * k_im
        of_b = of_b + repeat(k_re, stokes) * r_re + repeat(k_im, stokes) * r_im
        z_im = k_re * s_im - k_im * s_re
        of_lmn = add_columns(of_lmn, entries.coordinates, n_flat, _0, e, z_im, lane)
        if shape is not None:
            z_re = k_re * s_re + k_im * s_im
            of_along = add_columns(of_along, shape, n_flat, _1, e, z_re, lane)
            of_across = add_columns(of_across, shape, n_flat, _4, e, z_re, lane)
    add_vector(of_brightness, _0, of_b, wide)
    for k in range(3):
        add_vector(of_direction, n * k, of_lmn[k], wide)
        if shape is not None:
            add_vector(of_projection, n * k, of_along[k], wide)
            add_vector(of_projection, n * (3 + k), of_across[k], wide)


@inner_function
def _pull_source(
    work: GradientWorkspace, entries: Entries, sky: CpuSky, profiles: Record, gains: Gains | None, s: int,
    of_brightness: Pointer, lane: Vector, lanes_like: Vector, stokes: Vector, wide: Vector,
) -> None:  # fmt: skip
    """Add a chunk of entries to the sums of source s; `gains` as for `_add_source`."""
    n, n_all, g = size(lanes_like), size(stokes), s - sky.n_point
    bright, of_brightness = ahead(sky.bright, n_all * s), ahead(of_brightness, n_all * s)
    of_direction = ahead(work.sums.direction, 3 * n * s)
    is_profile = False
    if profiles is not None:
        is_profile = s >= profiles.first
        if is_profile:
            j = s - profiles.first
            pull_profile(
                profiles, entries, work.products, gains, j, bright, ahead(work.sums.projection, 6 * n * g),
                ahead(work.sums.profile, 8 * j), lane, lanes_like, stokes, wide,
            )  # fmt: skip
    if g < 0 or is_profile:
        _add_source(
            entries, work.products, gains, None, bright, of_brightness, of_direction, work.sums.projection,
            lane, lanes_like, stokes, wide,
        )  # fmt: skip
    else:
        fill_shape(entries, ahead(sky.projection, 6 * g), work.shape, lanes_like)
        put_envelope(entries, work.shape, work.products, lane, lanes_like)
        _add_source(
            entries, work.products, gains, work.shape, bright, of_brightness, of_direction,
            ahead(work.sums.projection, 6 * n * g), lane, lanes_like, stokes, wide,
        )  # fmt: skip


@inner_function
def _pull_chunk(
    factored: bool, work: GradientWorkspace, entries: Entries, sky: CpuSky, profiles: Record, n_antenna: int,
    first: int, stop: int, of_brightness: Pointer, lane: Vector, lanes_like: Vector, stokes: Vector,
    wide: Vector,
) -> None:  # fmt: skip
    """Add a chunk of entries to the sums of sources first .. stop - 1, whose antenna terms are made."""
    n = size(lanes_like)
    for s in range(first, stop):
        if factored:
            terms = ahead(work.terms, 2 * n * n_antenna * (s - first))
            _fill_products(entries, terms, work.products, lanes_like)
        else:
            fill_turns(entries, ahead(sky.direction, 3 * s), work.turns, lanes_like)
            fill_phases(entries, work.turns, work.products, lane, lanes_like)
        if sky.has_voltages:
            gains = Gains(ahead(sky.voltages, n * s), ahead(work.gains, n * s), sky.n_source)
            _pull_source(
                work, entries, sky, profiles, gains, s, of_brightness, lane, lanes_like, stokes, wide
            )
        else:
            _pull_source(work, entries, sky, profiles, None, s, of_brightness, lane, lanes_like, stokes, wide)


@inner_function
def backward_of(work: GradientWorkspace | None) -> Backward | None:
    """Where residuals are stored; None without `work`."""
    if work is None:
        return None
    return work.backward


@inner_function
def begin(work: GradientWorkspace, entry: int) -> None:
    """Note the first entry of the next slot, whose residuals come first in `work`."""
    if work is not None:
        work.backward.first[0] = entry


@inner_function
def at_node(
    work: GradientWorkspace, nodes: Nodes, node: int, n_entry: int, sky: CpuSky, stokes: Vector,
    wide: Vector,
) -> GradientWorkspace:  # fmt: skip
    """The workspace with n_entry residuals times the weight of a node, and the sums of its frequency."""
    if work is None:
        return None
    n, n_all, weight = size(wide), size(stokes), constant(nodes.weight[node], stokes)
    for k in range(2 * n_entry if nodes.weight.size > 1 else 0):
        store(work.residual, n_all * k, weight * load(work.backward.residual, n_all * k, stokes))
    freq = node % nodes.scale.shape[0]
    sums = GradientSums(
        ahead(work.sums.brightness, freq * work.n_each_freq),
        ahead(work.sums.direction, freq * 3 * n * sky.n_source),
        ahead(work.sums.projection, freq * 6 * n * (sky.n_source - sky.n_point)),
        work.sums.profile,
    )
    return GradientWorkspace(
        work.backward, work.residual, sums, work.n_each_freq, work.stokes_per_time, work.terms, work.products,
        work.metres, work.coordinates, work.turns, work.shape, work.pair, work.gains, work.of_beam_scale,
        work.of_voltage_lm, work.of_pointing, work.pointing_per_time,
    )  # fmt: skip


@inner_function
def pull_slot(
    factored: bool, work: GradientWorkspace, rows: EntryPointers, matrices: JonesSlot | None, sky: CpuSky,
    profiles: Record, slot: int, place: int, entry: int, stop: int, terms: Pointer, scale: Vector,
    lane: Vector, lanes_like: Vector, stokes: Vector, wide: Vector,
) -> None:  # fmt: skip
    """Add entries entry .. stop - 1 of a slot to the sums of a task, from the residuals in `work`.

    For a piece of the sources at a time; `lane` is a vector of as many lanes as coordinates have, 1 or n;
    `terms` are those of `matrices`.
    """
    n, n_all = size(lanes_like), size(stokes)
    of_brightness = ahead(work.sums.brightness, sky.n_source * n_all * (place if work.stokes_per_time else 0))
    bare = CpuSky(
        sky.n_source, sky.n_point, sky.first_varied, sky.stop_varied, sky.direction, sky.projection,
        sky.bright, False, sky.voltages, sky.circular,
    )  # fmt: skip
    antenna_uvw = ahead(rows.antenna_uvw, slot * rows.n_antenna * 3 * rows.n_slot_lane)
    step = piece_of(matrices, sky, PIECE)
    for first in range(sky.first_varied, sky.stop_varied, step):
        last = min(first + step, sky.stop_varied)
        if matrices is None:
            for s in range(first, last if factored else first):
                fill_terms(
                    bare, s, s + 1, antenna_uvw, rows.n_antenna, rows.n_slot_lane, scale,
                    ahead(work.terms, 2 * n * rows.n_antenna * (s - first)), lanes_like,
                )  # fmt: skip
        else:
            begin_piece(work, matrices, sky, first, last, terms, scale, lanes_like)
        for e in range(entry, stop, CHUNK):
            entries = chunk_of(rows, work, e, min(CHUNK, stop - e), scale, lane, lanes_like, stokes)
            if matrices is None:
                _pull_chunk(
                    factored, work, entries, sky, profiles, rows.n_antenna, first, last, of_brightness, lane,
                    lanes_like, stokes, wide,
                )  # fmt: skip
            else:
                pull_chunk(
                    work, rows, matrices, entries, sky, profiles, e, first, last, terms, lane, lanes_like,
                    wide,
                )  # fmt: skip
        if matrices is not None:
            pull_antennas(work, matrices, sky, place, first, last, terms, of_brightness, scale, lanes_like)


@inner_function
def pull_voltages(
    code: int, beam_scale: float, direction: Array, pointing: Array, antenna: Array, times: Array,
    scale: Array, place: int, work: GradientWorkspace,
) -> None:  # fmt: skip
    """From sums for voltages (`fill_voltages`) to those for the beam's scale, pointing errors and l, m."""
    n_source, n_lane, n_slot_lane = direction.shape[0], scale.size, times.size
    place = pointing.shape[1] * (place if work.pointing_per_time else 0)
    for a in range(antenna.shape[0]):
        for s in range(n_source):
            for i in range(n_lane):
                offset, j = (a * n_source + s) * n_lane + i, min(i, n_slot_lane - 1)
                gain = 2.0 * work.gains[offset]
                work.gains[offset] = 0.0
                if gain == 0.0:
                    continue
                which, nu = antenna[a, min(i, antenna.shape[1] - 1)], scale[i] * _C
                error = pointing[min(times[j], pointing.shape[0] - 1), which]
                dl, dm = direction[s, 0] - error[0], direction[s, 1] - error[1]
                gain *= _voltage_slope(code, _argument(beam_scale, nu, dl, dm))
                of_scale, of_l, of_m = _argument_slopes(beam_scale, nu, dl, dm)
                out = ((place + which) * 2) * n_slot_lane + j
                work.of_beam_scale[0] += gain * of_scale
                work.of_voltage_lm[2 * s] += gain * of_l
                work.of_voltage_lm[2 * s + 1] += gain * of_m
                work.of_pointing[out] -= gain * of_l
                work.of_pointing[out + n_slot_lane] -= gain * of_m
