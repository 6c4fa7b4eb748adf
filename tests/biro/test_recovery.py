"""The real likelihood, sampled: closed forms of linear fluxes, and a simulated sky that comes back."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

import biro
from biro.simulation.simulator import Channels, Track

LOW, HIGH = -10.0, 10.0
POSITIONS = {"a": (30.0, -20.0), "b": (55.0, 10.0)}  # arcsec; less than a beam apart: fluxes correlate
FLUX = np.array([2.0, 1.9])
SIGMA = 1.5


def fluxes(constraint: str = "") -> str:
    """Two points at known places, known noise: the model is linear in its two parameters."""
    prior = f'{{ prior = "uniform", low = {LOW}, high = {HIGH}, unit = "Jy" }}'
    text = "[noise]\nfactor = 1\n" + constraint
    for name, (east, north) in POSITIONS.items():
        text += f'[[source]]\nname = "{name}"\ntype = "point"\neast = "{east} arcsec"\n'
        text += f'north = "{north} arcsec"\nI = {prior}\n'
    return text


def design(uvw: NDArray[np.float64], chan_freq: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Visibilities of unit fluxes, (n_source, n_row, n_chan); offsets from the phase centre are l and m."""
    columns = []
    for east, north in POSITIONS.values():
        l, m = (math.radians(x / 3600) for x in (east, north))
        metres = uvw @ [l, m, math.sqrt(1 - l * l - m * m) - 1]
        columns.append(np.exp(2j * np.pi * metres[:, None] * chan_freq / 299792458.0))
    return np.array(columns)


