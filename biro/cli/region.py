"""`biro region`: fluxes of regions of a fitted image, with errors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biro.cli.guard import guard, print_json, say
from biro.cli.options import JsonFlag


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
                "circle(0 mas, 1 mas, 0.5 mas)') or CASA ('circle [[64pix, 64pix], 10pix]')."
            ),
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Print the flux of regions of a fitted image, with its error where the image has samples."""
    from biro.image_posterior.region import parse_region
    from biro.image_posterior.result import read_result

    image = read_result(run)
    fluxes = [image.region(parse_region(text)) for text in regions]
    if as_json:
        print_json({"regions": [flux.to_dict() for flux in fluxes]})
        return
    for line in image.remarks:
        say(line)
    for flux in fluxes:
        typer.echo(str(flux))
