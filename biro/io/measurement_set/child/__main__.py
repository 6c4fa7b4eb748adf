"""The child process in which casacore runs; `biro.io.measurement_set.process` starts it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
from collections.abc import Callable, Iterator

from biro.files.child_messages import ParentConnection, RefusalError
from biro.io.measurement_set.child.components import ComponentReader
from biro.io.measurement_set.child.create import Creator
from biro.io.measurement_set.child.flag_writer import FlagWriter
from biro.io.measurement_set.child.gains import GainReader, GainWriter
from biro.io.measurement_set.child.read import Reader
from biro.io.measurement_set.child.weight_writer import WeightWriter
from biro.io.measurement_set.child.write import Writer

READS = "open", "metadata", "index", "read", "find_signal", "weights_there", "weights_belong"
Operation = Callable[..., None]
"""Its arguments are those of the message that asks for it."""


def _operations(parent: ParentConnection) -> Iterator[tuple[str, Operation]]:
    """Every operation by the name that messages give it."""
    reader = Reader(parent)
    yield from ((name, getattr(reader, name)) for name in READS)
    yield "components", ComponentReader(parent).components
    yield "gains", GainReader(parent).gains
    writer = Writer(parent)
    names: tuple[str, ...] = (
        "prepare",
        "begin",
        "select",
        "write",
        "finish",
        "pause",
        "resume",
        "join",
        "leave",
    )
    yield from ((name, getattr(writer, name)) for name in names)
    weight_writer = WeightWriter(parent)
    names = ("prepare", "begin", "select", "write", "finish")
    yield from ((f"{name}_weights", getattr(weight_writer, name)) for name in names)
    gain_writer = GainWriter(parent)
    names = ("create_gains", "fill_gains", "close_gains")
    yield from ((name, getattr(gain_writer, name)) for name in names)
    flag_writer = FlagWriter(parent)
    names = ("prepare_flags", "begin_flags", "select_flags", "write_flags", "finish_flags", "undo_flags")
    yield from ((name, getattr(flag_writer, name)) for name in names)
    creator = Creator(parent)
    names = ("create", "open_new", "fill", "select_rows", "fill_cells", "close_new")
    yield from ((name, getattr(creator, name)) for name in names)


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent dies, even while the library waits (Linux only)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 = PR_SET_PDEATHSIG


def main() -> None:
    """Answer requests until the parent is gone.

    What changes a set ends with an operation that closes it. A set that is still open when the parent is gone
    belongs to work that was broken off: the child leaves without casacore's own closing, which would empty
    the header of a tiled column and fill it again while the kernel, or the parent, may kill the child.
    """
    _die_with_parent()
    parent = ParentConnection()
    operations = dict(_operations(parent))
    with contextlib.suppress(EOFError, BrokenPipeError):
        parent.send({"ready": True})
        while True:
            _answer(parent, operations)
    os._exit(0)


def _answer(parent: ParentConnection, operations: dict[str, Operation]) -> None:
    """Carry out one request, or say why it cannot be."""
    header, array = parent.receive()
    operation = operations[header.pop("operation")]
    try:
        operation(**header) if array is None else operation(array=array, **header)
    except BrokenPipeError:
        raise
    except RefusalError as error:
        parent.send({"error": str(error)})
    except RuntimeError as error:  # casacore's only kind
        text = _plain(" ".join(str(error).split()))
        parent.send({"error": f"broken off while {parent.activity}: {text}"})
    except OSError as error:
        parent.send({"error": f"broken off while {parent.activity}: {error.strerror or error}"})
    except UnicodeDecodeError as error:
        why = f"a text there is not in UTF-8 ({error}): the file is damaged, or a name is in another encoding"
        parent.send({"error": f"broken off while {parent.activity}: {why}"})
    except MemoryError:
        parent.send({"error": f"broken off while {parent.activity}: there is not enough memory"})


def _plain(text: str) -> str:
    """What casacore says; where its words mislead, what has happened."""
    found = re.search(r"FiledesIO::write - (.+) is not writable", text)
    if found:  # it makes a file that is shorter than its header says longer, whatever it was opened for
        return f"{found[1]} is cut short or damaged: it is shorter than its header says"
    found = re.search(r"Table (\S.*) does not exist", text)
    if found:
        return _not_a_table(found[1])
    found = re.search(r"access to non-existing row \d+ in column (\S+) of table (.+)", text)
    if found:
        return f"the table {found[2]} has fewer rows of {found[1]} than it should"
    if "mismatch in #row" in text:
        return f"table.lock, which has the number of rows, is missing or damaged; casacore says: {text}"
    short = "a file is cut short or damaged; " if "incorrect number of bytes read" in text else ""
    return f"{short}casacore says: {text}"


def _not_a_table(path: str) -> str:
    """Why casacore sees no table at a path."""
    place = os.path.join(path, "table.dat")
    if not os.path.isdir(path):
        return f"there is no folder {path}; copy it from the set that this one was copied from"
    try:
        size = os.path.getsize(place)
    except OSError:
        return f"there is no {place}"
    what = "is no table.dat of casacore" if size else "is empty"
    return f"{place} {what}; copy the set again, or restore that file from a backup"


if __name__ == "__main__":
    main()
