"""The engine of `WProjection` on a GPU: what it does to items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray
from rime_kernels.errors import InputError
from rime_kernels.gridding.cuda.engine import Batch, Call, LayerEngine, Visibilities
from rime_kernels.gridding.cuda.items import item_table
from rime_kernels.gridding.cuda.launch import launch
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.plan import Plan, SortedRows, on_grid
from rime_kernels.gridding.screens import Screens
from rime_kernels.wprojection.cuda.degrid import make_degrid
from rime_kernels.wprojection.cuda.grid import make_clear, make_floats, make_grid
from rime_kernels.wprojection.cuda.parts import Kernel, Shape, shape_for
from rime_kernels.wprojection.layout import Layout

# Sums of whole numbers stay below this.
_MOST_WHOLE = 2.0**62
# The most whole numbers to 1 Jy, as a power of two: float32 holds no more.
_MOST_UNIT = 126.0


class Engine(LayerEngine[Call]):
    """Predicts and grids by kernels, cells of which threads keep in registers.

    Attributes
    ----------
    shape : Shape or None
        How kernels are cut, where that is not left to `parts.shape_for`.
    """

    def __init__(
        self, rows: SortedRows, plan: Plan, grid: ImageGrid, layout: Layout, *, single: bool,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(rows, plan, grid, layout.n_grid, layout.taper.values, single, memory_limit)
        self.shape: Shape | None = None
        self._layout, self._fixed = layout, 1.0
        on_device = [device.upload(each) for each in on_grid(rows, layout.limits.field)]
        self._rows = SortedRows(*on_device)
        self._items, self._starts = device.upload(item_table(self._plan)), device.upload(self._start)
        self._terms = device.upload(layout.tables.terms.ravel().astype(self._real))
        # |sum_j C_j| bounds a kernel: each visibility gives a cell at most the product of two such numbers.
        self._most = float(np.abs(layout.tables.terms).sum(axis=(2, 3, 4)).max()) ** 2

    def _kernel(self, call: Call, vis: Visibilities, *, degrids: bool) -> Kernel:
        _, n_w_plane, n_w, n_d, _, support = self._layout.tables.terms.shape
        return Kernel(
            self._single, support, call.n_plane, int(call.to_corr.shape[0]), n_w, n_d, n_w_plane,
            self.shape or shape_for(support, call.n_plane, self._single, degrids=degrids), vis.compact,
            vis.weight is not None,
        )  # fmt: skip

    def _numbers(self, batch: Batch, w: float) -> tuple[int, int, float, float, float, int]:
        """The plain numbers that kernels get."""
        first_vis, tables = int(self._start[batch.first]), self._layout.tables
        planes_per_w = 0.5 * tables.n_plane / tables.w_half if tables.w_half > 0.0 else 0.0
        return batch.first, first_vis, w, planes_per_w, self._layout.split.middle, self._n_grid

    def _degrid(self, call: Call, w: float, batch: Batch, vis: Visibilities) -> None:
        kernel, rows = self._kernel(call, vis, degrids=True), self._rows
        make_degrid(kernel)[batch.n_item, kernel.n_thread, self._stream](
            *self._numbers(batch, w), self._items, self._starts, rows.uvw, rows.order, rows.shift, rows.scale,
            self._terms, call.to_corr, call.grid.reshape(call.grid.size), vis.values,
        )  # fmt: skip

    def _add(self, call: Call, layer: int, batch: Batch, vis: Visibilities) -> None:
        kernel, rows = self._kernel(call, vis, degrids=False), self._rows
        weight = vis.values if vis.weight is None else vis.weight
        make_grid(kernel)[batch.n_item, kernel.n_thread, self._stream](
            *self._numbers(batch, float(self._plan.layer_w[layer])), self._fixed, self._items, self._starts,
            rows.uvw, rows.order, rows.shift, rows.scale, self._terms, call.to_corr, vis.values, weight,
            self._total(call),
        )  # fmt: skip

    def _clear(self, call: Call) -> None:
        total = self._total(call)
        launch(make_clear(), total.size, self._stream, total)

    def _finish(self, call: Call) -> None:
        """The grid of the whole numbers of its layer."""
        total = self._total(call)
        grid = (
            call.grid.reshape(call.grid.size)
            .view(self._real)
            .reshape(call.n_plane, total.size // call.n_plane)
        )
        launch(make_floats(), total.size, self._stream, 1.0 / self._fixed, total, grid)

    def _total(self, call: Call) -> DeviceArray:
        """Memory for the sums of a layer, whole numbers (G^2, 2 n_plane)."""
        return self._workspace.array("total", (self._n_grid**2, 2 * call.n_plane), np.int64)

    def _find_scale(self, largest: Callable[[], float], screens: Screens) -> None:
        """A power of two: no sum of all visibilities can exceed what a whole number holds."""
        of_planes = 2.0 * np.abs(screens.to_corr).sum(axis=0).max()  # real and imaginary parts
        bound = float(largest()) * float(of_planes) * self._most * float(self._start[-1])
        if not np.isfinite(bound):
            raise InputError("vis and weight must be finite where the weight is above 0")
        unit = np.floor(np.log2(_MOST_WHOLE / bound)) if bound > 0.0 else 0.0
        self._fixed = float(2.0 ** min(unit, _MOST_UNIT))

    def _call(self, screens: Screens) -> Call:
        return self._shared(screens)

    def _bytes_per_item(self, screens: Screens) -> int:
        return 0

    def _bytes_per_cell(self) -> int:
        """With the whole numbers."""
        return super()._bytes_per_cell() + 16
