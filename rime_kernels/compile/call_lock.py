"""The lock that lets one call at a time use the compiled loops and the device."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
# Numba's workqueue threading layer aborts when two threads run parallel loops at once, and the arrays of a
# device's workspace serve one call at a time. Reentrant: tuning holds it across the calls that it measures.
CALL_LOCK = threading.RLock()
# The same for threads of devices that compute for shards on the CPU: who waits for them may hold `CALL_LOCK`.
SHARD_LOCK = threading.RLock()


class _Here(threading.local):
    has_device = False


_HERE = _Here()


def take_device() -> None:
    """Say that this thread has a GPU of its own: what it computes there need not wait for other threads."""
    _HERE.has_device = True


def device_lock(backend: str) -> AbstractContextManager[object]:
    """What a call on a backend holds: `CALL_LOCK`, or nothing on the GPU that the thread has to itself."""
    return nullcontext() if backend == "cuda" and _HERE.has_device else CALL_LOCK


def locked(function: Callable[P, R]) -> Callable[P, R]:
    """A compiled loop of the host that calls on GPUs use, in threads that may hold no lock."""

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with CALL_LOCK:
            return function(*args, **kwargs)

    return alone
