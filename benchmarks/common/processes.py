"""One function is run on many cases, in as many processes, with a time limit and results as they come."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TypeVar

from common.options import make_parser
from common.types import Line

Case = TypeVar("Case")


def make_pool_parser(text: str | None) -> argparse.ArgumentParser:
    """Make a parser that has `--workers`, `--time-limit` and `--repeats` too; `text` is the docstring."""
    parser = make_parser(text)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--time-limit", type=float, default=480.0, help="s; what runs then still ends")
    parser.add_argument("--repeats", type=int, default=20, help="of each case, at most")
    return parser


def one_thread_each() -> None:
    """Let processes that are started from here on compute in one thread; call it before numba is loaded."""
    os.environ |= dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def each_in_turn(
    function: Callable[[Case], Line], cases: Iterable[Case], workers: int, time_limit: float
) -> Iterator[Line]:
    """Yield what the function makes of each case, as they come.

    None is begun after `time_limit` seconds. With one worker, everything is done in this process.
    """
    started, left = time.monotonic(), iter(cases)
    if workers == 1:
        for case in left:
            if time.monotonic() - started >= time_limit:
                return
            yield function(case)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _end_with_parent, (os.getpid(),)) as pool:
        waiting: set[Future[Line]] = set()
        while True:
            if time.monotonic() - started < time_limit:
                more = itertools.islice(left, 2 * workers - len(waiting))
                waiting |= {pool.submit(function, case) for case in more}
            else:
                waiting -= {future for future in waiting if future.cancel()}
            if not waiting:
                return
            done, waiting = wait(waiting, timeout=5.0, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def _end_with_parent(parent: int) -> None:
    """Let this process end when its parent has been killed, which tells a pool nothing."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(2.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
