"""The child process that runs casacore. Started by `biro._ms_process`; not for import elsewhere."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from biro._ms_wire import Head, pack, unpack


class Refusal(Exception):
    """Something the user can mend: its text is what they will read."""


class Link:
    """Our end of the two pipes."""

    def __init__(self) -> None:
        self._input = os.dup(0)
        self._output = os.dup(1)
        os.dup2(2, 1)  # what the library prints goes to the log, not among the messages

    def send(self, head: Head, array: NDArray[Any] | None = None) -> None:
        for part in pack(head, array):
            while part:
                part = part[os.write(self._output, part) :]

    def step(self, what: str) -> None:
        """Tell what comes next, so that a crash or a lock can be named; renews the time limit."""
        self.send({"step": what})

    def receive(self) -> tuple[Head, NDArray[Any] | None]:
        return unpack(self._fill)

    def _fill(self, buffer: memoryview) -> None:
        while buffer:
            got = os.readv(self._input, [buffer])
            if not got:
                raise EOFError
            buffer = buffer[got:]


Operation = Callable[..., Any]


def _operations(link: Link) -> Iterator[tuple[str, Operation]]:
    """Every operation by name; modules are loaded when they are first asked for."""
    from biro import _ms_child_create, _ms_child_read, _ms_child_write

    reader = _ms_child_read.Reader(link)
    yield from ((name, getattr(reader, name)) for name in ("open", "metadata", "index", "read"))
    writer = _ms_child_write.Writer(link)
    yield from ((name, getattr(writer, name)) for name in ("prepare", "write", "values", "finish"))
    creator = _ms_child_create.Creator(link)
    names = ("create", "fill", "place", "fill_cells", "close_new")
    yield from ((name, getattr(creator, name)) for name in names)


def _die_with_parent() -> None:
    """Have the kernel end us when the parent dies, even while the library waits; Linux alone has this."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 = PR_SET_PDEATHSIG


def main() -> None:
    """Answer requests until the input ends."""
    _die_with_parent()
    link = Link()
    operations = dict(_operations(link))
    link.send({"ready": True})
    while True:
        try:
            head, array = link.receive()
        except EOFError:
            return
        operation = operations[head.pop("operation")]
        try:
            operation(**head) if array is None else operation(array=array, **head)
        except BrokenPipeError:
            return
        except Refusal as error:
            link.send({"error": str(error)})
        except RuntimeError as error:  # casacore's only kind
            link.send({"error": "casacore: " + " ".join(str(error).split())})


if __name__ == "__main__":
    main()
