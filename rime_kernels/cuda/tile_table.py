"""Rows in tiles of antennas: tables for a kernel whose threads keep a tile's sums in registers.

A tile is a group of `side` antennas against another such group (or itself), at one time and
channel. A row lies in the tile of its two antennas; rows that meet there (a baseline that occurs
twice at one time) lie in layers, and a time has as many layers as it needs. Blocks of threads take
splits: runs of tiles that share antennas, since a block makes the terms of its antennas itself.
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
        Antennas that a split needs, group by group.
    n_used : int
        How many of these slots hold antennas of some split: the first ones.
    group : (2, n_split, n_tile)
        Which of the split's groups a tile puts against which.
    """

    place: NDArray[np.int32]
    layer_time: NDArray[np.int32]
    antenna: NDArray[np.int32]
    group: NDArray[np.int32]
    n_used: int

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


def tile_table(
    first: NDArray[np.int32],
    second: NDArray[np.int32],
    time_index: NDArray[np.int32],
    side: int,
    max_tile: int,
    max_slot: int,
    least_fill: float,
) -> TileTable | None:
    """Lay the rows out in tiles; None where they would occupy less than `least_fill` of the places.

    Parameters
    ----------
    first, second, time_index : int32 (n_row,)
        Antennas and time slot of each row, in the order of time.
    side : int
        Antennas on each side of a tile.
    max_tile, max_slot : int
        The most tiles and antennas (2 `side` at least) of one split.
    least_fill : float
        Looked at before the table is made: of few rows at many times it would be without bounds.
    """
    used, number = np.unique(np.concatenate([first, second]), return_inverse=True)
    low, high = np.sort(number.reshape(2, -1).astype(np.int64), axis=0)
    swapped = number[: first.size] > number[first.size :]
    n_group = -(-used.size // side)
    tiles, tile = np.unique(low // side * n_group + high // side, return_inverse=True)
    parts, groups = _splits(tiles, n_group, side, max_tile, max_slot)
    layer, layer_time = _layers(time_index.astype(np.int64), low * used.size + high)

    n_tile, n_slot = max(part.size for part in parts), side * max(group.size for group in groups)
    if first.size < least_fill * (layer_time.size * len(parts) * side * side * n_tile):
        return None
    place = np.zeros((layer_time.size, len(parts), side * side, n_tile), np.int32)
    antenna, n_used = np.zeros((len(parts), n_slot), np.int32), 0
    group_of = np.zeros((2, len(parts), n_tile), np.int32)
    split_of, local = np.empty(tiles.size, np.int64), np.empty(tiles.size, np.int64)
    for k, (part, group) in enumerate(zip(parts, groups, strict=True)):
        split_of[part], local[part] = k, np.arange(part.size)
        slots = (group[:, None] * side + np.arange(side)).ravel()
        slots = slots[slots < used.size]
        antenna[k, : slots.size], n_used = used[slots], max(n_used, slots.size)
        group_of[:, k, : part.size] = np.searchsorted(group, np.divmod(tiles[part], n_group))
    within = low % side * side + high % side
    numbers = 1 + np.arange(first.size)
    place[layer, split_of[tile], within, local[tile]] = np.where(swapped, -numbers, numbers)
    return TileTable(place, layer_time.astype(np.int32), antenna, group_of, n_used)


def _splits(
    tiles: NDArray[np.int64], n_group: int, side: int, max_tile: int, max_slot: int
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Runs of tiles, as indices into `tiles`, near one another in both groups; and their groups."""
    pairs = np.stack(np.divmod(tiles, n_group))
    order = np.argsort(_interleaved(pairs), kind="stable")
    n_split = -(-tiles.size // max_tile)
    while True:
        parts = np.array_split(order, n_split)
        groups = [np.unique(pairs[:, part]) for part in parts]
        if max(group.size for group in groups) * side <= max_slot or n_split == tiles.size:
            return parts, groups
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
