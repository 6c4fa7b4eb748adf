"""Flag single spectra on a GPU: transposition, running medians, noise, thresholds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import device
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.compile.types import DeviceArray
from rime_kernels.cuda.launch_shapes.choice import flagging_shape
from rime_kernels.cuda.launch_shapes.flagging import MEDIAN, MedianShape
from rime_kernels.flagging.cuda.median_search import find_medians
from rime_kernels.flagging.cuda.medians import make_deviations
from rime_kernels.flagging.cuda.noises import make_spectrum_thresholds
from rime_kernels.flagging.cuda.sums import find_runs
from rime_kernels.flagging.cuda.transposition import transpose_into
from rime_kernels.flagging.inputs import amplitudes
from rime_kernels.flagging.options import SpectrumOptions, window_scales

BATCH = 1 << 27
"""Samples that are on the device at a time, at most; they are fewer where memory is less."""
BYTES = 17
"""Of device memory for each sample: amplitudes, deviations, both transposed; flags."""


def flag_spectra(amplitude: ArrayLike, flag: ArrayLike, options: SpectrumOptions) -> NDArray[np.bool_]:
    """Flags of spectra, equal to those of `rime_kernels.flagging.spectra.flag_spectra` on the CPU."""
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
    by_channel = transposed(device.upload(np.ascontiguousarray(staged)))
    return np.asarray(found_in(by_channel, options, device.Workspace()).copy_to_host()).astype(bool)


def transposed(given: DeviceArray) -> DeviceArray:
    """A matrix of float32 transposed on the device."""
    n, m = given.shape
    out = device.empty((m, n), np.float32)
    transpose_into(given.reshape(1, n, m), out.reshape(1, m, n), np.float32)
    return out


def found_in(by_channel: DeviceArray, options: SpectrumOptions, work: device.Workspace) -> DeviceArray:
    """What is found in spectra on the device, where nothing of it comes back to the host.

    Parameters
    ----------
    by_channel : float32 (n_chan, n_spectrum)
        Amplitudes, infinite where they are left out.
    options : SpectrumOptions
    work : Workspace

    Returns
    -------
    uint8 (n_spectrum, n_chan)
        Of samples that are left out, some may be among those found.
    """
    deviation = deviations(by_channel, options.width, work)
    return runs(deviation, thresholds(deviation, by_channel, options, work), work)


def deviations(by_channel: DeviceArray, width: int, work: device.Workspace) -> DeviceArray:
    """Deviations float32 (n_spectrum, n_chan) from running medians; 0 where a sample is left out."""
    n_chan, n_spectrum = by_channel.shape
    shape = flagging_shape(MEDIAN, MedianShape)
    blocks = -(-n_spectrum // shape.n_thread), -(-n_chan // shape.n_part)
    there = work.array("deviation by channel", (n_chan, n_spectrum), np.float32)
    make_deviations(width)[blocks, shape.n_thread](by_channel, shape.n_part, there)
    deviation = work.array("deviation", (n_spectrum, n_chan), np.float32)
    transpose_into(there.reshape(1, n_chan, n_spectrum), deviation.reshape(1, n_spectrum, n_chan), np.float32)
    return deviation


def _band(n_chan: int) -> DeviceArray:
    """The edges of one chunk of all channels."""
    return device.upload(np.array([0, n_chan], np.int32))


def thresholds(
    deviation: DeviceArray, by_channel: DeviceArray, options: SpectrumOptions, work: device.Workspace
) -> DeviceArray:
    """Thresholds float32 (n_spectrum, 1, n_window) of spectra, by their noise."""
    n_spectrum, n_chan = deviation.shape
    found = work.array("n", (n_spectrum, 1), np.int32), work.array("middle", (n_spectrum, 1, 2), np.float32)
    find_medians(deviation, 1, _band(n_chan), found, least=1)
    n_window = 1 if options.threshold == "simple" else options.largest_window.bit_length()
    scales = device.upload(window_scales(options.largest_window, options.falloff)[:n_window])
    bounds = work.array("bounds", (n_spectrum, 1, n_window), np.float32)
    n_thread = 4 if device.simulated() else 64
    make_spectrum_thresholds()[-(-n_spectrum // n_thread), n_thread](
        by_channel, *found, options.n_sigma, scales, bounds
    )
    return bounds


def runs(deviation: DeviceArray, bounds: DeviceArray, work: device.Workspace) -> DeviceArray:
    """What SumThreshold flags, uint8 (n_spectrum, n_chan)."""
    n_chan = deviation.shape[1]
    found = work.array("found", deviation.shape, np.uint8)
    find_runs(deviation, bounds, _band(n_chan), found, longest=n_chan, two_sided=False)
    return found
