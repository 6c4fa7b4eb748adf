"""Beams of Jones matrices for the loops: cubic B-splines at the places of sources.

Where lanes are channels of one time, all look at the same place: their coefficients lie side by side
(`BeamLanes`), and one sum over 16 nodes serves them all. Other lanes are taken one by one.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Sources
from rime_kernels.compile.jit import inner_function, scalar, vector_function
from rime_kernels.compile.types import (
    Array,
    Matrix,
    Pointer,
    Record,
    Scalar,
    Vector,
)
from rime_kernels.cpu.lanes import Lanes, aligned
from rime_kernels.cpu.simd import ahead, constant, load, pointer, size, spread, store, zeros
from rime_kernels.jones_beam import JonesBeam, spline
from rime_kernels.physics import feeds

_cell, _slopes, _turned = spline.cell, spline.slopes, spline.turned
_weights = spline.make_weights(False)
T = TypeVar("T", bound=np.generic)


class CpuBeams(NamedTuple):
    """A `JonesBeam` as the loops read it, of a batch; `motion` and scale are in `Inputs`."""

    coefficient: NDArray[np.float64]  # (n_class, n_chan, n_y + 2, n_x + 2, 8): re and im of 00, 01, 10, 11
    grid: NDArray[np.float64]  # (4,)
    antenna_class: NDArray[np.int32]  # (n_time or 1, n_antenna)
    angle: NDArray[np.float64]  # (n_time or 1, n_antenna)
    feed_angle: NDArray[np.float64]  # (n_time or 1, n_antenna, n_chan or 1)
    wavelength2: NDArray[np.float64]  # (n_chan,) where there are turns, or one unused element
    applies: NDArray[np.uint8]  # (n_source,): 0 for sources that are not seen through the beam
    circular: bool  # feeds
    by_lane: NDArray[np.floating]  # (n_class, n_block, n_y + 2, n_x + 2, 8, n), or one element: `BeamLanes`


def _ready(value: NDArray[T]) -> NDArray[T]:
    """The array in the form that loops are compiled for: contiguous, writable, aligned."""
    return np.require(value, requirements=["C", "W", "A"])


class BeamLanes:
    """Coefficients of the last beam in the order of lanes that are channels, kept until another one comes."""

    def __init__(self, lanes: Lanes, real: type[np.floating]) -> None:
        self._chan = np.maximum(lanes.chan, 0) if lanes.axis == "channels" else None
        self._given: NDArray[np.complex128] | None = None
        self._found = aligned((1,) * 6, real)

    def of(self, coefficient: NDArray[np.complex128]) -> NDArray[np.floating]:
        """Coefficients (n_class, n_block, n_y + 2, n_x + 2, 8, n); one element for other lanes."""
        # Compared by identity, as beams on a GPU are: nothing changes coefficients.
        if self._chan is not None and coefficient is not self._given:
            n_class, _, n_y, n_x = coefficient.shape[:4]
            parts = _ready(coefficient).view(np.float64).reshape(*coefficient.shape[:4], 8)
            shape = n_class, len(self._chan), n_y, n_x, 8, self._chan.shape[1]
            self._found = aligned(shape, self._found.dtype)
            for block, i in np.ndindex(self._chan.shape):
                self._found[:, block, ..., i] = parts[:, self._chan[block, i]]
            self._given = coefficient
        return self._found


def beams_of(
    rows_matrix: NDArray[np.complexfloating], sources: Sources, n_source: int, lanes: BeamLanes | None = None
) -> CpuBeams | None:
    """The beam of the sources for the loops, or None of another beam; `n_source` as `Inputs` has it.

    Without `lanes` only lanes that are taken one by one are served.
    """
    beam = sources.beam
    if not isinstance(beam, JonesBeam) or not sources.n_source:
        return None
    full, _ = feeds.feeds_of(rows_matrix)
    coefficient = _ready(beam.coefficient).view(np.float64)
    applies = np.ones(n_source, np.uint8) if beam.applies is None else beam.applies.astype(np.uint8)
    return CpuBeams(
        coefficient.reshape(*beam.coefficient.shape[:4], 8),
        _ready(beam.grid),
        _ready(np.atleast_2d(beam.antenna_class)),
        _ready(beam.angle),
        _ready(beam.feed_angles),
        _ready(np.zeros(1) if beam.wavelength2 is None else beam.wavelength2),
        _ready(applies),
        bool(full[0, 1] == 0.0),  # RR has no Q
        np.zeros((1,) * 6) if lanes is None else lanes.of(beam.coefficient),
    )


@vector_function
def _row(nodes: Pointer, offset: int, w: tuple[float, ...], eight: Vector) -> Vector:
    """Four nodes of a row, from `offset` on, times the weights w."""
    total = spread(w[0], eight) * load(nodes, offset, eight)
    total = total + spread(w[1], eight) * load(nodes, offset + 8, eight)
    total = total + spread(w[2], eight) * load(nodes, offset + 16, eight)
    return total + spread(w[3], eight) * load(nodes, offset + 24, eight)


@vector_function
def _taps(
    nodes: Pointer, offset: int, step: int, w: tuple[float, ...], v: tuple[float, ...], eight: Vector
) -> Vector:
    """16 nodes times weights w in x and v in y; `step` from a row of nodes to the next."""
    total = spread(v[0], eight) * _row(nodes, offset, w, eight)
    total = total + spread(v[1], eight) * _row(nodes, offset + step, w, eight)
    total = total + spread(v[2], eight) * _row(nodes, offset + 2 * step, w, eight)
    return total + spread(v[3], eight) * _row(nodes, offset + 3 * step, w, eight)


@scalar
def place(
    beams: CpuBeams, time: int, antenna: int, dl: float, dm: float, scale: float
) -> tuple[Scalar, Scalar]:
    """x, y in the antenna's frame, rad, of an offset from where its beam points."""
    angle = beams.angle[min(time, beams.angle.shape[0] - 1), antenna]
    x, y = _turned(dl, dm, np.sin(angle), np.cos(angle))
    return x / scale, y / scale


