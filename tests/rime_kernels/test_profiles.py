"""Shapes of sources: against eht-imaging's models, integrals over the sky, and differences."""

from __future__ import annotations

import hashlib
import json
import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit
from scipy.integrate import quad
from scipy.special import gamma, jv, kv

from rime_kernels.physics import bessel, sersic
from rime_kernels.physics import profiles as kinds

# fmt: off
EHT = [
    "disk", "blurred_disk", "ring", "thick_ring", "stretched_ring", "stretched_thick_ring", "crescent",
    "blurred_crescent", "mring_1", "mring_2", "mring_3", "mring_123", "thick_mring", "stretched_mring",
    "stretched_thick_mring",
]
# fmt: on


# Hz; one shape alone depends on it.
NU = 1.3

# What only compiled functions call, for Python.
profile_visibility = njit(lambda *arguments: kinds.profile_visibility(*arguments))
profile_slopes = njit(lambda *arguments: kinds.profile_slopes(*arguments))
ratios = njit(lambda z: bessel.ratios(z))
high_ratios = njit(lambda first, z: bessel.high_ratios(first, z))

turned_contour = runpy.run_path(str(Path(__file__).with_name("sersic_table.py")))["visibility"]


def given(**values: float) -> list[float]:
    """Eight parameters by name, p0 ... p7; those not named are 0."""
    return [values.get(f"p{i}", 0.0) for i in range(8)]


def eht_shape(name: str, k: dict[str, Any]) -> tuple[int, list[float]]:
    """Code and parameters of a model of eht-imaging; its angles start at north, ours at the major axis."""
    p = given(p7=k.get("alpha", 0.0) / k["d"])
    if "crescent" in name:
        p[:4] = k["fr"], k["fo"], k["ff"], k["phi"]
        return kinds.CRESCENT, p
    if "disk" in name:
        return kinds.DISC, p
    if "mring" not in name:
        return kinds.RING, p
    p[6] = 1.0
    for m, (re, im) in enumerate(k["beta_list"], start=1):
        turned = complex(re, im) * np.exp(1j * m * k.get("stretch_PA", 0.0))
        p[2 * m - 2 : 2 * m] = turned.real, turned.imag
    return kinds.MRING, p


def visibilities(kind: int, a: np.ndarray, b: np.ndarray, p: list[float]) -> np.ndarray:
    return np.array([complex(*profile_visibility(kind, *x, *p, NU)) for x in zip(a, b, strict=True)])


@pytest.mark.parametrize("name", EHT)
def test_agrees_with_eht_imaging(truth: Any, name: str) -> None:
    file = truth("jones/shapes")
    k, u, v = json.loads(str(file["params"]))[name], file["u"], file["v"]
    pa = k.get("stretch_PA", 0.0)
    a = k["d"] * k.get("stretch", 1.0) * (u * np.sin(pa) + v * np.cos(pa))
    b = k["d"] * (u * np.cos(pa) - v * np.sin(pa))
    phase = np.exp(2j * np.pi * (u * k["x0"] + v * k["y0"]))
    kind, p = eht_shape(name, k)
    found = k["F0"] * phase * visibilities(kind, a, b, p)
    # Bessel functions are good to 1e-14; the rest is rounding.
    np.testing.assert_allclose(found, file[f"vis_{name}"], rtol=0, atol=2e-14)


# Kind, parameters, and how near the values should be. The closed form of the sphere in the file loses digits
# to cancellation at small rho; a Sersic profile is as good as the table's series; the others are rounding.
RADIAL = {
    "sphere": (kinds.SPHERE, given(), 1e-12),
    "exponential_disc": (kinds.EXPONENTIAL, given(), 1e-15),
    "sersic_1": (kinds.SERSIC, given(p0=1.0), 2e-10),
    "sersic_2.3": (kinds.SERSIC, given(p0=2.3), 2e-10),
    "sersic_4": (kinds.SERSIC, given(p0=4.0), 2e-10),
    "beta_2_3": (kinds.BETA_MODEL, given(p0=2 / 3), 1e-14),
    "beta_0.8": (kinds.BETA_MODEL, given(p0=0.8), 1e-14),
    "beta_1": (kinds.BETA_MODEL, given(p0=1.0), 1e-14),
}


