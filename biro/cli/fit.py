"""`biro fit`: sample the posterior of a sky model, or find its maximum."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biro.choices import Average, Sampler
from biro.cli.fit_image import fit_one, refuse_options
from biro.cli.fit_numbers import check, fit_several, read_numbers
from biro.cli.fit_population import fit_one_population
from biro.cli.guard import guard, print_json, say
from biro.cli.options import (
    BackendOption,
    CacheOption,
    DevicesOption,
    FrameOption,
    GainsOption,
    JsonFlag,
    MemoryOption,
    ObservedSets,
    ReadingOptions,
    SamplerOptions,
    SmearingOption,
    devices_of,
    keyword_options,
    takes_reading_options,
)
from biro.cli.plot import draw_run, is_drawn
from rime_kernels.choices import AnyPrecision

if TYPE_CHECKING:
    from mpi4py import MPI

    from biro.inference.posterior.posterior import Posterior
    from biro.inference.posterior.table import PosteriorTable
    from biro.likelihood.likelihood import Likelihood
    from biro.many_fits.results import FitResults
    from biro.models.sky import SkyModel
    from biro.observation.observation import Observation

log = logging.getLogger(__name__)


@guard
@takes_reading_options()
def fit(
    obs: ObservedSets,
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL...",
            help=(
                "Sky model with priors (TOML), or a component list (in difmap's .mod, values marked v are "
                "free). biro fits several models one by one, each into RUN/NAME; give them after all data."
            ),
        ),
    ],
    run: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="RUN", help="Run directory. biro creates it, or resumes the run in it."
        ),
    ],
    sampler: Annotated[
        Sampler | None,
        typer.Option(
            help=(
                "emcee: ensemble MCMC. dynesty: nested sampling, which gives the evidence; dynesty-dynamic: "
                "with a varying number of live points. tempering: chains from prior to posterior, which move "
                "between modes and give the evidence. nuts: MCMC with gradients, for many parameters. "
                "none: no sampling; biro maximises the posterior and takes uncertainties and evidence from "
                "importance sampling about the maximum (about a minute the first time, with compilation)."
            ),
            show_default="emcee; dynesty with --compare",
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="With several models: compare them by evidence and Bayes factor."),
    ] = False,
    number: Annotated[
        str | None,
        typer.Option(
            metavar="LOW:HIGH",
            help="Fit the sky model with each number of sources of its population, and compare the numbers.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the random numbers; the same seed repeats the result. Default: drawn and recorded."
        ),
    ] = None,
    backend: BackendOption = "auto",
    precision: Annotated[
        AnyPrecision,
        typer.Option(
            help="Precision of the model visibilities. auto: single if a test shows that it suffices."
        ),
    ] = "double",
    gaussian_frame: FrameOption = "tangent",
    smearing: SmearingOption = "auto",
    gains: GainsOption = "sample",
    average: Annotated[
        Average,
        typer.Option(
            help=(
                "cells: average visibilities in time-frequency cells, as large as possible without changing "
                "the result. biro tests this before the fit."
            )
        ),
    ] = "none",
    memory_limit: MemoryOption = None,
    devices: DevicesOption = None,
    cache: CacheOption = None,
    each: Annotated[
        bool, typer.Option("--each", help="Fit each OBS separately, into a directory of its own in RUN.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(help="With --each: number of processes. Default: one per core, or 1 on a GPU."),
    ] = None,
    set_option: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help=(
                "Option of the sampler; can be repeated. For example emcee: n_walker, max_steps; dynesty: "
                "n_live, dlogz; tempering: n_walker, n_effective; "
                "nuts: n_chain, n_draw, n_tune; none: starts, n_sample. A wrong name lists "
                "all."
            ),
        ),
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Write plots and report into RUN.")] = True,
    as_json: JsonFlag = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Fit a sky model: sample its posterior, or find its maximum.

    biro writes everything into RUN. If the fit is interrupted, repeat the command to resume it. `mpiexec -n N
    biro fit` shares the data among N processes. With --each, draw the plots of each fit with `biro plot`.
    """
    from biro.distributed.world import world
    from biro.errors import InputError
    from biro.io.reading import read
    from biro.io.sky_files import read_sky
    from biro.many_fits.fit_each import fit_each
    from biro.many_fits.models import split_models
    from biro.run.facts import observed_facts

    comm = world()
    options = keyword_options(set_option or [])
    obs, models = split_models([*obs, model])
    chosen = _sampler_of(sampler, len(models), compare=compare, each=each)
    of_likelihood: dict[str, Any] = {
        "backend": backend,
        "precision": precision,
        "gaussian_frame": gaussian_frame,
        "memory_limit": memory_limit,
        "smearing": smearing,
        "gains": gains,
        "average": average,
        "devices": devices_of(devices),
    }
    if comm is not None and (each or len(models) > 1):
        raise InputError("MPI processes share the data of a single fit. Start several fits without mpiexec")
    if each and cache is not None:
        raise InputError("--cache works with a single fit; leave --each out")
    if workers is not None and not each:
        raise InputError("--workers goes with --each only. A single fit uses threads or MPI processes")
    # All of them now, so that a mistake in the last one is found before the first one is fitted.
    skies = {name: read_sky(path) for name, path in models.items()}
    numbers = None if number is None else read_numbers(number)
    if numbers is not None:
        check(numbers, skies, sampler, options, {"--compare": compare, "--each": each})
    of_engine = {"sampler": sampler, "compare": compare, "cache": cache, "each": each, "workers": workers}
    if numbers is None and any(sky.populations for sky in skies.values()):
        fit_one_population(
            obs, list(skies.values()), run, refused=of_likelihood | of_engine, has_ranks=comm is not None,
            reading=reading, options=options, likelihood=of_likelihood, seed=seed, cache=cache,
            pictures=pictures, as_json=as_json,
        )  # fmt: skip
        return
    if any(sky.image_priors for sky in skies.values()):
        refuse_options(
            of_likelihood | of_engine | {"devices": devices}, len(models), has_ranks=comm is not None
        )
        fit_one(
            obs, next(iter(skies.values())), run, reading=reading, options=options, as_json=as_json,
            seed=1 if seed is None else seed, gains=gains, backend=backend, memory_limit=memory_limit,
            pictures=pictures,
        )  # fmt: skip
        return
    if each:
        fits = fit_each(
            obs,
            skies if len(skies) > 1 else next(iter(skies.values())),
            chosen,
            run_dir=run,
            seed=seed,
            workers=workers,
            reading=reading,
            likelihood=of_likelihood,
            **options,
        )
        _show(fits, run, as_json=as_json)
        return
    observation = read(obs, **reading, comm=comm, cache=cache)
    if numbers is not None:
        fit_several(
            observation, next(iter(skies.values())), numbers, run, sampler=sampler, seed=seed,
            likelihood=of_likelihood | {"comm": comm}, facts=observed_facts(obs, reading), pictures=pictures,
            as_json=as_json, **options,
        )  # fmt: skip
        return
    given = _Given(obs, reading, observation, chosen, seed, of_likelihood, options, comm, pictures=pictures)
    if len(models) == 1:
        posterior = given.fit(next(iter(skies.values())), model, run)
        _print(posterior.summary(), as_json=as_json)
        given.draw(run)
        return
    _fit_models(given, models, skies, run, compare=compare, as_json=as_json)


