"""Whether P(number), catalogues and intervals of populations hold what they claim, on fields of the prior.

    python benchmarks/population_calibration.py [--fields 60] [--first 1] [--coverage VLA VLBA]
                                                [--variant fixed free gains confused] [--mean 5] [--high 20]
                                                [--rows N] [--workers 2] [--time-limit S] [--quick]
                                                [--output FILE]

Each field is drawn from the prior of the fit: a Poisson number of sources (--mean, 5 by default), power-law
fluxes of 2 to 100 times the noise of the image, places in a square. Variants: "fixed", the noise is known;
"free", a noise factor is fitted; "gains", gains of 5 % and 3 deg of each antenna are integrated out;
"confused", the square is 3 beams wide (30 beams else). What should hold:

- number, total and brightest flux: the place of the truth among the draws is uniform (PIT, ties at random);
- P(k) of all k in bins is the share of fields with k sources; the log score is that of the posteriors;
- 68.3 % of fluxes and places of entries with P > 0.9 lie in the central interval of that probability;
- of the entries in a bin of P that share has a true source within half a beam.

Entries and true sources are matched one to one. Results go to FILE
(benchmarks/results/population_calibration/MACHINE.jsonl), and `--show FILE...` prints tables of such files.
"""

from __future__ import annotations

import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common.machine import machine, machine_slug
from common.options import output_path, parse
from common.population_scores import tables
from common.processes import each_in_turn, make_pool_parser, one_thread_each
from common.results import read, write_lines
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

if TYPE_CHECKING:
    import biro
    from biro.models import SkyModel
    from biro.observation.partition import Partition
    from biro.source_finding.populations.posterior import PopulationPosterior
    from biro.source_finding.populations.results.catalogue import Catalogue
    from biro.source_finding.populations.results.draws import SourceDraws

Array = NDArray[np.float64]
# Stations of the Very Long Baseline Array, ITRF in metres, rounded to 100 m.
STATIONS = {
    "MK": (-5464100, -2495200, 2148300),
    "BR": (-2112100, -3705400, 4726800),
    "OV": (-2409200, -4478600, 3838600),
    "KP": (-1995700, -5037300, 3357300),
    "PT": (-1641000, -5014800, 3575400),
    "LA": (-1449800, -4975300, 3709100),
    "FD": (-1324000, -5332200, 3232000),
    "NL": (-130900, -4762300, 4226900),
    "HN": (1446400, -4447900, 4322300),
    "SC": (2607800, -5488100, 1932700),
}
VARIANTS, COVERAGES = ("fixed", "free", "gains", "confused"), ("VLA", "VLBA")
INDEX, FAINTEST, BRIGHTEST = 1.6, 2.0, 100.0
WIDTH = {"confused": 3.0}
"""Beams across the field; 30 where nothing is given."""
RADIUS = 0.5
"""FWHM of the beam within which an entry and a true source match."""
SKY = """
[[population]]
name = "field"
number = {{ prior = "poisson", mean = {mean}, high = {high} }}
I = {{ prior = "power-law", index = {index}, low = "{low} Jy", high = "{bright} Jy" }}
place = {{ prior = "uniform", low = "-{half} arcsec", high = "{half} arcsec" }}
[noise]
factor = {noise}
"""
NOISE = {"free": '{ prior = "log-uniform", low = 0.5, high = 2 }'}
GAINS = """
[gain]
amplitude = { prior = "log-normal", sd = 0.05, per = "track" }
phase = { prior = "normal", sd = "3 deg", per = "track" }
"""
NOTHING = """
[[source]]
name = "nothing"
type = "point"
east = "0 arcsec"
north = "0 arcsec"
I = "0 Jy"
"""


@cache
def observed(coverage: str, n_row: int | None) -> biro.Observation:
    """RR of a coverage, noise 1 Jy: 546 rows (14 antennas of the VLA), 540 (VLBA), or some of them."""
    import biro
    from biro.models.files.toml import from_toml
    from biro.simulation import Channels, Track
    from biro.simulation.telescopes import Telescope

    if coverage == "VLA":
        telescope: Any = "VLA-C"
        times, freq = Track("2026-03-01", 4 * 3600.0, 2400.0), 1.4e9
    else:
        places = np.array(list(STATIONS.values()), float)
        telescope = Telescope("VLBA", tuple(STATIONS), places, np.full(len(STATIONS), 25.0))
        times, freq = Track("2026-03-01", 8 * 3600.0, 2400.0), 5e9
    made = biro.simulate(
        telescope, from_toml(NOTHING), phase_centre="12h00m00s +40d00m00s", times=times, feeds="circular",
        channels=Channels(freq, 1e6), noise=1.0, seed=1, elevation_limit=15.0, progress=False,
    )  # fmt: skip
    (part,) = made.partitions
    names = tuple(str(name) for name in made.antenna_names)
    keep = np.ones(len(part.uvw), bool)
    if coverage == "VLA":
        keep = (part.antenna1 % 2 == 0) & (part.antenna2 % 2 == 0)
    some = np.flatnonzero(keep)
    if n_row is not None and n_row < len(some):
        some = np.sort(np.random.default_rng(1).choice(some, n_row, replace=False))
    return biro.Observation.from_arrays(
        vis=part.vis[some, :, :1], uvw=part.uvw[some], antenna1=part.antenna1[some],
        antenna2=part.antenna2[some], time=part.time[some], chan_freq=part.chan_freq, corr_type=["RR"],
        weight=1.0, phase_centre=part.phase_centre, chan_width=1e6,
        antenna_names=names, antenna_positions=made.antenna_positions,
    )  # fmt: skip


