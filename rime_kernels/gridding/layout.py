"""What layouts of all gridders share: paddings, tapers that hold an accuracy, W-layers."""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from rime_kernels.choices import Precision
from rime_kernels.errors import InputError
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.plan import Limits, SortedRows, sample_runs
from rime_kernels.gridding.taper import Taper, least_misfit

T = TypeVar("T")


class LayoutNeed(NamedTuple, Generic[T]):
    """The image, the accuracy and what else a layout depends on.

    Attributes
    ----------
    costs : T
        Times by which layouts of a gridder are ranked.
    sample : int64 (., .)
        Runs of rows by which the number of items is judged: `plan.sample_runs`.
    aterm_cells : float
        Cells by which A-terms widen a kernel.
    """

    grid: ImageGrid
    accuracy: float
    single: bool
    w_range: tuple[float, float]
    n_corr: int
    costs: T
    sample: NDArray[np.int64]
    aterm_cells: float = 0.0

    @classmethod
    def of(
        cls, rows: SortedRows, grid: ImageGrid, accuracy: float, single: bool, n_corr: int, costs: T,
        aterm_cells: float = 0.0,
    ) -> LayoutNeed[T]:  # fmt: skip
        """What the layout for these rows depends on; an accuracy that float32 does not hold is refused."""
        if single and _FLOOR[True] > _NOISE_SHARE * accuracy:
            raise InputError(f"float32 does not hold an accuracy of {accuracy:g}; take precision='double'")
        sample = sample_runs(rows, SAMPLE_ROWS)
        return cls(grid, accuracy, single, rows.w_range, n_corr, costs, sample, aterm_cells)

    def refusal(self, what: str, more: str = "") -> InputError:
        """The error where nothing of what there is holds the accuracy."""
        precision, hint = ("single", ", or for precision='double'") if self.single else ("double", "")
        return InputError(
            f"no {what} holds an accuracy of {self.accuracy:g} in {precision} precision{more}; "
            f"ask for less accuracy{hint}"
        )


class _Costed(Protocol):
    @property
    def cost(self) -> float: ...


K = TypeVar("K")
L = TypeVar("L")
C = TypeVar("C", bound=_Costed)

PADDINGS = (1.25, 1.5, 1.75, 2.0)
# Rows by which the number of items of a layout is judged.
SAMPLE_ROWS = 8000
# Distance of W-layers, in units of the largest distance of w from its layer (with 2, no item could span a
# range of w).
_W_STEP = 1.4
# Rounding errors of grids and subgrids, per gain along each axis, relative to a source in the corner
# (measured), and those of the sums over pixels; the share of the accuracy that they may take, and that of
# the misfit of one axis (two add in squares).
_NOISE = {True: 2.5e-8, False: 5e-17}
_FLOOR = {True: 1e-6, False: 1e-14}
_NOISE_SHARE, MISFIT_SHARE, _GAIN_SLACK = 0.5, 0.55, 1.05
# For every accuracy: gridder and degridder are adjoint up to rounding errors, which the gain multiplies, too.
_MOST_GAIN = 1000.0


def in_precision(precision: Precision | None, layout: Callable[[bool], L]) -> tuple[Precision, L]:
    """The layout of a precision, from a function of whether it is single; of the first that has one, without.

    Raises
    ------
    InputError
        There is none.
    """
    candidates: list[Precision] = ["single", "double"] if precision is None else [precision]
    for candidate in candidates:
        try:
            return candidate, layout(candidate == "single")
        except InputError:
            if candidate == candidates[-1]:
                raise
    raise AssertionError


def cheapest(candidates: Iterable[tuple[float, K]], exact: Callable[[K], C | None]) -> C | None:
    """The cheapest layout, from estimated costs and what layouts follow from; None where there is none.

    Layouts are made exactly in the order of their costs, until no remaining candidate can be cheaper.
    """
    order = list(candidates)
    waiting: list[tuple[float, bool, int]] = [(cost, False, i) for i, (cost, _) in enumerate(order)]
    heapq.heapify(waiting)
    made: dict[int, C] = {}
    while waiting:
        _, is_exact, i = heapq.heappop(waiting)
        if is_exact:
            return made[i]
        found = exact(order[i][1])
        if found is not None:
            made[i] = found
            heapq.heappush(waiting, (found.cost, True, i))
    return None


def good_size(least: float) -> int:
    """The next even number of cells for which FFTs are fast."""
    return 2 * int(fft.next_fast_len(math.ceil(least / 2.0)))


def taper_for(
    size: int, padding: float, reach: float, w_cells: float, half: float, accuracy: float, single: bool,
    gain_limit: float = _MOST_GAIN,
) -> Taper | None:  # fmt: skip
    """The taper, if its misfit and rounding errors are within their shares of the accuracy; else None."""
    most_gain = min(gain_limit, math.sqrt(_NOISE_SHARE * accuracy / _NOISE[single]))
    found = least_misfit(size, padding, reach, w_cells, half, most_gain)
    holds = found.misfit <= MISFIT_SHARE * accuracy and found.gain <= _GAIN_SLACK * most_gain
    return found if holds else None


@functools.lru_cache(maxsize=64)
def kernel_width(padding: float, accuracy: float, single: bool) -> float | None:
    """Cells of a subgrid of 24 that the taper needs, to half a cell; None if 20 are not enough."""
    size, w_cells = 24, 2.0

    def good(width: float) -> bool:
        reach = 0.5 * (size - width - w_cells)
        return taper_for(size, padding, reach, w_cells, 0.0, accuracy, single) is not None

    width = 3.0
    while not good(width):
        width += 2.0
        if width > 20.0:
            return None
    for less in (1.0, 0.5):
        if good(width - less):
            width -= less
    return width


def half_of(slope: float) -> float:
    """Half the width of the image about (0, 0) with this largest |dn/dl|, in its corners."""
    return slope / math.sqrt(1.0 + 2.0 * slope**2)


def cells_per_w(grid: ImageGrid, n_grid: int) -> float:
    """Width in cells of the w kernel, per wavelength of distance from the W-layer."""
    return 2.0 * grid.slope() * n_grid * grid.cell


def make_limits(w_range: tuple[float, float], field: float, reach: float, w_reach: float) -> Limits:
    """The limits of items, with as few W-layers as there can be where w lies within `w_reach` of them."""
    low, high = w_range
    if w_reach >= 0.5 * (high - low):
        return Limits(field, reach, math.inf, 0.5 * (low + high), 1.0, 1)
    n_layer = max(2, math.ceil((high - low) / (_W_STEP * w_reach)))
    step = (high - low) / n_layer
    return Limits(field, reach, w_reach, low + 0.5 * step, step, n_layer)
