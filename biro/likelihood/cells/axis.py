"""Cells of an axis, of time or of frequency, and few points of each from which smooth functions follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]
MOST_POINTS, MOST_NODES = 64, 8
"""Of one cell. Polynomials of higher degree would need hardly fewer nodes for a turn of phase."""
MOST_WEIGHT = 3.0
"""Of a node in the value at a sample: polynomials with larger ones are not taken."""


@dataclass(frozen=True, eq=False)
class CellAxis:
    """Cells of the points of an axis, and their nodes: f(x_i) = sum over k of L_ik f(x_k) for smooth f.

    Attributes
    ----------
    points : float64 (n_point,)
    nodes : int64 (n_node,)
        Which of the points are nodes; those of a cell together, cells in their order.
    cell_of_point : int64 (n_point,)
        Cell of each point; -1 for points that are in none.
    """

    points: Array
    nodes: Index
    cell_of_point: Index

    @property
    def cell_of_node(self) -> Index:
        """Cell of each node, int64 (n_node,)."""
        return self.cell_of_point[self.nodes]

    @property
    def n_node(self) -> Index:
        """Number of nodes of each cell, int64 (n_cell,)."""
        return np.bincount(self.cell_of_node)

    @property
    def together(self) -> Array:
        """1 where a point and a node are in one cell, else 0; float64 (n_point, n_node)."""
        return np.equal.outer(self.cell_of_point, self.cell_of_node).astype(np.float64)

    @cached_property
    def weights(self) -> Array:
        """L, float64 (n_point, n_node): Lagrange polynomials of the nodes of each cell; 0 between cells."""
        result = np.zeros((len(self.points), len(self.nodes)))
        for cell in range(len(self.n_node)):
            of_points = np.flatnonzero(self.cell_of_point == cell)
            of_nodes = np.flatnonzero(self.cell_of_node == cell)
            places = self.points[of_points], self.points[self.nodes[of_nodes]]
            result[np.ix_(of_points, of_nodes)] = lagrange(*places)
        return result


def cut(points: Array, runs: Sequence[Index], rates: Array, limit: float, together: int = 1) -> CellAxis:
    """The cells with the fewest nodes that give exp(i rate x) back to a limit, rms over points and rates.

    Cells of a run have the same number of points, or one less. In each the fewest nodes are taken that are
    enough; where nothing less than all points is, all are nodes, and nothing is lost.

    Parameters
    ----------
    points : float64 (n_point,)
    runs : sequence of int64 arrays
        Points that may share cells, in ascending order; at least one.
    rates : float64 (n_rate,), rad per unit of the points
        How fast phases turn, each for as much of the data as the others.
    limit : float
        Of the error of exp(i rate x).
    together : int
        So many points lie about where one would: numbers of points of cells that are tried are its multiples.
    """
    spacing = float(np.median(np.abs(np.diff(points)))) if len(points) > 1 else 1.0
    scaled, turns = points / spacing, rates * spacing

    @cache
    def enough(places: tuple[float, ...]) -> list[int]:
        return _enough_nodes(np.array(places), turns, limit)

    def cells(size: int) -> list[tuple[Index, list[int]]]:
        parts = [part for run in runs for part in np.array_split(run, -(-len(run) // size))]
        # Rounded, so that cells with the same spacings are looked at once.
        return [(part, enough(tuple(np.round(scaled[part] - scaled[part[0]], 2)))) for part in parts]

    longest = min(MOST_POINTS, -(-max(map(len, runs)) // together))
    choices = [cells(size * together) for size in range(1, longest + 1)]
    best = min(choices, key=lambda choice: sum(len(nodes) for _, nodes in choice))
    cell_of_point = np.full(len(points), -1, np.int64)
    for number, (part, _) in enumerate(best):
        cell_of_point[part] = number
    return CellAxis(points, np.concatenate([part[nodes] for part, nodes in best]), cell_of_point)


def lagrange(points: Array, nodes: Array) -> Array:
    """L_k(x) = product over j != k of (x - x_j) / (x_k - x_j), the Lagrange polynomials.

    Parameters
    ----------
    points : float64 (n_point,)
    nodes : float64 (n_node,), or (n_point, n_node) where each point has its own

    Returns
    -------
    float64 (n_point, n_node)
    """
    nodes = np.broadcast_to(nodes, (len(points), nodes.shape[-1]))
    result = np.ones(nodes.shape)
    for k in range(nodes.shape[1]):
        others = np.delete(nodes, k, axis=1)
        result[:, k] = np.prod((points[:, None] - others) / (nodes[:, k, None] - others), axis=1)
    return result


def _enough_nodes(points: Array, rates: Array, limit: float) -> list[int]:
    """The fewest points of a cell whose polynomial gives exp(i rate x) back to the limit; all if none do."""
    phases = np.exp(1j * np.outer(points - points.mean(), rates))
    for n in range(1, min(MOST_NODES, len(points) - 1) + 1):
        nodes = _near_legendre(len(points), n)
        if n > 1 and np.diff(points[nodes]).min() <= 0.0:
            continue
        weights = lagrange(points, points[nodes])
        if np.abs(weights).max() > MOST_WEIGHT:
            continue
        missed = phases - weights @ phases[nodes]
        if np.sqrt(np.mean(np.abs(missed) ** 2)) <= limit:
            return nodes
    return list(range(len(points)))


def _near_legendre(n_point: int, n_node: int) -> list[int]:
    """The points of a cell next to the zeros of the Legendre polynomial P_n over its length, all different.

    At the zeros themselves, sums over many points would be sums over nodes up to the degree 2 n - 1 (Gauss).
    """
    zeros, _ = np.polynomial.legendre.leggauss(n_node)
    nodes = np.rint(0.5 * (zeros + 1.0) * n_point - 0.5).astype(np.int64)
    step = np.arange(n_node)
    nodes = np.maximum.accumulate(nodes - step) + step
    return [int(node) for node in np.minimum(nodes, n_point - n_node + step)]
