"""The gridder on a GPU: each thread sums the visibilities of an item for some pixels of its subgrid."""

from __future__ import annotations

import functools

from numba import uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Pointer, Scalar
from rime_kernels.idg.cuda.parts import (
    IdgKernel,
    TaskKind,
    joined,
    make_next,
    make_read,
    make_write,
    sine_function,
)

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda


@functools.cache
def make_grid(kernel: IdgKernel) -> DeviceKernel:
    """The kernel: the adjoint of the degridder.

    A thread's pixels lie below one another, S/n_pixel rows apart. `parts` has n times `n_sum` complex numbers
    of each task: sum and -i times difference of each pair of channels, from the middle outwards, or
    visibilities. Item i of the batch has the tasks from first_task[kind, first_item + i], less that of
    the first item; `n_task` has their number for each kind. `sums` gets `n_sum` complex numbers of each
    pixel.
    """
    real, size, n_value = kernel.real, kernel.size, kernel.n_value
    n_own, n_thread, n_total = (
        kernel.shape.n_pixel,
        kernel.shape.n_grid_thread,
        kernel.shape.n_pixel * n_value,
    )
    n_pixel, n_of_item = size**2, size**2 // n_own
    write, of_kinds = make_write(kernel.single, n_value), _make_of_kinds(kernel, 0)

    @device.kernel(kernel.shape.max_grid_register)
    def grid(
        n_item: int, first_item: int, n_task: Scalar, first_task: Array, coef: Scalar, curvature: Array,
        parts: Array, sums: Pointer,
    ) -> None:  # fmt: skip
        # Arrays of constant size and constant indices (loops are unrolled): they end up in registers.
        total = cuda.local.array(n_total, real)
        c = cuda.local.array(n_own, real)
        thread = uint32(uint32(cuda.blockIdx.x) * uint32(n_thread) + uint32(cuda.threadIdx.x))
        item = uint32(thread // uint32(n_of_item))
        # No barrier follows, so that threads without an item may return.
        if item >= uint32(n_item):
            return
        own = uint32(thread - item * uint32(n_of_item))
        row = uint32(own // uint32(size))
        # Whole pixels from the middle: exact in float32, whatever the size of a pixel is.
        x, y = real(own - row * uint32(size)) - real(size // 2), real(row) - real(size // 2)
        for j in range(n_own):
            # Pixels of a thread lie n_of_item apart: neighbouring threads read and write neighbouring pixels.
            c[j] = curvature[own + uint32(j * n_of_item)]
        for j in range(n_total):
            total[j] = real(0)
        of_kinds(
            uint32(first_item), uint32(first_item) + item, n_task, uint64(0), uint64(0), first_task, x, y, c,
            coef, parts, total,
        )  # fmt: skip
        for j in range(n_own):
            to = (uint64(item) * uint64(n_pixel) + uint64(own + uint32(j * n_of_item))) * uint64(n_value)
            write(sums, to, j * n_value, total)

    return grid


def _make_of_kinds(kernel: IdgKernel, k: int) -> Compiled:
    """Function that adds an item's tasks of kind k and of those behind it."""
    kind, real, n_own, n_value = kernel.kinds[k], kernel.real, kernel.shape.n_pixel, kernel.n_value
    n_coef, n_of_task, n_total = kind.n_coef, kind.n * n_value, n_own * n_value
    read_coef = make_read(kernel.single, n_coef)
    add = _make_add_even(kernel, kind) if kind.even else _make_add_other(kernel, kind)
    rest = _make_of_kinds(kernel, k + 1) if k + 1 < len(kernel.kinds) else None

    @joined
    def of_kinds(
        first_item: int, item: Scalar, n_task: Array, of_coef: Scalar, of_part: Scalar, first_task: Array,
        x: Array, y: Array, c: Array, coef: Scalar, parts: Array, total: Array,
    ) -> None:  # fmt: skip
        abd = cuda.local.array(n_coef, real)
        v = cuda.local.array(n_value, real)
        w = cuda.local.array(n_value, real)
        inner = cuda.local.array(n_total, real)
        angle = cuda.local.array(n_own, real)
        cos_of = cuda.local.array(n_own, real)
        sin_of = cuda.local.array(n_own, real)
        before_cos = cuda.local.array(n_own, real)
        before_sin = cuda.local.array(n_own, real)
        twice = cuda.local.array(n_own, real)
        # Tasks of the batch are counted from its first item: `coef` and `parts` hold this batch alone.
        base = first_task[k, first_item]
        task = uint32(first_task[k, item] - base)
        end = uint32(first_task[k, item + uint32(1)] - base)
        at_coef = of_coef + uint64(task) * uint64(n_coef)
        offset = of_part + uint64(task) * uint64(n_of_task)
        # All threads of an item read one task at a time, the same addresses: one transaction for a warp.
        while task != end:
            read_coef(coef, at_coef, abd)
            add(
                x, y, c, abd, parts, offset, v, w, inner, angle, cos_of, sin_of, before_cos, before_sin,
                twice,
                total,
            )  # fmt: skip
            at_coef += uint64(n_coef)
            offset += uint64(n_of_task)
            task += uint32(1)
        if rest is not None:
            n = uint64(n_task[k])
            rest(
                first_item, item, n_task, of_coef + n * uint64(n_coef), of_part + n * uint64(n_of_task),
                first_task, x, y, c, coef, parts, total,
            )  # fmt: skip

    return of_kinds


def _make_add_even(kernel: IdgKernel, kind: TaskKind) -> Compiled:
    """Function that adds a task of evenly spaced channels to a thread's pixels."""
    real, n_value, n_own = kernel.real, kernel.n_value, kernel.shape.n_pixel
    apart = kernel.size // n_own
    cos_sin, _ = sine_function(kernel.single)
    pairs = _make_pairs(kernel, kind, 0)

    @joined
    def add(
        x: Array, y: Array, c: Array, abd: Array, parts: Array, offset: int, v: Array, w: Array,
        inner: Array,
        angle: Array, cos_of: Array, sin_of: Array, before_cos: Array, before_sin: Array, twice: Array,
        total: Array,
    ) -> None:  # fmt: skip
        for j in range(n_own * n_value):
            inner[j] = real(0)
        of_first = abd[4] * x + abd[5] * y
        for j in range(n_own):
            angle[j] = (of_first + abd[5] * real(j * apart)) + abd[6] * c[j]
            cos, sin = cos_sin(angle[j])
            cos_of[j], sin_of[j] = cos, sin
            before_cos[j], before_sin[j], twice[j] = cos, -sin, real(2) - real(4) * sin * sin
        pairs(parts, offset, angle, v, w, cos_of, sin_of, before_cos, before_sin, twice, inner)
        of_first = abd[0] * x + abd[1] * y
        for j in range(n_own):
            cos, sin = cos_sin((of_first + abd[1] * real(j * apart)) + abd[2] * c[j])
            for s in range(j * n_value, (j + 1) * n_value, 2):
                total[s] += inner[s] * cos
                total[s] += inner[s + 1] * sin
                total[s + 1] += inner[s + 1] * cos
                total[s + 1] -= inner[s] * sin

    return add


def _make_pairs(kernel: IdgKernel, kind: TaskKind, k: int) -> Compiled:
    """Function that adds pairs k, k + 1, ... of channels to the sums: a loop that is sure to be unrolled."""
    n_value, n_own, single = kernel.n_value, kernel.shape.n_pixel, kernel.single
    read, next_sines = make_read(single, n_value), make_next(kernel)
    rest = _make_pairs(kernel, kind, k + 1) if k + 1 < kind.n_part else None

    @joined
    def pairs(
        parts: Array, offset: int, angle: Array, v: Array, w: Array, cos_of: Array, sin_of: Array,
        before_cos: Array, before_sin: Array, twice: Array, inner: Array,
    ) -> None:  # fmt: skip
        read(parts, offset + uint64(2 * k * n_value), v)
        read(parts, offset + uint64((2 * k + 1) * n_value), w)
        for j in range(n_own):
            if k > 0:
                cos_of[j], sin_of[j], before_cos[j], before_sin[j] = next_sines(
                    k, angle[j], twice[j], cos_of[j], sin_of[j], before_cos[j], before_sin[j]
                )
            for s in range(n_value):
                inner[j * n_value + s] += cos_of[j] * v[s]
                inner[j * n_value + s] += sin_of[j] * w[s]
        if rest is not None:
            rest(parts, offset, angle, v, w, cos_of, sin_of, before_cos, before_sin, twice, inner)

    return pairs


def _make_add_other(kernel: IdgKernel, kind: TaskKind) -> Compiled:
    """Function that adds a task of any visibilities to a thread's pixels."""
    real, n_value, n_own, n = kernel.real, kernel.n_value, kernel.shape.n_pixel, kind.n
    apart = kernel.size // n_own
    cos_sin, _ = sine_function(kernel.single)
    read = make_read(kernel.single, n_value)

    @joined
    def add(
        x: Array, y: Array, c: Array, abd: Array, parts: Array, offset: int, v: Array, w: Array,
        inner: Array,
        angle: Array, cos_of: Array, sin_of: Array, before_cos: Array, before_sin: Array, twice: Array,
        total: Array,
    ) -> None:  # fmt: skip
        for k in range(n):
            read(parts, offset + uint64(k * n_value), v)
            of_first = abd[4 * k] * x + abd[4 * k + 1] * y
            for j in range(n_own):
                cos, sin = cos_sin((of_first + abd[4 * k + 1] * real(j * apart)) + abd[4 * k + 2] * c[j])
                for s in range(0, n_value, 2):
                    i = j * n_value + s
                    total[i] += v[s] * cos
                    total[i] += v[s + 1] * sin
                    total[i + 1] += v[s + 1] * cos
                    total[i + 1] -= v[s] * sin

    return add
