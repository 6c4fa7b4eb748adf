"""Two numbers of working precision that are read and written with one instruction: a complex number.

In single precision Numba reads the two halves of a complex number one by one, as it cannot know that they lie
at a multiple of 8 bytes. On a device they are therefore kept as one float64 each, whose bits are those of
both.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import complex64, complex128, float64
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import Compiled, NumbaType, Scalar


class Pairs(NamedTuple):
    """How pairs are kept in one precision."""

    kind: NumbaType  # of an array's elements
    pack: Compiled  # makes one from its real and imaginary part
    unpack: Compiled  # gives both


@functools.cache
def pairs_of(single: bool) -> Pairs:
    """The pack and unpack functions of a device, or of the simulator."""
    if device.simulated() or not single:
        whole, parts = device.inline(lambda a, b: complex(a, b)), device.inline(lambda z: (z.real, z.imag))
        return Pairs(complex64 if single else complex128, whole, parts)
    of_device = device.libdevice()
    bits, number, joined = of_device.float_as_int, of_device.int_as_float, of_device.hiloint2double
    low, high = of_device.double2loint, of_device.double2hiint

    @device.inline
    def pack(re: Scalar, im: Scalar) -> Scalar:
        return joined(bits(im), bits(re))

    @device.inline
    def unpack(z: Scalar) -> tuple[Scalar, Scalar]:
        return number(low(z)), number(high(z))

    return Pairs(float64, pack, unpack)


def as_pairs(values: NDArray[np.complex128], single: bool) -> NDArray[Any]:
    """Complex numbers, flat, as an array of pairs on the device has them."""
    if not single:
        return values.ravel()
    flat = values.astype(np.complex64).ravel()
    return flat if device.simulated() else flat.view(np.float64)
