"""The sum of the measurement equation with beams of 2x2 Jones matrices on the CPU.

As `cpu/forward.py`, with matrices in place of antenna terms: a task computes the entries of some time slots
in one block of channels, for a piece of the sources at a time. Its sums are the products of two feeds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import prange

from rime_kernels.compile.jit import inner_function, loop
from rime_kernels.compile.types import Array, NumbaType, Pointer, Record, Vector
from rime_kernels.cpu.antennas import LaneTerms, View, begin_run, look_up, space_for, view_of
from rime_kernels.cpu.brightness import fill_brightness, workspace
from rime_kernels.cpu.correlations import Correlations
from rime_kernels.cpu.gradient import most_entries
from rime_kernels.cpu.jones.adjoint import PIECE, backward_of, begin, pull_slot
from rime_kernels.cpu.jones.spline import CpuBeams, SlotFrames, fill_alike, fill_frames, sight_of
from rime_kernels.cpu.jones.sums import (
    CpuJonesSky,
    SlotAntennas,
    fill_terms,
    sum_gaussians,
    sum_points,
    sum_profiles,
    sum_rows,
)
from rime_kernels.cpu.lanes import Lanes
from rime_kernels.cpu.outputs import Backward, Epilogue, expect, fill_factors, finish, needs_sums
from rime_kernels.cpu.profiles import ProfileFunctions, n_before_profiles, profiles_of
from rime_kernels.cpu.simd import ahead, load, n_lanes, pointer, size, store, zeros
from rime_kernels.cpu.sums import wavelengths
from rime_kernels.inputs import Inputs


class EntryPointers(NamedTuple):
    """The entries of `Lanes` as pointers."""

    uvw: Pointer  # (n_entry, 3, n_lane)
    n_lane: int
    antenna: Pointer  # (n_entry, 2, 1 or n)
    by_entry: bool  # each lane has antennas of its own


class EntryBeam(NamedTuple):
    """The beam of one entry of the batch."""

    beams: CpuBeams
    scale: float
    pointing: Array  # (n_time or 1, n_antenna or 1, 2 or 4): `JonesBeam.motion`
    direction: Array  # (n_source, 3)


@inner_function
def gather(
    rows: EntryPointers, entry: int, end: int, terms: Pointer, n_each: int, n: int, out: Pointer
) -> None:
    """Terms (n_antenna, n_each, n) of the antennas of each lane, first (end 0) or second, (n_each, n)."""
    for i in range(n):
        antenna = rows.antenna[(2 * entry + end) * n + i]
        for k in range(n_each):
            out[k * n + i] = terms[(antenna * n_each + k) * n + i]


@inner_function
def sum_entry(
    rows: EntryPointers, factored: bool, sky: CpuJonesSky, profiles: Record, entry: int, first: int,
    stop: int,
    terms: Pointer, pair: Pointer, sums: Pointer, scale: Vector, lanes_like: Vector,
) -> None:  # fmt: skip
    """Add sources first .. stop - 1 to the sums of an entry."""
    n_each = 16 * (stop - first)
    length = n_each * size(lanes_like)
    if rows.by_entry:
        gather(rows, entry, 0, terms, n_each, size(lanes_like), pair)
        gather(rows, entry, 1, terms, n_each, size(lanes_like), ahead(pair, length))
        p, q = pair, ahead(pair, length)
    else:
        p = ahead(terms, length * rows.antenna[2 * entry])
        q = ahead(terms, length * rows.antenna[2 * entry + 1])
    n_point = min(max(sky.n_point - first, 0), stop - first)
    if factored and n_point > 0:
        sum_points(n_point, p, q, sums, first > 0, lanes_like)
        if n_point == stop - first:
            return
    u, v, w = wavelengths(rows.uvw, entry, rows.n_lane, scale)
    if not factored:
        sum_rows(sky, profiles, first, stop, u, v, w, p, q, sums, first > 0, lanes_like)
        return
    n_before = n_before_profiles(profiles, first, stop - first)
    if n_point < n_before:
        g, shift = first + n_point - sky.n_point, 16 * size(lanes_like) * n_point
        sum_gaussians(
            g, g + n_before - n_point, sky.projection, u, v, w, ahead(p, shift), ahead(q, shift), sums,
            first + n_point > 0, lanes_like,
        )  # fmt: skip
    if profiles is not None:
        shift = 16 * size(lanes_like) * n_before
        if first + n_before < stop:
            sum_profiles(
                profiles, first + n_before - profiles.first, stop - profiles.first, u, v, w, ahead(p, shift),
                ahead(q, shift), sums, first + n_before > 0, lanes_like,
            )  # fmt: skip


@inner_function
def _sum_slot(
    beam: EntryBeam, rows: EntryPointers, antennas: SlotAntennas, sky: CpuJonesSky, profiles: Record,
    epilogue: Epilogue,
    backward: Backward | None, view: View | None, entry: int, stop: int, terms: Pointer, pair: Pointer,
    sums: Pointer, scale: Vector, lanes_like: Vector, eight: Vector, total: Vector,
) -> Vector:  # fmt: skip
    """Entries entry .. stop - 1 of a slot, for a piece of the sources at a time."""
    n_sums = 8 * size(lanes_like)
    n_piece = -(-sky.n_source // PIECE)
    step = -(-sky.n_source // n_piece)
    for first in range(0, sky.n_source, step):
        last = min(first + step, sky.n_source)
        fill_terms(
            beam.beams, beam.scale, beam.pointing, beam.direction, antennas, sky, first, last, scale, terms,
            lanes_like, eight,
        )  # fmt: skip
        for e in range(entry, stop):
            here = sums if n_piece == 1 else ahead(sums, n_sums * (e - entry))
            if last == sky.n_source:
                expect(epilogue, e + 1, min(e + 2, stop), lanes_like)
            if needs_sums(epilogue, view):
                sum_entry(
                    rows,
                    antennas.factored,
                    sky,
                    profiles,
                    e,
                    first,
                    last,
                    terms,
                    pair,
                    here,
                    scale,
                    lanes_like,
                )
            if last == sky.n_source:
                total = total + finish(epilogue, backward, view, e, here, lanes_like)
    return total


@inner_function
def run_task(
    factored: bool, shifted: bool, output: int, task: Array, b: int, lanes: Lanes, inputs: Inputs,
    beams: CpuBeams, spectra: Array, correlations: Correlations, jones: LaneTerms | None, vis_out: Array,
    real_out: Array, work: Record | None, functions: ProfileFunctions | None, real: NumbaType, lane: Vector,
    lanes_like: Vector, eight: Vector, total: Vector,
) -> float:  # fmt: skip
    """Compute one task for one entry of the batch; gives its chi2, or 0 where `output` is another.

    `work` and `lane` are None, or the workspace and the lanes of the gradient of chi2 (`adjoint.py`);
    `functions` are those of profiles; None where there are no profiles.
    """
    n = size(lanes_like)
    block, first_slot, stop_slot, first_entry, stop_entry = task[0], task[1], task[2], task[3], task[4]
    direction, projection, pointing = inputs.direction[b], inputs.projection[b], inputs.pointing[b]
    n_source, n_antenna = direction.shape[0], beams.antenna_class.shape[1]
    n_piece = min(n_source, PIECE)
    bright, scratch = workspace(4 * n_source * n, real), workspace(2 * n, real)
    terms, pair = workspace(16 * n * n_antenna * n_piece, real), workspace(32 * n * n_piece, real)
    wide, alike = workspace(24 * n + 8, np.float64), np.zeros(n_antenna, np.int64)
    rotation, turn = workspace(2 * n * n_antenna, real), workspace(2 * n * n_antenna, np.float64)
    frames, sample = SlotFrames(pointer(rotation), pointer(turn)), workspace(8 * n + 16, real)
    n_sums = most_entries(task, lanes.slot_entry) if n_source > PIECE else 1
    sums = workspace(8 * n * n_sums, real)
    rows = EntryPointers(
        pointer(lanes.uvw), lanes.uvw.shape[2], pointer(lanes.antenna), lanes.antenna.shape[2] > 1
    )
    sky = CpuJonesSky(
        n_source, n_source - projection.shape[0], pointer(direction), pointer(projection), pointer(bright),
        beams.circular,
    )  # fmt: skip
    beam = EntryBeam(beams, inputs.beam_scale[b], pointing, direction)
    n_corr, n_template = correlations.part.shape[0] // 2, max(0, lanes.data.shape[3] - 3) // 2
    factors = workspace(2 * n * n_template, real)
    space = workspace(space_for(jones, n, n_antenna), real)
    view, run = view_of(jones, lanes, n_antenna, space, n), np.int64(-1)
    scale = load(pointer(lanes.scale[block]), 0, total)
    n_data = lanes.row.shape[0] * n_corr * lanes.data.shape[3] * n if lanes.data.size > 1 else 0
    epilogue = Epilogue(
        output, n_corr, 4, correlations.part.shape[1], pointer(correlations.part),
        pointer(correlations.factor), n_template, n_template if jones is None else 0,
        pointer(inputs.template[b]), shifted, pointer(factors),
        pointer(lanes.uvw), lanes.uvw.shape[2], scale,
        ahead(pointer(lanes.data), block * n_data), pointer(lanes.row), lanes.row.shape[1],
        pointer(lanes.chan[block]), max(vis_out.shape[2], real_out.shape[2]), pointer(vis_out[b]),
        pointer(real_out[b]), pointer(scratch),
    )  # fmt: skip
    fill_factors(epilogue, 0, lanes_like)
    has_brightness, backward, profiles = False, backward_of(work), profiles_of(functions, inputs, b, scale)
    n_uvw_lane = lanes.antenna_uvw.shape[3]
    n_slot_uvw = 3 * n_antenna * n_uvw_lane if factored else 0
    for slot in range(first_slot, stop_slot):
        entry = max(first_entry, lanes.slot_entry[slot])
        stop = min(stop_entry, lanes.slot_entry[slot + 1])
        if entry >= stop:
            continue
        times = lanes.slot_time[slot]
        if not has_brightness:
            fill_brightness(inputs.stokes[b], times, spectra[b, block], pointer(bright), lanes_like)
            has_brightness = inputs.stokes.shape[1] == 1  # else each slot has its own
        run = look_up(jones, view, b, slot, block, run, n)
        begin_run(work, jones, run, first_slot)
        fill_alike(beams, pointing, times, pointer(alike))
        fill_frames(beams, pointing, times, lanes.chan[block], frames)
        antennas = SlotAntennas(
            n_antenna, ahead(pointer(lanes.antenna_uvw), slot * n_slot_uvw), n_uvw_lane, factored, times,
            lanes.chan[block], pointer(alike), frames,
            sight_of(beams, beam.scale, pointing, times, block, n, pointer(sample)), pointer(wide),
            ahead(pointer(wide), 24 * n),
        )  # fmt: skip
        begin(work, entry)
        total = _sum_slot(
            beam, rows, antennas, sky, profiles, epilogue, backward, view, entry, stop, pointer(terms),
            pointer(pair), pointer(sums), scale, lanes_like, eight, total,
        )  # fmt: skip
        if work is not None:
            pull_slot(
                work, beam, rows, antennas, sky, profiles, slot - first_slot, entry, stop, pointer(terms),
                pointer(pair), scale, lane, lanes_like, eight,
            )  # fmt: skip
    # Numba frees an array after its last use and does not see the pointers to it: this is a later use.
    for used in (bright, scratch, terms, pair, sums, space, rotation, sample):
        used[:0] = 0
    alike[0], wide[0], turn[0] = 0, 0.0, 0.0
    if n_template:
        factors[0] = 0
    lane_sums = np.empty(n)
    store(pointer(lane_sums), 0, total)
    whole = 0.0
    for i in range(n):
        whole += lane_sums[i]
    return whole


@functools.cache
def make_visibilities(single: bool) -> Callable[..., None]:
    """The loop over batch entries and tasks that computes what `Output` names: see `cpu/forward.py`."""
    real = np.float32 if single else np.float64
    n = n_lanes(real)

    @loop
    def visibilities(
        factored: bool, shifted: bool, output: int, tasks: Array, lanes: Lanes, inputs: Inputs,
        beams: CpuBeams,
        spectra: Array, correlations: Correlations, jones: LaneTerms | None, vis_out: Array, real_out: Array,
        partial: Array, functions: ProfileFunctions | None,
    ) -> None:  # fmt: skip
        n_batch, n_task = partial.shape
        for item in prange(n_batch * n_task):
            b, i = np.int64(item // n_task), np.int64(item % n_task)
            partial[b, i] = run_task(
                factored, shifted, output, tasks[i], b, lanes, inputs, beams, spectra, correlations, jones,
                vis_out, real_out, None, functions, real, None, zeros(real, n), zeros(np.float64, 8),
                zeros(np.float64, n),
            )  # fmt: skip

    return visibilities