def _sampler_of(sampler: Sampler | None, n_model: int, *, compare: bool, each: bool) -> str:
    """Name of the sampler, which has to give an evidence where models are compared."""
    from biro.errors import InputError

    if not compare:
        return sampler or "emcee"
    if n_model < 2:
        raise InputError("--compare needs several models: biro fit OBS ONE TWO --compare")
    if each:
        raise InputError("--compare and --each exclude each other: leave out one of them")
    if sampler in ("emcee", "nuts"):
        raise InputError(
            f"--compare needs evidences, which {sampler} does not give: use --sampler dynesty, or none"
        )
    return sampler or "dynesty"


@dataclass
class _Given:
    """What all models of one command are fitted with."""

    obs: list[Path]
    reading: ReadingOptions
    observation: Observation
    sampler: str
    seed: int | None
    of_likelihood: dict[str, Any]
    options: SamplerOptions
    comm: MPI.Intracomm | None
    pictures: bool
    last: tuple[Posterior, Likelihood] | None = None

    def fit(self, sky: SkyModel, model: Path, run: Path) -> Posterior:
        """Fit the sky of one model file, into one run directory."""
        from biro.inference.samplers.sampling import sample
        from biro.likelihood.likelihood import Likelihood
        from biro.many_fits.one_fit import lines_before, problem_line
        from biro.run.facts import asked_precision, check_saved, observed_facts
        from biro.source_finding.list_priors import with_marked

        sky = with_marked(sky, model, self.observation)
        asked = asked_precision(self.of_likelihood["precision"], run)
        of_likelihood = {**self.of_likelihood, "precision": asked, "comm": self.comm}
        likelihood = Likelihood(self.observation, sky, **of_likelihood)
        say(problem_line(likelihood, self.of_likelihood["backend"]))
        for line in lines_before(likelihood):
            say(line)
        if asked == "auto":
            say(f"precision {likelihood.choices.precision}")
        plan = likelihood.plan(_batch_size(self.sampler, self.options, likelihood.n_param))
        for line in plan.splitlines():
            log.info("%s", line)
        posterior = sample(
            likelihood,
            self.sampler,
            run_dir=run,
            seed=self.seed,
            facts=observed_facts(self.obs, self.reading) | {"plan": plan.splitlines()},
            **self.options,
        )
        check_saved(run)
        self.last = posterior, likelihood
        return posterior

    def draw(self, run: Path) -> None:
        """Draw the pictures of the fit that came last."""
        if not self.pictures or self.last is None:
            return
        if is_drawn(run):
            say(f"report: {run / 'report.html'} (drawn earlier; `biro plot {run}` draws it again)")
        else:
            draw_run(run, *self.last)


