"""`biro fit` killed with SIGKILL twenty times, at random moments, for each sampler; the same command goes on.

    python benchmarks/kills.py --output benchmarks/results/survive/kills.json

Simulates a small observation, fits it once without kills, then again with them: started, killed after a
random time, started again, until all kills have happened in mid-run; then it runs to its end. The table
says whether the samples are the same (emcee, dynesty) or statistically equal (NUTS: means apart in units of
their joint error), and what a kill has cost at most. Not a measure of speed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from report import machine

from biro.posterior.posterior import Posterior

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
# Runs of a minute or so, the file of their state, and the most seconds until a kill comes.
OPTIONS = {
    "emcee": ["n_tau=1000000.0", "max_steps=20000"],
    "dynesty": ["n_live=2500"],
    "nuts": ["n_draw=8000"],
}
STATE = {"emcee": "chain.bin", "dynesty": "checkpoint.bin", "nuts": "draws.npz"}
LONGEST = {"emcee": 1.5, "dynesty": 3.0, "nuts": 3.0}


def command(folder: Path, sampler: str, run: Path) -> list[str]:
    words = ["fit", str(folder / "obs.ms"), str(folder / "model.toml"), "-o", str(run), "--sampler", sampler]
    words += [word for option in OPTIONS[sampler] for word in ("--set", option)]
    return [sys.executable, "-m", "biro", *words, "--seed", "4", "--backend", "cpu", "--no-pictures"]


def whole(folder: Path, sampler: str) -> float:
    """A run without kills; seconds."""
    begun = time.monotonic()
    done = subprocess.run(
        command(folder, sampler, folder / f"{sampler}-whole"), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.monotonic() - begun


def kills(folder: Path, sampler: str, n_kill: int) -> dict[str, Any]:
    """The run with kills; of each, the seconds of sampling that were not in the file of the state."""
    rng, run = np.random.default_rng(), folder / f"{sampler}-killed"
    lost: list[float] = []
    state, ended_early = run / STATE[sampler], 0
    while len(lost) < n_kill:
        started = time.time()
        child = subprocess.Popen(
            command(folder, sampler, run), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        # Four of five kills come after a checkpoint of this process, the others at any moment from its start.
        awaited = state if len(lost) % 5 else run / "log.txt"
        while child.poll() is None and not _written(awaited, started):
            time.sleep(0.02)
        begun = time.time()
        time.sleep(rng.uniform(0.0, LONGEST[sampler]))
        if child.poll() is not None:
            ended_early += 1
            break
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        saved = state.stat().st_mtime if state.exists() else 0.0
        lost.append(time.time() - max(saved, begun))
        print(f"{sampler}: kill {len(lost)} loses {lost[-1]:.1f} s", flush=True)
    done = subprocess.run(command(folder, sampler, run), capture_output=True, text=True)
    about = {"lost_s": lost, "ended_early": ended_early, "last_exit": done.returncode}
    return {**about, **compared(folder, sampler)}


def _written(path: Path, since: float) -> bool:
    return path.exists() and path.stat().st_mtime >= since


def compared(folder: Path, sampler: str) -> dict[str, Any]:
    """The posterior with kills, held against that without."""
    one, two = (Posterior.load(folder / f"{sampler}-{how}" / "posterior.nc") for how in ("whole", "killed"))
    same = one.samples.shape == two.samples.shape and bool(np.array_equal(one.samples, two.samples))
    means = [each.weight @ each.samples for each in (one, two)]
    spread = np.sqrt(one.weight @ (one.samples - means[0]) ** 2)
    joint = spread * np.sqrt(1 / one.effective + 1 / two.effective)
    log = (folder / f"{sampler}-killed" / "log.txt").read_text()
    return {
        "identical": same,
        "means_apart": (np.abs(means[1] - means[0]) / joint).tolist(),
        "resumed": json.loads((folder / f"{sampler}-killed" / "run.json").read_text())["resumed"],
        "litter": [p.name for p in (folder / f"{sampler}-killed").glob(".*")],
        "log": [line.split(": ", 1)[1] for line in log.splitlines() if "going on" in line],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--samplers", nargs="+", default=list(OPTIONS))
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    result: dict[str, Any] = {"machine": machine("cpu"), "kills": given.kills}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.toml").write_text(MODEL)
        (folder / "sky.toml").write_text(SKY)
        words = ["simulate", str(folder / "obs.ms"), str(folder / "sky.toml"), *SIMULATE]
        subprocess.run([sys.executable, "-m", "biro", *words], check=True)
        for sampler in given.samplers:
            seconds = whole(folder, sampler)
            found = {"whole_s": seconds, **kills(folder, sampler, given.kills)}
            result[sampler] = found
            if given.output:
                given.output.write_text(json.dumps(result, indent=1) + "\n")
            print(_line(sampler, found), flush=True)


def _line(sampler: str, found: dict[str, Any]) -> str:
    equal = "identical" if found["identical"] else f"means within {max(found['means_apart']):.2f} errors"
    lost = f"{len(found['lost_s'])} kills, at most {max(found['lost_s']):.1f} s lost"
    return (
        f"| {sampler} | {lost} | exit {found['last_exit']} | {equal} | litter: {found['litter'] or 'none'} |"
    )


if __name__ == "__main__":
    main()
