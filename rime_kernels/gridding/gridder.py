"""What every gridder does: checks of its inputs, calls of its engine, and images divided into quarters."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check, device
from rime_kernels.arrays import Rows
from rime_kernels.choices import Backend, Precision
from rime_kernels.compile.call_lock import device_lock
from rime_kernels.errors import InputError
from rime_kernels.gridding.facets import Facet, TooLargeError, quarters
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.plan import Limits, Plan, SortedRows, make_plan, only, sort_rows
from rime_kernels.gridding.screens import Screens

# A-terms: at `Idg.lm`, or a function of l and m that gives them there (None where there are none).
ScreensLike = ArrayLike | Callable[[NDArray[np.float64], NDArray[np.float64]], ArrayLike | None]
# Rows are turned round, so that w is positive, where w takes more cells than this.
_FLIP_CELLS = 2.0


class GridderEngine(Protocol):
    """What a gridder asks of its engine, on the CPU or a GPU."""

    transform_seconds: float

    def predict(self, image: NDArray[np.float64], screens: Screens) -> NDArray[np.complexfloating]: ...

    def grid(
        self, vis: NDArray[np.complexfloating], weight: NDArray[np.floating] | None, screens: Screens
    ) -> NDArray[np.float64]: ...


EngineMaker: TypeAlias = Callable[..., GridderEngine]


class GridderLayout(Protocol):
    """What all layouts have."""

    @property
    def limits(self) -> Limits: ...

    @property
    def n_grid(self) -> int: ...


class Gridder(ABC):
    """Visibilities of images at fixed rows, and images of visibilities: `Idg` or `WProjection`.

    Parameters
    ----------
    rows : Rows
    grid : ImageGrid
    accuracy : float
    backend : "auto", "cpu" or "cuda"
    precision : "single" or "double", optional
    memory_limit : int or str, optional

    Attributes
    ----------
    engine : "idg" or "wprojection"
    plan : str
        The sizes of grid, items and layers, in words.
    cost : float
        Estimated time of a prediction, to compare gridders by: about ns of one thread of a CPU, or of a GPU.
    precision : "single" or "double"
    backend : "cpu" or "cuda"
    transform_seconds : float
        Time that `grid` has spent on Fourier transforms so far; 0 on a GPU, where they are queued.
    """

    engine: str
    precision: Precision
    cost: float
    layout: GridderLayout
    _rows: SortedRows
    _asked: dict[str, Any]
    _wanted: NDArray[np.int64] | None = None
    _place: NDArray[np.int64] | None = None

    def __init__(
        self,
        rows: Rows,
        grid: ImageGrid,
        *,
        accuracy: float,
        backend: Backend,
        precision: Precision | None,
        memory_limit: int | str | None,
    ) -> None:
        if not 1e-8 <= accuracy <= 0.1:
            raise InputError(f"accuracy must lie in 1e-8 .. 0.1, got {accuracy}")
        if precision is not None:
            check.one_of("precision", precision, ("single", "double"))
        if not isinstance(grid, ImageGrid):
            raise InputError(f"grid must be an ImageGrid(n_pixel, cell), got {type(grid).__name__}")
        self.rows, self.grid_of_image = rows, grid
        self._memory_limit = None if memory_limit is None else check.n_byte("memory_limit", memory_limit)
        self.backend, self.reason = device.resolve(backend)
        if self.backend == "cuda" and not device.simulated():
            device.cupy("")  # said now where it is missing, not at the first call
        self._facet_seconds = 0.0
        _refuse_coarse(rows, grid)

    @property
    def plan(self) -> str:
        plan, limits, n_grid = self.row_plan, self.layout.limits, self.layout.n_grid
        layers = f"{plan.layer_w.size} W-layers"
        if limits.n_layer > 1:
            layers += f" {limits.w_step:.4g} wavelengths apart"
        return (
            f"{self.reason}; {self._method()}; grid of {n_grid} x {n_grid}, padded by "
            f"{n_grid / self.grid_of_image.n_pixel:.3g}; {layers}; {plan.n_item} items of "
            f"{self.rows.n_row * self.rows.n_chan / plan.n_item:.3g} visibilities; none left out"
        )

    @abstractmethod
    def _method(self) -> str:
        """The method and its kernels or subgrids, in words."""

    @cached_property
    def row_plan(self) -> Plan:
        return make_plan(self._rows, self.layout.limits)

    @cached_property
    def grid_engine(self) -> GridderEngine:
        return self._engine()(
            self._rows, self.row_plan, self.grid_of_image, self.layout, single=self.precision == "single",
            memory_limit=self._memory_limit,
        )  # fmt: skip

    @abstractmethod
    def _engine(self) -> EngineMaker:
        """The class of the engine for the backend."""

    @abstractmethod
    def screens_of(self, screens: ScreensLike | None, n_stokes: int) -> Screens:
        """A-terms and planes of a call with so many Stokes parameters."""

    @abstractmethod
    def _of(self, facet: Facet) -> Self:
        """A gridder for a part of the image; not cached, since memory is short."""

    def _alike(self, facet: Facet, **others: Any) -> Self:
        """A gridder for a part of the image, with the arguments of this one but for the grid and `others`."""
        given = {"backend": self.backend, "precision": self.precision, "memory_limit": self._memory_limit}
        return type(self)(self.rows, facet.grid, **given | self._asked | others)

    @property
    def _complex(self) -> type[np.complexfloating]:
        return np.complex64 if self.precision == "single" else np.complex128

    @property
    def transform_seconds(self) -> float:
        return self.grid_engine.transform_seconds + self._facet_seconds

    def of_rows(self, wanted: NDArray[np.int64]) -> Self:
        """Make a gridder for some of the rows: it predicts these alone, to the bit as with all others.

        Parameters
        ----------
        wanted : int64 (n_wanted,)
            Row numbers, at least one. Its `predict` gives visibilities of these, in this order.
        """
        # The copy shares grid, taper and tables; an engine holds rows, so that it is made anew.
        one = copy.copy(self)
        one._rows, plan, kept = only(self._rows, self.row_plan, wanted)
        one._wanted, one._place = wanted, np.searchsorted(kept, wanted)
        one.__dict__.pop("grid_engine", None)
        one.__dict__["row_plan"] = plan
        return one

    def predict(self, image: ArrayLike, screens: ScreensLike | None = None) -> NDArray[np.complexfloating]:
        """Visibilities of an image.

        Parameters
        ----------
        image : float (n_stokes, N, N), Jy/pixel
            Stokes I alone, or I, Q, U, V.
        screens : real or complex (n_slot, n_antenna, S, S), or (n_slot, n_antenna, S, S, 2, 2), optional
            For `Idg` alone: A-terms E at `Idg.lm`, scalars or matrices in the basis of the feeds. Or a
            function of (l, m) that gives them: needed where an image with A-terms is divided into quarters.

        Returns
        -------
        complex128, or complex64 in single precision (n_row, n_chan, n_corr), Jy

        Raises
        ------
        InputError
            Another shape, numbers that are not finite, an image of Q, U, V for n_stokes other than 1 and 4;
            an image too large for the memory that cannot be cut; A-terms, other than for `Idg`.
        """
        n = self.grid_of_image.n_pixel
        stokes_image = check.array("image", image, np.float64, ("stokes", n, n))
        _n_stokes("image has n_stokes =", stokes_image.shape[0])
        check.finite("image", stokes_image)
        aterms = self.screens_of(screens, stokes_image.shape[0])
        try:
            with device_lock(self.backend):
                vis = self.grid_engine.predict(stokes_image, aterms)
            return vis if self._place is None else vis[self._place]
        except TooLargeError as error:
            # Visibilities are linear in the image: those of its quarters add up.
            total: NDArray[np.complexfloating] | int = 0
            for facet in self._facets(screens, error):
                # One quarter at a time, so that memory holds one grid.
                part = self._of(facet)
                part = part if self._wanted is None else part.of_rows(self._wanted)
                total = total + part.predict(facet.cut(stokes_image), screens)
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
            Another shape, weights below 0, visibilities that are not finite where the weight is above 0; or
            this is a gridder of some rows (`of_rows`).
        """
        rows = self.rows
        if self._wanted is not None:
            raise InputError("a gridder of some rows predicts, and does not grid: take that of all rows")
        _n_stokes("n_stokes must be", n_stokes)
        sizes = {"row": rows.n_row, "chan": rows.n_chan, "corr": rows.n_corr}
        # Data in single precision stay as they are: a copy in double precision takes twice their memory.
        axes, is_single = ("row", "chan", "corr"), getattr(vis, "dtype", None) == np.complex64
        vis_type: type[np.complexfloating] = np.complex64 if is_single else np.complex128
        data = check.array("vis", vis, vis_type, axes, sizes)
        weights = None
        if weight is not None:
            is_single = getattr(weight, "dtype", None) == np.float32
            weight_type: type[np.floating] = np.float32 if is_single else np.float64
            weights = check.array("weight", weight, weight_type, axes, sizes)
            # Written this way round, NaN is refused, too.
            if not weights.min() >= 0.0:
                raise InputError(f"weight must be at least 0 and no NaN, got {weights.min():g}")
        aterms = self.screens_of(screens, n_stokes)
        try:
            with device_lock(self.backend):
                image = self.grid_engine.grid(data, weights, aterms)
        except TooLargeError as error:
            image = np.empty((n_stokes, self.grid_of_image.n_pixel, self.grid_of_image.n_pixel))
            for facet in self._facets(screens, error):
                part = self._of(facet)
                facet.paste(part.grid(data, weights, n_stokes=n_stokes, screens=screens), image)
                self._facet_seconds += part.transform_seconds
        # Looked for in the image: data need not be finite where the weight is 0.
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

    def _sorted(self, slot_of_time: NDArray[np.int32] | None, w_reach: float = math.inf) -> SortedRows:
        """Sorted rows, with antennas exchanged where that saves W-layers: these reach `w_reach` at most."""
        rows, grid = self.rows, self.grid_of_image
        found = sort_rows(rows, grid, slot_of_time, False)
        # V of -w is the conjugate, with antennas exchanged: half the range of w needs half the layers.
        low, high = found.w_range
        cells = grid.slope() * grid.n_pixel * grid.cell * (high - low)
        is_wide = low < 0.0 and (cells > _FLIP_CELLS or high - low > 2.0 * w_reach)
        return sort_rows(rows, grid, slot_of_time, True) if is_wide else found


def _n_stokes(words: str, n: int) -> None:
    if n not in (1, 4):
        raise InputError(f"{words} 1 (I) or 4 (I, Q, U, V), got {n}")


def _refuse_coarse(rows: Rows, grid: ImageGrid) -> None:
    lost, largest = grid.too_coarse(rows)
    if lost:
        raise InputError(
            f"cell {grid.cell:.6g} is too coarse: {lost} of {rows.n_row * rows.n_chan} visibilities have "
            f"more than half a wave per pixel; take a cell of at most {largest:.6g} (direction cosine)"
        )
