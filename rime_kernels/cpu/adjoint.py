"""The gradient of chi2 on the CPU: for each source, sums over visibilities of the weighted residuals.

The order of the loops is the reverse of that in `forward.py`: for one source after the other, the entries of
a chunk that fits in the cache are added to sums in registers. Lanes are added up at the end of a task.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import Array, Pointer, Record, Vector
from rime_kernels.cpu.lanes import Nodes
from rime_kernels.cpu.outputs import Backward
from rime_kernels.cpu.profiles import pull_profile
from rime_kernels.cpu.simd import ahead, constant, convert, dot, load, repeat, size, spread, store
from rime_kernels.cpu.sums import CpuSky, fill_terms, product
from rime_kernels.cpu.vector_math import cos_sin_turns, exp
from rime_kernels.physics import beam, envelope, phase

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_argument, _argument_slopes, _voltage_slope = beam.argument, beam.argument_slopes, beam.voltage_slope
_C, _squared = phase.SPEED_OF_LIGHT, envelope.squared

# Entries whose residuals fit in the L1 cache of a core, and sources whose antenna terms fit in the L2 cache.
CHUNK, PIECE = 32, 48
# Numbers as arguments: Numba would compile a function once for each number in its text.
_0, _1, _4 = np.int64(0), np.int64(1), np.int64(4)


class Entries(NamedTuple):
    """A chunk of entries; pointers to contiguous arrays, `n` the number of lanes."""

    n_entry: int
    antenna: Pointer  # (n_entry, 2)
    residual: Pointer  # (n_entry, 2, n_stokes, n)
    metres: Pointer  # float64 (3, n_flat); flat: (n_entry, 1 or n lanes), padded to whole vectors
    coordinates: Pointer  # the same in working precision
    n_flat: int
    scale: Vector  # float64 vector: nu/c of the block


class GradientSums(NamedTuple):
    """Sums of a task over its entries, lane by lane; pointers to float64."""

    brightness: Pointer  # (n_source, n_stokes, n)
    direction: Pointer  # (n_source, 3, n): of Im(z) with u, v, w in metres
    projection: Pointer  # (n_shape, 6, n): of Re(z) with products of coordinates, as `fill_shape`
    profile: Pointer  # (n_profile, 8): half the derivatives, summed over lanes


class GradientWorkspace(NamedTuple):
    """What a task needs for the gradient besides its forward loop; pointers to the task's own arrays."""

    backward: Backward
    residual: Pointer  # that of `backward`; of several nodes another array, for those times a node's weight
    sums: GradientSums  # brightness: (n_place, ...), a place for each slot where brightness belongs to a time
    n_each_freq: int  # numbers of `sums.brightness` to a node of frequency; those of the others follow
    stokes_per_time: bool
    terms: Pointer  # (PIECE, n_antenna, 2, n)
    products: Pointer  # (CHUNK, 2, n)
    metres: Pointer  # float64 (3, CHUNK, n)
    coordinates: Pointer  # the same in working precision
    turns: Pointer  # float64 (CHUNK, n)
    shape: Pointer  # (7, CHUNK, n)
    pair: Pointer  # (2,): 0, 1: the antennas of an entry that has its own voltages
    gains: Pointer  # (n_antenna or 2, n_source, n): sums for voltages; 0 between slots
    of_beam_scale: Pointer  # float64 (1,)
    of_voltage_lm: Pointer  # float64 (n_source, 2)
    of_pointing: Pointer  # float64 (n_place, n_antenna, 2, n_slot_lane)
    pointing_per_time: bool


class Gains(NamedTuple):
    """Voltages of the antennas, and the sums for their derivatives."""

    voltage: Pointer  # (n_antenna, n_source, n)
    gradient: Pointer  # the same shape
    n_source: int


@inner_function
def fill_coordinates(
    uvw: Pointer,
    n_lane: int,
    n_entry: int,
    metres: Pointer,
    coordinates: Pointer,
    n_flat: int,
    lanes_like: Vector,
) -> None:
    """Coordinates of a chunk one after the other: metres (3, n_flat), and in working precision."""
    for k in range(3):
        for e in range(n_entry):
            for i in range(n_lane):
                metres[k * n_flat + e * n_lane + i] = uvw[(3 * e + k) * n_lane + i]
        for offset in range(k * n_flat, (k + 1) * n_flat, size(lanes_like)):
            store(coordinates, offset, convert(load(metres, offset, lanes_like), lanes_like))


