"""The engine of `WProjection` on the CPU: what it does to items."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.types import Compiled
from rime_kernels.cpu.lanes import copied
from rime_kernels.gridding.cpu.engine import CpuLayerEngine
from rime_kernels.gridding.cpu.fft import Image
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.plan import Plan, SortedRows, on_grid
from rime_kernels.gridding.screens import Screens
from rime_kernels.wprojection.cpu.items import Kernels, make_tasks
from rime_kernels.wprojection.layout import LANES, WProjectionLayout


class WProjectionRecipe(NamedTuple):
    """How correlations follow from planes: by a matrix (n_corr, n_plane, 2), unless they are the planes."""

    n_plane: int
    to_corr: NDArray[np.floating]
    is_direct: bool


class WProjectionCpuEngine(CpuLayerEngine[WProjectionRecipe]):
    """Predicts and grids by kernels on blocks of the grid."""

    def __init__(
        self, rows: SortedRows, plan: Plan, grid: ImageGrid, layout: WProjectionLayout, *, single: bool,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        image = Image(grid, layout.n_grid, layout.taper.values, single)
        rows = on_grid(rows, layout.limits.field)
        super().__init__(rows, plan, image, layout.block, single, memory_limit)
        self._lanes = next(n for n in LANES if n >= layout.support)
        terms = layout.tables.terms
        padded = np.zeros((*terms.shape[:-1], self._lanes))
        padded[..., : layout.support] = terms
        self._kernels = Kernels(
            copied(padded, self._real), layout.support, layout.block, layout.tables.w_half,
            layout.split.middle,
        )  # fmt: skip

    def _recipe(self, screens: Screens) -> WProjectionRecipe:
        matrix = screens.to_corr
        parts = copied(np.stack([matrix.real, matrix.imag], axis=-1), self._real)
        return WProjectionRecipe(screens.n_plane, parts, bool(np.array_equal(matrix, np.eye(len(matrix)))))

    def _loop(self, recipe: WProjectionRecipe, *, grids: bool) -> tuple[Compiled, tuple[Any, ...]]:
        others = self._kernels, recipe.to_corr, recipe.is_direct
        return make_tasks(self._single, self._lanes, grids), others
