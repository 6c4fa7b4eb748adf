"""Motion fitted to simulated data of several epochs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import biro
from biro.models.bound.positions.motion import orbit_offset
from biro.models.files.toml import from_toml

MAS = np.pi / 648e6
YEAR = 365.25 * 86400.0
SIGMA = 0.05


def epoch(years: float, places: np.ndarray, seed: int) -> biro.Observation:
    """Points of 1 Jy and 0.5 Jy at offsets (2, 2), mas, seen in Stokes I."""
    rng = np.random.default_rng(seed)
    uvw, antennas = rng.normal(0, 1e8, (60, 3)) * [1, 1, 0], np.arange(60)
    l, m = places.T * MAS
    vis = np.exp(2j * np.pi * (uvw[:, :1] * l + uvw[:, 1:2] * m)) @ [1.0, 0.5]
    vis = vis + SIGMA * (rng.normal(size=60) + 1j * rng.normal(size=60))
    time = 5e9 + years * YEAR + antennas // 6
    made = biro.Observation.from_arrays(
        vis[:, None, None],
        uvw,
        antennas % 3,
        antennas % 3 + 1,
        time,
        [299792458.0],
        ["I"],
        weight=1 / SIGMA**2,
    )
    return replace(made, source=f"epoch {years}")


def test_two_epochs_give_proper_motion_and_many_an_orbit() -> None:
    elements = np.array([2.0, 0.3, 0.4, 3.0, 0.9, 0.5, 1.4])
    times = [0.0, 0.3, 0.7, 1.0, 1.4, 1.8]
    sets = []
    for seed, years in enumerate(times):
        primary = np.array([1.0 + 2.0 * years, -1.0 - 0.7 * years])
        companion = primary + orbit_offset(elements, years)[0]
        sets.append(epoch(years, np.array([primary, companion]), seed))

    def free(low: float, high: float, unit: str = "") -> str:
        return f'{{ prior = "uniform", low = {low}, high = {high}, unit = "{unit}" }}'

    keys = {"period": "yr", "periastron": "yr", "eccentricity": "", "semi_major": "mas"}
    keys |= dict.fromkeys(("inclination", "node", "argument"), "rad")
    orbit = ", ".join(
        f"{key} = {free(0.8 * value, 1.2 * value, unit)}"
        for (key, unit), value in zip(keys.items(), elements, strict=True)
    )
    text = f"""
[[source]]
name = "a"
I = "1 Jy"
east = {free(-3, 3, "mas")}
north = {free(-3, 3, "mas")}
pm_east = {free(0, 4, "mas/yr")}
pm_north = {free(-2, 1, "mas/yr")}
[[source]]
name = "b"
I = "0.5 Jy"
east = "a.east"
north = "a.north"
pm_east = "a.pm_east"
pm_north = "a.pm_north"
orbit = {{ {orbit} }}
[noise]
factor = 1
"""
    likelihood = biro.Likelihood(biro.join(sets), from_toml(text), precision="double")
    truth = np.array([[1.0, -1.0, 2.0, -0.7, *elements]])
    slope = likelihood.log_posterior_and_gradient(truth)[1][0]
    for i, h in enumerate(1e-4 * np.eye(truth.size)):
        p, m, pp, mm = (likelihood.log_posterior(truth + s * h)[0] for s in (1, -1, 2, -2))
        # Log-likelihoods of 1e3 have 1e-13 of rounding, over steps of 1e-4; slopes are 1e2.
        np.testing.assert_allclose(slope[i], (8 * (p - m) - (pp - mm)) / 12e-4, rtol=1e-7, atol=2e-6)
    found = biro.maximise(likelihood, seed=1, starts=truth)
    at = found.modes[0].laplace
    sigma = np.sqrt(np.diag(at.covariance))
    pulls = (at.theta - truth[0]) / sigma
    # Eleven numbers of unit variance: 4.5 sigma is once in 1e4.
    assert np.abs(pulls).max() < 4.5
    assert sigma[2] < 0.05
    # Nothing but motion fits: without it, chi-squared is hundreds of times larger.
    still = truth.copy()
    still[0, 2:4] = 0.0
    assert likelihood.chi2(still).sum() > 20 * likelihood.chi2(truth).sum()
