"""Whether calibrations pass what is right and catch what is wrong: five cases, emcee and dynesty.

    python benchmarks/sbc.py [--replicates 300] [--workers N] [--time-limit 480] [--case TEXT ...]
                                     [--sampler emcee|dynesty] [--output FOLDER]

A point and an elliptical Gaussian with fitted noise, seen by KAT-7 for six hours, are simulated from
their priors and fitted: as they are, and with one thing wrong in the fit. No casacore, h5py or matplotlib
is needed. After each case the results are written to FOLDER (benchmarks/results/sbc), named
after the machine; the time limit, in seconds, ends the run with what is there by then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

try:
    import h5py  # noqa: F401
except ImportError:  # chains are not kept here: only the import must not fail
    sys.modules["h5py"] = ModuleType("h5py")
    import biro.samplers.chain

    del sys.modules["h5py"]

import biro
from biro.errors import BiroError
from biro.models.files.toml import from_toml
from biro.run.interrupt import RunInterrupted
from biro.sbc.procedure import load
from biro.sbc.procedure import run as run_sbc
from biro.simulation.simulator import Channels, Track, simulate

SKY = """
[noise]
factor = { prior = "log-uniform", low = 0.5, high = 2 }

[[source]]
name = "core"
type = "point"
east = "0 arcmin"
north = "0 arcmin"
I = { prior = "uniform", low = 0, high = 5, unit = "Jy" }

