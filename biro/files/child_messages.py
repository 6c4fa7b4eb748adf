"""Messages between this process and child processes that hold casacore or HDF5.

A message is: 4 bytes (length of the header), the header in JSON, and the bytes of one array if the header
says {"array": [dtype, shape]}. Nothing is pickled, because a file that a child reads may have taken over the
child, and unpickling what it sends would let it run commands here.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.files.json_value import JsonValue

Header = dict[str, JsonValue]


def pack(header: Header, array: NDArray[np.generic] | None = None) -> list[memoryview]:
    """The byte buffers of a message, the array's own memory among them (not copied).

    Parameters
    ----------
    header : dict
        Values that JSON can hold.
    array : any shape and dtype, optional
    """
    buffers = []
    if array is not None:
        array = np.ascontiguousarray(array)
        header = {**header, "array": [array.dtype.str, array.shape]}
        if array.size:
            buffers.append(array.data.cast("B"))
    text = json.dumps(header).encode()
    return [memoryview(struct.pack("<I", len(text)) + text), *buffers]


def unpack(fill: Callable[[memoryview], None]) -> tuple[Header, NDArray[np.generic] | None]:
    """Read one message.

    Parameters
    ----------
    fill : function of a buffer
        Fills the buffer with the next bytes, or raises.

    Returns
    -------
    header : dict
    array : of the shape and dtype that the header gave, or None
    """
    size = bytearray(4)
    fill(memoryview(size))
    text = bytearray(struct.unpack("<I", size)[0])
    fill(memoryview(text))
    header = json.loads(text)
    if "array" not in header:
        return header, None
    dtype, shape = header.pop("array")
    array: NDArray[np.generic] = np.empty(shape, np.dtype(dtype))
    if array.size:
        fill(array.data.cast("B"))
    return header, array


def child_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of this package in a new Python."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """The environment of a child process, in which it finds this very package."""
    root = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    # casacore opens nothing without a home, which batch systems and services do not always set.
    home = {} if os.environ.get("HOME") else {"HOME": tempfile.gettempdir()}
    return {**os.environ, **home, "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}


class RefusalError(Exception):
    """Something that the user can mend; its text is what the user will read."""


class ParentConnection:
    """The child's end of the two pipes to its parent.

    Attributes
    ----------
    activity : str
        What the child does, as reported last.
    """

    def __init__(self) -> None:
        self._input = os.dup(0)
        self._output = os.dup(1)
        self.activity = "starting"
        os.dup2(2, 1)  # what the library prints goes to the log, not among the messages

    def send(self, header: Header, array: NDArray[np.generic] | None = None) -> None:
        """Send one message; waits until the parent has taken it."""
        for buffer in pack(header, array):
            while buffer:
                buffer = buffer[os.write(self._output, buffer) :]

    def report(self, activity: str) -> None:
        """Tell what comes next, so that a crash or a lock can be named; renews the parent's time limit."""
        self.activity = activity
        self.send({"activity": activity})

    def receive(self) -> tuple[Header, NDArray[np.generic] | None]:
        """The next message.

        Raises
        ------
        EOFError
            The parent has closed its end.
        """
        return unpack(self._fill)

    def _fill(self, buffer: memoryview) -> None:
        while buffer:
            n_read = os.readv(self._input, [buffer])
            if not n_read:
                raise EOFError
            buffer = buffer[n_read:]
