"""CUDA kernels of flagging: transposition, running medians, order statistics, SumThreshold.

Their numbers are those of the loops on the CPU, to the bit: what is sorted and counted is the same, and sums
of runs are added in the same order.
"""

from __future__ import annotations

import functools

from numba import float32, int32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Module, Scalar
from rime_kernels.cuda.kernels.lane_sums import make_block_sum

cuda: Module = device.cuda
SIGN = 0x7FFFFFFF
"""All bits of a float32 but its sign."""
INFINITY_BITS = 0x7F800000


@functools.cache
def make_transpose(side: int) -> Compiled:
    """Kernel that transposes float32 (n, m) into (m, n), by squares of `side` in shared memory.

    Rows of a square are one number longer than needed, so that a column of it lies in different banks. Blocks
    are of (side, side) threads.
    """
    padded = side + 1

    @device.kernel(0)
    def transpose(given: Array, out: Array) -> None:
        square = cuda.shared.array((side, padded), float32)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        row, column = cuda.blockIdx.y * side + y, cuda.blockIdx.x * side + x
        if row < given.shape[0] and column < given.shape[1]:
            square[y, x] = given[row, column]
        cuda.syncthreads()
        row, column = cuda.blockIdx.x * side + y, cuda.blockIdx.y * side + x
        if row < out.shape[0] and column < out.shape[1]:
            out[row, column] = square[x, y]

    return transpose


@functools.cache
def make_deviations(width: int) -> Compiled:
    """Kernel of deviations from running medians of `width` channels.

    Each thread walks a part of the band of one spectrum, and keeps the samples of the window sorted.
    Amplitudes and deviations are float32 (n_chan, n_spectrum), infinite and 0 where samples are left out.
    Blocks along x are of spectra, along y of parts of `n_part` channels.
    """
    half, infinity = width // 2, float("inf")
    n_kept = width + 1

    @device.inline
    def replace(window: Array, old: Scalar, new: Scalar) -> None:
        before = float32(-infinity)
        for k in range(width):
            here, above = window[k], window[k + 1]
            left = here if here < old else above
            low = new if new > before else before
            window[k] = low if low < left else left
            before = left

    @device.kernel(0)
    def deviations(amplitude: Array, n_part: Scalar, out: Array) -> None:
        s = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        n_chan, first = amplitude.shape[0], cuda.blockIdx.y * n_part
        if s >= amplitude.shape[1]:
            return
        window = cuda.local.array(n_kept, float32)
        for k in range(n_kept):
            window[k] = float32(infinity)
        count = int32(0)
        for enters in range(max(0, first - half), min(first + n_part, n_chan) + half):
            centre = enters - half
            new = amplitude[enters, s] if enters < n_chan else float32(infinity)
            leaves = centre - half - 1
            is_inside = leaves >= 0 and leaves >= first - half
            old = amplitude[leaves, s] if is_inside else float32(infinity)
            replace(window, old, new)
            count += int32(new < infinity) - int32(old < infinity)
            if first <= centre:
                value = amplitude[centre, s]
                if value < infinity:
                    pair = window[(count - 1) // 2] + window[count // 2]
                    out[centre, s] = value - float32(0.5) * pair
                else:
                    out[centre, s] = float32(0.0)

    return deviations


@functools.cache
def make_middles(n_thread: int) -> Compiled:
    """Kernel of the middle of the sizes of float32 numbers that are not 0, by bisection over their bits.

    One block of `n_thread` threads, a power of two, for each line. Given are the bits, int32 (n_line, n);
    found are, int32 (n_line, 3), how many are not 0, and the bits of the middle two, which are one number
    where that is odd.
    """
    block_sum = make_block_sum(n_thread)

    @device.inline
    def count(bits: Array, line: Scalar, bound: Scalar, shown: Array) -> Scalar:
        n = int32(0)
        for i in range(cuda.threadIdx.x, bits.shape[1], n_thread):
            size = bits[line, i] & SIGN
            if size > 0 and size <= bound:
                n += int32(1)
        return block_sum(cuda.threadIdx.x, n, shown)

    @device.inline
    def statistic(bits: Array, line: Scalar, rank: Scalar, shown: Array) -> Scalar:
        low, high = int32(0), int32(INFINITY_BITS)
        while low < high:
            middle = int32(low + (high - low) // 2)
            if count(bits, line, middle, shown) >= rank:
                high = middle
            else:
                low = int32(middle + 1)
        return low

    @device.kernel(0)
    def middles(bits: Array, out: Array) -> None:
        shown = cuda.shared.array(n_thread, int32)
        line = cuda.blockIdx.x
        n = count(bits, line, int32(INFINITY_BITS), shown)
        low = statistic(bits, line, (n + 1) // 2, shown)
        high = low
        if n % 2 == 0 and count(bits, line, low, shown) == n // 2:
            high = statistic(bits, line, n // 2 + 1, shown)
        if cuda.threadIdx.x == 0:
            out[line, 0], out[line, 1], out[line, 2] = n, low, high

    return middles


def halo(n_window: int) -> int:
    """How far windows of 1, 2, ... 2^(n_window - 1) samples, one after the other, reach to either side."""
    return int((1 << n_window) - 1 - n_window)


@functools.cache
def make_sum_threshold(n_window: int, n_thread: int) -> Compiled:
    """Kernel of SumThreshold of high values: blocks along x are of channels, along y of spectra.

    A block holds `n_thread` samples, those of its halo included. Deviations are float32 (n_spectrum, n_chan),
    thresholds float32 (n_spectrum, n_window), found is bool (n_spectrum, n_chan).
    """
    margin = halo(n_window)
    n_own = n_thread - 2 * margin

    @device.kernel(0)
    def sum_threshold(deviation: Array, thresholds: Array, found: Array) -> None:
        sums = cuda.shared.array(n_thread, float32)
        hit = cuda.shared.array(n_thread, int32)
        i, s = cuda.threadIdx.x, cuda.blockIdx.y
        n_chan = deviation.shape[1]
        c = cuda.blockIdx.x * n_own + i - margin
        is_there = c >= 0 and c < n_chan
        value = deviation[s, c] if is_there else float32(0.0)
        flag = False
        for k in range(n_window):
            window = 1 << k
            threshold = thresholds[s, k]
            sums[i] = threshold if flag else value
            cuda.syncthreads()
            for step in range(k):
                half = 1 << step
                later = sums[i + half] if i + half < n_thread else float32(0.0)
                cuda.syncthreads()
                sums[i] += later
                cuda.syncthreads()
            begins = is_there and c + window <= n_chan and i + window <= n_thread
            hit[i] = int32(begins and sums[i] > threshold * float32(window))
            cuda.syncthreads()
            for step in range(k):
                half = 1 << step
                earlier = hit[i - half] if i >= half else int32(0)
                cuda.syncthreads()
                hit[i] |= earlier
                cuda.syncthreads()
            flag = flag or hit[i] != 0
            cuda.syncthreads()
        if is_there and margin <= i and i < n_thread - margin:
            found[s, c] = flag

    return sum_threshold
