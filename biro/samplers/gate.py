"""A gate where the chains of NUTS meet: the calls of their threads are answered in one batch."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
PATIENCE = 0.02
"""Seconds that the first to ask waits for others, because chains that have ended ask no more."""


class ClosedError(Exception):
    """The gate answers no more."""


class Gate:
    """Evaluates the rows that threads ask for, each thread one row, in common batches.

    The threads are nutpie's. Unlike in a `BatchingPool`, nothing tells when one of them ends: the first to
    ask waits until as many have asked as in the call before, or for `PATIENCE`. The answer to a row does not
    depend on the other rows.

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
        self._changed = threading.Condition()
        self._waiting: list[_Question] = []
        self._busy, self._expected = False, 1
        self.n_call = self.n_row = 0
        self.error: Exception | None = None

    @property
    def busy(self) -> bool:
        """Whether a call is in progress."""
        return self._busy

    def close(self) -> None:
        """Answer no more: a thread that asks from now on gets an error."""
        with self._changed:
            self.error = self.error or ClosedError()
            self._changed.notify_all()

    def __call__(self, row: Array) -> Array:
        """The answer to one row.

        Raises
        ------
        Exception
            What `evaluate` raised.
        """
        question = _Question(np.array(row))
        with self._changed:
            self._waiting.append(question)
            self._changed.notify_all()
            while self._busy and question.answer is None and self.error is None:
                self._changed.wait()
            if question.answer is None and self.error is None:
                self._busy = True
                self._changed.wait_for(lambda: len(self._waiting) >= self._expected, PATIENCE)
                together, self._waiting = self._waiting, []
                self._expected = len(together)
                self._busy = self.error is None  # closed meanwhile: nothing is worked out
        if question.answer is None and self.error is None:
            self._answer(together)
        if self.error is not None:
            raise self.error
        assert question.answer is not None
        return question.answer

    def _answer(self, together: list[_Question]) -> None:
        try:
            answers = self._evaluate(np.stack([question.row for question in together]))
        except Exception as error:
            self._failed()
            self.error = error
        with self._changed:
            if self.error is None:
                self.n_call += 1
                self.n_row += len(together)
                for question, answer in zip(together, answers, strict=True):
                    question.answer = answer
            # Threads that asked in the meantime have to be waited for, too.
            self._expected += len(self._waiting)
            self._busy = False
            self._changed.notify_all()


class _Question:
    """A row, and its answer once there is one."""

    def __init__(self, row: Array) -> None:
        self.row, self.answer = row, None

    answer: Array | None
