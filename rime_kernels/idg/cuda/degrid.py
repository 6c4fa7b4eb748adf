"""The degridder on a GPU: each thread sums the pixels of a subgrid for the visibilities of one task."""

from __future__ import annotations

import functools

from numba import uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Pointer, Scalar
from rime_kernels.idg.cuda.parts import (
    IdgKernel,
    TaskKind,
    TaskTables,
    joined,
    make_next,
    make_read,
    sine_function,
)
from rime_kernels.idg.cuda.tasks import TaskKernel, make_coefficients, make_find, make_finish

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda


@functools.cache
def make_degrid(kernel: IdgKernel, n_corr: int, compact: bool) -> DeviceKernel:
    """The kernel.

    Blocks have tasks of one kind; threads of a warp have neighbouring tasks, most of one item: a pixel that
    all of them read comes in one load. `n_task` has the number of tasks of each kind, `sums` the pixels of
    all items of the batch, `n_sum` complex numbers each; `vis` gets visibilities (`make_finish`).
    """
    of_block = _make_of_block(kernel, 0, n_corr, compact)

    @device.kernel(kernel.shape.max_register)
    def degrid(
        n_task: Scalar, first_item: int, n_item: int, most_c: float, tables: TaskTables, to_corr: Array,
        curvature: Array, sums: Pointer, vis: Array,
    ) -> None:  # fmt: skip
        of_block(
            uint32(cuda.blockIdx.x), n_task, first_item, n_item, most_c, tables, to_corr, curvature, sums, vis
        )

    return degrid


def n_block(kernel: IdgKernel, n_task: tuple[int, ...]) -> int:
    """Blocks that so many tasks of each kind take."""
    return sum(-(-n // kernel.shape.n_thread) for n in n_task)


def _make_of_block(kernel: IdgKernel, k: int, n_corr: int, compact: bool) -> Compiled:
    """Function that does the work of a block, which is of kind k or one behind it."""
    n_thread, of_kind = kernel.shape.n_thread, _make_of_kind(kernel, k, n_corr, compact)
    rest = _make_of_block(kernel, k + 1, n_corr, compact) if k + 1 < len(kernel.kinds) else None

    @joined
    def of_block(
        block: Scalar, n_task: Array, first_item: int, n_item: int, most_c: Scalar, tables: TaskTables,
        to_corr: Array, curvature: Array, sums: Pointer, vis: Array,
    ) -> None:  # fmt: skip
        n = uint32(n_task[k])
        n_here = uint32((n + uint32(n_thread - 1)) // uint32(n_thread))
        # Blocks of one kind follow those of another: threads of a block take one branch.
        if block < n_here:
            task = uint32(block * uint32(n_thread) + uint32(cuda.threadIdx.x))
            # No barrier follows: threads behind the last task have nothing to do.
            if task < n:
                of_kind(task, first_item, n_item, most_c, tables, to_corr, curvature, sums, vis)
        elif rest is not None:
            rest(
                uint32(block - n_here), n_task, first_item, n_item, most_c, tables, to_corr, curvature, sums,
                vis,
            )  # fmt: skip

    return of_block


def _make_of_kind(kernel: IdgKernel, k: int, n_corr: int, compact: bool) -> Compiled:
    """Function that does a task of kind k."""
    kind, real, size, n_value = kernel.kinds[k], kernel.real, kernel.size, kernel.n_value
    n_coef, n_pixel, n_total = kind.n_coef, size**2, kind.n * n_value
    n_phase, n_out = n_coef // 4, 2 * n_corr
    # Pixels of a turn of the inner loop, which divide a row.
    n_step = 4 if kernel.single else 1
    read, read_curvature = make_read(kernel.single, n_value), make_read(kernel.single, n_step)
    add = _make_add_even(kernel, kind) if kind.even else _make_add_other(kernel, kind)
    task_kernel = TaskKernel(kernel.single, kernel.n_sum, size, kind)
    find, coefficients = make_find(), make_coefficients(task_kernel)
    finish = make_finish(task_kernel, n_corr, compact)

    @joined
    def of_kind(
        task: int, first_item: int, n_item: int, most_c: Scalar, tables: TaskTables, to_corr: Array,
        curvature: Array, sums: Pointer, vis: Array,
    ) -> None:  # fmt: skip
        total = cuda.local.array(n_total, real)
        abd = cuda.local.array(n_coef, real)
        of_row = cuda.local.array(n_phase, real)
        angle = cuda.local.array(n_phase, real)
        c = cuda.local.array(n_step, real)
        p = cuda.local.array(n_value, real)
        q = cuda.local.array(n_value, real)
        out = cuda.local.array(n_out, real)
        item, local = find(tables.first_task, k, task, first_item, n_item)
        coefficients(k, item, local, most_c, tables, abd)
        for j in range(n_total):
            total[j] = real(0)
        of_item = uint64(item - first_item) * uint64(n_pixel * n_value)
        pixel, end, y = uint32(0), uint32(size), real(-size // 2)
        while pixel != uint32(n_pixel):
            x = real(-size // 2)
            # b y is common to a row: two multiply-adds are left for the phase of each pixel.
            for j in range(n_phase):
                of_row[j] = abd[4 * j + 1] * y
            y += real(1)
            # Two loops, over rows and their pixels, instead of a division for x and y.
            while pixel != end:
                read_curvature(curvature, uint64(pixel), c)
                of_pixel = of_item + uint64(pixel) * uint64(n_value)
                for i in range(n_step):
                    # All threads of an item read this pixel at once: one broadcast.
                    read(sums, of_pixel + uint64(i * n_value), p)
                    for j in range(n_phase):
                        angle[j] = abd[4 * j] * x + (abd[4 * j + 2] * c[i] + of_row[j])
                    add(p, angle, q, total)
                    x += real(1)
                pixel += uint32(n_step)
            end += uint32(size)
        finish(k, item, local, first_item, tables, to_corr, total, p, out, vis)

    return of_kind


def _make_add_even(kernel: IdgKernel, kind: TaskKind) -> Compiled:
    """Function that adds a pixel to the sums of pairs of channels; `q` is room for the pixel turned."""
    real, n_value, n_pair, next_sines = kernel.real, kernel.n_value, kind.n_part, make_next(kernel)
    cos_sin, _ = sine_function(kernel.single)

    @device.inline
    def add(p: Array, angle: Array, q: Array, total: Array) -> None:
        cos, sin = cos_sin(angle[0])
        for s in range(0, n_value, 2):
            q[s] = p[s] * cos - p[s + 1] * sin
            q[s + 1] = p[s] * sin + p[s + 1] * cos
        cos, sin = cos_sin(angle[1])
        # 2 cos 2 h = 2 - 4 sin^2 h: for small h more exact than 2 cos^2 h - 1.
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


def _make_add_other(kernel: IdgKernel, kind: TaskKind) -> Compiled:
    """Function that adds a pixel to the sums of visibilities."""
    n_value, n = kernel.n_value, kind.n
    cos_sin, _ = sine_function(kernel.single)

    @device.inline
    def add(p: Array, angle: Array, q: Scalar, total: Array) -> None:
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
