"""What the kernel over tiles of antennas is compiled for, what it is given, and the memory it works in."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceKernel, Module, Scalar
from rime_kernels.cuda.kernels.baseline import Staged
from rime_kernels.cuda.kernels.chi2_terms import n_kinds
from rime_kernels.cuda.kernels.moments import Moments, moments_of
from rime_kernels.cuda.kernels.samples import EpilogueKernel
from rime_kernels.inputs import Variant
from rime_kernels.physics import beam

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# In the table of places: no row is there.
NO_ROW = 0


@dataclass(frozen=True)
class TileShape:
    """How a kernel is cut: chosen per device, never needed for a right answer.

    Attributes
    ----------
    side : int
        Antennas on each side of a tile.
    n_thread : int
        Threads of a block; `chunk` at least.
    chunk : int
        Sources whose terms lie in shared memory together.
    n_slot : int
        The most antenna terms of one source in a block; a multiple of `side`.
    n_item : int
        The most items of a block.
    max_register : int
        Registers that a thread may have; 0 leaves it to the compiler.
    units : int
        Where tensor cores sum the point sources: units of 16 bytes that a chunk has in each matrix and
        antenna (`operands`), 8 or 16; `side` is 2 then. 0 where threads sum them.
    n_own : int
        Tiles of a thread, side by side: 1, or with tensor cores 1 or 2.
    """

    side: int
    n_thread: int
    chunk: int
    n_slot: int
    n_item: int
    max_register: int = 0
    operand_units: int = 0
    n_own: int = 1


@dataclass(frozen=True)
class TileKernel:
    """All that a kernel is compiled for: the model's variant, its end, the shape of the work."""

    variant: Variant
    is_chi2: bool
    matrix: tuple[complex, ...]  # (n_corr, 4), flat
    has_gaussian: bool
    n_template: int
    shape: TileShape
    has_adjoint: bool = False  # after chi2
    n_lane: int = 32  # neighbouring threads whose sums are joined at once, of one item; for the adjoint
    all_rows: bool = False  # of tensor cores in double precision: see `tensor_cores.make_product`
    leaves_rest: bool = False  # after chi2, weighted residuals for the adjoint of another kernel: `matrices`
    rest_of: tuple[int, ...] | None = None  # in place of chi2: it finds those of these Stokes parameters

    @property
    def has_rest(self) -> bool:
        """Whether sums become weighted residuals."""
        return self.has_adjoint or self.leaves_rest

    @property
    def end(self) -> EpilogueKernel:
        """What its ending is compiled for: a row of the tile at a time, whose loads are under way together.

        One baseline before an adjoint or a logarithm: more would not stay in registers.
        """
        width = 1 if self.has_rest or self.variant.log else self.shape.side
        n_baseline = self.shape.side**2
        staged = self.variant.staged
        return EpilogueKernel(
            self.variant, self.matrix, self.n_template, self.has_rest, n_baseline, width, True, staged
        )

    @property
    def uses_tensor_cores(self) -> bool:
        """Whether tensor cores sum the points."""
        return bool(self.shape.operand_units)

    @property
    def dynamic_bytes(self) -> int:
        """Shared memory that a launch asks for: both buffers of operands."""
        return 2 * 16 * self.shape.operand_units * self.shape.n_slot * (1 + self.variant.n_stokes)

    @property
    def has_sums(self) -> bool:
        """Whether the ending reads sums over sources: matrices need them where V - D is given, too."""
        return self.rest_of is None and (not self.variant.given or self.variant.jones)

    @property
    def record(self) -> Moments:
        """What a source leaves in the adjoint."""
        return moments_of(self.variant, self.has_gaussian)

    @property
    def has_beam(self) -> bool:
        """Whether antennas have voltages of their own."""
        return self.variant.beam != beam.NO_BEAM

    @property
    def by_antenna(self) -> bool:
        """Whether slopes of a source are summed by antenna first, before they meet its coordinates.

        Coordinates of all baselines of a larger tile do not stay in registers. Profiles need them.
        """
        return self.shape.side > 3 and self.variant.profiles is None

    @property
    def has_voltage(self) -> bool:
        """Whether the adjoint accumulates by antenna."""
        return self.has_adjoint and self.has_beam

    @property
    def n_kind(self) -> int:
        """Sums that a tile ends in: chi2, and what goes with it before an adjoint."""
        return n_kinds(self.n_template, self.variant.log, self.has_rest)


