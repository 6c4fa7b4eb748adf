"""SumThreshold on a GPU: a thread sums the runs that begin at its own samples, by doubling."""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import float32, int32, uint32

from rime_kernels import device
from rime_kernels.compile.types import (
    Array,
    Compiled,
    DeviceArray,
    DeviceKernel,
    Module,
    Record,
    Scalar,
    Stream,
)
from rime_kernels.cuda.launch_shapes.choice import flagging_shape
from rime_kernels.cuda.launch_shapes.families import WARP, most_registers
from rime_kernels.cuda.launch_shapes.flagging import RUNS, RunShape

cuda: Module = device.cuda


def halo(n_window: int) -> int:
    """How far windows of 1, 2, ... 2^(n_window - 1) samples, one after the other, reach to either side."""
    return int((1 << n_window) - 1 - n_window)


def _make_held(two_sided: bool) -> Compiled:
    """What a sample counts as, once shorter windows have found it high or low."""

    def one_sided(value: Scalar, is_high: Scalar, is_low: Scalar, threshold: Scalar) -> Scalar:
        return threshold if is_high else value

    def to_both_sides(value: Scalar, is_high: Scalar, is_low: Scalar, threshold: Scalar) -> Scalar:
        raised = max(value, -threshold) if is_low else value
        return min(value, threshold) if is_high else raised

    return device.inline(to_both_sides if two_sided else one_sided)


class _RunBlock(NamedTuple):
    """The samples of a block, and what its threads keep and share.

    Attributes
    ----------
    near : float32 (n_thread n_each + reach,)
        In shared memory: the block's samples as they are held. What is behind them is in no run that counts.
    reaches : int32 (2, n_thread)
        In shared memory: how far the runs that each thread found high, and low, reach beyond its samples.
    value : float32 (n_each,)
        The samples of a thread.
    sums : float32 (n_each + reach,)
        Of runs that begin at a thread's samples.
    bounds : float32 (n_window,)
        Thresholds of means, by window.
    begins, found : int32 (2,)
        The samples of a thread at which runs begin, and those that were found, high and low, as bits.
    first, last : int
        Runs lie among these samples of a thread, counted from its first one.
    """

    near: Array
    reaches: Array
    value: Array
    sums: Array
    bounds: Array
    begins: Array
    found: Array
    first: int
    last: int


def _make_bits(n_each: int) -> Compiled:
    """Function that gives the first n of the bits of a thread's samples; none where n is negative."""

    @device.inline
    def bits(n: Scalar) -> Scalar:
        return int32((1 << max(0, min(n, n_each))) - 1)

    return bits


