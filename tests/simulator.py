"""Numba's CUDA simulator, four times as fast (measured).

Numba runs each thread of a block as a thread of Python, which compete for the interpreter's lock, and wraps
each array twice. Here they are greenlets that one thread of Python runs one after another, up to where they
meet; arrays are NumPy's. After each meeting they run in a new order, so that a result that depends on the
order, because a meeting is missing, is found.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet
from numba.core import types
from numba.cuda.errors import normalize_kernel_dimensions
from numba.cuda.simulator import kernel
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray
from numba.cuda.simulator.kernelapi import Dim3, FakeCUDAModule, FakeCUDAShared, swapped_cuda_module
from numba.np.numpy_support import as_dtype


class Thread(greenlet):
    """A thread of a block: what kernels find as the current one."""

    daemon = True  # a thread of Python that a compilation starts takes this from the current one

    def __init__(self, run: Callable[[], None], block: Block, point: tuple[int, ...]) -> None:
        super().__init__(run)
        self.block, self.blockIdx, self.threadIdx = block, block.index, Dim3(*point)
        x, y, _ = block.shape
        self.thread_id = point[0] + x * (point[1] + y * point[2])

    def syncthreads(self) -> None:
        """Wait until all threads of the block that have not ended are here."""
        self.block.met.append(self)
        self.block.hub.switch()

    def vote(self, value: Any) -> np.ndarray:
        """What each thread of the block came with."""
        self.block.votes[self.thread_id] = value
        self.syncthreads()
        votes = self.block.votes.copy()
        self.syncthreads()
        return votes

    def syncthreads_count(self, value: Any) -> int:
        return int(np.count_nonzero(self.vote(value)))

    def syncthreads_and(self, value: Any) -> int:
        return int(np.all(self.vote(value)))

    def syncthreads_or(self, value: Any) -> int:
        return int(np.any(self.vote(value)))


class Block:
    """The threads of a block, run to the end."""

    def __init__(self, index: tuple[int, ...], shape: tuple[int, ...], order: random.Random) -> None:
        self.index, self.shape, self.order, self.hub = Dim3(*index), shape, order, getcurrent()
        self.votes = np.zeros(int(np.prod(shape)), bool)
        self.ready: list[Thread] = []
        self.met: list[Thread] = []

    def run(self, function: Callable[[], None]) -> None:
        threads = [Thread(function, self, point) for point in np.ndindex(*self.shape)]
        self.ready = list(threads)
        while self.ready:
            self.order.shuffle(self.ready)
            while self.ready:  # a barrier of a warp adds to them
                self.ready.pop().switch()
            self.ready, self.met = self.met, []
        if not all(thread.dead for thread in threads):
            raise RuntimeError("threads of a block wait for others that have ended")


class WarpBarrier(threading.Barrier):
    """A barrier at which threads of a block may meet, too."""

    def wait(self, timeout: float | None = None) -> int:
        thread = getcurrent()
        if not isinstance(thread, Thread):
            return super().wait(timeout)
        waiting: list[Thread] = self.__dict__.setdefault("waiting", [])
        waiting.append(thread)
        if len(waiting) < self.parties:
            thread.block.hub.switch()
        else:
            thread.block.ready += waiting[:-1]
            waiting.clear()
        return 0


def plain(argument: Any) -> Any:
    """An argument of a kernel with NumPy's arrays in it."""
    if isinstance(argument, FakeCUDAArray):
        return argument._ary
    if isinstance(argument, tuple):
        parts = [plain(each) for each in argument]
        return type(argument)(*parts) if hasattr(argument, "_fields") else tuple(parts)
    return argument


def call(self: Any, *arguments: Any) -> None:
    """Launch a kernel: one block after another."""
    grid, block = normalize_kernel_dimensions(self.grid_dim, self.block_dim)
    module = FakeCUDAModule(grid, block, self.dynshared_size)
    given, order = [plain(each) for each in arguments], random.Random(1)
    with kernel._push_kernel_context(module), swapped_cuda_module(self.fn, module):
        for index in np.ndindex(*grid):
            Block(index, block, order).run(lambda: self.fn(*given))


def shared_array(self: Any, shape: Any, dtype: Any) -> np.ndarray:
    """An array that all threads of the block share, for each line that asks for one."""
    dtype = as_dtype(dtype) if isinstance(dtype, types.Type) else np.dtype(dtype)
    if shape == 0:
        return np.frombuffer(self._dynshared.data, dtype, self._dynshared_size // dtype.itemsize)
    caller = sys._getframe(1)
    key = caller.f_code.co_filename, caller.f_lineno
    if key not in self._allocations:
        self._allocations[key] = np.empty(shape, dtype)
    return self._allocations[key]  # type: ignore[no-any-return]


def hasten() -> None:
    """Replace what takes the simulator long."""
    of_python = threading.current_thread

    def current_thread() -> Any:
        current = getcurrent()
        return current if isinstance(current, Thread) else of_python()

    threading.current_thread, threading.Barrier = current_thread, WarpBarrier  # type: ignore[misc]
    kernel.FakeCUDAKernel.__call__ = call
    FakeCUDAShared.array = shared_array
