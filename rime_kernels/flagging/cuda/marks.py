"""Kernels of the steps in which waterfalls are flagged, between medians, backgrounds and SumThreshold.

Codes are uint8, as of `rime_kernels.flagging.steps`. Unless said otherwise there is a block for each line, an
integration of one waterfall, whose threads walk its channels.
"""

from __future__ import annotations

import functools

from numba import float32, float64, int32, uint8

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceKernel, Module, Scalar
from rime_kernels.cuda.kernels.reductions import make_block_reduce
from rime_kernels.flagging.lines import RANK_MARGIN

cuda: Module = device.cuda
CLEAR, GIVEN, EXTENSION, RANK, WHOLE_CHANNEL, WHOLE_TIME = 0, 1, 6, 7, 8, 9
"""Codes that kernels here write or read."""


@functools.cache
def make_deviate() -> DeviceKernel:
    """Kernel of deviations from the background, and of their sizes.

    Deviations are 0 where a sample was left out from the start. Sizes are infinite where its code is not 0,
    where it does not count.
    """

    @device.kernel(0)
    def deviate(value: Array, background: Array, code: Array, deviation: Array, size: Array) -> None:
        line = cuda.blockIdx.x
        for c in range(cuda.threadIdx.x, value.shape[1], cuda.blockDim.x):
            difference = float32(0.0)
            if code[line, c] != GIVEN:
                difference = value[line, c] - background[line, c]
            deviation[line, c] = difference
            size[line, c] = abs(difference) if code[line, c] == CLEAR else float32(float("inf"))

    return deviate


@functools.cache
def make_sizes() -> DeviceKernel:
    """Kernel of the sizes of float32 numbers, infinite where their codes are not 0."""

    @device.kernel(0)
    def sizes(value: Array, code: Array, size: Array) -> None:
        line = cuda.blockIdx.x
        for c in range(cuda.threadIdx.x, value.shape[1], cuda.blockDim.x):
            size[line, c] = abs(value[line, c]) if code[line, c] == CLEAR else float32(float("inf"))

    return sizes


@functools.cache
def make_reject() -> DeviceKernel:
    """Kernel that takes samples out of a background: those whose deviations are many times the noise.

    Parameters of the kernel: deviations (n_line, n_chan), the sums and weights that are set to 0, the chunk
    of each channel int32 (n_chan,), lines of a waterfall, how many numbers are in its chunks and their middle
    two, and the limit in units of the median.
    """

    @device.kernel(0)
    def reject(
        deviation: Array, total: Array, weight: Array, chunk_of: Array, n_line: int, n_found: Array,
        middle: Array, limit: Scalar,
    ) -> None:  # fmt: skip
        line, w = cuda.blockIdx.x, cuda.blockIdx.x // n_line
        for c in range(cuda.threadIdx.x, deviation.shape[1], cuda.blockDim.x):
            chunk = chunk_of[c]
            median = 0.5 * (float64(middle[w, chunk, 0]) + float64(middle[w, chunk, 1]))
            if n_found[w, chunk] > 0 and float64(abs(deviation[line, c])) > limit * median:
                total[line, c], weight[line, c] = float32(0.0), float32(0.0)

    return reject


@functools.cache
def make_spectrum() -> DeviceKernel:
    """Kernel that makes spectra of medians over time: 0, and left out, where a channel has no sample.

    There is a block for each waterfall. Medians are of channels: int32 (n_waterfall n_chan, 1) and float32
    (n_waterfall n_chan, 1, 2); found are the spectra float32 and their codes, (n_waterfall, n_chan).
    """

    @device.kernel(0)
    def spectrum(value: Array, code: Array, n_found: Array, middle: Array) -> None:
        w = cuda.blockIdx.x
        for c in range(cuda.threadIdx.x, value.shape[1], cuda.blockDim.x):
            i = w * value.shape[1] + c
            there = n_found[i, 0] > 0
            median = 0.5 * (float64(middle[i, 0, 0]) + float64(middle[i, 0, 1]))
            value[w, c] = float32(median) if there else float32(0.0)
            code[w, c] = uint8(CLEAR) if there else uint8(GIVEN)

    return spectrum


@functools.cache
def make_mark() -> DeviceKernel:
    """Kernel that gives a code to clear samples that were found; `n_line` lines share what was found."""

    @device.kernel(0)
    def mark(code: Array, found: Array, n_line: int, cause: Scalar) -> None:
        line, shared = cuda.blockIdx.x, cuda.blockIdx.x // n_line
        for c in range(cuda.threadIdx.x, code.shape[1], cuda.blockDim.x):
            if code[line, c] == CLEAR and found[shared, c]:
                code[line, c] = cause

    return mark


@functools.cache
def make_mark_lines() -> DeviceKernel:
    """Kernel that gives a code to the clear samples of the lines that were found, uint8 (n_line, 1)."""

    @device.kernel(0)
    def mark_lines(code: Array, found: Array, cause: Scalar) -> None:
        line = cuda.blockIdx.x
        for c in range(cuda.threadIdx.x, code.shape[1], cuda.blockDim.x):
            if code[line, c] == CLEAR and found[line, 0]:
                code[line, c] = cause

    return mark_lines


