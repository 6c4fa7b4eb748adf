"""Image-domain gridding: visibilities of an image, and its adjoint, the image of visibilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check, device
from rime_kernels.arrays import Rows
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.device import Backend
from rime_kernels.errors import InputError
from rime_kernels.geometry import Precision
from rime_kernels.idg.facets import Facet, TooLargeError, quarters
from rime_kernels.idg.grid import ImageGrid
from rime_kernels.idg.layout import COSTS, SIZES, Layout, cheapest_layout
from rime_kernels.idg.plan import SortedRows, make_plan, sort_rows
from rime_kernels.idg.screens import Screens, make_screens
from rime_kernels.idg.taper import pixels

# A-terms: at `Idg.lm`, or a function of l and m that gives them there (None where there are none).
ScreensLike = ArrayLike | Callable[[NDArray[np.float64], NDArray[np.float64]], ArrayLike | None]
# Rows are turned round, so that w is positive, where w takes more cells than this.
_FLIP_CELLS = 2.0
# Screens are sampled inside this l^2 + m^2, also where a padded field reaches beyond the horizon.
_HORIZON = 0.998


class _Engine(Protocol):
    transform_seconds: float

    def predict(self, image: NDArray[np.float64], screens: Screens) -> NDArray[np.complexfloating]: ...

    def grid(
        self, vis: NDArray[np.complexfloating], weight: NDArray[np.floating] | None, screens: Screens
    ) -> NDArray[np.float64]: ...


class Idg:
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
        if not 1e-8 <= accuracy <= 0.1:
            raise InputError(f"accuracy must lie in 1e-8 .. 0.1, got {accuracy}")
        if not 0.0 <= aterm_support < 60.0:
            raise InputError(f"aterm_support must lie in 0 .. 60 cells, got {aterm_support}")
        if precision is not None:
            check.one_of("precision", precision, ("single", "double"))
        self.rows, self.grid_of_image = rows, grid
        self.backend, self.reason = device.resolve(backend)
        self._facet_seconds = 0.0
        _refuse_coarse(rows, grid)
        slot, self._n_slot = _slots(rows, aterm_slot)
        self._rows = _oriented(rows, grid, slot)
        self._asked: dict[str, Any] = {  # arguments of the constructor, for facets
            "accuracy": accuracy, "aterm_slot": aterm_slot, "subgrid": subgrid, "memory_limit": memory_limit,
        }  # fmt: skip
        self._aterm_support = float(aterm_support)
        sizes = SIZES if subgrid is None else (_size(subgrid),)
        self.precision, self._layout = self._layout_for(precision, accuracy, float(aterm_support), sizes)
        self._plan = make_plan(self._rows, self._layout.limits)
        self._engine: _Engine = _engine(self.backend)(
            self._rows, self._plan, grid, self._layout, single=self.precision == "single",
            memory_limit=None if memory_limit is None else check.n_byte("memory_limit", memory_limit),
        )  # fmt: skip

    def _layout_for(
        self, precision: Precision | None, accuracy: float, cells: float, sizes: Sequence[int]
    ) -> tuple[Precision, Layout]:
        candidates: list[Precision] = ["single", "double"] if precision is None else [precision]
        for candidate in candidates:
            try:
                return candidate, cheapest_layout(
                    self._rows, self.grid_of_image, accuracy=accuracy, single=candidate == "single",
                    aterm_cells=cells, n_corr=self.rows.n_corr, sizes=sizes, costs=COSTS[self.backend],
                )  # fmt: skip
            except InputError:
                if candidate == candidates[-1]:
                    raise
        raise AssertionError

    @property
    def lm(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        x, field = pixels(self._layout.size), self._layout.limits.field
        l, m = np.meshgrid(self.grid_of_image.l0 - x * field, self.grid_of_image.m0 + x * field)
        shrink = np.sqrt(np.maximum(1.0, (l * l + m * m) / _HORIZON))
        return l / shrink, m / shrink

    @property
    def transform_seconds(self) -> float:
        return self._engine.transform_seconds + self._facet_seconds

    @property
    def plan(self) -> str:
        layout, plan = self._layout, self._plan
        limits, n_vis = layout.limits, self.rows.n_row * self.rows.n_chan
        layers = f"{plan.layer_w.size} W-layers"
        if limits.n_layer > 1:
            layers += f" {limits.w_step:.4g} wavelengths apart"
        return (
            f"{self.reason}; {self.precision} precision; subgrids of {layout.size} x {layout.size}, of which "
            f"{2.0 * limits.reach:g} cells hold visibilities, {layout.w_cells:.3g} are for w, "
            f"{layout.size - 2.0 * limits.reach - layout.w_cells:.3g} for taper and A-terms (misfit "
            f"{layout.taper.misfit:.1e}); grid of {layout.n_grid} x {layout.n_grid}, padded by "
            f"{layout.n_grid / self.grid_of_image.n_pixel:.3g}; {layers}; {plan.n_item} items of "
            f"{n_vis / plan.n_item:.3g} visibilities; none left out"
        )

    def predict(self, image: ArrayLike, screens: ScreensLike | None = None) -> NDArray[np.complexfloating]:
        """Visibilities of an image.

        Parameters
        ----------
        image : float (n_stokes, N, N), Jy/pixel
            Stokes I alone, or I, Q, U, V.
        screens : real or complex (n_slot, n_antenna, S, S), or (n_slot, n_antenna, S, S, 2, 2), optional
            A-terms E at `lm`: scalars, or matrices in the basis of the feeds. Or a function of (l, m) that
            gives them, which is needed where an image with A-terms is divided into quarters.

        Returns
        -------
        complex128, or complex64 in single precision (n_row, n_chan, n_corr), Jy

        Raises
        ------
        InputError
            Another shape, numbers that are not finite, an image of Q, U, V for n_stokes other than 1 and 4;
            an image too large for the memory that cannot be cut.
        """
        n = self.grid_of_image.n_pixel
        stokes_image = check.array("image", image, np.float64, ("stokes", n, n))
        _n_stokes("image has n_stokes =", stokes_image.shape[0])
        check.finite("image", stokes_image)
        aterms = self._screens(screens, stokes_image.shape[0])
        try:
            with CALL_LOCK:
                return self._engine.predict(stokes_image, aterms)
        except TooLargeError as error:
            total: NDArray[np.complexfloating] | int = 0
            for facet in self._facets(screens, error):
                total = total + self._of(facet).predict(facet.cut(stokes_image), screens)
            return np.asarray(total)

    def grid(
        self, vis: ArrayLike, weight: ArrayLike | None = None, *, n_stokes: int = 1,
        screens: ScreensLike | None = None,
    ) -> NDArray[np.float64]:  # fmt: skip
        """The image of visibilities: the adjoint of `predict`, not normalised.

            image = Re sum over visibilities of conj(K) E_p^H (M^H weight V) E_q

        so that the real inner products <predict(image), vis> and <image, grid(vis)> agree.

        Parameters
        ----------
        vis : complex (n_row, n_chan, n_corr)
            Anything where the weight is 0.
        weight : float (n_row, n_chan, n_corr), optional
            1 without it.
        n_stokes : 1 or 4
            Stokes I, or I, Q, U, V.
        screens
            As `predict`.

        Returns
        -------
        float64 (n_stokes, N, N)

        Raises
        ------
        InputError
            Another shape, weights below 0, visibilities that are not finite where the weight is above 0.
        """
        rows = self.rows
        _n_stokes("n_stokes must be", n_stokes)
        sizes = {"row": rows.n_row, "chan": rows.n_chan, "corr": rows.n_corr}
        axes, is_single = ("row", "chan", "corr"), getattr(vis, "dtype", None) == np.complex64
        vis_type: type[np.complexfloating] = np.complex64 if is_single else np.complex128
        data = check.array("vis", vis, vis_type, axes, sizes)
        weights = None
        if weight is not None:
            is_single = getattr(weight, "dtype", None) == np.float32
            weight_type: type[np.floating] = np.float32 if is_single else np.float64
            weights = check.array("weight", weight, weight_type, axes, sizes)
            if not weights.min() >= 0.0:
                raise InputError(f"weight must be at least 0 and no NaN, got {weights.min():g}")
        aterms = self._screens(screens, n_stokes)
        try:
            with CALL_LOCK:
                image = self._engine.grid(data, weights, aterms)
        except TooLargeError as error:
            image = np.empty((n_stokes, self.grid_of_image.n_pixel, self.grid_of_image.n_pixel))
            for facet in self._facets(screens, error):
                idg = self._of(facet)
                facet.paste(idg.grid(data, weights, n_stokes=n_stokes, screens=screens), image)
                self._facet_seconds += idg.transform_seconds
        if not np.isfinite(image).all():
            raise InputError("vis and weight must be finite where the weight is above 0")
        return image

    def _facets(self, screens: ScreensLike | None, error: TooLargeError) -> list[Facet]:
        """The quarters of the image, where it can be cut."""
        facets = list(quarters(self.grid_of_image))
        if not facets or not (screens is None or callable(screens)):
            n = self.grid_of_image.n_pixel
            hint = f"an image of {n} x {n} pixels is not cut"
            if facets:
                hint = "give screens as a function of (l, m), for the image to be cut"
            raise InputError(f"{error}; {hint}") from None
        return facets

    def _of(self, facet: Facet) -> Idg:
        """An `Idg` for a part of the image; not cached, since memory is short."""
        cells = self._aterm_support * facet.grid.n_pixel / self.grid_of_image.n_pixel
        return Idg(
            self.rows, facet.grid, backend=self.backend, precision=self.precision, aterm_support=cells,
            **self._asked,
        )  # fmt: skip

    def _screens(self, screens: ScreensLike | None, n_stokes: int) -> Screens:
        kind: type[np.complexfloating] = np.complex64 if self.precision == "single" else np.complex128
        shape = self._n_slot, self.rows.n_antenna, self._layout.size
        sampled = screens(*self.lm) if callable(screens) else screens
        return make_screens(sampled, self.rows.stokes_to_corr, n_stokes, shape, kind)


def _engine(backend: str) -> Callable[..., _Engine]:
    if backend == "cpu":
        from rime_kernels.idg.cpu import engine

        return engine.Engine
    from rime_kernels.idg.cuda import engine as idg_cuda

    return idg_cuda.Engine


def _n_stokes(words: str, n: int) -> None:
    if n not in (1, 4):
        raise InputError(f"{words} 1 (I) or 4 (I, Q, U, V), got {n}")


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


def _oriented(rows: Rows, grid: ImageGrid, slot: NDArray[np.int32]) -> SortedRows:
    """Sorted rows, with antennas exchanged where that saves W-layers."""
    sorted_rows = sort_rows(rows, grid, slot, False)
    low, high = sorted_rows.w_range
    cells = grid.slope() * grid.n_pixel * grid.cell * (high - low)
    return sort_rows(rows, grid, slot, True) if cells > _FLIP_CELLS and low < 0.0 else sorted_rows


def _refuse_coarse(rows: Rows, grid: ImageGrid) -> None:
    lost, largest = grid.too_coarse(rows)
    if lost:
        raise InputError(
            f"cell {grid.cell:.6g} is too coarse: {lost} of {rows.n_row * rows.n_chan} visibilities have "
            f"more than half a wave per pixel; take a cell of at most {largest:.6g} (direction cosine)"
        )
