"""Copies of the small files that casacore rewrites in place, so that no moment of a write can lose a set.

casacore replaces table.dat by a rename, but empties the header of a tiled column (table.f9) and table.info
before it fills them again. A process that is killed in between, or meets the end of the disk, leaves an empty
header, with which the whole set cannot be opened. The child that writes keeps copies while it does; whoever
comes next puts back what is broken.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import struct
from pathlib import Path
from typing import IO

log = logging.getLogger(__name__)

FOLDER = ".biro_kept"
INFO = "table.info"
MAGIC = b"\xbe\xbe\xbe\xbe"


class Kept:
    """The copies, held by a lock as long as this process lives.

    Parameters
    ----------
    path : path of the Measurement Set
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._set = Path(path)
        self._folder = self._set / FOLDER
        self._folder.mkdir(exist_ok=True)
        self._lock = open(self._folder / "lock", "a")  # noqa: SIM115 (held until the end)
        with contextlib.suppress(OSError):  # where there are no locks, casacore's own must do
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def keep(self, name: str) -> None:
        """Copy a file as it is now, if it is there."""
        if not (self._set / name).is_file():
            return
        draft = self._folder / "draft"
        shutil.copy2(self._set / name, draft)
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        draft.rename(self._folder / name)

    def drop(self) -> None:
        """Everything is written: the copies are of no use any more."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()


def put_back(path: Path, *, wait: bool = False) -> list[str]:
    """Put back what a process that is gone has left broken; the names of these files.

    Nothing is done to files that are whole. While that process lives nothing is done at all, or this waits
    for its end: whoever opens a set for writing must, or casacore would take a header that is just empty for
    what the set has, and write that.

    Raises
    ------
    OSError
        Something is broken, but this user may not mend it.
    """
    folder = path / FOLDER
    while True:
        try:
            lock = open(folder / "lock", "rb")  # noqa: SIM115
        except OSError:
            return []
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                return []
            if not _is_there(lock, folder / "lock"):  # whoever held it has dropped the folder
                continue
            broken = [name for name in _names(folder) if not _is_whole(path / name, folder / name)]
            for name in broken:
                os.replace(folder / name, path / name)
                log.warning("%s: %s was left broken by a run that was interrupted; put back", path, name)
            shutil.rmtree(folder, ignore_errors=True)
            return broken


def _is_there(opened: IO[bytes], path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.name.startswith("table."))


def _is_whole(file: Path, copy: Path) -> bool:
    """Whether a file has as many bytes as its first ones say (headers), or as before (table.info)."""
    try:
        size = file.stat().st_size
        with open(file, "rb") as opened:
            head = opened.read(8)
    except FileNotFoundError:
        return False
    if file.name == INFO:
        return size >= copy.stat().st_size
    return len(head) == 8 and head[:4] == MAGIC and size >= 4 + struct.unpack(">I", head[4:])[0]
