"""The gradient of chi2 through beams of Jones matrices.

With R the weighted residual of a row in the products of feeds, V = sum over sources of f T_p B T_q^H and f
the envelope (and the phase, in the row form), the sums H_p = sum over rows of conj(f) R T_q (and of f R^H T_p
for the second antenna q) give all that an antenna has a part in:

    d chi2 = sum over antennas of 2 Re tr((H B)^H dT) + Re tr(H^H T dB)

and z = conj(T_p B) . (conj(f) R T_q) of each row what positions and widths have: see `Adjoint`.
"""

from __future__ import annotations

from typing import NamedTuple

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import (
    Matrix,
    Pointer,
    Record,
    Vector,
)
from rime_kernels.cpu.adjoint import (
    CHUNK,
    Entries,
    add_columns,
    add_vector,
    fill_coordinates,
    fill_phases,
    fill_shape,
    fill_turns,
    put_envelope,
)
from rime_kernels.cpu.jones.spline import fill_voltages, pull_place, pull_turn
from rime_kernels.cpu.jones.sums import (
    CpuJonesSky,
    SlotAntennas,
    antenna_phase,
    fill_terms,
    load_matrix,
    rotated,
    store_matrix,
    times_brightness,
    zero_matrix,
)
from rime_kernels.cpu.outputs import Backward
from rime_kernels.cpu.profiles import Profiles, add_axes, pull_entry, zero_axes
from rime_kernels.cpu.simd import ahead, constant, convert, load, size, store
from rime_kernels.jones_beam.matrices import (
    adjoint,
    dot,
    times,
    times_number,
    turned_circular,
    turned_linear,
)

# Sources whose matrices are computed and summed together: those of 64 antennas take 1 MB in double precision.
PIECE = 16


class JonesGradientWorkspace(NamedTuple):
    """What a task needs for the gradient besides its forward loop; pointers to the task's own arrays."""

    backward: Backward
    brightness: Pointer  # float64 (n_place, n_source, 4, n): a place for each slot where it belongs to a time
    direction: Pointer  # float64 (n_source, 3, n): of Im(z) with u, v, w in metres
    projection: Pointer  # float64 (n_shape, 6, n): of Re(z) with products of coordinates
    profile: Pointer  # float64 (n_profile, 8): half the derivatives, summed over lanes
    stokes_per_time: bool
    gains: Pointer  # (n_antenna, PIECE, 8, n): H
    pair_gains: Pointer  # (2, 8, n): those of the antennas of one entry
    products: Pointer  # (CHUNK, 2, n): f
    metres: Pointer  # float64 (3, CHUNK, n)
    coordinates: Pointer  # the same in working precision
    turns: Pointer  # float64 (CHUNK, n)
    shape: Pointer  # (7, CHUNK, n)
    of_place: Pointer  # float64 (2, n)
    of_beam_scale: Pointer  # float64 (1,)
    of_voltage_lm: Pointer  # float64 (n_source, 2)
    of_pointing: Pointer  # float64 (n_place, n_antenna or 1, 2 or 4, n_slot_lane)
    pointing_per_time: bool


class Ends(NamedTuple):
    """The terms of the two antennas of an entry towards a source, and the sums H of both."""

    p: Pointer  # (2, 8, n): T, T B
    q: Pointer
    gain_p: Pointer  # (8, n)
    gain_q: Pointer


@inner_function
def backward_of(work: Record) -> Backward | None:
    """Where residuals are stored; None without `work`."""
    if work is None:
        return None
    return work.backward


@inner_function
def begin(work: Record, entry: int) -> None:
    """Note the first entry of the next slot, whose residuals come first in `work.backward`."""
    if work is not None:
        work.backward.first[0] = entry


# ---- entries


@vector_function
def _residual(entries: Entries, e: int, lanes_like: Vector) -> tuple[Vector, ...]:
    """R of an entry, from real parts (4, n) and imaginary parts."""
    n, r, offset = size(lanes_like), entries.residual, 8 * size(lanes_like) * e
    return (
        load(r, offset, lanes_like), load(r, offset + 4 * n, lanes_like), load(r, offset + n, lanes_like),
        load(r,
        offset + 5 * n, lanes_like),
        load(r, offset + 2 * n, lanes_like), load(r, offset + 6 * n, lanes_like), load(r, offset + 3 * n,
        lanes_like),
        load(r, offset + 7 * n, lanes_like),
    )  # fmt: skip


