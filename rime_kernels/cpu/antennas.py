"""Jones matrices of the antennas on the CPU: V_pq = A_p X_pq A_q^H, and the way back (physics: section 6).

X is the 2x2 matrix of all correlations of the feeds, from the sums over sources and the templates. With the
weighted residuals R = w (V - D), 0 where a correlation was not observed,

    d chi2 / d X   = 2 A_p^H R A_q
    d chi2 / d A_p = 2 R A_q X^H          d chi2 / d A_q = 2 R^H A_p X

A matrix is eight vectors: the real parts of its elements row by row, then the imaginary parts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels.arrays import AntennaTerms
from rime_kernels.compile.jit import inner_function, loop, scalar, vector_function
from rime_kernels.compile.types import Array, Pointer, Record, Vector
from rime_kernels.cpu.correlations import Correlations, correlations, part_of
from rime_kernels.cpu.lanes import Lanes, copied
from rime_kernels.cpu.simd import ahead, constant, convert, load, pointer, size, store
from rime_kernels.physics.feeds import feeds_of


class LaneTerms(NamedTuple):
    """The matrices of one call, and what the lanes see of them; a loop without any gets None."""

    jones: NDArray[np.complex128]  # as in `AntennaTerms`
    diagonal: bool
    slot_block: NDArray[np.int64]  # (n_slot, 1 or n): block of the times of a slot
    lane_block: NDArray[np.int64]  # (n_block, n): block of the channels of a block
    run: NDArray[np.int64]  # (n_slot,): slots that follow one another and have the same blocks are a run
    part: NDArray[np.int64]  # X of the sums: `Correlations` of a matrix (4, n_stokes)
    factor: NDArray[np.floating]
    place: NDArray[np.int64]  # (n_corr,): which element of the matrix each correlation is

    def batch(self, start: int, stop: int) -> LaneTerms:
        """The entries start .. stop - 1 of the batch."""
        return self if len(self.jones) == 1 else self._replace(jones=self.jones[start:stop])


def terms_of(
    terms: AntennaTerms, matrix: NDArray[np.complex128], place: tuple[int, ...], lanes: Lanes,
    real: type[np.floating],
) -> LaneTerms:  # fmt: skip
    """What the loops read; `matrix` (4, .) makes X of their sums, `place` is that of `feeds_of`."""
    slot_block = terms.time_block[lanes.slot_time].astype(np.int64)
    is_new = np.any(np.diff(slot_block, axis=0) != 0, axis=1)
    return LaneTerms(
        copied(terms.jones, np.complex128),
        terms.diagonal,
        np.ascontiguousarray(slot_block),
        np.ascontiguousarray(terms.chan_block[np.maximum(lanes.chan, 0)].astype(np.int64)),
        np.concatenate([[0], np.cumsum(is_new)]).astype(np.int64),
        *correlations(matrix, real),
        np.array(place, np.int64),
    )


def back_map(matrix: NDArray[np.complexfloating], n_stokes: int, real: type[np.floating]) -> Correlations:
    """The map from d chi2/d X to residuals in Stokes parameters."""
    return correlations(feeds_of(matrix)[0][:, :n_stokes].conj().T, real)


class View(NamedTuple):
    """What a task sees of `LaneTerms`; pointers, `n` the number of lanes."""

    n_term: int  # X of the sums, as in Correlations
    part: Pointer
    factor: Pointer
    place: Pointer  # (n_corr,)
    diagonal: bool
    antenna: Pointer  # (n_entry, 2, 1 or n lanes)
    n_lane: int
    n_antenna: int
    jones: Pointer  # (n_antenna, 8, n), workspace: of the run of slots at hand
    pair: Pointer  # (2, 8, n), workspace: A_p and A_q where lanes have antennas of their own
    full: Pointer  # (8, n), workspace: X
    half: Pointer  # (8, n), workspace: A_p X
    seen: Pointer  # (8, n), workspace: V; then R, and what goes with it
    rest: Pointer  # (8, n), workspace: A_p^H R A_q


@inner_function
def n_antennas(terms: LaneTerms | None) -> int:
    """Antennas that have matrices."""
    if terms is None:
        return 0
    return terms.jones.shape[2]


@inner_function
def space_for(terms: LaneTerms | None, n: int, n_antenna: int) -> int:
    """Numbers of workspace that `view_of` needs."""
    if terms is None:
        return 0
    return 8 * n * (n_antenna + 6)


@inner_function
def view_of(terms: LaneTerms | None, lanes: Lanes, n_antenna: int, space: Array, n: int) -> Record:
    """What a task sees; None without terms. `space` is of `space_for` numbers."""
    if terms is None:
        return None
    first = pointer(space)
    return View(
        terms.part.shape[1], pointer(terms.part), pointer(terms.factor), pointer(terms.place),
        terms.diagonal, pointer(lanes.antenna), lanes.antenna.shape[2], n_antenna,
        ahead(first, 48 * n), first, ahead(first, 16 * n), ahead(first, 24 * n), ahead(first, 32 * n),
        ahead(first, 40 * n),
    )  # fmt: skip


@inner_function
def look_up(terms: LaneTerms | None, view: Record, b: int, slot: int, block: int, run: int, n: int) -> int:
    """Fill the matrices that the lanes of a slot see, unless the run of the slot before is the same.

    Gives the run of this slot, for the next call.
    """
    if terms is None:
        return run
    if terms.run[slot] == run:
        return run
    jones, out = terms.jones[min(b, terms.jones.shape[0] - 1)], view.jones
    for a in range(view.n_antenna):
        for i in range(n):
            time = terms.slot_block[slot, min(i, terms.slot_block.shape[1] - 1)]
            chan = terms.lane_block[block, i]
            for k in range(4):
                z = jones[time, a, chan, k // 2, k % 2]
                out[(8 * a + k) * n + i] = z.real
                out[(8 * a + 4 + k) * n + i] = z.imag
    return terms.run[slot]


@inner_function
def begin_run(work: Record | None, jones: LaneTerms | None, run: int, first_slot: int) -> None:
    """Note which run of the slots of a task is at hand: its antennas' matrices have sums of their own."""
    if work is not None and jones is not None:
        work.backward.run[0] = run - jones.run[first_slot]


