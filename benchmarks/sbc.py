"""Check that simulation-based calibration passes right fits and detects wrong ones, with emcee and dynesty.

    python benchmarks/sbc.py [--model NAME] [--replicates 300] [--workers N] [--time-limit 480]
                             [--case TEXT] [--sampler NAME] [--quick] [--output FILE]

A sky seen by KAT-7 for six hours is simulated from its priors and fitted: as it is, and with one thing wrong
in the fit. The sky of `sources` is a point and an elliptical Gaussian, with fitted noise. That of
`instrument` is a polarised, thick ring, seen by feeds that rotate; three antennas leak. That of
`marginalised` is a point and a round Gaussian, seen through 39 gains: amplitudes, and phases of which nothing
is known, anew at each of three times; they are integrated over. After each case the results are written to
FILE (benchmarks/results/sbc/MACHINE.json, with the model before its name); the time limit, in seconds, ends
the run with what is there by then.
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path
from common.types import Line, Options
from numpy.typing import ArrayLike, NDArray

import biro
from biro.choices import Gains
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
LEAKING = ("ant1", "ant2", "ant6")
LEAKAGE = f"""
[leakage]
antennas = {json.dumps(LEAKING)}
d_x = {{ prior = "normal", mean = 0, sd = 0.05 }}
d_y = {{ prior = "normal", mean = 0, sd = 0.05 }}
"""
FEEDS = """
[feeds]
rotation = "present"
"""
RING = """
[noise]
factor = { prior = "log-uniform", low = 0.5, high = 2 }

[[source]]
name = "ring"
type = "ring"
east = "3 arcmin"
north = "-2 arcmin"
I = { prior = "uniform", low = 2, high = 6, unit = "Jy" }
Q = { prior = "uniform", low = -1, high = 1, unit = "Jy" }
U = { prior = "uniform", low = -1, high = 1, unit = "Jy" }
diameter = { prior = "uniform", low = 3, high = 9, unit = "arcmin" }
blur = { prior = "uniform", low = 1, high = 4, unit = "arcmin" }
"""
GAINS = """
[gain]
amplitude = { prior = "log-normal", sd = 0.1, per = "integration" }
phase = { prior = "uniform", per = "integration" }
"""
CORE_AND_LOBE = """
[noise]
factor = 1.0

[[source]]
name = "core"
type = "point"
east = "0 arcmin"
north = "0 arcmin"
I = { prior = "uniform", low = 2, high = 5, unit = "Jy" }

