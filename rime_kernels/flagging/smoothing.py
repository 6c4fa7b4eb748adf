"""Smooth backgrounds of waterfalls of times and channels, from the samples that are not masked."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function, summing_function
from rime_kernels.flagging.lines import MAD_NORMAL, median_of_line
from rime_kernels.flagging.options import smoothing_weights

Line = NDArray[np.float32]
Waterfall = NDArray[np.float32]
Mask = NDArray[np.bool_]


class Work(NamedTuple):
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
def workspace(n_time: int, n_chan: int) -> Work:
    """A workspace for waterfalls of this shape."""
    longer = max(n_time, n_chan)
    return Work(
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


@summing_function
def _add_four(out: Line, weight: Line, a: Line, b: Line, c: Line, d: Line) -> None:
    """Add four weighted lines."""
    for i in range(len(out)):
        out[i] += weight[0] * a[i] + weight[1] * b[i] + weight[2] * c[i] + weight[3] * d[i]


@inner_function
def _smooth_time(waterfall: Waterfall, kernel: Line, out: Waterfall) -> None:
    n_time, half, zero = len(waterfall), kernel_half(kernel), np.zeros(waterfall.shape[1], np.float32)
    for t in range(n_time):
        out[t, :] = np.float32(0.0)
        for k in range(0, len(kernel), 4):
            at = t + k - half
            if at + 3 >= 0 and at < n_time:
                a = waterfall[at] if at >= 0 else zero
                b = waterfall[at + 1] if 0 <= at + 1 < n_time else zero
                c = waterfall[at + 2] if 0 <= at + 2 < n_time else zero
                d = waterfall[at + 3] if at + 3 < n_time else zero
                _add_four(out[t], kernel[k : k + 4], a, b, c, d)


@inner_function
def _smooth_channels(waterfall: Waterfall, kernel: Line, out: Waterfall) -> None:
    n_chan, half = waterfall.shape[1], kernel_half(kernel)
    padded = np.zeros(n_chan + len(kernel) + 3, np.float32)
    for t in range(len(waterfall)):
        padded[half : half + n_chan] = waterfall[t]
        out[t, :] = np.float32(0.0)
        for k in range(0, len(kernel), 4):
            a, b, c, d = padded[k:], padded[k + 1 :], padded[k + 2 :], padded[k + 3 :]
            _add_four(out[t], kernel[k : k + 4], a, b, c, d)


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
        first, last, n, at = chunks[chunk], chunks[chunk + 1], 0, 0
        for t in range(len(value)):
            for c in range(first, last):
                line[at] = np.float32(math.inf) if masked[t, c] else abs(value[t, c] - background[t, c])
                n += not masked[t, c]
                at += 1
        limit = reject * MAD_NORMAL * median_of_line(line[:at], n)
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
    work: Work,
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
