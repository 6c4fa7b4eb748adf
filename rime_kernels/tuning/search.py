"""Measure which shapes of the CUDA kernels are fastest on this machine, and remember them.

A shape says how a kernel is divided among threads and shared memory. Every shape gives the right answer, to
the rounding of its own order of sums, and flags to the bit: tuning saves time and nothing else. What is
measured is one chi2 of a small synthetic problem, a stage of flagging, or a prediction or an image, from one
shape to its neighbours as long as that becomes faster. There is nothing to tune on the CPU.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import TypeAlias

from rime_kernels import check, device
from rime_kernels.choices import Precision
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.cuda.kernels.tiles.tensor_cores import available
from rime_kernels.cuda.launch_shapes import choice, records
from rime_kernels.cuda.launch_shapes.candidates import all_kinds, guess, neighbours
from rime_kernels.cuda.launch_shapes.families import KernelKind, Shape
from rime_kernels.cuda.launch_shapes.records import Tuned
from rime_kernels.cuda.launch_shapes.tensor_core_shapes import forced_tensor_cores
from rime_kernels.errors import BackendError
from rime_kernels.tuning import trial

log = logging.getLogger(__name__)

# A quick search of one kernel starts no further trial after so many seconds.
_QUICK_SECONDS = 8.0
# A shape replaces another that is slower by more than this share: less is noise.
_GAIN = 0.02
# The longest walk from the guess, in steps.
_MAX_STEP = 4

Search: TypeAlias = Callable[[KernelKind], Tuned | None]
Each: TypeAlias = Callable[[Search, list[KernelKind]], Iterable[Tuned | None]]
"""What does a search for each kind of kernel, in any order, as `map` does."""


def tune(precision: Precision | None = None, *, quick: bool = False, each: Each = map) -> list[Tuned]:
    """Measure the shapes of all kernels on this machine's GPU, and remember the best.

    Nearly all the time goes to the compiler: with one process about 100 s a kernel, an hour in all.

    Parameters
    ----------
    precision : "single" or "double", optional
        Only kernels of this precision.
    quick : bool
        Measure only the neighbours of the guessed shape, and only a few of these.
    each : function of a search and the kinds of kernels
        Does the search for each kind, and gives the results in any order. Processes may share the kinds,
        at most `rime_kernels.tuning.most_processes()`: while one measures, the others compile or wait.
        Default: this process does all.

    Returns
    -------
    list of Tuned
        Without the kernels of which no shape could run.

    Raises
    ------
    BackendError
        There is no GPU.
    InputError
        Another precision than these two.
    """
    if precision is not None:
        check.one_of("precision", precision, ("single", "double"))
    backend, reason = device.resolve("auto")
    if backend != "cuda":
        raise BackendError(f"there is nothing to tune: {reason}")
    # In single precision tensor cores do W-projection where the device has them.
    kinds = [kind for kind in all_kinds(precision) if not (kind.support and kind.single and available())]
    fastest = list[Tuned]()
    with tempfile.NamedTemporaryFile(prefix="biro-") as clock:
        patience, max_step = (_QUICK_SECONDS, 1) if quick else (math.inf, _MAX_STEP)
        search = functools.partial(fastest_shape, patience=patience, max_step=max_step, clock=clock.name)
        for best in each(search, kinds):
            if best is not None:
                records.remember(best)
                fastest.append(best)
    return sorted(fastest, key=lambda best: kinds.index(best.kind))


def table(tuned: Iterable[Tuned]) -> str:
    """The shapes and times of some records, as a table in plain text."""
    lines = [("kernel", "shape", "ms", "gain")]
    for item in tuned:
        shape = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(item.shape).items())
        gain = f"{item.gain:.2f}" if math.isfinite(item.gain) else "-"
        lines.append((str(item.kind), shape, f"{item.ms:.3g}", gain))
    lines.append(("CPU, any", "nothing to tune", "-", "-"))
    widths = [max(len(line[k]) for line in lines) for k in range(4)]
    return "\n".join(
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}" for a, b, c, d in lines
    )


def fastest_shape(kind: KernelKind, *, patience: float, max_step: int, clock: str) -> Tuned | None:
    """Walk from the guess to the fastest neighbour, and on from there; None where no shape runs."""
    with CALL_LOCK:  # other calls would disturb the clock, and would get the shapes on trial
        return _walk(kind, patience, max_step, clock)


def _walk(kind: KernelKind, patience: float, max_step: int, clock: str) -> Tuned | None:
    start = time.perf_counter()
    times = {guess(kind): _trial(kind, guess(kind), clock)}
    best = guess(kind)
    for _ in range(max_step):
        centre = best
        for shape in neighbours(kind, centre):
            if time.perf_counter() - start > patience:
                break
            if shape not in times:
                times[shape] = _trial(kind, shape, clock)
            if times[shape] < (1.0 - _GAIN) * times[best]:
                best = shape
        if best == centre:
            break
    if not math.isfinite(times[best]):
        log.warning("%s: no shape could be measured", kind)
        return None
    return Tuned(kind, best, times[best], times[guess(kind)])


def _trial(kind: KernelKind, shape: Shape, clock: str) -> float:
    """Milliseconds of the synthetic problem in this shape; infinite where it does not run."""
    try:
        with choice.forced(kind.kernel, shape), forced_tensor_cores(None):  # which have shapes of their own
            ms = trial.milliseconds(kind, clock)
    except Exception as error:  # the compiler and the driver raise exceptions of their own
        log.debug("%s: %s is dropped (%s)", kind, shape, error)
        return math.inf
    log.debug("%s: %s takes %.3g ms", kind, shape, ms)
    return ms
