"""Choose support, padding, taper and W-layers of W-projection: the cheapest that are accurate enough."""

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
from rime_kernels.wprojection.kernel import KernelTables, Split, make_tables, split_curvature

LEAST_SUPPORT, MOST_SUPPORT = 3, 64
# Odd: a visibility's nearest cell is then in the middle.
SUPPORTS = tuple(range(LEAST_SUPPORT, MOST_SUPPORT, 2))
# Cells from the middle of an item's block to its farthest visibilities.
_REACHES = (2, 4, 8, 16)
# Cells that w may take of the kernel, where one layer would need more.
_W_CELLS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
# Shares of the accuracy: the phase that a kernel which is separable leaves out, at the largest distance from
# a layer (its rms over w is 0.58 of that), and the polynomials.
_REST_SHARE, _TABLE_SHARE = 0.5, 0.1
# Most gain of a taper, by which its rounding errors grow: in float32, gridder and degridder are then adjoint
# to 2e-7, with some to spare for 1e-6.
_MOST_GAIN = {True: 10.0, False: 1000.0}


# The most cells of all planes of a block for tensor cores: more do not fit the registers of a multiprocessor.
_MOST_TENSOR_CORE_CELLS = 16384
# The most rows of an item for these: its block costs as much as a hundred or two of its visibilities.
_TENSOR_CORE_ROWS = 512
# Terms of a step of a product of tensor cores.
_STEP = 16


class TensorCoreCosts(NamedTuple):
    """Times of kernels by tensor cores, ns.

    Measured by `benchmarks/wprojection.py` with kernels of 7 to 63 cells and one, two and four planes (H100):
    those are within 9 % of what these say, but for 63 cells, which take up to a quarter more.

    Attributes
    ----------
    vis : float
        Of a visibility.
    step : float
        Of a cell of one of its two kernels, and of 16 terms.
    update : float
        Of a cell of an item's block, a plane and a visibility.
    block : float
        Of a cell and a plane of the block of an item.
    """

    vis: float
    step: float
    update: float
    block: float


class WProjectionCosts(NamedTuple):
    """Times of one thread, ns, by which layouts are ranked, and compared with those of `Idg`.

    Only ratios count, also to those of `Idg`: a cell of a grid has the same time there. Those of the CPU were
    measured by `benchmarks/wprojection.py`, in float32; those of a GPU, of kernels of 7 to 63 cells, rank
    layouts.

    Attributes
    ----------
    vis : float
        Of a visibility.
    term : float
        Of a term and a cell, or a lane beside it, of one of its two kernels.
    update : float
        Of a cell, or a lane beside it, a plane and a visibility.
    block : float
        Of a cell and a plane of the block of an item.
    cell : float
        Of a cell and plane of the grid of a layer.
    double : float
        Times as long in float64, without the last.
    lanes : tuple of int
        Lanes of the vectors that hold a row of a kernel: the least of these that do. Empty where there are no
        vectors.
    units : UnitCosts or None
        None where there are no tensor cores.
    """

    vis: float
    term: float
    update: float
    block: float
    cell: float
    double: float
    lanes: tuple[int, ...]
    tensor_cores: TensorCoreCosts | None = None


# Lanes of vectors on the CPU: few, since a kernel is compiled for each.
LANES = (16, 32, 64)
_TENSOR_CORES = TensorCoreCosts(0.1, 1.5e-3, 7e-5, 4e-3)
COSTS = {
    "cpu": WProjectionCosts(49.0, 0.05, 0.13, 4.5, 7.0, 2.2, LANES),
    "cuda": WProjectionCosts(0.2, 3.5e-4, 5e-4, 2e-3, 0.024, 2.0, (), _TENSOR_CORES),
}


