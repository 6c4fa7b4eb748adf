"""Which parameters belong to which segment of time, and which to all of them.

Parameters whose cells (times of partitions) are connected with each other form a segment. What reaches over
many cells would connect everything: it goes to the border, from such a reach on that factors cost least.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biro.inference.block_arrowhead.matrix import ArrowheadColumns, ArrowheadMatrix
from biro.models.bound.antenna_terms.reach import NONE, Reach

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_MOST_CUTS = 20
"""Reaches that are tried."""


@dataclass(frozen=True, eq=False)
class ArrowheadLayout:
    """Parameters in segments, and the border.

    Attributes
    ----------
    n_param : int
    index : int64 (n_segment, m)
        Parameters of each segment, then `NONE`.
    border : int64 (n_border,)
        Parameters that belong to all segments.
    segment_of_cell : int64 (n_cell,)
        `NONE` for a cell at which only the border changes anything.
    is_chained : bool
        Whether neighbouring segments are coupled.
    """

    n_param: int
    index: Index
    border: Index
    segment_of_cell: Index
    is_chained: bool

    def take(self, columns: Array) -> ArrowheadColumns:
        """Columns (..., n_param, n_col) in arrowhead order, with 0 where segments are filled up."""
        inner = np.where(self.index[..., None] == NONE, 0.0, columns[..., self.index, :])
        return ArrowheadColumns(inner, columns[..., self.border, :])

    def put(self, parts: ArrowheadColumns) -> Array:
        """The inverse of `take`: columns (..., n_param, n_col)."""
        shape = np.broadcast_shapes(parts.inner.shape[:-3], parts.outer.shape[:-2])
        columns = np.zeros((*shape, self.n_param, parts.outer.shape[-1]))
        there = self.index != NONE
        columns[..., self.index[there], :] = parts.inner[..., there, :]
        columns[..., self.border, :] = parts.outer
        return columns

    @cached_property
    def place(self) -> tuple[Index, Index]:
        """The segment of each parameter and its row there; `NONE` and the row of the border."""
        segment, row = np.full(self.n_param, NONE, np.int64), np.zeros(self.n_param, np.int64)
        there = np.nonzero(self.index != NONE)
        segment[self.index[there]], row[self.index[there]] = there
        row[self.border] = np.arange(self.border.size)
        return segment, row

    def entries(self, arrowhead: ArrowheadMatrix, first: Index, second: Index) -> Array:
        """Numbers of an arrowhead matrix between pairs of parameters, float64 (n,).

        0 where it has no block.
        """
        found = np.zeros(first.size)
        for pairs, block, place in self._blocks(arrowhead, first, second):
            found[pairs] = block[place]
        return found

    def add_entries(self, arrowhead: ArrowheadMatrix, first: Index, second: Index, numbers: Array) -> None:
        """Add numbers (n,) between pairs of parameters to an arrowhead matrix.

        Each pair is given in both orders.
        """
        for pairs, block, place in self._blocks(arrowhead, first, second, once=True):
            np.add.at(block, place, numbers[pairs])

    def _blocks(
        self, arrowhead: ArrowheadMatrix, first: Index, second: Index, *, once: bool = False
    ) -> Iterator[tuple[NDArray[np.bool_], Array, tuple[Index, ...]]]:
        """Which pairs lie in which blocks, and where; `once`: not those that lie in the transposed blocks."""
        (k, l), (row, column) = ((own[first], own[second]) for own in self.place)
        inner = (k != NONE) & (l != NONE)
        pairs = inner & (k == l)
        yield pairs, arrowhead.diagonal, (k[pairs], row[pairs], column[pairs])
        pairs = (k != NONE) & (l == NONE)
        yield pairs, arrowhead.side, (k[pairs], row[pairs], column[pairs])
        pairs = (k == NONE) & (l == NONE)
        yield pairs, arrowhead.corner, (row[pairs], column[pairs])
        if arrowhead.below is not None:
            pairs = inner & (k == l + 1)
            yield pairs, arrowhead.below, (l[pairs], row[pairs], column[pairs])
        if once:
            return
        pairs = (k == NONE) & (l != NONE)
        yield pairs, arrowhead.side, (l[pairs], column[pairs], row[pairs])
        if arrowhead.below is not None:
            pairs = inner & (k + 1 == l)
            yield pairs, arrowhead.below, (k[pairs], column[pairs], row[pairs])

    @property
    def cost(self) -> float:
        """Multiplications of a factor, about."""
        (n_segment, m), b = self.index.shape, self.border.size
        return float(n_segment * (m**3 + m**2 * b + m * b**2) + b**3)


def arrowhead_layout(reach: Reach) -> ArrowheadLayout:
    """The segments and the border of which a factor costs least.

    Parameters
    ----------
    reach : Reach

    Returns
    -------
    ArrowheadLayout
        Segments in the order of their first cells. With links, all pairs are within a segment, between
        neighbours, or with the border.
    """
    n_cell = np.bincount(reach.parameter, minlength=reach.n_param)
    reaches = np.unique(n_cell[n_cell > 0])
    if reaches.size > _MOST_CUTS:
        reaches = reaches[np.linspace(0, reaches.size - 1, _MOST_CUTS).astype(int)]
    tried = [_of_reach(reach, (n_cell > 0) & (n_cell <= most)) for most in (0, *reaches)]
    return min(tried, key=lambda layout: layout.cost)


def _of_reach(reach: Reach, is_inner: NDArray[np.bool_]) -> ArrowheadLayout:
    """The layout in which these parameters alone may be in segments."""
    segment, of_cell = _segments(reach, is_inner)
    is_inner, segment = is_inner.copy(), segment.copy()
    for first, second in reach.links:
        if is_inner[first] and is_inner[second] and abs(segment[first] - segment[second]) > 1:
            is_inner[second] = False
    links = reach.links[is_inner[reach.links].all(axis=1)]
    members = np.flatnonzero(is_inner)
    members = members[np.argsort(segment[members], kind="stable")]
    count = np.bincount(segment[members], minlength=int(of_cell.max(initial=-1)) + 1)
    index = np.full((count.size, int(count.max(initial=0))), NONE, np.int64)
    within = np.arange(members.size) - np.repeat(np.cumsum(count) - count, count)
    index[segment[members], within] = members
    is_chained = bool((segment[links[:, 0]] != segment[links[:, 1]]).any())
    return ArrowheadLayout(reach.n_param, index, np.flatnonzero(~is_inner), of_cell, is_chained)


def _segments(reach: Reach, is_inner: NDArray[np.bool_]) -> tuple[Index, Index]:
    """The segment of each parameter and of each cell, in the order of first cells; `NONE` without one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = is_inner[reach.parameter]
    parameter, cell = reach.parameter[pairs], reach.cell[pairs]
    n = reach.n_cell + reach.n_param
    graph = coo_array((np.ones(cell.size), (cell, reach.n_cell + parameter)), shape=(n, n))
    _, group = connected_components(graph, directed=False)
    of_cell = np.full(reach.n_cell, NONE, np.int64)
    touched = np.unique(cell)
    _, first, number = np.unique(group[touched], return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")
    of_cell[touched] = rank[number.reshape(-1)]
    segment = np.full(reach.n_param, NONE, np.int64)
    segment[parameter] = of_cell[cell]
    return segment, of_cell