@pytest.mark.parametrize("name", RADIAL)
def test_agrees_with_integrals_over_the_radius(truth: Any, name: str) -> None:
    file = truth("jones/shapes")
    kind, p, tolerance = RADIAL[name]
    found = visibilities(kind, 0.6 * file["rho"], 0.8 * file["rho"], p)
    np.testing.assert_allclose(found, file[name], rtol=0, atol=tolerance)


@pytest.mark.parametrize(("kind", "p"), [(kinds.LIMB_DARKENED, 0.6), (kinds.ANNULUS, 0.55)])
def test_discs_with_structure_agree_with_integrals(kind: int, p: float) -> None:
    # Gauss-Legendre in r = sin t (the limb is smooth in t), J0 over the angle.
    node, weight = np.polynomial.legendre.leggauss(80)
    low = np.arcsin(p) if kind == kinds.ANNULUS else 0.0
    t = low + (np.pi / 2 - low) * (node + 1) / 2
    brightness = 1 - p * (1 - np.cos(t)) if kind == kinds.LIMB_DARKENED else 1.0
    area = weight * np.sin(t) * np.cos(t) * brightness
    for rho in (0.0, 1e-3, 0.4, 1.7, 6.0):
        expected = area @ jv(0, np.pi * rho * np.sin(t)) / area.sum()
        re, im = profile_visibility(kind, 0.6 * rho, 0.8 * rho, *given(p0=p), NU)
        # 80 nodes integrate six turns of J0 to rounding.
        assert re == pytest.approx(expected, abs=2e-14)
        assert im == 0.0