@vector_function
def _along(metres: Pointer, n_flat: int, offset: int, axis: Pointer, lanes_like: Vector) -> Vector:
    """Coordinates in metres times a vector of three numbers, float64."""
    u, v, w = (
        load(metres, offset, lanes_like),
        load(metres, offset + n_flat, lanes_like),
        load(metres, offset + 2 * n_flat, lanes_like),
    )
    return u * spread(axis[0], u) + v * spread(axis[1], u) + w * spread(axis[2], u)


@inner_function
def fill_turns(entries: Entries, direction: Pointer, out: Pointer, lanes_like: Vector) -> None:
    """Turns of a source at a frequency where nu/c = 1, float64 (n_flat,)."""
    for offset in range(0, entries.n_flat, size(lanes_like)):
        store(out, offset, _along(entries.metres, entries.n_flat, offset, direction, lanes_like))


@inner_function
def fill_shape(entries: Entries, projection: Pointer, out: Pointer, lanes_like: Vector) -> None:
    """Fill the coordinates that the envelope of a Gaussian depends on, (7, n_flat) in working precision.

    With a, b = c times the coordinates along and across: -(a^2 + b^2), then a u, a v, a w, b u, b v, b w.
    """
    n_flat = entries.n_flat
    for offset in range(0, n_flat, size(lanes_like)):
        a = _along(entries.metres, n_flat, offset, projection, lanes_like)
        b = _along(entries.metres, n_flat, offset, ahead(projection, 3), lanes_like)
        c = constant(_C, a)
        a, b = c * a, c * b
        store(out, offset, convert(-_squared(a, b), lanes_like))
        a, b = convert(a, lanes_like), convert(b, lanes_like)
        for k in range(3):
            x = load(entries.coordinates, k * n_flat + offset, lanes_like)
            store(out, (1 + k) * n_flat + offset, a * x)
            store(out, (4 + k) * n_flat + offset, b * x)


@inner_function
def _fill_products(entries: Entries, terms: Pointer, out: Pointer, lanes_like: Vector) -> None:
    """K_pq of a source from its antenna terms (n_antenna, 2, n), (n_entry, 2, n)."""
    n = size(lanes_like)
    for e in range(entries.n_entry):
        p, q = entries.antenna[2 * e], entries.antenna[2 * e + 1]
        re, im = product(ahead(terms, 2 * n * p), ahead(terms, 2 * n * q), _0, lanes_like)
        store(out, 2 * n * e, re)
        store(out, 2 * n * e + n, im)


@inner_function
def fill_phases(entries: Entries, turns: Pointer, out: Pointer, lane: Vector, lanes_like: Vector) -> None:
    """K_pq of a source from its turns (n_flat,), (n_entry, 2, n)."""
    n = size(lanes_like)
    for e in range(entries.n_entry):
        there = repeat(load(turns, e * size(lane), lane), lanes_like)
        re, im = cos_sin_turns(there * entries.scale, lanes_like)
        store(out, 2 * n * e, re)
        store(out, 2 * n * e + n, im)


@inner_function
def put_envelope(entries: Entries, shape: Pointer, terms: Pointer, lane: Vector, lanes_like: Vector) -> None:
    """Multiply terms (n_entry, 2, n) by the envelope of a Gaussian, from `fill_shape`."""
    n = size(lanes_like)
    scale = convert(entries.scale, lanes_like)
    square = scale * scale
    for e in range(entries.n_entry):
        envelope = exp(repeat(load(shape, e * size(lane), lane), lanes_like) * square)
        store(terms, 2 * n * e, envelope * load(terms, 2 * n * e, lanes_like))
        store(terms, 2 * n * e + n, envelope * load(terms, 2 * n * e + n, lanes_like))


