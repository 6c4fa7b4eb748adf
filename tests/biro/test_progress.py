"""Bars: they move on a terminal, and are a line a minute elsewhere."""

from __future__ import annotations

import io
import time

import pytest

from biro import progress


class Clock:
    """A clock that is set by hand, in place of those of tqdm and of `biro.progress`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: io.StringIO) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: self.now)
        monkeypatch.setattr("sys.stderr", file)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def steps(clock: Clock, seconds: int) -> None:
    """A step a second."""
    with progress.bar("working", "steps", total=seconds) as shown:
        shown._time = lambda: clock.now
        shown.start_t = shown.last_print_t = clock.now
        for _ in range(seconds):
            clock.now += 1.0
            shown.update()


def test_a_line_a_minute_without_a_terminal(monkeypatch) -> None:
    """Of 200 seconds: a line after 60, 120 and 180 s, give or take the step at which it is looked."""
    file = io.StringIO()
    steps(Clock(monkeypatch, file), 200)
    lines = file.getvalue().splitlines()
    assert len(lines) == 3
    for line, minute in zip(lines, (1, 2, 3), strict=True):
        done = int(line.partition("| ")[2].partition("/")[0])
        assert line.startswith("working:")
        assert done == pytest.approx(60 * minute, abs=4)
    assert "\r" not in file.getvalue()


def test_nothing_within_a_minute_without_a_terminal(monkeypatch) -> None:
    file = io.StringIO()
    steps(Clock(monkeypatch, file), 50)
    assert file.getvalue() == ""


def test_a_terminal_has_a_bar_after_two_seconds(monkeypatch) -> None:
    file = Terminal()
    clock = Clock(monkeypatch, file)
    steps(clock, 1)
    assert file.getvalue() == ""
    steps(clock, 10)
    assert file.getvalue().count("\r") > 3
    assert "10/10" in file.getvalue()


def test_a_bar_that_is_not_shown(monkeypatch) -> None:
    file = Terminal()
    monkeypatch.setattr("sys.stderr", file)
    with progress.bar("working", "steps", show=False) as shown:
        shown.update()
    assert file.getvalue() == ""


def test_counted_items_are_the_items() -> None:
    assert list(progress.counted("abc", "working", "letters", 3)) == ["a", "b", "c"]
