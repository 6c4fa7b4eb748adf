"""Kill `biro fit` at random moments, for each sampler, and check that the same command resumes the run.

    python benchmarks/kills.py [--quick] [--kills 20] [--samplers emcee dynesty nuts tempering]
                               [--output FILE]

Simulates a small observation, fits it once without kills, then again with them: started, killed after a
random time, started again, until all kills have happened in mid-run; then it runs to its end. The table
says whether the samples are the same (emcee, dynesty, tempering) or statistically equal (NUTS: means apart
in units of their joint error), and what a kill has cost at most. Not a measure of speed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common.machine import machine
from common.options import make_parser, output_path
from common.results import write
from common.types import Line

from biro.inference.posterior.posterior import Posterior

MODEL = """
[[source]]
name = "a"
type = "point"
east = { prior = "uniform", low = -20, high = 20, unit = "arcsec" }
north = { prior = "uniform", low = -20, high = 20, unit = "arcsec" }
I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }
"""
SKY = '[[source]]\nname = "a"\ntype = "point"\neast = "3 arcsec"\nnorth = "-2 arcsec"\nI = "1 Jy"\n'
SIMULATE = (
    *("--telescope", "KAT-7", "--phase-centre", "05h00m00s -45d00m00s", "--start", "2026-03-01"),
    *("--duration", "30min", "--integration", "60s", "--freq", "1.8GHz", "--chan-width", "1MHz"),
    *("--noise", "1Jy", "--seed", "1"),
)


@dataclass(frozen=True)
class Plan:
    """How a sampler is run.

    Attributes
    ----------
    options : tuple of str
        For `biro fit --set`; the runs take a minute or so.
    state : str
        The file in the folder of a run that it goes on from.
    longest : float
        The most seconds until a kill comes.
    """

    options: tuple[str, ...]
    state: str
    longest: float


PLANS = {
    "emcee": Plan(("n_tau=1000000.0", "max_steps=20000"), "chain.bin", 1.5),
    "dynesty": Plan(("n_live=2500",), "checkpoint.bin", 3.0),
    "nuts": Plan(("n_draw=8000",), "draws.npz", 3.0),
    "tempering": Plan(("n_effective=200000", "max_steps=20000"), "tempering.npz", 3.0),
}
QUICK = {"emcee": Plan(("n_tau=1000000.0", "max_steps=600"), "chain.bin", 0.2)}
"""Of a quick run, which is killed once."""


@dataclass(frozen=True)
class Fits:
    """Fits of the observation in a folder by one sampler, one without kills and one with them."""

    folder: Path
    sampler: str
    plan: Plan

    def command(self, run: Path) -> list[str]:
        """Return the command that fits the observation, or goes on with that."""
        words = [*("fit", str(self.folder / "obs.ms"), str(self.folder / "model.toml"), "-o", str(run))]
        words += ["--sampler", self.sampler, "--seed", "4", "--backend", "cpu", "--no-pictures"]
        words += [word for option in self.plan.options for word in ("--set", option)]
        return [sys.executable, "-m", "biro", *words]

    def whole(self) -> float:
        """Run without kills; the seconds it took."""
        begun = time.monotonic()
        run = self.folder / f"{self.sampler}-whole"
        done = subprocess.run(self.command(run), capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return time.monotonic() - begun

    def killed(self, n_kill: int) -> Line:
        """Run with kills; of each, the seconds of sampling that were not in the file of the state."""
        rng, run = np.random.default_rng(), self.folder / f"{self.sampler}-killed"
        lost: list[float] = []
        state, ended_early = run / self.plan.state, 0
        while len(lost) < n_kill:
            started = time.time()
            child = subprocess.Popen(
                self.command(run), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            # Four of five kills come after a checkpoint of this process, the others at any moment.
            awaited = state if len(lost) % 5 else run / "log.txt"
            while child.poll() is None and not _written(awaited, started):
                time.sleep(0.02)
            begun = time.time()
            time.sleep(rng.uniform(0.0, self.plan.longest))
            if child.poll() is not None:
                ended_early += 1
                break
            os.kill(child.pid, signal.SIGKILL)
            child.communicate()
            saved = state.stat().st_mtime if state.exists() else 0.0
            lost.append(time.time() - max(saved, begun))
            print(f"{self.sampler}: kill {len(lost)} loses {lost[-1]:.1f} s", flush=True)
        done = subprocess.run(self.command(run), capture_output=True, text=True)
        about = {"lost_s": lost, "ended_early": ended_early, "last_exit": done.returncode}
        return {**about, **self._compared()}

    def _compared(self) -> Line:
        """Compare the posterior with kills to that without."""
        runs = [self.folder / f"{self.sampler}-{how}" for how in ("whole", "killed")]
        one, two = (Posterior.load(run / "posterior.nc") for run in runs)
        same = one.samples.shape == two.samples.shape and bool(np.array_equal(one.samples, two.samples))
        means = [posterior.weight @ posterior.samples for posterior in (one, two)]
        spread = np.sqrt(one.weight @ (one.samples - means[0]) ** 2)
        joint = spread * np.sqrt(1 / one.effective + 1 / two.effective)
        log = (runs[1] / "log.txt").read_text()
        return {
            "identical": same,
            "means_apart": (np.abs(means[1] - means[0]) / joint).tolist(),
            "resumed": json.loads((runs[1] / "run.json").read_text())["resumed"],
            "litter": [path.name for path in runs[1].glob(".*")],
            "log": [line.split(": ", 1)[1] for line in log.splitlines() if "going on" in line],
        }


def _written(path: Path, since: float) -> bool:
    return path.exists() and path.stat().st_mtime >= since


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--samplers", nargs="+", choices=list(PLANS), default=list(PLANS))
    args = parser.parse_args()
    plans = QUICK if args.quick else PLANS
    if args.quick:
        args.kills, args.samplers = 1, list(QUICK)
    result: Line = {"machine": machine("cpu"), "kills": args.kills}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.toml").write_text(MODEL)
        (folder / "sky.toml").write_text(SKY)
        words = ["simulate", str(folder / "obs.ms"), str(folder / "sky.toml"), *SIMULATE]
        subprocess.run([sys.executable, "-m", "biro", *words], check=True)
        for sampler in args.samplers:
            run = Fits(folder, sampler, plans[sampler])
            result[sampler] = {"whole_s": run.whole(), **run.killed(args.kills)}
            write(output_path(args, "survive", "kills.json"), result)
            print(_line(sampler, result[sampler]), flush=True)
    return 0


def _line(sampler: str, found: Line) -> str:
    equal = "identical" if found["identical"] else f"means within {max(found['means_apart']):.2f} errors"
    lost = f"{len(found['lost_s'])} kills, at most {max(found['lost_s'], default=0.0):.1f} s lost"
    return (
        f"| {sampler} | {lost} | exit {found['last_exit']} | {equal} | litter: {found['litter'] or 'none'} |"
    )


if __name__ == "__main__":
    sys.exit(main())
