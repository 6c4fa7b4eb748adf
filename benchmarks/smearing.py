"""Measure what means over integrations and channels cost: chi2 and its gradient, smeared by those without.

    python benchmarks/smearing.py [--device cpu|cuda] [--quick] [--output FILE]

Both in one run and in turns, for they share the machine. A source at the edge of the field loses some
percent on the longest baselines. Where all rows had the nodes of the longest, ratios would be about "nodes";
"mean" is how many a row has in the mean. Results are written as they come.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import asdict

import numpy as np
from chi2.cases import EXTENT, FULL, QUICK, TINY, Case, field, for_cpu, sources
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import in_turns
from common.types import Line, Options

from rime_kernels import Rime, Smearing, device
from rime_kernels.choices import Precision
from rime_kernels.smearing import average_of

NAMES = ("64 antennas, 100 points", "64 antennas, 50 + 50", "64 antennas, 100 points, row form")
LOSS = 0.05
"""What the farthest point loses on the longest baseline, in either axis."""


def cases(run_on: str, *, quick: bool, simulated: bool) -> list[Case]:
    """The cases."""
    if simulated:
        return [TINY[0]]
    if quick:
        return [QUICK[0]]
    found = [case for name in NAMES for case in FULL if case.name == name]
    return [for_cpu(case) for case in found] if run_on == "cpu" else found


def smearing(case: Case, error: float) -> Smearing:
    """Integrations and channels so long and wide that the farthest point loses `LOSS` in either."""
    rows = field(case).rows
    turns = np.sqrt(6.0 * LOSS)  # the half-range x of 1 - sinc(x), which is x^2 / 6
    reach = np.pi * np.linalg.norm(rows.uvw, axis=1).max() * np.sqrt(2.0) * EXTENT / 299792458.0
    seconds = turns / (reach * 7.2921158553e-5 * rows.chan_freq.max())
    return Smearing(0.6, np.full(rows.n_row, seconds), np.full(rows.n_chan, turns / reach), error=error)


def rimes(case: Case, run_on: str, precision: Precision, smeared: Smearing) -> list[Rime]:
    """Without smearing, and with it."""
    whole = field(case)
    options: Options = {"backend": run_on, "precision": precision, "form": case.form, "extent": EXTENT}
    given = {"vis": whole.vis, "weight": whole.weight}
    return [Rime(whole.rows, **given, **options, smearing=each) for each in (None, smeared)]


def measured(case: Case, run_on: str, precision: Precision, repeat: int, error: float) -> Line:
    """Measure one line of the table."""
    smeared = smearing(case, error)
    pair, sky = rimes(case, run_on, precision, smeared), sources(case)
    average = average_of(smeared, field(case).rows, EXTENT)
    counts = [len(group.times) * len(group.freqs) for group in average.groups]
    shares = [float(group.has_row.mean()) for group in average.groups]
    line: Line = {**asdict(case), "precision": precision, "form": pair[0].form, "n": repeat}
    line |= {"nodes": len(average.times) * len(average.freqs)}
    line |= {"mean_nodes": float(np.dot(counts, shares))}
    for name in ("chi2", "chi2_and_gradient"):
        plain, found = in_turns([functools.partial(getattr(rime, name), sky) for rime in pair], repeat)
        line[name] = {"plain_ms": 1e3 * plain, "smeared_ms": 1e3 * found, "ratio": found / plain}
    return line


def text(line: Line) -> str:
    """A line of the table."""
    start = (
        f"{line['name']:36}{line['form']:9}{line['precision']:7}{line['nodes']:6d}{line['mean_nodes']:7.1f}"
    )
    both = [line[name] for name in ("chi2", "chi2_and_gradient")]
    return start + "".join(
        f"{each['plain_ms']:11.3f}{each['smeared_ms']:11.3f}{each['ratio']:7.1f}" for each in both
    )


def main() -> int:
    args = parse(make_parser(__doc__, device=True, repeat=10))
    about = machine(args.device)
    simulated = args.device == "cuda" and device.simulated()
    lines: list[Line] = []
    found = {"device": args.device, "quick": args.quick, "machine": about, "cases": lines}
    head = "".join(f"{name:>11}{'smeared':>11}{'ratio':>7}" for name in ("chi2 ms", "gradient ms"))
    print(f"{'case':36}{'form':9}{'prec':7}{'nodes':>6}{'mean':>7}{head}")
    for case in cases(args.device, quick=args.quick, simulated=simulated):
        for precision in ("single",) if args.quick else ("single", "double"):
            repeat, error = (1, 1e-2) if simulated else (args.repeat, 5e-5)
            lines.append(measured(case, args.device, precision, repeat, error))
            print(text(lines[-1]), flush=True)
            write(output_path(args, "smearing", f"{machine_slug(about)}.json"), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
