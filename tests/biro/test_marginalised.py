"""Linear parameters integrated over: against the dense covariance of the data, and by differences."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from test_gradient import NOISE, check, image_of_a_blob, snapshots
from test_likelihood import FIXED_NOISE, joined, observation, sky

import biro
from biro.errors import InputError, ModelError
from biro.models import ImageTerm, LogUniform, Noise, Normal, PointSource, SkyModel, Uniform

Array = NDArray[np.float64]
FLUX = '{ prior = "normal", mean = 1, sd = 2, unit = "Jy", marginalise = true }'
MIXED = f"""
[sky]
ref_freq = "1.2 GHz"

[[source]]
name = "g"
type = "gaussian"
east = {{ prior = "uniform", low = -30, high = 30, unit = "arcsec" }}
north = "5 arcsec"
I = {FLUX}
V = {{ prior = "normal", mean = 0, sd = 300, unit = "mJy", marginalise = true }}
emaj = {{ prior = "uniform", low = 1, high = 40, unit = "arcsec" }}
ratio = {{ prior = "uniform", low = 0.1, high = 1 }}
pa = {{ prior = "uniform", low = 0, high = 180, unit = "deg" }}
spectral_index = {{ prior = "normal", mean = -0.7, sd = 0.3 }}

[[source]]
name = "p"
east = "-10 arcsec"
north = {{ prior = "uniform", low = -30, high = 30, unit = "arcsec" }}
I = {FLUX}
v_fraction = {{ prior = "uniform", low = -0.5, high = 0.5 }}

[[source]]
name = "c"
east = "20 arcsec"
north = {{ prior = "uniform", low = -30, high = 30, unit = "arcsec" }}
I = {{ prior = "log-uniform", low = 0.5, high = 5, unit = "Jy" }}
V = {{ prior = "uniform", low = -1, high = 1, unit = "Jy" }}
polynomial = [{{ prior = "normal", mean = 0.1, sd = 0.4, marginalise = true }}, 0.2]
"""


_SPEC = importlib.util.spec_from_file_location("rime_reference", Path(__file__).parents[1] / "reference.py")
assert _SPEC is not None
assert _SPEC.loader is not None
REFERENCE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(REFERENCE)


def dense(
    obs: biro.Observation, model: SkyModel, theta: Array, inner: list[str]
) -> tuple[float, Array, Array]:
    """ln N(d; V(mean), N + T S^2 T^T) of the real numbers of the data; mean and covariance of the parameters.

    Visibilities are sums of tests/reference.py. `theta` is of the full model; the inner ones have any value.
    """
    bound = model.bind(obs.partition_views)
    places = [bound.parameter_names.index(name) for name in inner]
    priors = [bound.parameters[i].prior for i in places]
    mean, sd = np.array([p.mean for p in priors]), np.array([p.sd for p in priors])
    points = np.tile(theta, (1 + len(inner), 1))
    points[:, places] = mean
    points[1 + np.arange(len(inner)), places] += 1.0
    factor = bound.noise_factor(theta[None])[0]
    data, made, variance = [], [], []
    for i, part in enumerate(obs.partitions):
        vis = REFERENCE.visibilities(part.rows, part.corr_type, bound.sources(points, i))
        used = part.weight > 0
        for of in (np.real, np.imag):
            data.append(of(part.vis[used]))
            made.append(of(vis[:, used]))
            variance.append(factor[i] ** 2 / part.weight[used])
    d, v, n = np.concatenate(data), np.concatenate(made, axis=1), np.concatenate(variance)
    response = (v[1:] - v[0]).T
    covariance = np.diag(n) + (response * sd**2) @ response.T
    value = stats.multivariate_normal(v[0], covariance).logpdf(d)
    precision = np.diag(sd**-2.0) + (response.T / n) @ response
    right = mean / sd**2 + (response.T / n) @ (d - v[0] + response @ mean)
    return float(value), np.linalg.solve(precision, right), np.linalg.inv(precision)


def full_theta(likelihood: biro.Likelihood, outer: Array) -> Array:
    names, theta = likelihood.full.parameter_names, np.zeros(likelihood.full.n_param)
    for name, value in zip(likelihood.parameter_names, outer, strict=True):
        theta[names.index(name)] = value
    return theta


@pytest.mark.parametrize("n_partition", [1, 2])
def test_it_is_the_density_of_the_data_with_their_dense_covariance(tmp_path: Path, n_partition: int) -> None:
    parts = [
        observation(i, n_row=12 + i, field=f"F{i}", phase_centre=(1.0 + 1e-4 * i, 0.5))
        for i in range(n_partition)
    ]
    obs, model = joined(*parts), sky(MIXED + NOISE, tmp_path)
    likelihood = biro.Likelihood(obs, model)
    inner = ["g.I", "g.V", "p.I", "c.polynomial[0]"]
    assert likelihood.linear is not None
    assert list(likelihood.linear.inner.names) == inner
    assert not set(inner) & set(likelihood.parameter_names)
    outer = likelihood.prior_transform(np.random.default_rng(3).random((2, likelihood.n_param)))
    found = likelihood.log_likelihood(outer)
    best = likelihood.linear.best(likelihood.model.at(outer)).theta
    for k in range(2):
        value, mean, _ = dense(obs, model, full_theta(likelihood, outer[k]), inner)
        assert found[k] == pytest.approx(value, rel=1e-11)  # a determinant of some 100 numbers
        np.testing.assert_allclose(best[k][likelihood.linear.inner.of_inner], mean, rtol=1e-9)
    # Nor is it any other density at the best values than that of all parameters.
    np.testing.assert_allclose(likelihood.chi2(outer), likelihood.full.chi2(best), rtol=1e-10)
    for one, other in zip(likelihood.predict(outer[0]), likelihood.full.predict(best[0]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_its_gradient_is_that_by_differences(tmp_path: Path) -> None:
    check(biro.Likelihood(snapshots(), sky(MIXED + NOISE, tmp_path)))