class WProjectionLayout(NamedTuple):
    """The sizes of grid and kernels, and what an item's block can hold.

    Attributes
    ----------
    support : int
        S: cells of a kernel along an axis.
    n_grid : int
        G: cells of the grid along an axis.
    w_cells : float
        Cells that w takes of a kernel.
    limits : Limits
    taper : Taper
    split : Split
    tables : Tables
    cost : float
        Estimated time of a prediction, by which layouts are ranked, and compared with those of `Idg`.
    by_units : bool
        Whether tensor cores are estimated to be faster.
    """

    support: int
    n_grid: int
    w_cells: float
    limits: Limits
    taper: Taper
    split: Split
    tables: KernelTables
    cost: float
    by_tensor_cores: bool

    @property
    def tensor_core_block(self) -> int:
        """Cells of an item's block along an axis, for tensor cores."""
        return tensor_core_block(self.support, round(self.limits.reach))

    def tensor_core_time(self, n_plane: int, n_vis: float) -> float:
        """Estimated time of a visibility by tensor cores, ns, where items have so many."""
        _, _, n_w, n_d, *_ = self.tables.terms.shape
        return _tensor_core_time(
            _TENSOR_CORES, self.support, self.tensor_core_block, n_plane, n_w * n_d, n_vis
        )

    @property
    def block(self) -> int:
        """Cells of an item's block along an axis."""
        return _block(self.support, round(self.limits.reach))


