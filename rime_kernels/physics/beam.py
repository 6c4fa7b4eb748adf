"""Scalar antenna beams E(x), x = scale nu r; voltage patterns with E(0) = 1 (physics: section 6)."""

from __future__ import annotations

import math

from rime_kernels.compile.jit import scalar
from rime_kernels.compile.types import Scalar

# Where cos^3 = 0.1: the WSRT beam is held there.
COS3_LIMIT = 1.0881

NO_BEAM, COS3, GAUSSIAN, AIRY = range(4)
CODES = {"cos3": COS3, "gaussian": GAUSSIAN, "airy": AIRY}


@scalar
def cos3(x: float) -> Scalar:
    """cos^3(min(x, 1.0881)); NaN stays NaN."""
    c = math.cos(COS3_LIMIT if x > COS3_LIMIT else x)
    return c * c * c


@scalar
def gaussian(x: float) -> Scalar:
    """exp(-2 ln2 x^2): the power pattern E^2 falls to 1/2 at x = 1/2."""
    return math.exp(-2.0 * 0.6931471805599453 * x * x)


@scalar
def _jinc_series(x: float) -> Scalar:
    """2 J1(x) / x = sum_k (-x^2/4)^k / (k! (k+1)!), nested; for 0 <= x < 8."""
    y = -0.25 * x * x
    total = 1.0
    for i in range(24):
        k = 24.0 - i
        total = 1.0 + total * (y / (k * (k + 1.0)))
    return total


@scalar
def _hankel_p(z: float) -> Scalar:
    """P of J1 = sqrt(2/(pi x)) (P cos(x - 3 pi/4) - (8/x) Q sin(x - 3 pi/4)); z = (8/x)^2 in [0, 1]."""
    p = 1.0657770307911482e-09 - 1.4038395089577798e-10 * z
    p = 8.860855361799285e-09 + z * (-3.818735305533677e-09 + z * p)
    p = 2.6030250382020736e-08 + z * (-1.5879522872690333e-08 + z * p)
    p = 1.1307073738668152e-07 + z * (-4.719167778074151e-08 + z * p)
    p = 2.5809939131965017e-06 + z * (-4.102893385438351e-07 + z * p)
    p = 0.001831054687498473 + z * (-3.520399323335166e-05 + z * p)
    return 1.0 + z * p


@scalar
def _hankel_q(z: float) -> Scalar:
    """Q of the same; both are polynomials through Chebyshev nodes of 40-digit values, good to 1e-17."""
    q = -1.071914270433146e-09 + 1.4280722112309597e-10 * z
    q = -8.504914198988601e-09 + z * (3.773309315230924e-09 + z * q)
    q = -2.1888377038312212e-08 + z * (1.4507979244604333e-08 + z * q)
    q = -7.010042468690825e-08 + z * (3.489697880824557e-08 + z * q)
    q = -9.5058781859599e-07 + z * (2.0299308556246271e-07 + z * q)
    q = -0.00020027160644363478 + z * (8.470960796899506e-06 + z * q)
    return 0.04687499999999999 + z * q


@scalar
def _jinc_hankel(x: float) -> Scalar:
    """2 J1(x) / x for x >= 8."""
    y = 8.0 / x
    z = y * y
    sin, cos = math.sin(x), math.cos(x)
    # sqrt(2) cos(x - 3 pi/4) = sin - cos; sqrt(2) sin(x - 3 pi/4) = -(sin + cos)
    j1 = (_hankel_p(z) * (sin - cos) + y * _hankel_q(z) * (sin + cos)) / math.sqrt(math.pi * x)
    return 2.0 * j1 / x


@scalar
def airy(x: float) -> Scalar:
    """2 J1(x) / x of a uniformly lit aperture, to 1e-14; float64."""
    if x >= 8.0:
        return _jinc_hankel(x)
    return _jinc_series(x)


