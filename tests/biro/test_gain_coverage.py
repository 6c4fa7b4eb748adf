"""The truth within intervals as often as they say, by each treatment of gains, with eht-imaging's set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import biro
from biro.likelihood.likelihood import Likelihood
from biro.models import Gain, GaussianSource, LogUniform, Noise, PerSegment, PointSource, SkyModel, Uniform
from biro.observation.observation import Observation
from tests.biro.test_antenna_terms import eht, eht_observation, observation, true_values
from tests.biro.test_fitted_gains import TURN, exercise, true_theta

__all__ = ["eht", "observation"]  # fixtures
KEYS = ("g.emaj", "g.emin", "g.pa", "p.east", "p.north", "p.I")
"""What closures tell of a Gaussian and a point, of which the first has a flux and a place that are known."""


def stokes_i_sky(eht: dict[str, np.ndarray]) -> SkyModel:
    """The two sources in Stokes I, with flux and place of the first as they are."""
    known, offset = true_values(eht), Uniform(-60, 60, "uas")
    size = {"emaj": Uniform(45, 80, "uas"), "emin": Uniform(20, 44, "uas"), "pa": Uniform(0, 90, "deg")}
    place = {key: f"{known[f'g.{key}']} uas" for key in ("east", "north")}
    gauss = GaussianSource("g", I=f"{known['g.I']} Jy", **size, **place)
    return SkyModel(
        [gauss, PointSource("p", east=offset, north=offset, I=Uniform(0.01, 3, "Jy"))],
        centre=(0.0, 0.0),
        noise=Noise(factor=1.0),
    )


def stokes_i(eht: dict[str, np.ndarray], seed: int, scale: float = 1.0) -> Observation:
    """The set in Stokes I, with new noise `scale` times that of the set, seen through gains of each time."""
    n_time, n_station = len(eht["times"]), len(eht["stations"])
    rng = np.random.default_rng(seed)
    vis = eht["vis_ideal"][:, 0, [0, 3]].mean(axis=1)
    sigma = np.hypot(eht["sigma"][:, 0], eht["sigma"][:, 3]) / 2 * scale
    vis = vis + sigma * (rng.normal(size=vis.size) + 1j * rng.normal(size=vis.size))
    amplitude = rng.normal(0, 0.1, (n_time, n_station))
    gain = np.exp(amplitude + 1j * rng.uniform(-np.pi, np.pi, (n_time, n_station)))
    factor = gain[eht["time_index"], eht["antenna1"]] * gain[eht["time_index"], eht["antenna2"]].conj()
    weight = (1.0 / (sigma * np.abs(factor)) ** 2)[:, None, None]
    return eht_observation(eht, (vis * factor)[:, None, None], ["RR"], weight)


def bound(eht: dict[str, np.ndarray], data: Observation, how: str) -> Likelihood:
    """Closures, or gains of each antenna and time of which nothing is known, sampled or integrated over."""
    sky = stokes_i_sky(eht)
    if how != "closures":
        free = PerSegment(LogUniform(1e-3, 1e3), per="integration")
        turn = PerSegment(TURN, per="integration")
        sky = replace(sky, gain=Gain(amplitude=free, phase=turn, reference="auto"))
    likelihood = Likelihood(data, sky, gains=how, backend="cpu")
    assert tuple(likelihood.parameter_names[: len(KEYS)]) == KEYS
    assert (likelihood.n_param == len(KEYS)) == (how != "sample")
    return likelihood


def climbed(likelihood: Likelihood, theta: np.ndarray, n_step: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss and Newton's maximum, and standard errors there."""
    for _ in range(n_step):
        covariance = np.linalg.inv(likelihood.fisher(theta))
        theta = theta + covariance @ likelihood.log_likelihood_and_gradient(theta)[1]
    return theta, np.sqrt(np.diag(covariance))


def truth(eht: dict[str, np.ndarray]) -> np.ndarray:
    known = true_values(eht)
    return np.array([known[name] for name in KEYS])


def test_closures_and_gains_of_which_nothing_is_known_say_the_same(eht: dict[str, np.ndarray]) -> None:
    """Integrals over free gains leave what closures see (Blackburn et al. 2020), at a high signal."""
    found = {how: bound(eht, stokes_i(eht, 1), how) for how in ("closures", "marginalise")}
    (at, sigma), (other, error) = (climbed(one, truth(eht), 3) for one in found.values())
    # The median SNR of a visibility is 70, and one in twenty has less than 19: hundredths of a sigma.
    assert np.abs((other - at) / sigma).max() < 0.1
    np.testing.assert_allclose(error, sigma, rtol=0.02)
    far = at + 0.3 * sigma * np.array([1, -1, 1, -1, 1, -1])
    one, two = (
        likelihood.log_likelihood(far) - likelihood.log_likelihood(at) for likelihood in found.values()
    )
    assert one < -5.0
    # Closures take their variances from noisy amplitudes, which matters most where few visibilities decide.
    assert two == pytest.approx(one, rel=0.1)


