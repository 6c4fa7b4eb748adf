"""Messages from and to children that hold casacore or HDF5: a JSON head, then raw array bytes.

A message is: 4 bytes (length of the head), the head in JSON, and the bytes of one array where the
head says {"array": [dtype, shape]}. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Head = dict[str, Any]


def pack(head: Head, array: NDArray[Any] | None = None) -> list[memoryview]:
    """The byte buffers of a message, the array's own memory among them (not copied)."""
    parts = []
    if array is not None:
        array = np.ascontiguousarray(array)
        head = {**head, "array": [array.dtype.str, array.shape]}
        if array.size:
            parts.append(array.data.cast("B"))
    text = json.dumps(head).encode()
    return [memoryview(struct.pack("<I", len(text)) + text), *parts]


def unpack(fill: Callable[[memoryview], None]) -> tuple[Head, NDArray[Any] | None]:
    """Read one message with `fill`, which fills a buffer or raises."""
    size = bytearray(4)
    fill(memoryview(size))
    text = bytearray(struct.unpack("<I", size)[0])
    fill(memoryview(text))
    head = json.loads(text)
    if "array" not in head:
        return head, None
    dtype, shape = head.pop("array")
    array = np.empty(shape, np.dtype(dtype))
    if array.size:
        fill(array.data.cast("B"))
    return head, array


class RefusalError(Exception):
    """Something the user can mend: its text is what they will read."""


class Link:
    """The child's end of the two pipes."""

    def __init__(self) -> None:
        self._input = os.dup(0)
        self._output = os.dup(1)
        self.doing = "starting"
        os.dup2(2, 1)  # what the library prints goes to the log, not among the messages

    def send(self, head: Head, array: NDArray[Any] | None = None) -> None:
        for part in pack(head, array):
            while part:
                part = part[os.write(self._output, part) :]

    def step(self, what: str) -> None:
        """Tell what comes next, so that a crash or a lock can be named; renews the time limit."""
        self.doing = what
        self.send({"step": what})

    def receive(self) -> tuple[Head, NDArray[Any] | None]:
        return unpack(self._fill)

    def _fill(self, buffer: memoryview) -> None:
        while buffer:
            got = os.readv(self._input, [buffer])
            if not got:
                raise EOFError
            buffer = buffer[got:]
