"""What the kernel over rows is compiled for, what it is given, and what a source is to a row.

A thread has one row of the measurement set and a run of neighbouring channels.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from numba import float32, float64, int32, int64, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Module, Scalar
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.chi2_terms import n_kinds
from rime_kernels.cuda.kernels.moments import Moments, moments_of
from rime_kernels.cuda.kernels.samples import EpilogueKernel
from rime_kernels.inputs import Variant
from rime_kernels.physics import phase

# Local arrays alone: see `samples`.
cuda: Module = device.local_arrays()
_C = phase.SPEED_OF_LIGHT
_turns = phase.turns


@dataclass(frozen=True)
class RowShape:
    """How a kernel is cut: rows of a block, a thread for each, and channels of a thread (1 where uneven)."""

    n_row: int
    run: int
    max_register: int = 0


@dataclass(frozen=True)
class RowKernel:
    """All that a kernel is compiled for: the model's variant, its end, the shape of the work."""

    variant: Variant
    is_chi2: bool
    matrix: tuple[complex, ...]  # (n_corr, 4), flat
    has_gaussian: bool
    n_template: int
    shape: RowShape
    has_adjoint: bool = False  # after chi2
    n_lane: int = 32  # neighbouring threads whose sums are joined at once; for the adjoint

    @property
    def end(self) -> EpilogueKernel:
        """What its ending is compiled for: channel by channel, no row is turned round."""
        return EpilogueKernel(
            self.variant, self.matrix, self.n_template, self.has_adjoint, self.shape.run, 1, False
        )

    @property
    def has_sums(self) -> bool:
        """Whether the ending reads sums over sources: matrices need them where V - D is given, too."""
        return not self.variant.given or self.variant.jones

    @property
    def record(self) -> Moments:
        """What a source leaves in the adjoint."""
        return moments_of(self.variant, self.has_gaussian, self.shape.run)


class RowWork(NamedTuple):
    """The slab of rows that is worked out, in numbers."""

    n_row: int
    first_row: int  # the slab's first, among all rows
    n_run: int  # runs of channels
    first_time: int  # the first time whose brightness is at hand
    step_freq: float  # Hz between channels; 0 where they are uneven, or one


class RowTables(NamedTuple):
    """What stays the same from call to call, of all rows in the order of time."""

    time_index: Array  # int32 (n_row,)
    antenna1: Array  # int32 (n_row,)
    antenna2: Array  # int32 (n_row,)
    uvw: Array  # float64 (n_row, 3), m
    chan_freq: Array  # float64 (n_chan,), Hz


class RowRecords(NamedTuple):
    """Where the adjoint goes; one element each without it.

    A unit is a block of rows or, where brightness changes in time, its rows of one time.
    """

    unit_start: Array  # int32 (n_block + 1,): the first unit of each block of rows
    moments: Array  # flat (n_batch, units of the slab, n_run, n_source, `Moments.n_value`)
    by_row: Array  # float64, flat (n_batch, all rows, n_run, 4): l, m of antenna1 and of antenna2
    by_pair: Array  # (n_batch, rows of the slab times n_chan times `EpilogueKernel.n_record`)


class Place(NamedTuple):
    """Which block, rows and channels a thread works on."""

    thread: int
    b: int  # entry of the batch
    number: Scalar  # of the block in the grid: blocks of rows times runs
    block: Scalar  # block of rows, uint32
    start: int  # first channel
    local: int  # the thread's row within the slab; behind its last where there is none


class ThreadRow(NamedTuple):
    """The row of a thread."""

    row: int  # among all rows
    time: int
    u: Scalar  # s: uvw / c; times a frequency, wavelengths
    v: Scalar
    w: Scalar
    p: Scalar  # its antennas
    q: Scalar
    slot: int  # time of its pointing errors
    bright: Scalar  # where the brightness of the first source begins at its time and run, uint64


class Turning(NamedTuple):
    """A source's phase term at the first channel of a run, and how it turns from one to the next."""

    re: Scalar
    im: Scalar
    step_re: Scalar
    step_im: Scalar
    along: Scalar  # float64: coordinates as those of `baseline.AntennaTerm`, 0 for a point
    across: Scalar


