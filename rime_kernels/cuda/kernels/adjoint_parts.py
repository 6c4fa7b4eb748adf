"""What the adjoints of both CUDA kernels share: what a source gathers, and how it is summed up."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from numba import float32, float64, int64, uint64

from rime_kernels import device
from rime_kernels.cuda.kernels import scalars
from rime_kernels.inputs import Variant
from rime_kernels.physics import beam, phase

# The simulator replaces a global of this name while a kernel runs.
cuda: Any = device.cuda

_turns = phase.turns


@dataclass(frozen=True)
class Moments:
    """Where the sums of a source lie in its record, in working precision.

    With R, P and z as in `_adjoint.Adjoint`, and (u, v, w) in wavelengths: Re(conj(P) R_S), for each
    channel of a run and each Stokes parameter; Im(z) (u, v, w); where antennas have voltages, Re(z) times
    the derivatives of ln(E_p E_q) with respect to l, m and the beam's scale; where there are Gaussians, Re(z)
    (u, v, w) times the coordinate along the source, and the same across.
    """

    n_bright: int
    has_beam: bool
    has_gaussian: bool

    @property
    def direction(self) -> int:
        return self.n_bright

    @property
    def voltage(self) -> int:
        return self.n_bright + 3

    @property
    def projection(self) -> int:
        return self.voltage + 3 * self.has_beam

    @property
    def n_value(self) -> int:
        return self.projection + 6 * self.has_gaussian

    @property
    def bright_room(self) -> int:
        """The power of two that holds those of the brightness; `geometry_room` holds the others."""
        return _power_of_two(self.n_bright)

    @property
    def geometry_room(self) -> int:
        return _power_of_two(self.n_value - self.n_bright)

    def room(self, gaussian: bool) -> int:
        """The power of two that holds the sums of a source of this kind."""
        return _power_of_two(self.projection + 6 * gaussian)

    @property
    def most_room(self) -> int:
        return self.room(self.has_gaussian)


def moments_of(variant: Variant, has_gaussian: bool, run: int = 1) -> Moments:
    """The record of a source for kernels of this variant, with runs of so many channels."""
    return Moments(run * variant.n_stokes, variant.beam != beam.NO_BEAM, has_gaussian)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


@functools.cache
def make_back(matrix: tuple[complex, ...], single: bool, n_stokes: int) -> Any:
    """Function that adds a weighted residual of correlation k to those in Stokes parameters, from `at` on.

    The matrix' conjugate transpose; with sign -1 of a baseline that was turned round. Parameter j
    lies `n` behind the one before.
    """
    real = float32 if single else float64
    re_part = tuple(real(z.real) for z in matrix)
    im_part = tuple(real(z.imag) for z in matrix)

    @device.inline
    def add_back(k: int, re: Any, im: Any, sign: Any, into: Any, at: Any, n: Any) -> None:
        for j in range(n_stokes):
            a, b = re_part[4 * k + j], im_part[4 * k + j]
            if a != real(0):
                into[at + n * j] += a * re
                into[at + n * (n_stokes + j)] += sign * (a * im)
            if b != real(0):
                into[at + n * j] += b * im
                into[at + n * (n_stokes + j)] -= sign * (b * re)

    return add_back


@functools.cache
def make_gather_templates(single: bool, n_template: int, shifted: bool) -> Any:
    """Function that adds what each template gathers from a weighted residual re + i im.

    With x = conj(the template, where it is moved to) times the residual: Re(x); and where templates are
    moved, 2 pi scale Im(x) (u, v, w). `u`, `v`, `w` in wavelengths, of the baseline as tiles have it;
    `weight` says by its sign whether the row has it turned round.
    """
    real = float32 if single else float64
    nearest = (scalars.nearest_function(kind, phase.nearest) for kind in (False, single))
    cos_sin = scalars.cos_sin_function(single, phase.make_cos_sin(single, *nearest))
    two_pi = 2.0 * math.pi

    @device.inline
    def gather_templates(
        at: Any, re: Any, im: Any, weight: Any, template: Any, stride: Any, factors: Any, u: Any, v: Any,
        w: Any, into: Any,
    ) -> None:  # fmt: skip
        for t in range(n_template):
            z = template[at + uint64(t) * uint64(stride)]
            x_re, x_im = z.real * re + z.imag * im, z.real * im - z.imag * re
            if shifted:
                cos, sin = cos_sin(_turns(u, v, w, factors[t, 1], factors[t, 2], factors[t, 3]))
                sign = math.copysign(real(1), weight)
                sin *= sign
                x_re, x_im = cos * x_re + sin * x_im, cos * x_im - sin * x_re
                turned = two_pi * factors[t, 0] * sign * x_im
                into[4 * t + 2] += turned * u
                into[4 * t + 3] += turned * v
                into[4 * t + 4] += turned * w
            into[4 * t + 1] += x_re

    return gather_templates


@functools.cache
def make_collect() -> Any:
    """Kernel that adds the records of some units to the totals of their groups, one unit after the other.

    `records` (n_batch, n_unit, n_column, n_copy, n_item), flat, units counted from `first_unit`; group g
    has the units from `starts[g]` on. `totals` float64 (n_batch, n_group, n_column, n_item). Groups
    without units here are not looked at; a unit that is the first of its group sets the totals.
    """

    @device.kernel(0)
    def collect(
        first_unit: int, n_unit: int, first_group: int, n_group: int, n_copy: int, starts: Any, records: Any,
        totals: Any,
    ) -> None:  # fmt: skip
        n_batch, n_column, n_item = totals.shape[0], totals.shape[2], totals.shape[3]
        i = cuda.grid(1)
        if i >= n_batch * n_group * n_column * n_item:
            return
        item, column = i % n_item, i // n_item % n_column
        g, b = first_group + i // (n_item * n_column) % n_group, i // (n_item * n_column * n_group)
        first, stop = max(starts[g], first_unit), min(starts[g + 1], first_unit + n_unit)
        total = totals[b, g, column, item] if first > starts[g] else 0.0
        for unit in range(first, stop):
            row = (int64(b) * n_unit + unit - first_unit) * n_column + column
            for copy in range(n_copy):
                total += float64(records[(row * n_copy + copy) * n_item + item])
        totals[b, g, column, item] = total

    return collect


@functools.cache
def make_row_totals() -> Any:
    """Kernel that sums `values` (n, n_term, n_item) over the terms, in their order: `out` (n, n_out).

    Of each `each` items the first `kept` are summed; the others are left out.
    """

    @device.kernel(0)
    def sum_rows(values: Any, each: int, kept: int, out: Any) -> None:
        i = cuda.grid(1)
        if i >= out.size:
            return
        row, x = i // out.shape[1], i % out.shape[1]
        item = x // kept * each + x % kept
        total = 0.0
        for k in range(values.shape[1]):
            total += values[row, k, item]
        out[row, x] = total

    return sum_rows


@functools.cache
def make_antenna_sums() -> Any:
    """Kernel that sums what rows gathered by antenna: `out` (n_batch, n_time or 1, n_antenna, 2).

    `by_row` (n_batch, n_row, n_run, 4), flat. `rows` are twice the rows of each time and antenna in turn, 1
    more where the antenna is the second, those of each from `starts` on.
    """

    @device.kernel(0)
    def sum_rows(n_row: int, n_run: int, starts: Any, rows: Any, by_row: Any, out: Any) -> None:
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
