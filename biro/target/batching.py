"""A pool of threads for callers that ask for one likelihood at a time: it answers them in batches.

A sampler such as dynesty proposes N points by running N copies of a Markov chain, each of which
calls a likelihood of one vector. Here every copy runs in a thread of its own that stops in `ask`;
when all threads that still run have stopped there, the thread that called `map` evaluates all rows
in one call and lets them go on. No two threads ever evaluate, and rows are ordered by task, so
the outcome depends on the sampler's seeds alone, never on which thread was faster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.errors import BiroError, InputError

_task = threading.local()
Item = TypeVar("Item")
Result = TypeVar("Result")
# A float where `evaluate` gives one number for each row, else float64 (n,).
Value: TypeAlias = Any
# Kind ("ask", "done" or "failed"), index of the task, and what the kind says: a row, a result, an exception.
Message: TypeAlias = tuple[str, int, Any]


class _Cancelled(BaseException):
    """Raised inside a task whose pool is closed; it never leaves the pool."""


def ask(row: NDArray[np.float64]) -> Value:
    """Value of one row (or its values), evaluated together with the rows of the other tasks of the pool.

    A module-level function, so that a sampler that holds it can be pickled without its pool.

    Parameters
    ----------
    row : float64 (n_dim,)

    Raises
    ------
    BiroError
        When called outside of a task of a `BatchingPool`.
    """
    exchange = getattr(_task, "exchange", None)
    if exchange is None:
        raise BiroError("ask() was called outside of a task of a BatchingPool; call the pool's map")
    return exchange(row)


class BatchingPool:
    """`map` runs up to `size` tasks side by side and answers their `ask` calls in batches.

    Parameters
    ----------
    evaluate : callable
        float64 (n_row, n_dim) -> float64 (n_row,) or (n_row, n). Called only by the thread that calls `map`.
    size : int
        Tasks side by side (N); longer lists are worked off N at a time, in order.

    Attributes
    ----------
    n_call, n_row : int
        Batches evaluated, and rows in them.

    Raises
    ------
    InputError
        `size` below 1.
    """

    def __init__(self, evaluate: Callable[[NDArray[np.float64]], NDArray[np.float64]], size: int) -> None:
        if size < 1:
            raise InputError(f"a pool needs at least 1 task at a time, got size={size}")
        self.size = size
        self.n_call = 0
        self.n_row = 0
        self._evaluate = evaluate
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._workers: list[_Worker] = []
        self._is_whole = True  # all workers, if any, wait for tasks

    def __enter__(self) -> BatchingPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads, whatever they are doing; the pool can be used again afterwards."""
        try:
            self._end()
        except BaseException:  # of a signal; the others are to end, too
            self._end()
            raise

    def _end(self) -> None:
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.join()
        self._inbox, self._workers, self._is_whole = SimpleQueue(), [], True

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """`[function(item) for item in items]`, with the `ask` calls inside answered in batches.

        Raises
        ------
        Exception
            What `evaluate` raised, or what the first failing task (lowest index) raised;
            all threads have ended their task before it is passed on, unless two signals came.
        """
        tasks = list(items)
        results: list[Result] = []
        for first in range(0, len(tasks), self.size):
            results.extend(self._wave(function, tasks[first : first + self.size]))
        return results

    def _wave(self, function: Callable[[Item], Result], tasks: list[Item]) -> list[Result]:
        """The results of as many tasks as there are threads, at most."""
        if not self._is_whole:  # even `close` was interrupted
            self.close()
        self._is_whole = False
        running, waiting = set(range(len(tasks))), dict[int, NDArray[np.float64]]()
        results, errors = dict[int, Result](), dict[int, BaseException]()
        try:
            while len(self._workers) < len(tasks):
                self._workers.append(_Worker(len(self._workers), self._inbox))
                self._workers[-1].start()
            for worker, task in zip(self._workers, tasks, strict=False):
                worker.start_task(function, task)
            while running:
                kind, index, value = self._inbox.get()
                if kind == "ask":
                    waiting[index] = value
                else:
                    running.discard(index)
                    if kind == "done":
                        results[index] = value
                    else:
                        errors[index] = value
                if running and len(waiting) == len(running):
                    if errors:
                        break
                    self._answer(waiting)
            if errors:
                raise errors[min(errors)]
        except BaseException:
            # The exception of a signal may come between any two lines, so it is unknown which threads wait.
            self.close()
            raise
        self._is_whole = True
        return [results[index] for index in range(len(tasks))]

    def _answer(self, waiting: dict[int, NDArray[np.float64]]) -> None:
        order = sorted(waiting)
        values = self._evaluate(np.stack([waiting[index] for index in order]))
        self.n_call += 1
        self.n_row += len(order)
        for index, value in zip(order, values.tolist() if values.ndim == 1 else values, strict=True):
            del waiting[index]
            self._workers[index].reply(value)


class _Worker:
    """One thread with an inbox of its own; it answers into that of the pool."""

    def __init__(self, index: int, inbox: SimpleQueue[Message]) -> None:
        self._index = index
        self._outbox = inbox
        self._inbox: SimpleQueue[Any] = SimpleQueue()  # a task, the value that it asked for, or None: stop
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"biro-batch-{index}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def start_task(self, function: Callable[[Item], Result], task: Item) -> None:
        self._inbox.put((function, task))

    def reply(self, value: Value) -> None:
        self._inbox.put(value)

    def stop(self) -> None:
        """Unwind the task where it asks, now or next, and end the thread."""
        self._stopped = True
        self._inbox.put(None)

    def join(self) -> None:
        if self._thread.is_alive():  # not, if a signal's exception came before it had begun
            self._thread.join()

    def _run(self) -> None:
        _task.exchange = self._exchange
        while True:
            message = self._inbox.get()
            if self._stopped:
                return
            function, task = message
            try:
                answer: Message = ("done", self._index, function(task))
            except BaseException as error:  # a task that ends in silence would block the pool for ever
                answer = ("failed", self._index, error)
            self._outbox.put(answer)
            if self._stopped:  # the message that says so may have been read in the task
                return

    def _exchange(self, row: NDArray[np.float64]) -> Value:
        if not self._stopped:
            self._outbox.put(("ask", self._index, row))
            value = self._inbox.get()
        if self._stopped:
            raise _Cancelled
        return value