def width_of_beam(part: Partition) -> float:
    """FWHM of the beam of equal weights from the curvature of its peak, rad."""
    u = part.uvw[:, :2] * float(part.chan_freq[0]) / 299792458.0
    return float(np.sqrt(8.0 * np.log(2.0)) / (2.0 * np.pi * np.sqrt((u**2).mean())))


def model_of(data: biro.Observation, variant: str, mean: float, high: int) -> SkyModel:
    """The model that a field is drawn from and fitted with."""
    from biro.models.files.toml import from_toml

    (part,) = data.partitions
    sigma = 1.0 / np.sqrt(part.vis.size)
    half = 0.5 * WIDTH.get(variant, 30.0) * width_of_beam(part) * 180.0 * 3600.0 / np.pi
    text = SKY.format(
        mean=mean, high=high, index=INDEX, low=FAINTEST * sigma, bright=BRIGHTEST * sigma, half=half,
        noise=NOISE.get(variant, "1"),
    )  # fmt: skip
    return from_toml(text + (GAINS if variant == "gains" else ""))


def fitted(
    case: tuple[str, str, int], options: dict[str, Any], number: tuple[float, int], n_row: int | None
) -> dict[str, Any]:
    """Draw a field, fit it, and compare: a line of the results."""
    import biro
    from biro.sbc.replicate import prior_draw, simulated

    (coverage, variant, seed), began = case, time.process_time()
    rng = np.random.default_rng([seed, VARIANTS.index(variant), COVERAGES.index(coverage)])
    data = observed(coverage, n_row)
    sky = model_of(data, variant, *number)
    (population,) = sky.populations
    k = np.arange(population.number.high + 1)
    n = int(rng.choice(k, p=np.exp(population.number.log_pmf(k))))
    known = sky.with_number({population.name: n})
    of_truth = biro.Likelihood(data, known)
    theta = prior_draw(of_truth, rng)
    data = simulated(of_truth, theta, rng)
    found = biro.fit_population(
        data, sky, seed=seed, progress=False,
        gains="marginalise" if variant == "gains" else "sample", **options,
    )  # fmt: skip
    values = dict(zip(of_truth.parameter_names, theta.tolist(), strict=True))
    arcsec = np.pi / 180.0 / 3600.0
    scale = {"I": 1.0, "east": arcsec, "north": arcsec}
    keys = [f"{population.name}{i + 1}" for i in range(n)]
    truth = {key: np.array([values[f"{name}.{key}"] * by for name in keys]) for key, by in scale.items()}
    line = {"coverage": coverage, "variant": variant, "seed": seed, "mean": number[0], "number": n}
    line |= _of_field(found, truth, rng)
    if variant == "free":
        i = [column.name for column in found.posterior.columns].index("noise.factor")
        line["pit"]["noise factor"] = _place(found.posterior.samples[:, i], values["noise.factor"], rng)
    line |= _of_catalogue(found.sources.catalogue(), found.sources.draws, truth, data, rng)
    diagnostics = found.posterior.diagnostics
    told = ("n_step", "n_effective", "r_hat", "n_round_trip", "n_call", "n_rung")
    line |= {key: round(float(diagnostics[key]), 4) for key in told}
    return line | {
        "converged": bool(diagnostics["converged"]),
        "log_likelihood_of_truth": float(biro.Likelihood(data, known).log_likelihood(theta[None])[0]),
        "log_likelihood": [float(f(found.posterior.log_likelihood)) for f in (np.mean, np.max)],
        "seconds": round(time.process_time() - began, 1),
    }


def _of_field(
    found: PopulationPosterior, truth: dict[str, Array], rng: np.random.Generator
) -> dict[str, Any]:
    """Probabilities of the numbers, and where the truth is among the draws."""
    draws, n = found.sources.draws, len(truth["I"])
    total = np.bincount(draws.draw, draws.flux, minlength=draws.n_draw)
    most = np.zeros(draws.n_draw)
    np.maximum.at(most, draws.draw, draws.flux)
    return {
        "probability": found.sources.number_probability().probability.round(5).tolist(),
        "n_effective_of_number": round(found.sources.n_effective, 1),
        "pit": {
            "number": _place(draws.number.astype(float), n, rng),
            "total flux": _place(total, float(truth["I"].sum()), rng),
            "brightest flux": _place(most, float(truth["I"].max(initial=0.0)), rng),
        },
    }


