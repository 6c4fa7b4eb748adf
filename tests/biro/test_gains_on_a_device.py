"""Gains that are integrated over on a GPU: as on the CPU, whose integrals are those of quadrature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

import biro
from biro.likelihood.free_gains.best_gains import BestGains, DeviceGains
from biro.models import Gain, LogNormal, LogUniform, Noise, Normal, PerSegment, PointSource, SkyModel, Uniform
from biro.models.bound.antenna_terms.normal_priors import NormalPriors
from rime_kernels.gains.models import CellModel
from tests.biro.test_fitted_gains import TURN
from tests.biro.test_inner_gains import one_point, pair
from tests.rime_kernels.conftest import cuda_backend

__all__ = ["cuda_backend"]  # a fixture
pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("error::RuntimeWarning")]
NOISE = 0.02
GAINS = {
    # Three groups: one of each time.
    "one gain": Gain(
        amplitude=PerSegment(LogNormal(0.1), per="integration"), phase=PerSegment(TURN, per="integration")
    ),
    # Phases that no data see in an unpolarised sky: those between the feeds.
    "feeds": Gain(
        amplitude=PerSegment(LogNormal(0.1), per="integration"),
        phase=PerSegment(TURN, per="integration"),
        feeds="separate",
    ),
    # Some cells have no fitted gain; and several coordinates of one kind.
    "some antennas": [
        Gain(antennas=["A", "B"], amplitude=LogNormal(0.1), phase=Normal(0, 20, "deg")),
        Gain(antennas=["A"], amplitude=PerSegment(LogNormal(0.05), per="integration")),
    ],
}


def data_of(name: str) -> tuple[biro.Observation, SkyModel, np.ndarray]:
    """Seeded data of three antennas and three times, and the truth of sky and noise."""
    corr = ("RR", "RL", "LR", "LL") if name == "feeds" else ("RR",)
    rng = np.random.default_rng(1)
    place = rng.uniform(-2000, 2000, (4, 3)) * [1, 1, 0.1]
    p, q = np.triu_indices(4, 1)
    n_time = 1 if name == "feeds" else 2
    time = 5e9 + np.repeat(10.0 * np.arange(n_time), p.size)
    uvw = np.tile(place[p] - place[q], (n_time, 1)) * (1 + 1e-3 * (time - time[0]))[:, None]
    vis, freq = np.zeros((time.size, 1, len(corr)), complex), [1.4e9]
    empty = biro.Observation.from_arrays(
        vis, uvw, np.tile(p, n_time), np.tile(q, n_time), time, freq, corr,
        weight=NOISE**-2, antenna_names=list("ABCD"), interval=10.0,
    )  # fmt: skip
    sky = SkyModel(
        [PointSource("a", east="10 arcsec", north=Uniform(-30, 30, "arcsec"), I=LogUniform(0.5, 5, "Jy"))],
        noise=Noise(factor=LogUniform(0.2, 5)),
        gain=GAINS[name],
    )
    sampled = biro.Likelihood(empty, sky, backend="cpu")
    truth = sampled.prior_transform(np.random.default_rng(3).uniform(0.4, 0.6, sampled.n_param))
    truth[sampled.parameter_names.index("noise.factor")] = 1.0
    (vis,) = sampled.predict(truth)
    vis = vis + NOISE * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
    (part,) = empty.partitions
    weight = np.where(np.arange(vis.size).reshape(vis.shape) == 2, 0.0, part.weight)  # one flagged
    names = list(sampled.parameter_names)
    outer = truth[[names.index(x) for x in ("a.north", "a.I", "noise.factor")]]
    return replace(empty, partitions=(replace(part, vis=vis, weight=weight),)), sky, outer


@pytest.mark.parametrize("name", GAINS)
def test_values_and_gradients_are_those_of_the_cpu(cuda_backend: str, name: str) -> None:
    """From a cold start, from where the last search ended, and after a leap."""
    obs, sky, outer = data_of(name)
    host, there = (
        biro.Likelihood(obs, sky, backend=backend, gains="marginalise", smearing="off")
        for backend in ("cpu", cuda_backend)
    )
    kinds = spied(there)
    for away in (0.0, 1e-4, 3e-3, 0.3, 0.31):
        theta = outer * (1.0 + away * np.array([1.0, -1.0, 1.0]))
        wanted, slope = host.log_likelihood_and_gradient(theta)
        found, gradient = there.log_likelihood_and_gradient(theta)
        # Both searches end within some 1e-13 of the maximum of ln L, and roundings of 1e-16 of a chi2 of 1e5.
        assert found == pytest.approx(wanted, rel=1e-9)
        np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-9 * np.abs(slope).max())
        assert there.chi2(theta) == pytest.approx(host.chi2(theta), rel=1e-9)
    # Two searches for each theta. The first begins anew, on the CPU, as that of a leap by many sigma does.
    assert kinds[0] is BestGains
    assert DeviceGains in kinds
    if name == "one gain":
        assert kinds == [BestGains, *[DeviceGains] * 5, BestGains, *[DeviceGains] * 3]


def spied(likelihood: biro.Likelihood) -> list[type[BestGains]]:
    """Fills with the kind of what each search that follows gives."""
    free, kinds = likelihood._treatment.free, list[type[BestGains]]()
    search = free.best

    def best(models: Sequence[CellModel], factor: np.ndarray, priors: NormalPriors) -> BestGains:
        found = search(models, factor, priors)
        kinds.append(type(found))
        return found

    free.best = best
    return kinds


def test_a_large_chi2_is_summed_over_the_data(cuda_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the sums of cells would lose digits; the same here, where they do not."""
    obs, sky, outer = data_of("one gain")
    likelihood = biro.Likelihood(obs, sky, backend=cuda_backend, gains="solve", smearing="off")
    likelihood.log_likelihood(outer)
    kinds = spied(likelihood)
    by_sums = likelihood.log_likelihood(outer)
    monkeypatch.setattr("biro.likelihood.free_gains.best_gains.MATTERS", 0.0)
    assert likelihood.log_likelihood(outer) == pytest.approx(by_sums, rel=1e-10)
    assert kinds == [DeviceGains] * 2


@pytest.mark.parametrize(("noise", "off"), [(0.01, 1e-4), (0.3, 0.01)])
def test_the_integral_over_one_amplitude_is_that_of_quadrature(
    cuda_backend: str, noise: float, off: float
) -> None:
    """As `test_inner_gains.py` has it on the CPU, which the first search here goes by."""
    gain = Gain(antennas=["B"], amplitude=LogNormal(0.2))
    likelihood = biro.Likelihood(pair(noise), one_point(gain), backend=cuda_backend, gains="marginalise")
    (data,) = likelihood.observation.partitions[0].vis.ravel()

    def density(log: float) -> float:
        chi2 = abs(data - np.exp(log)) ** 2 / noise**2
        return float(np.exp(-0.5 * chi2) / (2 * np.pi * noise**2) * stats.norm.pdf(log, scale=0.2))

    wanted, _ = integrate.quad(density, -1.5, 1.5, points=[0.18], limit=400)
    likelihood.log_likelihood([1.001])
    kinds = spied(likelihood)
    assert likelihood.log_likelihood([1.0]) == pytest.approx(np.log(wanted), abs=off)
    assert kinds == [DeviceGains]
