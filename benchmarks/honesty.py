"""Fit sound and hostile data many times, and count which errors are right and which warnings are given.

    python benchmarks/honesty.py [--quick] [--workers 16] [--repeats 20] [--kind ...] [--sampler ...]

Each kind of data (`honest/kinds.py`) is simulated many times by explicit sums, with the antennas at other
places each time, and fitted as a user would. The program keeps the pulls (mean - truth) / sd of each fit,
whether its 95 % intervals hold the truth, its ln Z with the error, and its warnings. An honest fit of sound
data has right errors and no warning; one of hostile data has a warning, or right errors.
`python benchmarks/trust_page.py` makes the table of docs/trust.md.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator

import numpy as np
from common.options import output_path
from common.processes import each_in_turn, make_pool_parser, one_thread_each
from common.results import write_lines
from common.types import Line, Options
from honest.kinds import KINDS, Case

from biro.errors import BiroError
from biro.inference.maximum.maximum import maximise
from biro.inference.samplers.sampling import sample
from biro.likelihood.likelihood import Likelihood
from biro.models.files.toml import from_toml

SAMPLERS: dict[str, Options] = {
    "maximise": {},
    "none": {},
    "emcee": {},
    "nuts": {},
    "dynesty": {"n_live": 200},
}
"""With options that are not the defaults."""
OF = {kind.name: kind for kind in KINDS}
QUICK = ("sound, Stokes I", "missing source")


def one_run(job: tuple[str, str, int]) -> Line:
    """Simulate and fit one data set; a line of the results."""
    name, sampler, seed = job
    case = OF[name].make(np.random.default_rng([seed, *name.encode()]))
    started = time.perf_counter()
    line: Line = {"kind": name, "sampler": sampler, "seed": seed, "honest": OF[name].honest}
    try:
        line |= _fitted(case, sampler, seed)
    except BiroError as error:  # a refusal is honest
        line |= {"refused": str(error)}
    return line | {"seconds": round(time.perf_counter() - started, 2)}


def _fitted(case: Case, sampler: str, seed: int) -> Line:
    options = dict(case.options)
    target = Likelihood(case.observation, from_toml(case.model), backend="cpu", **options)
    if sampler == "maximise":
        found = maximise(target, seed=seed)
        error = dict(zip(found.names, found.error.tolist(), strict=True))
        values = {name: (found[name], error[name]) for name in case.truth}
        inside = {name: abs(x - case.truth[name]) <= 1.96 * e for name, (x, e) in values.items()}
        inside |= {
            name: interval.low <= case.truth[name] <= interval.high
            for name, interval in found.intervals.items()
            if name in case.truth
        }
        warnings, evidence = found.warnings(), (found.log_evidence, None)
    else:
        posterior = sample(target, sampler, seed=seed, progress=False, **SAMPLERS[sampler])
        table = posterior.summary()
        values, inside = {}, {}
        for name, truth in case.truth.items():
            draws, weight = posterior.weighted_draws(name)
            mean = weight @ draws
            values[name] = mean, np.sqrt(weight @ (draws - mean) ** 2)
            inside[name] = bool(table[name].low_95 <= truth <= table[name].high_95)
        warnings, evidence = table.warnings(), (posterior.log_evidence, posterior.log_evidence_err)
    pulls = {name: float((x - case.truth[name]) / e) for name, (x, e) in values.items()}
    return {
        "pulls": pulls,
        "inside_95": {name: bool(x) for name, x in inside.items()},
        "warnings": warnings,
        "log_evidence": evidence[0],
        "log_evidence_err": evidence[1],
        "log_evidence_exact": case.log_evidence,
    }


def jobs(kinds: list[str], samplers: list[str], repeats: int) -> Iterator[tuple[str, str, int]]:
    for seed, sampler, kind in itertools.product(range(1, repeats + 1), samplers, kinds):
        yield kind, sampler, seed


def shown(line: Line) -> str:
    head = f"{line['kind']:34} {line['sampler']:9} {line['seconds']:5.1f} s "
    if "refused" in line:
        return f"{head} refused: {line['refused'][:90]}"
    worst = max(map(abs, line["pulls"].values()))
    return f"{head} largest pull {worst:6.1f}, {len(line['warnings'])} warnings {line['warnings'][:1]}"


def main() -> int:
    parser = make_pool_parser(__doc__)
    parser.add_argument("--kind", nargs="+", choices=list(OF), default=list(OF))
    parser.add_argument("--sampler", nargs="+", choices=list(SAMPLERS), default=list(SAMPLERS))
    args = parser.parse_args()
    one_thread_each()
    if args.quick:
        args.workers, args.repeats, args.kind, args.sampler = 1, 1, list(QUICK), ["maximise", "none"]
    about = {"workers": args.workers, "options": SAMPLERS, "repeats": args.repeats}
    lines = each_in_turn(one_run, jobs(args.kind, args.sampler, args.repeats), args.workers, args.time_limit)
    name = f"honesty_of_{'_'.join(args.sampler)}.jsonl"
    write_lines(output_path(args, "trust", name), about, lines, shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
