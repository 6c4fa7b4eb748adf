"""Measure W-projection beside image-domain gridding, and beside the w-gridder of ducc0 where it is installed.

    python benchmarks/wprojection.py --device cpu|cuda [--quick] [--repeat 3] [--kernels] [--whole]
        [--supports 7,31] [--n-corr 1,4] [--accuracies 1e-2,1e-4]

*Kernels* are what is done to visibilities: an update is one cell of the grid in one plane for one visibility,
S x S x P of them each. Lines are for supports S and correlations P (on a CUDA device also for the cells that
a thread has, M), and for image-domain gridding the visibilities per second of the same rows. *Whole* is
`predict` and `grid` with the plan reused, for observations of which one or the other method is better, beside
the times that `rime_kernels.make_gridder` compares, and what it takes. Supports, correlations and accuracies
can be named: kernels that have not been compiled before take half a minute for each, and processes that
measure some of them beforehand, all at once, compile them side by side. Times of a CPU are those of its
threads together where `--thread-time` is given: other programs then disturb less.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

from common.machine import machine, machine_slug, print_machine
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line
from gridding import projection

from rime_kernels import device


def arguments() -> argparse.Namespace:
    parser = make_parser(__doc__, device=True, repeat=3)
    parser.add_argument("--kernels", action="store_true", help="kernels alone")
    parser.add_argument("--whole", action="store_true", help="whole calls alone")
    parser.add_argument("--supports", type=numbers, help="of kernels, in place of all")
    parser.add_argument("--n-corr", type=numbers, help="numbers of correlations, in place of all")
    parser.add_argument("--accuracies", type=numbers, help="of whole calls, in place of all")
    parser.add_argument("--thread-time", action="store_true", help="seconds of all threads of the process")
    return parse(parser)


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(float(each) for each in text.split(","))


def main() -> int:
    args = arguments()
    device.resolve(args.device)
    about = machine(args.device)
    print_machine(about)
    keep = functools.partial(save, args, about)
    problem = projection.Problem(
        args.device, args.quick, args.repeat, args.thread_time,
        projection.Some(args.supports, args.n_corr, args.accuracies),
    )  # fmt: skip
    found: Line = {}
    if not args.whole:
        found["kernels"] = projection.kernels(problem, lambda lines: keep({"kernels": lines}))
    if not args.kernels:
        found["whole"] = projection.whole(problem, lambda lines: keep(found | {"whole": lines}))
    output = keep(found)
    print(f"\nwritten to {output}" if output else "\nnot written")
    return 0


def save(args: argparse.Namespace, about: Line, found: Line) -> Path | None:
    """Write the file, where one is wanted; its path."""
    output = output_path(args, "wprojection", f"{args.device}_{machine_slug(about)}.json")
    write(output, {"device": args.device, "quick": args.quick, "machine": about} | found)
    return output


if __name__ == "__main__":
    sys.exit(main())
