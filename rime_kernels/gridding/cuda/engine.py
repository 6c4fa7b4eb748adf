"""What engines of gridders share on a GPU: arrays that stay there, layers, batches, transfers."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels import check, device
from rime_kernels.compile.types import DeviceArray
from rime_kernels.gridding.cuda import planes as planes_cuda
from rime_kernels.gridding.cuda import stream as stream_cuda
from rime_kernels.gridding.cuda.fft import transform
from rime_kernels.gridding.cuda.items import item_table, split_long, starts
from rime_kernels.gridding.cuda.launch import launch_plane
from rime_kernels.gridding.facets import TooLargeError
from rime_kernels.gridding.grid import ImageGrid, offsets
from rime_kernels.gridding.plan import Plan, SortedRows
from rime_kernels.gridding.screens import Screens
from rime_kernels.gridding.taper import profile

# The most visibilities of an item.
_MOST_VIS = 1024
# Bytes of the arrays of a batch at most, and the share of the memory beside the grid.
_BATCH_BYTES, _BATCH_SHARE = 4 << 30, 0.5
# Batches, so that transfers have kernels to hide behind, unless they have fewer visibilities than keep the
# device busy.
_N_BATCH, _LEAST_VIS = 8, 1 << 22


class Batch(NamedTuple):
    """Successive items of one W-layer that are processed together."""

    first: int
    stop: int

    @property
    def n_item(self) -> int:
        return self.stop - self.first


class Visibilities(NamedTuple):
    """Visibilities on the device, real and imaginary parts one behind the other.

    Attributes
    ----------
    values : (2 n,)
    weight : (n,), or None for weights of 1
    compact : bool
        Whether they are those of a batch, one item behind the other; or those of all rows in their order.
    """

    values: DeviceArray
    weight: DeviceArray | None
    compact: bool


@dataclass(frozen=True)
class GriddingCall:
    """The arrays of one call on the device, beside those that stay there.

    Attributes
    ----------
    from_stokes : float64 (n_plane, n_stokes)
    to_corr : complex (n_corr, n_sum)
    grid : complex (n_plane, G, G)
    """

    from_stokes: DeviceArray
    to_corr: DeviceArray
    grid: DeviceArray

    @property
    def n_plane(self) -> int:
        return int(self.grid.shape[0])


C = TypeVar("C", bound=GriddingCall)


class CudaLayerEngine(ABC, Generic[C]):
    """Predicts and grids on a GPU, W-layer after W-layer; see `gridding.cpu.engine.CpuLayerEngine`.

    Parameters
    ----------
    rows : SortedRows
    plan : Plan
        Its long items are divided.
    grid : ImageGrid
    n_grid : int
    taper : float64 (S,)
    single : bool
    memory_limit : int, optional
        Bytes.
    """

    transform_seconds = 0.0  # transforms are queued among other kernels: the host sees no time of theirs

    def __init__(
        self, rows: SortedRows, plan: Plan, grid: ImageGrid, n_grid: int, taper: NDArray[np.float64],
        single: bool, memory_limit: int | None,
    ) -> None:  # fmt: skip
        self._plan, self._grid, self._n_grid, self._single = split_long(plan, _MOST_VIS), grid, n_grid, single
        self._n_row, self._n_chan = rows.order.size, rows.scale.size
        self._real: type[np.floating] = np.float32 if single else np.float64
        self._complex: type[np.complexfloating] = np.complex64 if single else np.complex128
        self._budget = device.memory_budget() if memory_limit is None else memory_limit
        self._stream, self._workspace = device.streams(1)[0], device.Workspace()
        self._correction = device.upload(1.0 / profile(taper, offsets(grid.n_pixel, 1.0) / n_grid))
        self._start = starts(self._plan)
        self._places = item_table(self._plan), self._start, rows.order
        self._buffers: stream_cuda.Buffers | None = None
        self._batches_of: dict[tuple[int, ...], list[list[Batch]]] = {}
        self._images = stream_cuda.Images(self._stream)

    @abstractmethod
    def _call(self, screens: Screens) -> C:
        """What a call needs on the device."""

    @abstractmethod
    def _degrid(self, call: C, w: float, batch: Batch, vis: Visibilities) -> None:
        """Write the visibilities of a batch, from the grid of a layer at w."""

    @abstractmethod
    def _add(self, call: C, layer: int, batch: Batch, vis: Visibilities) -> None:
        """Add the visibilities of a batch to what `_finish` makes the grid of its layer of."""

    @abstractmethod
    def _clear(self, call: C) -> None:
        """Begin a layer of the gridder with zeros."""

    def _finish(self, call: C) -> None:
        """End a layer of the gridder: the sums are to be in the grid."""

    @abstractmethod
    def _bytes_per_item(self, screens: Screens) -> NDArray[np.int64] | int:
        """Bytes that each item takes, beside its visibilities."""

    def _bytes_per_cell(self) -> int:
        """Bytes of a cell and plane, with the workspace of transforms."""
        return 2 * np.dtype(self._complex).itemsize

    def _find_scale(self, largest: Callable[[], float], screens: Screens) -> None:
        """Take notice of the largest weighted number that a call grids, for sums of whole numbers."""

    def predict(self, image: NDArray[np.float64], screens: Screens) -> NDArray[np.complexfloating]:
        """Visibilities (n_row, n_chan, n_corr) of an image (n_stokes, N, N)."""
        n_corr = screens.to_corr.shape[0]
        vis = np.empty((self._n_row, self._n_chan, n_corr), self._complex)
        numbers, batches = vis.reshape(self._n_row, -1).view(self._real), self.batches(screens)
        buffers = self._make_buffers(batches, n_corr)
        waiting = list[tuple[int, Batch, int]]()

        def deliver() -> None:
            i, batch, n = waiting.pop(0)
            buffers.wait_until_fetched(i)
            stream_cuda.scatter(
                buffers.host(i, n), *self._places, batch.first, batch.stop, 2 * n_corr, numbers
            )

        for i, (call, w, batch) in enumerate(self._gridded(self.send(image), screens, batches)):
            if i == stream_cuda.N_BUFFER - 1:  # the device has something to do meanwhile
                stream_cuda.touch(numbers.reshape(-1))
            if len(waiting) == stream_cuda.N_BUFFER:
                deliver()
            n = self._n_vis(batch)
            self._degrid(call, w, batch, Visibilities(buffers.on_device(i, n), None, True))
            buffers.fetch(i, n)
            waiting.append((i, batch, n))
        while waiting:
            deliver()
        return vis

    def send(self, image: NDArray[np.float64]) -> DeviceArray:
        """An image on the device, in working precision, until the next is sent."""
        found = self._workspace.array("image", image.shape, self._real)
        self._images.send(image, found)
        return found

    def predict_on_device(self, image: DeviceArray, screens: Screens, vis: DeviceArray = None) -> DeviceArray:
        """Predict from an image that is on the device, into a device array: `vis`, or a new one."""
        if vis is None:
            vis = device.empty((self._n_row, self._n_chan, screens.to_corr.shape[0]), self._complex)
        flat = Visibilities(self._flat(vis), None, False)
        for call, w, batch in self._gridded(image, screens, self.batches(screens)):
            self._degrid(call, w, batch, flat)
        self._stream.synchronize()
        return vis

    def grid(
        self, vis: NDArray[np.complexfloating], weight: NDArray[np.floating] | None, screens: Screens
    ) -> NDArray[np.float64]:
        """The image (n_stokes, N, N) of weighted visibilities: the adjoint of `predict`."""
        numbers = vis.reshape(self._n_row, -1).view(vis.real.dtype)
        weights = np.zeros((1, 1)) if weight is None else weight.reshape(self._n_row, -1)
        batches, n_each = self.batches(screens), 2 * vis.shape[2]
        buffers = self._make_buffers(batches, vis.shape[2])
        number = itertools.count()
        self._find_scale(lambda: stream_cuda.largest(numbers, weights, weight is not None), screens)

        def add(call: C, layer: int, batch: Batch) -> None:
            i, n = next(number), self._n_vis(batch)
            if i >= stream_cuda.N_BUFFER:
                buffers.wait_until_used(i)
            stream_cuda.gather(
                numbers, weights, weight is not None, *self._places, batch.first, batch.stop, n_each,
                buffers.host(i, n),
            )  # fmt: skip
            buffers.send(i, n)
            self._add(call, layer, batch, Visibilities(buffers.on_device(i, n), None, True))
            buffers.used(i)

        return self._summed(add, screens, batches)

    def grid_on_device(self, vis: DeviceArray, weight: DeviceArray, screens: Screens) -> NDArray[np.float64]:
        """Grid device arrays (n_row, n_chan, n_corr); no weight means weights of 1."""
        there = Visibilities(self._flat(vis), None if weight is None else weight.reshape(weight.size), False)
        self._find_scale(lambda: planes_cuda.largest(there.values, there.weight, self._stream), screens)
        return self._summed(
            lambda call, layer, batch: self._add(call, layer, batch, there), screens, self.batches(screens)
        )

    def _flat(self, vis: DeviceArray) -> DeviceArray:
        """Real and imaginary parts of a device array, one behind the other."""
        return vis.reshape(vis.size).view(np.float32 if vis.dtype == np.complex64 else np.float64)

    def _gridded(
        self, image: DeviceArray, screens: Screens, batches: list[list[Batch]]
    ) -> Iterator[tuple[C, float, Batch]]:
        """Batch after batch, with the grid of its layer, and w of the layer."""
        call = self._call(screens)
        fill = planes_cuda.make_fill(self._single, image.shape[0], call.n_plane)
        for w, of_layer in zip(self._plan.layer_w.tolist(), batches, strict=True):
            launch_plane(
                fill, self._n_grid, self._stream, w, self._grid.cell, *self._grid.frame, call.from_stokes,
                self._correction, image, call.grid,
            )  # fmt: skip
            transform(call.grid, self._stream, inverse=True)
            for batch in of_layer:
                yield call, w, batch

    def _summed(
        self, add: Callable[[C, int, Batch], None], screens: Screens, batches: list[list[Batch]]
    ) -> NDArray[np.float64]:
        """The image of what `add` adds, batch after batch."""
        call, n_pixel = self._call(screens), self._grid.n_pixel
        planes = self._workspace.array("planes", (call.n_plane, n_pixel, n_pixel), np.float64)
        take = planes_cuda.make_take(self._single)
        for layer, (w, of_layer) in enumerate(zip(self._plan.layer_w.tolist(), batches, strict=True)):
            self._clear(call)
            for batch in of_layer:
                add(call, layer, batch)
            self._finish(call)
            transform(call.grid, self._stream, inverse=False)
            launch_plane(
                take, n_pixel, self._stream, layer == 0, w, self._grid.cell, *self._grid.frame, call.grid,
                planes,
            )  # fmt: skip
        image = np.empty((screens.from_stokes.shape[1], n_pixel, n_pixel))
        mixed = self._workspace.array("mixed", image.shape, np.float64)
        launch_plane(
            planes_cuda.make_mix(), n_pixel, self._stream, call.from_stokes, self._correction, planes, mixed
        )
        self._images.fetch(mixed, image)
        return image

    def _shared(self, screens: Screens) -> GriddingCall:
        """Send the matrices of a call, and get the memory for its grid."""
        grid = self._workspace.array("grid", (screens.n_plane, self._n_grid, self._n_grid), self._complex)
        to_corr = device.upload(screens.to_corr.astype(self._complex))
        return GriddingCall(device.upload(screens.from_stokes), to_corr, grid)

    def _n_vis(self, batch: Batch) -> int:
        return int(self._start[batch.stop] - self._start[batch.first])

    def batches(self, screens: Screens) -> list[list[Batch]]:
        """Batches of each layer, all but the last of one size."""
        kind = *screens.from_stokes.shape, *screens.to_corr.shape
        if kind not in self._batches_of:
            self._batches_of[kind] = self._make_batches(screens)
        return self._batches_of[kind]

    def _make_batches(self, screens: Screens) -> list[list[Batch]]:
        plan, fixed = self._plan, self._fixed_bytes(screens)
        vis = stream_cuda.N_BUFFER * np.dtype(self._complex).itemsize * screens.to_corr.shape[0]
        each = int((self._bytes_per_item(screens) + vis * np.diff(self._start)).max())
        available = min(_BATCH_BYTES, int(_BATCH_SHARE * (self._budget - fixed)))
        if available < each:
            raise TooLargeError(
                f"a grid of {self._n_grid} x {self._n_grid} cells and {screens.n_plane} planes "
                f"needs {check.byte_text(fixed + each / _BATCH_SHARE)}, more than the "
                f"{check.byte_text(self._budget)} that are free or that the memory limit allows"
            )
        least = max(plan.n_item / _N_BATCH, plan.n_item * _LEAST_VIS / self._start[-1])
        step = max(1, min(available // each, int(least)))
        return [
            [Batch(start, min(start + step, stop)) for start in range(first, stop, step)]
            for first, stop in itertools.pairwise(plan.layer_start.tolist())
        ]

    def _fixed_bytes(self, screens: Screens) -> int:
        """Bytes of grids and images, for any batch; the plan and the rows are on the device already."""
        n_plane, n_stokes = screens.from_stokes.shape
        grids = self._bytes_per_cell() * n_plane * self._n_grid**2
        return int(grids + (8 * n_plane + 16 * n_stokes) * self._grid.n_pixel**2)

    def _make_buffers(self, batches: list[list[Batch]], n_corr: int) -> stream_cuda.Buffers:
        """Buffers for the transfer of visibilities; those of the last call where these are large enough."""
        shape = max(self._n_vis(batch) for of_layer in batches for batch in of_layer), n_corr
        if self._buffers is None or self._buffers.shape != shape:
            self._buffers = None
            self._buffers = stream_cuda.Buffers(*shape, self._real, self._stream)
        return self._buffers
