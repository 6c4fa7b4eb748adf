"""Image-domain gridding on the CPU: layers, batches of items, and the loops over them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels._jit import loop, source_digest
from rime_kernels.errors import InputError
from rime_kernels.idg import _fft_cpu, scalars
from rime_kernels.idg.choice import Layout
from rime_kernels.idg.grid import ImageGrid, offsets
from rime_kernels.idg.plan import Plan, SortedRows, on_grid
from rime_kernels.idg.screens import Screens
from rime_kernels.idg.taper import pixels, profile
from rime_kernels.phase import make_cos_sin

_DIGEST = source_digest("phase", "idg/scalars", "_jit")
_BATCH_BYTES = 64 << 20
_TILES = 64  # strips of the grid that threads add subgrids to

_curvature, _relative_turns = scalars.curvature, scalars.relative_turns


class Pixels(NamedTuple):
    """The pixels of every subgrid."""

    x: NDArray[np.float64]  # (S,), padded fields
    curvature: NDArray[np.float64]  # (S, S)
    taper: NDArray[np.floating]  # (S, S)


class Engine:
    """The CPU's side of `Idg`."""

    def __init__(
        self, rows: SortedRows, plan: Plan, grid: ImageGrid, layout: Layout, *, single: bool,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        self._rows, self._plan = on_grid(rows, layout.limits.field), plan
        self._grid, self._layout = grid, layout
        self._single = single
        self._real: Any = np.float32 if single else np.float64
        self._complex: Any = np.complex64 if single else np.complex128
        self._memory_limit = memory_limit
        x = pixels(layout.size)
        field = layout.limits.field
        taper = np.outer(layout.taper.values, layout.taper.values) / layout.size**2
        self._pixels = Pixels(x, self._curvatures(-x * field, x * field), taper.astype(self._real))
        at_image = profile(layout.taper.values, offsets(grid.n_pixel, 1.0) / layout.n_grid)
        self._correction = 1.0 / at_image
        image_offsets = offsets(grid.n_pixel, grid.cell)
        self._image_curvature = self._curvatures(-image_offsets, image_offsets)

    def predict(self, image: NDArray[np.float64], screens: Screens) -> NDArray[np.complexfloating]:
        """Visibilities (n_row, n_chan, n_corr) of an image (n_stokes, N, N)."""
        n_row, n_chan = self._rows.order.size, self._rows.scale.size
        vis = np.empty((n_row, n_chan, screens.to_corr.shape[0]), self._complex)
        planes = np.tensordot(screens.from_stokes, image, 1)
        planes *= np.outer(self._correction, self._correction)
        grid = np.empty((screens.n_plane, self._layout.n_grid, self._layout.n_grid), self._complex)
        split, degrid = make_split(self._single), make_degrid(self._single)
        cell, to_corr = np.arange(self._layout.size) - self._layout.size // 2, screens.to_corr
        for layer, batches in self._layers(screens):
            _fft_cpu.to_grid(planes * self._w_phase(layer, 1.0), grid)
            for first, stop in batches:
                subgrids = self._subgrids(stop - first, screens.n_plane)
                split(grid, self._plan, cell, first, subgrids)
                sums = self._subgrids(stop - first, screens.n_sum)
                subgrids = _fft_cpu.to_pixels(subgrids)
                make_apply(self._single, screens.kind)(
                    subgrids, self._plan, self._layer_w(layer), first, self._pixels, screens, sums
                )
                degrid(sums, self._plan, self._rows, first, self._pixels, to_corr, vis)
        return vis

    def grid(
        self, vis: NDArray[np.complexfloating], weight: NDArray[np.floating] | None, screens: Screens
    ) -> NDArray[np.float64]:
        """The image (n_stokes, N, N) of weighted visibilities: the adjoint of `predict`."""
        n_pixel, n_grid = self._grid.n_pixel, self._layout.n_grid
        planes = np.zeros((screens.n_plane, n_pixel, n_pixel))
        grid = np.empty((screens.n_plane, n_grid, n_grid), self._complex)
        grid_items, add = make_grid(self._single), make_add(self._single)
        weights = np.zeros((1, 1, 1), np.float64) if weight is None else weight
        for layer, batches in self._layers(screens):
            grid[...] = 0
            for first, stop in batches:
                sums = self._subgrids(stop - first, screens.n_sum)
                grid_items(
                    vis, weights, weight is not None, self._plan, self._rows, first, self._pixels,
                    screens.to_corr, sums,
                )  # fmt: skip
                subgrids = self._subgrids(stop - first, screens.n_plane)
                make_apply_adjoint(self._single, screens.kind)(
                    sums, self._plan, self._layer_w(layer), first, self._pixels, screens, subgrids
                )
                add(_fft_cpu.to_cells(subgrids), self._plan, first, grid)
            phase = self._w_phase(layer, -1.0)
            found = _fft_cpu.to_image(grid, n_pixel)
            planes += found.real * phase.real - found.imag * phase.imag
        planes *= np.outer(self._correction, self._correction)
        return np.tensordot(screens.from_stokes.T, planes, 1)

    def _layers(self, screens: Screens) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Layers, and the batches of items that memory allows."""
        plan, layout = self._plan, self._layout
        each = (screens.n_plane + screens.n_sum) * 2 * layout.size**2 * np.dtype(self._complex).itemsize
        budget = _BATCH_BYTES
        if self._memory_limit is not None:
            fixed = self.fixed_bytes(screens.n_plane)
            budget = min(budget, self._memory_limit - fixed)
            if budget < each:
                raise InputError(
                    f"a grid of {layout.n_grid} x {layout.n_grid} cells and {screens.n_plane} planes needs "
                    f"{(fixed + each) / 1e6:.0f} MB, more than the memory limit of "
                    f"{self._memory_limit / 1e6:.0f} MB"
                )
        step = max(1, budget // each)
        for layer in range(plan.layer_w.size):
            first, stop = int(plan.layer_start[layer]), int(plan.layer_start[layer + 1])
            yield layer, [(start, min(start + step, stop)) for start in range(first, stop, step)]

    def fixed_bytes(self, n_plane: int) -> int:
        """Memory for grids and images, whatever the batch."""
        image, grid = self._grid.n_pixel**2, self._layout.n_grid**2
        return int(n_plane * np.dtype(self._complex).itemsize * (2 * image + 2 * grid) + 40 * image)

    def _layer_w(self, layer: int) -> float:
        return float(self._plan.layer_w[layer])

    def _w_phase(self, layer: int, sign: float) -> NDArray[np.complexfloating]:
        """exp(2 pi i w c) of the pixels of the image."""
        turns = self._layer_w(layer) * self._image_curvature
        turns -= np.rint(turns)
        return np.exp(sign * 2j * np.pi * turns).astype(self._complex)

    def _curvatures(self, dl: NDArray[np.float64], dm: NDArray[np.float64]) -> NDArray[np.float64]:
        grid = self._grid
        return curvatures(dl, dm, grid.l0, grid.m0, grid.n0, grid.corner2())

    def _subgrids(self, n_item: int, n_plane: int) -> NDArray[Any]:
        return np.zeros((n_item, n_plane, self._layout.size, self._layout.size), self._complex)


@loop
def _fill_curvatures(
    dl: Any, dm: Any, l0: float, m0: float, n0: float, corner2: float, digest: int, out: Any
) -> None:
    for y in prange(dm.size):
        for x in range(dl.size):
            out[y, x] = _curvature(dl[x], dm[y], l0, m0, n0, corner2)


def curvatures(
    dl: NDArray[np.float64], dm: NDArray[np.float64], l0: float, m0: float, n0: float, corner2: float
) -> NDArray[np.float64]:
    """`scalars.curvature` of a lattice, (n_m, n_l)."""
    out = np.empty((dm.size, dl.size))
    _fill_curvatures(dl, dm, l0, m0, n0, corner2, _DIGEST, out)
    return out


@functools.cache
def make_split(single: bool) -> Callable[..., None]:
    """Copy the cells of each item's subgrid from the grid."""

    @loop
    def split(grid: Any, plan: Plan, cell: Any, first: int, subgrids: Any) -> None:
        n_grid, size = grid.shape[1], cell.size
        for i in prange(subgrids.shape[0]):
            x0, y0 = plan.x[first + i] - size // 2, plan.y[first + i] - size // 2
            for p in range(grid.shape[0]):
                for y in range(size):
                    for x in range(size):
                        subgrids[i, p, y, x] = grid[p, (y0 + y) % n_grid, (x0 + x) % n_grid]

    return split


@functools.cache
def make_add(single: bool) -> Callable[..., None]:
    """Add subgrids to the grid; each strip of the grid belongs to one thread, so that sums have one order."""

    @loop
    def add(subgrids: Any, plan: Plan, first: int, grid: Any) -> None:
        n_grid, size = grid.shape[1], subgrids.shape[2]
        for tile in prange(_TILES):
            low, high = tile * n_grid // _TILES, (tile + 1) * n_grid // _TILES
            for i in range(subgrids.shape[0]):
                x0, y0 = plan.x[first + i] - size // 2, plan.y[first + i] - size // 2
                for y in range(size):
                    row = (y0 + y) % n_grid
                    if low <= row < high:
                        for p in range(grid.shape[0]):
                            for x in range(size):
                                grid[p, row, (x0 + x) % n_grid] += subgrids[i, p, y, x]

    return add


@functools.cache
def make_apply(single: bool, kind: int) -> Callable[..., None]:
    """Taper, the item's w, and A-terms on the pixels of subgrids: from planes to what is summed."""
    cos_sin, digest = make_cos_sin(single), _DIGEST

    @loop
    def apply(
        subgrids: Any, plan: Plan, layer_w: float, first: int, pixels: Pixels, screens: Screens, out: Any
    ) -> None:
        _ = digest
        n_item, n_plane, size, _ = subgrids.shape
        values, feeds, n_corr = screens.values, screens.feeds, out.shape[1]
        for i in prange(n_item):
            item = first + i
            slot, p, q = plan.slot[item], plan.antenna1[item], plan.antenna2[item]
            w = plan.w[item] - layer_w
            for y in range(size):
                for x in range(size):
                    cos, sin = cos_sin(w * pixels.curvature[y, x])
                    factor = pixels.taper[y, x] * complex(cos, sin)
                    if kind == 2:
                        e = values[slot, p, y, x]
                        f = values[slot, q, y, x]
                        b = np.zeros(4, np.complex128)
                        for k in range(4):
                            for s in range(n_plane):
                                b[k] += feeds[k, s] * subgrids[i, s, y, x]
                        for c in range(n_corr):
                            k = screens.element[c]
                            row, column = k // 2, k % 2
                            if plan.flip[item]:
                                row, column = column, row
                            left0 = e[row, 0] * b[0] + e[row, 1] * b[2]
                            left1 = e[row, 0] * b[1] + e[row, 1] * b[3]
                            product = left0 * np.conj(f[column, 0]) + left1 * np.conj(f[column, 1])
                            out[i, c, y, x] = factor * product
                    else:
                        if kind == 1:
                            factor *= values[slot, p, y, x, 0, 0] * np.conj(values[slot, q, y, x, 0, 0])
                        for s in range(n_plane):
                            out[i, s, y, x] = factor * subgrids[i, s, y, x]

    return apply


@functools.cache
def make_apply_adjoint(single: bool, kind: int) -> Callable[..., None]:
    """The adjoint of `make_apply`."""
    cos_sin, digest = make_cos_sin(single), _DIGEST

    @loop
    def apply(
        sums: Any, plan: Plan, layer_w: float, first: int, pixels: Pixels, screens: Screens, out: Any
    ) -> None:
        _ = digest
        n_item, n_plane, size, _ = out.shape
        values, feeds, n_corr = screens.values, screens.feeds, sums.shape[1]
        for i in prange(n_item):
            item = first + i
            slot, p, q = plan.slot[item], plan.antenna1[item], plan.antenna2[item]
            w = plan.w[item] - layer_w
            for y in range(size):
                for x in range(size):
                    cos, sin = cos_sin(w * pixels.curvature[y, x])
                    factor = pixels.taper[y, x] * complex(cos, -sin)
                    if kind == 2:
                        e = values[slot, p, y, x]
                        f = values[slot, q, y, x]
                        b = np.zeros(4, np.complex128)
                        for c in range(n_corr):
                            k = screens.element[c]
                            row, column = k // 2, k % 2
                            if plan.flip[item]:
                                row, column = column, row
                            v = factor * sums[i, c, y, x]
                            left0, left1 = v * f[column, 0], v * f[column, 1]
                            b[0] += np.conj(e[row, 0]) * left0
                            b[2] += np.conj(e[row, 1]) * left0
                            b[1] += np.conj(e[row, 0]) * left1
                            b[3] += np.conj(e[row, 1]) * left1
                        for s in range(n_plane):
                            total = 0j
                            for k in range(4):
                                total += np.conj(feeds[k, s]) * b[k]
                            out[i, s, y, x] = total
                    else:
                        if kind == 1:
                            factor *= np.conj(values[slot, p, y, x, 0, 0]) * values[slot, q, y, x, 0, 0]
                        for s in range(n_plane):
                            out[i, s, y, x] = factor * sums[i, s, y, x]

    return apply


@functools.cache
def make_degrid(single: bool) -> Callable[..., None]:
    """Sums over the pixels of subgrids, turned into correlations."""
    cos_sin, digest = make_cos_sin(single), _DIGEST

    @loop
    def degrid(
        sums: Any, plan: Plan, rows: SortedRows, first: int, pixels: Pixels, to_corr: Any, vis: Any
    ) -> None:
        _ = digest
        n_item, n_sum, size, _ = sums.shape
        for i in prange(n_item):
            item = first + i
            v = np.zeros(n_sum, sums.dtype)
            for r in range(plan.first_row[item], plan.first_row[item] + plan.n_row[item]):
                for chan in range(plan.first_chan[item], plan.first_chan[item] + plan.n_chan[item]):
                    scale = rows.scale[chan]
                    v[:] = 0
                    for y in range(size):
                        for x in range(size):
                            cos, sin = cos_sin(
                                _relative_turns(
                                    rows.uvw[r, 0], rows.uvw[r, 1], rows.uvw[r, 2], scale, plan.x[item],
                                    plan.y[item], plan.w[item], pixels.x[x], pixels.x[y],
                                    pixels.curvature[y, x],
                                )
                            )  # fmt: skip
                            for s in range(n_sum):
                                v[s] += complex(cos, sin) * sums[i, s, y, x]
                    cos, sin = cos_sin(rows.shift[r] * scale)
                    for c in range(to_corr.shape[0]):
                        total = 0j
                        for s in range(n_sum):
                            each = np.conj(v[s]) if plan.flip[item] else v[s]
                            total += to_corr[c, s] * each
                        vis[rows.order[r], chan, c] = complex(cos, sin) * total

    return degrid


@functools.cache
def make_grid(single: bool) -> Callable[..., None]:
    """The adjoint of `make_degrid`, with weights."""
    cos_sin, digest = make_cos_sin(single), _DIGEST

    @loop
    def grid(
        vis: Any, weight: Any, has_weight: bool, plan: Plan, rows: SortedRows, first: int, pixels: Pixels,
        to_corr: Any, sums: Any,
    ) -> None:  # fmt: skip
        _ = digest
        n_item, n_sum, size, _ = sums.shape
        for i in prange(n_item):
            item = first + i
            v = np.zeros(n_sum, sums.dtype)
            for r in range(plan.first_row[item], plan.first_row[item] + plan.n_row[item]):
                for chan in range(plan.first_chan[item], plan.first_chan[item] + plan.n_chan[item]):
                    scale, row = rows.scale[chan], rows.order[r]
                    v[:] = 0
                    cos, sin = cos_sin(rows.shift[r] * scale)
                    for c in range(to_corr.shape[0]):
                        w = weight[row, chan, c] if has_weight else 1.0
                        if w > 0.0:
                            value = w * vis[row, chan, c] * complex(cos, -sin)
                            for s in range(n_sum):
                                v[s] += np.conj(to_corr[c, s]) * value
                    if plan.flip[item]:
                        for s in range(n_sum):
                            v[s] = np.conj(v[s])
                    for y in range(size):
                        for x in range(size):
                            cos, sin = cos_sin(
                                _relative_turns(
                                    rows.uvw[r, 0], rows.uvw[r, 1], rows.uvw[r, 2], scale, plan.x[item],
                                    plan.y[item], plan.w[item], pixels.x[x], pixels.x[y],
                                    pixels.curvature[y, x],
                                )
                            )  # fmt: skip
                            for s in range(n_sum):
                                sums[i, s, y, x] += complex(cos, -sin) * v[s]

    return grid
