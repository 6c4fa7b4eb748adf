"""Antenna terms and sums over sources on the CPU: the inner loops, where most of the time is spent."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import Compiled, Pointer, Record, Vector
from rime_kernels.cpu.profiles import enveloped, n_before_profiles, profile_envelope
from rime_kernels.cpu.simd import ahead, constant, convert, load, repeat, size, spread, store
from rime_kernels.cpu.vector_math import cos_sin_turns, exp
from rime_kernels.physics import envelope, phase

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_turns, _exponent = phase.turns, envelope.exponent
_C = phase.SPEED_OF_LIGHT

# Real and imaginary part of a sum, each of all Stokes parameters.
_Total: TypeAlias = tuple[Vector, Vector]


class EntryPointers(NamedTuple):
    """The entries of `Lanes` as pointers."""

    n_antenna: int
    antenna_uvw: Pointer  # (n_slot, n_antenna, 3, n_slot_lane)
    n_slot_lane: int
    uvw: Pointer  # (n_entry, 3, n_row_lane)
    n_row_lane: int
    antenna: Pointer  # (n_entry, 2, 1 or n)
    has_same: bool  # all lanes of an entry have the same antennas


class CpuSky(NamedTuple):
    """What a task sums over; pointers to contiguous arrays, `n` the number of lanes."""

    n_source: int
    n_point: int
    first_varied: int  # sources whose derivatives are asked for: from this one on
    stop_varied: int  # and before this one
    direction: Pointer  # float64 (n_source, 3)
    projection: Pointer  # float64 (n_shape, 2, 3): of Gaussians, then profiles
    bright: Pointer  # (n_source, n_stokes, n)
    has_voltages: bool
    voltages: Pointer  # (n_antenna, n_source, n)
    circular: bool  # feeds, where antenna terms are matrices


@vector_function
def wavelengths(metres: Pointer, index: int, n_lane: int, scale: Vector) -> tuple[Vector, Vector, Vector]:
    """Vectors u, v, w: coordinates `index` of (..., 3, 1 or n lanes) in metres, times nu/c."""
    if n_lane == 1:
        offset = 3 * index
        u, v, w = (
            spread(metres[offset], scale),
            spread(metres[offset + 1], scale),
            spread(metres[offset + 2], scale),
        )
    else:
        offset = 3 * n_lane * index
        u, v = load(metres, offset, scale), load(metres, offset + n_lane, scale)
        w = load(metres, offset + 2 * n_lane, scale)
    return u * scale, v * scale, w * scale


@vector_function
def turns_along(u: Vector, v: Vector, w: Vector, array: Pointer, offset: int) -> Vector:
    """(u, v, w) times three elements of an array."""
    return _turns(
        u, v, w, spread(array[offset], u), spread(array[offset + 1], u), spread(array[offset + 2], u)
    )


@vector_function
def gaussian_envelope(
    u: Vector, v: Vector, w: Vector, projection: Pointer, g: int, lanes_like: Vector
) -> Vector:
    """The envelope of Gaussian g at coordinates in wavelengths."""
    along, across = turns_along(u, v, w, projection, 6 * g), turns_along(u, v, w, projection, 6 * g + 3)
    return exp(convert(_exponent(along, across, constant(_C, u)), lanes_like))


@inner_function
def fill_terms(
    sky: CpuSky,
    first: int,
    stop: int,
    antenna_uvw: Pointer,
    n_antenna: int,
    n_lane: int,
    scale: Vector,
    out: Pointer,
    lanes_like: Vector,
) -> None:
    """E K of sources first .. stop - 1, (n_antenna, source, 2, n)."""
    n, offset = size(lanes_like), 0
    for a in range(n_antenna):
        u, v, w = wavelengths(antenna_uvw, a, n_lane, scale)
        for s in range(first, stop):
            cos, sin = cos_sin_turns(turns_along(u, v, w, sky.direction, 3 * s), lanes_like)
            if sky.has_voltages:
                e = load(sky.voltages, (a * sky.n_source + s) * n, lanes_like)
                cos, sin = e * cos, e * sin
            store(out, offset, cos)
            store(out, offset + n, sin)
            offset += 2 * n


@vector_function
def product(p: Pointer, q: Pointer, offset: int, lanes_like: Vector) -> tuple[Vector, Vector]:
    """Antenna p times the conjugate of antenna q."""
    p_re, p_im = load(p, offset, lanes_like), load(p, offset + size(lanes_like), lanes_like)
    q_re, q_im = load(q, offset, lanes_like), load(q, offset + size(lanes_like), lanes_like)
    return p_re * q_re + p_im * q_im, p_im * q_re - p_re * q_im


# `stokes` is a vector of all Stokes parameters, each of as many lanes as `lanes_like`; `sums` takes two of
# them, real and imaginary parts. A sum begins anew unless `more`.


@vector_function
def _begin(sums: Pointer, more: bool, stokes: Vector) -> _Total:
    re, im = constant(0.0, stokes), constant(0.0, stokes)
    if more:
        re, im = load(sums, 0, stokes), load(sums, size(stokes), stokes)
    return re, im


@vector_function
def _end(sums: Pointer, total: _Total) -> None:
    store(sums, 0, total[0])
    store(sums, size(total[0]), total[1])


@inner_function
def sum_points(
    n_source: int, p: Pointer, q: Pointer, p2: Pointer, q2: Pointer, bright: Pointer, sums: Pointer,
    sums2: Pointer, more: bool, lanes_like: Vector, stokes: Vector,
) -> None:  # fmt: skip
    """Sum points for two pairs of antennas: each brightness is loaded once for both."""
    n, n_all = size(lanes_like), size(stokes)
    re, im = _begin(sums, more, stokes)
    re2, im2 = _begin(sums2, more, stokes)
    for s in range(n_source):
        b = load(bright, n_all * s, stokes)
        k_re, k_im = product(p, q, 2 * n * s, lanes_like)
        re, im = re + b * repeat(k_re, stokes), im + b * repeat(k_im, stokes)
        k_re, k_im = product(p2, q2, 2 * n * s, lanes_like)
        re2, im2 = re2 + b * repeat(k_re, stokes), im2 + b * repeat(k_im, stokes)
    _end(sums, (re, im))
    _end(sums2, (re2, im2))


@inner_function
def sum_points_of_one(
    n_source: int, p: Pointer, q: Pointer, q2: Pointer, q3: Pointer, q4: Pointer, bright: Pointer,
    sums: Pointer, more: bool, lanes_like: Vector,
) -> None:  # fmt: skip
    """Sum points with Stokes I alone for four pairs of one antenna p, whose sums follow each other.

    Brightness goes into the terms of p: 18 operations and 11 loads where two calls of `sum_points` take 24
    and 18.
    """
    n = size(lanes_like)
    sums2, sums3, sums4 = ahead(sums, 2 * n), ahead(sums, 4 * n), ahead(sums, 6 * n)
    re, im = _begin(sums, more, lanes_like)
    re2, im2 = _begin(sums2, more, lanes_like)
    re3, im3 = _begin(sums3, more, lanes_like)
    re4, im4 = _begin(sums4, more, lanes_like)
    for s in range(n_source):
        offset, b = 2 * n * s, load(bright, n * s, lanes_like)
        p_re, p_im = b * load(p, offset, lanes_like), b * load(p, offset + n, lanes_like)
        re, im = _plus_product(re, im, p_re, p_im, q, offset, lanes_like)
        re2, im2 = _plus_product(re2, im2, p_re, p_im, q2, offset, lanes_like)
        re3, im3 = _plus_product(re3, im3, p_re, p_im, q3, offset, lanes_like)
        re4, im4 = _plus_product(re4, im4, p_re, p_im, q4, offset, lanes_like)
    _end(sums, (re, im))
    _end(sums2, (re2, im2))
    _end(sums3, (re3, im3))
    _end(sums4, (re4, im4))


@vector_function
def _plus_product(
    re: Vector, im: Vector, p_re: Vector, p_im: Vector, q: Pointer, offset: int, lanes_like: Vector
) -> tuple[Vector, Vector]:
    """A sum, plus p times the conjugate of antenna q."""
    q_re, q_im = load(q, offset, lanes_like), load(q, offset + size(lanes_like), lanes_like)
    return re + p_re * q_re + p_im * q_im, im + p_im * q_re - p_re * q_im


# What a sum does with the terms of two antennas, as numbers here and as matrices in `jones/sums.py`.


@vector_function
def _add(total: _Total, bright: Pointer, i: int, re: Vector, im: Vector) -> _Total:
    """A sum, plus the brightness of source i times re + i im."""
    b = load(bright, size(total[0]) * i, total[0])
    return total[0] + b * repeat(re, b), total[1] + b * repeat(im, b)


@vector_function
def _term(p: Pointer, q: Pointer, i: int, lanes_like: Vector) -> tuple[Vector, Vector]:
    """What the two antennas have of source i: K_pq, which registers hold while its envelope is computed."""
    return product(p, q, 2 * size(lanes_like) * i, lanes_like)


@vector_function
def _add_scaled(total: _Total, term: tuple[Vector, Vector], bright: Pointer, i: int, e: Vector) -> _Total:
    """A sum, plus source i times a real envelope."""
    return _add(total, bright, i, e * term[0], e * term[1])


@vector_function
def _add_times(
    total: _Total, term: tuple[Vector, Vector], bright: Pointer, i: int, e_re: Vector, e_im: Vector
) -> _Total:
    """A sum, plus source i times a complex envelope."""
    re, im = term
    return _add(total, bright, i, e_re * re - e_im * im, e_re * im + e_im * re)


@vector_function
def _add_row(
    total: _Total, sky: CpuSky, p: Pointer, q: Pointer, bright: Pointer, i: int, re: Vector, im: Vector
) -> _Total:
    """A sum, plus source i times its phase and envelope; p and q point to the voltages of two antennas."""
    if sky.has_voltages:
        e = load(p, size(re) * i, re) * load(q, size(re) * i, re)
        re, im = e * re, e * im
    return _add(total, bright, i, re, im)


def make_sums(
    begin: Compiled, end: Compiled, term_of: Compiled, add_scaled: Compiled, add_times: Compiled,
    add_row: Compiled,
) -> tuple[Compiled, Compiled]:  # fmt: skip
    """The sums over shapes from antenna terms with phases, and over all sources in the row form.

    The functions are those of one kind of antenna terms: they begin a sum, store it, and add a source.
    """

    @inner_function
    def sum_from(
        n_gaussian: int, n_source: int, projection: Pointer, profiles: Record, j: int, u: Vector, v: Vector,
        w: Vector, p: Pointer, q: Pointer, bright: Pointer, sums: Pointer, more: bool, lanes_like: Vector,
        stokes: Vector,
    ) -> None:  # fmt: skip
        total = begin(sums, more, stokes)
        for i in range(n_gaussian):
            term = term_of(p, q, i, lanes_like)
            e = gaussian_envelope(u, v, w, projection, i, lanes_like)
            total = add_scaled(total, term, bright, i, e)
        if profiles is not None:
            for i in range(n_gaussian, n_source):
                term = term_of(p, q, i, lanes_like)
                re, im = profile_envelope(profiles, j + i - n_gaussian, u, v, w)
                total = add_times(total, term, bright, i, convert(re, lanes_like), convert(im, lanes_like))
        end(sums, total)

    @vector_function
    def sum_shapes(
        rows: EntryPointers, sky: CpuSky, profiles: Record, entry: int, first: int, n_source: int, p: Pointer,
        q: Pointer, bright: Pointer, sums: Pointer, more: bool, scale: Vector, lanes_like: Vector,
        stokes: Vector,
    ) -> None:  # fmt: skip
        """Add n_source Gaussians and profiles from source `first` on; terms and brightness begin there."""
        u, v, w = wavelengths(rows.uvw, entry, rows.n_row_lane, scale)
        n_gaussian, j = n_before_profiles(profiles, first, n_source), 0
        if profiles is not None:
            j = max(first - profiles.first, 0)
        # Few arguments: a call for each entry and piece of the sources costs some percent of short sums.
        sum_from(
            n_gaussian, n_source, ahead(sky.projection, 6 * (first - sky.n_point)), profiles, j, u, v, w, p,
            q, bright, sums, more, lanes_like, stokes,
        )  # fmt: skip

    @inner_function
    def sum_rows(
        sky: CpuSky, profiles: Record, first: int, stop: int, u: Vector, v: Vector, w: Vector, p: Pointer,
        q: Pointer, bright: Pointer, sums: Pointer, more: bool, lanes_like: Vector, stokes: Vector,
    ) -> None:  # fmt: skip
        """Add sources first .. stop - 1 at coordinates in wavelengths; terms of antennas have no phases."""
        total = begin(sums, more, stokes)
        for s in range(first, stop):
            re, im = cos_sin_turns(turns_along(u, v, w, sky.direction, 3 * s), lanes_like)
            is_profile = False
            if profiles is not None:
                is_profile = s >= profiles.first
                if is_profile:
                    re, im = enveloped(profiles, s - profiles.first, u, v, w, re, im, lanes_like)
            if s >= sky.n_point and not is_profile:
                e = gaussian_envelope(u, v, w, sky.projection, s - sky.n_point, lanes_like)
                re, im = e * re, e * im
            total = add_row(total, sky, p, q, bright, s - first, re, im)
        end(sums, total)

    return sum_shapes, sum_rows


sum_shapes, sum_rows = make_sums(_begin, _end, _term, _add_scaled, _add_times, _add_row)
