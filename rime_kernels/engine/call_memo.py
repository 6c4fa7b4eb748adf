"""What the engines of several shards have in common within one call, and make once for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_thread = threading.local()


@contextmanager
def call_memo() -> Iterator[None]:
    """Within, `memoised_within_call` remembers what this thread has made, until the outermost one ends."""
    if getattr(_thread, "made", None) is not None:
        yield
        return
    _thread.made = {}
    try:
        yield
    finally:
        _thread.made = None


def memoised_within_call(
    kind: str, of: tuple[object, ...], make: Callable[[], T], given: Hashable = None
) -> T:
    """What `make` gives; within `call_memo` that is not made again for the same objects.

    One result of each kind is remembered, the last one.

    Parameters
    ----------
    kind : str
    of : tuple
        What the result is made of, compared by identity.
    make : function
        Its result is for reading alone.
    given : hashable, optional
        All else that the result depends on, compared by value.
    """
    made: dict[str, tuple[tuple[object, ...], Hashable, Any]] | None = getattr(_thread, "made", None)
    if made is None:
        return make()
    before = made.get(kind)
    if before is None or before[1] != given or any(a is not b for a, b in zip(before[0], of, strict=True)):
        made[kind] = before = of, given, make()
    found: T = before[2]
    return found
