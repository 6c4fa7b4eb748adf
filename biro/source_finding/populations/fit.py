"""`fit_population`: the number of sources of a population and their catalogue, for an observation."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from biro.choices import Gains
from biro.diagnosis.diagnosis import diagnose
from biro.display.arguments import OBSERVATION, SKY, takes
from biro.display.progress import showing
from biro.imaging.population_field import with_places
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.samples import Provenance
from biro.inference.posterior.statistics import mean_and_sd
from biro.inference.samplers.sampling import run_seed
from biro.inference.samplers.tempering.options import TemperingOptions
from biro.inference.samplers.tempering.run import TemperedResult, TemperingRun
from biro.inference.samplers.tempering.state_file import FILE, TemperedStateFile
from biro.inference.target.checked import Target
from biro.likelihood.likelihood import Likelihood
from biro.likelihood.options import EngineKeywords
from biro.models import Fixed, Population, SkyModel
from biro.models.quantities.parameter import Column
from biro.models.quantities.units import FREQUENCY, factor
from biro.observation.observation import Observation
from biro.run.directory import RunDirectory
from biro.run.interrupt import stop_on_signal
from biro.run.log_file import NOTICE
from biro.run.record import versions
from biro.source_finding.populations.checks import check_independent, population_of
from biro.source_finding.populations.likelihoods import PopulationLikelihood, SizedLikelihood
from biro.source_finding.populations.posterior import PopulationPosterior
from biro.source_finding.populations.problem import PopulationProblem
from biro.source_finding.populations.results.result import PopulationResult
from biro.source_finding.populations.scales import Scales
from biro.source_finding.populations.source_draws import beam_of, source_draws
from biro.source_finding.populations.space import NO_SOURCE

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
N_WALKER, N_EFFECTIVE, MAX_STEPS = 8, 400, 20_000
"""Defaults of the options of tempering."""
_SAMPLER = "tempering"
_MOST_AT_LIMIT = 0.05
"""Probability of the largest number from which on it is said to be a limit."""


@takes(observation=OBSERVATION, sky=SKY)
def fit_population(
    observation: Observation,
    sky: SkyModel,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    gains: Gains = "sample",
    n_walker: int = N_WALKER,
    n_effective: int = N_EFFECTIVE,
    max_steps: int = MAX_STEPS,
    progress: bool = True,
    facts: Mapping[str, object] | None = None,
    **engine: Unpack[EngineKeywords],
) -> PopulationPosterior:
    """Infer how many sources of a population there are, with everything else of a model.

    Parallel tempering of states with any number of sources: sources appear and disappear, split and merge,
    are exchanged, and drift along the gradient, at all temperatures from the prior to the posterior.

    Parameters
    ----------
    observation : Observation
    sky : SkyModel
        With one `Population`, beside sources, gains and noise as everywhere.
    run_dir : path, optional
        Keeps everything about the run. A run that was interrupted there goes on, a finished one is read.
    seed : int, optional
        Drawn, and recorded, when not given.
    gains : "sample", "marginalise" or "closures"
        As for `biro.Likelihood`.
    n_walker : int
        On each temperature.
    n_effective : int
        Effective draws of the number of sources, of their flux, of ln L and for the evidence to stop at; may
        be raised when a run is resumed.
    max_steps : int
        Steps at most; may be raised when a run is resumed.
    progress : bool
        Show bars on stderr.
    facts : mapping, optional
        More to be written into `run.json`.
    **engine
        As for `biro.Likelihood`: backend, precision, smearing, ...

    Returns
    -------
    PopulationPosterior

    Raises
    ------
    InputError
        No population or several, quantities that need a prior, gains that are solved for.
    RunError
        The run directory is in use, or belongs to a run that differs.
    RunInterrupted
        SIGINT or SIGTERM came; with `run_dir` the same call goes on.

    Examples
    --------
    >>> found = biro.fit_population(observation, biro.read_model("sky.toml"))  # doctest: +SKIP
    >>> print(found, found.sources.catalogue()["field1"].flux)  # doctest: +SKIP
    """
    population_of(sky, gains)
    sky = with_places(sky, observation)
    (population,) = sky.populations
    likelihood = _likelihood(observation, sky, population, gains, engine)
    check_independent(likelihood.sized(1))
    options = TemperingOptions(n_walker, n_effective, max_steps).resolved(max(1, likelihood.space.n_shared))
    one = likelihood.sized(1).likelihood
    if one.marginalised:
        log.log(NOTICE, "gains are integrated over; the result has no values of them")
    provenance = Provenance(
        sampler=_SAMPLER,
        seed=run_seed(seed, run_dir),
        options=options.as_dict(),
        data_digest=one.data_digest(),
        model_digest=one.full_model.digest(),
        model_toml=sky.to_toml(),
        versions=versions(),
    )
    with ExitStack() as stack:
        stack.enter_context(showing(progress))
        stop = stack.enter_context(stop_on_signal(saves=run_dir is not None))
        run = None
        if run_dir is not None:
            settings = {
                "sampler": "population",
                "seed": provenance.seed,
                "options": options.as_dict(),
                "data": provenance.data_digest,
                "model": provenance.model_toml,
                "likelihood": one.digest(),
            }
            record = {"likelihood": one.description(), **(facts or {})}
            run = stack.enter_context(
                RunDirectory(
                    run_dir, settings, may_change=options.may_change, facts=record, model_toml=sky.to_toml()
                )
            )
            if run.finished and run.record["settings"].get("options") == options.as_dict():
                log.log(NOTICE, "%s is finished; reading its result", run.path)
                return PopulationPosterior.load(run.path)
            run.reopen(options.as_dict())
        file = None if run is None else TemperedStateFile(run.path / FILE, run.run_id)
        origin = sky.origin(observation.partition_views)
        scales = _scales(observation, sky, likelihood)
        problem = PopulationProblem(likelihood, scales, origin)
        tempering = TemperingRun(problem, options, provenance.seed, file)
        state = tempering.run(stop, progress=progress)
        found = tempering.result(state)
        made = _posterior(likelihood, scales, sky, found, provenance, origin, n_walker)
        made = _diagnosed(made, found, likelihood, observation, sky, gains)
        if run is not None:
            made.save(run.path)
            run.finish()
    return made


def _likelihood(
    observation: Observation, sky: SkyModel, population: Population, gains: Gains, engine: EngineKeywords
) -> PopulationLikelihood:
    """Likelihoods of so many sources of the population, beside all else of a model."""
    kind = "gaussian" if "gaussian" in population.types else "point"
    first: list[Likelihood] = []

    def make(size: int) -> Likelihood:
        slots = [population.source(i + 1, kind) for i in range(size)]
        of_size = replace(sky, populations=(), sources=(*sky.sources, *slots))
        if first:
            return Likelihood(observation, of_size, gains=gains, options=first[0].options)
        first.append(Likelihood(observation, of_size, gains=gains, **engine))
        return first[0]

    log_number = population.number.log_pmf(np.arange(population.number.high + 1))
    return PopulationLikelihood(make, population.name, log_number, population.types)


def _scales(observation: Observation, sky: SkyModel, likelihood: PopulationLikelihood) -> Scales:
    """What visibilities tell of a point without errors of gains; closures and free phases would hide it."""
    one = likelihood.sized(1)
    if not sky.gains and one.likelihood.gains == "sample":
        return Scales.of(one, likelihood.space)
    (population,) = sky.populations
    kind = "gaussian" if "gaussian" in population.types else "point"
    alone = replace(sky, populations=(), gain=None, sources=(*sky.sources, population.source(1, kind)))
    return Scales.of(
        SizedLikelihood(Likelihood(observation, alone, options=one.likelihood.options), population.name, 1),
        likelihood.space,
    )


def _posterior(
    likelihood: PopulationLikelihood,
    scales: Scales,
    sky: SkyModel,
    found: TemperedResult,
    provenance: Provenance,
    origin: tuple[float, float],
    n_walker: int,
) -> PopulationPosterior:
    """The posterior of shared parameters, number and flux, and the sources of all draws."""
    (population,) = sky.populations
    space, rows = likelihood.space, found.rows
    flux_unit = space.quantities[space.flux].unit
    one = likelihood.sized(1)
    all_columns = Target(one.likelihood).columns
    columns = [all_columns[i] for i in one.of_shared]
    columns += [Column(f"{population.name}.number"), Column(f"{population.name}.flux", flux_unit)]
    slots = space.slots_of(rows)
    flux = np.where(slots[..., 0] != NO_SOURCE, slots[..., 1 + space.flux], 0.0).sum(axis=1)
    samples = np.column_stack([space.shared_of(rows), space.number(rows), flux])
    n_column = len(columns)
    of_number = Posterior(
        columns=tuple(columns),
        samples=samples,
        log_likelihood=found.log_likelihood,
        log_prior=space.log_density_of_shared(space.shared_of(rows)),
        provenance=provenance,
        effective=found.effective[:n_column],
        n_walker=n_walker,
        tau=found.tau[:n_column],
        log_evidence=found.log_evidence,
        log_evidence_err=found.log_evidence_err,
        diagnostics=found.diagnostics,
    )
    sources = PopulationResult(
        draws=source_draws(space, population.name, rows, population),
        centre=origin,
        beam=beam_of(space, scales),
        n_effective=float(found.effective.min()),
        log_posterior=found.log_likelihood + space.log_prior(rows),
        ref_freq=_ref_freq(population, sky),
    )
    return PopulationPosterior(of_number, sources)


def _ref_freq(population: Population, sky: SkyModel) -> float | None:
    """Where flux densities of the population hold, Hz; None where it does not say, or infers it."""
    for given in (population.ref_freq, sky.ref_freq):
        value = given[0] if isinstance(given, tuple) else given
        if value is not None:
            return factor(value.unit, FREQUENCY) * value.value if isinstance(value, Fixed) else None
    return None


def _diagnosed(
    made: PopulationPosterior,
    found: TemperedResult,
    likelihood: PopulationLikelihood,
    observation: Observation,
    sky: SkyModel,
    gains: Gains,
) -> PopulationPosterior:
    """The posterior with what the residuals of its best draw of the commonest number of sources say."""
    (population,) = sky.populations
    space, rows = likelihood.space, found.rows
    number = space.number(rows)
    common = number == np.bincount(number).argmax()
    log_posterior = np.where(common, found.log_likelihood + space.log_prior(rows), -np.inf)
    best = rows[int(log_posterior.argmax())][None]
    slots = space.slots_of(best)[0, : int(space.number(best)[0])]
    kinds = [population.types[int(kind)] for kind in slots[:, 0]]
    whole = Likelihood(
        observation,
        sky.with_number({population.name: kinds}),
        gains=gains,
        options=likelihood.sized(1).likelihood.options,
    )
    values = _values_of(best, slots, likelihood, population)
    theta = np.array([values[name] for name in whole.parameter_names])
    columns = Target(whole).columns if len(theta) else ()
    shared = dict(zip(made.posterior.names, zip(*mean_and_sd(made.posterior), strict=True), strict=True))
    known = [shared.get(name, (np.nan, np.nan)) for name in whole.parameter_names]
    mean, sd = np.array(known, dtype=np.float64).reshape(-1, 2).T
    seen = diagnose(whole, theta, mean, sd, columns)
    remarks: Sequence[str] = (*whole.doubts(theta), *_at_limit(number, population), *seen.warnings)
    of_number = replace(
        made.posterior,
        fits=seen.fits,
        remarks=tuple(remarks),
        diagnostics={**made.posterior.diagnostics, "error_factor": seen.error_factor},
    )
    return replace(made, posterior=of_number)


def _at_limit(number: NDArray[np.int64], population: Population) -> list[str]:
    """A line where the largest number that the prior allows is not improbable."""
    share = float(np.mean(number == population.number.high))
    if share <= _MOST_AT_LIMIT or population.number.low == population.number.high:
        return []
    return [
        f"NUMBER AT ITS LIMIT: {population.name} has {population.number.high} sources, the most that its "
        f"prior allows, with a probability of {100 * share:.0f} %. Raise high in [[population]] number"
    ]


def _values_of(
    row: Array, slots: Array, likelihood: PopulationLikelihood, population: Population
) -> dict[str, float]:
    """Values of all parameters of a state, by name."""
    space = likelihood.space
    names = [parameter.name for parameter in space.shared]
    values = dict(zip(names, space.shared_of(row)[0].tolist(), strict=True))
    for i, slot in enumerate(slots):
        for quantity, value in zip(space.quantities, slot[1:].tolist(), strict=True):
            values[f"{population.name}{i + 1}.{quantity.key}"] = value
    return values