@vector_function
def _add_matrix(sums: Pointer, m: Matrix, lanes_like: Vector) -> None:
    for k in range(8):
        store(sums, k * size(lanes_like), load(sums, k * size(lanes_like), lanes_like) + m[k])


@inner_function
def _gather(
    rows: Record, entry: int, end: int, source: Pointer, n_each: int, offset: int, n: int, out: Pointer
) -> None:
    """Terms (16, n) `offset` within the n_each of the antennas of each lane, first (end 0) or second."""
    for i in range(n):
        antenna = rows.antenna[(2 * entry + end) * n + i]
        for k in range(16):
            out[k * n + i] = source[antenna * n_each + offset + k * n + i]


@inner_function
def _scatter(
    rows: Record, entry: int, end: int, pair: Pointer, n_each: int, offset: int, n: int, out: Pointer
) -> None:
    """Add sums (8, n) of an entry to those of the antennas of each lane."""
    for i in range(n):
        antenna = rows.antenna[(2 * entry + end) * n + i]
        for k in range(8):
            out[antenna * n_each + offset + k * n + i] += pair[k * n + i]


@inner_function
def _pull_entry(
    entries: Entries, e: int, ends: Ends, factor: Pointer, has_factor: bool, lanes_like: Vector
) -> tuple[Vector, Vector]:
    """Add an entry to the sums H of its antennas; gives z."""
    n, r = size(lanes_like), _residual(entries, e, lanes_like)
    if has_factor:
        f_re, f_im = load(factor, 2 * n * e, lanes_like), load(factor, 2 * n * e + n, lanes_like)
        r = times_number(r, f_re, -f_im)
    t_q = load_matrix(ends.q, 0, lanes_like)
    of_p = times(r, t_q)
    z_re, z_im = dot(load_matrix(ends.p, 8 * n, lanes_like), of_p)
    _add_matrix(ends.gain_p, of_p, lanes_like)
    _add_matrix(ends.gain_q, times(adjoint(r), load_matrix(ends.p, 0, lanes_like)), lanes_like)
    return z_re, z_im


@inner_function
def _pull_profile(
    profiles: Profiles, entries: Entries, e: int, j: int, ends: Ends, phases: Pointer, axes: Vector,
    of_profile: Pointer, lane: Vector, lanes_like: Vector, wide: Vector,
) -> tuple[Vector, Vector, Vector]:  # fmt: skip
    """Add what profile j adds to the gains, from its phases K; gives z and the sums of
    `profiles.pull_entry`.
    """
    n, r = size(lanes_like), _residual(entries, e, lanes_like)
    r = times_number(r, load(phases, 2 * n * e, lanes_like), -load(phases, 2 * n * e + n, lanes_like))
    of_p = times(r, load_matrix(ends.q, 0, lanes_like))
    y_re, y_im = dot(load_matrix(ends.p, 8 * n, lanes_like), of_p)
    re, im, axes = pull_entry(
        profiles, entries, e, j, convert(y_re, wide), convert(y_im, wide), axes, of_profile, lane
    )
    re, im = convert(re, lanes_like), convert(im, lanes_like)
    r = times_number(r, re, -im)
    _add_matrix(ends.gain_p, times_number(of_p, re, -im), lanes_like)
    _add_matrix(ends.gain_q, times(adjoint(r), load_matrix(ends.p, 0, lanes_like)), lanes_like)
    return re * y_re + im * y_im, re * y_im - im * y_re, axes


@vector_function
def _is_profile(profiles: Record, s: int) -> bool:
    """Whether source s is a profile."""
    if profiles is None:
        return False
    return s >= profiles.first


