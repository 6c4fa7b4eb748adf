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
from rime_kernels.cpu.entries import (
    Entries,
    GradientWorkspace,
    add_columns,
    add_vector,
    fill_phases,
    fill_shape,
    fill_turns,
    put_envelope,
)
from rime_kernels.cpu.jones.slot import JonesSlot, gather
from rime_kernels.cpu.jones.spline import CpuBeams, fill_voltages, pull_place, pull_turn
from rime_kernels.cpu.jones.sums import (
    PIECE,
    SlotAntennas,
    antenna_phase,
    fill_terms,
    load_matrix,
    rotated,
    store_matrix,
    times_brightness,
    zero_matrix,
)
from rime_kernels.cpu.profiles import Profiles, add_axes, pull_entry, zero_axes
from rime_kernels.cpu.simd import ahead, constant, convert, load, size, store
from rime_kernels.cpu.sums import CpuSky, EntryPointers
from rime_kernels.jones_beam.matrices import (
    adjoint,
    dot,
    times,
    times_number,
    turned_circular,
    turned_linear,
)


class Ends(NamedTuple):
    """The terms of the two antennas of an entry towards a source, and the sums H of both."""

    p: Pointer  # (2, 8, n): T, T B
    q: Pointer
    gain_p: Pointer  # (8, n)
    gain_q: Pointer


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
def _scatter(
    rows: EntryPointers, entry: int, end: int, pair: Pointer, n_each: int, offset: int, n: int, out: Pointer
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
    work: GradientWorkspace, rows: EntryPointers, pair: Pointer, pair_gains: Pointer, entries: Entries,
    profiles: Record, entry: int, first: int, n_piece: int, s: int, g: int, has_factor: bool, terms: Pointer,
    lane: Vector, lanes_like: Vector, wide: Vector,
) -> None:  # fmt: skip
    """Add a chunk of entries, from `entry` on, to the sums of source s; g is negative for points."""
    n, n_flat, zero = size(lanes_like), entries.n_flat, constant(0.0, lanes_like)
    is_profile, axes = _is_profile(profiles, s), zero_axes(wide)
    of_lmn, of_along, of_across = (zero, zero, zero), (zero, zero, zero), (zero, zero, zero)
    n_terms, n_gains, offset = 16 * n * n_piece, 8 * n * PIECE, s - first
    for e in range(entries.n_entry):
        if not rows.has_same:
            for end in range(2):
                of_source = ahead(terms, 16 * n * offset)
                gather(rows, entry + e, end, of_source, n_terms, 16, n, ahead(pair, 16 * n * end))
            for k in range(16):
                store(pair_gains, k * n, zero)
            ends = Ends(pair, ahead(pair, 16 * n), pair_gains, ahead(pair_gains, 8 * n))
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
                    profiles, entries, e, j, ends, work.products, axes, ahead(work.sums.profile, 8 * j), lane,
                    lanes_like, wide,
                )  # fmt: skip
        if not is_profile:
            z_re, z_im = _pull_entry(entries, e, ends, work.products, has_factor, lanes_like)
        if not rows.has_same:
            _scatter(rows, entry + e, 0, ends.gain_p, n_gains, 8 * n * offset, n, work.gains)
            _scatter(rows, entry + e, 1, ends.gain_q, n_gains, 8 * n * offset, n, work.gains)
        of_lmn = add_columns(of_lmn, entries.coordinates, n_flat, 0, e, z_im, lane)
        if g >= 0 and not is_profile:
            of_along = add_columns(of_along, work.shape, n_flat, 1, e, z_re, lane)
            of_across = add_columns(of_across, work.shape, n_flat, 4, e, z_re, lane)
    if is_profile:
        add_axes(entries, axes, ahead(work.sums.projection, 6 * n * g))
    for k in range(3):
        add_vector(ahead(work.sums.direction, 3 * n * s), n * k, of_lmn[k], wide)
        if g >= 0 and not is_profile:
            add_vector(ahead(work.sums.projection, 6 * n * g), n * k, of_along[k], wide)
            add_vector(ahead(work.sums.projection, 6 * n * g), n * (3 + k), of_across[k], wide)


