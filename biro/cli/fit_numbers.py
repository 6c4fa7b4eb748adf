"""`biro fit --number`: the numbers of sources to compare, and what is printed of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from biro.cli.guard import after_result, print_json, say

if TYPE_CHECKING:
    from biro.models.sky import SkyModel
    from biro.observation.observation import Observation

PICTURE = "numbers.png"
"""The picture of the probabilities, in the directory above those of the fits."""


def check(
    numbers: Sequence[int],
    skies: Mapping[str, SkyModel],
    sampler: str | None,
    options: Mapping[str, object],
    others: Mapping[str, bool],
) -> None:
    """Refuse what does not go with --number, before any data are read.

    Parameters
    ----------
    numbers : sequence of int
    skies : mapping of str to SkyModel
        Models of the command.
    sampler : str or None
    options : mapping
        Of the sampler.
    others : mapping of str to bool
        Options that exclude --number, and whether they are given.

    Raises
    ------
    InputError
        For the first reason.
    """
    from biro.errors import InputError
    from biro.many_fits.fit_numbers import check_asked

    (sky, *more) = skies.values()
    others = {**others, "several models": bool(more), "an image with a prior": bool(sky.image_priors)}
    for name, is_given in others.items():
        if is_given:
            raise InputError(f"--number and {name} exclude each other: leave out one of them")
    check_asked(sky, numbers, sampler, options)


def read_numbers(text: str) -> range:
    """The numbers of "0:8", both ends included.

    Raises
    ------
    InputError
        Another text.
    """
    from biro.errors import InputError

    match = re.fullmatch(r"(\d{1,4}):(\d{1,4})", text.strip())
    if match is None or int(match[1]) >= int(match[2]):
        raise InputError(f"--number: expected the lowest and the highest number, such as 0:8, got {text!r}")
    return range(int(match[1]), int(match[2]) + 1)


def fit_several(
    observation: Observation,
    sky: SkyModel,
    numbers: Sequence[int],
    run: Path,
    *,
    pictures: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Fit each number of sources into RUN/K, and print the probability of each.

    Parameters
    ----------
    observation : Observation
    sky : SkyModel
    numbers : sequence of int
    run : Path
    pictures, as_json : bool
    **given
        Of `biro.fit_numbers`.
    """
    from biro.files.atomic import write_figure
    from biro.many_fits.fit_numbers import TABLE, fit_numbers
    from biro.run.environment import plain_pictures

    table = fit_numbers(observation, sky, numbers, run_dir=run, **given)
    if as_json:
        print_json(table.to_dict())
    else:
        typer.echo(str(table))
    if pictures:
        with after_result(f"{run / TABLE} is written", "repeat the command"):
            plain_pictures()
            from biro.plots.numbers import numbers as draw_numbers

            write_figure(run / PICTURE, draw_numbers(table), dpi=300)
    say(f"written into {run}: {TABLE}{f', {PICTURE}' * pictures}; pictures of a fit: biro plot {run}/K")
