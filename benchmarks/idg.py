"""Measure the speed of image-domain gridding, beside the w-gridder of ducc0 where that is installed.

    python benchmarks/idg.py --device cpu|cuda [--quick] [--repeat 3] [--kernels] [--whole]

Rates are visibilities per second of wall-clock time; a visibility has all its correlations. *Kernels* are
what is done to items: subgrids cut from the grid, their transforms, w and A-terms, the sums over pixels (and
the way back); the transforms of the whole image are not in them. *Whole* is `Idg.predict` and `Idg.grid` with
the plan reused. On a CUDA device (`gridding/cuda.py`) kernels are the sums over pixels and what stands
around them, timed by events. ducc0 has one correlation a call and no A-terms: four correlations are four of
its calls.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

from common.goals import goals_text
from common.machine import machine, machine_slug, print_machine
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line
from gridding import cpu
from gridding.cases import QUICK, SIMULATED, Case, Size

from rime_kernels import device

_SUBGRIDS = (24, 32, 48, 64)


def arguments() -> argparse.Namespace:
    parser = make_parser(__doc__, device=True, repeat=3)
    parser.add_argument("--times", type=int, default=360, help="times of the observation, every 10 s (CUDA)")
    parser.add_argument("--kernels", action="store_true", help="kernels alone")
    parser.add_argument("--whole", action="store_true", help="whole calls alone")
    return parse(parser)


def main() -> int:
    args = arguments()
    device.resolve(args.device)
    about = machine(args.device)
    print_machine(about)
    found = on_device(args, about) if args.device == "cuda" else on_cpu(args, about)
    print("\n" + goals_text(found["goals"]))
    output = save(args, about, found)
    print(f"\nwritten to {output}" if output else "\nnot written")
    return 0


def on_cpu(args: argparse.Namespace, about: Line) -> Line:
    """Measure kernels, then whole calls, and print and write each line as it comes."""
    small, large = (QUICK,) * 2 if args.quick else (Size(64, 25, 64, 2048), Size(64, 100, 64, 2048))
    kernels: list[Line] = []
    whole: list[Line] = []

    def found() -> Line:
        return {"kernels": kernels, "whole": whole, "goals": cpu.goals(whole)}

    if not args.whole:
        print(f"\nkernels, {small}\n{cpu.KERNEL_HEAD}")
        for accuracy, n_corr, screens in cpu.variants(args.quick):
            for subgrid in _SUBGRIDS[:1] if args.quick else _SUBGRIDS:
                case = Case(small, n_corr, screens, accuracy, args.device, subgrid)
                kernels.append(cpu.kernel_line(case, args.repeat))
                print(cpu.kernel_text(kernels[-1]), flush=True)
                save(args, about, found())
    if not args.kernels:
        print(f"\nwhole calls, {large}\n{cpu.WHOLE_HEAD}")
        for accuracy, n_corr, screens in cpu.variants(args.quick):
            case = Case(large, n_corr, screens, accuracy, args.device)
            whole.append(cpu.whole_line(case, args.repeat, about["threads"]))
            print(cpu.whole_text(whole[-1]), flush=True)
            save(args, about, found())
    return found()


def on_device(args: argparse.Namespace, about: Line) -> Line:
    """Measure the same on a CUDA device, whose roofs are measured too."""
    from gridding import cuda

    if args.quick:
        size = SIMULATED if device.simulated() else QUICK
    else:  # every ten seconds: items are as full as in real observations
        size = Size(64, args.times, 64, 2048, args.times / 360.0)
    print(f"{size}\n")
    keep = functools.partial(save, args, about)
    return cuda.measured(size, args.repeat, quick=args.quick, keep=keep)


def save(args: argparse.Namespace, about: Line, found: Line) -> Path | None:
    """Write the file, where one is wanted; its path."""
    output = output_path(args, "idg", f"{args.device}_{machine_slug(about)}.json")
    write(output, {"device": args.device, "quick": args.quick, "machine": about} | found)
    return output


if __name__ == "__main__":
    sys.exit(main())
