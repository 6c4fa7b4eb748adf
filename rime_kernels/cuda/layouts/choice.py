"""Which layout the rows get for a variant of the kernels: tiles for tensor cores or for threads, or none."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Sources
from rime_kernels.cuda import jones
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.kernels.tiles.tensor_cores import N_COLUMN, N_ROW
from rime_kernels.cuda.launch_shapes.choice import Size, kernel_kind, row_shape, tile_shape
from rime_kernels.cuda.launch_shapes.model import grown
from rime_kernels.cuda.launch_shapes.tensor_core_shapes import (
    LEAST_TENSOR_CORE_FILL,
    fitted_tensor_cores,
    full_enough,
    most_tensor_core_splits,
    tensor_core_shape,
    tensor_cores_faster,
)
from rime_kernels.cuda.layouts.launch import Layout, Runs, Tiles
from rime_kernels.cuda.layouts.tile_table import Bundle, TileTable, tile_table
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants, Variant

# Tiles that rows fill by less than this lose to rows one by one.
LEAST_FILL = 0.15
_ALONE = Bundle()


class Layouts:
    """The layouts of some rows, by variant of the kernels; each is settled by the first call that needs it.

    Parameters
    ----------
    fixed : Constants
        In the order of time.
    table : RowTable
    may_use_units : bool
        Whether tensor cores may sum point sources.
    even : bool
        Whether channels that are spaced evenly stay so.
    """

    def __init__(
        self, fixed: Constants, table: RowTable, *, may_use_tensor_cores: bool = True, even: bool = True
    ) -> None:
        self._fixed, self._table = fixed, table
        self._may_use_tensor_cores, self._even = may_use_tensor_cores, even
        self._two_stokes = two_of_four(fixed.matrix)
        # With whether there are Gaussians, and whether units sum.
        self._known: dict[tuple[Variant, bool, bool], Layout] = {}
        self._of_tensor_cores: dict[Variant, Tiles | None] = {}

    def of(self, variant: Variant, sources: Sources, *, for_adjoint: bool) -> Layout:
        """The layout for calls with such sources."""
        n_shape, summed = sources.n_shape, self._summed(variant)
        n_point = sources.n_source - n_shape
        n_done = sources.n_source * sources.n_batch
        if self._may_use_tensor_cores and tensor_cores_faster(
            summed, n_point, n_shape, for_adjoint=for_adjoint
        ):
            tiles = self._tensor_core_tiles(variant)
            if tiles is not None and full_enough(summed, n_point, tiles.tiles.fill, for_adjoint=for_adjoint):
                may = tiles.has_adjoint_kernel or not for_adjoint
                if n_shape:
                    beside = not for_adjoint or self.beside(tiles, variant, n_done) is not None
                    may = may and tiles.mixes and beside
                if may:
                    return tiles
        return self._threads_of(variant, n_shape > 0, n_done)

    def _summed(self, variant: Variant) -> Variant:
        """The variant of tensor cores, which sum no more than is observed."""
        if variant.polarised and not variant.jones:
            return dataclasses.replace(variant, stokes=self._two_stokes)
        return variant

    def _tensor_core_tiles(self, variant: Variant) -> Tiles | None:
        if variant not in self._of_tensor_cores:
            if variant.log:
                plain = self._tensor_core_tiles(dataclasses.replace(variant, log=False))
                self._of_tensor_cores[variant] = plain and plain.of(variant)
            else:
                self._of_tensor_cores[variant] = self._in_tensor_cores(self._summed(variant))
        return self._of_tensor_cores[variant]

    def beside(self, layout: Layout, variant: Variant, n_done: int) -> Tiles | None:
        """The tiles in which Gaussians accumulate where that layout is of tensor cores, or None.

        `n_done` are all sources of a call.
        """
        if not isinstance(layout, Tiles) or not layout.shape.operand_units:
            return None
        found = self._threads_of(dataclasses.replace(variant, log=False, given=False), True, n_done)
        return found if isinstance(found, Tiles) else None

    def _threads_of(self, variant: Variant, has_gaussian: bool, n_done: int) -> Layout:
        key = variant, has_gaussian, False
        if key not in self._known and variant.log:
            plain = self._threads_of(dataclasses.replace(variant, log=False), has_gaussian, n_done)
            self._known[key] = plain.of(variant)
        if key not in self._known:
            rows = self._fixed
            n_antenna = np.union1d(rows.antenna1, rows.antenna2).size
            work = float(rows.uvw.shape[0]) * rows.chan_freq.size * n_done
            self._known[key] = self._by_threads(variant, has_gaussian, Size(n_antenna, work))
        return self._known[key]

    def alike(self, layout: Layout, variant: Variant, *, has_gaussian: bool) -> Layout:
        """The layout of another variant that is cut like this one."""
        key = variant, has_gaussian, isinstance(layout, Tiles) and bool(layout.shape.operand_units)
        if key not in self._known:
            self._known[key] = layout.of(variant)
        return self._known[key]

    def _in_tensor_cores(self, variant: Variant) -> Tiles | None:
        """Tiles for tensor cores, in bundles of a warp; None where others are faster."""
        shape = tensor_core_shape(variant)
        n_tile, bundle = shape.n_own * shape.n_thread, _bundle_of_warp(shape)
        tiles = self._tiles(shape, n_tile, LEAST_TENSOR_CORE_FILL, bundle, most_tensor_core_splits(variant))
        if tiles is None:
            return None
        fitted = fitted_tensor_cores(shape, tiles.n_tile, tiles.n_slot)
        return Tiles(self._fixed, self._table, tiles, variant, fitted)

    def _by_threads(self, variant: Variant, has_gaussian: bool, size: Size) -> Layout:
        if variant.factored:
            shape = tile_shape(variant, has_gaussian, size)
            if variant.jones_beam:
                shape = jones.tile_shape(variant.single, has_gaussian, size.n_antenna)
            tiles = self._tiles(shape, shape.n_thread, LEAST_FILL)
            if tiles is not None:
                if 2 * tiles.n_slot > shape.n_slot and not variant.jones_beam:
                    shape = grown(kernel_kind("tiles", variant, has_gaussian, size), shape, tiles.n_slot)
                return Tiles(self._fixed, self._table, tiles, variant, shape)
        rows, n_least = row_shape(variant, has_gaussian, size), 1
        if variant.jones_beam:
            rows, n_least = jones.row_shape(), jones.least_rows(self._fixed.time_index)
        if not self._even:
            rows = dataclasses.replace(rows, run=1)
        return Runs(self._fixed, variant, rows, n_least)

    def _tiles(
        self, shape: TileShape, max_tile: int, least_fill: float, bundle: Bundle = _ALONE,
        most_splits: int | None = None,
    ) -> TileTable | None:  # fmt: skip
        rows = self._fixed
        return tile_table(
            rows.antenna1, rows.antenna2, rows.time_index,
            shape.side, max_tile, shape.n_slot, least_fill, bundle, most_splits,
        )  # fmt: skip


def two_of_four(matrix: NDArray[np.complexfloating]) -> tuple[int, int] | None:
    """The two Stokes parameters that correlations have in them, of (n_corr, 4); None where there are more."""
    found = np.flatnonzero(np.any(matrix != 0, axis=0)).tolist()
    return (found[0], found[1]) if len(found) == 2 else None


def _bundle_of_warp(shape: TileShape) -> Bundle:
    """The tiles that the threads of a warp have where tensor cores sum."""
    width = N_COLUMN // shape.side
    return Bundle(N_ROW // shape.side, shape.n_own * width, width)
