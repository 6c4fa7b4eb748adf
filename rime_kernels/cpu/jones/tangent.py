"""J v through beams of Jones matrices on the CPU: for each sample, derivatives of each source."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import prange

from rime_kernels.compile.jit import inner_function, loop
from rime_kernels.compile.types import Array, Scalar
from rime_kernels.cpu.jones.spline import CpuBeams, feed_angle, place
from rime_kernels.cpu.profiles import ProfileFunctions, call_slopes
from rime_kernels.cpu.simd import ahead, pointer
from rime_kernels.cpu.tangent import Changes, TangentSamples, TangentSky
from rime_kernels.jones_beam import spline
from rime_kernels.physics import envelope, phase

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_C, _TWO_PI, _AXIS_SCALE = phase.SPEED_OF_LIGHT, 2.0 * math.pi, envelope.AXIS_SCALE
_cos_sin = phase.make_cos_sin(False)
_cell, _slopes, _weights = spline.cell, spline.slopes, spline.make_weights(False)

# Samples that a thread takes at a time.
_SAMPLES = 128


class _Slopes(NamedTuple):
    """Derivatives of the correlations of one sample, by source."""

    vis: Array  # complex128 (n_source, n_corr): what the source adds to V
    by_stokes: Array  # complex128 (n_source, n_stokes, n_corr)
    by_place: Array  # complex128 (n_source, 4, n_corr): by x and y of the first antenna, and of the second
    by_angle: Array  # complex128 (n_source, 2, n_corr): by phi of both antennas, where feeds turn
    place: Array  # float64 (n_source, 2, 2): x and y of both antennas
    along: Array  # float64 (n_source, 2): scaled coordinates along and across of a Gaussian
    bare: Array  # complex128 (n_profile, n_corr): `vis` of profiles without the envelope
    profile: Array  # float64 (n_profile, 22): `profiles.profile_slopes`


@inner_function
def _fill_matrices(
    beams: CpuBeams, sky: TangentSky, s: int, antenna: int, time: int, chan: int, out: Array, offset: Array
) -> None:
    """E P, dE/dx P, dE/dy P and E dP/dphi of an antenna, complex128 (4, 2, 2); `offset` takes x and y."""
    error = sky.pointing[min(time, sky.pointing.shape[0] - 1), min(antenna, sky.pointing.shape[1] - 1)]
    dl, dm = sky.direction[s, 0] - error[0], sky.direction[s, 1] - error[1]
    offset[0], offset[1] = place(beams, time, antenna, dl, dm, sky.beam_scale)
    e = np.zeros((3, 8))
    if beams.applies[s]:
        n_y, n_x = beams.coefficient.shape[2], beams.coefficient.shape[3]
        i_x, t_x, in_x = _cell((offset[0] - beams.grid[0]) / beams.grid[1], n_x - 2)
        i_y, t_y, in_y = _cell((offset[1] - beams.grid[2]) / beams.grid[3], n_y - 2)
        which = beams.antenna_class[min(time, beams.antenna_class.shape[0] - 1), antenna]
        nodes = beams.coefficient[which, chan]
        w, v, of_w, of_v = _weights(t_x), _weights(t_y), _slopes(t_x), _slopes(t_y)
        for j in range(4):
            for i in range(4):
                by_x, by_y = of_w[i] * v[j] * in_x / beams.grid[1], w[i] * of_v[j] * in_y / beams.grid[3]
                for k in range(8):
                    node = nodes[i_y + j, i_x + i, k]
                    e[0, k] += w[i] * v[j] * node
                    e[1, k] += by_x * node
                    e[2, k] += by_y * node
    else:
        e[0, 0] = e[0, 6] = 1.0
    phi = feed_angle(beams, sky.pointing, time, antenna, chan)
    cos, sin = math.cos(phi), math.sin(phi)
    for k in range(3):
        for i in range(2):
            first, second = complex(e[k, 4 * i], e[k, 4 * i + 1]), complex(e[k, 4 * i + 2], e[k, 4 * i + 3])
            if beams.circular:
                out[k, i, 0], out[k, i, 1] = first * complex(cos, -sin), second * complex(cos, sin)
            else:
                out[k, i, 0], out[k, i, 1] = first * cos - second * sin, first * sin + second * cos
    for i in range(2):
        if beams.circular:
            out[3, i, 0], out[3, i, 1] = -1j * out[0, i, 0], 1j * out[0, i, 1]
        else:
            out[3, i, 0], out[3, i, 1] = -out[0, i, 1], out[0, i, 0]


@inner_function
def _element(p: Array, b: Array, q: Array, product: int) -> Scalar:
    """One of the four elements of p b q^H."""
    i, j = product // 2, product % 2
    total = 0j
    for a in range(2):
        for c in range(2):
            total += p[i, a] * b[a, c] * q[j, c].conjugate()
    return total


@inner_function
def _fill_axes(
    samples: TangentSamples, projection: Array, row: int, scale: float, factor: float, out: Array
) -> None:  # fmt: skip
    """Coordinates along and across a shape, (2,), times a factor."""
    for axis in range(2):
        total = 0.0
        for k in range(3):
            total += samples.uvw[row, k] * scale * factor * projection[axis, k]
        out[axis] = total


@inner_function
def _envelope(
    samples: TangentSamples, sky: TangentSky, functions: ProfileFunctions | None, s: int, row: int,
    scale: float,
    slopes: _Slopes,
) -> complex:  # fmt: skip
    """The envelope of source s; fills `along`, and `profile` of a profile."""
    n_source, along = slopes.vis.shape[0], slopes.along[s]
    g, j = s - n_source + sky.projection.shape[0], s - n_source + sky.profile_kind.size
    if g < 0:
        return 1.0 + 0.0j
    _fill_axes(samples, sky.projection[g], row, scale, _AXIS_SCALE if j >= 0 else _C, along)
    if functions is not None:
        p = ahead(pointer(sky.profile), 8 * max(j, 0))
        if j >= 0:
            kind, nu = int(sky.profile_kind[j]), scale * _C
            found = call_slopes(functions.slopes, kind, along[0], along[1], nu, p)
            for k in range(22):
                slopes.profile[j, k] = found[k]
            return complex(found[0], found[1])
    return complex(math.exp(-(along[0] ** 2 + along[1] ** 2)), 0.0)


@inner_function
def _fill_slopes(
    samples: TangentSamples, sky: TangentSky, functions: ProfileFunctions | None, beams: CpuBeams,
    pauli: Array,
    product: Array, row: int, chan: int, slopes: _Slopes,
) -> None:  # fmt: skip
    """Fill `_Slopes` of a sample."""
    n_source, n_corr, n_stokes = slopes.vis.shape[0], product.size, slopes.by_stokes.shape[1]
    has_turns = sky.pointing.shape[2] > 2
    scale, time = samples.chan_freq[chan] / _C, samples.time[row]
    p, q = np.empty((4, 2, 2), np.complex128), np.empty((4, 2, 2), np.complex128)
    for s in range(n_source):
        turns, j = 0.0, s - n_source + sky.profile_kind.size
        for k in range(3):
            turns += samples.phase_uvw[row, k] * scale * sky.direction[s, k]
        re, im = _cos_sin(turns)
        bare = complex(re, im)
        factor = bare * _envelope(samples, sky, functions, s, row, scale, slopes)
        _fill_matrices(beams, sky, s, samples.antenna1[row], time, chan, p, slopes.place[s, 0])
        _fill_matrices(beams, sky, s, samples.antenna2[row], time, chan, q, slopes.place[s, 1])
        bright = np.zeros((2, 2), np.complex128)
        for k in range(n_stokes):
            value = sky.stokes[min(time, sky.stokes.shape[0] - 1), s, k]
            if value != 0.0:  # no flux, whatever the spectrum
                bright += value * sky.factor[s, k, chan] * pauli[k]
                if sky.cross.shape[0] > 0 and 1 <= k <= 2:
                    bright += value * sky.cross[s, 2 - k, chan] * pauli[3 - k]
        for c in range(n_corr):
            seen = _element(p[0], bright, q[0], product[c])
            slopes.vis[s, c] = factor * seen
            if j >= 0:
                slopes.bare[j, c] = bare * seen
            for k in range(n_stokes):
                slopes.by_stokes[s, k, c] = factor * _element(p[0], pauli[k], q[0], product[c])
            for k in range(2):
                slopes.by_place[s, k, c] = factor * _element(p[1 + k], bright, q[0], product[c])
                slopes.by_place[s, 2 + k, c] = factor * _element(p[0], bright, q[1 + k], product[c])
            if has_turns:
                slopes.by_angle[s, 0, c] = factor * _element(p[3], bright, q[0], product[c])
                slopes.by_angle[s, 1, c] = factor * _element(p[0], bright, q[3], product[c])


@inner_function
def _fill_moves(
    samples: TangentSamples, sky: TangentSky, beams: CpuBeams, changes: Changes, i_change: int, pair: int,
    row: int,
    offset: Array,
    out: Array,
) -> None:  # fmt: skip
    """Changes of x and y of both antennas, (4,), from their places `offset` (2, 2)."""
    time, scale = samples.time[row], changes.beam_scale[i_change] / sky.beam_scale
    of_pointing = changes.pointing[i_change]
    n_time, n_antenna = of_pointing.shape[:2]
    for end in range(2):
        antenna = samples.antenna1[row] if end == 0 else samples.antenna2[row]
        error = of_pointing[min(time, n_time - 1), min(antenna, n_antenna - 1)]
        dl, dm = changes.direction[pair, 0] - error[0], changes.direction[pair, 1] - error[1]
        x, y = place(beams, time, antenna, dl, dm, sky.beam_scale)
        out[2 * end], out[2 * end + 1] = x - offset[end, 0] * scale, y - offset[end, 1] * scale


@inner_function
def _add_turns(
    samples: TangentSamples, beams: CpuBeams, changes: Changes, i_change: int, s: int, row: int, chan: int,
    slopes: _Slopes, out: Array,
) -> None:  # fmt: skip
    """Add what turning feeds of both antennas does to source s in a sample."""
    turns = changes.pointing[i_change]
    if turns.shape[2] == 2:
        return
    time = min(samples.time[row], turns.shape[0] - 1)
    for end in range(2):
        turn = turns[time, samples.antenna1[row] if end == 0 else samples.antenna2[row]]
        of_angle = turn[2] - turn[3] * beams.wavelength2[chan]
        for c in range(out.size):
            out[c] += of_angle * slopes.by_angle[s, end, c]


@inner_function
def _add_pair(
    samples: TangentSamples, sky: TangentSky, beams: CpuBeams, changes: Changes, i_change: int, pair: int,
    row: int, chan: int,
    slopes: _Slopes, moves: Array, out: Array,
) -> None:  # fmt: skip
    """Add what a change of a source does to the correlations of a sample, complex128 (n_corr,)."""
    s, scale, time = changes.source[pair], samples.chan_freq[chan] / _C, samples.time[row]
    n_source, of_axes = slopes.vis.shape[0], moves[:2]
    g, j = s - n_source + sky.projection.shape[0], s - n_source + sky.profile_kind.size
    of_phase, of_envelope, of_profile = 0.0, 0.0, 0.0j
    for k in range(3):
        of_phase += _TWO_PI * samples.uvw[row, k] * scale * changes.direction[pair, k]
    if g >= 0:
        _fill_axes(samples, changes.projection[pair], row, scale, _AXIS_SCALE if j >= 0 else _C, of_axes)
        for axis in range(2):
            if j >= 0:
                slope = complex(slopes.profile[j, 2 + 2 * axis], slopes.profile[j, 3 + 2 * axis])
                of_profile += slope * of_axes[axis]
            else:
                of_envelope -= 2.0 * slopes.along[s, axis] * of_axes[axis]
    for k in range(8 if j >= 0 else 0):
        slope = complex(slopes.profile[j, 6 + 2 * k], slopes.profile[j, 7 + 2 * k])
        of_profile += slope * changes.profile[pair, k]
    _fill_moves(samples, sky, beams, changes, i_change, pair, row, slopes.place[s], moves)
    _add_turns(samples, beams, changes, i_change, s, row, chan, slopes, out)
    turn = complex(of_envelope, of_phase)
    for c in range(out.size):
        out[c] += turn * slopes.vis[s, c]
        if j >= 0:
            out[c] += of_profile * slopes.bare[j, c]
        for k in range(4):
            out[c] += moves[k] * slopes.by_place[s, k, c]
        for k in range(slopes.by_stokes.shape[1]):
            offset = min(time, sky.stokes.shape[0] - 1)
            of_bright = changes.stokes[pair, offset, k] * sky.factor[s, k, chan]
            of_bright += sky.stokes[offset, s, k] * changes.factor[pair, k, chan]
            if sky.cross.shape[0] > 0 and 1 <= k <= 2:
                of_bright += changes.stokes[pair, offset, 3 - k] * sky.cross[s, k - 1, chan]
                of_bright += sky.stokes[offset, s, 3 - k] * changes.cross[pair, k - 1, chan]
            out[c] += of_bright * slopes.by_stokes[s, k, c]


@loop
def fill_columns(
    samples: TangentSamples, sky: TangentSky, changes: Changes, beams: CpuBeams, pauli: Array,
    product: Array, out: Array,
    functions: ProfileFunctions | None,
) -> None:  # fmt: skip
    """Fill `out`, complex128 (n_change, n_row * n_chan, n_corr).

    `pauli` complex128 (n_stokes, 2, 2) are the products of feeds of each Stokes parameter, `product` int64
    (n_corr,) which of the four products each correlation is.
    """
    n_source, n_chan, n_corr = sky.direction.shape[0], samples.chan_freq.size, product.size
    n_change, n_sample = out.shape[:2]
    for i_block in prange(-(-n_sample // _SAMPLES)):
        slopes = _Slopes(
            np.empty((n_source, n_corr), np.complex128),
            np.empty((n_source, pauli.shape[0], n_corr), np.complex128),
            np.empty((n_source, 4, n_corr), np.complex128),
            np.empty((n_source, 2, n_corr), np.complex128), np.empty((n_source, 2, 2)),
            np.empty((n_source, 2)), np.empty((sky.profile_kind.size, n_corr), np.complex128),
            np.empty((sky.profile_kind.size, 22)),
        )  # fmt: skip
        moves, total = np.empty(4), np.empty(n_corr, np.complex128)
        for i in range(i_block * _SAMPLES, min((i_block + 1) * _SAMPLES, n_sample)):
            row, chan = i // n_chan, i % n_chan
            _fill_slopes(samples, sky, functions, beams, pauli, product, row, chan, slopes)
            for i_change in range(n_change):
                total[:] = 0.0
                for pair in range(changes.start[i_change], changes.start[i_change + 1]):
                    _add_pair(samples, sky, beams, changes, i_change, pair, row, chan, slopes, moves, total)
                out[i_change, i] = total
