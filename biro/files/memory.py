"""How much memory is free, and the refusal of what would need more."""

from __future__ import annotations

import resource

from biro.errors import InputError


def free_memory() -> int:
    """Bytes that can be taken without swapping, within the limit of this process (`ulimit -v`).

    Without limit where the system does not say.
    """
    return min(_free_in_system(), _free_in_limit())


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


def _free_in_system() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            line = next(line for line in file if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        return 1 << 62


def _free_in_limit() -> int:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return 1 << 62
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return max(0, limit - int(file.read().split()[0]) * resource.getpagesize())
    except (OSError, ValueError):
        return limit
