"""Measure what ranks of MPI cost: the latency of a likelihood call, and ranks beside threads.

    python benchmarks/ranks.py [--device cpu|cuda] [--quick] [--output FILE]

An empty call is chi2 of one source and a few rows, which takes as long as messages and calls of Python do:
on 1, 2, 16 and 64 ranks of one machine, with more ranks than cores as well. Then chi2 of a larger case on two
ranks of one thread, beside one process with two threads, and beside the same with the shards that ranks have.
With GPUs a rank takes one, and chi2 is that of the table's case with more times, single precision. "Same
bits" says whether chi2 is the same for any number of ranks. Without mpi4py nothing is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
from chi2.cases import EXTENT, FULL, Case, field, sources
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import measure
from common.types import Line

from rime_kernels import Rime

N_RANK = (1, 2, 16, 64)
NAME = {"cpu": "27 antennas, 100 points", "cuda": "64 antennas, 100 points"}
N_TIME = 1000
"""Times of the case for GPUs: so many that a call takes milliseconds."""
WITHIN = 1.05
"""Two ranks of one thread should need at most so many times what one process with two threads needs."""
GOAL = 1.93
"""Times one GPU that two ranks with one each should be."""


def case_of(name: str, backend: Literal["cpu", "cuda"]) -> Case:
    """The empty call, or the case with which ranks and threads, or GPUs, are compared."""
    whole = next(case for case in FULL if case.name == NAME[backend])
    if name == "empty":
        return replace(whole, n_antenna=3, n_time=4, n_chan=2, n_point=1)
    return whole if backend == "cpu" else replace(whole, n_time=N_TIME)


def worker(name: str, repeat: int, n_rank: int, backend: Literal["cpu", "cuda"]) -> None:
    """Measure one case on so many ranks, or without any (0), and print a line of JSON on rank 0."""
    ranks = None
    if n_rank:
        from mpi4py import MPI

        from biro.distributed.start import start

        if MPI.COMM_WORLD.size != n_rank:
            raise SystemExit(f"mpiexec started {MPI.COMM_WORLD.size} ranks of {n_rank}: it is of another MPI")
        ranks = start(MPI.COMM_WORLD)
    case = case_of(name, backend)
    whole, sky = field(case), sources(case)
    rime = Rime(
        whole.rows,
        vis=whole.vis,
        weight=whole.weight,
        backend=backend,
        precision="double" if backend == "cpu" else "single",
        form=case.form,
        extent=EXTENT,
        ranks=ranks,
    )
    chi2 = rime.chi2(sky)
    timing = measure(lambda: rime.chi2(sky), repeat)
    print(json.dumps({"ms": 1e3 * timing.median, "chi2": chi2.tolist()}))


def measured(name: str, n_rank: int, n_thread: int, repeat: int, backend: str) -> Line:
    """Measure one line: on ranks, or in one process without shards where there are none (0)."""
    words = [sys.executable, __file__, "--worker", name, str(repeat), str(n_rank), backend]
    command = ["mpiexec", "-n", str(n_rank), *words] if n_rank else words
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"NUMBA_NUM_THREADS": str(n_thread)},
    )
    # An mpiexec may say something of its own.
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return {"case": name, "n_rank": n_rank, "n_thread": n_thread, "repeat": repeat, **found}


def text(line: Line) -> str:
    """A line of the table."""
    by = f"{line['n_rank']} ranks" if line["n_rank"] else "one process, no shards"
    return f"{line['case']:10}{by:>24}{line['n_thread']:9}{line['ms']:12.3f}"


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        name, repeat, n_rank, backend = sys.argv[2:]
        worker(name, int(repeat), int(n_rank), "cuda" if backend == "cuda" else "cpu")
        return 0
    args = parse(make_parser(__doc__, device=True, repeat=200))
    about, lines = machine(args.device), list[Line]()
    sizes = {name: asdict(case_of(name, args.device)) for name in ("empty", "whole")}
    found: dict[str, object] = {
        "device": args.device,
        "machine": about,
        "quick": args.quick,
        "sizes": sizes,
        "lines": lines,
    }
    path = output_path(args, "ranks", f"{machine_slug(about)}.json")
    os.environ["PATH"] = (
        f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of a virtual environment
    )
    if find_spec("mpi4py") is None or shutil.which("mpiexec") is None:
        print("nothing is measured: mpi4py or mpiexec is missing (pip install mpi4py mpich)")
        write(path, found)
        return 0
    print(f"{'case':10}{'shared by':>24}{'threads':>9}{'median, ms':>12}")
    runs = [("empty", 0, 1)] + [("empty", n, 1) for n in N_RANK[: 2 if args.quick else None]]
    if args.device == "cuda":
        runs = [("empty", 0, 1)] if args.quick else [("empty", n, 1) for n in (0, 1, 2)]
    if not args.quick:
        runs += [("whole", 0, 2), ("whole", 1, 2), ("whole", 2, 1)]
    for name, n_rank, n_thread in runs:
        is_long = name == "whole" or n_rank > (os.cpu_count() or 1)
        repeat = max(1, args.repeat // 10) if is_long else args.repeat
        lines.append(measured(name, n_rank, n_thread, repeat, args.device))
        print(text(lines[-1]), flush=True)
        write(path, found)
    same = [
        np.array_equal(line["chi2"], other["chi2"])
        for line in lines
        for other in lines
        if line["case"] == other["case"] and line["n_rank"] and other["n_rank"]
    ]
    found["same bits"] = all(same)
    if not args.quick:
        if args.device == "cpu":
            found["ranks over threads"] = lines[-1]["ms"] / lines[-3]["ms"]
            print(f"two ranks over two threads: {found['ranks over threads']:.3f}; goal {WITHIN}")
        else:
            found["times one"] = lines[-3]["ms"] / lines[-1]["ms"]
            print(f"two ranks with a GPU each, times one GPU: {found['times one']:.3f}; goal {GOAL}")
    print(f"same bits: {found['same bits']}")
    write(path, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
