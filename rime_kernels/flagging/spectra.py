"""Flag each integration by itself: background by a running median, noise, thresholds."""

from __future__ import annotations

import math

import numpy as np
from numba import get_num_threads, prange
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check, device
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.compile.jit import inner_function, loop
from rime_kernels.cpu.simd import between, load, pointer, spread, store, where_below, zeros
from rime_kernels.flagging.inputs import amplitudes, with_thresholds
from rime_kernels.flagging.lines import MAD_NORMAL, MIN_SAMPLES, median_of_line, sum_threshold_one_sided
from rime_kernels.flagging.options import SpectrumOptions, check_width

Amplitude = NDArray[np.float32]
Mask = NDArray[np.bool_]
LANES = 16
"""Spectra whose running medians are found side by side."""


def running_median(amplitude: ArrayLike, flag: ArrayLike = False, *, width: int = 13) -> Amplitude:
    """Background of spectra: the median of the amplitudes in a window around each channel.

    Windows shrink at the edges; flagged samples are left out; of an even number of samples, the median is the
    mean of the middle two.

    Parameters
    ----------
    amplitude : float32 (n_spectrum, n_chan)
        In any unit.
    flag : bool, broadcast against amplitude
        Samples that are left out. So are those that are not finite.
    width : int
        Channels of the window; odd.

    Returns
    -------
    float32 (n_spectrum, n_chan)
        NaN where the window has no sample.

    Raises
    ------
    InputError
        A width that is not odd, a negative amplitude, or another shape.
    """
    check_width(width)
    staged = amplitudes(amplitude, flag, ("n_spectrum", "n_chan"))
    background = np.empty_like(staged)
    n_chan = staged.shape[1]
    if not staged.size:
        return background
    n_worker = get_num_threads()
    lanes = np.empty((n_worker, n_chan, LANES), np.float32)
    # One row more than the window has channels: it stays infinite, and closes the sorted numbers.
    window = np.empty((n_worker, min(width, 2 * n_chan + 1) + 1, LANES), np.float32)
    with CALL_LOCK:
        _running_medians(staged, lanes, window, width // 2, background)
    return background


@loop
def _running_medians(
    staged: Amplitude, lanes: Amplitude, window: Amplitude, half: int, background: Amplitude
) -> None:
    """Running medians of all spectra, `LANES` of them side by side; `lanes` and `window` are workspaces."""
    n_worker, n_block = len(lanes), (len(staged) + LANES - 1) // LANES
    for worker in prange(n_worker):
        # Workers take blocks in turn, each with a workspace of its own: nothing is allocated in the loop.
        for block in range(worker, n_block, n_worker):
            _stage_lanes(staged, block * LANES, lanes[worker])
            _slide(lanes[worker], window[worker], half, background, block * LANES)


@inner_function
def _stage_lanes(staged: Amplitude, first: int, lanes: Amplitude) -> None:
    """Some spectra as columns; infinite beyond the last."""
    for lane in range(LANES):
        if first + lane < len(staged):
            for i in range(len(lanes)):
                lanes[i, lane] = staged[first + lane, i]
        else:
            # Infinity is no number for the window: lanes beyond the last spectrum change nothing.
            lanes[:, lane] = np.float32(math.inf)


@inner_function
def _replace(window: Amplitude, old: Amplitude, new: Amplitude) -> None:
    """Take one number out of each column of sorted numbers, and put another in; infinity is no number.

    Parameters
    ----------
    window : float32 (width + 1, LANES)
        Sorted; its last row is infinite.
    old, new : float32 (LANES,)
    """
    numbers, lanes_like = pointer(window), zeros(np.float32, LANES)
    gone, put = load(pointer(old), 0, lanes_like), load(pointer(new), 0, lanes_like)
    # One pass without branches: `left` are the numbers without the old one, and the new one, held between
    # neighbours of these, gives the sorted numbers with it.
    before, here = spread(np.float32(-math.inf), lanes_like), load(numbers, 0, lanes_like)
    for offset in range(0, (len(window) - 1) * LANES, LANES):
        above = load(numbers, offset + LANES, lanes_like)
        left = where_below(here, gone, above)
        store(numbers, offset, between(before, put, left))
        before, here = left, above


@inner_function
def _slide(lanes: Amplitude, window: Amplitude, half: int, background: Amplitude, first: int) -> None:
    """Move the window over the channels of some spectra."""
    n_chan = len(lanes)
    # Before the first channel and behind the last, infinity enters and leaves.
    nothing = np.full(LANES, np.float32(math.inf), np.float32)
    count = np.zeros(LANES, np.int32)
    window[:] = np.float32(math.inf)
    for enters in range(n_chan + half):
        new = lanes[enters] if enters < n_chan else nothing
        # The median of a channel is known when the last channel of its window has entered.
        centre = enters - half
        old = lanes[centre - half - 1] if centre > half else nothing
        _replace(window, old, new)
        for lane in range(LANES):
            count[lane] += np.int32(new[lane] < math.inf) - np.int32(old[lane] < math.inf)
        if centre >= 0:
            for lane in range(min(LANES, len(background) - first)):
                n = count[lane]
                if n == 0:
                    background[first + lane, centre] = np.float32(math.nan)
                else:
                    # Of an odd number of samples both are the middle one, and their mean is exact.
                    pair = window[(n - 1) // 2, lane] + window[n // 2, lane]
                    background[first + lane, centre] = np.float32(0.5) * pair


def noise_of_deviations(deviation: ArrayLike) -> NDArray[np.float64]:
    """Noise of spectra: 1.4826 times the median of the absolute deviations that are not zero.

    A sample is the median of its own window of w samples about once in w times, and deviates from it by
    nothing; those zeros would make the noise too small.

    Parameters
    ----------
    deviation : float32 (n_spectrum, n_chan)
        Of amplitudes from their background; 0 where a sample is left out.

    Returns
    -------
    float64 (n_spectrum,)
        NaN where all deviations are zero.
    """
    value = check.array("deviation", deviation, np.float32, ("n_spectrum", "n_chan"))
    check.finite("deviation", value)
    noise = np.empty(len(value))
    with CALL_LOCK:
        _noise(value, np.empty((get_num_threads(), value.shape[1]), np.float32), noise)
    return noise


@loop
def _noise(deviation: Amplitude, lines: Amplitude, noise: NDArray[np.float64]) -> None:
    n_worker = len(lines)
    for worker in prange(n_worker):
        for s in range(worker, len(deviation), n_worker):
            noise[s] = _noise_of_line(deviation[s], lines[worker])


@inner_function
def _noise_of_line(deviation: Amplitude, line: Amplitude) -> float:
    n = 0
    for i in range(len(line)):
        size = abs(deviation[i])
        n += size > 0.0
        # Behind all others in the order, so that the median of the first n leaves them out.
        line[i] = size if size > 0.0 else np.float32(math.inf)
    return MAD_NORMAL * median_of_line(line, n)


def simple_threshold(deviation: ArrayLike, noise: ArrayLike, n_sigma: float = 11.0) -> Mask:
    """Which samples deviate upwards by more than n_sigma times the noise.

    Parameters
    ----------
    deviation : float32 (n_spectrum, n_chan)
    noise : float64 (n_spectrum,)
        Nothing is found where it is not a positive number.
    n_sigma : float

    Returns
    -------
    bool (n_spectrum, n_chan)
    """
    value, threshold = with_thresholds(deviation, noise, SpectrumOptions(n_sigma=n_sigma, largest_window=1))
    return value > threshold


def sum_threshold(
    deviation: ArrayLike,
    noise: ArrayLike,
    n_sigma: float = 11.0,
    *,
    largest_window: int = 8,
    falloff: float = 1.2,
) -> Mask:
    """SumThreshold: runs of 1, 2, 4, ... channels whose mean deviates upwards by more than a threshold.

    The threshold for the mean of 2^i channels is n_sigma falloff^-i times the noise. Before each length of
    runs, samples that shorter runs have flagged are set to its threshold, so that they neither make their
    neighbours exceed it nor hide them. A run above it is flagged whole (Offringa et al. 2010, MNRAS 405,
    155).

    Parameters
    ----------
    deviation : float32 (n_spectrum, n_chan)
    noise : float64 (n_spectrum,)
        Nothing is found where it is not a positive number.
    n_sigma : float
    largest_window : int
        A power of two.
    falloff : float

    Returns
    -------
    bool (n_spectrum, n_chan)

    Raises
    ------
    InputError
        A number out of its range, or arrays of other shapes.
    """
    options = SpectrumOptions(n_sigma=n_sigma, largest_window=largest_window, falloff=falloff)
    value, thresholds = with_thresholds(deviation, noise, options)
    found = np.empty(value.shape, bool)
    held = np.empty((get_num_threads(), value.shape[1]), np.float32)
    with CALL_LOCK:
        _sum_thresholds(value, thresholds, held, found)
    return found


@loop
def _sum_thresholds(deviation: Amplitude, thresholds: Amplitude, held: Amplitude, found: Mask) -> None:
    n_worker = len(held)
    for worker in prange(n_worker):
        for s in range(worker, len(deviation), n_worker):
            sum_threshold_one_sided(deviation[s], thresholds[s], found[s], held[worker])


def flag_spectra(
    amplitude: ArrayLike,
    flag: ArrayLike = False,
    options: SpectrumOptions | None = None,
    *,
    backend: device.Backend = "cpu",
) -> Mask:
    """Flag each spectrum by itself: what exceeds a running median by many times the noise.

    Nothing is found in spectra of less than `MIN_SAMPLES` samples that are not left out.

    Parameters
    ----------
    amplitude : float32 (n_spectrum, n_chan)
        One spectrum for each baseline, correlation and integration, in any unit.
    flag : bool, broadcast against amplitude
        Samples that are left out; none of them is among those found.
    options : SpectrumOptions, optional
    backend : "auto", "cpu" or "cuda"
        Where it is computed. Both find the same.

    Returns
    -------
    bool (n_spectrum, n_chan)

    Raises
    ------
    InputError
        A negative amplitude, or another shape.
    BackendError
        "cuda" where there is no device.
    """
    options = options or SpectrumOptions()
    if device.resolve(backend)[0] == "cuda":
        from rime_kernels.flagging.cuda.spectra import flag_spectra as on_device

        return on_device(amplitude, flag, options)
    value = check.array("amplitude", amplitude, np.float32, ("n_spectrum", "n_chan"))
    background = running_median(value, flag, width=options.width)
    # What was flagged before deviates by 0: it makes no noise, and is never above a threshold.
    given = np.broadcast_to(np.asarray(flag, bool), value.shape) | ~np.isfinite(value)
    deviation = np.where(given, np.float32(0.0), value - background)
    noise = noise_of_deviations(deviation)
    # NaN noise: no comparison with it is true, and nothing is found.
    noise[np.count_nonzero(~given, axis=1) < MIN_SAMPLES] = math.nan
    if options.threshold == "simple":
        return simple_threshold(deviation, noise, options.n_sigma)
    found = sum_threshold(
        deviation, noise, options.n_sigma, largest_window=options.largest_window, falloff=options.falloff
    )
    return found & ~given