class SlotFrames(NamedTuple):
    """How the antennas of a slot are turned: sines and cosines, which all sources share."""

    rotation: Pointer  # (n_antenna, 2, n): cos and sin of feed angles, in working precision
    turn: Pointer  # float64 (n_antenna, 2, 1 or n): sin and cos of the antenna's frame


@inner_function
def feed_angle(beams: CpuBeams, motion: Array, time: int, antenna: int, chan: int) -> float:
    """phi of an antenna at a time slot and channel; `motion` (n_time or 1, n_antenna or 1, 2 or 4)."""
    n_time, _, n_chan = beams.feed_angle.shape
    phi = beams.feed_angle[min(time, n_time - 1), antenna, min(chan, n_chan - 1)]
    if motion.shape[2] > 2:
        turn = motion[min(time, motion.shape[0] - 1), antenna]
        phi += turn[2] - turn[3] * beams.wavelength2[chan]
    return phi


@inner_function
def fill_frames(beams: CpuBeams, motion: Array, times: Array, chan: Array, out: SlotFrames) -> None:
    """Fill the frames of the antennas for lanes of times (1 or n,) and channels (n,)."""
    n, n_time, n_chan = chan.size, times.size, max(beams.feed_angle.shape[2], beams.wavelength2.size)
    for a in range(beams.antenna_class.shape[1]):
        for i in range(n_time):
            angle = beams.angle[min(times[i], beams.angle.shape[0] - 1), a]
            out.turn[2 * n_time * a + i] = np.sin(angle)
            out.turn[2 * n_time * a + n_time + i] = np.cos(angle)
        offset, cos, sin = 2 * n * a, 1.0, 0.0
        for i in range(n):
            if i == 0 or n_time > 1 or n_chan > 1:
                phi = feed_angle(beams, motion, times[min(i, n_time - 1)], a, max(0, chan[i]))
                cos, sin = np.cos(phi), np.sin(phi)
            out.rotation[offset + i], out.rotation[offset + n + i] = cos, sin


@inner_function
def _seen_at(
    frames: SlotFrames, scale: float, pointing: Array, direction: Array, s: int, a: int, times: Array, i: int
) -> tuple[Scalar, Scalar]:
    """x, y of source s in the frame of antenna a, for lane i of the times."""
    n_time = times.size
    error = pointing[min(times[i], pointing.shape[0] - 1), min(a, pointing.shape[1] - 1)]
    offset = 2 * n_time * a + i
    x, y = _turned(
        direction[s, 0] - error[0],
        direction[s, 1] - error[1],
        frames.turn[offset],
        frames.turn[offset + n_time],
    )
    return x / scale, y / scale


class Sight(NamedTuple):
    """What a slot whose lanes are channels of one time sees of a beam: numbers and pointers."""

    is_used: bool  # False: lanes are taken one by one
    nodes: Pointer  # (n_class, ..., n_y, n_x, 8, n): of the block
    class_step: int
    n_y: int
    n_x: int
    first_x: float  # the grid
    step_x: float
    first_y: float
    step_y: float
    scale: float
    antenna_class: Pointer  # int32 (n_antenna,)
    pointing: Pointer  # float64 (n_antenna or 1, 2 or 4)
    n_pointing: int
    n_motion: int  # 2 or 4
    applies: Pointer  # uint8 (n_source,)
    weights: Pointer  # (16,): scratch memory
    sample: Pointer  # (8, n): E


