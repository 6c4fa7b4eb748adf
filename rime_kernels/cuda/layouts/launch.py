"""How the rows are laid out for each of the two CUDA kernels, and how a slab of them is launched."""

from __future__ import annotations

import copy
import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, DeviceKernel, Record, Stream
from rime_kernels.cuda.kernels.arguments import DataColumns, DeviceSky, Results, typed
from rime_kernels.cuda.kernels.jones.rows import make_row_sums as make_jones_row_sums
from rime_kernels.cuda.kernels.jones.tiles import make_tile_sums as make_jones_tile_sums
from rime_kernels.cuda.kernels.rows import kernel as row_kernel
from rime_kernels.cuda.kernels.rows.parts import RowKernel, RowRecords, RowShape, RowTables, RowWork
from rime_kernels.cuda.kernels.tiles import kernel as tile_kernel
from rime_kernels.cuda.kernels.tiles import parts as tile_parts
from rime_kernels.cuda.kernels.tiles import tensor_cores
from rime_kernels.cuda.kernels.tiles.parts import TileKernel, TileRecords, TileShape, TileTables, TileWork
from rime_kernels.cuda.kernels.tiles.tensor_core_adjoint import ResidualInput
from rime_kernels.cuda.launch_shapes.tensor_core_shapes import has_adjoint_kernel, mixed_shape
from rime_kernels.cuda.layouts.tile_table import TileTable
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants, Inputs, Variant
from rime_kernels.physics.phase import SPEED_OF_LIGHT

# Channels may stray this far from even spacing, relative to the frequency: some roundings.
_EVEN = 4 * float(np.finfo(np.float64).eps)
# Kernels count the items of a launch in 32 bits.
MAX_ITEM = 2**31 - 2**16


class Slab(NamedTuple):
    """Some rows, as places in the order of time, and their time slots.

    `unit` counts what a layout cuts by: time slots or rows.
    """

    unit: slice
    place: slice
    time: slice


class Arrays(NamedTuple):
    """What a launch reads and writes besides the constants of the layout."""

    inputs: Inputs
    n_gaussian: int
    bright: DeviceArray
    n_bright_time: int
    columns: DataColumns
    vis_out: DeviceArray
    sum_out: DeviceArray
    jones: DeviceArray
    jones_shape: tuple[int, int, int]  # time slots, antennas and blocks of channels
    n_profile: int = 0  # the last of the n_gaussian
    beams: Record = None  # `voltages.CudaBeams` of a `JonesBeam`

    @property
    def sky(self) -> DeviceSky:
        """The sources, as kernels read them."""
        of = self.inputs
        return DeviceSky(
            self.n_gaussian, self.n_bright_time, of.direction, of.projection, of.beam_scale, of.pointing,
            of.template, self.bright, self.n_profile, of.profile, of.profile_kind, self.jones,
            *self.jones_shape, of.first_varied, of.stop_varied,
        )  # fmt: skip

    @property
    def results(self) -> Results:
        """Where kernels leave what they find."""
        return Results(self.vis_out, self.sum_out)


class Share(NamedTuple):
    """How blocks share the tiles of an item out: see `TileWork`."""

    n_item: int
    n_part: int
    n_lanes: int


def no_records(variant: Variant) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    """What a kernel without an adjoint writes instead of records: nothing."""
    no_pair = device.empty((1, 1), variant.real)
    return device.empty((1,), variant.real), device.empty((1,), np.float64), no_pair


