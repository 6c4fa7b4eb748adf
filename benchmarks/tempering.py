"""Measure the effective draws of tempering and dynesty, a second and a likelihood, and their evidences.

    python benchmarks/tempering.py [--quick] [--workers 1] [--repeats 3] [--time-limit 480]
                                   [--problem sidelobes ...] [--sampler tempering dynesty]

The problems are those of `evidence.py` (four fluxes, a place among sidelobes, an angle that wraps; data of
KAT-7), whose ln Z is known in closed form or by quadrature, and normal peaks without data, which cost next to
nothing: one of twelve parameters, correlated and of widths from 0.003 to 1, and two peaks of unequal widths
that have 0.7 and 0.3 of the posterior. Each sampler is run again and again with other seeds; the first
calls, which compile, are made before. A line has seconds, CPU seconds, likelihoods, effective draws of the
worst parameter, round trips, ln Z minus the truth, and the part of the draws in the first of two peaks.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from typing import Any

import evidence
import numpy as np
from common.options import output_path
from common.processes import each_in_turn, make_pool_parser, one_thread_each
from common.results import write_lines
from common.types import Line, Options
from numpy.typing import NDArray

from biro.inference.posterior.posterior import Posterior
from biro.inference.samplers.sampling import sample
from biro.models.quantities.parameter import Column

Array = NDArray[np.float64]
SAMPLERS = ("tempering", "dynesty")
OPTIONS: dict[str, Options] = {"tempering": {}, "dynesty": {}}
QUICK: dict[str, Options] = {
    "tempering": {"n_walker": 4, "n_effective": 20, "max_steps": 10},
    "dynesty": {"n_live": 25, "dlogz": 5.0},
}
"""Settings of a quick run, whose evidences are worth nothing."""


class _Model:
    """What a sampler asks of a model that is a function."""

    log_constraint_mass_error = 0.0

    def digest(self) -> str:
        return ""

    def to_toml(self) -> str:
        return ""


class Peaks:
    """Normal peaks far inside of a uniform prior from -10 to 10.

    L = sum_k part_k N(theta; centre_k, C_k): Z = 20^-n_param.

    Parameters
    ----------
    part : float64 (n_peak,)
    centre : float64 (n_peak,)
        Of all parameters.
    covariance : float64 (n_peak, n_param, n_param)
    """

    log_constraint_mass = 0.0

    def __init__(self, part: list[float], centre: list[float], covariance: Array) -> None:
        n_param = covariance.shape[-1]
        self.parameters = tuple(Column(f"p{i}", "", "", "uniform", None) for i in range(n_param))
        self.model = self.observation = _Model()
        self._part, self._centre = np.log(part), centre
        self._inverse = np.linalg.inv(covariance)
        self._norm = 0.5 * (n_param * np.log(2.0 * np.pi) + np.linalg.slogdet(covariance)[1])
        self.log_evidence = -n_param * np.log(20.0)

    def digest(self) -> str:
        return ""

    def description(self) -> dict[str, object]:
        return {}

    def allowed(self, theta: Array) -> NDArray[np.bool_]:
        return np.ones(len(theta), dtype=bool)

    def prior_transform(self, unit: Array) -> Array:
        return 20.0 * unit - 10.0

    def log_prior(self, theta: Array) -> Array:
        return np.where((np.abs(theta) <= 10.0).all(axis=1), self.log_evidence, -np.inf)

    def log_likelihood(self, theta: Array) -> Array:
        each = [
            part - norm - 0.5 * np.einsum("bi,ij,bj->b", theta - centre, inverse, theta - centre)
            for part, norm, centre, inverse in zip(
                self._part, self._norm, self._centre, self._inverse, strict=True
            )
        ]
        return np.asarray(np.logaddexp.reduce(each, axis=0))


def _one_peak() -> Peaks:
    rng, n = np.random.default_rng(1), 12
    root = rng.normal(size=(n, n))
    sd = np.logspace(-2.5, 0.0, n)
    covariance = (root @ root.T / n + 0.3 * np.eye(n)) * np.outer(sd, sd)
    return Peaks([1.0], [0.0], covariance[None])


def _two_peaks() -> Peaks:
    return Peaks([0.7, 0.3], [4.0, -4.0], np.array([0.3**2, 0.15**2])[:, None, None] * np.eye(3))


ANALYTIC = {"one peak": _one_peak, "two peaks": _two_peaks}
PROBLEMS = (*evidence.PROBLEMS, *ANALYTIC)


def likelihood_of(problem: str) -> Any:
    """Return the likelihood of a problem."""
    return ANALYTIC[problem]() if problem in ANALYTIC else evidence.likelihood(problem)


def truth_of(problem: str) -> float:
    """Return ln Z of a problem."""
    return ANALYTIC[problem]().log_evidence if problem in ANALYTIC else evidence.PROBLEMS[problem]()


def one_run(case: tuple[str, str, int, float]) -> Line:
    """Run a sampler once; a line of the results."""
    problem, sampler, seed, known = case
    likelihood = likelihood_of(problem)
    start, cpu = time.perf_counter(), time.process_time()
    found = of_posterior(sample(likelihood, sampler, seed=seed, progress=False, **OPTIONS[sampler]))
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    about = {"problem": problem, "sampler": sampler, "seed": seed, "truth": known}
    return {**about, **{name: round(value, 2) for name, value in took.items()}, **found}


def of_posterior(posterior: Posterior) -> Line:
    """Return what a run of biro found."""
    weight = posterior.weight
    facts = posterior.diagnostics
    return {
        "log_evidence": posterior.log_evidence,
        "error": posterior.log_evidence_err,
        "n_call": facts["n_call"],
        "effective": float(posterior.effective.min()),
        "part": float(weight[posterior.samples[:, 0] > 0.0].sum()),
        "round_trips": facts.get("n_round_trip"),
        "n_rung": facts.get("n_rung"),
        "converged": facts["converged"],
    }


def cases(problems: list[str], samplers: list[str], repeats: int) -> Iterator[tuple[str, str, int, float]]:
    known = {problem: truth_of(problem) for problem in problems}
    for seed, problem, sampler in itertools.product(range(1, repeats + 1), problems, samplers):
        yield problem, sampler, seed, known[problem]


def shown(line: Line) -> str:
    off, n_call = line["log_evidence"] - line["truth"], line["n_call"]
    words = f"{line['problem']:16} {line['sampler']:10} {line['cpu_seconds']:7.1f} CPU s "
    words += f"{n_call:9.0f} likelihoods"
    words += f" {line['effective']:7.0f} effective, {line['effective'] / line['cpu_seconds']:7.1f} /s"
    words += f" {1e6 * line['effective'] / n_call:7.0f} /million"
    trips = "" if line["round_trips"] is None else f", {line['round_trips']:.0f} round trips"
    return f"{words}; ln Z off by {off:+.3f} +- {line['error']:.3f}, part {line['part']:.3f}{trips}"


def main() -> int:
    parser = make_pool_parser(__doc__)
    parser.add_argument("--problem", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--sampler", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    args = parser.parse_args()
    one_thread_each()
    about = {"workers": args.workers, "options": OPTIONS, "repeats": args.repeats}
    if args.quick:
        args.workers, args.repeats, args.problem = 1, 1, ["two peaks"]
        OPTIONS.update(QUICK)  # in this process, where everything is done
    else:
        for problem in args.problem:  # compiled once, for all workers
            one = likelihood_of(problem)
            one.log_likelihood(one.prior_transform(np.full((64, len(one.parameters)), 0.5)))
    chosen = cases(args.problem, args.sampler, args.repeats)
    lines = each_in_turn(one_run, chosen, args.workers, args.time_limit)
    write_lines(output_path(args, "tempering", "cpu.jsonl"), about, lines, shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
