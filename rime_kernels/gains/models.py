"""Model visibilities at one theta, and what gains of their cells make of them: on the host, or on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Sources
from rime_kernels.arrays.row_cells import RowCells
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.gains import cell_sums
from rime_kernels.gradient import Gradient
from rime_kernels.rime import Rime

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Visibilities = NDArray[np.complexfloating]


class CellModel(Protocol):
    """Model visibilities V beside data D and weights w; arrays of cells are (n_cell,)."""

    def sums(self, scale: float) -> Array:
        """float64 (3, n_cell): sum w |V|^2, and real and imaginary part of sum w D conj(V), times `scale`."""
        ...

    def chi2(self, gain: Complex) -> float:
        """sum w |D - g V|^2."""
        ...

    def pulled(self, gain: Complex, by_power: Array, by_cross: Complex) -> Gradient:
        """Derivatives by the sources of what has them by sums: `cell_sums.slopes_of_rows`."""
        ...


@dataclass(frozen=True, eq=False)
class HostModel:
    """Model visibilities of gain cells on the host: see the protocol `CellModel`.

    Parameters
    ----------
    vis : complex (n_row, n_chan, n_corr), Jy
        V.
    data : complex, likewise
    weight : floating, likewise
    cells : RowCells
    adjoint : function, optional
        Gives Re(J^H W r) for r complex128 (n_row, n_chan, n_corr); `pulled` needs it.
    """

    vis: Visibilities
    data: Visibilities
    weight: NDArray[np.floating]
    cells: RowCells
    adjoint: Callable[[Complex], Gradient] | None = None

    def sums(self, scale: float) -> Array:
        """Sums of w |V|^2 and of w D conj(V), real and imaginary, float64 (3, n_cell), times `scale`."""
        cells = self.cells
        where = cells.order, cells.starts, cells.block, cells.n_block
        found = np.empty((3, (cells.starts.size - 1) * cells.n_block * self.vis.shape[2]))
        with CALL_LOCK:
            cell_sums.add_sums(self.vis, self.data, self.weight, *where, scale, *found)
        return found

    def chi2(self, gain: Complex) -> float:
        """Sum w |D - g V|^2 over all visibilities; `gain` is complex128 (n_cell,)."""
        cells, chi2 = self.cells, np.empty(len(self.vis))
        with CALL_LOCK:
            where = cells.cell_of_row, cells.block
            cell_sums.chi2_of_rows(self.vis, self.data, self.weight, *where, gain, chi2)
        return float(chi2.sum())

    def pulled(self, gain: Complex, by_power: Array, by_cross: Complex) -> Gradient:
        """Derivatives by the sources of what has these by the sums of each cell."""
        assert self.adjoint is not None, "made of visibilities alone"
        slope, where = np.empty(self.vis.shape, np.complex128), (self.cells.cell_of_row, self.cells.block)
        with CALL_LOCK:
            cell_sums.slopes_of_rows(
                self.vis, self.data, self.weight, *where, gain, by_power, by_cross, slope
            )
        return self.adjoint(slope)

    def changes(self, change: Visibilities, gain: Complex) -> Complex:
        """|g|^2 sum w conj(V) dV, complex128 (n_cell,), for changes dV of V."""
        cells, total = self.cells, np.empty(gain.size, np.complex128)
        where = cells.order, cells.starts, cells.block, cells.n_block
        with CALL_LOCK:
            cell_sums.changes_of_rows(self.vis, change, self.weight, *where, gain, total)
        return total


def model_of(
    rime: Rime, sources: Sources, data: Visibilities, weight: NDArray[np.floating], cells: RowCells
) -> CellModel:
    """The model visibilities of a batch of one: on a GPU where they can stay there (`Rime.cache_model`)."""
    resident = rime.cache_model(sources, cells)
    if resident is not None:
        return resident
    (vis,) = rime.predict(sources)
    return HostModel(vis, data, weight, cells, lambda slope: rime.adjoint(sources, slope[None]))


def reweighted(
    rime: Rime,
    sources: Sources,
    data: Visibilities,
    stated: NDArray[np.floating],
    cells: RowCells,
    weight: NDArray[np.floating],
) -> HostModel:
    """The model visibilities of a batch of one with weights in place of those that the Rime has, `stated`."""
    ratio = np.divide(weight, stated, out=np.zeros(weight.shape), where=stated > 0)
    (vis,) = rime.predict(sources)
    return HostModel(vis, data, weight, cells, lambda slope: rime.adjoint(sources, (ratio * slope)[None]))
