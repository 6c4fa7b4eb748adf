"""From what sources gather in each launch to the derivatives of chi2: totals in a fixed order, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rime_kernels import _rime_cuda, _scalars_cuda, device
from rime_kernels._adjoint import Adjoint
from rime_kernels._adjoint_totals_cuda import collect, grouped, summed
from rime_kernels._inputs import Parameters, Variant
from rime_kernels._launch_cuda import Arrays, Slab
from rime_kernels._measure_cuda import n_kinds
from rime_kernels.phase import SPEED_OF_LIGHT

# d env / d projection = -2 ln 2 env times the coordinate along the source times this times (u, v, w).
_OF_PROJECTION = -2.0 * math.log(2.0) * _scalars_cuda.EXPONENT_SCALE * SPEED_OF_LIGHT


class AdjointSums:
    """Sums of one kind of call, on the device.

    Parameters
    ----------
    gather : TileGather or RowGather
        The kernel that makes records.
    variant : Variant
    given : Parameters
        Of a call; sizes alone matter.
    n_template : int
    """

    def __init__(self, gather: Any, variant: Variant, given: Parameters, n_template: int) -> None:
        self._gather, self._variant, self._n_template = gather, variant, n_template
        self._n_source, self._n_gaussian = given.lm.shape[1], given.shape.shape[1]
        self._n_time = given.stokes.shape[1]
        self._n_kind, self._has_turnover = n_kinds(n_template, variant.log, True), variant.log
        self._n_antenna = given.pointing.shape[2]
        n_total = gather.n_column * self._n_source * gather.moments.n_value
        self._groups = grouped(gather.unit_time, self._n_time, n_total)

    def record_bytes(self, slab: Slab) -> int:
        """Records of one entry of the batch."""
        first, stop = self._gather.units(slab)
        itemsize, gather = np.dtype(self._variant.real).itemsize, self._gather
        each = gather.n_copy * self._n_source * gather.moments.n_value * itemsize
        return int((stop - first) * gather.n_column * each) + int(gather.antenna_bytes(slab))

    def total_bytes(self) -> int:
        """Totals of one entry of the batch."""
        gather = self._gather
        per_group = gather.n_column * self._n_source * gather.moments.n_value
        n_total = self._groups.n_group * per_group + self._n_kind * gather.n_sum
        return 16 * n_total

    @property
    def max_batch(self) -> int:
        return int(self._gather.max_batch)

    def launch(self, workspace: device.Workspace, piece: Slab, arrays: Arrays, stream: Any) -> None:
        """Work a piece out, and add what it gives to the totals; pieces come in the order of their units."""
        gather, n_batch = self._gather, arrays.inputs.direction.shape[0]
        first, stop = gather.units(piece)
        n_value = n_batch * (stop - first) * gather.n_column * gather.n_copy * self._n_source
        n_value *= gather.moments.n_value
        records = workspace.array("records", (n_value,), self._variant.real)
        gather.launch(workspace, piece, arrays, records, stream)
        collect(self._groups, first, stop, gather.n_copy, records, self._totals(workspace, n_batch))

    def nothing(self) -> Adjoint:
        """The derivatives of an empty batch."""
        shapes = (
            (self._n_time, self._gather.n_chan, self._n_source, self._variant.n_stokes), (self._n_source, 3),
            (self._n_gaussian, 2, 3), (), (1, 1, 2), (self._n_source, 2), (self._n_row, 4),
        )  # fmt: skip
        return Adjoint(np.empty(0), *(np.empty((0, *shape)) for shape in shapes))

    def sums(self, workspace: device.Workspace, n_batch: int) -> Any:
        """Room for the partial sums of chi2, and of what templates gather, and turnovers."""
        shape = n_batch * self._n_kind, self._gather.n_sum
        return workspace.array("adjoint sums", shape, np.float64)

    def _totals(self, workspace: device.Workspace, n_batch: int) -> Any:
        n_item = self._n_source * self._gather.moments.n_value
        shape = n_batch, self._groups.n_group, self._gather.n_column, n_item
        return workspace.array("totals", shape, np.float64)

    def result(self, workspace: device.Workspace, n_batch: int) -> Adjoint:
        """The derivatives, once all pieces have been launched."""
        moments, run, n_source = self._gather.moments, self._gather.run, self._n_source
        totals = self._totals(workspace, n_batch)
        n_group, n_column = totals.shape[1:3]
        n_stokes = self._variant.n_stokes
        # All is launched before anything is waited for.
        rows, each = self._sums_of_rows(workspace, n_batch), (moments.n_value, moments.n_bright)
        groups = summed(workspace, "groups", totals, (n_batch, n_group))
        columns = summed(workspace, "columns", groups, (n_batch, n_column))
        shape = n_batch * self._n_time, (n_group if self._n_time == 1 else 1)
        of_time = summed(workspace, "brightness", totals, shape, *each)
        sums = rows.copy_to_host().reshape(n_batch, -1)
        of_time = of_time.copy_to_host().reshape(n_batch, self._n_time, n_column, n_source, -1)
        of_time = of_time.reshape(*of_time.shape[:4], run, n_stokes).swapaxes(3, 4)
        bright = of_time.reshape(n_batch, self._n_time, n_column * run, n_source, n_stokes)
        whole = columns.copy_to_host().reshape(n_batch, n_source, moments.n_value)
        projection = np.zeros((n_batch, self._n_gaussian, 2, 3))
        if moments.has_gaussian:
            found = whole[:, n_source - self._n_gaussian :, moments.projection :]
            projection = 2.0 * _OF_PROJECTION * found.reshape(projection.shape)
        scale, voltage_lm, pointing = self._of_beam(workspace, n_batch, whole)
        bright, direction = bright[:, :, : self._gather.n_chan], whole[..., moments.direction :][..., :3]
        return Adjoint(
            sums[:, 0], 2.0 * bright, 4.0 * math.pi * direction, projection, scale, pointing, voltage_lm,
            2.0 * self._of_templates(sums),
        )  # fmt: skip

    def _sums_of_rows(self, workspace: device.Workspace, n_batch: int) -> Any:
        """chi2, what templates gather, and turnovers, (n_batch * n_kind,) on the device."""
        sums, n_thread = self.sums(workspace, n_batch), device.threads_per_block()
        out = workspace.array("sums of all", (sums.shape[0],), np.float64)
        _rime_cuda.make_batch_sums(n_thread)[sums.shape[0], n_thread](sums, out)
        return out

    @property
    def _n_row(self) -> int:
        """Rows of `Adjoint.template`."""
        return max(1, self._n_template + self._has_turnover)

    def _of_templates(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        found = np.zeros((sums.shape[0], 4 * self._n_row))
        found[:, : sums.shape[1] - 1] = sums[:, 1:]
        return found.reshape(-1, self._n_row, 4)

    def _of_beam(
        self, workspace: device.Workspace, n_batch: int, whole: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """By way of the antennas' voltages: with respect to the scale, to l and m, and to pointing errors."""
        first = self._gather.moments.voltage
        if not self._gather.moments.has_beam:
            shape = n_batch, self._n_source, 2
            return np.zeros(n_batch), np.zeros(shape), np.zeros((n_batch, 1, 1, 2))
        found = self._gather.pointing(workspace, n_batch, self._n_antenna)
        return 2.0 * np.sum(whole[..., first + 2], axis=1), 2.0 * whole[..., first : first + 2], -2.0 * found


def joined(each: Sequence[Adjoint]) -> Adjoint:
    """The parts of a batch in one."""
    if len(each) == 1:
        return each[0]
    return Adjoint(*(np.concatenate(values) for values in zip(*each, strict=True)))
