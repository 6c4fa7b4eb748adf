"""The one place that imports CUDA: which backend, how much memory, arrays on the device."""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rime_kernels import check
from rime_kernels.compile import cache
from rime_kernels.errors import BackendError

log = logging.getLogger(__name__)

Backend = Literal["auto", "cpu", "cuda"]

# The share of the free device memory that one `Rime` may take unless told otherwise.
_MEMORY_SHARE = 0.8
# Shapes that a workspace remembers: every batch size that a sampler comes up with, and some more.
_MAX_VIEWS = 4096


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function into the kernels that call it; the simulator runs it as it is, arrays and all."""
    if simulated():
        return function
    from numba import njit

    return njit(inline="always", error_model="numpy")(function)


def kernel(max_register: int) -> Callable[[Callable[..., None]], Any]:
    """Decorator of a kernel whose threads have at most so many registers; 0 leaves it to the compiler.

    Its machine code is kept on disk where some folder can be written.
    """
    if simulated():
        return _cuda().jit
    jit = _cuda().jit(**({"max_registers": max_register} if max_register else {}))

    def compiled(function: Callable[..., None]) -> Any:
        found = jit(function)
        decides = importlib.metadata.version("numba-cuda"), repr(sorted(found.targetoptions.items()))
        # Numba would hand it to the device at the first launch: too late to compile it instead.
        cache.keep(found, *decides, ready=lambda kernel: kernel.bind())
        return found

    return compiled


class DeviceMemoryError(BackendError):
    """The device has no room for an array; a smaller batch may fit."""


def __getattr__(name: str) -> Any:
    """`device.cuda` is numba.cuda, imported when it is first asked for."""
    if name != "cuda":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _cuda()


def libdevice() -> Any:
    """The device's library of functions of scalars; the simulator has none."""
    return importlib.import_module("numba.cuda.libdevice")


def intrinsic(function: Callable[..., Any]) -> Any:
    """Decorator of a function that writes an instruction by itself; the simulator knows none."""
    return importlib.import_module("numba.cuda.extending").intrinsic(function)


def _cuda() -> Any:
    """numba.cuda, without its advice on small grids: a small problem is the user's right.

    `NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS=1` brings the advice back.
    """
    from numba import config

    if "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS" not in os.environ:
        config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    return importlib.import_module("numba.cuda")


def cupy(name: str) -> Any:
    """Module "cupy" + name."""
    try:
        return importlib.import_module("cupy" + name)
    except ImportError as error:
        raise BackendError("package cupy is not installed (pip install 'biro-rime[cuda12]')") from error


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
    check.one_of("backend", backend, ("auto", "cpu", "cuda"))
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


# Blocks of the second axis of a grid; CUDA allows 65535.
MAX_GRID_Y = 32768


def threads_per_block() -> int:
    """Threads of a block: a power of two; few in the simulator, whose threads are slow."""
    return 16 if simulated() else 128


def memory_budget() -> int:
    """Bytes that one `Rime` may take."""
    if simulated():
        return 1 << 26
    free, _ = _cuda().current_context().get_memory_info()
    return int(_MEMORY_SHARE * free)


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


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """A device array of undefined content."""
    with _memory_errors(math.prod(shape) * np.dtype(dtype).itemsize):
        return _cuda().device_array(shape, dtype)


def pinned_copy(value: NDArray[Any]) -> NDArray[Any]:
    """A copy of an array in memory of the host that transfers need not copy first."""
    try:
        host: NDArray[Any] = _cuda().pinned_array(value.shape, value.dtype)
    except Exception as error:
        raise BackendError(f"the host has no {value.nbytes / 1e6:.0f} MB to pin for streaming") from error
    host[...] = value
    return host


def streams(n: int) -> list[Any]:
    """Streams of launches and transfers; each waits for the legacy default stream and is waited for by it."""
    return [_cuda().stream() for _ in range(n)]


