"""A rotation measure, a turnover and a light curve come back from simulated data within their errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from test_likelihood import sky

import biro

C = 299792458.0
FREQ, N_ROW, NOISE = np.linspace(1.0e9, 1.8e9, 16), 40, 0.05
AT = '[[source]]\nname = "a"\neast = "0 rad"\nnorth = "0 rad"\n'
FIXED = "[noise]\nfactor = 1\n"


def uniform(low: str, high: str) -> str:
    return f'{{ prior = "uniform", low = "{low}", high = "{high}" }}'


def seen(
    i: NDArray[np.float64], p: NDArray[np.complex128], time: NDArray[np.float64], seed: int
) -> biro.Observation:
    """RR, RL, LR, LL of a point at the phase centre, with the noise that weights state."""
    rng = np.random.default_rng(seed)
    vis = np.stack(np.broadcast_arrays(i, p, np.conj(p), i), axis=-1).astype(complex)
    vis = np.broadcast_to(vis, (time.size, FREQ.size, 4))
    noise = NOISE * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
    return biro.Observation.from_arrays(
        vis=vis + noise,
        uvw=rng.normal(scale=300.0, size=(time.size, 3)),
        antenna1=np.zeros(time.size, int),
        antenna2=np.ones(time.size, int),
        time=5e9 + time,
        chan_freq=FREQ,
        corr_type=["RR", "RL", "LR", "LL"],
        weight=np.full(vis.shape, NOISE**-2),
    )


def found(observation: biro.Observation, text: str, folder: Path) -> dict[str, tuple[float, float]]:
    """Value and error of each parameter at the maximum."""
    best = biro.maximise(biro.Likelihood(observation, sky(text + FIXED, folder)), seed=1)
    assert best.converged
    given = zip(best.names, best.best_fit, best.error, strict=True)
    return {name: (float(value), float(error)) for name, value, error in given}


def test_a_rotation_measure_comes_back_within_its_error(tmp_path: Path) -> None:
    rm, chi, p, wave2 = 37.3, np.radians(25.0), 0.1, (C / FREQ) ** 2
    polarised = 2.0 * p * np.exp(2j * (chi + rm * wave2))
    observation = seen(np.full(FREQ.size, 2.0), polarised, np.arange(N_ROW, dtype=float), seed=4)
    text = (
        AT + 'I = "2 Jy"\npol_fraction = { prior = "uniform", low = 0, high = 1 }\n'
        f"pol_angle = {uniform('0 deg', '180 deg')}\nrm = {uniform('-300 rad/m2', '300 rad/m2')}\n"
    )
    fitted = found(observation, text, tmp_path)
    # The angle of P in one channel, from RL and LR of all rows: half of noise / (|P| sqrt(2 n_row)). A line
    # through the angles against wavelength squared has the errors of any straight line.
    of_angle = 0.5 * NOISE / (2.0 * p * np.sqrt(2 * N_ROW))
    of_rm = of_angle / np.sqrt(np.sum((wave2 - wave2.mean()) ** 2))
    of_chi = np.degrees(of_angle * np.sqrt(np.mean(wave2**2) / np.sum((wave2 - wave2.mean()) ** 2)))
    for name, truth, error in (("rm", rm, of_rm), ("pol_angle", 25.0, of_chi)):
        value, sigma = fitted[f"a.{name}"]
        # Curvature at the maximum, where |P| is off by its own error of 1 %.
        assert sigma == pytest.approx(error, rel=0.05)
        assert abs(value - truth) < 3 * sigma
    value, sigma = fitted["a.pol_fraction"]
    assert abs(value - p) < 3 * sigma


def test_a_free_free_turnover_comes_back_within_its_error(tmp_path: Path) -> None:
    x = FREQ / 1.4e9
    flux = 3.0 * x**-0.8 * np.exp(-((FREQ / 1.05e9) ** -2.1))
    observation = seen(flux, np.zeros(FREQ.size), np.arange(N_ROW, dtype=float), seed=5)
    text = (
        '[sky]\nref_freq = "1.4 GHz"\n' + AT + f"I = {uniform('0.1 Jy', '20 Jy')}\n"
        'spectral_index = { prior = "uniform", low = -3, high = 1 }\n'
        f"free_free = {uniform('0.1 GHz', '3 GHz')}\n"
    )
    fitted = found(observation, text, tmp_path)
    truths = {"a.I": 3.0, "a.spectral_index": -0.8, "a.free_free": 1.05}
    for name, truth in truths.items():
        value, sigma = fitted[name]
        assert abs(value - truth) < 3 * sigma, name
        # Sixteen channels of 40 rows and two hands: it is measured, not held by its prior.
        assert sigma < 0.2 * abs(truth), name


def test_knots_of_a_light_curve_come_back_as_a_linear_fit(tmp_path: Path) -> None:
    time = np.arange(0.0, 600.0, 10.0)
    knots, truth = np.array([0.0, 200.0, 600.0]), np.array([1.0, 3.0, 2.0])
    flux = np.interp(time, knots, truth)[:, None] * np.ones(FREQ.size)
    observation = seen(flux, np.zeros((time.size, FREQ.size)), time, seed=6)
    flat = uniform("-9 Jy", "9 Jy")
    text = AT + f'times = ["0 s", "200 s", "10 min"]\nI = [{flat}, {flat}, {flat}]\n'
    fitted = found(observation, text, tmp_path)
    # Least squares with triangles as columns: RR and LL of all channels, real parts.
    design = np.array([np.interp(time, knots, one) for one in np.eye(3)])
    data = observation.partitions[0].vis[:, :, [0, 3]].real.mean(axis=(1, 2))
    normal = design @ design.T
    expected = np.linalg.solve(normal, design @ data)
    errors = NOISE / np.sqrt(2 * FREQ.size) * np.sqrt(np.diag(np.linalg.inv(normal)))
    for k in range(3):
        value, sigma = fitted[f"a.I[{k}]"]
        # A quadratic form: Newton's steps end within 1e-6 of an error.
        assert abs(value - expected[k]) < 1e-4 * errors[k]
        assert sigma == pytest.approx(errors[k], rel=1e-6)
        assert abs(value - truth[k]) < 4 * errors[k]
