"""Chunks of entries for the gradient: what their positions and shapes, and a task's sums, are made of."""

from __future__ import annotations

from typing import NamedTuple

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import Pointer, Vector
from rime_kernels.cpu.outputs import Backward
from rime_kernels.cpu.simd import ahead, constant, convert, load, repeat, size, spread, store
from rime_kernels.cpu.sums import EntryPointers
from rime_kernels.cpu.vector_math import cos_sin_turns, exp
from rime_kernels.physics import envelope, phase

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_C, _squared = phase.SPEED_OF_LIGHT, envelope.squared

# Entries whose residuals fit in the L1 cache of a core.
CHUNK = 32


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
    terms: Pointer  # (PIECE, n_antenna, 2, n); of matrices those of the forward loop
    products: Pointer  # (CHUNK, 2, n)
    metres: Pointer  # float64 (3, CHUNK, n)
    coordinates: Pointer  # the same in working precision
    turns: Pointer  # float64 (CHUNK, n)
    shape: Pointer  # (7, CHUNK, n)
    pair: Pointer  # (2,): 0, 1: the antennas of an entry that has its own voltages
    # (n_antenna or 2, n_source, n): sums for voltages, 0 between slots; or (n_antenna, PIECE, 8, n): H
    gains: Pointer
    of_beam_scale: Pointer  # float64 (1,)
    of_voltage_lm: Pointer  # float64 (n_source, 2)
    of_pointing: Pointer  # float64 (n_place, n_antenna or 1, 2 or 4, n_slot_lane)
    pointing_per_time: bool


@inner_function
def _fill_coordinates(
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


@inner_function
def chunk_of(
    rows: EntryPointers, work: GradientWorkspace, entry: int, n_entry: int, scale: Vector, lane: Vector,
    lanes_like: Vector, stokes: Vector,
) -> Entries:  # fmt: skip
    """The n_entry entries from `entry` on, with their coordinates in `work`."""
    n, n_lane = size(lanes_like), size(lane)
    n_flat = -(-n_entry * n_lane // n) * n
    uvw = ahead(rows.uvw, 3 * n_lane * entry)
    _fill_coordinates(uvw, n_lane, n_entry, work.metres, work.coordinates, n_flat, lanes_like)
    return Entries(
        n_entry, ahead(rows.antenna, 2 * entry) if rows.has_same else work.pair,
        ahead(work.residual, 2 * size(stokes) * (entry - work.backward.first[0])), work.metres,
        work.coordinates, n_flat, scale,
    )  # fmt: skip


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
