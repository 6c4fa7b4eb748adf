"""A pool of processes for independent tasks: the task of a process that dies is done again by another."""

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
from multiprocessing.process import BaseProcess
from typing import IO, Generic, TypeVar, cast

from tqdm import tqdm

from biro.errors import BiroError, InputError, RunError
from biro.run.interrupt import StopFlag

log = logging.getLogger(__name__)

T = TypeVar("T")
MAX_DEATHS = 3
"""Processes that a task may end before it is given up."""
_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_CHECK_EVERY = 0.5
"""Seconds between two checks whether to stop."""


def n_core() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_tasks(task: Callable[[int], T], todo: Sequence[int], n_worker: int, stop: StopFlag) -> Iterator[T]:
    """The results of a task for some numbers, in the order in which they come; ends early when `stop` is set.

    Parameters
    ----------
    task : function of one int
        It and its results are picklable where there are several workers.
    todo : sequence of int
    n_worker : int
        1: in this process, one after the other. More: in as many spawned processes, which share the cores.
        They end when this process ends, however that happens.
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


def _in_processes(task: Callable[[int], T], todo: list[int], n_worker: int, stop: StopFlag) -> Iterator[T]:
    with tempfile.NamedTemporaryFile(prefix="biro-") as file:
        _dump(task, file)
        file.flush()
        threads = max(1, n_core() // n_worker)
        pool: _Pool[T] = _Pool(file.name, threads, todo)
        try:
            pool.start(n_worker)
            while pool.is_busy and not stop:
                yield from pool.finished()
        finally:
            pool.kill()


class _Pool(Generic[T]):
    """The worker processes, and which of them has which task."""

    def __init__(self, path: str, threads: int, todo: list[int]) -> None:
        self._path, self._threads = path, threads
        self._todo = todo[::-1]
        self._workers: list[_Worker[T]] = []
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

    def finished(self) -> list[T]:
        """Results that came within half a second; hands out tasks and replaces processes that died."""
        results: list[T] = []
        owners = {worker.connection: worker for worker in self._workers}
        for connection in wait(list(owners), timeout=_CHECK_EVERY):
            worker = owners[cast("Connection", connection)]
            try:
                results += worker.receive()
            except (EOFError, OSError):
                self._replace(worker)
                continue
            worker.task = None
            if self._todo:
                worker.give(self._todo.pop())
        return results

    def _replace(self, worker: _Worker[T]) -> None:
        """Replace a worker that died; its task is done next, in another process.

        Raises
        ------
        RunError
            The task has ended its process three times.
        """
        task, why = worker.task, worker.end()
        self._workers.remove(worker)
        self._deaths[task] = self._deaths.get(task, 0) + 1
        name = "starting" if task is None else f"replicate {task}"
        if self._deaths[task] >= MAX_DEATHS:
            hint = (
                'call it under `if __name__ == "__main__":` in a script'
                if task is None
                else "is there memory for so many workers?"
            )
            raise RunError(f"{name} cost {MAX_DEATHS} processes, the last of which {why}; {hint}")
        log.warning("%s: its process %s, and another does it again", name, why)
        if task is not None:
            self._todo.append(task)
        self.start(1)


class _Worker(Generic[T]):
    """One process, and the connection to it."""

    def __init__(self, path: str, threads: int) -> None:
        self.task: int | None = None
        self.connection, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(theirs, path), daemon=True
        )
        with _environment(threads), _ignoring_interrupts():
            self.process.start()
        theirs.close()

    def give(self, task: int) -> None:
        self.task = task
        with contextlib.suppress(OSError):  # it has died: the next look sees that
            self.connection.send(task)

    def receive(self) -> list[T]:
        """The result of its task, or nothing where it says only that it is ready.

        Raises
        ------
        EOFError, OSError
            The process has died.
        BiroError
            What the task raised.
        RuntimeError
            The task raised something else.
        """
        kind, value = self.connection.recv()
        if kind == "error":
            raise value
        if kind == "fault":
            raise RuntimeError(f"replicate {self.task} failed in its process:\n{value}")
        return [value] if kind == "result" else []

    def end(self) -> str:
        """End the process, unless it ends by itself at once, and say how it ended."""
        self.process.join(0.2)
        self.process.kill()
        self.process.join()
        self.connection.close()
        code = self.process.exitcode or 0
        if code == -signal.SIGKILL:
            return "was killed (out of memory?)"
        return f"died with {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _work(connection: Connection, path: str) -> None:
    """What a worker process does: it receives numbers and sends results, until it is killed."""
    os.setsid()  # Ctrl-C reaches our parent alone, which ends us
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    logging.getLogger("biro").setLevel(logging.ERROR)
    tqdm.set_lock(threading.RLock())  # its own is a semaphore that a killed process leaves behind
    with open(path, "rb") as file:
        task = pickle.load(file)  # written by our parent into a file that is its own
    connection.send(("ready", None))
    while True:
        k = connection.recv()
        try:
            connection.send(("result", task(k)))
        except BiroError as error:
            connection.send(("error", type(error)(str(error))))
        except Exception:
            connection.send(("fault", traceback.format_exc()))


def _end_with(parent: BaseProcess) -> None:
    """End this process when its parent ends."""
    parent.join()
    os._exit(1)


def _dump(task: Callable[[int], T], file: IO[bytes]) -> None:
    try:
        pickle.dump(task, file)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"the model or fit_with cannot be sent to other processes ({error}): define functions at the "
            "top of a module, or give workers=1"
        ) from None


@contextlib.contextmanager
def _environment(threads: int) -> Iterator[None]:
    """Set the variables that tell a process that is started now how many threads it may use."""
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
def _ignoring_interrupts() -> Iterator[None]:
    """Ignore SIGINT, as a process that is started now does, too: no trace is printed while it imports."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
