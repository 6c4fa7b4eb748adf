"""Beams of Jones matrices for the loops: cubic B-splines at the places of sources, lane by lane."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Sources
from rime_kernels.compile.jit import inner_function, scalar, vector_function
from rime_kernels.compile.types import Array, Pointer, Scalar, Vector
from rime_kernels.cpu.simd import ahead, load, pointer, spread, store
from rime_kernels.jones_beam import JonesBeam, spline
from rime_kernels.physics import feeds

_cell, _slopes, _turned = spline.cell, spline.slopes, spline.turned
_weights = spline.make_weights(False)
T = TypeVar("T", bound=np.generic)


class Beams(NamedTuple):
    """A `JonesBeam` as the loops read it, of a batch; pointing errors and scale are in `Inputs`."""

    coefficient: NDArray[np.float64]  # (n_class, n_chan, n_y + 2, n_x + 2, 8): re and im of 00, 01, 10, 11
    grid: NDArray[np.float64]  # (4,)
    antenna_class: NDArray[np.int32]  # (n_time or 1, n_antenna)
    angle: NDArray[np.float64]  # (n_time or 1, n_antenna)
    feed_angle: NDArray[np.float64]  # (n_time or 1, n_antenna, n_chan or 1)
    applies: NDArray[np.bool_]  # (n_source,)
    circular: bool  # feeds


def _ready(value: NDArray[T]) -> NDArray[T]:
    """As the loops are compiled for it: contiguous, writable, aligned."""
    return np.require(value, requirements=["C", "W", "A"])


def beams_of(rows_matrix: NDArray[np.complexfloating], sources: Sources, n_source: int) -> Beams | None:
    """The beam of the sources for the loops, or None of another beam; `n_source` as `Inputs` has it."""
    beam = sources.beam
    if not isinstance(beam, JonesBeam) or not sources.n_source:
        return None
    full, _ = feeds.feeds_of(rows_matrix)
    coefficient = _ready(beam.coefficient).view(np.float64)
    applies = np.ones(n_source, np.bool_) if beam.applies is None else beam.applies
    return Beams(
        coefficient.reshape(*beam.coefficient.shape[:4], 8),
        _ready(beam.grid),
        _ready(np.atleast_2d(beam.antenna_class)),
        _ready(beam.angle),
        _ready(beam.feed_angles),
        _ready(applies),
        bool(full[0, 1] == 0.0),  # RR has no Q
    )


@vector_function
def _row(nodes: Pointer, at: int, w: Vector, eight: Vector) -> Vector:
    """Four nodes of a row, from `at` on, times the weights w."""
    total = spread(w[0], eight) * load(nodes, at, eight)
    total = total + spread(w[1], eight) * load(nodes, at + 8, eight)
    total = total + spread(w[2], eight) * load(nodes, at + 16, eight)
    return total + spread(w[3], eight) * load(nodes, at + 24, eight)


@vector_function
def _taps(nodes: Pointer, at: int, step: int, w: Vector, v: Vector, eight: Vector) -> Vector:
    """16 nodes times weights w in x and v in y; `step` from a row of nodes to the next."""
    total = spread(v[0], eight) * _row(nodes, at, w, eight)
    total = total + spread(v[1], eight) * _row(nodes, at + step, w, eight)
    total = total + spread(v[2], eight) * _row(nodes, at + 2 * step, w, eight)
    return total + spread(v[3], eight) * _row(nodes, at + 3 * step, w, eight)


@scalar
def place(beams: Beams, time: int, antenna: int, dl: float, dm: float, scale: float) -> Scalar:
    """x, y in the antenna's frame, rad, of an offset from where its beam points."""
    angle = beams.angle[min(time, beams.angle.shape[0] - 1), antenna]
    x, y = _turned(dl, dm, np.sin(angle), np.cos(angle))
    return x / scale, y / scale


@inner_function
def _put(values: Vector, scratch: Pointer, i: int, n: int, out: Pointer) -> None:
    """Eight numbers to lane i of (8, n)."""
    store(scratch, 0, values)
    for k in range(8):
        out[k * n + i] = scratch[k]


