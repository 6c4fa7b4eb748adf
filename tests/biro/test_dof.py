"""Degrees of freedom: chi2 of simulated data is their number on average, however gains are treated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import biro
from biro.models import Gain, LogNormal, Noise, PerSegment
from tests.biro.test_fitted_gains import TURN, drifting, simulated, small

SKY = replace(
    drifting(),
    noise=Noise(factor=1.0),
    gain=Gain(
        amplitude=PerSegment(LogNormal(0.1), per="scan"),
        phase=PerSegment(TURN, per="integration"),
        feeds="common",
    ),
)  # fmt: skip


@pytest.mark.parametrize("noise", [0.02, 0.5])
def test_chi2_is_the_degrees_of_freedom_on_average(noise: float) -> None:
    """Mean chi2 of 40 data sets, gains drawn from priors; also where data know amplitudes hardly better."""
    full = biro.Likelihood(small(noise=noise), SKY, backend="cpu")
    rng, chi2, dof = np.random.default_rng(1), [], []
    for k in range(40):
        truth = full.prior_transform(rng.uniform(0.05, 0.95, full.n_param))
        for i, name in enumerate(full.parameter_names):
            if "amplitude" in name:  # of the whole prior
                truth[i] = np.exp(0.1 * rng.normal())
        data = simulated(full, truth, noise, 100 + k)
        likelihood = biro.Likelihood(data, SKY, backend="cpu", gains="solve")
        names = full.parameter_names
        theta = np.array([truth[names.index(name)] for name in likelihood.parameter_names])
        chi2.append(float(likelihood.chi2(theta)[0]))
        # The sky is the true one: its parameters take nothing.
        dof.append(float(likelihood.dof(theta)[0]) + likelihood.n_param)
    # The mean scatters by sqrt(2 dof / 40): four times that; a gain too many in each of 30 would be 30.
    scatter = np.sqrt(2.0 * np.mean(dof) / 40)
    assert abs(np.mean(chi2) - np.mean(dof)) < 4.0 * scatter


def test_gains_count_alike_in_every_treatment() -> None:
    """Four phases of six times, of five antennas one the reference; ten amplitudes of two scans."""
    full = biro.Likelihood(small(noise=1e-3), SKY, backend="cpu")
    truth = full.prior_transform(np.full(full.n_param, 0.5))
    data = simulated(full, truth, 1e-3, 1)
    sampled, solved, integrated = (
        biro.Likelihood(data, SKY, backend="cpu", gains=gains) for gains in ("sample", "solve", "marginalise")
    )
    n_data = float(sampled.n_data[0])
    for likelihood in (sampled, solved, integrated):
        assert likelihood.dof()[0] == pytest.approx(n_data - 4 * 6 - 5 * 2 - 2)
    outer = np.array([truth[full.parameter_names.index(name)] for name in solved.parameter_names])
    # At a signal to noise of 1000 priors of 0.1 are next to nothing.
    assert solved.dof(outer)[0] == pytest.approx(n_data - 36, abs=0.05)
    assert integrated.dof(outer)[0] == pytest.approx(n_data - 36, abs=0.05)
    assert sampled.dof(truth)[0] == pytest.approx(n_data - 36, abs=0.05)
    closures = biro.Likelihood(data, replace(SKY, gain=None), backend="cpu", gains="closures")
    assert closures.dof()[0] == closures.n_data[0] - 2
