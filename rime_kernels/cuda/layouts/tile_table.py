"""Rows in tiles of antennas: tables for a kernel whose threads keep a tile's sums in registers.

A tile is a group of `side` antennas against another such group (or itself), at one time and
channel. A row lies in the tile of its two antennas; rows that meet there (a baseline that occurs
twice at one time) lie in layers, and a time has as many layers as it needs. Blocks of threads take
splits: runs of tiles that share antennas, since a block makes the terms of its antennas itself.

Tiles come in bundles, a rectangle of neighbouring groups each: one tile by itself, or those that the
threads of a warp have where tensor cores make the sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class TileTable(NamedTuple):
    """Where the rows lie; every array int32.

    Attributes
    ----------
    place : (n_layer, n_split, side * side, n_tile)
        1 + the row's number, negative where antenna2 is on the first side; 0 for
        no row.
    layer_time : (n_layer,)
        Time slot of each layer, ascending.
    antenna : (n_split, n_slot)
        Antennas that a split needs, group by group; whole bundles, side by side.
    n_used : int
        How many of these slots hold antennas of some split: the first ones.
    group : (2, n_split, n_tile)
        Which of the split's groups a tile puts against which.
    fill : float
        The share of places that have a row.
    """

    place: NDArray[np.int32]
    layer_time: NDArray[np.int32]
    antenna: NDArray[np.int32]
    group: NDArray[np.int32]
    n_used: int
    fill: float

    @property
    def n_layer(self) -> int:
        return int(self.place.shape[0])

    @property
    def n_split(self) -> int:
        return int(self.place.shape[1])

    @property
    def n_tile(self) -> int:
        return int(self.place.shape[3])

    @property
    def n_slot(self) -> int:
        return int(self.antenna.shape[1])


class Bundle(NamedTuple):
    """Tiles that come together: groups of antennas on their first and on their second sides.

    The longer side is a multiple of the shorter one. Tiles are numbered block by block of `width` groups of
    the second side; in a block the second group runs fastest.
    """

    n_first: int = 1
    n_second: int = 1
    width: int = 1

    @property
    def n_tile(self) -> int:
        return self.n_first * self.n_second

    @property
    def n_group(self) -> int:
        """Groups that lie side by side wherever one of them is needed."""
        return max(self.n_first, self.n_second)

    def number(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the tile of two groups, counted from the first of the bundle."""
        return (second // self.width * self.n_first + first) * self.width + second % self.width


def tile_table(
    first: NDArray[np.int32],
    second: NDArray[np.int32],
    time_index: NDArray[np.int32],
    side: int,
    max_tile: int,
    max_slot: int,
    least_fill: float,
    bundle: Bundle = Bundle(),  # noqa: B008 (it cannot be changed)
    most_splits: int | None = None,
) -> TileTable | None:
    """Lay the rows out in tiles; None where they would occupy less than `least_fill` of the places.

    Parameters
    ----------
    first, second, time_index : int32 (n_row,)
        Antennas and time slot of each row, in the order of time.
    side : int
        Antennas on each side of a tile.
    max_tile, max_slot : int
        The most tiles (those of a bundle at least) and antennas (2 `side` times `Bundle.n_group` at least)
        of one split.
    least_fill : float
        Looked at before the table is made: of few rows at many times it would be without bounds.
    bundle : Bundle
    most_splits : int, optional
        Where there would be more, None is given; this too is found before the table is made.
    """
    used, number = np.unique(np.concatenate([first, second]), return_inverse=True)
    low, high = np.sort(number.reshape(2, -1).astype(np.int64), axis=0)
    swapped = number[: first.size] > number[first.size :]
    groups_of = low // side, high // side
    n_column = -(-used.size // (side * bundle.n_second))
    codes = groups_of[0] // bundle.n_first * n_column + groups_of[1] // bundle.n_second
    bundles, which = np.unique(codes, return_inverse=True)
    # Each bundle needs two units: as many groups as its longer side has.
    per_unit = bundle.n_group // bundle.n_first, bundle.n_group // bundle.n_second
    pairs = np.stack(np.divmod(bundles, n_column))
    units = pairs // np.array(per_unit)[:, None]
    n_unit_slot = side * bundle.n_group
    parts, units_of = _splits(units, max_tile // bundle.n_tile, max_slot // n_unit_slot)
    if most_splits is not None and len(parts) > most_splits:
        return None
    layer, layer_time = _layers(time_index.astype(np.int64), low * used.size + high)

    n_tile = bundle.n_tile * max(part.size for part in parts)
    n_slot = n_unit_slot * max(unit.size for unit in units_of)
    fill = first.size / (layer_time.size * len(parts) * side * side * n_tile)
    if fill < least_fill:
        return None
    place = np.zeros((layer_time.size, len(parts), side * side, n_tile), np.int32)
    antenna, n_used = np.zeros((len(parts), n_slot), np.int32), 0
    group_of = np.zeros((2, len(parts), n_tile), np.int32)
    # Where no bundle is, threads read what the first one would.
    sides = np.divmod(np.arange(bundle.n_tile), bundle.n_second)
    within = np.stack(sides)[:, np.argsort(bundle.number(*sides))]
    group_of[:] = np.tile(within, n_tile // bundle.n_tile)[:, None]
    split_of, local = np.empty(bundles.size, np.int64), np.empty(bundles.size, np.int64)
    for k, (part, unit) in enumerate(zip(parts, units_of, strict=True)):
        split_of[part], local[part] = k, bundle.n_tile * np.arange(part.size)
        slots = (unit[:, None] * n_unit_slot + np.arange(n_unit_slot)).ravel()
        slots = slots[slots < used.size]
        antenna[k, : slots.size], n_used = used[slots], max(n_used, slots.size)
        for axis, n_group in enumerate(bundle[:2]):
            begin = np.searchsorted(unit, units[axis, part]) * bundle.n_group
            begin += pairs[axis, part] % per_unit[axis] * n_group
            of_part = begin[:, None] + within[axis]
            group_of[axis, k, : of_part.size] = of_part.ravel()
    cell = low % side * side + high % side
    tile = local[which] + bundle.number(groups_of[0] % bundle.n_first, groups_of[1] % bundle.n_second)
    numbers = 1 + np.arange(first.size)
    place[layer, split_of[which], cell, tile] = np.where(swapped, -numbers, numbers)
    return TileTable(place, layer_time.astype(np.int32), antenna, group_of, n_used, fill)


def _splits(
    units: NDArray[np.int64], max_bundle: int, max_unit: int
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Runs of bundles, as indices into `units` (2, .), near one another in both; and the units they need."""
    order = np.argsort(_interleaved(units), kind="stable")
    n_bundle = units.shape[1]
    n_split = -(-n_bundle // max_bundle)
    while True:
        parts = np.array_split(order, n_split)
        needed = [np.unique(units[:, part]) for part in parts]
        if max(unit.size for unit in needed) <= max_unit or n_split == n_bundle:
            return parts, needed
        n_split += 1


def _interleaved(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bits of two numbers in turn (Morton's order): neighbours in it are near in both."""
    code = np.zeros(pairs.shape[1], np.int64)
    for bit in range(24):
        code |= (pairs[0] >> bit & 1) << (2 * bit + 1) | (pairs[1] >> bit & 1) << (2 * bit)
    return code


def _layers(
    time: NDArray[np.int64], baseline: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The layer of each row, rows ordered by time; and the time slot of each layer."""
    order = np.lexsort((baseline, time))
    key = np.stack([time, baseline])[:, order]
    starts = np.flatnonzero(np.concatenate([[True], (key[:, 1:] != key[:, :-1]).any(axis=0)]))
    sizes = np.diff(np.concatenate([starts, [time.size]]))
    occurrence = np.empty(time.size, np.int64)
    occurrence[order] = np.arange(time.size) - np.repeat(starts, sizes)
    layers, layer = np.unique(time * time.size + occurrence, return_inverse=True)
    return layer, layers // time.size
