"""Write files as a whole or not at all, and remove what writers that were killed have left."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
import zlib
from contextlib import suppress
from pathlib import Path

ABANDONED_AFTER = 86400.0
"""Seconds without a change after which a temporary file of another machine counts as abandoned."""

FULL_BYTES = 1 << 20
"""A disk with less room than this counts as full."""


def write_whole(path: Path, data: bytes | memoryview, mode: int = 0o644) -> None:
    """Write a file as a whole or not at all: into a temporary file, flushed to disk, then renamed.

    Parameters
    ----------
    path : Path
    data : bytes or memoryview
    mode : int
        Permissions of the file.

    Raises
    ------
    OSError
        It cannot be written; an older file of that name is left as it was. The error names `path`.
    """
    temporary = temporary_beside(path)
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


def why_not_written(path: str | os.PathLike[str], error: OSError) -> str:
    """Why a file cannot be written, with the room of its disk and what to do where that is full.

    Parameters
    ----------
    path : path
        The file.
    error : OSError
        Of the system; one of `numpy.ndarray.tofile` on a full disk has no number.
    """
    folder = Path(path).absolute().parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        free = FULL_BYTES
    if error.errno == errno.EFBIG:
        return f"{error.strerror}: allow larger files (ulimit -f)"
    if error.errno == errno.EDQUOT:
        return f"{error.strerror}: make room within your quota, and give the same command again"
    if error.errno == errno.ENOSPC or (error.errno is None and free < FULL_BYTES):
        return (
            f"{os.strerror(errno.ENOSPC)} ({free / 1e6:.1f} MB are free in {folder}): make room, and give "
            "the same command again"
        )
    return error.strerror or str(error)


def temporary_beside(path: Path) -> Path:
    """Name of a temporary file that becomes a file; it does not exist yet, nor do those of killed writers.

    A temporary file is removed if the process that made it has ended, or, where it ran on another machine
    that shares the disk, if nothing was written to it for a day.

    Raises
    ------
    OSError
        What is there cannot be removed.
    """
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            # The comparison of texts comes first: a folder may have many files.
            if entry.name.startswith(f".{path.name}.") and _is_abandoned(entry, path.name):
                with suppress(OSError):
                    os.unlink(entry.path)
    temporary = path.with_name(f".{path.name}.{machine()}-{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    return temporary


def is_temporary(name: str) -> bool:
    """Whether a file name is one that `temporary_beside` gives, or that older versions gave."""
    return re.fullmatch(r"\..+\.(?:[0-9a-f]{8}-)?\d+\.tmp", name) is not None


def _is_abandoned(entry: os.DirEntry[str], name: str) -> bool:
    match = re.fullmatch(rf"\.{re.escape(name)}\.([0-9a-f]{{8}})-(\d+)\.tmp", entry.name)
    if match is None or not entry.is_file(follow_symlinks=False):
        return False
    if match[1] == machine():
        return not runs(int(match[2]))
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED_AFTER


def machine() -> str:
    """Eight digits that differ between machines and containers, each of which numbers its own processes."""
    return f"{zlib.crc32(os.uname().nodename.encode()):08x}"


def runs(pid: int) -> bool:
    """Whether a process of this machine has this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's, or too large a number
        pass
    return True
