"""J v on the CPU: for each block of samples, the terms of all sources, then the effect of each change.

With K the phase and e the envelope of a source, and X what two antennas see of its brightness, real numbers
in `n_part` parts, a change of the source adds to the sums

    K e (dX + X (i d(phase) + d ln(e)))

X and dX are all that depends on the kind of antenna terms (`AntennaKind`): voltages of antennas in
`voltage_tangent.py`, Jones matrices in `jones/tangent.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function, loop, vector_function
from rime_kernels.compile.types import Array, Compiled, Record, Scalar
from rime_kernels.cpu.profiles import ProfileFunctions, call_slopes
from rime_kernels.cpu.simd import ahead, pointer
from rime_kernels.physics import envelope, phase

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_squared, _C, _TWO_PI = envelope.squared, phase.SPEED_OF_LIGHT, 2.0 * math.pi
_cos_sin, _AXIS_SCALE = phase.make_cos_sin(False), envelope.AXIS_SCALE


class TangentSamples(NamedTuple):
    """The rows and channels of all samples."""

    phase_uvw: NDArray[np.float64]  # float64 (n_row, 3), m: as the phases have them
    uvw: NDArray[np.float64]  # the same as the rows have them, for envelopes and for derivatives
    antenna1: NDArray[np.int32]  # int32 (n_row,)
    antenna2: NDArray[np.int32]
    time: NDArray[np.int32]
    chan_freq: NDArray[np.float64]  # float64 (n_chan,)
    # Where beams are Jones matrices; otherwise empty.
    pauli: NDArray[np.complex128]  # (n_stokes, 2, 2): the products of feeds of each Stokes parameter
    product: NDArray[np.int64]  # (n_corr,): which of the four products each correlation is


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


class TangentBlock(NamedTuple):
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
    seen: NDArray[np.float64]  # (n_source, n_part, n): X
    shape: NDArray[np.float64]  # (n_shape, 2, n): scaled coordinates along and across
    bare: NDArray[np.float64]  # (2, n_profile, n): K_pq of profiles, re and im
    slopes: NDArray[np.float64]  # (n_profile, 22, n): `profiles.profile_slopes`


class _Workspace(NamedTuple):
    """Scratch arrays for one change of one source."""

    of_phase: NDArray[np.float64]  # (n,): change of the phase; of Im(envelope) of profiles
    of_envelope: NDArray[np.float64]  # (n,): change of ln(envelope); of Re(envelope) of profiles
    of_axis: NDArray[np.float64]  # (n,)
    of_seen: NDArray[np.float64]  # (n_part, n): dX
    sums: NDArray[np.float64]  # (2, n_part, n), of all sources


class AntennaKind(NamedTuple):
    """What differs between antenna terms: compiled functions, given a beam (its code, or `CpuBeams`).

    Attributes
    ----------
    n_sample : int
        Samples of a block: the terms of all sources stay in the cache of a core.
    allocate : (given, samples, sky, n) -> antennas
        A record of arrays for n samples.
    fill : (given, samples, block, sky, s, antennas, seen)
        Fill X of source s, (n_part, n), and what makes its changes.
    start : (given, samples, block, changes, i_change, antennas) -> bool
        Prepare a change; whether beams of antennas move against the sky.
    push : (given, samples, block, sky, changes, i_change, pair, s, moves, antennas, of_seen) -> bool
        Fill dX of a change of source s; whether it is anything but 0.
    """

    n_sample: int
    allocate: Compiled
    fill: Compiled
    start: Compiled
    push: Compiled


@vector_function
def any_of(values: Array) -> bool:
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


# ---- brightness


@vector_function
def fill_brightness(
    samples: TangentSamples, block: TangentBlock, sky: TangentSky, s: int, out: Array
) -> None:
    """B of source s, (n_stokes, n)."""
    n_time, _, n_stokes = sky.stokes.shape
    for k in range(n_stokes):
        for i in range(block.nu.size):
            time = min(samples.time[block.row[i]], n_time - 1)
            value = sky.stokes[time, s, k]
            # No flux, whatever the spectrum, which may be infinite.
            out[k, i] = value * sky.factor[s, k, block.chan[i]] if value != 0.0 else 0.0
            if sky.cross.shape[0] and (k == 1 or k == 2):
                out[k, i] += sky.stokes[time, s, 3 - k] * sky.cross[s, k - 1, block.chan[i]]


@vector_function
def brightness_varies(sky: TangentSky, changes: Changes, pair: int) -> bool:
    """Whether a change of a source changes its brightness."""
    turns_more = sky.cross.shape[0] > 0 and any_of(changes.cross[pair])
    return turns_more or any_of(changes.stokes[pair]) or any_of(changes.factor[pair])


@vector_function
def push_brightness(
    samples: TangentSamples, block: TangentBlock, sky: TangentSky, changes: Changes, pair: int, s: int,
    k: int, out: Array,
) -> None:  # fmt: skip
    """The change of Stokes parameter k of source s, (n,)."""
    n_time = sky.stokes.shape[0]
    for i in range(out.size):
        time, chan = min(samples.time[block.row[i]], n_time - 1), block.chan[i]
        out[i] = changes.stokes[pair, time, k] * sky.factor[s, k, chan]
        out[i] += sky.stokes[time, s, k] * changes.factor[pair, k, chan]
        if sky.cross.shape[0] and (k == 1 or k == 2):
            out[i] += changes.stokes[pair, time, 3 - k] * sky.cross[s, k - 1, chan]
            out[i] += sky.stokes[time, s, 3 - k] * changes.cross[pair, k - 1, chan]


# ---- phases and envelopes


@vector_function
def _fill_phase(block: TangentBlock, sky: TangentSky, s: int, terms: _SourceTerms) -> None:
    """K_pq of source s."""
    re, im = terms.re[s], terms.im[s]
    _along(block.phase, sky.direction[s], 1.0, im)
    for i in range(im.size):
        re[i], im[i] = _cos_sin(im[i])


@vector_function
def _apply_envelope(block: TangentBlock, sky: TangentSky, s: int, g: int, terms: _SourceTerms) -> None:
    """Multiply K_pq of Gaussian g by its envelope."""
    for axis in range(2):
        _along(block.wavelengths, sky.projection[g, axis], _C, terms.shape[g, axis])
    for i in range(block.nu.size):
        value = math.exp(-_squared(terms.shape[g, 0, i], terms.shape[g, 1, i]))
        terms.re[s, i] *= value
        terms.im[s, i] *= value


@inner_function
def _apply_profile(
    functions: ProfileFunctions, block: TangentBlock, sky: TangentSky, s: int, j: int, terms: _SourceTerms
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
def _push_profile(
    block: TangentBlock, changes: Changes, pair: int, j: int, s: int, terms: _SourceTerms,
    workspace: _Workspace,
) -> None:  # fmt: skip
    """Add what changes of the axes and parameters of profile j do to the sums."""
    of_re, of_im, slopes = workspace.of_envelope, workspace.of_phase, terms.slopes[j]
    of_re[:] = 0.0
    of_im[:] = 0.0
    for axis in range(2):
        _along(block.wavelengths, changes.projection[pair, axis], _AXIS_SCALE, workspace.of_axis)
        for i in range(of_re.size):
            of_re[i] += slopes[2 + 2 * axis, i] * workspace.of_axis[i]
            of_im[i] += slopes[3 + 2 * axis, i] * workspace.of_axis[i]
    for k in range(8):
        change = changes.profile[pair, k]
        for i in range(of_re.size if change != 0.0 else 0):
            of_re[i] += slopes[6 + 2 * k, i] * change
            of_im[i] += slopes[7 + 2 * k, i] * change
    # K without the envelope, which may be 0: there is no logarithm of it.
    _add(terms.bare[0, j], terms.bare[1, j], terms.seen[s], of_re, of_im, workspace.sums)


# ---- sums


@vector_function
def _add_seen(re: Array, im: Array, of_seen: Array, sums: Array) -> None:
    """Add (re + i im) dX to the sums."""
    for k in range(of_seen.shape[0]):
        x, sum_re, sum_im = of_seen[k], sums[0, k], sums[1, k]
        for i in range(re.size):
            sum_re[i] += x[i] * re[i]
            sum_im[i] += x[i] * im[i]


@vector_function
def _add(re: Array, im: Array, seen: Array, of_re: Array, of_im: Array, sums: Array) -> None:
    """Add (re + i im) X (of_re + i of_im) to the sums."""
    for k in range(seen.shape[0]):
        part, sum_re, sum_im = seen[k], sums[0, k], sums[1, k]
        for i in range(re.size):
            x, y = part[i] * of_re[i], part[i] * of_im[i]
            sum_re[i] += x * re[i] - y * im[i]
            sum_im[i] += x * im[i] + y * re[i]


@vector_function
def _add_pair(
    functions: ProfileFunctions | None, block: TangentBlock, sky: TangentSky, changes: Changes, pair: int,
    s: int, terms: _SourceTerms, workspace: _Workspace,
) -> None:  # fmt: skip
    """Add what changes of phase and envelope do to the sums; what does not change is passed over."""
    turns, shapes = any_of(changes.direction[pair]), any_of(changes.projection[pair])
    if functions is not None:
        j = s - (terms.re.shape[0] - sky.profile_kind.size)
        if j >= 0:
            _push_profile(block, changes, pair, j, s, terms, workspace)
            shapes = False
    if not (turns or shapes):
        return
    of_envelope, of_phase = workspace.of_envelope, workspace.of_phase
    of_phase[:] = 0.0
    of_envelope[:] = 0.0
    if turns:
        _along(block.wavelengths, changes.direction[pair], _TWO_PI, of_phase)
    g = s - (terms.re.shape[0] - sky.projection.shape[0])
    for axis in range(2 if shapes else 0):
        _along(block.wavelengths, changes.projection[pair, axis], -2.0 * _C, workspace.of_axis)
        along = terms.shape[g, axis]
        for i in range(of_envelope.size):
            of_envelope[i] += along[i] * workspace.of_axis[i]
    _add(terms.re[s], terms.im[s], terms.seen[s], of_envelope, of_phase, workspace.sums)


@vector_function
def _write(matrix: Array, sums: Array, out: Array) -> None:
    """Correlations of the sums, complex128 (n, n_corr)."""
    n_corr, n_part = matrix.shape
    for i in range(out.shape[0]):
        for corr in range(n_corr):
            total = 0j
            for k in range(n_part):
                total += matrix[corr, k] * complex(sums[0, k, i], sums[1, k, i])
            out[i, corr] = total


@inner_function
def _fill_block(samples: TangentSamples, first: int, n: int) -> TangentBlock:
    """The block of n samples from `first` on."""
    n_chan = samples.chan_freq.size
    row, chan = np.empty(n, np.int64), np.empty(n, np.int64)
    nu, wavelengths, turning = np.empty(n), np.empty((3, n)), np.empty((3, n))
    for i in range(n):
        row[i], chan[i] = (first + i) // n_chan, (first + i) % n_chan
        nu[i] = samples.chan_freq[chan[i]]
        for k in range(3):
            wavelengths[k, i] = samples.uvw[row[i], k] * (nu[i] / _C)
            turning[k, i] = samples.phase_uvw[row[i], k] * (nu[i] / _C)
    return TangentBlock(row, chan, nu, wavelengths, turning)


@inner_function
def _allocate(sky: TangentSky, n_part: int, n: int) -> tuple[Scalar, Scalar]:
    """`_SourceTerms` and `_Workspace` for n samples."""
    n_source, n_profile = sky.direction.shape[0], sky.profile_kind.size
    terms = _SourceTerms(
        np.empty((n_source, n)), np.empty((n_source, n)), np.empty((n_source, n_part, n)),
        np.empty((sky.projection.shape[0], 2, n)), np.empty((2, n_profile, n)),
        np.empty((n_profile, 22, n)),
    )  # fmt: skip
    return terms, _Workspace(
        np.empty(n), np.empty(n), np.empty(n), np.empty((n_part, n)), np.empty((2, n_part, n))
    )


@inner_function
def _fill_factors(
    functions: ProfileFunctions | None, block: TangentBlock, sky: TangentSky, terms: _SourceTerms
) -> None:
    """K times the envelope of all sources."""
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


def make_fill_columns(kind: AntennaKind) -> Callable[..., None]:
    """The loop that fills `out`, complex128 (n_change, n_row * n_chan, n_corr), for a kind of antenna terms.

    `given` is what the functions of `kind` get; `matrix`, complex128 (n_corr, n_part), makes correlations of
    the parts of X.
    """
    n_sample, allocate, fill, start, push = kind

    @inner_function
    def push_block(
        given: Record, functions: ProfileFunctions | None, samples: TangentSamples, block: TangentBlock,
        sky: TangentSky, changes: Changes, matrix: Array, out: Array,
    ) -> None:  # fmt: skip
        """All changes of a block, (n_change, n, n_corr)."""
        terms, workspace = _allocate(sky, matrix.shape[1], block.nu.size)
        antennas = allocate(given, samples, sky, block.nu.size)
        _fill_factors(functions, block, sky, terms)
        for s in range(sky.direction.shape[0]):
            fill(given, samples, block, sky, s, antennas, terms.seen[s])
        for i_change in range(changes.start.size - 1):
            first, stop = changes.start[i_change], changes.start[i_change + 1]
            if first < stop:
                workspace.sums[:] = 0.0
                moves = start(given, samples, block, changes, i_change, antennas)
                for pair in range(first, stop):
                    s, of_seen = changes.source[pair], workspace.of_seen
                    if push(given, samples, block, sky, changes, i_change, pair, s, moves, antennas, of_seen):
                        _add_seen(terms.re[s], terms.im[s], of_seen, workspace.sums)
                    _add_pair(functions, block, sky, changes, pair, s, terms, workspace)
                _write(matrix, workspace.sums, out[i_change])

    @loop
    def fill_columns(
        given: Record, samples: TangentSamples, sky: TangentSky, changes: Changes, matrix: Array, out: Array,
        functions: ProfileFunctions | None,
    ) -> None:  # fmt: skip
        n_all = out.shape[1]
        for i_block in prange(-(-n_all // n_sample)):
            first = i_block * n_sample
            n = min(n_sample, n_all - first)
            block = _fill_block(samples, first, n)
            push_block(given, functions, samples, block, sky, changes, matrix, out[:, first : first + n])

    return fill_columns
