"""`biro info`: say what a Measurement Set holds and how noisy it is."""

from __future__ import annotations

import typer

from biro.cli.guard import guard, print_json
from biro.cli.options import JsonFlag, Observed, ReadingOptions, takes_reading_options


@guard
@takes_reading_options()
def info(obs: Observed, as_json: JsonFlag = False, *, reading: ReadingOptions) -> None:
    """Say what a Measurement Set holds and how noisy it is."""
    from biro.measurement_set import read_ms

    summary = read_ms(obs, **reading).summary()
    if as_json:
        print_json(summary.to_dict())
    else:
        typer.echo(str(summary))
