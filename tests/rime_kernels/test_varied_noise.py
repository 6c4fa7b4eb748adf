"""Sums over visibilities whose noise differs by row and follows the model, against SciPy's densities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rime_kernels.varied_noise.sums import density_slopes, log_density


@pytest.mark.parametrize("dof", [0.0, 3.5])
@pytest.mark.parametrize("scale", [1e-45, 1.0, 1e45])
def test_sums_are_those_of_scipy(dof: float, scale: float) -> None:
    """Variances over some decades, and in units in which products of them leave double precision."""
    rng, shape = np.random.default_rng(1), (5, 40)
    vis, data = (scale * rng.normal(size=(*shape, 2)).view(complex)[..., 0] for _ in range(2))
    weight = 10.0 ** rng.uniform(-3, 3, shape) / scale**2
    weight[rng.random(shape) < 0.2] = 0.0
    of_row = rng.uniform(0.5, 2.0, (3, 5)) * np.array([[1.0], [0.04], [scale**2]])
    used = weight > 0.0
    with np.errstate(divide="ignore"):
        v = of_row[0][:, None] / weight + of_row[1][:, None] * np.abs(vis) ** 2 + of_row[2][:, None]
    away = (data - vis)[used]
    if dof:  # a t of two dimensions
        ratio = np.abs(away) ** 2 / v[used]
        each = -np.log(v[used]) - (1.0 + dof / 2.0) * np.log1p(ratio / dof)
        one = stats.multivariate_t.logpdf([1.0, 2.0], shape=3.0 * np.eye(2), df=dof)
        assert one == pytest.approx(-np.log(6.0 * np.pi) - (1.0 + dof / 2.0) * np.log1p(5.0 / 3.0 / dof))
    else:
        sigma = np.sqrt(v[used])
        each = stats.norm.logpdf(away.real, 0, sigma) + stats.norm.logpdf(away.imag, 0, sigma)
        each += np.log(2.0 * np.pi)
    expected = np.zeros(5)
    np.add.at(expected, np.nonzero(used)[0], each)
    found, both = np.empty(5), np.empty((5, 2))
    by_row, residual = np.empty((5, 3)), np.empty(shape, complex)
    log_density(vis, data, weight, of_row, dof, found)
    density_slopes(vis, data, weight, of_row, dof, both, by_row, residual)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(both[:, 0], expected, rtol=1e-12)

    def moved(vis: np.ndarray, of_row: np.ndarray, dof: float) -> np.ndarray:
        out = np.empty(5)
        log_density(vis, data, weight, of_row, dof, out)
        return out

    step = 1e-5
    for k in range(3):
        change = np.zeros((3, 5))
        change[k] = step * of_row[k]
        slope = (moved(vis, of_row + change, dof) - moved(vis, of_row - change, dof)) / (2.0 * change[k])
        # Central differences of 1e-5: 1e-10 of truncation, and roundings of 1e-15 of ln L over the step.
        np.testing.assert_allclose(by_row[:, k], slope, rtol=1e-6, atol=1e-6 * np.abs(slope).max())
    if dof:
        slope = (moved(vis, of_row, dof + step) - moved(vis, of_row, dof - step)) / (2.0 * step)
        np.testing.assert_allclose(both[:, 1], slope, rtol=1e-5)
    weighted = -weight * residual
    for turn in (1.0, 1.0j):
        direction = scale * turn * rng.normal(size=shape)
        up, down = (moved(vis + s * step * direction, of_row, dof) for s in (1.0, -1.0))
        along = (weighted.conj() * direction).real.sum(axis=1)
        np.testing.assert_allclose(along, (up - down) / (2.0 * step), rtol=1e-5, atol=1e-6)
