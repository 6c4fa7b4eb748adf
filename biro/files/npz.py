"""Arrays in files .npz of others, read without trust."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.errors import BiroError, DataError
from biro.files.foreign_text import visible, visible_line
from biro.models.files.foreign import read_file

Arrays: TypeAlias = dict[str, NDArray[np.generic]]
LARGEST = 1 << 32
"""Bytes that what a file holds may take."""


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Say of whatever goes wrong with a file of `what`, "gains" or the like, that the file is broken.

    Raises
    ------
    DataError
        No such file, or one that a reader cannot make sense of.
    """
    try:
        read_file(path, only=1)
        yield
    except DataError:
        raise
    except Exception as error:  # numpy and zipfile raise many kinds about files that are damaged
        reason = f"it lacks {error}" if isinstance(error, KeyError) else visible_line(error)
        if isinstance(error, OSError):
            reason = error.strerror or reason
        if not isinstance(error, (BiroError, OSError, ValueError, KeyError, zipfile.BadZipFile)):
            reason = f"{type(error).__name__}: {reason}"
        raise DataError(f"{path}: not a file of {what}, or damaged ({reason[:200]})") from None


def read_npz(path: Path, what: str) -> Arrays:
    """The arrays of a file of `what`.

    Raises
    ------
    DataError
        No such file, one that is broken, that holds objects, or more than `LARGEST`.
    """
    with reading(path, what):
        with zipfile.ZipFile(path) as archive:
            size = sum(item.file_size for item in archive.infolist())
        if size > LARGEST:
            raise DataError(f"{path}: holds {size / 1e9:.3g} GB, too much for a file of {what}")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


def texts(array: NDArray[np.generic]) -> tuple[str, ...]:
    """The texts of an array of one axis, visible.

    Raises
    ------
    ValueError
        More axes, or none.
    """
    if array.ndim != 1:
        raise ValueError(f"names must have one axis, found shape {array.shape}")
    return tuple(visible(text) for text in array.astype(str).tolist())
