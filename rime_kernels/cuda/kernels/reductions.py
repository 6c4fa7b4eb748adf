"""Sums over neighbouring threads of a block, in an order that depends on their number alone."""

from __future__ import annotations

import functools
import threading
from typing import Any

from numba import float64, int32, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Scalar

cuda: Module = device.cuda


@functools.cache
def make_barrier() -> Compiled:
    """Function that is a barrier of all threads of a block; for code outside the kernel's module, too."""
    if device.simulated():
        return lambda: threading.current_thread().syncthreads()  # type: ignore[attr-defined]

    @device.inline
    def barrier() -> None:
        cuda.syncthreads()

    return barrier


@functools.cache
def make_barrier_or() -> Compiled:
    """Function that is a barrier of a block, and says whether any thread came with something true."""
    if device.simulated():
        return lambda value: threading.current_thread().syncthreads_or(value)  # type: ignore[attr-defined]

    @device.inline
    def vote(value: Scalar) -> Scalar:
        return cuda.syncthreads_or(int32(value))

    return vote


@functools.cache
def make_block_reduce(n_thread: int) -> Compiled:
    """Function that sums one value of each of `n_thread` threads, a power of two: all threads of a block.

    A tree joins them in `shown`, shared memory for one value of each; every thread gets the sum.
    """
    barrier = make_barrier()

    @device.inline
    def block_reduce(thread: int, value: Scalar, shown: Array) -> Scalar:
        shown[thread] = value
        barrier()
        half = n_thread // 2
        while half > 0:
            if thread < half:
                shown[thread] += shown[thread + half]
            barrier()
            half //= 2
        total = shown[0]
        barrier()  # the next sum is written there, after all threads have read this one
        return total

    return block_reduce


@functools.cache
def make_shuffle_xor() -> Compiled:
    """Function that gives the value of the thread whose number differs in the bit `mask`, below 32."""
    if device.simulated():
        values: dict[int, Scalar] = {}  # one block runs at a time

        def swapped(value: Scalar, mask: int) -> Scalar:
            thread: Any = threading.current_thread()  # of the simulator
            # Two barriers: all threads have written before anyone reads, and have read before the next
            # exchange.
            values[thread.thread_id] = value
            thread.syncthreads()
            found = values[thread.thread_id ^ mask]
            thread.syncthreads()
            return found

        return swapped

    @device.inline
    def swapped_by_warp(value: Scalar, mask: int) -> Scalar:
        return cuda.shfl_xor_sync(0xFFFFFFFF, value, mask)

    return swapped_by_warp


@functools.cache
def make_warp_reduce(n_value: int, n_lane: int) -> Compiled:
    """Function that sums `n_value` values of each of `n_lane` threads, both powers of two, over these.

    `value` is spent; the sums lie in `into` from `first` on. As many sums as threads cost little more than
    one: see `make_warp_fold`.
    """
    n_halving = min(n_value, n_lane).bit_length() - 1
    n_left, lanes = n_value >> n_halving, n_lane - 1
    fold = make_warp_fold(n_value, 1, n_lane)

    @device.inline
    def warp_reduce(thread: int, value: Array, into: Array, first: int) -> None:
        fold(thread, value)
        start = uint32(first)
        for k in range(n_halving):
            # Exchange k left a thread with the upper half of its values where bit k of its number is set.
            start += uint32(((thread >> k) & 1) * (n_value >> (k + 1)))
        # With more lanes than values several threads have the same sums: one of them writes.
        if (thread & lanes) >> n_halving == 0:
            for k in range(n_left):
                into[start + uint32(k)] = value[k]

    return warp_reduce


@functools.cache
def make_warp_fold(n_value: int, mask: int, n_lane: int) -> Compiled:
    """Function that sums over threads whose numbers differ in the bits from `mask` on, below `n_lane`.

    While a thread has several values it hands half of them to a partner and takes the other half: the upper
    one where its bit is set.
    """
    swapped, half = make_shuffle_xor(), n_value // 2
    if mask >= n_lane:
        return device.inline(lambda thread, value: None)
    rest = make_warp_fold(max(1, half), 2 * mask, n_lane)

    @device.inline
    def halve(thread: int, value: Array) -> None:
        upper = (int32(thread) & int32(mask)) != 0
        for k in range(half):
            low, high = value[k], value[k + half]
            value[k] = (high if upper else low) + swapped(low if upper else high, mask)
        rest(thread, value)

    @device.inline
    def join(thread: int, value: Array) -> None:
        value[0] += swapped(value[0], mask)
        rest(thread, value)

    return halve if half else join


@functools.cache
def make_batch_sums(n_thread: int) -> DeviceKernel:
    """Kernel in which block b sums values[b]: each thread every n_thread-th value, then a tree joins them."""
    block_reduce = make_block_reduce(n_thread)

    @device.kernel(0)
    def sum_batch(values: Array, out: Array) -> None:
        shared = cuda.shared.array(n_thread, float64)
        b, thread = cuda.blockIdx.x, cuda.threadIdx.x
        total = 0.0
        for i in range(thread, values.shape[1], n_thread):
            total += values[b, i]
        total = block_reduce(thread, total, shared)
        if thread == 0:
            out[b] = total

    return sum_batch
