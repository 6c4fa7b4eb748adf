"""Noise that differs among antennas, correlations and baselines: found, said, and taken into account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from test_likelihood import sky

import biro
from biro import plots
from biro.errors import InputError
from biro.models import ModelError
from biro.observation.unequal_noise import unequal_noise
from biro.plots.antenna_residuals import scatter_of_antennas

Array = NDArray[np.float64]
FLUX = """
[[source]]
name = "a"
type = "point"
east = "3 arcsec"
north = "-2 arcsec"
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }
"""
ANTENNAS = '[noise]\nper = "antenna"\nfactor = { prior = "log-normal", sd = 1.0 }\n'
FACTORS = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])


def array(
    factors: Array = FACTORS, seed: int = 1, n_time: int = 60, by_corr: tuple[float, ...] = (1.0, 1.0)
) -> biro.Observation:
    """Noise of so many antennas, 1 Jy times factors, and weights that say 1 Jy; no sky."""
    rng, n = np.random.default_rng(seed), len(factors)
    first, second = np.triu_indices(n, 1)
    place = 300.0 * np.random.default_rng(0).normal(size=(n, 3))
    shape = (n_time * len(first), 1, len(by_corr))
    sigma = np.sqrt(factors[first] * factors[second])
    noise = rng.standard_normal((*shape, 2)).view(np.complex128)[..., 0]
    return biro.Observation.from_arrays(
        vis=noise * np.tile(sigma, n_time)[:, None, None] * np.array(by_corr),
        uvw=np.tile(place[second] - place[first], (n_time, 1)),
        antenna1=np.tile(first, n_time),
        antenna2=np.tile(second, n_time),
        time=np.repeat(5e9 + 10.0 * np.arange(n_time), len(first)),
        chan_freq=[1.4e9],
        corr_type=["XX", "XY", "YX", "YY"] if len(by_corr) == 4 else ["XX", "YY"],
        antenna_names=list("ABCDEF")[:n],
    )


def step_to_maximum(likelihood: biro.Likelihood, theta: Array, n: int = 6) -> Array:
    """The maximum of the likelihood, by steps of Fisher scoring in the logarithms of theta."""
    for _ in range(n):
        slope = likelihood.log_likelihood_and_gradient(theta)[1] * theta
        curvature = likelihood.fisher(theta) * np.outer(theta, theta)
        theta = theta * np.exp(np.clip(np.linalg.solve(curvature, slope), -0.5, 0.5))
    return theta


def flux_data(seed: int, tmp_path: Path, flux: float = 2.0) -> biro.Observation:
    """The source of `FLUX` seen with the noise of `FACTORS`."""
    obs = array(seed=seed)
    (vis,) = biro.Likelihood(obs, sky(FLUX + "[noise]\nfactor = 1\n", tmp_path)).predict([flux])
    (part,) = obs.partitions
    return replace(obs, partitions=(replace(part, vis=part.vis + vis),))


def test_factors_of_antennas_are_found(tmp_path: Path) -> None:
    likelihood = biro.Likelihood(flux_data(1, tmp_path), sky(FLUX + ANTENNAS, tmp_path))
    assert tuple(likelihood.parameter_names) == ("a.I", *(f"noise.factor[{name}]" for name in "ABCDEF"))
    found = step_to_maximum(likelihood, np.array([1.0, *np.ones(6)]))
    covariance = np.linalg.inv(likelihood.fisher(found))
    pull = (found - [2.0, *FACTORS]) / np.sqrt(np.diag(covariance))
    # Seven numbers: the largest is below 3.5 sigma but once in 300, of one seed that stays.
    assert np.abs(pull).max() < 3.5
    # The weights of the best antennas count most: the error of the flux is that of the true sigma.
    (sigma,) = likelihood.sigma(found, likelihood.predict(found))
    np.testing.assert_allclose(np.sqrt(covariance[0, 0]), np.sum(sigma**-2.0) ** -0.5, rtol=1e-3)
    # With one factor of all the error is that of a mean with equal weights, root of mean s_p s_q over N.
    plain = biro.Likelihood(likelihood.observation, sky(FLUX, tmp_path))
    (rms,) = np.sqrt(plain.chi2([2.0, 1.0]) / plain.n_data)
    product = np.outer(FACTORS, FACTORS)[np.triu_indices(6, 1)]
    lost = np.sqrt(np.mean(product) * np.mean(1.0 / product))
    # Both are known to 2 % or so.
    worse = np.sqrt(np.linalg.inv(plain.fisher([2.0, rms]))[0, 0] / covariance[0, 0])
    assert worse == pytest.approx(lost, rel=0.08)
    assert lost > 1.15


@pytest.mark.thorough
def test_intervals_of_flux_and_factors_hold_the_truth(tmp_path: Path) -> None:
    """Of 300 data sets; a noise factor fixed at 1 makes the error of the flux far too small."""
    pulls, fixed = [], []
    for seed in range(300):
        obs = flux_data(seed, tmp_path)
        likelihood = biro.Likelihood(obs, sky(FLUX + ANTENNAS, tmp_path))
        found = step_to_maximum(likelihood, np.array([2.0, *FACTORS]))
        error = np.sqrt(np.diag(np.linalg.inv(likelihood.fisher(found))))
        pulls.append((found - [2.0, *FACTORS]) / error)
        plain = biro.Likelihood(obs, sky(FLUX + "[noise]\nfactor = 1\n", tmp_path))
        (flux,) = step_to_maximum(plain, np.array([2.0]))
        fixed.append((flux - 2.0) * np.sqrt(plain.fisher([flux])[0, 0]))
    inside = np.mean(np.abs(pulls) < 1.0, axis=0), np.mean(np.abs(pulls) < 1.96, axis=0)
    print(inside, np.std(fixed))
    # Binomial errors of 300 are 2.7 % and 1.3 %; 3.5 of these.
    np.testing.assert_allclose(inside[0], 0.683, atol=0.095)
    np.testing.assert_allclose(inside[1], 0.95, atol=0.045)
    assert np.std(fixed) > 1.5


def test_the_density_of_data_is_a_normalised_one(tmp_path: Path) -> None:
    """Over the real and the imaginary part of one visibility, with noise that does not depend on the data."""
    text = ANTENNAS + 'additive = "0.7 Jy"\n'
    obs = array(np.array([1.0, 1.0]), n_time=1)
    (part,) = obs.partitions
    grid, total = np.linspace(-9.1, 9.1, 15), 0.0
    weight = np.array([[[1.0, 0.0]]], np.float32)
    model = sky(FLUX + text, tmp_path)
    for x in grid:
        for y in grid:
            vis = np.array([[[x + 1j * y, 0.0]]])
            one = replace(obs, partitions=(replace(part, vis=vis, weight=weight),))
            total += np.exp(biro.Likelihood(one, model).log_likelihood([0.3, 1.5, 0.8]))
    # Over a grid with steps of sigma = 1.3 the sum of a Gaussian is exact to 4 exp(-2 pi^2) = 1e-8.
    assert total * (grid[1] - grid[0]) ** 2 == pytest.approx(1.0, rel=1e-7)


@pytest.mark.parametrize(
    ("by_corr", "factors", "words"),
    [
        ((1.0, 1.0), np.ones(6), []),
        ((1.0, 0.5, 0.5, 1.0), np.ones(6), ['"hands"']),
        ((1.0, 0.5, 0.5, 1.5), np.ones(6), ['"correlation"']),
        ((1.0, 1.0), np.array([1.0, 1.0, 1.0, 1.0, 1.0, 2.0]), ["F (1.4", '"antenna"']),
    ],
)
def test_data_say_where_noise_differs(by_corr: tuple[float, ...], factors: Array, words: list[str]) -> None:
    obs = array(factors, by_corr=by_corr)
    lines = unequal_noise(obs.partitions, obs.antenna_names)
    assert len(lines) == bool(words)
    assert all(word in lines[0] for word in words)
    assert all(line in str(obs.summary()) for line in lines)
    assert obs.summary().to_dict()["unequal"] == lines


def test_data_say_that_short_baselines_are_noisier() -> None:
    obs = array(np.ones(6))
    (part,) = obs.partitions
    length = np.hypot(*part.uvw[:, :2].T)
    louder = np.where(length < np.quantile(length, 0.25), 2.0, 1.0)[:, None, None]
    (line,) = unequal_noise([replace(part, vis=part.vis * louder)], [f"{i}" for i in range(6)])
    assert "on baselines below" in line
    assert "[noise] additive and edges = " in line


@pytest.mark.parametrize("flux", [(5.0, 0.0, 0.0, 5.0), (6.0, 0.0, 0.0, 0.0)])
def test_fringes_that_turn_are_no_noise(flux: tuple[float, ...]) -> None:
    """A signal that turns by 0.3 rad between two times is in first differences, and hardly in second ones."""
    obs = array(np.ones(6), by_corr=(1.0, 1.0, 1.0, 1.0))
    (part,) = obs.partitions
    fringe = np.exp(0.3j * part.time_index)[:, None, None] * np.array(flux)
    turning = replace(part, vis=part.vis + fringe)
    assert unequal_noise([turning], obs.antenna_names) == []
    # With the model that has it there is nothing to turn.
    assert unequal_noise([turning], obs.antenna_names, [fringe]) == []


def test_a_noisy_antenna_far_out_is_said_once() -> None:
    """It makes long baselines noisy, which needs no second line."""
    obs = array(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 3.0]))
    (part,) = obs.partitions
    far = np.where(part.antenna2 == 5, 10.0, 1.0)[:, None]
    (line,) = unequal_noise([replace(part, uvw=part.uvw * far)], obs.antenna_names)
    assert '[noise] per = "antenna"' in line


def test_a_fit_says_it_until_the_model_has_it(tmp_path: Path) -> None:
    obs = array(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 3.0]))
    (line,) = biro.Likelihood(obs, sky(FLUX, tmp_path)).remarks([0.01, 1.3])
    assert "F (1.7" in line
    assert '[noise] per = "antenna"' in line
    fitted = biro.Likelihood(obs, sky(FLUX + ANTENNAS, tmp_path))
    assert fitted.remarks([0.01, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0]) == []


def test_correlations_with_factors_of_their_own(tmp_path: Path) -> None:
    obs = array(np.ones(6), by_corr=(1.0, 0.4, 0.6, 1.5))
    likelihood = biro.Likelihood(obs, sky(FLUX + '[noise]\nper = "correlation"\n', tmp_path))
    names = [f"noise.factor[field/spw0/{corr}]" for corr in ("XX", "XY", "YX", "YY")]
    assert list(likelihood.parameter_names) == ["a.I", *names]
    best = np.sqrt(likelihood.chi2([0.0, *np.ones(4)]) / likelihood.n_data)
    # 1800 real numbers each: to 1.7 %.
    np.testing.assert_allclose(best, (1.0, 0.4, 0.6, 1.5), rtol=0.06)
    # Split or not, these are the same data, and the same likelihood of equal noise.
    plain = biro.Likelihood(obs, sky(FLUX + '[noise]\nper = "all"\n', tmp_path))
    assert likelihood.data_digest() == plain.data_digest() == obs.digest()
    assert likelihood.observation.digest() == obs.digest()
    np.testing.assert_allclose(
        likelihood.log_likelihood([0.5, *np.full(4, 1.2)]), plain.log_likelihood([0.5, 1.2]), rtol=1e-12
    )
    both = sky(FLUX + '[noise]\nper = ["antenna", "hands"]\n', tmp_path)
    assert "noise.factor[A][field/spw0/cross]" in biro.Likelihood(obs, both).parameter_names


def test_a_picture_of_residuals_by_antenna(tmp_path: Path) -> None:
    likelihood = biro.Likelihood(array(), sky(FLUX + "[noise]\nfactor = 2\n", tmp_path))
    square, number = scatter_of_antennas(likelihood, np.array([0.0]))
    (part,) = likelihood.observation.partitions
    own = (part.antenna1 == 2) | (part.antenna2 == 2)
    np.testing.assert_allclose(square["YY"][2], np.sum(np.abs(part.vis[own, 0, 1]) ** 2) / 4.0, rtol=1e-12)
    assert number["YY"].tolist() == [300.0] * 6
    (axes,) = plots.antenna_residuals(likelihood, np.array([0.0])).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == list("ABCDEF")
    heights = axes.containers[1].lines[0].get_ydata()
    np.testing.assert_allclose(heights, np.sqrt(square["YY"] / 600.0), rtol=1e-12)


def test_antennas_that_only_products_are_known_of(tmp_path: Path) -> None:
    """Baselines between two groups alone, as of A and B with C; three that are all linked; one is fixed."""
    obs = array(np.ones(3))
    (part,) = obs.partitions
    weight = part.weight * ((part.antenna1 != 0) | (part.antenna2 != 1))[:, None, None]
    parted = replace(obs, partitions=(replace(part, weight=weight),))
    (line,) = biro.Likelihood(parted, sky(FLUX + ANTENNAS, tmp_path)).choices.gains
    assert "baselines link [A], [B] with [C] only" in line
    assert "Fix the factor of one antenna" in line
    assert biro.Likelihood(obs, sky(FLUX + ANTENNAS, tmp_path)).choices.gains == []
    fixed = ANTENNAS + "[noise.antenna.A]\nfactor = 1\n"
    assert biro.Likelihood(parted, sky(FLUX + fixed, tmp_path)).choices.gains == []


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        ('per = "antena"', "(did you mean 'antenna'?)"),
        ('per = ["hands", "field"]', 'a list of "antenna" and another'),
        ("[noise.antenna.A]\nfactor = 1", 'factors of antennas need per = "antenna"'),
        ('per = "antenna"\n[noise.antenna.G]\nfactor = 1', "noise: no antenna is called 'G'"),
        ("systematic = 1.5", "a fraction from 0 to below 1, found 1.5"),
        ('edges = ["1 km"]', "edges: need systematic, additive or both"),
        ('additive = "1 Jy"\nedges = true', "edges: lengths such as"),
        ('additive = "1 Jy"\nedges = ["1 km", "30 klambda"]', "must all be in metres or all in wavelengths"),
        ('additive = "1 Jy"\nedges = ["1 km", "100 m"]', "edges must ascend"),
        ('additive = "1 Jy"\nedges = ["300 m", "9 km"]', "no baseline in the class 'above 9 km'"),
        ('additive = ["1 Jy", "2 Jy"]', "one element for each of 1 classes, found 2"),
        ("additive = 1", "has no unit"),
        ('additive = { prior = "uniform", low = -2, high = -1, unit = "Jy" }', "must be 0 Jy or more"),
        ('per = "antenna"\ndistribution = "student-t"', "is only for one factor of all baselines"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(tmp_path: Path, noise: str, words: str) -> None:
    with pytest.raises((ModelError, InputError)) as raised:
        biro.Likelihood(array(), sky(f"{FLUX}[noise]\n{noise}\n", tmp_path))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_model_file_has_it_all(tmp_path: Path) -> None:
    text = FLUX + ANTENNAS.replace('"antenna"', '["antenna", "spw"]')
    text += (
        'edges = ["100 m"]\nadditive = ["1 mJy", "2 mJy"]\nsystematic = 0.02\n[noise.antenna.A]\nfactor = 1\n'
    )
    model = sky(text, tmp_path)
    assert sky(model.to_toml(), tmp_path) == model


def test_the_real_noise_of_correlations(measurement_set: Callable[[str], Path], tmp_path: Path) -> None:
    """3C343.1 and 3C343 of the WSRT, whose weights are all 1, at the places and fluxes that a fit finds."""
    text = FLUX.replace('"3 arcsec"', '"-41.27 arcsec"').replace('"-2 arcsec"', '"-0.912 arcsec"')
    text += '[[source]]\nname = "b"\ntype = "point"\neast = "-1655 arcsec"\nnorth = "662.86 arcsec"\n'
    text += 'I = "0.841 Jy"\n'
    wsrt = biro.read_ms(measurement_set("wsrt_3c343.1"))
    likelihood = biro.Likelihood(wsrt, sky(text + '[noise]\nper = "correlation"\n', tmp_path))
    found = np.sqrt(likelihood.chi2([2.918, *np.ones(4)]) / likelihood.n_data)
    # The rms of the residuals at the maximum, to the digits of these figures.
    np.testing.assert_allclose(found, (0.2003, 0.1117, 0.1196, 0.2029), rtol=2e-3)
    assert likelihood.remarks([2.918, *found]) == []
    # Phases of the gains change from time to time, and raise XX and YY alone: no noise is unequal.
    # Differences of neighbouring channels are 0.055 Jy in all four (`test_noise_of_real_sets`).
    one = biro.Likelihood(wsrt, sky(text, tmp_path))
    assert not any("UNEQUAL" in line for line in one.remarks([2.918, 0.164]))


@pytest.mark.parametrize("stokes", [None, "I"])
def test_good_weights_raise_no_alarm(measurement_set: Callable[[str], Path], stokes: str | None) -> None:
    """Noise and weights of the VLBA set agree to 3 % for every antenna and correlation.

    The ratio of the weights of RR and LL of a visibility does not follow their noise, and Stokes I by these
    weights is noisier than they say.
    """
    unequal = biro.read_ms(measurement_set("vlba_j1033p6051_ku"), stokes=stokes).summary().unequal
    assert [line.split(":")[0] for line in unequal] == ["I"] * (stokes is None)
