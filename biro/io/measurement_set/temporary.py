"""Temporary folders in which sets are made, and what of a set that is there is never replaced."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from biro.errors import MeasurementSetError
from biro.io.measurement_set.backup import FOLDER, TABLE
from biro.io.measurement_set.storage import full_disk
from rime_kernels.arrays.whole_file import machine, runs

log = logging.getLogger(__name__)

ABANDONED_AFTER = 600.0
"""Seconds without a change after which a temporary folder of another machine counts as abandoned."""
VERSIONS = ".flagversions"
"""What the folder with the versions of a set's flags ends with, beside the set; so CASA names it."""

TABLE_FILE = re.compile(r"table\.(dat|dat_tmp|info|lock|mf|mfh5|f\d+\w*)")
"""Files of a casacore table, of all its storage managers."""
VERSION_LIST = "FLAG_VERSION_LIST"
"""What CASA calls the list of the versions of flags."""
MOST_NAMED = 3
"""Files that one line names."""


def refuse_foreign_files(path: Path) -> None:
    """Refuse to replace a table in which lie files or folders that are no part of it.

    Of a path that is a link, the link alone would be replaced.

    Parameters
    ----------
    path : Path
        The folder of a Measurement Set or of a gain table.

    Raises
    ------
    MeasurementSetError
        It names them.
    """
    if path.is_symlink():
        return
    found = list(_foreign(path))
    versions = path.with_name(path.name + VERSIONS)
    for entry in sorted(versions.iterdir()) if versions.is_dir() else ():
        if (entry / TABLE).is_file():
            found += _foreign(entry)
        elif entry.name.lstrip(".") != VERSION_LIST:
            found.append(entry)
    if found:
        names = ", ".join(str(each) for each in found[:MOST_NAMED])
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise MeasurementSetError(
            f"{path}: is not replaced, because what is no part of the table would be lost with it: "
            f"{names}{more}; move it elsewhere"
        )


def _foreign(table: Path) -> Iterator[Path]:
    """Files and folders in the folder of a table that are no part of it."""
    known = (table / TABLE).read_bytes() if (table / TABLE).is_file() else b""
    for entry in sorted(table.iterdir()):
        if entry.is_dir() and (entry / TABLE).is_file() and _is_subtable(entry.name, known):
            if not entry.is_symlink():
                yield from _foreign(entry)
        elif not (entry.name == FOLDER if entry.is_dir() else TABLE_FILE.fullmatch(entry.name)):
            yield entry


def _is_subtable(name: str, keywords: bytes) -> bool:
    """Whether table.dat names a subtable: casacore writes its path as a text with its length before it."""
    path = os.fsencode(f"././{name}")
    return struct.pack(">I", len(path)) + path in keywords


def temporary_folders(path: Path) -> tuple[Path, Path]:
    """Where this process makes a new set, and where it moves the set that is replaced until that is done."""
    new, old = (path.with_name(f".{path.name}.{word}{machine()}-{os.getpid()}") for word in ("part", "old"))
    return new, old


@contextlib.contextmanager
def made_beside(path: str | os.PathLike[str], target: Path) -> Iterator[Path]:
    """Make a table in a temporary folder, move it to its place at the end, and remove the one that was there.

    Flags of another set must never come back: the versions of its flags are removed with it. A process that
    is killed on the way leaves all of the old set, which `clean_up` puts back, or the new one alone.

    Parameters
    ----------
    path : path
        The table, as the user names it.
    target : Path
        Where it belongs.

    Yields
    ------
    Path
        The temporary folder, which does not exist yet.

    Raises
    ------
    MeasurementSetError
        What casacore or the system says, or that the disk is full.
    KeyboardInterrupt
        With whether the table was made.
    """
    new, old = temporary_folders(target)
    complete = False
    try:
        yield new
        complete = True
        _replace(target, new, old)
    except KeyboardInterrupt:
        if not complete or new.exists():
            raise KeyboardInterrupt(f"{path} was not made; what was there is as it was") from None
        _remove(old)
        raise KeyboardInterrupt(f"{path} was made") from None
    except (OSError, MeasurementSetError) as error:
        why = str(error).replace(str(new), str(path)).removeprefix(f"{path}: ")
        if isinstance(error, OSError):
            why = error.strerror or why
        full = full_disk(new.parent)
        raise MeasurementSetError(
            f"{path}: cannot be made: {full}then give the same command again"
            if full
            else f"{path}: cannot be made: {why}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(new)
    try:
        _remove(old)
    except KeyboardInterrupt:
        _remove(old)
        raise KeyboardInterrupt(f"{path} was made") from None


def _replace(path: Path, new: Path, old: Path) -> None:
    """Move the set that is there aside, with the versions of its flags, and a new one to its place."""
    versions = path.with_name(path.name + VERSIONS)
    is_link = path.is_symlink()  # what it leads to stays, with its versions
    try:
        if path.exists():
            path.rename(old)
            if versions.exists() and not is_link:
                versions.rename(old / VERSIONS)
        new.rename(path)
    except BaseException:
        if os.path.lexists(old) and not path.exists():
            _put_back(old, path)
        raise


def _remove(old: Path) -> None:
    """Remove a set that was replaced; of a link, the link alone."""
    if old.is_symlink():
        old.unlink()
    else:
        shutil.rmtree(old, ignore_errors=True)


def _put_back(old: Path, path: Path) -> None:
    """Move a set that was moved aside to its place, with the versions of its flags."""
    if (old / VERSIONS).exists():
        (old / VERSIONS).rename(path.with_name(path.name + VERSIONS))
    old.rename(path)


def clean_up(path: Path) -> None:
    """Clean up beside the path of a set what processes that were killed have left.

    A set that was moved aside and never replaced is moved back; other temporary folders are removed.
    """
    pattern = re.compile(rf"\.{re.escape(path.name)}\.(part|old)(?:([0-9a-f]{{8}})-)?(\d+)")
    for folder in sorted(path.parent.iterdir()):
        match = pattern.fullmatch(folder.name)
        if match is None or folder.is_symlink() or not folder.is_dir() or runs(int(match[3])):
            continue
        with contextlib.suppress(OSError):  # another process was faster
            if match[1] == "old" and not path.exists():
                _put_back(folder, path)
                log.warning("%s: restored, because a process that was replacing it was killed", path)
            elif match[2] == machine() or time.time() - _last_change(folder) > ABANDONED_AFTER:
                shutil.rmtree(folder)
                log.warning("%s: removed; a process that was killed had left it", folder)


def _last_change(folder: Path) -> float:
    """When anything in a folder was changed last, s since 1970."""
    times = [folder.stat().st_mtime]
    with contextlib.suppress(OSError):
        times += [path.lstat().st_mtime for path in folder.rglob("*")]
    return max(times)
