"""Read HDF5 files that may be damaged or meant to harm.

A few changed bytes of a file can make the HDF5 library crash, hang or ask for any amount of memory. So it
reads in a child process with limits; nothing in a file is ever executed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.files.child_messages import Header, child_command, child_environment, unpack
from biro.files.json_value import JsonValue

Contents: TypeAlias = tuple[dict[str, JsonValue], dict[str, NDArray[np.generic]]]
"""Attributes, and arrays by name."""
TIME_LIMIT = 30.0
"""Seconds for a small file; larger ones get more."""
SLOWEST_STORAGE = 2e7
"""Bytes per second that any storage gives."""


class Hdf5Node(NamedTuple):
    """A group or an array of a file.

    Attributes
    ----------
    attributes : dict of str, numbers and lists of numbers
        None for attributes of other kinds.
    shape : tuple of int or None
        Of an array; None for a group.
    """

    attributes: dict[str, JsonValue]
    shape: tuple[int, ...] | None


def read_hdf5(path: Path, names: Sequence[str], with_text: bool = False) -> Contents:
    """Attributes of a file, and those of the named arrays that it has.

    Parameters
    ----------
    path : Path
    names : sequence of str
        As "group/name", or "group/table/field". Only arrays that are stored in the file itself are read.
    with_text : bool
        Whether arrays of text are read as well as those of numbers; they come as bytes of one length.

    Returns
    -------
    attributes : dict of str, numbers and lists of numbers
        None for attributes of other kinds.
    arrays : dict of arrays

    Raises
    ------
    ValueError
        It is no HDF5 file, is damaged, or has something else than such plain arrays under these names.
    OSError
        It cannot be read.
    """
    attributes: dict[str, JsonValue] = {}
    arrays: dict[str, NDArray[np.generic]] = {}
    for header, array in _messages(path, "text" if with_text else "numbers", names):
        attributes = header.get("attributes", attributes)
        if array is not None:
            arrays[header["name"]] = array
    return attributes, arrays


def list_hdf5(path: Path) -> dict[str, Hdf5Node]:
    """The groups and arrays of a file by their paths, "group/name", three levels deep.

    Raises
    ------
    ValueError
        It is no HDF5 file, is damaged, or has thousands of groups.
    OSError
        It cannot be read.
    """
    nodes: dict[str, Hdf5Node] = {}
    for header, _ in _messages(path, "list", ()):
        for name, node in header.get("nodes", {}).items():
            shape = node["shape"]
            nodes[name] = Hdf5Node(node["attributes"], None if shape is None else tuple(shape))
    return nodes


def _messages(
    path: Path, task: str, names: Sequence[str]
) -> Iterator[tuple[Header, NDArray[np.generic] | None]]:
    """What the child process answers."""
    answer = memoryview(_answer(path, task, names))

    def fill(buffer: memoryview) -> None:
        nonlocal answer
        buffer[:], answer = answer[: len(buffer)], answer[len(buffer) :]

    while answer:
        header, array = unpack(fill)
        if "error" in header:
            raise ValueError(header["error"])
        yield header, array


def _answer(path: Path, task: str, names: Sequence[str]) -> bytes:
    """All that the child process writes."""
    if not path.is_file():
        raise ValueError("not a file")
    limit = TIME_LIMIT + path.stat().st_size / SLOWEST_STORAGE
    try:
        done = subprocess.run(
            child_command("biro.files.hdf5_child", task, os.path.abspath(path), *names),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
            check=False,
            env=child_environment(),
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"the HDF5 library did not finish within {limit:.0f} s") from None
    if done.returncode < 0:
        raise ValueError(f"the HDF5 library died with {signal.Signals(-done.returncode).name}")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ValueError(f"the HDF5 library failed ({' '.join(last)[:200]})")
    return done.stdout
