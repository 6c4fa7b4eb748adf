"""The child process that reads an HDF5 file; `biro.files.hdf5` starts it, and nothing else imports it."""

from __future__ import annotations

import os
import resource
import sys
from typing import BinaryIO

import h5py
import numpy as np
from numpy.typing import NDArray

from biro.files.child_messages import Header, pack
from biro.files.json_value import JsonValue

SPARE_MEMORY = 1 << 30
"""Bytes of address space beyond what is in use and twice the file."""
LONGEST_ATTRIBUTE = 1 << 16
"""Characters of a text, or numbers, that are read of an attribute."""


def main() -> None:
    """Write what is asked for to stdout: attributes of the file, then the arrays that are there."""
    path, names = sys.argv[1], sys.argv[2:]
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints
    size = os.path.getsize(path)
    _limit_memory(SPARE_MEMORY + 2 * size)
    try:
        with h5py.File(path, "r") as file:
            _send(out, {"attributes": {name: _json_attribute(value) for name, value in file.attrs.items()}})
            for name in names:
                array = _array(file, name, size)
                if array is not None:
                    _send(out, {"name": name}, array)
    except Exception as error:  # h5py raises many kinds about foreign files
        _send(out, {"error": " ".join(str(error).split())[:200] or type(error).__name__})
    out.flush()


def _send(out: BinaryIO, header: Header, array: NDArray[np.generic] | None = None) -> None:
    for buffer in pack(header, array):
        out.write(buffer)


def _limit_memory(spare: int) -> None:
    """Allow so many bytes of address space beyond what is in use, where the system says what is in use."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    except FileNotFoundError:  # macOS
        return
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, used + spare))


def _json_attribute(value: object) -> JsonValue:
    """An attribute as a value of JSON; None for types that no file of ours has."""
    if isinstance(value, str):
        return value[:LONGEST_ATTRIBUTE]
    array = np.asarray(value)
    return array.tolist() if array.dtype.kind in "iuf" and array.size < LONGEST_ATTRIBUTE else None


def _array(file: h5py.File, name: str, size: int) -> NDArray[np.generic] | None:
    """An array of numbers that lies in this very file; None where there is nothing of the name."""
    at: h5py.Group | h5py.Dataset = file
    for word in name.split("/"):
        if not isinstance(at, h5py.Group) or word not in at:
            return None
        if not isinstance(at.get(word, getlink=True), h5py.HardLink):
            raise ValueError(f"{name} is a link to elsewhere")
        at = at[word]
    if not isinstance(at, h5py.Dataset) or at.dtype.kind not in "iuf" or at.shape is None:
        raise ValueError(f"{name} is no array of numbers")
    if at.is_virtual or at.external:
        raise ValueError(f"{name} lies elsewhere")
    if at.nbytes > size:
        raise ValueError(f"{name} claims {at.nbytes} bytes, in a file of {size}")
    return np.asarray(at[()])


if __name__ == "__main__":
    main()
