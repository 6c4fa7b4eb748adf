"""Measure what is lost when SEFDs and gains of the stations of the EVN are not fitted beside the source.

    python benchmarks/evn.py [--repeats 20] [--quick] [--output FILE]

After the experiment of Natarajan et al. (2017, MNRAS 464, 4306). Nine stations see a Gaussian of 1 mas, a
fifth of the synthesised beam, or a point, of 0.1 Jy at 5 GHz for eight hours. The system equivalent flux
density of each station is off from what the weights say by a factor (log-normal, 0.5), its gain by 10 % and 5
deg (the same all the time). Each data set is fitted with a Gaussian and with a point, with all of that fixed
("fixed"), with SEFDs or gains fitted, and with both. A pull is (found - true) / error at the maximum of the
posterior, of the fit with the true kind of source: its rms is 1 where errors are right (those at an end of
their prior, a size of 0, have none and are left out). "chosen" counts the data sets of which the evidence
(Laplace) of the true kind is the higher one, and "by" is the median of ln Z of the true kind less that of the
other. Results are written as they come.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line
from numpy.typing import NDArray

import biro
from biro.models import (
    Gain,
    GaussianSource,
    LogNormal,
    LogUniform,
    Noise,
    Normal,
    PerSegment,
    PointSource,
    SkyModel,
    Uniform,
)
from biro.simulation.simulator import Channels, Track, simulate

Array = NDArray[np.float64]
CENTRE = "08h09m41.7s +53d41m25s"
FLUX, SIZE, NOISE = 0.1, 1.0, 0.02
"""Jy; FWHM, mas; stated noise of a visibility, Jy."""
SEFD, AMPLITUDE, PHASE = 0.5, 0.1, 5.0
"""By how much stations are off: factors of their SEFD, of their gain, and degrees."""
TRUTH = {"source.I": FLUX, "source.fwhm": SIZE, "source.east": 0.1, "source.north": -0.2}
KINDS = "gaussian", "point"
TREATMENTS = {"fixed": "", "SEFDs": "s", "gains": "g", "both": "sg"}


@dataclass(frozen=True)
class Case:
    """How large a data set is, how many starts each fit has, and what is fitted beside the source."""

    n_time: int
    n_chan: int
    n_start: int
    treatments: tuple[str, ...] = tuple(TREATMENTS)


def sky(kind: str, treatment: str) -> SkyModel:
    """A source, and of the stations what is fitted beside it."""
    place = {"east": Uniform("-2 mas", "2 mas"), "north": Uniform("-2 mas", "2 mas")}
    flux = {"I": LogUniform(0.1 * FLUX, 10 * FLUX, "Jy")}
    source = (
        PointSource("source", **place, **flux)
        if kind == "point"
        else GaussianSource("source", **place, **flux, fwhm=Uniform("0 mas", "4 mas"))
    )
    parts = TREATMENTS[treatment]
    gain = Gain(amplitude=PerSegment(LogNormal(AMPLITUDE)), phase=PerSegment(Normal(0.0, PHASE, "deg")))
    noise = Noise(factor=LogNormal(SEFD), per="antenna") if "s" in parts else Noise(factor=1.0)
    return SkyModel([source], noise=noise, gain=replace(gain, reference="none") if "g" in parts else None)


def drawn(kind: str, case: Case, seed: int) -> biro.Observation:
    """Data with gains and noise of the priors."""
    rng = np.random.default_rng(seed)
    layout = simulate(
        "EVN",
        SkyModel([PointSource("a", east="0 mas", north="0 mas", I="1 Jy")]),
        phase_centre=CENTRE,
        times=Track("2026-03-01T15:00", 8 * 3600.0, 8 * 3600.0 / case.n_time),
        channels=Channels(5e9, 8e6, case.n_chan),
        feeds="circular",
        noise=NOISE,
        seed=seed,
        backend="cpu",
    )
    with_all = biro.Likelihood(layout, sky(kind, "both"), backend="cpu", smearing="off")
    theta = with_all.prior_transform(rng.random(with_all.n_param))
    values = dict(zip(with_all.parameter_names, theta.tolist(), strict=True)) | TRUTH
    theta = np.array([values[name] for name in with_all.parameter_names])
    parts = []
    for part, vis in zip(layout.partitions, with_all.predict(theta), strict=True):
        names = layout.partition_views[0].antenna_names
        factor = np.sqrt([values.get(f"noise.factor[{name}]", 1.0) for name in names])
        sigma = NOISE * (factor[part.rows.antenna1] * factor[part.rows.antenna2])[:, None, None]
        noise = sigma * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
        parts.append(replace(part, vis=np.where(part.weight > 0, vis + noise, 0.0)))
    return replace(layout, partitions=tuple(parts))


def likelihood(data: biro.Observation, kind: str, treatment: str) -> biro.Likelihood:
    return biro.Likelihood(data, sky(kind, treatment), backend="cpu", smearing="off")


def fitted(data: biro.Observation, kind: str, seed: int, case: Case) -> Line:
    """What is found with a kind of source: values and errors, and ln Z, with each treatment."""
    line: Line = {}
    for treatment in case.treatments:
        target = likelihood(data, kind, treatment)
        maximum = biro.maximise(target, seed=seed, starts=case.n_start)
        errors = np.sqrt(np.diag(maximum.laplace.covariance))
        each = zip(target.parameter_names, maximum.laplace.theta.tolist(), errors.tolist(), strict=True)
        line[treatment] = {name: [value, error] for name, value, error in each if name in TRUTH}
        line[treatment]["log_evidence"] = maximum.log_evidence
    return line


def summary(lines: list[Line], kind: str, treatments: tuple[str, ...]) -> Iterator[str]:
    """A line for each parameter, median errors and rms pulls with each treatment; and one for evidences."""
    own, other = [line for line in lines if line["truth"] == kind], KINDS[1 - KINDS.index(kind)]
    for name, true in TRUTH.items():
        if name not in own[0][kind][treatments[0]]:
            continue
        text = f"{kind:9} {name:13}"
        for treatment in treatments:
            found = np.array([line[kind][treatment][name] for line in own])
            value, error = found[found[:, 1] > 0].T
            pull = float(np.sqrt(np.mean(((value - true) / error) ** 2)))
            text += f"{np.median(error):11.4f}{pull:7.1f}"
        yield text
    text = f"{kind:9} {'chosen, by':13}"
    for treatment in treatments:
        of_kind, of_other = (
            np.array([line[each][treatment]["log_evidence"] for line in own], float) for each in (kind, other)
        )
        more = of_kind - of_other  # NaN where one is not known
        text += f"{np.sum(more > 0):11d}{np.nanmedian(more):7.1f}"
    yield text


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="data sets of each truth (1 if quick)")
    args = parse(parser)
    case, about = Case(6, 1, 1, ("fixed", "both")) if args.quick else Case(48, 2, 4), machine("cpu")
    lines: list[Line] = []
    found = {"quick": args.quick, "machine": about, **asdict(case), "cases": lines}
    kinds = tuple(KINDS)[:1] if args.quick else tuple(KINDS)
    for truth in kinds:
        for seed in range(1, 2 if args.quick else args.repeats + 1):
            data = drawn(truth, case, seed)
            fits = {kind: fitted(data, kind, seed, case) for kind in KINDS}
            lines.append({"truth": truth, "seed": seed, **fits})
            write(output_path(args, "evn", f"{machine_slug(about)}.json"), found)
    print(f"{'truth':9} {'parameter':13}" + "".join(f"{name:>11}{'pull':>7}" for name in case.treatments))
    for kind in kinds:
        print("\n".join(summary(lines, kind, case.treatments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
