"""Measure the speed of chi-squared of a batch of skies, beside the limits of this machine and other programs.

    python benchmarks/rime.py --device cpu|cuda [--quick] [--precision single] [--case TEXT ...]

One run measures multiply-adds, matrix products and copies of this machine, then every case through the
public calls, the project's first kernels on each ("plain"), and other programs where they are installed.
Rates are source-visibilities per second: times x baselines x channels x sources x batch / wall-clock time of
`Rime.chi2`, parameters up and chi2 down included; compilation is not. "FMA %" is the share of the
multiply-add rate of the same precision, counting 12 multiply-adds for each source-visibility of four Stokes
parameters and 4 for Stokes I alone: sines, exponentials, residuals and sums are not counted.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from chi2.cases import SAMPLED, STREAMED, Case, cases, fewer_times
from chi2.goals import judge
from chi2.ours import NotMeasuredError, Ours
from chi2.peers import Peers
from chi2.report import extra_text, head, line_text, roofs_text
from common.goals import goals_text
from common.machine import machine, machine_slug, print_machine
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line

from rime_kernels import device

# Source-visibilities that emcee gets per walker on a CPU.
_SAMPLED_ON_CPU = 2e7


class Run:
    """One run of the program: what was asked for, and what has been found so far."""

    def __init__(self, args: argparse.Namespace, roofs: Line, peers: Peers) -> None:
        self.lines: list[Line] = []
        self.failed = False
        self._args, self._roofs, self._peers = args, roofs, peers
        self._ours = Ours(args.device, args.repeat)

    def do(self, case: Case, precision: str) -> None:
        """Measure a case, and what is to be measured beside it."""
        self._add(case, precision, lambda: self._line(case, precision))
        if case.extras and self._args.device == "cuda":
            bus = self._roofs.get("host_to_device_byte_per_s")
            self._add(case, precision, lambda: self._ours.streamed(case, precision, bus), STREAMED)
        if case.extras and precision == "single":
            self._add(case, precision, lambda: self._sampled(case), SAMPLED)

    def _line(self, case: Case, precision: str) -> Line:
        line = self._ours.measure(case, precision)
        line["fma_share"] = line["rate"] * case.fma / self._roofs["fma_per_s"][precision]
        line["others"] = {"plain": self._ours.plain(case, precision)}
        if case.peers:
            line["others"] |= self._peers.rates(case, precision, 0.1 if self._args.quick else 1.0)
        rates = {name: found["rate"] for name, found in line["others"].items() if "rate" in found}
        line["ratios"] = {name: line["rate"] / rate for name, rate in rates.items()}
        if case.whole:
            try:
                line |= import_whole().whole_call(case, precision, self._args.device, self._args.repeat)
            except NotMeasuredError as why:
                line["whole_skipped"] = str(why)
        return line

    def _sampled(self, case: Case) -> Line:
        few = fewer_times(case, _SAMPLED_ON_CPU) if self._args.device == "cpu" else case
        return dict(import_whole().sampled(few, "single", self._args.device))

    def _add(self, case: Case, precision: str, find: Callable[[], Line], kind: str = "") -> None:
        """Print and keep a line; one that cannot be measured, or fails, is a line that says so."""
        try:
            line = find()
        except Exception as error:  # the rest of the table is worth having
            self.failed |= not isinstance(error, NotMeasuredError)
            words = str(error).strip().splitlines() or [""]
            why = words[0] if isinstance(error, NotMeasuredError) else f"{type(error).__name__}: {words[0]}"
            name = f"{case.name}, {kind}" if kind else case.name
            line = {"name": name, "n_time": case.n_time, "form": case.form, "precision": precision}
            line["skipped"] = why
        self.lines.append(line)
        print(line_text(line, self._peers.names), flush=True)


def import_whole() -> ModuleType:
    """Import what needs more than the kernels do."""
    try:
        return importlib.import_module("chi2.whole")
    except ImportError as error:
        raise NotMeasuredError(f"biro cannot be imported whole: {error}") from None


def arguments() -> argparse.Namespace:
    parser = make_parser(__doc__, device=True, repeat=20)
    parser.add_argument("--precision", choices=["single", "double", "both"], default="both")
    parser.add_argument(
        "--case", nargs="+", metavar="TEXT", help="only cases with one of these in their names"
    )
    parser.add_argument(
        "--peer-python",
        default=sys.executable,
        metavar="PATH",
        help="interpreter that has the other programs (a quick run asks NumPy alone)",
    )
    return parse(parser)


def main() -> int:
    args, start = arguments(), time.perf_counter()
    device.resolve(args.device)
    about = machine(args.device)
    print_machine(about)
    print(", ".join(f"{name} {version}" for name, version in about["versions"].items()))
    if args.device == "cpu":
        from common.roofs_cpu import measure_roofs
    else:
        from common.roofs_cuda import measure_roofs
    roofs = measure_roofs(quick=args.quick, repeat=args.repeat)
    print(f"{roofs_text(roofs)}\n", flush=True)
    simulated = args.device == "cuda" and device.simulated()
    chosen = cases(args.device, quick=args.quick, simulated=simulated)
    if args.case:
        chosen = [case for case in chosen if any(text in case.name for text in args.case)]
    peers = Peers(args.peer_python, args.device, about["threads"], quick=args.quick)
    run = Run(args, roofs, peers)
    print(head(peers.names))
    try:
        for case in chosen:
            for precision in ["single", "double"] if args.precision == "both" else [args.precision]:
                if precision == "single" or not case.single_only:
                    run.do(case, precision)
            save(args, run, about, roofs, peers.skipped)
    except KeyboardInterrupt:
        print("interrupted: what was found so far follows")
    finally:
        peers.close()
    about |= {"wall_s": time.perf_counter() - start, "peers": peers.versions}
    finish(args, run, about, roofs, peers.skipped)
    return int(run.failed)


def finish(args: argparse.Namespace, run: Run, about: Line, roofs: Line, left_out: dict[str, str]) -> None:
    """What follows the table, and the JSON file."""
    print("\n" + "\n".join(text for line in run.lines if (text := extra_text(line))))
    print("\n" + goals_text(judge(args.device, run.lines, roofs)))
    output = save(args, run, about, roofs, left_out)
    print(f"\nwritten to {output}" if output else "\nnot written")


def save(
    args: argparse.Namespace, run: Run, about: Line, roofs: Line, left_out: dict[str, str]
) -> Path | None:
    """Write what there is, so that a run that is ended early loses nothing; the path of the file."""
    found = {
        "device": args.device,
        "quick": args.quick,
        "machine": about,
        "roofs": roofs,
        "cases": run.lines,
        "goals": judge(args.device, run.lines, roofs),
        "peers_left_out": left_out,
    }
    output = output_path(args, f"{args.device}_{machine_slug(about)}.json")
    write(output, found)
    return output


if __name__ == "__main__":
    sys.exit(main())
