"""What computes for one process: the GPUs that a call names, each with a thread of its own, or the CPU."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any, Literal, TypeAlias, TypeVar

from rime_kernels import device
from rime_kernels.compile.call_lock import take_device
from rime_kernels.errors import BackendError, InputError

T = TypeVar("T")
# Seconds that the end of a process waits for a GPU at work.
_PATIENCE = 10.0
Devices: TypeAlias = Literal["all"] | int | Sequence[int]
"""All GPUs, the first so many, or those of these numbers, as CUDA counts them."""


class DeviceThread:
    """A thread for which one GPU is the current one; see `rime_kernels.engine.local_shards.DeviceWorker`.

    It lives as long as the process, for what is on its GPU is given back in it.
    """

    def __init__(self, number: int, name: str) -> None:
        self.name, self.kind, self._number = f"GPU {number} ({name})", name, number
        self._process = os.getpid()
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        threading.Thread(target=self._run, name=f"biro-gpu-{number}", daemon=True).start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do it in this thread."""
        future: Future[T] = Future()
        self._queue.put((future, work))
        return future

    def here(self) -> AbstractContextManager[None]:
        """Within, the GPU is the current one of the thread that asks."""
        return device.selected(self._number)

    def _close(self) -> None:
        """The process ends: see `device.leave_cleanup`."""
        if os.getpid() == self._process:  # a forked one has no such thread
            with contextlib.suppress(TimeoutError):  # the GPU does not answer
                self.submit(device.leave_cleanup).exception(_PATIENCE)

    def _run(self) -> None:
        is_selected = False
        while True:
            future, work = self._queue.get()
            try:
                if not is_selected:
                    device.select(self._number)
                    take_device()
                    atexit.register(self._close)  # behind what Numba has registered, so that it comes before
                    is_selected = True
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
            del future, work  # nothing of it may live here until the next work comes


class HostCPU:
    """The CPU, whose work is done at once by the thread that asks: a `DeviceWorker` like `DeviceThread`."""

    name = kind = "CPU"

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do it now."""
        future: Future[T] = Future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def here(self) -> AbstractContextManager[None]:
        """The CPU is there for every thread."""
        return contextlib.nullcontext()


@functools.cache
def _thread_of(number: int, name: str) -> DeviceThread:
    return DeviceThread(number, name)


def check_devices(devices: Devices) -> None:
    """Refuse what names no devices, whatever this machine has.

    Raises
    ------
    InputError
    """
    expected = 'devices must be "all", a number of GPUs, or a list of their numbers (0 is the first)'
    if isinstance(devices, str):
        is_good = devices == "all"
    elif isinstance(devices, int):
        is_good = devices >= 1 and not isinstance(devices, bool)
    else:
        numbers = list(devices)
        is_good = bool(numbers) and len(set(numbers)) == len(numbers)
        is_good = is_good and all(isinstance(i, int) and i >= 0 for i in numbers)
    if not is_good:
        raise InputError(f"{expected}, got {devices!r}")


def threads_of(backend: Literal["cpu", "cuda"], devices: Devices) -> list[DeviceThread]:
    """The threads of these devices, the same ones for every call.

    Raises
    ------
    InputError
        What names no devices, or a backend that has none.
    BackendError
        A device that is not there, or devices of different kinds, whose results could differ.
    """
    check_devices(devices)
    if backend == "cpu":
        raise InputError(f'devices={devices!r} are GPUs: they need backend="cuda", and a GPU')
    names = device.names()
    if isinstance(devices, str):
        numbers = list(range(len(names)))
    else:
        numbers = list(range(devices)) if isinstance(devices, int) else list(devices)
    if max(numbers) >= len(names):
        raise BackendError(f"devices={devices!r}: there are {len(names)} GPUs here, numbered from 0")
    kinds = sorted({names[i] for i in numbers})
    if len(kinds) > 1:
        raise BackendError(
            f"devices={devices!r}: {' and '.join(kinds)} are GPUs of different kinds; name those of one kind"
        )
    return [_thread_of(i, names[i]) for i in numbers]


def workers_of(
    backend: Literal["cpu", "cuda"], devices: Devices | None, number: int
) -> Sequence[DeviceThread | HostCPU]:
    """What computes for one of several processes of a host.

    Parameters
    ----------
    backend : "cpu" or "cuda"
    devices : Devices, optional
        Those of this process. Default: one GPU, in turn.
    number : int
        Of this process among those of the host.

    Raises
    ------
    InputError, BackendError
        As `threads_of`.
    """
    if devices is not None:
        return threads_of(backend, devices)
    return [HostCPU()] if backend == "cpu" else threads_of("cuda", [number % len(device.names())])
