"""The engine of `Idg` on a GPU: arrays that stay there, and what each call sends, launches and fetches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import check, device
from rime_kernels.compile.types import Compiled, DeviceArray
from rime_kernels.gridding.facets import TooLargeError
from rime_kernels.gridding.grid import ImageGrid, offsets
from rime_kernels.gridding.plan import Plan, SortedRows, on_grid
from rime_kernels.gridding.screens import Screens
from rime_kernels.gridding.taper import profile
from rime_kernels.idg.cuda import apply as apply_cuda
from rime_kernels.idg.cuda import stream as stream_cuda
from rime_kernels.idg.cuda import subgrids as subgrids_cuda
from rime_kernels.idg.cuda import tasks as tasks_cuda
from rime_kernels.idg.cuda.fft import transform
from rime_kernels.idg.cuda.parts import launch, launch_plane
from rime_kernels.idg.cuda.sums import Batch, Sums
from rime_kernels.idg.layout import Layout

# The most visibilities of an item.
_MOST_VIS = 1024
# Bytes of subgrids, visibilities and tasks of a batch at most, and the share of the memory beside the grid.
_BATCH_BYTES, _BATCH_SHARE = 4 << 30, 0.5
# Batches, so that transfers have kernels to hide behind, unless they have fewer visibilities than keep the
# device busy.
_N_BATCH, _LEAST_VIS = 8, 1 << 22


class _Call(NamedTuple):
    """The arrays of one call on the device, beside those that stay there."""

    key: apply_cuda.Apply
    screens: DeviceArray
    from_stokes: DeviceArray
    to_corr: DeviceArray
    grid: DeviceArray


class Engine:
    """Predicts and grids on a GPU, W-layer after W-layer; see `rime_kernels.idg.cpu.engine.Engine`."""

    transform_seconds = 0.0  # transforms are queued among other kernels: the host sees no time of theirs

    def __init__(
        self, rows: SortedRows, plan: Plan, grid: ImageGrid, layout: Layout, *, single: bool,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        plan = tasks_cuda.split_long(plan, _MOST_VIS)
        self._plan, self._grid, self._layout, self._single = plan, grid, layout, single
        self._n_row, self._n_chan = rows.order.size, rows.scale.size
        self._real: type[np.floating] = np.float32 if single else np.float64
        self._complex: type[np.complexfloating] = np.complex64 if single else np.complex128
        self._budget = device.memory_budget() if memory_limit is None else memory_limit
        self._stream, self._workspace = device.streams(1)[0], device.Workspace()
        self._frame = grid.frame
        curvature, taper = self._curvatures(), np.outer(layout.taper.values, layout.taper.values)
        self._curvature = device.upload(curvature)
        self._taper = device.upload((taper.ravel() / layout.size**2).astype(self._real))
        self._sums = Sums(
            on_grid(rows, layout.limits.field), plan, layout.size, single, curvature, self._stream
        )
        tiles = subgrids_cuda.make_tiles(plan, layout.size, layout.n_grid)
        self._tiles, self._tiles_there = tiles, [device.upload(each) for each in tiles[:4]]
        correction = 1.0 / profile(layout.taper.values, offsets(grid.n_pixel, 1.0) / layout.n_grid)
        self._correction = device.upload(correction)
        self._start = tasks_cuda.starts(plan)
        self._places = tasks_cuda.item_table(plan), self._start, rows.order
        self._buffers: stream_cuda.Buffers | None = None
        self._batches_of: dict[tuple[int, ...], list[list[Batch]]] = {}
        self._images = stream_cuda.Images(self._stream)

    def predict(self, image: NDArray[np.float64], screens: Screens) -> NDArray[np.complexfloating]:
        """Visibilities (n_row, n_chan, n_corr) of an image (n_stokes, N, N)."""
        n_corr = screens.to_corr.shape[0]
        vis = np.empty((self._n_row, self._n_chan, n_corr), self._complex)
        numbers, batches = vis.reshape(self._n_row, -1).view(self._real), self._batches(screens)
        buffers = self._make_buffers(batches, n_corr)
        waiting = list[tuple[int, Batch, int]]()

        def deliver() -> None:
            i, batch, n = waiting.pop(0)
            buffers.wait_until_fetched(i)
            stream_cuda.scatter(
                buffers.host(i, n), *self._places, batch.first, batch.stop, 2 * n_corr, numbers
            )

        for i, (call, batch) in enumerate(self._split(self.send(image), screens, batches)):
            if i == stream_cuda.N_BUFFER - 1:  # the device has something to do meanwhile
                stream_cuda.touch(numbers.reshape(-1))
            if len(waiting) == stream_cuda.N_BUFFER:
                deliver()
            n, sums = self._n_vis(batch), self._pixel_sums(call, batch)
            self._sums.degrid(batch, sums, call.to_corr, buffers.on_device(i, n), compact=True)
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
        """The same of an image that was sent, as a device array that stays there: `vis`, or a new one."""
        if vis is None:
            vis = device.empty((self._n_row, self._n_chan, screens.to_corr.shape[0]), self._complex)
        flat = self._flat(vis)
        for call, batch in self._split(image, screens, self._batches(screens)):
            self._sums.degrid(batch, self._pixel_sums(call, batch), call.to_corr, flat, compact=False)
        self._stream.synchronize()
        return vis

    def grid(
        self, vis: NDArray[np.complexfloating], weight: NDArray[np.floating] | None, screens: Screens
    ) -> NDArray[np.float64]:
        """The image (n_stokes, N, N) of weighted visibilities: the adjoint of `predict`."""
        numbers = vis.reshape(self._n_row, -1).view(vis.real.dtype)
        weights = np.zeros((1, 1)) if weight is None else weight.reshape(self._n_row, -1)
        batches, n_each = self._batches(screens), 2 * vis.shape[2]
        buffers = self._make_buffers(batches, vis.shape[2])
        number = itertools.count()

        def fill(call: _Call, batch: Batch, sums: DeviceArray) -> None:
            i, n = next(number), self._n_vis(batch)
            if i >= stream_cuda.N_BUFFER:
                buffers.wait_until_used(i)
            stream_cuda.gather(
                numbers, weights, weight is not None, *self._places, batch.first, batch.stop, n_each,
                buffers.host(i, n),
            )  # fmt: skip
            buffers.send(i, n)
            self._sums.grid(batch, buffers.on_device(i, n), None, call.to_corr, sums, compact=True)
            buffers.used(i)

        return self._add(fill, screens, batches)

    def grid_on_device(self, vis: DeviceArray, weight: DeviceArray, screens: Screens) -> NDArray[np.float64]:
        """The same of device arrays (n_row, n_chan, n_corr); no weight means weights of 1."""
        vis, weight = self._flat(vis), None if weight is None else weight.reshape(weight.size)

        def fill(call: _Call, batch: Batch, sums: DeviceArray) -> None:
            self._sums.grid(batch, vis, weight, call.to_corr, sums, compact=False)

        return self._add(fill, screens, self._batches(screens))

    def _flat(self, vis: DeviceArray) -> DeviceArray:
        """Real and imaginary parts of a device array, one behind the other."""
        return vis.reshape(vis.size).view(np.float32 if vis.dtype == np.complex64 else np.float64)

    def _split(
        self, image: DeviceArray, screens: Screens, batches: list[list[Batch]]
    ) -> Iterator[tuple[_Call, Batch]]:
        """Batch after batch, with its pixels as the degridder sums them in `_pixel_sums`."""
        call = self._call(screens)
        fill = subgrids_cuda.make_fill(self._single, image.shape[0], call.key.n_plane)
        split = subgrids_cuda.make_split(self._layout.size, call.key.n_plane)
        apply, items = apply_cuda.make_apply(call.key), self._sums.items
        for w, of_layer in zip(self._plan.layer_w, batches, strict=True):
            launch_plane(
                fill, self._layout.n_grid, self._stream, float(w), self._grid.cell, *self._frame,
                call.from_stokes, self._correction, image, call.grid,
            )  # fmt: skip
            transform(call.grid, self._stream, inverse=True)
            for batch in of_layer:
                subgrids, n_pixel = self._subgrids(call, batch), batch.n_item * self._layout.size**2
                self._launch(split, n_pixel, batch.n_item, batch.first, items, call.grid, subgrids)
                transform(subgrids, self._stream, inverse=False)
                self._launch(
                    apply, n_pixel, batch.n_item, batch.first, float(w), items, self._sums.w,
                    self._curvature, self._taper, call.screens, subgrids, self._pixel_sums(call, batch),
                )  # fmt: skip
                yield call, batch

    def _add(
        self, fill: Callable[[_Call, Batch, DeviceArray], None], screens: Screens, batches: list[list[Batch]]
    ) -> NDArray[np.float64]:
        """The image of the pixels' sums that `fill` makes, batch after batch."""
        call, n_pixel, items = self._call(screens), self._grid.n_pixel, self._sums.items
        planes = self._workspace.array("planes", (call.key.n_plane, n_pixel, n_pixel), np.float64)
        take, add = subgrids_cuda.make_take(self._single), subgrids_cuda.make_add(self._single)
        apply, clear = apply_cuda.make_apply_adjoint(call.key), subgrids_cuda.make_clear(self._single)
        for layer, (w, of_layer) in enumerate(zip(self._plan.layer_w, batches, strict=True)):
            launch_plane(clear, self._layout.n_grid, self._stream, call.grid)
            first_tile, last_tile = (int(self._tiles.layer_start[k]) for k in (layer, layer + 1))
            for batch in of_layer:
                sums, subgrids = self._pixel_sums(call, batch), self._subgrids(call, batch)
                fill(call, batch, sums)
                self._launch(
                    apply, batch.n_item * self._layout.size**2, batch.n_item, batch.first, float(w), items,
                    self._sums.w, self._curvature, self._taper, call.screens, sums, subgrids,
                )  # fmt: skip
                transform(subgrids, self._stream, inverse=True)
                add[(last_tile - first_tile, call.key.n_plane), subgrids_cuda.TILE**2, self._stream](
                    batch.n_item, batch.first, first_tile, *self._tiles_there, subgrids, call.grid
                )
            transform(call.grid, self._stream, inverse=False)
            launch_plane(
                take, n_pixel, self._stream, layer == 0, float(w), self._grid.cell, *self._frame, call.grid,
                planes,
            )  # fmt: skip
        image = np.empty((screens.from_stokes.shape[1], n_pixel, n_pixel))
        mixed = self._workspace.array("mixed", image.shape, np.float64)
        launch_plane(
            subgrids_cuda.make_mix(), n_pixel, self._stream, call.from_stokes, self._correction, planes, mixed
        )
        self._images.fetch(mixed, image)
        return image

    def _launch(self, kernel: Compiled, n: int, *arguments: object) -> None:
        launch(kernel, n, self._stream, *arguments)

    def _call(self, screens: Screens) -> _Call:
        """Send the A-terms of a call, and get the memory for its grid."""
        n_plane, n_grid, is_2x2 = screens.n_plane, self._layout.n_grid, screens.kind == 2
        key = apply_cuda.Apply(
            self._single, screens.kind, self._layout.size, n_plane, screens.n_sum,
            tuple(screens.element.tolist()) if is_2x2 else (),
            tuple(screens.feeds.ravel().tolist()) if is_2x2 else (),
        )  # fmt: skip
        values = screens.values
        elements = values.reshape(*values.shape[:2], -1, values.shape[-1] ** 2).astype(self._complex)
        grid = self._workspace.array("grid", (n_plane, n_grid, n_grid), self._complex)
        to_corr = device.upload(screens.to_corr.astype(self._complex))
        return _Call(key, device.upload(elements), device.upload(screens.from_stokes), to_corr, grid)

    def _subgrids(self, call: _Call, batch: Batch) -> DeviceArray:
        """Memory for the batch's subgrids, rounded up: few sizes, since cuFFT makes a plan for each."""
        step, size = 1 << max(0, batch.n_item.bit_length() - 4), self._layout.size
        n_item = -(-batch.n_item // step) * step
        return self._workspace.array("subgrids", (n_item, call.key.n_plane, size, size), self._complex)

    def _pixel_sums(self, call: _Call, batch: Batch) -> DeviceArray:
        """Memory for the pixels of the batch that the degridder sums, or the gridder fills."""
        n = batch.n_item * self._layout.size**2 * 2 * call.key.n_sum
        return self._workspace.array("sums", (n,), self._real)

    def _n_vis(self, batch: Batch) -> int:
        return int(self._start[batch.stop] - self._start[batch.first])

    def _batches(self, screens: Screens) -> list[list[Batch]]:
        """Batches of each layer, all but the last of one size."""
        kind = *screens.from_stokes.shape, *screens.to_corr.shape
        if kind not in self._batches_of:
            self._batches_of[kind] = self._make_batches(screens)
        return self._batches_of[kind]

    def _make_batches(self, screens: Screens) -> list[list[Batch]]:
        plan, each, fixed = self._plan, self._bytes_per_item(screens), self._fixed_bytes(screens)
        available = min(_BATCH_BYTES, int(_BATCH_SHARE * (self._budget - fixed)))
        if available < each:
            raise TooLargeError(
                f"a grid of {self._layout.n_grid} x {self._layout.n_grid} cells and {screens.n_plane} planes "
                f"needs {check.byte_text(fixed + each / _BATCH_SHARE)}, more than the "
                f"{check.byte_text(self._budget)} that are free or that the memory limit allows"
            )
        least = max(plan.n_item / _N_BATCH, plan.n_item * _LEAST_VIS / self._start[-1])
        step = max(1, min(available // each, int(least)))
        return [
            [Batch(start, min(start + step, stop)) for start in range(first, stop, step)]
            for first, stop in itertools.pairwise(plan.layer_start.tolist())
        ]

    def _bytes_per_item(self, screens: Screens) -> int:
        """Bytes of an item: subgrids (rounded up) and workspace of transforms, sums, visibilities, tasks."""
        itemsize = np.dtype(self._complex).itemsize
        pixels = itemsize * self._layout.size**2 * (3 * screens.n_plane + screens.n_sum)
        vis = stream_cuda.N_BUFFER * itemsize * screens.to_corr.shape[0] * np.diff(self._start)
        return int(pixels + (vis + self._sums.bytes_per_item(screens.n_sum)).max())

    def _fixed_bytes(self, screens: Screens) -> int:
        """Bytes of grids and images, for any batch; the plan and the rows are on the device already."""
        n_plane, n_stokes = screens.from_stokes.shape
        grids = 2 * np.dtype(self._complex).itemsize * n_plane * self._layout.n_grid**2
        return int(grids + (8 * n_plane + 16 * n_stokes) * self._grid.n_pixel**2)

    def _make_buffers(self, batches: list[list[Batch]], n_corr: int) -> stream_cuda.Buffers:
        """Buffers for the transfer of visibilities; those of the last call where these are large enough."""
        shape = max(self._n_vis(batch) for of_layer in batches for batch in of_layer), n_corr
        if self._buffers is None or self._buffers.shape != shape:
            self._buffers = None
            self._buffers = stream_cuda.Buffers(*shape, self._real, self._stream)
        return self._buffers

    def _curvatures(self) -> NDArray[np.float64]:
        """The curvature of the pixels of a subgrid, (S^2,)."""
        size, field = self._layout.size, self._layout.limits.field
        found = device.empty((size, size), np.float64)
        self._launch(subgrids_cuda.make_curvatures(), size**2, field / size, *self._frame, found)
        self._stream.synchronize()
        return np.asarray(found.copy_to_host().ravel())