@pytest.mark.thorough
def test_three_treatments_have_the_same_posterior(eht: dict[str, np.ndarray]) -> None:
    """Closures, gains integrated over, and gains as parameters, by NUTS on every third time of the set."""
    pytest.importorskip("nutpie", reason="nutpie is not installed")
    (part,) = stokes_i(eht, 1).partitions
    seen = (part.time_index % 3 == 0)[:, None, None]
    data = replace(stokes_i(eht, 1), partitions=(replace(part, weight=np.where(seen, part.weight, 0.0)),))
    found = {}
    for how in ("closures", "marginalise", "sample"):
        likelihood = bound(eht, data, how)
        known = dict(zip(KEYS, truth(eht), strict=True))
        theta = np.array([known.get(name, 1.0) for name in likelihood.parameter_names])
        if how == "sample":
            theta = likelihood.with_best_gains(theta[None])[0]
        start = dict(zip(likelihood.parameter_names, theta, strict=True))
        options = {"n_chain": 2, "n_tune": 250, "n_draw": 500}
        posterior = biro.sample(likelihood, "nuts", seed=1, progress=False, start=start, **options)
        assert posterior.diagnostics["n_divergent"] == 0
        table = posterior.summary()
        draws = posterior.samples[:, [posterior.names.index(name) for name in KEYS]]
        found[how] = draws.mean(axis=0), draws.std(axis=0), np.array([table[name].ess for name in KEYS])
    mean, sigma, n = found.pop("marginalise")
    for other, error, n_other in found.values():
        # Four Monte Carlo errors of a mean and of a standard deviation, and the hundredths of a sigma by
        # which closures, with variances from noisy amplitudes, and Laplace's integral are off at this signal.
        per_draw = 1.0 / n + 1.0 / n_other
        assert np.all(np.abs(other - mean) / sigma < 4.0 * np.sqrt(per_draw) + 0.05)
        assert np.all(np.abs(error / sigma - 1.0) < 4.0 * np.sqrt(per_draw / 2.0) + 0.03)


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["closures", "marginalise"])
def test_the_truth_is_inside_as_often_as_it_should_be(eht: dict[str, np.ndarray], how: str) -> None:
    """New noise, three times that of the set, and new gains for each of 100 sets."""
    pulls = []
    for seed in range(100):
        at, sigma = climbed(bound(eht, stokes_i(eht, seed, 3.0), how), truth(eht), 3)
        pulls.append((at - truth(eht)) / sigma)
    # 600 numbers, those of one set not independent: as 300, binomial errors of 2.7 and 1.3 %, four of these.
    assert np.mean(np.abs(pulls) < 1.0) == pytest.approx(0.683, abs=0.11)
    assert np.mean(np.abs(pulls) < 2.0) == pytest.approx(0.954, abs=0.05)
    # Of 100 sets a mean is known to 0.1 sigma; four of these.
    assert np.abs(np.mean(pulls, axis=0)).max() < 0.4
    print(how, np.mean(np.abs(pulls) < 1.0), np.mean(np.abs(pulls) < 2.0), np.mean(pulls, axis=0))


@pytest.mark.thorough
def test_the_posterior_of_the_exercise_holds_the_truth(
    eht: dict[str, np.ndarray], observation: Observation
) -> None:
    """Sky, leakages and gains by NUTS, with what free gains leave undetermined fixed at the truth."""
    pytest.importorskip("nutpie", reason="nutpie is not installed")
    sky, known = exercise(eht, "ALMA"), true_values(eht)
    gauss, point = sky.sources
    place = {key: f"{known[f'g.{key}']} uas" for key in ("east", "north")}
    k = list(map(str, eht["stations"])).index("ALMA")
    ratio = eht["gain"][0, k, 0] / eht["gain"][0, k, 1]
    of_alma = {"ratio_amplitude": float(abs(ratio)), "ratio_phase": f"{np.degrees(np.angle(ratio))} deg"}
    gain = replace(sky.gain, antenna={"ALMA": of_alma})
    sources = (replace(gauss, I=f"{known['g.I']} Jy", **place), point)
    likelihood = Likelihood(observation, replace(sky, sources=sources, gain=gain), backend="cpu")
    every = Likelihood(observation, sky, backend="cpu")
    values = dict(zip(every.parameter_names, true_theta(eht, every), strict=True))
    theta = np.array([values[name] for name in likelihood.parameter_names])
    start = dict(zip(likelihood.parameter_names, theta, strict=True))
    options = {"n_chain": 2, "n_tune": 150, "n_draw": 200}
    posterior = biro.sample(likelihood, "nuts", seed=1, progress=False, start=start, **options)
    away = posterior.samples - theta
    period = np.array([parameter.period or np.inf for parameter in likelihood.parameters])
    turns = np.isfinite(period)
    away[:, turns] -= np.rint(away[:, turns] / period[turns]) * period[turns]
    pulls = np.abs(away.mean(axis=0) / away.std(axis=0))
    kind = np.array([name.partition(".")[0] for name in likelihood.parameter_names])
    for one, n in (("leakage", 32), ("gain", 130)):
        # Gains of a scan share errors: as a third of them, four binomial errors.
        some = pulls[kind == one]
        assert some.size >= n
        assert np.mean(some < 1.0) == pytest.approx(0.683, abs=4 * np.sqrt(0.683 * 0.317 * 3 / some.size))
        assert np.mean(some < 2.0) == pytest.approx(0.954, abs=4 * np.sqrt(0.954 * 0.046 * 3 / some.size))
    assert np.sqrt(np.mean(pulls[np.isin(kind, ["g", "p"])] ** 2)) < 1.6  # 12 numbers
