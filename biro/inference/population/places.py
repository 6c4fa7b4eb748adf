"""Where sources may be born: densities of places on a grid, as tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.inference.population.likelihoods import PopulationLikelihood
from biro.inference.population.space import PopulationSpace

Array = NDArray[np.float64]
_OF_PRIOR = 0.2
"""Part of the places that are drawn from the prior."""
_TAIL = 1e-4
"""Part of the prior of a coordinate that the grid leaves out at either end, where it is endless."""
_MOST_CELLS = 256
"""Cells along a side."""
_PER_CALL = 256
"""Places whose scores are computed in one state."""


class PlaceGrid:
    """A grid of cells over the places that the prior allows.

    Parameters
    ----------
    space : PopulationSpace
    cell : (float, float)
        Sizes of a cell along east and north at most, in the units of the priors.
    """

    def __init__(self, space: PopulationSpace, cell: tuple[float, float]) -> None:
        self._space = space
        self.edges = []
        for i, size in zip(space.place, cell, strict=True):
            prior = space.quantities[i].prior
            low, high = prior.support
            if not np.isfinite(high - low):
                low, high = prior.quantile_range(_TAIL)
            n = int(np.clip(np.ceil((high - low) / size), 1, _MOST_CELLS))
            self.edges.append(np.linspace(low, high, n + 1))
        self.shape = tuple(len(edges) - 1 for edges in self.edges)
        self.area = float(np.prod([edges[1] - edges[0] for edges in self.edges]))

    @property
    def n_cell(self) -> int:
        """Cells in all."""
        return int(np.prod(self.shape))

    @property
    def centres(self) -> Array:
        """Centres of the cells, float64 (n_cell, 2), north fastest."""
        east, north = (0.5 * (edges[1:] + edges[:-1]) for edges in self.edges)
        return np.stack(np.meshgrid(east, north, indexing="ij"), axis=-1).reshape(-1, 2)

    def cells(self, places: Array) -> NDArray[np.int64]:
        """The cell of each place (n, 2), int64 (n,); -1 outside."""
        index = [np.searchsorted(edges, places[:, i], side="right") - 1 for i, edges in enumerate(self.edges)]
        inside = np.ones(len(places), bool)
        for i, n in enumerate(self.shape):
            inside &= (index[i] >= 0) & (index[i] < n)
        return np.where(inside, index[0] * self.shape[1] + index[1], -1)

    def score(self, likelihood: PopulationLikelihood, row: Array) -> Array:
        """Derivative of ln L by the flux of one more point at the centre of each cell, float64 (n_cell,).

        Parameters
        ----------
        likelihood : PopulationLikelihood
        row : float64 (n_row,)
            The state that it is added to.
        """
        space, centres = self._space, self.centres
        n = int(space.number(row[None])[0])
        of = likelihood.sized(likelihood.size_of(n) + min(_PER_CALL, len(centres)))
        per_call = len(of.of_sources) - n
        base = np.zeros((1, len(of.of_shared) + of.of_sources.size))
        base[:, of.of_shared] = space.shared_of(row[None])
        base[:, of.of_sources[:n].ravel()] = space.slots_of(row[None])[0, :n, 1:].reshape(1, -1)
        score = np.empty(len(centres))
        for start in range(0, len(centres), per_call):
            some = centres[start : start + per_call]
            theta = base.copy()
            for i, where in enumerate(space.place):
                theta[0, of.of_sources[n : n + len(some), where]] = some[:, i]
            _, slope = of.likelihood.log_likelihood_and_gradient(theta)
            score[start : start + len(some)] = slope[0, of.of_sources[n : n + len(some), space.flux]]
        return score

    def histogram(self, places: Array) -> Array:
        """How many of these places (n, 2) are in each cell, spread over it and its neighbours a little."""
        cell = self.cells(places)
        count = np.bincount(cell[cell >= 0], minlength=self.n_cell).reshape(self.shape)
        spread = count.astype(np.float64)
        for axis in range(2):
            padded = np.pad(spread, [(1, 1) if i == axis else (0, 0) for i in range(2)])
            n = spread.shape[axis]
            parts = [np.take(padded, np.arange(k, k + n), axis) for k in range(3)]
            spread = 0.1 * parts[0] + 0.8 * parts[1] + 0.1 * parts[2]
        return spread.ravel()


class PlaceTables:
    """Densities of the places of births, one for each of several temperatures.

    Parameters
    ----------
    space : PopulationSpace
    grid : PlaceGrid
    weight : float64 (n_table, n_cell)
        Up to a factor; 0 throughout stands for the prior.
    """

    def __init__(self, space: PopulationSpace, grid: PlaceGrid, weight: Array) -> None:
        self._space, self.grid, self.weight = space, grid, weight
        total = weight.sum(axis=1, keepdims=True)
        self._of_prior = np.where(total[:, 0] > 0.0, _OF_PRIOR, 1.0)
        density = np.where(total > 0.0, weight / np.where(total > 0.0, total, 1.0), 1.0 / weight.shape[1])
        self._cumulative = np.cumsum(density, axis=1)
        self._density = density / grid.area

    def draw(self, rng: np.random.Generator, table: NDArray[np.int64]) -> Array:
        """A place for each table, float64 (n, 2)."""
        n = len(table)
        u = rng.random(n)
        cell = np.array(
            [np.searchsorted(self._cumulative[t], x) for t, x in zip(table, u, strict=True)], dtype=np.int64
        )
        cell = np.minimum(cell, self.weight.shape[1] - 1)
        width = [edges[1] - edges[0] for edges in self.grid.edges]
        places = self.grid.centres[cell] + (rng.random((n, 2)) - 0.5) * width
        is_prior = rng.random(n) < self._of_prior[table]
        for i, where in enumerate(self._space.place):
            of_prior = self._space.quantities[where].prior.transform(rng.random(n))
            places[:, i] = np.where(is_prior, of_prior, places[:, i])
        return places

    def log_density(self, places: Array, table: NDArray[np.int64]) -> Array:
        """ln of the density of these places (n, 2) from these tables, float64 (n,)."""
        log_prior = np.zeros(len(places))
        for i, where in enumerate(self._space.place):
            log_prior += self._space.quantities[where].prior.log_density(places[:, i])
        cell = self.grid.cells(places)
        density = np.where(cell >= 0, self._density[table, np.maximum(cell, 0)], 0.0)
        part = self._of_prior[table]
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log(part) + log_prior, np.log((1.0 - part) * density))
