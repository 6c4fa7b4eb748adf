"""The one place that imports CUDA: which backend, how much memory, arrays on the device."""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rime_kernels import _check
from rime_kernels.errors import BackendError

Backend = Literal["auto", "cpu", "cuda"]

# The share of the free device memory that one evaluation may fill, and its ceiling (bytes).
_MEMORY_SHARE = 0.5
_MEMORY_CEILING = 2 << 30
# Shapes that a workspace remembers: every batch size that a sampler comes up with, and some more.
_MAX_VIEWS = 4096


class DeviceMemoryError(BackendError):
    """The device has no room for an array; a smaller batch may fit."""


def __getattr__(name: str) -> Any:
    """`device.cuda` is numba.cuda, imported when it is first asked for."""
    if name != "cuda":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _cuda()


def _cuda() -> Any:
    """numba.cuda, without its advice on small grids: a small problem is the user's right.

    `NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS=1` brings the advice back.
    """
    from numba import config

    if "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS" not in os.environ:
        config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    return importlib.import_module("numba.cuda")


def simulated() -> bool:
    """Whether CUDA is Numba's simulator (NUMBA_ENABLE_CUDASIM=1)."""
    from numba import config

    return bool(config.ENABLE_CUDASIM)


def resolve(backend: Backend) -> tuple[Literal["cpu", "cuda"], str]:
    """The backend that will run, and why.

    Parameters
    ----------
    backend : "auto", "cpu" or "cuda"
        "auto" takes a CUDA device where there is one (the simulator is not one).

    Raises
    ------
    InputError
        None of these words.
    BackendError
        "cuda" where the package or the device is missing; the message says which.
    """
    _check.one_of("backend", backend, ("auto", "cpu", "cuda"))
    if backend == "cpu":
        return "cpu", "cpu: as asked"
    lacking = _what_cuda_lacks()
    if backend == "cuda":
        if lacking:
            raise BackendError(f'backend="cuda" cannot be used: {lacking}; use backend="cpu"')
        return "cuda", f"cuda: as asked, on {device_name()}"
    if lacking:
        return "cpu", f"cpu: {lacking}"
    if simulated():
        return "cpu", "cpu: CUDA is simulated here"
    return "cuda", f"cuda: found {device_name()}"


def _what_cuda_lacks() -> str | None:
    """What keeps CUDA from working, in words; None when it works."""
    if simulated():
        return None
    try:
        version = importlib.metadata.version("numba-cuda")
    except importlib.metadata.PackageNotFoundError:
        return "package numba-cuda is not installed (pip install 'biro-rime[cuda12]')"
    if _numpy_version() >= (2, 5):
        return f"numba-cuda {version} does not work with NumPy {np.__version__} (pip install 'numpy<2.5')"
    try:
        cuda = _cuda()
        found = cuda.is_available() and len(cuda.gpus) > 0
    except Exception as error:  # a broken driver raises its own kinds
        return f"the CUDA driver does not answer ({str(error).splitlines()[0] if str(error) else error!r})"
    return None if found else "no CUDA device (or no driver for it) was found"


def _numpy_version() -> tuple[int, int]:
    major, minor = np.__version__.split(".")[:2]
    return int(major), int(minor)


def device_name() -> str:
    """What the device calls itself."""
    if simulated():
        return "Numba's CUDA simulator"
    cuda = _cuda()
    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


def has_slow_float64() -> bool:
    """Whether the device's float64 arithmetic is many times slower than its float32 (16 times or more)."""
    if simulated():
        return False
    device = _cuda().get_current_device()
    return int(device.SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO) >= 16


def threads_per_block() -> int:
    """Threads of a block: a power of two; few in the simulator, whose threads are slow."""
    return 16 if simulated() else 128


def memory_budget() -> int:
    """Bytes that the terms and results of one pass may take."""
    if simulated():
        return 1 << 26
    free, _ = _cuda().current_context().get_memory_info()
    return int(min(_MEMORY_SHARE * free, _MEMORY_CEILING))


@contextmanager
def _memory_errors(n_byte: int) -> Iterator[None]:
    """Turn the driver's out-of-memory error into ours."""
    try:
        yield
    except Exception as error:
        if "OUT_OF_MEMORY" in str(error) or isinstance(error, MemoryError):
            raise DeviceMemoryError(f"the device has no room for {n_byte / 1e6:.0f} MB") from error
        raise


def upload(value: NDArray[Any]) -> Any:
    """A copy of a host array on the device (one element of zeros for an empty one)."""
    host = np.ascontiguousarray(value if value.size else np.zeros((1,) * value.ndim, value.dtype))
    with _memory_errors(host.nbytes):
        return _cuda().to_device(host)


class Workspace:
    """Device arrays by name that are kept and used again while they are large enough.

    So are their views: to slice or reshape a device array costs as much as a launch.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._views: dict[tuple[str, tuple[tuple[int, ...], ...], type], list[Any]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: type) -> Any:
        """An array of this shape (no axis empty), its content undefined.

        Raises
        ------
        DeviceMemoryError
            There is no room for it.
        """
        return self._views_of(name, (shape,), dtype)[1]

    def fill(self, name: str, parts: Sequence[NDArray[np.float64]]) -> list[Any]:
        """Copies of host arrays (none empty) of float64, one behind the other in one array: one transfer.

        Raises
        ------
        DeviceMemoryError
            There is no room for them.
        """
        whole, *views = self._views_of(name, tuple(part.shape for part in parts), np.float64)
        whole.copy_to_device(np.concatenate([part.ravel() for part in parts]))
        return views

    def clear(self) -> None:
        """Give every array back."""
        self._kept.clear()
        self._views.clear()

    def _views_of(self, name: str, shapes: tuple[tuple[int, ...], ...], dtype: type) -> list[Any]:
        """One flat array, and its pieces of these shapes."""
        key = name, shapes, dtype
        if key not in self._views:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
            self._reserve(name, ends[-1], dtype)
            whole = self._kept[name][: ends[-1]]
            pieces = zip([0, *ends[:-1]], ends, shapes, strict=True)
            self._views[key] = [whole, *(whole[first:end].reshape(shape) for first, end, shape in pieces)]
        return self._views[key]

    def _reserve(self, name: str, size: int, dtype: type) -> None:
        kept = self._kept.get(name)
        if kept is not None and kept.size >= size and kept.dtype == np.dtype(dtype):
            return
        del kept
        self._kept.pop(name, None)
        self._views = {key: views for key, views in self._views.items() if key[0] != name}
        with _memory_errors(size * np.dtype(dtype).itemsize):
            self._kept[name] = _cuda().device_array(size, dtype)
