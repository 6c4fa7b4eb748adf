"""Tuning: which shape of a CUDA kernel is fastest here, measured once and remembered.

A shape says how a kernel is cut (tiles, threads, what lies in shared memory). Every shape gives the right
answer, to the rounding of its own order of sums: tuning saves time and nothing else. Measured is
one chi2 of a small synthetic problem, from shape to neighbouring shape as long as it gets better.
There is nothing to tune on the CPU.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rime_kernels import check, device
from rime_kernels.compile.cache import source_digest
from rime_kernels.cuda.shapes import file
from rime_kernels.cuda.shapes.candidates import Kind, all_kinds, antenna_class, fits, neighbours
from rime_kernels.errors import BackendError
from rime_kernels.geometry import Precision

log = logging.getLogger(__name__)

# A call of fewer source-visibilities takes no time worth gaining.
_LEAST_WORK = 1e8
# A call that meets a kernel for the first time waits for no further trial after so many seconds.
_PATIENCE = 8.0
# A shape replaces another that is slower by more than this: less is noise.
_GAIN = 0.02
# The longest walk from the guess, in steps.
_MAX_STEP = 4
_KEY = ("device", "numba_cuda", "kernels", *Kind._fields)

S = TypeVar("S")
Watch = Callable[[list[Kind]], Iterable[Kind]]


class Size(NamedTuple):
    """How large a problem is: antennas that rows name, and source-visibilities of a call."""

    n_antenna: int
    work: float


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The fastest shape found for a kind.

    Attributes
    ----------
    kind : Kind
    shape : TileShape or RowShape
    ms, guess_ms : float
        Time of one chi2 of the synthetic problem, in this shape and in the one that is taken untuned
        (infinite where that one did not run).
    """

    kind: Kind
    shape: Any
    ms: float
    guess_ms: float

    @property
    def gain(self) -> float:
        """How many times faster than untuned."""
        return self.guess_ms / self.ms


def tune(precision: Precision | None = None, *, quick: bool = False, watch: Watch = list) -> list[Tuned]:
    """Measure the shapes of all kernels on this machine's GPU, and remember the best.

    Compiling takes most of the time, about 3 s a shape: some minutes in all.

    Parameters
    ----------
    precision : "single" or "double", optional
        Kernels of this precision alone.
    quick : bool
        Only the neighbours of what would be taken untuned, and of these few.
    watch : callable
        Gets the list of what is to be tuned and hands it on one by one, as `tqdm` does.

    Returns
    -------
    list of Tuned
        A kernel of which no shape could run is left out.

    Raises
    ------
    BackendError
        There is no GPU.
    InputError
        No such precision.
    """
    from rime_kernels.rime import _LOCK

    if precision is not None:
        check.one_of("precision", precision, ("single", "double"))
    chosen, reason = device.resolve("auto")
    if chosen != "cuda":
        raise BackendError(f"there is nothing to tune: {reason}")
    found = []
    for kind in watch(all_kinds(precision)):
        with _LOCK:
            best = _search(kind, _PATIENCE if quick else math.inf, 1 if quick else _MAX_STEP)
        if best is not None:
            _remember(best)
            found.append(best)
    return found


def table(records: Iterable[Tuned]) -> str:
    """What was found, as text."""
    lines = [("kernel", "shape", "ms", "gain")]
    for item in records:
        shape = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(item.shape).items())
        gain = f"{item.gain:.2f}" if math.isfinite(item.gain) else "-"
        lines.append((str(item.kind), shape, f"{item.ms:.3g}", gain))
    lines.append(("CPU, any", "nothing to tune", "-", "-"))
    widths = [max(len(line[k]) for line in lines) for k in range(4)]
    return "\n".join(
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}" for a, b, c, d in lines
    )


def saved(records: Iterable[Tuned]) -> Path | None:
    """The file that holds these records; None where they could not be written, or were not to be."""
    path = file.location()
    kept = file.read(path) if path is not None else None
    return path if kept is not None and all(_as_record(item) in kept for item in records) else None


def best_shape(kind: Kind, guess: S, work: float) -> S:
    """The shape that is on record, or else the guess.

    A kernel without a record is tuned now, quickly, where a call is large enough to gain by it.
    """
    if kind.kernel in _forced:
        shape: S = _forced[kind.kernel]
        return shape
    path = file.location()
    if path is None or device.simulated():
        return guess
    records = _records(path)
    if kind not in records and work >= _LEAST_WORK and kind not in _tried and not _forced:
        _tried.add(kind)
        log.info("%s: measuring which shape is fastest here; biro tune does it ahead, for all", kind)
        best = _search(kind, _PATIENCE, 1)
        if best is not None:
            log.info("%s: %s, %.2f times as fast as untuned", kind, best.shape, best.gain)
            _remember(best)
    return records[kind].shape if kind in records else guess


