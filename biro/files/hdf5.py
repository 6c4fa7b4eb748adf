"""Reading HDF5 files that may be damaged or meant to harm.

The HDF5 library can crash, hang or ask for any memory over a few changed bytes. So it reads in a child
process with limits; nothing in a file is ever executed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from biro.files.child_messages import unpack

TIME_LIMIT = 30.0
"""Seconds for a small file; larger ones get more."""
RATE = 2e7
"""Bytes a second that any storage gives."""


def read_hdf5(path: Path, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Attributes of a file, and those of the named arrays that it has.

    Parameters
    ----------
    path : Path
    names : sequence of str
        As "group/name". Only arrays of numbers, stored in the file itself and not compressed, are read.

    Returns
    -------
    attributes : dict of str, numbers and lists of numbers
        None for attributes of other kinds.
    arrays : dict of arrays

    Raises
    ------
    ValueError
        No HDF5 file, damaged, or with anything else under these names.
    OSError
        It cannot be read.
    """
    if not path.is_file():
        raise ValueError("not a file")
    limit = TIME_LIMIT + path.stat().st_size / RATE
    room = str(Path(__file__).parents[2])
    known = os.environ.get("PYTHONPATH")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "biro.files.hdf5_child", os.path.abspath(path), *names],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
            check=False,
            env={**os.environ, "PYTHONPATH": f"{room}{os.pathsep}{known}" if known else room},
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"the HDF5 library found no end within {limit:.0f} s") from None
    if done.returncode < 0:
        raise ValueError(f"the HDF5 library died with {signal.Signals(-done.returncode).name}")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ValueError(f"the HDF5 library failed ({' '.join(last)[:200]})")
    return _understood(memoryview(done.stdout))


def _understood(answer: memoryview) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    def fill(buffer: memoryview) -> None:
        nonlocal answer
        buffer[:], answer = answer[: len(buffer)], answer[len(buffer) :]

    attributes: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    while answer:
        head, array = unpack(fill)
        if "error" in head:
            raise ValueError(head["error"])
        attributes = head.get("attributes", attributes)
        if array is not None:
            arrays[head["name"]] = array
    return attributes, arrays
