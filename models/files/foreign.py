"""Files of others that a user names: read as a whole, with limits of their kind, their size and the time."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

TIME_LIMIT = 30.0
"""How long to wait for a storage that does not answer, s."""
MAX_BYTES = 256 << 20
"""Size of the largest text that is read, bytes."""
_CHUNK = 1 << 22

T = TypeVar("T")


def in_time(limit: float, function: Callable[[], T]) -> T:
    """Call a function that may never return, because a storage does not answer.

    Parameters
    ----------
    limit : float, s
    function : function without arguments

    Returns
    -------
    What the function returns.

    Raises
    ------
    TimeoutError
        It took longer than `limit` seconds; the function is left to wait in its thread.
    """
    results: list[T] = []
    failure: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(limit)
    if failure:
        raise failure[0]
    if not results:
        raise TimeoutError
    return results[0]


def read_file(
    path: str | os.PathLike[str], most: int = MAX_BYTES, *, only: int | None = None, limit: float = TIME_LIMIT
) -> bytes:
    """The content of a regular file; pipes and devices, which may never end, are refused unread.

    Parameters
    ----------
    path : path
    most : int
        Bytes of the largest file that is read.
    only : int, optional
        Read so many bytes of its start alone, however large it is.
    limit : float, s
        How long to wait for its storage.

    Raises
    ------
    OSError
        No such file, a folder, a pipe or a device, one that is larger, that cannot be read, or whose storage
        does not answer in time; `strerror` says which.
    ValueError
        A name that no file can have.
    """
    try:
        return in_time(limit, lambda: _read(path, most, only))
    except TimeoutError:
        raise TimeoutError(
            errno.ETIMEDOUT, f"its storage did not answer within {limit:g} s", os.fspath(path)
        ) from None


def _read(path: str | os.PathLike[str], most: int, only: int | None) -> bytes:
    # A pipe without a writer would otherwise keep whoever opens it.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory, expected a file", os.fspath(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is a pipe or a device, expected a file", os.fspath(path))
    except OSError:
        os.close(number)
        raise
    with open(number, "rb", buffering=0) as file:
        if only is not None:
            return file.read(only)
        # Files of /proc state no size: what is read counts, too.
        parts: list[bytes] = []
        size, n_read = status.st_size, 0
        while size <= most and n_read <= most:
            part = file.read(_CHUNK)
            if not part:
                return b"".join(parts)
            parts.append(part)
            n_read += len(part)
    raise OSError(errno.EFBIG, f"is larger than {most / (1 << 20):.4g} MiB", os.fspath(path))


def read_text_file(path: str | os.PathLike[str], most: int = MAX_BYTES) -> str:
    """The text of a file in UTF-8, as `read_file` reads it.

    Raises
    ------
    OSError
        See `read_file`.
    ValueError
        It is not in UTF-8.
    """
    return read_file(path, most).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def start_of(path: Path, n_byte: int) -> bytes:
    """The first bytes of a file; b"" where it cannot be read, or is none."""
    try:
        return read_file(path, only=n_byte)
    except (OSError, ValueError):
        return b""
