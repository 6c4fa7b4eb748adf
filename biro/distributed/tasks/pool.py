"""A pool of processes: the task of one that dies is done again by another, and given up after some deaths."""

from __future__ import annotations

import contextlib
import logging
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar, cast

from biro.distributed.tasks.cores import n_core
from biro.distributed.tasks.lost import CHECK_EVERY, LostTask
from biro.distributed.tasks.worker import Worker
from biro.errors import InputError, RunError
from biro.run.interrupt import StopFlag

log = logging.getLogger(__name__)

A = TypeVar("A")
T = TypeVar("T")
MAX_DEATHS = 3
"""Processes that a task may end before it is given up."""


def in_processes(
    task: Callable[[A], T], todo: Mapping[str, A], n_worker: int, stop: StopFlag
) -> Iterator[T | LostTask]:
    """Run tasks (`run_tasks`) in so many spawned processes, which share the cores.

    They end when this process ends, however that happens.
    """
    if not todo:
        return
    n_worker = min(n_worker, len(todo))
    with tempfile.NamedTemporaryFile(prefix="biro-") as file:
        with sendable():
            pickle.dump(task, file)
        file.flush()
        pool: _Pool[A, T] = _Pool(file.name, max(1, n_core() // n_worker), todo)
        try:
            pool.start(n_worker)
            while pool.is_busy and not stop:
                yield from pool.finished()
        finally:
            pool.kill()


class _Pool(Generic[A, T]):
    """The worker processes, and which of them has which task."""

    def __init__(self, path: str, threads: int, todo: Mapping[str, A]) -> None:
        self._path, self._threads, self._arguments = path, threads, todo
        self._todo = list(todo)[::-1]
        self._workers: list[Worker[T]] = []
        self._deaths: dict[str | None, int] = {}

    @property
    def is_busy(self) -> bool:
        return bool(self._todo) or any(worker.task is not None for worker in self._workers)

    def start(self, n_worker: int) -> None:
        for _ in range(n_worker):
            self._workers.append(Worker(self._path, self._threads))

    def kill(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.end()

    def finished(self) -> list[T | LostTask]:
        """Results that came within half a second; hands out tasks and replaces processes that died."""
        results: list[T | LostTask] = []
        owners = {worker.connection: worker for worker in self._workers}
        for connection in wait(list(owners), timeout=CHECK_EVERY):
            worker = owners[cast("Connection", connection)]
            try:
                results += worker.receive()
            except (EOFError, OSError):
                results += self._replace(worker)
                continue
            worker.task = None
            if self._todo:
                self._give(worker, self._todo.pop())
        return results

    def _give(self, worker: Worker[T], name: str) -> None:
        with sendable():
            worker.give(name, self._arguments[name])

    def _replace(self, worker: Worker[T]) -> list[LostTask]:
        """Replace a worker that died; its task is done next, in another process, or is lost.

        Raises
        ------
        RunError
            Processes die as they start.
        """
        task, why = worker.task, worker.end()
        self._workers.remove(worker)
        deaths = self._deaths[task] = self._deaths.get(task, 0) + 1
        cost = f"cost {deaths} processes, the last of which {why}"
        if task is None and deaths >= MAX_DEATHS:
            raise RunError(f'starting {cost}; call it under `if __name__ == "__main__":` in a script')
        self.start(1)
        if task is None:
            log.warning("a process that was starting %s; starting another", why)
            return []
        if deaths >= MAX_DEATHS:
            return [LostTask(task, f"{task} {cost}; is there enough memory for all workers?")]
        log.warning("%s: its process %s; another process repeats it", task, why)
        self._todo.append(task)
        return []


@contextlib.contextmanager
def sendable() -> Iterator[None]:
    """Refuse what cannot be sent to other processes.

    Raises
    ------
    InputError
    """
    try:
        yield
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"the model or a function cannot be sent to other processes ({error}): define functions at the "
            "top of a module"
        ) from None
