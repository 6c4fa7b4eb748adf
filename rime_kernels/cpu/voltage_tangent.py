"""J v through scalar beams on the CPU: what `cpu/tangent.py` needs of voltages of antennas.

X is B E_p E_q, the brightness times the voltages of both antennas, in each Stokes parameter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import Array
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
from rime_kernels.physics import beam

# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_voltage, _voltage_slope, _argument_slopes = beam.voltage, beam.voltage_slope, beam.argument_slopes
_argument, _NO_BEAM = beam.argument, beam.NO_BEAM


class _Voltages(NamedTuple):
    """What scalar beams make of sources; without sources where no antenna has a voltage of its own."""

    bright: NDArray[np.float64]  # (n_source, n_stokes, n): B
    gain: NDArray[np.float64]  # (n_source, n): E_p E_q
    slope: NDArray[
        np.float64
    ]  # (2, n_source, n): of E_p E_q with the argument of E_p, and of E_q, at a frequency of 1
    offset: NDArray[np.float64]  # (2, 3, n_source, n): slopes of that argument by scale, l, m
    pointing: NDArray[np.float64]  # (2, 2, n): change of the pointing of p and of q, l and m
    of_gain: NDArray[np.float64]  # (n,): change of E_p E_q


@inner_function
def _allocate_voltages(code: int, samples: TangentSamples, sky: TangentSky, n: int) -> _Voltages:
    """Arrays for n samples."""
    n_source = sky.direction.shape[0] if code != _NO_BEAM else 0
    return _Voltages(
        np.empty((n_source, sky.stokes.shape[2], n)), np.empty((n_source, n)), np.empty((2, n_source, n)),
        np.empty((2, 3, n_source, n)), np.zeros((2, 2, n)), np.empty(n),
    )  # fmt: skip


@vector_function
def _fill_gain(
    code: int, samples: TangentSamples, block: TangentBlock, sky: TangentSky, s: int, antennas: _Voltages
) -> None:
    """E_p E_q of source s, and what makes its changes."""
    for i in range(block.nu.size):
        row, nu = block.row[i], block.nu[i]
        time = min(samples.time[row], sky.pointing.shape[0] - 1)
        for end in range(2):
            antenna = samples.antenna1[row] if end == 0 else samples.antenna2[row]
            dl = sky.direction[s, 0] - sky.pointing[time, antenna, 0]
            dm = sky.direction[s, 1] - sky.pointing[time, antenna, 1]
            x = _argument(sky.beam_scale, nu, dl, dm)
            voltage, slope = _voltage(code, x), nu * _voltage_slope(code, x)
            by_scale, by_l, by_m = _argument_slopes(sky.beam_scale, 1.0, dl, dm)
            antennas.offset[end, 0, s, i], antennas.offset[end, 1, s, i] = by_scale, by_l
            antennas.offset[end, 2, s, i] = by_m
            if end == 0:
                antennas.gain[s, i] = voltage
                antennas.slope[0, s, i], antennas.slope[1, s, i] = slope, voltage
            else:
                antennas.gain[s, i] *= voltage
                antennas.slope[0, s, i] *= voltage
                antennas.slope[1, s, i] *= slope


@vector_function
def _fill_voltages(
    code: int, samples: TangentSamples, block: TangentBlock, sky: TangentSky, s: int, antennas: _Voltages,
    seen: Array,
) -> None:  # fmt: skip
    """X of source s: B E_p E_q."""
    fill_brightness(samples, block, sky, s, seen)
    if code != _NO_BEAM:
        _fill_gain(code, samples, block, sky, s, antennas)
        for k in range(seen.shape[0]):
            for i in range(block.nu.size):
                antennas.bright[s, k, i] = seen[k, i]
                seen[k, i] *= antennas.gain[s, i]


@vector_function
def _start_voltages(
    code: int, samples: TangentSamples, block: TangentBlock, changes: Changes, i_change: int,
    antennas: _Voltages,
) -> bool:  # fmt: skip
    """The changes of pointing errors of the antennas of each sample; whether there are any."""
    n_time, n_antenna = changes.pointing.shape[1:3]
    moves = code != _NO_BEAM and any_of(changes.pointing[i_change])
    for i in range(block.nu.size if moves else 0):
        row = block.row[i]
        time = min(samples.time[row], n_time - 1)
        for end in range(2):
            antenna = (samples.antenna1[row] if end == 0 else samples.antenna2[row]) % n_antenna
            for k in range(2):
                antennas.pointing[end, k, i] = changes.pointing[i_change, time, antenna, k]
    return moves


@vector_function
def _push_gain(changes: Changes, i_change: int, pair: int, s: int, moves: bool, antennas: _Voltages) -> None:
    """Fill the change of E_p E_q."""
    scale, l, m = changes.beam_scale[i_change], changes.direction[pair, 0], changes.direction[pair, 1]
    of_gain = antennas.of_gain
    of_gain[:] = 0.0
    for end in range(2):
        slope, by_scale, by_l = antennas.slope[end, s], antennas.offset[end, 0, s], antennas.offset[end, 1, s]
        by_m, of_l, of_m = antennas.offset[end, 2, s], antennas.pointing[end, 0], antennas.pointing[end, 1]
        if moves:
            for i in range(of_gain.size):
                of_gain[i] += slope[i] * (
                    by_l[i] * (l - of_l[i]) + by_m[i] * (m - of_m[i]) + by_scale[i] * scale
                )
        else:
            for i in range(of_gain.size):
                of_gain[i] += slope[i] * (by_l[i] * l + by_m[i] * m + by_scale[i] * scale)


@vector_function
def _push_voltages(
    code: int, samples: TangentSamples, block: TangentBlock, sky: TangentSky, changes: Changes,
    i_change: int, pair: int, s: int, moves: bool, antennas: _Voltages, of_seen: Array,
) -> bool:  # fmt: skip
    """Fill d(B E_p E_q) of a change of source s; whether it is anything but 0."""
    varies = brightness_varies(sky, changes, pair)
    points = code != _NO_BEAM and (
        moves or changes.beam_scale[i_change] != 0.0 or any_of(changes.direction[pair])
    )
    if points:
        _push_gain(changes, i_change, pair, s, moves, antennas)
    for k in range(of_seen.shape[0] if varies or points else 0):
        if varies:
            push_brightness(samples, block, sky, changes, pair, s, k, of_seen[k])
            for i in range(block.nu.size if code != _NO_BEAM else 0):
                of_seen[k, i] *= antennas.gain[s, i]
        else:
            of_seen[k] = 0.0
        for i in range(block.nu.size if points else 0):
            of_seen[k, i] += antennas.bright[s, k, i] * antennas.of_gain[i]
    return varies or points


fill_columns = make_fill_columns(
    AntennaKind(128, _allocate_voltages, _fill_voltages, _start_voltages, _push_voltages)
)
