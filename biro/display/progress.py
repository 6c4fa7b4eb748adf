"""The bar of whatever may take longer than two seconds; a line a minute where no terminal shows one."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import NoReturn, TextIO, TypeAlias, TypeVar

from tqdm import tqdm

T = TypeVar("T")
Bar: TypeAlias = "tqdm[NoReturn]"
AFTER = 2.0
"""Seconds after which a bar appears."""
BETWEEN_LINES = 60.0
"""Seconds before the first line, and between lines, where there is no terminal."""


SEARCH = "looking for the maximum"
"""What is done until the maximum of a posterior is found."""
COMPILING = "compiling kernels (first time only)"
"""What is done while numba compiles."""
_PAUSE = 0.5
"""Seconds without compilation after which it has ended."""
_IS_SHOWN: ContextVar[bool] = ContextVar("progress", default=True)


class _Cell(tqdm):  # type: ignore[type-arg]
    """A bar in a notebook: one output that is replaced as the bar moves, and stays as its last line."""

    _handle = None

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Show the bar, or take the place of what was shown."""
        from IPython.display import display

        line = {"text/plain": str(self) if msg is None else msg}
        if self._handle is None:
            self._handle = display(line, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(line, raw=True)


class _Lines(tqdm):  # type: ignore[type-arg]  # a class of its own could not be called with what it iterates
    """A bar that is printed as a line now and then; all else that tqdm writes is dropped."""

    _line_at = 0.0

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Print the bar as a line, if it is time."""
        now = time.monotonic()
        self._line_at = self._line_at or now - AFTER + BETWEEN_LINES
        if msg is None and now >= self._line_at:
            self._line_at = now + BETWEEN_LINES
            print(self, file=sys.stderr, flush=True)


def bar(what: str, unit: str, *, total: int | None = None, initial: int = 0, show: bool = True) -> Bar:
    """A bar on stderr, to be used with `with` and told of each step by `update`.

    It appears after two seconds. On a terminal or in a notebook it moves, and a notebook keeps one line of
    it; in a file or a pipe it is a line a minute. Within `showing(False)` there is none.

    Parameters
    ----------
    what : str
        What is done, at the beginning of the bar.
    unit : str
        What is counted.
    total, initial : int, optional
        How many there will be, and are already.
    show : bool
        False: the same object, which shows nothing.
    """
    kind, file = _kind()
    hidden = not (show and _IS_SHOWN.get())
    made: Bar = kind(
        desc=what, unit=f" {unit}", total=total, initial=initial, disable=hidden, delay=AFTER, file=file
    )
    return made


@contextmanager
def showing(progress: bool) -> Iterator[None]:
    """With False, no bar is shown within `with`, whoever makes it; with True nothing changes."""
    token = _IS_SHOWN.set(progress and _IS_SHOWN.get())
    try:
        yield
    finally:
        _IS_SHOWN.reset(token)


@contextmanager
def doing(what: str, *, show: bool = True) -> Iterator[None]:
    """What is done, and for how long, of a work without steps that can be counted; shown as a `bar` is."""
    with bar(what, "", show=show) as shown:
        if shown.disable:
            yield
            return
        shown.bar_format = "{desc}: {elapsed}"
        ended = threading.Event()
        clock = threading.Thread(target=_tick, args=(shown, ended), daemon=True)
        clock.start()
        try:
            yield
        finally:
            ended.set()
            clock.join()


def end_of(what: str) -> None:
    """End the bars of this name, wherever they were made, because something else is done from now on."""
    for each in list(getattr(tqdm, "_instances", ())):
        if each.desc.removesuffix(": ") == what:
            each.close()


class _Compiling:
    """Shows that numba compiles, from when it begins until it has paused for half a second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._shown: AbstractContextManager[None] | None = None
        self._pause = threading.Timer(0.0, self._end)

    def on_start(self, _event: object) -> None:
        """Show it, unless it is shown already."""
        with self._lock:
            self._depth += 1
            self._pause.cancel()
            if self._shown is None and _IS_SHOWN.get():
                self._shown = doing(COMPILING)
                self._shown.__enter__()

    def on_end(self, _event: object) -> None:
        """End it soon, unless numba compiles more."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._shown is not None:  # no thread where nothing is shown
                self._pause = threading.Timer(_PAUSE, self._end)
                self._pause.daemon = True
                self._pause.start()

    def _end(self) -> None:
        with self._lock:
            if self._depth == 0 and self._shown is not None:
                self._shown.__exit__(None, None, None)
                self._shown = None


@cache
def show_compilation() -> None:
    """Show from now on when numba compiles functions; what is read from its cache on disk is not compiled."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]  # numba has no types
        """Hands numba's events on."""

        def __init__(self) -> None:
            self._compiling = _Compiling()

        def on_start(self, event: object) -> None:
            self._compiling.on_start(event)

        def on_end(self, event: object) -> None:
            self._compiling.on_end(event)

    event.register("numba:compile", Listener())


def _tick(shown: Bar, ended: threading.Event) -> None:
    """Show a bar each second from its beginning on, until the work has ended."""
    wait = AFTER
    while not ended.wait(wait):
        shown.last_print_t = time.time()  # tqdm clears at the end what it takes to be shown
        shown.refresh()
        wait = 1.0


def counted(items: Iterable[T], what: str, unit: str, total: int, *, show: bool = True) -> Iterator[T]:
    """The items, while a `bar` counts those that were taken; of a single one, the time that it takes."""
    if total == 1:
        with doing(what, show=show):
            yield from items
        return
    with bar(what, unit, total=total, show=show) as shown:
        for item in items:
            yield item
            shown.update()


def _kind() -> tuple[type[tqdm[NoReturn]], TextIO]:
    """What shows a bar here, and where tqdm writes: a terminal, a notebook, or a file."""
    if sys.stderr.isatty():
        return tqdm, sys.stderr
    is_notebook = type(sys.stderr).__module__.startswith("ipykernel")
    return (_Cell if is_notebook else _Lines), io.StringIO()
