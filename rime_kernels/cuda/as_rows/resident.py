"""Model visibilities that stay on the GPU, where the data are, while gains are fitted to them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.adjoint import Adjoint
from rime_kernels.arrays import Sources
from rime_kernels.arrays.row_cells import RowCells
from rime_kernels.compile.types import DeviceArray, Record
from rime_kernels.cuda.as_rows.device_residuals import DeviceResidualEngine
from rime_kernels.cuda.kernels import cells as kernels
from rime_kernels.cuda.kernels import reductions
from rime_kernels.cuda.kernels.arguments import typed

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


class _ResidentRows(NamedTuple):
    """Arrays on the device, flat, rows in the order of time."""

    vis: DeviceArray
    weight: DeviceArray
    model: DeviceArray


class CudaResidentVisibilities:
    """Visibilities on a GPU (`rime_kernels.engine.ResidentVisibilities`), computed anew where others replaced
    them.
    """

    def __init__(self, engine: ResidentModelEngine, sources: Sources, cells: RowCells) -> None:
        self.sources, self.cells = sources, cells
        self._engine = engine

    def sums(self, scale: float) -> Array:
        """float64 (3, n_cell): sum w |V|^2, and real and imaginary part of sum w D conj(V), times `scale`."""
        found: Array = self._engine.cell_sums(self, scale).copy_to_host()
        return found

    def chi2(self, gain: Complex) -> float:
        """sum w |D - g V|^2."""
        return self._engine.cell_chi2(self, gain)

    def adjoint(self, gain: Complex, by_power: Array, by_cross: Complex) -> Adjoint:
        """Derivatives of chi2 where V - D is 2 a |g|^2 V + conj(b) conj(g) D."""
        return self._engine.cell_adjoint(self, gain, by_power, by_cross)

    def sums_on_device(self, scale: float) -> DeviceArray:
        """`sums` that stay on the device, until others take their place."""
        return self._engine.cell_sums(self, scale)

    def adjoint_on_device(self, scale: float, gain: DeviceArray, slopes: Sequence[DeviceArray]) -> Adjoint:
        """`adjoint` of arrays on the device (`cells.make_cell_slopes`)."""
        return self._engine.adjoint_on_device(self, scale, gain, slopes)


class ResidentModelEngine(DeviceResidualEngine):
    """The engine of a GPU of a `Rime` that is not smeared."""

    _arrays_of_rows: _ResidentRows | None = None
    _last: CudaResidentVisibilities | None = None  # whose V is on the device
    _tables: tuple[RowCells, Record] | None = None

    def cache_model(self, sources: Sources, cells: RowCells) -> CudaResidentVisibilities | None:
        """Visibilities of one list of sources; None where there are templates, or too little memory."""
        if sources.n_batch != 1 or len(self._fixed.template) or not self._have_rows():
            return None
        return CudaResidentVisibilities(self, sources, cells)

    def cell_sums(self, resident: CudaResidentVisibilities, scale: float) -> DeviceArray:
        """The sums of `CudaResidentVisibilities.sums_on_device`."""
        n_corr, n_unit = self._sizes(resident)
        rows, tables = self._rows_with(resident), self._tables_of(resident.cells)
        out = self._workspace.array("sums of cells", (3, n_unit * n_corr), np.float64)
        kernel = kernels.make_cell_sums(n_corr, _n_lane())
        kernel[n_unit, _n_lane() * n_corr, 0](float(scale), tables, rows.model, rows.vis, rows.weight, out)
        return out

    def cell_chi2(self, resident: CudaResidentVisibilities, gain: Complex) -> float:
        """The chi2 of `CudaResidentVisibilities.chi2`."""
        n_corr, n_unit = self._sizes(resident)
        rows, tables = self._rows_with(resident), self._tables_of(resident.cells)
        (gains,) = self._workspace.fill("gains", [gain.view(np.float64)])
        sums = self._workspace.array("chi2 of cells", (1, gain.size), np.float64)
        out = self._workspace.array("chi2", (1,), np.float64)
        kernel, n_thread = kernels.make_cell_chi2(n_corr, _n_lane()), device.threads_per_block()
        kernel[n_unit, _n_lane() * n_corr, 0](tables, rows.model, rows.vis, rows.weight, gains, sums)
        reductions.make_batch_sums(n_thread)[1, n_thread, 0](sums, out)
        return float(out.copy_to_host()[0])

    def cell_adjoint(
        self, resident: CudaResidentVisibilities, gain: Complex, by_power: Array, by_cross: Complex
    ) -> Adjoint:
        """The derivatives of `CudaResidentVisibilities.adjoint`."""
        parts = [gain.view(np.float64), by_power, by_cross.real, by_cross.imag]
        there, *slopes = self._workspace.fill("gains", parts)
        return self.adjoint_on_device(resident, 1.0, there, slopes)

    def adjoint_on_device(
        self,
        resident: CudaResidentVisibilities,
        scale: float,
        gain: DeviceArray,
        slopes: Sequence[DeviceArray],
    ) -> Adjoint:
        """Derivatives as `CudaResidentVisibilities.adjoint_on_device`; V - D overwrites V on the device."""
        n_corr, n_unit = self._sizes(resident)
        rows, tables = self._rows_with(resident), self._tables_of(resident.cells)
        self._last = None
        kernel = kernels.make_cell_slopes(n_corr, _n_lane())
        arrays = rows.model, rows.vis, rows.weight, gain, *slopes
        kernel[n_unit, _n_lane() * n_corr, 0](float(scale), tables, *arrays)
        return self._retry_with_less_memory(lambda: self._pulled(resident.sources, rows))

    def _pulled(self, sources: Sources, rows: _ResidentRows) -> Adjoint:
        """Derivatives of chi2 where V - D stands in the place of V."""
        call = self._with_residual(self._call(sources, for_adjoint=True))
        sky = self._sky(sources)._replace(call=call)
        shape, sums = self._shape, self._adjoint_sums(call)
        columns = self._laid_out(call, rows.model.reshape(*shape), rows.weight.reshape(*shape), None)
        of_kinds = sums.sums(self._workspace, 1)
        for piece, arrays in self._arrays(sky, self._pieces_of(call, sums.record_bytes), columns):
            sums.launch(self._workspace, piece, arrays._replace(sum_out=of_kinds))
        answer = sums.answer(self._workspace, sky.given, call.layout.chan_freq, 0)
        return sums.adjoint(answer.copy_to_host(), 1)

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self._fixed.order.size, self._fixed.chan_freq.size, len(self._fixed.matrix)

    def _sizes(self, resident: CudaResidentVisibilities) -> tuple[int, int]:
        """Correlations, and blocks of threads."""
        return len(self._fixed.matrix), (resident.cells.starts.size - 1) * resident.cells.n_block

    def _have_rows(self) -> bool:
        """Whether data, weights and V are on the device, as rows are; they take their part of the budget."""
        if self._arrays_of_rows is not None:
            return True
        fixed = self._fixed
        # With data as kernels read them, of which some lack in tiles.
        n_byte = 4 * fixed.vis.nbytes + 3 * fixed.weight.nbytes
        if n_byte > self.data.budget:
            log.info("gains are fitted on the CPU: %.3g MB of data are too many", n_byte / 1e6)
            return False
        self.data.clear()
        self._graphs.clear()
        try:
            vis, weight = device.upload(fixed.vis.ravel()), device.upload(fixed.weight.ravel())
            self._arrays_of_rows = _ResidentRows(
                vis, weight, device.empty((fixed.vis.size,), fixed.vis.dtype)
            )
        except device.DeviceMemoryError as error:
            log.info("gains are fitted on the CPU: %s", error)
            return False
        self.data.budget -= n_byte
        return True

    def _rows_with(self, resident: CudaResidentVisibilities) -> _ResidentRows:
        """The arrays of rows, V that of these sources."""
        rows = self._arrays_of_rows
        assert rows is not None, "`cache_model` has made them"
        if self._last is not resident:
            self._last = None
            self._retry_with_less_memory(
                lambda: self._fill(resident.sources, rows.model.reshape(*self._shape))
            )
            self._last = resident
        return rows

    def _fill(self, sources: Sources, model: DeviceArray) -> None:
        """Launch all that V takes, (n_row, n_chan, n_corr)."""
        sky = self._sky(sources)
        call = sky.call
        for piece, arrays in self._arrays(sky, self._pieces_of(call, lambda piece: 0), self._nothing(call)):
            part = model[piece.place]
            call.layout.launch(piece, False, arrays._replace(vis_out=part.reshape(1, *part.shape)), 0)

    def _tables_of(self, cells: RowCells) -> Record:
        """Tables of cells on the device."""
        if self._tables is None or self._tables[0] is not cells:
            place = np.empty(self._fixed.order.size, np.int32)
            place[self._fixed.order] = np.arange(place.size)
            chans = np.argsort(cells.block, kind="stable")
            starts = np.searchsorted(cells.block[chans], np.arange(cells.n_block + 1))
            tables = cells.starts, place[cells.order], starts.astype(np.int32), chans.astype(np.int32)
            self._tables = cells, typed(kernels.CellTables(*(device.upload(table) for table in tables)))
        return self._tables[1]


def _n_lane() -> int:
    """Threads that share the samples of a cell, 3 at least."""
    return 4 if device.simulated() else 32
