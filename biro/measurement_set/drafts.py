"""Sets in the making, beside their place under a hidden name, and what killed processes leave of them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import time
from pathlib import Path

log = logging.getLogger(__name__)

QUIET = 600.0
"""Seconds without a change after which a draft is nobody's: its process may run on another machine."""


def names(place: Path) -> tuple[Path, Path]:
    """Where this process makes a new set, and where it puts the one that it replaces, until that is done."""
    draft, old = (place.with_name(f".{place.name}.{word}{os.getpid()}") for word in ("part", "old"))
    return draft, old


def clear(place: Path) -> None:
    """Put back a set that was moved aside and never replaced; remove what else killed processes have left."""
    wanted = re.compile(rf"\.{re.escape(place.name)}\.(part|old)(\d+)")
    for path in sorted(place.parent.iterdir()):
        match = wanted.fullmatch(path.name)
        if match is None or path.is_symlink() or not path.is_dir() or _runs(int(match[2])):
            continue
        with contextlib.suppress(OSError):  # somebody else was faster
            if match[1] == "old" and not place.exists():
                path.rename(place)
                log.warning("%s: put back as it was: a process that was to replace it was killed", place)
            elif time.time() - _last_change(path) > QUIET:
                shutil.rmtree(path)
                log.warning("%s: removed, left by a process that was killed", path)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's, or a number that is none
        pass
    return True


def _last_change(folder: Path) -> float:
    found = [folder.stat().st_mtime]
    with contextlib.suppress(OSError):
        found += [path.lstat().st_mtime for path in folder.rglob("*")]
    return max(found)