@pytest.mark.parametrize("m", range(4, 13))
def test_high_orders_along_a_ring_agree_with_the_sum_over_the_ring(m: int) -> None:
    beta, (a, b) = 0.3 - 0.2j, np.random.default_rng(m).normal(size=(2, 20)) * 3
    angle = 2 * np.pi * np.arange(256) / 256  # from the axis of a towards that of b
    brightness = 2 * (beta * np.exp(1j * m * angle)).real
    turns = 0.5 * (a[:, None] * np.cos(angle) + b[:, None] * np.sin(angle))
    expected = (np.exp(2j * np.pi * turns) @ brightness) / 256
    first = 4 + 3 * ((m - 4) // 3)
    p = given(p6=first, **{f"p{2 * (m - first)}": beta.real, f"p{2 * (m - first) + 1}": beta.imag})
    # Trapezoids around a circle are exact; Bessel functions lose two digits at z = 8.
    np.testing.assert_allclose(visibilities(kinds.HIGH_MRING, a, b, p), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [1.0, 2.3, 4.0])
def test_elliptical_sersic_profiles(truth: Any, n: float) -> None:
    file = truth("jones/shapes")
    k, u, v = json.loads(str(file["sersic_elliptical_params"])), file["u"], file["v"]
    a = k["Re_maj"] * (u * np.sin(k["PA"]) + v * np.cos(k["PA"]))
    b = k["Re_maj"] * k["ratio"] * (u * np.cos(k["PA"]) - v * np.sin(k["PA"]))
    phase = np.exp(2j * np.pi * (u * k["x0"] + v * k["y0"]))
    found = k["F0"] * phase * visibilities(kinds.SERSIC, a, b, given(p0=n))
    # As good as the table's series.
    np.testing.assert_allclose(found, file[f"vis_sersic_{n:g}_elliptical"], rtol=0, atol=3e-10)


@pytest.mark.parametrize("n", [0.3, 0.47, 0.9999, 1.0001, 1.7, 2.8999, 2.9001, 5.5, 8.0])
def test_sersic_profiles_agree_with_a_turned_contour(n: float) -> None:
    rho = np.logspace(-8, 7, 151)
    found = visibilities(kinds.SERSIC, rho, 0 * rho, given(p0=n)).real
    # As good as the table's series; from the end of the table the power law is good to 2e-9.
    np.testing.assert_allclose(found, turned_contour(n, rho), rtol=0, atol=2e-9)


def test_a_sersic_profile_of_one_half_is_a_gaussian() -> None:
    # exp(-b R^2) with half of the flux within R = 1: b = ln 2.
    rho = np.linspace(0, 4, 41)
    found = visibilities(kinds.SERSIC, rho, 0 * rho, given(p0=0.5)).real
    np.testing.assert_allclose(found, np.exp(-((np.pi * rho) ** 2) / np.log(2)), rtol=0, atol=2e-10)


@pytest.mark.parametrize("n", [0.7, 2.4, 5.5])
def test_sersic_profiles_beyond_their_table_are_powers(n: float) -> None:
    def slopes(r: float, n: float = n) -> np.ndarray:
        """V, dV/dr and dV/dn."""
        found = np.reshape(profile_slopes(kinds.SERSIC, r, 0.0, *given(p0=n), NU), (-1, 2))[:, 0]
        return found[[0, 1, 3]]

    # Far out V falls as r^-(2 + 1/n): exact to rounding, which 1e6 to that power does not amplify.
    value, by_r, by_n = slopes(1e6)
    assert slopes(2e6)[0] == pytest.approx(value * 2.0 ** -(2.0 + 1.0 / n), rel=1e-12)
    assert by_r == pytest.approx(-(2.0 + 1.0 / n) * value / 1e6, rel=1e-12)
    # Differences of second order with a step of 1e-4.
    step = 1e-4
    expected = (slopes(1e6, n + step)[0] - slopes(1e6, n - step)[0]) / (2.0 * step)
    assert by_n == pytest.approx(expected, rel=1e-5)
    # At the centre 1 - V goes as r^2, and so do its derivatives.
    near, nearer = slopes(1e-7), slopes(5e-8)
    np.testing.assert_allclose(nearer[1:], near[1:] * [0.5, 0.25], rtol=1e-12)
    curved = (slopes(1e-7, n + step)[1] - slopes(1e-7, n - step)[1]) / (2.0 * step)
    assert near[2] == pytest.approx(0.5e-7 * curved, rel=1e-5)
    assert 1.0 - near[0] == pytest.approx(-0.5 * near[1] * 1e-7, rel=1e-2)  # 1e-16 of 1e-13


def test_the_cache_of_machine_code_sees_a_new_table() -> None:
    assert hashlib.sha256(sersic.TABLE.read_bytes()).hexdigest() == sersic.TABLE_SHA256


@pytest.mark.parametrize("beta", [0.51, 0.6, 1.5, 5.0])
def test_beta_models_agree_with_bessel_functions(beta: float) -> None:
    rho, mu = np.logspace(-6, 1, 57), 3 * beta - 1.5
    k = 2 * np.pi * rho
    found = visibilities(kinds.BETA_MODEL, rho, 0 * rho, given(p0=beta)).real
    np.testing.assert_allclose(found, 2 * (k / 2) ** mu * kv(mu, k) / gamma(mu), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("m", "n"), [(0, 0), (1, 0), (0, 1), (3, 2), (5, 5), (8, 2), (10, 0)])
def test_shapelets_are_the_transform_of_hermite_functions(m: int, n: int) -> None:
    # The integral over the sky of H_m(x) H_n(y) e^(-(x^2 + y^2)/2) by Gauss-Hermite quadrature.
    node, weight = np.polynomial.hermite.hermgauss(80)
    x, weight = node * np.sqrt(2), weight * np.sqrt(2)

    def along(order: int, q: float) -> complex:
        h = np.polynomial.hermite.hermval(x, [0] * order + [1]) / np.sqrt(2.0**order * math.factorial(order))
        return complex(weight @ (h * np.exp(2j * np.pi * q * x))) / np.sqrt(2 * np.pi)

    p = given(p0=max(m - 4, 0), p1=n)
    p[2 + min(m, 4)] = 0.7
    for a, b in ((0.0, 0.0), (0.13, -0.21), (-0.4, 0.3)):
        expected = 0.7 * along(m, a) * along(n, b)
        # Sums of 80 terms with signs that alternate, of the order of 10.
        assert complex(*profile_visibility(kinds.SHAPELETS, a, b, *p, NU)) == pytest.approx(
            expected, abs=1e-13
        )


@pytest.mark.parametrize("nu", [0.35, 0.9, 1.3, 6.0])
def test_a_gaussian_with_an_index_gradient_is_the_integral_over_the_sky(nu: float) -> None:
    # In units of the axes; trapezoids over a Gaussian are exact to rounding where they are this narrow.
    x, y = np.meshgrid(0.02 * np.arange(-250, 251), 0.02 * np.arange(-250, 251))
    index, p = -0.7, given(p0=1.4, p1=-2.1, p2=0.9)
    gauss = 2.0 ** (-4.0 * (x**2 + y**2))
    bright = gauss / gauss.sum() * (nu / 0.9) ** (index + 1.4 * x - 2.1 * y)
    for a, b in ((0.0, 0.0), (0.21, -0.4), (-0.3, 0.05), (0.9, 0.7)):
        expected = np.sum(bright * np.exp(2j * np.pi * (a * x + b * y)))
        found = (nu / 0.9) ** index * complex(*profile_visibility(12, a, b, *p, nu))
        assert found == pytest.approx(expected, rel=1e-13, abs=1e-13)


def test_a_sphere_is_a_disc_wholly_darkened_and_an_annulus_without_width_a_ring() -> None:
    for a in (0.0, 0.3, 2.9, 11.0):
        sphere, _ = profile_visibility(kinds.SPHERE, a, 0.1, *given(), NU)
        assert profile_visibility(kinds.LIMB_DARKENED, a, 0.1, *given(p0=1.0), NU)[0] == sphere
        ring, _ = profile_visibility(kinds.RING, a, 0.1, *given(), NU)
        # Three nodes at one place sum with weights 5/18, 8/18, 5/18.
        assert profile_visibility(kinds.ANNULUS, a, 0.1, *given(p0=1.0), NU)[0] == pytest.approx(
            ring, abs=1e-15
        )


def draws(kind: int) -> list[float]:
    """Coordinates and parameters away from the ends of their ranges, the same in every run."""
    rng = np.random.default_rng(kind)
    p = list(rng.uniform(0.1, 0.9, 8))
    if kind == kinds.SHAPELETS:
        return [*rng.normal(0, 0.2, 2), 3.0, 2.0, *p[2:]]
    if kind == kinds.SERSIC:
        p[0] = 2.4
    if kind == kinds.HIGH_MRING:
        p[6] = 5.0
    if kind == kinds.GRADIENT_GAUSSIAN:
        p[2] = 0.9
    used = USED.get(kind, 0)
    return [*rng.normal(0, 1.2, 2), *p[:used], *[0.0] * (7 - used), p[7]]


USED = {
    kinds.SERSIC: 1,
    kinds.BETA_MODEL: 1,
    kinds.LIMB_DARKENED: 1,
    kinds.ANNULUS: 1,
    kinds.MRING: 7,
    kinds.HIGH_MRING: 7,
    kinds.CRESCENT: 4,
    kinds.GRADIENT_GAUSSIAN: 3,
}


@pytest.mark.parametrize("kind", range(kinds.N_KIND))
@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 2.0])
def test_slopes_are_those_of_the_visibility(kind: int, scale: float) -> None:
    x = np.array(draws(kind))
    x[:2] *= scale
    found = np.reshape(profile_slopes(kind, *x, NU), (-1, 2))
    np.testing.assert_allclose(found[0], profile_visibility(kind, *x, NU), rtol=0, atol=1e-14)
    for i in range(10):
        if (kind == kinds.SHAPELETS and i in (2, 3)) or (kind == kinds.HIGH_MRING and i == 8):  # orders
            continue
        if x[i] == 0.0:  # not used
            np.testing.assert_array_equal(found[1 + i], 0)
            continue
        h = 1e-3 * min(1.0, abs(x[i]))
        sampled = [
            np.array(profile_visibility(kind, *(x + k * h * np.eye(10)[i]), NU)) for k in (-2, -1, 1, 2)
        ]
        expected = (sampled[0] - 8 * sampled[1] + 8 * sampled[2] - sampled[3]) / (12 * h)
        # Differences of the fourth order: h^4/30 of the fifth derivative, of the order of pi^5 and less.
        np.testing.assert_allclose(found[1 + i], expected, rtol=0, atol=1e-7, err_msg=f"argument {i}")


