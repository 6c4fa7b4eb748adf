"""The shape that a CUDA kernel gets: a forced one, the fastest on record, or a guess."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from rime_kernels import device
from rime_kernels.cuda.kernels.rows.parts import RowShape
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.launch_shapes import cells, records, tuning_file
from rime_kernels.cuda.launch_shapes.candidates import guess
from rime_kernels.cuda.launch_shapes.families import Kernel, KernelKind, Shape
from rime_kernels.cuda.launch_shapes.model import antenna_class
from rime_kernels.inputs import Variant

log = logging.getLogger(__name__)

# A call of fewer source-visibilities takes so little time that a faster shape gains nothing worth mentioning.
_LEAST_WORK = 1e8

forced_shapes: dict[Kernel, Shape] = {}
S = TypeVar("S")


class Size(NamedTuple):
    """How large a problem is: antennas that the rows name, and source-visibilities of a call."""

    n_antenna: int
    work: float


def tile_shape(variant: Variant, has_gaussian: bool, size: Size | None = None) -> TileShape:
    """The shape of the kernel over tiles of antennas, for a problem of this size."""
    shape = _best_shape(kernel_kind("tiles", variant, has_gaussian, size), size)
    assert isinstance(shape, TileShape)
    return shape


def row_shape(variant: Variant, has_gaussian: bool, size: Size | None = None) -> RowShape:
    """The shape of the kernel over rows, for a problem of this size."""
    shape = _best_shape(kernel_kind("rows", variant, has_gaussian, size), size)
    assert isinstance(shape, RowShape)
    return shape


def flagging_shape(kind: KernelKind, of: type[S]) -> S:
    """The shape of a kernel of flagging, and of what class it is."""
    shape = _best_shape(kind, None)
    assert isinstance(shape, of)
    return shape


def cells_of(support: int, n_plane: int, single: bool, *, degrids: bool) -> cells.CellShape:
    """The cells of a thread of W-projection: on record for the class of this support, or estimated."""
    kind = cells.kind_of(support, n_plane, single, degrids=degrids)
    found = _known(kind)
    if found is not None and cells.can_have(found, support, n_plane, single):
        assert isinstance(found, cells.CellShape)
        return found
    return cells.estimated(support, n_plane, single, degrids=degrids)


def kernel_kind(kernel: Kernel, variant: Variant, has_gaussian: bool, size: Size | None) -> KernelKind:
    """What a shape of this kernel is remembered for; a problem of unknown size counts as large."""
    antennas = "any" if kernel == "rows" else antenna_class(size.n_antenna) if size else "many"
    return KernelKind(kernel, variant.single, variant.polarised, has_gaussian, antennas)


@contextmanager
def forced(kernel: Kernel, shape: Shape) -> Iterator[None]:
    """Give this shape to every kernel of this name that is set up inside, whatever is on record."""
    before = dict(forced_shapes)
    forced_shapes[kernel] = shape
    try:
        yield
    finally:
        forced_shapes.clear()
        forced_shapes.update(before)


def _best_shape(kind: KernelKind, size: Size | None) -> Shape:
    """The forced shape, the one on record, or the guess; nothing is measured here."""
    found = _known(kind)
    if found is not None:
        return found
    if tuning_file.location() is None or device.simulated():
        return guess(kind)
    if size is not None and size.work >= _LEAST_WORK and not forced_shapes:
        recommend_tuning(device.device_name())
    return guess(kind)


def _known(kind: KernelKind) -> Shape | None:
    """The forced shape, or the one on record; none of these in the simulator, whose blocks are small."""
    if kind.kernel in forced_shapes:
        return forced_shapes[kind.kernel]
    path = tuning_file.location()
    if path is None or device.simulated():
        return None
    best = records.on_record(path).get(kind)
    return None if best is None else best.shape


@functools.cache
def recommend_tuning(device_name: str) -> None:
    """Say once in a process that shapes have not been measured here."""
    log.info("kernels have not been tuned on %s: `biro tune` may find faster shapes for them", device_name)
