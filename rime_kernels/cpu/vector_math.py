"""Sine, cosine, exponential and logarithm of vectors, by polynomials in the type that the result has."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial import Polynomial, chebyshev
from numpy.typing import NDArray

from rime_kernels.compile.jit import serial_loop, vector_function
from rime_kernels.compile.types import Vector
from rime_kernels.cpu.simd import (
    between,
    constant,
    convert,
    exponent,
    fma,
    load,
    mantissa,
    nearest,
    pointer,
    polynomial,
    power_of_two,
    store,
    zeros,
)


def _fit(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]], low: float, high: float, degree: int
) -> tuple[float, ...]:
    """Coefficients of the polynomial through the Chebyshev nodes; they have the digits of float32."""
    series = chebyshev.Chebyshev.interpolate(function, degree, domain=[low, high])
    return tuple(float(c) for c in series.convert(kind=Polynomial).coef)


# sin(pi f) / f and cos(pi f) in f^2, and 2^f, for |f| <= 1/2: fitted for float32, Taylor's for float64.
_sin_over_f = polynomial(
    _fit(lambda z: math.pi * np.sinc(np.sqrt(z)), 0.0, 0.25, 4),
    tuple((-1.0) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(11)),
)
_cos = polynomial(
    _fit(lambda z: np.cos(math.pi * np.sqrt(z)), 0.0, 0.25, 5),
    tuple((-1.0) ** k * math.pi ** (2 * k) / math.factorial(2 * k) for k in range(12)),
)
_exp2 = polynomial(
    _fit(np.exp2, -0.5, 0.5, 6), tuple(math.log(2.0) ** k / math.factorial(k) for k in range(14))
)

# 2 artanh(s) / s in s^2, for |s| <= 3 - sqrt(8).
_two_artanh = polynomial(
    tuple(2.0 / (2 * k + 1) for k in range(5)), tuple(2.0 / (2 * k + 1) for k in range(11))
)
# ln 2 in two parts: a whole number of up to 11 bits times the first is exact.
_ln_2_high = polynomial((0.693138122558593750,), (6.93147180369123816490e-01,))
_ln_2_low = polynomial((9.05800061445916e-06,), (1.90821492927058770002e-10,))

_LOG2_E = math.log2(math.e)
# Numbers that a step of a loop over an array takes.
_STEP = 8
# Exponents of normal numbers.
_least, _most = polynomial((-126.0,), (-1022.0,)), polynomial((127.0,), (1023.0,))


@vector_function
def cos_sin_turns(turns: Vector, lanes_like: Vector) -> tuple[Vector, Vector]:
    """cos and sin of 2 pi turns, for any number of turns (float64), in the type of `lanes_like`.

    Whole turns come off in float64. The rest f, |f| <= 1/2, is cast, and through
    sin(pi f), cos(pi f): sin(2 pi f) = 2 sin cos, cos(2 pi f) = 1 - 2 sin^2. Absolute error: below
    6e-7 in float32, 1e-15 in float64. NaN stays NaN.
    """
    f = convert(turns - nearest(turns), lanes_like)
    z = f * f
    sine = f * _sin_over_f(z)
    twice = sine + sine
    return fma(-twice, sine, constant(1.0, sine)), twice * _cos(z)


@vector_function
def exp(x: Vector) -> Vector:
    """e^x, held within the normal numbers of the type; NaN stays NaN.

    Relative error: 2e-7 (1 + |x|/3) in float32, 3e-16 (1 + |x|/3) in float64, nearly all from the rounding
    of x log2(e).
    """
    scaled = between(_least(x), x * constant(_LOG2_E, x), _most(x))
    whole = nearest(scaled)
    return _exp2(scaled - whole) * power_of_two(whole)


@vector_function
def log1p(x: Vector) -> Vector:
    """ln(1 + x) of numbers of at least 0; NaN of NaN and of infinity.

    With 1 + x = 2^k m: k ln 2 + 2 artanh((m - 1)/(m + 1)), and what 1 + x was rounded by, over 1 + x.
    Relative error: 2.2e-7 in float32, 4e-16 in float64, for x of any size.
    """
    one = constant(1.0, x)
    y = one + x
    rest = (x - (y - one)) / y
    k, f = exponent(y), mantissa(y) - one
    s = f / (f + constant(2.0, x))
    return fma(k, _ln_2_high(y), s * _two_artanh(s * s) + fma(k, _ln_2_low(y), rest))


def cos_sin(angle: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """cos and sin of an array of angles, in a tenth of the time that NumPy takes (measured).

    Parameters
    ----------
    angle : float64, any shape, rad

    Returns
    -------
    cos, sin : float64, the same shape
        Absolute error: 1e-15 + 2e-16 |angle|. NaN of NaN and of infinity.
    """
    n = angle.size
    turns = np.zeros(-(-n // _STEP) * _STEP)
    np.multiply(angle.reshape(-1), 0.5 / math.pi, out=turns[:n])
    cos, sin = np.empty((2, turns.size))
    _fill_cos_sin(turns, cos, sin)
    return cos[:n].reshape(angle.shape), sin[:n].reshape(angle.shape)


@serial_loop
def _fill_cos_sin(turns: NDArray[np.float64], cos: NDArray[np.float64], sin: NDArray[np.float64]) -> None:
    lanes_like = zeros(np.float64, _STEP)
    of_turns, of_cos, of_sin = pointer(turns), pointer(cos), pointer(sin)
    for i in range(0, turns.size, _STEP):
        one, other = cos_sin_turns(load(of_turns, i, lanes_like), lanes_like)
        store(of_cos, i, one)
        store(of_sin, i, other)
