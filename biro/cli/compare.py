"""`biro compare`: evidences and Bayes factors of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biro.cli.guard import guard, print_json
from biro.cli.options import JsonFlag

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories of `biro fit`.")]


@guard
def compare(runs: Runs, as_json: JsonFlag = False) -> None:
    """Evidences and Bayes factors of runs."""
    from biro.posterior.comparison import compare as compare_posteriors
    from biro.posterior.posterior import Posterior

    table = compare_posteriors({str(run): Posterior.load(run / "posterior.nc") for run in runs})
    if as_json:
        print_json(table.to_dict())
    else:
        typer.echo(str(table))
