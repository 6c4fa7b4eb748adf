"""Programs that kill writers, run by tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def moments(program: Path, *words: object) -> int:
    """How many moments a writer was killed at, each with a way forward."""
    command = [sys.executable, str(program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)
