"""SumThreshold on a GPU: sums of runs by doubling, in shared memory."""

from __future__ import annotations

import functools

from numba import float32, int32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceArray, Module, Scalar, Stream

cuda: Module = device.cuda
HIGH, LOW = 1, 2
"""Bits of what was found above and below."""


def halo(n_window: int) -> int:
    """How far windows of 1, 2, ... 2^(n_window - 1) samples, one after the other, reach to either side."""
    return int((1 << n_window) - 1 - n_window)


def _make_held(two_sided: bool) -> Compiled:
    """What a sample counts as, once shorter windows have found it."""

    def one_sided(value: Scalar, state: Scalar, threshold: Scalar) -> Scalar:
        return threshold if state != 0 else value

    def to_both_sides(value: Scalar, state: Scalar, threshold: Scalar) -> Scalar:
        if state & HIGH:
            return min(value, threshold)
        return max(value, -threshold) if state & LOW else value

    return device.inline(to_both_sides if two_sided else one_sided)


@functools.cache
def make_sum_threshold(n_window: int, n_thread: int, two_sided: bool) -> Compiled:
    """Kernel of SumThreshold: blocks along x are of lines, along y of pieces of a chunk, along z of chunks.

    A block holds `n_thread` samples, those of its halo included. Deviations are float32 (n_line, n),
    thresholds float32 (n_line, n_chunk, n_window), edges int32 (n_chunk + 1,), found is bool or uint8
    (n_line, n). Windows reach beyond a chunk by less than the longest of them.
    """
    margin, reach = halo(n_window), (1 << (n_window - 1)) - 1
    n_own = n_thread - 2 * margin
    held = _make_held(two_sided)

    @device.kernel(0)
    def sum_threshold(deviation: Array, thresholds: Array, edges: Array, found: Array) -> None:
        sums = cuda.shared.array(n_thread, float32)
        hit = cuda.shared.array(n_thread, int32)
        i, line, chunk = cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockIdx.z
        first, last = edges[chunk], edges[chunk + 1]
        begin, end = max(0, first - reach), min(deviation.shape[1], last + reach)
        c = first + cuda.blockIdx.y * n_own + i - margin
        is_there = c >= begin and c < end
        value = deviation[line, c] if is_there else float32(0.0)
        state = int32(0)
        for k in range(n_window):
            window = 1 << k
            threshold = thresholds[line, chunk, k]
            sums[i] = held(value, state, threshold)
            cuda.syncthreads()
            for step in range(k):
                half = 1 << step
                later = sums[i + half] if i + half < n_thread else float32(0.0)
                cuda.syncthreads()
                sums[i] += later
                cuda.syncthreads()
            begins = is_there and c + window <= end and i + window <= n_thread
            bound = threshold * float32(window)
            hit[i] = int32(begins and sums[i] > bound)
            if two_sided and begins and -sums[i] > bound:
                hit[i] |= int32(LOW)
            cuda.syncthreads()
            for step in range(k):
                half = 1 << step
                earlier = hit[i - half] if i >= half else int32(0)
                cuda.syncthreads()
                hit[i] |= earlier
                cuda.syncthreads()
            state |= hit[i]
            cuda.syncthreads()
        if c >= first and c < last and margin <= i and i < n_thread - margin:
            found[line, c] = state != 0

    return sum_threshold


def find_runs(
    deviation: DeviceArray,
    thresholds: DeviceArray,
    edges: DeviceArray,
    found: DeviceArray,
    stream: Stream = 0,
    *,
    longest: int,
    two_sided: bool,
) -> None:
    """Fill `found`: which runs exceed their thresholds; `longest` is the longest chunk."""
    n_chunk, n_window = thresholds.shape[1:]
    n_thread, least = (32, 3) if device.simulated() else (256, 64)
    margin = halo(n_window)
    while n_thread < 3 * margin:
        n_thread *= 2
    while n_thread // 2 >= max(least, longest + 2 * margin):
        n_thread //= 2
    blocks = len(deviation), -(-longest // (n_thread - 2 * margin)), n_chunk
    make_sum_threshold(n_window, n_thread, two_sided)[blocks, n_thread, stream](
        deviation, thresholds, edges, found
    )
