"""The child process that reads an HDF5 file; `biro.files.hdf5` starts it, and nothing else imports it."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from typing import BinaryIO

import h5py
import numpy as np
from numpy.typing import NDArray

from biro.files.child_messages import Header, pack
from biro.files.json_value import JsonValue

SPARE_MEMORY = 2 << 30
"""Bytes of address space beyond what is in use and twice the file."""
LARGEST_UNPACKED = 1 << 29
"""Bytes that an array may take which is compressed and larger than the whole file."""
MOST_NODES = 2000
"""Groups and arrays that are listed of a file."""
DEEPEST = 3
"""Levels of groups that are listed."""
LONGEST_ATTRIBUTE = 1 << 16
"""Characters of a text, or numbers, that are read of an attribute."""


def main() -> None:
    """Write what is asked for to stdout: arguments are the task, the path, and names of arrays."""
    task, path, *names = sys.argv[1:]
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints
    _limit_memory(SPARE_MEMORY + 2 * os.path.getsize(path))
    answer(out, task, path, names)
    out.flush()


def answer(out: BinaryIO, task: str, path: str, names: Sequence[str]) -> None:
    """Write the attributes of a file, then a list of it, or those of the named arrays that are there.

    The task is "list", "numbers" or "text" (numbers and text).
    """
    try:
        with h5py.File(path, "r") as file:
            _send(out, {"attributes": _attributes(file)})
            if task == "list":
                nodes: dict[str, JsonValue] = {}
                _list(file, "", nodes, 1)
                _send(out, {"nodes": nodes})
            for name in names:
                array = _array(file, name, os.path.getsize(path), with_text=task == "text")
                if array is not None:
                    _send(out, {"name": name}, array)
    except Exception as error:  # h5py raises many kinds about foreign files
        _send(out, {"error": " ".join(str(error).split())[:200] or type(error).__name__})


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
    most = used + spare
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _list(group: h5py.Group, before: str, nodes: dict[str, JsonValue], depth: int) -> None:
    """Add groups and arrays, which lie in this very file, to `nodes`: attributes, and shapes of arrays."""
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        if len(nodes) == MOST_NODES:
            raise ValueError(f"it has more than {MOST_NODES} groups and arrays")
        node = group[name]
        shape = list(node.shape or ()) if isinstance(node, h5py.Dataset) else None
        nodes[before + name] = {"attributes": _attributes(node), "shape": shape}
        if isinstance(node, h5py.Group) and depth < DEEPEST:
            _list(node, f"{before}{name}/", nodes, depth + 1)


def _attributes(node: h5py.HLObject) -> dict[str, JsonValue]:
    return {name: _json_attribute(value) for name, value in node.attrs.items()}


def _json_attribute(value: object) -> JsonValue:
    """An attribute as a value of JSON; None for types that no file of ours has."""
    if isinstance(value, bytes):  # as PyTables and DP3 write text
        value = value.decode(errors="replace")
    if isinstance(value, str):
        return value[:LONGEST_ATTRIBUTE]
    array = np.asarray(value)
    return array.tolist() if array.dtype.kind in "iuf" and array.size < LONGEST_ATTRIBUTE else None


def _array(file: h5py.File, name: str, size: int, *, with_text: bool) -> NDArray[np.generic] | None:
    """An array, or a field of a table, that lies in this very file; None where nothing has the name."""
    at: h5py.Group | h5py.Dataset = file
    *words, last = name.split("/")
    for i, word in enumerate((*words, last)):
        if isinstance(at, h5py.Dataset) and i == len(words) and word in (at.dtype.names or ()):
            return _values(at, at.dtype[word], name, size, with_text, word)
        if not isinstance(at, h5py.Group) or word not in at:
            return None
        if not isinstance(at.get(word, getlink=True), h5py.HardLink):
            raise ValueError(f"{name} is a link to elsewhere")
        at = at[word]
    if not isinstance(at, h5py.Dataset):
        raise ValueError(f"{name} is no array of numbers")
    return _values(at, at.dtype, name, size, with_text)


def _values(
    at: h5py.Dataset, dtype: np.dtype, name: str, size: int, with_text: bool, field: str | None = None
) -> NDArray[np.generic]:
    """The numbers of an array, or its text as bytes of one length."""
    is_text = with_text and h5py.check_string_dtype(dtype) is not None
    if at.shape is None or not (is_text or dtype.kind in "iuf"):
        raise ValueError(f"{name} is no array of numbers{' or text' if with_text else ''}")
    if at.is_virtual or at.external:
        raise ValueError(f"{name} lies elsewhere")
    largest = size
    if with_text and at.chunks is not None:  # files of other programs may be compressed; zlib's best: 1032
        largest = max(size, min(1200 * size, LARGEST_UNPACKED))
    if at.nbytes > largest:
        raise ValueError(f"{name} claims {at.nbytes} bytes, in a file of {size}")
    values = np.asarray(at[()] if field is None else at[field])
    return values.astype(np.bytes_) if is_text else values


if __name__ == "__main__":
    main()
