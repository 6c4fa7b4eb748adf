"""The taper of subgrids: the one with the least largest error over the image, and that error.

A subgrid is S x S cells of the grid, seen as S x S pixels j/S of the padded field, j = -S/2 ... S/2 - 1.
With the taper t_j, and a visibility d cells from the subgrid's middle, a unit source at x (in padded fields)
becomes

    sum_j t_j exp(2 pi i (d j/S + h(j/S))) D(x - j/S) / T(x),    T(x) = sum_j t_j D(x - j/S)

instead of exp(2 pi i (d x + h(x))), where D interpolates S cells' worth of waves and h is the phase that w
adds inside the subgrid. The difference is linear in t, so the taper with the least largest error over the
image follows from least squares, weighted anew until the error is the same everywhere: the idea of
least-misfit gridding functions (Ye, Gull, Tan, Nikolic 2020), for the subgrids of image-domain gridding (van
der Tol, Veenboer, Offringa 2018), who use prolate spheroidal tapers: at the same width those are 2 to 5 times
less exact at 1e-4, 7 to 20 times at 1e-5, and 40 times or more beyond.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import serial_loop
from rime_kernels.compile.types import Array
from rime_kernels.gridding import scalars

_N_X = 24  # places between the middle and the edge of the image, closer towards the edge
_N_ROUND = 12  # of weighting anew
# Cells that a taper is given at most: with more, its misfit is below what float64 can tell.
_MOST_CELLS = 18.0


class Taper(NamedTuple):
    """A taper for one axis, and its errors.

    Attributes
    ----------
    values : float64 (S,)
    misfit : float
        Largest over the image of the rms over visibilities of the error of a unit source, one axis.
    gain : float
        Largest over smallest T within the image: what rounding errors of the grid are multiplied by, one
        axis.
    """

    values: NDArray[np.float64]
    misfit: float
    gain: float


def pixels(size: int) -> NDArray[np.float64]:
    """j/S of the pixels of a subgrid, in padded fields."""
    return (np.arange(size) - size // 2) / size


def interpolation(x: NDArray[np.float64], size: int) -> NDArray[np.complex128]:
    """D(x - j/S), (n_x, S): what leads from the pixels of a subgrid to x."""
    cell = np.arange(size) - size // 2
    there, back = np.outer(x, cell), np.outer(cell, pixels(size))
    return np.exp(2j * np.pi * there) @ np.exp(-2j * np.pi * back) / size


def profile(values: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """T(x) of a taper, by which the image is divided."""
    return (interpolation(x, values.size) @ values).real


@functools.lru_cache(maxsize=256)
def least_misfit(
    size: int, padding: float, reach: float, w_cells: float, half: float, most_gain: float
) -> Taper:
    """The taper with the least largest misfit.

    Parameters
    ----------
    size : int
        S, cells and pixels of a subgrid.
    padding : float
        Padded field over image.
    reach : float
        Largest distance of a visibility from the middle of its subgrid, cells.
    w_cells : float
        Width, in cells, of the kernel that the largest w within a subgrid stands for.
    half : float
        Half the image's width, direction cosines: what w does to wide images is no parabola.
    most_gain : float
        What the gain must not be above: a taper small at the image's edge multiplies rounding errors.
    """
    reach = max(reach, 0.5 * (size - w_cells - _MOST_CELLS))
    edge = 0.5 / padding
    # Closer together towards the edge of the image, where errors grow fastest.
    x = edge * np.sin(0.5 * np.pi * (np.arange(_N_X + 1) / _N_X))
    fold = _fold(size)
    at_x = (interpolation(x, size) @ fold).real
    # The norm of an error is all that counts: triangular factors have it in fewer rows.
    systems = [_short(system @ fold) for system in _residuals(size, x, edge, reach, w_cells, half)]
    folded, misfit = _even(systems, at_x, size, None)
    # The gain is held only where it must be: a constraint can only make the error larger.
    if _gain(at_x @ folded) > most_gain:
        folded, misfit = _even(systems, at_x, size, most_gain)
    here = at_x @ folded
    return Taper(fold @ folded / here.max(), misfit, _gain(here))


def _gain(here: NDArray[np.float64]) -> float:
    return float(here.max() / here.min()) if here.min() > 0.0 else np.inf


def _even(
    systems: list[NDArray[np.float64]], at_x: NDArray[np.float64], size: int, gain: float | None
) -> tuple[NDArray[np.float64], float]:
    """The taper, from its middle outwards, whose error is even over the image; and that error.

    With a gain, T at the edge is T in the middle over the gain.
    """
    # Positive within the image: errors are divided by its transform from the first round on.
    taper = np.cos(np.pi * np.arange(size // 2 + 1) / size) ** 4
    weight, best = np.ones((len(systems), at_x.shape[0])), (np.inf, taper)
    for _ in range(_N_ROUND):
        taper = _weighted(systems, at_x, weight, taper, gain)
        here = np.abs(at_x @ taper)
        error = np.stack([np.linalg.norm(system @ taper, axis=1) / here for system in systems])
        if error.max() < best[0]:
            best = float(error.max()), taper
        # Weights follow the errors; the small number lets a weight come back that fell to almost 0.
        weight *= error / error.max() + 1e-3
        weight /= np.sqrt(np.mean(weight**2))
    return best[1], best[0]


def _fold(size: int) -> NDArray[np.float64]:
    """A symmetric taper from its values at distances 0 ... S/2 of the middle."""
    fold = np.zeros((size, size // 2 + 1))
    fold[np.arange(size), np.abs(np.arange(size) - size // 2)] = 1.0
    return fold


def _residuals(
    size: int, x: NDArray[np.float64], edge: float, reach: float, w_cells: float, half: float
) -> list[NDArray[np.complex128]]:
    """Error times T(x) as a matrix on the taper, (n_x, n_d, S), without w, with half of the largest, and
    with the largest.

    Distances d are Chebyshev points of the reach, enough for the fastest waves: items end where the next row
    would lie beyond, so that visibilities near the ends are more common than in the middle.
    """
    n = int(7.0 * (reach + 0.5 * w_cells)) + 16
    distance, j = reach * np.cos(np.pi * (np.arange(n) + 0.5) / n), pixels(size)
    kernel = interpolation(x, size)
    shape_j, shape_x = w_phase(j / edge, half) * edge, w_phase(x / edge, half) * edge
    systems = []
    for slope in np.array([0.0, 0.25, 0.5][: 1 if w_cells == 0.0 else 3]) * w_cells:
        at_j = np.exp(2j * np.pi * (np.outer(distance, j) + slope * shape_j))
        at_x = np.exp(2j * np.pi * (np.outer(x, distance) + slope * shape_x[:, None]))
        wrong = at_j[None] - at_x[:, :, None]
        systems.append(wrong * kernel[:, None, :] / np.sqrt(n))
    return systems


def w_phase(x: NDArray[np.float64], half: float) -> NDArray[np.float64]:
    """The phase that w makes of n along the border of an image, where it is steepest; of slope 1 at x = 1.

    x in units of `half`, half the image's width; a parabola for small ones.
    """
    if half < 1e-3:
        return 0.5 * x * x
    corner2 = 2.0 * half * half
    found = [scalars.curvature(half * each, half, 0.0, 0.0, 1.0, corner2) for each in (*x, 0.0)]
    return np.asarray(found[-1] - np.array(found[:-1])) * math.sqrt(1.0 - corner2) / half**2


@serial_loop
def _triangles(columns: Array, out: Array) -> None:
    """Triangular factors R of matrices given by their columns, (n_matrix, n, m), which are overwritten.

    Householder's reflections. The matrices are small and many: LAPACK's threads would take longer to wake,
    and where other programs use the cores, a hundred times as long.
    """
    n_matrix, n, m = columns.shape
    for i in range(n_matrix):
        for k in range(n):
            v = columns[i, k, k:]
            norm = np.sqrt(np.sum(v * v))
            # The sign of no cancellation in v[0] - norm.
            norm = -norm if v[0] > 0.0 else norm
            out[i, k, k] = norm
            v[0] -= norm
            square = np.sum(v * v)
            for j in range(k + 1, n):
                other = columns[i, j, k:]
                if square > 0.0:
                    factor = 2.0 * np.sum(v * other) / square
                    for r in range(m - k):
                        other[r] -= factor * v[r]
                out[i, k, j] = other[0]


def _triangle(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Triangular factors of matrices (..., m, n), m at least n: the same norms from fewer rows."""
    *many, m, n = matrices.shape
    columns = np.ascontiguousarray(np.swapaxes(matrices, -1, -2)).reshape(-1, n, m)
    out = np.zeros((len(columns), n, n))
    _triangles(columns.copy(), out)
    return out.reshape(*many, n, n)


