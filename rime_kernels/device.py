"""The only module that imports CUDA: the choice of the backend, arrays on the device, recorded calls."""

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
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rime_kernels import check
from rime_kernels.compile import cache
from rime_kernels.compile.types import Compiled, DeviceArray, DriverObject, Module, Stream
from rime_kernels.errors import BackendError

log = logging.getLogger(__name__)

Backend = Literal["auto", "cpu", "cuda"]
T = TypeVar("T", bound=np.generic)
# What a recorded call gives; the caller knows: chi2, or chi2 with its derivatives.
Answer: TypeAlias = Any
# Launches kernels for parameters on the device, on a stream; gives the answer on the device.
Launch = Callable[[list[DeviceArray], Stream], DeviceArray]

# The share of the free device memory that one `Rime` may take unless told otherwise.
_MEMORY_SHARE = 0.8
# Shapes that a workspace remembers: every batch size that a sampler comes up with, and some more.
_MAX_VIEWS = 4096


def inline(function: Compiled) -> Compiled:
    """A short function that becomes part of the kernels that call it; the simulator runs it uncompiled.

    Numba copies its statements into those of the caller. Needed where a function declares arrays, and where
    loops over a thread's own arrays must be unrolled for these to lie in registers.
    """
    if simulated():
        return function
    from numba import njit

    return njit(inline="always", error_model="numpy")(function)


def part(function: Compiled) -> Compiled:
    """A long function that becomes part of the kernels that call it, as `inline`, after it was compiled.

    What Numba copies, it copies whole for each function around it: kernels of many long functions compile two
    to six times faster so.
    """
    return function if simulated() else _cuda().jit(device=True, forceinline=True)(function)


def kernel(max_register: int, dynamic_bytes: int = 0) -> Callable[[Callable[..., None]], Compiled]:
    """Decorator of a kernel whose threads have at most `max_register` registers; 0 leaves it to the compiler.

    Its machine code is cached on disk where a folder can be written. `dynamic_bytes` of shared memory are
    what launches may ask for.
    """
    if simulated():
        return lambda function: _with_shared_memory(_cuda().jit(function), dynamic_bytes)
    jit = _cuda().jit(**({"max_registers": max_register} if max_register else {}))

    def compiled(function: Callable[..., None]) -> Compiled:
        dispatcher = jit(function)
        versions = importlib.metadata.version("numba-cuda"), repr(sorted(dispatcher.targetoptions.items()))
        # Bound at once: at the first launch it would be too late to compile it instead.
        cache.enable(dispatcher, *versions, ready=lambda kernel: kernel.bind())
        return _with_shared_memory(dispatcher, dynamic_bytes)

    return compiled


def _with_shared_memory(dispatcher: Compiled, n_byte: int) -> Compiled:
    """The kernel, launched with so much shared memory beside what it declares."""
    return _WithSharedMemory(dispatcher, n_byte) if n_byte else dispatcher


class _WithSharedMemory:
    """A kernel whose launches ask for more shared memory than a kernel may declare (48 KiB).

    Numba does not tell the driver how much a kernel may ask for (numba-cuda 0.30): each variant is told
    before its first launch.
    """

    def __init__(self, dispatcher: Compiled, n_byte: int) -> None:
        self._dispatcher, self._n_byte = dispatcher, n_byte
        self._told: set[int] = set()

    def __getitem__(self, configuration: tuple[Any, ...]) -> Compiled:
        launched = self._dispatcher[(*configuration, self._n_byte)]
        # Numba keeps the object of a configuration. The simulator has no limit.
        if not simulated() and self._tell not in launched.pre_launch_callbacks:
            launched.pre_launch_callbacks.append(self._tell)
        return launched

    def _tell(self, kernel: Compiled, _configuration: Compiled) -> None:
        function = kernel._codelibrary.get_cufunc()
        number = int(function.handle)
        if number not in self._told:
            driver = importlib.import_module("numba.cuda.cudadrv.driver")
            attribute = driver.binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.driver.cuKernelSetAttribute(attribute, self._n_byte, function.handle, function.device.id)
            self._told.add(number)


class DeviceMemoryError(BackendError):
    """The device has too little free memory for an array; a smaller batch may fit."""


def __getattr__(name: str) -> Module:
    """`device.cuda` is numba.cuda, imported when it is first asked for."""
    if name != "cuda":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _cuda()


