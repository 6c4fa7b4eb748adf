"""The gradient of chi2 through beams of Jones matrices: the kernels that make its sums, one after the other.

A table of the matrices of all antennas is filled, chi2 and the residuals of all rows are worked out with it,
and then antennas accumulate from their rows. It goes by rows for both forms, of whose phases each row's own
are as exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import Record
from rime_kernels.cuda.adjoint_launcher import AdjointWork, PointingByUnit
from rime_kernels.cuda.adjoint_totals import grouped
from rime_kernels.cuda.kernels.arguments import typed
from rime_kernels.cuda.kernels.jones import adjoint as kernels
from rime_kernels.cuda.kernels.jones.residuals import JonesResiduals, make_residuals
from rime_kernels.cuda.kernels.jones.table import Table, make_fill_table
from rime_kernels.cuda.kernels.jones.voltages import is_circular
from rime_kernels.cuda.kernels.moments import moments_of
from rime_kernels.cuda.kernels.rows.parts import RowKernel
from rime_kernels.cuda.layouts.launch import Runs, Slab
from rime_kernels.inputs import Parameters


class JonesAdjoint(PointingByUnit):
    """The kernels over rows and over antennas.

    A unit is the rows of one time, cut where slabs may be cut: `Runs.unit_step`. Antennas are the copies.
    """

    _n_item = 1

    def __init__(self, runs: Runs, has_gaussian: bool, given: Parameters) -> None:
        self._runs, variant, shape = runs, runs.variant, runs.shape
        self._key = RowKernel(variant, True, runs.matrix, has_gaussian, runs.n_template, shape, True)
        self.moments, self.n_column, self.n_sum = moments_of(variant, has_gaussian), runs.n_run, runs.n_sum
        self._n_source = given.lm.shape[1]
        self._n_pointing_time, self._n_out, self._n_axis = given.pointing.shape[1:]
        self._n_by_antenna = self._n_axis * self._n_out
        self._n_antenna = int(runs.antennas.max(initial=0)) + 1
        self.n_copies = (self._n_antenna,)
        # A single antenna stands for all where there are no pointing errors.
        self.has_pointing = self._n_out >= self._n_antenna
        self._itemsize = np.dtype(variant.real).itemsize
        part = np.arange(runs.n_unit) // runs.unit_step
        changes = (np.diff(runs.time) != 0) | (np.diff(part) != 0)
        first = np.flatnonzero(np.concatenate([[True], changes]))
        self._starts, self.unit_time = np.append(first, runs.n_unit), runs.time[first]
        self._units = self._table_of_units()
        self._groups = grouped(self.unit_time, self._n_pointing_time, self._n_by_antenna)
        # A launch has a block of the second axis for each entry.
        self.max_batch = runs.max_batch

    def _table_of_units(self) -> Record:
        unit = np.repeat(np.arange(self.unit_time.size), np.diff(self._starts))
        entry = (unit[:, None] * self._n_antenna + self._runs.antennas).ravel()
        order = np.argsort(entry, kind="stable")
        starts = np.searchsorted(entry[order], np.arange(self.unit_time.size * self._n_antenna + 1))
        tables = self.unit_time, starts, order
        return typed(kernels.Units(*(device.upload(x.astype(np.int32)) for x in tables)))

    def units(self, slab: Slab) -> tuple[int, int]:
        first, stop = np.searchsorted(self._starts, [slab.place.start, slab.place.stop])
        return int(first), int(stop)

    def more_bytes(self, slab: Slab) -> int:
        """Matrices, residuals and sums of a slab, for one entry of the batch."""
        first, stop = self.units(slab)
        n_row, n_time = slab.place.stop - slab.place.start, slab.time.stop - slab.time.start
        per_chan = n_time * self._n_source * self._n_antenna + n_row
        n_byte = 8 * self._itemsize * self.n_column * per_chan
        return n_byte + 8 * self._n_axis * self._n_out * (stop - first) * self.has_pointing

    def launch(self, work: AdjointWork) -> None:
        workspace, slab, arrays, (record, *_), by_pair, stream, _ = work
        (first, stop), n_batch, runs = self.units(slab), work.n_batch, self._runs
        single, n_row = runs.variant.single, slab.place.stop - slab.place.start
        table, sky = self._table(workspace, slab, n_batch), typed(arrays.sky)
        fill = make_fill_table(single, is_circular(runs.matrix))
        device.launch_each(fill, table.values.size // 8, stream, sky, arrays.beams, typed(table))
        size = 8 * n_batch * self.n_column * n_row
        residual = workspace.array("residuals", (size,), runs.variant.real)
        left = typed(JonesResiduals(residual, by_pair))
        runs.launch_kernel(make_residuals(self._key), slab, arrays, stream, typed(table), left)
        rows = typed(kernels.SlabNumbers(slab.place.start, n_row, first, stop - first))
        device.launch_each(
            kernels.make_accumulate_gradient(self._key), record.size // self.moments.n_value, stream, rows,
            runs.tables, self._units, sky, arrays.beams, typed(table), residual, record,
        )  # fmt: skip
        if self.has_pointing:
            self._sum_units(work, stop - first)

    def _table(self, workspace: device.Workspace, slab: Slab, n_batch: int) -> Table:
        n_time = slab.time.stop - slab.time.start
        size = 8 * n_batch * n_time * self.n_column * self._n_source * self._n_antenna
        values = workspace.array("matrices", (size,), self._runs.variant.real)
        return Table(values, slab.time.start, n_time, self.n_column, self._n_antenna)

    def _sum_units(self, work: AdjointWork, n_unit: int) -> None:
        """Add the pointing derivatives of antennas in some units to the totals."""
        size = self._n_by_antenna * work.n_batch * n_unit
        by_unit = work.workspace.array("by unit", (size,), np.float64)
        device.launch_each(
            kernels.make_sum_pointing(self._key), size, work.stream, self.n_column, self._n_antenna,
            self._n_source, self._n_out, work.arrays.beams, work.records[0], by_unit,
        )  # fmt: skip
        self._collect(work, by_unit)

    def pointing(self, fetched: NDArray[np.float64], n_antenna: int) -> NDArray[np.float64]:
        return fetched.reshape(-1, self._n_pointing_time, self._n_out, self._n_axis)
