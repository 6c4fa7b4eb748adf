"""What the adjoints of both CUDA kernels share: what a source accumulates, and how it is summed up."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from numba import float64, int64

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceKernel, Module
from rime_kernels.inputs import Variant
from rime_kernels.physics import beam

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda


@dataclass(frozen=True)
class Moments:
    """Where the sums of a source lie in its record, in working precision.

    With R, P and z as in `_adjoint.Adjoint`, and (u, v, w) in wavelengths: Re(conj(P) R_S), for each
    channel of a run and each Stokes parameter; Im(z) (u, v, w); where antennas have voltages, Re(z) times
    the derivatives of ln(E_p E_q) with respect to l, m and the beam's scale, and, of feeds that turn, minus
    what an antenna has of that with respect to its angle; where there are Gaussians, Re(z)
    (u, v, w) times the coordinate along the source, and the same across.

    Profiles have, with y as in `Adjoint`, (u, v, w) times the derivatives of Re(e) Re(y) + Im(e) Im(y) with
    respect to their coordinates in place of the last ones; then those with respect to their parameters.
    """

    n_bright: int
    has_beam: bool
    has_gaussian: bool
    has_profile: bool = False
    turned: bool = False

    @property
    def direction(self) -> int:
        return self.n_bright

    @property
    def voltage(self) -> int:
        return self.n_bright + 3

    @property
    def projection(self) -> int:
        return self.voltage + 3 * self.has_beam + self.turned

    @property
    def n_value(self) -> int:
        return self.profile + 8 * self.has_profile

    @property
    def profile(self) -> int:
        return self.projection + 6 * self.has_gaussian

    @property
    def bright_size(self) -> int:
        """The power of two that holds those of the brightness; `geometry_size` holds the others."""
        return _power_of_two(self.n_bright)

    @property
    def geometry_size(self) -> int:
        return _power_of_two(self.n_value - self.n_bright)

    def size(self, gaussian: bool) -> int:
        """The power of two that holds the sums of a source of this kind."""
        return _power_of_two(self.projection + 6 * gaussian)

    @property
    def most_size(self) -> int:
        return _power_of_two(self.n_value)


def moments_of(variant: Variant, has_gaussian: bool, run: int = 1) -> Moments:
    """The record of a source for kernels of this variant, with runs of so many channels."""
    has_beam = variant.beam != beam.NO_BEAM or variant.jones_beam
    has_profile = variant.profiles is not None
    return Moments(run * variant.n_stokes, has_beam, has_gaussian, has_profile, variant.turned)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


@functools.cache
def make_collect() -> DeviceKernel:
    """Kernel that adds the records of some units to the totals of their groups, one unit after the other.

    `records` (n_batch, n_unit, n_column, n_copy, n_item), flat, units counted from `first_unit`; group g
    has the units from `starts[g]` on. `totals` float64 (n_batch, n_group, n_column, n_item), of which the
    `n_here` items from `first_item` on are looked at. Groups
    without units here are not looked at; a unit that is the first of its group sets the totals.
    """

    @device.kernel(0)
    def collect(
        first_unit: int, n_unit: int, first_group: int, n_group: int, n_copy: int, first_item: int,
        n_here: int, starts: Array, records: Array, totals: Array,
    ) -> None:  # fmt: skip
        n_batch, n_column, n_item = totals.shape[0], totals.shape[2], totals.shape[3]
        i = cuda.grid(1)
        # A thread for each total: no two threads add to one, so that no atomics are needed.
        if i >= n_batch * n_group * n_column * n_here:
            return
        item, column = first_item + i % n_here, i // n_here % n_column
        g, b = first_group + i // (n_here * n_column) % n_group, i // (n_here * n_column * n_group)
        first, stop = max(starts[g], first_unit), min(starts[g + 1], first_unit + n_unit)
        # Units are added in their order, across slabs, so that the sums do not depend on how rows are cut.
        total = totals[b, g, column, item] if first > starts[g] else 0.0
        for unit in range(first, stop):
            row = (int64(b) * n_unit + unit - first_unit) * n_column + column
            for copy in range(n_copy):
                # Records are in working precision; from here on all is added in float64.
                total += float64(records[(row * n_copy + copy) * n_item + item])
        totals[b, g, column, item] = total

    return collect


@functools.cache
def make_row_totals() -> DeviceKernel:
    """Kernel that sums `values` (n, n_term, n_item) over the terms, in their order: `out` (n, n_out).

    Of each `each` items the first `kept` are summed; the others are left out.
    """

    @device.kernel(0)
    def sum_rows(values: Array, each: int, kept: int, out: Array) -> None:
        i = cuda.grid(1)
        if i >= out.size:
            return
        row, x = i // out.shape[1], i % out.shape[1]
        # The rest of each record, from `kept` on, is summed elsewhere.
        item = x // kept * each + x % kept
        total = 0.0
        for k in range(values.shape[1]):
            total += values[row, k, item]
        out[row, x] = total

    return sum_rows


@functools.cache
def make_antenna_sums() -> DeviceKernel:
    """Kernel that sums what rows accumulated by antenna: `out` (n_batch, n_time or 1, n_antenna, 2).

    `by_row` (n_batch, n_row, n_run, 4), flat. `rows` are twice the rows of each time and antenna in turn, 1
    more where the antenna is the second, those of each from `starts` on.
    """

    @device.kernel(0)
    def sum_rows(n_row: int, n_run: int, starts: Array, rows: Array, by_row: Array, out: Array) -> None:
        i = cuda.grid(1)
        if i >= out.size:
            return
        axis, entry = i % 2, i // 2 % (out.shape[1] * out.shape[2])
        b = i // (2 * out.shape[1] * out.shape[2])
        total = 0.0
        for k in range(starts[entry], starts[entry + 1]):
            row, second = rows[k] // 2, rows[k] % 2
            for run in range(n_run):
                total += by_row[((int64(b) * n_row + row) * n_run + run) * 4 + 2 * second + axis]
        out[b, entry // out.shape[2], entry % out.shape[2], axis] = total

    return sum_rows
