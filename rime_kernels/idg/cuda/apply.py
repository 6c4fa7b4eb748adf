"""CUDA kernels that multiply the pixels of subgrids by taper, w phase and A-terms, and their adjoints."""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import complex64, complex128, float32, float64, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceKernel, Module, Pointer
from rime_kernels.gridding.cuda.items import ANTENNA1, ANTENNA2, FLIP, SLOT
from rime_kernels.gridding.cuda.planes import turn_function
from rime_kernels.idg.cuda.parts import make_read, make_write
from rime_kernels.idg.cuda.subgrids import place

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda


class Apply(NamedTuple):
    """What the kernels that apply tapers, w and A-terms are compiled for.

    Attributes
    ----------
    single : bool
    kind : 0, 1 or 2
        A-terms: none, scalar, 2 x 2.
    size : int
        S, pixels of a subgrid along an axis.
    n_plane, n_sum : int
    element : tuple of int
        TaskKind 2: which elements of the coherency the sums are.
    feeds : tuple of complex, 4 n_plane
        TaskKind 2: elements of the brightness from the planes.
    """

    single: bool
    kind: int
    size: int
    n_plane: int
    n_sum: int
    element: tuple[int, ...]
    feeds: tuple[complex, ...]


@functools.cache
def make_apply(key: Apply, adjoint: bool) -> DeviceKernel:
    """Kernel that makes what is summed from the pixels of subgrids: tapers, w and A-terms; or its adjoint.

    `subgrids` complex (n_item, n_plane, S, S), the middle pixel at place (0, 0); `sums` real, for each item
    and pixel n_sum complex numbers. Screens are (n_slot, n_antenna, S, S, elements).
    """
    single, kind, n_plane, n_sum = key.single, key.kind, key.n_plane, key.n_sum
    cplx, real = (complex64, float32) if single else (complex128, float64)
    size, n_pixel, n_value, n_element = key.size, key.size**2, 2 * n_sum, 4 if key.kind == 2 else 1
    cos_sin, element, feeds = turn_function(single), key.element, key.feeds
    read, write = make_read(single, n_value), make_write(single, n_value)

    @device.kernel(0)
    def apply(
        n_item: int, first_item: int, layer_w: float, items: Array, w_item: Array, curvature: Array,
        taper: Array, screens: Array, subgrids: Array, sums: Pointer,
    ) -> None:  # fmt: skip
        b = cuda.local.array(4, cplx)
        e = cuda.local.array(4, cplx)
        f = cuda.local.array(4, cplx)
        v = cuda.local.array(n_value, real)
        i = cuda.grid(1)
        while i < int64(n_item) * n_pixel:
            local = uint32(uint64(i) // uint64(n_pixel))
            pixel = uint32(i - int64(local) * n_pixel)
            row, item = uint32(pixel // uint32(size)), first_item + local
            x, y = place(uint32(pixel - row * uint32(size)), size), place(row, size)
            cos, sin = cos_sin((w_item[item] - layer_w) * curvature[pixel])
            if adjoint:
                sin = -sin
                read(sums, int64(i) * n_value, v)
            factor = cplx(complex(taper[pixel] * cos, taper[pixel] * sin))
            if kind > 0:
                slot, p, q = items[item, SLOT], items[item, ANTENNA1], items[item, ANTENNA2]
                for k in range(n_element):
                    if adjoint:
                        e[k], f[k] = screens[slot, p, pixel, k].conjugate(), screens[slot, q, pixel, k]
                    else:
                        e[k], f[k] = screens[slot, p, pixel, k], screens[slot, q, pixel, k].conjugate()
            if kind == 2:
                for k in range(4):
                    b[k] = cplx(0)
                    if not adjoint:
                        for s in range(n_plane):
                            b[k] += cplx(feeds[k * n_plane + s]) * subgrids[local, s, y, x]
                flip = items[item, FLIP]
                for c in range(n_sum):
                    # Rows and columns of turned baselines change places.
                    k, j = element[c] // 2, element[c] % 2
                    if flip:
                        k, j = j, k
                    e0, e1 = (e[2], e[3]) if k else (e[0], e[1])
                    f0, f1 = (f[2], f[3]) if j else (f[0], f[1])
                    if adjoint:
                        z = factor * cplx(complex(v[2 * c], v[2 * c + 1]))
                        b[0] += e0 * z * f0
                        b[2] += e1 * z * f0
                        b[1] += e0 * z * f1
                        b[3] += e1 * z * f1
                    else:
                        z = factor * ((e0 * b[0] + e1 * b[2]) * f0 + (e0 * b[1] + e1 * b[3]) * f1)
                        v[2 * c], v[2 * c + 1] = z.real, z.imag
                if adjoint:
                    for s in range(n_plane):
                        total = cplx(0)
                        for k in range(4):
                            total += cplx(feeds[k * n_plane + s].conjugate()) * b[k]
                        subgrids[local, s, y, x] = total
            else:
                if kind == 1:
                    factor *= e[0] * f[0]
                for s in range(n_plane):
                    if adjoint:
                        subgrids[local, s, y, x] = factor * cplx(complex(v[2 * s], v[2 * s + 1]))
                    else:
                        z = factor * subgrids[local, s, y, x]
                        v[2 * s], v[2 * s + 1] = z.real, z.imag
            if not adjoint:
                write(sums, int64(i) * n_value, 0, v)
            i += cuda.gridsize(1)

    return apply
