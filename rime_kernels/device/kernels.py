"""Kernels and the functions that become part of them: how they are compiled, cached on disk and launched."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

from rime_kernels.compile import cache
from rime_kernels.compile.types import Compiled, DeviceKernel, Stream
from rime_kernels.device import packages
from rime_kernels.device.devices import threads_per_block


def inline(function: Callable[..., Any]) -> Compiled:
    """A short function that becomes part of the kernels that call it; the simulator runs it uncompiled.

    Numba copies its statements into those of the caller. Needed where a function declares arrays, and where
    loops over a thread's own arrays must be unrolled for these to lie in registers.
    """
    if packages.simulated():
        return function
    from numba import njit

    return njit(inline="always", error_model="numpy")(function)


def part(function: Callable[..., Any]) -> Compiled:
    """A long function that becomes part of the kernels that call it, as `inline`, after it was compiled.

    What Numba copies, it copies whole for each function around it: kernels of many long functions compile two
    to six times faster so.
    """
    return function if packages.simulated() else packages.cuda().jit(device=True, forceinline=True)(function)


def kernel(max_register: int, dynamic_bytes: int = 0) -> Callable[[Callable[..., None]], DeviceKernel]:
    """Decorator of a kernel whose threads have at most `max_register` registers; 0 leaves it to the compiler.

    Its machine code is cached on disk where a folder can be written. `dynamic_bytes` of shared memory are
    what launches may ask for.
    """
    if packages.simulated():
        return lambda function: _with_shared_memory(packages.cuda().jit(function), dynamic_bytes)
    jit = packages.cuda().jit(**({"max_registers": max_register} if max_register else {}))

    def compiled(function: Callable[..., None]) -> DeviceKernel:
        dispatcher = jit(function)
        versions = importlib.metadata.version("numba-cuda"), repr(sorted(dispatcher.targetoptions.items()))
        # Bound at once: at the first launch it would be too late to compile it instead.
        cache.enable(dispatcher, *versions, ready=lambda kernel: kernel.bind())
        return _with_shared_memory(dispatcher, dynamic_bytes)

    return compiled


def _with_shared_memory(dispatcher: DeviceKernel, n_byte: int) -> DeviceKernel:
    """The kernel, launched with so much shared memory beside what it declares."""
    return WithSharedMemory(dispatcher, n_byte) if n_byte else dispatcher


class WithSharedMemory:
    """A kernel whose launches ask for more shared memory than a kernel may declare (48 KiB).

    Numba does not tell the driver how much a kernel may ask for (numba-cuda 0.30): of each variant it is told
    before the first launch on a device.
    """

    def __init__(self, dispatcher: DeviceKernel, n_byte: int) -> None:
        self._dispatcher, self._n_byte = dispatcher, n_byte
        self._told: set[tuple[int, int]] = set()

    def __getitem__(self, configuration: tuple[Any, ...]) -> Compiled:
        launched: Any = self._dispatcher[(*configuration, self._n_byte)]
        # Numba keeps the object of a configuration. The simulator has no limit.
        if not packages.simulated() and self._tell not in launched.pre_launch_callbacks:
            launched.pre_launch_callbacks.append(self._tell)
        return launched

    def _tell(self, kernel: Any, _configuration: object) -> None:
        function = kernel._codelibrary.get_cufunc()
        number = int(function.handle), int(function.device.id)  # all devices have the same handle
        if number not in self._told:
            driver = packages.numba_driver()
            attribute = driver.binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.driver.cuKernelSetAttribute(attribute, self._n_byte, function.handle, number[1])
            self._told.add(number)


def launch_each(kernel: DeviceKernel, n: int, stream: Stream, *arguments: object) -> None:
    """Launch a kernel with a thread for each of n pieces of work."""
    n_thread = threads_per_block()
    kernel[-(-n // n_thread), n_thread, stream](*arguments)
