"""Find the processes that hold a lock on a Measurement Set."""

from __future__ import annotations

import contextlib
from pathlib import Path


def lock_holders(path: Path) -> dict[int, str]:
    """Processes of this machine that hold a lock on the main table or a subtable: {12: "process 12 (casa)"}.

    casacore locks byte 0 of table.lock while it reads or writes; the bytes behind only say that a table
    is open.
    """
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:
        return {}
    inodes = set()
    for file in (path / "table.lock", *path.glob("*/table.lock")):
        with contextlib.suppress(OSError):
            inodes.add(str(file.stat().st_ino))
    holders = {}
    for line in locks.splitlines():
        words = line.split()
        # "1: POSIX  ADVISORY  WRITE 4242 08:01:123456 0 1"; one who waits has "->" as second word.
        if len(words) >= 8 and words[1] != "->" and words[6] == "0" and words[5].rsplit(":", 1)[-1] in inodes:
            holders[int(words[4])] = f"process {words[4]}{_command(words[4])}"
    return holders


def _command(pid: str) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return f" ({' '.join(words).strip()[:80]})" if words[0] else ""
