"""Choose subgrid size, padding, taper and W-layers: the cheapest that are accurate enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.layout import (
    PADDINGS,
    LayoutNeed,
    cells_per_w,
    cheapest,
    good_size,
    half_of,
    kernel_width,
    make_limits,
    taper_for,
)
from rime_kernels.gridding.plan import Limits, SortedRows, count_items
from rime_kernels.gridding.taper import Taper

SIZES = (16, 20, 24, 28, 32, 40, 48, 64)
# Cells of a subgrid that w may take, where one layer would need more.
_W_CELLS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)


class IdgCosts(NamedTuple):
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
    "cpu": IdgCosts(0.09, 0.03, 0.55, 1.2, 0.05, 7.0),
    "cuda": IdgCosts(1e-4, 1.55e-4, 0.0, 0.011, 4e-4, 0.024),
}


# Times of items over those of `IdgCosts`, where a cell of a grid takes what it says, and ns of a visibility
# beside, by which a prediction of `Idg` takes longer than one of W-projection: measured by
# `benchmarks/wprojection.py`, to compare the two. Layouts are ranked without.
ITEMS_MEASURED = {"cpu": {"single": 2.7, "double": 4.5}, "cuda": {"single": 1.0, "double": 1.0}}
VIS_MEASURED = {"cpu": 0.0, "cuda": 0.12}


class IdgLayout(NamedTuple):
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
    cost : float
        Estimated time of a prediction, by which layouts are ranked.
    """

    size: int
    n_grid: int
    w_cells: float
    limits: Limits
    taper: Taper
    cost: float


_IdgNeed: TypeAlias = LayoutNeed[IdgCosts]


def cheapest_layout(
    rows: SortedRows,
    grid: ImageGrid,
    *,
    accuracy: float,
    single: bool,
    aterm_cells: float,
    n_corr: int,
    costs: IdgCosts,
    sizes: Sequence[int] = SIZES,
) -> IdgLayout:
    """The cheapest layout whose errors stay below the accuracy.

    Candidates are ranked by their estimated cost, with the kernel width of one taper for each padding. For
    the cheapest ones the taper is then computed exactly, until no remaining candidate can be cheaper.

    Raises
    ------
    InputError
        There is none: the A-terms are too wide, or float32 is not accurate enough.
    """
    need = LayoutNeed.of(rows, grid, accuracy, single, n_corr, costs, aterm_cells)
    candidates: list[tuple[float, tuple[int, int, float]]] = []
    for padding in PADDINGS:
        n_grid = good_size(padding * grid.n_pixel)
        width = kernel_width(padding, accuracy, single)
        if width is None:
            continue
        for size in sizes:
            for w_cells in _w_options(need, n_grid):
                reach = math.floor(size - width - w_cells - aterm_cells) / 2.0
                if reach >= 1.0:
                    cost = _cost(rows, need, size, n_grid, _limits(need, n_grid, reach, w_cells))
                    candidates.append((cost, (size, n_grid, w_cells)))
    found = cheapest(candidates, lambda key: _exact(rows, need, *key))
    if found is None:
        pixels = f"subgrid of {', '.join(map(str, sizes))} pixels"
        raise need.refusal(pixels, f" with A-terms of {aterm_cells:g} cells")
    return found


def _w_options(need: _IdgNeed, n_grid: int) -> list[float]:
    """Numbers of cells for w to try: what a single W-layer needs, and fewer."""
    all_cells = cells_per_w(need.grid, n_grid) * 0.5 * (need.w_range[1] - need.w_range[0])
    return [cells for cells in _W_CELLS if cells < all_cells] + [all_cells]


def _limits(need: _IdgNeed, n_grid: int, reach: float, w_cells: float) -> Limits:
    w_reach = w_cells / cells_per_w(need.grid, n_grid)
    return make_limits(need.w_range, n_grid * need.grid.cell, reach, w_reach)


def _cost(rows: SortedRows, need: _IdgNeed, size: int, n_grid: int, limits: Limits) -> float:
    """Estimated time of a prediction with one plane for each correlation."""
    n_item, n_item_row = count_items(rows, limits, need.sample)
    n_vis, costs, n_plane = rows.order.size * rows.scale.size, need.costs, need.n_corr
    vis = n_vis * (costs.vis + costs.vis_plane * n_plane) + n_item_row * costs.row
    items = n_item * n_plane * (costs.pixel + costs.transform * size)
    return size**2 * (vis + items) + costs.cell * limits.n_layer * n_plane * n_grid**2


def _exact(rows: SortedRows, need: _IdgNeed, size: int, n_grid: int, w_cells: float) -> IdgLayout | None:
    """The layout with the largest reach whose own taper holds the accuracy."""
    padding, half = n_grid / need.grid.n_pixel, half_of(need.grid.slope())
    most = math.floor(size - w_cells - need.aterm_cells)
    best, low, high = None, 1, most + 1
    while high - low > 1:
        twice = (low + high) // 2 if best is not None else max(2, most - 24)
        found = taper_for(size, padding, 0.5 * twice, w_cells, half, need.accuracy, need.single)
        if found is not None:
            best, low = found, twice
        elif best is None:
            return None
        else:
            high = twice
    if best is None:
        return None
    limits = _limits(need, n_grid, 0.5 * low, w_cells)
    return IdgLayout(size, n_grid, w_cells, limits, best, _cost(rows, need, size, n_grid, limits))
