"""Flag single spectra on a GPU: transposition, running medians, noise, thresholds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import device
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.compile.types import DeviceArray
from rime_kernels.flagging.cuda.medians import make_deviations
from rime_kernels.flagging.cuda.middles import find_middles
from rime_kernels.flagging.cuda.sums import find_runs
from rime_kernels.flagging.cuda.transposition import transpose_into
from rime_kernels.flagging.inputs import amplitudes, thresholds_of
from rime_kernels.flagging.lines import MAD_NORMAL, MIN_SAMPLES
from rime_kernels.flagging.options import SpectrumOptions

PART = 256
"""Channels that a thread of the running median walks over."""
BATCH = 1 << 27
"""Samples that are on the device at a time, at most; they are fewer where memory is less."""
BYTES = 16
"""Of device memory for each sample: amplitudes, deviations, both transposed."""


def flag_spectra(amplitude: ArrayLike, flag: ArrayLike, options: SpectrumOptions) -> NDArray[np.bool_]:
    """As `rime_kernels.flagging.spectra.flag_spectra` finds on the CPU."""
    staged = amplitudes(amplitude, flag, ("n_spectrum", "n_chan"))
    found = np.zeros(staged.shape, bool)
    if not staged.size:
        return found
    most = min(BATCH, device.memory_budget() // BYTES)
    step = max(1, min(most // staged.shape[1], device.MAX_GRID_Y))
    with CALL_LOCK:
        for start in range(0, len(staged), step):
            rows = slice(start, start + step)
            found[rows] = _flag(staged[rows], options)
    return found & np.isfinite(staged)


def _flag(staged: NDArray[np.float32], options: SpectrumOptions) -> NDArray[np.bool_]:
    """Flags of spectra that fit onto the device."""
    deviation = _deviations(device.upload(np.ascontiguousarray(staged)), options.width)
    noise = _noise(deviation)
    noise[np.count_nonzero(np.isfinite(staged), axis=1) < MIN_SAMPLES] = np.nan
    thresholds = thresholds_of(noise, options)
    n_window = 1 if options.threshold == "simple" else thresholds.shape[1]
    return _exceed(deviation, np.ascontiguousarray(thresholds[:, :n_window]))


def transposed(given: DeviceArray) -> DeviceArray:
    """A matrix of float32 transposed on the device."""
    n, m = given.shape
    out = device.empty((m, n), np.float32)
    transpose_into(given.reshape(1, n, m), out.reshape(1, m, n), np.float32)
    return out


def _deviations(amplitude: DeviceArray, width: int) -> DeviceArray:
    """Deviations float32 (n_spectrum, n_chan) from running medians."""
    by_channel = transposed(amplitude)
    n_chan, n_spectrum = by_channel.shape
    part = 16 if device.simulated() else PART
    n_thread = 4 if device.simulated() else 64
    blocks = -(-n_spectrum // n_thread), -(-n_chan // part)
    deviation = device.empty((n_chan, n_spectrum), np.float32)
    make_deviations(width)[blocks, n_thread](by_channel, part, deviation)
    return transposed(deviation)


def _band(n_chan: int) -> DeviceArray:
    """The edges of one chunk of all channels."""
    return device.upload(np.array([0, n_chan], np.int32))


def _noise(deviation: DeviceArray) -> NDArray[np.float64]:
    """Noise float64 (n_spectrum,), NaN where all deviations are 0."""
    n_spectrum, n_chan = deviation.shape
    found = device.empty((n_spectrum, 1), np.int32), device.empty((n_spectrum, 1, 2), np.float32)
    find_middles(deviation, 1, _band(n_chan), found, least=1)
    n, middle = (np.asarray(each.copy_to_host()) for each in found)
    value = middle[:, 0].astype(np.float64)
    return np.where(n[:, 0] > 0, MAD_NORMAL * (0.5 * (value[:, 0] + value[:, 1])), np.nan)


def _exceed(deviation: DeviceArray, thresholds: NDArray[np.float32]) -> NDArray[np.bool_]:
    """What SumThreshold flags."""
    n_chan = deviation.shape[1]
    found = device.empty(deviation.shape, np.bool_)
    bounds = device.upload(thresholds[:, None])
    find_runs(deviation, bounds, _band(n_chan), found, longest=n_chan, two_sided=False)
    return np.asarray(found.copy_to_host())
