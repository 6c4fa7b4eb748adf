"""CUDA kernels for images and grids: planes into the padded image of a layer, and out of it."""

from __future__ import annotations

import functools

import numpy as np
from numba import complex64, complex128, float32, float64, int32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceArray, DeviceKernel, Module, Stream
from rime_kernels.cuda.kernels import scalars as cuda_scalars
from rime_kernels.gridding import scalars
from rime_kernels.physics import phase

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

_curvature = scalars.curvature


@functools.cache
def turn_function(single: bool) -> Compiled:
    """Function that gives cos and sin of turns, a float64, in working precision."""
    nearest = [cuda_scalars.nearest_function(kind, phase.nearest) for kind in (False, single)]
    return cuda_scalars.cos_sin_function(single, phase.make_cos_sin(single, *nearest))


@functools.cache
def make_fill(single: bool, n_stokes: int, n_plane: int) -> DeviceKernel:
    """Kernel that writes planes times exp(2 pi i w c) into the corners of the grid, and zeros elsewhere.

    A plane is a combination of the Stokes parameters of `image` (n_stokes, N, N), times `correction` of row
    and column.
    """
    real, cplx = (float32, complex64) if single else (float64, complex128)
    cos_sin = turn_function(single)

    @device.kernel(0)
    def fill(
        w: float, cell: float, l0: float, m0: float, n0: float, corner2: float, from_stokes: Array,
        correction: Array, image: Array, grid: Array,
    ) -> None:  # fmt: skip
        value = cuda.local.array(n_stokes, real)
        n_pixel, n_grid = int32(image.shape[1]), int32(grid.shape[1])
        half, row = int32(n_pixel // 2), int32(cuda.blockIdx.y)
        while row < n_grid:
            # Cells beyond the middle are those of negative coordinates.
            y = row if row < half else row - n_grid
            column = int32(cuda.grid(1))
            while column < n_grid:
                x = column if column < half else column - n_grid
                inside = -half <= x and x < half and -half <= y and y < half
                cos, sin = real(0), real(0)
                for s in range(n_stokes):
                    value[s] = real(0)
                if inside:
                    cos, sin = cos_sin(w * _curvature(-x * cell, y * cell, l0, m0, n0, corner2))
                    factor = correction[y + half] * correction[x + half]
                    for s in range(n_stokes):
                        value[s] = factor * image[s, y + half, x + half]
                for p in range(n_plane):
                    total = real(0)
                    for s in range(n_stokes):
                        total += from_stokes[p, s] * value[s]
                    grid[p, row, column] = cplx(complex(total * cos, total * sin))
                column += int32(cuda.gridsize(1))
            row += int32(cuda.gridDim.y)

    return fill


@functools.cache
def make_clear(single: bool) -> DeviceKernel:
    """Kernel that makes every cell of the grid 0."""

    @device.kernel(0)
    def clear(grid: Array) -> None:
        n_grid, row = int32(grid.shape[1]), int32(cuda.blockIdx.y)
        while row < n_grid:
            for p in range(grid.shape[0]):
                column = int32(cuda.grid(1))
                while column < n_grid:
                    grid[p, row, column] = 0.0
                    column += int32(cuda.gridsize(1))
            row += int32(cuda.gridDim.y)

    return clear


@functools.cache
def make_take(single: bool) -> DeviceKernel:
    """Kernel that adds the real part of exp(-2 pi i w c) times the grid's corners to planes, float64.

    The first layer writes over what was there.
    """
    cos_sin = turn_function(single)

    @device.kernel(0)
    def take(
        is_first: bool, w: float, cell: float, l0: float, m0: float, n0: float, corner2: float, grid: Array,
        planes: Array,
    ) -> None:  # fmt: skip
        n_plane, n_pixel, n_grid = planes.shape[0], int32(planes.shape[1]), int32(grid.shape[1])
        half, row = int32(n_pixel // 2), int32(cuda.blockIdx.y)
        while row < n_pixel:
            y, column = row - half, int32(cuda.grid(1))
            while column < n_pixel:
                x = column - half
                cos, sin = cos_sin(w * _curvature(-x * cell, y * cell, l0, m0, n0, corner2))
                for p in range(n_plane):
                    z = grid[p, y if y >= 0 else y + n_grid, x if x >= 0 else x + n_grid]
                    before = 0.0 if is_first else planes[p, row, column]
                    planes[p, row, column] = before + float64(z.real * cos + z.imag * sin)
                column += int32(cuda.gridsize(1))
            row += int32(cuda.gridDim.y)

    return take


@functools.cache
def make_mix() -> DeviceKernel:
    """Kernel that makes the image (n_stokes, N, N) of planes: the adjoint of what `make_fill` does to it."""

    @device.kernel(0)
    def mix(from_stokes: Array, correction: Array, planes: Array, image: Array) -> None:
        n_plane, n_pixel, row = planes.shape[0], int32(planes.shape[1]), int32(cuda.blockIdx.y)
        while row < n_pixel:
            column = int32(cuda.grid(1))
            while column < n_pixel:
                factor = correction[row] * correction[column]
                for s in range(image.shape[0]):
                    total = 0.0
                    for p in range(n_plane):
                        total += from_stokes[p, s] * planes[p, row, column]
                    image[s, row, column] = factor * total
                column += int32(cuda.gridsize(1))
            row += int32(cuda.gridDim.y)

    return mix


@functools.cache
def _make_largest(has_weight: bool) -> DeviceKernel:
    """Kernel that finds the largest weighted number that each thread sees."""

    @device.kernel(0)
    def find(values: Array, weight: Array, found: Array) -> None:
        most, i = 0.0, cuda.grid(1)
        while i < values.size:
            w = float64(weight[i // 2]) if has_weight else 1.0
            if w > 0.0:
                value = w * abs(float64(values[i]))
                if value > most or value != value:  # NaN stays
                    most = value
            i += cuda.gridsize(1)
        found[cuda.grid(1)] = most

    return find


def largest(values: DeviceArray, weight: DeviceArray | None, stream: Stream) -> float:
    """The largest of some numbers times their weights, one for a real and an imaginary part; without sign."""
    n_block, n_thread = (2, 4) if device.simulated() else (1024, 128)
    found = device.empty((n_block * n_thread,), np.float64)
    _make_largest(weight is not None)[n_block, n_thread, stream](
        values, values if weight is None else weight, found
    )
    stream.synchronize()
    return float(found.copy_to_host().max())
