"""The engine of `Idg` on a GPU: what it does to items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, DeviceKernel
from rime_kernels.gridding.cuda import planes as planes_cuda
from rime_kernels.gridding.cuda.engine import Batch, CudaLayerEngine, GriddingCall, Visibilities
from rime_kernels.gridding.cuda.fft import transform
from rime_kernels.gridding.cuda.launch import launch, launch_plane
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.plan import Plan, SortedRows, on_grid
from rime_kernels.gridding.screens import Screens
from rime_kernels.idg.cuda import apply as apply_cuda
from rime_kernels.idg.cuda import subgrids as subgrids_cuda
from rime_kernels.idg.cuda.sums import IdgSums
from rime_kernels.idg.layout import IdgLayout


@dataclass(frozen=True)
class _Call(GriddingCall):
    """A call with its A-terms."""

    key: apply_cuda.Apply
    screens: DeviceArray


class IdgCudaEngine(CudaLayerEngine[_Call]):
    """Predicts and grids by subgrids of images."""

    def __init__(
        self, rows: SortedRows, plan: Plan, grid: ImageGrid, layout: IdgLayout, *, single: bool,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(rows, plan, grid, layout.n_grid, layout.taper.values, single, memory_limit)
        self._layout = layout
        curvature, taper = self._curvatures(), np.outer(layout.taper.values, layout.taper.values)
        self._curvature = device.upload(curvature)
        self._taper = device.upload((taper.ravel() / layout.size**2).astype(self._real))
        rows = on_grid(rows, layout.limits.field)
        self._sums = IdgSums(rows, self._plan, layout.size, single, curvature, self._stream)
        tiles = subgrids_cuda.make_tiles(self._plan, layout.size, layout.n_grid)
        self._tiles, self._tiles_there = tiles, [device.upload(each) for each in tiles[:4]]

    def _degrid(self, call: _Call, w: float, batch: Batch, vis: Visibilities) -> None:
        split = subgrids_cuda.make_split(self._layout.size, call.n_plane)
        sums, subgrids = self._pixel_sums(call, batch), self._subgrids(call, batch)
        n_pixel = batch.n_item * self._layout.size**2
        self._launch(split, n_pixel, batch.n_item, batch.first, self._sums.items, call.grid, subgrids)
        transform(subgrids, self._stream, inverse=False)
        self._apply(call, w, batch, subgrids, sums, adjoint=False)
        self._sums.degrid(batch, sums, call.to_corr, vis.values, compact=vis.compact)

    def _add(self, call: _Call, layer: int, batch: Batch, vis: Visibilities) -> None:
        sums, subgrids = self._pixel_sums(call, batch), self._subgrids(call, batch)
        self._sums.grid(batch, vis.values, vis.weight, call.to_corr, sums, compact=vis.compact)
        self._apply(call, float(self._plan.layer_w[layer]), batch, subgrids, sums, adjoint=True)
        transform(subgrids, self._stream, inverse=True)
        first, last = (int(self._tiles.layer_start[k]) for k in (layer, layer + 1))
        subgrids_cuda.make_add(self._single)[
            (last - first, call.n_plane), subgrids_cuda.TILE**2, self._stream
        ](batch.n_item, batch.first, first, *self._tiles_there, subgrids, call.grid)

    def _apply(
        self, call: _Call, w: float, batch: Batch, subgrids: DeviceArray, sums: DeviceArray, *, adjoint: bool
    ) -> None:
        self._launch(
            apply_cuda.make_apply(call.key, adjoint), batch.n_item * self._layout.size**2, batch.n_item,
            batch.first, w, self._sums.items, self._sums.w, self._curvature, self._taper, call.screens,
            subgrids, sums,
        )  # fmt: skip

    def _clear(self, call: _Call) -> None:
        launch_plane(planes_cuda.make_clear(self._single), self._n_grid, self._stream, call.grid)

    def _launch(self, kernel: DeviceKernel, n: int, *arguments: object) -> None:
        launch(kernel, n, self._stream, *arguments)

    def _call(self, screens: Screens) -> _Call:
        """Send the A-terms of a call."""
        is_2x2, values, shared = screens.kind == 2, screens.values, self._shared(screens)
        key = apply_cuda.Apply(
            self._single, screens.kind, self._layout.size, screens.n_plane, screens.n_sum,
            tuple(screens.element.tolist()) if is_2x2 else (),
            tuple(screens.feeds.ravel().tolist()) if is_2x2 else (),
        )  # fmt: skip
        elements = values.reshape(*values.shape[:2], -1, values.shape[-1] ** 2).astype(self._complex)
        return _Call(shared.from_stokes, shared.to_corr, shared.grid, key, device.upload(elements))

    def _subgrids(self, call: _Call, batch: Batch) -> DeviceArray:
        """Memory for the batch's subgrids, rounded up: few sizes, since cuFFT makes a plan for each."""
        step, size = 1 << max(0, batch.n_item.bit_length() - 4), self._layout.size
        n_item = -(-batch.n_item // step) * step
        return self._workspace.array("subgrids", (n_item, call.n_plane, size, size), self._complex)

    def _pixel_sums(self, call: _Call, batch: Batch) -> DeviceArray:
        """Memory for the pixels of the batch that the degridder sums, or the gridder fills."""
        n = batch.n_item * self._layout.size**2 * 2 * call.key.n_sum
        return self._workspace.array("sums", (n,), self._real)

    def _bytes_per_item(self, screens: Screens) -> NDArray[np.int64]:
        """Bytes of an item: subgrids (rounded up) and workspace of transforms, sums, tasks."""
        itemsize = np.dtype(self._complex).itemsize
        pixels = itemsize * self._layout.size**2 * (3 * screens.n_plane + screens.n_sum)
        return pixels + self._sums.bytes_per_item(screens.n_sum)

    def _curvatures(self) -> NDArray[np.float64]:
        """The curvature of the pixels of a subgrid, (S^2,)."""
        size, field = self._layout.size, self._layout.limits.field
        found = device.empty((size, size), np.float64)
        self._launch(subgrids_cuda.make_curvatures(), size**2, field / size, *self._grid.frame, found)
        self._stream.synchronize()
        return np.asarray(found.copy_to_host().ravel())
