"""Where sources may be born: densities of places, as tables of the cells of a grid."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.populations.space import PopulationSpace

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_OF_PRIOR = 0.2
"""Part of the places that are drawn from the prior."""
_TAIL = 1e-4
"""Part of the prior of a coordinate that the grid leaves out at either end, where it is endless."""
_MOST_CELLS = 1 << 20
"""Cells along a side."""
_SPREAD = (0.1, 0.8, 0.1)
"""Parts of a source in a histogram that its cell and the two neighbours along an axis get."""


class PlaceGrid:
    """A grid of cells over the places that the prior allows.

    Parameters
    ----------
    space : PopulationSpace
    cell : (float, float)
        Sizes of a cell along east and north at most, in the units of the priors.

    Attributes
    ----------
    low, width : float64 (2,)
        Lower ends, and sizes of a cell, along east and north.
    shape : int64 (2,)
        Cells along east and north.
    """

    def __init__(self, space: PopulationSpace, cell: tuple[float, float]) -> None:
        ends = []
        for i in space.place:
            prior = space.quantities[i].prior
            low, high = prior.support
            ends.append((low, high) if np.isfinite(high - low) else prior.quantile_range(_TAIL))
        self.low, high = np.array(ends).T
        self.shape = np.clip(np.ceil((high - self.low) / cell), 1, _MOST_CELLS).astype(np.int64)
        self.width = (high - self.low) / self.shape

    @property
    def n_cell(self) -> int:
        """Cells in all."""
        return int(self.shape.prod())

    def centres(self, cell: Index) -> Array:
        """Centres of cells (n,), float64 (n, 2)."""
        return np.asarray(self.low + (np.stack(np.divmod(cell, self.shape[1]), axis=1) + 0.5) * self.width)

    def cells(self, places: Array) -> Index:
        """The cell of each place (n, 2), int64 (n,); -1 outside."""
        with np.errstate(invalid="ignore"):
            index = np.floor((places - self.low) / self.width)
            inside = ((index >= 0) & (index < self.shape)).all(axis=1)
        index = np.where(inside[:, None], index, 0.0).astype(np.int64)
        return np.where(inside, index[:, 0] * self.shape[1] + index[:, 1], -1)

    def histogram(self, places: Array) -> tuple[Index, Array]:
        """Cells, and how many of these places (n, 2) they have; each is spread to the cells around."""
        steps = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)])
        parts = np.array([_SPREAD[i + 1] * _SPREAD[j + 1] for i, j in steps])
        cell = self.cells((places[:, None] + steps * self.width).reshape(-1, 2))
        found, index = np.unique(cell, return_inverse=True)
        weight: Array = np.bincount(index, np.tile(parts, len(places)), len(found)).astype(np.float64)
        return found[found >= 0], weight[found >= 0]


class Table(NamedTuple):
    """A density of places: cells, and their weights up to a factor; without any it is the prior."""

    cell: Index
    weight: Array

    @classmethod
    def mixed(cls, *parts: tuple[float, Index, Array]) -> Table:
        """A mixture of tables, each with its part; those without weight are left out."""
        cells, weights = [np.zeros(0, np.int64)], [np.zeros(0)]
        for part, cell, weight in parts:
            if weight.sum() > 0.0:
                cells.append(cell)
                weights.append(part * weight / weight.sum())
        found, index = np.unique(np.concatenate(cells), return_inverse=True)
        return cls(found, np.bincount(index, np.concatenate(weights), len(found)).astype(np.float64))


class PlaceTables:
    """Densities of the places of births, one for each of several temperatures.

    Parameters
    ----------
    space : PopulationSpace
    grid : PlaceGrid
    tables : sequence of Table
    """

    def __init__(self, space: PopulationSpace, grid: PlaceGrid, tables: list[Table]) -> None:
        self._space, self._grid, self.tables = space, grid, tables
        self._of_prior = np.array([_OF_PRIOR if len(table.cell) else 1.0 for table in tables])
        self._cell = np.concatenate([table.cell for table in tables])
        number = np.repeat(np.arange(len(tables)), [len(table.cell) for table in tables])
        self._key = number * grid.n_cell + self._cell
        part = [table.weight / table.weight.sum() for table in tables if len(table.cell)]
        self._part = np.concatenate([np.zeros(0), *part])
        # Of table t, from t to t + 1.
        self._cumulative = np.concatenate([np.zeros(0), *(np.cumsum(of) for of in part)]) + number

    @classmethod
    def of(cls, space: PopulationSpace, grid: PlaceGrid, cell: Index, weight: Array) -> PlaceTables:
        """The tables whose `arrays` these are."""
        tables = [Table(c[c >= 0], w[c >= 0]) for c, w in zip(cell, weight, strict=True)]
        return cls(space, grid, tables)

    def arrays(self) -> tuple[Index, Array]:
        """Cells and weights of all tables, (n_table, n); cells are -1 where a table has fewer."""
        most = max(len(table.cell) for table in self.tables)
        cell = np.full((len(self.tables), most), -1, np.int64)
        weight = np.zeros(cell.shape)
        for i, table in enumerate(self.tables):
            cell[i, : len(table.cell)], weight[i, : len(table.cell)] = table
        return cell, weight

    def draw(self, rng: np.random.Generator, table: Index) -> Array:
        """A place from each of these tables (n,), float64 (n, 2)."""
        n = len(table)
        places = np.stack(
            [self._space.quantities[i].prior.transform(rng.random(n)) for i in self._space.place], axis=1
        )
        of_table = np.flatnonzero(rng.random(n) >= self._of_prior[table])
        u = table[of_table] + rng.random(len(of_table))
        # Sums of weights may end a rounding error before 1.
        last = np.searchsorted(self._key, (table[of_table] + 1) * self._grid.n_cell) - 1
        cell = self._cell[np.minimum(np.searchsorted(self._cumulative, u, side="right"), last)]
        shift = (rng.random((len(of_table), 2)) - 0.5) * self._grid.width
        places[of_table] = self._grid.centres(cell) + shift
        return places

    def log_density(self, places: Array, table: Index) -> Array:
        """ln of the density of these places (n, 2) from these tables (n,), float64 (n,)."""
        log_prior = np.zeros(len(places))
        for i, where in enumerate(self._space.place):
            log_prior += self._space.quantities[where].prior.log_density(places[:, i])
        part = self._of_prior[table]
        density = np.zeros(len(places))
        if len(self._key):
            cell = self._grid.cells(places)
            key = table * self._grid.n_cell + cell
            at = np.minimum(np.searchsorted(self._key, key), len(self._key) - 1)
            known = (cell >= 0) & (self._key[at] == key)
            density = np.where(known, self._part[at], 0.0) / self._grid.width.prod()
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp(np.log(part) + log_prior, np.log((1.0 - part) * density)))
