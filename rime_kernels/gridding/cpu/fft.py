"""Fourier transforms between the image and the grid of a W-layer on the CPU, with SciPy's FFTs.

Pixel (x, y) lies at cell ((x - N/2) mod G, (y - N/2) mod G) of the padded image, and cell (X, Y) of the
grid, -G/2 <= X, Y, at (X mod G, Y mod G): nothing is shifted. Rows beyond the image are empty, and columns
beyond `reach` have no visibilities: neither is transformed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads, prange
from numpy.typing import NDArray
from scipy import fft

from rime_kernels.compile.jit import loop
from rime_kernels.compile.types import Array, Pointer
from rime_kernels.gridding import scalars
from rime_kernels.gridding.grid import ImageGrid, offsets
from rime_kernels.gridding.taper import profile
from rime_kernels.physics.phase import make_cos_sin

_curvature, _cos_sin = scalars.curvature, make_cos_sin(False)


class Image:
    """An image's pixels: tapers, w phases, and the way to the grid and back."""

    def __init__(self, grid: ImageGrid, n_grid: int, taper: NDArray[np.float64], single: bool) -> None:
        self.n_pixel, self.n_grid = grid.n_pixel, n_grid
        self._frame = grid.frame
        self._complex: type[np.complexfloating] = np.complex64 if single else np.complex128
        self._offsets = offsets(grid.n_pixel, grid.cell)
        self._correction = 1.0 / profile(taper, offsets(grid.n_pixel, 1.0) / n_grid)
        self._single = single

    def curvatures(self, dl: NDArray[np.float64], dm: NDArray[np.float64]) -> NDArray[np.float64]:
        """`scalars.curvature` of a lattice, (n_m, n_l)."""
        return curvatures(dl, dm, self._frame)

    def new_grid(self, n_plane: int) -> NDArray[np.complexfloating]:
        """Room for the grids of so many planes."""
        return np.empty((n_plane, self.n_grid, self.n_grid), self._complex)

    def to_grid(
        self, planes: NDArray[np.floating], w: float, reach: int, out: NDArray[np.complexfloating]
    ) -> None:
        """sum over pixels of planes exp(2 pi i (w c + (X x + Y y)/G)) / (T T): (n_plane, N, N) to `out`."""
        _fill(planes, self._offsets, *self._frame, w, self._correction, out)
        for plane in out:
            for rows in self._image_rows():
                _transform(plane[rows], 1, inverse=True)
            for columns in self._columns(reach):
                _transform(plane[:, columns], 0, inverse=True)

    def from_grid(
        self, grid: NDArray[np.complexfloating], w: float, reach: int, planes: NDArray[np.float64]
    ) -> None:
        """Add the adjoint of `to_grid`, its real part, to the planes; the grid is overwritten."""
        for plane in grid:
            for columns in self._columns(reach):
                _transform(plane[:, columns], 0, inverse=False)
            for rows in self._image_rows():
                _transform(plane[rows], 1, inverse=False)
        _collect(grid, self._offsets, *self._frame, w, self._correction, planes)

    def _image_rows(self) -> tuple[slice, slice]:
        half = self.n_pixel // 2
        return slice(0, half), slice(self.n_grid - half, self.n_grid)

    def _columns(self, reach: int) -> list[slice]:
        if 2 * reach >= self.n_grid:
            return [slice(0, self.n_grid)]
        return [slice(0, reach), slice(self.n_grid - reach, self.n_grid)]


def curvatures(
    dl: NDArray[np.float64], dm: NDArray[np.float64], frame: tuple[float, float, float, float]
) -> NDArray[np.float64]:
    """`scalars.curvature` of a lattice, (n_m, n_l); `frame` is l0, m0, n0 and corner2 of the image."""
    out = np.empty((dm.size, dl.size))
    _fill_curvatures(dl, dm, *frame, out)
    return out


def _transform(values: NDArray[np.complexfloating], axis: int, *, inverse: bool) -> None:
    """Transform along one axis in place, without factors."""
    function: Any = fft.ifft if inverse else fft.fft
    norm = "forward" if inverse else "backward"
    found = function(values, axis=axis, norm=norm, overwrite_x=True, workers=get_num_threads())
    if not np.may_share_memory(found, values):
        values[...] = found


@loop
def _fill_curvatures(
    dl: Array, dm: Array, l0: float, m0: float, n0: float, corner2: float, out: Array
) -> None:
    for y in prange(dm.size):
        for x in range(dl.size):
            out[y, x] = _curvature(dl[x], dm[y], l0, m0, n0, corner2)


@loop
def _fill(
    planes: Array, offset: Pointer, l0: float, m0: float, n0: float, corner2: float, w: float,
    correction: Pointer, out: Array,
) -> None:  # fmt: skip
    """Pixels times their w phases and over their tapers into the padded image; 0 elsewhere."""
    n_plane, n_pixel, n_grid = planes.shape[0], planes.shape[1], out.shape[1]
    half = n_pixel // 2
    for row in prange(n_grid):
        y = row + half if row < half else row - n_grid + half
        for p in range(n_plane):
            out[p, row] = 0
        if 0 <= y < n_pixel:
            wave = np.empty(n_pixel, np.complex128)
            for x in range(n_pixel):  # by itself, so that it is compiled to vectors
                cos, sin = _cos_sin(w * _curvature(-offset[x], offset[y], l0, m0, n0, corner2))
                factor = correction[x] * correction[y]
                wave[x] = complex(factor * cos, factor * sin)
            for p in range(n_plane):
                for x in range(half):
                    out[p, row, n_grid - half + x] = planes[p, y, x] * wave[x]
                for x in range(half, n_pixel):
                    out[p, row, x - half] = planes[p, y, x] * wave[x]


@loop
def _collect(
    grid: Array, offset: Pointer, l0: float, m0: float, n0: float, corner2: float, w: float,
    correction: Pointer, planes: Array,
) -> None:  # fmt: skip
    """The adjoint of `_fill`: real parts are added to the planes."""
    n_plane, n_pixel, n_grid = planes.shape[0], planes.shape[1], grid.shape[1]
    half = n_pixel // 2
    for y in prange(n_pixel):
        row = (y - half) % n_grid
        wave = np.empty(n_pixel, np.complex128)
        for x in range(n_pixel):
            cos, sin = _cos_sin(w * _curvature(-offset[x], offset[y], l0, m0, n0, corner2))
            factor = correction[x] * correction[y]
            wave[x] = complex(factor * cos, factor * sin)
        for p in range(n_plane):
            for x in range(half):
                value = grid[p, row, n_grid - half + x]
                planes[p, y, x] += value.real * wave[x].real + value.imag * wave[x].imag
            for x in range(half, n_pixel):
                value = grid[p, row, x - half]
                planes[p, y, x] += value.real * wave[x].real + value.imag * wave[x].imag