def _make_spread(k: int, n_each: int) -> tuple[Compiled, Compiled]:
    """Functions of where runs of 2^k samples begin, given as the bits of a thread's samples.

    `reach` gives how many samples beyond those of a thread its last run reaches. `spread` gives the samples
    that are in a run, with those of the threads before, whose reaches are given.
    """
    length, bits = 1 << k, _make_bits(n_each)
    n_before, n_step = -(-(length - 1) // n_each), min(k, (n_each - 1).bit_length())

    @device.inline
    def reach(begins: Scalar) -> Scalar:
        most = int32(0)
        for j in range(max(0, n_each - length + 1), n_each):
            if begins & (1 << j):
                most = int32(j + length - n_each)
        return most

    @device.inline
    def spread(begins: Scalar, reaches: Array, side: Scalar) -> Scalar:
        # A run may begin several threads before: each thread has published how far its last run reaches.
        thread, most = cuda.threadIdx.x, int32(0)
        for before in range(1, n_before + 1):
            if thread >= before:
                most = max(most, int32(reaches[side, uint32(thread - before)] - (before - 1) * n_each))
        # Each step doubles how many samples a beginning covers, as the sums of runs are doubled.
        for step in range(n_step):
            begins |= begins << (1 << step)
        return int32((begins | bits(most)) & ((1 << n_each) - 1))

    return reach, spread


def _make_window(k: int, n_each: int, two_sided: bool) -> Compiled:
    """Function of all threads of a block that finds runs of 2^k samples."""
    length, n_side, bits = 1 << k, 2 if two_sided else 1, _make_bits(n_each)
    held, (reach, spread) = _make_held(two_sided), _make_spread(k, n_each)

    @device.inline
    def sum_runs(block: Record) -> None:
        near, sums, own = block.near, block.sums, uint32(cuda.threadIdx.x * n_each)
        for j in range(n_each):
            high, low = block.found[0] & (1 << j), block.found[1] & (1 << j)
            sums[j] = held(block.value[j], high != 0, low != 0, block.bounds[k])
        # A thread needs the samples of its neighbours to complete runs that begin with it.
        if length > 1:
            for j in range(n_each):
                near[uint32(own + j)] = sums[j]
            cuda.syncthreads()
            for j in range(n_each, n_each + length - 1):
                sums[j] = near[uint32(own + j)]
        for step in range(k):
            # Sums of 2, 4, ... samples come from sums of half as many: k additions a run, in fixed order.
            half = 1 << step
            for j in range(n_each + length - 2 * half):
                sums[j] += sums[j + half]

    @device.part
    def window(block: Record) -> None:
        sum_runs(block)
        sums, bound = block.sums, block.bounds[k] * float32(length)
        high, low = int32(0), int32(0)
        for j in range(n_each):
            if sums[j] > bound:
                high |= int32(1 << j)
            if two_sided and -sums[j] > bound:
                low |= int32(1 << j)
        # Runs that would pass the ends of the data do not count.
        there = bits(block.last - length + 1) & ~bits(block.first)
        begins = block.begins
        begins[0], begins[1] = int32(high & there), int32(low & there)
        if length > 1:
            for side in range(n_side):
                block.reaches[side, cuda.threadIdx.x] = reach(begins[side])
            # All reaches are written before a neighbour reads them; the next window writes them after its own
            # barrier over the samples.
            cuda.syncthreads()
        for side in range(n_side):
            block.found[side] |= spread(begins[side], block.reaches, side)

    return window


def _make_windows(k: int, n_window: int, n_each: int, two_sided: bool) -> Compiled:
    """Functions of all windows from 2^k samples on, one after the other."""
    if k == n_window:
        return device.inline(lambda block: None)
    window, rest = _make_window(k, n_each, two_sided), _make_windows(k + 1, n_window, n_each, two_sided)

    @device.part
    def windows(block: Record) -> None:
        window(block)
        rest(block)

    return windows


@functools.cache
def make_sum_threshold(n_window: int, n_thread: int, n_each: int, two_sided: bool) -> DeviceKernel:
    """Kernel of SumThreshold: blocks along x are of lines, along y of pieces of a chunk, along z of chunks.

    A block holds `n_thread` times `n_each` samples, those of its halo included. Deviations are float32
    (n_line, n), thresholds float32 (n_line, n_chunk, n_window), edges int32 (n_chunk + 1,), found is bool or
    uint8 (n_line, n). Windows reach beyond a chunk by less than the longest of them.
    """
    # Samples in the halo are found again by neighbouring blocks: a sample is certain where all windows that
    # hold it, and those that decide how their samples are held, lie in the block.
    margin, reach = halo(n_window), (1 << (n_window - 1)) - 1
    n_sample = n_thread * n_each
    n_own, n_near, n_sum = n_sample - 2 * margin, n_sample + reach, n_each + reach
    windows = _make_windows(0, n_window, n_each, two_sided)

    @device.kernel(most_registers(n_thread))
    def sum_threshold(deviation: Array, thresholds: Array, edges: Array, found: Array) -> None:
        near = cuda.shared.array(n_near, float32)
        reaches = cuda.shared.array((2, n_thread), int32)
        thread, line, chunk = cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockIdx.z
        first, last = edges[chunk], edges[chunk + 1]
        start = int32(first + cuda.blockIdx.y * n_own - margin)
        if start + margin >= last:
            return
        begin, end = int32(max(0, first - reach)), int32(min(deviation.shape[1], last + reach))
        # Neighbouring threads read neighbouring samples (coalesced); through shared memory each thread then
        # gets `n_each` samples in a row.
        for j in range(n_each):
            i = int32(thread + j * n_thread)
            c = int32(start + i)
            near[uint32(i)] = deviation[uint32(line), uint32(c)] if c >= begin and c < end else float32(0.0)
        own = int32(thread * n_each)
        block = _RunBlock(
            near, reaches, cuda.local.array(n_each, float32),
            cuda.local.array(n_sum, float32), cuda.local.array(n_window, float32),
            cuda.local.array(2, int32), cuda.local.array(2, int32), begin - start - own,
            min(end - start, n_sample) - own,
        )  # fmt: skip
        # A run is compared as a sum: the bound of the mean times the number of samples, see `window`.
        for k in range(n_window):
            block.bounds[k] = thresholds[line, chunk, k]
        block.found[0], block.found[1] = int32(0), int32(0)
        cuda.syncthreads()
        for j in range(n_each):
            block.value[j] = near[uint32(own + j)]
        windows(block)
        cuda.syncthreads()
        # Flags go back through shared memory, so that writes are coalesced as the reads were.
        all_found = int32(block.found[0] | block.found[1])
        for j in range(n_each):
            near[uint32(own + j)] = float32(1.0) if all_found & (1 << j) else float32(0.0)
        cuda.syncthreads()
        for j in range(n_each):
            i = int32(thread + j * n_thread)
            c = int32(start + i)
            if i >= margin and i < n_sample - margin and c < last:
                found[uint32(line), uint32(c)] = near[uint32(i)] != float32(0.0)

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
    """Fill `found`: which runs exceed their thresholds; `longest` is the longest chunk.

    In the shape that `biro tune` found fastest, with fewer threads where chunks are short, and more where
    windows are long.
    """
    n_chunk, n_window = thresholds.shape[1:]
    shape = flagging_shape(RUNS, RunShape)
    n_thread, n_each, margin = shape.n_thread, shape.n_each, halo(n_window)
    # With less than three halos a block would spend most of its work on samples of its neighbours.
    least = 1 if device.simulated() else WARP
    while n_thread * n_each < 3 * margin:
        n_thread *= 2
    while n_thread // 2 >= least and n_thread // 2 * n_each >= longest + 2 * margin:
        n_thread //= 2
    blocks = len(deviation), -(-longest // (n_thread * n_each - 2 * margin)), n_chunk
    make_sum_threshold(n_window, n_thread, n_each, two_sided)[blocks, n_thread, stream](
        deviation, thresholds, edges, found
    )
