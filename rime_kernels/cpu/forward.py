"""The sum of the measurement equation on the CPU: tasks of vectors, whose lanes `lanes.py` describes.

A task computes the entries of some time slots in one block of channels: first the brightness of all sources,
then antenna terms (factored form) or phases of rows (row form), their sum over sources (and nodes, where
visibilities are smeared), and from each sum what `Output` names. The reference in `tests/reference.py` is the
same equation as a plain sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numba import prange

from rime_kernels.compile.jit import inner_function, loop, vector_function
from rime_kernels.compile.types import Array, NumbaType, Pointer, Record, Vector
from rime_kernels.cpu.adjoint import (
    at_node,
    backward_of,
    begin,
    pull_slot,
    pull_voltages,
)
from rime_kernels.cpu.antennas import LaneTerms, View, begin_run, look_up, n_antennas, space_for, view_of
from rime_kernels.cpu.brightness import NO_BEAM, fill_brightness, fill_voltages, workspace
from rime_kernels.cpu.correlations import Correlations
from rime_kernels.cpu.entries import GradientWorkspace
from rime_kernels.cpu.jones.slot import JonesSlot, is_circular, keep, n_term, slot_of, space_of, sum_entry
from rime_kernels.cpu.jones.spline import CpuBeams
from rime_kernels.cpu.jones.sums import PIECE
from rime_kernels.cpu.jones.sums import fill_terms as fill_matrices
from rime_kernels.cpu.lanes import Lanes, Nodes
from rime_kernels.cpu.outputs import Backward, Epilogue, expect, fill_factors, finish, needs_sums
from rime_kernels.cpu.profiles import ProfileFunctions, profiles_of
from rime_kernels.cpu.simd import ahead, constant, load, n_lanes, pointer, size, store, zeros
from rime_kernels.cpu.sums import (
    CpuSky,
    EntryPointers,
    fill_terms,
    sum_points,
    sum_points_of_one,
    sum_rows,
    sum_shapes,
    wavelengths,
)
from rime_kernels.inputs import Inputs

# Sources whose antenna terms are computed and summed together, with several Stokes parameters and with one:
# what is read for the sums of a square of antennas (`lanes.py`) then comes from the L1 cache of a core
# (measured: with one, 48 sources and squares of 16 antennas take 1.3 times as long).
_PIECE, _PIECE_OF_ONE = 48, 32
# Entries whose sums are worked out together.
_MOST_TOGETHER = 4


# ---- tasks: a block of channels, and some slots or some entries of one slot


@vector_function
def _most_sources(beams: CpuBeams | None, lanes_like: Vector, stokes: Vector) -> int:
    """Sources whose antenna terms are there at a time."""
    if beams is not None:
        return PIECE
    return _PIECE_OF_ONE if size(stokes) == size(lanes_like) else _PIECE


@inner_function
def _last_together(rows: EntryPointers, entry: int, stop: int, lanes_like: Vector, stokes: Vector) -> int:
    """The last of the entries that are summed together from this one on, below `stop`: one, two or four.

    Four where Stokes I is alone and they have the same first antenna.
    """
    is_alone, last = size(stokes) == size(lanes_like), entry + _MOST_TOGETHER - 1
    if is_alone and last < stop:
        p = rows.antenna[2 * entry]
        if (
            rows.antenna[2 * entry + 2] == p
            and rows.antenna[2 * entry + 4] == p
            and rows.antenna[2 * last] == p
        ):
            return last
    return min(entry + 1, stop - 1)


@inner_function
def _sum_factored(
    rows: EntryPointers, sky: CpuSky, profiles: Record, entry: int, last: int, first: int, n_source: int,
    terms: Pointer, sums: Pointer, begun: bool, scale: Vector, lanes_like: Vector, stokes: Vector,
) -> None:  # fmt: skip
    """Add n_source sources from `first` on to the sums of the entries entry .. last.

    Sums begin anew with the first source, unless they have `begun`.
    """
    n_sums, length = 2 * size(stokes), 2 * size(lanes_like) * n_source
    bright, more = ahead(sky.bright, size(stokes) * first), begun or first > 0
    n_point = min(max(sky.n_point - first, 0), n_source)
    if n_point > 0:
        p, q = (
            ahead(terms, length * rows.antenna[2 * entry]),
            ahead(terms, length * rows.antenna[2 * entry + 1]),
        )
        q2 = ahead(terms, length * rows.antenna[2 * min(entry + 1, last) + 1])
        if last == entry + _MOST_TOGETHER - 1:
            q3 = ahead(terms, length * rows.antenna[2 * entry + 5])
            q4 = ahead(terms, length * rows.antenna[2 * last + 1])
            sum_points_of_one(n_point, p, q, q2, q3, q4, bright, sums, more, lanes_like)
        else:
            p2 = ahead(terms, length * rows.antenna[2 * last])
            sum_points(n_point, p, q, p2, q2, bright, sums, ahead(sums, n_sums), more, lanes_like, stokes)
    bright, shift = ahead(bright, size(stokes) * n_point), 2 * size(lanes_like) * n_point
    for e in range(entry, last + 1 if n_point < n_source else entry):
        sum_shapes(
            rows, sky, profiles, e, first + n_point, n_source - n_point,
            ahead(terms, length * rows.antenna[2 * e] + shift),
            ahead(terms, length * rows.antenna[2 * e + 1] + shift), bright, ahead(sums, n_sums * (e - entry)),
            more or n_point > 0, scale, lanes_like, stokes,
        )  # fmt: skip


@inner_function
def _slot_of_terms(
    factored: bool, rows: EntryPointers, matrices: JonesSlot | None, sky: CpuSky, profiles: Record,
    epilogue: Epilogue, backward: Backward | None, view: View | None, slot: int, entry: int, stop: int,
    most: int, terms: Pointer, sums: Pointer, apart: bool, begun: bool, ends: bool, scale: Vector,
    lanes_like: Vector, stokes: Vector, total: Vector,
) -> Vector:  # fmt: skip
    """Entries entry .. stop - 1 of a slot from its antenna terms, for a piece of the sources at a time.

    Each entry has sums of its own where they are `apart` or there are several pieces; they have `begun`, or
    begin anew; an entry is finished with the last piece where its sum `ends`.
    """
    n_sums = 2 * size(stokes)
    n_piece = -(-sky.n_source // most)
    step = -(-sky.n_source // n_piece)
    antenna_uvw = ahead(rows.antenna_uvw, slot * rows.n_antenna * 3 * rows.n_slot_lane)
    for first in range(0, sky.n_source, step):
        n_source = min(step, sky.n_source - first)
        has_sums, is_last = needs_sums(epilogue, view), ends and first + n_source == sky.n_source
        if matrices is not None:
            fill_matrices(matrices, sky, first, first + n_source, scale, terms, lanes_like)
        elif has_sums:
            fill_terms(
                sky, first, first + n_source, antenna_uvw, rows.n_antenna, rows.n_slot_lane, scale, terms,
                lanes_like,
            )  # fmt: skip
        e = entry
        while e < stop:
            last = e
            if matrices is None:
                last = _last_together(rows, e, stop, lanes_like, stokes)
            here = sums if n_piece == 1 and not apart else ahead(sums, n_sums * (e - entry))
            if is_last:
                expect(epilogue, last + 1, min(last + last - e + 2, stop), lanes_like)
            if has_sums:
                if matrices is None:
                    _sum_factored(
                        rows, sky, profiles, e, last, first, n_source, terms, here, begun, scale, lanes_like,
                        stokes,
                    )  # fmt: skip
                else:
                    sum_entry(
                        rows, factored, matrices.pair, sky, profiles, e, first, n_source, terms, here, begun,
                        scale, lanes_like,
                    )  # fmt: skip
            if is_last:
                for k in range(last - e + 1):  # a loop, so that the compiler has one copy of it
                    total = total + finish(
                        epilogue, backward, view, e + k, ahead(here, n_sums * k), lanes_like
                    )
            e = last + 1
    return total


@inner_function
def _row_slot(
    rows: EntryPointers, matrices: JonesSlot | None, sky: CpuSky, profiles: Record, epilogue: Epilogue,
    backward: Backward | None, view: View | None, entry: int, stop: int, sums: Pointer, apart: bool,
    begun: bool, ends: bool, scale: Vector, lanes_like: Vector, stokes: Vector, total: Vector,
) -> Vector:  # fmt: skip
    """Entries entry .. stop - 1 of a slot, each from its own coordinates; otherwise as `_slot_of_terms`."""
    if matrices is not None:
        return total
    n_voltage = size(lanes_like) * sky.n_source if sky.has_voltages else 0
    for e in range(entry, stop):
        here = ahead(sums, 2 * size(stokes) * (e - entry)) if apart else sums
        if ends:
            expect(epilogue, e, e + 1, lanes_like)
        u, v, w = wavelengths(rows.uvw, e, rows.n_row_lane, scale)
        i_p, i_q = (rows.antenna[2 * e], rows.antenna[2 * e + 1]) if rows.has_same else (0, 1)
        p, q = ahead(sky.voltages, n_voltage * i_p), ahead(sky.voltages, n_voltage * i_q)
        if needs_sums(epilogue, view):
            sum_rows(
                sky, profiles, 0, sky.n_source, u, v, w, p, q, sky.bright, here, begun, lanes_like, stokes
            )
        if ends:
            total = total + finish(epilogue, backward, view, e, here, lanes_like)
    return total


@inner_function
def _rows_at(nodes: Nodes, time: int, lanes: Lanes) -> EntryPointers:
    """The coordinates of entries at a node of time."""
    return EntryPointers(
        lanes.antenna_uvw.shape[1], pointer(nodes.antenna_uvw[time]), lanes.antenna_uvw.shape[3],
        pointer(nodes.uvw[time]), lanes.uvw.shape[2], pointer(lanes.antenna), lanes.antenna.shape[2] == 1,
    )  # fmt: skip


@inner_function
def _weigh(weight: float, sky: CpuSky, stokes: Vector) -> None:
    """Multiply the brightness by the weight of a node."""
    for s in range(sky.n_source):
        offset = size(stokes) * s
        store(sky.bright, offset, constant(weight, stokes) * load(sky.bright, offset, stokes))


@inner_function
def run_task(
    factored: bool, shifted: bool, beam_code: int, output: int, task: Array, b: int, lanes: Lanes,
    nodes: Nodes, inputs: Inputs, beams: CpuBeams | None, spectra: Array, correlations: Correlations,
    jones: LaneTerms | None, vis_out: Array, real_out: Array, work: GradientWorkspace | None,
    functions: ProfileFunctions | None, real: NumbaType, lane: Vector, lanes_like: Vector, stokes: Vector,
    total: Vector,
) -> float:  # fmt: skip
    """Compute one task for one entry of the batch; gives its chi2, or 0 where `output` is another.

    `nodes` are more than one for smeared visibilities only, whose templates do not move.
    `beams` make matrices of antenna terms; None where they are numbers.
    `work` and `lane` are None, or the workspace and the lanes of the gradient of chi2 (`adjoint.py`);
    `functions` are those of profiles; None where there are no profiles.
    """
    n, n_all, most = size(lanes_like), size(stokes), _most_sources(beams, lanes_like, stokes)
    block, first_slot, stop_slot, first_entry, stop_entry = task[0], task[1], task[2], task[3], task[4]
    direction, projection, pointing = inputs.direction[b], inputs.projection[b], inputs.pointing[b]
    n_source, n_antenna, has_beam = direction.shape[0], pointing.shape[1], beam_code != NO_BEAM
    by_entry = lanes.antenna.shape[2] > 1
    bright, scratch = workspace(n_source * n_all, real), workspace(2 * n, real)
    voltages = workspace(n * n_source * (2 if by_entry else n_antenna) if has_beam else 0, real)
    has_terms, n_each = factored or beams is not None, n_term(beams, lanes.antenna_uvw.shape[1])
    terms = workspace(n * n_each * min(n_source, most) if has_terms else 0, real)
    n_sums, n_node, n_freq = _MOST_TOGETHER, nodes.weight.size, nodes.scale.shape[0]
    n_block = lanes.scale.shape[0]
    apart = n_node > 1
    if apart or (has_terms and n_source > most):
        for slot in range(first_slot, stop_slot):
            n_sums = max(n_sums, lanes.slot_entry[slot + 1] - lanes.slot_entry[slot] + 1)
        n_sums = min(n_sums, stop_entry - first_entry + 1)
    sums = workspace(2 * n_all * n_sums, real)
    n_dish = n_antennas(jones)
    seen, space = workspace(space_for(jones, n, n_dish), real), space_of(beams, n, real)
    view, run = view_of(jones, lanes, n_dish, seen, n), np.int64(-1)
    sky = CpuSky(
        n_source, n_source - projection.shape[0], inputs.first_varied if beams is None else 0,
        inputs.stop_varied if beams is None else n_source, pointer(direction), pointer(projection),
        pointer(bright), has_beam, pointer(voltages), is_circular(beams),
    )  # fmt: skip
    n_corr, n_template = correlations.part.shape[0] // 2, max(0, lanes.data.shape[3] - 3) // 2
    factors = workspace(2 * n * n_template, real)
    scale, antennas = load(pointer(lanes.scale[block]), 0, total), np.arange(n_antenna).reshape(-1, 1)
    n_data = lanes.row.shape[0] * n_corr * lanes.data.shape[3] * n if lanes.data.size > 1 else 0
    epilogue = Epilogue(
        output, n_corr, n_all // n, correlations.part.shape[1], pointer(correlations.part),
        pointer(correlations.factor), n_template, n_template if jones is None else 0,
        pointer(inputs.template[b]), shifted, pointer(factors),
        pointer(lanes.uvw), lanes.uvw.shape[2], scale,
        ahead(pointer(lanes.data), block * n_data), pointer(lanes.row), lanes.row.shape[1],
        pointer(lanes.chan[block]), max(vis_out.shape[2], real_out.shape[2]), pointer(vis_out[b]),
        pointer(real_out[b]), pointer(scratch),
    )  # fmt: skip
    fill_factors(
        epilogue, np.int64(0), lanes_like
    )  # the type of other entries, or Numba would compile it twice
    has_brightness, backward = False, backward_of(work)
    for slot in range(first_slot, stop_slot):
        entry = max(first_entry, lanes.slot_entry[slot])
        stop = min(stop_entry, lanes.slot_entry[slot + 1])
        if entry >= stop:
            continue
        times = lanes.slot_time[slot]
        run = look_up(jones, view, b, slot, block, run, n)
        begin_run(work, jones, run, first_slot)
        matrices = slot_of(beams, space, inputs, b, lanes, slot, block, factored, n)
        by_itself = has_beam and by_entry and not factored  # each entry has voltages of its own
        # Of smeared visibilities first all nodes are summed; the residuals are then pulled back through all.
        for step in range(n_node if work is None or not apart else 2 * n_node):
            node, is_sum = step % n_node, step < n_node
            rows, freqs = _rows_at(nodes, node // n_freq, lanes), nodes.scale[node % n_freq, block]
            scale = load(pointer(freqs), 0, total)
            profiles = profiles_of(functions, inputs, b, scale)
            if not has_brightness:
                spectrum = spectra[b, n_block * (node % n_freq) + block]
                fill_brightness(inputs.stokes[b], times, spectrum, pointer(bright), lanes_like)
                if is_sum and apart:
                    _weigh(nodes.weight[node], sky, stokes)
                # Otherwise it belongs to this slot, or to this node, alone.
                has_brightness = inputs.stokes.shape[1] == 1 and not apart
            if has_beam and not by_entry:
                fill_voltages(
                    beam_code, inputs.beam_scale[b], direction, pointing, antennas, times, freqs, voltages
                )
            of_node = at_node(work, nodes, node, 0 if is_sum else stop - entry, sky, stokes, total)
            for e in range(entry, stop, 1 if by_itself else stop - entry):
                end = e + 1 if by_itself else stop
                if by_itself:
                    antennas = lanes.antenna[e]
                    fill_voltages(
                        beam_code, inputs.beam_scale[b], direction, pointing, antennas, times, freqs, voltages
                    )
                begin(work, entry if apart else e)
                here = ahead(pointer(sums), 2 * n_all * (e - entry) if apart else 0)
                if is_sum and has_terms:
                    total = _slot_of_terms(
                        factored, rows, matrices, sky, profiles, epilogue, backward, view, slot, e, end, most,
                        pointer(terms), here, apart, node > 0, node == n_node - 1, scale, lanes_like, stokes,
                        total,
                    )  # fmt: skip
                elif is_sum:
                    total = _row_slot(
                        rows, matrices, sky, profiles, epilogue, backward, view, e, end, here, apart,
                        node > 0, node == n_node - 1, scale, lanes_like, stokes, total,
                    )  # fmt: skip
                if work is not None and (not apart or not is_sum):
                    place = slot - first_slot
                    pull_slot(
                        factored, of_node, rows, matrices, sky, profiles, slot, place, e, end, pointer(terms),
                        scale, lane, lanes_like, stokes, total,
                    )  # fmt: skip
                    if has_beam:
                        pull_voltages(
                            beam_code, inputs.beam_scale[b], direction, pointing, antennas, times, freqs,
                            place, work,
                        )  # fmt: skip
    # Numba frees an array after its last use and does not see the pointers to it: this is a later use.
    scratch[0] = 0
    if n_template:
        factors[0] = 0
    if jones is not None:
        seen[0] = 0
    keep(space)
    lane_sums = np.empty(n)
    store(pointer(lane_sums), 0, total)
    whole = 0.0
    for i in range(n):
        whole += lane_sums[i]
    return whole


@functools.cache
def make_visibilities(single: bool, n_stokes: int) -> Callable[..., None]:
    """The loop over batch entries and tasks that computes what `Output` names.

    `vis_out` is real (n_batch, n_row, n_chan, 2 n_corr), re and im in turn; `real_out` float64
    (n_batch, n_row, n_chan, n_corr) takes weighted squares, `partial` float64 (n_batch, n_task) the
    parts of chi2.
    """
    real = np.float32 if single else np.float64
    n = n_lanes(real)
    n_all = n_stokes * n

    @loop
    def visibilities(
        factored: bool, shifted: bool, beam_code: int, output: int, tasks: Array, lanes: Lanes,
        nodes: Nodes, inputs: Inputs, beams: CpuBeams | None, spectra: Array, correlations: Correlations,
        jones: LaneTerms | None, vis_out: Array, real_out: Array, partial: Array,
        functions: ProfileFunctions | None,
    ) -> None:  # fmt: skip
        n_batch, n_task = partial.shape
        if n_batch * n_task == 1:  # waking the other threads would take longer than the task
            b = np.int64(0)  # the same type as below, or Numba would compile the task twice
            partial[0, 0] = run_task(
                factored, shifted, beam_code, output, tasks[0], b, lanes, nodes, inputs, beams, spectra,
                correlations, jones, vis_out, real_out, None, functions, real, None, zeros(real, n),
                zeros(real, n_all), zeros(np.float64, n),
            )  # fmt: skip
            return
        for item in prange(n_batch * n_task):
            b, i = np.int64(item // n_task), np.int64(item % n_task)
            partial[b, i] = run_task(
                factored, shifted, beam_code, output, tasks[i], b, lanes, nodes, inputs, beams, spectra,
                correlations, jones, vis_out, real_out, None, functions, real, None, zeros(real, n),
                zeros(real, n_all), zeros(np.float64, n),
            )  # fmt: skip

    return visibilities
