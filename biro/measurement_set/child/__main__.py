"""The child process that runs casacore: started by `biro.measurement_set.process`, imported by nobody."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from collections.abc import Callable, Iterator
from typing import Any

from biro.files.child_messages import Link, RefusalError
from biro.measurement_set.child.create import Creator
from biro.measurement_set.child.read import Reader
from biro.measurement_set.child.write import Writer

Operation = Callable[..., Any]


def _operations(link: Link) -> Iterator[tuple[str, Operation]]:
    """Every operation by name."""
    reader = Reader(link)
    yield from ((name, getattr(reader, name)) for name in ("open", "metadata", "index", "read"))
    writer = Writer(link)
    names: tuple[str, ...] = ("prepare", "begin", "write", "values", "finish")
    yield from ((name, getattr(writer, name)) for name in names)
    creator = Creator(link)
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
        except RefusalError as error:
            link.send({"error": str(error)})
        except RuntimeError as error:  # casacore's only kind
            text = " ".join(str(error).split())
            link.send({"error": f"broken off while {link.doing}: casacore says: {text}"})
        except OSError as error:
            link.send({"error": f"broken off while {link.doing}: {error}"})
        except MemoryError:
            link.send({"error": f"broken off while {link.doing}: there is not enough memory"})


if __name__ == "__main__":
    main()
