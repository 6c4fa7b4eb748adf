"""The maximum, and NUTS, of gains whose precision is taken by segments, against the dense way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import biro
from biro.errors import RunError
from biro.inference.maximum.segments import precision
from biro.inference.maximum.segments.laplace import SegmentLaplace
from biro.inference.samplers.coordinates.whitened import Whitened, WhitenedFrame
from biro.models import Noise, PointSource, SkyModel, Uniform
from tests.biro.test_fitted_gains import drifting, simulated, small

NOISE = 0.02


def likelihood_of(sky: SkyModel, seed: int = 3) -> tuple[biro.Likelihood, np.ndarray]:
    first = biro.Likelihood(small(n_chan=1), sky, backend="cpu")
    theta = first.prior_transform(np.random.default_rng(seed).uniform(0.2, 0.8, first.n_param))
    return biro.Likelihood(simulated(first, theta, NOISE, seed), sky, backend="cpu"), theta


@pytest.fixture
def by_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few parameters there are."""
    monkeypatch.setattr(precision, "MANY", 1)


@pytest.mark.parametrize("correlated", [None, pytest.param("10 min", marks=pytest.mark.thorough)])
def test_the_maximum_is_that_of_the_dense_way(
    correlated: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    likelihood, _ = likelihood_of(drifting(correlated))
    dense = biro.maximise(likelihood, seed=1, starts=4)
    monkeypatch.setattr(precision, "MANY", 1)
    found = biro.maximise(likelihood, seed=1)
    assert isinstance(found.laplace, SegmentLaplace)
    assert found.converged
    # Each is within 1e-6 of the highest log-posterior: within 1.5e-3 sigma of each parameter.
    assert found.log_posterior == pytest.approx(dense.log_posterior, abs=3e-6)
    away = np.array([p.period or np.nan for p in likelihood.parameters])
    difference = found.best_fit - dense.best_fit
    difference -= np.nan_to_num(away * np.rint(difference / away))
    assert np.abs(difference / dense.error).max() < 3e-3
    # The information is the expected curvature: residuals of noise 0.02 of 1 Jy change it by per cents.
    np.testing.assert_allclose(found.error, dense.error, rtol=0.05)
    assert found.log_evidence == pytest.approx(dense.log_evidence, abs=0.3)
    assert found.to_dict()["covariance"] is None
    sizes = np.outer(dense.error, dense.error)
    np.testing.assert_allclose(found.covariance / sizes, dense.covariance / sizes, rtol=0, atol=0.1)


@pytest.mark.parametrize("correlated", [None, "1 min"])
def test_a_climb_begins_at_the_gains_of_the_data(correlated: str | None) -> None:
    """Without noise, gains beside the true sky are the true ones, wherever they were drawn."""
    first = biro.Likelihood(small(n_chan=1), drifting(correlated), backend="cpu")
    unit = np.random.default_rng(3).uniform(0.2, 0.8, (3, first.n_param))
    truth, *draws = first.prior_transform(unit)
    data = simulated(first, truth, 1e-6, 3)
    (part,) = data.partitions
    weighed = replace(part, weight=np.full(part.weight.shape, 1e12))
    likelihood = biro.Likelihood(replace(data, partitions=(weighed,)), first.sky, backend="cpu")
    is_gain = np.array([name.startswith("gain") for name in likelihood.parameter_names])
    found = likelihood.with_best_gains(np.where(is_gain, draws, truth))
    np.testing.assert_array_equal(found[:, ~is_gain], np.tile(truth[~is_gain], (2, 1)))
    gains, expected = (likelihood.model.gains(theta, 0) for theta in (found, truth))
    # Some times the noise, 1e-6 of a source of 1 Jy.
    assert np.abs(gains / expected - 1.0).max() < 1e-5
    # What is no gain of the data stays as it was.
    without = biro.Likelihood(likelihood.observation, replace(first.sky, gain=None), backend="cpu")
    assert not without.solves_gains


@pytest.mark.thorough
def test_a_flux_at_the_end_of_its_prior(by_segments: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is the distance that holds 68 %, and what follows it is where the dense way has it."""
    sky = drifting()
    sources = [sky.sources[0], replace(sky.sources[1], I=Uniform("1.3 Jy", "2 Jy"))]
    likelihood, theta = likelihood_of(sky)
    assert theta[list(likelihood.parameter_names).index("b.I")] < 1.2
    likelihood = biro.Likelihood(likelihood.observation, replace(sky, sources=sources), backend="cpu")
    found = biro.maximise(likelihood, seed=1)
    monkeypatch.setattr(precision, "MANY", 1000)
    dense = biro.maximise(likelihood, seed=1, starts=4)
    np.testing.assert_array_equal(found.laplace.side, dense.laplace.side)
    assert found["b.I"] == 1.3
    assert found.log_posterior == pytest.approx(dense.log_posterior, abs=1e-5)
    # A misfit: the expected curvature is not the actual one to more than tens of per cent.
    np.testing.assert_allclose(found.error, dense.error, rtol=0.3)
    assert found.log_evidence == pytest.approx(dense.log_evidence, abs=3.0)
    draws = found.laplace.draws(np.random.default_rng(0), 4000) - found.best_fit
    inside = found.laplace.side == 0
    # Relative errors of standard deviations of 4000 draws: 1.1 % each, 4 of them.
    rms = np.sqrt(np.mean(draws**2, axis=0))
    np.testing.assert_allclose(rms[inside], found.error[inside], rtol=0.045)
    np.testing.assert_allclose(rms**2, found.covariance.diagonal(), rtol=0.09)


def test_the_normal_approximation_draws_from_its_density(by_segments: None) -> None:
    likelihood, _ = likelihood_of(drifting("1 min"))
    laplace = biro.maximise(likelihood, seed=1).laplace
    assert isinstance(laplace, SegmentLaplace)
    rng, n = np.random.default_rng(0), likelihood.n_param
    draws = laplace.draws(rng, 4000)
    # Relative errors of 44 standard deviations of 4000 draws: 1.1 % each, 4 of them.
    np.testing.assert_allclose(draws.std(axis=0), laplace.error, rtol=0.045)
    inverse = np.linalg.inv(laplace.covariance)
    away = draws[:5] - laplace.theta
    squared = np.einsum("ni,ij,nj->n", away, inverse, away)
    # Roundings of an inverse whose condition is that of the parameters' units.
    np.testing.assert_allclose(laplace.log_density(draws[:5]), -0.5 * squared, rtol=1e-6)
    norm = -0.5 * (n * np.log(2 * np.pi) + np.linalg.slogdet(laplace.covariance)[1])
    np.testing.assert_allclose(laplace.log_normalised(draws[:5]), norm - 0.5 * squared, rtol=1e-6)
    moved = np.arange(n) == 3
    shift = laplace.following(moved, np.where(moved, laplace.error, 0.0))
    expected = laplace.covariance[:, 3] / laplace.error[3]
    np.testing.assert_allclose(shift / laplace.error, expected / laplace.error, rtol=0, atol=1e-6)


@pytest.mark.thorough
def test_nuts_whitens_by_segments_and_goes_on(by_segments: None, tmp_path: Path) -> None:
    """The posterior is standard normal in its coordinates, as far as it is normal; a run can be resumed."""
    pytest.importorskip("nutpie", reason="nutpie is not installed")
    likelihood, theta = likelihood_of(drifting("1 min"))
    run = tmp_path / "run"
    options = {"seed": 3, "progress": False, "n_tune": 100, "run_dir": run}
    biro.sample(likelihood, "nuts", n_draw=60, **options)
    (run / "posterior.nc").unlink()
    posterior = biro.sample(likelihood, "nuts", n_draw=150, **options)
    with np.load(run / "draws.npz") as file:
        assert file["factor"].shape == (0, 0)
        z, frame = file["z"].reshape(-1, likelihood.n_param), WhitenedFrame.of(file)
    density = Whitened(likelihood, frame)
    np.testing.assert_allclose(density.z(density.theta(z[:3])), z[:3], atol=1e-6)
    # The floor in y makes coordinates of hardly known parameters narrower by per cents.
    assert 0.7 < np.median(z.std(axis=0)) < 1.2
    assert posterior.diagnostics["n_divergent"] < 10
    away = np.abs(posterior.samples.mean(axis=0) - theta) / posterior.samples.std(axis=0)
    assert np.median(away) < 1.5
    with pytest.raises(RunError):
        biro.sample(likelihood, "nuts", n_draw=150, **{**options, "seed": 4})


def test_few_parameters_are_taken_as_before() -> None:
    likelihood, _ = likelihood_of(drifting())
    assert precision.many_segments(likelihood) is None
    sky = SkyModel([PointSource("a", east="0 arcsec", north="0 arcsec", I=Uniform("0 Jy", "2 Jy"))])
    assert biro.Likelihood(small(), replace(sky, noise=Noise(factor=1.0)), backend="cpu").segments is None