class Workspace:
    """Device arrays by name that are kept and used again while they are large enough.

    So are their views: to slice or reshape a device array costs as much as a launch. `generation` counts
    how often an array was given back: those who remember addresses look at it.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._kept: dict[str, Any] = {}
        self._views: dict[tuple[str, tuple[tuple[int, ...], ...], type], list[Any]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: type) -> Any:
        """An array of this shape (no axis empty), its content undefined.

        Raises
        ------
        DeviceMemoryError
            There is no room for it.
        """
        return self.parts(name, (shape,), dtype)[1]

    def parts(self, name: str, shapes: Sequence[tuple[int, ...]], dtype: type) -> list[Any]:
        """One flat array, and its pieces of these shapes, one behind the other; as `array`."""
        key = name, tuple(shapes), dtype
        if key not in self._views:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
            self._reserve(name, ends[-1], dtype)
            whole = self._kept[name][: ends[-1]]
            pieces = zip([0, *ends[:-1]], ends, shapes, strict=True)
            self._views[key] = [whole, *(whole[first:end].reshape(shape) for first, end, shape in pieces)]
        return self._views[key]

    def fill(self, name: str, parts: Sequence[NDArray[Any]]) -> list[Any]:
        """Copies of host arrays (none empty), as float64, one behind the other in one array: one transfer.

        Raises
        ------
        DeviceMemoryError
            There is no room for them.
        """
        whole, *views = self.parts(name, [part.shape for part in parts], np.float64)
        whole.copy_to_device(np.concatenate([part.ravel() for part in parts], dtype=np.float64))
        return views

    def clear(self) -> None:
        """Give every array back."""
        self.generation += 1
        self._kept.clear()
        self._views.clear()

    def _reserve(self, name: str, size: int, dtype: type) -> None:
        kept = self._kept.get(name)
        if kept is not None and kept.size >= size and kept.dtype == np.dtype(dtype):
            return
        if kept is not None:
            self.generation += 1
        del kept
        self._kept.pop(name, None)
        self._views = {key: views for key, views in self._views.items() if key[0] != name}
        with _memory_errors(size * np.dtype(dtype).itemsize):
            self._kept[name] = _cuda().device_array(size, dtype)


class Recording:
    """Upload, launches and download of one kind of call, played in one step.

    Parameters
    ----------
    graph : cuda.bindings.driver.CUgraphExec
    stream : stream
    given : list of float64
        Pinned host arrays that the graph uploads.
    answer : float64, flat
        Pinned host array that it downloads to.
    read : function
        What a call gives, from a copy of the answer.
    keep : object
        What must live as long as the graph.
    """

    def __init__(
        self,
        graph: Any,
        stream: Any,
        given: list[NDArray[np.float64]],
        answer: NDArray[np.float64],
        read: Callable[[NDArray[np.float64]], Any],
        keep: Any,
    ) -> None:
        self._graph, self._stream, self._given, self._answer, self._keep = graph, stream, given, answer, keep
        self._read = read
        self._handle = int(stream.handle)
        self._launch = _driver().cuGraphLaunch
        weakref.finalize(self, _driver().cuGraphExecDestroy, graph)

    def play(self, values: Sequence[NDArray[Any]]) -> Callable[[], Any]:
        """Start it with these values; the function returned waits for the answer, and reads it."""
        _meet_device()
        for into, value in zip(self._given, values, strict=True):
            into[...] = value
        _checked(self._launch(self._graph, self._handle))
        return self._finish

    def _finish(self) -> Any:
        _meet_device()
        self._stream.synchronize()
        return self._read(self._answer.copy())


_thread = threading.local()


def _meet_device() -> None:
    """Make the device's context that of this thread, the first time."""
    if not hasattr(_thread, "met"):
        _cuda().current_context()
        _thread.met = True


def record(
    workspace: Workspace, values: Sequence[NDArray[Any]], launch: Callable[[list[Any], Any], Any],
    read: Callable[[NDArray[np.float64]], Any],
) -> Recording | None:  # fmt: skip
    """Record a call: `launch` gets the values on the device and the stream, and gives the answer there.

    `read` makes of the answer, flat, what the call gives.

    All that it launches must have been compiled. None where it cannot be recorded.
    """
    if simulated():
        return None
    if _driver() is None:
        return None
    try:
        return _record(workspace, values, launch, read)
    except DeviceMemoryError:
        raise
    except Exception as error:  # the driver has many reasons, and the call works without
        log.info("calls are not recorded: %s", error)
        return None


def _record(
    workspace: Workspace, values: Sequence[NDArray[Any]], launch: Callable[[list[Any], Any], Any],
    read: Callable[[NDArray[np.float64]], Any],
) -> Recording:  # fmt: skip
    cuda, driver = _cuda(), _driver()
    stream = cuda.stream()
    ends = np.cumsum([value.size for value in values]).tolist()
    host, on_device = cuda.pinned_array(ends[-1], np.float64), empty((ends[-1],), np.float64)
    pieces = list(zip([0, *ends[:-1]], ends, (value.shape for value in values), strict=True))
    given, arrays = (
        [whole[first:end].reshape(shape) for first, end, shape in pieces] for whole in (host, on_device)
    )
    answer = cuda.pinned_array(launch(arrays, stream).size, np.float64)
    stream.synchronize()
    handle = int(stream.handle)
    _checked(driver.cuStreamBeginCapture(handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    try:
        on_device.copy_to_device(host, stream=stream)
        launch(arrays, stream).copy_to_host(answer, stream=stream)
    finally:
        graph = _checked(driver.cuStreamEndCapture(handle))
    try:
        executable = _checked(driver.cuGraphInstantiate(graph, 0))
    finally:
        driver.cuGraphDestroy(graph)
    return Recording(executable, stream, given, answer, read, (workspace, host, on_device, arrays))


def _driver() -> Any:
    """The driver's functions as NVIDIA's own package gives them; None without it."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError:
        return None


def _checked(result: tuple[Any, ...]) -> Any:
    """The value of a driver's call, its status looked at."""
    status, *value = result
    if int(status) != 0:
        raise BackendError(f"the CUDA driver said {status.name}")
    return value[0] if value else None
