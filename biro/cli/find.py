"""`biro find`: find the sources of a dirty image, and write them as a model file for `biro fit`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biro.cli.guard import guard, print_json, refuse_existing, say
from biro.cli.options import (
    BackendOption,
    CellOption,
    JsonFlag,
    ObservedSets,
    ReadingOptions,
    RobustOption,
    SizeOption,
    WeightingOption,
    reading_words,
    takes_reading_options,
)

if TYPE_CHECKING:
    from biro.models import SkyModel
    from biro.observation.observation import Observation


@guard
@takes_reading_options()
def find(
    obs: ObservedSets,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="MODEL", help="Model file (TOML) to write.")
    ],
    threshold: Annotated[
        float | None,
        typer.Option(
            help=(
                "Stop when the highest peak of the residual image is below this many rms (from the MAD). "
                "Default: stop when a further source does not lower chi2 significantly."
            )
        ),
    ] = None,
    max_sources: Annotated[int, typer.Option(help="Largest number of sources in the model.")] = 50,
    add_circle: Annotated[
        int,
        typer.Option(
            metavar="N", help="After the search, add N circular Gaussians where they lower chi2 most."
        ),
    ] = 0,
    beam: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help=(
                "Model file with the primary beam ([beam]), pointing and feeds to apply. Default: none; the "
                "fluxes are apparent, not corrected for the primary beam."
            ),
        ),
    ] = None,
    posterior: Annotated[
        bool,
        typer.Option(
            "--posterior",
            help=(
                "Write a model in which the number of sources is inferred ([[population]]), with priors that "
                "have the scales of the sources found. `biro fit` then gives each source with the "
                "probability that it exists."
            ),
        ),
    ] = False,
    weighting: WeightingOption = "natural",
    robust: RobustOption = None,
    cell: CellOption = None,
    size: SizeOption = None,
    backend: BackendOption = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace MODEL.")] = False,
    as_json: JsonFlag = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Find sources and write a sky model with priors around them.

    Ctrl-C ends the search and writes the best model found so far.
    """
    from biro.io.reading import read
    from biro.models.files.text import write_text
    from biro.source_finding.find import find_sources

    refuse_existing([output], overwrite)
    instrument = None if beam is None else _instrument(beam)
    observation = read(obs, **reading)
    for line in observation.reading_lines:
        say(line)
    result = find_sources(
        observation,
        threshold=threshold,
        max_sources=max_sources,
        add_circle=add_circle,
        beam=instrument,
        backend=backend,
        weighting=weighting,
        robust=robust,
        cell=cell,
        size=size,
    )
    write_text(output, result.to_toml(population=posterior))
    if as_json:
        print_json(result.to_dict() | {"file": str(output)})
    else:
        typer.echo(str(result))
    if result.fault is not None:
        say(f"written: {output} (best model before the error)")
        raise result.fault
    if result.stopped:
        from biro.run.interrupt import RunInterrupted

        raise RunInterrupted(f"{result.stopped}. The best model so far is in {output}")
    words = reading_words(reading | parallel_hands(observation))
    flag = shlex.split(result.flag_command)
    data = flag[-1:] if "-o" in flag else map(str, obs)  # the flagged copy of a UVFITS file
    commands = [flag, ["biro", "fit", *data, str(output), "-o", "RUN", *words]]
    say(f"written: {output}; next: {' && '.join(map(shlex.join, filter(None, commands)))}")


def _instrument(file: Path) -> SkyModel:
    """What a model file says of the beam; paths in it are absolute, for the model lies elsewhere."""
    from biro.errors import InputError
    from biro.models import read_model

    instrument = read_model(file.resolve())
    if instrument.beam is None:
        raise InputError(f"{file} has no [beam] table, but --beam needs one")
    return instrument


def parallel_hands(observation: Observation) -> dict[str, list[str]]:
    """The reading option that leaves out cross hands, where there are some.

    A fit of unpolarised sources to all correlations would count Stokes Q and U as noise.
    """
    from biro.observation.correlations import share_of_i

    names = list(dict.fromkeys(name for part in observation.partitions for name in part.corr_type))
    parallel = [name for name, share in zip(names, share_of_i(names), strict=True) if share]
    is_left_out = len(parallel) < len(names) and observation.formed is None
    return {"correlations": parallel} if is_left_out else {}