def libdevice() -> Module:
    """The device's library of functions of scalars; the simulator has none."""
    return importlib.import_module("numba.cuda.libdevice")


def intrinsic(function: Callable[..., object]) -> Compiled:
    """Decorator of a function that generates its own instructions; the simulator knows none."""
    return importlib.import_module("numba.cuda.extending").intrinsic(function)


def _cuda() -> Module:
    """numba.cuda, without its warnings about kernels that are too small to fill the device.

    `NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS=1` brings the warnings back.
    """
    from numba import config

    if "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS" not in os.environ:
        config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    return importlib.import_module("numba.cuda")


def cupy(name: str) -> Module:
    """The module cupy, or one inside it: `name` begins with a point, or is "x" for cupyx."""
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
        Another word.
    BackendError
        "cuda" where the package or the device is missing; the message says which.
    """
    check.one_of("backend", backend, ("auto", "cpu", "cuda"))
    if backend == "cpu":
        return "cpu", "cpu: as asked"
    reason = _reason_against_cuda()
    if backend == "cuda":
        if reason:
            raise BackendError(f'backend="cuda" cannot be used: {reason}; use backend="cpu"')
        return "cuda", f"cuda: as asked, on {device_name()}"
    if reason:
        return "cpu", f"cpu: {reason}"
    if simulated():
        return "cpu", "cpu: CUDA is simulated here"
    return "cuda", f"cuda: found {device_name()}"


def _reason_against_cuda() -> str | None:
    """The reason why CUDA cannot be used here; None where it can."""
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
        has_device = cuda.is_available() and len(cuda.gpus) > 0
    except Exception as error:  # a broken driver raises its own kinds
        return f"the CUDA driver does not answer ({str(error).splitlines()[0] if str(error) else error!r})"
    return None if has_device else "no CUDA device (or no driver for it) was found"


def _numpy_version() -> tuple[int, int]:
    major, minor = np.__version__.split(".")[:2]
    return int(major), int(minor)


def device_name() -> str:
    """The name of the device."""
    if simulated():
        return "Numba's CUDA simulator"
    cuda = _cuda()
    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


def names() -> list[str]:
    """The names of all devices, by their numbers."""
    if simulated():
        return ["Numba's CUDA simulator"]
    found = [gpu.name for gpu in _cuda().gpus]
    return [name.decode() if isinstance(name, bytes) else str(name) for name in found]


def select(number: int) -> None:
    """Let this thread use the device of this number from now on."""
    _cuda().select_device(number)


def leave_cleanup() -> None:
    """Leave what this thread's device holds to the operating system: the process ends.

    At the end Numba gives back modules of all devices in one thread, where only one device is current: the
    driver crashes (measured: numba-cuda 0.30.4, two devices).
    """
    if simulated():
        return
    deferred = _cuda().defer_cleanup()
    deferred.__enter__()
    _deferred.append(deferred)  # it would end with the last that refers to it


_deferred: list[object] = []


def capability() -> tuple[int, int]:
    """Compute capability of the device; (0, 0) in the simulator."""
    if simulated():
        return 0, 0
    major, minor = _cuda().get_current_device().compute_capability
    return int(major), int(minor)


def shared_bytes() -> int:
    """Shared memory that a block may ask for."""
    if simulated():
        return 48 * 1024
    return int(_cuda().get_current_device().MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)


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
        return _cuda().to_device(host)


def empty(shape: tuple[int, ...], dtype: DTypeLike) -> DeviceArray:
    """A device array of undefined content."""
    with _memory_errors(math.prod(shape) * np.dtype(dtype).itemsize):
        return _cuda().device_array(shape, dtype)


def pinned_copy(value: NDArray[T]) -> NDArray[T]:
    """A copy of an array in page-locked memory of the host, which is transferred fastest."""
    try:
        host: NDArray[T] = _cuda().pinned_array(value.shape, value.dtype)
    except Exception as error:
        raise BackendError(f"the host has no {value.nbytes / 1e6:.0f} MB to pin for streaming") from error
    host[...] = value
    return host


def streams(n: int) -> list[Stream]:
    """Streams of launches and transfers; each waits for the legacy default stream and is waited for by it."""
    return [_cuda().stream() for _ in range(n)]


class Workspace:
    """Scratch arrays on the device, by name; each is used again while it is large enough.

    Their views are remembered, too: to slice or reshape a device array takes as long as a launch.
    `generation` counts how often an array was given back: a recorded call, which
    remembers addresses, compares it.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._arrays: dict[str, DeviceArray] = {}
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
            whole = self._arrays[name][: ends[-1]]
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
        self._arrays.clear()
        self._views.clear()

    def _reserve(self, name: str, size: int, dtype: type) -> None:
        present = self._arrays.get(name)
        if present is not None and present.size >= size and present.dtype == np.dtype(dtype):
            return
        if present is not None:
            self.generation += 1
        del present
        self._arrays.pop(name, None)
        self._views = {key: views for key, views in self._views.items() if key[0] != name}
        with _memory_errors(size * np.dtype(dtype).itemsize):
            self._arrays[name] = _cuda().device_array(size, dtype)


