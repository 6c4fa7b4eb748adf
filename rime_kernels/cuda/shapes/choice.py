"""How kernels are cut on a device: good guesses, and what tuning has found better."""

from __future__ import annotations

from rime_kernels import device, tuning
from rime_kernels.cuda.kernels.row_parts import RowShape
from rime_kernels.cuda.kernels.tile_parts import TileShape
from rime_kernels.cuda.shapes.candidates import Kind, fitted
from rime_kernels.inputs import Variant


def tile_shape(variant: Variant, has_gaussian: bool, size: tuning.Size | None = None) -> TileShape:
    """The shape of the kernel over tiles of antennas; `size` of the problem, where tuning may ask for it."""
    kind = tuning.kind_of("tiles", variant, has_gaussian, size)
    return tuning.best_shape(kind, _tile_guess(kind), size.work if size else 0.0)


def row_shape(variant: Variant, has_gaussian: bool, size: tuning.Size | None = None) -> RowShape:
    """The shape of the kernel over rows."""
    kind = tuning.kind_of("rows", variant, has_gaussian, size)
    return tuning.best_shape(kind, _row_guess(kind), size.work if size else 0.0)


def guess(kind: Kind) -> TileShape | RowShape:
    """What is taken untuned."""
    return _row_guess(kind) if kind.kernel == "rows" else _tile_guess(kind)


def _tile_guess(kind: Kind) -> TileShape:
    if device.simulated():
        return TileShape(2, 16, 4, 16, 4)
    antennas = kind.antennas
    if not kind.single and antennas == "many":
        shape = TileShape(3, 128, 8, 66, 8) if kind.polarised else TileShape(4, 160, 8, 64, 8)
    elif not kind.single:
        shape = TileShape(2, 192 if antennas == "most" else 128, 8, 64, 8, 160)
    elif not kind.polarised:
        shape = TileShape(2, 64, 8, 64, 8) if antennas == "fewest" else TileShape(5, 96, 24, 65, 8)
    elif antennas == "fewest":
        shape = TileShape(2, 192, 8, 96, 16, 96)
    else:
        shape = TileShape(3, 128 if antennas == "most" else 256, 8 if kind.has_gaussian else 16, 96, 8, 128)
    return fitted(kind, shape)


def _row_guess(kind: Kind) -> RowShape:
    if device.simulated():
        return RowShape(16, 4)
    return RowShape(128, 8 if kind.single else 4)
