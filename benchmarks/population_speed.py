"""Measure how fast the number of sources is inferred: round trips and effective draws a minute.

    python benchmarks/population_speed.py [--sources 30] [--visibilities 1e5] [--steps 200] [--effective 400]
                                          [--backend cpu|cuda] [--sampler population dynesty] [--quick]
                                          [--output FILE]

A field of points is drawn from a power law of fluxes and observed by the VLA in its B configuration, with so
many visibilities of one correlation. `biro.fit_population` infers their number, with a Poisson prior about
the true one; it ends with so many effective draws, or after so many steps. "dynesty" samples the model with
the true number, ordered by flux, for comparison: what a ladder of numbers does again and again. The first
calls, which compile, are made before. Results go to FILE (benchmarks/results/population_speed/MACHINE.json).
"""

from __future__ import annotations

import sys
import time

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line

import biro
from biro.models import Noise, NumberPrior, Order, PointSource, Population, PowerLaw, SkyModel, Uniform
from biro.simulation import Channels, Track
from rime_kernels.choices import Backend

HALF = 120.0
"""Half of the side of the field, arcsec: 60 beams across it."""
NOISE, FAINTEST, BRIGHTEST = 1.0, 6.0, 300.0
"""Noise of a visibility, Jy; the power law of fluxes is from and to so many times the noise of the image."""
INTEGRATION = 60.0


def population_of(n_source: int, n_vis: int) -> Population:
    """The population that the field is drawn from."""
    sigma = NOISE / np.sqrt(n_vis)
    return Population(
        "s",
        number=NumberPrior("poisson", mean=float(n_source), high=2 * n_source + 4),
        I=PowerLaw(1.6, FAINTEST * sigma, BRIGHTEST * sigma, "Jy"),
        place=Uniform(-HALF, HALF, "arcsec"),
    )


def observed(n_source: int, n_vis: int) -> biro.Observation:
    """So many sources, observed with so many visibilities, or a few more."""
    rng, prior = np.random.default_rng(1), population_of(n_source, n_vis)
    flux = prior.I[0].transform(rng.random(n_source))
    places = rng.uniform(-HALF, HALF, (n_source, 2))
    truth = [
        PointSource(f"t{i}", east=f"{x} arcsec", north=f"{y} arcsec", I=f"{f} Jy")
        for i, ((x, y), f) in enumerate(zip(places, flux, strict=True))
    ]
    n_time = max(1, round(n_vis / 351.0))
    made = biro.simulate(
        "VLA-B", SkyModel(truth), phase_centre="12h00m00s +40d00m00s", feeds="circular", seed=2,
        times=Track("2026-03-01", n_time * INTEGRATION, INTEGRATION), channels=Channels(1.4e9, 1e5),
        noise=NOISE, progress=False,
    )  # fmt: skip
    (part,) = made.partitions
    return biro.Observation.from_arrays(
        vis=part.vis[:, :, :1], uvw=part.uvw, antenna1=part.antenna1, antenna2=part.antenna2, time=part.time,
        chan_freq=part.chan_freq, corr_type=["RR"], weight=NOISE**-2, phase_centre=part.phase_centre,
    )  # fmt: skip


def by_population(
    data: biro.Observation, n_source: int, backend: Backend, steps: int, effective: int
) -> Line:
    """The number inferred; a line of the results."""
    n_vis = sum(part.vis.size for part in data.partitions)
    sky = SkyModel([], populations=[population_of(n_source, n_vis)], noise=Noise(factor=1.0))
    begun = time.perf_counter()
    found = biro.fit_population(
        data, sky, seed=1, n_effective=effective, max_steps=steps, progress=False, smearing="off",
        backend=backend,
    )  # fmt: skip
    minutes = (time.perf_counter() - begun) / 60.0
    facts, number = found.posterior.diagnostics, found.sources.number_probability()
    return {
        "sampler": "population",
        "minutes": minutes,
        "likelihoods": facts["n_call"],
        "rungs": facts["n_rung"],
        "steps": facts["n_step"],
        "effective": facts["n_effective"],
        "round_trips": facts["n_round_trip"],
        "r_hat": facts["r_hat"],
        "converged": facts["converged"],
        "number": [number.median, *number.interval_95],
        "log_evidence": [found.posterior.log_evidence, found.posterior.log_evidence_err],
    }


def by_dynesty(data: biro.Observation, n_source: int, backend: Backend, *, quick: bool) -> Line:
    """The true number sampled; a line of the results."""
    n_vis = sum(part.vis.size for part in data.partitions)
    made = population_of(n_source, n_vis).sources(n_source)
    orders = [Order([f"{source.name}.I" for source in made])] if n_source > 1 else []
    sky = SkyModel(made, noise=Noise(factor=1.0), constraints=orders)
    likelihood = biro.Likelihood(data, sky, smearing="off", backend=backend)
    begun = time.perf_counter()
    options = {"n_live": 50, "dlogz": 10.0} if quick else {}
    found = biro.sample(likelihood, "dynesty", seed=1, progress=False, **options)
    return {
        "sampler": "dynesty",
        "minutes": (time.perf_counter() - begun) / 60.0,
        "likelihoods": found.diagnostics["n_call"],
        "effective": float(found.effective.min()),
        "log_evidence": [found.log_evidence, found.log_evidence_err],
    }


def shown(line: Line) -> str:
    """A line of the table."""
    per_minute = line["effective"] / line["minutes"]
    words = f"{line['sampler']:10} {line['minutes']:7.2f} min {line['likelihoods']:10.0f} likelihoods "
    words += f"{line['effective']:7.0f} effective, {per_minute:8.1f} a minute"
    if line["sampler"] == "population":
        words += f"; {line['rungs']:.0f} temperatures, {line['steps']:.0f} steps, "
        words += (
            f"{line['round_trips'] / line['minutes']:.2f} round trips a minute, R-hat {line['r_hat']:.3f}"
        )
    return words


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sources", type=int, default=30)
    parser.add_argument("--visibilities", type=float, default=1e5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--effective", type=int, default=400)
    parser.add_argument("--sampler", nargs="+", choices=("population", "dynesty"), default=["population"])
    args = parse(parser)
    if args.quick:
        args.sources, args.visibilities, args.steps, args.effective = 1, 351.0, 4, 4
    data = observed(args.sources, round(args.visibilities))
    for size in (1, args.sources):  # compiled
        few = population_of(args.sources, 351).sources(size)
        one = biro.Likelihood(data, SkyModel(few, noise=Noise(factor=1.0)), smearing="off")
        theta = one.prior_transform(np.full((8, one.n_param), 0.5))
        one.log_likelihood_and_gradient(theta)
        one.log_likelihood(theta)
    lines = []
    for sampler in args.sampler:
        if sampler == "population":
            line = by_population(data, args.sources, args.backend, args.steps, args.effective)
        else:
            line = by_dynesty(data, args.sources, args.backend, quick=args.quick)
        print(shown(line), flush=True)
        lines.append(line)
    about = {"sources": args.sources, "visibilities": sum(part.vis.size for part in data.partitions)}
    of_machine = machine(args.backend)
    run = {"machine": of_machine, **about, "steps": args.steps, "results": lines}
    write(output_path(args, "population_speed", f"{machine_slug(of_machine)}.json"), run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
