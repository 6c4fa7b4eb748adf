"""CUDA kernels for subgrids: their pixels, the splitter and the adder."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numba import float32, float64, int32, int64, uint32, uint64
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.jit import serial_loop
from rime_kernels.compile.types import Array, DeviceArray, DeviceKernel, Module, Scalar
from rime_kernels.gridding import scalars
from rime_kernels.gridding.cuda.items import X, Y
from rime_kernels.gridding.plan import Plan

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# Cells along a side of the tiles that threads of one block add subgrids to.
TILE = 4 if device.simulated() else 16

_curvature = scalars.curvature


class GridTiles(NamedTuple):
    """Which items cover which tiles of the grid, W-layer after W-layer.

    Attributes
    ----------
    x, y : int32 (n_tile,)
        Tiles with items, counted in tiles.
    start : int64 (n_tile + 1,)
        Where the items of each begin.
    item : int32 (n_pair, 3)
        Items, ascending within a tile, and the grid cell (x, y) where the subgrid of each begins.
    layer_start : int64 (n_layer + 1,)
        Where the tiles of each layer begin.
    """

    x: DeviceArray
    y: DeviceArray
    start: DeviceArray
    item: DeviceArray
    layer_start: NDArray[np.int64]


def make_tiles(plan: Plan, size: int, n_grid: int) -> GridTiles:
    """The tiles under each subgrid."""
    x, y = ((each - size // 2) % n_grid for each in (plan.x, plan.y))
    n_axis = -(-n_grid // TILE)
    found = np.empty((_cover(x, y, size, n_grid, TILE, np.empty((0, 2), np.int64)), 2), np.int64)
    _cover(x, y, size, n_grid, TILE, found)
    key = plan.layer[found[:, 1]].astype(np.int64) * n_axis**2 + found[:, 0]
    order = np.argsort(key, kind="stable")  # items ascend within a tile
    used, start = np.unique(key[order], return_index=True)
    layer, tile = np.divmod(used, n_axis**2)
    item = found[order, 1]
    return GridTiles(
        (tile % n_axis).astype(np.int32), (tile // n_axis).astype(np.int32), np.append(start, key.size),
        np.stack([item, x[item], y[item]], axis=1).astype(np.int32),
        np.searchsorted(layer, np.arange(plan.layer_w.size + 1)),
    )  # fmt: skip


@serial_loop
def _cover(x: Array, y: Array, size: int, n_grid: int, side: int, found: Array) -> int:
    """Pairs of tile and item, if there is room for any; their number."""
    n, n_axis = 0, -(-n_grid // side)
    columns, rows = np.empty(n_axis, np.int64), np.empty(n_axis, np.int64)
    for item in range(x.size):
        n_column = _tiles_from(x[item], size, n_grid, side, columns)
        n_row = _tiles_from(y[item], size, n_grid, side, rows)
        if found.shape[0] > 0:
            for j in range(n_row):
                for i in range(n_column):
                    found[n + j * n_column + i, 0] = rows[j] * n_axis + columns[i]
                    found[n + j * n_column + i, 1] = item
        n += n_row * n_column
    return n


@serial_loop
def _tiles_from(first: int, size: int, n_grid: int, side: int, found: Array) -> int:
    """Tiles along an axis of the cells first ... first + size - 1, which may go round; their number."""
    n = 0
    for k in range(min(size, n_grid)):
        tile = ((first + k) % n_grid) // side
        # Round the grid it may come back to where it began.
        if n == 0 or (tile != found[n - 1] and tile != found[0]):
            found[n] = tile
            n += 1
    return n


@device.inline
def place(coordinate: Scalar, size: Scalar) -> Scalar:
    """Where a cell or pixel, counted from the edge, is in a transform: the middle one is first."""
    half = uint32(uint32(size) // uint32(2))
    return uint32(coordinate) - half if uint32(coordinate) >= half else uint32(coordinate) + half


@functools.cache
def make_curvatures() -> DeviceKernel:
    """Kernel that works out `scalars.curvature` of the pixels of a subgrid, (S, S), `width` apart."""

    @device.kernel(0)
    def curvatures(width: float, l0: float, m0: float, n0: float, corner2: float, out: Array) -> None:
        size, i = int32(out.shape[0]), cuda.grid(1)
        while i < int64(size) * size:
            x, y = int32(i % size) - size // 2, int32(i // size) - size // 2
            out[i // size, i % size] = _curvature(-x * width, y * width, l0, m0, n0, corner2)
            i += cuda.gridsize(1)

    return curvatures


@functools.cache
def make_split(size: int, n_plane: int) -> DeviceKernel:
    """Kernel that copies the cells of each item's subgrid from the grid, the middle one to place (0, 0)."""
    half = size // 2

    @device.kernel(0)
    def split(n_item: int, first_item: int, items: Array, grid: Array, subgrids: Array) -> None:
        n_grid, i = int32(grid.shape[1]), cuda.grid(1)
        while i < int64(n_item) * (size * size):
            item = uint32(uint64(i) // uint64(size * size))
            pixel = uint32(i - int64(item) * (size * size))
            y = uint32(pixel // uint32(size))
            x = uint32(pixel - y * uint32(size))
            column = _around(items[first_item + item, X] + int32(x) - int32(half), n_grid)
            row = _around(items[first_item + item, Y] + int32(y) - int32(half), n_grid)
            to_y, to_x = place(y, size), place(x, size)
            for p in range(n_plane):
                subgrids[item, p, to_y, to_x] = grid[p, row, column]
            i += cuda.gridsize(1)

    return split


@device.inline
def _around(cell: int, n: Scalar) -> Scalar:
    """The place of a cell in a grid that repeats itself; most lie in the first repetition."""
    found = int32(cell)
    while found < 0:
        found += n
    while found >= n:
        found -= n
    return found


@functools.cache
def make_add(single: bool) -> DeviceKernel:
    """Kernel that adds subgrids to the grid.

    A block has one tile of one plane, a thread one cell; it goes through the items over the tile in their
    order, so that sums repeat to the bit.
    """
    real = float32 if single else float64

    @device.kernel(0)
    def add(
        n_item: int, first_item: int, first_tile: int, tile_x: Array, tile_y: Array, tile_start: Array,
        tile_item: Array, subgrids: Array, grid: Array,
    ) -> None:  # fmt: skip
        n_grid, size = int32(grid.shape[1]), int32(subgrids.shape[2])
        tile, plane = first_tile + cuda.blockIdx.x, cuda.blockIdx.y
        x = int32(tile_x[tile]) * int32(TILE) + int32(cuda.threadIdx.x) % int32(TILE)
        y = int32(tile_y[tile]) * int32(TILE) + int32(cuda.threadIdx.x) // int32(TILE)
        if x >= n_grid or y >= n_grid:
            return
        # Those of the batch follow one another.
        entry, end = tile_start[tile], tile_start[tile + 1]
        stop = end
        while entry < stop:
            middle = (entry + stop) // 2
            if tile_item[middle, 0] < first_item:
                entry = middle + 1
            else:
                stop = middle
        re, im = real(0), real(0)
        while entry < end and tile_item[entry, 0] < first_item + n_item:
            local = tile_item[entry, 0] - first_item
            dx, row = x - tile_item[entry, 1], y - tile_item[entry, 2]
            dx, row = (dx + n_grid if dx < 0 else dx), (row + n_grid if row < 0 else row)
            # Once, unless a subgrid is larger than the grid.
            while row < size:
                column = dx
                while column < size:
                    z = subgrids[local, plane, place(row, size), place(column, size)]
                    re += z.real
                    im += z.imag
                    column += n_grid
                row += n_grid
            entry += 1
        z = grid[plane, y, x]
        grid[plane, y, x] = complex(z.real + re, z.imag + im)

    return add
