"""`biro fit`: sample the posterior of a sky model, or find its maximum."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from biro.cli.guard import guard, print_json, say
from biro.cli.options import (
    AnyPrecision,
    Average,
    Backend,
    BackendOption,
    CacheOption,
    DevicesOption,
    Frame,
    FrameOption,
    Gains,
    GainsOption,
    JsonFlag,
    MemoryOption,
    ObservedSets,
    ReadingOptions,
    Sampler,
    SamplerOptions,
    Smearing,
    SmearingOption,
    devices_of,
    keyword_options,
    takes_reading_options,
)
from biro.cli.plot import draw_run, is_drawn

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood
    from biro.many_fits.results import FitResults
    from rime_kernels.geometry import Form

log = logging.getLogger(__name__)


@guard
@takes_reading_options()
def fit(
    obs: ObservedSets,
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="Sky model with priors (TOML); or a list: numbers of difmap marked with v are fitted.",
        ),
    ],
    run: Annotated[
        Path, typer.Option("--output", "-o", metavar="RUN", help="Run directory, made or resumed.")
    ],
    sampler: Annotated[
        Sampler, typer.Option(help="dynesty computes the evidence too; none finds the maximum, in seconds.")
    ] = Sampler.emcee,
    seed: Annotated[
        int | None, typer.Option(help="Same seed, same samples. Drawn and recorded if absent.")
    ] = None,
    backend: BackendOption = Backend.auto,
    precision: Annotated[
        AnyPrecision, typer.Option(help="Of the sums over sources; auto measures whether single is enough.")
    ] = AnyPrecision.double,
    gaussian_frame: FrameOption = Frame.tangent,
    smearing: SmearingOption = Smearing.auto,
    gains: GainsOption = Gains.sample,
    average: Annotated[
        Average,
        typer.Option(
            help="cells: few visibilities stand for those of each cell in time and frequency, as large as "
            "leaves the result alone, which is measured first."
        ),
    ] = Average.none,
    memory_limit: MemoryOption = None,
    devices: DevicesOption = None,
    cache: CacheOption = None,
    each: Annotated[
        bool, typer.Option("--each", help="Fit each OBS by itself, into a directory of its own in RUN.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(help="Of --each: processes. Default: one for each core; on a GPU, 1."),
    ] = None,
    set_option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Option of the sampler, as n_live=1000."),
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Write pictures and report into RUN.")] = True,
    as_json: JsonFlag = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Sample the posterior of a sky model.

    Everything is written into RUN; the same command resumes a run that was interrupted. mpiexec -n N biro fit
    shares the data among N processes. With --each, the pictures of a fit are drawn by biro plot.
    """
    from biro.errors import InputError
    from biro.likelihood.likelihood import Likelihood
    from biro.list_priors import with_marked
    from biro.many_fits.fit_each import fit_each
    from biro.many_fits.one_fit import lines_before
    from biro.ranks.world import world
    from biro.reading import read
    from biro.run.facts import asked_precision, check_saved, observed_facts
    from biro.samplers.sampling import sample
    from biro.sky_files import read_sky

    comm = world()
    options = keyword_options(set_option or [])
    sky = read_sky(model)
    of_likelihood: dict[str, Any] = {
        "backend": backend.value,
        "precision": precision.value,
        "gaussian_frame": gaussian_frame.value,
        "memory_limit": memory_limit,
        "smearing": smearing.value,
        "gains": gains.value,
        "average": average.value,
        "devices": devices_of(devices),
    }
    if each:
        if comm is not None:
            raise InputError("ranks share the data of one fit: start biro fit --each without them")
        if cache is not None:
            raise InputError("--cache is of one fit: leave --each out")
        fits = fit_each(
            obs,
            sky,
            sampler.value,
            run_dir=run,
            seed=seed,
            workers=workers,
            reading=reading,
            likelihood=of_likelihood,
            **options,
        )
        _show(fits, run, as_json=as_json)
        return
    if workers is not None:
        raise InputError("--workers belongs to --each; one fit uses threads, or MPI ranks")
    observation = read(obs, **reading, comm=comm, cache=cache)
    sky = with_marked(sky, model, observation)
    asked = of_likelihood["precision"] = asked_precision(precision.value, run)
    likelihood = Likelihood(observation, sky, **of_likelihood, comm=comm)
    say(_problem_text(likelihood, backend.value))
    for line in lines_before(likelihood):
        say(line)
    if asked == "auto":
        say(f"precision {likelihood.precision_reason}")
    plan = likelihood.plan(_batch_size(sampler.value, options, likelihood.n_param))
    for line in plan.splitlines():
        log.info("%s", line)
    posterior = sample(
        likelihood,
        sampler.value,
        run_dir=run,
        seed=seed,
        facts=observed_facts(obs, reading) | {"plan": plan.splitlines()},
        **options,
    )
    if as_json:
        print_json(posterior.summary().to_dict())
    else:
        typer.echo(str(posterior.summary()))
    check_saved(run)
    if pictures and is_drawn(run):
        say(f"report: {run / 'report.html'} (drawn before; `biro plot {run}` draws it anew)")
    elif pictures:
        draw_run(run, posterior, likelihood)


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
        raise RunError(f"{counts} ({names}); the same command tries them again")


def _batch_size(sampler: str, options: SamplerOptions, n_param: int) -> int:
    """Number of parameter vectors that a sampler evaluates at once."""
    from biro.samplers.options import parse_options

    return parse_options(sampler, options, n_param).n_together if n_param else 1


def _problem_text(likelihood: Likelihood, backend: Literal["auto", "cpu", "cuda"]) -> str:
    """Number of parameters and visibilities, precision and device; the log has the reasons."""
    from rime_kernels.device import resolve

    free = "1 free parameter" if likelihood.n_param == 1 else f"{likelihood.n_param} free parameters"
    n_rank = 1 if likelihood.ranks is None else likelihood.ranks.n_rank
    shared = f", shared by {n_rank} ranks" if n_rank > 1 else ""
    if folder := likelihood.observation.cache_folder:
        shared += f", in files of {folder}"
    device, why = resolve(backend)
    log.info("%s; %s", _forms_text(likelihood.forms), why)
    unit = {"cpu": "CPU", "cuda": "GPU"}[device]
    return (
        f"{free}, {likelihood.n_vis.sum()} visibilities{shared}; {likelihood.precision} precision, {unit} "
        "(-v says more)"
    )


def _forms_text(forms: list[Form]) -> str:
    """How many partitions take which form of the phases, and why: "8 partitions: row form because ..."."""
    reasons = {
        "factored": "antenna coordinates reproduce the uvw of all rows",
        "row": "antenna coordinates do not reproduce the uvw of all rows closely enough",
    }
    counted = {form: forms.count(form) for form in dict.fromkeys(forms)}
    return ", ".join(
        f"{n} partition{'s' * (n != 1)}: {form} form because {reasons[form]}" for form, n in counted.items()
    )
