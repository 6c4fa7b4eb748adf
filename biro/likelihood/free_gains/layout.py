"""The cells of data that have one gain, and the groups of coordinates that cells connect.

A cell is a baseline, block of times, block of channels and correlation, over which gains do not change; a
group are coordinates that no cell and no prior connects with others (`rime_kernels.gains.arrays`). Within a
group those come last that reach furthest, so that factors of its matrices stay small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.models.bound.antenna_terms.log_gains import LogGains, PartitionGains
from biro.models.bound.antenna_terms.normal_priors import NONE, NormalPriors
from biro.observation.partition import Partition
from rime_kernels.arrays.row_cells import RowCells
from rime_kernels.gains.arrays import GainCells, GainGroups, GainSums
from rime_kernels.gains.laplace import undetermined

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Index = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)
_SECOND = ("L", "Y")
PIN = 1e4
"""1/variance of a normal prior, rad^-2, of phases that nothing determines and that are taken to be 0."""
HOLD = 1e-4
"""1/variance of a normal prior, rad^-2, that holds phases which the data of a sky say nothing of."""
_WIDE = 0.5
"""Standard deviation of a phase, rad, from which on a start is looked for."""


@dataclass(frozen=True, eq=False)
class PartitionCells:
    """Where the visibilities of a partition are among all cells.

    Attributes
    ----------
    first : int
        The first cell.
    n_cell : int
    rows : RowCells
        Which visibilities each of them has, counted from the first.
    """

    first: int
    n_cell: int
    rows: RowCells

    def own(self, of_cell: NDArray[T]) -> NDArray[T]:
        """What belongs to these, of all cells."""
        return of_cell[self.first : self.first + self.n_cell]

    def of_visibilities(self, of_cell: NDArray[T], n_corr: int) -> NDArray[T]:
        """What belongs to cells (n_cell,), for each visibility (n_row, n_chan, n_corr)."""
        first = self.rows.cell_of_row[:, None, None] + n_corr * self.rows.block[:, None].astype(np.int64)
        found: NDArray[T] = self.own(of_cell)[first + np.arange(n_corr)]
        return found


@dataclass(frozen=True, eq=False)
class GainLayout:
    """All cells and groups.

    Attributes
    ----------
    cells : Cells
    groups : Groups
    partitions : list of PartitionCells
    place : int64 (n,)
        Where each coordinate of `LogGains` is among those of the groups.
    pinned : int64
        Coordinates (of `LogGains`) that nothing determines: phases, which are taken to be 0.
    link_order : int64 (n_link,)
        Which link of `LogGains` each of those of the groups is.
    is_angle : bool (n,)
        Phases, in the order of groups.
    """

    cells: GainCells
    groups: GainGroups
    partitions: list[PartitionCells]
    place: Index
    pinned: Index
    link_order: Index
    is_angle: NDArray[np.bool_]

    def with_priors(self, priors: NormalPriors) -> GainGroups:
        """The groups with the normal priors that `FittedPriors` has at some theta."""
        weight, own = self.groups.weight.copy(), priors.weight > 0.0
        weight[self.place[own]] = priors.weight[own]
        return self.groups._replace(
            weight=weight,
            keep=priors.keep[self.link_order],
            link_weight=priors.link_weight[self.link_order],
            turns=self.is_angle & (weight < _WIDE**-2),
        )

    def of_coordinates(self, by: NormalPriors) -> NormalPriors:
        """What is in the order of groups, in that of `LogGains`."""
        keep, link_weight = np.empty((2, self.link_order.size))
        keep[self.link_order], link_weight[self.link_order] = by.keep, by.link_weight
        return NormalPriors(by.weight[self.place], keep, link_weight)

    def n_seen(self) -> Array:
        """How many coordinates the cells of each partition see, float64 (n_partition,), without pinned ones.

        A coordinate of several partitions counts in each by its share of the cells that see it.
        """
        number = np.arange(self.cells.first.size - 1)
        of_entry = np.repeat(number, np.diff(self.cells.first))
        ends = [own.first + own.n_cell for own in self.partitions]
        partition = np.searchsorted(ends, of_entry, side="right")
        found = np.zeros((len(ends), self.n))
        np.add.at(found, (partition, self.cells.coordinate), 1.0)
        found[:, self.pinned] = 0.0
        return np.asarray((found / np.maximum(found.sum(axis=0), 1.0)).sum(axis=1))

    @cached_property
    def logs(self) -> Any:
        """ln gains of cells from coordinates, sparse complex128 (n_cell, n)."""
        from scipy.sparse import csr_array

        cells = self.cells
        by = np.where(cells.is_phase, 1j, 1.0) * cells.factor
        return csr_array((by, cells.coordinate, cells.first), shape=(cells.first.size - 1, self.n))

    def slopes(self, of_cells: Complex) -> Array:
        """Derivatives by coordinates (n, ...), from those by ln amplitude + i phase of cells."""
        return np.ascontiguousarray((self.logs.conj().T @ of_cells).real)

    @property
    def n_held(self) -> int:
        """Phases with the prior `HOLD` in place of a uniform one."""
        return int((self.groups.circle == np.arange(self.n)).sum())

    @property
    def n(self) -> int:
        """Coordinates."""
        return self.place.size

    @property
    def n_group(self) -> int:
        """Groups."""
        return self.groups.first.size - 1

    @property
    def n_stored(self) -> int:
        """Elements of the matrices of all groups."""
        return int(self.groups.row[-1]) + self.n


def gain_layout(partitions: Sequence[Partition], gains: LogGains) -> GainLayout:
    """The cells and groups of an observation.

    Raises
    ------
    InputError
        An amplitude that neither its prior nor the data determine.
    """
    made, first = [], 0
    entries: list[tuple[Array, ...]] = []
    for part, own in zip(partitions, gains.each, strict=True):
        where, table, when = _cells_of(part, own, first)
        first += where.n_cell
        made.append(where)
        entries.append((*table, when))
    n_cell, n = first, len(gains.names)
    cell, coordinate, factor, is_phase, time = (np.concatenate(each) for each in zip(*entries, strict=True))
    cell, coordinate = cell.astype(np.int64), coordinate.astype(np.int64)
    order = _order(cell, coordinate, time, gains, n_cell)
    place = np.empty(n, np.int64)
    place[order.coordinates] = np.arange(n)
    by_cell = np.argsort(cell, kind="stable")
    cell, moved = cell[by_cell], place[coordinate[by_cell]]
    starts = np.searchsorted(cell, np.arange(n_cell + 1))
    cells = GainCells(starts, moved.astype(np.int32), factor[by_cell], is_phase[by_cell].astype(bool))
    link_order = np.argsort(order.group[place[gains.links.later]], kind="stable")
    groups = _groups(cells, cell, gains, place, order, link_order)
    groups, pinned = _pinned(cells, groups, gains, place)
    is_angle = gains.is_angle[order.coordinates]
    return GainLayout(cells, groups, made, place, pinned, link_order, is_angle)


def _cells_of(
    part: Partition, gains: PartitionGains, first: int
) -> tuple[PartitionCells, tuple[Array, Array, Array, Array], Array]:
    """The cells of a partition; cell, coordinate, factor and kind of all entries, and their times."""
    block_of_row = gains.time_block[part.time_index].astype(np.int64)
    keys = np.stack([block_of_row, part.antenna1, part.antenna2])
    baselines, of_row = np.unique(keys, axis=1, return_inverse=True)
    of_row = of_row.reshape(-1)
    n_block = int(gains.chan_block.max()) + 1
    n_baseline, n_corr = baselines.shape[1], part.n_corr
    order = np.argsort(of_row, kind="stable")
    starts = np.searchsorted(of_row[order], np.arange(n_baseline + 1))
    cell_of_row = of_row * n_block * n_corr
    shape = n_baseline, n_block, n_corr
    chan = np.arange(part.n_chan)
    used = np.zeros(shape, bool)
    rows, chans, corrs = np.nonzero(part.weight)
    used[of_row[rows], gains.chan_block[chan[chans]], corrs] = True
    number = first + np.arange(used.size).reshape(shape)
    middle = np.array([part.times[gains.time_block == k].mean() for k in range(gains.time_block.max() + 1)])
    # Of Stokes parameters, whose gains are common to both feeds, the first stands for both.
    feeds = np.array([[name[0] in _SECOND, name[-1] in _SECOND] for name in part.corr_type], np.int64)
    found: list[tuple[Array, ...]] = []
    for term in gains.terms:
        by = term.factor[baselines[0]][:, :, None]
        for side, antenna in enumerate(baselines[1:]):
            of_cell = term.coordinate[baselines[0], antenna][:, :, feeds[:, side]]
            there = used & (of_cell != NONE)
            sign = -1.0 if side and term.is_phase else 1.0
            factor = np.broadcast_to(sign * by, shape)[there]
            time = np.broadcast_to(middle[baselines[0]][:, None, None], shape)[there]
            kind = np.full(factor.size, term.is_phase)
            found.append((number[there], of_cell[there], factor, kind, time))
    table = [np.concatenate(each) for each in zip(*found, strict=True)]
    rows_of = RowCells(n_block, gains.chan_block.astype(np.int32), order, starts, cell_of_row)
    cells = PartitionCells(first, used.size, rows_of)
    return cells, (table[0], table[1], table[2], table[3]), table[4]


@dataclass(frozen=True)
class _Order:
    """Coordinates in the order of their groups (`coordinates`), and the group of each of them (`group`)."""

    coordinates: Index
    group: Index


def _order(cell: Index, coordinate: Index, time: Array, gains: LogGains, n_cell: int) -> _Order:
    """Groups one after the other; within a group by the last time, those that begin earliest last."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, links = len(gains.names), gains.links
    left = np.concatenate([coordinate, links.later])
    right = np.concatenate([n + cell, links.earlier])
    graph = coo_array((np.ones(left.size), (left, right)), shape=(n + n_cell, n + n_cell))
    group = connected_components(graph, directed=False)[1][:n]
    first, last = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(first, coordinate, time)
    np.maximum.at(last, coordinate, time)
    order = np.lexsort((np.arange(n), -first, last, group))
    return _Order(order, np.unique(group[order], return_inverse=True)[1].reshape(-1))