@inner_function
def sight_of(
    beams: CpuBeams, scale: float, pointing: Array, times: Array, block: int, n: int, scratch: Pointer
) -> Sight:
    """What a slot of these times sees; `scratch` is of 16 + 8 n numbers in working precision."""
    n_y, n_x = beams.by_lane.shape[2], beams.by_lane.shape[3]
    n_block, size_of_block = beams.by_lane.shape[1], n_y * n_x * 8 * n
    i_class = min(times[0], beams.antenna_class.shape[0] - 1)
    i_pointing = min(times[0], pointing.shape[0] - 1)
    return Sight(
        beams.by_lane.shape[5] > 1, ahead(pointer(beams.by_lane), block * size_of_block),
        n_block * size_of_block, n_y, n_x, beams.grid[0], beams.grid[1], beams.grid[2], beams.grid[3], scale,
        ahead(pointer(beams.antenna_class), i_class * beams.antenna_class.shape[1]),
        ahead(pointer(pointing), i_pointing * pointing.shape[1] * pointing.shape[2]), pointing.shape[1],
        pointing.shape[2], pointer(beams.applies), ahead(scratch, 8 * n), scratch,
    )  # fmt: skip


@vector_function
def sample(
    sight: Sight, frames: SlotFrames, direction: Pointer, s: int, a: int, lanes_like: Vector
) -> Matrix:
    """E of antenna a towards source s, eight vectors."""
    n, zero, one = size(lanes_like), constant(0.0, lanes_like), constant(1.0, lanes_like)
    if not sight.applies[s]:
        return one, zero, zero, zero, zero, zero, one, zero
    error = sight.n_motion * min(a, sight.n_pointing - 1)
    x, y = _turned(
        direction[3 * s] - sight.pointing[error], direction[3 * s + 1] - sight.pointing[error + 1],
        frames.turn[2 * a], frames.turn[2 * a + 1],
    )  # fmt: skip
    i_x, t_x, _ = _cell((x / sight.scale - sight.first_x) / sight.step_x, sight.n_x - 2)
    i_y, t_y, _ = _cell((y / sight.scale - sight.first_y) / sight.step_y, sight.n_y - 2)
    w, v = _weights(t_x), _weights(t_y)
    for j in range(4):
        for i in range(4):
            sight.weights[4 * j + i] = v[j] * w[i]
    nodes, step = sight.nodes, 8 * n
    offset = sight.antenna_class[a] * sight.class_step + (i_y * sight.n_x + i_x) * step
    e = (zero, zero, zero, zero, zero, zero, zero, zero)
    for j in range(4):
        for i in range(4):
            f, here = spread(sight.weights[4 * j + i], lanes_like), offset + i * step
            e = (
                e[0] + f * load(nodes, here, lanes_like), e[1] + f * load(nodes, here + n, lanes_like),
                e[2] + f * load(nodes, here + 2 * n, lanes_like), e[3] + f * load(nodes, here + 3 * n,
                lanes_like),
                e[4] + f * load(nodes, here + 4 * n, lanes_like), e[5] + f * load(nodes, here + 5 * n,
                lanes_like),
                e[6] + f * load(nodes, here + 6 * n, lanes_like), e[7] + f * load(nodes, here + 7 * n,
                lanes_like),
            )  # fmt: skip
        offset += sight.n_x * step
    return e


@inner_function
def _put(values: Vector, scratch: Pointer, i: int, n: int, out: Pointer) -> None:
    """Eight numbers to lane i of (8, n)."""
    store(scratch, 0, values)
    for k in range(8):
        out[k * n + i] = scratch[k]


@inner_function
def fill_lane(
    beams: CpuBeams, which: int, chan: int, x: float, y: float, slopes: bool, scratch: Pointer, i: int,
    n: int, out: Pointer,
) -> None:  # fmt: skip
    """E of a class and channel at x, y to lane i; with `slopes`, dE/dx and dE/dy too."""
    eight = zeros(np.float64, 8)
    n_y, n_x = beams.coefficient.shape[2], beams.coefficient.shape[3]
    i_x, t_x, in_x = _cell((x - beams.grid[0]) / beams.grid[1], n_x - 2)
    i_y, t_y, in_y = _cell((y - beams.grid[2]) / beams.grid[3], n_y - 2)
    nodes, step = pointer(beams.coefficient), 8 * n_x
    offset = (((which * beams.coefficient.shape[1] + chan) * n_y + i_y) * n_x + i_x) * 8
    w, v = _weights(t_x), _weights(t_y)
    _put(_taps(nodes, offset, step, w, v, eight), scratch, i, n, out)
    if slopes:
        factor = spread(in_x / beams.grid[1], eight)
        _put(factor * _taps(nodes, offset, step, _slopes(t_x), v, eight), scratch, i, n, ahead(out, 8 * n))
        factor = spread(in_y / beams.grid[3], eight)
        _put(factor * _taps(nodes, offset, step, w, _slopes(t_y), eight), scratch, i, n, ahead(out, 16 * n))


