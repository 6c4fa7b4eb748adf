"""`biro tune`: measure which shapes of the CUDA kernels are fastest on this machine, and store them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from biro.cli.guard import guard, say
from rime_kernels.choices import Precision

if TYPE_CHECKING:
    from rime_kernels.cuda.launch_shapes.families import KernelKind
    from rime_kernels.tuning import Search, Tuned


@guard
def tune(
    precision: Annotated[
        Precision | None, typer.Option(help="Tune the kernels of this precision only. Default: both.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Try fewer shapes: some seconds per kernel instead of a minute."),
    ] = False,
) -> None:
    """Tune the GPU kernels for this machine, and store the result.

    biro measures which block shapes make each kernel fastest, and uses these from then on. Results change by
    rounding errors only, flags not at all. Without `biro tune`, kernels use default shapes. biro compiles
    several kernels side by side, as far as the cores and the GPU memory allow, and measures one at a time.
    """
    from rime_kernels import device, tuning

    chosen, reason = device.resolve("auto")
    if chosen != "cuda":
        typer.echo(f"nothing to tune: {reason}")
        return
    say(f"tuning for {device.device_name()}")
    records = tuning.tune(precision if precision else None, quick=quick, each=_in_processes)
    typer.echo(tuning.table(records))
    place = tuning.saved(records)
    say(
        f"written to {place}" if place else "not written, so later runs will not use it (is BIRO_TUNING off?)"
    )


def _in_processes(search: Search, kinds: list[KernelKind]) -> Iterator[Tuned | None]:
    """The results of all searches, as they come."""
    from biro.display.progress import counted
    from biro.distributed.tasks.cores import n_core
    from biro.distributed.tasks.lost import LostTask
    from biro.distributed.tasks.run import run_tasks
    from biro.run.interrupt import StopFlag
    from rime_kernels import tuning

    n_worker = min(n_core(), tuning.most_processes())
    found = run_tasks(search, {str(kind): kind for kind in kinds}, n_worker, StopFlag())
    for best in counted(found, "tuning", "kernels", len(kinds)):
        if isinstance(best, LostTask):
            say(best.why)
        else:
            yield best
