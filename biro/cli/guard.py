"""Turn the errors of commands into one line and an exit code, and print results for people and programs."""

from __future__ import annotations

import errno
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, ParamSpec

import typer

P = ParamSpec("P")

TRIAL_BYTES = 4096
"""Size of the file that is written to see whether a place can be written to, bytes."""
MISFIT = 4
"""Exit code where gains were solved for that do not fit."""
EXIT_CODES = (
    "Exit codes: 0 done; 1 a fault in biro (please report it); 2 bad input or usage; 3 the result exists, "
    "but a file could not be written; 4 `solve` wrote gains that do not fit the data; 130 interrupted "
    "(the same command resumes a fit)."
)


_OF_SYSTEM = {
    errno.EROFS: "choose a writable place",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "the system has no more open files; end other programs",
    errno.EAGAIN: "allow more processes and threads (ulimit -u)",
    errno.ENOMEM: "allow more memory (ulimit -v), or end other programs",
}
"""Errors of the operating system that are no fault of biro, and what to do."""


def _line_of_system(error: Exception) -> str | None:
    """One line about an error that a limit of the system has caused; None for other errors."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        from biro.files.atomic import why_not_written

        return (
            f"{error.filename or 'a file'}: cannot be written: {why_not_written(error.filename or '', error)}"
        )
    if isinstance(error, OSError) and error.errno in _OF_SYSTEM:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}: {_OF_SYSTEM[error.errno]}"
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({error}): {_OF_SYSTEM[errno.ENOMEM]}".replace(" ()", "")
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return f"no thread can be started: {_OF_SYSTEM[errno.EAGAIN]}, or more memory (ulimit -v)"
    return None


class Guard:
    """A decorator of commands: errors that biro raises on purpose become one line and exit code 2.

    So do those that a limit of the system has caused. A result of which not all could be written is exit code
    3, an interruption 130. Other exceptions are faults of biro, and keep their trace.

    Attributes
    ----------
    debug : bool
        Let all exceptions pass, with their trace.
    """

    debug = False

    def __call__(self, command: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(command)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                command(*args, **kwargs)
            except KeyboardInterrupt as error:
                if self.debug:
                    raise
                self._leave(f"interrupted; {error}" if str(error) else "interrupted", 130)
            except Exception as error:
                from biro.errors import BiroError, OutputError
                from biro.run.interrupt import RunInterrupted

                line = str(error) if isinstance(error, BiroError) else _line_of_system(error)
                if self.debug or line is None:
                    raise
                codes = {RunInterrupted: 130, OutputError: 3}
                self._leave(line, next((code for kind, code in codes.items() if isinstance(error, kind)), 2))

        return guarded

    @staticmethod
    def _leave(message: str, code: int) -> NoReturn:
        from biro.files.foreign_text import visible_line

        typer.echo(f"biro: {visible_line(message)}", err=True)
        raise typer.Exit(code)


guard = Guard()


def say(text: str) -> None:
    """Print a line for people on stderr."""
    typer.echo(text, err=True)


@contextmanager
def after_result(result: str, remedy: str) -> Iterator[None]:
    """Report that what comes after a result cannot be written, where the result itself is safe.

    What is written by `biro.files.atomic.atomic_path` says so by an `InputError` that comes of an `OSError`,
    others by an `OSError`. Other errors of input pass: giving the command again does not help.

    Parameters
    ----------
    result : str
        Where the result is.
    remedy : str
        What to do.

    Raises
    ------
    OutputError
    """
    from biro.errors import InputError, MeasurementSetError, OutputError

    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{result}; not all that comes after it is written") from None
    except (InputError, MeasurementSetError) as error:
        if isinstance(error, InputError) and not isinstance(error.__context__, OSError):
            raise
        raise OutputError(f"{result}, but {error}; {remedy}") from error
    except OSError as error:
        raise OutputError(
            f"{result}, but {error.filename or 'a file'} cannot be written ({error.strerror}); {remedy}"
        ) from error


def print_json(value: object) -> None:
    """Print one JSON document on stdout; numbers that JSON does not know become null."""
    from biro.files.json_value import finite_json

    typer.echo(json.dumps(finite_json(value), indent=2, allow_nan=False))


def make_folder(folder: Path) -> None:
    """Make a folder for results, or check that one that exists can be written to, before work is done.

    Raises
    ------
    InputError
    """
    from biro.errors import InputError

    if folder.resolve() == Path("/"):
        raise InputError(f"{folder}: is the root of the file system; give a folder for results")
    if folder.is_file():
        raise InputError(f"{folder}: is a file, expected a folder; give another name")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: the folder cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: no permission to write into this folder; give another one")


def refuse_folder_of_runs(folder: Path) -> None:
    """Name the runs inside a folder that holds several, as `biro fit --compare` and `--each` make it.

    Raises
    ------
    InputError
    """
    from biro.display.formatting import first_few
    from biro.errors import InputError

    if (folder / "posterior.nc").exists() or (folder / "run.json").exists():
        return
    inside = [str(place.parent) for place in sorted(folder.glob("*/posterior.nc"))]
    if inside:
        raise InputError(f"{folder}: a folder of runs, expected one of them: {first_few(inside)}")


def refuse_existing(paths: Iterable[Path], overwrite: bool) -> None:
    """Refuse to replace files, and places that cannot be written to, before work is done.

    Raises
    ------
    InputError
        A file or set exists and `overwrite` is False; there is a folder that is no table; or no file can be
        made there.
    MeasurementSetError
        Files that are no part of a set or table lie in its folder.
    """
    from biro.errors import InputError
    from biro.io.measurement_set.temporary import refuse_foreign_files

    for path in paths:
        if path.is_dir() and not (path / "table.dat").is_file():
            raise InputError(
                f"{path}: is a folder, and biro never replaces folders; give the name of a file or set"
            )
        if path.exists() and not overwrite:
            raise InputError(f"{path}: exists already; choose another name or give --overwrite")
        if path.is_dir():
            refuse_foreign_files(path)
        _try_to_write(path)


def _try_to_write(path: Path) -> None:
    """Write a small file beside a place, and remove it."""
    from biro.errors import InputError
    from biro.files.atomic import why_not_written
    from rime_kernels.arrays.whole_file import temporary_beside

    try:
        trial = temporary_beside(path)
        try:
            trial.write_bytes(bytes(TRIAL_BYTES))
        finally:
            trial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {why_not_written(path, error)}") from None
