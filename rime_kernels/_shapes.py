"""How kernels are cut on a device: good guesses, and what tuning has found better."""

from __future__ import annotations

from rime_kernels import device
from rime_kernels._inputs import Variant
from rime_kernels._row_cuda import RowShape
from rime_kernels._tile_cuda import TileShape


def tile_shape(variant: Variant, has_gaussian: bool) -> TileShape:
    """The shape of the kernel over tiles of antennas."""
    if device.simulated():
        return TileShape(2, 16, 4, 16, 4)
    if not variant.single:
        return TileShape(2, 192, 8, 96, 8, 160)
    if not variant.polarised:
        return TileShape(4, 160, 16, 96, 8)
    return TileShape(3, 256, 8 if has_gaussian else 16, 96, 8, 128)


def row_shape(variant: Variant, has_gaussian: bool) -> RowShape:
    """The shape of the kernel over rows."""
    if device.simulated():
        return RowShape(16, 4)
    return RowShape(128, 8 if variant.single else 4)
