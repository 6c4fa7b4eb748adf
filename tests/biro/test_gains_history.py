"""A likelihood is a function of theta, however gains are treated: calls before do not change it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import biro
from biro.choices import Gains
from biro.models import Gain, LogNormal, LogUniform, Noise, PerSegment, SkyModel
from tests.biro.test_fitted_gains import TURN, drifting, simulated, small
from tests.biro.test_fluxes_beside_gains import TURNING, two
from tests.biro.test_inner_gains import GAINS
from tests.biro.test_noise_beside_gains import TERMS

DECADES = Noise(factor=LogUniform(1e-5, 1e5))


def a_sky(gain: Gain, noise: Noise = DECADES) -> SkyModel:
    return replace(drifting(), gain=gain, noise=noise)


WIDE = Gain(
    amplitude=PerSegment(LogNormal(0.1), per="scan"),
    phase=PerSegment(TURN, per="integration"),
    feeds="common",
)
SPREAD = Gain(
    amplitude=PerSegment(LogNormal(0.1), per="scan", sd=LogUniform(0.01, 1.0)),
    phase=PerSegment(TURN, per="integration"),
)
SKIES = {
    "gains": a_sky(GAINS["feeds"]),
    "steps": a_sky(drifting("1 min").gain),
    "spread": a_sky(SPREAD),
    "noise terms": a_sky(WIDE, TERMS),
    "fluxes": two(TURNING, noise=DECADES),
}
# Of a high signal, and of one at which phases of single integrations are known to a radian.
CASES: list[tuple[str, Gains, float]] = [
    ("gains", "marginalise", 0.02),
    ("gains", "solve", 1.0),
    ("steps", "solve", 0.02),
    ("noise terms", "marginalise", 1.0),
    ("spread", "marginalise", 0.02),
    ("fluxes", "solve", 0.02),
    ("gains", "sample", 0.02),
    ("gains", "closures", 0.02),
]


def data_of(sky: SkyModel, noise: float) -> biro.Observation:
    """Seeded data of a draw of the prior."""
    known = replace(sky, noise=Noise(factor=1.0))
    full = biro.Likelihood(small(), known, backend="cpu", gains="marginalise").full
    truth = full.prior_transform(np.random.default_rng(3).uniform(0.3, 0.7, full.n_param))
    return simulated(full, truth, noise, 4)


def batches(likelihood: biro.Likelihood, n: int) -> np.ndarray:
    """Draws of the prior, and steps from draw to draw as a chain makes them."""
    rng = np.random.default_rng(1)
    unit = rng.uniform(0.001, 0.999, (n, likelihood.n_param))
    for i in range(0, n, 10):  # nine small steps follow each draw
        steps = 0.01 * rng.normal(size=(10, likelihood.n_param)).cumsum(axis=0)
        unit[i : i + 10] = np.clip(unit[i] + steps, 0.001, 0.999)
    return likelihood.prior_transform(unit)


@pytest.mark.parametrize(("name", "gains", "noise"), CASES)
def test_calls_before_do_not_change_a_value(name: str, gains: Gains, noise: float) -> None:
    """ln L after 60 calls in a batch, 60 gradients and the information, and of a new object."""
    sky = SKIES[name]
    data, sky = data_of(sky, noise), replace(sky, gain=None) if gains == "closures" else sky
    used = biro.Likelihood(data, sky, backend="cpu", gains=gains)
    theta = batches(used, 60)
    values = [used.log_likelihood(theta)]
    for i in np.random.default_rng(2).permutation(len(theta)):
        used.log_likelihood_and_gradient(theta[i])
    used.fisher(theta[0])
    values.append(used.log_likelihood(theta))
    for i in (5, 37, 59):
        new = float(
            np.squeeze(biro.Likelihood(data, sky, backend="cpu", gains=gains).log_likelihood(theta[i]))
        )
        for value in values:
            # Searches that end at the same maximum leave 1e-11 of ln L, or 1e-8 where ln L is small; without
            # the rules of `rime_kernels.gains.maximum` values differ by 1e-6 to 1 of themselves.
            assert value[i] == new or value[i] == pytest.approx(new, rel=1e-10, abs=1e-7)


def test_one_call_at_a_tiny_noise_factor_changes_nothing() -> None:
    """Second derivatives of data of a signal 1e8 times as high once ended the next search where it began."""
    data = data_of(SKIES["gains"], 0.02)
    used = biro.Likelihood(data, a_sky(WIDE), backend="cpu", gains="solve")
    theta = used.prior_transform(np.full(used.n_param, 0.5))
    theta[used.parameter_names.index("noise.factor")] = 1.0
    before, tiny = used.log_likelihood(theta), theta.copy()
    tiny[used.parameter_names.index("noise.factor")] = 1e-5
    used.log_likelihood_and_gradient(tiny)
    assert used.log_likelihood(theta) == pytest.approx(before, rel=1e-12)  # roundings
