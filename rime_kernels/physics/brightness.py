"""Stokes brightness: spectra, and the map to correlations (physics: sections 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import scalar
from rime_kernels.errors import InputError

_STOKES_TO_CORR: dict[str, tuple[complex, complex, complex, complex]] = {
    "I": (1, 0, 0, 0),
    "Q": (0, 1, 0, 0),
    "U": (0, 0, 1, 0),
    "V": (0, 0, 0, 1),
    "XX": (1, 1, 0, 0),
    "XY": (0, 0, 1, 1j),
    "YX": (0, 0, 1, -1j),
    "YY": (1, -1, 0, 0),
    "RR": (1, 0, 0, 1),
    "RL": (0, 1, 1j, 0),
    "LR": (0, 1, -1j, 0),
    "LL": (1, 0, 0, -1),
}
_ROOT = math.sqrt(0.5)
# R = (X + iY)/sqrt(2) and L = (X - iY)/sqrt(2) make RR ... of XX ... above: their products with X and Y.
_STOKES_TO_CORR |= {
    "RX": (_ROOT, _ROOT, 1j * _ROOT, _ROOT),
    "RY": (1j * _ROOT, -1j * _ROOT, _ROOT, 1j * _ROOT),
    "LX": (_ROOT, _ROOT, -1j * _ROOT, -_ROOT),
    "LY": (-1j * _ROOT, 1j * _ROOT, _ROOT, 1j * _ROOT),
    "XR": (_ROOT, _ROOT, -1j * _ROOT, _ROOT),
    "XL": (_ROOT, _ROOT, 1j * _ROOT, -_ROOT),
    "YR": (-1j * _ROOT, 1j * _ROOT, _ROOT, -1j * _ROOT),
    "YL": (1j * _ROOT, -1j * _ROOT, _ROOT, -1j * _ROOT),
}


def stokes_to_corr(corr_type: Sequence[str]) -> NDArray[np.complex128]:
    """The matrix that makes correlations of (I, Q, U, V), without a factor 1/2 (physics: section 3).

        XX = I+Q   XY = U+iV   YX = U-iV   YY = I-Q
        RR = I+V   RL = Q+iU   LR = Q-iU   LL = I-V

    Baselines between circular and linear feeds have RX, RY, LX, LY (or XR, XL, YR, YL), with
    R = (X + iY)/sqrt(2) and L = (X - iY)/sqrt(2), which make the second line of the first.

    Parameters
    ----------
    corr_type : sequence of str
        Names of correlations as above, or "I", "Q", "U", "V", in any order.

    Returns
    -------
    complex128 (n_corr, 4)

    Raises
    ------
    InputError
        Empty, or a name that is none of these.
    """
    names = [corr_type] if isinstance(corr_type, str) else list(corr_type)
    unknown = [name for name in names if name not in _STOKES_TO_CORR]
    if unknown or not names:
        given = ", ".join(map(repr, unknown)) or "none"
        raise InputError(f"correlations must be among {', '.join(_STOKES_TO_CORR)}; got {given}")
    return np.array([_STOKES_TO_CORR[name] for name in names], dtype=np.complex128)


@scalar
def spectral_variable(ratio: float, is_log: bool) -> float:
    """The variable of the spectral polynomial: ln(nu/nu0), or nu/nu0 - 1; float64."""
    return math.log(ratio) if is_log else ratio - 1.0


@scalar
def spectral_factor(polynomial: float, x: float, is_log: bool) -> float:
    """S(nu)/S0 from the polynomial a0 + a1 x + ... (or c1 + c2 x + ...) at x: exp(x p), or 1 + x p."""
    return math.exp(x * polynomial) if is_log else 1.0 + x * polynomial


@scalar
def spectral_slope(factor: float, x: float, is_log: bool) -> float:
    """The derivative of `spectral_factor` with respect to the polynomial."""
    return x * factor if is_log else x


@scalar
def brightness(s0: float, factor: float) -> float:
    """S0 times its spectral factor; S0 = 0 is 0, whatever the factor."""
    return s0 * factor if s0 != 0.0 else s0


@scalar
def _sinc(x: float) -> tuple[float, float]:
    """sin(x)/x and its derivative."""
    if abs(x) < 0.1:
        # Terms of x^8 and more are below 3e-14.
        y = x * x
        value = 1.0 - y / 6.0 * (1.0 - y / 20.0 * (1.0 - y / 42.0))
        return value, -x / 3.0 * (1.0 - y / 10.0 * (1.0 - y / 28.0 * (1.0 - y / 54.0)))
    value = math.sin(x) / x
    return value, (math.cos(x) - value) / x


@scalar
def faraday(wave2: float, rm: float, wave2_0: float, slab: float, sigma: float) -> tuple[float, float]:
    """What Q + iU at lambda0 is multiplied by at lambda.

        exp(2i RM (lambda^2 - lambda0^2)) sin(R lambda^2)/(R lambda^2) exp(-2 sigma^2 lambda^4)

    Sources of Faraday depths from RM - R/2 to RM + R/2 alike, as a slab that emits and turns (Burn 1966,
    MNRAS 133, 67, whose slab begins at depth 0: RM = R/2), and a screen before it whose depth scatters by
    sigma.
    Angles turn from N through E with positive RM; depolarisation is relative to lambda = 0.

    Parameters
    ----------
    wave2, wave2_0 : float, m^2
        lambda^2 and lambda0^2.
    rm, slab, sigma : float, rad/m^2

    Returns
    -------
    two floats
        Real and imaginary part.
    """
    sinc, _ = _sinc(slab * wave2)
    size, angle = sinc * math.exp(-2.0 * (sigma * wave2) ** 2), 2.0 * rm * (wave2 - wave2_0)
    return size * math.cos(angle), size * math.sin(angle)


@scalar
def faraday_slopes(wave2: float, rm: float, wave2_0: float, slab: float, sigma: float) -> tuple[float, ...]:
    """The derivatives of `faraday` by rm, wave2_0, slab, sigma: eight floats, re and im in turn."""
    sinc, slope = _sinc(slab * wave2)
    fall, angle = math.exp(-2.0 * (sigma * wave2) ** 2), 2.0 * rm * (wave2 - wave2_0)
    cos, sin = fall * math.cos(angle), fall * math.sin(angle)
    by_rm, by_0 = 2.0 * (wave2 - wave2_0) * sinc, -2.0 * rm * sinc
    by_slab, by_sigma = wave2 * slope, -4.0 * sigma * wave2 * wave2 * sinc
    return (
        -by_rm * sin,
        by_rm * cos,
        -by_0 * sin,
        by_0 * cos,
        by_slab * cos,
        by_slab * sin,
        by_sigma * cos,
        by_sigma * sin,
    )
