"""Noise that is correlated between neighbouring times or channels: against dense covariances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from test_likelihood import ONE_SOURCE, sky
from test_noise_of_baselines import check_gradient

import biro
from biro.diagnosis.whiteness import whiteness
from biro.errors import InputError, ModelError
from biro.sbc.replicate import simulated

Array = NDArray[np.float64]
TIME = '[noise]\ncorrelation = "time"\n'
CHAN = '[noise]\ncorrelation = "chan"\n'
BOTH = CHAN + 'rho = { prior = "uniform", low = 0, high = 1 }\n'
KINDS = pytest.mark.parametrize("text", [TIME, CHAN, BOTH])
SPACING = 10.0
"""Median spacing of the times of `data`, in seconds."""


def data(seed: int = 0, n_time: int = 9, n_chan: int = 6, flagged: float = 0.25) -> biro.Observation:
    """Three baselines at uneven times, channels with a gap, RR and LL, many flags, random weights."""
    rng = np.random.default_rng(seed)
    times = SPACING * np.cumsum(np.resize([1.0, 1.0, 1.5, 1.0, 4.0, 0.5, 1.0, 2.5, 1.0], n_time)) + 5e9
    pairs = [(0, 1), (0, 2), (1, 2)]
    time, first = np.repeat(times, 3), [p for p, _ in pairs] * n_time
    # Baselines do not have the same times, and rows are in no order.
    rows = rng.permutation(len(time))[: len(time) - 2]
    freq = 1e9 + 1e6 * np.delete(np.arange(n_chan + 2), [2, 3])
    shape = (len(rows), n_chan, 2)
    return biro.Observation.from_arrays(
        vis=rng.normal(size=shape) + 1j * rng.normal(size=shape) + 3.0,
        uvw=rng.normal(scale=300.0, size=(len(rows), 3)),
        antenna1=np.array(first)[rows],
        antenna2=np.array([q for _, q in pairs] * n_time)[rows],
        time=time[rows],
        chan_freq=freq,
        corr_type=["RR", "LL"],
        weight=rng.uniform(0.5, 2.0, shape),
        flag=rng.random(shape) < flagged,
    )


def autocorrelation(lag: Array, rho: float, h: float) -> Array:
    """c of places that may have gaps, from the process itself: an AR(1) series under a kernel of three."""
    power = np.where(np.abs(lag) > 0, rho ** np.abs(lag), 1.0)
    if h == 0.0:
        return power
    kernel = np.array([h, 1.0 - 2.0 * h, h])
    total = np.zeros_like(lag)
    norm = 0.0
    for i, a in enumerate(kernel):
        for j, b in enumerate(kernel):
            far = np.abs(lag + i - j)
            total += a * b * np.where(far > 0, rho**far, 1.0)
            norm += a * b * (rho ** abs(i - j) if i != j else 1.0)
    # A millionth of the variance is independent (docs: model files, correlated noise).
    return np.where(lag == 0, 1.0, (1.0 - 1e-6) * total / norm)


def dense(part: biro.Partition, axis: str, rho: float, h: float) -> Array:
    """R of all visibilities of a partition that count, in the order of `nonzero`."""
    row, chan, corr = np.nonzero(part.weight)
    place = part.time[row] / SPACING if axis == "time" else np.rint((part.chan_freq[chan] - 1e9) / 1e6)
    own = (part.antenna1[row], part.antenna2[row], chan) if axis == "time" else (row,)
    alike = np.ones((len(row),) * 2, bool)
    for key in (*own, corr):
        alike &= key[:, None] == key[None]
    return np.where(alike, autocorrelation(place[:, None] - place[None], rho, h), 0.0)


def numbers(likelihood: biro.Likelihood, theta: Array) -> tuple[float, float, float]:
    """s, rho and the smoothing of a parameter vector."""
    named = dict(zip(likelihood.parameter_names, theta, strict=True))
    return tuple(float(named.get(f"noise.{key}", 0.0)) for key in ("factor", "rho", "smoothing"))


def by_hand(likelihood: biro.Likelihood, theta: Array) -> float:
    """ln of a normal density with the dense covariance, of real and imaginary parts."""
    (part,), (model,) = likelihood.observation.partitions, likelihood.predict(theta)
    s, rho, h = numbers(likelihood, theta)
    used = np.nonzero(part.weight)
    sigma = s / np.sqrt(part.weight[used].astype(float))
    covariance = dense(part, str(likelihood.sky.noise.correlation), rho, h) * sigma[:, None] * sigma[None]
    residual = part.vis[used] - model[used]
    _, log_det = np.linalg.slogdet(2.0 * np.pi * covariance)
    square = (residual.conj() @ np.linalg.solve(covariance, residual)).real
    return float(-0.5 * square - log_det)


@KINDS
def test_the_likelihood_is_that_of_the_dense_covariance(tmp_path: Path, text: str) -> None:
    likelihood = biro.Likelihood(data(), sky(ONE_SOURCE + text, tmp_path))
    theta = likelihood.prior_transform(np.random.default_rng(1).uniform(0.1, 0.9, (3, likelihood.n_param)))
    theta[:, 2] = [0.7, 1.0, 2.0]
    expected = [by_hand(likelihood, one) for one in theta]
    # Rounding of 150 terms, and of a covariance whose condition is 1e4 at most.
    np.testing.assert_allclose(likelihood.log_likelihood(theta), expected, rtol=1e-10)


@KINDS
def test_its_gradient(tmp_path: Path, text: str) -> None:
    place = '{ prior = "uniform", low = -60, high = 60, unit = "arcsec" }'
    likelihood = biro.Likelihood(data(), sky(ONE_SOURCE.replace('"0 arcsec"', place) + text, tmp_path))
    theta = likelihood.prior_transform(np.random.default_rng(2).uniform(0.3, 0.7, (2, likelihood.n_param)))
    # Per sigma: rounding of a value of some hundred to ten thousand, 1e-13 of it, over 1e-3 sigma.
    check_gradient(likelihood, theta, tolerance=1e-6)


@KINDS
def test_the_fisher_information_is_that_of_the_dense_covariance(tmp_path: Path, text: str) -> None:
    """Fisher matrix of a normal vector: Re J^H C^-1 J and tr(C^-1 C_a C^-1 C_b) (Kay 1993, section 3.9)."""
    likelihood = biro.Likelihood(data(), sky(ONE_SOURCE + text, tmp_path))
    theta = np.array([1.5, 0.3, 1.4, 0.35, 0.2][: likelihood.n_param])
    if text == CHAN:
        theta[3] = 0.22
    (part,) = likelihood.observation.partitions
    used, axis = np.nonzero(part.weight), str(likelihood.sky.noise.correlation)
    sigma = 1.0 / np.sqrt(part.weight[used].astype(float))
    scale = sigma[:, None] * sigma[None]

    def covariance(one: Array) -> Array:
        s, rho, h = numbers(likelihood, one)
        return s**2 * dense(part, axis, rho, h) * scale

    inverse, step = np.linalg.inv(covariance(theta)), 1e-5
    changes, columns = [], []
    for row in np.eye(likelihood.n_param) * step:
        changes.append((covariance(theta + row) - covariance(theta - row)) / (2.0 * step))
        columns.append(
            (likelihood.predict(theta + row)[0] - likelihood.predict(theta - row)[0])[used] / (2 * step)
        )
    expected = np.array([[np.trace(inverse @ a @ inverse @ b) for b in changes] for a in changes])
    expected += np.real(np.array(columns).conj() @ inverse @ np.array(columns).T)
    found = likelihood.fisher(theta)
    # Central differences with steps of 1e-5 are good to 1e-9 of a covariance, whose condition is about 100.
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    for row in np.eye(likelihood.n_param):
        np.testing.assert_allclose(likelihood.fisher_product(theta, row), found @ row, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("text", [TIME + "rho = 0\n", CHAN + "smoothing = 0\n"])
def test_without_correlation_noise_is_white(tmp_path: Path, text: str) -> None:
    correlated = biro.Likelihood(data(), sky(ONE_SOURCE + text, tmp_path))
    white = biro.Likelihood(data(), sky(ONE_SOURCE, tmp_path))
    theta = np.array([[1.5, 0.3, 1.2], [2.5, -0.3, 0.8]])
    assert correlated.parameter_names == white.parameter_names
    for found, expected in zip(
        correlated.log_likelihood_and_gradient(theta), white.log_likelihood_and_gradient(theta), strict=True
    ):
        # Rounding of sums of 150 terms in another order.
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(correlated.fisher(theta[0]), white.fisher(theta[0]), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize(("text", "fixed"), [(TIME, "rho = 0.6\n"), (CHAN, "smoothing = 0.25\n")])
def test_the_evidence_of_a_flux_has_its_closed_form(tmp_path: Path, text: str, fixed: str) -> None:
    """A flux under a wide normal prior: the data are normal with the covariance C + sd^2 a a^T."""
    source = '[[source]]\nname = "a"\nI = { prior = "normal", mean = 2, sd = 3, unit = "Jy" }\n'
    source += 'east = "0 arcsec"\nnorth = "0 arcsec"\n'
    likelihood = biro.Likelihood(data(), sky(source + text + fixed + "factor = 1.3\n", tmp_path))
    (part,) = likelihood.observation.partitions
    used, axis = np.nonzero(part.weight), str(likelihood.sky.noise.correlation)
    sigma = 1.3 / np.sqrt(part.weight[used].astype(float))
    rho, h = (0.6, 0.0) if axis == "time" else (0.0, 0.25)
    covariance = dense(part, axis, rho, h) * sigma[:, None] * sigma[None]
    of_real = covariance + 9.0  # a source at the phase centre: its visibility is its flux
    residual = part.vis[used] - 2.0
    expected = 0.0
    for c, x in ((of_real, residual.real), (covariance, residual.imag)):
        expected -= 0.5 * (np.linalg.slogdet(2.0 * np.pi * c)[1] + x @ np.linalg.solve(c, x))
    posterior = biro.sample(likelihood, "none", seed=1, progress=False)
    # Its stated error, of importance sampling: 4 of it, and small enough to see a factor that is left out.
    assert posterior.log_evidence_err < 0.05
    assert posterior.log_evidence == pytest.approx(expected, abs=4.0 * posterior.log_evidence_err)


def test_simulated_noise_has_the_correlation_of_the_model(tmp_path: Path) -> None:
    """SBC draws data with it: the mean of (d ln L)(d ln L)^T over such data is the Fisher information."""
    likelihood = biro.Likelihood(data(), sky(ONE_SOURCE + BOTH, tmp_path))
    theta, rng, slopes = np.array([1.5, 0.3, 1.4, 0.35, 0.2]), np.random.default_rng(3), []
    model = likelihood.sky
    for _ in range(300):
        drawn = biro.Likelihood(simulated(likelihood, theta, rng), model)
        slopes.append(drawn.log_likelihood_and_gradient(theta)[1])
    fisher = likelihood.fisher(theta)
    scale = 1.0 / np.sqrt(np.diag(fisher))
    found = np.array(slopes).T @ np.array(slopes) / 300 * scale[:, None] * scale
    # Means of 300 products of order 1: 0.08 each (sqrt(2 / 300)), and 4.5 of these for 15 numbers.
    np.testing.assert_allclose(found, fisher * scale[:, None] * scale, atol=0.37)


def test_numbers_of_no_covariance_are_outside_the_prior(tmp_path: Path) -> None:
    text = TIME + 'rho = { prior = "uniform", low = 0, high = 2 }\n'
    likelihood = biro.Likelihood(data(), sky(ONE_SOURCE + text, tmp_path))
    assert likelihood.log_prior([1.5, 0.3, 1.0, 1.2]) == -np.inf


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[noise]\nrho = 0.5\n", "rho: is only for correlation"),
        ('[noise]\ncorrelation = "tme"\n', "correlation: one of time, chan"),
        (TIME + "smoothing = 0.2\n", "smoothing: is only for correlation"),
        (TIME + "rho = 1\n", "rho: below 1"),
        (TIME + 'distribution = "student-t"\n', "remove distribution"),
        (TIME + 'per = "antenna"\n', "remove distribution"),
    ],
)
def test_what_does_not_go_with_it_is_refused_in_a_model(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        sky(ONE_SOURCE + text, tmp_path)


@pytest.mark.parametrize("options", [{"gains": "closures"}, {"gains": "marginalise"}, {"average": "cells"}])
def test_what_does_not_go_with_it_is_refused_of_a_likelihood(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(InputError, match="correlation"):
        biro.Likelihood(data(n_time=40), sky(ONE_SOURCE + TIME, tmp_path), **options)


def test_marginalised_fluxes_are_refused(tmp_path: Path) -> None:
    text = ONE_SOURCE.replace(
        'I = { prior = "uniform", low = -10, high = 10,',
        'I = { prior = "normal", mean = 0, sd = 3, marginalise = true,',
    )
    with pytest.raises(InputError, match="marginalise = true"):
        biro.Likelihood(data(), sky(text + TIME, tmp_path))


@KINDS
def test_a_model_file_keeps_it(tmp_path: Path, text: str) -> None:
    model = sky(ONE_SOURCE + text, tmp_path)
    again = sky(model.to_toml(), tmp_path)
    assert again == model
    white = sky(ONE_SOURCE, tmp_path)
    assert biro.Likelihood(data(), model).digest() != biro.Likelihood(data(), white).digest()


def regular(noise: Array, source: str, noise_text: str, tmp_path: Path) -> biro.Likelihood:
    """A Gaussian of 2 Jy and noise (n_time, n_baseline, n_chan, n_corr) of 1 Jy that is given."""
    n_time, n_pair, n_chan, n_corr = noise.shape
    pairs = np.array([(p, q) for p in range(5) for q in range(p + 1, 5)])
    rng = np.random.default_rng(5)
    place = rng.normal(scale=300.0, size=(5, 2))
    angle = 0.02 * np.arange(n_time)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    uv = np.einsum("abt,ib->tia", turn, place[pairs[:, 0]] - place[pairs[:, 1]]).reshape(-1, 2)
    made = biro.Observation.from_arrays(
        vis=np.zeros((n_time * n_pair, n_chan, n_corr), complex),
        uvw=np.concatenate([uv, 0.0 * uv[:, :1]], axis=1),
        antenna1=np.tile(pairs[:, 0], n_time),
        antenna2=np.tile(pairs[:, 1], n_time),
        time=np.repeat(5e9 + 30.0 * np.arange(n_time), n_pair),
        chan_freq=1.4e9 + 1e6 * np.arange(n_chan),
        corr_type=["XX", "YY"],
        weight=np.ones((n_time * n_pair, n_chan, n_corr)),
    )
    likelihood = biro.Likelihood(made, sky(source + noise_text, tmp_path), smearing="off")
    (part,), (model,) = made.partitions, likelihood.predict(truth(likelihood))
    data = replace(made, partitions=(replace(part, vis=model + noise.reshape(model.shape)),))
    return biro.Likelihood(data, likelihood.sky, smearing="off")


GAUSSIAN = """
[[source]]
name = "g"
type = "gaussian"
east = { prior = "uniform", low = -60, high = 100, unit = "arcsec" }
north = { prior = "uniform", low = -60, high = 100, unit = "arcsec" }
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }
fwhm = { prior = "uniform", low = 0, high = 150, unit = "arcsec" }
"""
OF_NOISE = {"noise.factor": 1.0, "noise.rho": 0.7, "noise.smoothing": 0.25}


def truth(likelihood: biro.Likelihood, **noise: float) -> Array:
    known = {"g.east": 30.0, "g.north": -20.0, "g.I": 2.0, "g.fwhm": 50.0} | OF_NOISE
    known |= {f"noise.{key}": value for key, value in noise.items()}
    return np.array([known[name] for name in likelihood.parameter_names])


def white(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def in_time(rng: np.random.Generator, rho: float, n_chan: int) -> Array:
    noise = white(rng, 24, 10, n_chan, 2)
    for k in range(1, 24):
        noise[k] = rho * noise[k - 1] + np.sqrt(1.0 - rho**2) * noise[k]
    return noise


def smoothed(rng: np.random.Generator, n_chan: int) -> Array:
    """Hanning smoothing, of the rms 1."""
    noise = white(rng, 24, 10, n_chan + 2, 2)
    return (0.25 * noise[:, :, :-2] + 0.5 * noise[:, :, 1:-1] + 0.25 * noise[:, :, 2:]) / np.sqrt(0.375)


def pulls(likelihood: biro.Likelihood, theta: Array) -> Array:
    """How far a Newton step from the truth goes, in the errors of the Fisher information.

    Where the likelihood is right its slopes there have the Fisher information for a covariance, so that the
    mean square of each is exactly 1.
    """
    covariance = np.linalg.inv(likelihood.fisher(theta))
    step = covariance @ likelihood.log_likelihood_and_gradient(theta)[1]
    return np.asarray(step / np.sqrt(np.diag(covariance)))


@pytest.mark.parametrize(
    ("text", "noise", "numbers"),
    [
        (TIME, lambda rng: in_time(rng, 0.9, 4), {"rho": 0.9}),
        (TIME, lambda rng: in_time(rng, 0.5, 4), {"rho": 0.5}),
        (TIME, lambda rng: in_time(rng, 0.9, 16), {"rho": 0.9}),
        (CHAN, lambda rng: smoothed(rng, 4), {"smoothing": 0.25}),
        (CHAN, lambda rng: smoothed(rng, 16), {"smoothing": 0.25}),
        (CHAN, lambda rng: white(rng, 24, 10, 4, 2), {"smoothing": 0.0}),
        (BOTH, lambda rng: in_time(rng, 0.7, 8).swapaxes(0, 2), {"rho": 0.7, "smoothing": 0.0}),
    ],
)
def test_errors_are_right(
    tmp_path: Path, text: str, noise: Callable[[np.random.Generator], Array], numbers: dict[str, float]
) -> None:
    found = []
    for seed in range(40):
        likelihood = regular(noise(np.random.default_rng([1, seed])), GAUSSIAN, text, tmp_path)
        found.append(pulls(likelihood, truth(likelihood, **numbers)))
    rms = np.sqrt(np.mean(np.square(found), axis=0))
    # 40 pulls of each: 1 within 0.11, and 3.5 of these for the largest of 6.
    np.testing.assert_allclose(rms, 1.0, atol=0.39)
    # All together, 200 numbers of which some are correlated: 1 within 0.05 to 0.08.
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(1.0, abs=0.2)


def test_white_noise_gives_errors_that_are_too_small_for_such_data(tmp_path: Path) -> None:
    """What `test_errors_are_right` would find without the correlation."""
    found = []
    for seed in range(10):
        noise = in_time(np.random.default_rng([1, seed]), 0.9, 4)
        likelihood = regular(noise, GAUSSIAN, "[noise]\nfactor = 1\n", tmp_path)
        found.append(pulls(likelihood, truth(likelihood)))
    # Sums over times have the variance (1 + rho) / (1 - rho) = 19 of white noise, less towards the ends.
    assert np.sqrt(np.mean(np.square(found))) > 2.5


def test_correlation_that_is_left_is_said(tmp_path: Path) -> None:
    """Noise of an AR(1) process along channels is not smoothed noise; with rho it is fitted."""
    rng = np.random.default_rng(2)
    noise = in_time(rng, 0.7, 8).swapaxes(0, 2)  # channels for times
    wrong = regular(noise, GAUSSIAN, CHAN, tmp_path)
    (line,) = wrong.doubts(truth(wrong, smoothing=0.3))
    assert line in wrong.remarks(truth(wrong, smoothing=0.3))
    assert "THE NOISE MODEL IS WRONG" in line
    assert "Fit rho" in line
    right = regular(noise, GAUSSIAN, BOTH, tmp_path)
    assert right.doubts(truth(right, smoothing=0.0)) == []
    hanning = regular(smoothed(rng, 8), GAUSSIAN, CHAN, tmp_path)
    assert hanning.doubts(truth(hanning)) == []


def test_residuals_for_tests_of_independent_noise_are_independent(tmp_path: Path) -> None:
    likelihood = regular(in_time(np.random.default_rng(3), 0.9, 4), GAUSSIAN, TIME, tmp_path)
    theta = truth(likelihood, rho=0.9)
    (part,), (model,) = likelihood.independent(theta).partitions, likelihood.predict(theta)
    residual = (part.vis - model).reshape(24, -1)
    correlation = np.vdot(residual[1:], residual[:-1]).real / np.vdot(residual, residual).real
    # 1840 pairs of complex numbers: 1 / sqrt(2 * 1840) = 0.016, and 4 of it; the noise itself has 0.9.
    assert correlation == pytest.approx(0.0, abs=0.07)
    found = whiteness(*likelihood.residual_data(theta))
    assert (found.scatter, found.step) == pytest.approx((1.0, 1.0), abs=0.1)


def test_two_rows_at_one_time_are_refused(tmp_path: Path) -> None:
    (part,) = (made := data()).partitions
    time = np.full(part.n_row, 5e9)
    same = replace(made, partitions=(replace(part, time=time, time_index=np.zeros(part.n_row, np.int32)),))
    with pytest.raises(InputError, match="two rows of the antennas"):
        biro.Likelihood(same, sky(ONE_SOURCE + TIME, tmp_path))


def test_white_noise_is_no_prior_that_cuts_off(tmp_path: Path) -> None:
    """Where noise is independent the most probable rho is 0 in half of all data: that is no warning."""
    noise = white(np.random.default_rng(4), 24, 10, 4, 2)
    noise[1:] -= 0.1 * noise[:-1]  # so that rho, which is not below 0, is best at 0
    likelihood = regular(noise, GAUSSIAN, TIME + "factor = 1\n", tmp_path)
    posterior = biro.sample(likelihood, "none", seed=1, progress=False)
    assert posterior.summary()["noise.rho"].high_95 < 0.05
    assert "CUT OFF" not in str(posterior.summary())