def _groups(
    cells: GainCells, cell: Index, gains: LogGains, place: Index, order: _Order, link_order: Index
) -> GainGroups:
    """The groups of ordered coordinates; `cell` is that of each entry."""
    n, n_group = len(gains.names), int(order.group[-1]) + 1
    begin = np.arange(n)
    lowest = np.full(cells.first.size - 1, n, np.int64)
    np.minimum.at(lowest, cell, cells.coordinate)
    np.minimum.at(begin, cells.coordinate, lowest[cell])
    later, earlier = place[gains.links.later], place[gains.links.earlier]
    np.minimum.at(begin, np.maximum(later, earlier), np.minimum(later, earlier))
    stored = np.concatenate([[0], np.cumsum(np.arange(n) - begin + 1)[:-1]])
    used = np.flatnonzero(np.diff(cells.first))
    of_cell = order.group[cells.coordinate[cells.first[used]]]
    sorted_cells = np.argsort(of_cell, kind="stable")
    priors = gains.priors.known
    marginal = priors.weight[order.coordinates]
    return GainGroups(
        first=np.searchsorted(order.group, np.arange(n_group + 1)),
        cell_first=np.searchsorted(of_cell[sorted_cells], np.arange(n_group + 1)),
        cell=used[sorted_cells].astype(np.int32),
        link_first=np.searchsorted(order.group[later][link_order], np.arange(n_group + 1)),
        later=later[link_order],
        earlier=earlier[link_order],
        keep=priors.keep[link_order],
        link_weight=priors.link_weight[link_order],
        middle=gains.middle[order.coordinates],
        weight=marginal,
        circle=_circles(gains, place)[order.coordinates],
        turns=gains.is_angle[order.coordinates] & (marginal < _WIDE**-2),
        begin=begin,
        row=stored - begin,
    )


