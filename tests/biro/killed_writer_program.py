"""Kill what writes to a Measurement Set at each moment, one after the other, and look what is left.

A moment is just before each change of names in the file system that Python makes (rename, unlink, rmdir,
link, fsync), before and after each flush and removal of a column by casacore, and before each report. The
writers of the child process run here, in forks which end with SIGKILL: no code of theirs runs afterwards.

    python killed_writer_program.py undo SET FLAGS.npz
    python killed_writer_program.py in-place SET
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from casacore.tables import table

from biro.files.child_messages import RefusalError
from biro.io.measurement_set.backup import restore_backup
from biro.io.measurement_set.child.flag_writer import FlagWriter
from biro.io.measurement_set.child.write import Writer

COLUMN = "CORRECTED_DATA"


class Parent:
    """Hears the reports of a writer, and keeps its last answer."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {}

    def report(self, activity: str) -> None:
        """Do nothing: the moments are counted here."""

    def send(self, header: dict[str, Any]) -> None:
        """Keep an answer."""
        self.answer = header


def in_fork(work: Callable[[], None]) -> int:
    """Status of a process in which this is done: 0, 3 where it was refused, or minus its signal."""
    pid = os.fork()
    if not pid:
        try:
            work()
        except RefusalError as error:
            print("refused:", error, file=sys.stderr)
            os._exit(3)
        except BaseException as error:
            print("failed:", repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_at(moment: int) -> None:
    """Have this process end with SIGKILL at a moment, counted from 0."""
    count = itertools.count()

    def tick() -> None:
        if next(count) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            tick()
            return function(*arguments, **named)

        return call

    def counted_twice(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            tick()
            result = function(*arguments, **named)
            tick()
            return result

        return call

    for name in ("rename", "replace", "unlink", "rmdir", "link", "fsync"):
        setattr(os, name, counted(getattr(os, name)))
    for name in ("flush", "removecols"):
        setattr(table, name, counted_twice(getattr(table, name)))
    Parent.report = lambda self, activity: tick()  # type: ignore[method-assign]


def flags(path: Path) -> np.ndarray:
    restore_backup(path)
    with table(str(path), ack=False) as main:
        return np.asarray(main.getcol("FLAG"))


def is_undone(path: Path) -> bool:
    """Whether no trace of the second version is left."""
    restore_backup(path)
    with table(str(path), ack=False) as main:
        is_marked = bool(main.getcolkeywords("FLAG"))
    return not is_marked and not Path(f"{path}.flagversions/flags.before_biro_2").exists()


def undo(path: Path) -> str:
    writer = FlagWriter(Parent())  # type: ignore[arg-type]
    writer.prepare_flags(str(path), undo=True)
    version = str(writer.parent.answer["version"])  # type: ignore[attr-defined]
    writer.undo_flags("undo")
    return version


def flag_again(path: Path) -> None:
    writer = FlagWriter(Parent())  # type: ignore[arg-type]
    writer.prepare_flags(str(path), undo=False)
    writer.begin_flags("again")
    writer.finish_flags("flag", "nothing")


def try_undo(template: Path, original: np.ndarray, first: np.ndarray) -> int:
    """Kill an undo of the second of two versions; each way forward leads to the first flags, by one undo.

    At the last moments nothing is left to be done but to answer: the undo counts as done.
    """
    for moment in itertools.count():
        path = fresh(template)

        def killed(path: Path = path, moment: int = moment) -> None:
            kill_at(moment)
            undo(path)

        status = in_fork(killed)
        assert status in (0, -signal.SIGKILL), (moment, status)
        status = 0 if is_undone(path) else status
        if moment % 2 and status and in_fork(lambda path=path: flag_again(path)) == 0:  # type: ignore[misc]
            assert in_fork(lambda path=path: undo(path) and None) == 0, moment  # type: ignore[misc]
            # Flagged before or after the removal: at most the second version is left, to be undone first.
            if not np.array_equal(flags(path), first):
                assert in_fork(lambda path=path: undo(path) and None) == 0, moment  # type: ignore[misc]
        elif status:
            assert in_fork(lambda path=path: undo(path) and None) == 0, moment  # type: ignore[misc]
        assert np.array_equal(flags(path), first), moment
        versions = sorted(each.name for each in Path(f"{path}.flagversions").glob("flags.*"))
        assert versions == ["flags.before_biro_1"], (moment, versions)
        assert in_fork(lambda path=path: undo(path) and None) == 0, moment  # type: ignore[misc]
        assert np.array_equal(flags(path), original), moment
        if status == 0:
            return moment
    raise AssertionError


def subtract(path: Path, n_row: int) -> None:
    """Subtract 1 in place, from all rows but the last one."""
    writer = Writer(Parent())  # type: ignore[arg-type]
    writer.prepare(str(path), COLUMN, COLUMN, "subtract")
    writer.begin()
    with table(str(path), ack=False) as main:
        antennas = [main.getcol("ANTENNA1"), main.getcol("ANTENNA2")]
        shape = np.shape(main.getcell("DATA", 0))
    half = (n_row - 1) // 2
    for rows in (np.arange(half), np.arange(half, n_row - 1)):
        writer.select(np.stack([rows, *(each[rows] for each in antennas)]), None, None)
        writer.write(np.ones((len(rows), *shape), np.complex64))
    writer.finish()


def values(path: Path) -> dict[str, np.ndarray]:
    restore_backup(path)
    with table(str(path), ack=False) as main:
        assert main.getcolkeywords(COLUMN).get("BIRO_COMPLETE") is not False
        return {name: np.asarray(main.getcol(name)) for name in (COLUMN, "DATA", "FLAG", "UVW")}


def try_in_place(template: Path) -> int:
    """Kill a subtraction in place: the column is as it was, or has all new values; never anything else."""
    before = values(template)
    n_row = len(before["DATA"])
    after = before | {COLUMN: before[COLUMN] - np.float32(1.0)}
    after[COLUMN][-1] = before[COLUMN][-1]
    for moment in itertools.count():
        path = fresh(template)

        def killed(path: Path = path, moment: int = moment) -> None:
            kill_at(moment)
            subtract(path, n_row)

        status = in_fork(killed)
        assert status in (0, -signal.SIGKILL), (moment, status)
        now = values(path)
        is_done = np.array_equal(now[COLUMN], after[COLUMN])
        assert is_done or status, moment
        assert all(np.array_equal(now[name], (after if is_done else before)[name]) for name in now), moment
        if status == 0:
            with table(str(path), ack=False) as main:
                assert not [name for name in main.colnames() if "_BIRO_" in name]
            return moment
        assert in_fork(lambda path=path: subtract(path, n_row)) == 0, moment  # type: ignore[misc]
        twice = now[COLUMN] - np.float32(1.0)
        twice[-1] = now[COLUMN][-1]
        assert np.array_equal(values(path)[COLUMN], twice), moment
        with table(str(path), ack=False) as main:
            assert not [name for name in main.colnames() if "_BIRO_" in name], moment
    raise AssertionError


def fresh(template: Path) -> Path:
    """A copy of a set and its versions of flags."""
    path = template.with_name("copy.ms")
    for ending in ("", ".flagversions"):
        shutil.rmtree(f"{path}{ending}", ignore_errors=True)
        if Path(f"{template}{ending}").exists():
            shutil.copytree(f"{template}{ending}", f"{path}{ending}")
    return path


if __name__ == "__main__":
    place = Path(sys.argv[2])
    if sys.argv[1] == "undo":
        with np.load(sys.argv[3]) as kept:
            print(try_undo(place, kept["original"], kept["first"]))
    else:
        print(try_in_place(place))
