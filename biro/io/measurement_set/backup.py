"""Back up the small files that casacore rewrites in place, so that no moment of a write can lose a set.

casacore replaces table.dat by a rename, but empties the header of a tiled column (table.f9) and table.info
before it fills them again. A process that is killed in between, or finds the disk full, leaves an empty
header, and with it the whole set cannot be opened. So the child that writes makes a backup first, and whoever
opens the set next restores what is broken.
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
"""Folder of the backup, in the set. Its name must not change: an older version may have left one."""
NEW, OLD = "_BIRO_NEW", "_BIRO_OLD"
"""What the names of two columns end with while values change in place: one being written, one replaced."""
LINKED = "linked"
"""Folder, in the backup, with second names of files that are being removed."""
TABLE = "table.dat"
INFO = "table.info"
MAGIC = b"\xbe\xbe\xbe\xbe"


class Backup:
    """Copies of files of a set, locked as long as this process lives.

    Parameters
    ----------
    path : path of the Measurement Set
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._set = Path(path)
        self._folder = self._set / FOLDER
        self._folder.mkdir(exist_ok=True)
        self._lock = open(self._folder / "lock", "a")  # noqa: SIM115 (kept until the end)
        with contextlib.suppress(OSError):  # where there are no locks, casacore's own must do
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def save(self, name: str) -> None:
        """Copy a file as it is now, if it is there."""
        if not (self._set / name).is_file():
            return
        draft = self._folder / "draft"
        shutil.copy2(self._set / name, draft)
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        draft.rename(self._folder / name)

    def link(self, number: int) -> None:
        """Give the files of a storage manager, which is about to be removed, a second name; and table.dat."""
        folder = self._folder / LINKED
        shutil.rmtree(folder, ignore_errors=True)
        draft = self._folder / "linking"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        name = f"table.f{number}"
        with contextlib.suppress(OSError):  # a file system without hard links
            for file in (TABLE, name, f"{name}i", *(each.name for each in self._set.glob(f"{name}_*"))):
                if (self._set / file).is_file():
                    os.link(self._set / file, draft / file)
            draft.rename(folder)

    def remove(self) -> None:
        """Remove the copies, after everything was written."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()


def restore_backup(path: Path, *, wait: bool = False) -> list[str]:
    """Restore the files that a process which has ended left broken, and remove the backup.

    Files that are whole stay as they are.

    Parameters
    ----------
    path : path of the Measurement Set
    wait : bool
        While the process that made the backup still writes: wait for its end (True), or do nothing (False).
        Whoever opens a set for writing must wait; otherwise casacore would read a header that is empty at
        that moment, and write it back.

    Returns
    -------
    list of str
        Names of the files that were restored.

    Raises
    ------
    OSError
        Something is broken, but this user may not write to the set.
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
            if not _has_name(lock, folder / "lock"):  # whoever had it has removed the folder
                continue
            broken = [name for name in _names(folder) if not _is_whole(path / name, folder / name)]
            for name in broken:
                os.replace(folder / name, path / name)
                log.warning("%s: %s was left broken by a run that was interrupted; restored", path, name)
            broken += _restore_linked(path, folder / LINKED)
            shutil.rmtree(folder, ignore_errors=True)
            return broken


def _restore_linked(path: Path, folder: Path) -> list[str]:
    """Restore files that were removed, while table.dat, which was not replaced since, still names them."""
    try:
        if not os.path.samestat((folder / TABLE).stat(), (path / TABLE).stat()):
            return []
    except FileNotFoundError:
        return []
    missing = [file.name for file in folder.iterdir() if not (path / file.name).exists()]
    for name in missing:
        os.replace(folder / name, path / name)
    return missing


def _has_name(opened: IO[bytes], path: Path) -> bool:
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
