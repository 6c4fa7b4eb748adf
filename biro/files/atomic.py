"""Write a file as a whole or not at all."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from biro.errors import InputError
from biro.files.foreign_text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEMPORARY = re.compile(r"\.[a-z]+\.(json|toml|bin|npz|nc|png|pdf|html)\.\d+\.tmp")
"""Names of the temporary files of `write_atomic`, for the kinds of files that a run directory holds."""


def write_atomic(path: Path, data: bytes | memoryview, mode: int = 0o644) -> None:
    """Write a file as a whole or not at all: into a temporary file, flushed to disk, then renamed.

    Parameters
    ----------
    path : Path
    data : bytes or memoryview
    mode : int
        Permissions of the file.

    Raises
    ------
    OSError
        It cannot be written; an older file of that name is left as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_figure(path: Path, figure: Figure, dpi: float | Literal["figure"] = "figure") -> None:
    """Write a picture as PNG, as `write_atomic` does: never through a link into another file.

    Raises
    ------
    OSError
        It cannot be written; an older file of that name is left as it was.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    write_atomic(path, buffer.getbuffer())


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary file beside a file, which becomes that file at the end, and is removed after an error.

    For what is too large for the memory, or is written in parts; `write_atomic` is for the rest.

    Parameters
    ----------
    path : Path

    Yields
    ------
    Path
        Where to write; the file does not exist yet.

    Raises
    ------
    InputError
        It cannot be written; an older file of that name is left as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"{visible(str(path))}: cannot be written: {error.strerror or error}") from None
        raise


def remove_temporary_files(folder: Path) -> None:
    """Remove what processes that were killed in the middle of `write_atomic` have left in a folder."""
    for path in folder.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()
