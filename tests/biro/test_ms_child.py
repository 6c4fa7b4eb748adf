"""The child process: cells without a value and of another shape as it finds them, and how it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from casacore.tables import makearrcoldesc, maketabdesc, table
from commands import python

from biro.errors import MeasurementSetError
from biro.files import hdf5
from biro.files.child_messages import RefusalError
from biro.io.measurement_set import process
from biro.io.measurement_set.child import read
from biro.io.measurement_set.child.casacore_table import undefined_rows
from biro.io.measurement_set.child.read import Reader
from biro.io.measurement_set.process import MeasurementSetProcess


class Silent:
    """A parent that counts the reports."""

    reports = 0

    def report(self, activity: str) -> None:
        self.reports += 1


@pytest.fixture
def cells(tmp_path: Path) -> Any:
    """20 rows of shape (1, 4) without a value in rows 3, 7 and 19."""
    column = makearrcoldesc("D", 0j, valuetype="complex", ndim=2)
    main = table(str(tmp_path / "cells"), maketabdesc([column]), nrow=20, ack=False)
    for row in set(range(20)) - {3, 7, 19}:
        main.putcell("D", row, np.ones((1, 4), np.complex64))
    return main


@pytest.mark.parametrize("block", [1, 6, 20, 100])
def test_cells_without_a_value(cells: Any, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "QUERY_ROWS", block)
    parent = Silent()
    reader = Reader(parent)  # type: ignore[arg-type]
    reader.path, reader.files = "", {}
    assert reader.undefined_in_blocks(cells, "D", (1, 4)).tolist() == [3, 7, 19]
    # A silent child is given up: each block but a single one is announced.
    assert parent.reports == (0 if block >= 20 else -(-20 // block))
    some = cells.selectrows([19, 0, 7])
    assert reader.undefined_in_blocks(some, "D", (1, 4)).tolist() == [0, 2]


@pytest.mark.parametrize("shape", [(4, 1), (2, 2), (2, 4), (1, 3)])
def test_cells_of_another_shape(cells: Any, shape: tuple[int, int]) -> None:
    # (4, 1) and (2, 2) have as many elements as (1, 4): a tiled column would read them as if they were such.
    cells.putcell("D", 11, np.ones(shape, np.complex64))
    with pytest.raises(RefusalError, match="D of row 11 has shape"):
        undefined_rows(cells, "D", (1, 4))


def test_a_child_that_closes_its_pipe_and_stays_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def stubborn(self: MeasurementSetProcess) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        child = subprocess.Popen(["sh", "-c", "exec 1>&-; exec sleep 60"], stdin=pipe, stdout=pipe, bufsize=0)
        started.append(child)
        return child

    monkeypatch.setattr(MeasurementSetProcess, "_start", stubborn)
    begin = time.monotonic()
    with pytest.raises(MeasurementSetError, match="while starting"):
        MeasurementSetProcess(Path("none.ms"), time_limit=0.3)
    assert time.monotonic() - begin < 30
    assert started[0].returncode is not None


@pytest.mark.parametrize("module", ["biro.io.measurement_set.child.__main__", "biro.files.hdf5_child"])
def test_a_child_imports_nothing_that_is_slow_to_import(module: str) -> None:
    """A child starts for every file that is read."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = python("-c", code, check=True)
    slow = {"astropy", "matplotlib", "numba", "pydantic", "scipy"}
    assert not slow & set(done.stdout.split())


def test_a_child_that_is_stopped_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit holds from the first moment on; without it the start was waited for 120 s."""
    start = MeasurementSetProcess._start

    def stopped(self: MeasurementSetProcess) -> subprocess.Popen[bytes]:
        child = start(self)
        os.kill(child.pid, signal.SIGSTOP)
        return child

    monkeypatch.setattr(MeasurementSetProcess, "_start", stopped)
    begin = time.monotonic()
    with pytest.raises(MeasurementSetError, match=r"gave up after 0.5 s while starting: .* was stopped from"):
        MeasurementSetProcess(Path("none.ms"), time_limit=0.5)
    assert time.monotonic() - begin < 10


def test_a_child_that_is_slow_to_start_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the time limit, as long as it is at work."""
    code = (
        "import time\nwhile time.process_time() < 0.8: pass\n"
        "from biro.io.measurement_set.child.__main__ import main\nmain()"
    )
    monkeypatch.setattr(process, "child_command", lambda module: [sys.executable, "-P", "-c", code])
    begin = time.monotonic()
    MeasurementSetProcess(Path("none.ms"), time_limit=0.4).close()
    assert time.monotonic() - begin > 0.8


def test_a_child_that_reads_hdf5_and_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stopping = [sys.executable, "-c", "import os; os.kill(os.getpid(), 19)"]
    monkeypatch.setattr(hdf5, "child_command", lambda *words: stopping)
    monkeypatch.setattr(hdf5, "TIME_LIMIT", 0.5)
    (tmp_path / "file.nc").touch()
    with pytest.raises(ValueError, match="did not finish within"):
        hdf5.read_hdf5(tmp_path / "file.nc", [])
