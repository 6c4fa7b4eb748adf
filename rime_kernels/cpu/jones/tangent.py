"""J v through beams of Jones matrices on the CPU: what `cpu/tangent.py` needs of antennas, sample by sample.

X is E_p P_p B P_q^H E_q^H of each correlation: its real parts, and its imaginary parts after them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import Array, Scalar
from rime_kernels.cpu.jones.spline import CpuBeams, feed_angle, fill_lane, place
from rime_kernels.cpu.simd import ahead, pointer
from rime_kernels.cpu.tangent import (
    AntennaKind,
    Changes,
    TangentBlock,
    TangentSamples,
    TangentSky,
    any_of,
    brightness_varies,
    fill_brightness,
    make_fill_columns,
    push_brightness,
)
from rime_kernels.jones_beam.matrices import (
    rotated_circular,
    rotated_linear,
    turned_circular,
    turned_linear,
)


class _Matrices(NamedTuple):
    """What makes changes of X, n samples; n_part is twice the number of correlations."""

    by_stokes: NDArray[np.float64]  # (n_source, n_stokes, n_part, n)
    by_place: NDArray[np.float64]  # (n_source, 4, n_part, n): by x and y of p, and of q
    by_angle: NDArray[np.float64]  # (n_source, 2, n_part, n): by phi of both antennas, where feeds turn
    place: NDArray[np.float64]  # (n_source, n, 2, 2): x and y of both antennas
    bright: NDArray[np.float64]  # (n_stokes, n): B, and its changes
    moves: NDArray[np.float64]  # (4, n): changes of x and y of p, and of q


@vector_function
def _put_matrix(m: tuple[Scalar, ...], out: Array) -> None:
    """Eight numbers to complex128 (2, 2)."""
    for i in range(4):
        out[i // 2, i % 2] = complex(m[2 * i], m[2 * i + 1])


@inner_function
def _fill_matrices(
    beams: CpuBeams, sky: TangentSky, s: int, antenna: int, time: int, chan: int, scratch: Array, out: Array,
    offset: Array,
) -> None:  # fmt: skip
    """E P, dE/dx P, dE/dy P and E dP/dphi of an antenna, complex128 (4, 2, 2); `offset` takes x and y.

    `scratch` is float64 (32,).
    """
    error = sky.pointing[min(time, sky.pointing.shape[0] - 1), min(antenna, sky.pointing.shape[1] - 1)]
    dl, dm = sky.direction[s, 0] - error[0], sky.direction[s, 1] - error[1]
    offset[0], offset[1] = place(beams, time, antenna, dl, dm, sky.beam_scale)
    values = ahead(pointer(scratch), 8)
    if beams.applies[s]:
        which = beams.antenna_class[min(time, beams.antenna_class.shape[0] - 1), antenna]
        fill_lane(beams, which, chan, offset[0], offset[1], True, pointer(scratch), 0, 1, values)
    else:
        for k in range(24):
            values[k] = 1.0 if k == 0 or k == 6 else 0.0
    phi = feed_angle(beams, sky.pointing, time, antenna, chan)
    cos, sin = math.cos(phi), math.sin(phi)
    for k in range(3):
        e = ahead(values, 8 * k)
        m = e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7]
        m = rotated_circular(m, cos, sin) if beams.circular else rotated_linear(m, cos, sin)
        _put_matrix(m, out[k])
        if k == 0:
            _put_matrix(turned_circular(m) if beams.circular else turned_linear(m), out[3])


@inner_function
def _element(p: Array, b: Array, q: Array, product: int) -> Scalar:
    """One of the four elements of p b q^H."""
    i, j = product // 2, product % 2
    total = 0j
    for a in range(2):
        for c in range(2):
            total += p[i, a] * b[a, c] * q[j, c].conjugate()
    return total


@vector_function
def _put_elements(p: Array, b: Array, q: Array, product: Array, i: int, out: Array) -> None:
    """The correlations of p b q^H to sample i of (n_part, n)."""
    for c in range(product.size):
        value = _element(p, b, q, product[c])
        out[c, i], out[product.size + c, i] = value.real, value.imag


@inner_function
def _allocate(beams: CpuBeams, samples: TangentSamples, sky: TangentSky, n: int) -> _Matrices:
    """Arrays for n samples."""
    n_source, n_stokes, n_part = sky.direction.shape[0], sky.stokes.shape[2], 2 * samples.product.size
    n_turned = n_source if sky.pointing.shape[2] > 2 else 0
    return _Matrices(
        np.empty((n_source, n_stokes, n_part, n)), np.empty((n_source, 4, n_part, n)),
        np.empty((n_turned, 2, n_part, n)), np.empty((n_source, n, 2, 2)), np.empty((n_stokes, n)),
        np.empty((4, n)),
    )  # fmt: skip


@inner_function
def _fill(
    beams: CpuBeams, samples: TangentSamples, block: TangentBlock, sky: TangentSky, s: int,
    antennas: _Matrices, seen: Array,
) -> None:  # fmt: skip
    """X of source s, and its derivatives."""
    p, q = np.empty((4, 2, 2), np.complex128), np.empty((4, 2, 2), np.complex128)
    b, product, scratch = np.empty((2, 2), np.complex128), samples.product, np.empty(32)
    fill_brightness(samples, block, sky, s, antennas.bright)
    for i in range(block.nu.size):
        row, chan, here = block.row[i], block.chan[i], antennas.place[s, i]
        time = samples.time[row]
        _fill_matrices(beams, sky, s, samples.antenna1[row], time, chan, scratch, p, here[0])
        _fill_matrices(beams, sky, s, samples.antenna2[row], time, chan, scratch, q, here[1])
        b[:] = 0.0
        for k in range(samples.pauli.shape[0]):
            b += antennas.bright[k, i] * samples.pauli[k]
            _put_elements(p[0], samples.pauli[k], q[0], product, i, antennas.by_stokes[s, k])
        _put_elements(p[0], b, q[0], product, i, seen)
        for k in range(2):
            _put_elements(p[1 + k], b, q[0], product, i, antennas.by_place[s, k])
            _put_elements(p[0], b, q[1 + k], product, i, antennas.by_place[s, 2 + k])
        if antennas.by_angle.shape[0] > 0:
            _put_elements(p[3], b, q[0], product, i, antennas.by_angle[s, 0])
            _put_elements(p[0], b, q[3], product, i, antennas.by_angle[s, 1])


@inner_function
def _start(
    beams: CpuBeams, samples: TangentSamples, block: TangentBlock, changes: Changes, i_change: int,
    antennas: _Matrices,
) -> bool:  # fmt: skip
    """Whether beams point elsewhere, or feeds turn."""
    return any_of(changes.pointing[i_change])


@inner_function
def _fill_moves(
    beams: CpuBeams, samples: TangentSamples, block: TangentBlock, sky: TangentSky, changes: Changes,
    i_change: int, pair: int, s: int, antennas: _Matrices,
) -> None:  # fmt: skip
    """Changes of x and y of both antennas, from their places."""
    scale, of_pointing = changes.beam_scale[i_change] / sky.beam_scale, changes.pointing[i_change]
    n_time, n_antenna = of_pointing.shape[:2]
    for i in range(block.nu.size):
        time = samples.time[block.row[i]]
        for end in range(2):
            antenna = samples.antenna1[block.row[i]] if end == 0 else samples.antenna2[block.row[i]]
            error = of_pointing[min(time, n_time - 1), min(antenna, n_antenna - 1)]
            dl, dm = changes.direction[pair, 0] - error[0], changes.direction[pair, 1] - error[1]
            x, y = place(beams, time, antenna, dl, dm, sky.beam_scale)
            here = antennas.place[s, i, end]
            antennas.moves[2 * end, i] = x - here[0] * scale
            antennas.moves[2 * end + 1, i] = y - here[1] * scale


@inner_function
def _fill_turns(
    beams: CpuBeams, samples: TangentSamples, block: TangentBlock, turns: Array, antennas: _Matrices
) -> None:
    """Changes of phi of both antennas, in the first rows of `moves`."""
    for i in range(block.nu.size):
        row = block.row[i]
        time = min(samples.time[row], turns.shape[0] - 1)
        for end in range(2):
            turn = turns[time, samples.antenna1[row] if end == 0 else samples.antenna2[row]]
            antennas.moves[end, i] = turn[2] - turn[3] * beams.wavelength2[block.chan[i]]


@vector_function
def _add_products(slopes: Array, change: Array, out: Array) -> None:
    """Add slopes (n_part, n) times a change (n,) to dX."""
    for part in range(out.shape[0]):
        total, slope = out[part], slopes[part]
        for i in range(change.size):
            total[i] += slope[i] * change[i]


@inner_function
def _push(
    beams: CpuBeams, samples: TangentSamples, block: TangentBlock, sky: TangentSky, changes: Changes,
    i_change: int, pair: int, s: int, moves: bool, antennas: _Matrices, of_seen: Array,
) -> bool:  # fmt: skip
    """Fill dX of a change of source s; whether it is anything but 0."""
    varies = brightness_varies(sky, changes, pair)
    points = moves or changes.beam_scale[i_change] != 0.0 or any_of(changes.direction[pair])
    of_seen[:] = 0.0
    for k in range(sky.stokes.shape[2] if varies else 0):
        push_brightness(samples, block, sky, changes, pair, s, k, antennas.bright[k])
        _add_products(antennas.by_stokes[s, k], antennas.bright[k], of_seen)
    if points:
        _fill_moves(beams, samples, block, sky, changes, i_change, pair, s, antennas)
        for k in range(4):
            _add_products(antennas.by_place[s, k], antennas.moves[k], of_seen)
    if moves and changes.pointing.shape[3] > 2:
        _fill_turns(beams, samples, block, changes.pointing[i_change], antennas)
        for end in range(2):
            _add_products(antennas.by_angle[s, end], antennas.moves[end], of_seen)
    return varies or points


# Of a source there are up to 88 numbers a sample: blocks are shorter than those of voltages.
fill_columns = make_fill_columns(AntennaKind(32, _allocate, _fill, _start, _push))
