"""Processes that work off tasks: none is lost when one dies, none is left when we do; other executors."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from started_ranks import mpiexec
from tasks_of_tests import DiesOnce, refuses, slow, square

from biro.distributed.tasks.lost import LostTask
from biro.distributed.tasks.run import run_tasks
from biro.errors import InputError, LikelihoodError, RunError
from biro.run.interrupt import StopFlag


def numbers(n: int) -> dict[str, int]:
    return {f"replicate {k}": k for k in range(n)}


def test_every_task_is_done_by_another_process() -> None:
    rows = list(run_tasks(square, numbers(7), 2, StopFlag()))
    assert sorted(row["square"] for row in rows) == [k * k for k in range(7)]
    assert os.getpid() not in {row["process"] for row in rows}


def test_one_worker_is_this_process() -> None:
    rows = list(run_tasks(square, {"a": 3, "b": 1}, 1, StopFlag()))
    assert [row["replicate"] for row in rows] == [3, 1]
    assert {row["process"] for row in rows} == {os.getpid()}


def test_the_task_of_a_process_that_died_is_done_again(tmp_path, caplog) -> None:
    rows = list(run_tasks(DiesOnce(tmp_path / "mark", once=True), numbers(6), 2, StopFlag()))
    assert sorted(row["replicate"] for row in rows) == list(range(6))
    assert "replicate 2: its process was killed" in caplog.text


def test_a_task_that_kills_every_process_costs_itself_alone(tmp_path) -> None:
    rows = list(run_tasks(DiesOnce(tmp_path / "mark", once=False), numbers(4), 2, StopFlag()))
    (lost,) = [row for row in rows if isinstance(row, LostTask)]
    assert lost.name == "replicate 2"
    assert re.match(r"replicate 2 cost 3 processes, the last of which was killed", lost.why)
    assert sorted(row["replicate"] for row in rows if row is not lost) == [0, 1, 3]


def test_any_executor_takes_tasks() -> None:
    with ThreadPoolExecutor(2) as executor:
        rows = list(run_tasks(square, numbers(7), executor, StopFlag()))
        assert sorted(row["square"] for row in rows) == [k * k for k in range(7)]
        with pytest.raises(LikelihoodError, match=r"not [01]"):
            list(run_tasks(refuses, numbers(2), executor, StopFlag()))
        (lost,) = run_tasks(lambda k: 1 // k, numbers(1), executor, StopFlag())
        assert lost.name == "replicate 0"
        assert lost.why.startswith("replicate 0 was lost by the executor: ZeroDivision")
    with pytest.raises(
        RunError, match=r"does not accept more tasks \(cannot schedule new futures after shutdown\)"
    ):
        list(run_tasks(square, numbers(1), executor, StopFlag()))
    with pytest.raises(InputError, match=r"executor must be a concurrent.futures.Executor, .* got str"):
        list(run_tasks(square, numbers(1), "4", StopFlag()))


OVER_RANKS = """
from mpi4py.futures import MPIPoolExecutor
from biro.run.interrupt import StopFlag
from biro.distributed.tasks.run import run_tasks
from tasks_of_tests import square

if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        rows = list(run_tasks(square, {f"replicate {k}": k for k in range(5)}, executor, StopFlag()))
    print(sum(row["square"] for row in rows), len({row["process"] for row in rows}))
"""


def test_ranks_of_mpi_are_an_executor(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    (tmp_path / "program.py").write_text(OVER_RANKS)
    done = mpiexec(3, "-m", "mpi4py.futures", tmp_path / "program.py")
    total, n_process = map(int, done.stdout.split())
    assert total == 30
    assert 1 <= n_process <= 2  # one of the two may be quick enough for all


def test_an_executor_that_breaks_down_leaves_what_is_done(tmp_path) -> None:
    tasks = DiesOnce(tmp_path / "mark", once=False)
    rows: list[dict | LostTask] = []
    words = r"does not accept more tasks .* the same call with a new executor continues"
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as executor, pytest.raises(RunError, match=words):
        rows.extend(run_tasks(tasks, numbers(5), executor, StopFlag()))
    # The last results of a process that dies may be lost with it.
    assert {row["replicate"] for row in rows} <= {0, 1}


def test_an_error_is_raised_here_in_its_own_words() -> None:
    with pytest.raises(LikelihoodError, match=r"not [01]"):
        list(run_tasks(refuses, numbers(2), 2, StopFlag()))


def test_what_no_other_process_can_find_is_refused() -> None:
    with pytest.raises(InputError, match=r"cannot be sent to other processes .*"):
        list(run_tasks(lambda k: square(k), numbers(2), 2, StopFlag()))


def test_a_stop_is_seen_within_a_second_and_leaves_nobody(tmp_path) -> None:
    stop = StopFlag()
    rows, seen = [], []

    def ask() -> None:
        stop.signal = signal.SIGINT
        seen.append(time.monotonic())

    for row in run_tasks(slow, numbers(200), 2, stop):
        rows.append(row)
        if len(rows) == 2:
            threading.Timer(0.1, ask).start()
    assert time.monotonic() - seen[0] < 2.0  # looks are half a second apart; the machine may be busy
    assert 2 <= len(rows) < 20
    assert not any(_alive(row["process"]) for row in rows)


def test_processes_end_with_their_parent(tmp_path) -> None:
    """kill -9 of the parent: its workers, in the middle of their tasks, see that."""
    code = (
        "from biro.distributed.tasks.run import run_tasks\nfrom biro.run.interrupt import StopFlag\n"
        "from tasks_of_tests import Lingers\nfrom pathlib import Path\n"
        f"list(run_tasks(Lingers(Path({str(tmp_path)!r})), {{'a': 1, 'b': 2, 'c': 3}}, 2, StopFlag()))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment)
    _wait_for(lambda: len(list(tmp_path.iterdir())) == 2, 60.0)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert all(_alive(worker) for worker in workers)
    parent.kill()
    parent.wait()
    _wait_for(lambda: not any(_alive(worker) for worker in workers), 10.0)


def _wait_for(true: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
