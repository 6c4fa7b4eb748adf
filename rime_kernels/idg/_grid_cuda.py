"""The gridder on a CUDA device: a thread sums the visibilities of an item for some pixels of its subgrid."""

from __future__ import annotations

import functools
from typing import Any

from numba import uint32, uint64

from rime_kernels import device
from rime_kernels.idg._parts_cuda import IdgKernel, make_next, make_read, make_write, sine_function

# The simulator replaces a global of this name while a kernel runs.
cuda: Any = device.cuda


@functools.cache
def make_grid(kernel: IdgKernel) -> Any:
    """The kernel: the adjoint of the degridder.

    A thread's pixels lie below one another, S/n_pixel rows apart. `parts` has n times `n_sum` complex numbers
    of each task: sum and -i times difference of each pair of channels, from the middle outwards, or
    visibilities. Tasks of item i are first_task[first_item + i] ... less that of the first item; `sums` gets
    `n_sum` complex numbers of each pixel, or these are added to what is there.
    """
    real, size, n_value, n_coef = kernel.real, kernel.size, kernel.n_value, kernel.n_coef
    n_own, n_grid_thread = kernel.shape.n_pixel, kernel.shape.n_grid_thread
    n_pixel, n_total, n_of_task, n_of_item = size**2, n_own * n_value, kernel.n * n_value, size**2 // n_own
    read, write, read_coef = (
        make_read(kernel.single, n_value),
        make_write(kernel.single, n_value),
        make_read(kernel.single, n_coef),
    )
    add = _make_add_even(kernel) if kernel.even else _make_add_other(kernel)

    @device.kernel(kernel.shape.max_grid_register)
    def grid(
        n_item: int, first_item: int, is_more: int, first_task: Any, coef: Any, curvature: Any, parts: Any,
        sums: Any,
    ) -> None:  # fmt: skip
        total = cuda.local.array(n_total, real)
        abd = cuda.local.array(n_coef, real)
        c = cuda.local.array(n_own, real)
        v = cuda.local.array(n_value, real)
        w = cuda.local.array(n_value, real)
        inner = cuda.local.array(n_total, real)
        cos_of = cuda.local.array(n_own, real)
        sin_of = cuda.local.array(n_own, real)
        before_cos = cuda.local.array(n_own, real)
        before_sin = cuda.local.array(n_own, real)
        twice = cuda.local.array(n_own, real)
        angle = cuda.local.array(n_own, real)
        thread = uint32(uint32(cuda.blockIdx.x) * uint32(n_grid_thread) + uint32(cuda.threadIdx.x))
        item = uint32(thread // uint32(n_of_item))
        if item >= uint32(n_item):
            return
        own = uint32(thread - item * uint32(n_of_item))
        row = uint32(own // uint32(size))
        x, y = real(own - row * uint32(size)) - real(size // 2), real(row) - real(size // 2)
        base = first_task[uint32(first_item)]
        task = uint32(first_task[uint32(first_item) + item] - base)
        end = uint32(first_task[uint32(first_item) + item + uint32(1)] - base)
        if is_more and task == end:
            return
        for j in range(n_own):
            c[j] = curvature[own + uint32(j * n_of_item)]
        for j in range(n_total):
            total[j] = real(0)
        at = uint64(task) * uint64(n_of_task)
        while task != end:
            read_coef(coef, uint64(task) * uint64(n_coef), abd)
            add(
                x,
                y,
                c,
                abd,
                parts,
                at,
                v,
                w,
                inner,
                cos_of,
                sin_of,
                before_cos,
                before_sin,
                twice,
                angle,
                total,
            )
            at += uint64(n_of_task)
            task += uint32(1)
        for j in range(n_own):
            to = (uint64(item) * uint64(n_pixel) + uint64(own + uint32(j * n_of_item))) * uint64(n_value)
            if is_more:
                read(sums, to, v)
                for s in range(n_value):
                    total[j * n_value + s] += v[s]
            write(sums, to, j * n_value, total)

    return grid


def _make_add_even(kernel: IdgKernel) -> Any:
    real, n_value, n_own = kernel.real, kernel.n_value, kernel.shape.n_pixel
    apart = kernel.size // n_own
    cos_sin, _ = sine_function(kernel.single)
    pairs = _make_pairs(kernel, 0)

    @device.inline
    def add(
        x: Any, y: Any, c: Any, abd: Any, parts: Any, at: Any, v: Any, w: Any, inner: Any, cos_of: Any,
        sin_of: Any, before_cos: Any, before_sin: Any, twice: Any, angle: Any, total: Any,
    ) -> None:  # fmt: skip
        for j in range(n_own * n_value):
            inner[j] = real(0)
        h = abd[4] * x + abd[5] * y
        for j in range(n_own):
            angle[j] = (h + abd[5] * real(j * apart)) + abd[6] * c[j]
            cos, sin = cos_sin(angle[j])
            cos_of[j], sin_of[j] = cos, sin
            before_cos[j], before_sin[j], twice[j] = cos, -sin, real(2) - real(4) * sin * sin
        pairs(parts, at, angle, v, w, cos_of, sin_of, before_cos, before_sin, twice, inner)
        m = abd[0] * x + abd[1] * y
        for j in range(n_own):
            cos, sin = cos_sin((m + abd[1] * real(j * apart)) + abd[2] * c[j])
            for s in range(j * n_value, (j + 1) * n_value, 2):
                total[s] += inner[s] * cos
                total[s] += inner[s + 1] * sin
                total[s + 1] += inner[s + 1] * cos
                total[s + 1] -= inner[s] * sin

    return add


def _make_pairs(kernel: IdgKernel, k: int) -> Any:
    """Function that adds pairs k, k + 1, ... of channels to the sums: a loop that is sure to be unrolled."""
    n_value, n_own, single = kernel.n_value, kernel.shape.n_pixel, kernel.single
    read, next_sines = make_read(single, n_value), make_next(kernel)
    rest = _make_pairs(kernel, k + 1) if k + 1 < kernel.n // 2 else None

    @device.inline
    def pairs(
        parts: Any, at: Any, angle: Any, v: Any, w: Any, cos_of: Any, sin_of: Any, before_cos: Any,
        before_sin: Any, twice: Any, inner: Any,
    ) -> None:  # fmt: skip
        read(parts, at + uint64(2 * k * n_value), v)
        read(parts, at + uint64((2 * k + 1) * n_value), w)
        for j in range(n_own):
            if k > 0:
                cos_of[j], sin_of[j], before_cos[j], before_sin[j] = next_sines(
                    k, angle[j], twice[j], cos_of[j], sin_of[j], before_cos[j], before_sin[j]
                )
            for s in range(n_value):
                inner[j * n_value + s] += cos_of[j] * v[s]
                inner[j * n_value + s] += sin_of[j] * w[s]
        if rest is not None:
            rest(parts, at, angle, v, w, cos_of, sin_of, before_cos, before_sin, twice, inner)

    return pairs


def _make_add_other(kernel: IdgKernel) -> Any:
    real, n_value, n_own, n = kernel.real, kernel.n_value, kernel.shape.n_pixel, kernel.n
    apart = kernel.size // n_own
    cos_sin, _ = sine_function(kernel.single)
    read = make_read(kernel.single, n_value)

    @device.inline
    def add(
        x: Any, y: Any, c: Any, abd: Any, parts: Any, at: Any, v: Any, w: Any, inner: Any, cos_of: Any,
        sin_of: Any, before_cos: Any, before_sin: Any, twice: Any, angle: Any, total: Any,
    ) -> None:  # fmt: skip
        for k in range(n):
            read(parts, at + uint64(k * n_value), v)
            h = abd[4 * k] * x + abd[4 * k + 1] * y
            for j in range(n_own):
                cos, sin = cos_sin((h + abd[4 * k + 1] * real(j * apart)) + abd[4 * k + 2] * c[j])
                for s in range(0, n_value, 2):
                    i = j * n_value + s
                    total[i] += v[s] * cos
                    total[i] += v[s + 1] * sin
                    total[i + 1] += v[s + 1] * cos
                    total[i + 1] -= v[s] * sin

    return add
