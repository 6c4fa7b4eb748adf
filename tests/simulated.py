"""Run a program in Numba's CUDA simulator, hastened: `python simulated.py PROGRAM ARGUMENTS`."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"

import conftest  # noqa: F401  # hastens the simulator as it is imported

del sys.argv[0]
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
