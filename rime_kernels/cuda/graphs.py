"""CUDA graphs of calls: the second call of a kind is captured, and later ones launch the graph."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, Stream

T = TypeVar("T")

# Kinds of call (sizes of batch) whose graphs are kept.
_MAX_GRAPH = 64


class OnceCalled(Generic[T]):
    """What a function gives, or its error: it is called when first asked, and that is kept for later.

    A second thread that asks meanwhile waits for it.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._found: T

    def __call__(self) -> T:
        with self._lock:
            if self._function is not None:
                try:
                    self._found = self._function()
                except Exception as error:
                    self._error = error
                self._function = None
        if self._error is not None:
            raise self._error
        return self._found

    def settle(self) -> None:
        """Have the function called; an error is for those who ask for what it gives."""
        with contextlib.suppress(Exception):
            self()


class Capturable(NamedTuple):
    """Work that `device.capture` can make one CUDA graph of: what it launches, and how its answer is read.

    Work that is `streamed` waits for data from the host, so its graph is launched in turn with others.
    """

    launch: Callable[[list[DeviceArray], Stream], DeviceArray]
    read: Callable[[NDArray[np.float64]], Any]
    streamed: bool


class CudaGraphs:
    """CUDA graphs by the kind of their call, as long as the workspace has the arrays they hold."""

    def __init__(self, workspace: device.Workspace) -> None:
        self._workspace, self._generation = workspace, workspace.generation
        self._made: dict[Any, device.CudaGraph | None] = {}
        self._may_capture = True

    def get(self, key: Any) -> device.CudaGraph | None:
        """The graph of such calls; None where none has been captured."""
        self._forget_the_stale()
        return self._made.get(key)

    def make(self, key: Any, values: Sequence[NDArray[Any]], work: Capturable) -> device.CudaGraph | None:
        """The graph of a call with these values; None for the first call of a kind, or
        where capture fails.
        """
        graph = None
        if key in self._made and self._may_capture:
            try:
                graph = device.capture(self._workspace, values, work.launch, work.read, in_turn=work.streamed)
            except device.DeviceMemoryError:
                return None
            self._may_capture = graph is not None  # where it did not work once, it is not tried again
            self._forget_the_stale()  # arrays may have grown on the way
        while len(self._made) >= _MAX_GRAPH and key not in self._made:
            self._made.pop(next(iter(self._made)))
        self._made[key] = graph
        return graph

    def clear(self) -> None:
        """Forget all."""
        self._made.clear()

    def _forget_the_stale(self) -> None:
        if self._generation != self._workspace.generation:
            self._made = dict.fromkeys(self._made)
            self._generation = self._workspace.generation
