"""When matrix units sum the point sources, and how their kernel is cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from rime_kernels import device
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.kernels.tiles.units import N_COLUMN, N_ROW
from rime_kernels.cuda.tile_table import Bundle
from rime_kernels.inputs import Variant

# Antennas on each side of a tile.
_SIDE = 2
# Tiles that rows fill by less than this lose to other kernels.
LEAST_UNIT_FILL = 0.3
# Fewer points than these, or fewer antennas, are summed faster by the other kernels.
LEAST_UNIT_ANTENNAS, _LEAST_POINTS = 24, 12
# Devices with instructions for both precisions.
_CAPABILITY = (8, 0)
# Threads of a block, registers of a multiprocessor, and the most that one thread needs.
_MAX_THREAD, _REGISTERS, _MOST = 320, 65536, 200
# Slots of a block, and units of each: their operands take no more than 140 KiB.
_MAX_SLOT, _UNITS = 112, 8

_forced: list[TileShape] = []


def units_pay(variant: Variant, n_point: int, n_shape: int) -> bool:
    """Whether matrix units may sum the points of such a model faster than other kernels."""
    if not variant.factored or variant.jones_beam or n_shape:
        return False
    if _forced:
        return True
    return not device.simulated() and n_point >= _LEAST_POINTS and device.capability() >= _CAPABILITY


def unit_shape() -> TileShape:
    """The most that a block may have."""
    return _forced[-1] if _forced else TileShape(_SIDE, _MAX_THREAD, 8, _MAX_SLOT, 1, 0, _UNITS, 2)


def unit_bundle(shape: TileShape) -> Bundle:
    """The tiles of a warp."""
    width = N_COLUMN // _SIDE
    return Bundle(N_ROW // _SIDE, shape.n_own * width, width)


def fitted_units(shape: TileShape, n_tile: int, n_slot: int) -> TileShape:
    """The shape of a kernel whose splits have so many tiles and slots."""
    n_lane = n_tile // shape.n_own
    n_item = max(1, min(shape.n_thread // n_lane, shape.n_slot // n_slot))
    n_thread = n_item * n_lane
    register = shape.max_register or min(_MOST, _REGISTERS // n_thread // 8 * 8)
    return dataclasses.replace(
        shape, n_thread=n_thread, n_slot=n_item * n_slot, n_item=n_item, max_register=register
    )


@contextmanager
def forced_units(shape: TileShape) -> Iterator[None]:
    """Take matrix units, cut so, wherever a kernel for them exists."""
    _forced.append(shape)
    try:
        yield
    finally:
        _forced.pop()
