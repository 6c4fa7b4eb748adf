"""Loops that another process compiles: they are those that are called, and the process ends in any case."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.typing.typeof import Purpose, typeof

from rime_kernels import AntennaTerms, Rime, Rows, Smearing
from rime_kernels.cpu import engine

# ---- which loops: those that the gradient is computed in


class Recorder:
    """In place of a loop: notes the types that it is called with."""

    def __init__(self) -> None:
        self.called: list[Any] = []

    def typeof_pyval(self, value: Any) -> Any:
        return typeof(value, Purpose.argument)

    def __call__(self, *arguments: Any) -> None:
        self.called.append(tuple(map(self.typeof_pyval, arguments)))


@pytest.fixture
def makers(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[Any, ...], Recorder]:
    """What stands in for the loops of the gradient, by the name of what makes them and its options."""
    made: dict[tuple[Any, ...], Recorder] = {}

    def maker(name: str) -> Callable[..., Recorder]:
        return lambda *options: made.setdefault((name, *options), Recorder())

    for name in ("make_gradients", "make_jones_gradients"):
        monkeypatch.setattr(engine, name, maker(name))
    return made


def rime_of(rows: Rows, **options: Any) -> Rime:
    shape = rows.n_row, rows.n_chan, rows.n_corr
    data = {"vis": np.ones(shape, complex), "weight": np.ones(shape)}
    return Rime(rows, **{**data, "backend": "cpu", "extent": 0.04, **options})


def smearing_of(rows: Rows) -> Smearing:
    """The loss of sources within 0.04 is of several nodes."""
    return Smearing(0.6, np.full(rows.n_row, 15.0), np.full(rows.n_chan, 0.5e6), error=1e-8)


def unit_terms(rows: Rows) -> AntennaTerms:
    jones = np.ones((1, 1, rows.n_antenna, 1, 2, 2), complex)
    return AntennaTerms(jones, np.zeros(rows.n_time), np.zeros(rows.n_chan))


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("kind", ["plain", "smeared", "matrices", "beam of matrices"])
def test_the_loops_are_those_of_the_gradient(
    problem, sky, jones_beam_of, makers, precision, form, kind
) -> None:
    rows: Rows = problem(n_antenna=4, n_chan=2)
    changes: dict[str, Any] = {}
    if kind == "matrices":
        changes["antenna_terms"] = unit_terms(rows)
    if kind == "beam of matrices":
        changes["beam"] = jones_beam_of(rows, 1)
    sources = sky(rows, 1, **changes)
    smearing = smearing_of(rows) if kind == "smeared" else None
    rime = rime_of(rows, precision=precision, form=form, smearing=smearing)
    loops = rime.gradient_loops(sources)
    rime.chi2_and_gradient(sources)
    assert len(makers) == 1  # no other loop is called
    for recorder in makers.values():
        assert len(loops) == len(recorder.called) > 0
        assert [loop.types for loop in loops] == recorder.called


# ---- the process, with a loop of a module that it can import

LOOPS = """
import functools, time
from rime_kernels.compile import jit

here = "child"

@functools.cache
def make(what):
    if here == "child" and what == "slow":
        time.sleep(600)
    if here == "child" and what == "broken":
        raise ValueError

    @jit.serial_loop
    def thrice(n):
        return 3 * n

    return thrice
"""
PROGRAM = """
import subprocess, sys, time
import loops
from rime_kernels.compile import ahead

loops.here = "parent"
what, pids = sys.argv[1], []

class Noted(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        pids.append(self.pid)

ahead.subprocess.Popen = Noted
loop = ahead.loop_for(loops.make, (what,), (7,))
with ahead.compiled_ahead([loop]):
    print(*pids, flush=True)
    if what == "slow":
        sys.stdin.readline()
    else:
        print(loop.compiled(7), sum(loop.compiled.stats.cache_hits.values()), flush=True)
print("the block has ended", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    (tmp_path / "loops.py").write_text(LOOPS)
    path = os.pathsep.join([str(tmp_path), str(Path(engine.__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    environment["NUMBA_NUM_THREADS"] = "2"
    return functools.partial(_start, environment)


def _start(environment: dict[str, str], what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, what],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def lines(process: subprocess.Popen[str]) -> list[str]:
    return process.communicate(timeout=60)[0].splitlines()


def test_it_is_compiled_there_and_found_here(start) -> None:
    pids, found, _ = lines(start("quick"))
    assert len(pids.split()) == 1
    assert found == "21 1"  # three times seven, with machine code from disk, which was empty
    assert lines(start("quick"))[:2] == ["", "21 1"]  # no process


def test_where_it_fails_it_is_compiled_here(start) -> None:
    assert lines(start("broken"))[1] == "21 0"


@pytest.mark.parametrize("end", ["block", "killed"])
def test_it_does_not_outlive_who_started_it(start, end) -> None:
    process = start("slow")
    child = int(process.stdout.readline())
    assert runs(child)
    if end == "killed":
        process.send_signal(signal.SIGKILL)
    else:
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
    until = time.monotonic() + 20.0
    while runs(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not runs(child)
    assert (process.poll() is None) == (end == "block")
    lines(process)


def runs(pid: int) -> bool:
    """Whether a process is there, and not only its exit status."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
