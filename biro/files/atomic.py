"""Write a file as a whole or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from biro.errors import InputError
from biro.files.foreign_text import visible
from rime_kernels.arrays.whole_file import is_temporary, temporary_beside, why_not_written
from rime_kernels.arrays.whole_file import write_whole as write_atomic

__all__ = ["atomic_path", "remove_temporary_files", "why_not_written", "write_atomic", "write_figure"]

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    temporary: Path | None = None
    try:
        temporary = temporary_beside(path)
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(
                f"{visible(str(path))}: cannot be written: {why_not_written(path, error)}"
            ) from None
        raise


def remove_temporary_files(folder: Path) -> None:
    """Remove what processes that were killed in the middle of `write_atomic` have left in a folder."""
    for path in folder.iterdir():
        if is_temporary(path.name):
            with suppress(OSError):
                path.unlink()
