"""Good shapes to begin with: what an untuned CUDA kernel gets, and where tuning starts."""

from __future__ import annotations

from rime_kernels import device
from rime_kernels.cuda.kernels.rows.parts import RowShape
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.shapes.candidates import KernelKind, Shape, fitted
from rime_kernels.cuda.shapes.transposition import TransposeShape


def guess(kind: KernelKind) -> Shape:
    """The shape of an untuned kernel, from measurements on a few devices."""
    if kind.kernel == "transposition":
        return TransposeShape(side=4, n_each=2) if device.simulated() else TransposeShape()
    return _row_guess(kind) if kind.kernel == "rows" else _tile_guess(kind)


def _tile_guess(kind: KernelKind) -> TileShape:
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


def _row_guess(kind: KernelKind) -> RowShape:
    if device.simulated():
        return RowShape(16, 4)
    return RowShape(128, 8 if kind.single else 4)
