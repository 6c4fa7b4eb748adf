"""Derivatives of the likelihood and of the posterior, against differences of their values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import real
from numpy.typing import NDArray
from test_likelihood import FIXED_NOISE, ONE_SOURCE, joined, observation, sky

import biro
from biro.imaging.templates import ImageShifts
from biro.models import ImageModel, ImageTerm, LogUniform, Noise, PointSource, SkyModel, Uniform
from rime_kernels.gradient import Gradient

Array = NDArray[np.float64]

RICH = """
[sky]
ref_freq = "1.2 GHz"

[[source]]
name = "g"
type = "gaussian"
east = { prior = "uniform", low = -30, high = 30, unit = "arcsec" }
north = { prior = "normal", mean = 5, sd = 10, unit = "arcsec" }
I = { prior = "log-uniform", low = 0.5, high = 5, unit = "Jy" }
V = { prior = "normal", mean = 0, sd = 300, unit = "mJy" }
emaj = { prior = "uniform", low = 1, high = 40, unit = "arcsec" }
ratio = { prior = "uniform", low = 0.1, high = 1 }
pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }
spectral_index = [{ prior = "normal", mean = -0.7, sd = 0.3 }, { prior = "normal", mean = 0, sd = 0.1 }]

[[source]]
name = "p"
type = "point"
ra = { prior = "uniform", low = 0.9999, high = 1.0001, unit = "rad" }
dec = { prior = "uniform", low = 0.4999, high = 0.5001, unit = "rad" }
I = { prior = "half-normal", sd = 2, unit = "Jy" }
v_fraction = { prior = "triangular", low = -1, mode = 0.2, high = 1 }
"""

NOISE = """
[noise]
factor = { prior = "log-uniform", low = 0.3, high = 3 }
"""


def differences(function: Callable[[Array], Array], theta: Array, step: Array) -> Array:
    """Derivatives (n_batch, n_param) by sixth-order central differences."""
    found = np.empty(theta.shape)
    for i, axis in enumerate(np.diag(step)):
        rise = [function(theta + k * axis) - function(theta - k * axis) for k in (1, 2, 3)]
        found[:, i] = (0.75 * rise[0] - 0.15 * rise[1] + rise[2] / 60.0) / step[i]
    return found


def check(likelihood: biro.Likelihood, n_batch: int = 3, seed: int = 0) -> None:
    unit = 0.1 + 0.8 * np.random.default_rng(seed).random((n_batch, likelihood.n_param))
    theta = likelihood.prior_transform(unit)
    ends = likelihood.prior_transform(np.array([[0.3], [0.7]]) * np.ones(likelihood.n_param))
    # A hundredth of a half-width: h^6 / 140 of seventh derivatives, and rounding 1e-16 / h of some 1e4.
    step = 1e-2 * np.abs(ends[1] - ends[0])
    for values, both in (
        (likelihood.log_likelihood, likelihood.log_likelihood_and_gradient),
        (likelihood.log_posterior, likelihood.log_posterior_and_gradient),
    ):
        value, gradient = both(theta)
        np.testing.assert_allclose(value, values(theta), rtol=1e-12)
        expected = differences(values, theta, step)
        scale = np.abs(expected).max(axis=0)
        np.testing.assert_allclose(gradient / scale, expected / scale, rtol=1e-7, atol=1e-7)
        assert (scale > 0).all()  # nor NaN
        one, slope = both(theta[1])
        assert type(one) is float
        np.testing.assert_allclose(slope, gradient[1], rtol=1e-9, atol=1e-9 * np.abs(gradient).max())


def snapshots() -> biro.Observation:
    """Five antennas at six times, whose uvw close."""
    rng = np.random.default_rng(3)
    first, second = np.triu_indices(5, 1)
    places = rng.normal(scale=300.0, size=(6, 5, 3))
    shape = (60, 2, 2)
    return biro.Observation.from_arrays(
        vis=rng.normal(size=shape) + 1j * rng.normal(size=shape) + 3.0,
        uvw=(places[:, second] - places[:, first]).reshape(-1, 3),
        antenna1=np.tile(first, 6),
        antenna2=np.tile(second, 6),
        time=np.repeat(5e9 + 10.0 * np.arange(6), 10),
        chan_freq=[1.0e9, 1.5e9],
        corr_type=["RR", "LL"],
        weight=rng.uniform(0.5, 2.0, shape),
        flag=rng.random(shape) < 0.1,
        phase_centre=(1.0, 0.5),
    )


@pytest.mark.parametrize("form", ["factored", "row"])
def test_of_points_and_gaussians(tmp_path: Path, form: str) -> None:
    obs = snapshots()
    check(biro.Likelihood(obs, sky(RICH + NOISE, tmp_path), form=form))


@pytest.mark.parametrize("per", ["partition", "all"])
def test_of_noise_factors_of_several_partitions(tmp_path: Path, per: str) -> None:
    parts = [
        observation(1, field="A", phase_centre=(1.0, 0.5)),
        observation(2, n_row=60, field="B", phase_centre=(1.0001, 0.5)),
    ]
    noise = NOISE + f'per = "{per}"\n'
    check(biro.Likelihood(joined(*parts), sky(RICH + noise, tmp_path)))


def test_of_beams_and_pointing_errors(tmp_path: Path) -> None:
    drift = '{ prior = "normal", mean = 0, sd = 20, unit = "arcsec" }'
    beam = '[beam]\nkind = "cos3"\ncoefficient = { prior = "uniform", low = 60, high = 70, unit = "1/GHz" }\n'
    text = f"{RICH}\n{beam}\n[pointing]\neast = [{drift}, {drift}]\n"
    check(biro.Likelihood(observation(phase_centre=(1.0, 0.5)), sky(text + FIXED_NOISE, tmp_path)))


def test_of_ties(tmp_path: Path) -> None:
    """Places, fluxes, a size, an angle and the noise factor follow sums of parameters of other sources."""
    tied = """
