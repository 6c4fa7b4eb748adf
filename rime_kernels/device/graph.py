"""Streams, and CUDA graphs: calls that are captured once and launched again in one step."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.types import DeviceArray, DriverObject, Module, Stream
from rime_kernels.device import packages
from rime_kernels.device.memory import DeviceMemoryError, Workspace, empty

log = logging.getLogger(__name__)

# What a captured call gives; the caller knows: chi2, or chi2 with its derivatives.
Answer: TypeAlias = Any
# Launches kernels for parameters on the device, on a stream; gives the answer on the device.
Launch = Callable[[list[DeviceArray], Stream], DeviceArray]

# Graphs at work on a device at once, of those that take turns: while one waits, another transfers.
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


class CudaGraph:
    """A captured call: upload, launches and download, launched again in one step.

    Parameters
    ----------
    graph : cuda.core.graph.Graph
    stream : cuda.core.Stream
        The stream of this graph alone.
    turn : cuda.core.Stream or None
        The stream that the graph is launched on, where that is another one.
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
        stream: DriverObject,
        turn: DriverObject | None,
        pinned: list[NDArray[np.float64]],
        answer: NDArray[np.float64],
        read: Callable[[NDArray[np.float64]], Answer],
        keep: object,
    ) -> None:
        self._graph, self._pinned, self._answer, self._read = graph, pinned, answer, read
        self._queue, self._keep = stream if turn is None else turn, (stream, keep)

    def launch(self, values: Sequence[NDArray[np.generic]]) -> Callable[[], Answer]:
        """Start the call with these values; the function returned waits for the answer, and reads it."""
        attach_thread()
        for into, value in zip(self._pinned, values, strict=True):
            into[...] = value
        self._graph.launch(self._queue)
        return self._finish

    def _finish(self) -> Answer:
        attach_thread()
        self._queue.sync()
        return self._read(self._answer.copy())


_thread = threading.local()


def attach_thread() -> None:
    """Make the device's context current in this thread, the first time."""
    if not hasattr(_thread, "attached"):
        packages.cuda().current_context()
        _thread.attached = True


@contextmanager
def selected(number: int) -> Iterator[None]:
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


def capture(
    workspace: Workspace, values: Sequence[NDArray[np.generic]], launch: Launch,
    read: Callable[[NDArray[np.float64]], Answer], *, in_turn: bool,
) -> CudaGraph | None:  # fmt: skip
    """Capture a call: `launch` gets the values on the device and the stream, and gives the answer there.

    Graphs of a device that are launched `in_turn` wait for each other, so that no more than two are at
    work: those that wait for transfers, of which the bus does one at a time.

    The stream has the highest priority. Short kernels belong on it, and long ones on others: where several
    calls are at work on a device, short ones then need not wait for the blocks of other calls' long ones.

    `read` makes what the call gives from the flat answer. All kernels must have been compiled before.
    None where the call cannot be captured.
    """
    if packages.simulated():
        return None
    if packages.core() is None:
        return None
    try:
        _, _, highest = packages.driver().cuCtxGetStreamPriorityRange()
        turn = _next_turn() if in_turn else None
        return _capture_on(_make_stream(int(highest)), turn, workspace, values, launch, read)
    except DeviceMemoryError:
        raise
    except Exception as error:  # of the driver; the call works without a graph
        log.info("calls are not captured as CUDA graphs: %s", error)
        return None


def _make_stream(priority: int) -> DriverObject:
    """A stream of cuda.core; it waits for the legacy default stream and is waited for by it."""
    core = packages.core()
    device = core.Device()
    device.set_current()
    return device.create_stream(options=core.StreamOptions(nonblocking=False, priority=priority))


def _next_turn() -> DriverObject:
    """The stream that the next graph of this device is launched on, of those launched in turn."""
    number = packages.cuda().current_context().device.id
    with _turns_lock:
        if number not in _turns:
            _turns[number] = itertools.cycle([_make_stream(0) for _ in range(_N_TURN)])
        return next(_turns[number])


_turns: dict[int, Iterator[DriverObject]] = {}
_turns_lock = threading.Lock()


def _capture_on(
    own: DriverObject, turn: DriverObject | None, workspace: Workspace,
    values: Sequence[NDArray[np.generic]], launch: Launch, read: Callable[[NDArray[np.float64]], Answer],
) -> CudaGraph:  # fmt: skip
    """Capture a call on a stream of cuda.core, which belongs to the graph."""
    cuda, core = packages.cuda(), packages.core()
    stream = cuda.external_stream(int(own.handle))  # of numba.cuda, which launches and copies
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
    builder = own.create_graph_builder().begin_building("relaxed")
    try:
        on_device.copy_to_device(host, stream=stream)
        launch(arrays, stream).copy_to_host(answer, stream=stream)
    finally:
        builder.end_building()
    options: Module = getattr(core, "graph", core)  # a module of its own from cuda.core 1.0 on
    graph = builder.complete(options.GraphCompleteOptions(use_node_priority=True))
    keep = workspace, host, on_device, arrays
    return CudaGraph(graph, own, turn, pinned, answer, read, keep)