[[source]]
name = "lobe"
type = "gaussian"
east = "6 arcmin"
north = "-3 arcmin"
I = { prior = "uniform", low = 1, high = 5, unit = "Jy" }
emaj = { prior = "uniform", low = 1, high = 8, unit = "arcmin" }
emin = "lobe.emaj"
pa = "0 deg"
"""
FitWith = Callable[[biro.Observation], biro.Likelihood]


@dataclass(frozen=True)
class Model:
    """A sky and how it is observed.

    Attributes
    ----------
    text : str
        The model file, which data are drawn from and fitted with.
    values : mapping
        Any values of its free parameters but the noise and gains, for the layout of the data.
    noise : float, Jy
    options : dict
        Options of each sampler that it is fitted with.
    cases : dict
        What makes the fitted likelihood, by what is wrong with it; None where nothing is.
    hours : float
        Between integrations.
    gains : str
        What is done to gains (`biro.Likelihood`).
    """

    text: str
    values: Mapping[str, float]
    noise: float
    options: dict[str, Options]
    cases: dict[str, FitWith | None]
    hours: float = 1.0
    gains: Gains = "sample"

    def likelihood(self) -> biro.Likelihood:
        """Return what data are drawn from."""
        return biro.Likelihood(self.layout(), from_toml(self.text), backend="cpu", gains=self.gains)

    def layout(self) -> biro.Observation:
        """Simulate 21 baselines, 2 channels and 4 correlations at 6 times or fewer; any values do."""
        return simulate(
            "KAT-7",
            replace(from_toml(self.text), gain=()),
            phase_centre="05h00m00s -45d00m00s",
            times=Track("2026-03-01", duration=6 * 3600.0, integration=3600.0 * self.hours),
            channels=Channels(1.3e9, 2e8, 2),
            noise=self.noise,
            seed=SEED,
            values=self.values,
            backend="cpu",
        )


SEED = 1
QUICK: dict[str, Options] = {"dynesty": {"n_live": 25, "dlogz": 5.0}}
"""Of a quick run, whose intervals are worth nothing."""


def weights_wrong(observation: biro.Observation) -> biro.Likelihood:
    """Return a likelihood whose weights are 10 % too large."""
    parts = tuple(replace(part, weight=1.1 * part.weight) for part in observation.partitions)
    return biro.Likelihood(replace(observation, partitions=parts), from_toml(SKY), backend="cpu")


class CountedOnce(biro.Likelihood):
    """A likelihood with N ln s instead of 2 N ln s: as if a complex sample were one number."""

    def log_likelihood(self, theta: ArrayLike) -> NDArray[np.float64]:
        factor = self.model.noise_factor(np.atleast_2d(theta))
        return super().log_likelihood(theta) + (self.n_vis * np.log(factor)).sum(axis=1)


class OrderForgotten(biro.Likelihood):
    """A likelihood whose prior does not say that emaj is larger than emin."""

    def prior_transform(self, unit: ArrayLike) -> NDArray[np.float64]:
        columns = np.moveaxis(np.asarray(unit), -1, 0)
        each = zip(self.parameters, columns, strict=True)
        return np.stack([parameter.prior.transform(column) for parameter, column in each], axis=-1)

    def log_prior(self, theta: ArrayLike) -> NDArray[np.float64]:
        wrapped = np.moveaxis(self.model.wrap(theta), -1, 0)
        each = zip(self.parameters, wrapped, strict=True)
        return np.asarray(sum(parameter.prior.log_density(column) for parameter, column in each))


def of_kind(kind: type[biro.Likelihood], text: str, observation: biro.Observation) -> biro.Likelihood:
    """Return a likelihood of some class and some model."""
    return kind(observation, from_toml(text), backend="cpu")


PEAKED = PA.replace('"uniform", low', '"truncated-normal", mean = 90, sd = 20, low')
SOURCES = Model(
    SKY,
    {"core.I": 1.0, "lobe.I": 2.0, "lobe.emaj": 5.0, "lobe.emin": 2.0, "lobe.pa": 20.0},
    noise=4.0,
    options={"emcee": {"n_tau": 20.0, "tau_change": 0.3}, "dynesty": {"n_live": 100, "dlogz": 0.5}},
    cases={
        "right": None,
        "weights 10 % too large": weights_wrong,
        "complex sample counted once": partial(of_kind, CountedOnce, SKY),
        "order forgotten in the prior": partial(of_kind, OrderForgotten, SKY),
        "prior of the angle not uniform": partial(of_kind, biro.Likelihood, SKY.replace(PA, PEAKED)),
    },
)
LEAKAGES = [
    f"leakage.{d}.{part}[{name}]" for name in LEAKING for d in ("d_x", "d_y") for part in ("real", "imag")
]
INSTRUMENT = Model(
    RING + FEEDS + LEAKAGE,
    {"ring.I": 3.0, "ring.Q": 0.3, "ring.U": 0.0, "ring.diameter": 6.0, "ring.blur": 2.0}
    | dict.fromkeys(LEAKAGES, 0.0),
    noise=0.2,
    options={"none": {}},
    cases={
        "right": None,
        "leakage ignored": partial(of_kind, biro.Likelihood, RING + FEEDS),
        "feeds taken as corrected": partial(of_kind, biro.Likelihood, RING + LEAKAGE),
    },
)
MARGINALISED = Model(
    CORE_AND_LOBE + GAINS,
    {"core.I": 3.0, "lobe.I": 2.0, "lobe.emaj": 4.0},
    noise=0.3,
    options={"none": {}},
    cases={"right": None, "gains ignored": partial(of_kind, biro.Likelihood, CORE_AND_LOBE)},
    hours=2.0,
    gains="marginalise",
)
MODELS = {"sources": SOURCES, "instrument": INSTRUMENT, "marginalised": MARGINALISED}


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt this process after so many seconds, as Ctrl-C does, so that what is done by then is kept."""
    timer = threading.Timer(max(seconds, 0.1), os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def run_case(
    model: Model,
    likelihood: biro.Likelihood,
    name: str,
    sampler: str,
    args: argparse.Namespace,
    seconds: float,
) -> Line:
    """Run a case; a line of the results."""
    start = time.monotonic()
    line: Line = {"case": name, "sampler": sampler}
    with tempfile.TemporaryDirectory() as folder:
        try:
            with interrupted_after(seconds):
                found = run_sbc(
                    likelihood,
                    sampler,
                    replicates=args.replicates,
                    fit_with=model.cases[name],
                    run_dir=folder,
                    seed=SEED,
                    workers=args.workers,
                    progress=sys.stderr.isatty(),
                    **model.options[sampler],
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


def text_of(line: Line) -> str:
    """Return a line of the results as text."""
    start = f"{line['case']:32s} {line['sampler']:8s}"
    if "error" in line:
        return f"{start} {line['error']}"
    chi2 = line["reduced_chi2"]
    words = "passes" if line["passed"] else f"CAUGHT by {', '.join(line['suspects'])}"
    return (
        f"{start} {line['replicates']:4d} of {line['seconds_per_fit']:.2f} s  chi2 {chi2['mean']:.4f} "
        f"(z {chi2['z']:+6.1f})  chance {100 * line['chance']:8.2g} %  {words}"
    )


def _lines(lines: list[Line]) -> str:
    """Return the results as the end of a JSON object, each on a line of its own."""
    return '"lines": [\n' + ",\n".join(json.dumps(line) for line in lines) + "\n]}"


def main() -> int:
    """Run the cases, the right one first."""
    parser = make_parser(__doc__)
    parser.add_argument("--model", choices=list(MODELS), default="sources")
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--time-limit", type=float, default=480.0)
    parser.add_argument("--case", action="append", help="part of a name; default all")
    parser.add_argument("--sampler", choices=["emcee", "dynesty", "none"], action="append")
    args = parser.parse_args()
    model = MODELS[args.model]
    if args.quick:
        args.replicates, args.workers = 10, 1
        args.case, args.sampler = ["complex sample"], ["dynesty"]
        model.options.update(QUICK)
    about = machine("cpu")
    before = "" if model is SOURCES else f"{args.model}_"
    path = output_path(args, "sbc", f"{before}{machine_slug(about)}.json")
    likelihood = model.likelihood()
    sizes = {
        "n_vis": likelihood.n_vis.tolist(),
        "n_parameter": likelihood.full.n_param,
        "replicates": args.replicates,
        "options": model.options,
    }
    end, lines = time.monotonic() + args.time_limit, list[Line]()
    for name in model.cases:
        for sampler in args.sampler or model.options:
            left = end - time.monotonic()
            over = left < 10.0 or any("interrupted" in line for line in lines)
            if over or not any(part in name for part in args.case or [""]):
                continue
            lines.append(run_case(model, likelihood, name, sampler, args, left))
            print(text_of(lines[-1]), flush=True)
            if path is not None:
                head = {"machine": about, "sizes": sizes, "sky": model.text, "noise_jy": model.noise}
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{json.dumps(head)[:-1]}, {_lines(lines)}\n")
    print(f"written to {path}" if path else "not written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
