"""Tasks of the CUDA kernels: the visibilities of an item that one thread computes, before and after the sums.

`coefficients` are those of a task's phases; `finish` makes visibilities of what the degridder has summed;
`prepare` makes of visibilities what the gridder sums. See `parts.TaskKind` for the two kinds of tasks.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numba import float32, float64, int64, uint32
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceArray, DeviceKernel, Module, NumbaType, Scalar
from rime_kernels.gridding import scalars
from rime_kernels.gridding.cuda.items import FIRST_CHAN, FIRST_ROW, FLIP, N_CHAN, N_ROW, X, Y
from rime_kernels.gridding.cuda.planes import turn_function
from rime_kernels.gridding.plan import Plan
from rime_kernels.idg.cuda.parts import (
    IdgShape,
    TaskKind,
    TaskTables,
    joined,
    make_read,
    make_write,
    sine_function,
)

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda

# Channels may stray this far from even spacing, relative to the frequency: 1e-8 turns across 1e4 cells.
_EVEN = 1e-12
# Rests of fewer channels than this go with those that are not evenly spaced.
_LEAST_EVEN = 3

_relative_turns = scalars.relative_turns


class Tasks(NamedTuple):
    """The tasks of a plan, on the host or on the device.

    Attributes
    ----------
    kinds : tuple of TaskKind
        Those that take long first: when blocks run out, short ones are left.
    first_chan, n_chan : int32 (n_kind, n_item)
        Channels of each item that are summed by tasks of a kind.
    first_task : int64 (n_kind, n_item + 1)
        Where the tasks of each item begin: row by row, channels of a row one behind the other.
    """

    kinds: tuple[TaskKind, ...]
    first_chan: DeviceArray
    n_chan: DeviceArray
    first_task: DeviceArray


class TaskKernel(NamedTuple):
    """What the kernels around the heavy ones are compiled for."""

    single: bool
    n_sum: int
    size: int
    kind: TaskKind


def make_tasks(plan: Plan, scale: NDArray[np.float64], shape: IdgShape) -> Tasks:
    """Cut the channels of each item into tasks; kinds without any are left out."""
    sizes = [shape.n_chan]
    while sizes[-1] > 4:
        sizes.append(sizes[-1] // 2)
    pairs, which = np.unique(np.stack([plan.first_chan, plan.n_chan], axis=1), axis=0, return_inverse=True)
    counts = np.array([_cut(scale[first : first + n], sizes) for first, n in pairs])[which.ravel()]
    first_chan = plan.first_chan[:, None] + np.cumsum(counts, axis=1) - counts
    found: list[tuple[TaskKind, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    for n, first, count in zip([*sizes, shape.n_other], first_chan.T, counts.T, strict=True):
        kind = TaskKind(len(found) < len(sizes), n)
        n_task = plan.n_row * -(-count // n) if kind.even else -(-(plan.n_row * count) // n)
        found.append((kind, first, count, np.concatenate([[0], np.cumsum(n_task, dtype=np.int64)])))
    kinds, first, n_chan, first_task = zip(*[each for each in found[::-1] if each[3][-1]], strict=True)
    return Tasks(kinds, np.array(first, np.int32), np.array(n_chan, np.int32), np.array(first_task))


def _cut(scale: NDArray[np.float64], sizes: list[int]) -> list[int]:
    """Channels of an item that go to even tasks of each size, and to others."""
    n = scale.size
    counts = [0] * (len(sizes) + 1)
    straight = np.linspace(scale[0], scale[-1], n)
    # Even tasks compute phases from a middle and a step: channels have to lie on a straight line.
    if np.any(np.abs(scale - straight) > _EVEN * np.abs(straight)):
        return [*counts[:-1], n]
    # As many of the largest tasks as fit; what remains goes to one even task with idle places, if it would
    # fill enough of it, else to tasks whose visibilities have phases of their own.
    counts[0] = n - n % sizes[0]
    rest = n % sizes[0]
    if rest >= _LEAST_EVEN:
        counts[max(k for k, size in enumerate(sizes) if size >= rest)] += rest
    else:
        counts[-1] = rest
    return counts


@device.inline
def _where(
    even: bool, n: int, local: int, k: int, first_row: Scalar, n_row: int, n_chan: Array
) -> tuple[Scalar, Scalar]:
    """Row and channel of visibility k of an item's task; the last row once more beyond it."""
    if even:
        n_group = uint32((uint32(n_chan) + uint32(n - 1)) // uint32(n))
        row = uint32(uint32(local) // n_group)
        return first_row + int64(row), int64(uint32(local) - row * n_group) * n + k
    vis = uint32(local) * uint32(n) + uint32(k)
    row = min(uint32(vis // uint32(n_chan)), uint32(n_row - 1))
    return first_row + int64(row), int64(vis) - int64(row) * n_chan


@functools.cache
def make_find() -> Compiled:
    """Function that gives the item of a task, and the task's number in it.

    Tasks are counted from the first one of the batch, items from the plan's first.
    """

    @device.inline
    def find(
        first_task: Array, row_of_kind: Scalar, task: int, first_item: int, n_item: int
    ) -> tuple[Scalar, Scalar]:
        here = first_task[row_of_kind, first_item] + int64(task)
        # Tasks ascend with items: bisection takes log2(n_item) reads a thread.
        low, high = int64(first_item), int64(first_item) + n_item
        while high - low > 1:
            middle = (low + high) // 2
            if first_task[row_of_kind, middle] <= here:
                low = middle
            else:
                high = middle
        return low, here - first_task[row_of_kind, low]

    return find


@functools.cache
def make_coefficients(kernel: TaskKernel) -> Compiled:
    """Function that works out the coefficients of task `local` of an item, into `abd`.

    `most_c` is the curvature in whose unit that of pixels is.
    """
    even, n, n_coef, real = kernel.kind.even, kernel.kind.n, kernel.kind.n_coef, _real(kernel.single)
    per_pixel, turn = 1.0 / kernel.size, sine_function(kernel.single)[1]

    @joined
    def coefficients(
        row_of_kind: Scalar, item: Scalar, local: int, most_c: Scalar, tables: TaskTables, abd: Array
    ) -> None:
        items, uvw, scale = tables.items, tables.uvw, tables.scale
        chans, first = tables.n_chan[row_of_kind, item], tables.first_chan[row_of_kind, item]
        cell_x, cell_y = float64(items[item, X]), float64(items[item, Y])
        for k in range(n_coef // 4):
            row, chan = _where(even, n, local, k, items[item, FIRST_ROW], items[item, N_ROW], chans)
            s, w_cell = scale[first + min(chan, chans - 1)], tables.w_item[item]
            if even:
                # The middle of the task's channels; then half a step, without the subgrid's middle.
                s = scale[first]
                step = (scale[first + chans - 1] - s) / max(chans - 1, 1)
                s += step * (chan - k + 0.5 * (n - 1))
                # Of a step the subgrid's middle is not subtracted: it is the difference of two phases.
                if k == 1:
                    s, cell_x, cell_y, w_cell = 0.5 * step, 0.0, 0.0, 0.0  # type: ignore[assignment]
            u, v, w = uvw[row, 0], uvw[row, 1], uvw[row, 2]
            # Coefficients are differences of large numbers: float64 here, working precision from here on.
            a = _relative_turns(u, v, w, s, cell_x, cell_y, w_cell, per_pixel, 0.0, 0.0)
            b = _relative_turns(u, v, w, s, cell_x, cell_y, w_cell, 0.0, per_pixel, 0.0)
            d = _relative_turns(u, v, w, s, cell_x, cell_y, w_cell, 0.0, 0.0, most_c)
            abd[4 * k], abd[4 * k + 1], abd[4 * k + 2] = real(turn * a), real(turn * b), real(turn * d)
            # A fourth, idle number makes each phase 16 or 32 bytes, so that it is read by wide loads.
            abd[4 * k + 3] = real(0)

    return coefficients


@functools.cache
def make_finish(kernel: TaskKernel, n_corr: int, compact: bool, part: int = 0) -> Compiled:
    """Function that makes visibilities of what a task has summed: of pair or visibility `part` and of
    those behind it, a loop that is sure to be unrolled.

    `vis` has real and imaginary parts of (n_row, n_chan, n_corr), rows as they came, or `compact`: those of
    the batch alone, item by item, row by row. `v` and `out` are room for a visibility.
    """
    even, n, n_sum, n_part = kernel.kind.even, kernel.kind.n, kernel.n_sum, kernel.kind.n_part
    n_each, n_value = 2 if even else 1, 2 * n_sum
    offset = part * n_each * n_value
    real, cos_sin, address = _real(kernel.single), turn_function(kernel.single), _address_function(compact)
    write = make_write(kernel.single, 2 * n_corr)
    rest = make_finish(kernel, n_corr, compact, part + 1) if part + 1 < n_part else None

    @joined
    def finish(
        row_of_kind: Scalar, item: Scalar, local: int, first_item: int, tables: TaskTables, to_corr: Array,
        total: Array, v: Array, out: Array, vis: Array,
    ) -> None:  # fmt: skip
        items, chans = tables.items, tables.n_chan[row_of_kind, item]
        sign = real(-1) if items[item, FLIP] else real(1)
        for side in range(n_each):
            k = part
            if even:
                # C + i S is above the middle, C - i S below it.
                k = n // 2 + part if side == 0 else n // 2 - 1 - part
            row, chan = _where(even, n, local, k, items[item, FIRST_ROW], items[item, N_ROW], chans)
            if chan < chans:
                for s in range(n_sum):
                    re, im = total[offset + 2 * s], total[offset + 2 * s + 1]
                    if even:
                        of_s = offset + n_value + 2 * s
                        more = real(1) if side == 0 else real(-1)
                        re, im = re - more * total[of_s + 1], im + more * total[of_s]
                    # A flipped item was predicted at -(u, v, w): its visibilities are the conjugates.
                    v[2 * s], v[2 * s + 1] = re, sign * im
                chan += tables.first_chan[row_of_kind, item]
                cos, sin = cos_sin(tables.shift[row] * tables.scale[chan])
                for c in range(n_corr):
                    re, im = real(0), real(0)
                    for s in range(n_sum):
                        z = to_corr[c, s]
                        re += z.real * v[2 * s] - z.imag * v[2 * s + 1]
                        im += z.real * v[2 * s + 1] + z.imag * v[2 * s]
                    out[2 * c], out[2 * c + 1] = re * cos - im * sin, im * cos + re * sin
                to = address(row, chan, item, first_item, tables)
                write(vis, to * (2 * n_corr), 0, out)
        # Recursion at compile time instead of a loop: `part` is a constant, so that `total` stays in
        # registers.
        if rest is not None:
            rest(row_of_kind, item, local, first_item, tables, to_corr, total, v, out, vis)

    return finish


@functools.cache
def make_prepare(kernel: TaskKernel, n_corr: int, compact: bool, has_weight: bool) -> DeviceKernel:
    """Kernel that makes what the gridder sums of weighted visibilities, the adjoint of `make_finish`, and the
    coefficients of their tasks.

    They go behind `of_part` and `of_coef` numbers of other kinds.
    """
    even, n, n_sum, n_part = kernel.kind.even, kernel.kind.n, kernel.n_sum, kernel.kind.n_part
    n_each, n_value, n_coef, single = 2 if even else 1, 2 * n_sum, kernel.kind.n_coef, kernel.single
    n_here, n_given, real = n_each * n_value, 2 * n_corr, _real(single)
    cos_sin, address = turn_function(single), _address_function(compact)
    find, coefficients = make_find(), make_coefficients(kernel)
    read, read_weight = make_read(single, n_given), make_read(single, n_corr)
    write, write_coef = make_write(single, n_here), make_write(single, n_coef)

    @device.kernel(0)
    def prepare(
        row_of_kind: int, n_task: int, of_coef: int, of_part: int, first_item: int, n_item: int,
        most_c: float, tables: TaskTables, to_corr: Array, vis: Array, weight: Array, coef: Scalar,
        parts: Array,
    ) -> None:  # fmt: skip
        v = cuda.local.array(n_here, real)
        z = cuda.local.array(n_given, real)
        w = cuda.local.array(n_corr, real)
        abd = cuda.local.array(n_coef, real)
        items, n_chan, i = tables.items, tables.n_chan, cuda.grid(1)
        while i < n_task * n_part:
            task, part = i // n_part, i % n_part
            item, local = find(tables.first_task, row_of_kind, task, first_item, n_item)
            first_row, n_row, chans = items[item, FIRST_ROW], items[item, N_ROW], n_chan[row_of_kind, item]
            sign = real(-1) if items[item, FLIP] else real(1)
            for j in range(n_here):
                v[j] = real(0)
            for side in range(n_each):
                k = part
                if even:
                    k = n // 2 + part if side == 0 else n // 2 - 1 - part
                row, chan = _where(even, n, local, k, first_row, n_row, chans)
                if chan < chans:
                    chan += tables.first_chan[row_of_kind, item]
                    cos, sin = cos_sin(tables.shift[row] * tables.scale[chan])
                    to = address(row, chan, item, first_item, tables)
                    read(vis, to * n_given, z)
                    if has_weight:
                        read_weight(weight, to * n_corr, w)
                    for c in range(n_corr):
                        re, im = z[2 * c], z[2 * c + 1]
                        if has_weight:
                            # What has no weight may be NaN.
                            re, im = (w[c] * re, w[c] * im) if w[c] > real(0) else (real(0), real(0))
                        # The adjoint of each step of `make_finish`, in the opposite order: conjugate phase,
                        # then to_corr^H.
                        re, im = re * cos + im * sin, im * cos - re * sin
                        for s in range(n_sum):
                            t = to_corr[c, s]
                            x = t.real * re + t.imag * im
                            y = sign * (t.real * im - t.imag * re)
                            v[2 * s] += x
                            v[2 * s + 1] += y
                            if even:
                                # -i times the difference.
                                more = real(1) if side == 0 else real(-1)
                                v[n_value + 2 * s] += more * y
                                v[n_value + 2 * s + 1] -= more * x
            write(parts, of_part + int64(i) * n_here, 0, v)
            # One thread of a task writes the coefficients that all its parts share.
            if part == 0:
                coefficients(row_of_kind, item, local, most_c, tables, abd)
                write_coef(coef, of_coef + int64(task) * n_coef, 0, abd)
            i += cuda.gridsize(1)

    return prepare


def _real(single: bool) -> NumbaType:
    return float32 if single else float64


@functools.cache
def _address_function(compact: bool) -> Compiled:
    """Function that gives the place of a visibility among all, or among those of the batch."""

    @device.inline
    def address(row: int, chan: Scalar, item: Scalar, first_item: int, tables: TaskTables) -> Scalar:
        if compact:
            items, start = tables.items, tables.start
            of_item = (row - items[item, FIRST_ROW]) * int64(items[item, N_CHAN])
            return start[item] - start[first_item] + of_item + (chan - items[item, FIRST_CHAN])
        return int64(tables.order[row]) * tables.scale.size + chan

    return address
