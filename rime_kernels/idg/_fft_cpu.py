"""From the image to the grid of a W-layer and back, and the transforms of subgrids; SciPy's FFTs.

Pixel (x, y) lies at cell ((x - N/2) mod G, (y - N/2) mod G) of the padded image, and cell (X, Y) of the
grid, -G/2 <= X, Y, at (X mod G, Y mod G): nothing is shifted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads
from numpy.typing import NDArray
from scipy import fft


def _quarters(n_pixel: int, n_grid: int) -> list[tuple[slice, slice]]:
    """Halves of an axis of the image, and where they lie in the padded one."""
    half = n_pixel // 2
    return [(slice(0, half), slice(n_grid - half, n_grid)), (slice(half, n_pixel), slice(0, half))]


def to_grid(planes: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
    """sum over pixels of planes exp(+2 pi i (X x + Y y)/G): (n_plane, N, N) to (n_plane, G, G) in `out`."""
    quarters = _quarters(planes.shape[-1], out.shape[-1])
    for plane, padded in zip(planes, out, strict=True):
        padded[...] = 0
        for y, y_padded in quarters:
            for x, x_padded in quarters:
                padded[y_padded, x_padded] = plane[y, x]
            # Rows beyond the image are zero before and after.
            padded[y_padded] = _transform(padded[y_padded], (1,), inverse=True)
        padded[...] = _transform(padded, (0,), inverse=True)
    return out


def to_image(grid: NDArray[Any], n_pixel: int) -> NDArray[Any]:
    """The adjoint of `to_grid`; (n_plane, G, G), which it overwrites, to (n_plane, N, N)."""
    quarters = _quarters(n_pixel, grid.shape[-1])
    out = np.empty((grid.shape[0], n_pixel, n_pixel), grid.dtype)
    for padded, plane in zip(grid, out, strict=True):
        padded = _transform(padded, (0,), inverse=False)
        for y, y_padded in quarters:
            rows = _transform(padded[y_padded], (1,), inverse=False)
            for x, x_padded in quarters:
                plane[y, x] = rows[:, x_padded]
    return out


def to_pixels(subgrids: NDArray[Any]) -> NDArray[Any]:
    """sum over cells of subgrids exp(-2 pi i (X x + Y y)/S), axes from -S/2 on both sides; in place."""
    return _centred(subgrids, inverse=False)


def to_cells(subgrids: NDArray[Any]) -> NDArray[Any]:
    """The adjoint of `to_pixels`."""
    return _centred(subgrids, inverse=True)


def _centred(subgrids: NDArray[Any], *, inverse: bool) -> NDArray[Any]:
    axes = (-2, -1)
    return fft.fftshift(_transform(fft.ifftshift(subgrids, axes=axes), axes, inverse=inverse), axes=axes)


def _transform(values: NDArray[Any], axes: tuple[int, ...], *, inverse: bool) -> NDArray[Any]:
    function: Any = fft.ifftn if inverse else fft.fftn
    norm = "forward" if inverse else "backward"  # no factors in either
    found: NDArray[Any] = function(values, axes=axes, norm=norm, overwrite_x=True, workers=get_num_threads())
    return found
