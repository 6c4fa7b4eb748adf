"""Standard deviations of the priors of gains as parameters, where gains are sampled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import biro
from biro.models import (
    Gain,
    HalfNormal,
    LogNormal,
    LogUniform,
    ModelError,
    Normal,
    PerSegment,
    SkyModel,
    Uniform,
)
from tests.biro.test_fitted_gains import (
    TIMES,
    TURN,
    assert_gradients_of_differences,
    drifting,
    simulated,
    small,
)

SPREAD = HalfNormal(0.3)
GAINS = {
    "independent": Gain(
        amplitude=PerSegment(LogNormal(1.0), per="scan", sd=SPREAD),
        phase=PerSegment(Normal(0, 1, "deg"), per="integration", sd=LogUniform(1, 60, "deg")),
    ),
    "correlated": Gain(
        amplitude=PerSegment(LogNormal(1.0), per="integration", correlated="1 min", sd=SPREAD),
        phase=PerSegment(TURN, per="integration"),
    ),
    "both": Gain(
        amplitude=PerSegment(LogNormal(1.0), per="integration", correlated=TIMES, sd=SPREAD),
        phase=PerSegment(
            Normal(0, 1, "deg"), per="integration", correlated=TIMES, sd=LogUniform(1, 60, "deg")
        ),
    ),
}


def sky(name: str) -> SkyModel:
    return replace(drifting(), gain=GAINS[name])


@pytest.mark.parametrize("name", GAINS)
def test_values_and_density_are_those_of_a_fixed_sd(name: str) -> None:
    """At each sd, visibilities are those of the gains that the steps stand for, made one after the other."""
    likelihood = biro.Likelihood(small(), sky(name), backend="cpu")
    theta = likelihood.prior_transform(np.random.default_rng(2).uniform(0.2, 0.8, likelihood.n_param))
    value = dict(zip(likelihood.parameter_names, theta, strict=True))
    (found,) = likelihood.predict(theta)
    (part,), model = likelihood.observation.partitions, GAINS[name]
    logs = np.zeros((6, 5), complex)
    for key, unit in (("amplitude", 1.0), ("phase", 1j * np.pi / 180.0)):
        own = getattr(model, key)
        steps = own.sd is not None
        tail = ".step" if steps else ""
        sd = value.get(f"gain.{key}.sd", 1.0)
        time = value.get(f"gain.{key}.correlated", 1.0) * 60.0 if own.correlated else None
        for antenna, letter in enumerate("ABCDE"):
            x, last = 0.0, None
            for k, t in enumerate(part.times):
                label = f"[scan {1 + k // 3}]" if own.time == "scan" else f"[time {k + 1}]"
                e = value.get(f"gain.{key}{tail}[{letter}]{label}", 0.0)
                keep = 0.0 if last is None or time is None else np.exp(-(t - last) / time)
                x = keep * x + np.sqrt(1.0 - keep**2) * sd * e
                last = t
                logs[k, antenna] += unit * x
    plain = biro.Likelihood(small(), replace(drifting(), gain=None), backend="cpu")
    (bare,) = plain.predict([value[n] for n in plain.parameter_names])
    gain = np.exp(logs)
    by = gain[part.time_index, part.antenna1] * np.conj(gain[part.time_index, part.antenna2])
    # Roundings of products of gains.
    np.testing.assert_allclose(found, by[:, None, None] * bare, rtol=1e-12)


@pytest.mark.parametrize("name", GAINS)
def test_gradients_are_those_of_differences(name: str) -> None:
    assert_gradients_of_differences(sky(name))


@pytest.mark.thorough
def test_the_posterior_of_an_sd_is_that_of_known_gains() -> None:
    """Where the signal is high, 24 ln g are as good as known: p(sd) N(ln g | 0, sd^2) by quadrature."""
    gain = Gain(antennas=list("BCDE"), amplitude=PerSegment(LogNormal(1.0), per="integration", sd=SPREAD))
    a, b = drifting().sources
    model = replace(drifting(), gain=gain, sources=[a, replace(b, I="1 Jy", north="-5 arcsec")])
    likelihood = biro.Likelihood(small(n_chan=1), model, backend="cpu")
    truth = np.random.default_rng(7).normal(size=likelihood.n_param)
    where = likelihood.parameter_names.index("gain.amplitude.sd")
    truth[where] = 0.2
    likelihood = biro.Likelihood(simulated(likelihood, truth, 0.0, 4), model, backend="cpu")
    start = dict(zip(likelihood.parameter_names, truth, strict=True))
    steps = {"n_chain": 2, "n_tune": 300, "n_draw": 1000}
    posterior = biro.sample(likelihood, "nuts", seed=1, progress=False, start=start, **steps)
    logs, grid = 0.2 * np.delete(truth, where), np.linspace(0.05, 0.6, 4001)
    density = -0.5 * (grid / 0.3) ** 2 - logs.size * np.log(grid) - 0.5 * (logs @ logs) / grid**2
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    mean = weight @ grid
    sd = np.sqrt(weight @ (grid - mean) ** 2)
    drawn = posterior["gain.amplitude.sd"]
    # Errors of ln g of 0.01 beside 0.2 do nothing. Of 400 independent draws 0.05 sd, four times, and 4 %.
    assert abs(drawn.mean() - mean) < 0.2 * sd
    assert drawn.std() == pytest.approx(sd, rel=0.15)


def test_model_files_and_what_cannot_be(tmp_path) -> None:
    text = """
[[source]]
name = "a"
east = "0 arcsec"
north = "0 arcsec"
I = "1 Jy"
[gain]
amplitude = { prior = "log-normal", sd = { prior = "half-normal", sd = 0.2 }, per = "scan" }

[gain.phase]
prior = "normal"
sd = { prior = "log-uniform", low = "1 deg", high = "60 deg" }
per = "integration"
correlated = "5 min"
"""
    path = tmp_path / "model.toml"
    path.write_text(text)
    model = biro.read_model(path)
    assert model.gains[0].amplitude.sd == HalfNormal(0.2)
    path.write_text(model.to_toml())
    assert biro.read_model(path) == model
    likelihood = biro.Likelihood(small(), model, backend="cpu")
    names = likelihood.parameter_names
    assert "gain.amplitude.sd" in names
    assert "gain.phase.sd" in names
    assert "gain.amplitude.step[A][scan 1]" in names
    for prior, sd, words in (
        (Uniform(0.5, 2), SPREAD, "of a normal or log-normal prior, found uniform"),
        (LogNormal(1.0), 0.3, "expected a prior"),
        (LogNormal(1.0), Normal(0.1, 0.1), "is above 0, so its prior must be, too"),
    ):
        with pytest.raises(ModelError, match=words):
            PerSegment(prior, sd=sd)
