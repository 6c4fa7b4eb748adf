"""Programs of Python that tests start on ranks of MPI."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# All ranks end within so many seconds, whatever happens to one of them; and time to start.
SECONDS = 120


def mpiexec(n: int, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python with these words on n ranks."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed (pip install '.[mpi]')")
    beside = f"{Path(sys.executable).parent}"
    program = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if program is None:
        pytest.skip("mpiexec is not installed (pip install mpich)")
    command = [program, "-n", str(n), sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