def _block(support: int, reach: int) -> int:
    """A multiple of 4, as the adder wants it."""
    return -(-(support + 2 * reach) // 4) * 4


def tensor_core_block(support: int, reach: int) -> int:
    """A multiple of the rows of a product."""
    return -(-(support + 2 * reach) // 16) * 16


def fits_tensor_cores(block: int, n_plane: int, n_grid: int) -> bool:
    """Whether the registers of a multiprocessor have room for a block, and no cell is twice in it."""
    return n_plane * block**2 <= _MOST_TENSOR_CORE_CELLS and block <= n_grid


_WProjectionNeed: TypeAlias = LayoutNeed[WProjectionCosts]


class _Choice(NamedTuple):
    """What a layout follows from; `support` is an estimate."""

    n_grid: int
    w_reach: float
    support: int
    reach: int


def cheapest_layout(
    rows: SortedRows,
    grid: ImageGrid,
    *,
    accuracy: float,
    single: bool,
    n_corr: int,
    costs: WProjectionCosts,
    supports: Sequence[int] = SUPPORTS,
) -> WProjectionLayout:
    """The cheapest layout whose errors stay below the accuracy.

    Raises
    ------
    InputError
        There is none: the supports are too small, or float32 is not accurate enough.
    """
    need = LayoutNeed.of(rows, grid, accuracy, single, n_corr, costs)
    candidates: list[tuple[float, _Choice]] = []
    for padding in PADDINGS:
        n_grid, width = good_size(padding * grid.n_pixel), kernel_width(padding, accuracy, single)
        if width is None:
            continue
        for w_reach in _w_reaches(need, n_grid):
            least = width + cells_per_w(grid, n_grid) * w_reach
            support = next((each for each in supports if each >= least), None)
            if support is not None:
                choices = [_Choice(n_grid, w_reach, support, reach) for reach in _REACHES]
                candidates += [(_estimate(rows, need, choice), choice) for choice in choices]
    found = cheapest(candidates, lambda choice: _exact(rows, need, choice, supports))
    if found is None:
        raise need.refusal(f"kernel of up to {max(supports)} cells")
    return found


def farthest(grid: ImageGrid, accuracy: float) -> float:
    """The largest distance of w from a layer that a separable kernel allows, wavelengths."""
    rest = split_curvature(grid, LEAST_SUPPORT, grid.n_pixel * grid.cell).rest
    return _REST_SHARE * accuracy / (2.0 * math.pi * rest + 1e-300)


def _w_reaches(need: _WProjectionNeed, n_grid: int) -> list[float]:
    """Distances of w from the layer to try: the largest that a separable kernel allows, and shorter ones."""
    low, high = need.w_range
    most = min(0.5 * (high - low), farthest(need.grid, need.accuracy))
    per_w = cells_per_w(need.grid, n_grid)
    return [most] + [cells / per_w for cells in _W_CELLS if cells < per_w * most]


def _limits(need: _WProjectionNeed, choice: _Choice) -> Limits:
    field = choice.n_grid * need.grid.cell
    return make_limits(need.w_range, field, float(choice.reach), choice.w_reach)


def _estimate(rows: SortedRows, need: _WProjectionNeed, choice: _Choice) -> float:
    """Estimated time of a prediction, with about as many terms as the accuracy takes."""
    return _cost(rows, need, choice, 2.0 * (4.0 - math.log10(need.accuracy)))[0]


def _cost(rows: SortedRows, need: _WProjectionNeed, choice: _Choice, n_term: float) -> tuple[float, bool]:
    """Estimated time of a prediction with one plane for each correlation, and whether by tensor cores."""
    limits, costs, n_plane = _limits(need, choice), need.costs, need.n_corr
    n_item, _ = count_items(rows, limits, need.sample)
    n_vis, size = rows.order.size * rows.scale.size, choice.support
    block = _block(size, choice.reach)
    n_lane = next((n for n in costs.lanes if n >= size), size)
    vis = costs.vis + 2.0 * n_term * n_lane * costs.term
    items = n_vis * (vis + size * n_lane * n_plane * costs.update) + n_item * n_plane * block**2 * costs.block
    items *= 1.0 if need.single else costs.double
    by_tensor_cores = _cost_of_tensor_cores(rows, need, choice, n_term)
    cells = costs.cell * limits.n_layer * n_plane * choice.n_grid**2
    return min(items, by_tensor_cores) + cells, by_tensor_cores < items


def _cost_of_tensor_cores(rows: SortedRows, need: _WProjectionNeed, choice: _Choice, n_term: float) -> float:
    """Estimated time of a prediction by tensor cores, infinite where there are none."""
    costs, n_plane, block = (
        need.costs.tensor_cores,
        need.n_corr,
        tensor_core_block(choice.support, choice.reach),
    )
    if costs is None or not need.single or not fits_tensor_cores(block, n_plane, choice.n_grid):
        return math.inf
    n_item, _ = count_items(rows, _tensor_core_limits(need, choice), need.sample)
    n_vis = rows.order.size * rows.scale.size
    return n_vis * _tensor_core_time(costs, choice.support, block, n_plane, n_term, n_vis / n_item)


def _tensor_core_time(
    costs: TensorCoreCosts, support: int, block: int, n_plane: int, n_term: float, n_vis: float
) -> float:
    """Estimated time of a visibility by tensor cores, ns, where items have so many."""
    vis = costs.vis + 2.0 * math.ceil(n_term / _STEP) * support * costs.step
    return vis + n_plane * block**2 * (costs.update + costs.block / n_vis)


def _tensor_core_limits(need: _WProjectionNeed, choice: _Choice) -> Limits:
    """Limits of items for tensor cores: visibilities may lie as far apart as the block has room for."""
    reach = (tensor_core_block(choice.support, choice.reach) - choice.support) // 2
    return _limits(need, choice._replace(reach=reach))._replace(max_rows=_TENSOR_CORE_ROWS)


def _exact(
    rows: SortedRows, need: _WProjectionNeed, choice: _Choice, supports: Sequence[int]
) -> WProjectionLayout | None:
    """The layout with the least support whose own taper holds the accuracy."""
    n_grid, w_reach, grid = choice.n_grid, choice.w_reach, need.grid
    padding, w_cells = n_grid / grid.n_pixel, cells_per_w(grid, n_grid) * w_reach
    half = half_of(grid.slope())
    near = supports.index(choice.support)
    for support in supports[max(0, near - 1) : near + 4]:
        taper = taper_for(
            support, padding, 0.5, w_cells, half, need.accuracy, need.single, _MOST_GAIN[need.single]
        )
        if taper is not None:
            break
    else:
        return None
    limits = _limits(need, choice)
    split = split_curvature(grid, support, n_grid * grid.cell)
    w_half = min(w_reach, 0.5 * (need.w_range[1] - need.w_range[0]))
    tables = make_tables(taper.values, split, padding, w_half, _TABLE_SHARE * need.accuracy)
    n_term = tables.terms.shape[2] * tables.terms.shape[3]
    choice = choice._replace(support=support)
    cost, by_tensor_cores = _cost(rows, need, choice, float(n_term))
    limits = _tensor_core_limits(need, choice) if by_tensor_cores else limits
    return WProjectionLayout(support, n_grid, w_cells, limits, taper, split, tables, cost, by_tensor_cores)