@inner_function
def _matrix(view: View, entry: int, end: int, lanes_like: Vector) -> Pointer:
    """A of the first or second antenna of an entry."""
    n, offset = size(lanes_like), (2 * entry + end) * view.n_lane
    if view.n_lane == 1:
        return ahead(view.jones, 8 * n * view.antenna[offset])
    for i in range(n):
        of_antenna = 8 * view.antenna[offset + i]
        for k in range(8):
            view.pair[(8 * end + k) * n + i] = view.jones[(of_antenna + k) * n + i]
    return ahead(view.pair, 8 * n * end)


@vector_function
def _element(matrix: Pointer, i: int, j: int, adjoint: bool, lanes_like: Vector) -> tuple[Vector, Vector]:
    """Element i, j of a matrix, or of its adjoint."""
    n = size(lanes_like)
    if adjoint:
        return load(matrix, n * (2 * j + i), lanes_like), -load(matrix, n * (4 + 2 * j + i), lanes_like)
    return load(matrix, n * (2 * i + j), lanes_like), load(matrix, n * (4 + 2 * i + j), lanes_like)


@inner_function
def _multiply(
    left: Pointer, left_adjoint: bool, right: Pointer, right_adjoint: bool, out: Pointer, lanes_like: Vector
) -> None:
    """The product of two matrices, or of their adjoints; `out` is neither."""
    n = size(lanes_like)
    for i in range(2):
        for j in range(2):
            re, im = constant(0.0, lanes_like), constant(0.0, lanes_like)
            for k in range(2):
                a_re, a_im = _element(left, i, k, left_adjoint, lanes_like)
                b_re, b_im = _element(right, k, j, right_adjoint, lanes_like)
                re, im = re + (a_re * b_re - a_im * b_im), im + (a_re * b_im + a_im * b_re)
            store(out, n * (2 * i + j), re)
            store(out, n * (4 + 2 * i + j), im)


