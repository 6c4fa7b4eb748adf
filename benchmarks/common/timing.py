"""Measure how long a call takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

# Seconds that the calls of one median may take together, and those of short calls should.
_LONGEST, _SHORTEST = 20.0, 0.2
_MOST_CALLS = 2000


@dataclass(frozen=True)
class Timing:
    """Seconds of the first call (which compiles), and of those after it."""

    first: float
    median: float
    least: float
    n: int


def seconds_of(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(call: Callable[[], object], repeat: int, longest: float = _LONGEST) -> Timing:
    """Median of `repeat` calls after two for warming up; fewer (at least 3) where they would take more than
    `longest` seconds, more where they take little: the median of short calls needs many. A quick run, which
    repeats once, times the second call.

    The call returns when its work is done: on a GPU, with the result on the host.
    """
    first = seconds_of(call)
    warm = seconds_of(call)
    if repeat == 1:
        return Timing(first, warm, warm, 1)
    n = repeat
    if warm * repeat > longest:
        n = max(3, int(longest / warm))
    elif warm * repeat < _SHORTEST and repeat >= 20:
        n = min(_MOST_CALLS, int(_SHORTEST / warm))
    found = [seconds_of(call) for _ in range(min(n, max(repeat, _MOST_CALLS)))]
    return Timing(first, statistics.median(found), min(found), len(found))


def in_turns(calls: list[Callable[[], object]], repeat: int) -> list[float]:
    """Median seconds of each, after two calls that compile and record; a quick run compiles alone."""
    for call in (1 if repeat == 1 else 2) * calls:
        call()
    turns = [[seconds_of(call) for call in calls] for _ in range(repeat)]
    return [statistics.median(times) for times in zip(*turns, strict=True)]
