"""The GPUs that a call names, each with a thread of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, TypeAlias, TypeVar

from rime_kernels import device
from rime_kernels.errors import BackendError, InputError

T = TypeVar("T")
Devices: TypeAlias = Literal["all"] | int | Sequence[int]
"""All GPUs, the first so many, or those of these numbers, as CUDA counts them."""


class DeviceThread:
    """A thread for which one GPU is the current one; see `rime_kernels.engine.sharded.Worker`."""

    def __init__(self, number: int, name: str) -> None:
        self.name = f"GPU {number} ({name})"
        self._executor = ThreadPoolExecutor(1, f"biro-gpu-{number}", functools.partial(device.select, number))

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do it in this thread."""
        return self._executor.submit(work)


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
