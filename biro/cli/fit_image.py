"""`biro fit` of a model with an image that has a prior: its options, and what it prints."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from biro.cli.guard import print_json, say
from biro.cli.options import ReadingOptions, SamplerOptions

if TYPE_CHECKING:
    from biro.models import SkyModel

ONE = "leave it out: an image is fitted to all data together, in one run"
REFUSED: dict[str, tuple[object, str]] = {
    "sampler": (None, "leave it out: images have engines of their own (--set method=geovi)"),
    "compare": (False, "fit each image with --set elbo=1, and write biro compare RUN RUN"),
    "precision": ("double", "leave it out: images are predicted in double precision"),
    "gaussian_frame": ("tangent", "leave it out: Gaussians beside an image lie in the tangent plane"),
    "smearing": ("auto", "leave it out: images are not smeared; average the data less, or flag channels"),
    "average": ("none", "write --average-time and --average-channels, which average while reading"),
    "devices": (None, "leave it out: images are fitted on one GPU"),
    "cache": (None, "leave it out: the data of an image are kept in memory"),
    "each": (False, ONE),
    "workers": (None, ONE),
}
"""Options of `biro fit` that images do not have: their defaults, and what to do."""


def refuse_options(
    given: Mapping[str, object],
    n_model: int,
    *,
    has_ranks: bool,
    what: str = "an image with a prior",
    refused: Mapping[str, tuple[object, str]] = REFUSED,
) -> None:
    """Refuse what the fit of an image, or of a population, cannot do.

    Parameters
    ----------
    given : mapping of str to object
        Values of the options in `refused`, by their names.
    n_model : int
        Models of the command.
    has_ranks : bool
        Whether there are several MPI processes.
    what : str
        What is fitted.
    refused : mapping of str to (object, str)
        Options that it does not have: their defaults, and what to do.

    Raises
    ------
    InputError
        For the first such option, several models, or MPI.
    """
    from biro.errors import InputError

    for name, (default, remedy) in refused.items():
        if given[name] != default:
            option = "--" + name.replace("_", "-")
            value = "" if given[name] is True else f" {given[name]}"
            raise InputError(f"{option}{value} is not available for {what}; {remedy}")
    if n_model > 1:
        raise InputError(f"{n_model} models, one of which has {what}; fit it in a command of its own")
    if has_ranks:
        raise InputError(f"{what} is fitted by one process; start biro without mpiexec")


def fit_one(
    obs: list[Path],
    sky: SkyModel,
    run: Path,
    *,
    reading: ReadingOptions,
    options: SamplerOptions,
    as_json: bool,
    **given: Any,
) -> None:
    """Fit the image of a model that has a prior, into one run directory, and print the result.

    Parameters
    ----------
    obs : list of Path
    sky : SkyModel
    run : Path
    reading : mapping
        Of `biro.read`.
    options : mapping
        Of the engine.
    as_json : bool
    **given
        Of `biro.fit_image`.

    Raises
    ------
    InputError
        Options of the engine that are arguments of `biro.fit_image`, which would replace those.
    """
    from biro.errors import InputError
    from biro.image_posterior.fit import fit_image
    from biro.io.reading import read
    from biro.run.environment import plain_pictures
    from biro.run.facts import observed_facts

    taken = sorted(options.keys() & set(inspect.signature(fit_image).parameters))
    if taken:
        raise InputError(f"--set {taken[0]} is no option of an engine of images; write --{taken[0]}, if any")
    observation = read(obs, **reading)
    plain_pictures()
    made = fit_image(observation, sky, run_dir=run, facts=observed_facts(obs, reading), **given, **options)
    if as_json:
        print_json(made.to_dict())
    else:
        typer.echo(str(made))
    say(f"written into {run}: {', '.join(sorted(path.name for path in run.iterdir()))}")
