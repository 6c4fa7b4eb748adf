"""What a command finds about it: its streams, which may fail, and variables that other packages read."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Mapping
from typing import TextIO

MOST_THREADS = 1024
"""Threads that Numba may be given."""
LAYERS = ("default", "safe", "forksafe", "threadsafe", "tbb", "omp", "workqueue")
"""Threading layers that Numba knows."""
_POOLS = {"tbb": "numba.np.ufunc.tbbpool", "omp": "numba.np.ufunc.omppool"}


class _Lasting(io.RawIOBase):
    """Writes to a descriptor; after a failure what is written is lost, and the program goes on.

    Attributes
    ----------
    failure : OSError or None
        The first one.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: object) -> int | None:
        view = memoryview(data)  # type: ignore[arg-type]  # any buffer, as io.RawIOBase says
        try:
            return os.write(self._descriptor, view)
        except BlockingIOError:
            return None
        except OSError as error:
            self.failure = self.failure or error
            return len(view)


class Streams:
    """Put streams in the place of stdout and stderr that never end a program.

    A fit of hours is not to be lost because a terminal was closed or the disk of a log is full. A descriptor
    that is closed from the start leads nowhere, so that no file that is opened later gets its number.
    """

    def __init__(self) -> None:
        for descriptor in (0, 1, 2):
            try:
                os.fstat(descriptor)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        self._out = _Lasting(1)
        sys.stdout = _text(self._out, sys.stdout)
        sys.stderr = _text(_Lasting(2), sys.stderr)

    def lost(self) -> OSError | None:
        """Why what was printed on stdout did not arrive; None where it did."""
        sys.stdout.flush()
        return self._out.failure


def _text(raw: _Lasting, like: TextIO | None) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding if like is not None else "utf-8",
        errors=like.errors if like is not None else "backslashreplace",
        line_buffering=True,
    )


def problem_of_variables(variables: Mapping[str, str]) -> str | None:
    """One line about a variable that Numba or Matplotlib would refuse, or None.

    Parameters
    ----------
    variables : mapping
        As `os.environ`.
    """
    threads = variables.get("NUMBA_NUM_THREADS", "1")
    if not (threads.isascii() and threads.isdigit() and 1 <= int(threads[:9]) <= MOST_THREADS):
        return (
            f"the variable NUMBA_NUM_THREADS must be a whole number from 1 to {MOST_THREADS}, got "
            f"{threads[:20]!r}; unset it for a thread on each core"
        )
    if variables.get("NUMBA_DISABLE_JIT", "0").strip() not in ("", "0"):
        return "the variable NUMBA_DISABLE_JIT is set, but biro needs compiled code; unset it"
    layer, name = variables.get("NUMBA_THREADING_LAYER", "default"), "the variable NUMBA_THREADING_LAYER"
    if layer not in LAYERS:
        return f"{name} must be one of {', '.join(LAYERS)}, got {layer!r}; or unset it"
    if not _is_installed(layer):
        return f"{name} is {layer}, which is not installed; install it, or unset the variable"
    priority = variables.get("NUMBA_THREADING_LAYER_PRIORITY")
    if priority is not None and sorted(priority.split()) != ["omp", "tbb", "workqueue"]:
        return (
            "the variable NUMBA_THREADING_LAYER_PRIORITY must be tbb, omp and workqueue in some order, "
            f"got {priority!r}; or unset it"
        )
    return None


def _is_installed(layer: str) -> bool:
    if layer not in _POOLS:
        return True
    try:
        importlib.import_module(_POOLS[layer])
    except ImportError:
        return False
    return True


def plain_pictures() -> None:
    """Draw as Matplotlib does by default, whatever a matplotlibrc of the user or the working directory says.

    With `text.usetex`, nothing can be drawn where there is no LaTeX, and no name that has an underscore.
    """
    import matplotlib

    matplotlib.rcdefaults()
