"""The taper of subgrids, and how wrong it is: found and judged by the same numbers.

A subgrid is S x S cells of the grid, seen as S x S pixels j/S of the padded field, j = -S/2 ... S/2 - 1.
With the taper t_j, and a visibility d cells from the subgrid's middle, a unit source at x (in padded fields)
becomes

    sum_j t_j exp(2 pi i (d j/S + h(j/S))) D(x - j/S) / T(x),    T(x) = sum_j t_j D(x - j/S)

instead of exp(2 pi i (d x + h(x))), where D interpolates S cells' worth of waves and h is the phase that w
adds inside the subgrid. The difference is linear in t, so the taper with the least largest error over the
image follows from least squares, weighted anew until the error is the same everywhere: the idea of
least-misfit gridding functions (Ye, Gull, Tan, Nikolic 2020), for the subgrids of image-domain gridding (van
der Tol, Veenboer, Offringa 2018), who use prolate spheroidal tapers: those are 3 to 100 times less exact at
the same width from 1e-4 downwards.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_N_X = 40  # places between the middle and the edge of the image
_N_ROUND = 16  # of weighting anew
# Weights of the taper's own size: the larger, the less it falls towards the edge of the image.
_QUIET = tuple(10.0 ** (0.5 * k) for k in range(-16, 1))


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
def least_misfit(size: int, padding: float, reach: float, w_cells: float, noise: float) -> Taper:
    """The taper with the least largest misfit (or error by rounding, where that is larger).

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
    noise : float
        Rounding error of the grid, relative; weighed in, because a taper small at the edge multiplies it.
    """
    edge = 0.5 / padding
    x = edge * np.sin(0.5 * np.pi * (np.arange(1, _N_X + 1) / _N_X))
    fold = _fold(size)
    at_x = (interpolation(x, size) @ fold).real
    systems = [_short(system @ fold) for system in _residuals(size, x, edge, reach, w_cells)]
    best, least = Taper(np.ones(size), np.inf, np.inf), np.inf
    for quiet in (1e-15, *(_QUIET if noise > 1e-12 else ())):
        folded, misfit = _even(systems, at_x, size, quiet)
        here = at_x @ folded
        gain = float(here.max() / here.min())
        total = max(misfit, noise * gain**2)
        if here.min() > 0.0 and total < least:
            least, best = total, Taper(fold @ folded / here.max(), misfit, gain)
    return best


def _even(
    systems: list[NDArray[np.float64]], at_x: NDArray[np.float64], size: int, quiet: float
) -> tuple[NDArray[np.float64], float]:
    """The taper, from its middle outwards, whose error is even over the image; and that error."""
    taper = np.cos(np.pi * np.arange(size // 2 + 1) / size) ** 4
    weight, best = np.ones((len(systems), _N_X)), (np.inf, taper)
    for _ in range(_N_ROUND):
        taper = _weighted(systems, at_x, weight, taper, quiet)
        here = np.abs(at_x @ taper)
        error = np.stack([np.linalg.norm(system @ taper, axis=1) / here for system in systems])
        if error.max() < best[0]:
            best = float(error.max()), taper
        weight *= error / error.max() + 1e-3
        weight /= np.sqrt(np.mean(weight**2))
    return best[1], best[0]


def _fold(size: int) -> NDArray[np.float64]:
    """A symmetric taper from its values at distances 0 ... S/2 of the middle."""
    fold = np.zeros((size, size // 2 + 1))
    fold[np.arange(size), np.abs(np.arange(size) - size // 2)] = 1.0
    return fold


def _residuals(
    size: int, x: NDArray[np.float64], edge: float, reach: float, w_cells: float
) -> list[NDArray[np.complex128]]:
    """Error times T(x) as a matrix on the taper, (n_x, n_d, S), without w, with half of the largest, and
    with the largest.

    The phase of w is h(x) = w_cells x^2 / (4 edge), whose slope at the edge is w_cells/2. Distances d are
    spread evenly over the reach: Gauss-Legendre points, enough for the fastest waves.
    """
    node, weight = np.polynomial.legendre.leggauss(int(7.0 * (reach + 0.5 * w_cells)) + 16)
    distance, j = reach * node, pixels(size)
    kernel = interpolation(x, size)
    systems = []
    for curvature in np.array([0.0, 0.5, 1.0][: 1 if w_cells == 0.0 else 3]) * 0.25 * w_cells / edge:
        at_j = np.exp(2j * np.pi * (np.outer(distance, j) + curvature * j**2))
        at_x = np.exp(2j * np.pi * (np.outer(x, distance) + curvature * x[:, None] ** 2))
        wrong = at_j[None] - at_x[:, :, None]
        systems.append(wrong * kernel[:, None, :] * np.sqrt(0.5 * weight)[:, None])
    return systems


def _triangle(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.linalg.qr(matrix, mode="r"), np.float64)


def _short(system: NDArray[np.complex128]) -> NDArray[np.float64]:
    """The triangular factor of each x: the same norms from fewer rows."""
    real = np.concatenate([system.real, system.imag], axis=1)
    return _triangle(real)


def _weighted(
    systems: list[NDArray[np.float64]],
    at_x: NDArray[np.float64],
    weight: NDArray[np.float64],
    taper: NDArray[np.float64],
    quiet: float,
) -> NDArray[np.float64]:
    """The taper of mean T 1, relative to the last one's, with the least weighted misfit and size."""
    here = at_x @ taper
    scale = weight / here
    n = at_x.shape[1]
    rows = [
        (system * each[:, None, None]).reshape(-1, n) for system, each in zip(systems, scale, strict=True)
    ]
    rows.append(quiet * np.linalg.norm(scale) * np.eye(n))
    factor = _triangle(np.concatenate(rows))
    unit = (at_x / here[:, None]).mean(axis=0)
    found = np.linalg.solve(factor, np.linalg.solve(factor.T, unit))
    return found / (unit @ found)
