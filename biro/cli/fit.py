"""`biro fit`: sample the posterior of a sky model, or find its maximum."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from biro.cli.guard import guard, print_json, say
from biro.cli.options import (
    AnyPrecision,
    Backend,
    BackendOption,
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
    observed_facts,
    takes_reading_options,
)
from biro.cli.plot import draw_run, is_drawn

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood
    from rime_kernels.geometry import Form

log = logging.getLogger(__name__)


@guard
@takes_reading_options()
def fit(
    obs: ObservedSets,
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
    gaussian_frame: FrameOption = Frame.tangent,
    smearing: SmearingOption = Smearing.auto,
    gains: GainsOption = Gains.sample,
    memory_limit: MemoryOption = None,
    devices: DevicesOption = None,
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
    shares the data among N processes.
    """
    from biro.likelihood.likelihood import Likelihood
    from biro.models import read_model
    from biro.ranks.world import world
    from biro.reading import read
    from biro.samplers.sampling import sample

    comm = world()
    options = keyword_options(set_option or [])
    sky = read_model(model)
    observation = read(obs, **reading)
    asked = _asked_precision(precision, run)
    likelihood = Likelihood(
        observation,
        sky,
        backend=backend.value,
        precision=asked,
        gaussian_frame=gaussian_frame.value,
        memory_limit=memory_limit,
        smearing=smearing.value,
        gains=gains.value,
        devices=devices_of(devices),
        comm=comm,
    )
    say(_problem_text(likelihood, backend.value))
    for line in likelihood.observation.instrument_lines(likelihood.sky):
        say(line)
    for line in [*likelihood.gains_lines, *likelihood.smearing_lines]:
        say(line)
    if line := likelihood.observation.ionosphere_line(likelihood.sky):
        say(line)
    for line in (*likelihood.model.gain_lines, likelihood.undetermined, likelihood.lone_gains):
        if line:
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
    _check_saved(run)
    if pictures and is_drawn(run):
        say(f"report: {run / 'report.html'} (drawn before; `biro plot {run}` draws it anew)")
    elif pictures:
        draw_run(run, posterior, likelihood.full)


def _check_saved(run: Path) -> None:
    """Refuse to go on where the posterior is not in its run directory: a full disk, a directory that is gone.

    Raises
    ------
    OutputError
    """
    from biro.errors import OutputError
    from biro.run.record import read_record

    record = read_record(run)
    if record is None or record.get("finished") is None:
        raise OutputError(f"the posterior is not in {run}, which could not be written; see above where it is")


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

    return parse_options(sampler, options, n_param).n_together if n_param else 1


def _problem_text(likelihood: Likelihood, backend: Literal["auto", "cpu", "cuda"]) -> str:
    """Number of parameters and visibilities, and how the likelihood is computed."""
    from rime_kernels.device import resolve

    free = "1 free parameter" if likelihood.n_param == 1 else f"{likelihood.n_param} free parameters"
    shared = "" if likelihood.ranks is None else f", shared by {likelihood.ranks.n_rank} ranks"
    return (
        f"{free}, {likelihood.n_vis.sum()} visibilities{shared} in {_forms_text(likelihood.forms)}; "
        f"{likelihood.precision} precision, {resolve(backend)[1]} (-v says more)"
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
