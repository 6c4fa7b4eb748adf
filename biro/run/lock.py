"""The lock of a run directory: one process at a time, and a second one is told which."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path

from biro.errors import RunError

log = logging.getLogger(__name__)


class RunLock:
    """A kernel lock on a file that names its holder; it ends with the process, however that ends.

    Where the file system has no locks, a warning says so and the run begins without one.

    Parameters
    ----------
    path : Path
        The file, in the run directory; made when missing.

    Raises
    ------
    RunError
        Another process holds it, or the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunError(f"{path.parent} cannot be locked: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 1000).decode(errors="replace").strip() or "another process"
            os.close(self._file)
            raise RunError(
                f"{path.parent} is in use by {holder}; wait for it or give another directory"
            ) from None
        except OSError as error:
            log.warning(
                "%s: this file system has no locks (%s); start only one run at a time in this directory",
                path.parent,
                error.strerror,
            )
        self._write_holder(f"process {os.getpid()} on {socket.gethostname()}\n")

    def release(self) -> None:
        """Give the lock up; the file stays, empty."""
        self._write_holder("")
        os.close(self._file)

    def _write_holder(self, holder: str) -> None:
        with suppress(OSError):  # on a full disk the lock holds, but does not name its holder
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, holder.encode(), 0)


def holder_is_gone(path: Path) -> bool:
    """Whether the process that had the lock of a file has ended; False where that cannot be told.

    Parameters
    ----------
    path : Path
        As of `RunLock`.
    """
    try:
        words = path.read_text(encoding="utf-8", errors="replace").split()
        if words[:1] == ["process"] and len(words) == 4:
            if words[3] != socket.gethostname() or not words[1].isdecimal():
                return False
            os.kill(int(words[1]), 0)
            return False
        return not words and _is_free(path)  # given up, or never named on a full disk
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False


def _is_free(path: Path) -> bool:
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return True
