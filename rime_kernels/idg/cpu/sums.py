"""Sums over the pixels of a subgrid, and over the visibilities of an item: where the CPU's time is spent.

Lanes are pixels. A vector of n pixels of k planes lies as k n real parts, then k n imaginary parts, so that
all planes are one wide vector; LLVM cuts it to registers. From channel to channel a phase goes on by a
complex product where channels are evenly spaced, and is computed anew at the beginning of every such run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import Pointer, Vector
from rime_kernels.cpu.simd import ahead, constant, fma, load, nearest, repeat, size, store
from rime_kernels.cpu.vector_math import cos_sin_turns
from rime_kernels.idg.cpu.shuffles import spread_each, store_sums

# Channels of a run: each product adds a rounding error.
MAX_RUN = 32
# Cells are split into a multiple of this, whose products with pixel numbers are exact, and a small rest.
_COARSE = 0.125


class Coordinates(NamedTuple):
    """Pixels in the order of the vectors: the first axis is that of l. All in working precision.

    Attributes
    ----------
    x, y : (S^2,)
        Pixel numbers from -S/2.
    curvature : (S^2,)
    """

    x: NDArray[np.floating]
    y: NDArray[np.floating]
    curvature: NDArray[np.floating]


def run_ends(scale: NDArray[np.float64], single: bool) -> NDArray[np.int64]:
    """Where the run of evenly spaced channels that begins at each channel ends (exclusive)."""
    tolerance = 1e-10 if single else 1e-14
    ends = np.arange(1, scale.size + 1)
    for first in range(scale.size - 1):
        line = scale[first] + np.arange(min(MAX_RUN, scale.size - first)) * (scale[first + 1] - scale[first])
        on_line = np.abs(scale[first : first + line.size] - line) <= tolerance * np.abs(line)
        ends[first] += line.size - 1 if on_line.all() else max(1, int(on_line.argmin()) - 1)
    return ends


@vector_function
def _phasor(
    u: float, v: float, w: float, pixels: Coordinates, offset: int, n: int, lanes_like: Vector
) -> Vector:
    """cos and sin of 2 pi (u x + v y + w c), u and v in cells, of the pixels from `offset` on."""
    x, y = load(pixels.x, offset, lanes_like), load(pixels.y, offset, lanes_like)
    u_coarse, v_coarse = _COARSE * np.rint(u / _COARSE), _COARSE * np.rint(v / _COARSE)
    period, inverse = constant(float(n), lanes_like), constant(1.0 / n, lanes_like)
    # Whole turns are subtracted while all numbers are exact.
    cells = fma(constant(u_coarse, lanes_like), x, constant(v_coarse, lanes_like) * y)
    cells = fma(-nearest(cells * inverse), period, cells)
    cells = fma(constant(u - u_coarse, lanes_like), x, fma(constant(v - v_coarse, lanes_like), y, cells))
    turns = fma(constant(w, lanes_like), load(pixels.curvature, offset, lanes_like), cells * inverse)
    return cos_sin_turns(turns, lanes_like)


@inner_function
def fill_phasors(
    u: float, v: float, w: float, du: float, dv: float, dw: float, has_step: bool, pixels: Coordinates,
    n: int, out: Pointer, lanes_like: Vector,
) -> None:  # fmt: skip
    """Phases of a visibility, and of the step to the next channel: (S^2/n_lane, 4, n_lane) re, im, re, im."""
    lanes = size(lanes_like)
    for offset in range(0, n * n, lanes):
        cos, sin = _phasor(u, v, w, pixels, offset, n, lanes_like)
        store(out, 4 * offset, cos)
        store(out, 4 * offset + lanes, sin)
        if has_step:
            cos, sin = _phasor(du, dv, dw, pixels, offset, n, lanes_like)
            store(out, 4 * offset + 2 * lanes, cos)
            store(out, 4 * offset + 3 * lanes, sin)


@vector_function
def _step(k_re: Vector, k_im: Vector, s_re: Vector, s_im: Vector) -> tuple[Vector, Vector]:
    """The complex product k s."""
    return fma(k_re, s_re, -(k_im * s_im)), fma(k_re, s_im, k_im * s_re)


@vector_function
def _add(
    re: Vector, im: Vector, k_re: Vector, k_im: Vector, p_re: Vector, p_im: Vector
) -> tuple[Vector, Vector]:
    """(re, im) + k p, with k for every plane."""
    k_re, k_im = repeat(k_re, re), repeat(k_im, re)
    return fma(-k_im, p_im, fma(k_re, p_re, re)), fma(k_im, p_re, fma(k_re, p_im, im))


@inner_function
def sum_pixels(
    n_vector: int,
    phasors: Pointer,
    planes: Pointer,
    more: bool,
    out: Pointer,
    offset: int,
    lanes_like: Vector,
    wide: Vector,
) -> None:
    """Sums over all pixels for two channels: (2, 2, n_plane) numbers from out[at] on.

    With `more`, phasors are left at the channel after.
    """
    n, n_all = size(lanes_like), size(wide)
    re, im, re2, im2 = constant(0.0, wide), constant(0.0, wide), constant(0.0, wide), constant(0.0, wide)
    for i in range(n_vector):
        k = ahead(phasors, 4 * n * i)
        k_re, k_im = load(k, 0, lanes_like), load(k, n, lanes_like)
        s_re, s_im = load(k, 2 * n, lanes_like), load(k, 3 * n, lanes_like)
        p_re, p_im = load(planes, 2 * n_all * i, wide), load(planes, 2 * n_all * i + n_all, wide)
        re, im = _add(re, im, k_re, k_im, p_re, p_im)
        k_re, k_im = _step(k_re, k_im, s_re, s_im)
        re2, im2 = _add(re2, im2, k_re, k_im, p_re, p_im)
        if more:
            k_re, k_im = _step(k_re, k_im, s_re, s_im)
            store(k, 0, k_re)
            store(k, n, k_im)
    store_sums(out, offset, (re, im, re2, im2), lanes_like)


@inner_function
def sum_pixels_of_4(
    n_vector: int,
    phasors: Pointer,
    planes: Pointer,
    more: bool,
    out: Pointer,
    offset: int,
    lanes_like: Vector,
    wide: Vector,
) -> None:
    """Sum pixels like `sum_pixels`, for four channels: with one plane or two, registers hold their sums."""
    n, n_all = size(lanes_like), size(wide)
    re, im, re2, im2 = constant(0.0, wide), constant(0.0, wide), constant(0.0, wide), constant(0.0, wide)
    re3, im3, re4, im4 = re, im, re2, im2
    for i in range(n_vector):
        k = ahead(phasors, 4 * n * i)
        k_re, k_im = load(k, 0, lanes_like), load(k, n, lanes_like)
        s_re, s_im = load(k, 2 * n, lanes_like), load(k, 3 * n, lanes_like)
        p_re, p_im = load(planes, 2 * n_all * i, wide), load(planes, 2 * n_all * i + n_all, wide)
        # Two channels on by the square of the step: short chains of products.
        d_re, d_im = _step(s_re, s_im, s_re, s_im)
        k2_re, k2_im = _step(k_re, k_im, s_re, s_im)
        k3_re, k3_im = _step(k_re, k_im, d_re, d_im)
        k4_re, k4_im = _step(k2_re, k2_im, d_re, d_im)
        re, im = _add(re, im, k_re, k_im, p_re, p_im)
        re2, im2 = _add(re2, im2, k2_re, k2_im, p_re, p_im)
        re3, im3 = _add(re3, im3, k3_re, k3_im, p_re, p_im)
        re4, im4 = _add(re4, im4, k4_re, k4_im, p_re, p_im)
        if more:
            k_re, k_im = _step(k3_re, k3_im, d_re, d_im)
            store(k, 0, k_re)
            store(k, n, k_im)
    store_sums(out, offset, (re, im, re2, im2, re3, im3, re4, im4), lanes_like)


@inner_function
def add_channels(
    n_vector: int,
    phasors: Pointer,
    vis: Pointer,
    n_chan: int,
    planes: Pointer,
    lanes_like: Vector,
    wide: Vector,
) -> None:
    """Add conj(phase) vis of channels to all pixels; vis are (n_chan, 2, n_plane) numbers."""
    n, n_all = size(lanes_like), size(wide)
    n_plane = n_all // n
    for i in range(n_vector):
        k = ahead(phasors, 4 * n * i)
        k_re, k_im = load(k, 0, lanes_like), load(k, n, lanes_like)
        p = ahead(planes, 2 * n_all * i)
        re, im = load(p, 0, wide), load(p, n_all, wide)
        if n_chan > 1:
            s_re, s_im = load(k, 2 * n, lanes_like), load(k, 3 * n, lanes_like)
            # Two channels on by the square of the step: two chains of products side by side.
            d_re, d_im = _step(s_re, s_im, s_re, s_im)
            k2_re, k2_im = _step(k_re, k_im, s_re, s_im)
            for c in range(0, n_chan - 1, 2):
                v = ahead(vis, 2 * n_plane * c)
                v_re, v_im = spread_each(v, 0, lanes_like, wide), spread_each(v, n_plane, lanes_like, wide)
                re, im = _add(re, im, k_re, -k_im, v_re, v_im)
                k_re, k_im = _step(k_re, k_im, d_re, d_im)
                v = ahead(v, 2 * n_plane)
                v_re, v_im = spread_each(v, 0, lanes_like, wide), spread_each(v, n_plane, lanes_like, wide)
                re, im = _add(re, im, k2_re, -k2_im, v_re, v_im)
                k2_re, k2_im = _step(k2_re, k2_im, d_re, d_im)
        if n_chan % 2:
            v = ahead(vis, 2 * n_plane * (n_chan - 1))
            v_re, v_im = spread_each(v, 0, lanes_like, wide), spread_each(v, n_plane, lanes_like, wide)
            re, im = _add(re, im, k_re, -k_im, v_re, v_im)
        store(p, 0, re)
        store(p, n_all, im)
