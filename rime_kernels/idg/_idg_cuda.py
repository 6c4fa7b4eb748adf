"""The device's side of `Idg`: what lies there for good, and what each call sends, launches and fetches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.errors import InputError
from rime_kernels.idg import _apply_cuda as apply_cuda
from rime_kernels.idg import _stream_cuda as stream_cuda
from rime_kernels.idg import _subgrids_cuda as subgrids_cuda
from rime_kernels.idg import _tasks_cuda as tasks_cuda
from rime_kernels.idg._degrid_cuda import make_degrid
from rime_kernels.idg._fft_cuda import transform
from rime_kernels.idg._grid_cuda import make_grid
from rime_kernels.idg._parts_cuda import IdgKernel, IdgShape, idg_shape
from rime_kernels.idg._tasks_cuda import Tasks
from rime_kernels.idg.choice import Layout
from rime_kernels.idg.grid import ImageGrid, offsets
from rime_kernels.idg.plan import Plan, SortedRows, on_grid
from rime_kernels.idg.screens import Screens
from rime_kernels.idg.taper import profile

# Bytes of subgrids, visibilities and tasks of a batch: many launches' worth of work, few enough to have
# several batches, so that transfers have something to hide behind.
_BATCH_BYTES = 256 << 20
_MOST_BLOCKS = 1 << 20


class _Batch(NamedTuple):
    """Items that are worked on together, of one layer."""

    first: int
    stop: int

    @property
    def n_item(self) -> int:
        return self.stop - self.first


class _Call(NamedTuple):
    """What a call has on the device beside what is there for good."""

    key: apply_cuda.Apply
    shape: IdgShape
    tasks: list[tuple[Tasks, Tasks]]  # on the host, on the device
    screens: Any
    to_corr: Any
    grid: Any


class Engine:
    """The device's side of `Idg`; see `_idg_cpu.Engine`."""

    def __init__(
        self, rows: SortedRows, plan: Plan, grid: ImageGrid, layout: Layout, *, single: bool,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        if not device.simulated():
            device.cupy("")  # said now where it is missing, not at the first call
        rows = on_grid(rows, layout.limits.field)
        self._plan, self._grid, self._layout, self._single = plan, grid, layout, single
        self._real: Any = np.float32 if single else np.float64
        self._complex: Any = np.complex64 if single else np.complex128
        self._budget = device.memory_budget() if memory_limit is None else memory_limit
        self._batch_bytes = _BATCH_BYTES
        self._stream, self._workspace = device.streams(1)[0], device.Workspace()
        self._frame = grid.l0, grid.m0, grid.n0, grid.corner2()
        self._scale, self._n_row, self._n_vis = rows.scale, rows.order.size, plan.n_row * plan.n_chan
        start = np.concatenate([[0], np.cumsum(self._n_vis, dtype=np.int64)])
        self._places = stream_cuda.Layout(
            plan.first_row, plan.n_row, plan.first_chan, plan.n_chan, start, rows.order
        )
        self._rows = SortedRows(*[device.upload(each) for each in rows])
        self._items, self._start = device.upload(tasks_cuda.item_table(plan)), device.upload(start)
        self._w = device.upload(plan.w)
        tiles = subgrids_cuda.make_tiles(plan, layout.size, layout.n_grid)
        self._tiles = tiles._replace(
            x=device.upload(tiles.x), y=device.upload(tiles.y), start=device.upload(tiles.start),
            item=device.upload(tiles.item),
        )  # fmt: skip
        self._make_pixels()
        self._correction = 1.0 / profile(layout.taper.values, offsets(grid.n_pixel, 1.0) / layout.n_grid)
        self._tasks: dict[IdgShape, list[tuple[Tasks, Tasks]]] = {}
        self._buffers: stream_cuda.Buffers | None = None

    def predict(self, image: NDArray[np.float64], screens: Screens) -> NDArray[np.complexfloating]:
        """Visibilities (n_row, n_chan, n_corr) of an image (n_stokes, N, N)."""
        n_corr = screens.to_corr.shape[0]
        vis = np.empty((self._n_row, self._scale.size, n_corr), self._complex)
        batches = self._batches(screens)
        buffers = self._make_buffers(batches, n_corr)
        scatter, waiting = stream_cuda.make_scatter(), list[tuple[int, _Batch, int]]()

        def deliver() -> None:
            i, batch, n = waiting.pop(0)
            buffers.wait_until_fetched(i)
            scatter(buffers.host(i, n), self._places, batch.first, batch.stop, vis)

        for i, (call, batch) in enumerate(self._split(image, screens, batches)):
            if len(waiting) == stream_cuda.N_BUFFER:
                deliver()
            n = self._vis_of(batch)
            self._degrid(call, batch, buffers.on_device(i, n), compact=True)
            buffers.fetch(i, n)
            waiting.append((i, batch, n))
        while waiting:
            deliver()
        return vis

    def predict_on_device(self, image: NDArray[np.float64], screens: Screens) -> Any:
        """The same as a device array that stays there."""
        shape = self._n_row, self._scale.size, screens.to_corr.shape[0]
        vis = device.empty(shape, self._complex)
        flat = vis.reshape(shape[0] * shape[1], shape[2])
        for call, batch in self._split(image, screens, self._batches(screens)):
            self._degrid(call, batch, flat, compact=False)
        self._stream.synchronize()
        return vis

    def grid(
        self, vis: NDArray[np.complexfloating], weight: NDArray[np.floating] | None, screens: Screens
    ) -> NDArray[np.float64]:
        """The image (n_stokes, N, N) of weighted visibilities: the adjoint of `predict`."""
        weights = np.zeros((1, 1, 1)) if weight is None else weight
        batches = self._batches(screens)
        buffers, gather = self._make_buffers(batches, vis.shape[2]), stream_cuda.make_gather()
        i = -1

        def parts(call: _Call, batch: _Batch) -> None:
            nonlocal i
            i, n = i + 1, self._vis_of(batch)
            if i >= stream_cuda.N_BUFFER:
                buffers.wait_until_used(i)
            here = buffers.host(i, n)
            gather(vis, weights, weight is not None, self._places, batch.first, batch.stop, here)
            buffers.send(i, n)
            self._grid_batch(call, batch, buffers.on_device(i, n), None, compact=True)
            buffers.used(i)

        return self._add(parts, screens, batches)

    def grid_on_device(self, vis: Any, weight: Any, screens: Screens) -> NDArray[np.float64]:
        """The same of device arrays (n_row, n_chan, n_corr); no weight means weights of 1."""
        flat = self._n_row * self._scale.size, vis.shape[2]
        vis, weight = vis.reshape(flat), None if weight is None else weight.reshape(flat)

        def parts(call: _Call, batch: _Batch) -> None:
            self._grid_batch(call, batch, vis, weight, compact=False)

        return self._add(parts, screens, self._batches(screens))

    def _split(
        self, image: NDArray[np.float64], screens: Screens, batches: list[list[_Batch]]
    ) -> Iterator[tuple[_Call, _Batch]]:
        """Batch after batch, what the degridder sums on its way to `sums` on the device."""
        call = self._call(screens)
        planes = np.tensordot(screens.from_stokes, image, 1)
        planes *= np.outer(self._correction, self._correction)
        on_device, n_cell = device.upload(planes.astype(self._real)), self._layout.n_grid**2
        fill, split = subgrids_cuda.make_fill(self._single), subgrids_cuda.make_split(self._single)
        apply = apply_cuda.make_apply(call.key)
        for w, of_layer in zip(self._plan.layer_w, batches, strict=True):
            self._launch(fill, n_cell, float(w), self._grid.cell, *self._frame, on_device, call.grid)
            transform(call.grid, self._stream, inverse=True)
            for batch in of_layer:
                subgrids, n_pixel = self._subgrids(call, batch), batch.n_item * self._layout.size**2
                self._launch(split, n_pixel, batch.n_item, batch.first, self._items, call.grid, subgrids)
                transform(subgrids, self._stream, inverse=False)
                self._launch(
                    apply, n_pixel, batch.n_item, batch.first, float(w), self._items, self._w,
                    self._curvature, self._taper, call.screens, subgrids, self._sums(call, batch),
                )  # fmt: skip
                yield call, batch

    def _add(
        self, parts: Callable[[_Call, _Batch], None], screens: Screens, batches: list[list[_Batch]]
    ) -> NDArray[np.float64]:
        """The image of what `parts` grids, batch after batch, into `sums` on the device."""
        call, n_pixel = self._call(screens), self._grid.n_pixel
        planes = device.upload(np.zeros((call.key.n_plane, n_pixel, n_pixel)))
        take, add = subgrids_cuda.make_take(self._single), subgrids_cuda.make_add(self._single)
        apply = apply_cuda.make_apply_adjoint(call.key)
        tiles, clear = self._tiles, subgrids_cuda.make_clear(self._single)
        for layer, (w, of_layer) in enumerate(zip(self._plan.layer_w, batches, strict=True)):
            self._launch(clear, self._layout.n_grid**2, call.grid)
            first_tile, last_tile = (int(tiles.layer_start[k]) for k in (layer, layer + 1))
            for batch in of_layer:
                parts(call, batch)
                subgrids = self._subgrids(call, batch)
                self._launch(
                    apply, batch.n_item * self._layout.size**2, batch.n_item, batch.first, float(w),
                    self._items, self._w, self._curvature, self._taper, call.screens, self._sums(call, batch),
                    subgrids,
                )  # fmt: skip
                transform(subgrids, self._stream, inverse=True)
                add[(last_tile - first_tile, call.key.n_plane), subgrids_cuda.TILE**2, self._stream](
                    batch.n_item, batch.first, first_tile, *tiles[:4], subgrids, call.grid
                )  # fmt: skip
            transform(call.grid, self._stream, inverse=False)
            self._launch(take, n_pixel**2, float(w), self._grid.cell, *self._frame, call.grid, planes)
        self._stream.synchronize()
        found: NDArray[np.float64] = planes.copy_to_host()
        found *= np.outer(self._correction, self._correction)
        return np.asarray(np.tensordot(screens.from_stokes.T, found, 1))

    def _degrid(self, call: _Call, batch: _Batch, vis: Any, *, compact: bool) -> None:
        """Sum the pixels of a batch; `sums` on the device has them."""
        sums = self._sums(call, batch)
        for tasks, kernel, n_task, item_of, coef, parts in self._described(call, batch):
            n_thread = call.shape.n_thread
            make_degrid(kernel)[-(-n_task // n_thread), n_thread, self._stream](
                n_task, item_of, coef, self._small_curvature, sums, parts
            )
            finish = tasks_cuda.make_finish(kernel, compact)
            self._launch(
                finish, n_task * kernel.n_part, n_task, batch.first, self._items, self._start, *tasks[2:],
                self._rows.order, self._rows.shift, self._rows.scale, item_of, call.to_corr, parts, vis,
            )  # fmt: skip

    def _grid_batch(self, call: _Call, batch: _Batch, vis: Any, weight: Any, *, compact: bool) -> None:
        """Sum the visibilities of a batch into `sums` on the device."""
        sums, is_more = self._sums(call, batch), 0
        n_own = batch.n_item * self._layout.size**2 // call.shape.n_pixel
        for tasks, kernel, n_task, item_of, coef, parts in self._described(call, batch):
            prepare = tasks_cuda.make_prepare(kernel, compact, weight is not None)
            self._launch(
                prepare, n_task * kernel.n_part, n_task, batch.first, self._items, self._start, *tasks[2:],
                self._rows.order, self._rows.shift, self._rows.scale, item_of, call.to_corr, vis,
                vis if weight is None else weight, parts,
            )  # fmt: skip
            n_thread = call.shape.n_grid_thread
            make_grid(kernel)[-(-n_own // n_thread), n_thread, self._stream](
                batch.n_item, batch.first, is_more, tasks.first_task, coef, self._small_curvature, parts, sums
            )
            is_more = 1

    def _described(self, call: _Call, batch: _Batch) -> Iterator[Any]:
        """Kinds of tasks that a batch has: on the device, kernel, number, item and coefficients of each, and
        room for their visibilities."""
        for here, there in call.tasks:
            n_task = int(here.first_task[batch.stop] - here.first_task[batch.first])
            if n_task:
                kernel = self._kernel(here, call.key.n_sum)
                item_of = self._workspace.array("item_of", (n_task,), np.int32)
                coef = self._workspace.array("coef", (n_task * kernel.n_coef,), self._real)
                parts = self._workspace.array("parts", (n_task * here.n * kernel.n_value,), self._real)
                self._launch(
                    tasks_cuda.make_describe(kernel), n_task, n_task, batch.first, batch.n_item, self._most_c,
                    self._items, self._w, *there[2:], self._rows.uvw, self._rows.scale, item_of, coef,
                )  # fmt: skip
                yield there, kernel, n_task, item_of, coef, parts

    def _launch(self, kernel: Any, n: int, *given: Any) -> None:
        """Launch a kernel of n pieces of work; each thread goes on with others where there are too few."""
        n_thread = device.threads_per_block()
        n_block = min(-(-n // n_thread), 2 if device.simulated() else _MOST_BLOCKS)
        kernel[n_block, n_thread, self._stream](*given)

    def _call(self, screens: Screens) -> _Call:
        """Send what a call needs."""
        n_plane, n_sum, n_grid = screens.n_plane, screens.n_sum, self._layout.n_grid
        two_by_two = screens.kind == 2
        key = apply_cuda.Apply(
            self._single, screens.kind, n_plane, n_sum, tuple(screens.element.tolist()) if two_by_two else (),
            tuple(screens.feeds.ravel().tolist()) if two_by_two else (),
        )  # fmt: skip
        shape = idg_shape(self._single, n_sum)
        values = screens.values
        elements = values.reshape(*values.shape[:2], -1, values.shape[-1] ** 2).astype(self._complex)
        grid = self._workspace.array("grid", (n_plane, n_grid, n_grid), self._complex)
        to_corr = device.upload(screens.to_corr.astype(self._complex))
        return _Call(key, shape, self._tasks_of(shape), device.upload(elements), to_corr, grid)

    def _tasks_of(self, shape: IdgShape) -> list[tuple[Tasks, Tasks]]:
        """Tasks for such kernels, on the host and on the device."""
        if shape not in self._tasks:
            made = tasks_cuda.make_tasks(self._plan, self._scale, shape)
            self._tasks[shape] = [
                (each, Tasks(each.even, each.n, *[device.upload(x) for x in each[2:]])) for each in made
            ]
        return self._tasks[shape]

    def _kernel(self, tasks: Tasks, n_sum: int) -> IdgKernel:
        shape = idg_shape(self._single, n_sum)
        return IdgKernel(self._single, n_sum, self._layout.size, tasks.even, tasks.n, shape)

    def _subgrids(self, call: _Call, batch: _Batch) -> Any:
        """Room for the batch's subgrids and some more: few sizes, each of which has a plan of its own."""
        n_item, size = 1 << (batch.n_item - 1).bit_length(), self._layout.size
        return self._workspace.array("subgrids", (n_item, call.key.n_plane, size, size), self._complex)

    def _sums(self, call: _Call, batch: _Batch) -> Any:
        n = batch.n_item * self._layout.size**2 * 2 * call.key.n_sum
        return self._workspace.array("sums", (n,), self._real)

    def _vis_of(self, batch: _Batch) -> int:
        return int(self._places.start[batch.stop] - self._places.start[batch.first])

    def _batches(self, screens: Screens) -> list[list[_Batch]]:
        """Batches of each layer that memory allows."""
        cost, fixed = self._bytes_per_item(screens), self._fixed_bytes(screens.n_plane)
        budget = min(self._batch_bytes, self._budget - fixed)
        if budget < cost.max():
            raise InputError(
                f"a grid of {self._layout.n_grid} x {self._layout.n_grid} cells and {screens.n_plane} planes "
                f"needs {(fixed + cost.max()) / 1e6:.0f} MB, more than the {self._budget / 1e6:.0f} MB that "
                "are free or that the memory limit allows"
            )
        total, batches = np.concatenate([[0], np.cumsum(cost)]), []
        for first, last in itertools.pairwise(self._plan.layer_start.tolist()):
            batches.append(list[_Batch]())
            while first < last:
                stop = int(np.searchsorted(total, total[first] + budget, side="right")) - 1
                stop = min(last, max(stop, first + 1))
                batches[-1].append(_Batch(first, stop))
                first = stop
        return batches

    def _bytes_per_item(self, screens: Screens) -> NDArray[np.int64]:
        """Subgrids, twice the size needed and with room to transform them, sums, visibilities, tasks."""
        n_sum, itemsize = screens.n_sum, np.dtype(self._complex).itemsize
        pixels = itemsize * self._layout.size**2 * (4 * screens.n_plane + n_sum)
        per_vis = stream_cuda.N_BUFFER * itemsize * screens.to_corr.shape[0]
        each = pixels + per_vis * self._n_vis.astype(np.int64)
        for tasks, _ in self._tasks_of(idg_shape(self._single, n_sum)):
            kernel = self._kernel(tasks, n_sum)
            per_task = itemsize * (kernel.n * n_sum + kernel.n_coef) + 4
            each = each + per_task * tasks_cuda.per_item(tasks)
        return np.asarray(each, np.int64)

    def _fixed_bytes(self, n_plane: int) -> int:
        """Memory for grids and images, whatever the batch; the plan and the rows are there already."""
        itemsize = np.dtype(self._complex).itemsize
        return int(n_plane * (2 * itemsize * self._layout.n_grid**2 + 16 * self._grid.n_pixel**2))

    def _make_buffers(self, batches: list[list[_Batch]], n_corr: int) -> stream_cuda.Buffers:
        """Buffers for visibilities on their way, those of the last call where they do."""
        n_vis = max(self._vis_of(batch) for of_layer in batches for batch in of_layer)
        if self._buffers is None or self._buffers.shape != (n_vis, n_corr):
            self._buffers = None
            self._buffers = stream_cuda.Buffers(n_vis, n_corr, self._complex, self._stream)
        return self._buffers

    def _make_pixels(self) -> None:
        """Taper and curvature of the pixels of a subgrid, the latter also over its largest, `most_c`."""
        size, field = self._layout.size, self._layout.limits.field
        curvature = device.empty((size, size), np.float64)
        self._launch(subgrids_cuda.make_curvatures(), size**2, field / size, *self._frame, curvature)
        self._stream.synchronize()
        found = curvature.copy_to_host().ravel()
        taper = np.outer(self._layout.taper.values, self._layout.taper.values).ravel() / size**2
        self._most_c = float(np.abs(found).max())
        self._curvature, self._taper = device.upload(found), device.upload(taper.astype(self._real))
        self._small_curvature = device.upload((found / self._most_c).astype(self._real))
