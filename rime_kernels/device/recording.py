"""Streams, and calls on them that are recorded once and played."""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.types import DeviceArray, DriverObject, Stream
from rime_kernels.device import packages
from rime_kernels.device.memory import DeviceMemoryError, Workspace, empty
from rime_kernels.errors import BackendError

log = logging.getLogger(__name__)

# What a recorded call gives; the caller knows: chi2, or chi2 with its derivatives.
Answer: TypeAlias = Any
# Launches kernels for parameters on the device, on a stream; gives the answer on the device.
Launch = Callable[[list[DeviceArray], Stream], DeviceArray]

# Recordings at work on a device at once, of those that take turns: while one waits, another transfers.
_N_TURN = 2


def streams(n: int) -> list[Stream]:
    """Streams of launches and transfers; each waits for the legacy default stream and is waited for by it."""
    return [packages.cuda().stream() for _ in range(n)]


@contextmanager
def forked(main: Stream, streams: Sequence[Stream]) -> Iterator[None]:
    """Within, what is queued on streams begins once `main` has come here; `main` then waits for all of it.

    The legacy default stream, 0, and streams wait for each other without it.
    """
    others = [] if main == 0 else [stream for stream in streams if stream is not main and stream != 0]
    _queue_wait(main, others)
    try:
        yield
    finally:
        for stream in others:
            _queue_wait(stream, [main])


def _queue_wait(before: Stream, after: Sequence[Stream]) -> None:
    """Let streams wait until all that is queued on `before` is done."""
    if not after:
        return
    event = packages.cuda().event(timing=False)
    event.record(before)
    for stream in after:
        event.wait(stream)


class Recording:
    """A recorded call: upload, launches and download, replayed in one step.

    Parameters
    ----------
    graph : cuda.bindings.driver.CUgraphExec
    stream : stream
        Of the recording alone.
    turn : int or None
        Handle of the stream that plays it, where that is another one.
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
        turn: int | None,
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
        driver, own = packages.driver(), int(stream.handle)
        self._handle = own if turn is None else turn
        # Not by way of Numba's wrappers, which take longer than to read the answer.
        self._launch, self._wait = driver.cuGraphLaunch, driver.cuStreamSynchronize
        weakref.finalize(self, _destroy, driver, graph, own)

    def play(self, values: Sequence[NDArray[np.generic]]) -> Callable[[], Answer]:
        """Start the call with these values; the function returned waits for the answer, and reads it."""
        attach_thread()
        for into, value in zip(self._pinned, values, strict=True):
            into[...] = value
        _checked(self._launch(self._graph, self._handle))
        return self._finish

    def _finish(self) -> Answer:
        attach_thread()
        _checked(self._wait(self._handle))
        return self._read(self._answer.copy())


def _destroy(driver: DriverObject, graph: DriverObject, stream: int) -> None:
    driver.cuGraphExecDestroy(graph)
    driver.cuStreamDestroy(stream)


_thread = threading.local()


def attach_thread() -> None:
    """Make the device's context current in this thread, the first time."""
    if not hasattr(_thread, "attached"):
        packages.cuda().current_context()
        _thread.attached = True


@contextmanager
def at(number: int) -> Iterator[None]:
    """Within, the device of this number is the current one of this thread; then the one before is again."""
    if packages.simulated():
        yield
        return
    was_attached = hasattr(_thread, "attached")
    with packages.cuda().gpus[number]:
        _thread.attached = True
        try:
            yield
        finally:
            if not was_attached:  # to the device of this thread, which may have none yet
                del _thread.attached


def record(
    workspace: Workspace, values: Sequence[NDArray[np.generic]], launch: Launch,
    read: Callable[[NDArray[np.float64]], Answer], *, in_turn: bool,
) -> Recording | None:  # fmt: skip
    """Record a call: `launch` gets the values on the device and the stream, and gives the answer there.

    Recordings of a device that are played `in_turn` wait for each other, so that no more than two are at
    work: those that wait for transfers, of which the bus does one at a time.

    The stream has the highest priority. Short kernels belong on it, and long ones on others: where several
    calls are at work on a device, short ones then need not wait for the blocks of other calls' long ones.

    `read` makes what the call gives from the flat answer. All kernels must have been compiled before.
    None where the call cannot be recorded.
    """
    if packages.simulated():
        return None
    if packages.driver() is None:
        return None
    try:
        return _record(workspace, values, launch, read, in_turn=in_turn)
    except DeviceMemoryError:
        raise
    except Exception as error:  # of the driver; the call works without a recording
        log.info("calls are not recorded: %s", error)
        return None


def _record(
    workspace: Workspace, values: Sequence[NDArray[np.generic]], launch: Launch,
    read: Callable[[NDArray[np.float64]], Answer], *, in_turn: bool,
) -> Recording:  # fmt: skip
    driver = packages.driver()
    _, highest = _checked(driver.cuCtxGetStreamPriorityRange())
    handle = int(_checked(driver.cuStreamCreateWithPriority(0, highest)))
    try:
        return _record_on(handle, _next_turn() if in_turn else None, workspace, values, launch, read)
    except BaseException:
        driver.cuStreamDestroy(handle)
        raise


def _next_turn() -> int:
    """The stream that plays the next recording of this device that is played in turn."""
    number = packages.cuda().current_context().device.id
    with _turns_lock:
        if number not in _turns:
            driver = packages.driver()
            made = [int(_checked(driver.cuStreamCreateWithPriority(0, 0))) for _ in range(_N_TURN)]
            _turns[number] = itertools.cycle(made)
        return next(_turns[number])


_turns: dict[int, Iterator[int]] = {}
_turns_lock = threading.Lock()


def _record_on(
    handle: int, turn: int | None, workspace: Workspace, values: Sequence[NDArray[np.generic]],
    launch: Launch, read: Callable[[NDArray[np.float64]], Answer],
) -> Recording:  # fmt: skip
    """The same on a stream of this handle, which belongs to the recording."""
    cuda, driver = packages.cuda(), packages.driver()
    stream = cuda.external_stream(handle)
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
    _checked(driver.cuStreamBeginCapture(handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    try:
        on_device.copy_to_device(host, stream=stream)
        launch(arrays, stream).copy_to_host(answer, stream=stream)
    finally:
        graph = _checked(driver.cuStreamEndCapture(handle))
    try:
        flags = driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
        executable = _checked(driver.cuGraphInstantiate(graph, int(flags)))
    finally:
        driver.cuGraphDestroy(graph)
    return Recording(executable, stream, turn, pinned, answer, read, (workspace, host, on_device, arrays))


def _checked(result: tuple[DriverObject, ...]) -> DriverObject:
    """The value of a call of the driver, or the values, after a check of its status."""
    status, *value = result
    if int(status) != 0:
        raise BackendError(f"the CUDA driver said {status.name}")
    return value[0] if len(value) == 1 else value or None
