"""`biro.fit_numbers`: the number of sources of a population, from the evidence of each number."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from biro.display.arguments import OBSERVATION, SKY, takes
from biro.display.formatting import given_text
from biro.errors import InputError, LikelihoodError, OutputError, RunError
from biro.files.atomic import why_not_written, write_atomic
from biro.files.json_value import finite_json
from biro.imaging.population_field import with_places
from biro.inference.posterior.table import PosteriorTable
from biro.inference.samplers.options import EXACT, check_sampler
from biro.inference.samplers.sampling import run_seed, sample
from biro.likelihood.likelihood import Likelihood
from biro.many_fits.number_table import NumberTable, Rung
from biro.many_fits.one_fit import lines_before, problem_line
from biro.models import Order, Population, SkyModel
from biro.models.quantities.prior import Prior
from biro.observation.observation import Observation
from biro.run.facts import asked_precision, check_saved
from biro.run.log_file import NOTICE
from biro.run.record import read_record

log = logging.getLogger(__name__)

TABLE = "numbers.json"
"""The file of the table, in the directory above those of the fits."""
_INT = (int, np.integer)
WITHOUT = ("emcee", "nuts")
"""Samplers that give no evidence."""


@takes(observation=OBSERVATION, sky=SKY)
def fit_numbers(
    observation: Observation,
    sky: SkyModel,
    numbers: Sequence[int],
    sampler: str | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    likelihood: Mapping[str, Any] | None = None,
    facts: Mapping[str, object] | None = None,
    progress: bool = True,
    **options: object,
) -> NumberTable:
    """Fit a model with each of some numbers of sources, and compare the numbers by their evidence.

    The sources of a population are exchangeable, so that a posterior of k of them has k! equal modes. Each
    model orders its sources by flux, which leaves one mode; the prior of an order is k! times the product of
    the priors (docs/model_files.md, constraints), so that its evidence is that of k exchangeable sources.
    The evidence of a model without parameters is its likelihood.

    Parameters
    ----------
    observation : Observation
    sky : SkyModel
        With one population, of one type.
    numbers : sequence of int
        Such as `range(9)`; all within the prior of the population.
    sampler : str, optional
        One of `biro.sample` that gives the evidence. Default: "none", and "dynesty" where "none" says that
        its evidence cannot be trusted.
    run_dir : path, optional
        Has a run directory for each number, and `numbers.json` with the table. The same call goes on with
        fits that were interrupted, and reads those that are finished. Where dynesty follows "none", its run
        is in "K-dynesty".
    seed : int, optional
        The fit of k sources has seed + k.
    likelihood : mapping, optional
        Arguments of `Likelihood`.
    facts : mapping, optional
        More to be written into each `run.json`.
    progress : bool
        Show bars on stderr.
    **options
        Of the sampler, which must then be given.

    Returns
    -------
    NumberTable

    Raises
    ------
    InputError
        No population, several, or one of several types; numbers that its prior does not allow; a sampler
        without evidence; options without a sampler.
    RunError
        `run_dir` is the directory of a single fit.
    RunInterrupted
        SIGINT or SIGTERM came; with `run_dir` the same call goes on.
    OutputError
        The table cannot be written.
    """
    population, wanted = check_asked(sky, numbers, sampler, options), sorted({int(k) for k in numbers})
    if seed is not None:
        run_seed(seed + max(wanted), None)
    folder = None if run_dir is None else Path(run_dir)
    if folder is not None and read_record(folder) is not None:
        raise RunError(f"{folder} is the run directory of a single fit; give another one")
    sky = with_places(sky, observation)
    ladder = _Ladder(observation, sampler, folder, seed, likelihood or {}, facts or {}, progress, options)
    rungs = []
    for k in wanted:
        rungs.append(ladder.rung(k, with_ordered(sky, k)))
        log.log(NOTICE, "ln evidence %.2f +- %.2f", rungs[-1].log_evidence, rungs[-1].log_evidence_err)
    prior = population.number
    log_prior = tuple(prior.log_pmf(wanted).tolist())
    table = NumberTable(population.name, tuple(rungs), log_prior, prior.low, prior.high)
    if folder is not None:
        _write(folder / TABLE, table)
    return table


def with_ordered(sky: SkyModel, number: int) -> SkyModel:
    """The model with so many sources of its population, in the order of their fluxes.

    Where fluxes are not fitted, sources are ordered by an offset; where that is not fitted either, they are
    not.

    Parameters
    ----------
    sky : SkyModel
        With one population, whose place is known.
    number : int
    """
    population = _population(sky)
    known = sky.with_number({population.name: number})
    if number < 2:
        return known
    first = population.source(1, population.types[0])
    for key in ("I", "east", "north"):
        value = getattr(first, key)
        if isinstance(value[0] if isinstance(value, tuple) else value, Prior):
            order = Order([f"{name}.{key}" for name in population.source_names[:number]])
            return replace(known, constraints=(*known.constraints, order))
    return known


def _population(sky: SkyModel) -> Population:
    """The one population of a model."""
    if len(sky.populations) != 1:
        found = ", ".join(each.name for each in sky.populations) or "none"
        raise InputError(
            f"numbers of sources are compared for one population ([[population]] in the model), found {found}"
        )
    population: Population = sky.populations[0]
    if len(population.types) > 1:
        raise InputError(
            f"population {population.name!r} has the types {', '.join(population.types)}; numbers of sources "
            'are compared for one type: a population of "gaussian" whose size may be 0 holds points, too'
        )
    return population


def check_asked(
    sky: SkyModel, numbers: Sequence[int], sampler: str | None, options: Mapping[str, object]
) -> Population:
    """The population whose number is asked for; arguments are those of `fit_numbers`.

    Raises
    ------
    InputError
        As `fit_numbers`.
    """
    population = _population(sky)
    if not isinstance(numbers, Sequence | np.ndarray) or not all(isinstance(k, _INT) for k in numbers):
        raise InputError(f"numbers: expected a range or a list of integers, got {given_text(numbers)}")
    if not len(numbers):
        raise InputError("no numbers of sources; give a range such as 0:8 (range(9) in Python)")
    prior = population.number
    outside = [k for k in numbers if not prior.low <= k <= prior.high]
    if outside:
        raise InputError(
            f"population {population.name!r} has {prior.low} to {prior.high} sources by its prior, and "
            f"{outside[0]} is asked for"
        )
    if sampler is None and options:
        raise InputError(f"{next(iter(options))}: an option needs its sampler; give that, too")
    if sampler is not None:
        check_sampler(sampler)
    if sampler in WITHOUT:
        raise InputError(
            f"numbers of sources are compared by evidences, which {sampler} does not give; use dynesty, "
            "tempering or none"
        )
    return population


@dataclass(frozen=True)
class _Ladder:
    """What the fits of all numbers share."""

    observation: Observation
    sampler: str | None
    folder: Path | None
    seed: int | None
    of_likelihood: Mapping[str, Any]
    facts: Mapping[str, object]
    progress: bool
    options: Mapping[str, Any]
    said: list[str] = field(default_factory=list)

    def rung(self, k: int, sky: SkyModel) -> Rung:
        """The evidence of one number of sources."""
        with self._likelihood(sky, str(k)) as likelihood:
            about = problem_line(likelihood, self.of_likelihood.get("backend", "auto"))
            log.log(NOTICE, "%d source%s: %s", k, "s" * (k != 1), about)
            for line in lines_before(likelihood):
                if line not in self.said:
                    log.log(NOTICE, "%s", line)
                    self.said.append(line)
            if not likelihood.n_param and likelihood.full is likelihood:
                value = float(likelihood.log_likelihood(np.zeros((1, 0)))[0])
                return Rung(k, value, 0.0, 0, value, EXACT)
            if self.sampler is not None:
                return Rung.of(k, self._table(likelihood, self.sampler, k, str(k)))
            try:
                table = self._table(likelihood, "none", k, str(k))
                why = "" if table.evidence_is_trusted else "its evidence is not to be trusted"
            except LikelihoodError as error:
                why = str(error)
            if not why:
                return Rung.of(k, table)
            log.info("sampler none: %s", why)
            log.log(NOTICE, "the maximum does not give this evidence reliably; dynesty samples it")
            return Rung.of(k, self._table(likelihood, "dynesty", k, f"{k}-dynesty"))

    def _likelihood(self, sky: SkyModel, name: str) -> Likelihood:
        given = dict(self.of_likelihood)
        if self.folder is not None and "precision" in given:
            given["precision"] = asked_precision(given["precision"], self.folder / name)
        return Likelihood(self.observation, sky, **given)

    def _table(self, likelihood: Likelihood, sampler: str, k: int, name: str) -> PosteriorTable:
        run_dir = None if self.folder is None else self.folder / name
        seed = None if self.seed is None else self.seed + k
        posterior = sample(
            likelihood,
            sampler,
            run_dir=run_dir,
            seed=seed,
            progress=self.progress,
            facts=self.facts,
            **self.options,
        )
        if run_dir is not None:
            check_saved(run_dir)
        return posterior.summary()


def _write(path: Path, table: NumberTable) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, (json.dumps(finite_json(table.to_dict()), indent=1) + "\n").encode())
    except OSError as error:
        why = why_not_written(path, error)
        raise OutputError(f"all fits are done, but {path} cannot be written: {why}") from error