@inner_function
def _pull_source(
    work: JonesGradientWorkspace, rows: Record, entries: Entries, profiles: Record, entry: int, first: int,
    n_piece: int, s: int, g: int, has_factor: bool, terms: Pointer, pair: Pointer, lane: Vector,
    lanes_like: Vector,
    wide: Vector,
) -> None:  # fmt: skip
    """Add a chunk of entries, from `entry` on, to the sums of source s; g is negative for points."""
    n, n_flat, zero = size(lanes_like), entries.n_flat, constant(0.0, lanes_like)
    is_profile, axes = _is_profile(profiles, s), zero_axes(wide)
    of_lmn, of_along, of_across = (zero, zero, zero), (zero, zero, zero), (zero, zero, zero)
    n_terms, n_gains, offset = 16 * n * n_piece, 8 * n * PIECE, s - first
    for e in range(entries.n_entry):
        if rows.by_entry:
            _gather(rows, entry + e, 0, terms, n_terms, 16 * n * offset, n, pair)
            _gather(rows, entry + e, 1, terms, n_terms, 16 * n * offset, n, ahead(pair, 16 * n))
            for k in range(16):
                store(work.pair_gains, k * n, zero)
            ends = Ends(pair, ahead(pair, 16 * n), work.pair_gains, ahead(work.pair_gains, 8 * n))
        else:
            p, q = entries.antenna[2 * e], entries.antenna[2 * e + 1]
            ends = Ends(
                ahead(terms, n_terms * p + 16 * n * offset), ahead(terms, n_terms * q + 16 * n * offset),
                ahead(work.gains, n_gains * p + 8 * n * offset), ahead(work.gains,
                n_gains * q + 8 * n * offset),
            )  # fmt: skip
        z_re, z_im = zero, zero
        if profiles is not None:
            j = s - profiles.first
            if is_profile:
                z_re, z_im, axes = _pull_profile(
                    profiles, entries, e, j, ends, work.products, axes, ahead(work.profile, 8 * j), lane,
                    lanes_like, wide,
                )  # fmt: skip
        if not is_profile:
            z_re, z_im = _pull_entry(entries, e, ends, work.products, has_factor, lanes_like)
        if rows.by_entry:
            _scatter(rows, entry + e, 0, ends.gain_p, n_gains, 8 * n * offset, n, work.gains)
            _scatter(rows, entry + e, 1, ends.gain_q, n_gains, 8 * n * offset, n, work.gains)
        of_lmn = add_columns(of_lmn, entries.coordinates, n_flat, 0, e, z_im, lane)
        if g >= 0 and not is_profile:
            of_along = add_columns(of_along, work.shape, n_flat, 1, e, z_re, lane)
            of_across = add_columns(of_across, work.shape, n_flat, 4, e, z_re, lane)
    if is_profile:
        add_axes(entries, axes, ahead(work.projection, 6 * n * g))
    for k in range(3):
        add_vector(ahead(work.direction, 3 * n * s), n * k, of_lmn[k], wide)
        if g >= 0 and not is_profile:
            add_vector(ahead(work.projection, 6 * n * g), n * k, of_along[k], wide)
            add_vector(ahead(work.projection, 6 * n * g), n * (3 + k), of_across[k], wide)


@inner_function
def _fill_factors(
    work: JonesGradientWorkspace, antennas: SlotAntennas, sky: CpuJonesSky, entries: Entries, s: int, g: int,
    is_profile: bool, lane: Vector, lanes_like: Vector,
) -> bool:  # fmt: skip
    """f of a chunk for source s, and what shapes are made of; whether it is other than 1.

    Of a profile, f without the envelope.
    """
    n = size(lanes_like)
    if not antennas.factored:
        fill_turns(entries, ahead(sky.direction, 3 * s), work.turns, lanes_like)
        fill_phases(entries, work.turns, work.products, lane, lanes_like)
    if g >= 0:
        if antennas.factored:
            for e in range(entries.n_entry):
                store(work.products, 2 * n * e, constant(1.0, lanes_like))
                store(work.products, 2 * n * e + n, constant(0.0, lanes_like))
        if not is_profile:
            fill_shape(entries, ahead(sky.projection, 6 * g), work.shape, lanes_like)
            put_envelope(entries, work.shape, work.products, lane, lanes_like)
    return g >= 0 or not antennas.factored


# ---- antennas


