"""`biro sbc`: test posteriors by simulation-based calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biro.choices import Sampler
from biro.cli.guard import after_result, guard, print_json, say
from biro.cli.options import (
    BackendOption,
    FrameOption,
    GainsOption,
    JsonFlag,
    MemoryOption,
    ObservedSets,
    ReadingOptions,
    SmearingOption,
    keyword_options,
    takes_reading_options,
)
from biro.run.environment import plain_pictures
from rime_kernels.choices import Precision


@guard
@takes_reading_options()
def sbc(
    obs: ObservedSets,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Sky model with priors (TOML).")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Directory. biro creates it, or resumes the run in it."
        ),
    ],
    sampler: Annotated[Sampler, typer.Option(help="Sampler to test (see biro fit --help).")] = "emcee",
    replicates: Annotated[
        int, typer.Option(help="Number of simulated data sets. A resumed run can be given more.")
    ] = 100,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the random numbers; the same seed repeats the result. Default: drawn and recorded."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of processes. Default: one per core, or 1 on a GPU.")
    ] = None,
    backend: BackendOption = "auto",
    precision: Annotated[Precision, typer.Option(help="Precision of the model visibilities.")] = "double",
    gaussian_frame: FrameOption = "tangent",
    smearing: SmearingOption = "auto",
    gains: GainsOption = "sample",
    memory_limit: MemoryOption = None,
    set_option: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Option of the sampler, for example n_live=100; can be repeated. A wrong name lists all.",
        ),
    ] = None,
    as_json: JsonFlag = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Test posteriors by simulation-based calibration (SBC).

    biro draws parameters from the prior, simulates data, fits them, and ranks the true value of each
    parameter among the samples of its posterior. The simulated data have the layout, flags and weights of
    OBS, whose visibilities are not used. biro writes everything into DIR. If it is interrupted, repeat the
    command to resume. `mpiexec -n N biro sbc` spreads the replicates over N processes.
    """
    from biro.distributed.world import world
    from biro.io.reading import read
    from biro.likelihood.likelihood import Likelihood
    from biro.models import read_model
    from biro.plots.sbc_report import write_report
    from biro.run.facts import observed_facts
    from biro.sbc.procedure import run as run_sbc

    comm = world()
    options = keyword_options(set_option or [])
    sky = read_model(model)
    observation = read(obs, **reading)
    likelihood = Likelihood(
        observation,
        sky,
        backend=backend,
        precision=precision,
        gaussian_frame=gaussian_frame,
        memory_limit=memory_limit,
        smearing=smearing,
        gains=gains,
    )
    result = run_sbc(
        likelihood,
        sampler,
        replicates=replicates,
        run_dir=output,
        seed=seed,
        workers=workers,
        comm=comm,
        facts=observed_facts(obs, reading),
        **options,
    )
    if as_json:
        print_json(result.to_dict())
    else:
        typer.echo(str(result))
    plain_pictures()
    with after_result(
        f"the replicates are in {output}", "free disk space; the same command draws them again"
    ):
        page = write_report(output, result, title=output.name, model_toml=likelihood.full_model.to_toml())
    say(f"report: {page}")
