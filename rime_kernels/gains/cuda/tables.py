"""Tables of cells and groups as the kernels read them, each way round: no two threads add to one number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.types import Array
from rime_kernels.gains.arrays import GainCells, GainGroups

Index = NDArray[np.int64]
MOST = 256
"""Coordinates of a group."""
_MOST_PAIRS = 1 << 26
"""Products of two entries of a cell, which take 12 bytes each."""


class GroupTables(NamedTuple):
    """What does not change; int32 but for factors, which are float64, and `square`, which is int64.

    A last group, of no coordinates, has the cells of which no gain is fitted. Coordinates are counted from
    the first of their group. Cells are those of one group after the other, and their place in this order
    counts: "place".
    """

    first: Array  # (n_group + 1,): where the coordinates of a group begin
    square: Array  # (n_group + 1,): where its matrix begins, all of it, row by row
    cell_first: Array  # (n_group + 1,)
    cell: Array  # (n_place,)
    entry_first: Array  # (n_place + 1,)
    entry: Array  # (n_entry,): 2 coordinate, and 1 more for phases
    entry_factor: Array
    slot_first: Array  # (n + 1,): entries by coordinates
    slot: Array  # (n_entry,): 2 place, and 1 more for phases
    slot_factor: Array
    element_first: Array  # (n_group + 1,): elements of matrices, up to the diagonal, that are not 0
    element: Array  # (n_element,): row times the group's number of coordinates, plus column
    pair_first: Array  # (n_element + 1,): pairs of entries by elements
    pair: Array  # (n_pair,): 3 place, and 1 more for each phase of the pair
    pair_factor: Array  # the product of both factors
    circle: Array  # (n,): 1 for phases that are uniform over the circle
    returns: Array  # (n,): 1 for phases that are brought within half a turn of the means of their priors


def fits(cells: GainCells, groups: GainGroups) -> bool:
    """Whether there are kernels for these: no processes in time, groups of `MOST` at most."""
    size = np.diff(cells.first)
    small = np.diff(groups.first).max() <= MOST and int((size * (size + 1)).sum()) // 2 <= _MOST_PAIRS
    return bool(groups.later.size == 0 and small)


def group_tables(cells: GainCells, groups: GainGroups, returns: NDArray[np.bool_]) -> GroupTables:
    """The tables, on the host; `returns` (n,) as there."""
    size = np.diff(cells.first)
    loose = np.flatnonzero(size == 0)
    cell = np.concatenate([groups.cell, loose])
    first, cell_first = (
        np.append(x, end) for x, end in ((groups.first, returns.size), (groups.cell_first, cell.size))
    )
    size = size[cell]
    entry_first = _starts(size)
    place = np.repeat(np.arange(cell.size), size)
    number = np.arange(place.size) + (cells.first[cell] - entry_first[:-1])[place]
    coordinate, factor = cells.coordinate[number].astype(np.int64), cells.factor[number]
    phase = cells.is_phase[number].astype(np.int64)
    group = np.repeat(np.arange(first.size - 1), np.diff(cell_first))[place]
    local = coordinate - first[group]
    by_coordinate = np.argsort(coordinate, kind="stable")
    entries = _Entries(place, np.arange(place.size) - entry_first[place], group, local, phase, factor)
    elements = _elements(entries, np.diff(first))
    return GroupTables(
        first.astype(np.int32),
        elements.square,
        cell_first.astype(np.int32),
        cell.astype(np.int32),
        entry_first.astype(np.int32),
        (2 * local + phase).astype(np.int32),
        factor,
        np.searchsorted(coordinate[by_coordinate], np.arange(returns.size + 1)).astype(np.int32),
        (2 * place + phase)[by_coordinate].astype(np.int32),
        factor[by_coordinate],
        elements.first.astype(np.int32),
        elements.element.astype(np.int32),
        elements.pair_first.astype(np.int32),
        elements.pair.astype(np.int32),
        elements.factor,
        (groups.circle == np.arange(returns.size)).astype(np.int32),
        returns.astype(np.int32),
    )


class _Entries(NamedTuple):
    """Entries of all cells: place, number within the cell, group, coordinate, kind and factor."""

    place: Index
    number: Index
    group: Index
    local: Index
    phase: Index
    factor: NDArray[np.float64]


class _Elements(NamedTuple):
    """Elements of the groups' matrices, as `GroupTables` has them."""

    square: Index
    first: Index
    element: Index
    pair_first: Index
    pair: Index
    factor: NDArray[np.float64]


def _elements(entries: _Entries, size: Index) -> _Elements:
    """Elements of matrices and their pairs; those of most pairs come first in each group.

    Threads that are neighbours then have about as much to do.
    """
    square = _starts(size**2)
    keys, pairs, factors = [], [], []
    for apart in range(int(entries.number.max(initial=-1)) + 1):
        one = np.flatnonzero(entries.number >= apart)
        other = one - apart
        i, j = entries.local[one], entries.local[other]
        row, column = np.maximum(i, j), np.minimum(i, j)
        keys.append(square[entries.group[one]] + row * size[entries.group[one]] + column)
        pairs.append(3 * entries.place[one] + entries.phase[one] + entries.phase[other])
        # What stands on both sides of the diagonal falls together on it.
        twice = np.where((apart > 0) & (i == j), 2.0, 1.0)
        factors.append(twice * entries.factor[one] * entries.factor[other])
    group = np.repeat(np.arange(size.size), size)
    local = np.arange(group.size) - _starts(size)[group]
    diagonal = square[group] + local * (size[group] + 1)
    key = np.concatenate([*keys, diagonal])
    element, of_pair, count = np.unique(key, return_inverse=True, return_counts=True)
    of_element = np.searchsorted(square, element, side="right") - 1
    order = np.lexsort((-count, of_element))
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    of_pair = rank[of_pair[: key.size - diagonal.size]]
    by_element = np.argsort(of_pair, kind="stable")
    return _Elements(
        square,
        np.searchsorted(of_element, np.arange(size.size + 1)),
        (element - square[of_element])[order],
        np.searchsorted(of_pair[by_element], np.arange(order.size + 1)),
        np.concatenate([np.zeros(0, np.int64), *pairs])[by_element],
        np.concatenate([np.zeros(0), *factors])[by_element],
    )


def _starts(size: Index) -> Index:
    """Where runs of these lengths begin, and where the last ends."""
    return np.concatenate([[0], np.cumsum(size)])
