"""Stop a run on the first SIGINT or SIGTERM, after its state was saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from biro.errors import RunError


class RunInterrupted(RunError):  # noqa: N818 - a stop that was asked for
    """A run was stopped by a signal; with a run directory, the same command goes on from what was saved."""


class StopFlag:
    """Set by the first SIGINT or SIGTERM; samplers look at it where their state can be saved.

    Parameters
    ----------
    saves : bool
        Whether there is a run directory, in which the state is saved.
    """

    def __init__(self, *, saves: bool = True) -> None:
        self.signal: int | None = None
        self._saves = saves

    def __bool__(self) -> bool:
        return self.signal is not None

    def raise_interrupted(self, how_to_go_on: str) -> None:
        """End the run with one line that says how to go on, or that nothing was saved.

        Raises
        ------
        RunInterrupted
            Always.
        """
        name = signal.Signals(self.signal or signal.SIGINT).name
        if not self._saves:
            how_to_go_on = "nothing was saved, because there is no run directory (run_dir); start again"
        raise RunInterrupted(f"stopped by {name}; {how_to_go_on}")


_ACTIVE: list[StopFlag] = []
"""Flags of the runs that go on in this process."""


@contextmanager
def stop_on_signal(*, saves: bool = True) -> Iterator[StopFlag]:
    """Turn the first SIGINT or SIGTERM into a flag; a second one interrupts at once.

    Outside of the main thread, where Python allows no handlers, the flag is never set.

    Parameters
    ----------
    saves : bool
        Whether the run has a directory in which its state is saved.
    """
    flag = StopFlag(saves=saves)
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if flag:
            raise KeyboardInterrupt
        flag.signal = number

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    _ACTIVE.append(flag)
    try:
        yield flag
    finally:
        _ACTIVE.remove(flag)
        for number, handler in before.items():
            signal.signal(number, handler)


def asked_to_stop() -> bool:
    """Whether a signal came to a run of this process: tests that its result does not need end early then."""
    return any(_ACTIVE)
