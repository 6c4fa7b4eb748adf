"""Medians on a GPU, by bisection over the bits of float32: each block counts, and no number is moved."""

from __future__ import annotations

import functools
import math

import numpy as np
from numba import int32
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.compile.types import Array, Compiled, DeviceArray, Module, Scalar, Stream
from rime_kernels.cuda.kernels.lane_sums import make_block_sum

cuda: Module = device.cuda
SIGN = 0x7FFFFFFF
"""All bits of a float32 but its sign."""
INFINITY_BITS = 0x7F800000


@functools.cache
def _make_counting(n_thread: int, n_lane: int, least: int) -> tuple[Compiled, Compiled]:
    """Functions of all threads of a block: how many numbers are up to a bound, and which has a rank.

    Numbers are given by their bits, of lines from `first` to before `stop` and columns from `begin` to before
    `end`; `n_lane` threads are side by side on a line. Signs do not count, and bits below `least` neither.
    """
    block_sum = make_block_sum(n_thread)
    n_abreast = n_thread // n_lane

    @device.inline
    def count(
        bits: Array, first: Scalar, stop: Scalar, begin: Scalar, end: Scalar, bound: Scalar, shown: Array
    ) -> Scalar:
        n = int32(0)
        thread = cuda.threadIdx.x
        for line in range(first + thread // n_lane, stop, n_abreast):
            for i in range(begin + thread % n_lane, end, n_lane):
                size = bits[line, i] & SIGN
                if size >= least and size <= bound:
                    n += int32(1)
        return block_sum(thread, n, shown)

    @device.inline
    def ranked(
        bits: Array, first: Scalar, stop: Scalar, begin: Scalar, end: Scalar, rank: Scalar, shown: Array
    ) -> Scalar:
        low, high = int32(0), int32(INFINITY_BITS)
        while low < high:
            middle = int32(low + (high - low) // 2)
            if count(bits, first, stop, begin, end, middle, shown) >= rank:
                high = middle
            else:
                low = int32(middle + 1)
        return low

    return count, ranked


@functools.cache
def make_middles(n_thread: int, n_lane: int, least: int) -> Compiled:
    """Kernel of the middle of the sizes of float32 numbers in rectangles, by bisection over their bits.

    One block of `n_thread` threads, a power of two, for each rectangle: blocks along x are of `n_row` lines,
    along y of channels between two edges. Infinite numbers do not count, nor those whose bits are below
    `least`: 1 leaves zeros out.

    Given are the bits, int32 (n_line, n), and the edges, int32 (n_chunk + 1,); found are how many count,
    int32 (n_group, n_chunk), and the bits of the middle two, int32 (n_group, n_chunk, 2), which are one
    number where that is odd.
    """
    count, ranked = _make_counting(n_thread, n_lane, least)

    @device.kernel(0)
    def middles(bits: Array, n_row: Scalar, edges: Array, n_found: Array, out: Array) -> None:
        shown = cuda.shared.array(n_thread, int32)
        group, chunk = cuda.blockIdx.x, cuda.blockIdx.y
        first, stop = group * n_row, group * n_row + n_row
        begin, end = edges[chunk], edges[chunk + 1]
        n = count(bits, first, stop, begin, end, int32(INFINITY_BITS - 1), shown)
        low = ranked(bits, first, stop, begin, end, (n + 1) // 2, shown)
        high = low
        if n % 2 == 0 and n > 0 and count(bits, first, stop, begin, end, low, shown) == n // 2:
            high = ranked(bits, first, stop, begin, end, n // 2 + 1, shown)
        if cuda.threadIdx.x == 0:
            n_found[group, chunk] = n
            out[group, chunk, 0], out[group, chunk, 1] = low, high

    return middles


@functools.cache
def make_percentiles(n_thread: int) -> Compiled:
    """Kernel of the bits of percentiles, int32 (n_line, n_share); -1 where a line has no number.

    There is a block for each line.
    """
    count, ranked = _make_counting(n_thread, n_thread, 0)

    @device.kernel(0)
    def percentiles(bits: Array, shares: Array, out: Array) -> None:
        shown = cuda.shared.array(n_thread, int32)
        line, n_all = cuda.blockIdx.x, bits.shape[1]
        n = count(bits, line, line + 1, 0, n_all, int32(INFINITY_BITS - 1), shown)
        for k in range(shares.shape[0]):
            found = int32(-1)
            if n > 0:
                rank = int32(math.ceil(shares[k] * n))
                if rank < 1:
                    rank = int32(1)
                found = ranked(bits, line, line + 1, 0, n_all, rank, shown)
            if cuda.threadIdx.x == 0:
                out[line, k] = found

    return percentiles


def percentiles(staged: NDArray[np.float32], shares: NDArray[np.float64]) -> NDArray[np.float32]:
    """As `rime_kernels.flagging.percentiles.line_percentiles` finds them on the CPU."""
    found = np.empty((len(staged), len(shares)), np.int32)
    step = max(1, device.memory_budget() // (2 * staged.itemsize * staged.shape[1]))
    there = device.upload(shares)
    n_thread = 2 if device.simulated() else 256
    with CALL_LOCK:
        for start in range(0, len(staged), step):
            part = device.upload(staged[start : start + step])
            out = device.empty((part.shape[0], len(shares)), np.int32)
            make_percentiles(n_thread)[part.shape[0], n_thread](part.view(np.int32), there, out)
            found[start : start + step] = out.copy_to_host()
    return np.where(found < 0, np.float32(np.nan), found.view(np.float32))


def find_middles(
    sizes: DeviceArray,
    n_row: int,
    edges: DeviceArray,
    found: tuple[DeviceArray, DeviceArray],
    stream: Stream = 0,
    least: int = 0,
) -> None:
    """Fill `found`, how many numbers count and their middle two, of rectangles of `n_row` lines.

    Parameters
    ----------
    sizes : float32 (n_line, n)
    n_row : int
        Lines of a rectangle.
    edges : int32 (n_chunk + 1,)
    found : int32 (n_group, n_chunk), float32 (n_group, n_chunk, 2)
    stream : stream
    least : int
        Bits of the smallest number that counts.
    """
    if device.simulated():
        n_thread, n_lane = 2, 2 if n_row == 1 else 1
    elif n_row == 1:
        n_thread = n_lane = 64 if sizes.shape[1] <= 512 else 256
    else:
        n_thread, n_lane = 512, 32
    n_found, middle = found
    make_middles(n_thread, n_lane, least)[n_found.shape, n_thread, stream](
        sizes.view(np.int32), n_row, edges, n_found, middle.view(np.int32)
    )
