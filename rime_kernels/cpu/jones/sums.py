"""Jones matrices of antennas towards sources, T_p = E_p P_p K_p, and sums over sources of T_p B T_q^H.

A 2x2 matrix is eight vectors over the lanes: real and imaginary part of 00, 01, 10, 11, in this order. In the
row form T has no K, which each row has of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import (
    Array,
    Matrix,
    Pointer,
    Record,
    Vector,
)
from rime_kernels.cpu.jones.spline import Sight, SlotFrames, fill_voltages, sample
from rime_kernels.cpu.simd import ahead, constant, convert, load, size, store
from rime_kernels.cpu.sums import CpuSky, make_sums, turns_along, wavelengths
from rime_kernels.cpu.vector_math import cos_sin_turns
from rime_kernels.jones_beam.matrices import (
    add_times_adjoint,
    rotated_circular,
    rotated_linear,
    scaled,
    times_hermitian,
    times_number,
)

# Sources whose matrices are computed and summed together: those of 64 antennas take 1 MB in double precision.
PIECE = 16


class SlotAntennas(NamedTuple):
    """The antennas of a slot, and scratch memory of the task."""

    n_antenna: int
    uvw: Pointer  # float64 (n_antenna, 3, n_uvw_lane), of the slot
    n_uvw_lane: int
    factored: bool  # T has the phases K
    times: Array  # int64 (1 or n,)
    chan: Array  # int64 (n,)
    alike: Pointer  # int64 (n_antenna,)
    frames: SlotFrames
    sight: Sight
    voltage: Pointer  # float64 (24, n): E, dE/dx, dE/dy
    scratch: Pointer  # float64 (8,)


@vector_function
def load_matrix(pointer: Pointer, offset: int, lanes_like: Vector) -> tuple[Vector, ...]:
    """Eight vectors from `offset` on."""
    n = size(lanes_like)
    return (
        load(pointer, offset, lanes_like), load(pointer, offset + n, lanes_like), load(pointer,
        offset + 2 * n,
        lanes_like),
        load(pointer, offset + 3 * n, lanes_like), load(pointer, offset + 4 * n, lanes_like), load(pointer,
        offset + 5 * n, lanes_like),
        load(pointer, offset + 6 * n, lanes_like), load(pointer, offset + 7 * n, lanes_like),
    )  # fmt: skip


@vector_function
def store_matrix(pointer: Pointer, offset: int, m: Matrix) -> None:
    """Eight vectors from `offset` on."""
    for k in range(8):
        store(pointer, offset + k * size(m[0]), m[k])


@vector_function
def zero_matrix(lanes_like: Vector) -> tuple[Vector, ...]:
    """0, 2x2."""
    zero = constant(0.0, lanes_like)
    return zero, zero, zero, zero, zero, zero, zero, zero


@vector_function
def times_brightness(t: Vector, bright: Pointer, circular: bool, lanes_like: Vector) -> Vector:
    """t B: `matrices.times_hermitian`."""
    n = size(lanes_like)
    first = 1 if circular else 0
    a, b = load(bright, 0, lanes_like), load(bright, (3 if circular else 1) * n, lanes_like)
    c, d = load(bright, (2 - first) * n, lanes_like), load(bright, (3 - first) * n, lanes_like)
    return times_hermitian(t, a, b, c, d)


@vector_function
def rotated(voltage: Pointer, frames: SlotFrames, a: int, circular: bool, lanes_like: Vector) -> Vector:
    """E P of antenna a from E (8, n), in the type of `lanes_like`."""
    n, v = size(lanes_like), load_matrix(voltage, 0, lanes_like)
    e = (
        convert(v[0], lanes_like), convert(v[1], lanes_like), convert(v[2], lanes_like), convert(v[3],
        lanes_like),
        convert(v[4], lanes_like), convert(v[5], lanes_like), convert(v[6], lanes_like), convert(v[7],
        lanes_like),
    )  # fmt: skip
    cos, sin = load(frames.rotation, 2 * n * a, lanes_like), load(frames.rotation, 2 * n * a + n, lanes_like)
    return rotated_circular(e, cos, sin) if circular else rotated_linear(e, cos, sin)


@vector_function
def antenna_phase(
    antennas: SlotAntennas, sky: CpuSky, a: int, s: int, scale: Vector, lanes_like: Vector
) -> tuple[Vector, Vector]:
    """K of antenna a towards source s; 1 in the row form."""
    re, im = constant(1.0, lanes_like), constant(0.0, lanes_like)
    if antennas.factored:
        u, v, w = wavelengths(antennas.uvw, a, antennas.n_uvw_lane, scale)
        re, im = cos_sin_turns(turns_along(u, v, w, sky.direction, 3 * s), lanes_like)
    return re, im


@vector_function
def _put_terms(
    antennas: SlotAntennas,
    sky: CpuSky,
    voltage: Pointer,
    a: int,
    s: int,
    scale: Vector,
    out: Pointer,
    lanes_like: Vector,
) -> None:
    """T and T B of antenna a towards source s from E, (2, 8, n)."""
    t = rotated(voltage, antennas.frames, a, sky.circular, lanes_like)
    if antennas.factored:
        re, im = antenna_phase(antennas, sky, a, s, scale, lanes_like)
        t = times_number(t, re, im)
    bright = ahead(sky.bright, 4 * size(lanes_like) * s)
    store_matrix(out, 0, t)
    store_matrix(out, 8 * size(lanes_like), times_brightness(t, bright, sky.circular, lanes_like))


@inner_function
def _fill_terms_of_channels(
    antennas: SlotAntennas,
    sky: CpuSky,
    first: int,
    stop: int,
    scale: Vector,
    terms: Pointer,
    lanes_like: Vector,
) -> None:
    """`fill_terms` where lanes are channels of one time. It takes no array: arrays cost time in each call."""
    n, sight = size(lanes_like), antennas.sight
    for s in range(first, stop):
        for a in range(antennas.n_antenna):
            if a == 0 or antennas.alike[a] == 0:
                store_matrix(sight.sample, 0, sample(sight, antennas.frames, sky.direction, s, a, lanes_like))
            out = ahead(terms, 16 * n * (a * (stop - first) + s - first))
            _put_terms(antennas, sky, sight.sample, a, s, scale, out, lanes_like)


@inner_function
def fill_terms(
    slot: Record, sky: CpuSky, first: int, stop: int, scale: Vector, terms: Pointer, lanes_like: Vector
) -> None:
    """T and T B of sources first .. stop - 1, (n_antenna, source, 2, 8, n), of a `JonesSlot`."""
    antennas = slot.antennas
    if antennas.sight.is_used:
        _fill_terms_of_channels(antennas, sky, first, stop, scale, terms, lanes_like)
        return
    for s in range(first, stop):
        for a in range(antennas.n_antenna):
            if a == 0 or antennas.alike[a] == 0:
                fill_voltages(slot, s, a, False)
            out = ahead(terms, 16 * size(lanes_like) * (a * (stop - first) + s - first))
            _put_terms(antennas, sky, antennas.voltage, a, s, scale, out, lanes_like)


# `sums` has the real parts of the four products, then their imaginary parts, as the epilogues read them.


@vector_function
def _begin(sums: Pointer, more: bool, lanes_like: Vector) -> Vector:
    n, m = size(lanes_like), zero_matrix(lanes_like)
    if more:
        m = (
            load(sums, 0, lanes_like), load(sums, 4 * n, lanes_like), load(sums, n, lanes_like), load(sums,
            5 * n, lanes_like),
            load(sums, 2 * n, lanes_like), load(sums, 6 * n, lanes_like), load(sums, 3 * n, lanes_like),
            load(sums, 7 * n, lanes_like),
        )  # fmt: skip
    return m


@vector_function
def _end(sums: Pointer, m: Matrix) -> None:
    for k in range(8):
        store(sums, (k // 2 + 4 * (k % 2)) * size(m[0]), m[k])


@inner_function
def sum_points(n_source: int, p: Pointer, q: Pointer, sums: Pointer, more: bool, lanes_like: Vector) -> None:
    """Add n_source points whose T have the phases; p and q point to the terms of two antennas."""
    n, total = size(lanes_like), _begin(sums, more, lanes_like)
    for s in range(n_source):
        left = load_matrix(p, 16 * n * s + 8 * n, lanes_like)
        total = add_times_adjoint(total, left, load_matrix(q, 16 * n * s, lanes_like))
    _end(sums, total)


@vector_function
def _term(p: Pointer, q: Pointer, i: int, lanes_like: Vector) -> tuple[Pointer, Pointer]:
    """Where T B of the one antenna and T of the other lie for source i: too many numbers for registers."""
    offset = 16 * size(lanes_like) * i
    return ahead(p, offset + 8 * size(lanes_like)), ahead(q, offset)


@vector_function
def _add_scaled(
    total: Matrix, term: tuple[Pointer, Pointer], bright: Pointer, i: int, e: Vector
) -> tuple[Vector, ...]:
    """A sum, plus source i times a real envelope."""
    return add_times_adjoint(total, scaled(load_matrix(term[0], 0, e), e), load_matrix(term[1], 0, e))


@vector_function
def _add_times(
    total: Matrix, term: tuple[Pointer, Pointer], bright: Pointer, i: int, e_re: Vector, e_im: Vector
) -> tuple[Vector, ...]:
    """A sum, plus source i times a complex envelope."""
    left = times_number(load_matrix(term[0], 0, e_re), e_re, e_im)
    return add_times_adjoint(total, left, load_matrix(term[1], 0, e_re))


@vector_function
def _add_row(
    total: Matrix, sky: CpuSky, p: Pointer, q: Pointer, bright: Pointer, i: int, re: Vector, im: Vector
) -> tuple[Vector, ...]:
    """A sum, plus source i times its phase and envelope."""
    return _add_times(total, _term(p, q, i, re), bright, i, re, im)


sum_shapes, sum_rows = make_sums(_begin, _end, _term, _add_scaled, _add_times, _add_row)
