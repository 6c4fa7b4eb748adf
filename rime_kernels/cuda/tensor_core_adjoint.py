"""Launch the two kernels of tensor cores for chi2 and its adjoint: residuals, then gradients of points."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, Stream
from rime_kernels.cuda.adjoint_launcher import AdjointLauncher, AdjointWork
from rime_kernels.cuda.kernels.tiles.matrices import SIDE, TensorCoreAdjointKernel
from rime_kernels.cuda.kernels.tiles.parts import NO_ROW, TileKernel, TileRecords
from rime_kernels.cuda.kernels.tiles.tensor_core_adjoint import ResidualInput, make_accumulate_point_gradients
from rime_kernels.cuda.kernels.tiles.tensor_cores import N_COLUMN, N_ROW
from rime_kernels.cuda.launch_shapes.tensor_core_shapes import adjoint_shape
from rime_kernels.cuda.layouts.launch import MAX_ITEM, Share, Slab, Tiles

# Tiles of a warp, 16 by 8 antennas.
_WARP = 32


class TensorCoreAdjoint(AdjointLauncher):
    """The kernels for point sources.

    The first is that of chi2, which leaves the residuals, too; in the second points accumulate their
    gradients from these. With `has_gaussian` the first sums Gaussians as well, and records have places for
    what these accumulate elsewhere.
    """

    def __init__(self, tiles: Tiles, has_gaussian: bool) -> None:
        self._tiles, self._key = tiles, tiles.kernel(True, has_gaussian=has_gaussian, leaves_rest=True)
        self._kernel = _adjoint_kernel(self._key, tiles.tiles.n_tile)
        self.moments = self._kernel.record
        self.n_copies = (self._kernel.n_copy,)
        self.n_column, self.n_sum, self.unit_time = tiles.n_chan, tiles.n_sum, tiles.tiles.layer_time
        self.max_batch = max(1, MAX_ITEM // (tiles.tiles.n_layer * tiles.n_chan * self._kernel.n_copy))
        self._first_tile = device.upload(_first_tiles(tiles.tiles.group, self._kernel))
        self._per_item = 2 * tiles.variant.n_stokes * tiles.shape.side**2 * tiles.tiles.n_tile
        no_table, no_number = device.empty((1, 1), np.int32), device.empty((1,), np.float64)
        self._nothing = no_table, no_table, device.empty((1,), tiles.variant.real), no_number
        self._no_rest = Tiles.no_rest()

    def units(self, slab: Slab) -> tuple[int, int]:
        return self._tiles.layers(slab)

    def more_bytes(self, slab: Slab) -> int:
        """Residuals of a slab, for one entry of the batch."""
        return self._n_rest(slab) * np.dtype(self._key.variant.real).itemsize

    def _n_rest(self, slab: Slab) -> int:
        first, stop = self.units(slab)
        return (stop - first) * self.n_column * self._per_item

    def launch(self, work: AdjointWork) -> None:
        self._accumulate_points(work, self._leave_rest(work))

    def _leave_rest(self, work: AdjointWork) -> DeviceArray:
        """The residuals of a slab, (n_batch, .), once chi2 has been summed."""
        shape = work.n_batch, self._n_rest(work.slab)
        rest = work.workspace.array("residual matrices", shape, self._key.variant.real)
        left, share = TileRecords(*self._nothing, rest, *self._no_rest), Share(self._tiles.n_item, 1, 1)
        self._tiles.launch_kernel(self._key, work.slab, work.arrays, share, left, work.stream)
        return rest

    def _accumulate_points(self, work: AdjointWork, rest: DeviceArray) -> None:
        """Launch the kernel that accumulates the gradients of the varied sources, all of them points."""
        kernel = self._kernel
        self._tiles.launch_adjoint(
            make_accumulate_point_gradients(kernel), 32 * kernel.n_warp, work.slab, work.arrays,
            Share(1, kernel.n_copy, 1),
            ResidualInput(self._first_tile, rest.reshape(rest.size), work.records[0]), work.stream,
        )  # fmt: skip

    def pointing_shape(self, n_batch: int, n_antenna: int) -> tuple[int, ...]:
        return n_batch, 0

    def sum_pointing(self, workspace: device.Workspace, n_batch: int, out: DeviceArray, main: Stream) -> None:
        """Sum the pointing derivatives of antennas: there are none."""

    def pointing(self, fetched: NDArray[np.float64], n_antenna: int) -> NDArray[np.float64]:
        """Pointing derivatives of antennas: there are none, so zeros."""
        return np.zeros((len(fetched), 1, 1, 2))


def _adjoint_kernel(key: TileKernel, n_tile: int) -> TensorCoreAdjointKernel:
    """The second kernel, for the residuals that the first one leaves."""
    n_parameter, chunk, register = adjoint_shape(key.variant)
    return TensorCoreAdjointKernel(
        key.variant, key.shape.n_slot, n_tile, n_parameter, chunk, register, key.all_rows, key.has_gaussian
    )


def _first_tiles(group: NDArray[np.int32], kernel: TensorCoreAdjointKernel) -> NDArray[np.int32]:
    """The first tile of each 16 antennas with each eight antennas, -1 where there are no tiles; flat."""
    found = np.full((kernel.n_rows, kernel.n_step), -1, np.int32)
    first = np.arange(0, group.shape[2], _WARP)
    rows, columns = group[0, 0, first] * SIDE // N_ROW, group[1, 0, first] * SIDE // N_COLUMN
    found[rows, columns] = first
    return found.ravel()


class ResidualTable(NamedTuple):
    """Where a kernel over other tiles finds the residuals: see `TileKernel.rest_of` and `TileRecords`."""

    of: tuple[int, ...]
    place: NDArray[np.int32]
    step: int


def residual_table(units: Tiles, others: Tiles) -> ResidualTable:
    """The table for the tiles of another layout of the same rows; an item is one block's in the first."""
    (_, cell, tile), first, second = _baselines(units)
    (split, *of_other), third, fourth = _baselines(others)
    n_antenna, n_tile = 1 + int(second.max(initial=0)), units.tiles.n_tile
    where = np.full((n_antenna, n_antenna), -1, np.int32)
    where[first, second] = cell * n_tile + tile
    place = np.full(others.tiles.place.shape[1:], -1, np.int32)
    place[split, *of_other] = where[third, fourth]
    variant = units.variant
    return ResidualTable(
        variant.stokes or tuple(range(variant.n_stokes)), place, units.shape.side**2 * n_tile
    )


def _baselines(tiles: Tiles) -> tuple[tuple[NDArray[np.intp], ...], NDArray[np.int32], NDArray[np.int32]]:
    """Split, cell and tile of each place where rows are, and the antennas of these, in ascending order."""
    table, side = tiles.tiles, tiles.shape.side
    split, cell, tile = np.nonzero((table.place != NO_ROW).any(axis=0))
    slots = side * table.group[:, split, tile] + np.stack(np.divmod(cell, side))
    first, second = table.antenna[split, slots]
    return (split, cell, tile), first, second
