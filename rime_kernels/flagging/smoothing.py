"""Smooth backgrounds of waterfalls of times and channels, from the samples that are not masked."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function
from rime_kernels.cpu.simd import fma, load, pointer, spread, store, zeros
from rime_kernels.flagging.lines import MAD_NORMAL, median_of_line
from rime_kernels.flagging.options import smoothing_weights

Line = NDArray[np.float32]
Waterfall = NDArray[np.float32]
Mask = NDArray[np.bool_]
LANES = 16
"""Numbers of a vector of the sums that smooth."""


class SmoothingWork(NamedTuple):
    """Workspace of one thread.

    Attributes
    ----------
    deviation, background, weight, other : float32 (n_time, n_chan)
    masked : bool (n_time, n_chan)
    line, held : float32 (n_time n_chan,) and (n_longer,)
        The longer of n_time and n_chan.
    high, low : bool (n_longer,)
    sums : float64 (n_longer + 1,)
    """

    deviation: Waterfall
    background: Waterfall
    weight: Waterfall
    other: Waterfall
    masked: Mask
    line: Line
    held: Line
    high: NDArray[np.bool_]
    low: NDArray[np.bool_]
    sums: NDArray[np.float64]


@inner_function
def workspace(n_time: int, n_chan: int) -> SmoothingWork:
    """A workspace for waterfalls of this shape."""
    longer = max(n_time, n_chan)
    return SmoothingWork(
        np.empty((n_time, n_chan), np.float32),
        np.empty((n_time, n_chan), np.float32),
        np.empty((n_time, n_chan), np.float32),
        np.empty((n_time, n_chan), np.float32),
        np.empty((n_time, n_chan), np.bool_),
        np.empty(n_time * n_chan, np.float32),
        np.empty(longer, np.float32),
        np.empty(longer, np.bool_),
        np.empty(longer, np.bool_),
        np.empty(longer + 1),
    )


def smoothing_kernel(sigma: float) -> Line:
    """`smoothing_weights` in float32 with three zeros behind, for loops over four at a time."""
    return np.concatenate([smoothing_weights(sigma), np.zeros(3)]).astype(np.float32)


@inner_function
def kernel_half(kernel: Line) -> int:
    """How far a kernel reaches to either side."""
    return (len(kernel) - 4) // 2


@inner_function
def _smooth_time(waterfall: Waterfall, kernel: Line, out: Waterfall) -> None:
    """Convolve along time: four integrations together, so that each number is read for all of them."""
    n_time, n_chan = waterfall.shape
    half = kernel_half(kernel)
    padded = np.zeros(len(kernel) + 3, np.float32)
    padded[3:] = kernel
    for t in range(0, n_time, 4):
        first, stop = max(0, t - half), min(n_time, t + half + 4)
        for c in range(0, n_chan - LANES + 1, LANES):
            _sum_rows(waterfall, first, stop, padded, t, half, c, out)
        if n_chan % LANES and n_chan >= LANES:
            _sum_rows(waterfall, first, stop, padded, t, half, n_chan - LANES, out)
        elif n_chan < LANES:
            for later in range(t, min(t + 4, n_time)):
                out[later, :] = np.float32(0.0)
                for row in range(first, min(stop, later + half + 1)):
                    for c in range(n_chan):
                        out[later, c] += padded[row - later + half + 3] * waterfall[row, c]


@inner_function
def _sum_rows(
    waterfall: Waterfall, first: int, stop: int, padded: Line, t: int, half: int, c: int, out: Waterfall
) -> None:
    """Weighted sums of rows first .. stop - 1 for four integrations from t on, and a vector of channels."""
    n_time, n_chan = waterfall.shape
    numbers, weights, sums = pointer(waterfall), pointer(padded), pointer(out)
    lanes_like = zeros(np.float32, LANES)
    w, x, y, z = lanes_like, lanes_like, lanes_like, lanes_like
    for row in range(first, stop):
        k, value = row - t + half, load(numbers, row * n_chan + c, lanes_like)
        w = fma(spread(weights[k + 3], lanes_like), value, w)
        x = fma(spread(weights[k + 2], lanes_like), value, x)
        y = fma(spread(weights[k + 1], lanes_like), value, y)
        z = fma(spread(weights[k], lanes_like), value, z)
    store(sums, t * n_chan + c, w)
    if t + 1 < n_time:
        store(sums, (t + 1) * n_chan + c, x)
    if t + 2 < n_time:
        store(sums, (t + 2) * n_chan + c, y)
    if t + 3 < n_time:
        store(sums, (t + 3) * n_chan + c, z)


@inner_function
def _smooth_channels(waterfall: Waterfall, kernel: Line, out: Waterfall) -> None:
    """Convolve along channels, four vectors of them together."""
    n_chan, half = waterfall.shape[1], kernel_half(kernel)
    n_padded = -(-n_chan // (4 * LANES)) * 4 * LANES
    line, smooth = np.zeros(n_padded + 2 * half, np.float32), np.empty(n_padded, np.float32)
    numbers, weights, sums = pointer(line), pointer(kernel), pointer(smooth)
    lanes_like = zeros(np.float32, LANES)
    for t in range(len(waterfall)):
        line[half : half + n_chan] = waterfall[t]
        for c in range(0, n_padded, 4 * LANES):
            w, x, y, z = lanes_like, lanes_like, lanes_like, lanes_like
            for k in range(2 * half + 1):
                weight = spread(weights[k], lanes_like)
                w = fma(weight, load(numbers, c + k, lanes_like), w)
                x = fma(weight, load(numbers, c + k + LANES, lanes_like), x)
                y = fma(weight, load(numbers, c + k + 2 * LANES, lanes_like), y)
                z = fma(weight, load(numbers, c + k + 3 * LANES, lanes_like), z)
            store(sums, c, w)
            store(sums, c + LANES, x)
            store(sums, c + 2 * LANES, y)
            store(sums, c + 3 * LANES, z)
        out[t, :] = smooth[:n_chan]


@inner_function
def _smooth(waterfall: Waterfall, kernels: tuple[Line, Line], other: Waterfall) -> None:
    """Convolve a waterfall (n_time, n_chan) in place along time, then channels; beyond it, all is 0."""
    in_time, in_channels = kernels
    _smooth_time(waterfall, in_time, other)
    _smooth_channels(other, in_channels, waterfall)


@inner_function
def _smooth_unmasked(
    value: Waterfall,
    masked: Mask,
    kernels: tuple[Line, Line],
    background: Waterfall,
    weight: Waterfall,
    other: Waterfall,
) -> None:
    """Weighted mean of the samples around each that are not masked; NaN where there are none."""
    for t in range(len(value)):
        for c in range(value.shape[1]):
            left_out = masked[t, c]
            background[t, c] = np.float32(0.0) if left_out else value[t, c]
            weight[t, c] = np.float32(0.0) if left_out else np.float32(1.0)
    for waterfall in (background, weight):
        _smooth(waterfall, kernels, other)
    for t in range(len(value)):
        for c in range(value.shape[1]):
            some = weight[t, c]
            background[t, c] = background[t, c] / some if some > 0.0 else np.float32(math.nan)


@inner_function
def _reject(
    value: Waterfall,
    background: Waterfall,
    chunks: NDArray[np.int64],
    reject: float,
    masked: Mask,
    line: Line,
) -> None:
    """Mask what is further from the background than `reject` times the noise of its chunk of channels."""
    for chunk in range(len(chunks) - 1):
        first, last, n, offset = chunks[chunk], chunks[chunk + 1], 0, 0
        for t in range(len(value)):
            for c in range(first, last):
                line[offset] = np.float32(math.inf) if masked[t, c] else abs(value[t, c] - background[t, c])
                n += not masked[t, c]
                offset += 1
        limit = reject * MAD_NORMAL * median_of_line(line[:offset], n)
        for t in range(len(value)):
            for c in range(first, last):
                if abs(value[t, c] - background[t, c]) > limit:
                    masked[t, c] = True


@inner_function
def _interpolate(line: Line) -> None:
    """Replace NaN by linear interpolation; beyond the first and last value these stand; 0 without any."""
    before = -1
    for i in range(len(line) + 1):
        if i < len(line) and math.isnan(line[i]):
            continue
        for j in range(before + 1, i):
            if before >= 0 and i < len(line):
                share = np.float32((j - before) / (i - before))
                line[j] = line[before] + share * (line[i] - line[before])
            elif before >= 0:
                line[j] = line[before]
            elif i < len(line):
                line[j] = line[i]
            else:
                line[j] = np.float32(0.0)
        before = i


@inner_function
def fill_background(
    value: Waterfall,
    code: NDArray[np.uint8],
    kernels: tuple[Line, Line],
    chunks: NDArray[np.int64],
    reject: float,
    background: Waterfall,
    work: SmoothingWork,
) -> None:
    """Fill the smooth background of a waterfall.

    Samples are smoothed where they are not masked; those that are then further from the background than
    `reject` times the noise (1.4826 times the median of absolute deviations) of their chunk of channels are
    masked, too, and the rest is smoothed again. Where a kernel meets no sample, the background is
    interpolated along channels.

    Parameters
    ----------
    value : float32 (n_time, n_chan)
    code : uint8 (n_time, n_chan)
        What is not 0 is masked from the start.
    kernels : float32 (n_weight,), float32 (n_weight,)
        Along time and channels.
    chunks : int64 (n_chunk + 1,)
        First channels of the chunks, and the number of channels.
    reject : float
    background : float32 (n_time, n_chan)
        Filled.
    work : Work
    """
    n_time, n_chan = value.shape
    weight, other, line = work.weight[:n_time], work.other[:n_time], work.line
    masked = work.masked[:n_time]
    for t in range(n_time):
        for c in range(n_chan):
            masked[t, c] = code[t, c] != 0
    for rejected in (False, True):
        _smooth_unmasked(value, masked, kernels, background, weight, other)
        if not rejected:
            _reject(value, background, chunks, reject, masked, line)
    for t in range(len(value)):
        _interpolate(background[t])