def _short(system: NDArray[np.complex128]) -> NDArray[np.float64]:
    """The triangular factor of each x."""
    return _triangle(np.concatenate([system.real, system.imag], axis=1))


def _weighted(
    systems: list[NDArray[np.float64]],
    at_x: NDArray[np.float64],
    weight: NDArray[np.float64],
    taper: NDArray[np.float64],
    gain: float | None,
) -> NDArray[np.float64]:
    """The taper of mean T 1, relative to the last one's, with the least weighted misfit (and this gain)."""
    here = at_x @ taper
    n = at_x.shape[1]
    rows = [
        (system * (each / here)[:, None, None]).reshape(-1, n)
        for system, each in zip(systems, weight, strict=True)
    ]
    # The last rows keep the system solvable where a wave between the pixels has no part in the image.
    factor = _triangle(np.concatenate([*rows, 1e-15 * np.eye(n)]))
    wanted = [(at_x / here[:, None]).mean(axis=0)]
    if gain is not None:
        wanted.append(gain * at_x[-1] - at_x[0])
    constraints = np.stack(wanted, axis=1)
    found = np.linalg.solve(factor, np.linalg.solve(factor.T, constraints))
    right = np.zeros(len(wanted))
    right[0] = 1.0
    return np.asarray(found @ np.linalg.solve(constraints.T @ found, right))
