"""W-projection: visibilities of an image, and its adjoint, the image of visibilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rime_kernels.arrays import Rows
from rime_kernels.choices import Backend, Precision
from rime_kernels.errors import InputError
from rime_kernels.gridding.facets import Facet
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.gridder import Gridder, GridderEngine, ScreensLike, layers_text
from rime_kernels.gridding.layout import in_precision
from rime_kernels.gridding.plan import Plan, make_plan
from rime_kernels.gridding.screens import Screens, make_screens
from rime_kernels.wprojection.layout import (
    COSTS,
    LEAST_SUPPORT,
    MOST_SUPPORT,
    SUPPORTS,
    WProjectionCosts,
    WProjectionLayout,
    cheapest_layout,
    farthest,
)


class WProjection(Gridder):
    """Visibilities of images at fixed rows, and images of visibilities, without A-terms.

        V = sum over pixels of M B exp(+2 pi i (u l + v m + w (n - 1)) nu/c)

    (physics: sections 2, 3, 8) as `rime_kernels.idg.Idg` has it, by kernels of S x S cells that take each
    visibility from the grid of a W-layer. The kernel is the product of one in u and one in v, both complex,
    evaluated as polynomials for each visibility; what w adds to l and m together bounds the distance from a
    layer. Everything is planned once; the accuracy holds for the whole image, including its corners. Results
    do not depend on the number of threads, and repeat to the bit. Several Python threads may call; one call
    runs at a time. The method is that of Cornwell, Golap and Bhatnagar (2008), in W-layers.

    Parameters
    ----------
    rows : Rows
    grid : ImageGrid
    accuracy : float
        Largest relative error (2-norm over visibilities) of a source anywhere in the image, 1e-1 ... 1e-8.
    backend : "auto", "cpu" or "cuda"
    precision : "single" or "double", optional
        Without it, single where it holds the accuracy.
    support : int, optional
        S, cells of a kernel along an axis, 3 .. 64; chosen without it.
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", for images, grids and blocks. An image whose grid does not fit, here or
        on the device, is divided into quarters, which takes up to four times as long.

    Attributes
    ----------
    plan : str
        The sizes of grid, kernels and layers, in words.
    precision : "single" or "double"
    backend : "cpu" or "cuda"
    transform_seconds : float
        Time that `grid` has spent on Fourier transforms so far; 0 on a GPU, where they are queued.

    Raises
    ------
    InputError
        Values out of range, a cell that is too coarse for some visibilities, which have more than half a wave
        per pixel, or a support that is too small for the accuracy.
    BackendError
        `backend="cuda"` without a device.
    """

    engine = "wprojection"

    def __init__(
        self,
        rows: Rows,
        grid: ImageGrid,
        *,
        accuracy: float = 1e-5,
        backend: Backend = "auto",
        precision: Precision | None = None,
        support: int | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        super().__init__(
            rows, grid, accuracy=accuracy, backend=backend, precision=precision, memory_limit=memory_limit
        )
        self._rows = self._sorted(None, farthest(grid, accuracy))
        self._asked: dict[str, Any] = {  # arguments of the constructor, for facets
            "accuracy": accuracy, "support": support,
        }  # fmt: skip
        supports = SUPPORTS if support is None else (_support(support),)
        self.precision, self.layout = in_precision(
            precision, lambda single: self._layout_for(single, accuracy, supports)
        )
        self.cost = self.layout.cost

    @cached_property
    def row_plan(self) -> Plan:
        return make_plan(self._rows, self.layout.limits)

    @cached_property
    def grid_engine(self) -> GridderEngine:
        return _engine(self.backend)(
            self._rows, self.row_plan, self.grid_of_image, self.layout, single=self.precision == "single",
            memory_limit=self._memory_limit,
        )  # fmt: skip

    def _layout_for(self, single: bool, accuracy: float, supports: Sequence[int]) -> WProjectionLayout:
        return cheapest_layout(
            self._rows, self.grid_of_image, accuracy=accuracy, single=single, n_corr=self.rows.n_corr,
            costs=_costs(self.backend), supports=supports,
        )  # fmt: skip

    @property
    def plan(self) -> str:
        layout, plan, tables = self.layout, self.row_plan, self.layout.tables
        limits, n_vis = layout.limits, self.rows.n_row * self.rows.n_chan
        layers = layers_text(plan.layer_w.size, limits.n_layer, limits.w_step)
        _, n_plane, n_w, n_d, *_ = tables.terms.shape
        summed = ", by tensor cores" if layout.by_tensor_cores else ""
        return (
            f"{self.reason}; W-projection in {self.precision} precision; kernels of {layout.support} x "
            f"{layout.support} cells, of which {layout.w_cells:.3g} are for w (misfit "
            f"{layout.taper.misfit:.1e}), from polynomials of {n_w} x {n_d} terms in {n_plane} planes of w "
            f"(error {tables.error:.1e}){summed}; grid of {layout.n_grid} x {layout.n_grid}, padded by "
            f"{layout.n_grid / self.grid_of_image.n_pixel:.3g}; {layers}; {plan.n_item} items of "
            f"{n_vis / plan.n_item:.3g} visibilities; none left out"
        )

    def _of(self, facet: Facet) -> WProjection:
        return WProjection(
            self.rows,
            facet.grid,
            backend=self.backend,
            precision=self.precision,
            memory_limit=self._memory_limit,
            **self._asked,
        )

    def screens_of(self, screens: ScreensLike | None, n_stokes: int) -> Screens:
        if screens is not None:
            raise InputError("W-projection has no A-terms; take rime_kernels.idg.Idg, or engine='idg'")
        kind: type[np.complexfloating] = np.complex64 if self.precision == "single" else np.complex128
        return make_screens(None, self.rows.stokes_to_corr, n_stokes, (1, self.rows.n_antenna, 1), kind)


def _costs(backend: str) -> WProjectionCosts:
    """Costs of the backend; without tensor cores where the device has none."""
    costs = COSTS[backend]
    if costs.tensor_cores:
        from rime_kernels.cuda.kernels.tiles import tensor_cores

        return costs if tensor_cores.available() else costs._replace(tensor_cores=None)
    return costs


def _engine(backend: str) -> Callable[..., GridderEngine]:
    if backend == "cpu":
        from rime_kernels.wprojection.cpu import engine

        return engine.WProjectionCpuEngine
    from rime_kernels.wprojection.cuda import engine as cuda_engine

    return cuda_engine.WProjectionCudaEngine


def _support(support: int) -> int:
    if not LEAST_SUPPORT <= support <= MOST_SUPPORT:
        raise InputError(f"support must lie in {LEAST_SUPPORT} .. {MOST_SUPPORT} cells, got {support}")
    return int(support)
