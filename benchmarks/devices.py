"""Measure how much faster several GPUs are than one: `Rime.chi2` and its gradient, data shared in shards.

    python benchmarks/devices.py [--device cpu|cuda] [--quick] [--output FILE]

One GPU without shards, the same with them, each other GPU with shards, and all GPUs of the machine by turns
in one run. The goal is 1.93 times one GPU with two, for the table's case with 1000 times, and 1.9 times for
data that are streamed. "Same bits" says whether chi2 is the same for any number of GPUs. On a CPU nothing is
measured. Results are written as they come.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import asdict, replace

import numpy as np
from chi2.cases import EXTENT, FULL, TINY, Case, field, sources
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import in_turns
from common.types import Line

from rime_kernels import Rime, device
from rime_kernels.choices import Precision
from rime_kernels.engine.device_threads import Devices

NAME = "64 antennas, 100 points"
N_TIME = 1000
GOAL = 1.93
"""Times one GPU that two GPUs should be."""
STREAMED, SHARE = "streamed", 4
"""A case whose data are streamed: a device may take this share of their bytes (two of them half of all).

With much less memory than a GPU has, the shards on it bring slabs of a megabyte, and none of 20.
"""
RECORDED = 2
"""Calls of a kind until it is recorded."""


def cases(*, quick: bool) -> list[tuple[Case, Precision]]:
    """The table's case with ten times its times, with a batch of eight parameter vectors, and streamed."""
    if quick:
        return [(TINY[0], "single")]
    whole = next(case for case in FULL if case.name == NAME)
    found = [replace(whole, n_time=N_TIME), replace(whole, n_time=N_TIME // 4, n_batch=8)]
    streamed = replace(found[0], name=f"{NAME}, {STREAMED}")
    of_both: list[tuple[Case, Precision]] = [(each, "single") for each in (*found, streamed)]
    return of_both + [(each, "double") for each in found]


def shared_by() -> dict[str, Devices | None]:
    """What shares the rows, by what the table calls it."""
    found: dict[str, Devices | None] = {"one": None, "one, shards": [0]}
    n_device = len(device.names())
    others: dict[str, Devices | None] = {f"GPU {i}, shards": [i] for i in range(1, n_device)}
    return found | others | ({f"{n_device} GPUs": "all"} if n_device > 1 else {})


def measured(case: Case, precision: Precision, repeat: int) -> Line:
    """Measure one line of the table."""
    whole, names = field(case), shared_by()
    sky = sources(case)
    # Of a device; those that share rows have fewer data each, but no memory for them either.
    limit = whole.n_byte // SHARE if case.name.endswith(STREAMED) else None
    calls = ("chi2", "chi2_and_gradient")[: 1 if limit else 2]
    rimes: list[Rime] = []
    for each in names.values():
        rimes.append(
            Rime(
                whole.rows, vis=whole.vis, weight=whole.weight, backend="cuda", precision=precision,
                form=case.form, extent=EXTENT, devices=each, memory_limit=limit,
            )
        )  # fmt: skip
        for name in calls * RECORDED:  # it has its memory before the next one asks what is free
            getattr(rimes[-1], name)(sky)
    same = [rime.chi2(sky) for rime in rimes[1:]]
    line: Line = {**asdict(case), "precision": precision, "n": repeat, "shared by": list(names)}
    line["same bits"] = bool(all(np.array_equal(found, same[0]) for found in same))
    for name in calls:
        found = in_turns([functools.partial(getattr(rime, name), sky) for rime in rimes], repeat)
        line[name] = {"ms": [1e3 * x for x in found], "times one": [found[0] / x for x in found]}
    return line


def text(line: Line) -> str:
    """A line of the table."""
    both = [line[name] for name in ("chi2", "chi2_and_gradient") if name in line]
    found = "".join(
        f"{ms:9.2f} ({times:.2f})"
        for each in both
        for ms, times in zip(each["ms"], each["times one"], strict=True)
    )
    start = f"{line['name']:36}{line['n_time']:6}{line['n_batch']:6} {line['precision']:7}"
    return f"{start}{found}  {line['same bits']}"


def main() -> int:
    args = parse(make_parser(__doc__, device=True, repeat=20))
    about = machine(args.device)
    lines: list[Line] = []
    found = {"device": args.device, "quick": args.quick, "machine": about, "goal": GOAL, "cases": lines}
    if args.device == "cpu":
        print("nothing is measured on a CPU: devices are GPUs")
        write(output_path(args, "devices", f"{machine_slug(about)}.json"), found)
        return 0
    names = "".join(f"{what + ' ' + name:>17}" for what in ("chi2", "grad") for name in shared_by())
    print(f"{'case':36}{'times':>6}{'batch':>6} {'prec':7}{names}  same bits")
    for case, precision in cases(quick=args.quick):
        lines.append(measured(case, precision, 1 if device.simulated() else args.repeat))
        print(text(lines[-1]), flush=True)
        write(output_path(args, "devices", f"{machine_slug(about)}.json"), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
