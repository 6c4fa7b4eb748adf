"""The visibilities of all partitions one after the other, with their cells: sums that gains are fitted to."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.free_gains.gain_problem import GainProblem

T = TypeVar("T", bound=np.generic)


class VisibilitiesOfCells:
    """Data, cells and coordinates of gains of all visibilities.

    Parameters
    ----------
    free : GainProblem

    Attributes
    ----------
    free : GainProblem
    data : complex128 (n_vis,)
        Of all partitions, one after the other; 0 where the weight is 0.
    cell : int64 (n_vis,)
    partition : int64 (n_vis,)
    to_cells : sparse float64 (n_cell, n_vis)
        Sums over cells.
    """

    def __init__(self, free: GainProblem) -> None:
        from scipy.sparse import csr_array

        self.free, layout, parts = free, free.layout, free.partitions
        n_cell = layout.cells.first.size - 1
        used = [np.where(part.weight > 0.0, part.vis, 0.0).ravel() for part in parts]
        self.data = np.concatenate(used).astype(np.complex128)
        number = np.arange(n_cell)
        pairs = list(zip(layout.partitions, parts, strict=True))
        self.cell = np.concatenate([own.of_visibilities(number, part.n_corr).ravel() for own, part in pairs])
        self.partition = np.repeat(np.arange(len(parts)), [part.vis.size for part in parts])
        at = np.arange(self.cell.size)
        self.to_cells: Any = csr_array((np.ones(at.size), (self.cell, at)), shape=(n_cell, at.size))

    def parts(self, of_all: NDArray[T]) -> list[NDArray[T]]:
        """What belongs to visibilities (..., n_vis), of each partition: (..., n_row, n_chan, n_corr)."""
        shapes = [part.vis.shape for part in self.free.partitions]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        pairs = zip(np.split(of_all, ends, axis=-1), shapes, strict=True)
        return [np.ascontiguousarray(part).reshape(*of_all.shape[:-1], *shape) for part, shape in pairs]
