"""Medians on a GPU, by the bits of float32: each block counts, and no number is moved."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numba import int32, uint32
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.call_lock import CALL_LOCK
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
from rime_kernels.cuda.launch_shapes.families import MAX_THREAD, WARP, most_registers
from rime_kernels.cuda.launch_shapes.flagging import NOISE, NoiseShape

cuda: Module = device.cuda
SIGN = 0x7FFFFFFF
"""All bits of a float32 but its sign."""
INFINITY_BITS = 0x7F800000
N_TURN = 3
"""Places that sums over a block take in turns: one is filled, one may still be read, one is emptied."""
N_OTHER = 30
"""Registers of a thread beside those in which it holds numbers."""
N_BIT = 3
"""Bits of a median that are found each time that its numbers are read, where threads cannot hold them."""


class SearchShape(NamedTuple):
    """How a block looks for medians.

    Attributes
    ----------
    n_thread, n_lane : int
        Threads of a block, and how many of them are side by side on a line.
    n_each : int
        Numbers that a thread holds, of one line; 0 where it reads them again and again.
    n_bit : int
        Bits of a median that are found each time that numbers are gone through.
    least : int
        Bits of the smallest number that counts; signs do not.
    """

    n_thread: int
    n_lane: int
    n_each: int
    n_bit: int
    least: int

    @property
    def n_bound(self) -> int:
        """Bounds up to which numbers are counted."""
        return (1 << self.n_bit) - 1


class _SearchBlock(NamedTuple):
    """The numbers of a block, and what its threads keep and share.

    Attributes
    ----------
    bits : int32 (n_line, n)
        Of numbers: those of lines from `first` to before `stop`, columns from `begin` to before `end`.
    first, stop, begin, end : int
    kept : int32 (n_each,)
        A thread's own numbers, where it holds them: bits without signs, infinity for what does not count.
    bounds, totals : int32 (n_bound or more,)
        A thread's own, for one walk through its numbers.
    sums, minima : int32 (N_TURN, n_bound), int32 (N_TURN, 2)
        In shared memory. The place of a turn is empty, with zeros or infinities, until the block fills it.
    turn : int32 (2,)
        The places of `sums` and `minima` whose turn it is.
    """

    bits: Array
    first: int
    stop: Scalar
    begin: Scalar
    end: int
    kept: Array
    bounds: Array
    totals: Array
    sums: Array
    minima: Array
    turn: Array


class _Functions(NamedTuple):
    """Functions of all threads of a block.

    `start(block)` comes first. `span(block)` gives how many numbers count, the bits just below those of the
    smallest, and those of the largest. `ranked(block, rank, n, low, high)` gives bits `low` and `high` for a
    rank among the n numbers between two: its number is above `low` and up to `high`, as are only numbers
    equal to it; and how many are up to `high`. `above(block, low, high)` gives the bits of the smallest
    numbers above each of two bounds.
    """

    start: Compiled
    span: Compiled
    ranked: Compiled
    above: Compiled


def _make_through(cut: SearchShape, visit: Compiled) -> Compiled:
    """Function that calls `visit(size, bounds, totals)` with the bits of each number of a thread."""
    n_each, n_lane, n_abreast, smallest = cut.n_each, cut.n_lane, cut.n_thread // cut.n_lane, cut.least

    def through_held(block: Record) -> None:
        for k in range(n_each):
            visit(block.kept[k], block.bounds, block.totals)

    def through_memory(block: Record) -> None:
        thread = cuda.threadIdx.x
        for k in range(block.first + thread // n_lane, block.stop, n_abreast):
            line = block.bits[uint32(k)]
            for i in range(block.begin + thread % n_lane, block.end, n_lane):
                # The bits of a float32 without its sign, as an integer, are in the order of the numbers.
                size = int32(line[uint32(i)] & SIGN)
                visit(size if size >= smallest else int32(INFINITY_BITS), block.bounds, block.totals)

    return device.inline(through_held if n_each else through_memory)


def _make_joined(cut: SearchShape) -> tuple[Compiled, Compiled]:
    """Functions that replace the first n totals by their sums, or two by their minima, over a block.

    Integers are joined, so that their order does not matter.
    """
    n_bound = cut.n_bound

    @device.inline
    def summed(block: Record, n: Scalar) -> None:
        # Three places in turn save a barrier: this one is filled, the one before may still be read, and the
        # next one is emptied.
        here = block.turn[0]
        later = here + int32(1) if here < N_TURN - 1 else int32(0)
        if cuda.threadIdx.x == 0:
            for j in range(n_bound):
                block.sums[later, j] = 0
        for j in range(n):
            # Atomic additions of integers come to one result in any order.
            cuda.atomic.add(block.sums, (here, j), block.totals[j])
        cuda.syncthreads()
        for j in range(n):
            block.totals[j] = block.sums[here, j]
        block.turn[0] = later

    @device.inline
    def least(block: Record) -> None:
        here = block.turn[1]
        later = here + int32(1) if here < N_TURN - 1 else int32(0)
        if cuda.threadIdx.x == 0:
            for j in range(2):
                block.minima[later, j] = INFINITY_BITS
        for j in range(2):
            cuda.atomic.min(block.minima, (here, j), block.totals[j])
        cuda.syncthreads()
        for j in range(2):
            block.totals[j] = block.minima[here, j]
        block.turn[1] = later

    return summed, least


@functools.cache
def _make_functions(cut: SearchShape) -> _Functions:
    """The functions of `_Functions`.

    Between two bounds, 2^n_bit - 1 others that are evenly spaced are counted at a time, until nothing but
    equal numbers is left.
    """
    n_thread, n_each, n_bit, n_bound, smallest = cut.n_thread, cut.n_each, cut.n_bit, cut.n_bound, cut.least
    summed, least = _make_joined(cut)

    def visit_all(size: Scalar, bounds: Array, totals: Array) -> None:
        there = size < INFINITY_BITS
        totals[0] = min(totals[0], size)
        # The largest number as the smallest negative: one reduction serves both ends.
        totals[1] = min(totals[1], -size if there else int32(INFINITY_BITS))
        totals[2] += int32(there)

    def visit_up_to(size: Scalar, bounds: Array, totals: Array) -> None:
        for j in range(n_bound):  # 1 where the difference is negative, faster than a comparison
            totals[j] = int32(totals[j] + int32(uint32(int32(size - bounds[j] - 1)) >> uint32(31)))

    def visit_above(size: Scalar, bounds: Array, totals: Array) -> None:
        for j in range(2):
            totals[j] = min(totals[j], size if size > bounds[j] else int32(INFINITY_BITS))

    through_all, through_up_to, through_above = (
        _make_through(cut, device.inline(visit)) for visit in (visit_all, visit_up_to, visit_above)
    )

    @device.inline
    # Later turns are emptied by `summed` and `least`; the first has to be emptied here.
    def start(block: Record) -> None:
        thread = cuda.threadIdx.x
        if thread == 0:
            for j in range(n_bound):
                block.sums[0, j] = 0
            for j in range(2):
                block.minima[0, j] = INFINITY_BITS
        block.turn[0], block.turn[1] = int32(0), int32(0)
        line, own, end = block.bits[uint32(block.first)], uint32(block.begin + thread), uint32(block.end)
        for k in range(n_each):
            i, size = uint32(own + uint32(k * n_thread)), int32(INFINITY_BITS)
            if i < end:
                size = int32(line[i] & SIGN)
            block.kept[k] = size if size >= smallest else int32(INFINITY_BITS)
        cuda.syncthreads()

    @device.inline
    def span(block: Record) -> tuple[Scalar, Scalar, Scalar]:
        totals = block.totals
        totals[0], totals[1], totals[2] = int32(INFINITY_BITS), int32(INFINITY_BITS), int32(0)
        through_all(block)
        n = totals[2]
        least(block)
        # Numbers are counted above `low`, so it lies one below the smallest.
        low, high = totals[0] - int32(1), -totals[1]
        totals[0] = n
        summed(block, 1)
        return totals[0], low, high

    @device.inline
    def ranked(
        block: Record, rank: Scalar, n: Scalar, low: Scalar, high: Scalar
    ) -> tuple[Scalar, Scalar, Scalar]:
        bounds, totals = block.bounds, block.totals
        n_low, n_high = int32(0), int32(n)
        low, high = int32(low), int32(high)
        while n_high - n_low > 1 and high - low > 1:
            # Rounded up: the last bound reaches `high`, and the interval shrinks by 2^n_bit each time.
            step = (high - low + n_bound) >> n_bit
            for j in range(n_bound):
                bounds[j], totals[j] = int32(min(low + (j + 1) * step, high)), int32(0)
            through_up_to(block)
            summed(block, n_bound)
            for j in range(n_bound):
                # Counts grow with the bounds: the last bound with too few numbers is the new lower end ...
                if totals[j] < rank:
                    low, n_low = bounds[j], totals[j]
            for j in range(n_bound):
                # ... and the first one with enough of them, met last in this order, the upper end.
                if totals[n_bound - 1 - j] >= rank:
                    high, n_high = bounds[n_bound - 1 - j], totals[n_bound - 1 - j]
        return low, high, n_high

    @device.inline
    def above(block: Record, low: Scalar, high: Scalar) -> tuple[Scalar, Scalar]:
        block.bounds[0], block.bounds[1] = low, high
        block.totals[0], block.totals[1] = int32(INFINITY_BITS), int32(INFINITY_BITS)
        through_above(block)
        least(block)
        return block.totals[0], block.totals[1]

    return _Functions(start, span, ranked, above)


@functools.cache
def make_medians(cut: SearchShape) -> DeviceKernel:
    """Kernel of the middle of the sizes of float32 numbers in rectangles.

    There is a block for each rectangle: blocks along x are of `n_row` lines, one where threads hold numbers,
    along y of channels between two edges. Infinite numbers do not count.

    Given are the bits, int32 (n_line, n), and the edges, int32 (n_chunk + 1,); found are how many count,
    int32 (n_group, n_chunk), and the bits of the middle two, int32 (n_group, n_chunk, 2), which are one
    number where that is odd, and 0 where there is none.
    """
    start, span, ranked, above = _make_functions(cut)
    n_bound, n_kept, n_own = cut.n_bound, max(1, cut.n_each), max(3, cut.n_bound)

    @device.kernel(most_registers(cut.n_thread))
    def medians(bits: Array, n_row: int, edges: Array, n_found: Array, out: Array) -> None:
        group, chunk = cuda.blockIdx.x, cuda.blockIdx.y
        sums = cuda.shared.array((N_TURN, n_bound), int32)
        minima = cuda.shared.array((N_TURN, 2), int32)
        block = _SearchBlock(
            bits, group * n_row, group * n_row + n_row, edges[chunk], edges[chunk + 1],
            cuda.local.array(n_kept, int32), cuda.local.array(n_own, int32), cuda.local.array(n_own, int32),
            sums, minima, cuda.local.array(2, int32),
        )  # fmt: skip
        start(block)
        n, low, high = span(block)
        first, second = int32(0), int32(0)
        if n > 0:
            rank = (n + 1) // 2
            low, high, n_high = ranked(block, rank, n, low, high)
            first, second = above(block, low, high)
            # The second middle number is the first again where equal numbers reach beyond the middle.
            if n % 2 == 1 or n_high > rank:
                second = first
        if cuda.threadIdx.x == 0:
            n_found[group, chunk] = n
            out[group, chunk, 0], out[group, chunk, 1] = first, second

    return medians


@functools.cache
def make_percentiles(cut: SearchShape) -> DeviceKernel:
    """Kernel of the bits of percentiles, int32 (n_line, n_share); -1 where a line has no number.

    There is a block for each line.
    """
    start, span, ranked, above = _make_functions(cut)
    n_bound, n_kept, n_own = cut.n_bound, max(1, cut.n_each), max(3, cut.n_bound)

    @device.kernel(most_registers(cut.n_thread))
    def percentiles(bits: Array, shares: Array, out: Array) -> None:
        line = cuda.blockIdx.x
        sums = cuda.shared.array((N_TURN, n_bound), int32)
        minima = cuda.shared.array((N_TURN, 2), int32)
        block = _SearchBlock(
            bits, line, line + 1, 0, bits.shape[1],
            cuda.local.array(n_kept, int32), cuda.local.array(n_own, int32), cuda.local.array(n_own, int32),
            sums, minima, cuda.local.array(2, int32),
        )  # fmt: skip
        start(block)
        n, least, most = span(block)
        for k in range(shares.shape[0]):
            found = int32(-1)
            if n > 0:
                rank = max(int32(1), int32(math.ceil(shares[k] * n)))
                low, high, _ = ranked(block, rank, n, least, most)
                found, _ = above(block, low, high)
            if cuda.threadIdx.x == 0:
                out[line, k] = found

    return percentiles


def percentiles(staged: NDArray[np.float32], shares: NDArray[np.float64]) -> NDArray[np.float32]:
    """Percentiles of lines, equal to those of `rime_kernels.flagging.percentiles.line_percentiles`."""
    found = np.empty((len(staged), len(shares)), np.int32)
    step = max(1, device.memory_budget() // (2 * staged.itemsize * staged.shape[1]))
    there = device.upload(shares)
    n_thread = 2 if device.simulated() else 256
    kernel = make_percentiles(SearchShape(n_thread, n_thread, 0, N_BIT, 0))
    with CALL_LOCK:
        for start in range(0, len(staged), step):
            part = device.upload(staged[start : start + step])
            out = device.empty((part.shape[0], len(shares)), np.int32)
            kernel[part.shape[0], n_thread](part.view(np.int32), there, out)
            found[start : start + step] = out.copy_to_host()
    return np.where(found < 0, np.float32(np.nan), found.view(np.float32))


def cut_of(n_row: int, longest: int, shape: NoiseShape, least: int = 0) -> SearchShape:
    """How blocks look for medians of `n_row` lines of so many numbers, at most."""
    warp, most = (2, 8) if device.simulated() else (WARP, MAX_THREAD)
    # A line stays in registers if threads can hold it: then it is read from memory once.
    n_thread, n_each = warp, shape.n_each
    while n_thread * n_each < longest:
        n_thread *= 2
    while n_thread == warp and n_each > 1 and n_thread * (n_each // 2) >= longest:
        n_each //= 2
    if n_row == 1 and n_thread <= most and n_each + N_OTHER <= most_registers(n_thread):
        return SearchShape(n_thread, n_thread, n_each, shape.n_bit, least)
    if n_row == 1:
        return SearchShape(most, most, 0, N_BIT, least)
    return SearchShape(2, 1, 0, N_BIT, least) if device.simulated() else SearchShape(512, 32, 0, N_BIT, least)


def find_medians(
    sizes: DeviceArray,
    n_row: int,
    edges: DeviceArray,
    found: tuple[DeviceArray, DeviceArray],
    stream: Stream = 0,
    *,
    longest: int | None = None,
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
    longest : int, optional
        The most numbers of a line between two edges; all of a line where it is not given.
    least : int
        Bits of the smallest number that counts.
    """
    n_found, middle = found
    cut = cut_of(n_row, longest or sizes.shape[1], flagging_shape(NOISE, NoiseShape), least)
    make_medians(cut)[n_found.shape, cut.n_thread, stream](
        sizes.view(np.int32), n_row, edges, n_found, middle.view(np.int32)
    )
