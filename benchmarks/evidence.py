"""Compare sampled evidences with those known in closed form or by quadrature, many times over.

    python benchmarks/evidence.py [--quick] [--workers 16] [--repeats 20] [--time-limit 480]

Four problems on simulated data of KAT-7, each sampled again and again with other seeds:

- fluxes of four points at known places, uniform priors: ln L is quadratic in them, ln L_max - (t - t_max)^T A
  (t - t_max) / 2, and ln Z = ln L_max + (d/2) ln 2 pi - (1/2) ln det A - ln (volume of the prior);
- the same with normal priors N(m, s^2), where ln Z is that of a product of two normal distributions;
- the place of a faint point within four beams, among sidelobes, by quadrature over the two coordinates;
- the position angle, which wraps, and the axial ratio of a Gaussian hardly resolved, by quadrature.

The honest error has pulls of rms 1. Static and dynamic nested sampling have their own errors; the evidence of
`--sampler none` (importance sampling about the maximum) stands beside them. `python benchmarks/trust_page.py`
makes the table of what is written into benchmarks/results/trust/evidence_of_*.jsonl.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from common.kat7 import observe
from common.options import output_path
from common.processes import each_in_turn, make_pool_parser, one_thread_each
from common.results import write_lines
from common.types import Line, Options
from numpy.typing import NDArray
from scipy.constants import speed_of_light

from biro.inference.samplers.sampling import sample
from biro.likelihood.likelihood import Likelihood
from biro.models.files.toml import from_toml
from biro.observation.observation import Observation

SAMPLERS = ("dynesty", "dynesty-dynamic", "none")
OPTIONS: dict[str, Options] = {
    "dynesty": {"n_live": 200},
    "dynesty-dynamic": {"n_live": 200, "n_effective": 3000},
    "none": {},
}
"""Options of `biro.sample` that are not its defaults."""
QUICK: dict[str, Options] = {
    "dynesty": {"n_live": 25, "dlogz": 5.0},
    "dynesty-dynamic": {"n_live": 25, "n_effective": 100},
}
"""Of a quick run, whose evidences are worth nothing."""
PLACES = ((-200.0, 100.0), (50.0, 400.0), (300.0, -150.0), (-100.0, -350.0))
"""Of four points, arcsec east and north."""
FLUXES = (1.0, 0.6, 0.4, 0.2)
_NOISE = "\n[noise]\nfactor = 1\n"
_SOURCE = '\n[[source]]\nname = "{name}"\ntype = "{kind}"\neast = {east}\nnorth = {north}\nI = {flux}\n'
_ARCSEC = np.deg2rad(1.0 / 3600.0)


def _sources(fluxes: tuple[str, ...]) -> str:
    each = zip("abcd", PLACES, fluxes, strict=True)
    return "".join(
        _SOURCE.format(name=name, kind="point", east=f'"{x} arcsec"', north=f'"{y} arcsec"', flux=flux)
        for name, (x, y), flux in each
    )


@cache
def data(problem: str) -> Observation:
    """Simulate the observation of a problem."""
    if problem.startswith("fluxes"):
        return observe(_sources(tuple(f'"{flux} Jy"' for flux in FLUXES)), 1.0, 11)
    if problem == "sidelobes":
        sky = _SOURCE.format(name="a", kind="point", east='"90 arcsec"', north='"-40 arcsec"', flux='"1 Jy"')
        return observe(sky, 7.0, 12)  # 3.2 sigma
    sky = _SOURCE.format(name="a", kind="gaussian", east='"0 arcsec"', north='"0 arcsec"', flux='"1 Jy"')
    return observe(sky + 'emaj = "100 arcsec"\nratio = 0.6\npa = "4 deg"\n', 0.4, 13)


def model(problem: str) -> str:
    """Return the model file of a problem."""
    if problem == "fluxes, uniform":
        return _sources(('{ prior = "uniform", low = -5, high = 5, unit = "Jy" }',) * 4) + _NOISE
    if problem == "fluxes, normal":
        return _sources(('{ prior = "normal", mean = 0.3, sd = 0.4, unit = "Jy" }',) * 4) + _NOISE
    if problem == "sidelobes":
        place = '{ prior = "uniform", low = -400, high = 400, unit = "arcsec" }'
        return _SOURCE.format(name="a", kind="point", east=place, north=place, flux='"1 Jy"') + _NOISE
    sky = _SOURCE.format(name="a", kind="gaussian", east='"0 arcsec"', north='"0 arcsec"', flux='"1 Jy"')
    shape = 'emaj = "100 arcsec"\nratio = { prior = "uniform", low = 0, high = 1 }\n'
    return sky + shape + 'pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }\n' + _NOISE


@cache
def likelihood(problem: str) -> Likelihood:
    """Return the likelihood of a problem."""
    return Likelihood(data(problem), from_toml(model(problem)), backend="cpu")


def linear() -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return A, A t_max and ln L at t = 0 for the fluxes, from phases (physics: sections 2, 3 and 7)."""
    (part,) = data("fluxes").partitions
    lm = np.array(PLACES) * _ARCSEC
    lmn = np.column_stack([lm, np.sqrt(1.0 - np.sum(lm**2, axis=1)) - 1.0])
    phase = np.exp(2j * np.pi * (part.uvw @ lmn.T) * part.chan_freq[0] / speed_of_light)
    hands = [part.corr_type.index(name) for name in ("XX", "YY")]  # the flux is in these two, alike
    weight, vis = part.weight[:, 0].astype(float), part.vis[:, 0].astype(complex)
    matrix = np.real(np.conj(phase).T @ (weight[:, hands].sum(axis=1)[:, None] * phase))
    right = np.real(np.conj(phase).T @ (weight * vis)[:, hands].sum(axis=1))
    constant = -0.5 * np.sum(weight * np.abs(vis) ** 2) + np.sum(np.log(weight) - np.log(2.0 * np.pi))
    return matrix, right, float(constant)


