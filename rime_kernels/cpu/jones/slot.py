"""The antennas of a slot where antenna terms are Jones matrices, and the sums of an entry through them.

The traversal of `cpu/forward.py` and `cpu/adjoint.py` is compiled for scalar antenna terms with None in place
of what stands here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import Array, NumbaType, Pointer, Record, Vector
from rime_kernels.cpu.brightness import workspace
from rime_kernels.cpu.jones.spline import CpuBeams, SlotFrames, fill_alike, fill_frames, sight_of
from rime_kernels.cpu.jones.sums import (
    PIECE,
    SlotAntennas,
    sum_points,
    sum_rows,
    sum_shapes,
)
from rime_kernels.cpu.lanes import Lanes
from rime_kernels.cpu.simd import ahead, pointer, size
from rime_kernels.cpu.sums import CpuSky, EntryPointers, wavelengths
from rime_kernels.inputs import Inputs


class JonesSpace(NamedTuple):
    """Scratch arrays of a task."""

    pair: Array  # (2 PIECE + 1, 16, n)
    wide: Array  # float64 (26 n + 8,)
    alike: Array  # int64 (n_antenna,)
    rotation: Array  # (n_antenna, 2, n)
    turn: Array  # float64 (n_antenna, 2, n)
    sample: Array  # (8 n + 16,)


class JonesSlot(NamedTuple):
    """The beam and the antennas of a slot, and where the two antennas of an entry are brought together."""

    beams: CpuBeams
    scale: float
    pointing: Array  # (n_time or 1, n_antenna or 1, 2 or 4): `JonesBeam.motion`
    direction: Array  # (n_source, 3)
    antennas: SlotAntennas
    pair: Pointer  # (2, n_source, 16, n): terms, where each lane has antennas of its own
    pair_gains: Pointer  # (2, 8, n): sums of the gradient for them
    of_place: Pointer  # float64 (2, n): derivatives with respect to places in the beam


@inner_function
def space_of(beams: CpuBeams | None, n: int, real: NumbaType) -> JonesSpace | None:
    """Scratch arrays for a task; None without `beams`."""
    if beams is None:
        return None
    n_antenna = beams.antenna_class.shape[1]
    return JonesSpace(
        workspace(16 * n * (2 * PIECE + 1), real), workspace(26 * n + 8, np.float64),
        np.zeros(n_antenna, np.int64), workspace(2 * n * n_antenna, real),
        workspace(2 * n * n_antenna, np.float64), workspace(8 * n + 16, real),
    )  # fmt: skip


@inner_function
def n_term(beams: CpuBeams | None, n_antenna: int) -> int:
    """Numbers of the terms of all antennas towards a source: n_antenna numbers K, or matrices T and T B."""
    if beams is None:
        return 2 * n_antenna
    return 16 * beams.antenna_class.shape[1]


@inner_function
def is_circular(beams: CpuBeams | None) -> bool:
    """Whether matrices are of circular feeds."""
    if beams is None:
        return False
    return beams.circular


@inner_function
def keep(space: JonesSpace | None) -> None:
    """Use the arrays once more: Numba frees an array after its last use and does not see pointers to it."""
    if space is not None:
        space.wide[0] = 0.0


@inner_function
def slot_of(
    beams: CpuBeams | None, space: Record, inputs: Inputs, b: int, lanes: Lanes, slot: int, block: int,
    factored: bool, n: int,
) -> JonesSlot | None:  # fmt: skip
    """The matrices' part of a slot; None without `beams`."""
    if beams is None:
        return None
    times, chan, pointing = lanes.slot_time[slot], lanes.chan[block], inputs.pointing[b]
    n_antenna, n_uvw_lane = beams.antenna_class.shape[1], lanes.antenna_uvw.shape[3]
    frames, wide = SlotFrames(pointer(space.rotation), pointer(space.turn)), pointer(space.wide)
    fill_alike(beams, pointing, times, pointer(space.alike))
    fill_frames(beams, pointing, times, chan, frames)
    scale = inputs.beam_scale[b]
    antennas = SlotAntennas(
        n_antenna,
        ahead(pointer(lanes.antenna_uvw), slot * 3 * n_antenna * n_uvw_lane if factored else 0), n_uvw_lane,
        factored, times, chan, pointer(space.alike), frames,
        sight_of(beams, scale, pointing, times, block, n, pointer(space.sample)), wide, ahead(wide, 26 * n),
    )  # fmt: skip
    pair = pointer(space.pair)
    return JonesSlot(
        beams, scale, pointing, inputs.direction[b], antennas, pair, ahead(pair, 32 * n * PIECE),
        ahead(wide, 24 * n),
    )  # fmt: skip


@inner_function
def gather(
    rows: EntryPointers, entry: int, end: int, terms: Pointer, stride: int, n_each: int, n: int, out: Pointer
) -> None:  # fmt: skip
    """Terms (n_each, n) of the antennas of each lane, first (end 0) or second; `stride` between antennas."""
    for i in range(n):
        antenna = rows.antenna[(2 * entry + end) * n + i]
        for k in range(n_each):
            out[k * n + i] = terms[antenna * stride + k * n + i]


@vector_function
def sum_entry(
    rows: EntryPointers, factored: bool, pair: Pointer, sky: CpuSky, profiles: Record, entry: int, first: int,
    n_source: int, terms: Pointer, sums: Pointer, begun: bool, scale: Vector, lanes_like: Vector,
) -> None:  # fmt: skip
    """Add n_source sources from `first` on to the sums of an entry.

    Sums begin anew with the first source, unless they have `begun`.
    """
    n_each = 16 * n_source
    length, more = n_each * size(lanes_like), begun or first > 0
    if rows.has_same:
        p = ahead(terms, length * rows.antenna[2 * entry])
        q = ahead(terms, length * rows.antenna[2 * entry + 1])
    else:
        p, q = pair, ahead(pair, length)
        gather(rows, entry, 0, terms, length, n_each, size(lanes_like), p)
        gather(rows, entry, 1, terms, length, n_each, size(lanes_like), q)
    n_point = min(max(sky.n_point - first, 0), n_source)
    if not factored:
        u, v, w = wavelengths(rows.uvw, entry, rows.n_row_lane, scale)
        sum_rows(
            sky, profiles, first, first + n_source, u, v, w, p, q, sky.bright, sums, more, lanes_like,
            lanes_like,
        )  # fmt: skip
        return
    if n_point > 0:
        sum_points(n_point, p, q, sums, more, lanes_like)
    if n_point < n_source:
        shift = 16 * size(lanes_like) * n_point
        sum_shapes(
            rows, sky, profiles, entry, first + n_point, n_source - n_point, ahead(p, shift), ahead(q, shift),
            sky.bright, sums, more or n_point > 0, scale, lanes_like, lanes_like,
        )  # fmt: skip
