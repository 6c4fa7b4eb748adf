"""`biro info`: what a data set holds."""

from __future__ import annotations

import typer

from biro.cli.guard import guard, print_json
from biro.cli.options import JsonFlag, ObservedSets, ReadingOptions, takes_reading_options


@guard
@takes_reading_options()
def info(obs: ObservedSets, as_json: JsonFlag = False, *, reading: ReadingOptions) -> None:
    """Say what a data set holds and how noisy it is."""
    from biro.reading import read

    summary = read(obs, **reading).summary()
    if as_json:
        print_json(summary.to_dict())
    else:
        typer.echo(str(summary))
