"""How much memory is free for images."""

from __future__ import annotations


def free_memory() -> int:
    """Bytes that can be taken without swapping; without limit where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            line = next(line for line in file if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        return 1 << 62
