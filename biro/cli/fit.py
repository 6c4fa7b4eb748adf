"""`biro fit`: sample the posterior of a sky model, or find its maximum."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from biro.cli.guard import at_terminal, guard, print_json, say
from biro.cli.options import (
    AnyPrecision,
    Backend,
    BackendOption,
    JsonFlag,
    MemoryOption,
    Observed,
    ReadingOptions,
    Sampler,
    SamplerOptions,
    keyword_options,
    takes_reading_options,
)
from biro.cli.plot import draw_run

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood


@guard
@takes_reading_options()
def fit(
    obs: Observed,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Sky model with priors (TOML).")],
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
    memory_limit: MemoryOption = None,
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

    Everything is written into RUN; the same command resumes a run that was interrupted.
    """
    from biro.likelihood.likelihood import Likelihood
    from biro.measurement_set import read_ms
    from biro.models import read_model
    from biro.samplers.sampling import sample

    options = keyword_options(set_option or [])
    sky = read_model(model)
    observation = read_ms(obs, **reading)
    asked = _asked_precision(precision, run)
    likelihood = Likelihood(
        observation,
        sky,
        backend=backend.value,
        precision=asked,
        memory_limit=memory_limit,
    )
    say(_problem_text(likelihood))
    if asked == "auto":
        say(f"precision {likelihood.precision_reason}")
    plan = likelihood.plan(_batch_size(sampler.value, options, likelihood.n_param))
    say(plan)
    posterior = sample(
        likelihood,
        sampler.value,
        run_dir=run,
        seed=seed,
        progress=at_terminal(),
        facts={"observation": str(obs.absolute()), "reading": reading, "plan": plan.splitlines()},
        **options,
    )
    if as_json:
        print_json(posterior.summary().to_dict())
    else:
        typer.echo(str(posterior.summary()))
    if pictures:
        draw_run(run, posterior, likelihood)


def _asked_precision(precision: AnyPrecision, run: Path) -> Literal["auto", "double", "single"]:
    """The precision that a likelihood is asked for.

    A resumed run keeps the precision it was begun with, because "auto" may mean another on another machine.
    """
    from biro.run.record import read_facts

    asked: object = precision.value
    if precision is AnyPrecision.auto:
        asked = (read_facts(run).get("likelihood") or {}).get("precision", "auto")
    return cast(Literal["auto", "double", "single"], asked)  # the likelihood refuses others


def _batch_size(sampler: str, options: SamplerOptions, n_param: int) -> int:
    """Number of parameter vectors that a sampler evaluates at once."""
    from biro.samplers.options import parse_options

    return parse_options(sampler, options, n_param).n_together


def _problem_text(likelihood: Likelihood) -> str:
    """Number of parameters and visibilities, and how the likelihood is computed."""
    n_part, chosen = len(likelihood.n_vis), likelihood.description()
    parts = "1 partition" if n_part == 1 else f"{n_part} partitions"
    forms = " and ".join(dict.fromkeys(likelihood.forms))
    free = "1 free parameter" if likelihood.n_param == 1 else f"{likelihood.n_param} free parameters"
    return (
        f"{free}, {likelihood.n_vis.sum()} visibilities in {parts}; "
        f"{chosen['backend']}, {chosen['precision']} precision, {forms} form (-v says why)"
    )
