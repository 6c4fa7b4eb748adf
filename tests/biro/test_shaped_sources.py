"""Discs, rings, galaxies and the like in predictions, likelihoods and their gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numba import njit

import biro
from biro.models import read_model
from rime_kernels.physics import profiles

# Which only compiled functions call, for Python.
profile_visibility = njit(lambda *arguments: profiles.profile_visibility(*arguments))
MAS = np.pi / 648e6
C = 299792458.0
FREQ = [1.0e9, 1.3e9]
FLUX = '{ prior = "uniform", low = "1 Jy", high = "3 Jy" }'
PLACE = 'east = "3 mas"\nnorth = "-2 mas"\n'
ELLIPSE = 'emaj = "12 mas"\nratio = 0.6\npa = "40 deg"\n'
FREE_ELLIPSE = """
emaj = { prior = "uniform", low = "9 mas", high = "14 mas" }
ratio = { prior = "uniform", low = 0.4, high = 0.8 }
pa = { prior = "uniform", low = "10 deg", high = "80 deg" }
"""
NUMBER = '{ prior = "uniform", low = 0.2, high = 0.8 }'
BLUR = 'blur = { prior = "uniform", low = "2 mas", high = "4 mas" }\n'
# What each type has beside its size and its blur.
KINDS = {
    "disc": BLUR,
    "ring": BLUR,
    "limb-darkened-disc": f"limb_darkening = {NUMBER}\n",
    "annulus": f"inner_ratio = {NUMBER}\n{BLUR}",
    "sphere": BLUR,
    "exponential": "",
    "sersic": 'n = { prior = "uniform", low = 1.5, high = 2.5 }\n',
    "beta-model": f'beta = {{ prior = "uniform", low = 0.6, high = 0.9 }}\n{BLUR}',
    "crescent": f'inner_ratio = {NUMBER}\noffset = {NUMBER}\nfloor = 0.1\nhole_pa = "70 deg"\n',
    "core-halo": f'core_fraction = {NUMBER}\ncore_fwhm = "2 mas"\n' + BLUR,
    "m-ring": f"beta_re = [{NUMBER}, 0.1]\nbeta_im = [{NUMBER}, -0.2]\n"
    f"beta_pol_re = [0.1, {NUMBER}, 0.2]\nbeta_pol_im = [{NUMBER}, 0.1, 0.05]\n"
    f"beta_v_re = [0.05, {NUMBER}]\nbeta_v_im = [0, 0.1]\n" + BLUR,
}
GRADIENT = f"gradient_along = {NUMBER}\ngradient_across = -1.5\n"
KINDS["gradient-gaussian"] = GRADIENT + 'ref_freq = "0.8 GHz"\n' + BLUR
NOISE = "[noise]\nfactor = 1\n"


def observation() -> biro.Observation:
    rng = np.random.default_rng(5)
    n_row = 40
    uvw = rng.normal(0, 1.5e6, (n_row, 3))
    vis = rng.normal(size=(n_row, 2, 4)) + 1j * rng.normal(size=(n_row, 2, 4))
    antenna1, antenna2 = np.arange(n_row) % 3, np.arange(n_row) % 3 + 1
    return biro.Observation.from_arrays(
        vis, uvw, antenna1, antenna2, 5e9 + np.arange(n_row) // 3, FREQ, ["RR", "RL", "LR", "LL"], weight=4.0
    )


def likelihood_of(kind: str, shape: str, folder: Path, spectrum: str = "") -> biro.Likelihood:
    path = folder / "sky.toml"
    path.write_text(
        f'[[source]]\nname = "s"\ntype = "{kind}"\n{PLACE}I = {FLUX}\n{shape}{KINDS[kind]}{spectrum}{NOISE}'
    )
    return biro.Likelihood(observation(), read_model(path), precision="double")


def by_sums(likelihood: biro.Likelihood, theta: np.ndarray) -> np.ndarray:
    """RR, RL, LR, LL (n_row, n_chan, 4) as an explicit sum over the sources of the kernels."""
    sources = likelihood.model.sources(theta[None], 0)
    (part,) = likelihood.observation.partitions
    l, m = np.moveaxis(sources.lm[0], -1, 0)
    n = np.sqrt(1 - l**2 - m**2)
    total = np.zeros((len(part.uvw), len(FREQ), 4), dtype=complex)
    n_gaussian = sources.shape.shape[1] - sources.n_profile
    for i in range(sources.n_source):
        j = i - sources.n_point
        for f, freq in enumerate(FREQ):
            u, v, w = np.asarray(part.uvw).T * freq / C
            depth = -(l[i] ** 2 + m[i] ** 2) / (1 + n[i])
            phase = np.exp(2j * np.pi * (u * l[i] + v * m[i] + w * depth))
            u, v = u - w * l[i] / n[i], v - w * m[i] / n[i]
            emaj, emin, pa = sources.shape[0, j]
            a, b = emaj * (u * np.sin(pa) + v * np.cos(pa)), emin * (u * np.cos(pa) - v * np.sin(pa))
            if j < n_gaussian:
                envelope = np.exp(-(np.pi**2) / (4 * np.log(2)) * (a**2 + b**2)) + 0j
            else:
                k, p = sources.profile_kind[j - n_gaussian], sources.profile[0, j - n_gaussian]
                pairs = zip(a, b, strict=True)
                envelope = np.array([complex(*profile_visibility(k, *pair, *p, freq)) for pair in pairs])
            stokes_i, q, u_, v_ = sources.stokes[0, 0, i]
            feeds = np.array([stokes_i + v_, q + 1j * u_, q - 1j * u_, stokes_i - v_])
            total[:, f] += (phase * envelope)[:, None] * feeds
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_the_sum_over_the_kernels_sources(tmp_path: Path, kind: str) -> None:
    likelihood = likelihood_of(kind, ELLIPSE, tmp_path)
    theta = likelihood.prior_transform(np.full(likelihood.n_param, 0.4))
    (found,) = likelihood.predict(theta)
    # Double precision: phases of 100 turns carry 1e-13.
    np.testing.assert_allclose(found, by_sums(likelihood, theta), rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_the_likelihood(tmp_path: Path, kind: str) -> None:
    likelihood = likelihood_of(kind, FREE_ELLIPSE, tmp_path)
    theta = likelihood.prior_transform(np.full((1, likelihood.n_param), 0.45))
    _, found = likelihood.log_posterior_and_gradient(theta)
    ends = likelihood.prior_transform(np.array([[0.3], [0.7]]) * np.ones(likelihood.n_param))
    step = 1e-2 * np.abs(ends[1] - ends[0])
    for i in range(likelihood.n_param):
        h = step[i] * np.eye(likelihood.n_param)[i]
        rise = [
            likelihood.log_posterior(theta + k * h) - likelihood.log_posterior(theta - k * h)
            for k in (1, 2, 3)
        ]
        expected = (0.75 * rise[0] - 0.15 * rise[1] + rise[2] / 60.0) / step[i]
        # Differences of the sixth order over a hundredth of half a prior; the Sersic table has joints.
        np.testing.assert_allclose(found[:, i], expected, rtol=2e-6 if kind == "sersic" else 1e-7, atol=1e-5)


def test_a_gradient_of_the_spectral_index_is_the_integral_over_the_sky(tmp_path: Path) -> None:
    shape = 'emaj = "12 mas"\nemin = "7 mas"\npa = "40 deg"\nspectral_index = -0.8\n'
    likelihood = likelihood_of("gradient-gaussian", shape, tmp_path)
    theta = likelihood.prior_transform(np.full(likelihood.n_param, 0.4))
    (found,) = likelihood.predict(theta)
    values = dict(zip(likelihood.parameter_names, theta, strict=True))
    blur = values["s.blur"]
    # On a grid of the sky about the source, mas: trapezoids over a Gaussian are exact to rounding.
    east, north = np.meshgrid(0.5 * np.arange(-110, 111), 0.5 * np.arange(-110, 111))
    pa = np.radians(40)
    along, across = east * np.sin(pa) + north * np.cos(pa), east * np.cos(pa) - north * np.sin(pa)
    gauss = 2.0 ** (-4.0 * ((along / 12) ** 2 + (across / 7) ** 2))
    gradient = values["s.gradient_along"] * along / 12 - 1.5 * across / 7
    (part,) = likelihood.observation.partitions
    l, m = 3 * MAS, -2 * MAS
    for f, freq in enumerate(FREQ):
        u, v, w = np.asarray(part.uvw).T * freq / C
        bright = values["s.I"] * gauss / gauss.sum() * (freq / 0.8e9) ** (gradient - 0.8)
        phase = np.exp(2j * np.pi * (u * l + v * m - w * (l**2 + m**2) / 2))
        u, v = u - w * l, v - w * m  # the frame of the tangent plane
        turns = u[:, None, None] * east + v[:, None, None] * north
        expected = phase * (np.exp(2j * np.pi * MAS * turns) * bright).sum(axis=(1, 2))
        # The blur is a circle before it is stretched: blur along, blur 7/12 across.
        a, b = u * np.sin(pa) + v * np.cos(pa), (u * np.cos(pa) - v * np.sin(pa)) * 7 / 12
        expected *= np.exp(-(np.pi**2) / (4 * np.log(2)) * (blur * MAS) ** 2 * (a**2 + b**2))
        # Phases of 100 turns carry 1e-13; sums over 5e4 points of the sky no more.
        np.testing.assert_allclose(found[:, f, 0], expected, rtol=0, atol=1e-11)
        np.testing.assert_allclose(found[:, f, 3], expected, rtol=0, atol=1e-11)