@inner_function
def _copy_lane(i: int, n: int, n_value: int, out: Pointer) -> None:
    """Lane i - 1 to lane i of (n_value, n)."""
    for k in range(n_value):
        out[k * n + i] = out[k * n + i - 1]


@inner_function
def fill_voltages(slot: Record, s: int, a: int, slopes: bool) -> None:
    """E of antenna a towards source s, (8, n) float64, and with `slopes` dE/dx and dE/dy after it.

    To `voltage` of the antennas of a `JonesSlot`.
    """
    beams, times, chan, out = slot.beams, slot.antennas.times, slot.antennas.chan, slot.antennas.voltage
    n, n_value = chan.size, 24 if slopes else 8
    if not beams.applies[s]:
        for offset in range(n_value * n):
            one = offset < n or 6 * n <= offset < 7 * n
            out[offset] = 1.0 if one else 0.0
        return
    last_chan, last_time = -1, -1
    for i in range(n):
        i_time, here = min(i, times.size - 1), max(0, chan[i])
        time = times[i_time]
        if i > 0 and here == last_chan and time == last_time:
            _copy_lane(i, n, n_value, out)
            continue
        x, y = _seen_at(slot.antennas.frames, slot.scale, slot.pointing, slot.direction, s, a, times, i_time)
        which = beams.antenna_class[min(time, beams.antenna_class.shape[0] - 1), a]
        fill_lane(beams, which, here, x, y, slopes, slot.antennas.scratch, i, n, out)
        last_chan, last_time = here, time


@inner_function
def fill_alike(beams: CpuBeams, pointing: Array, times: Array, out: Pointer) -> None:
    """1 for each antenna that has the same E as the one before it, or 0, (n_antenna,)."""
    n_angle, n_pointing, n_class = beams.angle.shape[0], pointing.shape[0], beams.antenna_class.shape[0]
    out[0] = 0
    for a in range(1, beams.antenna_class.shape[1]):
        same = True
        for i in range(times.size):
            which = beams.antenna_class[min(times[i], n_class - 1)]
            same = same and which[a] == which[a - 1]
            angle = beams.angle[min(times[i], n_angle - 1)]
            same = same and angle[a] == angle[a - 1]
            if pointing.shape[1] > 1:
                error = pointing[min(times[i], n_pointing - 1)]
                same = same and error[a, 0] == error[a - 1, 0] and error[a, 1] == error[a - 1, 1]
        out[a] = 1 if same else 0


@inner_function
def pull_place(
    slot: Record, s: int, a: int, i_place: int, of_scale: Pointer, of_lm: Pointer, of_pointing: Pointer
) -> None:
    """From derivatives with respect to x, y (2, n) to those of the scale, of l, m and of pointing errors."""
    beams, scale, pointing, direction = slot.beams, slot.scale, slot.pointing, slot.direction
    times, n, of_place = slot.antennas.times, slot.antennas.chan.size, slot.of_place
    n_pointing = pointing.shape[1]
    which = min(a, n_pointing - 1)
    for i in range(n):
        j = min(i, times.size - 1)
        of_x, of_y = of_place[i], of_place[n + i]
        if of_x == 0.0 and of_y == 0.0:
            continue
        angle = beams.angle[min(times[j], beams.angle.shape[0] - 1), a]
        sin, cos = np.sin(angle), np.cos(angle)
        of_l, of_m = (of_x * cos + of_y * sin) / scale, (of_y * cos - of_x * sin) / scale
        error = pointing[min(times[j], pointing.shape[0] - 1), which]
        dl, dm = direction[s, 0] - error[0], direction[s, 1] - error[1]
        of_scale[0] -= (of_l * dl + of_m * dm) / scale
        of_lm[2 * s] += of_l
        of_lm[2 * s + 1] += of_m
        offset = (i_place * n_pointing + which) * pointing.shape[2] * times.size + j
        of_pointing[offset] -= of_l
        of_pointing[offset + times.size] -= of_m


@inner_function
def pull_turn(slot: Record, a: int, i_place: int, of_motion: Pointer) -> None:
    """From derivatives with respect to phi (n,) to those of what turns the feeds of antenna a."""
    beams, chan, of_angle, n_time = slot.beams, slot.antennas.chan, slot.of_place, slot.antennas.times.size
    first = (i_place * slot.pointing.shape[1] + a) * 4 * n_time
    for i in range(chan.size):
        offset = first + min(i, n_time - 1)
        of_motion[offset + 2 * n_time] += of_angle[i]
        of_motion[offset + 3 * n_time] -= of_angle[i] * beams.wavelength2[max(0, chan[i])]