class Recording:
    """A recorded call: upload, launches and download, replayed in one step.

    Parameters
    ----------
    graph : cuda.bindings.driver.CUgraphExec
    stream : stream
    pinned : list of float64
        Pinned host arrays that the graph uploads.
    answer : float64, flat
        Pinned host array that it downloads to.
    read : function
        Makes what the call gives from a copy of the answer.
    keep : object
        Objects that must live as long as the graph.
    """

    def __init__(
        self,
        graph: DriverObject,
        stream: Stream,
        pinned: list[NDArray[np.float64]],
        answer: NDArray[np.float64],
        read: Callable[[NDArray[np.float64]], Answer],
        keep: object,
    ) -> None:
        self._graph, self._stream, self._pinned, self._answer, self._keep = (
            graph,
            stream,
            pinned,
            answer,
            keep,
        )
        self._read = read
        self._handle = int(stream.handle)
        self._launch = _driver().cuGraphLaunch
        weakref.finalize(self, _driver().cuGraphExecDestroy, graph)

    def play(self, values: Sequence[NDArray[np.generic]]) -> Callable[[], Answer]:
        """Start the call with these values; the function returned waits for the answer, and reads it."""
        _attach_thread()
        for into, value in zip(self._pinned, values, strict=True):
            into[...] = value
        _checked(self._launch(self._graph, self._handle))
        return self._finish

    def _finish(self) -> Answer:
        _attach_thread()
        self._stream.synchronize()
        return self._read(self._answer.copy())


_thread = threading.local()


def _attach_thread() -> None:
    """Make the device's context current in this thread, the first time."""
    if not hasattr(_thread, "attached"):
        _cuda().current_context()
        _thread.attached = True


def record(
    workspace: Workspace, values: Sequence[NDArray[np.generic]], launch: Launch,
    read: Callable[[NDArray[np.float64]], Answer],
) -> Recording | None:  # fmt: skip
    """Record a call: `launch` gets the values on the device and the stream, and gives the answer there.

    `read` makes what the call gives from the flat answer. All kernels must have been compiled before.
    None where the call cannot be recorded.
    """
    if simulated():
        return None
    if _driver() is None:
        return None
    try:
        return _record(workspace, values, launch, read)
    except DeviceMemoryError:
        raise
    except Exception as error:  # of the driver; the call works without a recording
        log.info("calls are not recorded: %s", error)
        return None


def _record(
    workspace: Workspace, values: Sequence[NDArray[np.generic]], launch: Launch,
    read: Callable[[NDArray[np.float64]], Answer],
) -> Recording:  # fmt: skip
    cuda, driver = _cuda(), _driver()
    stream = cuda.stream()
    ends = np.cumsum([value.size for value in values]).tolist()
    host, on_device = cuda.pinned_array(ends[-1], np.float64), empty((ends[-1],), np.float64)
    pieces = list(zip([0, *ends[:-1]], ends, (value.shape for value in values), strict=True))
    pinned, arrays = (
        [whole[first:end].reshape(shape) for first, end, shape in pieces] for whole in (host, on_device)
    )
    # Kernels take some of the numbers for indices: what memory happens to hold would lead anywhere.
    for into, value in zip(pinned, values, strict=True):
        into[...] = value
    on_device.copy_to_device(host, stream=stream)
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
    return Recording(executable, stream, pinned, answer, read, (workspace, host, on_device, arrays))


def _driver() -> Module:
    """The CUDA driver's functions, from NVIDIA's package cuda.bindings; None where it is not installed."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError:
        return None


def _checked(result: tuple[DriverObject, ...]) -> DriverObject:
    """The value of a call of the driver, after a check of its status."""
    status, *value = result
    if int(status) != 0:
        raise BackendError(f"the CUDA driver said {status.name}")
    return value[0] if value else None
