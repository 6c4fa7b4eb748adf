"""The steps in which one waterfall is flagged; `rime_kernels.flagging.waterfalls` is the public call."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function
from rime_kernels.flagging.lines import median_of_line, rank_line, sum_threshold_two_sided
from rime_kernels.flagging.noises import VARIANCE, noise_of_line, share_noises
from rime_kernels.flagging.smoothing import SmoothingWork, fill_background, workspace

Line = NDArray[np.float32]
Waterfall = NDArray[np.float32]
Codes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

(
    CLEAR, GIVEN, SPECTRUM, INTEGRATION, TIME, CHANNELS, EXTENSION, RANK, WHOLE_CHANNEL, WHOLE_TIME,
) = map(np.uint8, range(10))  # fmt: skip
"""Codes of `rime_kernels.flagging.waterfalls.CAUSES`."""


class Numbers(NamedTuple):
    """`WaterfallOptions` as the loop reads them.

    Attributes
    ----------
    in_time, in_channels, nothing : float32 (n_weight,)
        Weights of the background's smoothing, and those that smooth nothing.
    chunks : int64 (n_chunk + 1,)
        First channels of the chunks, and the number of channels.
    scales : float64 (n_window,)
        Thresholds of windows of 1, 2, 4, ... samples, in units of the noise.
    integration_scales : float64 (n_window,)
        Those of the noises of integrations; 0 where they are not looked at.
    share_noise : bool
    reject : float
    half_time, half_channels : int
        By how many samples flags are extended to either side.
    rank_eta, whole_channel, whole_time : float
    """

    in_time: Line
    in_channels: Line
    nothing: Line
    chunks: NDArray[np.int64]
    scales: NDArray[np.float64]
    integration_scales: NDArray[np.float64]
    share_noise: bool
    reject: float
    half_time: int
    half_channels: int
    rank_eta: float
    whole_channel: float
    whole_time: float


@inner_function
def noise_of_waterfall(deviation: Waterfall, code: Codes, line: Line) -> float:
    """Noise of all samples of a waterfall that are clear; NaN where they are too few."""
    noise, _ = noise_of_line(deviation.reshape(deviation.size), code.reshape(code.size), line)
    return noise


@inner_function
def _thresholds(noise: float, of_all: float, scales: NDArray[np.float64]) -> Line:
    """Thresholds of all windows; infinite where neither noise is known."""
    known = of_all if math.isnan(noise) else noise
    return (scales * (math.inf if math.isnan(known) else known)).astype(np.float32)


@inner_function
def _find_in_line(
    line: Waterfall,
    given: Codes,
    kernels: tuple[Line, Line],
    chunks: NDArray[np.int64],
    numbers: Numbers,
    scales: NDArray[np.float64],
    least: float,
    cause: np.uint8,
) -> None:
    """Give the cause to numbers (1, n) that stand out of their smooth background, with codes in `given`.

    Their noise is `least` at least.
    """
    work = workspace(1, line.shape[1])
    fill_background(line, given, kernels, chunks, numbers.reject, work.background, work)
    for i in range(line.shape[1]):
        left_out = given[0, i] != CLEAR
        work.deviation[0, i] = np.float32(0.0) if left_out else line[0, i] - work.background[0, i]
    noise = noise_of_waterfall(work.deviation, given, work.line)
    noise = max(noise, least) if noise > 0.0 else noise
    find_along_channels(work.deviation, chunks, numbers, scales, (noise, least), work, cause, given)


@inner_function
def find_in_spectrum(amplitude: Waterfall, numbers: Numbers, work: SmoothingWork, code: Codes) -> None:
    """Flag channels whose median over time stands out."""
    n_time, n_chan = amplitude.shape
    spectrum, given, line = np.zeros((1, n_chan), np.float32), np.zeros((1, n_chan), np.uint8), work.line
    for c in range(n_chan):
        n = 0
        for t in range(n_time):
            clear = code[t, c] == CLEAR
            n += clear
            line[t] = amplitude[t, c] if clear else np.float32(math.inf)
        given[0, c] = GIVEN if n == 0 else CLEAR
        spectrum[0, c] = np.float32(0.0 if n == 0 else median_of_line(line[:n_time], n))
    kernels = numbers.nothing, numbers.in_channels
    _find_in_line(spectrum, given, kernels, numbers.chunks, numbers, numbers.scales, 0.0, SPECTRUM)
    for t in range(n_time):
        for c in range(n_chan):
            if code[t, c] == CLEAR and given[0, c] == SPECTRUM:
                code[t, c] = SPECTRUM


@inner_function
def find_in_integrations(
    deviation: Waterfall, alike: NDArray[np.bool_], numbers: Numbers, work: SmoothingWork, code: Codes
) -> None:
    """Flag integrations whose noise over the band stands out of those that are `alike`, as they are."""
    if numbers.integration_scales[0] == 0.0:
        return
    n_time = len(deviation)
    noise, given = np.zeros((1, n_time), np.float32), np.full((1, n_time), GIVEN)
    error, n_known = np.full(n_time, np.float32(math.inf)), 0
    for t in range(n_time):
        own, n = noise_of_line(deviation[t], code[t], work.line)
        if own > 0.0 and alike[t]:
            noise[0, t], given[0, t] = np.float32(math.log(own)), CLEAR
            error[t] = np.float32(math.sqrt(VARIANCE / n))
            n_known += 1
    kernels, chunks = (numbers.nothing, numbers.in_time), np.array([0, n_time])
    least, scales = median_of_line(error, n_known), numbers.integration_scales
    _find_in_line(noise, given, kernels, chunks, numbers, scales, least, INTEGRATION)
    for t in range(n_time):
        for c in range(deviation.shape[1]):
            if code[t, c] == CLEAR and given[0, t] == INTEGRATION:
                code[t, c] = INTEGRATION


@inner_function
def subtract_background(amplitude: Waterfall, numbers: Numbers, work: SmoothingWork, code: Codes) -> None:
    """Fill `work.deviation` with the deviations from the smooth background, 0 where samples are left out."""
    kernels, background = (numbers.in_time, numbers.in_channels), work.background
    fill_background(amplitude, code, kernels, numbers.chunks, numbers.reject, background, work)
    for t in range(len(amplitude)):
        for c in range(amplitude.shape[1]):
            left_out = code[t, c] == GIVEN
            work.deviation[t, c] = np.float32(0.0) if left_out else amplitude[t, c] - background[t, c]


@inner_function
def find_along_time(
    deviation: Waterfall, numbers: Numbers, of_all: float, work: SmoothingWork, code: Codes
) -> None:
    """SumThreshold of each channel along time."""
    n, n_chan = deviation.shape
    high, low, held = work.high[:n], work.low[:n], work.held[:n]
    line, channel = np.empty(n, np.float32), np.empty(n, np.uint8)
    noise, n_clear = np.empty(n_chan), np.empty(n_chan, np.int64)
    for c in range(n_chan):
        for t in range(n):
            line[t], channel[t] = deviation[t, c], code[t, c]
        noise[c], n_clear[c] = noise_of_line(line, channel, work.line)
    if numbers.share_noise:
        share_noises(noise, n_clear, work.line)
    for c in range(n_chan):
        for t in range(n):
            line[t] = deviation[t, c]
        thresholds = _thresholds(noise[c], of_all, numbers.scales)
        sum_threshold_two_sided(line, thresholds, high, low, held)
        for t in range(n):
            if (high[t] or low[t]) and code[t, c] == CLEAR:
                code[t, c] = TIME


@inner_function
def find_along_channels(
    deviation: Waterfall,
    chunks: NDArray[np.int64],
    numbers: Numbers,
    scales: NDArray[np.float64],
    noises: tuple[float, float],
    work: SmoothingWork,
    cause: np.uint8,
    code: Codes,
) -> None:
    """SumThreshold of each integration along channels, each chunk of them with a noise of its own.

    `noises` are that of all, for where a noise is not known, and the smallest that there can be.

    Windows reach beyond the edges of a chunk, with its thresholds.
    """
    n_time, n_chan = deviation.shape
    n_chunk, margin = len(chunks) - 1, (1 << (len(scales) - 1)) - 1
    of_all, least = noises
    noise, n_clear = np.empty(n_time * n_chunk), np.empty(n_time * n_chunk, np.int64)
    for i in range(n_time * n_chunk):
        t, chunk = i // n_chunk, i % n_chunk
        first, last = chunks[chunk], chunks[chunk + 1]
        noise[i], n_clear[i] = noise_of_line(deviation[t, first:last], code[t, first:last], work.line)
    if numbers.share_noise:
        share_noises(noise, n_clear, work.line)
    for i in range(n_time * n_chunk):
        if noise[i] < least:
            noise[i] = least
        t, chunk = i // n_chunk, i % n_chunk
        first, last = chunks[chunk], chunks[chunk + 1]
        begin, end = max(0, first - margin), min(n_chan, last + margin)
        n = end - begin
        high, low = work.high[:n], work.low[:n]
        thresholds = _thresholds(noise[i], of_all, scales)
        sum_threshold_two_sided(deviation[t, begin:end], thresholds, high, low, work.held[:n])
        for c in range(first, last):
            if (high[c - begin] or low[c - begin]) and code[t, c] == CLEAR:
                code[t, c] = cause


@inner_function
def _add_found(codes: Codes, near: Mask) -> None:
    for c in range(len(codes)):
        near[c] |= codes[c] > GIVEN


@inner_function
def _add_mask(mask: Mask, near: Mask) -> None:
    for c in range(len(mask)):
        near[c] |= mask[c]


@inner_function
def extend(numbers: Numbers, work: SmoothingWork, code: Codes) -> None:
    """Flag what is next to flags, in time and then in channels."""
    n_time, n_chan = code.shape
    near = work.high[:n_chan]
    work.masked[:] = False
    for t in range(n_time):
        for other in range(max(0, t - numbers.half_time), min(n_time, t + numbers.half_time + 1)):
            _add_found(code[other], work.masked[t])
    for t in range(n_time):
        near[:] = work.masked[t]
        for k in range(1, min(numbers.half_channels + 1, n_chan)):
            _add_mask(work.masked[t, k:], near[: n_chan - k])
            _add_mask(work.masked[t, : n_chan - k], near[k:])
        for c in range(n_chan):
            if near[c] and code[t, c] == CLEAR:
                code[t, c] = EXTENSION


@inner_function
def _rank_of_line(codes: Codes, numbers: Numbers, work: SmoothingWork) -> None:
    n = len(codes)
    found, given = work.high[:n], work.low[:n]
    for i in range(n):
        found[i], given[i] = codes[i] > GIVEN, codes[i] == GIVEN
    rank_line(found, given, numbers.rank_eta, work.sums[: n + 1], found)
    for i in range(n):
        if found[i] and codes[i] == CLEAR:
            codes[i] = RANK


@inner_function
def extend_by_rank(numbers: Numbers, work: SmoothingWork, code: Codes) -> None:
    """The scale-invariant rank operator along time, and then along channels."""
    if numbers.rank_eta == 0.0:
        return
    line = np.empty(len(code), np.uint8)
    for c in range(code.shape[1]):
        line[:] = code[:, c]
        _rank_of_line(line, numbers, work)
        code[:, c] = line
    for t in range(len(code)):
        _rank_of_line(code[t], numbers, work)


@inner_function
def flag_wholes(numbers: Numbers, code: Codes) -> None:
    """Flag channels and integrations of which too much was found; both are judged by the same flags."""
    n_time, n_chan = code.shape
    channel, there = np.zeros(n_chan, np.int64), np.zeros(n_chan, np.int64)
    whole_time = np.zeros(n_time, np.bool_)
    for t in range(n_time):
        n_found, n_there = 0, 0
        for c in range(n_chan):
            found, is_there = code[t, c] > GIVEN, code[t, c] != GIVEN
            n_found, n_there = n_found + found, n_there + is_there
            channel[c], there[c] = channel[c] + found, there[c] + is_there
        whole_time[t] = n_found > numbers.whole_time * n_there
    for t in range(n_time):
        for c in range(n_chan):
            if code[t, c] == CLEAR and channel[c] > numbers.whole_channel * there[c]:
                code[t, c] = WHOLE_CHANNEL
            elif code[t, c] == CLEAR and whole_time[t]:
                code[t, c] = WHOLE_TIME


@inner_function
def flag_waterfall(
    amplitude: Waterfall, alike: NDArray[np.bool_], numbers: Numbers, work: SmoothingWork, code: Codes
) -> None:
    """All steps, one after the other."""
    find_in_spectrum(amplitude, numbers, work, code)
    subtract_background(amplitude, numbers, work, code)
    find_in_integrations(work.deviation, alike, numbers, work, code)
    noise = noise_of_waterfall(work.deviation, code, work.line)
    find_along_time(work.deviation, numbers, noise, work, code)
    chunks, scales = numbers.chunks, numbers.scales
    find_along_channels(work.deviation, chunks, numbers, scales, (noise, 0.0), work, CHANNELS, code)
    extend(numbers, work, code)
    extend_by_rank(numbers, work, code)
    flag_wholes(numbers, code)