@inner_function
def _fill_lane(
    beams: Beams, which: int, chan: int, x: float, y: float, slopes: bool, scratch: Pointer, i: int, n: int,
    out: Pointer, eight: Vector,
) -> None:  # fmt: skip
    """E of a class and channel at x, y to lane i; with `slopes`, dE/dx and dE/dy too."""
    n_y, n_x = beams.coefficient.shape[2], beams.coefficient.shape[3]
    i_x, t_x, in_x = _cell((x - beams.grid[0]) / beams.grid[1], n_x - 2)
    i_y, t_y, in_y = _cell((y - beams.grid[2]) / beams.grid[3], n_y - 2)
    nodes, step = pointer(beams.coefficient), 8 * n_x
    at = (((which * beams.coefficient.shape[1] + chan) * n_y + i_y) * n_x + i_x) * 8
    w, v = _weights(t_x), _weights(t_y)
    _put(_taps(nodes, at, step, w, v, eight), scratch, i, n, out)
    if slopes:
        factor = spread(in_x / beams.grid[1], eight)
        _put(factor * _taps(nodes, at, step, _slopes(t_x), v, eight), scratch, i, n, ahead(out, 8 * n))
        factor = spread(in_y / beams.grid[3], eight)
        _put(factor * _taps(nodes, at, step, w, _slopes(t_y), eight), scratch, i, n, ahead(out, 16 * n))


@inner_function
def _copy_lane(i: int, n: int, n_value: int, out: Pointer) -> None:
    """Lane i - 1 to lane i of (n_value, n)."""
    for k in range(n_value):
        out[k * n + i] = out[k * n + i - 1]


@inner_function
def fill_voltages(
    beams: Beams, scale: float, pointing: Array, direction: Array, s: int, a: int, times: Array, chan: Array,
    slopes: bool, scratch: Pointer, out: Pointer, eight: Vector,
) -> None:  # fmt: skip
    """E of antenna a towards source s, (8, n) float64, and with `slopes` dE/dx and dE/dy after it."""
    n, n_value = chan.size, 24 if slopes else 8
    if not beams.applies[s]:
        for at in range(n_value * n):
            one = at < n or 6 * n <= at < 7 * n
            out[at] = 1.0 if one else 0.0
        return
    last_chan, last_time, n_pointing = -1, -1, pointing.shape[1]
    for i in range(n):
        time, here = times[min(i, times.size - 1)], max(0, chan[i])
        if i > 0 and here == last_chan and time == last_time:
            _copy_lane(i, n, n_value, out)
            continue
        error = pointing[min(time, pointing.shape[0] - 1), min(a, n_pointing - 1)]
        dl, dm = direction[s, 0] - error[0], direction[s, 1] - error[1]
        x, y = place(beams, time, a, dl, dm, scale)
        which = beams.antenna_class[min(time, beams.antenna_class.shape[0] - 1), a]
        _fill_lane(beams, which, here, x, y, slopes, scratch, i, n, out, eight)
        last_chan, last_time = here, time


@inner_function
def fill_alike(beams: Beams, pointing: Array, times: Array, out: Pointer) -> None:
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
def fill_rotation(beams: Beams, a: int, times: Array, chan: Array, out: Pointer) -> None:
    """cos and sin of the feed angle of antenna a, (2, n) float64."""
    n, n_chan = chan.size, beams.feed_angle.shape[2]
    for i in range(n):
        time = times[min(i, times.size - 1)]
        here = min(max(0, chan[i]), n_chan - 1)
        phi = beams.feed_angle[min(time, beams.feed_angle.shape[0] - 1), a, here]
        out[i], out[n + i] = np.cos(phi), np.sin(phi)


@inner_function
def pull_place(
    beams: Beams, scale: float, pointing: Array, direction: Array, s: int, a: int, times: Array, n: int,
    of_place: Pointer, i_place: int, of_scale: Pointer, of_lm: Pointer, of_pointing: Pointer,
) -> None:  # fmt: skip
    """From derivatives with respect to x, y (2, n) to those of the scale, of l, m and of pointing errors."""
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
        at = (i_place * n_pointing + which) * 2 * times.size + j
        of_pointing[at] -= of_l
        of_pointing[at + times.size] -= of_m
