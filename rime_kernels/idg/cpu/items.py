"""The degridder and the gridder on the CPU: from the grid to the visibilities of each subgrid, and back.

An item is a subgrid with its visibilities. To degrid it, the splitter takes the subgrid from the grid, it is
transformed, multiplied by taper, w phase and A-terms, and each visibility is a sum over its pixels. Gridding
is the adjoint; the adder (`add.py`) then adds subgrids to the grid.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function, loop
from rime_kernels.compile.types import Array, Compiled, NumbaType, Pointer, Vector
from rime_kernels.cpu.brightness import workspace
from rime_kernels.cpu.simd import ahead, n_lanes, pointer, size, zeros
from rime_kernels.gridding.cpu.correlations import CorrelationEpilogue, make_epilogue, read, write
from rime_kernels.gridding.plan import Plan, SortedRows
from rime_kernels.idg.cpu.apply import ItemTerms, apply, apply_adjoint
from rime_kernels.idg.cpu.dft import transform
from rime_kernels.idg.cpu.sums import Coordinates, add_channels, fill_phasors, sum_pixels, sum_pixels_of_4
from rime_kernels.physics.phase import make_cos_sin

_cos_sin = make_cos_sin(False)


class Pixels(NamedTuple):
    """What every subgrid shares, in the order of `Coordinates`.

    Attributes
    ----------
    size : int
    x, y, curvature
        As in `Coordinates`.
    exact_curvature : float64 (S^2,)
    taper : (S^2,)
        Divided by S^2.
    twiddle, matrix, sign
        As in `DftTables`.
    """

    size: int
    x: NDArray[np.floating]
    y: NDArray[np.floating]
    curvature: NDArray[np.floating]
    exact_curvature: NDArray[np.float64]
    taper: NDArray[np.floating]
    twiddle: NDArray[np.floating]
    matrix: NDArray[np.floating]
    sign: float


class IdgRecipe(NamedTuple):
    """A-terms and planes of one call (`apply.ItemTerms`), and how correlations follow from the sums.

    Attributes
    ----------
    kind : int
    screens : (n_slot, n_antenna, 1 or 4, 2, S^2)
    n_plane, n_sum : int
    is_mixed : bool
    mix : (n_sum or 4, n_plane, 2)
    element : int64 (n_sum,)
    to_corr : (n_corr, n_sum, 2)
        Correlations from sums; not used where `is_direct`.
    is_direct : bool
        Whether the sums are the correlations.
    """

    kind: int
    screens: NDArray[np.floating]
    n_plane: int
    n_sum: int
    is_mixed: bool
    mix: NDArray[np.floating]
    element: NDArray[np.int64]
    to_corr: NDArray[np.floating]
    is_direct: bool


class ItemChannels(NamedTuple):
    """Channels of all items, and where their evenly spaced runs end."""

    scale: NDArray[np.float64]
    run_end: NDArray[np.int64]
    longest: int


@inner_function
def _terms(pixels: Pixels, recipe: IdgRecipe) -> ItemTerms:
    return ItemTerms(
        pixels.size * pixels.size, pointer(pixels.taper), pointer(pixels.exact_curvature), recipe.kind,
        pointer(recipe.screens), recipe.n_plane, recipe.n_sum, recipe.is_mixed, pointer(recipe.mix),
        pointer(recipe.element),
    )  # fmt: skip


@inner_function
def _coordinates(pixels: Pixels) -> Coordinates:
    return Coordinates(pointer(pixels.x), pointer(pixels.y), pointer(pixels.curvature))


@inner_function
def _screens_of(recipe: IdgRecipe, terms: ItemTerms, plan: Plan, item: int) -> tuple[Vector, Vector]:
    """The screens of an item's antennas."""
    # Without A-terms (kind 0) all offsets are 0: there is no branch in the loop over items.
    n_each = recipe.screens.shape[2] * recipe.screens.shape[3] * recipe.screens.shape[4]
    first = plan.slot[item] * recipe.screens.shape[1] * (terms.kind > 0)
    p, q = first + plan.antenna1[item], first + plan.antenna2[item]
    return ahead(terms.screens, p * n_each * (terms.kind > 0)), ahead(
        terms.screens, q * n_each * (terms.kind > 0)
    )


@inner_function
def _copy_wrapped(grid: Pointer, n_grid: int, x0: int, y0: int, n: int, out: Pointer) -> None:
    """Copy a subgrid that lies across the edge of the periodic grid."""
    for y in range(n):
        row = (y0 + y) % n_grid * n_grid
        for x in range(n):
            offset = 2 * (row + (x0 + x) % n_grid)
            out[2 * (y * n + x)], out[2 * (y * n + x) + 1] = grid[offset], grid[offset + 1]


