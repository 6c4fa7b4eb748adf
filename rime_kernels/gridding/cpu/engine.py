"""What engines of gridders share on the CPU: W-layers, batches of items, tasks of equal work for threads."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numba import get_num_threads
from numpy.typing import NDArray

from rime_kernels import check
from rime_kernels.compile.types import Compiled
from rime_kernels.cpu.lanes import aligned
from rime_kernels.gridding.cpu.add import make_add
from rime_kernels.gridding.cpu.fft import Image
from rime_kernels.gridding.facets import TooLargeError
from rime_kernels.gridding.plan import Plan, SortedRows
from rime_kernels.gridding.screens import Screens

# Bytes of the subgrids of a batch of the gridder: they wait in the caches to be added to the grid.
_BATCH_BYTES = 4 << 20
# Tasks per thread.
_TASKS = 8
# What an item costs beside its visibilities, in visibilities.
_ITEM_COST = 20


class _Planes(Protocol):
    @property
    def n_plane(self) -> int: ...


R = TypeVar("R", bound=_Planes)


class CpuLayerEngine(ABC, Generic[R]):
    """Predicts and grids on the CPU, W-layer after W-layer, by items: visibilities that share a subgrid.

    Parameters
    ----------
    rows : SortedRows
        In cells (`on_grid`).
    plan : Plan
    image : Image
    size : int
        Cells of a subgrid along an axis.
    single : bool
    memory_limit : int, optional
        Bytes.
    """

    def __init__(
        self, rows: SortedRows, plan: Plan, image: Image, size: int, single: bool, memory_limit: int | None
    ) -> None:
        self._rows, self._plan, self._image, self._size = rows, plan, image, size
        self._single, self.memory_limit = single, memory_limit
        self._real: type[np.floating] = np.float32 if single else np.float64
        work = plan.n_row.astype(np.int64) * plan.n_chan + _ITEM_COST
        self._work = np.concatenate([[0], np.cumsum(work)])
        self.transform_seconds = 0.0

    @abstractmethod
    def _recipe(self, screens: Screens) -> R:
        """How the planes of a call become correlations."""

    @abstractmethod
    def _loop(self, recipe: R, *, grids: bool) -> tuple[Compiled, tuple[Any, ...]]:
        """The loop over tasks from a grid to visibilities, or from these to subgrids; what else it takes."""

    def _run(
        self, first: int, stop: int, w: float, vis: NDArray[np.floating], weight: NDArray[np.floating] | None,
        recipe: R, cells: NDArray[np.floating], *, grids: bool,
    ) -> None:  # fmt: skip
        """Write the visibilities (n_row, n_chan, 2 n_corr) of the items first .. stop - 1 of a layer.

        Or, the adjoint, the subgrids (n_item, n_plane, S, 2 S) of these items.
        """
        (loop, others), weights = self._loop(recipe, grids=grids), np.zeros((1, 1, 1))
        loop(
            self._tasks(first, stop), vis, weights if weight is None else weight, weight is not None,
            self._plan, w, self._rows, *others, cells,
        )  # fmt: skip

    def predict(self, image: NDArray[np.float64], screens: Screens) -> NDArray[np.complexfloating]:
        """Visibilities (n_row, n_chan, n_corr) of an image (n_stokes, N, N)."""
        n_row, n_chan, n_corr = self._rows.order.size, self._rows.scale.size, screens.to_corr.shape[0]
        vis = np.empty((n_row, n_chan, 2 * n_corr), self._real)
        planes = np.tensordot(screens.from_stokes, image, 1).astype(self._real)
        recipe = self._recipe(screens)
        self._refuse_large(recipe.n_plane)
        grid = self._image.new_grid(recipe.n_plane)
        for first, stop, w, reach in self._layers():
            self._image.to_grid(planes, w, reach, grid)
            self._run(first, stop, w, vis, None, recipe, grid.view(self._real), grids=False)
        return vis.view(np.complex64 if self._single else np.complex128)

    def grid(
        self, vis: NDArray[np.complexfloating], weight: NDArray[np.floating] | None, screens: Screens
    ) -> NDArray[np.float64]:
        """The image (n_stokes, N, N) of weighted visibilities: the adjoint of `predict`."""
        recipe = self._recipe(screens)
        self._refuse_large(recipe.n_plane)
        planes = np.zeros((recipe.n_plane, self._image.n_pixel, self._image.n_pixel))
        grid, add = self._image.new_grid(recipe.n_plane), make_add(self._single)
        numbers, step = vis.view(vis.real.dtype), self._batch(recipe.n_plane)
        subgrids = aligned((step, recipe.n_plane, self._size, 2 * self._size), self._real)
        for first, stop, w, reach in self._layers():
            grid[...] = 0
            for start in range(first, stop, step):
                end = min(start + step, stop)
                self._run(start, end, w, numbers, weight, recipe, subgrids, grids=True)
                add(start, subgrids[: end - start], self._plan, grid.view(self._real))
            began = time.perf_counter()
            self._image.from_grid(grid, w, reach, planes)
            self.transform_seconds += time.perf_counter() - began
        return np.tensordot(screens.from_stokes.T, planes, 1)

    def _layers(self) -> Iterator[tuple[int, int, float, int]]:
        """Items of each W-layer, its w, and how far from the grid's middle their subgrids reach along u."""
        plan = self._plan
        for layer, w in enumerate(plan.layer_w):
            first, stop = int(plan.layer_start[layer]), int(plan.layer_start[layer + 1])
            reach = int(np.abs(plan.x[first:stop]).max()) + self._size // 2 + self._size % 2
            yield first, stop, float(w), reach

    def _tasks(self, first: int, stop: int) -> NDArray[np.int64]:
        """Bounds of tasks of about equal work among the items first .. stop - 1."""
        n_task = min(stop - first, _TASKS * get_num_threads())
        wanted = np.linspace(self._work[first], self._work[stop], n_task + 1)
        bounds = np.searchsorted(self._work[first : stop + 1], wanted) + first
        bounds[0], bounds[-1] = first, stop
        return np.unique(bounds).astype(np.int64)

    def _batch(self, n_plane: int) -> int:
        """Items of a batch of the gridder."""
        each = n_plane * 2 * self._size**2 * np.dtype(self._real).itemsize
        return int(max(1, min(_BATCH_BYTES // each, self._plan.n_item)))

    def _refuse_large(self, n_plane: int) -> None:
        """Refuse grids, images and a batch that exceed the memory limit."""
        n_grid, itemsize = self._image.n_grid, np.dtype(self._real).itemsize
        needed = n_plane * (2 * n_grid**2 * itemsize + (8 + itemsize) * self._image.n_pixel**2)
        if self.memory_limit is not None and needed + _BATCH_BYTES > self.memory_limit:
            raise TooLargeError(
                f"a grid of {n_grid} x {n_grid} cells and {n_plane} planes needs "
                f"{check.byte_text(needed + _BATCH_BYTES)}, more than the memory limit of "
                f"{check.byte_text(self.memory_limit)}"
            )
