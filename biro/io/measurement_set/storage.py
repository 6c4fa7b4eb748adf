"""Ask for files of a storage that may never answer, and find the Measurement Set at a path."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from biro.errors import InputError, MeasurementSetError
from biro.io.measurement_set.backup import restore_backup
from biro.models.files.foreign import TIME_LIMIT, in_time
from rime_kernels.arrays.whole_file import FULL_BYTES

__all__ = ["LONGEST_LIMIT", "TIME_LIMIT", "ask_storage", "existing_set", "full_disk", "in_time"]

LONGEST_LIMIT = 1e6
"""Largest time limit that is accepted, s; the functions of the operating system have an upper bound."""

T = TypeVar("T")


def ask_storage(path: str | os.PathLike[str], limit: float, activity: str, function: Callable[[], T]) -> T:
    """Call a function that looks at a set's files, as `in_time` does; `activity` says in errors what it does.

    Raises
    ------
    MeasurementSetError
        No answer within `limit` seconds.
    InputError
        No limit, or one that is too long.
    """
    _check_limit(limit)
    try:
        return in_time(limit, function)
    except TimeoutError:
        raise MeasurementSetError(
            f"{path}: gave up after {limit:g} s while {activity}: its storage does not respond"
            " (to wait longer: --time-limit, time_limit= in Python)"
        ) from None


def _check_limit(limit: object) -> None:
    if not isinstance(limit, int | float) or not 0 < limit <= LONGEST_LIMIT:
        raise InputError(f"time_limit must be positive seconds, at most {LONGEST_LIMIT:g}, got {limit!r}")


def full_disk(folder: Path) -> str:
    """What to say in errors where the disk of a folder is full, with what to do; "" where it is not."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    return f"its disk is full ({free / 1e6:.1f} MB free), make room; " if free < FULL_BYTES else ""


def existing_set(path: str | os.PathLike[str], time_limit: float) -> Path:
    """The absolute path of what looks like a casacore table; restores what a killed run left broken.

    Raises
    ------
    MeasurementSetError
        There is none, or its storage does not answer within `time_limit` seconds.
    """
    _check_limit(time_limit)
    try:
        return ask_storage(path, time_limit, "looking for table.dat", lambda: _existing_set(path))
    except OSError as error:
        raise MeasurementSetError(f"{path}: cannot be accessed: {error.strerror}") from None


def _existing_set(path: str | os.PathLike[str]) -> Path:
    try:
        folder = Path(path).expanduser().absolute()
    except RuntimeError:  # ~ of nobody
        raise MeasurementSetError(f"{path}: no such user, or the variable HOME is not set") from None
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise MeasurementSetError(
            f"{path}: not a name in UTF-8, which casacore needs; rename it, or make a link to it"
        ) from None
    if not folder.exists():
        raise MeasurementSetError(f"{path}: no such file or directory")
    if not folder.is_dir():
        raise MeasurementSetError(
            f"{path}: a file, but a Measurement Set is a directory (unpack an archive; biro.read reads "
            "UVFITS,"
            " and CASA's importuvfits converts it to a Measurement Set)"
        )
    if not (folder / "table.dat").is_file():
        raise MeasurementSetError(f"{path}: a directory, but not a Measurement Set (it has no table.dat)")
    try:
        restore_backup(folder)
    except OSError as error:
        raise MeasurementSetError(
            f"{path}: a run that wrote to it was interrupted and left it broken, and its backup cannot be"
            f" restored ({error.strerror}). Run biro info on it as a user who may write to it"
        ) from None
    return folder
