"""Measure what gains that drift do to a fitted field: pulls of its parameters, without gains and with.

    python benchmarks/field.py [--quick] [--output FILE] [--fields N]

MeerKAT, 64 antennas, 20 points of which all flux densities and five places are fitted, 10 integrations of two
minutes, four channels, and gains of every antenna that drift in time (Gauss-Markov, 10 minutes): amplitudes
by 5 %, phases by 3 deg. Data are drawn from that prior, with noise, and the maximum is found with gains of 1
("none") and with gains integrated over (`gains="marginalise"`). A pull is (found - true) / error; without
bias its rms is 1. Climbs begin at the truth, since this asks for biases and not whether maxima are found.
Results are written as they come.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass, replace

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line
from numpy.typing import NDArray

import biro
from biro.models import Gain, LogNormal, LogUniform, Noise, Normal, PerSegment, PointSource, SkyModel, Uniform
from biro.simulation.simulator import Channels, Track, simulate

Array = NDArray[np.float64]
CENTRE = 1.309, -0.785
NOISE = 0.05
"""Of a visibility, Jy."""


@dataclass(frozen=True)
class Case:
    """How large a field is."""

    telescope: str
    n_time: int
    n_chan: int
    n_source: int
    n_place: int


FULL = Case("MeerKAT", 10, 4, 20, 5)
QUICK = Case("KAT-7", 4, 1, 3, 1)


def skies(case: Case, rng: np.random.Generator) -> tuple[SkyModel, SkyModel, dict[str, float]]:
    """A sky with gains of 1, the same with gains, and the true values."""
    place = rng.uniform(-1500, 1500, (case.n_source, 2))
    flux = np.sort(rng.pareto(1.2, case.n_source) + 0.1)[::-1] * 0.2
    truth, sources = {}, []
    for i in range(case.n_source):
        name, fitted = f"s{i}", i < case.n_place
        truth[f"{name}.I"] = float(flux[i])
        east, north = (
            Uniform(f"{x - 30} arcsec", f"{x + 30} arcsec") if fitted else f"{x} arcsec" for x in place[i]
        )
        if fitted:
            truth |= {f"{name}.east": float(place[i, 0]), f"{name}.north": float(place[i, 1])}
        prior = LogUniform(0.2 * flux[i], 5.0 * flux[i], "Jy")
        sources.append(PointSource(name, east=east, north=north, I=prior))
    plain = SkyModel(sources, centre=CENTRE, noise=Noise(factor=1.0))
    drift = {"per": "integration", "correlated": "10 min"}
    gain = Gain(
        amplitude=PerSegment(LogNormal(0.05), **drift),
        phase=PerSegment(Normal(0.0, 3.0, "deg"), **drift),
        reference="none",
    )
    return plain, replace(plain, gain=gain), truth


def drawn(case: Case, seed: int) -> tuple[biro.Observation, SkyModel, SkyModel, dict[str, float]]:
    """Data with gains of the prior and noise, both skies, and the true values."""
    rng = np.random.default_rng(seed)
    plain, with_gains, truth = skies(case, rng)
    layout = simulate(
        case.telescope,
        SkyModel([PointSource("a", east="0 arcsec", north="0 arcsec", I="1 Jy")], centre=CENTRE),
        phase_centre=CENTRE,
        times=Track("2026-03-01T18:00", 120.0 * case.n_time, 120.0),
        channels=Channels(1.4e9, 1e6, case.n_chan),
        noise=NOISE,
        seed=seed,
        backend="cpu",
    )
    sampled = biro.Likelihood(layout, with_gains, backend="cpu", smearing="off")
    theta = sampled.prior_transform(rng.random(sampled.n_param))
    for i, name in enumerate(sampled.parameter_names):
        theta[i] = truth.get(name, theta[i])
    parts = []
    for part, vis in zip(layout.partitions, sampled.predict(theta), strict=True):
        noise = NOISE * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
        parts.append(replace(part, vis=np.where(part.weight > 0, vis + noise, 0.0)))
    return replace(layout, partitions=tuple(parts)), plain, with_gains, truth


def fitted(likelihood: biro.Likelihood, truth: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Value and error of each parameter at the maximum."""
    start = np.array([[truth[name] for name in likelihood.parameter_names]])
    laplace = biro.maximise(likelihood, starts=start, seed=1).laplace
    errors = np.sqrt(np.diag(laplace.covariance))
    values = zip(laplace.theta.tolist(), errors.tolist(), strict=True)
    return dict(zip(likelihood.parameter_names, values, strict=True))


def measured(case: Case, seed: int) -> Line:
    """One field, fitted both ways."""
    data, plain, with_gains, truth = drawn(case, seed)
    line: Line = {**asdict(case), "seed": seed, "truth": truth}
    for word, sky in (("none", plain), ("marginalise", with_gains)):
        likelihood = biro.Likelihood(
            data, sky, backend="cpu", smearing="off", gains="sample" if word == "none" else "marginalise"
        )
        began = time.perf_counter()
        found = fitted(likelihood, truth)
        pulls = {name: (value - truth[name]) / error for name, (value, error) in found.items()}
        each = np.array(list(pulls.values()))
        line[word] = {
            "fitted": found,
            "pulls": pulls,
            "rms_pull": float(np.sqrt(np.mean(each**2))),
            "largest_pull": float(np.abs(each).max()),
            "seconds": time.perf_counter() - began,
        }
    return line


def table(line: Line) -> str:
    """A line for each parameter."""
    rows = [f"{'parameter':12}{'truth':>11}{'none':>11}{'pull':>8}{'marginalise':>13}{'+-':>9}{'pull':>8}"]
    for name, true in line["truth"].items():
        without, beside = (line[word]["fitted"][name] for word in ("none", "marginalise"))
        rows.append(
            f"{name:12}{true:11.4f}{without[0]:11.4f}{line['none']['pulls'][name]:8.1f}{beside[0]:13.4f}"
            f"{beside[1]:9.4f}{line['marginalise']['pulls'][name]:8.1f}"
        )
    return "\n".join(rows)


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--fields", type=int, default=2, help="simulated fields (default 2, 1 if quick)")
    args = parse(parser)
    about, lines = machine("cpu"), []
    found = {"quick": args.quick, "machine": about, "cases": lines}
    for seed in range(1, 2 if args.quick else args.fields + 1):
        lines.append(measured(QUICK if args.quick else FULL, seed))
        if seed == 1:
            print(table(lines[-1]))
        for word in ("none", "marginalise"):
            each = lines[-1][word]
            print(
                f"field {seed}, {word}: rms pull {each['rms_pull']:.2f}, largest {each['largest_pull']:.1f}, "
                f"{each['seconds']:.0f} s",
                flush=True,
            )
        write(output_path(args, "field", f"{machine_slug(about)}.json"), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
