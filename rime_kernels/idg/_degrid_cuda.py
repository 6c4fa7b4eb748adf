"""The degridder on a CUDA device: a thread sums the pixels of a subgrid for the visibilities of one task."""

from __future__ import annotations

import functools
from typing import Any

from numba import uint32, uint64

from rime_kernels import device
from rime_kernels.idg._parts_cuda import (
    IdgKernel,
    Kind,
    joined,
    make_next,
    make_read,
    make_write,
    sine_function,
)

# The simulator replaces a global of this name while a kernel runs.
cuda: Any = device.cuda


@functools.cache
def make_degrid(kernel: IdgKernel) -> Any:
    """The kernel.

    Blocks have tasks of one kind; threads of a warp have neighbouring tasks, most of one item: a pixel that
    all of them read comes in one load. `n_task` has the number of tasks of each kind, `sums` the pixels of
    all items of the batch, `n_sum` complex numbers each; `out` gets n times `n_sum` complex numbers of each
    task: C and S of each pair of channels, from the middle outwards, or visibilities.
    """
    of_block = _make_of_block(kernel, 0)

    @device.kernel(kernel.shape.max_register)
    def degrid(n_task: Any, item_of: Any, coef: Any, curvature: Any, sums: Any, out: Any) -> None:
        block = uint32(cuda.blockIdx.x)
        of_block(block, n_task, uint64(0), uint64(0), uint64(0), item_of, coef, curvature, sums, out)

    return degrid


def n_block(kernel: IdgKernel, n_task: tuple[int, ...]) -> int:
    """Blocks that so many tasks of each kind take."""
    return sum(-(-n // kernel.shape.n_thread) for n in n_task)


def _make_of_block(kernel: IdgKernel, k: int) -> Any:
    """Function that does the work of a block, which is of kind k or one behind it."""
    kind, n_thread, n_value = kernel.kinds[k], kernel.shape.n_thread, kernel.n_value
    n_coef, n_out, of_kind = kind.n_coef, kind.n * n_value, _make_of_kind(kernel, kind)
    rest = _make_of_block(kernel, k + 1) if k + 1 < len(kernel.kinds) else None

    @joined
    def of_block(
        block: Any, n_task: Any, of_task: Any, of_coef: Any, of_out: Any, item_of: Any, coef: Any,
        curvature: Any, sums: Any, out: Any,
    ) -> None:  # fmt: skip
        n = uint32(n_task[k])
        n_here = uint32((n + uint32(n_thread - 1)) // uint32(n_thread))
        if block < n_here:
            task = uint32(block * uint32(n_thread) + uint32(cuda.threadIdx.x))
            if task < n:
                item = item_of[of_task + uint64(task)]
                at, to = of_coef + uint64(task) * uint64(n_coef), of_out + uint64(task) * uint64(n_out)
                of_kind(item, at, to, coef, curvature, sums, out)
        elif rest is not None:
            rest(
                uint32(block - n_here), n_task, of_task + uint64(n), of_coef + uint64(n) * uint64(n_coef),
                of_out + uint64(n) * uint64(n_out), item_of, coef, curvature, sums, out,
            )  # fmt: skip

    return of_block


def _make_of_kind(kernel: IdgKernel, kind: Kind) -> Any:
    """Function that does a task of this kind."""
    real, size, n_value, n_coef = kernel.real, kernel.size, kernel.n_value, kind.n_coef
    n_pixel, n_phase, n_total = size**2, n_coef // 4, kind.n * n_value
    # Pixels of a turn of the inner loop, which divide a row.
    n_step = 4 if kernel.single else 1
    read, read_curvature = make_read(kernel.single, n_value), make_read(kernel.single, n_step)
    read_coef, write = make_read(kernel.single, n_coef), make_write(kernel.single, n_total)
    add = _make_add_even(kernel, kind) if kind.even else _make_add_other(kernel, kind)

    @joined
    def of_kind(item: Any, at: Any, to: Any, coef: Any, curvature: Any, sums: Any, out: Any) -> None:
        total = cuda.local.array(n_total, real)
        abd = cuda.local.array(n_coef, real)
        of_row = cuda.local.array(n_phase, real)
        angle = cuda.local.array(n_phase, real)
        c = cuda.local.array(n_step, real)
        p = cuda.local.array(n_value, real)
        q = cuda.local.array(n_value, real)
        read_coef(coef, at, abd)
        for j in range(n_total):
            total[j] = real(0)
        of_item = uint64(item) * uint64(n_pixel * n_value)
        pixel, end, y = uint32(0), uint32(size), real(-size // 2)
        while pixel != uint32(n_pixel):
            x = real(-size // 2)
            for k in range(n_phase):
                of_row[k] = abd[4 * k + 1] * y
            y += real(1)
            while pixel != end:
                read_curvature(curvature, uint64(pixel), c)
                of_pixel = of_item + uint64(pixel) * uint64(n_value)
                for i in range(n_step):
                    read(sums, of_pixel + uint64(i * n_value), p)
                    for k in range(n_phase):
                        angle[k] = abd[4 * k] * x + (abd[4 * k + 2] * c[i] + of_row[k])
                    add(p, angle, q, total)
                    x += real(1)
                pixel += uint32(n_step)
            end += uint32(size)
        write(out, to, 0, total)

    return of_kind


def _make_add_even(kernel: IdgKernel, kind: Kind) -> Any:
    """Function that adds a pixel to the sums of pairs of channels; `q` is room for the pixel turned."""
    real, n_value, n_pair, next_sines = kernel.real, kernel.n_value, kind.n_part, make_next(kernel)
    cos_sin, _ = sine_function(kernel.single)

    @device.inline
    def add(p: Any, angle: Any, q: Any, total: Any) -> None:
        cos, sin = cos_sin(angle[0])
        for s in range(0, n_value, 2):
            q[s] = p[s] * cos - p[s + 1] * sin
            q[s + 1] = p[s] * sin + p[s + 1] * cos
        cos, sin = cos_sin(angle[1])
        twice, before_cos, before_sin = real(2) - real(4) * sin * sin, cos, -sin
        for k in range(n_pair):
            if k > 0:
                cos, sin, before_cos, before_sin = next_sines(
                    k, angle[1], twice, cos, sin, before_cos, before_sin
                )
            for s in range(n_value):
                total[2 * k * n_value + s] += cos * q[s]
                total[(2 * k + 1) * n_value + s] += sin * q[s]

    return add


def _make_add_other(kernel: IdgKernel, kind: Kind) -> Any:
    """Function that adds a pixel to the sums of visibilities."""
    n_value, n = kernel.n_value, kind.n
    cos_sin, _ = sine_function(kernel.single)

    @device.inline
    def add(p: Any, angle: Any, q: Any, total: Any) -> None:
        for k in range(n):
            cos, sin = cos_sin(angle[k])
            for s in range(0, n_value, 2):
                # Straight into the sums: four multiply-adds.
                j = k * n_value + s
                total[j] += p[s] * cos
                total[j] -= p[s + 1] * sin
                total[j + 1] += p[s] * sin
                total[j + 1] += p[s + 1] * cos

    return add
