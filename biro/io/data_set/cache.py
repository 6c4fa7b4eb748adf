"""A folder that keeps what was read of a data set, block by block, in files that are mapped into memory.

Files are those of `numpy.save`, which any program of the field reads, and which map into memory as they are;
columns of Zarr or Arrow would have to be unpacked or converted into arrays of three axes. A block counts as
kept once its description is there, which is written last.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro._version import __version__
from biro.errors import InputError
from biro.files.atomic import atomic_path, why_not_written, write_atomic
from biro.files.foreign_text import visible
from biro.io.data_set.options import SetOptions
from biro.models.files.foreign import read_file

log = logging.getLogger(__name__)
ABOUT = "about.json"
_LOCK = "table.lock"
"""Of casacore: it changes whenever a table is opened."""


@dataclass(frozen=True)
class CachedBlock:
    """What was read of a block.

    Attributes
    ----------
    vis : complex64 or complex128 (n_row, n_chan, n_corr), Jy
    weight : float32 or float64 (n_row, n_chan, n_corr), 1/Jy^2
    counts : dict of str to int
        Visibilities by cause of exclusion.
    weight_origin : str
    """

    vis: NDArray[np.complexfloating]
    weight: NDArray[np.floating]
    counts: dict[str, int]
    weight_origin: str


class ReadCache:
    """What was read of one data set with one set of options.

    Parameters
    ----------
    folder : str
        Of this cache alone, as `open_cache` gives it.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def find(self, partition: int, block: int, shape: tuple[int, ...]) -> CachedBlock | None:
        """What is kept of a block of this shape; None where nothing is, or where it is damaged."""
        try:
            about = json.loads(read_file(self._path(partition, block, "json")))
            arrays = {name: self._mapped(partition, block, name) for name in ("vis", "weight")}
            if {name: _hash(values) for name, values in arrays.items()} != about["sha256"]:
                raise ValueError("other content than was written")
            if any(values.shape != shape for values in arrays.values()):
                raise ValueError(f"the shape is not {shape}")
            if arrays["vis"].dtype.kind != "c" or arrays["weight"].dtype.kind != "f":
                raise ValueError("not visibilities and weights")
            return _block(arrays, _counts(about["counts"]), visible(str(about["weight_origin"])))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError) as error:
            log.warning("%s: reading block %d again: %s", self.folder, block, error)
            return None

    def keep(self, partition: int, block: int, found: CachedBlock) -> CachedBlock:
        """Write what was read of a block; gives the same, mapped from the files.

        Raises
        ------
        InputError
            It cannot be written.
        """
        arrays = {"vis": found.vis, "weight": found.weight}
        try:
            for name, values in arrays.items():
                with (
                    atomic_path(self._path(partition, block, f"{name}.npy")) as path,
                    open(path, "wb") as file,
                ):
                    np.save(file, values, allow_pickle=False)
            about = {"counts": found.counts, "weight_origin": found.weight_origin}
            about["sha256"] = {name: _hash(values) for name, values in arrays.items()}
            write_atomic(self._path(partition, block, "json"), json.dumps(about, indent=1).encode())
        except OSError as error:
            raise InputError(
                f"{self.folder}: cannot be written: {why_not_written(os.path.join(self.folder, 'x'), error)}"
            ) from None
        mapped = {name: self._mapped(partition, block, name) for name in arrays}
        return _block(mapped, found.counts, found.weight_origin)

    def has(self, partition: int, block: int) -> bool:
        """Whether a block is said to be kept."""
        return self._path(partition, block, "json").exists()

    def _mapped(self, partition: int, block: int, name: str) -> NDArray[Any]:
        place = self._path(partition, block, f"{name}.npy")
        read_file(place, only=0)  # numpy would wait for a pipe
        return np.load(place, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]

    def _path(self, partition: int, block: int, kind: str) -> Path:
        return Path(self.folder, f"partition{partition}-shard{block}.{kind}")


def _counts(found: Any) -> dict[str, int]:
    """Counts of visibilities by cause.

    Raises
    ------
    ValueError
        They are none.
    """
    if not isinstance(found, dict) or not all(type(n) is int and 0 <= n < 1 << 62 for n in found.values()):
        raise ValueError("no counts of visibilities")
    return {visible(name): n for name, n in found.items()}


def _block(arrays: dict[str, NDArray[Any]], counts: dict[str, int], weight_origin: str) -> CachedBlock:
    # As plain arrays, which compiled functions take.
    return CachedBlock(np.asarray(arrays["vis"]), np.asarray(arrays["weight"]), counts, weight_origin)


def open_cache(folder: str, path: str | os.PathLike[str], options: SetOptions) -> ReadCache:
    """The cache of a data set as it is now, and of the options with which it is read.

    Parameters
    ----------
    folder : str
        Of all caches.
    path : path
    options : SetOptions

    Raises
    ------
    InputError
        It cannot be written.
    """
    about = {
        "path": os.path.abspath(path),
        "options": {name: _content(value) for name, value in sorted(options.items()) if name != "time_limit"},
        "version": __version__,
    }
    stamp = _stamp(Path(path))
    key = hashlib.sha256(json.dumps([about, stamp]).encode()).hexdigest()[:16]
    name = f"{Path(path).name}-{key}"
    for other in sorted(Path(folder).glob(f"{Path(path).name}-*")):
        if other.name != name and _about(other) == about:
            log.warning("%s: outdated cache of %s, which has changed since; delete it", other, path)
    try:
        cache = ReadCache(os.path.join(folder, name))
        write_atomic(Path(cache.folder, ABOUT), json.dumps(about, indent=1).encode())
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written: {why_not_written(os.path.join(folder, name), error)}"
        ) from None
    return cache


def _content(value: Any) -> Any:
    """All of an option, for JSON: the text that stands for an array leaves out most of a long one."""
    if isinstance(value, np.ndarray | np.generic):
        return _content(value.tolist())
    if is_dataclass(value):
        return {item.name: _content(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _content(each) for name, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_content(each) for each in (sorted(value) if isinstance(value, set | frozenset) else value)]
    return value if isinstance(value, str | int | float | None) else repr(value)


def _about(folder: Path) -> Any:
    try:
        return json.loads(read_file(folder / ABOUT))
    except (OSError, ValueError, RecursionError):
        return None


def _stamp(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of the last change of each file of a data set."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = [(each, each.stat()) for each in files if each.name != _LOCK and each.is_file()]
    return [(str(each.relative_to(path.parent)), of.st_size, of.st_mtime_ns) for each, of in found]


def _hash(values: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()
