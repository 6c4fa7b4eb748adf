"""`biro find`: sources by themselves, as a model file for `biro fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from biro.cli_options import (
    Backend,
    BackendOption,
    CellOption,
    JsonFlag,
    Observed,
    RobustOption,
    SizeOption,
    Weighting,
    WeightingOption,
    guard,
    print_json,
    refuse_existing,
    say,
    takes_reading_options,
)


@guard
@takes_reading_options()
def find(
    obs: Observed,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="MODEL", help="Model file (TOML) to write.")
    ],
    threshold: Annotated[float, typer.Option(help="Of peaks, in robust rms of what is left.")] = 5.0,
    max_sources: Annotated[int, typer.Option(help="At most.")] = 10,
    weighting: WeightingOption = Weighting.natural,
    robust: RobustOption = 0.0,
    cell: CellOption = None,
    size: SizeOption = None,
    backend: BackendOption = Backend.auto,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace MODEL.")] = False,
    as_json: JsonFlag = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Find sources, and propose a sky model with priors around them."""
    from biro.find import find_sources
    from biro.measurement_set import read_ms
    from biro.run import write_atomic

    refuse_existing([output], overwrite)
    found = find_sources(
        read_ms(obs, **reading),
        threshold=threshold,
        max_sources=max_sources,
        backend=backend.value,
        weighting=weighting.value,
        robust=robust,
        cell=cell,
        n_pixel=size,
    )
    try:
        write_atomic(output, found.to_toml().encode())
    except OSError as error:
        from biro.errors import InputError

        raise InputError(f"{output} cannot be written: {error.strerror}") from None
    if as_json:
        print_json(found.to_dict() | {"file": str(output)})
    else:
        typer.echo(str(found))
    say(f"written: {output}; next: biro fit {obs} {output} -o RUN")
