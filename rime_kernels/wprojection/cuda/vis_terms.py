"""Kernels of visibilities by the thread that has these: polynomials whose terms lie as they are used.

A thread evaluates the kernels of `N_EACH` visibilities together, with each term that it reads: all threads of
a warp read the same 16 bytes, which take as long to arrive as 512 different ones.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.tiles import tensor_cores
from rime_kernels.wprojection.cuda.parts import T, Task

# Visibilities of a thread.
N_EACH = 2
# The most turns of a loop that is unrolled: with more, a thread's own arrays would not lie in registers.
N_UNROLLED = 8


def _n_z(single: bool, n_d: int) -> int:
    """Terms in z, up to a multiple of those that are read at once: 16 bytes."""
    return -(-n_d // 2) * 2 if single else n_d


def terms_in_order(terms: NDArray[np.float64], single: bool) -> NDArray[np.floating]:
    """Terms of `kernel.KernelTables` in the order in which they are read.

    Axis, plane of w, cell, powers of t and of z from the highest one on, real and imaginary part.
    """
    n_more = _n_z(single, terms.shape[3]) - terms.shape[3]
    found = np.pad(terms, ((0, 0),) * 3 + ((0, n_more),) + ((0, 0),) * 2)[:, :, ::-1, ::-1]
    return found.transpose(0, 1, 5, 2, 3, 4).ravel().astype(np.float32 if single else np.float64)


def bytes_of_cell(task: Task) -> int:
    """Bytes of the terms of a cell."""
    return task.n_w * _n_z(task.single, task.n_d) * (8 if task.single else 16)


def bytes_of_kernel(task: Task) -> int:
    """Bytes of the terms of all cells, in a plane of w."""
    return task.support * bytes_of_cell(task)


@functools.cache
def make_cell_of_all(task: Task, of_z: int) -> Compiled:
    """Function that evaluates a cell of all kernels of a thread, each with the terms of its plane of w.

    `of_cell` is the address of the terms of plane 0, and `of_z` says which z of `number` is theirs. `own`
    gets real and imaginary part of each, one behind the other.
    """
    cell, other, n_byte = _make_cell(task, of_z, 0), _make_cell(task, of_z, 1), bytes_of_kernel(task)

    @device.inline
    def cell_of_all(of_cell: Scalar, plane: Array, number: Array, part: Array, own: Array) -> None:
        cell(of_cell + uint64(plane[0]) * uint64(n_byte), number, part, own, 0, 2)
        if plane[1] != plane[0]:  # seldom
            other(of_cell + uint64(plane[1]) * uint64(n_byte), number, part, own, 0, 2)

    return cell_of_all


@functools.cache
def make_kernels(task: Task, of_z: int) -> Compiled:
    """Function that evaluates all cells of these kernels. `own` gets one kernel behind the other."""
    cells, others, n_byte = (
        _make_cells(task, of_z, 0, 0),
        _make_cells(task, of_z, 1, 0),
        bytes_of_kernel(task),
    )

    @device.inline
    def kernels(of_kernel: Scalar, plane: Array, number: Array, part: Array, own: Array) -> None:
        cells(of_kernel + uint64(plane[0]) * uint64(n_byte), number, part, own)
        if plane[1] != plane[0]:
            others(of_kernel + uint64(plane[1]) * uint64(n_byte), number, part, own)

    return kernels


def _make_cells(task: Task, of_z: int, first: int, begin: int) -> Compiled:
    """Function that does so in one plane of w, for visibilities from `first` and cells from `begin` on."""
    if begin >= task.support:
        return device.inline(lambda of_kernel, number, part, own: None)
    rest, cell = _make_cells(task, of_z, first, begin + N_UNROLLED), _make_cell(task, of_z, first)
    end, n_byte, step = min(begin + N_UNROLLED, task.support), bytes_of_cell(task), 2 * task.support

    @device.part
    def cells(of_kernel: Scalar, number: Array, part: Array, own: Array) -> None:
        for j in range(begin, end):
            cell(of_kernel + uint64(j * n_byte), number, part, own, 2 * j, step)
        rest(of_kernel, number, part, own)

    return cells


@functools.cache
def _make_cell(task: Task, of_z: int, first: int) -> Compiled:
    """Function that evaluates a cell of the kernels from `first` on, with terms that lie at an address.

    Visibility v gets its real and imaginary part in `own` at `into + v * step`.
    """
    n_w, read, n_at_once = task.n_w, tensor_cores.make_read_numbers(task.single), 2 if task.single else 1
    n_read = _n_z(task.single, task.n_d) // n_at_once
    # Where terms are filled up, the first of two that are read together is 0.
    begins_with_second = n_at_once == 2 and task.n_d % 2 == 1

    @device.inline
    def cell(of_cell: Scalar, number: Array, part: Array, own: Array, into: int, step: int) -> None:
        for b in range(n_w):
            for k in range(n_read):
                term = read(of_cell + uint64(16 * (b * n_read + k)))
                for v in range(first, N_EACH):
                    z = number[v, of_z]
                    if k == 0:
                        re, im = term[0], term[1]
                    else:
                        re, im = part[2 * v] * z + term[0], part[2 * v + 1] * z + term[1]
                    if n_at_once == 2:
                        if k == 0 and begins_with_second:
                            re, im = term[2], term[3]
                        else:
                            re, im = re * z + term[2], im * z + term[3]
                    part[2 * v], part[2 * v + 1] = re, im
            for v in range(first, N_EACH):
                offset, t = into + v * step, number[v, T]
                if b == 0:
                    own[offset], own[offset + 1] = part[2 * v], part[2 * v + 1]
                else:
                    own[offset], own[offset + 1] = (
                        own[offset] * t + part[2 * v],
                        own[offset + 1] * t + part[2 * v + 1],
                    )

    return cell
