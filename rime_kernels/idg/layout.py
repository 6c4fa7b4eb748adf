"""Choose subgrid size, padding, taper and W-layers: the cheapest that are accurate enough."""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from rime_kernels.errors import InputError
from rime_kernels.idg.grid import ImageGrid
from rime_kernels.idg.plan import Limits, SortedRows, count_items, sample_runs
from rime_kernels.idg.taper import Taper, least_misfit

SIZES = (16, 20, 24, 28, 32, 40, 48, 64)
_PADDINGS = (1.25, 1.5, 1.75, 2.0)
# Cells of a subgrid that w may take, where one layer would need more.
_W_CELLS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
# Distance of W-layers, in units of the largest distance of w from its layer (with 2, no item could span a
# range of w).
_W_STEP = 1.4
# Rounding errors of grids and subgrids, per gain along each axis, relative to a source in the corner
# (measured), and those of the sums over pixels; the share of the accuracy that they may take, and that of
# the misfit of one axis (two add in squares).
_NOISE = {True: 2.5e-8, False: 5e-17}
_FLOOR = {True: 1e-6, False: 1e-14}
_NOISE_SHARE, _MISFIT_SHARE, _GAIN_SLACK = 0.5, 0.55, 1.05
# For every accuracy: gridder and degridder are adjoint up to rounding errors, which the gain multiplies, too.
_MOST_GAIN = 1000.0
_SAMPLE_ROWS = 4000


class Costs(NamedTuple):
    """Times of one thread, ns, by which layouts are ranked: only their ratios count.

    Attributes
    ----------
    vis, vis_plane : float
        Of a pixel of a subgrid and a visibility; and for each plane of these.
    row : float
        Of a pixel and a row of an item: sines.
    pixel, transform : float
        Of a pixel and plane of an item: A-terms; and times S: transforms.
    cell : float
        Of a cell and plane of the grid of a layer.
    """

    vis: float
    vis_plane: float
    row: float
    pixel: float
    transform: float
    cell: float


COSTS = {
    "cpu": Costs(0.09, 0.03, 0.55, 1.2, 0.05, 7.0),
    "cuda": Costs(1e-4, 1.55e-4, 0.0, 0.011, 4e-4, 0.018),
}


class Layout(NamedTuple):
    """The sizes of grid and subgrids, the taper, and what a subgrid can hold.

    Attributes
    ----------
    size : int
        S: cells, and pixels, of a subgrid along an axis.
    n_grid : int
        G: cells of the grid along an axis.
    w_cells : float
        Cells that w takes of a subgrid.
    limits : Limits
    taper : Taper
    """

    size: int
    n_grid: int
    w_cells: float
    limits: Limits
    taper: Taper


class _Need(NamedTuple):
    """The image, the accuracy and what else a layout depends on."""

    grid: ImageGrid
    accuracy: float
    single: bool
    aterm_cells: float
    w_range: tuple[float, float]
    n_corr: int
    costs: Costs
    sample: NDArray[np.int64]


def cheapest_layout(
    rows: SortedRows,
    grid: ImageGrid,
    *,
    accuracy: float,
    single: bool,
    aterm_cells: float,
    n_corr: int,
    costs: Costs,
    sizes: Sequence[int] = SIZES,
) -> Layout:
    """The cheapest layout whose errors stay below the accuracy.

    Candidates are ranked by their estimated cost, with the kernel width of one taper for each padding. For
    the cheapest ones the taper is then computed exactly, until no remaining candidate can be cheaper.

    Raises
    ------
    InputError
        There is none: the A-terms are too wide, or float32 is not accurate enough.
    """
    if _FLOOR[single] > _NOISE_SHARE * accuracy:
        raise InputError(f"float32 does not hold an accuracy of {accuracy:g}; take precision='double'")
    sample = sample_runs(rows, _SAMPLE_ROWS)
    need = _Need(grid, accuracy, single, aterm_cells, rows.w_range, n_corr, costs, sample)
    waiting: list[tuple[float, bool, tuple[int, int, float]]] = []
    layouts: dict[tuple[int, int, float], Layout] = {}
    for padding in _PADDINGS:
        n_grid = good_size(padding * grid.n_pixel)
        width = kernel_width(padding, accuracy, single)
        if width is None:
            continue
        for size in sizes:
            for w_cells in _w_options(need, n_grid):
                reach = math.floor(size - width - w_cells - aterm_cells) / 2.0
                if reach >= 1.0:
                    cost = _cost(rows, need, size, n_grid, _limits(need, n_grid, reach, w_cells))
                    waiting.append((cost, False, (size, n_grid, w_cells)))
    heapq.heapify(waiting)
    while waiting:
        _, is_exact, key = heapq.heappop(waiting)
        if is_exact:
            return layouts[key]
        found = _exact(need, *key)
        if found is not None:
            layouts[key] = found
            cost = _cost(rows, need, found.size, found.n_grid, found.limits)
            heapq.heappush(waiting, (cost, True, key))
    raise InputError(
        f"no subgrid of {', '.join(map(str, sizes))} pixels holds an accuracy of {accuracy:g} in "
        f"{'single' if single else 'double'} precision with A-terms of {aterm_cells:g} cells; "
        "ask for less accuracy" + (", or for precision='double'" if single else "")
    )


