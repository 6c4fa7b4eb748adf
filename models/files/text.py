"""Read and write text files, with errors that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from biro.models.errors import ModelError

MAX_BYTES = 256 * 1024 * 1024
FITS_START = b"SIMPLE  ="


def read_text(path: str | Path) -> str:
    """The text of a file.

    Raises
    ------
    ModelError
        No such file, a folder, a pipe, a FITS image, not text in UTF-8, or larger than 256 MiB.
    """
    path = Path(path)
    try:
        if path.is_dir():
            what = "a folder, expected a sky model file"
            if (path / "table.dat").exists():
                what = "a Measurement Set, expected a sky model: the data come first, then the model"
            raise ModelError(f"{path}: is {what}")
        if path.exists() and not path.is_file():
            raise ModelError(f"{path}: is a pipe or a device, expected a file")
        with path.open("rb") as file:
            is_fits = file.read(len(FITS_START)) == FITS_START
        if is_fits:
            raise ModelError(f"{path}: is a FITS image: use --image, or [[image]] in a model file")
        if path.stat().st_size > MAX_BYTES:
            raise ModelError(f"{path}: larger than {MAX_BYTES >> 20} MiB, which no sky model is")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise ModelError(f"{path}: not a text file in UTF-8") from None
    except (OSError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path}: cannot be read: {error}") from None


def write_text(path: str | Path, text: str) -> None:
    """Write a file.

    Raises
    ------
    ModelError
        It cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
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