[[source]]
name = "lobe"
type = "gaussian"
east = "6 arcmin"
north = "-3 arcmin"
I = { prior = "uniform", low = 1, high = 5, unit = "Jy" }
emaj = { prior = "uniform", low = 1, high = 8, unit = "arcmin" }
emin = { prior = "uniform", low = 1, high = 8, unit = "arcmin" }
pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }
"""
PA = 'pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }'
SOME_VALUES = {"core.I": 1.0, "lobe.I": 2.0, "lobe.emaj": 5.0, "lobe.emin": 2.0, "lobe.pa": 20.0}
NOISE = 4.0
OPTIONS: dict[str, dict[str, Any]] = {
    "emcee": {"n_tau": 20.0, "tau_change": 0.3},
    "dynesty": {"n_live": 100, "dlogz": 0.5},
}
SEED = 1
FOLDER = Path(__file__).parent / "results" / "calibration"


def layout() -> biro.Observation:
    """1008 visibilities: 21 baselines, 6 times, 2 channels, 4 correlations. What they are does not matter."""
    return simulate(
        "KAT-7",
        from_toml(SKY),
        phase_centre="05h00m00s -45d00m00s",
        times=Track("2026-03-01", duration=6 * 3600.0, integration=3600.0),
        channels=Channels(1.3e9, 2e8, 2),
        noise=NOISE,
        seed=SEED,
        values=SOME_VALUES,
        backend="cpu",
    )


def weights_wrong(observation: biro.Observation) -> biro.Likelihood:
    """Weights 10 % too large."""
    parts = tuple(replace(part, weight=1.1 * part.weight) for part in observation.partitions)
    return biro.Likelihood(replace(observation, partitions=parts), from_toml(SKY), backend="cpu")


class CountedOnce(biro.Likelihood):
    """N ln s instead of 2 N ln s: as if a complex sample were one number."""

    def log_likelihood(self, theta: Any) -> Any:
        factor = self.model.noise_factor(np.atleast_2d(theta))
        return super().log_likelihood(theta) + (self.n_vis * np.log(factor)).sum(axis=1)


class OrderForgotten(biro.Likelihood):
    """emaj and emin drawn without a care for which is larger."""

    def prior_transform(self, unit: Any) -> Any:
        columns = np.moveaxis(np.asarray(unit), -1, 0)
        each = zip(self.parameters, columns, strict=True)
        return np.stack([parameter.prior.transform(column) for parameter, column in each], axis=-1)

    def log_prior(self, theta: Any) -> Any:
        wrapped = np.moveaxis(self.model.wrap(theta), -1, 0)
        each = zip(self.parameters, wrapped, strict=True)
        return sum(parameter.prior.log_density(column) for parameter, column in each)


def of_kind(kind: type[biro.Likelihood], text: str, observation: biro.Observation) -> biro.Likelihood:
    """A likelihood of a class of its own, or of another model."""
    return kind(observation, from_toml(text), backend="cpu")


PEAKED = PA.replace('"uniform", low', '"truncated-normal", mean = 90, sd = 20, low')
CASES: dict[str, Callable[[biro.Observation], Any] | None] = {
    "right": None,
    "weights 10 % too large": weights_wrong,
    "complex sample counted once": partial(of_kind, CountedOnce, SKY),
    "order forgotten in the prior": partial(of_kind, OrderForgotten, SKY),
    "prior of the angle not uniform": partial(of_kind, biro.Likelihood, SKY.replace(PA, PEAKED)),
}


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Ctrl-C by itself, so that what is done by then is kept."""
    timer = threading.Timer(max(seconds, 0.1), os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def run_case(name: str, sampler: str, args: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """One case as a line of the results."""
    likelihood = biro.Likelihood(layout(), from_toml(SKY), backend="cpu")
    start = time.monotonic()
    line: dict[str, Any] = {"case": name, "sampler": sampler}
    with tempfile.TemporaryDirectory() as folder:
        try:
            with interrupted_after(seconds):
                found = run_sbc(
                    likelihood,
                    sampler,
                    replicates=args.replicates,
                    fit_with=CASES[name],
                    run_dir=folder,
                    seed=SEED,
                    workers=args.workers,
                    progress=sys.stderr.isatty(),
                    **OPTIONS[sampler],
                )
        except (RunInterrupted, KeyboardInterrupt):
            line["interrupted"] = True
            try:
                found = load(folder)
            except BiroError as error:
                return line | {"error": str(error)}
    each = [row["seconds"] for row in found.rows]
    line |= {
        "seconds": round(time.monotonic() - start, 1),
        "seconds_per_fit": round(float(np.median(each)), 3),
    }
    return line | found.to_dict()


def text_of(line: dict[str, Any]) -> str:
    """A line for people."""
    start = f"{line['case']:32s} {line['sampler']:8s}"
    if "error" in line:
        return f"{start} {line['error']}"
    chi2 = line["reduced_chi2"]
    words = "passes" if line["passed"] else f"CAUGHT by {', '.join(line['suspects'])}"
    return (
        f"{start} {line['replicates']:4d} of {line['seconds_per_fit']:.2f} s  chi2 {chi2['mean']:.4f} "
        f"(z {chi2['z']:+6.1f})  chance {100 * line['chance']:8.2g} %  {words}"
    )


def _lines(lines: list[dict[str, Any]]) -> str:
    """The results as the end of a JSON object, each on a line of its own."""
    return '"lines": [\n' + ",\n".join(json.dumps(line) for line in lines) + "\n]}"


def main() -> None:
    """Run the cases, the right one first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--time-limit", type=float, default=480.0)
    parser.add_argument("--case", action="append", help="part of a name; default all")
    parser.add_argument("--sampler", choices=list(OPTIONS), action="append")
    parser.add_argument("--output", type=Path, default=FOLDER)
    args = parser.parse_args()
    from report import machine, machine_slug

    about = machine("cpu")
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / f"{machine_slug(about)}.json"
    sizes = {"n_vis": 1008, "n_parameter": 6, "replicates": args.replicates, "options": OPTIONS}
    end, lines = time.monotonic() + args.time_limit, []
    for name in CASES:
        for sampler in args.sampler or OPTIONS:
            left = end - time.monotonic()
            over = left < 10.0 or any("interrupted" in line for line in lines)
            if over or not any(part in name for part in args.case or [""]):
                continue
            lines.append(run_case(name, sampler, args, left))
            print(text_of(lines[-1]), flush=True)
            head = {"machine": about, "sizes": sizes, "sky": SKY, "noise_jy": NOISE}
            path.write_text(f"{json.dumps(head)[:-1]}, {_lines(lines)}\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
