"""The engine of `WProjection` on a GPU: what it does to items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, Record
from rime_kernels.cuda.kernels.arguments import typed
from rime_kernels.errors import InputError
from rime_kernels.gridding.cuda.engine import Batch, CudaLayerEngine, GriddingCall, Visibilities
from rime_kernels.gridding.cuda.items import item_table
from rime_kernels.gridding.cuda.launch import launch
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.plan import Plan, SortedRows, on_grid
from rime_kernels.gridding.screens import Screens
from rime_kernels.wprojection.cuda.block_degrid import DegridKernel, make_block_degrid
from rime_kernels.wprojection.cuda.block_grid import GridKernel, make_block_grid
from rime_kernels.wprojection.cuda.block_terms import packed_terms
from rime_kernels.wprojection.cuda.cells import make_clear, make_degrid, make_floats, make_grid
from rime_kernels.wprojection.cuda.parts import ItemRows, Kernel, LayerNumbers, WProjectionShape, shape_for
from rime_kernels.wprojection.cuda.vis_degrid import VisKernel, make_vis_degrid
from rime_kernels.wprojection.cuda.vis_terms import terms_in_order
from rime_kernels.wprojection.layout import WProjectionLayout, fits_tensor_cores

# Sums of whole numbers stay below this.
_MOST_WHOLE = 2.0**62
# The most whole numbers to 1 Jy, as a power of two: float32 holds no more.
_MOST_EXPONENT = 126.0


class WProjectionCudaEngine(CudaLayerEngine[GriddingCall]):
    """Predicts and grids by kernels, cells of which threads keep in registers.

    Attributes
    ----------
    shape : Shape or None
        How kernels are cut, where that is not left to `parts.shape_for`.
    by_units : bool
        Whether tensor cores may work on items.
    by_vis : bool
        Whether threads of the degridder may have visibilities, where it has no `shape`.
    """

    def __init__(
        self, rows: SortedRows, plan: Plan, grid: ImageGrid, layout: WProjectionLayout, *, single: bool,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(rows, plan, grid, layout.n_grid, layout.taper.values, single, memory_limit)
        self.shape: WProjectionShape | None = None
        self.by_tensor_cores, self.by_vis = layout.by_tensor_cores, True
        self._layout, self._fixed, self._step = layout, 1.0, 1.0
        rows = SortedRows(*(device.upload(each) for each in on_grid(rows, layout.limits.field)))
        tables = device.upload(item_table(self._plan)), device.upload(self._start)
        self._item_rows = typed(ItemRows(*tables, rows.uvw, rows.order, rows.shift, rows.scale))
        self._terms = device.upload(layout.tables.terms.ravel().astype(self._real))
        self._half_scale = _scale_of(layout.tables.terms)
        scaled = self._half_scale * layout.tables.terms
        self._half_terms = device.upload(packed_terms(scaled))
        self._terms_in_order = device.upload(terms_in_order(scaled, single))
        self._per_item = float(self._start[-1]) / max(1, self._plan.n_item)
        # |sum_j C_j| bounds a kernel: each visibility gives a cell at most the product of two such numbers.
        self._most = float(np.abs(layout.tables.terms).sum(axis=(2, 3, 4)).max()) ** 2

    def _task(
        self, call: GriddingCall, vis: Visibilities
    ) -> tuple[bool, int, int, int, int, int, int, bool, bool]:
        """What `parts.Task` has."""
        _, n_w_plane, n_w, n_d, _, support = self._layout.tables.terms.shape
        n_corr, has_weight = int(call.to_corr.shape[0]), vis.weight is not None
        return (
            self._single, support, call.n_plane, n_corr, n_w, n_d, n_w_plane, vis.compact, has_weight,
        )  # fmt: skip

    def _kernel(self, call: GriddingCall, vis: Visibilities, *, degrids: bool) -> Kernel:
        shape = self.shape or shape_for(self._layout.support, call.n_plane, self._single, degrids=degrids)
        return Kernel(*self._task(call, vis), shape)

    def _takes_tensor_cores(self, call: GriddingCall) -> bool:
        return self.by_tensor_cores and fits_tensor_cores(
            self._layout.tensor_core_block, call.n_plane, self._n_grid
        )

    def _takes_vis(self, kernel: VisKernel, call: GriddingCall) -> bool:
        if not self.by_vis or self.shape is not None or not kernel.fits(self._n_grid):
            return False
        by_tensor_cores = self._takes_tensor_cores(call)
        tensor_core_time = (
            self._layout.tensor_core_time(call.n_plane, self._per_item) if by_tensor_cores else None
        )
        return kernel.pays(self._per_item, tensor_core_time)

    def _block(self) -> tuple[int, int]:
        """What `blocks.BlockKernel` has beside."""
        return round(self._layout.limits.reach), self._layout.tensor_core_block

    def _numbers(self, batch: Batch, w: float) -> Record:
        """The plain numbers that kernels get."""
        first_vis, tables = int(self._start[batch.first]), self._layout.tables
        planes_per_w = 0.5 * tables.n_plane / tables.w_half if tables.w_half > 0.0 else 0.0
        middle = self._layout.split.middle
        return typed(
            LayerNumbers(batch.first, first_vis, float(w), float(planes_per_w), float(middle), self._n_grid)
        )

    def _degrid(self, call: GriddingCall, w: float, batch: Batch, vis: Visibilities) -> None:
        rows, numbers = self._item_rows, self._numbers(batch, w)
        grid = call.grid.reshape(call.grid.size)
        by_vis = VisKernel(*self._task(call, vis), self._block()[0], _threads_for(self._per_item))
        if self._takes_vis(by_vis, call):
            make_vis_degrid(by_vis)[batch.n_item, by_vis.n_thread, self._stream](
                numbers, self._half_scale**-2, rows, self._terms_in_order, call.to_corr, grid, vis.values
            )
            return
        if self._takes_tensor_cores(call):
            by_tensor_cores = DegridKernel(*self._task(call, vis), *self._block())
            make_block_degrid(by_tensor_cores)[batch.n_item, by_tensor_cores.n_thread, self._stream](
                numbers, self._half_scale**-2, rows, self._half_terms, call.to_corr, grid, vis.values
            )
            return
        kernel = self._kernel(call, vis, degrids=True)
        make_degrid(kernel)[batch.n_item, kernel.n_thread, self._stream](
            numbers, 1.0, rows, self._terms, call.to_corr, vis.values, vis.values, grid
        )

    def _add(self, call: GriddingCall, layer: int, batch: Batch, vis: Visibilities) -> None:
        rows, numbers = self._item_rows, self._numbers(batch, float(self._plan.layer_w[layer]))
        weight, total = vis.values if vis.weight is None else vis.weight, self._total(call)
        if self._takes_tensor_cores(call):
            by_tensor_cores = GridKernel(*self._task(call, vis), *self._block())
            fixed = self._fixed / (self._half_scale**2 * self._step)
            make_block_grid(by_tensor_cores)[batch.n_item, by_tensor_cores.n_thread, self._stream](
                numbers, self._step, fixed, rows, self._half_terms, call.to_corr, vis.values, weight, total
            )
            return
        kernel = self._kernel(call, vis, degrids=False)
        make_grid(kernel)[batch.n_item, kernel.n_thread, self._stream](
            numbers, self._fixed, rows, self._terms, call.to_corr, vis.values, weight, total
        )

    def _clear(self, call: GriddingCall) -> None:
        total = self._total(call)
        launch(make_clear(), total.size, self._stream, total)

    def _finish(self, call: GriddingCall) -> None:
        """The grid of the whole numbers of its layer."""
        total = self._total(call)
        grid = (
            call.grid.reshape(call.grid.size)
            .view(self._real)
            .reshape(call.n_plane, total.size // call.n_plane)
        )
        launch(make_floats(), total.size, self._stream, 1.0 / self._fixed, total, grid)

    def _total(self, call: GriddingCall) -> DeviceArray:
        """Memory for the sums of a layer, whole numbers (G^2, 2 n_plane)."""
        return self._workspace.array("total", (self._n_grid**2, 2 * call.n_plane), np.int64)

    def _find_scale(self, largest: Callable[[], float], screens: Screens) -> None:
        """Powers of two: no sum of all visibilities can exceed what a whole number holds.

        And nothing that one adds to a plane can exceed 8, for tensor cores.
        """
        of_planes = 2.0 * np.abs(screens.to_corr).sum(axis=0).max()  # real and imaginary parts
        most = float(largest()) * float(of_planes)
        bound = most * self._most * float(self._start[-1])
        if not np.isfinite(bound):
            raise InputError("vis and weight must be finite where the weight is above 0")
        unit = np.floor(np.log2(_MOST_WHOLE / bound)) if bound > 0.0 else 0.0
        self._fixed = float(2.0 ** min(unit, _MOST_EXPONENT))
        self._step = _power_of_two(8.0 / most) if most > 0.0 else 1.0

    def _call(self, screens: Screens) -> GriddingCall:
        return self._shared(screens)

    def _bytes_per_item(self, screens: Screens) -> int:
        return 0

    def _bytes_per_cell(self) -> int:
        """Bytes of a cell of the grid, with the fixed-point sums."""
        return super()._bytes_per_cell() + 16


def _power_of_two(most: float) -> float:
    """The largest that is not above `most`, within what float32 holds."""
    return float(2.0 ** np.clip(np.floor(np.log2(most)), -_MOST_EXPONENT, _MOST_EXPONENT))


def _threads_for(n_vis: float) -> int:
    """Threads of a block that have two visibilities each, for items of so many: few wait for the others."""
    return 32 if n_vis < 128 else 64


def _scale_of(terms: NDArray[np.float64]) -> float:
    """The power of two that terms of kernels are multiplied by for tensor cores.

    No part of a kernel then exceeds 2^11: times what a visibility adds to a plane, half precision holds it.
    """
    return _power_of_two(2.0**11 / float(np.abs(terms).sum(axis=(2, 3)).max()))