@inner_function
def _pull_antenna(
    work: JonesGradientWorkspace, beam: Record, antennas: SlotAntennas, sky: CpuJonesSky, place: int,
    first: int, s: int,
    a: int, n_piece: int, terms: Pointer, of_brightness: Pointer, scale: Vector, lanes_like: Vector,
) -> None:  # fmt: skip
    """From H of an antenna to brightness, to its feeds' angle and, through slopes of its beam, to its place.

    `antennas.voltage` has E and its slopes towards this source.
    """
    n = size(lanes_like)
    h = load_matrix(work.gains, 8 * n * (PIECE * a + s - first), lanes_like)
    t = load_matrix(terms, 16 * n * (a * n_piece + s - first), lanes_like)
    w = times(adjoint(h), t)
    half = constant(0.5, lanes_like)
    of_a, of_b = half * (w[0] + w[6]), half * (w[0] - w[6])
    of_c, of_d = half * (w[2] + w[4]), half * (w[3] - w[5])
    add_vector(of_brightness, 0, of_a, scale)
    if sky.circular:  # (a, b, c, d) is (I, V, Q, U)
        of_b, of_c, of_d = of_c, of_d, of_b
    add_vector(of_brightness, n, of_b, scale)
    add_vector(of_brightness, 2 * n, of_c, scale)
    add_vector(of_brightness, 3 * n, of_d, scale)
    has_turns = beam.pointing.shape[2] > 2
    if not has_turns and not beam.beams.applies[s]:
        return
    two = constant(2.0, scale)
    g = times_brightness(h, ahead(sky.bright, 4 * n * s), sky.circular, lanes_like)
    if has_turns:
        of_angle, _ = dot(g, turned_circular(t) if sky.circular else turned_linear(t))
        store(work.of_place, 0, two * convert(of_angle, scale))
        pull_turn(
            beam.beams, beam.pointing, a, antennas.times, antennas.chan, work.of_place, place,
            work.of_pointing,
        )  # fmt: skip
    if not beam.beams.applies[s]:
        return
    re, im = antenna_phase(antennas, sky, a, s, scale, lanes_like)
    g = times_number(g, re, -im)  # dT = dE P K
    for k in range(2):
        slope = rotated(
            ahead(antennas.voltage, 8 * n * (1 + k)), antennas.frames, a, sky.circular, lanes_like
        )
        of_place, _ = dot(g, slope)
        store(work.of_place, n * k, two * convert(of_place, scale))
    pull_place(
        beam.beams, beam.scale, beam.pointing, beam.direction, s, a, antennas.times, n, work.of_place, place,
        work.of_beam_scale, work.of_voltage_lm, work.of_pointing,
    )  # fmt: skip


@inner_function
def pull_slot(
    work: JonesGradientWorkspace, beam: Record, rows: Record, antennas: SlotAntennas, sky: CpuJonesSky,
    profiles: Record,
    place: int, entry: int, stop: int, terms: Pointer, pair: Pointer, scale: Vector, lane: Vector,
    lanes_like: Vector, eight: Vector,
) -> None:  # fmt: skip
    """Add entries entry .. stop - 1 of a slot to the sums of a task, from the residuals in `work.backward`.

    For a piece of the sources at a time; `lane` is a vector of as many lanes as coordinates have, 1 or n.
    """
    n, n_lane = size(lanes_like), size(lane)
    of_brightness = ahead(work.brightness, sky.n_source * 4 * n * (place if work.stokes_per_time else 0))
    n_all_piece = -(-sky.n_source // PIECE)
    step = -(-sky.n_source // n_all_piece)
    for first in range(0, sky.n_source, step):
        last = min(first + step, sky.n_source)
        n_piece = last - first
        if n_all_piece > 1:  # else those of the forward loop are still there
            fill_terms(
                beam.beams, beam.scale, beam.pointing, beam.direction, antennas, sky, first, last, scale,
                terms, lanes_like, eight,
            )  # fmt: skip
        for a in range(antennas.n_antenna):
            for k in range(n_piece):
                store_matrix(work.gains, 8 * n * (PIECE * a + k), zero_matrix(lanes_like))
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
                n_entry, ahead(rows.antenna, 2 * e * (n if rows.by_entry else 1)),
                ahead(work.backward.residual, 8 * n * (e - entry)), work.metres, work.coordinates, n_flat,
                scale,
            )  # fmt: skip
            for s in range(first, last):
                g = s - sky.n_point
                has_factor = _fill_factors(
                    work, antennas, sky, entries, s, g, _is_profile(profiles, s), lane, lanes_like
                )
                _pull_source(
                    work, rows, entries, profiles, e, first, n_piece, s, g, has_factor, terms, pair, lane,
                    lanes_like, scale,
                )  # fmt: skip
        for s in range(first, last):
            for a in range(antennas.n_antenna):
                if a == 0 or antennas.alike[a] == 0:
                    fill_voltages(
                        beam.beams, antennas.frames, beam.scale, beam.pointing, beam.direction, s, a,
                        antennas.times, antennas.chan, True, antennas.scratch, antennas.voltage, eight,
                    )  # fmt: skip
                _pull_antenna(
                    work, beam, antennas, sky, place if work.pointing_per_time else 0, first, s, a, n_piece,
                    terms, ahead(of_brightness, 4 * n * s), scale, lanes_like,
                )  # fmt: skip