@inner_function
def _load_subgrid(
    grid: Pointer, n_grid: int, plan: Plan, item: int, pixels: Pixels, n_plane: int, out: Pointer,
    scratch: Pointer, lanes_like: Vector, half: Vector, pair: Vector,
) -> None:  # fmt: skip
    """The transformed subgrids of an item, one per plane."""
    n = pixels.size
    x0, y0 = plan.x[item] - n // 2, plan.y[item] - n // 2
    x0, y0 = x0 + n_grid * (x0 < 0), y0 + n_grid * (y0 < 0)
    factors = pointer(pixels.twiddle), pointer(pixels.matrix)
    copy = ahead(scratch, 4 * n * (n + size(lanes_like)))
    for p in range(n_plane):
        plane, target = ahead(grid, 2 * p * n_grid * n_grid), ahead(out, 2 * p * n * n)
        # Most subgrids lie within the grid and are transformed from where they are; others are copied first.
        if x0 + n <= n_grid and y0 + n <= n_grid:
            source, stride = ahead(plane, 2 * (y0 * n_grid + x0)), 2 * n_grid
        else:
            _copy_wrapped(plane, n_grid, x0, y0, n, copy)
            source, stride = copy, 2 * n
        transform(source, stride, target, scratch, n, factors, pixels.sign, lanes_like, half, pair)


@inner_function
def _fill_run(
    rows: SortedRows, channels: ItemChannels, plan: Plan, item: int, r: int, c: int, stop: int,
    coordinates: Pointer, n: int, phasors: Pointer, lanes_like: Vector,
) -> None:  # fmt: skip
    """Phases of channels c .. stop - 1 of a row: the first, and the step."""
    u, v, w, scale = rows.uvw[r, 0], rows.uvw[r, 1], rows.uvw[r, 2], channels.scale[c]
    # Channels of a run are evenly spaced: one phasor for the first, one for the step, then products.
    step = channels.scale[c + 1] - scale if stop > c + 1 else 0.0
    fill_phasors(
        u * scale - plan.x[item], v * scale - plan.y[item], w * scale - plan.w[item], u * step, v * step,
        w * step, stop > c + 1, coordinates, n, phasors, lanes_like,
    )  # fmt: skip


def _make_item(grids: bool) -> Compiled:
    """Function that goes from the planes of an item to its visibilities, or from these to the planes."""

    @inner_function
    def of_item(
        item: int, plan: Plan, rows: SortedRows, channels: ItemChannels, pixels: Pixels,
        epilogue: CorrelationEpilogue, planes: Pointer, phasors: Pointer, sums: Pointer, vis: Pointer,
        weight: Pointer, has_weight: bool, real: NumbaType, lanes_like: Vector, wide: Vector,
    ) -> None:  # fmt: skip
        coordinates, n_sum, sign = _coordinates(pixels), epilogue.n_sum, real(1 - 2 * plan.flip[item])
        # Four channels at a time while their sums fit registers: pixels are read half as often as with two.
        at_once = 4 if size(wide) <= 2 * size(lanes_like) else 2
        n_vector, n = pixels.size**2 // size(lanes_like), pixels.size
        first, end = plan.first_chan[item], plan.first_chan[item] + plan.n_chan[item]
        for r in range(plan.first_row[item], plan.first_row[item] + plan.n_row[item]):
            c, row = first, np.int64(rows.order[r])
            while c < end:
                stop = min(channels.run_end[c], end)
                _fill_run(rows, channels, plan, item, r, c, stop, coordinates, n, phasors, lanes_like)
                if not grids:
                    for k in range(c, stop, at_once):
                        # Behind the last channels of a run phasors are not carried on: the next run makes
                        # its own.
                        more, offset = k + at_once < stop, 2 * n_sum * (k - c)
                        if at_once == 4:
                            sum_pixels_of_4(n_vector, phasors, planes, more, sums, offset, lanes_like, wide)
                        else:
                            sum_pixels(n_vector, phasors, planes, more, sums, offset, lanes_like, wide)
                for k in range(c, stop):
                    # The phase of the image's centre is that of all pixels: it is applied to the sum.
                    cos, sin = _cos_sin(rows.shift[r] * channels.scale[k])
                    offset = epilogue.n_corr * (row * channels.scale.size + k)
                    of_vis, share = ahead(vis, 2 * offset), ahead(sums, 2 * n_sum * (k - c))
                    if grids:
                        of_weight = ahead(weight, offset)
                        read(of_vis, of_weight, has_weight, epilogue, sign, real(cos), real(sin), share)
                    else:
                        write(share, epilogue, sign, real(cos), real(sin), of_vis)
                if grids:
                    add_channels(n_vector, phasors, sums, stop - c, planes, lanes_like, wide)
                c = stop

    return of_item


