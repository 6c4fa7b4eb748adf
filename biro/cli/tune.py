"""`biro tune`: measure which shapes of the CUDA kernels are fastest on this machine, and store them."""

from __future__ import annotations

from typing import Annotated

import typer

from biro.cli.guard import guard, say
from biro.cli.options import Precision


@guard
def tune(
    precision: Annotated[
        Precision | None, typer.Option(help="Tune kernels of this precision only. Default: both.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Try few shapes, for some seconds a kernel, not for a minute."),
    ] = False,
) -> None:
    """Measure which shapes of the GPU's kernels are fastest on this machine, and store them.

    The shapes change results by rounding errors only, and flags not at all. Without `biro tune`, kernels have
    shapes that are good guesses.
    """
    from biro.progress import counted
    from rime_kernels import device, tuning

    chosen, reason = device.resolve("auto")
    if chosen != "cuda":
        typer.echo(f"nothing to tune: {reason}")
        return
    say(f"tuning for {device.device_name()}")
    records = tuning.tune(
        precision.value if precision else None,
        quick=quick,
        watch=lambda kinds: counted(kinds, "tuning", "kernels", len(kinds)),
    )
    typer.echo(tuning.table(records))
    place = tuning.saved(records)
    say(f"written to {place}" if place else "not written, so it is not used later (is BIRO_TUNING off?)")
