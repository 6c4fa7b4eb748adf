"""Measure what the gradient of chi-squared costs: calls of `Rime.chi2_and_gradient` and of `Rime.chi2`.

    python benchmarks/gradient.py [--device cpu|cuda] [--quick] [--output FILE]

Both in one run and in turns, for they share the machine; the goal is at most 3 times, with 64 antennas, 100
times, 64 channels and 100 sources. Derivatives are those with respect to all parameters of all sources. The
last column is the same ratio of multiply-adds counted by hand (`ratio_of_multiply_adds`). Results are
written as they come.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import asdict, replace

from chi2.cases import FULL, QUICK, TINY, Case, sources
from chi2.ours import Ours
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import seconds_of
from common.types import Line

from rime_kernels import device
from rime_kernels.choices import Precision

NAMES = (
    "64 antennas, 50 + 50",
    "64 antennas, 100 points",
    "64 antennas, 100 points, row form",
    "64 antennas, 100 points, Stokes I",
)
MOST = 3.0
"""Times one chi2 that chi2 and gradient should take."""


def cases(quick: bool, simulated: bool) -> list[Case]:
    """Return the cases with one entry of a batch, and four of the first: as many as NUTS has chains."""
    if simulated:
        return [TINY[0]]
    if quick:
        return [QUICK[0]]
    found = [case for name in NAMES for case in FULL if case.name == name]
    return [found[0], replace(found[0], name=f"{found[0].name}, batch 4", n_batch=4), *found[1:]]


def measured(ours: Ours, case: Case, precision: Precision, repeat: int) -> Line:
    """Measure one line of the table."""
    rime, sky = ours.rime(case, precision)[0], sources(case)
    calls = (lambda: rime.chi2(sky)), (lambda: rime.chi2_and_gradient(sky))
    first = [seconds_of(call) for call in calls]
    for call in calls:
        call()
    turns = [[seconds_of(call) for call in calls] for _ in range(repeat)]
    chi2, gradient = (statistics.median(times) for times in zip(*turns, strict=True))
    line = {**asdict(case), "precision": precision, "form": rime.form, "n": repeat, "first_s": first}
    line |= {"chi2_ms": 1e3 * chi2, "gradient_ms": 1e3 * gradient, "ratio": gradient / chi2}
    return line | {"reached": gradient <= MOST * chi2, "ratio_of_multiply_adds": ratio_of_multiply_adds(case)}


def ratio_of_multiply_adds(case: Case) -> float:
    """Count the multiply-adds of chi2 and gradient, divided by those of chi2.

    The adjoint has the sum, and for each source and visibility: the product of its antenna terms (4), the
    derivatives of the Stokes parameters (2 each), the residual times the brightness (2 each; of I alone, once
    per source), its turn (2) times u, v, w (3); of a Gaussian its coordinates and envelope again (8), Re(z)
    (2), and times both coordinates (2) and u, v, w (6)."""
    n_stokes = 4 if case.polarised else 1
    gather = 4 + 2 * n_stokes + (2 * n_stokes if case.polarised else 0) + 5
    forward = case.n_point * case.fma + case.n_gaussian * (4 + 2 * n_stokes + 8)
    back = case.n_point * gather + case.n_gaussian * (gather + 18)
    return (forward + back) / forward


def text(line: Line) -> str:
    start = f"{line['name']:36}{line['form']:9}{line['precision']:7}"
    numbers = f"{line['chi2_ms']:10.3f}{line['gradient_ms']:10.3f}{line['ratio']:8.2f}"
    return f"{start}{numbers}{line['ratio_of_multiply_adds']:8.2f}"


def main() -> int:
    args = parse(make_parser(__doc__, device=True, repeat=20))
    about = machine(args.device)
    simulated = args.device == "cuda" and device.simulated()
    ours = Ours(args.device, args.repeat)
    lines: list[Line] = []
    found = {"device": args.device, "quick": args.quick, "machine": about, "cases": lines}
    print(f"{'case':36}{'form':9}{'prec':7}{'chi2 ms':>10}{'gradient':>10}{'ratio':>8}{'by hand':>8}")
    for case in cases(args.quick, simulated):
        for precision in ("single", "double"):
            lines.append(measured(ours, case, precision, args.repeat))
            print(text(lines[-1]), flush=True)
            write(output_path(args, "gradient", f"{machine_slug(about)}.json"), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
