"""J v on the CPU: one loop over rows, each with its sources once and then every change of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rime_kernels import beam, phase
from rime_kernels._jit import inner_function, loop, source_digest

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_voltage, _voltage_slope, _argument_slopes = beam.voltage, beam.voltage_slope, beam.argument_slopes
_NO_BEAM, _C, _TWO_PI = beam.NO_BEAM, phase.SPEED_OF_LIGHT, 2.0 * math.pi
_cos_sin = phase.make_cos_sin(False)
_DIGEST = source_digest("phase", "beam", "_jit", "_tangent_cpu")

# Rows that a thread takes at a time.
_ROWS = 8


class Where(NamedTuple):
    """Rows and channels."""

    phase_uvw: Any  # float64 (n_row, 3), m: as the phases have them
    uvw: Any  # the same as the rows have them, for envelopes and for derivatives
    antenna1: Any  # int32 (n_row,)
    antenna2: Any
    time: Any
    chan_freq: Any  # float64 (n_chan,)


class Sky(NamedTuple):
    """The sources, float64."""

    direction: Any  # (n_source, 3): l, m, n - 1
    projection: Any  # (n_gaussian, 2, 3)
    stokes: Any  # (n_time or 1, n_source, n_stokes)
    factor: Any  # (n_source, n_stokes, n_chan): spectrum times E^2 of a beam that all antennas share
    beam_scale: float
    pointing: Any  # (n_time or 1, n_antenna, 2)


class Changes(NamedTuple):
    """Changes of the sources: for each, the sources that it touches (pairs); float64."""

    start: Any  # int64 (n_change + 1,): the first pair of each
    source: Any  # int64 (n_pair,)
    direction: Any  # (n_pair, 3)
    projection: Any  # (n_pair, 2, 3)
    stokes: Any  # (n_pair, n_time or 1, n_stokes)
    factor: Any  # (n_pair, n_stokes, n_chan)
    beam_scale: Any  # (n_change,)
    pointing: Any  # (n_change, n_time or 1, n_antenna, 2)


class _Seen(NamedTuple):
    """The sources as one row sees them."""

    re: Any  # (n_source, n_chan): K_pq envelope_pq
    im: Any
    gain: Any  # (n_source, n_chan): E_p E_q
    slope: Any  # (2, n_source, n_chan): E_q times the slope of E_p at a frequency of 1, and the other way
    offset: Any  # (2, n_source, 3): slopes of the argument of E_p and E_q by scale, l, m
    shape: Any  # (n_gaussian, 2): coordinates along and across
    of_phase: Any  # (n_chan,), room of a pair: change of the phase
    of_gain: Any  # (n_chan,): change of ln(envelope) E_p E_q, and of E_p E_q
    sums: Any  # (2, n_stokes, n_chan), of a change


@inner_function
def _see(code: Any, where: Any, row: Any, sky: Any, seen: Any) -> None:
    """Fill `_Seen` for a row."""
    n_source, n_chan = seen.re.shape
    n_point = n_source - sky.projection.shape[0]
    time = min(where.time[row], sky.pointing.shape[0] - 1)
    for s in range(n_source):
        turns = 0.0
        for k in range(3):
            turns += where.phase_uvw[row, k] * sky.direction[s, k]
        square, g = 0.0, s - n_point
        if g >= 0:
            for axis in range(2):
                along = 0.0
                for k in range(3):
                    along += where.uvw[row, k] * sky.projection[g, axis, k]
                seen.shape[g, axis] = along
                square += along * along
        for c in range(n_chan):
            nu = where.chan_freq[c]
            re, im = _cos_sin(turns * (nu / _C))
            envelope = math.exp(-square * nu * nu) if g >= 0 else 1.0
            seen.re[s, c], seen.im[s, c] = envelope * re, envelope * im
        if code == _NO_BEAM:
            continue
        for end in range(2):
            antenna = where.antenna1[row] if end == 0 else where.antenna2[row]
            dl = sky.direction[s, 0] - sky.pointing[time, antenna, 0]
            dm = sky.direction[s, 1] - sky.pointing[time, antenna, 1]
            offset = _argument_slopes(sky.beam_scale, 1.0, dl, dm)
            for k in range(3):
                seen.offset[end, s, k] = offset[k]
            for c in range(n_chan):
                x = sky.beam_scale * where.chan_freq[c] * math.sqrt(dl * dl + dm * dm)
                voltage, slope = _voltage(code, x), where.chan_freq[c] * _voltage_slope(code, x)
                if end == 0:
                    seen.gain[s, c] = voltage
                    seen.slope[0, s, c], seen.slope[1, s, c] = slope, voltage
                else:
                    seen.gain[s, c] *= voltage
                    seen.slope[0, s, c] *= voltage
                    seen.slope[1, s, c] *= slope


@inner_function
def _of_gain(where: Any, row: Any, changes: Any, i: Any, pair: Any, seen: Any) -> None:
    """Add the changes of E_p E_q to `of_gain`."""
    s, time = changes.source[pair], min(where.time[row], changes.pointing.shape[1] - 1)
    for end in range(2):
        antenna = (where.antenna1[row] if end == 0 else where.antenna2[row]) % changes.pointing.shape[2]
        dl = changes.direction[pair, 0] - changes.pointing[i, time, antenna, 0]
        dm = changes.direction[pair, 1] - changes.pointing[i, time, antenna, 1]
        offset = seen.offset[end, s]
        of_argument = offset[0] * changes.beam_scale[i] + offset[1] * dl + offset[2] * dm
        for c in range(where.chan_freq.size):
            seen.of_gain[c] += of_argument * seen.slope[end, s, c]


@inner_function
def _add_pair(code: Any, where: Any, row: Any, sky: Any, changes: Any, i: Any, pair: Any, seen: Any) -> None:
    """Add what change i of a source does to the sums of the change."""
    s, n_chan = changes.source[pair], where.chan_freq.size
    g = s - (seen.re.shape[0] - sky.projection.shape[0])
    time = min(where.time[row], sky.stokes.shape[0] - 1)
    turns, along = 0.0, 0.0
    for k in range(3):
        turns += where.uvw[row, k] * changes.direction[pair, k]
    if g >= 0:
        for axis in range(2):
            moved = 0.0
            for k in range(3):
                moved += where.uvw[row, k] * changes.projection[pair, axis, k]
            along += seen.shape[g, axis] * moved
    for c in range(n_chan):
        nu = where.chan_freq[c]
        seen.of_phase[c] = _TWO_PI / _C * turns * nu * seen.gain[s, c]
        seen.of_gain[c] = -2.0 * along * nu * nu * seen.gain[s, c]
    if code != _NO_BEAM:
        _of_gain(where, row, changes, i, pair, seen)
    for k in range(sky.stokes.shape[2]):
        flux, of_flux = sky.stokes[time, s, k], changes.stokes[pair, time, k]
        for c in range(n_chan):
            bright = flux * sky.factor[s, k, c]
            of_bright = of_flux * sky.factor[s, k, c] + flux * changes.factor[pair, k, c]
            x = of_bright * seen.gain[s, c] + bright * seen.of_gain[c]
            y = bright * seen.of_phase[c]
            seen.sums[0, k, c] += x * seen.re[s, c] - y * seen.im[s, c]
            seen.sums[1, k, c] += x * seen.im[s, c] + y * seen.re[s, c]


@inner_function
def _row(code: Any, where: Any, row: Any, sky: Any, changes: Any, matrix: Any, seen: Any, out: Any) -> None:
    """All changes of a row, (n_change, n_row, n_chan, n_corr)."""
    _see(code, where, row, sky, seen)
    n_corr, n_stokes = matrix.shape
    for i in range(changes.start.size - 1):
        if changes.start[i] == changes.start[i + 1]:
            continue
        seen.sums[:] = 0.0
        for pair in range(changes.start[i], changes.start[i + 1]):
            _add_pair(code, where, row, sky, changes, i, pair, seen)
        for c in range(where.chan_freq.size):
            for corr in range(n_corr):
                total = 0j
                for k in range(n_stokes):
                    total += matrix[corr, k] * complex(seen.sums[0, k, c], seen.sums[1, k, c])
                out[i, row, c, corr] = total


@functools.cache
def make_columns() -> Callable[..., None]:
    """The loop that fills `out`, complex128 (n_change, n_row, n_chan, n_corr).

    `code` is that of the beam in the antennas' voltages, `matrix` complex128 (n_corr, n_stokes).
    """
    digest = _DIGEST

    @loop
    def columns(code: int, where: Where, sky: Sky, changes: Changes, matrix: Any, out: Any) -> None:
        _ = digest
        n_row, n_source, n_chan = out.shape[1], sky.direction.shape[0], where.chan_freq.size
        for block in prange(-(-n_row // _ROWS)):
            seen = _Seen(
                np.empty((n_source, n_chan)), np.empty((n_source, n_chan)), np.ones((n_source, n_chan)),
                np.empty((2, n_source, n_chan)), np.empty((2, n_source, 3)),
                np.empty((sky.projection.shape[0], 2)), np.empty(n_chan), np.empty(n_chan),
                np.empty((2, matrix.shape[1], n_chan)),
            )  # fmt: skip
            for row in range(block * _ROWS, min((block + 1) * _ROWS, n_row)):
                _row(code, where, row, sky, changes, matrix, seen, out)

    return columns