[[source]]
name = "t"
type = "gaussian"
east = "g.east * 0.5 + 3 arcsec"
north = "2 * (g.north - g.east)"
I = "g.I * 0.3 + p.I / 2 - 100 mJy"
emaj = "g.emaj + 5 arcsec"
emin = "g.emaj * 0.25"
pa = "90 deg - g.pa"

[noise]
factor = "g.ratio * 2 + 0.5"
"""
    check(biro.Likelihood(snapshots(), sky(RICH + tied, tmp_path)))


def image_of_a_blob() -> ImageModel:
    pixels = np.zeros((1, 1, 16, 16))
    pixels[0, 0, 6:11, 7:10] = 0.2
    return ImageModel(pixels, 2e-5, (1.0, 0.5))


def test_of_images_that_move(tmp_path: Path) -> None:
    image = ImageTerm(
        "halo", file=image_of_a_blob(), scale=Uniform(0, 2), east=Uniform(-9, 9, "arcsec"),
        north=Uniform(-9, 9, "arcsec"),
    )  # fmt: skip
    source = PointSource("s", east="0 rad", north="0 rad", I=Uniform(0, 2, "Jy"))
    model = SkyModel(source, images=[image], noise=Noise(LogUniform(0.3, 3)))
    parts = [observation(i, field=f"F{i}", phase_centre=(1.0 + 1e-3 * i, 0.5)) for i in range(2)]
    check(biro.Likelihood(joined(*parts), model))


def test_shifts_of_images_are_pulled_back(tmp_path: Path) -> None:
    """For centres so far apart that norths differ and the tangent planes are tilted."""
    image = ImageTerm("a", file=image_of_a_blob(), east=Uniform(-0.1, 0.1, "rad"), north="0.05 rad")
    parts = [observation(0, phase_centre=(1.0, 0.5)), observation(1, field="B", phase_centre=(1.3, 0.9))]
    bound = SkyModel([], images=[image]).bind(joined(*parts).partition_views)
    shifts = ImageShifts(
        bound, np.array([[np.cos(1.0) * np.cos(0.5), np.sin(1.0) * np.cos(0.5), np.sin(0.5)]])
    )
    theta = bound.prior_transform(np.random.default_rng(0).random((4, bound.n_param)))
    slope = np.random.default_rng(1).normal(size=(4, 1, 2))
    own = list(bound.sources_of_all(theta))
    for i in range(2):

        def moved(shift: Array, i: int = i) -> Array:
            given = own[i].copy()
            object.__setattr__(given, "template_shift", shift.reshape(4, 1, 2))
            return (shifts.of(i, given).template_shift * slope).sum(axis=(1, 2))

        given = Gradient(*4 * [np.zeros((4, 0, 2))], template_scale=np.zeros((4, 1)), template_shift=slope)
        found = shifts.pull_back(i, own[i], given).template_shift.reshape(4, 2)
        expected = differences(moved, own[i].template_shift.reshape(4, 2), np.full(2, 1e-2))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


AWKWARD = """
[[source]]
name = "g"
type = "gaussian"
east = { prior = "uniform", low = 0, high = 30, unit = "arcsec" }
north = { prior = "normal", mean = 0, sd = 10, unit = "arcsec" }
I = { prior = "uniform", low = -5, high = 5, unit = "Jy" }
emaj = { prior = "uniform", low = 20, high = 90, unit = "arcsec" }
ratio = { prior = "uniform", low = 0.1, high = 1 }
pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }

