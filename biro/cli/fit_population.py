"""`biro fit` of a model with a population: its options, and what it prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from biro.cli.fit_image import refuse_options
from biro.cli.guard import print_json, say
from biro.cli.options import ReadingOptions, SamplerOptions

if TYPE_CHECKING:
    from biro.models import SkyModel

ONE = "leave it out: a population is fitted to all data together, in one run"
REFUSED: dict[str, tuple[object, str]] = {
    "compare": (False, "fit each model by itself, and write biro compare RUN RUN"),
    "average": ("none", "write --average-time and --average-channels, which average while reading"),
    "each": (False, ONE),
    "workers": (None, ONE),
}
"""Options of `biro fit` that populations do not have: their defaults, and what to do."""


def fit_one_population(
    obs: list[Path],
    skies: Sequence[SkyModel],
    run: Path,
    *,
    refused: Mapping[str, object],
    has_ranks: bool,
    reading: ReadingOptions,
    options: SamplerOptions,
    likelihood: Mapping[str, Any],
    seed: int | None,
    cache: Path | None,
    pictures: bool,
    as_json: bool,
) -> None:
    """Fit the model that has a population, into one run directory, and print the result.

    Parameters
    ----------
    obs : list of Path
    skies : sequence of SkyModel
        Models of the command: one.
    run : Path
    refused : mapping
        Values of all options of the command.
    has_ranks : bool
        Whether there are several MPI processes.
    reading : mapping
        Of `biro.read`.
    options : mapping
        Of tempering.
    likelihood : mapping
        Of `biro.Likelihood`.
    seed : int or None
    cache : Path or None
    pictures, as_json : bool

    Raises
    ------
    InputError
        Options that populations do not have.
    """
    from biro.errors import InputError
    from biro.inference.samplers.options import parse_options
    from biro.io.reading import read
    from biro.run.facts import observed_facts
    from biro.source_finding.populations.fit import fit_population

    if refused["sampler"] not in (None, "tempering"):
        raise InputError(
            f"--sampler {refused['sampler']} has a fixed number of sources; leave it out, or compare "
            "numbers: --number 0:8"
        )
    refuse_options(refused, len(skies), has_ranks=has_ranks, what="a population", refused=REFUSED)
    parse_options("tempering", options, 1)
    observation = read(obs, **reading, cache=cache)
    of_engine = {name: value for name, value in likelihood.items() if name not in ("average", "gains")}
    found = fit_population(
        observation, skies[0], run_dir=run, seed=seed, gains=likelihood["gains"],
        facts=observed_facts(obs, reading), **options, **of_engine,
    )  # fmt: skip
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
    if pictures:
        from biro.cli.plot import draw_population

        draw_population(run, found)
    say(f"written into {run}: {', '.join(sorted(path.name for path in run.iterdir()))}")