@pytest.mark.parametrize("kind", range(kinds.N_KIND))
def test_the_centre_is_smooth(kind: int) -> None:
    x = np.array(draws(kind))
    x[:2] = 0.0
    total = x[8] if kind == kinds.MRING else float(kind != kinds.HIGH_MRING)
    if kind == kinds.GRADIENT_GAUSSIAN:  # what is integrated of a Gaussian times an exponential
        total = math.exp(math.log(NU / 0.9) ** 2 * (x[2] ** 2 + x[3] ** 2) / (16 * math.log(2)))
    found = profile_slopes(kind, *x, NU)
    assert np.isfinite(found).all()
    if kind != kinds.SHAPELETS:
        assert found[:2] == pytest.approx((total, 0.0), abs=1e-15)
    if kind not in (kinds.SHAPELETS, kinds.MRING, kinds.HIGH_MRING, kinds.GRADIENT_GAUSSIAN):
        # The flux is 1 whatever the parameters.
        assert found[6:] == pytest.approx(np.zeros(16), abs=1e-14)


def test_slopes_of_a_thin_annulus_are_those_of_the_mean_of_rings() -> None:
    f, a, b = 0.9997, 1.1, 0.4
    r, found = math.hypot(a, b), np.reshape(profile_slopes(kinds.ANNULUS, a, b, *given(p0=f), NU), (-1, 2))
    h = 1.0 - f * f

    def mean(function: Callable[[float, float], float]) -> float:
        return float(quad(lambda x: function(x, math.sqrt(1.0 - h * x)), 0.0, 1.0, epsabs=1e-14)[0])

    by_r = mean(lambda _, root: -np.pi * root * jv(1, np.pi * r * root))
    # dV/df = -2f dV/dh; the ring at t = 1 - h x changes by -x dJ0/dt.
    by_f = 2.0 * f * mean(lambda x, root: -x * np.pi * r / (2.0 * root) * jv(1, np.pi * r * root))
    assert found[0, 0] == pytest.approx(mean(lambda _, root: jv(0, np.pi * r * root)), abs=1e-14)
    # Three nodes integrate polynomials of fifth degree in h x: exact to rounding.
    assert found[1:4, 0] == pytest.approx([by_r * a / r, by_r * b / r, by_f], abs=1e-13)


