"""The degridder and the gridder on the CPU: between the blocks of items and their visibilities.

An item is a block of cells with its visibilities. A block is copied from the grid, with real and imaginary
parts apart, so that rows of it are vectors: the lanes of a kernel are its cells along u, those beyond its
support 0. A visibility multiplies rows by the kernel along v, adds them, and then multiplies by the kernel
along u. Gridding is the adjoint; the adder (`gridding.cpu.add`) then adds blocks to the grid.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function, loop, vector_function
from rime_kernels.compile.types import Array, Compiled, NumbaType, Pointer, Scalar, Vector
from rime_kernels.cpu.brightness import workspace
from rime_kernels.cpu.simd import ahead, dot, fma, lane, load, pointer, size, spread, store, zeros
from rime_kernels.gridding.cpu.correlations import make_epilogue, read, write
from rime_kernels.gridding.plan import Plan, SortedRows
from rime_kernels.physics.phase import make_cos_sin

_cos_sin = make_cos_sin(False)


class Kernels(NamedTuple):
    """The kernels of all items.

    Attributes
    ----------
    terms : (2, n_plane, n_w, n_d, 2, n_lane)
        As in `kernel.KernelTables`, with zeros beyond the support.
    support, block : int
        S, and cells of a block along an axis.
    w_half : float
        Largest distance of w from that of the layer, wavelengths.
    middle : float
        c0 of `kernel`.
    """

    terms: NDArray[np.floating]
    support: int
    block: int
    w_half: float
    middle: float


class _Place(NamedTuple):
    """Where a visibility lies: the first cell of its kernel in the block, and what its kernels depend on."""

    x: int
    y: int
    z_u: Scalar
    z_v: Scalar
    plane: int
    t: Scalar
    cos: Scalar
    sin: Scalar


@inner_function
def _place(
    rows: SortedRows, kernels: Kernels, plan: Plan, item: int, r: int, c: int, layer_w: float,
    real: NumbaType,
) -> _Place:  # fmt: skip
    scale, n_plane = rows.scale[c], kernels.terms.shape[1]
    u, v = rows.uvw[r, 0] * scale, rows.uvw[r, 1] * scale
    # The kernel depends on the distance to the nearest cell, in -1/2 .. 1/2: its polynomials take twice that.
    near_u, near_v = np.rint(u), np.rint(v)
    delta = rows.uvw[r, 2] * scale - layer_w
    # Planes divide -w_half .. w_half evenly; t below is the place within the plane, in -1 .. 1.
    offset = 0.5 * n_plane * (delta / kernels.w_half + 1.0) if kernels.w_half > 0.0 else 0.5
    plane = min(max(math.floor(offset), 0), n_plane - 1)
    sign = 1.0 - 2.0 * plan.flip[item]
    cos, sin = _cos_sin(rows.shift[r] * scale + sign * delta * kernels.middle)
    # The block begins so many cells before the item's middle that every kernel of the item fits.
    first = kernels.block // 2 - kernels.support // 2
    return _Place(
        int(near_u) - plan.x[item] + first, int(near_v) - plan.y[item] + first, real(2.0 * (u - near_u)),
        real(2.0 * (v - near_v)), plane, real(2.0 * (offset - plane) - 1.0), real(cos), real(sin),
    )  # fmt: skip


@vector_function
def _kernel(
    terms: Pointer, n_w: int, n_d: int, z: Scalar, t: Scalar, lanes_like: Vector
) -> tuple[Vector, Vector]:
    """Real and imaginary parts of a kernel, from the terms (n_w, n_d, 2, n_lane) of its plane."""
    n, zs, ts = size(lanes_like), spread(z, lanes_like), spread(t, lanes_like)
    re = im = lanes_like
    # Horner's rule twice: the inner one in z for each power of t, the outer one in t.
    for b in range(n_w - 1, -1, -1):
        offset = 2 * n * n_d * (b + 1)
        of_re, of_im = load(terms, offset - 2 * n, lanes_like), load(terms, offset - n, lanes_like)
        for _ in range(1, n_d):
            offset -= 2 * n
            of_re = fma(of_re, zs, load(terms, offset - 2 * n, lanes_like))
            of_im = fma(of_im, zs, load(terms, offset - n, lanes_like))
        re, im = fma(re, ts, of_re), fma(im, ts, of_im)
    return re, im


@vector_function
def _fill_kernels(kernels: Kernels, place: _Place, of_v: Pointer, lanes_like: Vector) -> Vector:
    """The kernel along u; that along v is written, real parts and then imaginary parts."""
    _, n_plane, n_w, n_d, _, n = kernels.terms.shape
    each, terms = n_w * n_d * 2 * n, pointer(kernels.terms)
    re, im = _kernel(ahead(terms, (n_plane + place.plane) * each), n_w, n_d, place.z_v, place.t, lanes_like)
    store(of_v, 0, re)
    store(of_v, n, im)
    return _kernel(ahead(terms, place.plane * each), n_w, n_d, place.z_u, place.t, lanes_like)


@vector_function
def _total(a: Vector, b: Vector, four: Vector) -> Scalar:
    """sum a b."""
    parts = dot(a, b, four)
    # A fixed tree, so that results repeat to the bit whatever the width of vectors.
    return (lane(parts, 0) + lane(parts, 1)) + (lane(parts, 2) + lane(parts, 3))


@inner_function
def _sum_block(
    block: Pointer, stride: int, n_plane: int, kernels: Kernels, place: _Place, of_v: Pointer, sums: Pointer,
    lanes_like: Vector, four: Vector,
) -> None:  # fmt: skip
    """The sums over a block of one visibility, (2, n_plane)."""
    u_re, u_im = _fill_kernels(kernels, place, of_v, lanes_like)
    n, n_each = size(lanes_like), kernels.block * stride
    for p in range(n_plane):
        re = im = lanes_like
        for k in range(kernels.support):
            offset = 2 * p * n_each + (place.y + k) * stride + place.x
            g_re, g_im = load(block, offset, lanes_like), load(block, offset + n_each, lanes_like)
            c_re, c_im = spread(of_v[k], lanes_like), spread(of_v[n + k], lanes_like)
            # Rows are weighted and added first: the kernel along u is applied once a visibility, not once a
            # row.
            re, im = fma(c_re, g_re, re), fma(c_re, g_im, im)
            re, im = fma(-c_im, g_im, re), fma(c_im, g_re, im)
        sums[p] = _total(re, u_re, four) - _total(im, u_im, four)
        sums[n_plane + p] = _total(re, u_im, four) + _total(im, u_re, four)


@inner_function
def _add_to_block(
    block: Pointer, stride: int, n_plane: int, kernels: Kernels, place: _Place, of_v: Pointer,
    shares: Pointer, lanes_like: Vector,
) -> None:  # fmt: skip
    """The adjoint of `_sum_block`."""
    u_re, u_im = _fill_kernels(kernels, place, of_v, lanes_like)
    n, n_each = size(lanes_like), kernels.block * stride
    for p in range(n_plane):
        v_re, v_im = spread(shares[p], lanes_like), spread(shares[n_plane + p], lanes_like)
        # The share times the conjugate kernel along u; each row then takes it times that along v, conjugated.
        re, im = fma(v_re, u_re, v_im * u_im), fma(v_im, u_re, -(v_re * u_im))
        for k in range(kernels.support):
            offset = 2 * p * n_each + (place.y + k) * stride + place.x
            c_re, c_im = spread(of_v[k], lanes_like), spread(of_v[n + k], lanes_like)
            g_re, g_im = load(block, offset, lanes_like), load(block, offset + n_each, lanes_like)
            store(block, offset, fma(c_im, im, fma(c_re, re, g_re)))
            store(block, offset + n_each, fma(-c_im, re, fma(c_re, im, g_im)))


@inner_function
def _load_block(
    grid: Pointer, n_grid: int, x0: int, y0: int, n: int, stride: int, n_plane: int, block: Pointer
) -> None:
    """Copy the cells of a block from the periodic grid, real and imaginary parts apart."""
    for p in range(n_plane):
        for y in range(n):
            row = 2 * n_grid * (p * n_grid + (y0 + y) % n_grid)
            to = 2 * p * n * stride + y * stride
            for x in range(n):
                offset = row + 2 * ((x0 + x) % n_grid)
                block[to + x], block[to + n * stride + x] = grid[offset], grid[offset + 1]


@inner_function
def _store_block(block: Pointer, n: int, stride: int, n_plane: int, out: Pointer) -> None:
    """Write a block as complex numbers (n_plane, n, n)."""
    for p in range(n_plane):
        for y in range(n):
            offset, to = 2 * p * n * stride + y * stride, 2 * n * (p * n + y)
            for x in range(n):
                out[to + 2 * x], out[to + 2 * x + 1] = block[offset + x], block[offset + n * stride + x]


def _make_task(grids: bool) -> Compiled:
    """Function that degrids or grids items from `first` to the one before `stop`.

    From the cells of a grid to visibilities, or from these to blocks, the first one that of item `begin`.
    """

    @inner_function
    def task(
        first: int, stop: int, begin: int, vis: Array, weight: Array, has_weight: bool, plan: Plan,
        layer_w: float, rows: SortedRows, kernels: Kernels, to_corr: Array, is_direct: bool, cells: Array,
        real: NumbaType, lanes_like: Vector, four: Vector,
    ) -> None:  # fmt: skip
        n, n_plane, n_chan = kernels.block, cells.shape[1 if grids else 0], rows.scale.size
        # Rows of a block are read as whole vectors, which may reach behind the block: these cells are 0.
        stride = n + size(lanes_like)
        block, planes = workspace(2 * n_plane * n * stride, real), workspace(2 * n_plane, real)
        of_v, epilogue = workspace(2 * size(lanes_like), real), make_epilogue(to_corr, n_plane, is_direct)
        # The cells behind the rows' ends are never copied: they stay 0.
        block[:] = 0
        for item in range(first, stop):
            if grids:
                block[:] = 0
            else:
                n_grid = cells.shape[1]
                x0, y0 = plan.x[item] - n // 2 + n_grid, plan.y[item] - n // 2 + n_grid
                _load_block(pointer(cells), n_grid, x0, y0, n, stride, n_plane, pointer(block))
            sign = real(1 - 2 * plan.flip[item])
            for r in range(plan.first_row[item], plan.first_row[item] + plan.n_row[item]):
                row = np.int64(rows.order[r])
                for c in range(plan.first_chan[item], plan.first_chan[item] + plan.n_chan[item]):
                    place = _place(rows, kernels, plan, item, r, c, layer_w, real)
                    offset = epilogue.n_corr * (row * n_chan + c)
                    of_vis = ahead(pointer(vis), 2 * offset)
                    if grids:
                        read(
                            of_vis, ahead(pointer(weight), offset), has_weight, epilogue, sign, place.cos,
                            place.sin, pointer(planes),
                        )  # fmt: skip
                        _add_to_block(
                            pointer(block), stride, n_plane, kernels, place, pointer(of_v), pointer(planes),
                            lanes_like,
                        )  # fmt: skip
                    else:
                        _sum_block(
                            pointer(block), stride, n_plane, kernels, place, pointer(of_v), pointer(planes),
                            lanes_like, four,
                        )  # fmt: skip
                        write(pointer(planes), epilogue, sign, place.cos, place.sin, of_vis)
            if grids:
                there = ahead(pointer(cells), 2 * n * n * n_plane * (item - begin))
                _store_block(pointer(block), n, stride, n_plane, there)
        # Used once more: Numba takes no notice of pointers to arrays.
        block[0] = planes[0] = of_v[0] = 0

    return task


@functools.cache
def make_tasks(single: bool, n_lane: int, grids: bool) -> Callable[..., None]:
    """The loop over tasks, parts of the items of a layer: from visibilities to blocks, or a grid to them.

    `cells` are blocks (n_item, n_plane, n, 2 n) of the items from the first one on, or the layer's grid.
    """
    real, task = np.float32 if single else np.float64, _make_task(grids)

    @loop
    def of_tasks(
        tasks: Array, vis: Array, weight: Array, has_weight: bool, plan: Plan, layer_w: float,
        rows: SortedRows, kernels: Kernels, to_corr: Array, is_direct: bool, cells: Array,
    ) -> None:  # fmt: skip
        for i in prange(tasks.size - 1):
            task(
                tasks[i], tasks[i + 1], tasks[0], vis, weight, has_weight, plan, layer_w, rows, kernels,
                to_corr, is_direct, cells, real, zeros(real, n_lane), zeros(real, 4),
            )  # fmt: skip

    return of_tasks
