"""Flag waterfalls on a GPU: batches of them, each on a stream of its own while the next one comes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceArray, DeviceKernel, Scalar
from rime_kernels.flagging.cuda import marks, smoothing
from rime_kernels.flagging.cuda.median_search import find_medians
from rime_kernels.flagging.cuda.noises import find_noises, make_log_noises, make_raise, make_thresholds
from rime_kernels.flagging.cuda.sums import find_runs
from rime_kernels.flagging.cuda.transposition import transpose_into
from rime_kernels.flagging.lines import MAD_NORMAL
from rime_kernels.flagging.steps import CHANNELS, INTEGRATION, SPECTRUM, TIME, Numbers

BATCH = 1 << 24
"""Samples that a lane has on the device at a time, or one waterfall where that has more."""
BYTES = 100
"""Of device memory for each sample, in waterfalls of a single integration, whose lines are samples."""
N_LANE = 2
"""Batches that are under way: while kernels flag one of them, the next one is sent."""
Waterfalls = NDArray[np.float32]
Codes = NDArray[np.uint8]


def flag_waterfalls(value: Waterfalls, alike: NDArray[np.bool_], numbers: Numbers, code: Codes) -> None:
    """Fill in what is found, as the loops of `rime_kernels.flagging.waterfalls` do on the CPU.

    Parameters
    ----------
    value : float32 (n_waterfall, n_time, n_chan)
    alike : bool (n_waterfall, n_time)
        Integrations that should have the noise of those around them.
    numbers : Numbers
    code : uint8 (n_waterfall, n_time, n_chan)
        CLEAR or GIVEN; the codes of causes are filled in.
    """
    size = value.shape[1] * value.shape[2]
    most = min(BATCH, device.memory_budget() // (N_LANE * BYTES))
    step = max(1, min(most // size, device.MAX_GRID_Y))
    starts = range(0, len(value), step)
    lanes = [Lane(min(step, len(value)), numbers, value.shape[1:]) for _ in starts[:N_LANE]]
    for i, start in enumerate(starts):
        rows = slice(start, start + step)
        lanes[i % N_LANE].start(value[rows], alike[rows], code[rows])
    for lane in lanes:
        lane.finish()


class _Chunks(NamedTuple):
    """Chunks of the last axis, each with a noise of its own.

    Attributes
    ----------
    edges : int32 (n_chunk + 1,)
        Where they begin, and the length of the axis.
    chunk_of : int32 (n,)
        The chunk of each place.
    longest : int
    """

    edges: DeviceArray
    chunk_of: DeviceArray
    longest: int

    @classmethod
    def of(cls, edges: NDArray[np.int64]) -> _Chunks:
        """Chunks on the device."""
        lengths = np.diff(edges)
        chunk_of = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        return cls(device.upload(edges.astype(np.int32)), device.upload(chunk_of), int(lengths.max()))


class Lane:
    """A stream with all that one batch of waterfalls needs on the device and in pinned memory of the host."""

    def __init__(self, n: int, numbers: Numbers, shape: tuple[int, ...]) -> None:
        self._stream = device.streams(1)[0]
        self._work, self._numbers = device.Workspace(), numbers
        self._host = (
            _pinned((n, *shape), np.float32),
            _pinned((n, shape[0]), np.bool_),
            _pinned((n, *shape), np.uint8),
        )
        self._out: Codes | None = None
        self._time, self._channels = (device.upload(x[:-3]) for x in (numbers.in_time, numbers.in_channels))
        self._scales, self._integration_scales = map(
            device.upload, (numbers.scales, numbers.integration_scales)
        )
        self._chunks = _Chunks.of(numbers.chunks)
        self._all_times, self._all_channels = (_Chunks.of(np.array([0, length])) for length in shape)
        n_chunk = len(numbers.chunks) - 1
        lengths = {1, *shape, n_chunk, shape[0] * n_chunk}
        self._ends = {length: device.upload(np.array([0, length], np.int32)) for length in lengths}

    def start(self, value: Waterfalls, alike: NDArray[np.bool_], code: Codes) -> None:
        """Send a batch, and start the kernels and the way back, after what was under way before has ended."""
        # Pinned memory and workspace of this lane are used again: what was under way must have ended.
        self.finish()
        host = tuple(each[: len(value)] for each in self._host)
        for into, each in zip(host, (value, alike, code), strict=True):
            # Copies from pinned memory alone are asynchronous: the data go there first.
            into[...] = each
        there = [
            self._array(name, h.shape, h.dtype.type)
            for name, h in zip(("value", "alike", "code"), host, strict=True)
        ]
        for into, each in zip(there, host, strict=True):
            into.copy_to_device(each, stream=self._stream)
        found = self._flag(*there)
        found.copy_to_host(host[2], stream=self._stream)
        self._out = code

    def finish(self) -> None:
        """Wait for what is under way, and hand it over."""
        if self._out is not None:
            self._stream.synchronize()
            self._out[...] = self._host[2][: len(self._out)]
            self._out = None

    def _flag(self, value: DeviceArray, alike: DeviceArray, code: DeviceArray) -> DeviceArray:
        """All steps on the device; gives the codes."""
        n_line = value.shape[1]
        # The order is that of `rime_kernels.flagging.steps` on the CPU: later steps leave out what earlier
        # ones found.
        self._mark(self._find_in_spectrum(value, code), n_line, SPECTRUM, code)
        background = self._background(value, code, self._channels, self._chunks, in_time=True)
        # Workspace arrays are used again by name: "a" to "d" are scratch, "kept" lives to the last search.
        deviation, size = (self._array(name, value.shape, np.float32) for name in ("kept", "a"))
        self._over(marks.make_deviate(), (value, background, code, deviation, size))
        if self._numbers.integration_scales[0] > 0.0:
            self._find_in_integrations(deviation, alike, size, code)
        of_all = self._medians(size, n_line, self._all_channels.edges, "all")
        self._mark(self._find_along_time(deviation, code, of_all), 1, TIME, code)
        self._over(marks.make_sizes(), (deviation, code, size))
        found = self._runs(deviation, size, self._chunks, of_all, self._scales)
        self._mark(found, 1, CHANNELS, code)
        return self._flag_wholes(self._extended(code))

    def _find_in_spectrum(self, value: DeviceArray, code: DeviceArray) -> DeviceArray:
        """Channels (n_waterfall, 1, n_chan) whose median over time stands out."""
        size = self._array("a", value.shape, np.float32)
        self._over(marks.make_sizes(), (value, code, size))
        # Kernels walk the last axis, which is coalesced: for steps along time the arrays are transposed.
        median = self._medians(self._transposed(size, "b"), 1, self._all_times.edges, "median")
        shape = len(value), 1, value.shape[2]
        line, left_out = self._array("line", shape, np.float32), self._array("gone", shape, np.uint8)
        self._over(marks.make_spectrum(), (line, left_out), *median)
        return self._find_in_line((line, left_out), self._channels, self._chunks, self._scales, None)

    def _find_in_integrations(
        self, deviation: DeviceArray, alike: DeviceArray, size: DeviceArray, code: DeviceArray
    ) -> None:
        """Mark integrations whose noise over the band stands out; their sizes become infinite."""
        noises = self._medians(size, 1, self._all_channels.edges, "noises")
        shape = len(deviation), 1, deviation.shape[1]
        line, error = (self._array(name, shape, np.float32) for name in ("line", "error"))
        left_out = self._array("gone", shape, np.uint8)
        of_line = alike.reshape(*shape)
        self._over(make_log_noises(), (line, left_out, error, of_line), *noises)
        _, least = self._medians(error, 1, self._all_times.edges, "least")
        found = self._find_in_line(
            (line, left_out), self._time, self._all_times, self._integration_scales, least
        )
        self._over(marks.make_mark_lines(), (code, found.reshape(*deviation.shape[:2], 1)), INTEGRATION)
        self._over(marks.make_sizes(), (deviation, code, size))

    def _find_in_line(
        self,
        given: tuple[DeviceArray, DeviceArray],
        weights: DeviceArray,
        chunks: _Chunks,
        scales: DeviceArray,
        least: DeviceArray | None,
    ) -> DeviceArray:
        """Which numbers of lines (n_waterfall, 1, n), given with codes, stand out of their background.

        Noises are at least the median whose middle two are `least`, where it is given.
        """
        line, left_out = given
        background = self._background(line, left_out, weights, chunks, in_time=False)
        deviation, size = (self._array(name, line.shape, np.float32) for name in ("deviation", "a"))
        self._over(marks.make_deviate(), (line, background, left_out, deviation, size))
        of_all = self._medians(size, 1, self._ends[line.shape[2]], "all")
        return self._runs(deviation, size, chunks, of_all, scales, least)

    def _background(
        self, value: DeviceArray, code: DeviceArray, weights: DeviceArray, chunks: _Chunks, *, in_time: bool
    ) -> DeviceArray:
        """Smooth background; samples whose codes are not 0 are left out, and then those far from the rest.

        `weights` are those of the last axis; `in_time` smooths along the one before, too.
        """
        total, weight = (self._array(name, value.shape, np.float32) for name in ("a", "b"))
        split, _ = smoothing.make_parts()
        self._over(split, (value, code, total, weight))
        background = self._smooth_mean(total, weight, weights, in_time=in_time, fill=False)
        deviation, size = (self._array(name, value.shape, np.float32) for name in ("deviation", "a"))
        self._over(marks.make_deviate(), (value, background, code, deviation, size))
        n_line = value.shape[1]
        median = self._medians(size, n_line, chunks.edges, "chunks")
        # Again, since smoothing has used these arrays for scratch.
        self._over(split, (value, code, total, weight))
        limit = self._numbers.reject * MAD_NORMAL
        self._over(marks.make_reject(), (deviation, total, weight), chunks.chunk_of, n_line, *median, limit)
        return self._smooth_mean(total, weight, weights, in_time=in_time, fill=True)

    def _smooth_mean(
        self, total: DeviceArray, weight: DeviceArray, weights: DeviceArray, *, in_time: bool, fill: bool
    ) -> DeviceArray:
        """Smoothed sums over smoothed weights; where there are none, NaN, or interpolated if `fill`."""
        shape, stream = total.shape, self._stream
        pair = _lines(total), _lines(weight)
        smoothed = [self._array(name, shape, np.float32) for name in ("c", "d")]
        smoothing.smooth_lines(pair, weights, (_lines(smoothed[0]), _lines(smoothed[1])), stream)
        turned = [self._transposed(each, name) for each, name in zip(smoothed, ("a", "b"), strict=True)]
        if in_time:
            out = [self._array(name, turned[0].shape, np.float32) for name in ("c", "d")]
            smoothing.smooth_lines(
                (_lines(turned[0]), _lines(turned[1])), self._time, (_lines(out[0]), _lines(out[1])), stream
            )
            turned = out
        _, divide = smoothing.make_parts()
        # Normalised convolution: smoothed values over smoothed weights, which leaves out what is missing.
        self._over(divide, (*turned, turned[0]))
        if fill:
            n, _, n_time = turned[0].shape
            n_thread = _threads(n_time)
            smoothing.make_interpolate()[(n, -(-n_time // n_thread)), n_thread, stream](turned[0])
        return self._transposed(turned[0], "background")

    def _find_along_time(
        self, deviation: DeviceArray, code: DeviceArray, of_all: tuple[DeviceArray, DeviceArray]
    ) -> DeviceArray:
        """What SumThreshold finds in each channel along time."""
        by_channel, codes = self._transposed(deviation, "b"), self._transposed(code, "turned", np.uint8)
        size = self._array("c", by_channel.shape, np.float32)
        self._over(marks.make_sizes(), (by_channel, codes, size))
        found = self._runs(by_channel, size, self._all_times, of_all, self._scales)
        return self._transposed(found, "found of time", np.uint8)

    def _runs(
        self,
        deviation: DeviceArray,
        size: DeviceArray,
        chunks: _Chunks,
        of_all: tuple[DeviceArray, DeviceArray],
        scales: DeviceArray,
        least: DeviceArray | None = None,
    ) -> DeviceArray:
        """SumThreshold along the last axis, with a noise of each line between two edges."""
        n_line, edges = deviation.shape[1], chunks.edges
        ends = self._ends[n_line * (len(edges) - 1)] if self._numbers.share_noise else None
        noise = find_noises(size, edges, ends, self._work, self._stream, chunks.longest)
        if least is not None:
            n_thread = _threads(len(noise))
            # A noise that happens to come out too small would flag sound integrations.
            make_raise()[-(-len(noise) // n_thread), n_thread, self._stream](noise, least)
        bounds = self._array("bounds", (*noise.shape, scales.size), np.float32)
        make_thresholds()[noise.shape, scales.size, self._stream](noise, *of_all, n_line, scales, bounds)
        found = self._array("found", deviation.shape, np.uint8)
        find_runs(
            _lines(deviation),
            bounds,
            edges,
            _lines(found),
            self._stream,
            longest=chunks.longest,
            two_sided=True,
        )
        return found

    def _extended(self, code: DeviceArray) -> DeviceArray:
        """Flags extended to their neighbours, and by the rank operator."""
        numbers, wider = self._numbers, self._array("wider", code.shape, np.uint8)
        halves = numbers.half_time, numbers.half_channels
        self._over(marks.make_extend(), (code, wider), code.shape[1], *halves)
        if numbers.rank_eta > 0.0:
            # Along time first, then along channels: flags of the first pass count in the second.
            self._rank(wider)
            by_channel = self._transposed(wider, "turned", np.uint8)
            self._rank(by_channel)
            transpose_into(by_channel, wider, np.uint8, self._stream)
        return wider

    def _rank(self, code: DeviceArray) -> None:
        """The rank operator along the middle axis."""
        n, n_step, m = code.shape
        sums, n_thread = self._array("sums", (n, n_step + 1, m), np.float64), _threads(m)
        marks.make_rank()[(n, -(-m // n_thread)), n_thread, self._stream](code, self._numbers.rank_eta, sums)

    def _flag_wholes(self, code: DeviceArray) -> DeviceArray:
        """Flag channels and integrations of which too much was found; both are judged by the same flags."""
        numbers, turned = self._numbers, self._transposed(code, "turned", np.uint8)
        wholes = []
        for name, codes, share in (
            ("channel", turned, numbers.whole_channel),
            ("time", code, numbers.whole_time),
        ):
            lines = _lines(codes)
            wholes.append(self._array(name, (len(lines),), np.bool_))
            n_thread = 4 if device.simulated() else 128
            marks.make_wholes(n_thread)[len(lines), n_thread, self._stream](lines, share, wholes[-1])
        self._over(marks.make_mark_wholes(), (code,), *wholes, code.shape[1])
        return code

    def _mark(self, found: DeviceArray, n_line: int, cause: np.uint8, code: DeviceArray) -> None:
        """Give a cause to what was found; `n_line` lines of codes share each line of what was found."""
        self._over(marks.make_mark(), (code, found), n_line, cause)

    def _medians(
        self, size: DeviceArray, n_row: int, edges: DeviceArray, name: str
    ) -> tuple[DeviceArray, DeviceArray]:
        """How many numbers count and their middle two, of rectangles of `n_row` lines."""
        lines = _lines(size)
        shape = len(lines) // n_row, len(edges) - 1
        found = self._array(f"n {name}", shape, np.int32), self._array(name, (*shape, 2), np.float32)
        find_medians(lines, n_row, edges, found, self._stream)
        return found

    def _over(self, kernel: DeviceKernel, arrays: Sequence[DeviceArray], *others: Array | Scalar) -> None:
        """Launch a kernel over the lines and numbers of the first of some arrays of three axes."""
        lines = [_lines(each) for each in arrays]
        n_line, m = lines[0].shape
        kernel[n_line, _threads(m), self._stream](*lines, *others)

    def _transposed(self, given: DeviceArray, name: str, kind: type = np.float32) -> DeviceArray:
        """Waterfalls (n, n_time, n_chan) as (n, n_chan, n_time)."""
        n, n_row, m = given.shape
        out = self._array(name, (n, m, n_row), kind)
        transpose_into(given, out, kind, self._stream)
        return out

    def _array(self, name: str, shape: tuple[int, ...], kind: type) -> DeviceArray:
        return self._work.array(name, shape, kind)


def _lines(array: DeviceArray) -> DeviceArray:
    """Arrays of three axes as lines along the last one."""
    return array.reshape(math.prod(array.shape[:2]), array.shape[2])


def _threads(n: int) -> int:
    """Threads of a block along lines of n numbers."""
    return 4 if device.simulated() else next((size for size in (32, 64) if size >= n), 128)


def _pinned(shape: tuple[int, ...], kind: type) -> Array:
    return device.pinned_copy(np.empty(shape, kind))
