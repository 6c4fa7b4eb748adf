"""A pool of threads for callers that ask for one likelihood at a time: it answers them in batches.

A sampler such as dynesty proposes N points by running N copies of a Markov chain, each of which
calls a likelihood of one vector. Here every copy has a thread of its own that stops in `ask`;
when all have stopped there, the thread that called `map` evaluates all rows in one call and lets
them go on, one after the other: between two calls the work is Python's, of which one thread runs
at a time in any case, and proposals of threads that wait for that lock take two to three times as
long (measured). So no task may wait for another. Rows are ordered by task: the outcome depends on
the sampler's seeds alone.
"""

from __future__ import annotations

import threading
from collections import deque
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
# The inbox of a thread, and what is put there: a task with its function, or the value that was asked for.
Turn: TypeAlias = "tuple[SimpleQueue[Any], Any]"


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
        raise BiroError("ask() was called outside a task of a BatchingPool; call the pool's map")
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
        self._relay = _Relay()
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
        self._relay, self._workers, self._is_whole = _Relay(), [], True

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
        relay = self._relay
        relay.results.clear()
        try:
            while len(self._workers) < len(tasks):
                self._workers.append(_Worker(len(self._workers), relay))
                self._workers[-1].start()
            relay.run([(self._workers[index].inbox, (function, task)) for index, task in enumerate(tasks)])
            while relay.waiting and not relay.errors:
                self._answer(relay)
            if relay.errors:
                raise relay.errors[min(relay.errors)]
        except BaseException:
            # The exception of a signal may come between any two lines, so it is unknown which threads wait.
            self.close()
            raise
        self._is_whole = True
        return [relay.results[index] for index in range(len(tasks))]

    def _answer(self, relay: _Relay) -> None:
        """Evaluate the rows that tasks wait for, and let them go on with its values."""
        order = sorted(relay.waiting)
        values = self._evaluate(np.stack([relay.waiting.pop(index) for index in order]))
        self.n_call += 1
        self.n_row += len(order)
        answers = values.tolist() if values.ndim == 1 else values
        relay.run([(self._workers[index].inbox, value) for index, value in zip(order, answers, strict=True)])


class _Relay:
    """Lets one thread run at a time: it wakes the next when it stops, and the last the one that called `run`.

    Attributes
    ----------
    waiting, results, errors : dict
        Rows that tasks ask for, and what tasks ended with, by the index of the task.
    """

    def __init__(self) -> None:
        self.waiting = dict[int, NDArray[np.float64]]()
        self.results = dict[int, Any]()
        self.errors = dict[int, BaseException]()
        self._turns = deque[Turn]()
        self._is_done: SimpleQueue[None] = SimpleQueue()

    def run(self, turns: Iterable[Turn]) -> None:
        """Put each message into its inbox, and wait until the threads have stopped again."""
        self._turns.extend(turns)
        self.pass_on()
        self._is_done.get()

    def pass_on(self) -> None:
        """Called by the thread that runs, as the last thing before it waits."""
        if self._turns:
            inbox, message = self._turns.popleft()
            inbox.put(message)
        else:
            self.wake()

    def wake(self) -> None:
        """Let the thread that called `run` go on: also called by threads that are told to stop."""
        self._is_done.put(None)


class _Worker:
    """One thread with an inbox of its own: for a task, the value that it asked for, or None: stop."""

    def __init__(self, index: int, relay: _Relay) -> None:
        self._index = index
        self._relay = relay
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"biro-batch-{index}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Unwind the task where it asks, now or next, and end the thread."""
        self._stopped = True
        self.inbox.put(None)

    def join(self) -> None:
        if self._thread.is_alive():  # not, if a signal's exception came before it had begun
            self._thread.join()

    def _run(self) -> None:
        _task.exchange = self._exchange
        while True:
            message = self.inbox.get()
            if self._stopped:
                break
            function, task = message
            try:
                self._relay.results[self._index] = function(task)
            except BaseException as error:  # a task that ends in silence would block the pool for ever
                self._relay.errors[self._index] = error
            if self._stopped:  # the message that says so may have been read in the task
                break
            self._relay.pass_on()
        self._relay.wake()

    def _exchange(self, row: NDArray[np.float64]) -> Value:
        if not self._stopped:
            self._relay.waiting[self._index] = row
            self._relay.pass_on()
            value = self.inbox.get()
        if self._stopped:
            raise _Cancelled
        return value
