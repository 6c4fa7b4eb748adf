"""Many independent tasks in processes of their own: a death is noticed at once, and its task done again."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from tqdm import tqdm

from biro.errors import BiroError, InputError, RunError
from biro.run.interrupt import StopFlag

log = logging.getLogger(__name__)

Row = dict[str, Any]
Task = Callable[[int], Row]
MAX_DEATHS = 3
"""Processes that one task may cost."""
_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LOOK = 0.5
"""Seconds between looks at whether to stop."""


def n_core() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def rows_of(task: Task, todo: Sequence[int], n_worker: int, stop: StopFlag) -> Iterator[Row]:
    """What a task answers for each number, as they come; ends early when `stop` is set.

    Parameters
    ----------
    task : function of one int that gives plain values
        Picklable where there are several workers.
    todo : sequence of int
    n_worker : int
        1: here, one after the other. More: in as many spawned processes, among which the cores are
        divided. They end with this one, however that ends.
    stop : StopFlag

    Raises
    ------
    InputError
        The task cannot be sent to other processes.
    RunError
        A task ended its process three times.
    BiroError
        What the task raised.
    """
    if n_worker > 1 and len(todo) > 1:
        yield from _in_processes(task, list(todo), min(n_worker, len(todo)), stop)
        return
    for k in todo:
        if stop:
            return
        yield task(k)


def _in_processes(task: Task, todo: list[int], n_worker: int, stop: StopFlag) -> Iterator[Row]:
    with tempfile.NamedTemporaryFile(prefix="biro-") as file:
        _dump(task, file)
        file.flush()
        threads = max(1, n_core() // n_worker)
        pool = _Pool(file.name, threads, todo)
        try:
            pool.start(n_worker)
            while pool.is_busy and not stop:
                yield from pool.finished()
        finally:
            pool.kill()


class _Pool:
    """The workers, and who does what."""

    def __init__(self, path: str, threads: int, todo: list[int]) -> None:
        self._path, self._threads = path, threads
        self._todo = todo[::-1]
        self._workers: list[_Worker] = []
        self._deaths: dict[int | None, int] = {}

    @property
    def is_busy(self) -> bool:
        return bool(self._todo) or any(worker.task is not None for worker in self._workers)

    def start(self, n_worker: int) -> None:
        for _ in range(n_worker):
            self._workers.append(_Worker(self._path, self._threads))

    def kill(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.end()

    def finished(self) -> list[Row]:
        """Rows that came within half a second; hands out work and replaces the dead."""
        rows = []
        owners = {worker.connection: worker for worker in self._workers}
        for connection in wait(list(owners), timeout=_LOOK):
            worker = owners[connection]  # type: ignore[index]
            answer = worker.answer()
            if answer is None:
                self._replace(worker)
                continue
            if answer != "ready":
                rows.append(answer)
            worker.task = None
            if self._todo:
                worker.give(self._todo.pop())
        return rows

    def _replace(self, worker: _Worker) -> None:
        """A worker died: its task comes next, in another process."""
        task, why = worker.task, worker.end()
        self._workers.remove(worker)
        self._deaths[task] = self._deaths.get(task, 0) + 1
        what = "starting" if task is None else f"replicate {task}"
        if self._deaths[task] >= MAX_DEATHS:
            hint = (
                'call it under `if __name__ == "__main__":` in a script'
                if task is None
                else "is there memory for so many workers?"
            )
            raise RunError(f"{what} cost {MAX_DEATHS} processes, the last of which {why}; {hint}")
        log.warning("%s: its process %s, and another does it again", what, why)
        if task is not None:
            self._todo.append(task)
        self.start(1)


class _Worker:
    """One process, and the connection to it."""

    def __init__(self, path: str, threads: int) -> None:
        self.task: int | None = None
        self.connection, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(theirs, path), daemon=True
        )
        with _environment(threads), _deaf():
            self.process.start()
        theirs.close()

    def give(self, task: int) -> None:
        self.task = task
        with contextlib.suppress(OSError):  # it has died: the next look sees that
            self.connection.send(task)

    def answer(self) -> Any:
        """A row, "ready", or None where the process is dead; raises what it raised."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            return None
        if kind == "error":
            raise value
        if kind == "fault":
            raise RuntimeError(f"replicate {self.task} failed in its process:\n{value}")
        return value

    def end(self) -> str:
        """Say how it ended; it is killed where it has not, soon."""
        self.process.join(0.2)
        self.process.kill()
        self.process.join()
        self.connection.close()
        code = self.process.exitcode or 0
        if code == -signal.SIGKILL:
            return "was killed (out of memory?)"
        return f"died with {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _work(connection: Connection, path: str) -> None:
    """A worker's life."""
    os.setsid()  # Ctrl-C reaches our parent alone, which ends us
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    logging.getLogger("biro").setLevel(logging.ERROR)
    tqdm.set_lock(threading.RLock())  # its own is a semaphore that a killed process leaves behind
    with open(path, "rb") as file:
        task = pickle.load(file)  # written by our parent into a file that is its own
    connection.send(("ready", "ready"))
    while True:
        k = connection.recv()
        try:
            connection.send(("row", task(k)))
        except BiroError as error:
            connection.send(("error", type(error)(str(error))))
        except Exception:
            connection.send(("fault", traceback.format_exc()))


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _dump(task: Task, file: Any) -> None:
    try:
        pickle.dump(task, file)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"the model or fit_with cannot be sent to other processes ({error}): define functions at the "
            "top of a module, or give workers=1"
        ) from None


@contextlib.contextmanager
def _environment(threads: int) -> Iterator[None]:
    """Variables that a process reads when it starts: how many threads it may use."""
    new = dict.fromkeys(_THREADS, "1") | {"NUMBA_NUM_THREADS": str(threads)}
    before = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Ignore SIGINT, which a process that is started inherits: no trace of it while it imports."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
