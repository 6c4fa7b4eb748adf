"""Tasks over ranks of MPI: each does one after the other, as rank 0 hands them out."""

from __future__ import annotations

import functools
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from biro.distributed.data_on_ranks import on_own_device
from biro.distributed.messages import Answer
from biro.distributed.ranks import MpiRanks
from biro.distributed.tasks.pool import sendable
from biro.run.interrupt import StopFlag
from rime_kernels.choices import Backend

A = TypeVar("A")
T = TypeVar("T")
_PAUSE = 0.01
"""Seconds between two looks whether a result has come."""


def in_ranks(
    task: Callable[[A], T], todo: Mapping[str, A], ranks: MpiRanks, stop: StopFlag, backend: Backend
) -> Iterator[T]:
    """Run tasks on ranks (`run_tasks`); each receives task and data once, and rank 0 works, too.

    When `stop` is set, or a task has failed, tasks that ranks work on are finished, and no others are begun:
    nothing that is done is lost. The first error is raised then.
    """
    if not todo:
        return
    ranks.check_alike(backend)
    with sendable():
        packed = pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL)
    with ranks.working(_unpacked, packed, backend) as hand, _Own(task, backend) as own:
        free, left = [own.rank, *range(1, ranks.n_rank)], list(todo.values())[::-1]
        n_busy, failure = 0, None
        while n_busy or (left and not stop and failure is None):
            while free and left and not stop and failure is None:
                rank, argument = free.pop(0), left.pop()
                n_busy += 1
                if rank == own.rank:
                    own.give(argument)
                else:
                    hand.give(rank, argument)
            done = [*own.taken(), *hand.taken()]
            for rank, answer in done:
                n_busy -= 1
                free.append(rank)
                if answer.failure is None:
                    yield answer.value
                failure = failure or answer.failure
            if not done:
                time.sleep(_PAUSE)
        if failure is not None:
            raise failure


def _unpacked(packed: bytes, backend: Backend) -> Callable[[Any], Any]:
    """The task, which a rank does in the thread of its device."""
    task = on_own_device(backend, functools.partial(pickle.loads, packed))  # rank 0 has packed it
    return lambda argument: on_own_device(backend, functools.partial(task, argument))


class _Own:
    """The tasks of rank 0, in a thread beside the one that hands out tasks and takes results."""

    rank = 0

    def __init__(self, task: Callable[[Any], Any], backend: Backend) -> None:
        self._task, self._backend = task, backend
        self._todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def __enter__(self) -> _Own:
        threading.Thread(target=self._work, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._todo.put(None)

    def give(self, argument: object) -> None:
        self._todo.put((argument,))

    def taken(self) -> list[tuple[int, Answer]]:
        """The result or error that has come, if one has."""
        return [] if self._done.empty() else [(self.rank, self._done.get())]

    def _work(self) -> None:
        while (given := self._todo.get()) is not None:
            try:
                value = on_own_device(self._backend, functools.partial(self._task, *given))
                self._done.put(Answer(value))
            except BaseException as error:
                self._done.put(Answer(failure=error))
