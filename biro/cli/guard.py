"""Turn the errors of commands into one line and an exit code, and print results for people and programs."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn, ParamSpec

import typer

P = ParamSpec("P")

EXIT_CODES = (
    "Exit codes: 0 done; 1 a fault in biro itself (please report it); 2 bad input or usage, with a message "
    "of one line; 130 interrupted (the same command resumes a fit)."
)


class Guard:
    """A decorator of commands: errors that biro raises on purpose become one line and exit code 2.

    An interruption is one line and exit code 130. Other exceptions are faults of biro, and keep their trace.

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
            except KeyboardInterrupt:
                if self.debug:
                    raise
                self._leave("interrupted", 130)
            except Exception as error:
                from biro.errors import BiroError
                from biro.run.interrupt import RunInterrupted

                if self.debug or not isinstance(error, BiroError):
                    raise
                self._leave(str(error), 130 if isinstance(error, RunInterrupted) else 2)

        return guarded

    @staticmethod
    def _leave(message: str, code: int) -> NoReturn:
        typer.echo(f"biro: {' '.join(message.split())}", err=True)
        raise typer.Exit(code)


guard = Guard()


def say(text: str) -> None:
    """Print a line for people on stderr."""
    typer.echo(text, err=True)


def print_json(value: object) -> None:
    """Print one JSON document on stdout; numbers that JSON does not know become null."""
    typer.echo(json.dumps(_as_json(value), indent=2, allow_nan=False))


def _as_json(value: object) -> object:
    """Dictionaries, lists and numbers of Python, from those of numpy too."""
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if hasattr(value, "tolist"):
        return _as_json(value.tolist())
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value


def refuse_existing(paths: Iterable[Path], overwrite: bool) -> None:
    """Refuse to replace files, before work is done whose result could not be written.

    Raises
    ------
    InputError
        A file exists and `overwrite` is False.
    """
    from biro.errors import InputError

    for path in paths:
        if path.exists() and not overwrite:
            raise InputError(f"{path}: exists already; choose another name or give --overwrite")


def at_terminal() -> bool:
    """Whether stderr is a terminal, where a person sees progress bars."""
    return sys.stderr.isatty()
