"""Gains of many segments: the precision of all parameters in blocks, against the dense matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import biro
from biro.inference.block_arrowhead.space import ArrowheadPrecision
from biro.models import Feeds, Gain, Leakage, LogNormal, Noise, Normal, PerSegment, SkyModel, Uniform
from rime_kernels import rime as rime_module
from rime_kernels.engine.device_threads import HostCPU
from tests.biro.test_fitted_gains import TIMES, TURN, drifting, small


def by_feed() -> SkyModel:
    """Gains of both feeds, leakages, and a delay of each scan, of sources with polarisation."""
    sky = drifting()
    gain = Gain(
        amplitude=PerSegment(LogNormal(0.1), per="integration"),
        phase=PerSegment(TURN, per="integration"),
        delay=PerSegment(Normal("0 ns", "1 ns"), per="scan"),
        feeds="separate",
    )
    return replace(sky, gain=gain, leakage=Leakage(d_r=Uniform(-0.1, 0.1)), feeds=Feeds(mount="equatorial"))


OWN_NOISE = Noise(per="antenna", factor=LogNormal(0.5), systematic=Uniform(0.0, 0.2))
SOME_FITTED = Gain(
    amplitude=PerSegment(LogNormal(0.1), per="integration", correlated=TIMES),
    phase=PerSegment(TURN, per="integration", correlated="1 min"),
)
CASES = [
    pytest.param(drifting(), {}, id="independent"),
    pytest.param(drifting("1 min"), {}, id="correlated"),
    pytest.param(replace(drifting("1 min"), gain=SOME_FITTED), {}, id="a fitted time"),
    pytest.param(by_feed(), {}, id="feeds and leakage"),
    pytest.param(replace(drifting(), noise=OWN_NOISE), {}, id="noise of antennas"),
    pytest.param(drifting(), {"smearing": "on"}, id="smeared", marks=pytest.mark.thorough),
]


@pytest.mark.parametrize(("sky", "options"), CASES)
def test_precision_by_segments_is_that_of_the_dense_matrix(sky: SkyModel, options: dict[str, str]) -> None:
    likelihood = biro.Likelihood(small(), sky, backend="cpu", **options)
    n, space = likelihood.n_param, likelihood.segments
    assert space is not None
    assert space.layout.is_chained == ("gain.phase.step[B][time 2]" in likelihood.parameter_names)
    rng = np.random.default_rng(0)
    theta = likelihood.prior_transform(rng.uniform(0.3, 0.7, n))
    prior = rng.uniform(0.5, 1.5, n)
    dense = likelihood.fisher(theta) + np.diag(prior)
    precision = ArrowheadPrecision(space, likelihood.fisher_by_segments(theta) + space.of_diagonal(prior))
    inverse, one = np.linalg.inv(dense), np.eye(n)
    sizes = np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
    # Roundings, times a condition number of some 1e3 in units of the parameters' own errors.
    close = {"rtol": 0, "atol": 1e-11}
    np.testing.assert_allclose(precision.solve(one) / sizes, inverse / sizes, **close)
    np.testing.assert_allclose(precision.variances(), np.diag(inverse), rtol=1e-11)
    assert precision.log_det == pytest.approx(np.linalg.slogdet(dense)[1], rel=1e-12)
    root = precision.draw(one)
    np.testing.assert_allclose(root @ root.T / sizes, inverse / sizes, **close)
    np.testing.assert_array_almost_equal(precision.draw_back(one), root.T, decimal=11)
    np.testing.assert_allclose(precision.whiten(root), one, **close)


def test_a_space_seen_from_other_parameters() -> None:
    """P of y is J^T P J, with J = d theta / d y: diagonal but for the border, whose block is full."""
    likelihood = biro.Likelihood(small(), drifting("1 min"), backend="cpu")
    n, space, rng = likelihood.n_param, likelihood.segments, np.random.default_rng(0)
    assert space is not None
    border = space.layout.border
    slopes, full = rng.uniform(0.5, 2.0, n), np.eye(border.size) + 0.1 * rng.normal(size=(border.size,) * 2)
    jacobian = np.diag(slopes)
    jacobian[np.ix_(border, border)] = full
    theta = likelihood.prior_transform(rng.uniform(0.3, 0.7, n))
    arrowhead = likelihood.fisher_by_segments(theta) + space.of_diagonal(np.ones(n))
    dense = jacobian.T @ (likelihood.fisher(theta) + np.eye(n)) @ jacobian
    found = ArrowheadPrecision(space.seen_from(slopes, full), arrowhead)
    inverse = np.linalg.inv(dense)
    sizes = np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
    np.testing.assert_allclose(found.solve(np.eye(n)) / sizes, inverse / sizes, rtol=0, atol=1e-11)
    assert found.log_det == pytest.approx(np.linalg.slogdet(dense)[1], rel=1e-12)


def test_shards_give_the_blocks_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two pretended devices, each with the segments of its own times."""
    monkeypatch.setattr(rime_module, "threads_of", lambda _, n: [HostCPU() for _ in range(n)])
    whole, shared = (
        biro.Likelihood(small(n_chan=1), drifting(), backend="cpu", devices=n) for n in (None, 2)
    )
    theta = whole.prior_transform(np.random.default_rng(3).uniform(0.2, 0.8, whole.n_param))
    expected = whole.fisher_by_segments(theta)
    found = shared.fisher_by_segments(theta)
    for name in ("diagonal", "side", "corner"):
        values = getattr(expected, name)
        # The same products, added in another order.
        np.testing.assert_allclose(getattr(found, name), values, rtol=0, atol=1e-12 * np.abs(values).max())
