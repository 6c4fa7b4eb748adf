"""W-projection: visibilities of an image, and its adjoint, the image of visibilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rime_kernels.arrays import Rows
from rime_kernels.choices import Backend, Precision
from rime_kernels.errors import InputError
from rime_kernels.gridding.facets import Facet
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.gridder import EngineMaker, Gridder, ScreensLike
from rime_kernels.gridding.layout import in_precision
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
    layout: WProjectionLayout

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

    def _layout_for(self, single: bool, accuracy: float, supports: Sequence[int]) -> WProjectionLayout:
        return cheapest_layout(
            self._rows, self.grid_of_image, accuracy=accuracy, single=single, n_corr=self.rows.n_corr,
            costs=_costs(self.backend), supports=supports,
        )  # fmt: skip

    def _method(self) -> str:
        layout, tables = self.layout, self.layout.tables
        _, n_plane, n_w, n_d, *_ = tables.terms.shape
        summed = ", by tensor cores" if layout.by_tensor_cores else ""
        return (
            f"W-projection in {self.precision} precision; kernels of {layout.support} x "
            f"{layout.support} cells, of which {layout.w_cells:.3g} are for w (misfit "
            f"{layout.taper.misfit:.1e}), from polynomials of {n_w} x {n_d} terms in {n_plane} planes of w "
            f"(error {tables.error:.1e}){summed}"
        )

    def _of(self, facet: Facet) -> WProjection:
        return self._alike(facet)

    def _engine(self) -> EngineMaker:
        if self.backend == "cpu":
            from rime_kernels.wprojection.cpu import engine

            return engine.WProjectionCpuEngine
        from rime_kernels.wprojection.cuda import engine as cuda_engine

        return cuda_engine.WProjectionCudaEngine

    def screens_of(self, screens: ScreensLike | None, n_stokes: int) -> Screens:
        if screens is not None:
            raise InputError("W-projection has no A-terms; take rime_kernels.idg.Idg, or engine='idg'")
        shape = 1, self.rows.n_antenna, 1
        return make_screens(None, self.rows.stokes_to_corr, n_stokes, shape, self._complex)


def _costs(backend: str) -> WProjectionCosts:
    """Costs of the backend; without tensor cores where the device has none."""
    costs = COSTS[backend]
    if costs.tensor_cores:
        from rime_kernels.cuda.kernels.tiles import tensor_cores

        return costs if tensor_cores.available() else costs._replace(tensor_cores=None)
    return costs


def _support(support: int) -> int:
    if not LEAST_SUPPORT <= support <= MOST_SUPPORT:
        raise InputError(f"support must lie in {LEAST_SUPPORT} .. {MOST_SUPPORT} cells, got {support}")
    return int(support)