@functools.cache
def make_turning(kernel: RowKernel) -> Compiled:
    """Function that gives what source s is to a row; `gaussian` is its number, negative for a point."""
    single, run, has_gaussian = kernel.variant.single, kernel.shape.run, kernel.has_gaussian
    real = float32 if single else float64
    cos_sin = scalars.make_series_cos_sin(single)
    scale_exponent = scalars.EXPONENT_SCALE * _C

    @device.inline
    def turning_of(
        b: int,
        s: int,
        gaussian: Scalar,
        row: ThreadRow,
        first_freq: Scalar,
        step_freq: Scalar,
        sky: DeviceSky,
    ) -> Turning:
        u, v, w, direction, projection = row.u, row.v, row.w, sky.direction, sky.projection
        delay = _turns(u, v, w, direction[b, s, 0], direction[b, s, 1], direction[b, s, 2])
        re, im = cos_sin(delay * first_freq)
        step_re, step_im = real(1), real(0)
        if run > 1:
            # One more sine and cosine leads through the run, however many channels it has.
            step_re, step_im = cos_sin(delay * step_freq)
        along, across = 0.0, 0.0
        if has_gaussian and gaussian >= 0:
            g, scale = gaussian, scale_exponent * first_freq
            along = scale * _turns(
                u, v, w, projection[b, g, 0, 0], projection[b, g, 0, 1], projection[b, g, 0, 2]
            )
            across = scale * _turns(
                u, v, w, projection[b, g, 1, 0], projection[b, g, 1, 1], projection[b, g, 1, 2]
            )
        return Turning(re, im, step_re, step_im, along, across)

    return turning_of


@device.inline
def turned_on(re: Scalar, im: Scalar, step_re: Scalar, step_im: Scalar) -> tuple[Scalar, Scalar]:
    """The phase term at the next channel."""
    # The compiler makes a multiply-add of each sum. Which of its two products is rounded hangs on how this is
    # written: as an expression for both parts it was the other one, and results changed in their last bits.
    turned = re * step_re - im * step_im
    im = im * step_re + re * step_im
    return turned, im


@functools.cache
def make_find_row(kernel: RowKernel) -> Compiled:
    """Function that looks a thread's row up.

    Before an adjoint, threads without a row take the last one, whose data they have with a weight of 0: they
    must be there at the barrier.
    """
    has_adjoint, run = kernel.has_adjoint, kernel.shape.run
    per_source = 2 if kernel.variant.n_stokes == 4 else 1

    @device.inline
    def find_row(place: Place, work: RowWork, tables: RowTables, sky: DeviceSky) -> ThreadRow:
        local, uvw = place.local, tables.uvw
        row = work.first_row + (min(local, int32(work.n_row - 1)) if has_adjoint else local)
        time = tables.time_index[row]
        at_time = min(time - work.first_time, sky.n_bright_time - 1)
        n_source = int32(sky.direction.shape[1])
        first = (int64(place.b) * sky.n_bright_time + at_time) * n_source * int64(work.n_run) * run
        return ThreadRow(
            row, time, uvw[row, 0] / _C, uvw[row, 1] / _C, uvw[row, 2] / _C,
            tables.antenna1[row], tables.antenna2[row], min(time, sky.pointing.shape[1] - 1),
            uint64((first + place.start) * per_source),
        )  # fmt: skip

    return find_row


@functools.cache
def make_next_source(kernel: RowKernel) -> Compiled:
    """Function that gives where the brightness of the next source begins, at the same time and run."""
    per_run = kernel.shape.run * (2 if kernel.variant.n_stokes == 4 else 1)

    @device.inline
    def next_source(offset: int, work: RowWork) -> Scalar:
        return offset + uint64(work.n_run) * uint64(per_run)

    return next_source


class RowRegisters(NamedTuple):
    """A thread's own memory, which ends up in registers."""

    sums: Array  # (2 n_stokes run,), working precision: as in `baseline`
    exponent: Array  # (run,), working precision
    of_kind: Array  # float64 (`chi2_terms.n_kinds`,)


def make_row_registers(kernel: RowKernel) -> Compiled:
    """Function that declares a thread's arrays but for its epilogue."""
    real, run = float32 if kernel.variant.single else float64, kernel.shape.run
    n_sum = 2 * kernel.variant.n_stokes * run
    n_kind = n_kinds(kernel.n_template, kernel.variant.log, kernel.has_adjoint)

    @device.inline
    def own_arrays() -> RowRegisters:
        return RowRegisters(
            cuda.local.array(n_sum, real), cuda.local.array(run, real), cuda.local.array(n_kind, float64)
        )

    return own_arrays
