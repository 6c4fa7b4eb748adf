"""Launch the kernels with an adjoint for each layout of the rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, Stream
from rime_kernels.cuda.adjoint_launcher import AdjointLauncher, AdjointWork, PointingByUnit
from rime_kernels.cuda.adjoint_totals import grouped
from rime_kernels.cuda.jones_adjoint import JonesAdjoint
from rime_kernels.cuda.kernels import moments as parts
from rime_kernels.cuda.kernels.arguments import typed
from rime_kernels.cuda.kernels.moments import moments_of
from rime_kernels.cuda.kernels.rows.kernel import make_row_sums
from rime_kernels.cuda.kernels.rows.parts import RowKernel, RowRecords
from rime_kernels.cuda.kernels.tiles.parts import TileKernel, TileRecords, TileShape
from rime_kernels.cuda.launch_shapes.families import MAX_SHARED
from rime_kernels.cuda.launch_shapes.model import kernel_bytes
from rime_kernels.cuda.layouts.launch import MAX_ITEM, Layout, Runs, Share, Slab, Tiles
from rime_kernels.cuda.tensor_core_adjoint import ResidualTable, TensorCoreAdjoint, residual_table
from rime_kernels.inputs import Parameters

# Threads of a block, which share out the tiles of a split, the registers of each in single precision, and the
# sources whose terms are made together: on an H200 256 threads, 12 or 16 sources are as fast, within 4 %.
_THREADS, _REGISTERS, _CHUNK = 128, 168, 8
# Threads whose sums are joined at once: each such group has a part of shared memory.
_LANES = 32, 16, 8
_TERM = 0.2
"""What the terms of an antenna cost, in threads: they are made anew for each part of the tiles."""


@dataclass(frozen=True)
class TileShare:
    """How the tiles of an item are shared out: blocks, and threads of a block.

    Each of `n_part` blocks takes as many tiles of `n_item` items, a thread for each. Those of an item are
    `n_lanes` threads, a multiple of the `n_lane` whose sums are joined at once.
    """

    n_part: int
    n_item: int
    n_lanes: int
    n_lane: int

    @classmethod
    def of(cls, n_tile: int, n_slot: int) -> TileShare:
        """The one that leaves the fewest threads idle."""
        most, cuts = _most_threads(), []
        fewest = -(-n_tile // most)
        for n_part in range(fewest, min(n_tile, fewest + 4) + 1):
            for n_lane in _LANES if not device.simulated() else _LANES[1:]:
                n_lanes = -(-n_tile // (n_part * n_lane)) * n_lane
                cuts += [cls(n_part, k, n_lanes, n_lane) for k in range(1, most // n_lanes + 1)]
        return min(cuts, key=lambda cut: (cut._cost(n_slot), cut.n_part, -cut.n_lane, -cut.n_item))

    @property
    def n_thread(self) -> int:
        """Threads of a block, whole warps."""
        warp = _LANES[-1] if device.simulated() else 32
        return -(-self.n_item * self.n_lanes // warp) * warp

    def _cost(self, n_slot: int) -> float:
        return self.n_part * (self.n_thread / self.n_item + _TERM * n_slot)


class TileAdjoint(PointingByUnit):
    """The kernel over tiles with its adjoint; or the adjoint alone, by a `ResidualTable`."""

    def __init__(
        self, tiles: Tiles, has_gaussian: bool, n_pointing_time: int, rest: ResidualTable | None = None
    ) -> None:
        self._tiles, n_slot = tiles, tiles.tiles.n_slot
        self._cut = TileShare.of(tiles.tiles.n_tile, n_slot)
        self._key, self._rest = _kernel(tiles, has_gaussian, self._cut), Tiles.no_rest()
        if rest is not None:
            self._key = dataclasses.replace(self._key, n_template=0, rest_of=rest.of)
            self._rest = device.upload(rest.place), rest.step
        self.moments = moments_of(tiles.variant, has_gaussian)
        n_copy = tiles.tiles.n_split * self._cut.n_part
        self.n_copies, self.has_pointing = (n_copy,), self.moments.has_beam
        self.n_column = self._n_item = tiles.n_chan
        self.n_sum = tiles.tiles.n_layer * self.n_column * n_copy
        self.unit_time, self.max_batch = tiles.tiles.layer_time, max(1, MAX_ITEM // self.n_sum)
        starts, members = _members(tiles.tiles.group, self._cut.n_part, n_slot)
        self._members = device.upload(starts), device.upload(members)
        # Sums by antenna: l and m of each slot of each copy.
        self._n_by_antenna, self._n_pointing_time = 2 * n_slot * n_copy, n_pointing_time
        self._antenna = np.repeat(tiles.tiles.antenna, self._cut.n_part, axis=0).ravel()
        n_total = self.n_column * self._n_by_antenna
        self._groups = grouped(self.unit_time, n_pointing_time, n_total)

    def units(self, slab: Slab) -> tuple[int, int]:
        return self._tiles.layers(slab)

    def more_bytes(self, slab: Slab) -> int:
        first, stop = self.units(slab)
        return 8 * (stop - first) * self.n_column * self._n_by_antenna * self.has_pointing

    def launch(self, work: AdjointWork) -> None:
        (first, stop), n_batch = self.units(work.slab), work.n_batch
        n_value = n_batch * (stop - first) * self.n_column * self._n_by_antenna if self.has_pointing else 1
        by_antenna = work.workspace.array("by antenna", (n_value,), np.float64)
        share = Share(self._key.shape.n_item, self._cut.n_part, self._cut.n_lanes)
        left = TileRecords(*self._members, work.records[0], by_antenna, work.by_pair, *self._rest)
        self._tiles.launch_kernel(self._key, work.slab, work.arrays, share, left, work.stream)
        if self.has_pointing:
            self._collect(work, by_antenna)

    def pointing(self, fetched: NDArray[np.float64], n_antenna: int) -> NDArray[np.float64]:
        found = np.zeros((len(fetched), n_antenna, 2))
        for k, antenna in enumerate(self._antenna):
            found[:, antenna] += fetched[:, 2 * k : 2 * k + 2]
        return found.reshape(-1, self._n_pointing_time, n_antenna, 2)


class RowAdjoint(AdjointLauncher):
    """The kernel over rows with its adjoint.

    A unit is a block of rows; where brightness changes in time, its rows of one time.
    """

    def __init__(self, runs: Runs, has_gaussian: bool, per_time: bool, n_pointing_time: int) -> None:
        self._runs, shape = runs, runs.shape
        self._key = RowKernel(
            runs.variant, True, runs.matrix, has_gaussian, runs.n_template, shape, True, min(32, shape.n_row)
        )
        self.run, self.n_column, self.n_sum = shape.run, runs.n_run, runs.n_sum
        self.moments, self.max_batch = moments_of(runs.variant, has_gaussian, shape.run), runs.max_batch
        self.has_pointing = self.moments.has_beam
        first = runs.time[:: shape.n_row]
        last = runs.time[np.minimum(np.arange(first.size) * shape.n_row + shape.n_row, runs.n_unit) - 1]
        n_each = last - first + 1 if per_time else np.ones_like(first)
        self._starts = np.concatenate([[0], np.cumsum(n_each)]).astype(np.int32)
        number = np.arange(self._starts[-1]) - np.repeat(self._starts[:-1], n_each)
        self.unit_time = np.repeat(first, n_each) + number
        self._unit_start, self._n_pointing_time = device.upload(self._starts), n_pointing_time
        self._table: tuple[DeviceArray, DeviceArray] | None = None

    def units(self, slab: Slab) -> tuple[int, int]:
        n_row = self._runs.shape.n_row
        return int(self._starts[slab.unit.start // n_row]), int(self._starts[-(-slab.unit.stop // n_row)])

    def more_bytes(self, slab: Slab) -> int:
        return 32 * self._runs.n_unit * self.n_column * self.moments.has_beam

    def launch(self, work: AdjointWork) -> None:
        by_row = self._by_row(work.workspace, work.n_batch)
        left = typed(RowRecords(self._unit_start, work.records[0], by_row, work.by_pair))
        self._runs.launch_kernel(make_row_sums(self._key), work.slab, work.arrays, work.stream, left)

    def _by_row(self, workspace: device.Workspace, n_batch: int) -> DeviceArray:
        size = 4 * n_batch * self._runs.n_unit * self.n_column if self.moments.has_beam else 1
        return workspace.array("by row", (size,), np.float64)

    def pointing_shape(self, n_batch: int, n_antenna: int) -> tuple[int, ...]:
        return n_batch, self._n_pointing_time, n_antenna, 2

    def sum_pointing(self, workspace: device.Workspace, n_batch: int, out: DeviceArray, main: Stream) -> None:
        if self._table is None:
            starts, rows = self._runs.rows_of_antennas(self._n_pointing_time, out.shape[2])
            self._table = device.upload(starts), device.upload(rows)
        device.launch_each(
            parts.make_antenna_sums(), out.size, main, self._runs.n_unit, self.n_column, *self._table,
            self._by_row(workspace, n_batch), out,
        )  # fmt: skip

    def pointing(self, fetched: NDArray[np.float64], n_antenna: int) -> NDArray[np.float64]:
        return fetched


class MixedAdjoint(TensorCoreAdjoint):
    """The kernels for points and Gaussians: points accumulate by tensor cores, Gaussians in tiles."""

    def __init__(self, tiles: Tiles, threads: Tiles) -> None:
        super().__init__(tiles, True)
        self._gaussians = TileAdjoint(threads, True, 1, residual_table(tiles, threads))
        self.n_copies = *self.n_copies, *self._gaussians.n_copies
        self.max_batch = min(self.max_batch, self._gaussians.max_batch)

    def launch(self, work: AdjointWork) -> None:
        arrays, rest = work.arrays, self._leave_rest(work)
        inputs, n_point = arrays.inputs, arrays.inputs.direction.shape[1] - arrays.n_gaussian
        if inputs.first_varied < n_point:
            points = inputs._replace(stop_varied=min(inputs.stop_varied, n_point))
            self._accumulate_points(work._replace(arrays=arrays._replace(inputs=points)), rest)
        if inputs.stop_varied > n_point:
            others = arrays._replace(inputs=inputs._replace(first_varied=max(inputs.first_varied, n_point)))
            self._gaussians.launch(work._replace(arrays=others, records=work.records[1:], by_pair=rest))


def adjoint_launcher(
    layout: Layout, has_gaussian: bool, given: Parameters, threads: Tiles | None
) -> AdjointLauncher:
    """How the adjoint goes for a layout; of the parameters of a call sizes alone matter.

    `threads` are the tiles that Gaussians take where tensor cores have the points.
    """
    per_time, n_pointing_time = given.stokes.shape[1] > 1, given.pointing.shape[1]
    if isinstance(layout, Tiles) and layout.shape.operand_units:
        return TensorCoreAdjoint(layout, False) if threads is None else MixedAdjoint(layout, threads)
    if isinstance(layout, Tiles):
        return TileAdjoint(layout, has_gaussian, n_pointing_time)
    if layout.variant.jones_beam:
        return JonesAdjoint(layout, has_gaussian, given)
    return RowAdjoint(layout, has_gaussian, per_time, n_pointing_time)


def _most_threads() -> int:
    return 16 if device.simulated() else _THREADS


def _kernel(tiles: Tiles, has_gaussian: bool, cut: TileShare) -> TileKernel:
    """The kernel with as many items and sources at a time as there is shared memory for."""
    registers, chunk = _REGISTERS if tiles.variant.single and not device.simulated() else 0, _CHUNK
    while True:
        n_slot = cut.n_item * tiles.tiles.n_slot
        shape = TileShape(tiles.shape.side, cut.n_thread, chunk, n_slot, cut.n_item, registers)
        kernel = TileKernel(
            tiles.variant, True, tiles.matrix, has_gaussian, tiles.n_template, shape, True, cut.n_lane
        )
        if _shared_bytes(kernel) <= MAX_SHARED or (chunk == 1 and cut.n_item == 1):
            return kernel
        if chunk > 4 or cut.n_item == 1:
            chunk //= 2
        else:
            cut = dataclasses.replace(cut, n_item=cut.n_item // 2)


def _shared_bytes(key: TileKernel) -> int:
    """Bytes of the shared arrays of the kernel."""
    real, shape = np.dtype(key.variant.real).itemsize, key.shape
    moments = moments_of(key.variant, key.has_gaussian)
    accumulated = shape.chunk * (shape.n_thread // key.n_lane) * moments.most_size
    by_antenna = 2 * shape.side * shape.n_thread * real + 16 * shape.n_slot if moments.has_beam else 0
    forward = kernel_bytes(key.variant.single, key.variant.n_stokes, key.has_gaussian, shape)
    return forward + real * accumulated + by_antenna + 64


def _members(
    group: NDArray[np.int32], n_part: int, n_slot: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The tiles of each group of antennas, for each part of each split.

    Where the tiles of each group begin, (n_copy, n_group + 1), and twice the number of each tile within its
    part, 1 more where the group is the tile's second side (n_copy, n_member).
    """
    n_split, n_tile = group.shape[1:]
    per_part, n_group = -(-n_tile // n_part), n_slot
    starts = np.zeros((n_split * n_part, n_group + 1), np.int32)
    members = np.zeros((n_split * n_part, 2 * per_part), np.int32)
    for copy in range(n_split * n_part):
        split, part = divmod(copy, n_part)
        mine = group[:, split, part * per_part : (part + 1) * per_part].T.ravel()
        order = np.argsort(mine, kind="stable")
        members[copy, : mine.size] = order
        starts[copy] = np.searchsorted(mine[order], np.arange(n_group + 1))
    return starts, members