@functools.cache
def make_extend() -> DeviceKernel:
    """Kernel that flags what is next to flags; codes (n_line, n_chan), `n_line` of each waterfall."""

    @device.kernel(0)
    def extend(code: Array, out: Array, n_line: int, half_time: Scalar, half_chan: Scalar) -> None:
        line = cuda.blockIdx.x
        start = line // n_line * n_line
        # The extension stays within the waterfall: lines of the next one follow in the same array.
        first, stop = max(start, line - half_time), min(start + n_line, line + half_time + 1)
        for c in range(cuda.threadIdx.x, code.shape[1], cuda.blockDim.x):
            # A second array gets the result: written in place, an extension would extend itself.
            own = code[line, c]
            near = False
            if own == CLEAR:
                for row in range(first, stop):
                    for i in range(max(0, c - half_chan), min(code.shape[1], c + half_chan + 1)):
                        near = near or code[row, i] > GIVEN
            out[line, c] = uint8(EXTENSION) if near else own

    return extend


@functools.cache
def make_rank() -> DeviceKernel:
    """Kernel of the scale-invariant rank operator along the second axis of codes (n_waterfall, n, m).

    Blocks along x are of waterfalls, along y of the last axis; a thread walks one line. `sums` is workspace,
    float64 (n_waterfall, n + 1, m).
    """

    @device.inline
    def balance(n_flagged: Scalar, n_clear: Scalar, eta: Scalar) -> Scalar:
        return eta * n_flagged - (1.0 - eta) * n_clear

    @device.kernel(0)
    def rank(code: Array, eta: Scalar, sums: Array) -> None:
        w, i = cuda.blockIdx.x, cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        n = code.shape[1]
        if i >= code.shape[2]:
            return
        # Offringa et al. (2012): a sample is flagged if an interval that holds it has a share of flags of at
        # least 1 - eta. With a sum of eta for flags and -(1 - eta) for clear samples that is an interval
        # whose sum is not negative: the largest later sum less the smallest earlier one.
        n_flagged, n_clear = 0, 0
        sums[w, 0, i] = 0.0
        for k in range(n):
            n_flagged += int32(code[w, k, i] > GIVEN)
            n_clear += int32(code[w, k, i] == CLEAR)
            sums[w, k + 1, i] = balance(n_flagged, n_clear, eta)
        for back in range(1, n + 1):  # the largest sum up to any later end
            k = n - back
            sums[w, k, i] = max(sums[w, k, i], sums[w, k + 1, i])
        n_flagged, n_clear, smallest = 0, 0, 0.0
        for k in range(n):
            smallest = min(smallest, balance(n_flagged, n_clear, eta))
            # The code is read before it is overwritten: new flags do not count as flags of the data.
            was = code[w, k, i]
            n_flagged += int32(was > GIVEN)
            n_clear += int32(was == CLEAR)
            if was == CLEAR and sums[w, k + 1, i] - smallest >= -RANK_MARGIN:
                code[w, k, i] = RANK

    return rank


@functools.cache
def make_wholes(n_thread: int) -> DeviceKernel:
    """Kernel that says of which lines of codes (n_line, n) more than a share was found; a block for each."""
    block_reduce = make_block_reduce(n_thread)

    @device.kernel(0)
    def wholes(code: Array, share: Scalar, whole: Array) -> None:
        shown = cuda.shared.array(n_thread, int32)
        line, n_found, n_there = cuda.blockIdx.x, int32(0), int32(0)
        for i in range(cuda.threadIdx.x, code.shape[1], n_thread):
            n_found += int32(code[line, i] > GIVEN)
            n_there += int32(code[line, i] != GIVEN)
        # Two reductions in turn share one array: `block_reduce` ends with a barrier.
        n_found = block_reduce(cuda.threadIdx.x, n_found, shown)
        n_there = block_reduce(cuda.threadIdx.x, n_there, shown)
        # All threads hold the sums; one of them writes.
        if cuda.threadIdx.x == 0:
            whole[line] = n_found > share * n_there

    return wholes


@functools.cache
def make_mark_wholes() -> DeviceKernel:
    """Kernel that flags clear samples of whole channels and integrations.

    These are bool (n_waterfall n_chan,) and (n_line,).
    """

    @device.kernel(0)
    def mark_wholes(code: Array, channel: Array, time: Array, n_line: int) -> None:
        line, n_chan = cuda.blockIdx.x, code.shape[1]
        first = line // n_line * n_chan
        for c in range(cuda.threadIdx.x, n_chan, cuda.blockDim.x):
            # A sample keeps the cause that was found first.
            if code[line, c] == CLEAR:
                if channel[first + c]:
                    code[line, c] = WHOLE_CHANNEL
                elif time[line]:
                    code[line, c] = WHOLE_TIME

    return mark_wholes