def log_evidence_of_fluxes(prior: str) -> float:
    """Return ln Z of the fluxes in closed form."""
    matrix, right, constant = linear()
    volume, dim = 10.0 ** len(right), len(right)
    if prior == "normal":
        mean, sd = 0.3, 0.4
        constant += -0.5 * dim * np.log(2.0 * np.pi * sd**2) - 0.5 * dim * (mean / sd) ** 2
        matrix, right, volume = matrix + np.eye(dim) / sd**2, right + mean / sd**2, 1.0
    best = np.linalg.solve(matrix, right)
    spread = 0.5 * dim * np.log(2.0 * np.pi) - 0.5 * np.linalg.slogdet(matrix)[1]
    return float(constant + 0.5 * right @ best + spread - np.log(volume))


def by_quadrature(problem: str, n: int) -> float:
    """Integrate over two parameters by the rule of midpoints on n x n points of the unit square."""
    middle = (np.arange(n) + 0.5) / n
    unit = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1).reshape(-1, 2)
    target = likelihood(problem)
    value = np.concatenate(
        [
            target.log_likelihood(target.prior_transform(points))
            for points in np.array_split(unit, 1 + n * n // 4096)
        ]
    )
    return float(np.logaddexp.reduce(value) - 2.0 * np.log(n))


PROBLEMS: dict[str, Callable[[], float]] = {
    "fluxes, uniform": lambda: log_evidence_of_fluxes("uniform"),
    "fluxes, normal": lambda: log_evidence_of_fluxes("normal"),
    "sidelobes": lambda: by_quadrature("sidelobes", 300),
    "angle": lambda: by_quadrature("angle", 300),
}
"""True ln Z of each."""


def one_run(case: tuple[str, str, int, float]) -> Line:
    """Run a sampler once; a line of the results."""
    problem, sampler, seed, known = case
    start = time.perf_counter()
    posterior = sample(likelihood(problem), sampler, seed=seed, progress=False, **OPTIONS[sampler])
    assert posterior.log_evidence is not None
    return {
        "problem": problem,
        "sampler": sampler,
        "seed": seed,
        "truth": known,
        "log_evidence": posterior.log_evidence,
        "error": posterior.log_evidence_err,
        "overlap": posterior.diagnostics.get("overlap"),
        "seconds": round(time.perf_counter() - start, 2),
    }


def cases(problems: list[str], samplers: list[str], repeats: int) -> Iterator[tuple[str, str, int, float]]:
    known = {problem: PROBLEMS[problem]() for problem in problems}
    for seed, problem, sampler in itertools.product(range(1, repeats + 1), problems, samplers):
        yield problem, sampler, seed, known[problem]


def shown(line: Line) -> str:
    off = line["log_evidence"] - line["truth"]
    words = f"{line['problem']:16} {line['sampler']:16} ln Z {line['log_evidence']:10.3f}"
    return f"{words}  off by {off:+.3f} +- {line['error']:.3f}  {line['seconds']:6.1f} s"


def main() -> int:
    parser = make_pool_parser(__doc__)
    parser.add_argument("--problem", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--sampler", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    args = parser.parse_args()
    one_thread_each()
    about = {"workers": args.workers, "options": OPTIONS, "repeats": args.repeats}
    if args.quick:
        args.workers, args.repeats, args.problem = 1, 1, ["fluxes, uniform"]
        OPTIONS.update(QUICK)  # in this process, where everything is done
    else:
        for problem, sampler in itertools.product(args.problem, {"none"} & set(args.sampler)):
            one_run((problem, sampler, 1, 0.0))  # compiled once, for all workers
    chosen = cases(args.problem, args.sampler, args.repeats)
    lines = each_in_turn(one_run, chosen, args.workers, args.time_limit)
    write_lines(
        output_path(args, "trust", f"evidence_of_{'_'.join(args.sampler)}.jsonl"), about, lines, shown
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
