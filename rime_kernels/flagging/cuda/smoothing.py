"""Smooth backgrounds on a GPU: Gaussians along lines, of what is not masked."""

from __future__ import annotations

import functools

import numpy as np
from numba import float32

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceArray, DeviceKernel, Module, Scalar, Stream

cuda: Module = device.cuda
N_EACH = 5
"""Neighbouring numbers that a thread smooths; odd, so that those of its neighbours lie in other banks."""
N_TAP, N_UNROLLED = 64, 8
"""Weights that are in shared memory at a time, and those for which a thread's numbers are in registers."""


@functools.cache
def make_smooth(n_thread: int, n_each: int, n_tap: int, n_unrolled: int) -> DeviceKernel:
    """Kernel that convolves lines of two arrays with the same weights; beyond the ends, all is 0.

    Blocks along x are of lines, along y of `n_thread` times `n_each` numbers of a line. Arrays are float32
    (n_line, n), weights float32 (n_weight,), an odd number of them.
    """
    n_own = n_thread * n_each
    n_shared, n_kept = n_own + n_tap, n_each + n_unrolled - 1

    @device.inline
    def load(given: Array, line: Scalar, first: int, out: Array) -> None:
        for j in range(cuda.threadIdx.x, n_shared, n_thread):
            c = first + j
            out[j] = given[line, c] if c >= 0 and c < given.shape[1] else float32(0.0)

    @device.inline
    def add(values: Array, weights: Array, offset: int, tap: Scalar, kept: Array, total: Array) -> None:
        for j in range(n_kept):
            # Each number read from shared memory serves n_each outputs: n_each + n_unrolled - 1 reads for
            # n_each times n_unrolled multiply-adds.
            kept[j] = values[offset + tap + j]
        for k in range(n_unrolled):
            weight = weights[tap + k]
            for e in range(n_each):
                total[e] += weight * kept[k + e]

    @device.kernel(0)
    def smooth(one: Array, other: Array, weight: Array, one_out: Array, other_out: Array) -> None:
        # Values and their weights are smoothed together: their quotient is the background of what is there.
        one_near = cuda.shared.array(n_shared, float32)
        other_near = cuda.shared.array(n_shared, float32)
        weights = cuda.shared.array(n_tap, float32)
        kept = cuda.local.array(n_kept, float32)
        one_total, other_total = cuda.local.array(n_each, float32), cuda.local.array(n_each, float32)
        thread, line, first = cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockIdx.y * n_own
        offset, n_weight = thread * n_each, weight.shape[0]
        for e in range(n_each):
            one_total[e], other_total[e] = float32(0.0), float32(0.0)
        for base in range(0, n_weight, n_tap):
            # Weights come in batches of n_tap, so that kernels of any width fit shared memory.
            load(one, line, first + base - n_weight // 2, one_near)
            load(other, line, first + base - n_weight // 2, other_near)
            for j in range(thread, n_tap, n_thread):
                # Weights behind the last are 0: the loop over a batch has a constant length and is unrolled.
                weights[j] = weight[base + j] if base + j < n_weight else float32(0.0)
            cuda.syncthreads()
            # The barrier before is for what was loaded; the one after keeps the next batch from overwriting
            # it.
            for tap in range(0, n_tap, n_unrolled):
                add(one_near, weights, offset, tap, kept, one_total)
                add(other_near, weights, offset, tap, kept, other_total)
            cuda.syncthreads()
        for e in range(n_each):
            c = first + offset + e
            if c < one.shape[1]:
                one_out[line, c], other_out[line, c] = one_total[e], other_total[e]

    return smooth


def smooth_lines(
    given: tuple[DeviceArray, DeviceArray],
    weights: DeviceArray,
    out: tuple[DeviceArray, DeviceArray],
    stream: Stream = 0,
) -> None:
    """Convolve the lines of two arrays float32 (n_line, n) with weights."""
    n_line, n = given[0].shape
    if device.simulated():
        n_thread, n_each, n_tap, n_unrolled = 4, 3, 16, 4
    else:
        n_each, n_tap, n_unrolled = N_EACH, N_TAP, N_UNROLLED
        n_thread = next((size for size in (32, 64) if size * n_each >= n), 128)
    blocks = n_line, -(-n // (n_thread * n_each))
    make_smooth(n_thread, n_each, n_tap, n_unrolled)[blocks, n_thread, stream](*given, weights, *out)


@functools.cache
def make_parts() -> tuple[DeviceKernel, DeviceKernel]:
    """Kernels that split what is smoothed into sums and weights, and that divide them again.

    There is a block for each line. `split` gives float32 (n_line, n): 0 and 0 where a sample
    is left out, and its value and 1 where it is not. `divide` gives their quotient, NaN where weights are 0;
    it may be one of them.
    """

    @device.kernel(0)
    def split(value: Array, left_out: Array, total: Array, weight: Array) -> None:
        line = cuda.blockIdx.x
        for c in range(cuda.threadIdx.x, value.shape[1], cuda.blockDim.x):
            is_in = left_out[line, c] == 0
            total[line, c] = value[line, c] if is_in else float32(0.0)
            weight[line, c] = float32(1.0) if is_in else float32(0.0)

    @device.kernel(0)
    def divide(total: Array, weight: Array, mean: Array) -> None:
        line = cuda.blockIdx.x
        for c in range(cuda.threadIdx.x, total.shape[1], cuda.blockDim.x):
            some = weight[line, c]
            mean[line, c] = total[line, c] / some if some > float32(0.0) else float32(np.nan)

    return split, divide


@functools.cache
def make_interpolate() -> DeviceKernel:
    """Kernel that fills NaN along the second axis of float32 (n_waterfall, n_chan, n_time), linearly.

    Blocks along x are of waterfalls, along y of times; a thread walks all channels of one. Beyond the first
    and last numbers these stand; without any, there are zeros.
    """

    @device.kernel(0)
    def interpolate(value: Array) -> None:
        w, t = cuda.blockIdx.x, cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        if t >= value.shape[2]:
            return
        n, before = value.shape[1], -1
        for i in range(n + 1):
            here = value[w, i, t] if i < n else float32(0.0)
            # NaN differs from itself.
            if here == here:
                # A gap is filled when its other end is known: the thread reads each number once.
                for j in range(before + 1, i):
                    if before >= 0 and i < n:
                        low = value[w, before, t]
                        value[w, j, t] = low + float32((j - before) / (i - before)) * (here - low)
                    elif before >= 0:
                        value[w, j, t] = value[w, before, t]
                    else:
                        value[w, j, t] = here
                before = i

    return interpolate