@pytest.mark.parametrize("kind", range(kinds.N_KIND))
@pytest.mark.parametrize("broken", [0, 1, 2, 9])
def test_nan_comes_out_as_nan(kind: int, broken: int) -> None:
    x = draws(kind)
    if x[broken] == 0.0 or (kind == kinds.SHAPELETS and broken == 2):  # not used, or an order
        return
    x[broken] = math.nan
    assert math.isnan(profile_visibility(kind, *x, NU)[0] + profile_visibility(kind, *x, NU)[1])
    assert math.isnan(sum(profile_slopes(kind, *x, NU)[:2]))


def test_bessel_functions() -> None:
    z = np.concatenate([np.linspace(1e-3, 8.5, 500), np.linspace(8, 300, 500)])
    found = np.array([[*ratios(x)[:4], *high_ratios(4.0, x)] for x in z])
    for m in range(8):
        # Series of alternating terms up to 114 lose two digits at z = 8.
        np.testing.assert_allclose(found[:, m] * z**m, jv(m, z), rtol=0, atol=2e-14)
    high = np.array([high_ratios(10.0, x) for x in z])
    for m in range(10, 14):
        # Upwards from J1 and J2 errors grow with Y13, which is 10 at z = 8.
        np.testing.assert_allclose(high[:, m - 10] * z**m, jv(m, z), rtol=0, atol=1e-13)
