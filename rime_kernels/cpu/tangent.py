"""J v on the CPU: for each block of samples, the terms of all sources, then the effect of each change."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function, loop, vector_function
from rime_kernels.compile.types import Array
from rime_kernels.cpu.profiles import ProfileFunctions, call_slopes
from rime_kernels.cpu.simd import ahead, pointer
from rime_kernels.physics import beam, envelope, phase

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_voltage, _voltage_slope, _argument_slopes = beam.voltage, beam.voltage_slope, beam.argument_slopes
_NO_BEAM, _C, _TWO_PI = beam.NO_BEAM, phase.SPEED_OF_LIGHT, 2.0 * math.pi
_cos_sin, _AXIS_SCALE = phase.make_cos_sin(False), envelope.AXIS_SCALE

# Samples (rows times channels) of a block: the terms of all sources stay in the cache of a core.
_SAMPLES = 128


class TangentSamples(NamedTuple):
    """The rows and channels of all samples."""

    phase_uvw: NDArray[np.float64]  # float64 (n_row, 3), m: as the phases have them
    uvw: NDArray[np.float64]  # the same as the rows have them, for envelopes and for derivatives
    antenna1: NDArray[np.int32]  # int32 (n_row,)
    antenna2: NDArray[np.int32]
    time: NDArray[np.int32]
    chan_freq: NDArray[np.float64]  # float64 (n_chan,)


class TangentSky(NamedTuple):
    """The sources, float64."""

    direction: NDArray[np.float64]  # (n_source, 3): l, m, n - 1
    projection: NDArray[np.float64]  # (n_shape, 2, 3): of Gaussians, then profiles
    stokes: NDArray[np.float64]  # (n_time or 1, n_source, n_stokes)
    factor: NDArray[
        np.float64
    ]  # (n_source, n_stokes, n_chan): spectrum times E^2 of a beam that all antennas share
    beam_scale: float
    pointing: NDArray[np.float64]  # (n_time or 1, n_antenna, 2); or 4: `JonesBeam.motion`
    # (n_source, 2, n_chan), or without sources where nothing is turned: what U adds to Q, and Q to U
    cross: NDArray[np.float64]
    profile: NDArray[np.float64]  # (n_profile, 8)
    profile_kind: NDArray[np.float64]  # (n_profile,)


class Changes(NamedTuple):
    """Changes of the sources: for each, the sources that it touches (pairs); float64."""

    start: NDArray[np.int64]  # int64 (n_change + 1,): the first pair of each
    source: NDArray[np.int64]  # int64 (n_pair,)
    direction: NDArray[np.float64]  # (n_pair, 3)
    projection: NDArray[np.float64]  # (n_pair, 2, 3)
    stokes: NDArray[np.float64]  # (n_pair, n_time or 1, n_stokes)
    factor: NDArray[np.float64]  # (n_pair, n_stokes, n_chan)
    beam_scale: NDArray[np.float64]  # (n_change,)
    pointing: NDArray[np.float64]  # (n_change, n_time or 1, n_antenna, 2 or 4)
    cross: NDArray[np.float64]  # (n_pair, 2, n_chan), or of no pairs
    profile: NDArray[np.float64]  # (n_pair, 8)


class _TangentBlock(NamedTuple):
    """Some rows by all channels: n samples, one after the other."""

    row: NDArray[np.int64]  # int64 (n,)
    chan: NDArray[np.int64]  # int64 (n,)
    nu: NDArray[np.float64]  # float64 (n,), Hz
    wavelengths: NDArray[np.float64]  # (3, n): u, v, w as the rows have them
    phase: NDArray[np.float64]  # the same as the phases have them


class _SourceTerms(NamedTuple):
    """The terms of all sources for the samples of a block."""

    re: NDArray[np.float64]  # (n_source, n): K_pq envelope_pq
    im: NDArray[np.float64]
    bright: NDArray[np.float64]  # (n_source, n_stokes, n): B
    gain: NDArray[np.float64]  # (n_source, n): E_p E_q
    slope: NDArray[
        np.float64
    ]  # (2, n_source, n): of E_p E_q with the argument of E_p, and of E_q, at a frequency of 1
    offset: NDArray[np.float64]  # (2, 3, n_source, n): slopes of that argument by scale, l, m
    shape: NDArray[np.float64]  # (n_shape, 2, n): scaled coordinates along and across
    bare: NDArray[np.float64]  # (2, n_profile, n): K_pq of profiles, re and im
    slopes: NDArray[np.float64]  # (n_profile, 22, n): `profiles.profile_slopes`


class _Workspace(NamedTuple):
    """Scratch arrays for one change of one source."""

    of_phase: NDArray[np.float64]  # (n,): change of the phase, times E_p E_q
    of_gain: NDArray[np.float64]  # (n,): change of E_p E_q, and of ln(envelope) times E_p E_q
    of_bright: NDArray[np.float64]  # (n,)
    pointing: NDArray[np.float64]  # (2, 2, n): change of the pointing of p and of q, l and m
    sums: NDArray[np.float64]  # (2, n_stokes, n), of all sources


@vector_function
def _any(values: Array) -> bool:
    """Whether any is not 0."""
    found = False
    for value in values.flat:
        found = found or value != 0.0
    return found


@vector_function
def _along(coordinates: Array, axis: Array, factor: float, out: Array) -> None:
    """Coordinates (3, n) times a vector of three, times a factor."""
    x, y, z = factor * axis[0], factor * axis[1], factor * axis[2]
    for i in range(out.size):
        out[i] = coordinates[0, i] * x + coordinates[1, i] * y + coordinates[2, i] * z


@vector_function
def _fill_phase(block: _TangentBlock, sky: TangentSky, s: int, terms: _SourceTerms) -> None:
    """K_pq of source s."""
    re, im = terms.re[s], terms.im[s]
    _along(block.phase, sky.direction[s], 1.0, im)
    for i in range(im.size):
        re[i], im[i] = _cos_sin(im[i])


@vector_function
def _apply_envelope(block: _TangentBlock, sky: TangentSky, s: int, g: int, terms: _SourceTerms) -> None:
    """Multiply K_pq of Gaussian g by its envelope."""
    for axis in range(2):
        _along(block.wavelengths, sky.projection[g, axis], _C, terms.shape[g, axis])
    for i in range(block.nu.size):
        along, across = terms.shape[g, 0, i], terms.shape[g, 1, i]
        envelope = math.exp(-(along * along + across * across))
        terms.re[s, i] *= envelope
        terms.im[s, i] *= envelope


@inner_function
def _apply_profile(
    functions: ProfileFunctions, block: _TangentBlock, sky: TangentSky, s: int, j: int, terms: _SourceTerms
) -> None:
    """Multiply K_pq of profile j by its envelope, and keep both."""
    g, kind = sky.projection.shape[0] - sky.profile_kind.size + j, int(sky.profile_kind[j])
    p = ahead(pointer(sky.profile), 8 * j)
    for axis in range(2):
        _along(block.wavelengths, sky.projection[g, axis], _AXIS_SCALE, terms.shape[g, axis])
    for i in range(block.nu.size):
        along, across = terms.shape[g, 0, i], terms.shape[g, 1, i]
        slopes = call_slopes(functions.slopes, kind, along, across, block.nu[i], p)
        for k in range(22):
            terms.slopes[j, k, i] = slopes[k]
        re, im = terms.re[s, i], terms.im[s, i]
        terms.bare[0, j, i], terms.bare[1, j, i] = re, im
        terms.re[s, i] = re * slopes[0] - im * slopes[1]
        terms.im[s, i] = re * slopes[1] + im * slopes[0]


@vector_function
def _fill_brightness(
    samples: TangentSamples, block: _TangentBlock, sky: TangentSky, s: int, terms: _SourceTerms
) -> None:
    """B of source s."""
    n_time, _, n_stokes = sky.stokes.shape
    for k in range(n_stokes):
        for i in range(block.nu.size):
            time = min(samples.time[block.row[i]], n_time - 1)
            terms.bright[s, k, i] = sky.stokes[time, s, k] * sky.factor[s, k, block.chan[i]]
            if sky.cross.shape[0] and (k == 1 or k == 2):
                terms.bright[s, k, i] += sky.stokes[time, s, 3 - k] * sky.cross[s, k - 1, block.chan[i]]


@vector_function
def _fill_gain(
    code: int, samples: TangentSamples, block: _TangentBlock, sky: TangentSky, s: int, terms: _SourceTerms
) -> None:
    """E_p E_q of source s, and what makes its changes."""
    for i in range(block.nu.size):
        row, nu = block.row[i], block.nu[i]
        time = min(samples.time[row], sky.pointing.shape[0] - 1)
        for end in range(2):
            antenna = samples.antenna1[row] if end == 0 else samples.antenna2[row]
            dl = sky.direction[s, 0] - sky.pointing[time, antenna, 0]
            dm = sky.direction[s, 1] - sky.pointing[time, antenna, 1]
            x = sky.beam_scale * nu * math.sqrt(dl * dl + dm * dm)
            voltage, slope = _voltage(code, x), nu * _voltage_slope(code, x)
            by_scale, by_l, by_m = _argument_slopes(sky.beam_scale, 1.0, dl, dm)
            terms.offset[end, 0, s, i], terms.offset[end, 1, s, i] = by_scale, by_l
            terms.offset[end, 2, s, i] = by_m
            if end == 0:
                terms.gain[s, i], terms.slope[0, s, i], terms.slope[1, s, i] = voltage, slope, voltage
            else:
                terms.gain[s, i] *= voltage
                terms.slope[0, s, i] *= voltage
                terms.slope[1, s, i] *= slope


@inner_function
def _fill_terms(
    code: int,
    functions: ProfileFunctions | None,
    samples: TangentSamples,
    block: _TangentBlock,
    sky: TangentSky,
    terms: _SourceTerms,
) -> None:
    """Fill `_SourceTerms`."""
    n_source = sky.direction.shape[0]
    for s in range(n_source):
        _fill_phase(block, sky, s, terms)
        g, is_profile = s - (n_source - sky.projection.shape[0]), False
        if functions is not None:
            j = s - (n_source - sky.profile_kind.size)
            is_profile = j >= 0
            if is_profile:
                _apply_profile(functions, block, sky, s, j, terms)
        if g >= 0 and not is_profile:
            _apply_envelope(block, sky, s, g, terms)
        _fill_brightness(samples, block, sky, s, terms)
        if code != _NO_BEAM:
            _fill_gain(code, samples, block, sky, s, terms)


@vector_function
def _fill_pointing_changes(
    samples: TangentSamples, block: _TangentBlock, changes: Changes, i_change: int, workspace: _Workspace
) -> bool:
    """The changes of pointing errors of the antennas of each sample; whether there are any."""
    n_time, n_antenna = changes.pointing.shape[1:3]
    moves = _any(changes.pointing[i_change])
    for i in range(block.nu.size if moves else 0):
        row = block.row[i]
        time = min(samples.time[row], n_time - 1)
        for end in range(2):
            antenna = (samples.antenna1[row] if end == 0 else samples.antenna2[row]) % n_antenna
            for k in range(2):
                workspace.pointing[end, k, i] = changes.pointing[i_change, time, antenna, k]
    return moves


@vector_function
def _add_gain(
    changes: Changes,
    i_change: int,
    pair: int,
    s: int,
    moves: bool,
    terms: _SourceTerms,
    workspace: _Workspace,
) -> None:
    """Add the changes of E_p E_q to `of_gain`."""
    scale, l, m = changes.beam_scale[i_change], changes.direction[pair, 0], changes.direction[pair, 1]
    of_gain = workspace.of_gain
    for end in range(2):
        slope, by_scale, by_l = terms.slope[end, s], terms.offset[end, 0, s], terms.offset[end, 1, s]
        by_m, of_l, of_m = terms.offset[end, 2, s], workspace.pointing[end, 0], workspace.pointing[end, 1]
        if moves:
            for i in range(of_gain.size):
                of_gain[i] += slope[i] * (
                    by_l[i] * (l - of_l[i]) + by_m[i] * (m - of_m[i]) + by_scale[i] * scale
                )
        else:
            for i in range(of_gain.size):
                of_gain[i] += slope[i] * (by_l[i] * l + by_m[i] * m + by_scale[i] * scale)


@vector_function
def _add_bright(
    samples: TangentSamples,
    block: _TangentBlock,
    sky: TangentSky,
    changes: Changes,
    pair: int,
    s: int,
    terms: _SourceTerms,
    workspace: _Workspace,
) -> None:
    """Add what changes of the brightness do to the sums."""
    re, im, gain, of_bright = terms.re[s], terms.im[s], terms.gain[s], workspace.of_bright
    n_time = sky.stokes.shape[0]
    for k in range(sky.stokes.shape[2]):
        for i in range(of_bright.size):
            time, chan = min(samples.time[block.row[i]], n_time - 1), block.chan[i]
            of_bright[i] = changes.stokes[pair, time, k] * sky.factor[s, k, chan]
            of_bright[i] += sky.stokes[time, s, k] * changes.factor[pair, k, chan]
            if sky.cross.shape[0] and (k == 1 or k == 2):
                of_bright[i] += changes.stokes[pair, time, 3 - k] * sky.cross[s, k - 1, chan]
                of_bright[i] += sky.stokes[time, s, 3 - k] * changes.cross[pair, k - 1, chan]
        sum_re, sum_im = workspace.sums[0, k], workspace.sums[1, k]
        for i in range(of_bright.size):
            x = of_bright[i] * gain[i]
            sum_re[i] += x * re[i]
            sum_im[i] += x * im[i]


@vector_function
def _add_phase_and_gain(n_stokes: int, s: int, terms: _SourceTerms, workspace: _Workspace) -> None:
    """Add what changes of phase, envelope and beams do to the sums."""
    re, im, of_gain, of_phase = terms.re[s], terms.im[s], workspace.of_gain, workspace.of_phase
    for k in range(n_stokes):
        bright, sum_re, sum_im = terms.bright[s, k], workspace.sums[0, k], workspace.sums[1, k]
        for i in range(of_gain.size):
            x, y = bright[i] * of_gain[i], bright[i] * of_phase[i]
            sum_re[i] += x * re[i] - y * im[i]
            sum_im[i] += x * im[i] + y * re[i]


@inner_function
def _add_profile(
    block: _TangentBlock, sky: TangentSky, changes: Changes, pair: int, j: int, s: int, terms: _SourceTerms,
    workspace: _Workspace,
) -> None:  # fmt: skip
    """Add what changes of the axes and parameters of profile j do to the sums."""
    of_re, of_im, of_axis, slopes = (
        workspace.of_gain,
        workspace.of_phase,
        workspace.of_bright,
        terms.slopes[j],
    )
    of_re[:] = 0.0
    of_im[:] = 0.0
    for axis in range(2):
        _along(block.wavelengths, changes.projection[pair, axis], _AXIS_SCALE, of_axis)
        for i in range(of_re.size):
            of_re[i] += slopes[2 + 2 * axis, i] * of_axis[i]
            of_im[i] += slopes[3 + 2 * axis, i] * of_axis[i]
    for k in range(8):
        change = changes.profile[pair, k]
        for i in range(of_re.size if change != 0.0 else 0):
            of_re[i] += slopes[6 + 2 * k, i] * change
            of_im[i] += slopes[7 + 2 * k, i] * change
    for k in range(sky.stokes.shape[2]):
        for i in range(of_re.size):
            x, re, im = terms.bright[s, k, i] * terms.gain[s, i], terms.bare[0, j, i], terms.bare[1, j, i]
            workspace.sums[0, k, i] += x * (re * of_re[i] - im * of_im[i])
            workspace.sums[1, k, i] += x * (re * of_im[i] + im * of_re[i])


@vector_function
def _add_pair(
    code: int, functions: ProfileFunctions | None, samples: TangentSamples, block: _TangentBlock,
    sky: TangentSky,
    changes: Changes, i_change: int, pair: int, moves: bool, terms: _SourceTerms, workspace: _Workspace,
) -> None:  # fmt: skip
    """Add what a change of a source does to the sums; what does not change is passed over."""
    s = changes.source[pair]
    turns_more = sky.cross.shape[0] > 0 and _any(changes.cross[pair])
    if turns_more or _any(changes.stokes[pair]) or _any(changes.factor[pair]):
        _add_bright(samples, block, sky, changes, pair, s, terms, workspace)
    turns, shapes = _any(changes.direction[pair]), _any(changes.projection[pair])
    if functions is not None:
        j = s - (terms.re.shape[0] - sky.profile_kind.size)
        if j >= 0:
            _add_profile(block, sky, changes, pair, j, s, terms, workspace)
            shapes = False
    points = code != _NO_BEAM and (moves or turns or changes.beam_scale[i_change] != 0.0)
    if not (turns or shapes or points):
        return
    gain, of_gain, of_phase = terms.gain[s], workspace.of_gain, workspace.of_phase
    of_phase[:] = 0.0
    of_gain[:] = 0.0
    if turns:
        _along(block.wavelengths, changes.direction[pair], _TWO_PI, of_phase)
    if shapes:
        g = s - (terms.re.shape[0] - sky.projection.shape[0])
        for axis in range(2):
            _along(block.wavelengths, changes.projection[pair, axis], -2.0 * _C, workspace.of_bright)
            along = terms.shape[g, axis]
            for i in range(of_gain.size):
                of_gain[i] += along[i] * workspace.of_bright[i]
    for i in range(of_gain.size):
        of_phase[i] *= gain[i]
        of_gain[i] *= gain[i]
    if points:
        _add_gain(changes, i_change, pair, s, moves, terms, workspace)
    _add_phase_and_gain(sky.stokes.shape[2], s, terms, workspace)


@vector_function
def _write(matrix: Array, sums: Array, out: Array) -> None:
    """Correlations of the sums, complex128 (n, n_corr)."""
    n_corr, n_stokes = matrix.shape
    for i in range(out.shape[0]):
        for corr in range(n_corr):
            total = 0j
            for k in range(n_stokes):
                total += matrix[corr, k] * complex(sums[0, k, i], sums[1, k, i])
            out[i, corr] = total


@inner_function
def _push(
    code: int,
    functions: ProfileFunctions | None,
    samples: TangentSamples,
    block: _TangentBlock,
    sky: TangentSky,
    changes: Changes,
    matrix: Array,
    terms: _SourceTerms,
    workspace: _Workspace,
    out: Array,
) -> None:
    """All changes of a block, (n_change, n, n_corr)."""
    _fill_terms(code, functions, samples, block, sky, terms)
    for i_change in range(changes.start.size - 1):
        first, stop = changes.start[i_change], changes.start[i_change + 1]
        if first < stop:
            workspace.sums[:] = 0.0
            moves = code != _NO_BEAM and _fill_pointing_changes(samples, block, changes, i_change, workspace)
            for pair in range(first, stop):
                _add_pair(
                    code, functions, samples, block, sky, changes, i_change, pair, moves, terms, workspace
                )
            _write(matrix, workspace.sums, out[i_change])


@loop
def fill_columns(
    code: int, samples: TangentSamples, sky: TangentSky, changes: Changes, matrix: Array, out: Array,
    functions: ProfileFunctions | None,
) -> None:  # fmt: skip
    """Fill `out`, complex128 (n_change, n_row * n_chan, n_corr).

    `code` is that of the beam in the antennas' voltages, `matrix` complex128 (n_corr, n_stokes).
    """
    n_source, n_chan, n_stokes = sky.direction.shape[0], samples.chan_freq.size, matrix.shape[1]
    n_sample = out.shape[1]
    for i_block in prange(-(-n_sample // _SAMPLES)):
        first = i_block * _SAMPLES
        n = min(_SAMPLES, n_sample - first)
        row, chan = np.empty(n, np.int64), np.empty(n, np.int64)
        nu, wavelengths, turning = np.empty(n), np.empty((3, n)), np.empty((3, n))
        for i in range(n):
            row[i], chan[i] = (first + i) // n_chan, (first + i) % n_chan
            nu[i] = samples.chan_freq[chan[i]]
            for k in range(3):
                wavelengths[k, i] = samples.uvw[row[i], k] * (nu[i] / _C)
                turning[k, i] = samples.phase_uvw[row[i], k] * (nu[i] / _C)
        n_beam = n_source if code != _NO_BEAM else 0
        terms = _SourceTerms(
            np.empty((n_source, n)), np.empty((n_source, n)), np.empty((n_source, n_stokes, n)),
            np.ones((n_source, n)), np.empty((2, n_beam, n)), np.empty((2, 3, n_beam, n)),
            np.empty((sky.projection.shape[0], 2, n)), np.empty((2, sky.profile_kind.size, n)),
            np.empty((sky.profile_kind.size, 22, n)),
        )  # fmt: skip
        workspace = _Workspace(
            np.empty(n), np.empty(n), np.empty(n), np.zeros((2, 2, n)), np.empty((2, n_stokes, n))
        )
        block = _TangentBlock(row, chan, nu, wavelengths, turning)
        _push(
            code,
            functions,
            samples,
            block,
            sky,
            changes,
            matrix,
            terms,
            workspace,
            out[:, first : first + n],
        )
