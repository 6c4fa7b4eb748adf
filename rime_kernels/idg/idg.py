"""Image-domain gridding: visibilities of an image, and its adjoint, the image of visibilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check
from rime_kernels.arrays import Rows
from rime_kernels.choices import Backend, Precision
from rime_kernels.errors import InputError
from rime_kernels.gridding.facets import Facet
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.gridder import EngineMaker, Gridder, ScreensLike
from rime_kernels.gridding.layout import in_precision
from rime_kernels.gridding.screens import Screens, make_screens
from rime_kernels.gridding.taper import pixels
from rime_kernels.idg.layout import COSTS, ITEMS_MEASURED, SIZES, VIS_MEASURED, IdgLayout, cheapest_layout

# Screens are sampled inside this l^2 + m^2, also where a padded field reaches beyond the horizon.
_HORIZON = 0.998


class Idg(Gridder):
    """Visibilities of images at fixed rows, and images of visibilities.

        V = sum over pixels of M (E_p B E_q^H) exp(+2 pi i (u l + v m + w (n - 1)) nu/c)

    (physics: sections 2, 3, 8) with pixels B in Jy, as Stokes parameters, M the map to correlations, E the
    A-terms. Everything is planned once; the accuracy holds for the whole image, including its corners.
    Results do not depend on the number of threads, and repeat to the bit. Several Python threads may call;
    one call runs at a time. The method is that of van der Tol, Veenboer and Offringa (2018).

    Parameters
    ----------
    rows : Rows
    grid : ImageGrid
    accuracy : float
        Largest relative error (2-norm over visibilities) of a source anywhere in the image, 1e-1 ... 1e-8.
    backend : "auto", "cpu" or "cuda"
    precision : "single" or "double", optional
        Without it, single where it holds the accuracy.
    aterm_slot : int (n_time,), optional
        The slot of A-terms of each time index, from 0; without it there is one slot.
    aterm_support : float
        Cells of the padded grid, 1/`field` wavelengths each, by which the product of two A-terms widens the
        kernel: its full width.
    subgrid : int, optional
        Pixels of a subgrid along an axis, a multiple of 4; chosen without it.
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", for images, grids and subgrids. An image whose grid does not fit, here
        or on the device, is divided into quarters, which takes up to four times as long.

    Attributes
    ----------
    lm : (float64 (S, S), float64 (S, S))
        l and m of the pixels of a subgrid, where `screens` are sampled. They reach beyond the image.
    plan : str
        The sizes of grid, subgrids and layers, in words.
    precision : "single" or "double"
    backend : "cpu" or "cuda"
    transform_seconds : float
        Time that `grid` has spent on Fourier transforms so far; 0 on a GPU, where they are queued.

    Raises
    ------
    InputError
        Values out of range, or a cell that is too coarse for some visibilities, which have more than half a
        wave per pixel.
    BackendError
        `backend="cuda"` without a device.
    """

    engine = "idg"
    layout: IdgLayout

    def __init__(
        self,
        rows: Rows,
        grid: ImageGrid,
        *,
        accuracy: float = 1e-5,
        backend: Backend = "auto",
        precision: Precision | None = None,
        aterm_slot: ArrayLike | None = None,
        aterm_support: float = 0.0,
        subgrid: int | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        super().__init__(
            rows, grid, accuracy=accuracy, backend=backend, precision=precision, memory_limit=memory_limit
        )
        if not 0.0 <= aterm_support < 60.0:
            raise InputError(f"aterm_support must lie in 0 .. 60 cells, got {aterm_support}")
        slot, self._n_slot = _slots(rows, aterm_slot)
        self._rows = self._sorted(slot)
        self._asked: dict[str, Any] = {  # arguments of the constructor, for facets
            "accuracy": accuracy, "aterm_slot": aterm_slot, "subgrid": subgrid,
        }  # fmt: skip
        self._aterm_support = float(aterm_support)
        sizes = SIZES if subgrid is None else (_size(subgrid),)
        self.precision, self.layout = in_precision(
            precision, lambda single: self._layout_for(single, accuracy, sizes)
        )
        cells = COSTS[self.backend].cell * self.layout.limits.n_layer * rows.n_corr * self.layout.n_grid**2
        self.cost = ITEMS_MEASURED[self.backend][self.precision] * (self.layout.cost - cells) + cells
        self.cost += VIS_MEASURED[self.backend] * rows.n_row * rows.n_chan

    def _layout_for(self, single: bool, accuracy: float, sizes: Sequence[int]) -> IdgLayout:
        return cheapest_layout(
            self._rows, self.grid_of_image, accuracy=accuracy, single=single, aterm_cells=self._aterm_support,
            n_corr=self.rows.n_corr, sizes=sizes, costs=COSTS[self.backend],
        )  # fmt: skip

    @property
    def lm(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        x, field = pixels(self.layout.size), self.layout.limits.field
        l, m = np.meshgrid(self.grid_of_image.l0 - x * field, self.grid_of_image.m0 + x * field)
        shrink = np.sqrt(np.maximum(1.0, (l * l + m * m) / _HORIZON))
        return l / shrink, m / shrink

    def _method(self) -> str:
        layout, of_vis = self.layout, 2.0 * self.layout.limits.reach
        return (
            f"image-domain gridding in {self.precision} precision; subgrids of "
            f"{layout.size} x {layout.size}, of which {of_vis:g} cells hold visibilities, "
            f"{layout.w_cells:.3g} are for w, {layout.size - of_vis - layout.w_cells:.3g} for taper and "
            f"A-terms (misfit {layout.taper.misfit:.1e})"
        )

    def _of(self, facet: Facet) -> Idg:
        cells = self._aterm_support * facet.grid.n_pixel / self.grid_of_image.n_pixel
        return self._alike(facet, aterm_support=cells)

    def _engine(self) -> EngineMaker:
        if self.backend == "cpu":
            from rime_kernels.idg.cpu import engine

            return engine.IdgCpuEngine
        from rime_kernels.idg.cuda import engine as cuda_engine

        return cuda_engine.IdgCudaEngine

    def screens_of(self, screens: ScreensLike | None, n_stokes: int) -> Screens:
        shape = self._n_slot, self.rows.n_antenna, self.layout.size
        sampled = screens(*self.lm) if callable(screens) else screens
        return make_screens(sampled, self.rows.stokes_to_corr, n_stokes, shape, self._complex)


def _size(subgrid: int) -> int:
    if subgrid % 4 or not 16 <= subgrid <= 64:
        raise InputError(f"subgrid must be a multiple of 4 in 16 .. 64, got {subgrid}")
    return int(subgrid)


def _slots(rows: Rows, slot: ArrayLike | None) -> tuple[NDArray[np.int32], int]:
    if slot is None:
        return np.zeros(rows.n_time, np.int32), 1
    slots = check.array("aterm_slot", slot, np.int32, ("time",), {"time": rows.n_time})
    if slots.min() < 0:
        raise InputError(f"aterm_slot must be at least 0, got {slots.min()}")
    return slots, int(slots.max()) + 1
