"""The adder on the CPU: subgrids are added to the grid, in an order that does not depend on threads."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numba import prange

from rime_kernels.compile.jit import inner_function, loop
from rime_kernels.compile.types import Array, Pointer, Scalar, Vector
from rime_kernels.cpu.simd import ahead, load, n_lanes, pointer, size, store, zeros
from rime_kernels.gridding.plan import Plan

# Strips of the grid: a thread adds to every so many-th row.
_STRIPS = 64


@inner_function
def _add_row(source: Pointer, target: Pointer, n: Scalar, lanes_like: Vector) -> None:
    for x in range(0, 2 * n, size(lanes_like)):
        store(target, x, load(target, x, lanes_like) + load(source, x, lanes_like))


@inner_function
def _add_strip(
    strip: Scalar, first: Scalar, subgrids: Array, plan: Plan, grid: Array, lanes_like: Vector
) -> None:
    n_plane, n, n_grid = grid.shape[0], subgrids.shape[2], grid.shape[1]
    source, target = pointer(subgrids), pointer(grid)
    for i in range(subgrids.shape[0]):
        x0, y0 = (plan.x[first + i] - n // 2) % n_grid, (plan.y[first + i] - n // 2) % n_grid
        is_inside = x0 + n <= n_grid and y0 + n <= n_grid
        for y in range((strip - y0) % _STRIPS if is_inside else 0, n, _STRIPS if is_inside else 1):
            row = (y0 + y) % n_grid
            for p in range(n_plane):
                here = ahead(source, 2 * n * ((i * n_plane + p) * n + y))
                there = ahead(target, 2 * n_grid * (p * n_grid + row))
                if is_inside:
                    _add_row(here, ahead(there, 2 * x0), n, lanes_like)
                elif row % _STRIPS == strip:
                    for x in range(n):
                        offset = 2 * ((x0 + x) % n_grid)
                        there[offset] += here[2 * x]
                        there[offset + 1] += here[2 * x + 1]


@functools.cache
def make_add(single: bool) -> Callable[..., None]:
    """Add a batch of subgrids to the grid. A thread owns rows of the grid, so that sums have one order."""
    real = np.float32 if single else np.float64
    half_lanes = n_lanes(real) // 2

    @loop
    def add(first: int, subgrids: Array, plan: Plan, grid: Array) -> None:
        for strip in prange(_STRIPS):
            _add_strip(strip, first, subgrids, plan, grid, zeros(real, half_lanes))

    return add
