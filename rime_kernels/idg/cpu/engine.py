"""The engine of `Idg` on the CPU: what it does to items."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.types import Compiled
from rime_kernels.cpu.lanes import copied
from rime_kernels.gridding.cpu.engine import CpuLayerEngine
from rime_kernels.gridding.cpu.fft import Image
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.plan import Plan, SortedRows, on_grid
from rime_kernels.gridding.screens import Screens
from rime_kernels.gridding.taper import pixels
from rime_kernels.idg.cpu.dft import tables
from rime_kernels.idg.cpu.items import IdgRecipe, ItemChannels, Pixels, make_tasks
from rime_kernels.idg.cpu.sums import run_ends
from rime_kernels.idg.layout import IdgLayout


class IdgCpuEngine(CpuLayerEngine[IdgRecipe]):
    """Predicts and grids by subgrids of images."""

    def __init__(
        self, rows: SortedRows, plan: Plan, grid: ImageGrid, layout: IdgLayout, *, single: bool,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        image = Image(grid, layout.n_grid, layout.taper.values, single)
        super().__init__(on_grid(rows, layout.limits.field), plan, image, layout.size, single, memory_limit)
        self._layout = layout
        self._pixels = {sign: self._make_pixels(sign) for sign in (-1, 1)}
        ends = run_ends(rows.scale, single)
        longest = int((ends - np.arange(ends.size)).max())
        self._channels = ItemChannels(rows.scale, ends, longest)

    def _loop(self, recipe: IdgRecipe, *, grids: bool) -> tuple[Compiled, tuple[Any, ...]]:
        others = self._channels, self._pixels[1 if grids else -1], recipe
        return make_tasks(self._single, recipe.n_sum, grids), others

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

    def _recipe(self, screens: Screens) -> IdgRecipe:
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
        return IdgRecipe(
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