@scalar
def _j2_series(x: float) -> Scalar:
    """J2(x) = (x^2/8) sum_k 2 (-x^2/4)^k / (k! (k+2)!), nested; for 0 <= x < 8."""
    y = -0.25 * x * x
    total = 1.0
    for i in range(24):
        k = 24.0 - i
        total = 1.0 + total * (y / (k * (k + 2.0)))
    return 0.125 * x * x * total


@scalar
def _j2_hankel(x: float) -> Scalar:
    """J2(x) for x >= 8, from P and Q as of J1; polynomials through Chebyshev nodes, good to 1e-15."""
    y = 8.0 / x
    z = y * y
    p = 7.650007980621673e-09 + z * (-1.6880221664905546e-09 + z * 1.5874816612763837e-10)
    p = 5.490501693698619e-08 + z * (-2.2296551998641168e-08 + z * p)
    p = 5.991180516544275e-07 + z * (-1.5077816328812332e-07 + z * p)
    p = 7.74487789719881e-05 + z * (-4.301578205392141e-06 + z * p)
    p = 1.0 + z * (-0.012817382812290277 + z * p)
    q = -9.696949828966435e-09 + z * (3.044326810843566e-09 - z * 4.616925831545483e-10)
    q = -4.1476710066490334e-08 + z * (2.1325159981312354e-08 + z * q)
    q = -2.8405405865845e-07 + z * (9.148534277611278e-08 + z * q)
    q = -1.573178380601367e-05 + z * (1.469076868639134e-06 + z * q)
    q = 0.23437499999999975 + z * (0.0006008148193327153 + z * q)
    sin, cos = math.sin(x), math.cos(x)
    # sqrt(2) cos(x - 5 pi/4) = -(sin + cos); sqrt(2) sin(x - 5 pi/4) = cos - sin
    return -(p * (sin + cos) + y * q * (cos - sin)) / math.sqrt(math.pi * x)


@scalar
def airy_slope(x: float) -> Scalar:
    """The derivative of `airy`: -2 J2(x) / x; 0 at 0."""
    if x == 0.0:
        return 0.0
    j2 = _j2_hankel(x) if x >= 8.0 else _j2_series(x)
    return -2.0 * j2 / x


@scalar
def cos3_slope(x: float) -> Scalar:
    """The derivative of `cos3`: -3 cos^2(x) sin(x), and 0 where the beam is held."""
    c = math.cos(x)
    return 0.0 if x > COS3_LIMIT else -3.0 * c * c * math.sin(x)


@scalar
def gaussian_slope(x: float) -> Scalar:
    """The derivative of `gaussian`."""
    return -4.0 * 0.6931471805599453 * x * gaussian(x)


@scalar
def voltage(code: int, x: float) -> Scalar:
    """E(x) of the beam with this code; 1 for `NO_BEAM`."""
    if code == COS3:
        return cos3(x)
    if code == GAUSSIAN:
        return gaussian(x)
    if code == AIRY:
        return airy(x)
    return 1.0


@scalar
def voltage_slope(code: int, x: float) -> Scalar:
    """dE/dx of the beam with this code."""
    if code == COS3:
        return cos3_slope(x)
    if code == GAUSSIAN:
        return gaussian_slope(x)
    if code == AIRY:
        return airy_slope(x)
    return 0.0


@scalar
def argument(scale: float, nu: float, dl: float, dm: float) -> Scalar:
    """x = scale nu r, r = |(dl, dm)| in radians."""
    return scale * nu * math.sqrt(dl * dl + dm * dm)


@scalar
def argument_slopes(scale: float, nu: float, dl: float, dm: float) -> Scalar:
    """The derivatives of `argument` with respect to scale, dl and dm.

    0 at the centre, where dx/dl has no value: every beam is flat there.
    """
    r = math.sqrt(dl * dl + dm * dm)
    if r == 0.0:
        return 0.0, 0.0, 0.0
    return nu * r, scale * nu * dl / r, scale * nu * dm / r
