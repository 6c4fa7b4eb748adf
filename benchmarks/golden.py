"""Record what biro computes, to the bit, and compare two versions of the code.

    python benchmarks/golden.py [--device cpu|cuda] [--only TEXT ...] [--quick] [--output FILE.json]
    python benchmarks/golden.py --compare OLD.json NEW.json
    python benchmarks/golden.py --turns OTHER_CHECKOUT [--only TEXT ...]

The first form evaluates ln L, its gradient, the Fisher information, model visibilities, closures, gains,
images and short chains for models that between them use every kind of source, beam, antenna term and noise.
It prints a digest of each, and writes the digests as JSON and the values beside it (.npz). Both files of a
comparison come from one machine, since compilers give other bits to other processors. The second form lists
what differs, and by how much. The third form times both checkouts in turns, one process each, and prints the
ratio of their times.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np
from common.machine import machine
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line

KEPT = 4096
"""Values of a quantity that are written; the digest is that of all of them."""
QUICK = ("points", "likelihood marginalised gains", "image idg")
QUICK_MINUTES = 2
"""Length of the data of a quick run."""
N_TURN = 15
"""Calls of each checkout that are timed in turns."""
SLOWER = 1.02
"""Ratio of times above which a call is marked."""


def chosen(device: str, only: Sequence[str]) -> Iterator[str]:
    """Names of the calls whose name begins with one of `only`; of all without it."""
    from golden_cases.calls import calls

    return (name for name in calls(device) if not only or name.startswith(tuple(only)))


def record(args: argparse.Namespace) -> int:
    """Print and write a digest of everything that is computed."""
    from golden_cases.calls import MINUTES, calls

    found = calls(args.device, QUICK_MINUTES if args.quick else MINUTES)
    lines: list[Line] = []
    kept: dict[str, np.ndarray] = {}
    refused = 0
    for name in chosen(args.device, args.only or (QUICK if args.quick else ())):
        try:
            values = found[name]()
        except Exception as error:  # of one call, which must not lose the others
            refused += 1
            values = {f"{type(error).__name__}: {error}": np.zeros(0)}
        for quantity, value in values.items():
            digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            lines.append({"call": name, "quantity": quantity, "shape": list(value.shape), "sha256": digest})
            kept[f"{name}/{quantity}"] = value.ravel()[:: max(1, value.size // KEPT)]
            print(f"{name:44}{quantity[:60]:12}{value.shape!s:16}{digest[:16]}", flush=True)
    path = output_path(args, "golden", f"{args.device}.json")
    write(path, {"device": args.device, "machine": machine(args.device), "cases": lines})
    if path is not None:
        np.savez_compressed(path.with_suffix(".npz"), **cast(dict[str, np.ndarray], kept))  # type: ignore[arg-type]
    print(f"{len(lines)} quantities; {refused} calls failed")
    return min(1, refused)


def compare(old: Path, new: Path) -> int:
    """List what differs between two files; how many quantities do."""
    before, after = ({(each["call"], each["quantity"]): each for each in _cases(path)} for path in (old, new))
    moved = 0
    values = [np.load(path.with_suffix(".npz")) for path in (old, new)]
    for key in dict.fromkeys([*before, *after]):
        if key in before and key in after and before[key]["sha256"] == after[key]["sha256"]:
            continue
        moved += 1
        print(f"{key[0]:44}{key[1][:60]:12}{_difference(*(each.get('/'.join(key)) for each in values))}")
    print(f"{moved} of {len(before | after)} quantities differ")
    return moved


def _cases(path: Path) -> list[Line]:
    return cast(list[Line], json.loads(path.read_text(encoding="utf-8"))["cases"])


def _difference(old: np.ndarray | None, new: np.ndarray | None) -> str:
    """By how much two arrays differ, relative to the largest value, in words."""
    if old is None or new is None:
        return "only in the new file" if old is None else "only in the old file"
    if old.shape != new.shape:
        return f"shape {old.shape} and {new.shape}"
    scale = float(np.abs(old).max(initial=0.0)) or 1.0
    return f"{float(np.abs(new - old).max(initial=0.0)) / scale:.2e} of the largest value"


def serve(device: str) -> None:
    """Time the calls whose names come on stdin, one line each; seconds go to stdout."""
    from golden_cases.calls import timed

    ready: dict[str, object] = {}
    for line in sys.stdin:
        name = line.rstrip("\n")
        if name not in ready:
            ready[name] = timed(name, device)
        started = time.perf_counter()
        ready[name]()  # type: ignore[operator]
        print(f"{time.perf_counter() - started:.9f}", flush=True)


def turns(args: argparse.Namespace) -> int:
    """Time this checkout and another one in turns; how many calls are slower than in the other."""
    here = Path(__file__).parents[1]
    workers = [_worker(tree, args.device) for tree in (args.turns.resolve(), here)]
    slower = 0
    print(f"{'call':44}{'other ms':>12}{'here ms':>12}{'ratio':>8}")
    for name in chosen(args.device, args.only or ()):
        if not name.startswith(
            ("points", "light", "shape", "spectrum", "beam", "antennas", "noise", "likelihood")
        ):
            continue
        taken = [[_ask(worker, name) for worker in workers] for _ in range(N_TURN + 1)][1:]
        other, own = (1e3 * statistics.median(times) for times in zip(*taken, strict=True))
        slower += own > SLOWER * other
        print(
            f"{name:44}{other:12.3f}{own:12.3f}{own / other:8.3f}{' slower' if own > SLOWER * other else ''}"
        )
    for worker in workers:
        worker.stdin.close()  # type: ignore[union-attr]
    return slower


def _worker(tree: Path, device: str) -> subprocess.Popen[str]:
    """A process that computes with the code of a checkout."""
    command = [sys.executable, __file__, "--serve", "--device", device]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _ask(worker: subprocess.Popen[str], name: str) -> float:
    ask, answer = cast(IO[str], worker.stdin), cast(IO[str], worker.stdout)
    ask.write(name + "\n")
    ask.flush()
    return float(answer.readline())


def main() -> int:
    parser = make_parser(__doc__, device=True)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="calls whose names begin with one of these")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"))
    parser.add_argument("--turns", type=Path, metavar="CHECKOUT")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parse(parser)
    warnings.simplefilter("ignore")
    if args.compare:
        return min(1, compare(*args.compare))
    if args.serve:
        serve(args.device)
        return 0
    return min(1, turns(args)) if args.turns else record(args)


if __name__ == "__main__":
    sys.exit(main())
