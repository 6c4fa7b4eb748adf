"""A gate where the chains of NUTS meet: the calls of their threads are answered in one batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
PATIENCE = 0.02
"""Seconds that the first to ask waits for others, because chains that have ended ask no more."""


class ClosedError(Exception):
    """The gate answers no more."""


class BatchGate:
    """Evaluates the rows that threads ask for, each thread one row, in common batches.

    The threads are nutpie's. Unlike in a `BatchingPool`, nothing tells when one of them ends: rows wait until
    as many have come as there are threads that were in one of the two calls before, or for `PATIENCE`. The
    answer to a row does not depend on the other rows.

    The thread that brings the last row evaluates all of them, so that it alone need not be woken, and each of
    the others is woken once, when it has its answer: to wake a thread takes about as long as to evaluate a
    small likelihood.

    Parameters
    ----------
    evaluate : callable
        float64 (n_row, n_dim) -> float64 (n_row, n). One call at a time.
    failed : callable, optional
        Called when `evaluate` raises something, before the threads get that error.

    Attributes
    ----------
    n_call, n_row : int
        Calls, and rows in them.
    error : Exception or None
        The first that `evaluate` raised; all threads that ask afterwards get it, too.
    """

    def __init__(self, evaluate: Callable[[Array], Array], failed: Callable[[], None] = lambda: None) -> None:
        self._evaluate, self._failed = evaluate, failed
        self._lock = threading.Lock()
        self._waiting: list[_GateRequest] = []
        self._busy, self._expected, self._threads = False, 1, set[int]()
        self._answered = time.monotonic()  # when the last call ended
        self.n_call = self.n_row = 0
        self.error: Exception | None = None

    @property
    def busy(self) -> bool:
        """Whether a call is in progress."""
        return self._busy

    def close(self) -> None:
        """Answer no more: a thread that asks from now on gets an error."""
        with self._lock:
            self.error = self.error or ClosedError()
            waiting, self._waiting = self._waiting, []
        for question in waiting:
            question.told.release()

    def __call__(self, row: Array) -> Array:
        """The answer to one row.

        Raises
        ------
        Exception
            What `evaluate` raised.
        """
        question = _GateRequest(np.array(row))
        with self._lock:
            if self.error is not None:
                raise self.error
            is_first = not self._waiting
            self._waiting.append(question)
            together = self._taken() if len(self._waiting) >= self._expected else []
        if not together:
            together = self._wait(question, is_first=is_first)
        if together:
            self._answer(together, question)
        if question.answer is None:
            assert self.error is not None
            raise self.error
        return question.answer

    def _wait(self, question: _GateRequest, *, is_first: bool) -> list[_GateRequest]:
        """Wait for the answer; or, where the first has waited too long, take all who wait now."""
        if not is_first:
            question.told.acquire()
            return []
        patience = PATIENCE
        while not question.told.acquire(timeout=patience):
            with self._lock:
                # Those who have just been answered have not had the time to ask again.
                patience = self._answered + PATIENCE - time.monotonic()
                if self._busy or question not in self._waiting:
                    patience = PATIENCE
                elif patience <= 0.0:
                    return self._taken()
        return []

    def _taken(self) -> list[_GateRequest]:
        """All who wait, for a call that begins now; none while there is one. The caller has the lock."""
        if self._busy:
            return []
        together, self._waiting = self._waiting, []
        before, self._threads = self._threads, {question.thread for question in together}
        self._expected, self._busy = len(before | self._threads), True
        return together

    def _answer(self, together: list[_GateRequest], own: _GateRequest) -> None:
        """Evaluate all rows, and tell all who wait for them but the one whose thread this is."""
        try:
            answers = self._evaluate(np.stack([question.row for question in together]))
        except Exception as error:
            self._failed()
            self.error = error
        with self._lock:
            if self.error is None:
                self.n_call += 1
                self.n_row += len(together)
                for question, answer in zip(together, answers, strict=True):
                    question.answer = answer
            else:  # those who asked meanwhile are not answered either
                together, self._waiting = together + self._waiting, []
            self._busy, self._answered = False, time.monotonic()
        for question in together:
            if question is not own:
                question.told.release()


class _GateRequest:
    """A row and the thread that asks, its answer once there is one, and a lock: free once that may go on."""

    def __init__(self, row: Array) -> None:
        self.row, self.thread, self.told = row, threading.get_ident(), threading.Lock()
        self.told.acquire()
        self.answer: Array | None = None
