"""Shapes of sources: against eht-imaging's models, integrals over the sky, and differences."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.special import jv

from rime_kernels.physics import bessel
from rime_kernels.physics import profiles as kinds

# fmt: off
EHT = [
    "disk", "blurred_disk", "ring", "thick_ring", "stretched_ring", "stretched_thick_ring", "crescent",
    "blurred_crescent", "mring_1", "mring_2", "mring_3", "mring_123", "thick_mring", "stretched_mring",
    "stretched_thick_mring",
]
# fmt: on


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
    return np.array([complex(*kinds.profile_visibility(kind, *x, *p)) for x in zip(a, b, strict=True)])


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


RADIAL = {"sphere": (kinds.SPHERE, given()), "exponential_disc": (kinds.EXPONENTIAL, given())}


@pytest.mark.parametrize("name", RADIAL)
def test_agrees_with_integrals_over_the_radius(truth: Any, name: str) -> None:
    file = truth("jones/shapes")
    kind, p = RADIAL[name]
    found = visibilities(kind, file["rho"], 0 * file["rho"], p)
    # The file's closed form of the sphere loses digits to cancellation at small rho.
    np.testing.assert_allclose(found, file[name], rtol=0, atol=1e-12)


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
        re, im = kinds.profile_visibility(kind, 0.6 * rho, 0.8 * rho, *given(p0=p))
        # 80 nodes integrate six turns of J0 to rounding.
        assert re == pytest.approx(expected, abs=2e-14)
        assert im == 0.0


def test_a_sphere_is_a_disc_wholly_darkened_and_an_annulus_without_width_a_ring() -> None:
    for a in (0.0, 0.3, 2.9, 11.0):
        sphere, _ = kinds.profile_visibility(kinds.SPHERE, a, 0.1, *given())
        assert kinds.profile_visibility(kinds.LIMB_DARKENED, a, 0.1, *given(p0=1.0))[0] == sphere
        ring, _ = kinds.profile_visibility(kinds.RING, a, 0.1, *given())
        # Three nodes at one place sum with weights 5/18, 8/18, 5/18.
        assert kinds.profile_visibility(kinds.ANNULUS, a, 0.1, *given(p0=1.0))[0] == pytest.approx(
            ring, abs=1e-15
        )


def draws(kind: int) -> list[float]:
    """Coordinates and parameters away from the ends of their ranges, the same in every run."""
    rng = np.random.default_rng(kind)
    p = list(rng.uniform(0.1, 0.9, 8))
    used = USED.get(kind, 0)
    return [*rng.normal(0, 1.2, 2), *p[:used], *[0.0] * (7 - used), p[7]]


USED = {kinds.LIMB_DARKENED: 1, kinds.ANNULUS: 1, kinds.MRING: 7, kinds.CRESCENT: 4}


@pytest.mark.parametrize("kind", range(kinds.N_KIND))
@pytest.mark.parametrize("scale", [1e-6, 0.1, 1.0, 2.0])
def test_slopes_are_those_of_the_visibility(kind: int, scale: float) -> None:
    x = np.array(draws(kind))
    x[:2] *= scale
    found = np.reshape(kinds.profile_slopes(kind, *x), (-1, 2))
    np.testing.assert_allclose(found[0], kinds.profile_visibility(kind, *x), rtol=0, atol=1e-14)
    for i in range(10):
        if x[i] == 0.0:  # not used
            np.testing.assert_array_equal(found[1 + i], 0)
            continue
        h = 1e-3
        sampled = [
            np.array(kinds.profile_visibility(kind, *(x + k * h * np.eye(10)[i]))) for k in (-2, -1, 1, 2)
        ]
        expected = (sampled[0] - 8 * sampled[1] + 8 * sampled[2] - sampled[3]) / (12 * h)
        # Differences of the fourth order: h^4/30 of the fifth derivative, of the order of pi^5 and less.
        np.testing.assert_allclose(found[1 + i], expected, rtol=0, atol=1e-7, err_msg=f"argument {i}")


@pytest.mark.parametrize("kind", range(kinds.N_KIND))
def test_the_centre_is_smooth(kind: int) -> None:
    x = np.array(draws(kind))
    x[:2] = 0.0
    total = x[8] if kind == kinds.MRING else 1.0
    found = kinds.profile_slopes(kind, *x)
    assert np.isfinite(found).all()
    assert found[:2] == pytest.approx((total, 0.0), abs=1e-15)


def test_bessel_functions() -> None:
    z = np.concatenate([np.linspace(1e-3, 8.5, 500), np.linspace(8, 300, 500)])
    found = np.array([bessel.ratios(x) for x in z])
    for m in range(5):
        # Series of alternating terms up to 114 lose two digits at z = 8.
        np.testing.assert_allclose(found[:, m] * z**m, jv(m, z), rtol=0, atol=2e-14)
