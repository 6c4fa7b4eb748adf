"""Measure the effective draws a second of NUTS, emcee and dynesty with 6, 60 and 1000 parameters.

    python benchmarks/many_parameters.py [--device cuda|cpu] [--number 6 60 1000] [--seconds 120]
                                         [--sampler nuts emcee dynesty] [--quick] [--output FILE]

Half points (east, north, I, spectral index), half elliptical Gaussians (east, north, I, emaj, ratio,
pa), seen by the 64 antennas of MeerKAT, are simulated with noise and fitted from priors as a catalogue
gives them: positions to 5 arcsec, nothing about fluxes, sizes and angles; the noise is fitted too. For each
number of parameters and each sampler: time, effective draws of the worst parameter, and how many of the
true values lie within the intervals of 68 and 95 %. emcee and dynesty have `--seconds`; what has not
finished by then is reported as such, with the most effective draws that emcee can have had by then. First
calls, which compile, are made before the clock starts. Results are written as they come.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path
from common.results import write
from common.timing import seconds_of
from common.types import Line

import biro
from biro.inference.samplers.emcee_chain import FILE, ChainFile
from biro.models.files.toml import from_toml
from biro.simulation.simulator import Channels, Track, simulate
from rime_kernels import device

SAMPLERS = ("nuts", "emcee", "dynesty")
# Points and Gaussians for each number of parameters.
SKIES = {6: (0, 1), 60: (6, 6), 1000: (100, 100)}
NOISE = 4.0
"""Jy, of each visibility: fluxes are then known to about 1 mJy."""
CELL = 160.0
"""arcsec between neighbouring places, one source at each."""
BLUR = 2.0
"""arcsec by which the priors' middles are off."""


QUICK = {
    "number": [6], "sampler": ["nuts"], "n_time": 1, "n_chan": 1, "n_draw": 5, "n_tune": 5, "max_depth": 2,
}  # fmt: skip
"""Options of a quick run."""


class OutOfTimeError(BaseException):
    """The time that a sampler was given is over."""