class Tiles:
    """Tiles of antennas for the factored form; cut by time slots.

    Attributes
    ----------
    n_unit, unit_step : int
        Units in all; slabs are multiples of `unit_step`.
    n_chan : int
        Channels that the kernel wants brightness for.
    n_sum : int
        Partial sums of each chi2.
    arrangement : object
        The same one where data are laid out alike.
    place : int32, on the device
        See `TileTable`.
    coordinates : float64, on the device, m
        Those that phases are made of: (n_time, n_antenna, 3), of `Runs` (n_row, 3).
    """

    source_first = False
    unit_step = 1

    def __init__(
        self, fixed: Constants, table: RowTable, tiles: TileTable, variant: Variant, shape: TileShape
    ) -> None:
        self.shape, self.variant, self.n_template = shape, variant, len(fixed.template)
        # The Stokes parameters that are summed come first.
        order = np.argsort([k not in (variant.stokes or range(4)) for k in range(4)], kind="stable")
        self.matrix, self.tiles = tuple(fixed.matrix[:, order].ravel().tolist()), tiles
        fitting = min(shape.n_thread // tiles.n_tile, shape.n_slot // tiles.n_slot, shape.n_item)
        self.n_item = max(1, fitting)
        # Asked of the device that the layout is for: another one of the process may be older.
        in_double = bool(shape.operand_units) and not variant.single
        self._mixed = mixed_shape(variant, shape) if shape.operand_units else None
        self._all_rows = in_double and tensor_cores.multiplies_rows_in_double()
        self.n_unit, self.n_chan = fixed.antenna_uvw.shape[0], fixed.chan_freq.size
        self._layer_start = np.searchsorted(tiles.layer_time, np.arange(self.n_unit + 1))
        self._place_start = table.slot_start
        self._per_layer = self.n_chan * tiles.n_split * shape.side**2 * tiles.n_tile * len(fixed.matrix)
        self.n_sum = tiles.n_layer * self.n_chan * tiles.n_split
        no_table = device.empty((1, 1), np.int32)
        self._no_records = TileRecords(no_table, no_table, *no_records(variant), *self.no_rest())
        self.place, layer_time, antenna, group = (device.upload(value) for value in tiles[:4])
        self._freq = device.upload(fixed.chan_freq)
        self.coordinates = device.upload(fixed.antenna_uvw)
        tables = TileTables(self.place, layer_time, antenna, group, self.coordinates, self._freq)
        self._tables = typed(tables)
        # How far the antennas' coordinates reach, at any time and channel.
        farthest = np.linalg.norm(fixed.antenna_uvw, axis=2).max(initial=0.0)
        self._reach = float(farthest * fixed.chan_freq.max()) / SPEED_OF_LIGHT
        self.arrangement = object()

    def of(self, variant: Variant) -> Tiles:
        """This layout for another variant that is cut alike."""
        other = copy.copy(self)
        other.variant = dataclasses.replace(variant, stokes=self.variant.stokes)
        return other

    @property
    def chan_freq(self) -> DeviceArray:
        """On the device."""
        return self._freq

    def slab(self, first: int, stop: int) -> Slab:
        """The slab of these time slots."""
        place = slice(int(self._place_start[first]), int(self._place_start[stop]))
        return Slab(slice(first, stop), place, slice(first, stop))

    def n_datum(self, slab: Slab) -> int:
        """Data of the slab as the chi2 reads them, gaps between rows counted."""
        first, stop = self.layers(slab)
        return (stop - first) * self._per_layer

    def arrange(
        self, slab: Slab, values: DeviceArray, out: DeviceArray, stream: Stream, *, turned: float = 1.0
    ) -> None:
        """Lay values of the slab's rows out as the chi2 reads them, times `turned` where antennas swap."""
        device.launch_each(
            tile_parts.make_arrange(), out.size, stream, self.layers(slab)[0], slab.place.start, self.n_chan,
            values.shape[2], turned, self.place, values, out,
        )  # fmt: skip

    @staticmethod
    def no_rest() -> tuple[DeviceArray, int]:
        """What a kernel is given as the last members of `TileRecords` that makes its residuals itself."""
        return device.empty((1, 1, 1), np.int32), 0

    def kernel(self, is_chi2: bool, *, has_gaussian: bool = False, leaves_rest: bool = False) -> TileKernel:
        """What sums the visibilities is compiled for."""
        n_template = self.n_template if is_chi2 else 0
        shape = self.shape
        if shape.operand_units and has_gaussian:
            assert self._mixed is not None, "`mixes` says so"
            shape = self._mixed
        return TileKernel(
            self.variant, is_chi2, self.matrix, has_gaussian, n_template, shape,
            all_rows=self._all_rows, leaves_rest=leaves_rest,
        )  # fmt: skip

    def launch(self, slab: Slab, is_chi2: bool, arrays: Arrays, stream: Stream) -> None:
        """Sum a slab's visibilities over the sources."""
        key = self.kernel(is_chi2, has_gaussian=arrays.n_gaussian > 0)
        self.launch_kernel(key, slab, arrays, Share(self.n_item, 1, 1), self._no_records, stream)

    def launch_kernel(
        self, key: TileKernel, slab: Slab, arrays: Arrays, share: Share, records: TileRecords, stream: Stream
    ) -> None:
        """Launch a kernel that leaves what its adjoint accumulates in `records`."""
        work, n_block = self._work(slab, arrays, share)
        make = make_jones_tile_sums if key.variant.jones_beam else tile_kernel.make_tile_sums
        make(key)[n_block, key.shape.n_thread, stream](
            work, self._tables, typed(arrays.sky), typed(arrays.columns), typed(arrays.results),
            arrays.beams if key.variant.jones_beam else typed(records),
        )  # fmt: skip

    def launch_adjoint(
        self, kernel: DeviceKernel, n_thread: int, slab: Slab, arrays: Arrays, share: Share,
        rest: ResidualInput, stream: Stream,
    ) -> None:  # fmt: skip
        """Launch a kernel in which sources accumulate from residuals."""
        work, n_block = self._work(slab, arrays, share)
        kernel[n_block, n_thread, stream](work, self._tables, typed(arrays.sky), typed(rest))

    def _work(self, slab: Slab, arrays: Arrays, share: Share) -> tuple[Record, int]:
        """The slab in numbers, and the blocks that it takes."""
        first, stop = self.layers(slab)
        n_total, n_batch = (stop - first) * self.n_chan, arrays.inputs.direction.shape[0]
        work = TileWork(
            share.n_item, self.tiles.n_used, n_total, n_batch, first, slab.place.start, slab.time.start,
            share.n_part, share.n_lanes, self._reach,
        )  # fmt: skip
        n_block = -(-n_total // share.n_item) * n_batch * share.n_part * self.tiles.n_split
        return typed(work), n_block

    @property
    def mixes(self) -> bool:
        """Whether the kernel of tensor cores may add Gaussians."""
        return self._mixed is not None

    @property
    def has_adjoint_kernel(self) -> bool:
        """Whether tensor cores, which sum the sources, have an adjoint for these tiles."""
        return has_adjoint_kernel(self.tiles.n_split, self.shape.n_slot)

    @property
    def unit_time(self) -> NDArray[np.int32]:
        """Time slot of each layer."""
        return self.tiles.layer_time

    @property
    def max_batch(self) -> int:
        """The most entries of the batch in a launch."""
        return max(1, MAX_ITEM // self.n_sum)

    def layers(self, slab: Slab) -> tuple[int, int]:
        return int(self._layer_start[slab.time.start]), int(self._layer_start[slab.time.stop])

    def __str__(self) -> str:
        side, threads = self.shape.side, self.shape.n_thread
        if self.shape.operand_units:
            return f"points in tensor cores, {threads} threads and {self.n_item} items a block"
        return f"tiles of {side} x {side} antennas, {threads} threads and {self.n_item} items a block"


class Runs:
    """Rows with runs of channels, for any form; cut by rows. Attributes as those of `Tiles`."""

    source_first = True
    max_batch = device.MAX_GRID_Y

    def __init__(self, fixed: Constants, variant: Variant, shape: RowShape, n_least: int = 1) -> None:
        """Slabs are multiples of at least `n_least` rows, and of the rows of a block."""
        self.variant, self.matrix = variant, tuple(fixed.matrix.ravel().tolist())
        self.n_real_chan, self.n_template = fixed.chan_freq.size, len(fixed.template)
        self._step = _even_step(fixed.chan_freq)
        run = min(shape.run, self.n_real_chan) if self._step is not None else 1
        self.n_unit = fixed.uvw.shape[0]
        n_row = shape.n_row
        while n_row // 2 >= max(self.n_unit, 32):
            n_row //= 2
        self.shape = RowShape(n_row, run, shape.max_register)
        self.unit_step = -(-n_least // n_row) * n_row
        self.n_run = -(-self.n_real_chan // run)
        self.n_chan = self.n_run * run
        self.time = fixed.time_index
        self.n_sum = -(-self.n_unit // n_row) * self.n_run
        rows = fixed.time_index, fixed.antenna1, fixed.antenna2, fixed.uvw, fixed.chan_freq
        tables = RowTables(*(device.upload(value) for value in rows))
        self._freq, self.coordinates, self.tables = tables.chan_freq, tables.uvw, typed(tables)
        self.antennas = np.stack([fixed.antenna1, fixed.antenna2], axis=1)
        self._no_records = RowRecords(device.empty((1,), np.int32), *no_records(variant))
        self.arrangement = object()

    def of(self, variant: Variant) -> Runs:
        """This layout for another variant that is cut alike."""
        other = copy.copy(self)
        other.variant = variant
        return other

    @property
    def chan_freq(self) -> DeviceArray:
        """On the device."""
        return self._freq

    def slab(self, first: int, stop: int) -> Slab:
        """The slab of these rows."""
        time = slice(int(self.time[first]), int(self.time[stop - 1]) + 1)
        return Slab(slice(first, stop), slice(first, stop), time)

    def n_datum(self, slab: Slab) -> int:
        """Data of the slab as the chi2 reads them, the last block filled up."""
        n_block = -(-(slab.place.stop - slab.place.start) // self.shape.n_row)
        return n_block * self.shape.n_row * self.n_real_chan * (len(self.matrix) // 4)

    def arrange(
        self, slab: Slab, values: DeviceArray, out: DeviceArray, stream: Stream, *, turned: float = 1.0
    ) -> None:
        """Lay values of the slab's rows out as the chi2 reads them; no antennas swap here."""
        kernel = row_kernel.make_arrange(self.shape.n_row)
        device.launch_each(kernel, out.size, stream, self.n_real_chan, values.shape[2], values, out)

    def launch(self, slab: Slab, is_chi2: bool, arrays: Arrays, stream: Stream) -> None:
        """Sum a slab's visibilities over the sources."""
        n_template = self.n_template if is_chi2 else 0
        key = RowKernel(self.variant, is_chi2, self.matrix, arrays.n_gaussian > 0, n_template, self.shape)
        if self.variant.jones_beam:
            self.launch_kernel(make_jones_row_sums(key), slab, arrays, stream, arrays.beams)
        else:
            self.launch_kernel(row_kernel.make_row_sums(key), slab, arrays, stream, typed(self._no_records))

    def launch_kernel(
        self, kernel: DeviceKernel, slab: Slab, arrays: Arrays, stream: Stream, *more: Record
    ) -> None:
        """Launch a kernel that is given more arguments than all such kernels have."""
        n_row = slab.place.stop - slab.place.start
        grid = -(-n_row // self.shape.n_row) * self.n_run, arrays.inputs.direction.shape[0]
        # Numbers are plain ints: `typed` knows no others.
        work = RowWork(n_row, slab.place.start, self.n_run, slab.time.start, self._step or 0.0)
        kernel[grid, self.shape.n_row, stream](
            typed(work), self.tables, typed(arrays.sky), typed(arrays.columns), typed(arrays.results), *more
        )

    def rows_of_antennas(self, n_time: int, n_antenna: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Where those of each time (or all) and antenna begin; twice the rows, 1 more for antenna2."""
        time = np.repeat(self.time if n_time > 1 else np.zeros_like(self.time), 2)
        entry = time.astype(np.int64) * n_antenna + self.antennas.ravel()
        order = np.argsort(entry, kind="stable")
        starts = np.searchsorted(entry[order], np.arange(n_time * n_antenna + 1))
        return starts.astype(np.int32), order.astype(np.int32)

    def __str__(self) -> str:
        return f"row by row, {self.shape.run} channels a thread, {self.shape.n_row} rows a block"


Layout = Tiles | Runs


def _even_step(chan_freq: NDArray[np.float64]) -> float | None:
    """Spacing of the channels; None where it is uneven or there is one channel."""
    if chan_freq.size < 2:
        return None
    step = float(chan_freq[-1] - chan_freq[0]) / (chan_freq.size - 1)
    even = chan_freq[0] + step * np.arange(chan_freq.size)
    return step if np.all(np.abs(chan_freq - even) <= _EVEN * np.abs(chan_freq)) else None
