"""Functions of one number for which a CUDA device has faster instructions than those for every machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.core import cgutils

from rime_kernels import device
from rime_kernels.compile.types import Compiled, Scalar
from rime_kernels.physics import phase

ir: Any = cgutils.ir  # LLVM's
# exp(-x) of a square x: 2 to the minus this squared times x.
EXPONENT_SCALE = math.sqrt(math.log2(math.e))
# Added to a number, it leaves whole numbers in the last bits of the sum.
_ROUNDING = 1.5 * 2.0**52


def nearest_function(single: bool, otherwise: Compiled) -> Compiled:
    """The nearest whole number, by an addition that leaves no room for a fraction.

    For |x| below 2^51, or 2^22 in single precision. `otherwise` is the function of other machines.
    """
    if device.simulated():
        return otherwise
    shift = np.float32(1.5 * 2.0**23) if single else np.float64(_ROUNDING)

    @device.inline
    def nearest(x: Scalar) -> Scalar:
        return (x + shift) - shift

    return nearest


def cos_sin_function(single: bool, otherwise: Compiled) -> Compiled:
    """cos and sin of 2 pi turns, a float64, in working precision; `otherwise` where there is nothing better.

    In single precision the device has instructions for both, good to 4e-7 within a half turn of 0; whole
    turns come off in float64 before.
    """
    if device.simulated() or not single:
        return otherwise
    libdevice = device.libdevice()
    cos, sin, two_pi = libdevice.fast_cosf, libdevice.fast_sinf, np.float32(2.0 * math.pi)

    @device.inline
    def cos_sin(turns: float) -> tuple[float, float]:
        angle = two_pi * np.float32(turns - ((turns + _ROUNDING) - _ROUNDING))
        return cos(angle), sin(angle)

    return cos_sin


def make_series_cos_sin(single: bool) -> Compiled:
    """cos and sin of 2 pi turns by Taylor's series, as on any machine; float64 turns, working precision."""
    return phase.make_cos_sin(
        single, nearest_function(False, phase.nearest), nearest_function(single, phase.nearest)
    )


def make_cos_sin(single: bool) -> Compiled:
    """Function that gives cosine and sine by the device's own instructions, where it has some."""
    return cos_sin_function(single, make_series_cos_sin(single))


def exp2_function(single: bool) -> Compiled:
    """2^-x of numbers of at least 0 on the device.

    In single precision there is an instruction for it, good to 2e-7 and 0 below 2^-126. In double precision
    a polynomial in the part within 1/2 of a whole number, right to 1e-15, and the whole part put into the
    exponent's bits; 0 below 2^-1000. Without branches, so that several are worked out at once.
    """
    if device.simulated():
        return lambda x: np.exp2(-x)
    if single:
        return _exp2_instruction()
    libdevice = device.libdevice()
    low_word, high_word, joined = libdevice.double2loint, libdevice.double2hiint, libdevice.hiloint2double
    terms = tuple(_exp2_terms())
    degree = len(terms) - 1
    # High words of 1000 and of infinity; NaN, beyond both, stays NaN.
    most, infinite = np.int32(0x408F4000), np.int32(0x7FF00000)

    @device.inline
    def exp2(x: float) -> float:
        # The last bits of this sum are the whole number nearest to -x.
        shifted = _ROUNDING - x
        rest = (_ROUNDING - shifted) - x
        # Even and odd powers are summed apart: two short chains take less time than a long one.
        square = rest * rest
        even, odd = terms[degree], terms[degree - 1]
        for k in range(degree - 2, 0, -2):
            even = terms[k] + square * even
            odd = terms[k - 1] + square * odd
        total = (terms[0] + square * even) + rest * odd
        is_nothing = most < high_word(x) <= infinite
        # The exponent begins at bit 20 of the high word: adding there multiplies by a power of two.
        high, low = high_word(total) + (low_word(shifted) << 20), low_word(total)
        return joined(0 if is_nothing else high, 0 if is_nothing else low)

    return exp2


def _exp2_instruction() -> Compiled:
    """The bare instruction: the library's function adds three more for results below 2^-126."""

    @device.intrinsic
    def exp2(typing_context: Any, x: Scalar) -> tuple[Scalar, Scalar]:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            of_float = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
            code = "{.reg .f32 x; neg.f32 x, $1; ex2.approx.ftz.f32 $0, x;}"
            instruction = ir.InlineAsm(of_float, code, "=f,f")
            return builder.call(instruction, args)

        return x(x), build

    return exp2


def _exp2_terms() -> list[float]:
    """Coefficients of 2^x within 1/2 of 0, through Chebyshev's nodes; 2^0 is 1 exactly, the degree even."""
    slope = np.polynomial.Chebyshev.interpolate(lambda x: np.expm1(x * math.log(2.0)) / x, 9, (-0.5, 0.5))
    return [1.0, *slope.convert(kind=np.polynomial.Polynomial).coef.tolist()]
