"""Arrays that lie in files and are mapped into memory, for data that memory has no room for."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels.errors import InputError

T = TypeVar("T", bound=np.generic)
LEAST_BYTES = 1 << 16
"""Smaller arrays stay in memory."""


def mapped(shape: tuple[int, ...], dtype: type[T] | np.dtype[T], folder: str) -> NDArray[T]:
    """Zeros in a file without a name, which is gone with the array, or with the process.

    The system keeps as much of it in memory as there is room for, and reads the rest when it is used. The
    array begins where a page of memory does.

    Parameters
    ----------
    shape : tuple of int
    dtype : data type
    folder : str
        Where the file lies.

    Raises
    ------
    InputError
        The folder cannot be written, or has no room.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(shape, dtype)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # a full disk is an error here, not a signal later
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            pages = mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise InputError(f"{folder}: no room for {size / 1e9:.3g} GB of data: {error.strerror}") from None
    return np.frombuffer(pages, dtype).reshape(shape)


def in_folder(values: NDArray[T], folder: str | None) -> NDArray[T]:
    """A copy in a file; the array itself where no folder is given, or where it is small.

    Raises
    ------
    InputError
        As `mapped`.
    """
    if folder is None or values.nbytes < LEAST_BYTES:
        return values
    copy = mapped(values.shape, values.dtype, folder)
    copy[...] = values
    return copy
