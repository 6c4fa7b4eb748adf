"""Temporary folders in which new sets are made, and what processes that were killed have left of them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import time
from pathlib import Path

from rime_kernels.arrays.whole_file import machine, runs

log = logging.getLogger(__name__)

ABANDONED_AFTER = 600.0
"""Seconds without a change after which a temporary folder of another machine counts as abandoned."""
VERSIONS = ".flagversions"
"""What the folder with the versions of a set's flags ends with, beside the set; so CASA names it."""


def temporary_folders(path: Path) -> tuple[Path, Path]:
    """Where this process makes a new set, and where it moves the set that is replaced until that is done."""
    new, old = (path.with_name(f".{path.name}.{word}{machine()}-{os.getpid()}") for word in ("part", "old"))
    return new, old


def replace_set(path: Path, new: Path, old: Path) -> None:
    """Move a new set to its place, and remove the one that is there, with the versions of its flags.

    Flags of another set must never come back. A process that is killed on the way leaves all of the old set,
    which `clean_up` puts back, or the new one alone.

    Parameters
    ----------
    path, new, old : Path
        Where the set belongs, where it is now, and where the set that it replaces is moved.
    """
    versions = path.with_name(path.name + VERSIONS)
    is_link = path.is_symlink()  # what it leads to stays, with its versions
    if path.exists():
        path.rename(old)
        if versions.exists() and not is_link:
            versions.rename(old / VERSIONS)
    new.rename(path)
    if old.is_symlink():
        old.unlink()
    else:
        shutil.rmtree(old, ignore_errors=True)


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
                if (folder / VERSIONS).exists():
                    (folder / VERSIONS).rename(path.with_name(path.name + VERSIONS))
                folder.rename(path)
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
