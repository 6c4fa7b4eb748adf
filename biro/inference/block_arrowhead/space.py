"""The states in which the precision of parameters is an arrowhead matrix, and solutions with that precision.

Parameters follow from states by theta = W x, W sparse. States are the parameters themselves, but for steps of
chains of correlated segments (`biro.models.bound.antenna_terms.correlated`): with x_k = keep_k x_(k-1) +
step_k theta_k, data mix states of one segment alone, and the prior of steps neighbouring ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.inference.block_arrowhead.factor import ArrowheadFactor
from biro.inference.block_arrowhead.layout import ArrowheadLayout, arrowhead_layout
from biro.inference.block_arrowhead.matrix import ArrowheadMatrix
from biro.models.bound.antenna_terms.reach import NONE, Reach

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Sparse: TypeAlias = Any  # SciPy's sparse arrays have no types


@dataclass(frozen=True, eq=False)
class ArrowheadSpace:
    """States, and how parameters follow from them.

    Attributes
    ----------
    layout : ArrowheadLayout
        Of states.
    change : sparse float64 (n_param, n_param)
        W.
    log_det_change : float
        ln |det W|.
    segment_of_time : tuple of int64 (n_time,)
        The segment of each time of each partition; `NONE` where only the border counts.
    """

    layout: ArrowheadLayout
    change: Sparse
    log_det_change: float
    segment_of_time: tuple[Index, ...]

    @classmethod
    def of(cls, reach: Reach) -> ArrowheadSpace:
        """The space of the parameters of a model."""
        from scipy.sparse import csr_array

        layout = arrowhead_layout(reach)
        own, after = np.arange(reach.n_param), np.flatnonzero(reach.before != NONE)
        entries = np.concatenate([1.0 / reach.step, -reach.keep[after] / reach.step[after]])
        rows, columns = np.concatenate([own, after]), np.concatenate([own, reach.before[after]])
        change = csr_array((entries, (rows, columns)), shape=(reach.n_param, reach.n_param))
        of_time = tuple(layout.segment_of_cell[cells] for cells in reach.cell_of_time)
        return cls(layout, change, -float(np.log(np.abs(reach.step)).sum()), of_time)

    @cached_property
    def changes(self) -> Array:
        """Changes of theta (m + n_border, n_param): of one state of each segment, of one of the border."""
        layout = self.layout
        m = layout.index.shape[1]
        states = np.zeros((m + layout.border.size, layout.n_param))
        for place in range(m):
            states[place, layout.index[:, place][layout.index[:, place] != NONE]] = 1.0
        states[m + np.arange(layout.border.size), layout.border] = 1.0
        return np.asarray((self.change @ states.T).T)

    def of_diagonal(self, diagonal: Array) -> ArrowheadMatrix:
        """W^T diag(d) W of numbers of theta, float64 (n_param,): the precision of independent priors."""
        product = (self.change.T @ (self.change.multiply(diagonal[:, None]))).tocoo()
        layout = self.layout
        n_segment, m = layout.index.shape
        found = ArrowheadMatrix(
            np.zeros((n_segment, m, m)),
            np.zeros((n_segment - 1, m, m)) if layout.is_chained else None,
            np.zeros((n_segment, m, layout.border.size)),
            np.zeros((layout.border.size,) * 2),
        )
        layout.add_entries(found, product.row, product.col, product.data)
        return found

    def seen_from(self, slopes: Array, of_border: Array) -> ArrowheadSpace:
        """The space of other parameters y.

        Parameters
        ----------
        slopes : float64 (n_param,)
            d theta / d y, where each parameter follows its own y; those of the border do not count.
        of_border : float64 (n_border, n_border)
            d theta / d y between the parameters of the border.
        """
        from scipy.sparse import coo_array, csr_array

        border, n = self.layout.border, self.layout.n_param
        inner = np.setdiff1d(np.arange(n), border)
        back = np.linalg.inv(of_border)
        rows = np.concatenate([inner, np.repeat(border, border.size)])
        columns = np.concatenate([inner, np.tile(border, border.size)])
        entries = np.concatenate([1.0 / slopes[inner], back.ravel()])
        inverse = csr_array(coo_array((entries, (rows, columns)), shape=(n, n)))
        log_det = -float(np.log(np.abs(slopes[inner])).sum() + np.linalg.slogdet(of_border)[1])
        return replace(
            self, change=csr_array(inverse @ self.change), log_det_change=self.log_det_change + log_det
        )


class ArrowheadPrecision:
    """A precision matrix P of parameters, P^-1 = W A^-1 W^T with an arrowhead matrix A.

    Parameters
    ----------
    space : ArrowheadSpace
    arrowhead : ArrowheadMatrix
        A.

    Raises
    ------
    numpy.linalg.LinAlgError
        It is not positive definite.
    """

    def __init__(self, space: ArrowheadSpace, arrowhead: ArrowheadMatrix) -> None:
        self.space, self._layout, self._change = space, space.layout, space.change
        self._factor = ArrowheadFactor.of(arrowhead)

    @property
    def log_det(self) -> float:
        """ln det P."""
        return float(self._factor.log_det()) - 2.0 * self.space.log_det_change

    def solve(self, columns: Array) -> Array:
        """P^-1 v of columns (n_param, n)."""
        parts = self._layout.take(self._change.T @ columns)
        return np.asarray(self._change @ self._layout.put(self._factor.solve(parts)))

    def draw(self, columns: Array) -> Array:
        """R z of columns (n_param, n), with R R^T = P^-1: of standard normal z, draws of the parameters."""
        parts = self._layout.take(columns)
        return np.asarray(self._change @ self._layout.put(self._factor.draw(parts)))

    def draw_back(self, columns: Array) -> Array:
        """R^T g of columns (n_param, n): derivatives with respect to z, from those to the parameters."""
        parts = self._layout.take(self._change.T @ columns)
        return self._layout.put(self._factor.forward(parts))

    def whiten(self, columns: Array) -> Array:
        """R^-1 v of columns (n_param, n)."""
        from scipy.sparse.linalg import spsolve

        states = spsolve(self._change.tocsc(), columns).reshape(columns.shape)
        return self._layout.put(self._factor.whiten(self._layout.take(states)))

    def variances(self) -> Array:
        """The diagonal of P^-1, float64 (n_param,)."""
        inverse, by = self._factor.inverse(), self._change.tocsr()
        found = np.zeros(self._layout.n_param)
        # Each parameter follows from few states, and each pair of these has a block.
        counts = np.diff(by.indptr)
        for n in np.unique(counts):
            rows = np.flatnonzero(counts == n)
            place = by.indptr[rows][:, None] + np.arange(n)
            states, factors = by.indices[place], by.data[place]
            first, second = np.repeat(states, n, axis=1), np.tile(states, (1, n))
            weight = np.repeat(factors, n, axis=1) * np.tile(factors, (1, n))
            covariance = self._layout.entries(inverse, first.ravel(), second.ravel()).reshape(first.shape)
            found[rows] = np.sum(weight * covariance, axis=1)
        return found
