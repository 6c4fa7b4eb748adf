"""Measure what gains of antennas cost: applied, fitted with a gradient, and integrated over, against chi2.

    python benchmarks/gains.py [--device cpu|cuda] [--quick] [--output FILE]

64 antennas, 64 channels, 100 sources, 100 times on a GPU and 10 on a CPU, where every figure grows with them;
one complex gain of each antenna and time. All in one run and in turns. The chi2 that the others are compared
with is that of the same sky without gains. The integral over gains (`gains="marginalise"`) is that of a walk
in theta, as a sampler makes it, so that its search begins near the gains of the step before. The fluxes of
two sources are fitted; the gradient is also taken where all are. Goals, of chi2: 1.1 where gains are applied,
3.8 with the gradient with respect to all gains, 4 for the integral.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import seconds_of
from common.types import Line

import biro
from biro.models import Gain, LogNormal, LogUniform, Noise, PerSegment, PointSource, SkyModel, Uniform
from rime_kernels import device
from rime_kernels.choices import Precision

GOALS = {"applied": 1.1, "gradient": 3.8, "gradient_of_all": 3.8, "marginalised": 4.0}
"""Times chi2 that each may take."""
NOISE = 1.0


@dataclass(frozen=True)
class Case:
    """How large a set is."""

    n_antenna: int
    n_time: int
    n_chan: int
    n_source: int


def case_of(run_on: str, *, quick: bool, simulated: bool) -> Case:
    if simulated:
        return Case(3, 1, 1, 2)
    if quick:
        return Case(8, 3, 4, 5)
    return Case(64, 10 if run_on == "cpu" else 100, 64, 100)


def skies(case: Case, n_fitted: int) -> tuple[SkyModel, SkyModel]:
    """Points of which some are fitted; without and with gains."""
    rng = np.random.default_rng(1)
    east, north = rng.uniform(-1800, 1800, (2, case.n_source))
    flux = rng.exponential(1.0, case.n_source)
    sources = [
        PointSource(
            f"s{i}",
            east=f"{east[i]} arcsec",
            north=f"{north[i]} arcsec",
            I=LogUniform(0.1 * flux[i], 10 * flux[i], "Jy") if i < n_fitted else f"{flux[i]} Jy",
        )
        for i in range(case.n_source)
    ]
    sky = SkyModel(sources, noise=Noise(factor=1.0))
    gain = Gain(
        amplitude=PerSegment(LogNormal(0.1), per="integration"),
        phase=PerSegment(Uniform(-180, 180, "deg"), per="integration"),
    )
    return sky, replace(sky, gain=gain)


def observation(case: Case) -> biro.Observation:
    """Data of zeros."""
    rng = np.random.default_rng(2)
    place = rng.uniform(-4000, 4000, (case.n_antenna, 3)) * [1, 1, 0.05]
    p, q = np.triu_indices(case.n_antenna, 1)
    time = np.repeat(5e9 + 8.0 * np.arange(case.n_time), p.size)
    uvw = np.tile(place[p] - place[q], (case.n_time, 1))
    freq = 1.3e9 + 1e6 * np.arange(case.n_chan)
    rows = np.tile(p, case.n_time), np.tile(q, case.n_time), time
    vis = np.zeros((time.size, case.n_chan, 1), complex)
    return biro.Observation.from_arrays(vis, uvw, *rows, freq, ("RR",), weight=NOISE**-2, interval=8.0)


def prepared(case: Case, run_on: str, precision: Precision) -> tuple[dict[str, biro.Likelihood], np.ndarray]:
    """Likelihoods of data with gains and noise, by what is done to gains; and all true parameters."""
    options = {"backend": run_on, "precision": precision, "smearing": "off"}
    plain, fitted = skies(case, 2)
    empty = observation(case)
    sampled = biro.Likelihood(empty, fitted, **options)
    truth = sampled.prior_transform(np.random.default_rng(3).random(sampled.n_param))
    (vis,) = sampled.predict(truth)
    rng = np.random.default_rng(4)
    vis = vis + NOISE * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
    data = replace(empty, partitions=(replace(empty.partitions[0], vis=vis),))
    found = {
        "none": biro.Likelihood(data, plain, **options),
        "sample": biro.Likelihood(data, fitted, **options),
        "all": biro.Likelihood(data, skies(case, case.n_source)[1], **options),
        "marginalise": biro.Likelihood(data, fitted, **options, gains="marginalise"),
    }
    return found, truth


def measured(case: Case, run_on: str, precision: Precision, repeat: int) -> Line:
    """Measure one line of the table."""
    likelihoods, truth = prepared(case, run_on, precision)
    outer = np.array([truth[list(likelihoods["sample"].parameter_names).index(f"s{i}.I")] for i in range(2)])
    rng = np.random.default_rng(5)

    def seconds_near(call: Callable[[np.ndarray], object], theta: np.ndarray) -> float:
        at = theta * (1.0 + 1e-4 * rng.normal(size=theta.size))
        return seconds_of(lambda: call(at))

    sample, marginalise = likelihoods["sample"], likelihoods["marginalise"]
    every = likelihoods["all"]
    known = dict(zip(sample.parameter_names, truth, strict=True))
    middle = every.prior_transform(np.full(every.n_param, 0.5))  # the fluxes that are not in `sample`
    wide = np.array([known.get(n, x) for n, x in zip(every.parameter_names, middle, strict=True)])
    calls: dict[str, tuple[Callable[[np.ndarray], object], np.ndarray]] = {
        "chi2": (likelihoods["none"].chi2, outer),
        "applied": (sample.chi2, truth),
        "gradient": (sample.log_likelihood_and_gradient, truth),
        "gradient_of_all": (every.log_likelihood_and_gradient, wide),
        "marginalised": (marginalise.log_likelihood, outer),
        "marginalised_gradient": (marginalise.log_likelihood_and_gradient, outer),
    }
    for each in calls.values():
        seconds_near(*each)
    turns = [[seconds_near(*each) for each in calls.values()] for _ in range(repeat)]
    seconds = dict(zip(calls, (statistics.median(times) for times in zip(*turns, strict=True)), strict=True))
    line: Line = {**asdict(case), "precision": precision, "n": repeat}
    line |= {"n_gain": truth.size - outer.size}
    line |= {f"{name}_ms": 1e3 * value for name, value in seconds.items()}
    for name in calls:
        line[f"{name}_ratio"] = seconds[name] / seconds["chi2"]
    return line | {f"{name}_reached": line[f"{name}_ratio"] <= most for name, most in GOALS.items()}


def text(line: Line) -> str:
    start = f"{line['precision']:8}{line['n_gain']:>7}{line['chi2_ms']:11.2f}"
    names = ("applied", "gradient", "gradient_of_all", "marginalised", "marginalised_gradient")
    return start + "".join(f"{line[f'{name}_ratio']:12.2f}" for name in names)


def main() -> int:
    args = parse(make_parser(__doc__, device=True, repeat=5))
    about = machine(args.device)
    simulated = args.device == "cuda" and device.simulated()
    case = case_of(args.device, quick=args.quick, simulated=simulated)
    lines: list[Line] = []
    found = {"device": args.device, "quick": args.quick, "machine": about, "cases": lines}
    print(f"{case}; times chi2:")
    print(
        f"{'prec':8}{'gains':>7}{'chi2 ms':>11}{'applied':>12}{'gradient':>12}{'of all':>12}"
        f"{'integral':>12}{'slope':>12}"
    )
    for precision in ("double",) if args.quick or simulated else ("double", "single"):
        lines.append(measured(case, args.device, precision, args.repeat))
        print(text(lines[-1]), flush=True)
        write(output_path(args, "gains", f"{machine_slug(about)}.json"), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
