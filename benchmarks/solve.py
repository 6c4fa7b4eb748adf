"""Measure how fast gains are solved for: `biro.solve_gains` beside QuartiCal, from the same Measurement Set.

    python benchmarks/solve.py [--quick] [--output FILE] [--repeat N] [--peer-python PYTHON]

Both read DATA and MODEL_DATA, solve for a diagonal complex gain of each antenna at each integration, over all
channels, and write the gains; in turns, after a first run of each that compiles, for they share the machine.
The time of QuartiCal is that of its graph, which leaves out its start, that of biro is of `read` twice,
`solve_gains` and `save`. "solve" is the part of the sums and solutions alone, with data in memory. The
goal is 5 times QuartiCal's speed. Gains are compared relative to the phase of the first antenna, in errors of
noise. Results are written as they come.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import seconds_of
from common.types import Line

import biro
from biro.calibration import SolvedGains
from biro.measurement_set import create_ms, write_column
from biro.models import Feeds, PointSource, SkyModel
from biro.simulation.gains import GainScatter
from biro.simulation.prediction import predict
from biro.simulation.simulator import Channels, Track, simulate

GOAL = 5.0
"""Times the speed of QuartiCal."""
CENTRE = 1.309, -0.785
SKY = SkyModel(
    [
        PointSource("a", east="0 arcmin", north="0 arcmin", I="2 Jy"),
        PointSource("b", east="5 arcmin", north="-6 arcmin", I="1 Jy"),
    ],
    centre=CENTRE,
    feeds=Feeds(rotation="present"),
)
OPTIONS = [
    "input_ms.data_column=DATA",
    "input_model.recipe=MODEL_DATA",
    "input_ms.weight_column=WEIGHT_SPECTRUM",
    "input_ms.time_chunk=0",
    "solver.terms=[G]",
    "G.type=diag_complex",
    "G.time_interval=1",
    "G.freq_interval=0",
    "solver.iter_recipe=[100]",
    "solver.propagate_flags=False",
    "solver.convergence_criteria=1e-6",
    "solver.threads=2",
    "dask.threads=1",
    "output.overwrite=True",
    "mad_flags.enable=False",
]
READ = """
import sys, numpy, xarray
from daskms.experimental.zarr import xds_from_zarr
gains = xds_from_zarr(sys.argv[1] + "::G")[0].gains.values
numpy.save(sys.argv[2], gains[:, 0, :, 0][..., [0, -1]])
"""


@dataclass(frozen=True)
class Case:
    """A simulated set."""

    telescope: str
    n_time: int
    n_chan: int


FULL = (Case("KAT-7", 100, 64), Case("MeerKAT", 20, 16))
QUICK = (Case("KAT-7", 3, 2),)


def make(case: Case, path: Path) -> None:
    """A set with noise, gains, and the model without them in MODEL_DATA."""
    observation = simulate(
        case.telescope,
        SKY,
        phase_centre=CENTRE,
        times=Track("2026-03-01T18:00", 8.0 * case.n_time, 8.0),
        channels=Channels(1.4e9, 1e6, case.n_chan),
        noise=0.5,
        seed=1,
        gains=GainScatter(0.1, 0.5, 8.0),
        backend="cpu",
    )
    create_ms(path, observation)
    stored = biro.read_ms(path)
    write_column(path, "MODEL_DATA", stored, predict(stored, SKY, backend="cpu"))


def ours(path: Path, found: list[SolvedGains]) -> float:
    """From the set to the file of gains; seconds of the solution alone."""
    data, model = (biro.read_ms(path, column=name) for name in ("DATA", "MODEL_DATA"))
    first = data.antenna_names[0]
    alone = seconds_of(
        lambda: found.append(biro.solve_gains(data, model, reference=first, cross_hands="off"))
    )
    found[-1].save(path.with_suffix(".npz"))
    return alone


def peer(python: str, path: Path) -> float | None:
    """Seconds that QuartiCal states for its graph; None where it is not installed."""
    program = Path(python).with_name("goquartical")
    if not program.exists():
        return None
    words = [f"input_ms.path={path}", f"output.gain_directory={path.with_suffix('.qc')}"]
    words += [f"output.log_directory={path.with_suffix('.log')}", *OPTIONS]
    done = subprocess.run([str(program), *words], capture_output=True, text=True, cwd=path.parent, check=True)
    stated = re.search(r"([\d.]+) seconds taken to execute graph", done.stdout + done.stderr)
    assert stated is not None
    return float(stated[1])


def difference(python: str, path: Path, solved: SolvedGains) -> Line:
    """The largest and the rms difference of gains, in errors of noise."""
    beside = path.with_suffix(".npy")
    subprocess.run(
        [python, "-c", READ, str(path.with_suffix(".qc")), str(beside)], check=True, capture_output=True
    )
    theirs, window = np.load(beside), solved.windows[0]
    theirs = theirs * np.exp(-1j * np.angle(theirs[:, :1]))
    spread = window.log_amplitude_error[:, 0] * np.abs(window.gain[:, 0])
    sigmas = np.abs(theirs - window.gain[:, 0]) / spread
    return {"largest_sigma": float(sigmas.max()), "rms_sigma": float(np.sqrt(np.mean(sigmas**2)))}


def measured(case: Case, python: str, repeat: int) -> Line:
    """Measure one line of the table."""
    found: list[SolvedGains] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "obs.ms"
        make(case, path)
        ours(path, found)
        has_peer = peer(python, path) is not None
        whole, alone, other = [], [], []
        for _ in range(repeat):
            whole.append(seconds_of(lambda: alone.append(ours(path, found))))
            if has_peer:
                other.append(peer(python, path) or 0.0)
        line: Line = {**asdict(case), "n": repeat, "n_vis": int(found[-1].to_dict()["n_vis"])}  # type: ignore[call-overload]
        line |= {"whole_s": statistics.median(whole), "solve_s": statistics.median(alone)}
        if has_peer:
            median = statistics.median(other)
            line |= {"quartical_s": median, "times_quartical": median / line["whole_s"]}
            line |= {"reached": line["times_quartical"] >= GOAL, **difference(python, path, found[-1])}
    return line


def text(line: Line) -> str:
    """One line of the table."""
    start = f"{line['telescope']:10}{line['n_time']:7}{line['n_chan']:7}{line['n_vis']:10}"
    numbers = f"{line['whole_s']:10.3f}{line['solve_s']:10.3f}"
    if "quartical_s" not in line:
        return start + numbers
    return (
        start
        + numbers
        + f"{line['quartical_s']:11.3f}{line['times_quartical']:8.1f}{line['rms_sigma']:11.2g}"
    )


def main() -> int:
    parser = make_parser(__doc__, repeat=3)
    parser.add_argument("--peer-python", default=sys.executable, help="one that has QuartiCal")
    args = parse(parser)
    about = machine("cpu")
    lines: list[Line] = []
    found = {"quick": args.quick, "machine": about, "goal": GOAL, "cases": lines}
    head = f"{'telescope':10}{'times':>7}{'chan':>7}{'vis':>10}{'biro s':>10}{'solve s':>10}"
    print(head + f"{'QuartiCal s':>11}{'ratio':>8}{'rms sigma':>11}")
    for case in QUICK if args.quick else FULL:
        lines.append(measured(case, args.peer_python, args.repeat))
        print(text(lines[-1]), flush=True)
        write(output_path(args, "solve", f"{machine_slug(about)}.json"), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