@contextmanager
def forced(kernel: str, shape: Any) -> Iterator[None]:
    """Every kernel of this sort that is set up inside has this shape, whatever is on record."""
    before = dict(_forced)
    _forced[kernel] = shape
    try:
        yield
    finally:
        _forced.clear()
        _forced.update(before)


# By sort of kernel; and what was tuned, or could not be, in this process.
_forced: dict[str, Any] = {}
_tried: set[Kind] = set()


def _search(kind: Kind, patience: float, max_step: int) -> Tuned | None:
    """Walk from the guess to the best neighbour, and on from there; None where nothing runs."""
    from rime_kernels.cuda.shapes.choice import guess

    start = time.perf_counter()
    times = {guess(kind): _trial(kind, guess(kind))}
    best = guess(kind)
    for _ in range(max_step):
        centre = best
        for shape in neighbours(kind, centre):
            if time.perf_counter() - start > patience:
                break
            if shape not in times:
                times[shape] = _trial(kind, shape)
            if times[shape] < (1.0 - _GAIN) * times[best]:
                best = shape
        if best == centre:
            break
    if not math.isfinite(times[best]):
        log.warning("%s: no shape could be measured", kind)
        return None
    return Tuned(kind, best, times[best], times[guess(kind)])


def _trial(kind: Kind, shape: Any) -> float:
    """Milliseconds of the synthetic problem in this shape; infinite where it does not run."""
    try:
        with forced(kind.kernel, shape):
            ms = _milliseconds(kind)
    except Exception as error:  # compiler and driver have kinds of their own
        log.debug("%s: %s is dropped (%s)", kind, shape, error)
        return math.inf
    log.debug("%s: %s takes %.3g ms", kind, shape, ms)
    return ms


def _milliseconds(kind: Kind) -> float:
    from rime_kernels import trial

    return trial.milliseconds(kind)


def _remember(best: Tuned) -> None:
    """In this process, and on disk where that can be."""
    path = file.location()
    if path is not None:
        _records(path)[best.kind] = best
        file.write(path, [_as_record(best)], _KEY)


def _as_record(best: Tuned) -> dict[str, Any]:
    """As it stands in the file."""
    times = {"ms": best.ms, "guess_ms": best.guess_ms if math.isfinite(best.guess_ms) else None}
    return {**_here(), **best.kind._asdict(), "shape": dataclasses.asdict(best.shape), **times}


@functools.cache
def _records(path: Path) -> dict[Kind, Tuned]:
    """What is on record for this device and these versions; read once, so that a process stays with it."""
    here, found = _here(), {}
    for record in file.read(path) or []:
        if here.items() <= record.items():
            best = _parsed(record)
            if best is not None:
                found[best.kind] = best
    return found


def _parsed(record: dict[str, Any]) -> Tuned | None:
    """A record of the file, looked at: None where it cannot be meant."""
    from rime_kernels.cuda.shapes.choice import guess

    try:
        kind = Kind(*(record[name] for name in Kind._fields))
        fields = record["shape"]
        if kind not in all_kinds() or not all(type(value) is int for value in fields.values()):
            return None
        shape = type(guess(kind))(**fields)
        ms, guess_ms = float(record["ms"]), record["guess_ms"]
        best = Tuned(kind, shape, ms, math.inf if guess_ms is None else float(guess_ms))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return best if fits(kind, shape) else None


@functools.cache
def _here() -> dict[str, str]:
    """The device and the versions that a record holds for."""
    try:
        version = importlib.metadata.version("numba-cuda")
    except importlib.metadata.PackageNotFoundError:
        version = "none"
    # The source text tells versions apart, those between releases too.
    return {
        "device": device.device_name(),
        "numba_cuda": version,
        "kernels": source_digest("cuda/**/*.py")[:12],
    }


def kind_of(kernel: Any, variant: Any, has_gaussian: bool, size: Size | None) -> Kind:
    """The kind of a kernel's variant; problems of unknown size are taken for large."""
    antennas = "any" if kernel == "rows" else antenna_class(size.n_antenna) if size else "many"
    return Kind(kernel, variant.single, variant.polarised, has_gaussian, antennas)
