"""Arrays on the device, and the memory that they may take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rime_kernels.compile.types import DeviceArray
from rime_kernels.device import packages
from rime_kernels.errors import BackendError

T = TypeVar("T", bound=np.generic)

# The share of the free device memory that one `Rime` may take unless told otherwise.
_MEMORY_SHARE = 0.8
# Shapes that a workspace remembers: every batch size that a sampler comes up with, and some more.
_MAX_VIEWS = 4096


class DeviceMemoryError(BackendError):
    """The device has too little free memory for an array; a smaller batch may fit."""


def memory_budget() -> int:
    """Bytes that one `Rime` may take."""
    if packages.simulated():
        return 1 << 26
    free, _ = packages.cuda().current_context().get_memory_info()
    return int(_MEMORY_SHARE * free)


@contextmanager
def _memory_errors(n_byte: int) -> Iterator[None]:
    """Raise the driver's out-of-memory error as a `DeviceMemoryError`."""
    try:
        yield
    except Exception as error:
        if "OUT_OF_MEMORY" in str(error) or isinstance(error, MemoryError):
            raise DeviceMemoryError(f"the device has no room for {n_byte / 1e6:.0f} MB") from error
        raise


def upload(value: NDArray[np.generic]) -> DeviceArray:
    """A copy of a host array on the device (one element of zeros for an empty one)."""
    host = np.ascontiguousarray(value if value.size else np.zeros((1,) * value.ndim, value.dtype))
    with _memory_errors(host.nbytes):
        return packages.cuda().to_device(host)


def empty(shape: tuple[int, ...], dtype: DTypeLike) -> DeviceArray:
    """A device array of undefined content."""
    with _memory_errors(math.prod(shape) * np.dtype(dtype).itemsize):
        return packages.cuda().device_array(shape, dtype)


def is_on_device(value: object) -> bool:
    """Whether an array lies on the device."""
    return hasattr(value, "copy_to_host")


def pinned_copy(value: NDArray[T]) -> NDArray[T]:
    """A copy of an array in page-locked memory of the host, which is transferred fastest."""
    try:
        host: NDArray[T] = packages.cuda().pinned_array(value.shape, value.dtype)
    except Exception as error:
        raise BackendError(f"the host has no {value.nbytes / 1e6:.0f} MB to pin for streaming") from error
    host[...] = value
    return host


class Workspace:
    """Scratch arrays on the device, by name; each is used again while it is large enough.

    Their views are remembered, too: to slice or reshape a device array takes as long as a launch.
    `generation` counts how often an array was given back: a recorded call, which
    remembers addresses, compares it.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.arrays: dict[str, DeviceArray] = {}
        self._views: dict[tuple[str, tuple[tuple[int, ...], ...], type], list[DeviceArray]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: type) -> DeviceArray:
        """An array of this shape (no axis empty), with undefined content.

        Raises
        ------
        DeviceMemoryError
            The device has too little free memory.
        """
        return self.parts(name, (shape,), dtype)[1]

    def parts(self, name: str, shapes: Sequence[tuple[int, ...]], dtype: type) -> list[DeviceArray]:
        """One flat array, and its pieces of these shapes, one behind the other; as `array`."""
        key = name, tuple(shapes), dtype
        if key not in self._views:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
            self._reserve(name, ends[-1], dtype)
            whole = self.arrays[name][: ends[-1]]
            pieces = zip([0, *ends[:-1]], ends, shapes, strict=True)
            self._views[key] = [whole, *(whole[first:end].reshape(shape) for first, end, shape in pieces)]
        return self._views[key]

    def fill(self, name: str, parts: Sequence[NDArray[np.generic]]) -> list[DeviceArray]:
        """Copies of host arrays (none empty), as float64, one behind the other in one array: one transfer.

        Raises
        ------
        DeviceMemoryError
            The device has too little free memory.
        """
        whole, *views = self.parts(name, [part.shape for part in parts], np.float64)
        whole.copy_to_device(np.concatenate([part.ravel() for part in parts], dtype=np.float64))
        return views

    def clear(self) -> None:
        """Give every array back."""
        self.generation += 1
        self.arrays.clear()
        self._views.clear()

    def _reserve(self, name: str, size: int, dtype: type) -> None:
        present = self.arrays.get(name)
        if present is not None and present.size >= size and present.dtype == np.dtype(dtype):
            return
        if present is not None:
            self.generation += 1
        del present
        self.arrays.pop(name, None)
        self._views = {key: views for key, views in self._views.items() if key[0] != name}
        with _memory_errors(size * np.dtype(dtype).itemsize):
            self.arrays[name] = packages.cuda().device_array(size, dtype)