def good_size(least: float) -> int:
    """The next even number of cells for which FFTs are fast."""
    return 2 * int(fft.next_fast_len(math.ceil(least / 2.0)))


def _taper(
    size: int, padding: float, reach: float, w_cells: float, half: float, accuracy: float, single: bool
) -> Taper | None:
    """The taper, if its misfit and rounding errors are within their shares of the accuracy; else None."""
    most_gain = min(_MOST_GAIN, math.sqrt(_NOISE_SHARE * accuracy / _NOISE[single]))
    found = least_misfit(size, padding, reach, w_cells, half, most_gain)
    holds = found.misfit <= _MISFIT_SHARE * accuracy and found.gain <= _GAIN_SLACK * most_gain
    return found if holds else None


@functools.lru_cache(maxsize=64)
def kernel_width(padding: float, accuracy: float, single: bool) -> float | None:
    """Cells of a subgrid of 24 that the taper needs, to half a cell; None if 20 are not enough."""
    size, w_cells = 24, 2.0

    def good(width: float) -> bool:
        reach = 0.5 * (size - width - w_cells)
        return _taper(size, padding, reach, w_cells, 0.0, accuracy, single) is not None

    width = 3.0
    while not good(width):
        width += 2.0
        if width > 20.0:
            return None
    for less in (1.0, 0.5):
        if good(width - less):
            width -= less
    return width


def _w_options(need: _Need, n_grid: int) -> list[float]:
    """Numbers of cells for w to try: what a single W-layer needs, and fewer."""
    all_cells = _cells_per_w(need, n_grid) * 0.5 * (need.w_range[1] - need.w_range[0])
    return [cells for cells in _W_CELLS if cells < all_cells] + [all_cells]


def _cells_per_w(need: _Need, n_grid: int) -> float:
    """Width in cells of the w kernel, per wavelength of distance from the W-layer."""
    return 2.0 * need.grid.slope() * n_grid * need.grid.cell


def _limits(need: _Need, n_grid: int, reach: float, w_cells: float) -> Limits:
    low, high = need.w_range
    field = n_grid * need.grid.cell
    w_reach = w_cells / _cells_per_w(need, n_grid)
    if w_reach >= 0.5 * (high - low):
        return Limits(field, reach, math.inf, 0.5 * (low + high), 1.0, 1)
    n_layer = max(2, math.ceil((high - low) / (_W_STEP * w_reach)))
    step = (high - low) / n_layer
    return Limits(field, reach, w_reach, low + 0.5 * step, step, n_layer)


def _cost(rows: SortedRows, need: _Need, size: int, n_grid: int, limits: Limits) -> float:
    """Estimated time of a prediction with one plane for each correlation."""
    n_item, n_item_row = count_items(rows, limits, need.sample)
    n_vis, costs, n_plane = rows.order.size * rows.scale.size, need.costs, need.n_corr
    vis = n_vis * (costs.vis + costs.vis_plane * n_plane) + n_item_row * costs.row
    items = n_item * n_plane * (costs.pixel + costs.transform * size)
    return size**2 * (vis + items) + costs.cell * limits.n_layer * n_plane * n_grid**2


def _exact(need: _Need, size: int, n_grid: int, w_cells: float) -> Layout | None:
    """The layout with the largest reach whose own taper holds the accuracy."""
    padding, slope = n_grid / need.grid.n_pixel, need.grid.slope()
    half = slope / math.sqrt(1.0 + 2.0 * slope**2)  # of the image about (0, 0) with this slope in its corners
    most = math.floor(size - w_cells - need.aterm_cells)
    best, low, high = None, 1, most + 1
    while high - low > 1:
        twice = (low + high) // 2 if best is not None else max(2, most - 24)
        found = _taper(size, padding, 0.5 * twice, w_cells, half, need.accuracy, need.single)
        if found is not None:
            best, low = found, twice
        elif best is None:
            return None
        else:
            high = twice
    if best is None:
        return None
    return Layout(size, n_grid, w_cells, _limits(need, n_grid, 0.5 * low, w_cells), best)
