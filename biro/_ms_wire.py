"""Messages between this process and the child that holds casacore: a JSON head, then raw array bytes.

A message is: 4 bytes (length of the head), the head in JSON, and the bytes of one array where the
head says {"array": [dtype, shape]}. Nothing is pickled.
"""

from __future__ import annotations

import json
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
            parts.append(memoryview(array).cast("B"))
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
        fill(memoryview(array).cast("B"))
    return head, array