[[source]]
name = "p"
type = "point"
east = { prior = "normal", mean = 0, sd = 10, unit = "arcsec" }
north = { prior = "normal", mean = 0, sd = 10, unit = "arcsec" }
I = { prior = "uniform", low = -5, high = 5, unit = "Jy" }
V = { prior = "uniform", low = -5, high = 5, unit = "Jy" }
"""


@pytest.mark.parametrize("form", ["factored", "row"])
def test_at_awkward_places(tmp_path: Path, form: str) -> None:
    """A circle at the phase centre and the ends of priors; no flux of either sign; a point at the centre."""
    likelihood = biro.Likelihood(snapshots(), sky(AWKWARD + FIXED_NOISE, tmp_path), form=form)
    theta = np.zeros((3, likelihood.n_param))
    theta[:, 3:6] = (20.0, 1.0, 0.0), (90.0, 1.0, 180.0), (40.0, 0.5, 30.0)
    theta[:2, 2] = 1.0
    theta[0, 8:] = 2.0, 0.3
    value, gradient = likelihood.log_posterior_and_gradient(theta)
    np.testing.assert_allclose(value, likelihood.log_posterior(theta), rtol=1e-12)
    assert np.isfinite(gradient).all()
    # Of the likelihood, which knows no priors; ratios above 1 are what the model forbids: from below.
    step = np.array([0.1, 0.1, 0.01, 0.1, 0.0, 1.0, 0.1, 0.1, 0.01, 0.01])
    _, slope = likelihood.log_likelihood_and_gradient(theta)
    moving = step > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = differences(likelihood.log_likelihood, theta, step)
    scale = np.maximum(np.abs(expected[:, moving]).max(axis=0), 1.0)  # the angle of a circle: 0
    np.testing.assert_allclose(slope[:, moving] / scale, expected[:, moving] / scale, rtol=0, atol=1e-7)
    # The angle of a circle, and all of a Gaussian without flux, change nothing; the flux itself does.
    assert np.abs(slope[:2, 5]).max() < 1e-9 * np.abs(slope).max()
    assert not slope[2, [0, 1, 3, 4, 5, 6, 7]].any()
    assert slope[2, 2] != 0.0
    down = theta[:2].copy()
    down[:, 4] -= 1e-6
    expected = (likelihood.log_likelihood(theta[:2]) - likelihood.log_likelihood(down)) / 1e-6
    np.testing.assert_allclose(slope[:2, 4], expected, rtol=1e-4)  # one-sided: second derivatives times 1e-6


def test_on_real_data(measurement_set: Callable[[str], Path], tmp_path: Path) -> None:
    """3C273, five errors away from the reference fit, in steps of a third of these."""
    obs = biro.read_ms(measurement_set("vla_3c273_x"), correlations=("RR", "LL"))
    likelihood = biro.Likelihood(obs, sky(real.CORE_3C273 + real.JET_3C273, tmp_path))
    fit = [-0.0009, 0.0006, 29.916, 0.054, -13.929, -15.461, 3.374, 2.927, 0.306, 45.84, 0.33]
    error = np.array([1e-4, 1e-4, 0.005, 0.008, 0.003, 0.003, 0.006, 0.01, 0.004, 0.21, 0.0015])
    theta = fit + np.array([[5.0], [-5.0], [1.0]]) * error
    expected = differences(likelihood.log_posterior, theta, 0.3 * error)
    _, gradient = likelihood.log_posterior_and_gradient(theta)
    # In units of the errors: rounding of some 1e4, 1e-12 of it each, over a third.
    np.testing.assert_allclose(gradient * error, expected * error, rtol=1e-7, atol=1e-7)


def test_what_is_forbidden_has_no_gradient(tmp_path: Path) -> None:
    text = ONE_SOURCE + FIXED_NOISE + '[[constraint]]\nbounds = "a.I"\nlow = "0 Jy"\n'
    likelihood = biro.Likelihood(observation(), sky(text, tmp_path))
    theta = [[1.0, 0.5], [-1.0, 0.5], [np.nan, 0.0], [11.0, 0.0]]
    value, gradient = likelihood.log_posterior_and_gradient(theta)
    assert value[1:].tolist() == [-np.inf] * 3
    assert np.isnan(gradient[1:]).all()
    assert np.isfinite(gradient[0]).all()
    value, gradient = likelihood.log_likelihood_and_gradient(theta)
    assert value[1] == -np.inf
    assert np.isfinite(value[3])  # outside of the prior, which is not the likelihood's affair
    assert np.isnan(gradient[1]).all()
    np.testing.assert_allclose(gradient[0], likelihood.log_likelihood_and_gradient(theta[0])[1], rtol=1e-12)
    empty = likelihood.log_likelihood_and_gradient(np.empty((0, 2)))
    assert empty[0].shape == (0,)
    assert empty[1].shape == (0, 2)


def test_not_a_number_is_counted(tmp_path: Path) -> None:
    likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path))
    value, gradient = likelihood.log_likelihood_and_gradient([[np.nan, 0.0, 1.0], [1.0, 0.0, 1.0]])
    assert value[0] == -np.inf
    assert np.isnan(gradient[0]).all()
    assert np.isfinite(gradient[1]).all()
    assert (likelihood.nan_count, likelihood.n_call) == (1, 2)