def _make_task(grids: bool) -> Compiled:
    """Function that degrids or grids items from `first` to the one before `stop`.

    From the cells of a grid to visibilities, or from these to subgrids, the first one that of item `begin`.
    """
    of_item = _make_item(grids)

    @inner_function
    def task(
        first: int, stop: int, begin: int, vis: Array, weight: Array, has_weight: bool, plan: Plan,
        layer_w: float, rows: SortedRows, channels: ItemChannels, pixels: Pixels, recipe: IdgRecipe,
        cells: Array, real: NumbaType, lanes_like: Vector, wide: Vector, half: Vector, pair: Vector,
    ) -> None:  # fmt: skip
        n, n_plane, n_sum, lanes = pixels.size, recipe.n_plane, recipe.n_sum, size(lanes_like)
        n2 = n * n
        subgrids, planes = workspace(2 * n2 * n_plane, real), workspace(2 * n2 * n_sum, real)
        scratch, phasors = workspace(4 * n * (n + lanes) + 2 * n2, real), workspace(4 * n2, real)
        sums, element = workspace(2 * n_sum * (channels.longest + 4), real), workspace(8 * lanes, real)
        terms, epilogue = _terms(pixels, recipe), make_epilogue(recipe.to_corr, n_sum, recipe.is_direct)
        factors = pointer(pixels.twiddle), pointer(pixels.matrix)
        for item in range(first, stop):
            w, flip = plan.w[item] - layer_w, plan.flip[item]
            p, q = _screens_of(recipe, terms, plan, item)
            if grids:
                # Gridding adds to the planes of one item at a time: they stay in the cache.
                planes[:] = 0
            else:
                _load_subgrid(
                    pointer(cells), cells.shape[1], plan, item, pixels, n_plane, pointer(subgrids),
                    pointer(scratch), lanes_like, half, pair,
                )  # fmt: skip
                of, to = pointer(subgrids), pointer(planes)
                apply(terms, w, p, q, flip, of, to, pointer(element), lanes_like)
            of_item(
                item, plan, rows, channels, pixels, epilogue, pointer(planes), pointer(phasors),
                pointer(sums), pointer(vis), pointer(weight), has_weight, real, lanes_like, wide,
            )  # fmt: skip
            if grids:
                of, to = pointer(planes), pointer(subgrids)
                apply_adjoint(terms, w, p, q, flip, of, to, pointer(element), lanes_like)
                for s in range(n_plane):
                    source = ahead(pointer(subgrids), 2 * n2 * s)
                    out = ahead(pointer(cells), 2 * n2 * ((item - begin) * n_plane + s))
                    transform(
                        source, 2 * n, out, pointer(scratch), n, factors, pixels.sign, lanes_like, half, pair
                    )
        # Used once more: Numba takes no notice of pointers to arrays.
        subgrids[0] = planes[0] = scratch[0] = phasors[0] = sums[0] = element[0] = 0

    return task


@functools.cache
def make_tasks(single: bool, n_sum: int, grids: bool) -> Callable[..., None]:
    """The loop over tasks, parts of the items of a layer: from visibilities to subgrids, or a grid to them.

    `cells` are subgrids (n_item, n_plane, S, 2 S) of the items from the first one on, or the layer's grid.
    """
    real, task = np.float32 if single else np.float64, _make_task(grids)
    lanes = n_lanes(real)
    half_lanes, all_lanes = lanes // 2, n_sum * lanes

    @loop
    def of_tasks(
        tasks: Array, vis: Array, weight: Array, has_weight: bool, plan: Plan, layer_w: float,
        rows: SortedRows, channels: ItemChannels, pixels: Pixels, recipe: IdgRecipe, cells: Array,
    ) -> None:  # fmt: skip
        for i in prange(tasks.size - 1):
            task(
                tasks[i], tasks[i + 1], tasks[0], vis, weight, has_weight, plan, layer_w, rows, channels,
                pixels, recipe, cells, real, zeros(real, lanes), zeros(real, all_lanes),
                zeros(real, half_lanes), zeros(real, 2),
            )  # fmt: skip

    return of_tasks