def observed(seed: int = 3) -> tuple[biro.Observation, NDArray[np.complex128]]:
    """30 rows of RR and LL with noise of 1.5 Jy, stated rightly, and the unit visibilities."""
    rng = np.random.default_rng(seed)
    uvw, chan_freq = rng.normal(scale=400.0, size=(30, 3)), np.array([1.0e9, 1.4e9])
    unit = design(uvw, chan_freq)
    shape = (30, 2, 2)
    noise = SIGMA * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    pairs = np.array([(0, 1), (0, 2), (1, 2)])[np.arange(30) % 3]
    return biro.Observation.from_arrays(
        vis=np.tensordot(FLUX, unit, 1)[..., None] + noise,
        uvw=uvw,
        antenna1=pairs[:, 0],
        antenna2=pairs[:, 1],
        time=5e9 + 10.0 * (np.arange(30) // 3),
        chan_freq=chan_freq,
        corr_type=["RR", "LL"],
        weight=np.full(shape, SIGMA**-2),
    ), unit


class ClosedForm:
    """A linear Gaussian problem: mean, covariance, and evidence over a wide uniform prior.

    ln Z = ln L(mean) + ln sqrt(det 2 pi C) - ln V
    """

    def __init__(self) -> None:
        self.observation, unit = observed()
        part = self.observation.partitions[0]
        w, d = part.weight.astype(float), part.vis.astype(complex)
        columns = np.repeat(unit[..., None], 2, axis=-1)
        normal = np.einsum("irck,jrck,rck->ij", columns.conj(), columns, w).real
        right = np.einsum("irck,rck,rck->i", columns.conj(), d, w).real
        self.covariance = np.linalg.inv(normal)
        self.mean = self.covariance @ right
        residual = d - np.tensordot(self.mean, columns, 1)
        self.best = float(np.sum(-0.5 * w * np.abs(residual) ** 2 + np.log(w / (2 * np.pi))))
        volume = (HIGH - LOW) ** 2
        _, log_det = np.linalg.slogdet(2 * np.pi * self.covariance)
        self.log_evidence = self.best + 0.5 * log_det - math.log(volume)


@pytest.fixture(scope="module")
def closed() -> ClosedForm:
    return ClosedForm()


def likelihood_of(observation: biro.Observation, text: str, tmp_path) -> biro.Likelihood:
    path = tmp_path / "sky.toml"
    path.write_text(text)
    return biro.Likelihood(observation, biro.read_model(path), backend="cpu")


def assert_moments(posterior: biro.Posterior, closed: ClosedForm) -> None:
    """Mean and covariance within 4.5 standard errors of what as many independent samples give."""
    weight, n = posterior.weight, posterior.effective.min()
    mean = weight @ posterior.samples
    away = posterior.samples - mean
    covariance = (away * weight[:, None]).T @ away
    sigma = np.sqrt(np.diag(closed.covariance))
    assert np.all(np.abs(mean - closed.mean) < 4.5 * sigma / np.sqrt(n))
    rho = closed.covariance / np.outer(sigma, sigma)
    error = np.outer(sigma, sigma) * np.sqrt((1 + rho**2) / n)  # of a normal sample's covariance
    assert np.all(np.abs(covariance - closed.covariance) < 4.5 * error)


def test_the_problem_is_what_it_should_be(closed, tmp_path) -> None:
    likelihood = likelihood_of(closed.observation, fluxes(), tmp_path)
    # chi2 is near 240 and both sums are in float64.
    assert likelihood.log_likelihood(closed.mean) == pytest.approx(closed.best, abs=1e-9)
    correlation = closed.covariance[0, 1] / np.sqrt(np.prod(np.diag(closed.covariance)))
    assert 0.1 < abs(correlation) < 0.95


def test_linear_fluxes_with_emcee(closed, tmp_path) -> None:
    likelihood = likelihood_of(closed.observation, fluxes(), tmp_path)
    posterior = biro.sample(likelihood, "emcee", seed=1, progress=False)
    assert posterior.diagnostics["converged"]
    assert_moments(posterior, closed)


@pytest.mark.parametrize("sampler", ["dynesty", "dynesty-dynamic"])
def test_linear_fluxes_and_evidence_with_dynesty(closed, tmp_path, sampler) -> None:
    likelihood = likelihood_of(closed.observation, fluxes(), tmp_path)
    posterior = biro.sample(likelihood, sampler, seed=2, progress=False, n_live=100, n_effective=800)
    assert_moments(posterior, closed)
    assert posterior.log_evidence_err < 0.35
    assert abs(posterior.log_evidence - closed.log_evidence) < 3.5 * posterior.log_evidence_err


@pytest.mark.parametrize(
    ("constraint", "kept"),
    [
        ('[[constraint]]\norder = ["b.I", "a.I"]\n', 0.5),  # built into the transform
        ('[[constraint]]\nbounds = "b.I"\nlow = "2 Jy"\n', 8.0 / 20.0),  # by rejection
    ],
    ids=["order", "bounds"],
)
def test_evidence_under_a_constraint(closed, tmp_path, constraint, kept) -> None:
    """ln Z of the renormalised prior: the posterior's mass inside, over the prior's."""
    likelihood = likelihood_of(closed.observation, fluxes(constraint), tmp_path)
    draws = multivariate_normal(closed.mean, closed.covariance).rvs(400_000, random_state=5)
    inside = (draws[:, 1] > draws[:, 0]) if kept == 0.5 else (draws[:, 1] > 2.0)
    assert 0.02 < inside.mean() < 0.6
    expected = closed.log_evidence + math.log(inside.mean()) - math.log(kept)
    nested = biro.sample(likelihood, "dynesty", seed=4, progress=False, n_live=200, dlogz=0.1)
    assert abs(nested.log_evidence - expected) < 3.0 * nested.log_evidence_err < 0.8  # less than ln kept
    chain = biro.sample(likelihood, "emcee", seed=4, progress=False)
    for posterior in (nested, chain):
        error = draws[inside].std(axis=0) / np.sqrt(posterior.effective)
        assert np.all(np.abs(posterior.weight @ posterior.samples - draws[inside].mean(axis=0)) < 4.5 * error)


TRUTH = {
    "core.I": 1.0,
    "jet.east": 6.0,
    "jet.north": -3.0,
    "jet.I": 2.0,
    "jet.emaj": 5.0,
    "jet.emin": 2.0,
    "jet.pa": 178.0,  # at the wrap
    "noise.factor": 1.7,
}
POINT_AND_GAUSSIAN = """
[[source]]
name = "core"
type = "point"
east = "0 arcmin"
north = "0 arcmin"
I = { prior = "uniform", low = 0, high = 5, unit = "Jy" }

[[source]]
name = "jet"
type = "gaussian"
east = { prior = "uniform", low = -15, high = 15, unit = "arcmin" }
north = { prior = "uniform", low = -15, high = 15, unit = "arcmin" }
I = { prior = "uniform", low = 0, high = 5, unit = "Jy" }
emaj = { prior = "uniform", low = 0.1, high = 20, unit = "arcmin" }
emin = { prior = "uniform", low = 0.1, high = 20, unit = "arcmin" }
pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }
"""


def simulated(path: Path) -> biro.Observation:
    """KAT-7 for six hours, 0.5 Jy of noise that the weights state 1.7 times too small."""
    made = biro.simulate(
        "KAT-7",
        biro.read_model(path),
        phase_centre="05h00m00s -45d00m00s",
        times=Track("2026-03-01", duration=6 * 3600.0, integration=1800.0),
        channels=Channels(1.3e9, 2e8, 2),
        noise=0.5,
        seed=11,
        values=TRUTH,
    )
    (part,) = made.partitions
    return replace(made, partitions=(replace(part, weight=part.weight * TRUTH["noise.factor"] ** 2),))


@pytest.mark.parametrize("sampler", ["emcee", "dynesty"])
def test_every_parameter_of_a_simulated_sky_comes_back(tmp_path, sampler) -> None:
    """Point and Gaussian across the wrap of its angle, emaj above emin by a constraint, noise fitted."""
    path = tmp_path / "sky.toml"
    path.write_text(POINT_AND_GAUSSIAN)
    likelihood = biro.Likelihood(simulated(path), biro.read_model(path), backend="cpu")
    assert set(likelihood.parameter_names) == set(TRUTH)
    options = {"n_live": 48, "dlogz": 2.0} if sampler == "dynesty" else {"tau_change": 0.1}
    posterior = biro.sample(likelihood, sampler, seed=1, progress=False, **options)
    table = posterior.summary()
    for name, truth in TRUTH.items():
        row = table[name]
        away = row.median - truth
        if name == "jet.pa":
            away -= 180.0 * round(away / 180.0)
        sigma = 0.5 * (row.high_68 - row.low_68)
        # Eight numbers of one realisation of the noise: 3.5 sigma is exceeded by one in 4000 fits.
        assert abs(away) < 3.5 * sigma, name
        assert 0.0 < sigma < 0.2 * max(truth, 1.0), name
