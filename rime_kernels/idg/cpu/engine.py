"""The engine of `Idg` on the CPU: W-layers, batches of items, and tasks of equal work for threads."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numba import get_num_threads
from numpy.typing import NDArray

from rime_kernels import check
from rime_kernels.cpu.lanes import aligned, copied
from rime_kernels.idg.cpu.add import make_add
from rime_kernels.idg.cpu.dft import tables
from rime_kernels.idg.cpu.fft import Image
from rime_kernels.idg.cpu.items import Channels, Pixels, Recipe, make_degrid, make_grid
from rime_kernels.idg.cpu.sums import run_ends
from rime_kernels.idg.facets import TooLargeError
from rime_kernels.idg.grid import ImageGrid
from rime_kernels.idg.layout import Layout
from rime_kernels.idg.plan import Plan, SortedRows, on_grid
from rime_kernels.idg.screens import Screens
from rime_kernels.idg.taper import pixels

# Bytes of the subgrids of a batch of the gridder: they wait in the caches to be added to the grid.
_BATCH_BYTES = 4 << 20
# Tasks per thread.
_TASKS = 8
# What an item costs beside its visibilities, in visibilities.
_ITEM_COST = 20


class Engine:
    """Predicts and grids on the CPU, W-layer after W-layer."""

    def __init__(
        self, rows: SortedRows, plan: Plan, grid: ImageGrid, layout: Layout, *, single: bool,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        self._rows, self._plan = on_grid(rows, layout.limits.field), plan
        self._layout, self._single, self._memory_limit = layout, single, memory_limit
        self._real: type[np.floating] = np.float32 if single else np.float64
        self._image = Image(grid, layout, single)
        self._pixels = {sign: self._make_pixels(sign) for sign in (-1, 1)}
        ends = run_ends(rows.scale, single)
        longest = int((ends - np.arange(ends.size)).max())
        self._channels = Channels(rows.scale, ends, longest)
        work = plan.n_row.astype(np.int64) * plan.n_chan + _ITEM_COST
        self._work = np.concatenate([[0], np.cumsum(work)])
        self.transform_seconds = 0.0

    def predict(self, image: NDArray[np.float64], screens: Screens) -> NDArray[np.complexfloating]:
        """Visibilities (n_row, n_chan, n_corr) of an image (n_stokes, N, N)."""
        n_row, n_chan, n_corr = self._rows.order.size, self._rows.scale.size, screens.to_corr.shape[0]
        vis = np.empty((n_row, n_chan, 2 * n_corr), self._real)
        planes = np.tensordot(screens.from_stokes, image, 1).astype(self._real)
        recipe = self._recipe(screens)
        self._refuse_large(recipe)
        grid = self._image.new_grid(recipe.n_plane)
        degrid = make_degrid(self._single, recipe.n_sum)
        for first, stop, w, reach in self._layers():
            self._image.to_grid(planes, w, reach, grid)
            degrid(
                self._tasks(first, stop),
                grid.view(self._real),
                self._plan,
                w,
                self._rows,
                self._channels,
                self._pixels[-1],
                recipe,
                vis,
            )
        return vis.view(np.complex64 if self._single else np.complex128)

    def grid(
        self, vis: NDArray[np.complexfloating], weight: NDArray[np.floating] | None, screens: Screens
    ) -> NDArray[np.float64]:
        """The image (n_stokes, N, N) of weighted visibilities: the adjoint of `predict`."""
        recipe = self._recipe(screens)
        self._refuse_large(recipe)
        planes = np.zeros((recipe.n_plane, self._image.n_pixel, self._image.n_pixel))
        grid = self._image.new_grid(recipe.n_plane)
        make_subgrids, add = make_grid(self._single, recipe.n_sum), make_add(self._single)
        numbers = vis.view(vis.real.dtype)
        weights = np.zeros((1, 1, 1)) if weight is None else weight
        step = self._batch(recipe)
        subgrids = aligned((step, recipe.n_plane, self._layout.size, 2 * self._layout.size), self._real)
        for first, stop, w, reach in self._layers():
            grid[...] = 0
            for start in range(first, stop, step):
                end = min(start + step, stop)
                make_subgrids(
                    self._tasks(start, end), numbers, weights, weight is not None, self._plan, w, self._rows,
                    self._channels, self._pixels[1], recipe, subgrids,
                )  # fmt: skip
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
            reach = int(np.abs(plan.x[first:stop]).max()) + self._layout.size // 2
            yield first, stop, float(w), reach

    def _tasks(self, first: int, stop: int) -> NDArray[np.int64]:
        """Bounds of tasks of about equal work among the items first .. stop - 1."""
        n_task = min(stop - first, _TASKS * get_num_threads())
        wanted = np.linspace(self._work[first], self._work[stop], n_task + 1)
        bounds = np.searchsorted(self._work[first : stop + 1], wanted) + first
        bounds[0], bounds[-1] = first, stop
        return np.unique(bounds).astype(np.int64)

    def _batch(self, recipe: Recipe) -> int:
        """Items of a batch of the gridder."""
        each = recipe.n_plane * 2 * self._layout.size**2 * np.dtype(self._real).itemsize
        return int(max(1, min(_BATCH_BYTES // each, self._plan.n_item)))

    def _refuse_large(self, recipe: Recipe) -> None:
        """Refuse grids, images and a batch that exceed the memory limit."""
        n_plane, itemsize = recipe.n_plane, np.dtype(self._real).itemsize
        needed = n_plane * (2 * self._layout.n_grid**2 * itemsize + (8 + itemsize) * self._image.n_pixel**2)
        if self._memory_limit is not None and needed + _BATCH_BYTES > self._memory_limit:
            raise TooLargeError(
                f"a grid of {self._layout.n_grid} x {self._layout.n_grid} cells and {n_plane} planes needs "
                f"{check.byte_text(needed + _BATCH_BYTES)}, more than the memory limit of "
                f"{check.byte_text(self._memory_limit)}"
            )

    def _make_pixels(self, sign: int) -> Pixels:
        """The pixels that all subgrids have; `sign` is that of their transforms."""
        layout, real = self._layout, self._real
        size, field = layout.size, layout.limits.field
        number = np.arange(size) - size // 2
        x = pixels(size)
        # The first axis is that of l, as the transforms leave it.
        curvature = np.ascontiguousarray(self._image.curvatures(-x * field, x * field).T)
        taper = np.outer(layout.taper.values, layout.taper.values) / size**2
        return Pixels(
            size, copied(np.repeat(number, size), real), copied(np.tile(number, size), real),
            copied(curvature.ravel(), real), copied(curvature.ravel(), np.float64), copied(taper.ravel(),
            real), *tables(size, sign, self._single),
        )  # fmt: skip

    def _recipe(self, screens: Screens) -> Recipe:
        """How planes become correlations: on the pixels, unless that makes more planes to sum."""
        real, n_corr = self._real, screens.to_corr.shape[0]
        is_own = screens.kind == 2 or np.array_equal(screens.to_corr, np.eye(n_corr))
        is_mixed = not is_own and n_corr <= screens.n_plane
        is_direct = is_own or is_mixed
        n_sum = n_corr if is_direct else screens.n_plane
        padded = 4 if n_sum == 3 else n_sum  # vectors of three planes are slow
        matrix = screens.feeds if screens.kind == 2 else screens.to_corr if is_mixed else np.eye(n_sum)
        mix = np.zeros((4 if screens.kind == 2 else padded, screens.n_plane), complex)
        mix[: len(matrix)] = matrix
        element = np.zeros(padded, np.int64)
        element[: screens.element.size] = screens.element[:padded]
        return Recipe(
            screens.kind, self._screen_values(screens), screens.n_plane, padded, is_mixed or padded != n_sum,
            _parts(mix, real), element, _parts(screens.to_corr, real), is_direct,
        )  # fmt: skip

    def _screen_values(self, screens: Screens) -> NDArray[np.floating]:
        """Screens in the order of the pixels, real and imaginary parts apart."""
        values = screens.values
        n_slot, n_antenna, size = values.shape[:3]
        if screens.kind == 0:
            return np.zeros((1, 1, 1, 1, 1), self._real)
        elements = values.transpose(0, 1, 4, 5, 3, 2).reshape(n_slot, n_antenna, -1, size * size)
        return copied(np.stack([elements.real, elements.imag], axis=3), self._real)


def _parts(matrix: NDArray[np.complex128], real: type[np.floating]) -> NDArray[np.floating]:
    """Real and imaginary parts along a last axis."""
    return copied(np.stack([matrix.real, matrix.imag], axis=-1), real)