def truths(n_point: int, n_gaussian: int) -> dict[str, float]:
    """Draw true values by the names of the parameters, in the priors' units: arcsec, Jy and deg."""
    rng = np.random.default_rng(5)
    n = n_point + n_gaussian
    side = int(np.ceil(np.sqrt(n)))
    places = rng.permutation(side * side)[:n]
    found = {}
    for k, place in enumerate(places):
        for key, number in (("east", place % side), ("north", place // side)):
            found[f"s{k}.{key}"] = CELL * (number - 0.5 * (side - 1) + rng.uniform(-0.3, 0.3)) + 20.0
        found[f"s{k}.I"] = float(np.exp(rng.uniform(np.log(0.1), np.log(1.0))))
        if k < n_point:
            found[f"s{k}.spectral_index"] = rng.normal(-0.7, 0.3)
        else:
            found[f"s{k}.emaj"] = rng.uniform(6.0, 15.0)
            found[f"s{k}.ratio"] = rng.uniform(0.4, 0.7)
            found[f"s{k}.pa"] = rng.uniform(0.0, 180.0)
    return {name: float(value) for name, value in found.items()}


def sky_text(truth: dict[str, float], n_point: int, n_gaussian: int, *, free: bool) -> str:
    """Return the model as text, with true values or with priors about those of a catalogue."""
    rng = np.random.default_rng(6)
    ranges = {
        "I": (0.0, 3.0),
        "spectral_index": (-3.0, 2.0),
        "emaj": (1.0, 30.0),
        "ratio": (0.1, 1.0),
        "pa": (0.0, 180.0),
    }
    units = {"east": "arcsec", "north": "arcsec", "I": "Jy", "emaj": "arcsec", "pa": "deg"}
    lines = []
    for k in range(n_point + n_gaussian):
        kind = "point" if k < n_point else "gaussian"
        lines += ["[[source]]", f'name = "s{k}"', f'type = "{kind}"', 'ref_freq = "1.2 GHz"']
        for name in (name for name in truth if name.startswith(f"s{k}.")):
            key, value = name.split(".")[1], truth[name]
            unit = f' {units[key]}"' if key in units else '"'
            if not free:
                lines.append(f'{key} = "{value!r}{unit}' if key in units else f"{key} = {value!r}")
                continue
            middle = value + float(rng.uniform(-BLUR, BLUR))
            low, high = ranges.get(key, (middle - 5.0, middle + 5.0))
            of_unit = f', unit = "{units[key]}"' if key in units else ""
            lines.append(f'{key} = {{ prior = "uniform", low = {low!r}, high = {high!r}{of_unit} }}')
    return "\n".join(lines) + "\n"


def problem(number: int, args: argparse.Namespace) -> tuple[biro.Likelihood, dict[str, float]]:
    """Make the likelihood of so many parameters, compiled, and the true values."""
    n_point, n_gaussian = SKIES[number]
    truth = truths(n_point, n_gaussian)
    observation = simulate(
        "KAT-7" if args.quick else "MeerKAT",
        from_toml(sky_text(truth, n_point, n_gaussian, free=False)),
        phase_centre="04h00m00s -30d00m00s",
        times=Track("2026-03-01", 480.0 * args.n_time, 480.0),
        channels=Channels(1.0e9, 4e8 / args.n_chan, args.n_chan),
        noise=NOISE,
        seed=7,
        backend=args.device,
    )
    sky = from_toml(sky_text(truth, n_point, n_gaussian, free=True))
    likelihood = biro.Likelihood(observation, sky, backend=args.device, precision=args.precision)
    theta = likelihood.prior_transform(np.full((2, likelihood.n_param), 0.5))
    likelihood.log_likelihood(theta)
    likelihood.log_posterior_and_gradient(theta)
    return likelihood, truth


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """Raise OutOfTimeError in what is inside after so many seconds."""

    def over(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    if seconds is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)  # again: Python loses one during some callbacks
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def run(likelihood: biro.Likelihood, truth: dict[str, float], sampler: str, args: argparse.Namespace) -> Line:
    """Run one sampler on one problem; a line of the results."""
    names = ("n_draw", "n_tune", "max_depth", "target_accept") if sampler == "nuts" else ()
    options = {name: getattr(args, name) for name in names}
    start = time.monotonic()
    line: Line = {"n_param": likelihood.n_param, "sampler": sampler, **options}
    with tempfile.TemporaryDirectory() as folder:
        if sampler == "emcee":
            options["n_walker"] = max(4 * likelihood.n_param, 32)  # its default, which begins it at 1000, too
        options |= {"run_dir": Path(folder) / "run", "progress": args.progress}
        try:
            with at_most(None if sampler == "nuts" else args.seconds):
                posterior = biro.sample(likelihood, sampler, seed=1, **options)
        except OutOfTimeError:
            seconds = time.monotonic() - start
            line |= {"finished": False, "seconds": round(seconds, 1)}
            return line | (effective_so_far(options["run_dir"], seconds) if sampler == "emcee" else {})
    seconds = time.monotonic() - start
    least = float(np.min(posterior.effective))
    line |= {
        "finished": True,
        "seconds": round(seconds, 1),
        "n_effective": round(least),
        "per_second": least / seconds,
    }
    line |= {name: float(value) for name, value in posterior.diagnostics.items()}
    return line | covered(posterior, truth)


def effective_so_far(run_dir: Path, seconds: float) -> dict[str, float]:
    """Return how many effective draws of the worst parameter emcee has made, at most.

    Steps of all walkers over the autocorrelation time, which a chain of a few such times underestimates.
    """
    try:
        run_id = json.loads((run_dir / "run.json").read_text())["run_id"]
    except FileNotFoundError:
        return {}
    backend = ChainFile(run_dir / FILE, run_id).restore()
    if backend is None or backend.iteration < 100:  # too few to say
        return {}
    tau = float(np.max(backend.get_autocorr_time(tol=0)))
    effective = backend.iteration * backend.shape[0] / tau
    found = {"n_step": backend.iteration, "n_walker": backend.shape[0], "autocorrelation_time": tau}
    return found | {"n_effective": round(effective), "per_second": effective / seconds}


def covered(posterior: biro.Posterior, truth: dict[str, float]) -> dict[str, float]:
    """Return shares of the true values within central intervals, and the mean square of the pulls."""
    found, squares = {68: 0, 95: 0}, 0.0
    for name, value in truth.items():
        draws = np.asarray(posterior[name])
        if name.endswith(".pa"):  # on the branch about the truth
            draws = value + np.mod(draws - value + 90.0, 180.0) - 90.0
        squares += ((draws.mean() - value) / draws.std()) ** 2
        for level in found:
            low, high = np.percentile(draws, [50.0 - 0.5 * level, 50.0 + 0.5 * level])
            found[level] += low <= value <= high
    n = len(truth)
    return {"within_68": found[68] / n, "within_95": found[95] / n, "mean_square_pull": squares / n}


def text(line: Line) -> str:
    """Return a line of the table."""
    head = f"{line['n_param']:5d} {line['sampler']:8} "
    if "error" in line:
        return head + line["error"]
    if not line["finished"]:
        so_far = ""
        if "n_effective" in line:
            so_far = f": {line['n_effective']} effective at most, {line['per_second']:.2f} /s"
        return head + f"not finished in {line['seconds']:.0f} s{so_far}"
    more = f" R-hat {line['r_hat']:.4f}, divergent {line['n_divergent']:.0f}" if "r_hat" in line else ""
    return head + (
        f"{line['seconds']:7.1f} s {line['n_effective']:7d} effective {line['per_second']:8.2f} /s; "
        f"truth in 68 %: {100 * line['within_68']:.1f} %, 95 %: {100 * line['within_95']:.1f} %;{more}"
    )


def arguments() -> argparse.Namespace:
    parser = make_parser(__doc__, device=True)
    parser.add_argument("--precision", choices=("single", "double"), default="single")
    parser.add_argument("--number", type=int, nargs="+", choices=tuple(SKIES), default=list(SKIES))
    parser.add_argument("--sampler", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--seconds", type=float, default=120.0, help="that emcee and dynesty have")
    parser.add_argument("--n-time", type=int, default=60)
    parser.add_argument("--n-chan", type=int, default=64)
    parser.add_argument("--n-draw", type=int, default=1600, help="of each of NUTS' four chains")
    parser.add_argument("--n-tune", type=int, default=300)
    parser.add_argument("--max-depth", type=int, default=3, help="of NUTS' trees")
    parser.add_argument("--target-accept", type=float, default=0.7)
    args = parser.parse_args()
    if args.quick:
        vars(args).update(QUICK)
        if args.device == "cuda" and device.simulated():  # a gradient takes seconds there
            args.sampler = []
    args.progress = sys.stderr.isatty()
    return args


def costs_of_calls(likelihood: biro.Likelihood, n_call: int) -> dict[str, float]:
    """Measure the seconds of one of four parameter vectors that are worked out together."""
    theta = likelihood.prior_transform(np.full((4, likelihood.n_param), 0.5))
    costs = {}
    for name in ("log_likelihood", "log_posterior_and_gradient"):
        call = partial(getattr(likelihood, name), theta)
        call()  # compiles, or records
        costs[name] = statistics.median(seconds_of(call) for _ in range(n_call)) / len(theta)
    return costs


def main() -> int:
    args = arguments()
    about = machine(args.device)
    output = output_path(args, "many_parameters", f"{args.device}_{machine_slug(about)}.json")
    size = {
        "n_antenna": 7 if args.quick else 64,
        "n_time": args.n_time,
        "n_chan": args.n_chan,
        "precision": args.precision,
    }
    lines: list[Line] = []
    for number in args.number:
        start = time.monotonic()
        likelihood, truth = problem(number, args)
        costs = costs_of_calls(likelihood, 1 if args.quick else 5)
        print(
            f"{likelihood.n_param} parameters: made in {time.monotonic() - start:.1f} s; "
            + ", ".join(f"{name} {1e3 * cost:.2f} ms" for name, cost in costs.items()),
            flush=True,
        )
        ms = {"ms": {name: 1e3 * cost for name, cost in costs.items()}}
        if not args.sampler:  # the calls alone
            lines.append({"n_param": likelihood.n_param, **ms})
            write(output, {"machine": about, "size": size, "lines": lines})
        for sampler in args.sampler:
            try:
                line = run(likelihood, truth, sampler, args)
            except biro.BiroError as error:
                line = {"n_param": likelihood.n_param, "sampler": sampler, "error": str(error)}
            lines.append(line | ms)
            print(text(line), flush=True)
            write(output, {"machine": about, "size": size, "lines": lines})
    print(f"written: {output}" if output else "not written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
