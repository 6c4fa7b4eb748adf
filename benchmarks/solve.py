"""Measure how fast gains are solved for: `biro.solve_gains` beside QuartiCal, from the same Measurement Set.

    python benchmarks/solve.py [--quick] [--output FILE] [--repeat N] [--peer-python PYTHON]

Both read DATA and MODEL_DATA, solve for a diagonal complex gain of each antenna at each integration, over all
channels, and write the gains; in turns, after a first run of each that compiles, for they share the machine.
Times are those of the fastest turn: "counted" is what QuartiCal states for its graph (reading, weights,
solution and gains on disk, in a process that runs), and of biro the same in a process that runs:
`read_columns`, `solve_gains` and `save`, without the start of the child process in which casacore reads,
"start", which is timed apart, right after; "command" is the whole of `biro solve` and of `goquartical`, from
start to end of their processes; and "solve", of biro alone, is that of the sums and solutions, with data in
memory. The goal is 5 times QuartiCal's speed of what is counted. Gains are compared relative to the phase of
the first antenna, in errors of noise. Results are written as they come.
"""

from __future__ import annotations

import os
import re
import shutil
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
from biro.io.measurement_set import create_ms, write_column
from biro.io.measurement_set.process import MeasurementSetProcess
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


FULL = (Case("KAT-7", 100, 64), Case("MeerKAT", 20, 16), Case("MeerKAT", 100, 16))
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
    data, model = biro.read_columns(path, ["DATA", "MODEL_DATA"])
    first = data.antenna_names[0]
    alone = seconds_of(
        lambda: found.append(biro.solve_gains(data, model, reference=first, cross_hands="off"))
    )
    found[:-1] = []
    found[-1].save(path.with_suffix(".npz"))
    return alone


def start_of(path: Path) -> float:
    """Seconds until a child process with casacore answers."""
    return seconds_of(lambda: MeasurementSetProcess(path, 30.0).close())


def command(path: Path) -> float:
    """Seconds of `biro solve` as a process."""
    words = [sys.executable, "-m", "biro", "solve", str(path), "--model-column", "MODEL_DATA"]
    words += ["--cross-hands", "off", "-o", str(path.with_suffix(".out")), "--overwrite"]
    return seconds_of(lambda: subprocess.run(words, capture_output=True, check=True))


def peer(python: str, path: Path) -> tuple[float, float] | None:
    """Seconds that QuartiCal states for its graph, and of its process; None where it is not installed."""
    program = Path(python).with_name("goquartical")
    if not program.exists():
        return None
    shutil.rmtree(path.with_suffix(".qc"), ignore_errors=True)
    words = [f"input_ms.path={path}", f"output.gain_directory={path.with_suffix('.qc')}"]
    words += [f"output.log_directory={path.with_suffix('.log')}", *OPTIONS]
    done: list[subprocess.CompletedProcess[str]] = []

    def run() -> None:
        line = [str(program), *words]
        done.append(subprocess.run(line, capture_output=True, text=True, cwd=path.parent, check=True))

    whole = seconds_of(run)
    stated = re.search(r"([\d.]+) seconds taken to execute graph", done[0].stdout + done[0].stderr)
    assert stated is not None
    return float(stated[1]), whole


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
        times: dict[str, list[float]] = {name: [] for name in ("solve_s", "start_s", "whole_s", "command_s")}
        other: list[tuple[float, float]] = []
        for _ in range(repeat):
            times["whole_s"].append(seconds_of(lambda: times["solve_s"].append(ours(path, found))))
            times["start_s"].append(start_of(path))
            if has_peer:
                times["command_s"].append(command(path))
                other.append(peer(python, path) or (0.0, 0.0))
        line: Line = {**asdict(case), "n": repeat, "n_vis": int(found[-1].to_dict()["n_vis"])}  # type: ignore[call-overload]
        line |= {**summary(times, other), "load": os.getloadavg()[0]}
        if has_peer:
            line |= difference(python, path, found[-1])
    return line


def summary(times: dict[str, list[float]], other: list[tuple[float, float]]) -> Line:
    """The fastest of the turns, and the ratios; other programs on the machine only ever slow one down."""
    line: Line = {name: min(each) for name, each in times.items() if each} | {"every": times}
    line["counted_s"] = line["whole_s"] - line["start_s"]
    if other:
        graph, process = (min(each) for each in zip(*other, strict=True))
        line |= {"quartical_s": graph, "quartical_command_s": process, "every_quartical": other}
        line |= {"times_quartical": graph / line["counted_s"], "with_start": graph / line["whole_s"]}
        line["with_start_by_turn"] = [
            one[0] / ours for one, ours in zip(other, times["whole_s"], strict=True)
        ]
        line |= {"times_quartical_command": process / line["command_s"]}
        line["reached"] = line["times_quartical"] >= GOAL
    return line


def text(line: Line) -> str:
    """One line of the table."""
    columns = ("solve_s", "start_s", "counted_s", "quartical_s", "command_s", "quartical_command_s")
    start = f"{line['telescope']:10}{line['n_time']:7}{line['n_chan']:6}{line['n_vis']:10}"
    numbers = "".join(f"{line[name]:9.3f}" if name in line else 9 * " " for name in columns)
    if "quartical_s" not in line:
        return start + numbers
    ratios = f"{line['times_quartical']:8.1f}{line['times_quartical_command']:8.1f}"
    return start + numbers + ratios + f"{line['rms_sigma']:11.2g}"


def main() -> int:
    parser = make_parser(__doc__, repeat=3)
    parser.add_argument("--peer-python", default=sys.executable, help="one that has QuartiCal")
    args = parse(parser)
    about = machine("cpu")
    lines: list[Line] = []
    found = {"quick": args.quick, "machine": about, "goal": GOAL, "cases": lines}
    head = f"{'telescope':10}{'times':>7}{'chan':>6}{'vis':>10}{'solve':>9}{'start':>9}{'counted':>9}"
    head += f"{'QC graph':>9}{'command':>9}{'QC comm.':>9}"
    print(head + f"{'counted':>8}{'command':>8}{'rms sigma':>11}   (s, and times QuartiCal)")
    for case in QUICK if args.quick else FULL:
        lines.append(measured(case, args.peer_python, args.repeat))
        print(text(lines[-1]), flush=True)
        write(output_path(args, "solve", f"{machine_slug(about)}.json"), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
