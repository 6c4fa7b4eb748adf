"""Bars: they move on a terminal, and are a line a minute elsewhere."""

from __future__ import annotations

import inspect
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from biro.display import progress


class Clock:
    """A clock that is set by hand, in place of those of tqdm and of `biro.display.progress`."""

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


def test_nothing_is_shown_within_showing_false(monkeypatch) -> None:
    """`progress=False` of a function reaches the bars of all that it calls, and ends with it."""
    file = Terminal()
    clock = Clock(monkeypatch, file)
    with progress.showing(False):
        with progress.showing(True):
            steps(clock, 10)
        assert file.getvalue() == ""
    steps(clock, 10)
    assert "10/10" in file.getvalue()


def test_a_notebook_keeps_one_line(tmp_path) -> None:
    """Exported, a bar of 30 steps is one output without carriage returns, of its last state."""
    import nbclient
    import nbformat

    code = (
        "import time; from biro.display import progress; progress.AFTER = 0.0\n"
        "with progress.bar('working', 'steps', total=30) as shown:\n"
        "    for _ in range(30): time.sleep(0.02); shown.update()"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (output,) = notebook.cells[0].outputs
    assert "30/30" in output["data"]["text/plain"]
    assert "\r" not in str(output)


LONG = (
    *("read", "read_ms", "read_columns", "read_uvfits", "flag", "flag_selected", "solve_gains", "simulate"),
    *("image", "find_sources", "add_source", "maximise", "sample", "fit_each", "sbc.run"),
)


@pytest.mark.parametrize("name", LONG)
def test_what_takes_long_has_progress(name: str) -> None:
    """Every such public function has `progress=True`."""
    import biro

    function = biro
    for part in name.split("."):
        function = getattr(function, part)
    assert inspect.signature(function).parameters["progress"].default is True


@pytest.mark.parametrize("hidden", ["", "show", "showing", "short"])
def test_work_without_steps_shows_what_is_done(monkeypatch, hidden: str) -> None:
    """On a terminal: name and time, from `AFTER` on, each second; nothing where it is hidden, or short."""
    file = Terminal()
    monkeypatch.setattr("sys.stderr", file)
    monkeypatch.setattr(progress, "AFTER", 0.1)
    with progress.showing(hidden != "showing"), progress.doing("thinking", show=hidden != "show"):
        time.sleep(0.0 if hidden == "short" else 0.4)  # four times as long as it takes to appear
    if hidden:
        assert file.getvalue() == ""
    else:
        assert "thinking: 00:0" in file.getvalue()


def test_one_item_shows_its_time_and_several_are_counted(monkeypatch) -> None:
    """A bar of a single step would not move before its end."""
    file = Terminal()
    monkeypatch.setattr("sys.stderr", file)
    monkeypatch.setattr(progress, "AFTER", 0.1)
    for _ in progress.counted([1], "imaging", "partitions", 1):
        time.sleep(0.4)
    assert "imaging: 00:0" in file.getvalue()
    assert [*progress.counted("ab", "imaging", "partitions", 2)] == ["a", "b"]


def test_a_bar_ends_where_something_else_begins(monkeypatch) -> None:
    """A bar that ended says nothing more, and the one around it goes on."""
    clock = Clock(monkeypatch, Terminal())
    with progress.bar("finding", "steps") as outer, progress.bar(progress.SEARCH, "batches") as inner:
        clock.now += 3.0
        progress.end_of(progress.SEARCH)
        inner.update()
        assert inner.disable
        assert not outer.disable


def test_compilation_is_named_while_it_goes_on(monkeypatch) -> None:
    """Functions that are compiled one after the other are one line; what is not shown has none."""
    numba = pytest.importorskip("numba")
    begun: list[str] = []
    ended: list[str] = []

    @contextmanager
    def doing(what: str) -> Iterator[None]:
        begun.append(what)
        yield
        ended.append(what)

    monkeypatch.setattr(progress, "doing", doing)
    progress.show_compilation()
    with progress.showing(False):
        numba.njit(lambda x: x + 0.5)(1.0)
    assert begun == []
    for k in (1.0, 2.0):
        assert numba.njit(lambda x, k=k: x + k)(1.0) == 1.0 + k
    assert begun == ["compiling kernels (first time only)"]
    deadline = time.monotonic() + 20.0
    while not ended and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ended == begun
