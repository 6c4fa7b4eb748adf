"""How much memory is free, and the refusal of what would need more."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import NamedTuple

from biro.errors import InputError

GROUPS = Path("/sys/fs/cgroup")
"""Where Linux has control groups, by which containers and batch systems limit memory."""
OWN_GROUPS = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 62


class FreeMemory(NamedTuple):
    """Bytes that can be taken without swapping; without limit where the system does not say.

    Attributes
    ----------
    own : int
        Within the limit of this process (`ulimit -v`).
    shared : int
        Of the system, within its control groups: other processes take from the same.
    """

    own: int
    shared: int


def free_now() -> FreeMemory:
    """What is free for this process."""
    return FreeMemory(_free_in_limit(), min(free_in_system(), _free_in_groups()))


def free_memory() -> int:
    """Bytes that this process can take without swapping."""
    return min(free_now())


def byte_text(n_byte: float) -> str:
    """A size for people: "12.3 GB", or "456 MB" where it is less than one."""
    return f"{n_byte / 1e9:.3g} GB" if n_byte >= 1e9 else f"{n_byte / 1e6:.3g} MB"


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Refuse what needs more memory than is free, before any work is done.

    Parameters
    ----------
    needed : float
        Bytes.
    what : str
        What needs them.
    remedy : str
        What to do.

    Raises
    ------
    InputError
    """
    free = free_memory()
    if needed > free:
        raise InputError(f"{what} needs {byte_text(needed)} of memory, {byte_text(free)} are free; {remedy}")


def free_in_system() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            line = next(line for line in file if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        return _UNLIMITED


def _free_in_limit() -> int:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return _UNLIMITED
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return max(0, limit - int(file.read().split()[0]) * resource.getpagesize())
    except (OSError, ValueError):
        return limit


def _free_in_groups() -> int:
    """What the control groups of this process, and those above them, leave; pages of files count as free.

    Files are those of the kernel's documentation, cgroup-v1/memory.rst and cgroup-v2.rst.
    """
    free = _UNLIMITED
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        return free
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            root, names = GROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        elif not controllers:
            root, names = GROUPS, ("memory.max", "memory.current", "")
        else:
            continue
        group = root / path.lstrip("/")
        for each in (group, *group.parents):
            if each.is_relative_to(root):
                free = min(free, _free_in_group(each, *names))
    return free


def _free_in_group(group: Path, limit: str, usage: str, prefix: str) -> int:
    try:
        used = int((group / usage).read_text())
        allowed = int((group / limit).read_text())  # version 2 says "max" where there is none
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        files = sum(int(stat[f"{prefix}{kind}_file"]) for kind in ("active", "inactive"))
    except (OSError, ValueError, KeyError):
        return _UNLIMITED
    return max(0, allowed - used + files)
