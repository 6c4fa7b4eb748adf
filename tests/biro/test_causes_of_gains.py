"""Gains that are wrong by so much that products count, beside fluxes that were fitted to the data."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from numpy.typing import NDArray

import biro
from biro.diagnosis.causes.all_causes import find_causes
from biro.diagnosis.finding import Finding
from biro.diagnosis.residual_data import ResidualData
from biro.models import Gain
from biro.models.files.toml import from_toml
from rime_kernels.physics.phase import SPEED_OF_LIGHT

Vis = NDArray[np.complex128]
ARCSEC = math.pi / 180 / 3600
N_ANTENNA, N_TIME, INTERVAL, SIGMA = 15, 12, 600.0, 0.03
FREQ = np.array([1.4e9, 1.41e9])
P, Q = np.triu_indices(N_ANTENNA, 1)
SLOT = np.repeat(np.arange(N_TIME), len(P))
FIRST, SECOND = np.tile(P, N_TIME), np.tile(Q, N_TIME)
NAMES = [f"A{i}" for i in range(N_ANTENNA)]


def baselines() -> NDArray[np.float64]:
    """An array of 400 m at declination 40 deg, turning for two hours."""
    places = np.random.default_rng(4).normal(size=(N_ANTENNA, 3)) * [200.0, 200.0, 60.0]
    rows = []
    for hour in np.linspace(-0.3, 0.3, N_TIME):
        s, c, sd, cd = math.sin(hour), math.cos(hour), math.sin(0.7), math.cos(0.7)
        turned = places @ np.array([[s, c, 0.0], [-sd * c, sd * s, cd], [cd * c, -cd * s, sd]]).T
        rows.append(turned[Q] - turned[P])
    return np.concatenate(rows)


UVW = baselines()


def point(east: float, north: float) -> Vis:
    """Visibilities of 1 Jy, (n_row, n_chan), by the formula of physics: section 2."""
    l, m = east * ARCSEC, north * ARCSEC
    u, v, w = UVW.T[:, :, None] * FREQ / SPEED_OF_LIGHT
    phase = u * l + v * m + w * (math.sqrt(1 - l * l - m * m) - 1)
    return np.asarray(np.exp(2j * math.pi * phase), np.complex128)


SOURCES = np.stack([point(0.0, 0.0), point(150.0, -90.0)])
TRUTH = 1.5 * SOURCES[0] + 0.8 * SOURCES[1]


def found_in(
    data: Vis, corr: list[str], turn: Vis | None = None, flux: tuple[float, float] | None = None
) -> list[Finding]:
    """What is found beside two sources with some fluxes, or those that fit data (n_row, n_chan, n_corr)."""
    hands = [corr.index("XX"), corr.index("YY")]
    mean = data[..., hands].mean(axis=-1).reshape(-1)
    columns = SOURCES.reshape(2, -1).T
    fitted = np.linalg.lstsq(
        np.concatenate([columns.real, columns.imag]), np.concatenate([mean.real, mean.imag]), rcond=None
    )[0]
    model = np.zeros_like(data)
    model[..., hands] = np.tensordot(fitted if flux is None else flux, SOURCES, 1)[..., None]
    observation = biro.Observation.from_arrays(
        data, UVW, FIRST, SECOND, 5e9 + INTERVAL * SLOT, FREQ, corr, weight=SIGMA**-2,
        antenna_names=NAMES, interval=INTERVAL, chan_width=np.full(len(FREQ), 1e5),
    )  # fmt: skip
    (part,) = observation.partitions
    factor = math.sqrt(float(np.mean(np.abs(data - model) ** 2)) / 2) / SIGMA
    return find_causes([ResidualData(part, model, factor, turn=turn)], NAMES)


def noise(rng: np.random.Generator, n_corr: int) -> Vis:
    shape = (len(FIRST), len(FREQ), n_corr)
    values = SIGMA * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    return np.asarray(values, np.complex128)


def by_rows(gain: NDArray[np.complex128]) -> Vis:
    """g_p conj(g_q) of each row, of gains (n_antenna, ...) or (n_time, n_antenna, ...)."""
    g = np.broadcast_to(gain, (N_TIME, *gain.shape[-1:])) if gain.ndim == 1 else gain
    return np.asarray(g[SLOT, FIRST] * g[SLOT, SECOND].conj(), np.complex128)


def in_model(remedy: str) -> Gain:
    """[gain] of a model with the lines that a remedy names."""
    named = re.search(r"\(\[gain\] (.*?)\) with", remedy)
    assert named is not None
    lines = named[1].replace(" and ", "\n")
    source = '[[source]]\nname = "a"\ntype = "point"\neast = "0 deg"\nnorth = "0 deg"\nI = "1 Jy"\n'
    gain = from_toml(f"[gain]\n{lines}\n{source}").gain
    assert isinstance(gain, Gain)
    return gain


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (1.3, r"The gain of A3 \(amplitude \+30 %\) is wrong\."),
        (1.1, r"The gain of A3 \(amplitude \+(9\.9|10) %\) is wrong\."),
        (0.7 + 0.3j, r"The gain of A3 \(amplitude -24 %, phase \+23 deg\) is wrong\."),
    ],
)
def test_one_wrong_gain_is_no_closure_error(factor: complex, words: str) -> None:
    """Second orders of 30 % are 9 %, many times the noise of a baseline: 14 of 105 have them."""
    gain = np.ones(N_ANTENNA, complex)
    gain[3] = factor
    data = np.repeat((TRUTH * by_rows(gain)[:, None])[..., None], 2, axis=2)
    found = found_in(data + noise(np.random.default_rng(1), 2), ["XX", "YY"])
    assert found[0].kind == "antenna gain"
    assert re.fullmatch(words, found[0].verdict)
    assert 'amplitude = { prior = "log-normal", sd = 0.1 }' in found[0].remedy
    assert "per =" not in found[0].remedy


@pytest.mark.parametrize("seed", [1, 7])
def test_constant_gains_do_not_change_with_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gain = np.exp(0.15 * rng.normal(size=N_ANTENNA)).astype(complex)
    data = np.repeat((TRUTH * by_rows(gain)[:, None])[..., None], 2, axis=2)
    found = found_in(data + noise(rng, 2), ["XX", "YY"])
    assert found[0].kind == "antenna gain"
    assert found[0].verdict.startswith("The gains of the antennas are wrong, by amplitude ")
    assert "per =" not in found[0].remedy


@pytest.mark.parametrize("seed", [1, 7])
def test_constant_gains_of_two_feeds_that_turn(seed: int) -> None:
    """Rotation by P was taken out of the data, P^H g_p V g_q^H P: gains are constant in the feeds alone."""
    rng = np.random.default_rng(seed)
    gain = np.exp(0.1 * rng.normal(size=(N_ANTENNA, 2)))
    angle = np.linspace(-1.2, 1.2, N_TIME)
    c, s = np.cos(angle), np.sin(angle)
    turn = np.moveaxis(np.array([[c, s], [-s, c]], complex), -1, 0)
    left = turn.transpose(0, 2, 1)[SLOT] @ (gain[FIRST][:, :, None] * np.eye(2))
    right = (gain[SECOND][:, :, None] * np.eye(2)) @ turn[SLOT]
    data = TRUTH[..., None] * (left @ right).reshape(-1, 1, 4)
    turns = np.repeat(turn[:, None], N_ANTENNA, axis=1)
    found = found_in(data + noise(rng, 4), ["XX", "XY", "YX", "YY"], turns)
    assert found[0].kind == "antenna gain"
    assert "are wrong, and differently in the two feeds, by amplitude " in found[0].verdict
    assert found[0].explained > 0.95
    assert in_model(found[0].remedy).feeds == "separate"
    assert "per =" not in found[0].remedy


def test_gains_that_change_are_said_to() -> None:
    rng = np.random.default_rng(3)
    walk = np.exp(1j * np.cumsum(0.2 * rng.normal(size=(N_TIME, N_ANTENNA)), axis=0))
    data = np.repeat((TRUTH * by_rows(walk)[:, None])[..., None], 2, axis=2)
    found = found_in(data + noise(rng, 2), ["XX", "YY"])
    assert found[0].kind == "gain drift"
    assert "change with time, within 600 s, by " in found[0].verdict
    assert 'phase = { prior = "uniform", per = "integration" })' in found[0].remedy
    assert in_model(found[0].remedy).feeds == "common"


def test_fluxes_that_a_prior_holds_are_named_and_do_not_vary() -> None:
    """Both sources 1 % faint: 15 mJy against 30 mJy / sqrt(5040) a datum, some 25 sigma."""
    data = np.repeat(TRUTH[..., None], 2, axis=2) + noise(np.random.default_rng(2), 2)
    found = found_in(data, ["XX", "YY"], flux=(0.99 * 1.5, 0.99 * 0.8))
    assert [each.kind for each in found] == ["flux of the model"]
    # Within 4 sigma of 1.0101 %.
    assert re.match(r"The whole model is (0\.9\d*|1\.[01]\d*) % too faint\.", found[0].verdict)


def test_noise_that_is_correlated_is_no_drift_of_gains() -> None:
    """Autoregressive noise of each baseline: 29 numbers of gains do not follow 210 of a time."""
    rng = np.random.default_rng(5)
    series = noise(rng, 2).reshape(N_TIME, len(P), len(FREQ), 2)
    for i in range(1, N_TIME):
        series[i] = 0.9 * series[i - 1] + math.sqrt(1 - 0.9**2) * series[i]
    data = np.repeat(TRUTH[..., None], 2, axis=2) + series.reshape(-1, len(FREQ), 2)
    assert [each.kind for each in found_in(data, ["XX", "YY"])] == ["correlated in time"]
