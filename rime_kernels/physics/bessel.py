"""Bessel functions of whole order, float64, to 1e-14, on CPU and GPU alike."""

from __future__ import annotations

import math

from rime_kernels.compile.jit import physics_function, scalar

# Below, power series; from here on, Hankel's expansions.
SERIES_END = 8.0


@scalar
def jinc_series(x: float) -> float:
    """2 J1(x) / x = sum_k (-x^2/4)^k / (k! (k+1)!), nested; for 0 <= x < 8."""
    y = -0.25 * x * x
    total = 1.0
    for i in range(24):
        k = 24.0 - i
        total = 1.0 + total * (y / (k * (k + 1.0)))
    return total


@scalar
def _hankel_p(z: float) -> float:
    """P of J1 = sqrt(2/(pi x)) (P cos(x - 3 pi/4) - (8/x) Q sin(x - 3 pi/4)); z = (8/x)^2 in [0, 1]."""
    p = 1.0657770307911482e-09 - 1.4038395089577798e-10 * z
    p = 8.860855361799285e-09 + z * (-3.818735305533677e-09 + z * p)
    p = 2.6030250382020736e-08 + z * (-1.5879522872690333e-08 + z * p)
    p = 1.1307073738668152e-07 + z * (-4.719167778074151e-08 + z * p)
    p = 2.5809939131965017e-06 + z * (-4.102893385438351e-07 + z * p)
    p = 0.001831054687498473 + z * (-3.520399323335166e-05 + z * p)
    return 1.0 + z * p


@scalar
def _hankel_q(z: float) -> float:
    """Q of the same; both are polynomials through Chebyshev nodes of 40-digit values, good to 1e-17."""
    q = -1.071914270433146e-09 + 1.4280722112309597e-10 * z
    q = -8.504914198988601e-09 + z * (3.773309315230924e-09 + z * q)
    q = -2.1888377038312212e-08 + z * (1.4507979244604333e-08 + z * q)
    q = -7.010042468690825e-08 + z * (3.489697880824557e-08 + z * q)
    q = -9.5058781859599e-07 + z * (2.0299308556246271e-07 + z * q)
    q = -0.00020027160644363478 + z * (8.470960796899506e-06 + z * q)
    return 0.04687499999999999 + z * q


@scalar
def jinc_hankel(x: float) -> float:
    """2 J1(x) / x for x >= 8."""
    y = 8.0 / x
    z = y * y
    sin, cos = math.sin(x), math.cos(x)
    # sqrt(2) cos(x - 3 pi/4) = sin - cos; sqrt(2) sin(x - 3 pi/4) = -(sin + cos)
    j1 = (_hankel_p(z) * (sin - cos) + y * _hankel_q(z) * (sin + cos)) / math.sqrt(math.pi * x)
    return 2.0 * j1 / x


@scalar
def j2_series(x: float) -> float:
    """J2(x) = (x^2/8) sum_k 2 (-x^2/4)^k / (k! (k+2)!), nested; for 0 <= x < 8."""
    y = -0.25 * x * x
    total = 1.0
    for i in range(24):
        k = 24.0 - i
        total = 1.0 + total * (y / (k * (k + 2.0)))
    return 0.125 * x * x * total


@scalar
def j2_hankel(x: float) -> float:
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
def ratio_series(m: float, z: float) -> float:
    """2^m m! Jm(z) / z^m = sum_k (-z^2/4)^k m! / (k! (k+m)!), nested; for 0 <= z < 8."""
    y = -0.25 * z * z
    total = 1.0
    for i in range(24):
        k = 24.0 - i
        total = 1.0 + total * (y / (k * (k + m)))
    return total


@physics_function
def ratios(z: float) -> tuple[float, ...]:
    """Jm(z) / z^m for m = 0 .. 4, z >= 0: smooth at 0, and d/dz (Jm / z^m) = -z (J(m+1) / z^(m+1)).

    From J(m-1) + J(m+1) = (2m/z) Jm (Abramowitz & Stegun 9.1.27), downwards from two series, or upwards from
    Hankel's expansions; both directions are stable where they are taken.
    """
    if z >= SERIES_END:
        r1, r2 = 0.5 * jinc_hankel(z), j2_hankel(z) / (z * z)
        over = 1.0 / (z * z)
        r3 = (4.0 * r2 - r1) * over
        return 2.0 * r1 - z * z * r2, r1, r2, r3, (6.0 * r3 - r2) * over
    r4, r3 = ratio_series(4.0, z) / 384.0, ratio_series(3.0, z) / 48.0
    r2 = 6.0 * r3 - z * z * r4
    r1 = 4.0 * r2 - z * z * r3
    return 2.0 * r1 - z * z * r2, r1, r2, r3, r4


@scalar
def _norm(m: float) -> float:
    """1 / (2^m m!)."""
    product = 1.0
    for k in range(int(m)):
        product *= 2.0 * (k + 1.0)
    return 1.0 / product


@physics_function
def high_ratios(first: float, z: float) -> tuple[float, float, float, float]:
    """Jm(z) / z^m for m = first .. first + 3, as `ratios`; first is 2 or more, whole."""
    if z >= SERIES_END:
        before, r0 = 0.5 * jinc_hankel(z), j2_hankel(z) / (z * z)
        over = 1.0 / (z * z)
        for m in range(2, int(first)):
            before, r0 = r0, (2.0 * m * r0 - before) * over
        r1 = (2.0 * first * r0 - before) * over
        r2 = (2.0 * (first + 1.0) * r1 - r0) * over
        return r0, r1, r2, (2.0 * (first + 2.0) * r2 - r1) * over
    r3 = ratio_series(first + 3.0, z) * _norm(first + 3.0)
    r2 = ratio_series(first + 2.0, z) * _norm(first + 2.0)
    r1 = 2.0 * (first + 2.0) * r2 - z * z * r3
    return 2.0 * (first + 1.0) * r1 - z * z * r2, r1, r2, r3
