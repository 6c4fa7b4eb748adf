"""The fastest shapes that tuning has measured, in this process and on disk."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import math
from collections.abc import Iterable
from pathlib import Path

from rime_kernels import device
from rime_kernels.compile.sources import source_digest
from rime_kernels.cuda.launch_shapes import tuning_file
from rime_kernels.cuda.launch_shapes.candidates import FAMILIES, all_kinds, fits
from rime_kernels.cuda.launch_shapes.families import Kernel, KernelKind, Shape
from rime_kernels.cuda.launch_shapes.tuning_file import Record

_KEY = ("device", "numba_cuda", "kernels", *KernelKind._fields)


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The fastest shape found for a kind of kernel.

    Attributes
    ----------
    kind : KernelKind
    shape : of the class that `FAMILIES` names
    ms, guess_ms : float
        Milliseconds of a trial in this shape and in the one that an untuned kernel gets (infinite where that
        one did not run): of one chi2 of the synthetic problem, or of a stage of flagging.
    """

    kind: KernelKind
    shape: Shape
    ms: float
    guess_ms: float

    @property
    def gain(self) -> float:
        """How many times faster than untuned."""
        return self.guess_ms / self.ms


@functools.cache
def on_record(path: Path) -> dict[KernelKind, Tuned]:
    """The records for this device and these versions; read once, so that a process stays with them."""
    parsed = (_parsed(record) for record in tuning_file.read(path) or [])
    return {best.kind: best for best in parsed if best is not None}


def remember(best: Tuned) -> None:
    """Keep a record in this process, and on disk where a file can be written."""
    path = tuning_file.location()
    if path is not None:
        on_record(path)[best.kind] = best
        tuning_file.write(path, [_as_record(best)], _KEY)


def saved(records: Iterable[Tuned]) -> Path | None:
    """The file that holds these records; None where they could not be written, or were not to be."""
    path = tuning_file.location()
    on_disk = tuning_file.read(path) if path is not None else None
    if on_disk is None or not all(_as_record(item) in on_disk for item in records):
        return None
    return path


def _as_record(best: Tuned) -> Record:
    """A record as the file holds it."""
    times = {"ms": best.ms, "guess_ms": best.guess_ms if math.isfinite(best.guess_ms) else None}
    return {**here(best.kind.kernel), **best.kind._asdict(), "shape": dataclasses.asdict(best.shape), **times}


def _parsed(record: Record) -> Tuned | None:
    """A record of the file, or None where it is not of a shape that can run, or not for what is here."""
    try:
        named = {**KernelKind._field_defaults, **record}  # older records have fewer fields
        kind = KernelKind(*(named[name] for name in KernelKind._fields))
        fields = record["shape"]
        if kind not in all_kinds() or not here(kind.kernel).items() <= record.items():
            return None
        if not all(type(value) is int for value in fields.values()):
            return None
        shape = FAMILIES[kind.kernel].shape(**fields)
        ms, guess_ms = float(record["ms"]), record["guess_ms"]
        best = Tuned(kind, shape, ms, math.inf if guess_ms is None else float(guess_ms))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return best if fits(kind, shape) else None


@functools.cache
def here(kernel: Kernel) -> dict[str, str]:
    """The device and the versions that a record of a kernel holds for."""
    try:
        version = importlib.metadata.version("numba-cuda")
    except importlib.metadata.PackageNotFoundError:
        version = "none"
    return {
        "device": device.device_name(),
        "numba_cuda": version,
        # The source text tells versions apart, also those between releases.
        "kernels": source_digest(FAMILIES[kernel].sources)[:12],
    }
