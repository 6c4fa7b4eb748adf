"""Cells beside gains of segments, and beside other terms that change with time: never across a step."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import real
from test_cells import FAR, TRUTH, close, observed, sky

import biro
from biro.likelihood.cells.choose import cells_for, reduced_near
from biro.likelihood.cells.variation import Variation, variations
from biro.models import (
    Gain,
    GaussianBeam,
    Leakage,
    LogNormal,
    Noise,
    Normal,
    PerSegment,
    Pointing,
    PointSource,
    SkyModel,
    Uniform,
)
from biro.models.components.partition_view import SampledTimes
from biro.models.files.toml import from_toml

TURN = Uniform(-180, 180, "deg")
KNOTS = ["0 min", "5 min", "15 min"]
FLAT = Variation(np.radians(1.01 * FAR))
N_TIME, N_CHAN = 40, 8
"""Of `observed`, whose times are 30 s apart."""


def gain(**more) -> Gain:
    """An amplitude for each antenna and 10 min, and a phase for half the channels."""
    return Gain(
        amplitude=PerSegment(LogNormal(0.1), per="10 min"),
        phase=PerSegment(TURN, per="10 min", chan_blocks=2),
        **more,
    )


@functools.cache
def with_gains() -> biro.Observation:
    """The data of `observed`, times gains that are others in the second ten minutes and half of channels."""
    obs, rng = observed(0.3), np.random.default_rng(5)
    part = obs.partitions[0]
    gains = np.exp(rng.normal(0, 0.1, (2, 7))[:, :, None] + 1j * rng.uniform(-3, 3, (2, 7, 2)))
    half = part.time_index // (N_TIME // 2)
    both = gains[half, part.antenna1] * gains[half, part.antenna2].conj()
    by = np.repeat(both, N_CHAN // 2, axis=1)[..., None]
    return replace(obs, partitions=(replace(part, vis=part.vis * by, weight=part.weight / np.abs(by) ** 2),))


def test_steps_are_those_of_segments_blocks_and_knots():
    flare = PointSource("c", east="0 deg", north="0 deg", I=["1 Jy", "2 Jy", "1 Jy"], times=KNOTS)
    leakage = Leakage(d_x=0.01, chan_blocks=4)
    model = replace(sky(gain=gain(), leakage=leakage), sources=[*sky().sources, flare])
    times, channels = model.bind(observed().partition_views).steps(0)
    # Knots at the integrations 10 and 30, a new segment at 20; blocks of 2 channels.
    np.testing.assert_array_equal(np.flatnonzero(np.diff(times)) + 1, [10, 20, 30])
    np.testing.assert_array_equal(np.flatnonzero(np.diff(channels)) + 1, [2, 4, 6])
    plain = sky().bind(observed().partition_views).steps(0)
    assert [np.unique(numbers).size for numbers in plain] == [1, 1]


def test_a_model_at_some_times_and_channels_is_the_model_there():
    """Of segments, rates, delays, polynomials and knots in time that count from the first time of all."""
    model = sky(
        gain=gain(delay=PerSegment(Normal(0, 5, "ns")), rate=PerSegment(Normal(0, 1, "mHz"), per="10 min")),
        beam=GaussianBeam("1 deg", "1.3 GHz"),
        pointing=Pointing(east=["10 arcmin", Normal(0, 10, "arcmin"), "3 arcmin"]),
    )
    flare = PointSource(
        "c", east="1 arcmin", north="0 deg", I=["1 Jy", Uniform(0, 5, "Jy"), "1 Jy"], times=KNOTS
    )
    model = replace(model, sources=[*model.sources, flare])
    bound = model.bind(observed().partition_views)
    samples = SampledTimes(np.array([3, 4, 17, 25, 38]), np.array([1, 6]))
    some = bound.taken([samples])
    assert some.parameter_names == bound.parameter_names
    theta = bound.prior_transform(np.random.default_rng(1).random((2, bound.n_param)))
    whole, found = bound.sources(theta, 0), some.sources(theta, 0)
    np.testing.assert_array_equal(found.lm, whole.lm)
    np.testing.assert_array_equal(found.stokes, whole.stokes[:, samples.times])
    np.testing.assert_array_equal(found.beam.pointing, whole.beam.pointing[:, samples.times])

    def jones(terms):
        return terms.jones[:, terms.time_block][:, :, :, terms.chan_block]

    at = np.ix_([0, 1], samples.times, np.arange(7), samples.channels)
    np.testing.assert_array_equal(jones(found.antenna_terms), jones(whole.antenna_terms)[at])
    # Twice the largest delay, and rate, of 96 and 192 draws: 2.2 to 3.8 standard deviations (at 98 %).
    (own,) = variations(biro.Likelihood(observed(), model))
    assert own.per_hertz == pytest.approx(2 * 2 * np.pi * 5e-9 * 3.0, rel=0.27)
    assert own.per_second == pytest.approx(2 * 2 * np.pi * 1e-3 * 3.0, rel=0.27)


def test_chi_squared_with_gains_that_step_is_that_of_all_data():
    """Near a model whose gains are others in each segment and block: cells keep to these."""
    obs = with_gains()
    likelihood = biro.Likelihood(obs, sky(gain=gain()))
    theta = likelihood.with_best_gains(likelihood.prior_transform(np.full((1, likelihood.n_param), 0.5)))[0]
    near = likelihood.predict(theta)
    cells = cells_for(obs, variations(likelihood), 0.003)
    expanded = cells[0].expand(near[0][cells[0].rows][:, cells[0].channels.nodes])
    missed = np.sqrt(np.mean(np.abs(expanded - near[0]) ** 2) / np.mean(np.abs(near[0]) ** 2))
    # The limit of phases; where cells cross steps they miss as much as there is.
    assert missed < 0.003
    across = cells_for(obs, [FLAT], 0.03)
    expanded = across[0].expand(near[0][across[0].rows][:, across[0].channels.nodes])
    assert np.sqrt(np.mean(np.abs(expanded - near[0]) ** 2) / np.mean(np.abs(near[0]) ** 2)) > 0.5
    found = biro.Likelihood(obs, sky(gain=gain()), average=reduced_near(obs, cells, near))
    value, slope = found.log_likelihood_and_gradient(theta)
    exact, exact_slope = likelihood.log_likelihood_and_gradient(theta)
    assert value == pytest.approx(exact, rel=1e-10)
    error = 1.0 / np.sqrt(np.diag(likelihood.fisher(theta)))
    # Cells that miss 0.03 of phases change these by 0.2.
    assert np.abs((slope - exact_slope) * error).max() < 0.02


def test_a_fit_of_gains_to_cells_is_that_to_all_data():
    """Of two partitions; gains are parameters, of which none moves by more than 0.02 of its error."""
    one = with_gains().partitions[0]
    other = replace(one, spw_id=1, data_desc_id=1, spw="1", weight=2.0 * one.weight)
    obs = replace(with_gains(), partitions=(one, other))
    # What is common to all amplitudes is that of the fluxes.
    model = sky(gain=gain(antenna={"ant1": {"amplitude": 1.0}}))
    cells, whole = biro.Likelihood(obs, model, average="cells"), biro.Likelihood(obs, model)
    assert cells.choices.average[0].startswith("average: cells hold ")
    fewer = sum(part.n_row * part.n_chan for part in obs.partitions) / sum(c.n_kept for c in cells.cells)
    assert fewer > 10.0
    assert cells.parameter_names == whole.parameter_names
    middle = whole.prior_transform(np.full((1, whole.n_param), 0.5))
    for name, value in TRUTH.items():
        middle[:, whole.parameter_names.index(name)] = value
    close(cells, whole, whole.with_best_gains(middle))


@pytest.mark.parametrize("gains", ["marginalise", "solve"])
def test_cells_beside_gains_that_are_integrated_over_or_solved_for(gains):
    obs, model = with_gains(), sky(Noise(factor=Uniform(0.5, 2)), gain=gain())
    cells = biro.Likelihood(obs, model, gains=gains, average="cells")
    whole = biro.Likelihood(obs, model, gains=gains)
    assert cells.choices.average[0].startswith("average: cells hold ")
    assert whole.observation.partitions[0].vis.size > 20 * sum(each.n_kept for each in cells.cells)
    theta = np.array([(TRUTH | {"noise.factor": 1.0})[name] for name in whole.parameter_names])
    exact, slope = whole.log_likelihood_and_gradient(theta)
    value, found = cells.log_likelihood_and_gradient(theta)
    # LIMIT and SHIFT of biro.likelihood.cells.choose.
    assert value == pytest.approx(exact, abs=0.1)
    information = whole.fisher(theta)
    shift = np.linalg.solve(information, found - slope)
    assert np.abs(shift / np.sqrt(np.diag(np.linalg.inv(information)))).max() < 0.02
    np.testing.assert_allclose(cells.chi2(theta), whole.chi2(theta), atol=0.2)
    # Errors count gains by what they take of all data.
    # But for where the search for the best gains began.
    np.testing.assert_allclose(cells.fisher(theta), information, rtol=1e-8, atol=1e-8 * information.max())
    # The gains that are best are within 0.02 of their errors of those beside all data.
    of_all, moved = whole.completed(theta), cells.completed(theta) - whole.completed(theta)
    spread = np.sqrt(np.diag(np.linalg.pinv(whole.full.fisher(of_all), hermitian=True)))
    assert np.abs(moved / spread).max() < 0.02
    for one, other in zip(cells.corrected(theta).partitions, whole.corrected(theta).partitions, strict=True):
        np.testing.assert_allclose(one.vis, other.vis, rtol=1e-8)
    draws = cells.inner_draws(theta[None], np.random.default_rng(1))
    exact_draws = whole.inner_draws(theta[None], np.random.default_rng(1))
    assert draws.log_likelihood == pytest.approx(exact_draws.log_likelihood, abs=0.5)
    assert cells.full.log_likelihood(of_all) == pytest.approx(whole.full.log_likelihood(of_all), abs=0.1)
    # All data were asked before, with fewer parameters than there are now.
    for one, other in zip(cells.full.predict(of_all), whole.full.predict(of_all), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize("gains", ["sample", "marginalise"])
def test_3c273_with_gains_of_scans(measurement_set, gains):
    """ln Z and all parameters, 159 gains of which one treatment has as parameters."""
    obs = biro.read_ms(measurement_set("vla_3c273_x"), correlations=("RR", "LL"))
    text = (
        real.CORE_3C273
        + real.JET_3C273
        + (
            '[gain]\namplitude = { prior = "log-normal", sd = 0.05, per = "scan" }\n'
            'phase = { prior = "normal", mean = 0, sd = 5, unit = "deg", per = "scan" }\n'
        )
    )
    model = from_toml(text)
    cells = biro.Likelihood(obs, model, gains=gains, average="cells")
    assert sum(part.n_row for part in obs.partitions) > 3.0 * sum(each.n_kept for each in cells.cells)
    close(cells, biro.Likelihood(obs, model, gains=gains))


def test_models_are_refused_whose_cells_would_not_stand():
    fluxes = SkyModel(
        [PointSource("a", east="0 deg", north="0 deg", I=Normal(1.0, 1.0, "Jy", marginalise=True))],
        gain=gain(),
    )
    with pytest.raises(biro.errors.InputError, match=r"remove marginalise = true from a\.I"):
        biro.Likelihood(observed(), fluxes, gains="marginalise", average="cells")