@inner_function
def _fill_factors(
    work: GradientWorkspace, antennas: SlotAntennas, sky: CpuSky, entries: Entries, s: int, g: int,
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
    work: GradientWorkspace, slot: JonesSlot, sky: CpuSky, place: int, first: int, s: int, a: int,
    n_piece: int, terms: Pointer, of_brightness: Pointer, scale: Vector, lanes_like: Vector,
) -> None:  # fmt: skip
    """From H of an antenna to brightness, to its feeds' angle and, through slopes of its beam, to its place.

    `slot.antennas.voltage` has E and its slopes towards this source.
    """
    antennas = slot.antennas
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
    has_turns = slot.pointing.shape[2] > 2
    if not has_turns and not slot.beams.applies[s]:
        return
    two = constant(2.0, scale)
    g = times_brightness(h, ahead(sky.bright, 4 * n * s), sky.circular, lanes_like)
    if has_turns:
        of_angle, _ = dot(g, turned_circular(t) if sky.circular else turned_linear(t))
        store(slot.of_place, 0, two * convert(of_angle, scale))
        pull_turn(slot, a, place, work.of_pointing)
    if not slot.beams.applies[s]:
        return
    re, im = antenna_phase(antennas, sky, a, s, scale, lanes_like)
    g = times_number(g, re, -im)  # dT = dE P K
    for k in range(2):
        slope = rotated(
            ahead(antennas.voltage, 8 * n * (1 + k)), antennas.frames, a, sky.circular, lanes_like
        )
        of_place, _ = dot(g, slope)
        store(slot.of_place, n * k, two * convert(of_place, scale))
    pull_place(slot, s, a, place, work.of_beam_scale, work.of_voltage_lm, work.of_pointing)


# ---- pieces of the sources, for `cpu.adjoint.pull_slot`


@inner_function
def n_gains(beams: CpuBeams | None, n: int) -> int:
    """Numbers of `GradientWorkspace.gains` for matrices."""
    if beams is None:
        return 0
    return 8 * n * PIECE * beams.antenna_class.shape[1]


@inner_function
def piece_of(slot: JonesSlot | None, sky: CpuSky, most: int) -> int:
    """Sources to a piece: those of the forward loop where there are matrices, else `most`."""
    if slot is None:
        return most
    return -(-sky.n_source // -(-sky.n_source // PIECE))


@inner_function
def begin_piece(
    work: GradientWorkspace, slot: JonesSlot, sky: CpuSky, first: int, last: int, terms: Pointer,
    scale: Vector, lanes_like: Vector,
) -> None:  # fmt: skip
    """Fill the terms of sources first .. last - 1, and set their sums H to 0."""
    if sky.n_source > PIECE:  # else those of the forward loop are still there
        fill_terms(slot, sky, first, last, scale, terms, lanes_like)
    for a in range(slot.antennas.n_antenna):
        for k in range(last - first):
            store_matrix(work.gains, 8 * size(lanes_like) * (PIECE * a + k), zero_matrix(lanes_like))


@inner_function
def pull_chunk(
    work: GradientWorkspace, rows: EntryPointers, slot: JonesSlot, entries: Entries, sky: CpuSky,
    profiles: Record, entry: int, first: int, last: int, terms: Pointer, lane: Vector, lanes_like: Vector,
    wide: Vector,
) -> None:  # fmt: skip
    """Add a chunk of entries, from `entry` on, to the sums of sources first .. last - 1."""
    for s in range(first, last):
        g, is_profile = s - sky.n_point, _is_profile(profiles, s)
        has_factor = _fill_factors(work, slot.antennas, sky, entries, s, g, is_profile, lane, lanes_like)
        _pull_source(
            work, rows, slot.pair, slot.pair_gains, entries, profiles, entry, first, last - first, s, g,
            has_factor, terms, lane, lanes_like, wide,
        )  # fmt: skip


@inner_function
def pull_antennas(
    work: GradientWorkspace, slot: JonesSlot, sky: CpuSky, place: int, first: int, last: int, terms: Pointer,
    of_brightness: Pointer, scale: Vector, lanes_like: Vector,
) -> None:  # fmt: skip
    """From the sums H of all antennas to those of sources first .. last - 1 and of the beam."""
    place = place if work.pointing_per_time else 0
    for s in range(first, last):
        of_source = ahead(of_brightness, 4 * size(lanes_like) * s)
        for a in range(slot.antennas.n_antenna):
            if a == 0 or slot.antennas.alike[a] == 0:
                fill_voltages(slot, s, a, True)
            _pull_antenna(
                work, slot, sky, place, first, s, a, last - first, terms, of_source, scale, lanes_like
            )
