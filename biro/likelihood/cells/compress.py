"""What stands for the visibilities of cells: of a baseline in runs of times and a block of channels.

Near a model M0 of the data D, with r = D - M0, another model is M0 + d. Where d is smooth within a cell, it
follows at every sample i from that at the nodes k, by the Lagrange polynomials L of the nodes:

    chi2 = sum w_i |r_i - d_i|^2,    d_i = sum over k of L_ik d_k
         = c + sum W_k |b_k / W_k - d_k|^2

    b_k = sum over i of L_ik w_i r_i,  W_k = sum over i of L_ik w_i,  c = sum w_i |r_i|^2 - sum |b_k|^2 / W_k

The term linear in d is exact, and with it chi-squared and its slopes at M0, whatever the weights w are. That
of the square of d is exact as far as the nodes integrate it with the weights w: those of Legendre do so with
even weights (Gauss), up to the degree 2 n - 1 of n nodes. So M0 + b_k / W_k with the weight W_k stands for
data at the uvw and frequency of the node, which is a row and channel of the data; with one node it is about
the weighted mean. How large cells may be is for `choose` to find out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from biro.likelihood.cells.axis import MOST_WEIGHT, CellAxis, lagrange
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Matrix: TypeAlias = Any  # of scipy.sparse, which has no types
LEAST_SHARE = 0.1
"""Of the mean weight of the nodes of a cell: where one has less, they share it in another way."""
BLOCK_VISIBILITIES = 1 << 22
"""Visibilities that are multiplied at a time."""


@dataclass(frozen=True, eq=False)
class Cells:
    """How the samples of a partition follow from those at the nodes of its cells.

    Attributes
    ----------
    rows : int64 (n_kept,)
        Rows that are kept: those at the nodes in time where a baseline has all of these in a cell, and else
        all rows that count.
    times : sparse float64 (n_row, n_kept)
        L in time.
    cell_of_kept : int64 (n_kept,)
        Rows of one cell have one number.
    channels : CellAxis
        Cells in frequency.
    """

    rows: Index
    times: Matrix
    cell_of_kept: Index
    channels: CellAxis

    @property
    def n_kept(self) -> int:
        """Rows times channels that are kept."""
        return len(self.rows) * len(self.channels.nodes)

    def expand(self, vis: NDArray[np.complexfloating]) -> NDArray[np.complexfloating]:
        """Visibilities of a smooth model at all rows and channels from those at the nodes.

        Parameters
        ----------
        vis : complex (n_kept, n_node, n_corr)

        Returns
        -------
        complex (n_row, n_chan, n_corr)
            0 in rows and channels of which no sample counts.
        """
        of_rows = (self.times @ vis.reshape(len(vis), -1)).reshape(-1, *vis.shape[1:])
        return np.asarray(np.einsum("rkc,fk->rfc", of_rows, self.channels.weights))

    def collect(self, samples: NDArray[Any], power: int = 1) -> NDArray[Any]:
        """Sums over samples i of L_ik^power times them, at the nodes; of power 0, over those of each cell.

        Parameters
        ----------
        samples : (n_row, n_chan, n_corr)

        Returns
        -------
        (n_kept, n_node, n_corr)
        """
        channels = self.channels.weights**power if power else self.channels.together
        times = self.times.copy()
        times.data = times.data**power
        size = max(1, BLOCK_VISIBILITIES // samples[0].size)
        blocks = [samples[i : i + size] for i in range(0, len(samples), size)]
        rows = np.concatenate([np.einsum("rfc,fk->rkc", block, channels, optimize=True) for block in blocks])
        return np.asarray(times.T @ rows.reshape(len(rows), -1)).reshape(-1, *rows.shape[1:])

    def over_nodes(self, values: Array) -> Array:
        """Sums over the nodes of each cell, at each of its nodes: (n_kept, n_node, n_corr) both."""
        of_node = self.channels.cell_of_node
        by_time = (self._same_cell @ values.reshape(len(values), -1)).reshape(values.shape)
        return np.asarray(np.einsum("rkc,kj->rjc", by_time, np.equal.outer(of_node, of_node).astype(float)))

    @cached_property
    def _same_cell(self) -> Matrix:
        """1 between rows of one cell, sparse (n_kept, n_kept)."""
        n = len(self.rows)
        of_cell = sparse.csr_array((np.ones(n), (np.arange(n), self.cell_of_kept)))
        return of_cell @ of_cell.T


def cells_of(part: Partition, times: CellAxis, channels: CellAxis, turned: Array) -> Cells:
    """The cells of all baselines of a partition.

    Parameters
    ----------
    part : Partition
    times : CellAxis
        Of the distinct times.
    channels : CellAxis
        Of the channels.
    turned : float64 (n_row,)
        How far each row's baseline has turned about the pole, in which its visibilities are smooth: in data
        of VLBI, rows with one TIME have uvw of epochs that differ by a second.
    """
    slot, counts = part.time_index.astype(np.int64), part.weight.any(axis=(1, 2))
    cell, baseline = times.cell_of_point[slot], baselines(part)
    group = np.unique(baseline * len(part.times) + cell, return_inverse=True)[1]
    # Baselines with no more rows in a cell than nodes would gain nothing.
    several = counts & (np.bincount(group, counts)[group] > times.n_node[cell])
    rows, columns, values = [], [], []
    for n in np.unique(times.n_node[cell[several]]):
        those = np.flatnonzero(several & (times.n_node[cell] == n))
        of_nodes, there = _rows_of_nodes(baseline, slot, those, times)
        those, of_nodes = those[there], of_nodes[there]
        weights = lagrange(turned[those], turned[of_nodes])
        # Where epochs are out of order, a polynomial may go anywhere between them.
        wild = ~(np.abs(weights).max(axis=1) < MOST_WEIGHT)
        calm = ~np.isin(group[those], group[those[wild]])
        rows.append(np.repeat(those[calm], n))
        columns.append(of_nodes[calm].ravel())
        values.append(weights[calm].ravel())
    none = np.zeros(0, np.int64)
    in_cells, nodes = np.concatenate([none, *rows]), np.concatenate([none, *columns])
    # A partition of which nothing counts keeps a row.
    alone = np.setdiff1d(np.flatnonzero(counts), in_cells) if counts.any() else np.zeros(1, np.int64)
    kept, column = np.unique(np.concatenate([nodes, alone]), return_inverse=True)
    matrix = sparse.csr_array(
        (np.concatenate([*values, np.ones(len(alone))]), (np.concatenate([in_cells, alone]), column)),
        shape=(part.n_row, len(kept)),
    )
    number = np.where(np.isin(kept, alone), part.n_row + kept, group[kept])
    return Cells(kept, matrix, np.unique(number, return_inverse=True)[1], channels)


def _rows_of_nodes(
    baseline: Index, slot: Index, rows: Index, times: CellAxis
) -> tuple[Index, NDArray[np.bool_]]:
    """Rows at the nodes of the cells of some rows, (n, n_node), and whether all are there, (n,).

    These cells have the same number of nodes.
    """
    n_time, cell = len(times.points), times.cell_of_point[slot[rows]]
    key = baseline * n_time + slot
    order, first = np.argsort(key), np.cumsum(times.n_node) - times.n_node
    nodes = times.nodes[first[cell][:, None] + np.arange(times.n_node[cell[0]])]
    wanted = (baseline[rows] * n_time)[:, None] + nodes
    found = order[np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)]
    return found, (key[found] == wanted).all(axis=1)


def baselines(part: Partition) -> Index:
    """A number for each row's ordered pair of antennas; rows of a pair at one time have different ones."""
    pair = part.antenna1.astype(np.int64) * part.n_antenna + part.antenna2
    key = pair * len(part.times) + part.time_index
    order = np.argsort(key, kind="stable")
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    occurrence = np.empty(part.n_row, np.int64)
    occurrence[order] = np.arange(part.n_row) - np.repeat(begins, np.diff(np.append(begins, part.n_row)))
    return np.asarray(occurrence * part.n_antenna**2 + pair)


