"""What launches the kernels with an adjoint for one layout of the rows, and the records that they write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, Stream
from rime_kernels.cuda.adjoint_totals import UnitGroups, add_up, collect
from rime_kernels.cuda.kernels.moments import Moments
from rime_kernels.cuda.layouts.launch import Arrays, Slab


class AdjointWork(NamedTuple):
    """A slab whose visibilities are summed, and where its adjoint goes.

    `records` has an array for each of `AdjointLauncher.n_copies`. `by_pair` is for what samples leave for the
    matrices of their antennas; or it has the residuals. `main` is the stream that waits for all others, or
    the only one.
    """

    workspace: device.Workspace
    slab: Slab
    arrays: Arrays
    records: list[DeviceArray]
    by_pair: DeviceArray
    stream: Stream
    main: Stream

    @property
    def n_batch(self) -> int:
        return int(self.arrays.inputs.direction.shape[0])


class AdjointLauncher(ABC):
    """The kernels with an adjoint for one layout of the rows.

    Attributes
    ----------
    moments : Moments
        The record that a source has of each unit, column and copy.
    n_column : int
        Items of a unit (channels).
    n_copies : tuple of int
        Blocks that each have some tiles of an item, and leave records; of points, then of Gaussians, where
        these accumulate in kernels of their own.
    run : int
        Channels of a column.
    n_sum : int
        Partial sums of each chi2.
    unit_time : int32 (n_unit,)
        The time of each unit (a layer of rows), ascending.
    max_batch : int
        The most entries of the batch in a launch.
    has_pointing : bool
        Whether there are derivatives by pointing offsets of antennas.
    """

    moments: Moments
    n_column: int
    n_copies: tuple[int, ...] = (1,)
    run = 1
    n_sum: int
    unit_time: NDArray[np.int32]
    max_batch: int
    has_pointing: bool = False

    @abstractmethod
    def units(self, slab: Slab) -> tuple[int, int]:
        """The first unit of a slab, and the one behind its last."""

    @abstractmethod
    def more_bytes(self, slab: Slab) -> int:
        """What there is of a slab besides records, for one entry of the batch."""

    @abstractmethod
    def launch(self, work: AdjointWork) -> None:
        """Sum a slab's visibilities over the sources, and accumulate the gradient of each source."""

    @abstractmethod
    def pointing_shape(self, n_batch: int, n_antenna: int) -> tuple[int, ...]:
        """Shape of the pointing derivatives of antennas, as they are fetched."""

    @abstractmethod
    def sum_pointing(self, workspace: device.Workspace, n_batch: int, out: DeviceArray, main: Stream) -> None:
        """Sum the pointing derivatives of antennas."""

    @abstractmethod
    def pointing(self, fetched: NDArray[np.float64], n_antenna: int) -> NDArray[np.float64]:
        """Pointing derivatives of antennas, (n_batch, n_time or 1, n_antenna, 2 or 4)."""


class PointingByUnit(AdjointLauncher):
    """A launcher whose units each leave sums for antennas, which are added up to the pointing derivatives.

    `_groups` are those of units, `_n_item` the columns of the sums and `_n_by_antenna` the numbers of each.
    """

    _groups: UnitGroups
    _n_pointing_time: int
    _n_item: int
    _n_by_antenna: int

    def _collect(self, work: AdjointWork, by_antenna: DeviceArray) -> None:
        first, stop = self.units(work.slab)
        totals = self._totals(work.workspace, work.n_batch)
        collect(self._groups, first, stop, 1, by_antenna, totals, work.main)

    def _totals(self, workspace: device.Workspace, n_batch: int) -> DeviceArray:
        shape = n_batch, self._groups.n_group, self._n_item, self._n_by_antenna
        return workspace.array("totals by antenna", shape, np.float64)

    def pointing_shape(self, n_batch: int, n_antenna: int) -> tuple[int, ...]:
        return n_batch * self._n_pointing_time, self._n_by_antenna

    def sum_pointing(self, workspace: device.Workspace, n_batch: int, out: DeviceArray, main: Stream) -> None:
        n_row = self._groups.n_group * self._n_item // self._n_pointing_time
        add_up(self._totals(workspace, n_batch), (out.shape[0], n_row), out, main)