class Sizes(NamedTuple):
    """Sizes of a kernel's workspace: elements of arrays, and steps in them."""

    n_baseline: int  # of a tile
    n_sum: int  # of a tile
    n_own_sum: int  # of a thread
    step: int  # between groups of antennas among the terms
    n_term: int  # of one chunk of sources; there are two, in turn
    n_high: int  # coordinates along and across Gaussians, of both chunks
    n_low: int  # their low parts
    per_source: int  # elements of the brightness of a source
    bright_step: int  # between items in the brightness
    n_bright: int  # of one chunk
    n_pointing: int
    partial_step: int  # between sources in what groups of threads have accumulated
    n_accumulated: int
    n_uvw: int  # coordinates of a tile's baselines, or of its antennas: `TileKernel.by_antenna`
    n_column: int  # sums by second antenna
    n_shown: int
    n_by_slot: int
    line: int  # data in a line of the device's memory, 128 bytes
    n_glance: int  # lines of the data of a thread's tiles
    n_operand_source: int  # sources of a chunk for tensor cores
    n_bright_word: int  # elements of the brightness of a source for them
    n_operand_bright: int  # of both chunks
    n_operand_place: int  # numbers of the directions of both chunks
    n_buffer: int  # bytes of a buffer of operands; complex elements in the simulator


