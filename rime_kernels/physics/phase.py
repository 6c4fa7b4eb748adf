"""The phase of a source, in turns (physics: section 2)."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import scalar
from rime_kernels.compile.types import Array, Compiled, Scalar

SPEED_OF_LIGHT = 299792458.0  # m/s

_TWO_PI = 2.0 * math.pi
# Taylor's coefficients of sin(y) = y + S1 y^3 + ... and cos(y) = 1 + C1 y^2 + ...
_S = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(8))
_C = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(9))


def directions(lm: NDArray[np.float64]) -> NDArray[np.float64]:
    """Direction cosines with n - 1 = -(l^2 + m^2) / (1 + n), which does not cancel.

    Parameters
    ----------
    lm : float64 (..., 2)

    Returns
    -------
    float64 (..., 3)
        l, m, n - 1; n - 1 is NaN where l^2 + m^2 > 1 (physics: section 1).
    """
    r2 = lm[..., 0] ** 2 + lm[..., 1] ** 2
    n = np.sqrt(1.0 - np.where(r2 <= 1.0, r2, np.nan))
    return np.concatenate([lm, (-r2 / (1.0 + n))[..., None]], axis=-1)


def pull_directions(direction: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """The derivative with respect to l, m of what has this one with respect to `directions`.

    From dn/dl = -l/n, dn/dm = -m/n.

    Parameters
    ----------
    direction, gradient : float64 (..., 3)
        l, m, n - 1, and the derivative with respect to each.

    Returns
    -------
    float64 (..., 2)
    """
    lm, n = direction[..., :2], 1.0 + direction[..., 2:]
    return gradient[..., :2] - lm / n * gradient[..., 2:]


def push_directions(direction: NDArray[np.float64], lm: NDArray[np.float64]) -> NDArray[np.float64]:
    """The change of `directions`, float64 (..., 3), with a change of l, m: the slopes of `pull_directions`.

    Parameters
    ----------
    direction : float64 (..., 3)
    lm : float64 (..., 2)
    """
    n = 1.0 + direction[..., 2:]
    return np.concatenate([lm, -np.sum(direction[..., :2] * lm, axis=-1, keepdims=True) / n], axis=-1)


@scalar
def n_minus_1(l: float, m: float) -> float:
    """n - 1 = -(l^2 + m^2) / (1 + n); NaN where l^2 + m^2 > 1."""
    r2 = l * l + m * m
    return -r2 / (1.0 + math.sqrt(1.0 - r2)) if r2 <= 1.0 else math.nan * r2


@scalar
def turns(u: float, v: float, w: float, l: float, m: float, n_minus_1: float) -> float:
    """u l + v m + w (n - 1), in the unit of u, v, w; float64."""
    return u * l + v * m + w * n_minus_1


@scalar
def nearest(x: float) -> float:
    """The whole number nearest to x."""
    return math.floor(x + 0.5)


@functools.cache
def make_cos_sin(single: bool, whole: Compiled = nearest, quarters: Compiled = nearest) -> Compiled:
    """cos and sin of 2 pi turns as a function of turns, float64, in working precision.

    `whole` and `quarters` give the nearest whole number in float64 and in working precision.

    Whole turns come off in float64 (float32 phases would lose 1e-3 at 1000 turns), quarters of a turn in
    working precision, exactly. Taylor's series take the rest, within pi/4; their first omitted terms
    are 5e-17 and 2e-18, or 2e-9 and 2.5e-8 in single precision, where rounding the turns adds 1e-7.
    No branches, so loops over sources vectorise. NaN stays NaN.
    """
    real, n_sine, n_cosine = (np.float32, 4, 4) if single else (np.float64, 7, 8)
    s = tuple(real(x) for x in _S[: n_sine + 1])
    c = tuple(real(x) for x in _C[: n_cosine + 1])

    @scalar
    def series(z: Scalar, terms: Array, n: Scalar) -> Scalar:
        total = terms[n]
        for k in range(n - 1, 0, -1):
            total = terms[k] + z * total
        return z * total

    @scalar
    def cos_sin(turns: float) -> tuple[float, float]:
        rest = real(turns - whole(turns))
        quarter = real(quarters(real(4) * rest))  # -2 ... 2
        y = real(_TWO_PI) * (rest - real(0.25) * quarter)
        z = y * y
        sine = y + y * series(z, s, n_sine)
        cosine = real(1) + series(z, c, n_cosine)
        is_odd = abs(quarter) == real(1)
        cos, sin = (sine, cosine) if is_odd else (cosine, sine)
        cos = -cos if (quarter == real(1)) | (abs(quarter) == real(2)) else cos
        sin = -sin if (quarter == real(-1)) | (abs(quarter) == real(2)) else sin
        return cos, sin

    return cos_sin
