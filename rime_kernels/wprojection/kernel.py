"""Kernels of W-projection that are separable: what they are, and polynomials that give them.

With c(dl, dm) of `gridding.scalars`, split as c = c0 + cx(dl) + cy(dm) + rest, a visibility (U, V) cells from
the nearest cells (X, Y), and delta w from its W-layer, is

    V = exp(2 pi i delta c0) sum_jk C_j(U - X; delta cx) C_k(V - Y; delta cy) G[X + j, Y + k]
    C_j(d; h) = 1/S sum_p t_p exp(2 pi i ((d - j) p/S + h(p/S)))

with S cells j and pixels p/S = -1/2 ... 1/2 of the padded field, and t the taper of `gridding.taper` for
visibilities within half a cell of the middle of their own subgrid: its misfit holds here, too. The rest, of
which an image about the phase centre has dl^2 dm^2/4 less what cx and cy can take of it, bounds delta: that
is what the W-layers are for. C is complex and 1-D; as a function of d and delta it is a polynomial within
each of a few *planes* of delta.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from rime_kernels.gridding.cpu.fft import curvatures
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.gridding.taper import pixels, profile

# Nodes over which c is averaged. Means over Chebyshev nodes leave the least largest rest of dl^2 dm^2.
_N_NODE = 16
# The most terms of a polynomial in delta, and planes of delta that are preferred to one term more.
_MOST_W_TERMS, _FEW_PLANES = 4, 32
# The most terms in d: with more, the error is below what float64 can tell.
_MOST_TERMS = 16


class Split(NamedTuple):
    """The curvature c as a sum of functions of dl and of dm.

    Attributes
    ----------
    middle : float
        c0, so that cx and cy lie evenly about 0 within the image.
    x, y : float64 (S,)
        cx and cy at the pixels p/S of the padded field (dl = -p/S field, dm = p/S field).
    largest : float
        Largest |cx| or |cy| within the image.
    rest : float
        Largest |c - c0 - cx - cy| within the image.
    """

    middle: float
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    largest: float
    rest: float


def split_curvature(grid: ImageGrid, size: int, field: float) -> Split:
    """Split c into functions of dl and dm, for kernels of S = size cells in a padded field."""
    half = 0.5 * grid.n_pixel * grid.cell
    node = half * np.cos(np.pi * (np.arange(_N_NODE) + 0.5) / _N_NODE)
    edge = half * np.cos(np.pi * np.arange(2 * _N_NODE + 1) / (2 * _N_NODE))
    there, mean = pixels(size) * field, float(curvatures(node, node, grid.frame).mean())

    def along_l(dl: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(curvatures(dl, node, grid.frame).mean(axis=0))

    def along_m(dm: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(curvatures(node, dm, grid.frame).mean(axis=1))

    of_l, of_m = along_l(edge), along_m(edge)
    middle = [0.5 * float(each.max() + each.min()) for each in (of_l, of_m)]
    rest = np.abs(curvatures(edge, edge, grid.frame) - of_l - of_m[:, None] + mean).max()
    largest = max(np.ptp(of_l), np.ptp(of_m)) / 2.0
    return Split(
        middle[0] + middle[1] - mean, along_l(-there) - middle[0], along_m(there) - middle[1], float(largest),
        float(rest),
    )  # fmt: skip


def kernels(
    taper: NDArray[np.float64], c: NDArray[np.float64], d: NDArray[np.float64], delta: NDArray[np.float64]
) -> NDArray[np.complex128]:
    """C_j(d; delta c), (n_d, n_delta, S), of visibilities d cells from the nearest one."""
    size, p = taper.size, pixels(taper.size)
    cell = np.arange(size) - size // 2
    wave = np.exp(2j * np.pi * np.outer(delta, c)) * taper / size
    there = np.exp(2j * np.pi * np.outer(d, p))
    back = np.exp(-2j * np.pi * np.outer(p, cell))
    return np.asarray((there[:, None, :] * wave) @ back)


class KernelTables(NamedTuple):
    """Polynomials for the kernels of both axes.

    Attributes
    ----------
    terms : float64 (2, n_plane, n_w, n_d, 2, S)
        Axis (u, v), plane of delta, powers of t and of z, real and imaginary part, cell: z = 2 d, and t from
        -1 to 1 within the plane.
    w_half : float
        Largest |delta|, wavelengths.
    error : float
        What the polynomials add to the relative error of a source anywhere in the image.
    """

    terms: NDArray[np.float64]
    w_half: float
    error: float

    @property
    def n_plane(self) -> int:
        return int(self.terms.shape[1])


def make_tables(
    taper: NDArray[np.float64], split: Split, padding: float, w_half: float, wanted: float
) -> KernelTables:
    """Polynomials of as few terms as keep the error below what is wanted."""
    n_plane, n_w = _planes(2.0 * math.pi * w_half * split.largest, 0.5 * wanted)
    axes = split.x, split.y
    for n_d in range(3, _MOST_TERMS + 1):
        terms = np.stack([_fitted(taper, c, w_half, n_plane, n_w, n_d) for c in axes])
        error = max(_error(taper, c, padding, w_half, each) for c, each in zip(axes, terms, strict=True))
        if error <= wanted:
            break
    return KernelTables(terms, w_half, error)


def _planes(phase: float, wanted: float) -> tuple[int, int]:
    """Planes, and terms in delta, for phases of -phase ... phase rad, by the remainder at Chebyshev nodes."""
    for n_w in range(1, _MOST_W_TERMS + 1):
        within = (wanted * 2.0 ** (n_w - 1) * math.factorial(n_w)) ** (1.0 / n_w)
        n_plane = max(1, math.ceil(phase / within))
        if n_plane <= _FEW_PLANES:
            break
    return n_plane, n_w


def _nodes(n: int) -> NDArray[np.float64]:
    return np.cos(np.pi * (np.arange(n) + 0.5) / n)


def _powers(n: int) -> NDArray[np.float64]:
    """Coefficients of powers from values at n Chebyshev nodes, (n, n)."""
    series = np.linalg.inv(chebyshev.chebvander(_nodes(n), n - 1))
    return np.stack([np.pad(found := chebyshev.cheb2poly(each), (0, n - found.size)) for each in series.T]).T


def _fitted(
    taper: NDArray[np.float64], c: NDArray[np.float64], w_half: float, n_plane: int, n_w: int, n_d: int
) -> NDArray[np.float64]:
    """Terms (n_plane, n_w, n_d, 2, S) of one axis."""
    width = 2.0 * w_half / n_plane
    delta = -w_half + width * (np.arange(n_plane)[:, None] + 0.5 + 0.5 * _nodes(n_w))
    values = kernels(taper, c, 0.5 * _nodes(n_d), delta.ravel()).reshape(n_d, n_plane, n_w, -1)
    found = np.einsum("ad,bw,dpwj->pbaj", _powers(n_d), _powers(n_w), values)
    return np.stack([found.real, found.imag], axis=3)


def _error(
    taper: NDArray[np.float64], c: NDArray[np.float64], padding: float, w_half: float,
    terms: NDArray[np.float64],
) -> float:  # fmt: skip
    """Largest error of a source in the image, one axis, in the first, the middle and the last plane."""
    n_plane, n_w, n_d, _, size = terms.shape
    z, t = np.linspace(-1.0, 1.0, 9), np.linspace(-1.0, 1.0, 5)
    plane = np.unique([0, n_plane // 2, n_plane - 1])
    delta = -w_half + 2.0 * w_half / n_plane * (plane[:, None] + 0.5 + 0.5 * t)
    expected = kernels(taper, c, 0.5 * z, delta.ravel()).reshape(z.size, plane.size, t.size, size)
    numbers = terms[plane, ..., 0, :] + 1j * terms[plane, ..., 1, :]
    found = np.einsum(
        "pbaj,za,tb->zptj", numbers, np.vander(z, n_d, increasing=True), np.vander(t, n_w, increasing=True)
    )
    x = 0.5 / padding * np.sin(0.5 * np.pi * np.linspace(-1.0, 1.0, 17))
    waves = np.exp(2j * np.pi * np.outer(np.arange(size) - size // 2, x)) / profile(taper, x)
    return float(np.abs((found - expected) @ waves).max())
