"""`biro region`: fluxes of regions of a fitted image with errors, and profiles along lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biro.cli.guard import guard, print_json, refuse_existing, say
from biro.cli.options import JsonFlag
from biro.run.environment import plain_pictures

if TYPE_CHECKING:
    from biro.image_posterior.results.profile import Profile

SUFFIXES = (".csv", ".png")
"""Files of a profile."""


@guard
def region(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run directory of an image that `biro fit` has fitted.")
    ],
    regions: Annotated[
        list[str],
        typer.Argument(
            metavar="REGION...",
            help=(
                "Region as in DS9 ('icrs; circle(ra, dec, r)', 'image; box(x, y, w, h, angle)', 'offset; "
                "circle(0 mas, 1 mas, 0.5 mas)') or CASA ('circle [[64pix, 64pix], 10pix]'). A line ("
                "'offset; line(0 mas, 0 mas, 5 mas, 2 mas)') gives the profile along it."
            ),
        ),
    ],
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the profile of the line: a table as .csv, a picture as .png. Repeatable.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the flux of regions of a fitted image, and its profile along lines.

    Both have errors where the image has samples.
    """
    from biro.image_posterior.results.region import parse_region
    from biro.image_posterior.results.result import read_result

    shapes = [parse_region(text) for text in regions]
    lines = [shape for shape in shapes if shape.is_line]
    _check_output(output or [], len(lines), overwrite=overwrite)
    image = read_result(run)
    fluxes = [image.region(shape) for shape in shapes if not shape.is_line]
    # Of frames, whose remarks stand above all.
    curves = [replace(image.movie.region(one.text), remarks=()) for one in fluxes if "frames" in image.arrays]
    profiles = [image.profile(shape) for shape in lines]
    for path in output or []:
        _write(profiles[0], path)
    if as_json:
        found = {"regions": [one.to_dict() for one in fluxes]}
        found["profiles"] = [one.to_dict() for one in profiles]
        print_json(found | ({"light_curves": [one.to_dict() for one in curves]} if curves else {}))
        return
    for line in image.remarks:
        say(line)
    for flux in fluxes:
        typer.echo(str(flux))
    for curve in curves:
        typer.echo(str(curve))
    for profile in profiles:
        typer.echo(profile.text)
        typer.echo(str(replace(profile, remarks=())))
    if output:
        say(f"written: {', '.join(str(path) for path in output)}")


def _check_output(output: list[Path], n_line: int, *, overwrite: bool) -> None:
    """Refuse files that no profile can be written into, before work is done."""
    from biro.errors import InputError

    if output and n_line != 1:
        raise InputError(f"--output takes the profile of one line, found {n_line} lines")
    for path in output:
        if path.suffix not in SUFFIXES:
            raise InputError(f"{path}: expected a name that ends with {', '.join(SUFFIXES)}")
    refuse_existing(output, overwrite)


def _write(profile: Profile, path: Path) -> None:
    """Write the table or the picture of a profile."""
    from biro.files.atomic import write_atomic, write_figure

    if path.suffix == ".csv":
        write_atomic(path, profile.csv().encode())
        return
    plain_pictures()
    write_figure(path, profile.plot(), dpi=150)
