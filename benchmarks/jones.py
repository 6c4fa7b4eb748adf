"""Measure what a beam of 2x2 Jones matrices costs: `Rime.chi2` with a scalar beam, and with matrices.

    python benchmarks/jones.py [--device cpu|cuda] [--quick] [--output FILE] [--peer-python PYTHON]

Both in one run and in turns, for they share the machine; the goal is at most 2.5 times on a GPU and 3 times
on a CPU, with 64 antennas, 100 times, 64 channels and 100 sources. Every antenna is turned by angles of its
own; "pointing" has pointing errors of each antenna and time besides, for either beam. Beside it
`predict_vis` of codex-africanus with matrices that are at hand as a table, where the interpreter has it:
the goal is 50 times its rate. Results are written as they come.
"""

from __future__ import annotations

import functools
import statistics
import sys
from dataclasses import asdict, replace

import numpy as np
from chi2.cases import EXTENT, FULL, QUICK, TINY, Case, field, for_cpu, sources
from chi2.peers import Peers
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import seconds_of
from common.types import Line, Options

from rime_kernels import Beam, JonesBeam, Rime, device
from rime_kernels.choices import Precision

NAMES = ("64 antennas, 100 points", "64 antennas, 50 + 50", "64 antennas, 100 points, row form")
MOST = {"cuda": 2.5, "cpu": 3.0}
"""Times one chi2 with a scalar beam that chi2 with matrices should take."""
PEER, LEAST = "africanus_dde", 50.0
"""Another program, and how many times its rate ours should be."""
N_NODE = 34


def cases(run_on: str, *, quick: bool, simulated: bool) -> list[Case]:
    """Return the cases, the first one being the goal's."""
    if simulated:
        return [TINY[0]]
    if quick:
        return [QUICK[0]]
    found = [case for name in NAMES for case in FULL if case.name == name]
    return [for_cpu(case) for case in found] if run_on == "cpu" else found


def beams(case: Case, *, pointing: bool) -> tuple[Beam, JonesBeam]:
    """A scalar beam and one of matrices, with the same pointing errors or none."""
    rng = np.random.default_rng(3)
    turned = case.n_time, case.n_antenna
    errors = rng.normal(scale=1e-3, size=(case.n_batch, *turned, 2)) if pointing else None
    shape = 1, field(case).rows.n_chan, N_NODE, N_NODE, 2, 2
    coefficient = np.eye(2) + 0.1 * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    step = 3.0 * EXTENT / (N_NODE - 3)
    grid = np.array([-1.5 * EXTENT, step, -1.5 * EXTENT, step])
    angle = np.linspace(-1.0, 1.0, case.n_time)[:, None] + 1e-3 * rng.normal(size=case.n_antenna)
    matrices = JonesBeam(
        coefficient, grid, np.zeros(case.n_antenna, int), angle, angle, np.ones(case.n_batch), errors
    )
    return Beam("gaussian", np.full(case.n_batch, 15e-9), errors), matrices


def rimes(case: Case, run_on: str, precision: Precision) -> list[Rime]:
    """One for each beam: on a GPU their kernels want the data in different orders."""
    whole = field(case)
    options: Options = {"backend": run_on, "precision": precision, "form": case.form, "extent": EXTENT}
    return [Rime(whole.rows, vis=whole.vis, weight=whole.weight, **options) for _ in range(2)]


def measured(pair: list[Rime], case: Case, most: float, precision: str, repeat: int, pointing: bool) -> Line:
    """Measure one line of the table."""
    skies = [replace(sources(case), beam=beam) for beam in beams(case, pointing=pointing)]
    calls = [functools.partial(rime.chi2, sky) for rime, sky in zip(pair, skies, strict=True)]
    first = [seconds_of(call) for call in calls]
    for call in calls:
        call()
    turns = [[seconds_of(call) for call in calls] for _ in range(repeat)]
    scalar, matrices = (statistics.median(times) for times in zip(*turns, strict=True))
    line = {**asdict(case), "precision": precision, "form": pair[0].form, "pointing": pointing, "n": repeat}
    line |= {"first_s": first, "scalar_ms": 1e3 * scalar, "matrices_ms": 1e3 * matrices}
    line |= {"ratio": matrices / scalar, "reached": matrices <= most * scalar}
    return line | {"rate": case.n_source_visibility / matrices}


def with_peer(line: Line, answer: Line) -> Line:
    """Add another program's rate, and ours by it."""
    if "rate" not in answer:
        return line
    times = line["rate"] / answer["rate"]
    return line | {PEER: answer, "times_peer": times, "reached_peer": times >= LEAST}


def text(line: Line) -> str:
    errors = "pointing" if line["pointing"] else ""
    start = f"{line['name']:36}{line['form']:9}{line['precision']:7}{errors:10}"
    numbers = f"{line['scalar_ms']:10.3f}{line['matrices_ms']:10.3f}{line['ratio']:8.2f}"
    return f"{start}{numbers}" + (f"{line['times_peer']:10.0f}" if "times_peer" in line else "")


def main() -> int:
    parser = make_parser(__doc__, device=True, repeat=20)
    parser.add_argument("--peer-python", default=sys.executable, help="one that has codex-africanus")
    args = parse(parser)
    about = machine(args.device)
    simulated = args.device == "cuda" and device.simulated()
    most = MOST[args.device]
    peers = Peers(args.peer_python, args.device, about["threads"], quick=args.quick, names=(PEER,))
    lines: list[Line] = []
    found = {"device": args.device, "quick": args.quick, "machine": about, "cases": lines}
    print(f"{'case':36}{'form':9}{'prec':17}{'scalar ms':>10}{'2x2 ms':>10}{'ratio':>8}{'africanus':>10}")
    for case in cases(args.device, quick=args.quick, simulated=simulated):
        for precision in ("single",) if simulated else ("single", "double"):
            pair = rimes(case, args.device, precision)
            answer = peers.rates(case, precision, 1.0).get(PEER, {})
            for pointing in (False, True):
                line = measured(pair, case, most, precision, args.repeat, pointing)
                lines.append(with_peer(line, answer))
                print(text(lines[-1]), flush=True)
                write(output_path(args, "jones", f"{machine_slug(about)}.json"), found)
    peers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
