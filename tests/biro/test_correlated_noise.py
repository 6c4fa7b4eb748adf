"""Noise that is correlated between neighbouring times or channels: against dense covariances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from test_likelihood import ONE_SOURCE, sky

import biro
from biro.errors import InputError, ModelError
from biro.models import Fixed
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
    value, gradient = likelihood.log_likelihood_and_gradient(theta)
    np.testing.assert_allclose(value, likelihood.log_likelihood(theta), rtol=1e-13)
    scale = 1.0 / np.sqrt(np.diag(likelihood.fisher(theta[0])))
    for i, axis in enumerate(np.diag(1e-3 * scale)):
        rise = [
            likelihood.log_likelihood(theta + k * axis) - likelihood.log_likelihood(theta - k * axis)
            for k in (1, 2, 3)
        ]
        expected = (0.75 * rise[0] - 0.15 * rise[1] + rise[2] / 60.0) / 1e-3
        # Per sigma: rounding of a value of some hundred to ten thousand, 1e-13 of it, over 1e-3 sigma.
        np.testing.assert_allclose(gradient[:, i] * scale[i], expected, rtol=1e-6, atol=1e-6)


@KINDS
def test_the_fisher_information_is_that_of_the_dense_covariance(tmp_path: Path, text: str) -> None:
    """Of a complex normal vector: Re J^H C^-1 J and tr(C^-1 C_a C^-1 C_b) (Kay 1993, section 3.9)."""
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
        columns.append((likelihood.predict(theta + row)[0] - likelihood.predict(theta - row)[0])[used] / (2 * step))
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
    # The posterior is normal: importance sampling has no error but rounding.
    assert posterior.log_evidence == pytest.approx(expected, abs=1e-6)


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
        ("[noise]\nrho = 0.5\n", "rho: belongs to correlation"),
        ('[noise]\ncorrelation = "tme"\n', "correlation: one of time, chan"),
        (TIME + "smoothing = 0.2\n", "smoothing: is that of channels"),
        (TIME + "rho = 1\n", "rho: below 1"),
        (TIME + 'distribution = "student-t"\n', "leave out distribution"),
        (TIME + 'per = "antenna"\n', "leave out distribution"),
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
        'I = { prior = "uniform", low = -10, high = 10,', 'I = { prior = "normal", mean = 0, sd = 3, marginalise = true,'
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
