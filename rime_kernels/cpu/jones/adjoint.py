"""The gradient of chi2 through beams of Jones matrices: not worked out yet."""

from __future__ import annotations

from rime_kernels.compile.jit import inner_function
from rime_kernels.compile.types import Pointer, Record, Vector


@inner_function
def backward_of(work: Record) -> Vector:
    """Where residuals are stored; None without `work`."""
    if work is None:
        return None
    return work.backward


@inner_function
def begin(work: Record, entry: int) -> None:
    """Note the first entry of the next slot, whose residuals come first in `work.backward`."""
    if work is not None:
        work.backward.first[0] = entry


@inner_function
def pull_slot(
    work: Record, beam: Record, rows: Record, antennas: Record, sky: Record, place: int, entry: int,
    stop: int, terms: Pointer, pair: Pointer, scale: Vector, lane: Vector, like: Vector, eight: Vector,
    total: Vector,
) -> None:  # fmt: skip
    """Nothing yet: `Derivatives` refuses such beams."""
    return