def compress(part: Partition, cells: Cells, near: NDArray[np.complexfloating]) -> tuple[Partition, float]:
    """What stands for a partition near a model, and c, the part of chi-squared that no model changes.

    Parameters
    ----------
    part : Partition
    cells : Cells
    near : complex (n_row, n_chan, n_corr), Jy
        Visibilities M0 of the model.
    """
    weight, rows, channels = part.weight.astype(np.float64), cells.rows, cells.channels.nodes
    residual = np.where(weight > 0, part.vis - near, 0.0)
    b, at_nodes = cells.collect(weight * residual), _weights(cells, weight)
    mean = np.divide(b, at_nodes, out=np.zeros_like(b), where=at_nodes > 0)
    left_out = np.sum(weight * np.abs(residual) ** 2) - np.sum(at_nodes * np.abs(mean) ** 2)
    stands = replace(
        part,
        **part.row_arrays(rows),
        vis=np.where(at_nodes > 0, near[rows][:, channels] + mean, 0.0),
        weight=at_nodes,
        chan_freq=part.chan_freq[channels],
        chan_width=part.chan_width[channels],
        chan_id=(np.arange(part.n_chan) if part.chan_id is None else part.chan_id)[channels],
    )
    return stands, float(left_out)


def _weights(cells: Cells, weight: Array) -> Array:
    """W_k, 0 or above, which add up to the weights of each cell; float64 (n_kept, n_node, n_corr).

    Where flags leave a node hardly any weight, or less than none, nodes of the cell share its weight as
    sum over i of L_ik^2 w_i, which is what the square of d_k has to itself in chi-squared.
    """
    linear, total, square = cells.collect(weight), cells.collect(weight, 0), cells.collect(weight, 2)
    n_node = cells.over_nodes(np.ones(total.shape))
    poor = cells.over_nodes((linear < LEAST_SHARE * total / n_node).astype(np.float64)) > 0
    shared = np.divide(square * total, cells.over_nodes(square), out=np.zeros_like(total), where=total > 0)
    return np.where(poor, shared, linear)
