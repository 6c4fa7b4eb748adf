"""Launch the two kernels of matrix units for chi2 and its adjoint: residuals, then what sources gather."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, Stream
from rime_kernels.cuda.kernels.tiles.gather import Rest, make_gather_points
from rime_kernels.cuda.kernels.tiles.matrices import SIDE, GatherKernel
from rime_kernels.cuda.kernels.tiles.parts import TileKernel, TileRecords
from rime_kernels.cuda.kernels.tiles.units import N_COLUMN, N_ROW
from rime_kernels.cuda.layouts.launch import MAX_ITEM, Arrays, Share, Slab, Tiles
from rime_kernels.cuda.shapes.matrix_units import gather_shape

# Tiles of a warp, 16 by 8 antennas.
_WARP = 32


class UnitGather:
    """The kernels for point sources; attributes as those of `adjoint_launch.TileGather`.

    The first is that of chi2, which leaves the residuals, too; in the second sources gather from these.
    """

    run = 1
    has_pointing = False

    def __init__(self, tiles: Tiles) -> None:
        self._tiles, self._key = tiles, tiles.kernel(True, leaves_rest=True)
        self._gather = _gather_kernel(self._key, tiles.tiles.n_tile)
        self.moments, self.n_copy = self._gather.record, self._gather.n_copy
        self.n_column, self.n_sum, self.unit_time = tiles.n_chan, tiles.n_sum, tiles.tiles.layer_time
        self.max_batch = max(1, MAX_ITEM // (tiles.tiles.n_layer * tiles.n_chan * self.n_copy))
        self._first_tile = device.upload(_first_tiles(tiles.tiles.group, self._gather))
        self._per_item = 2 * tiles.variant.n_stokes * tiles.shape.side**2 * tiles.tiles.n_tile
        self._nothing = device.empty((1, 1), np.int32), device.empty((1,), np.float64)

    def units(self, slab: Slab) -> tuple[int, int]:
        """The first unit of a slab, and the one behind its last."""
        return self._tiles.layers(slab)

    def more_bytes(self, slab: Slab) -> int:
        """Residuals of a slab, for one entry of the batch."""
        return self._n_rest(slab) * np.dtype(self._key.variant.real).itemsize

    def _n_rest(self, slab: Slab) -> int:
        first, stop = self.units(slab)
        return (stop - first) * self.n_column * self._per_item

    def launch(
        self,
        workspace: device.Workspace,
        slab: Slab,
        arrays: Arrays,
        records: DeviceArray,
        by_pair: DeviceArray,
        stream: Stream,
        main: Stream,
    ) -> None:
        """Sum a slab's visibilities over the sources, and gather what each source did to chi2.

        `by_pair` and `main` are for what there is not with point sources alone: see `TileGather.launch`.
        """
        tiles, gather, n_batch = self._tiles, self._gather, arrays.inputs.direction.shape[0]
        rest = workspace.array("residual matrices", (n_batch, self._n_rest(slab)), self._key.variant.real)
        no_table, no_number = self._nothing
        left = TileRecords(no_table, no_table, records, no_number, rest)
        tiles.launch_kernel(self._key, slab, arrays, Share(tiles.n_item, 1, 1), left, stream)
        tiles.launch_gather(
            make_gather_points(gather), 32 * gather.n_warp, slab, arrays, Share(1, gather.n_copy, 1),
            Rest(self._first_tile, rest.reshape(rest.size), records), stream,
        )  # fmt: skip

    def pointing_shape(self, n_batch: int, n_antenna: int) -> tuple[int, ...]:
        """What antennas gathered, as it is fetched: nothing."""
        return n_batch, 0

    def sum_pointing(self, workspace: device.Workspace, n_batch: int, out: DeviceArray, main: Stream) -> None:
        """Put what antennas gathered together: nothing."""

    def pointing(self, fetched: NDArray[np.float64], n_antenna: int) -> NDArray[np.float64]:
        """What antennas gathered: nothing."""
        return np.zeros((len(fetched), 1, 1, 2))


def _gather_kernel(key: TileKernel, n_tile: int) -> GatherKernel:
    """The second kernel, for the residuals that the first one leaves."""
    n_parameter, chunk, register = gather_shape(key.variant)
    return GatherKernel(key.variant, key.shape.n_slot, n_tile, n_parameter, chunk, register, key.all_rows)


def _first_tiles(group: NDArray[np.int32], kernel: GatherKernel) -> NDArray[np.int32]:
    """The first tile of each 16 antennas with each eight antennas, -1 where there are no tiles; flat."""
    found = np.full((kernel.n_rows, kernel.n_step), -1, np.int32)
    first = np.arange(0, group.shape[2], _WARP)
    rows, columns = group[0, 0, first] * SIDE // N_ROW, group[1, 0, first] * SIDE // N_COLUMN
    found[rows, columns] = first
    return found.ravel()
