"""The results of a benchmark as files: JSON, or JSON lines that are written as they come."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from common.machine import machine
from common.types import Line


def write(path: Path | None, run: Mapping[str, object]) -> None:
    """Write a run as JSON; nothing where there is no path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


def write_lines(path: Path | None, about: Line, lines: Iterable[Line], show: Callable[[Line], str]) -> int:
    """Print lines as they come and write them as JSON lines, after a first one on the machine and the run.

    Parameters
    ----------
    path : Path or None
        Without one, the lines are printed alone.
    about : dict
        What the lines belong to: options of the run, and "device" where it is not the CPU.
    lines : iterable of dict
    show : function
        Makes the text that is printed of a line.

    Returns
    -------
    int
        How many lines there were.
    """
    started, n = time.monotonic(), 0
    head = {"machine": machine(about.get("device", "cpu")), "dynesty": version("dynesty"), **about}
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
    for line in itertools.chain([head], lines):
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        if line is not head:
            n += 1
            print(f"{n:4} {show(line)}", flush=True)
    print(f"{n} lines in {time.monotonic() - started:.0f} s: {path or 'not written'}")
    return n


def read(path: Path) -> tuple[Line, list[Line]]:
    """Read what a benchmark has written, JSON or JSON lines: what the lines belong to, and the lines."""
    if path.suffix == ".json":
        about = json.loads(path.read_text(encoding="utf-8"))
        return about, about.pop("lines")
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    return lines[0], lines[1:]
