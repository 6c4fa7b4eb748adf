"""The same function on many cases, a process for each, with a time limit and results as they come."""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib.metadata import version
from pathlib import Path
from typing import Any

Line = dict[str, Any]
RESULTS = Path(__file__).parent / "results" / "trust"


def options(text: str | None, output: Path) -> argparse.ArgumentParser:
    """A parser of the options that these programs share; `text` is the program's docstring."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--time-limit", type=float, default=480.0, help="s; what runs then still ends")
    parser.add_argument("--repeats", type=int, default=20, help="of each case, at most")
    parser.add_argument("--output", type=Path, default=output)
    return parser


def one_thread_each() -> None:
    """Processes that are started from here on compute in one thread; to be called before numba is loaded."""
    os.environ |= dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def each_in_turn(
    function: Callable[[Any], Line], cases: Iterable[Any], workers: int, time_limit: float
) -> Iterator[Line]:
    """What the function makes of each case, as they come; none is begun after `time_limit` seconds."""
    started, left = time.monotonic(), iter(cases)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
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


def written(path: Path, about: Line, lines: Iterable[Line], show: Callable[[Line], str]) -> int:
    """Write JSON lines as they come, what they belong to first, and print them; how many there were."""
    from report import machine

    path.parent.mkdir(parents=True, exist_ok=True)
    started, n = time.monotonic(), 0
    with path.open("w", encoding="utf-8") as file:
        head = {"machine": machine(about.get("device", "cpu")), "dynesty": version("dynesty"), **about}
        for line in itertools.chain([head], lines):
            file.write(json.dumps(line) + "\n")
            file.flush()
            if "machine" not in line:
                n += 1
                print(f"{n:4} {show(line)}", flush=True)
    print(f"{n} lines in {time.monotonic() - started:.0f} s: {path}")
    return n


def read(path: Path) -> tuple[Line, list[Line]]:
    """What a benchmark has written, JSON or JSON lines: what it belongs to, and the lines."""
    if path.suffix == ".json":
        about = json.loads(path.read_text(encoding="utf-8"))
        return about, about.pop("lines")
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    return lines[0], lines[1:]