@inner_function
def _scale(p: Pointer, q: Pointer, matrix: Pointer, out: Pointer, lanes_like: Vector) -> None:
    """A_p X A_q^H of diagonal matrices."""
    n = size(lanes_like)
    for i in range(2):
        p_re, p_im = _element(p, i, i, False, lanes_like)
        for j in range(2):
            q_re, q_im = _element(q, j, j, True, lanes_like)
            re, im = p_re * q_re - p_im * q_im, p_re * q_im + p_im * q_re
            x, y = _element(matrix, i, j, False, lanes_like)
            store(out, n * (2 * i + j), re * x - im * y)
            store(out, n * (4 + 2 * i + j), re * y + im * x)


@inner_function
def _fill_full(view: View, epilogue: Record, sums: Pointer, data: Pointer, lanes_like: Vector) -> None:
    """X from the sums over sources and the templates; `data` and `epilogue` as in `outputs`."""
    n = size(lanes_like)
    for i in range(8):
        store(view.full, n * (4 * (i % 2) + i // 2), part_of(view, i, sums, lanes_like))
    for k in range(epilogue.n_corr if epilogue.n_template > 0 else 0):
        offset, here = n * view.place[k], ahead(data, k * (3 + 2 * epilogue.n_template) * n)
        x, y = load(view.full, offset, lanes_like), load(view.full, offset + 4 * n, lanes_like)
        for t in range(epilogue.n_template):
            re, im = load(here, n * (3 + 2 * t), lanes_like), load(here, n * (4 + 2 * t), lanes_like)
            cos, sin = (
                load(epilogue.factor_of, 2 * n * t, lanes_like),
                load(epilogue.factor_of, 2 * n * t + n, lanes_like),
            )
            x, y = x + (cos * re - sin * im), y + (cos * im + sin * re)
        store(view.full, offset, x)
        store(view.full, offset + 4 * n, y)


@inner_function
def see(
    view: View, epilogue: Record, entry: int, sums: Pointer, data: Pointer, lanes_like: Vector
) -> Pointer:
    """V of an entry from its sums over sources: eight vectors, of which correlations are to be selected."""
    _fill_full(view, epilogue, sums, data, lanes_like)
    p, q = _matrix(view, entry, 0, lanes_like), _matrix(view, entry, 1, lanes_like)
    if view.diagonal:
        _scale(p, q, view.full, view.seen, lanes_like)
    else:
        _multiply(p, False, view.full, False, view.half, lanes_like)
        _multiply(view.half, False, q, True, view.seen, lanes_like)
    return view.seen


@inner_function
def _add_matrix(view: View, backward: Record, entry: int, end: int, matrix: Pointer, wide: Vector) -> None:
    """Add a matrix to the sums of an antenna of an entry."""
    n, offset = size(wide), (2 * entry + end) * view.n_lane
    first = backward.run[0] * view.n_antenna
    if view.n_lane == 1:
        into = 8 * n * (first + view.antenna[offset])
        for k in range(8):
            added = convert(load(matrix, n * k, wide), wide)
            store(backward.jones, into + n * k, load(backward.jones, into + n * k, wide) + added)
    else:
        for i in range(n):
            into = 8 * n * (first + view.antenna[offset + i]) + i
            for k in range(8):
                backward.jones[into + n * k] += matrix[n * k + i]


@inner_function
def pull(view: View, epilogue: Record, backward: Record, entry: int, lanes_like: Vector) -> Pointer:
    """From weighted residuals of an entry to those of X, eight vectors; and the sums for the matrices.

    In `backward.weighted`, too, the residuals of V give way to those of X: templates are part of it.
    """
    n, n_corr, weighted = size(lanes_like), epilogue.n_corr, backward.weighted
    p, q = _matrix(view, entry, 0, lanes_like), _matrix(view, entry, 1, lanes_like)
    for k in range(8):
        store(view.seen, n * k, constant(0.0, lanes_like))
    for k in range(n_corr):
        offset = n * view.place[k]
        store(view.seen, offset, load(weighted, n * k, lanes_like))
        store(view.seen, offset + 4 * n, load(weighted, n * (n_corr + k), lanes_like))
    _multiply(view.seen, False, q, False, view.rest, lanes_like)
    _multiply(view.rest, False, view.full, True, view.half, lanes_like)
    _add_matrix(view, backward, entry, 0, view.half, epilogue.scale)
    _multiply(p, False, view.full, False, view.half, lanes_like)
    _multiply(view.seen, True, view.half, False, view.rest, lanes_like)
    _add_matrix(view, backward, entry, 1, view.rest, epilogue.scale)
    _multiply(p, True, view.seen, False, view.half, lanes_like)
    _multiply(view.half, False, q, False, view.rest, lanes_like)
    for k in range(n_corr):
        offset = n * view.place[k]
        store(weighted, n * k, load(view.rest, offset, lanes_like))
        store(weighted, n * (n_corr + k), load(view.rest, offset + 4 * n, lanes_like))
    return view.rest


# ---- changes of visibilities with changes of the matrices and of X


class AntennaSamples(NamedTuple):
    """Antennas and blocks of some rows, and blocks of all channels."""

    antenna1: NDArray[np.int32]  # (n_row,)
    antenna2: NDArray[np.int32]
    time_block: NDArray[np.int32]  # (n_row,)
    chan_block: NDArray[np.int32]  # (n_chan,)


@scalar
def _element_of_product(p: Array, full: Array, q: Array, i: int, j: int) -> complex:
    """Element i, j of A_p X A_q^H; X is flat."""
    z = 0j
    for k in range(2):
        for l in range(2):
            z += p[i, k] * full[2 * k + l] * np.conj(q[j, l])
    return z


@loop
def see_changes(
    samples: AntennaSamples, jones: Array, of_jones: Array, full: Array, change: Array, place: Array,
    out: Array,
) -> None:  # fmt: skip
    """Fill `out` (n_change, n_row, n_chan, n_corr) with A_p dX A_q^H + dA_p X A_q^H + A_p X dA_q^H.

    `jones` is A (n_time_block, n_antenna, n_chan_block, 2, 2), `of_jones` its changes dA (n_change, ...),
    `full` is X (n_row, n_chan, 4), `change` are its changes dX; all complex128.
    """
    n_change, n_row, n_chan, n_corr = out.shape
    for r in prange(n_row):
        time, first, second = samples.time_block[r], samples.antenna1[r], samples.antenna2[r]
        for c in range(n_chan):
            block = samples.chan_block[c]
            p, q = jones[time, first, block], jones[time, second, block]
            for n in range(n_change):
                d_p, d_q = of_jones[n, time, first, block], of_jones[n, time, second, block]
                for k in range(n_corr):
                    i, j = place[k] // 2, place[k] % 2
                    z = _element_of_product(p, change[n, r, c], q, i, j)
                    z += _element_of_product(d_p, full[r, c], q, i, j)
                    out[n, r, c, k] = z + _element_of_product(p, full[r, c], d_q, i, j)


class LocalChanges(NamedTuple):
    """Changes of the matrices of single antennas: few of them at each time and antenna."""

    which: NDArray[np.int64]  # (n_time_block, n_antenna, n_local): numbers of changes, then -1
    of_jones: NDArray[np.complex128]  # (n_time_block, n_antenna, n_local, n_chan_block, 2, 2)


@loop
def add_local_products(
    samples: AntennaSamples, starts: Array, rows: Array, jones: Array, local: LocalChanges, full: Array,
    place: Array, weight: Array, outer: Array, work: Array, diagonal: Array, side: Array,
) -> None:  # fmt: skip
    """Add Re(conj(dV) w dV') of rows of groups, dV = dA_p X A_q^H + A_p X dA_q^H of each local change.

    Group g has the `rows` starts[g] .. starts[g + 1] - 1; `outer` (n_outer, n_row, n_sample) are other
    changes dV', `full` is X (n_row, n_chan, 4), `weight` (n_row, n_sample); `work` complex128 (n_group,
    2 n_local, n_sample). `diagonal` (n_group, n_inner, n_inner) and `side` (n_group, n_inner, n_outer) are
    added to.
    """
    n_local, n_chan, n_corr = local.which.shape[2], full.shape[1], place.size
    for g in prange(starts.size - 1):
        for i in range(starts[g], starts[g + 1]):
            r = rows[i]
            time, first, second = samples.time_block[r], samples.antenna1[r], samples.antenna2[r]
            for n in range(2 * n_local):
                antenna = first if n < n_local else second
                if local.which[time, antenna, n % n_local] < 0:
                    continue
                change = local.of_jones[time, antenna, n % n_local]
                for c in range(n_chan):
                    block = samples.chan_block[c]
                    p, q = jones[time, first, block], jones[time, second, block]
                    p = change[block] if n < n_local else p
                    q = change[block] if n >= n_local else q
                    for k in range(n_corr):
                        z = _element_of_product(p, full[r, c], q, place[k] // 2, place[k] % 2)
                        work[g, n, c * n_corr + k] = z
            for n in range(2 * n_local):
                a = local.which[time, first if n < n_local else second, n % n_local]
                if a < 0:
                    continue
                for m in range(2 * n_local):
                    b = local.which[time, first if m < n_local else second, m % n_local]
                    if b >= 0:
                        total = 0.0
                        for s in range(weight.shape[1]):
                            x, y = work[g, n, s], work[g, m, s]
                            total += weight[r, s] * (x.real * y.real + x.imag * y.imag)
                        diagonal[g, a, b] += total
                for m in range(outer.shape[0]):
                    total = 0.0
                    for s in range(weight.shape[1]):
                        x, y = work[g, n, s], outer[m, r, s]
                        total += weight[r, s] * (x.real * y.real + x.imag * y.imag)
                    side[g, a, m] += total


# ---- from the sums of tasks to blocks of times and channels


def places(terms: LaneTerms | None, tasks: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Where the runs of slots of each task begin among all sums, int64 (n_task,), and how many there are."""
    if terms is None:
        return np.zeros(len(tasks), np.int64), 0
    n_run = terms.run[tasks[:, 2] - 1] - terms.run[tasks[:, 1]] + 1
    return np.cumsum(n_run) - n_run, int(n_run.sum())


def by_block(
    sums: NDArray[np.float64], terms: LaneTerms, tasks: NDArray[np.int64], lanes: Lanes, has_templates: bool
) -> NDArray[np.complex128]:
    """The derivatives with respect to `AntennaTerms.jones`, (n_batch, ...).

    `sums` is (n_batch, n_place, n_antenna, 8, n), the places in the order of `places`. Lanes are added in
    the order of places.
    """
    n_batch, n_place, n_antenna, _, n = sums.shape
    n_time, n_chan = terms.jones.shape[1], terms.jones.shape[3]
    first_slot = np.searchsorted(terms.run, np.arange(terms.run[-1] + 1))
    runs = [(task[0], run) for task in tasks for run in range(terms.run[task[1]], terms.run[task[2] - 1] + 1)]
    block, run = np.array(runs).T
    time = np.broadcast_to(terms.slot_block[first_slot[run]], (n_place, n))
    key = (time * n_chan + terms.lane_block[block]).ravel()
    flat = np.moveaxis(sums, 4, 2).reshape(n_batch, n_place * n, n_antenna * 8)
    order = np.argsort(key, kind="stable")
    found, starts = np.unique(key[order], return_index=True)
    total = np.zeros((n_batch, n_time * n_chan, n_antenna * 8))
    total[:, found] = 2.0 * np.add.reduceat(flat[:, order], starts, axis=1)
    total = total.reshape(n_batch, n_time, n_chan, n_antenna, 2, 2, 2)
    jones = np.moveaxis(total[..., 0, :, :] + 1j * total[..., 1, :, :], 2, 3)
    if has_templates and len(set(terms.place.tolist())) < 4:
        jones = jones * np.eye(2)
    return np.ascontiguousarray(jones)