def _fit_models(
    given: _Given,
    models: Mapping[str, Path],
    skies: Mapping[str, SkyModel],
    run: Path,
    *,
    compare: bool,
    as_json: bool,
) -> None:
    """Fit several models, one after the other, and compare them."""
    from biro.errors import BiroError, RunError
    from biro.inference.posterior.comparison import compare as compare_posteriors
    from biro.run.record import read_record

    if read_record(run) is not None:
        raise RunError(f"{run} is the run directory of a single fit; give another directory")
    posteriors: dict[str, Posterior] = {}
    for name, path in models.items():
        say(f"model {name}: {path}, into {run / name}")
        try:
            posteriors[name] = given.fit(skies[name], path, run / name)
        except BiroError as error:
            raise type(error)(f"{path}: {error}") from error
        if not as_json:
            typer.echo(f"{name}\n{_text(posteriors[name].summary())}\n")
        given.draw(run / name)
    table = compare_posteriors(posteriors) if compare else None
    if as_json:
        fits = {name: posterior.summary().to_dict() for name, posterior in posteriors.items()}
        print_json({"fits": fits} | ({} if table is None else {"comparison": table.to_dict()}))
    elif table is not None:
        typer.echo(str(table))


def _print(summary: PosteriorTable, *, as_json: bool) -> None:
    if as_json:
        print_json(summary.to_dict())
    else:
        typer.echo(_text(summary))


def _text(summary: PosteriorTable) -> str:
    """The verdict on a fit in one line, and the table with its warnings."""
    from biro.diagnosis.partition_fit import MISFIT
    from biro.inference.posterior.verdict import verdict_of

    verdict = verdict_of(summary)
    is_said = any(line.startswith(MISFIT) for line in summary.warnings())
    return f"{verdict.trust if is_said else f'{verdict.fit} {verdict.trust}'}\n{summary}"


def _show(fits: FitResults, run: Path, *, as_json: bool) -> None:
    """Print the results of many fits.

    Raises
    ------
    RunError
        Some fits failed.
    """
    from biro.errors import RunError
    from biro.many_fits.fit_each import SUMMARY

    if as_json:
        print_json(fits.to_dict())
    else:
        typer.echo(str(fits))
    say(f"all results: {run / SUMMARY}; pictures of a fit: biro plot {run}/NAME")
    if fits.failed:
        names = ", ".join(fit.name for fit in fits.failed)
        counts = f"{len(fits.failed)} of {len(fits)} fits failed"
        raise RunError(f"{counts} ({names}). The same command tries them again")


def _batch_size(sampler: str, options: SamplerOptions, n_param: int) -> int:
    """Number of parameter vectors that a sampler evaluates at once."""
    from biro.inference.samplers.options import parse_options

    return parse_options(sampler, options, n_param).n_together if n_param else 1