def _circles(gains: LogGains, place: Index) -> Index:
    """The place of the phase whose prior is uniform over the circle, of each coordinate; -1 of others."""
    found = np.where(gains.is_circle, place, -1)
    keeps = gains.priors.known.keep
    for later, earlier, keep in zip(*gains.links, keeps, strict=True):  # in the order of each process
        if keep == 1.0 and found[earlier] >= 0:
            found[later] = found[earlier]
    return found


def _pinned(cells: GainCells, groups: GainGroups, gains: LogGains, place: Index) -> tuple[GainGroups, Index]:
    """The groups with a prior for phases that nothing determines, and which of them these are.

    What data leave open does not depend on their values: all visibilities are 1 here, and priors that are not
    flat as strong as the data.
    """
    n = place.size
    ones = np.ones(cells.first.size - 1)
    strength = np.asarray(1.0 + np.bincount(cells.coordinate, cells.factor**2, minlength=n), np.float64)
    trial = groups._replace(
        weight=np.where(groups.weight > 0.0, strength, 0.0), link_weight=strength[groups.later]
    )
    found, work = np.zeros(n), np.empty(n)
    undetermined(
        cells,
        trial,
        GainSums(ones, ones, 0.0 * ones),
        np.zeros(n),
        work,
        np.empty(int(groups.row[-1]) + n),
        found,
    )
    open_ = np.flatnonzero(found)
    back = np.argsort(place)
    lost = open_[groups.circle[open_] != open_]
    if lost.size:
        name = gains.names[back[lost[0]]]
        raise InputError(
            f"{name} is constrained neither by the data nor by its prior (single baseline, or a ring of an "
            "even number of antennas). Give amplitudes a log-normal prior, or leave the antenna out"
        )
    groups.weight[open_], groups.turns[open_] = PIN, False
    groups.circle[np.isin(groups.circle, open_)] = -1
    groups.weight[groups.circle == np.arange(n)] = HOLD
    return groups, back[open_]