def _place(draws: Array, truth: float, rng: np.random.Generator) -> float:
    """Part of the draws below the truth; of equal ones a random part, and of what lies between draws."""
    below, equal = float(np.sum(draws < truth)), float(np.sum(draws == truth))
    return round((below + rng.random() * (equal + 1.0)) / (len(draws) + 1.0), 5)


def _of_catalogue(
    catalogue: Catalogue,
    draws: SourceDraws,
    truth: dict[str, Array],
    data: biro.Observation,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Entries with their matches, and the true sources with the probability of theirs (0 without one)."""
    beam = width_of_beam(data.partitions[0])
    sigma = 1.0 / np.sqrt(data.partitions[0].vis.size)
    place = np.array([[entry.east.median, entry.north.median] for entry in catalogue]).reshape(-1, 2)
    true_place = np.stack([truth["east"], truth["north"]], axis=1)
    pairs = matched(true_place / beam, place / beam, RADIUS)
    entries = []
    for k, entry in enumerate(catalogue):
        made: dict[str, Any] = {"p": round(entry.probability, 5), "flux": entry.flux.median / sigma}
        if k in pairs:
            own = catalogue.label == k
            of_truth = {key: float(truth[key][pairs[k]]) for key in truth}
            made["distance"] = float(np.hypot(*(place[k] - true_place[pairs[k]]))) / beam
            made["pit"] = {key: _place(draws.values[key][own], of_truth[key], rng) for key in of_truth}
            made["inside"] = {
                key: bool(entry.values[key].low_68 <= of_truth[key] <= entry.values[key].high_68)
                for key in of_truth
            }
        entries.append(made)
    of_source = {true: catalogue.entries[k].probability for k, true in pairs.items()}
    sources = [[flux / sigma, of_source.get(i, 0.0)] for i, flux in enumerate(truth["I"].tolist())]
    return {"entries": entries, "sources": sources}


def matched(truth: Array, found: Array, radius: float) -> dict[int, int]:
    """Index of the true source of each found one that has one: as many as can be, then as near."""
    if not (len(truth) and len(found)):
        return {}
    distance = np.hypot(*np.moveaxis(truth[:, None] - found[None], 2, 0))
    # One more match is worth more than all distances together.
    worth = np.where(distance <= radius, 2.0 * min(distance.shape) - distance / radius, 0.0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    return {int(j): int(i) for i, j in zip(rows, columns, strict=True) if distance[i, j] <= radius}


def _shown(line: dict[str, Any]) -> str:
    p = line["probability"]
    of_truth = p[line["number"]] if line["number"] < len(p) else 0.0
    return (
        f"{line['variant']:8} {line['coverage']:4} seed {line['seed']:4} {line['number']:2} sources, "
        f"P {of_truth:.3f}, {line['n_effective']:6.0f} effective, "
        f"{'' if line['converged'] else 'NOT '}converged, {line['seconds']:.0f} s"
    )


def main() -> int:
    parser = make_pool_parser(__doc__)
    parser.add_argument("--fields", type=int, default=60, help="of each variant and coverage")
    parser.add_argument("--first", type=int, default=1, help="seed of the first field")
    parser.add_argument("--variant", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--coverage", nargs="+", choices=COVERAGES, default=list(COVERAGES))
    parser.add_argument("--mean", type=float, default=5.0, help="of the number of sources")
    parser.add_argument("--high", type=int, default=20, help="most sources")
    parser.add_argument("--rows", type=int, help="so many of the rows of a coverage, chosen at random")
    parser.add_argument("--effective", type=int, default=200)
    parser.add_argument("--steps", type=int, default=3000, help="of the sampler, at most")
    parser.add_argument("--show", type=Path, nargs="+", help="files whose tables are printed; nothing is run")
    args = parse(parser)
    if args.show:
        print(tables([line for path in args.show for line in read(path)[1]]))
        return 0
    number = (args.mean, args.high)
    if args.quick:
        args.fields, args.variant, args.coverage, args.workers = 1, ["confused"], ["VLBA"], 1
        args.effective, args.steps, args.rows, number = 20, 20, 60, (1, 2)
    if args.workers > 1:
        one_thread_each()
    options = {"n_walker": 4 if args.quick else 8, "n_effective": args.effective, "max_steps": args.steps}
    seeds = range(args.first, args.first + args.fields)
    cases = [
        (coverage, variant, seed) for seed in seeds for variant in args.variant for coverage in args.coverage
    ]
    path = output_path(args, "population_calibration", f"{machine_slug(machine('cpu'))}.jsonl")
    about = {"options": {key: str(value) for key, value in vars(args).items()}}
    run, lines = partial(fitted, options=options, number=number, n_row=args.rows), list[dict[str, Any]]()

    def kept() -> Any:
        for line in each_in_turn(run, cases, args.workers, args.time_limit):
            lines.append(line)
            yield line

    write_lines(path, about, kept(), _shown)
    print(tables(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