def sizes_of(kernel: TileKernel) -> Sizes:
    """The sizes of its workspace."""
    shape, record, single = kernel.shape, kernel.record, kernel.variant.single
    n_baseline, n_stokes = shape.side**2, kernel.variant.n_stokes
    by_tensor_cores, n_operand_source = kernel.uses_tensor_cores, shape.operand_units * (2 if single else 1)
    n_buffer = kernel.dynamic_bytes // 2
    in_halves = single and not device.simulated()
    n_bright_word = n_stokes // 2 or 1 if in_halves else n_stokes
    if device.simulated():  # elements instead of bytes
        n_buffer //= 8 if single else 16
    # One element more than a group's terms: groups then begin in different banks.
    step = shape.chunk * shape.side + 1
    n_term = shape.n_slot // shape.side * step
    if by_tensor_cores and not kernel.has_gaussian:
        n_term = shape.n_slot if kernel.end.staged else 1  # gains lie there
    per_source = 2 if kernel.variant.polarised else 1
    bright_step = (shape.chunk + 1) * per_source
    partial_step, line = shape.n_thread // kernel.n_lane * record.most_size, 16 if single else 8
    return Sizes(
        n_baseline=n_baseline,
        n_sum=2 * n_stokes * n_baseline,
        n_own_sum=2 * n_stokes * n_baseline * shape.n_own,
        step=step,
        n_term=n_term,
        n_high=2 * n_term if kernel.has_gaussian else 1,
        n_low=2 * n_term if kernel.has_gaussian and single else 1,
        per_source=per_source,
        bright_step=bright_step,
        n_bright=shape.n_item * bright_step,
        n_pointing=shape.n_slot if kernel.has_beam else 1,
        partial_step=partial_step,
        n_accumulated=shape.chunk * partial_step if kernel.has_adjoint else 1,
        n_uvw=(6 * shape.side if kernel.by_antenna else 3 * n_baseline) if kernel.has_adjoint else 1,
        n_column=3 * shape.side if kernel.has_adjoint and kernel.by_antenna else 1,
        n_shown=2 * shape.side * shape.n_thread if kernel.has_voltage else 1,
        n_by_slot=2 * shape.n_slot if kernel.has_voltage else 1,
        line=line,
        n_glance=-(-shape.n_own * n_baseline * kernel.end.n_corr // line),
        n_operand_source=n_operand_source,
        n_bright_word=n_bright_word,
        n_operand_bright=2 * n_operand_source * n_bright_word if by_tensor_cores else 1,
        n_operand_place=6 * n_operand_source if by_tensor_cores else 1,
        n_buffer=n_buffer,
    )


class TileWork(NamedTuple):
    """The slab that is worked out, in numbers; an item is a layer of rows (`tile_table`) and a channel."""

    n_item: int  # of a block
    n_used: int  # slots of a split that hold antennas
    n_total: int  # items of the slab
    n_batch: int
    first_layer: int  # the slab's first, among all layers
    first_place: int  # the slab's first row in the order of time
    first_time: int  # the first time whose brightness is at hand
    n_part: int  # blocks among which the tiles of a split are shared out: 1 without an adjoint
    n_lanes: int  # threads of an item, a multiple of `TileKernel.n_lane`; for the adjoint
    reach: float  # wavelengths: how far any antenna is from the origin at any time and channel


class TileTables(NamedTuple):
    """What stays the same from call to call."""

    place: Array  # int32 (n_layer, n_split, side^2, n_tile): `TileTable`
    layer_time: Array  # int32 (n_layer,)
    antenna: Array  # int32 (n_split, n_slot)
    group: Array  # int32 (2, n_split, n_tile)
    antenna_uvw: Array  # float64 (n_time, n_antenna, 3), m
    chan_freq: Array  # float64 (n_chan,), Hz


class TileRecords(NamedTuple):
    """Where the adjoint goes, and what it reads besides; one element each without it.

    A copy is a split's part: n_copy = n_split * n_part.
    """

    member_start: Array  # int32 (n_copy, n_group + 1): where the tiles of each group of antennas begin
    member: Array  # int32 (n_copy, n_member): twice the tile, 1 more where the group is its second side
    moments: Array  # flat (n_batch, items of the slab, n_copy, n_source, `Moments.n_value`)
    by_antenna: Array  # float64, flat (n_batch, items of the slab, n_copy, n_slot, 2): l, m
    # (n_batch, rows of the slab times n_chan times `EpilogueKernel.n_record`); where matrices are
    # `EpilogueKernel.staged` two numbers of each datum, as the chi2 reads data. Of a kernel that
    # `leaves_rest` the residuals in Stokes parameters, (n_batch, items of the slab times 2 n_stokes side^2
    # times n_tile), as sums lie; those are what a kernel reads that has some of `rest_of`.
    by_pair: Array
    # int32 (n_split, side^2, n_tile): where among those of an item and a parameter the residual of each
    # place is; below 0 where there is none.
    rest_at: Array
    rest_step: int  # residuals of an item and a parameter, real or imaginary parts


class Slots(NamedTuple):
    """What the terms of a block's antennas are made of, (n_slot,) in shared memory; item after item."""

    u: Array  # float64, wavelengths
    v: Array
    w: Array
    term_offset: Array  # uint32: where the terms lie
    nu: Array  # float64, Hz; this and the next are there for antennas with voltages alone
    dl: Array  # float64, rad: pointing errors
    dm: Array


class Operands(NamedTuple):
    """What tensor cores are fed from, in shared memory; one element each without them."""

    address: Any  # of the operands; the array in the simulator
    bright: Array  # two chunks of the brightness, scaled: `operands.make_stage_bright`
    inverse: Array  # working precision (4,): one over the scale of four chunks
    direction: Array  # float64: l, m, n - 1 of the sources of two chunks


class TileSharedMemory(NamedTuple):
    """The shared memory of a block."""

    staged: Staged  # two chunks of sources: one is summed while the other is made
    slots: Slots
    bright_at: Array  # int64 (n_item,): where the brightness of each item begins
    partial: Array  # float64 (n_thread,)
    accumulated: Array  # what groups of threads accumulated from each source of a chunk, working precision
    shown: Array  # what tiles have of each of their antennas, working precision
    by_slot: Array  # float64 (n_slot, 2): what each antenna accumulated, l and m
    operands: Operands


class TileBlock(NamedTuple):
    """Which part of the work a block has, and which thread of it this is."""

    thread: int
    b: int  # entry of the batch
    copy: Scalar  # part of a split, of `n_copy`
    n_copy: Scalar
    split: Scalar
    first_item: int
    n_here: Scalar  # items of this block
    n_used: Scalar  # slots of each that hold antennas
    n_x: Scalar  # antenna terms of the block


class Tile(NamedTuple):
    """The tile of a thread."""

    active: Scalar  # whether it has one
    local: int  # item, of those of the block
    item: Scalar  # the same, of those of the slab
    tile: Scalar  # of those of the split
    mine: Scalar  # its number among those threads that have a tile of the item in this block, `n_mine`
    n_mine: Scalar
    first_datum: Scalar  # where the data of the item's split begin, uint64
    nu: Scalar  # Hz, where there are profiles, else 0


@functools.cache
def make_arrange() -> DeviceKernel:
    """Kernel that lays values of some rows (data, weights, templates) out as the chi2 reads them.

    They become (n_layer, n_chan, n_split, side^2, n_corr, n_tile), flat: neighbouring threads read
    neighbouring tiles; 0 where no row is, times `turned` where antenna2 is on the first side.
    """

    @device.kernel(0)
    def arrange(
        first_layer: int, first_place: int, n_chan: int, n_corr: int, turned: float, place: Array,
        values: Array, out: Array,
    ) -> None:  # fmt: skip
        n_split, n_baseline, n_tile = place.shape[1], place.shape[2], place.shape[3]
        i = cuda.grid(1)
        if i >= out.size:
            return
        tile, k = i % n_tile, i // n_tile % n_corr
        n, split = i // (n_tile * n_corr) % n_baseline, i // (n_tile * n_corr * n_baseline) % n_split
        item = i // (n_tile * n_corr * n_baseline * n_split)
        found = place[first_layer + item // n_chan, split, n, tile]
        row, c = abs(found) - 1 - first_place, item % n_chan
        if found == NO_ROW:
            out[i] = 0.0
        else:
            out[i] = values[row, c, k] if found > 0 else turned * values[row, c, k]

    return arrange