@vector_function
def add_vector(sums: Pointer, offset: int, vector: Vector, wide: Vector) -> None:
    """Add a vector to float64 numbers."""
    store(sums, offset, load(sums, offset, vector) + convert(vector, wide))


@vector_function
def _through_gains(gains: Gains, p: int, q: int, re: Vector, lanes_like: Vector) -> Vector:
    """E_p E_q of a source; adds Re(z)/(E_p E_q) times the other voltage to the sums for E_p and E_q."""
    n = size(lanes_like)
    at_p, at_q = n * gains.n_source * p, n * gains.n_source * q
    e_p, e_q = load(gains.voltage, at_p, lanes_like), load(gains.voltage, at_q, lanes_like)
    store(gains.gradient, at_p, load(gains.gradient, at_p, lanes_like) + e_q * re)
    store(gains.gradient, at_q, load(gains.gradient, at_q, lanes_like) + e_p * re)
    return e_p * e_q


@vector_function
def _at(values: Pointer, n_flat: int, k: int, e: int, lane: Vector, lanes_like: Vector) -> Vector:
    """Number k of entry e of (..., n_flat), in all lanes."""
    return repeat(load(values, k * n_flat + e * size(lane), lane), lanes_like)


@vector_function
def add_columns(
    sums: tuple[Vector, Vector, Vector], values: Pointer, n_flat: int, k: int, e: int, factor: Vector,
    lane: Vector,
) -> tuple[Vector, Vector, Vector]:  # fmt: skip
    """Three sums with the factor times numbers k, k + 1, k + 2 of entry e."""
    first, second, third = sums
    first = first + factor * _at(values, n_flat, k, e, lane, factor)
    second = second + factor * _at(values, n_flat, k + 1, e, lane, factor)
    third = third + factor * _at(values, n_flat, k + 2, e, lane, factor)
    return first, second, third


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
    factored: bool, work: GradientWorkspace, rows: Record, sky: CpuSky, profiles: Record, slot: int,
    place: int,
    entry: int, stop: int, scale: Vector, lane: Vector, lanes_like: Vector, stokes: Vector, wide: Vector,
) -> None:  # fmt: skip
    """Add entries entry .. stop - 1 of a slot to the sums of a task, from the residuals in `work`.

    For a piece of the sources at a time; `lane` is a vector of as many lanes as coordinates have, 1 or n.
    """
    n, n_all, n_lane = size(lanes_like), size(stokes), size(lane)
    n_place = sky.n_source * n_all * (place if work.stokes_per_time else 0)
    of_brightness = ahead(work.sums.brightness, n_place)
    bare = CpuSky(
        sky.n_source, sky.n_point, sky.first_varied, sky.stop_varied, sky.direction, sky.projection,
        sky.bright, False, sky.voltages,
    )  # fmt: skip
    antenna_uvw = ahead(rows.antenna_uvw, slot * rows.n_antenna * 3 * rows.n_slot_lane)
    for first in range(sky.first_varied, sky.stop_varied, PIECE):
        last = min(first + PIECE, sky.stop_varied)
        for s in range(first, last if factored else first):
            fill_terms(
                bare, s, s + 1, antenna_uvw, rows.n_antenna, rows.n_slot_lane, scale,
                ahead(work.terms, 2 * n * rows.n_antenna * (s - first)), lanes_like,
            )  # fmt: skip
        for e in range(entry, stop, CHUNK):
            n_entry = min(CHUNK, stop - e)
            n_flat = -(-n_entry * n_lane // n) * n
            fill_coordinates(
                ahead(rows.uvw, 3 * n_lane * e),
                n_lane,
                n_entry,
                work.metres,
                work.coordinates,
                n_flat,
                lanes_like,
            )
            entries = Entries(
                n_entry, ahead(rows.antenna, 2 * e) if rows.has_same else work.pair,
                ahead(work.residual, 2 * n_all * (e - work.backward.first[0])), work.metres, work.coordinates,
                n_flat, scale,
            )  # fmt: skip
            _pull_chunk(
                factored, work, entries, sky, profiles, rows.n_antenna, first, last, of_brightness, lane,
                lanes_like, stokes, wide,
            )  # fmt: skip


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
