"""Read and write text files, with errors that name the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from biro.models.errors import ModelError
from biro.models.files.foreign import read_file, read_text_file
from rime_kernels.arrays.whole_file import why_not_written, write_whole

FITS_START = b"SIMPLE  ="


def read_text(path: str | Path) -> str:
    """The text of a file.

    Raises
    ------
    ModelError
        No such file, a folder, a pipe, a FITS image, not text in UTF-8, or larger than 256 MiB.
    """
    if not isinstance(path, str | os.PathLike):
        raise ModelError(f"expected the path of a model file, got {type(path).__name__}")
    path = Path(path)
    try:
        if read_file(path, only=len(FITS_START)) == FITS_START:
            raise ModelError(f"{path}: is a FITS image: use --image, or [[image]] in a model file")
        return read_text_file(path)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except IsADirectoryError:
        what = "a directory, expected a sky model file"
        if (path / "table.dat").exists():
            what = "a Measurement Set, expected a sky model; write the data before the model"
        raise ModelError(f"{path}: is {what}") from None
    except UnicodeDecodeError:
        raise ModelError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path}: cannot be read: {error}") from None


def write_text(path: str | Path, text: str) -> None:
    """Write a file as a whole or not at all.

    Raises
    ------
    ModelError
        It cannot be written.
    """
    try:
        # Beside its place and then moved there: neither a kill nor a link costs what was there before.
        write_whole(Path(path), text.encode())
    except OSError as error:
        raise ModelError(f"{path}: cannot be written: {why_not_written(path, error)}") from None
    except ValueError as error:
        raise ModelError(f"{path}: cannot be written: {error}") from None


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Put the file's name in front of a `ModelError` from within, and of a lack of memory."""
    try:
        yield
    except MemoryError:
        raise ModelError(f"{path}: needs more memory than there is") from None
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
