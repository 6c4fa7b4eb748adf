"""The likelihood against its formula (physics: section 7), written out for skies with closed forms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import biro
import biro.likelihood.engines
from biro.errors import BackendError, InputError, LikelihoodError, ModelError
from biro.inference.target.checked import Target
from rime_kernels import Rime

ONE_SOURCE = """
[[source]]
name = "a"
type = "point"
east = "0 arcsec"
north = "0 arcsec"
I = { prior = "uniform", low = -10, high = 10, unit = "Jy" }
V = { prior = "uniform", low = -10, high = 10, unit = "Jy" }
"""
FIXED_NOISE = """
[noise]
factor = 1
"""


def sky(text: str, tmp_path) -> biro.SkyModel:
    path = tmp_path / "sky.toml"
    path.write_text(text)
    return biro.read_model(path)


def observation(seed: int = 0, n_row: int = 40, **about) -> biro.Observation:
    """Four antennas, two channels, RR and LL, random data, random weights, a tenth flagged."""
    rng = np.random.default_rng(seed)
    pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    antenna1, antenna2 = pairs[rng.integers(0, 6, n_row)].T
    shape = (n_row, 2, 2)
    return biro.Observation.from_arrays(
        vis=rng.normal(size=shape) + 1j * rng.normal(size=shape) + 3.0,
        uvw=rng.normal(scale=300.0, size=(n_row, 3)),
        antenna1=antenna1,
        antenna2=antenna2,
        time=5e9 + np.sort(rng.integers(0, 10, n_row)),
        chan_freq=[1.0e9, 1.5e9],
        corr_type=["RR", "LL"],
        weight=rng.uniform(0.5, 2.0, shape),
        flag=rng.random(shape) < 0.1,
        **about,
    )


def joined(*parts: biro.Observation) -> biro.Observation:
    """One observation of the first partition of each."""
    return biro.Observation(
        partitions=tuple(part.partitions[0] for part in parts),
        antenna_names=parts[0].antenna_names,
        antenna_positions=parts[0].antenna_positions,
        telescope="",
        source="arrays",
        column="DATA",
        weight_origin="WEIGHT",
        counts={},
    )


def log_likelihood_by_hand(obs: biro.Observation, i: float, v: float, s: float) -> float:
    """A source at the phase centre is I + V in RR and I - V in LL, on every baseline."""
    total = 0.0
    for part in obs.partitions:
        for k, model in enumerate([i + v, i - v]):
            used = part.weight[..., k] > 0
            w, d = part.weight[..., k][used], part.vis[..., k][used]
            sigma = s / np.sqrt(w)
            for component in (d.real - model, d.imag):
                # One real number of a Gaussian: -x^2/(2 sigma^2) - ln(2 pi sigma^2)/2.
                total += np.sum(-0.5 * (component / sigma) ** 2 - 0.5 * np.log(2.0 * np.pi * sigma**2))
    return total


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("form", ["factored", "row"])
def test_it_is_the_sum_of_gaussians_of_real_numbers(tmp_path, precision: str, form: str) -> None:
    obs = observation()
    likelihood = biro.Likelihood(obs, sky(ONE_SOURCE, tmp_path), precision=precision, form=form)
    assert likelihood.parameter_names[:2] == ["a.I", "a.V"]
    assert likelihood.n_param == 3  # a noise factor is fitted by default
    theta = np.array([[2.5, 0.3, 1.0], [1.0, -0.7, 1.7], [-3.0, 0.0, 0.4]])
    expected = [log_likelihood_by_hand(obs, *vector) for vector in theta]
    # 1e-12: sums of 150 terms in float64. Single: residuals of 3 Jy good to 6e-8.
    tolerance = 1e-12 if precision == "double" else 1e-6
    np.testing.assert_allclose(likelihood.log_likelihood(theta), expected, rtol=tolerance)
    assert likelihood.log_likelihood(theta[1]) == pytest.approx(expected[1], rel=tolerance)


def test_a_fixed_noise_factor_is_no_parameter(tmp_path) -> None:
    obs = observation()
    likelihood = biro.Likelihood(obs, sky(ONE_SOURCE + FIXED_NOISE, tmp_path))
    assert likelihood.parameter_names == ["a.I", "a.V"]  # a list, which UltraNest adds a list to
    expected = log_likelihood_by_hand(obs, 1.0, 0.5, 1.0)
    assert likelihood.log_likelihood([1.0, 0.5]) == pytest.approx(expected, rel=1e-12)


def test_posterior_of_a_flux_is_its_weighted_mean(tmp_path) -> None:
    """The log-likelihood of I is a parabola: peak at the weighted mean, width 1/sqrt(sum w)."""
    obs = observation(3)
    likelihood = biro.Likelihood(obs, sky(ONE_SOURCE + FIXED_NOISE, tmp_path))
    part = obs.partitions[0]
    total = part.weight.sum()
    # At V = 0 both hands estimate I.
    mean = (part.weight * part.vis.real).sum() / total
    f = np.array(likelihood.log_likelihood([[mean - 1.0, 0.0], [mean, 0.0], [mean + 1.0, 0.0]]))
    np.testing.assert_allclose(f[0], f[2], rtol=1e-12)
    np.testing.assert_allclose(f[0] - 2.0 * f[1] + f[2], -total, rtol=1e-10)


def test_flagged_samples_do_not_count(tmp_path) -> None:
    obs = observation()
    likelihood = biro.Likelihood(obs, sky(ONE_SOURCE, tmp_path))
    assert likelihood.n_vis.tolist() == [np.count_nonzero(obs.partitions[0].weight)]
    assert likelihood.n_vis[0] < obs.partitions[0].vis.size


def test_a_batch_is_its_vectors(tmp_path) -> None:
    likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path))
    theta = likelihood.prior_transform(np.random.default_rng(5).random((50, 3)))
    alone = [likelihood.log_likelihood(vector) for vector in theta]
    assert likelihood.log_likelihood(theta).tolist() == alone
    np.testing.assert_array_equal(
        likelihood.log_posterior(theta), likelihood.log_prior(theta) + likelihood.log_likelihood(theta)
    )


def test_the_prior_bounds_the_posterior(tmp_path) -> None:
    likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path))
    assert likelihood.log_prior([11.0, 0.0, 1.0]) == -np.inf
    assert likelihood.log_posterior([11.0, 0.0, 1.0]) == -np.inf


def test_prior_and_likelihood_come_from_one_call(tmp_path) -> None:
    """Outside the prior both are -inf, and no visibilities are computed."""
    likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path))
    theta = likelihood.prior_transform(np.random.default_rng(6).random((5, 3)))
    theta[2, 0] = 11.0
    inside = np.array([True, True, False, True, True])
    expected = likelihood.log_likelihood(theta[inside])
    before = likelihood.n_call
    log_prior, value = likelihood.log_prior_and_likelihood(theta)
    assert likelihood.n_call == before + 4
    assert (log_prior[2], value[2]) == (-np.inf, -np.inf)
    np.testing.assert_array_equal(value[inside], expected)
    np.testing.assert_array_equal(log_prior[inside], likelihood.log_prior(theta[inside]))
    assert likelihood.log_prior_and_likelihood(theta[0]) == (log_prior[0], value[0])
    # A sampler's target asks a likelihood of one's own twice instead, with the same result.
    both = Target(WithoutBoth(likelihood)).log_prior_and_likelihood(theta)
    np.testing.assert_array_equal(both, (log_prior, value))


class WithoutBoth:
    """A likelihood with the methods that every sampler needs, and no others."""

    def __init__(self, likelihood: biro.Likelihood) -> None:
        for name in ("parameters", "model", "log_likelihood", "log_prior", "prior_transform", "allowed"):
            setattr(self, name, getattr(likelihood, name))
        self.log_constraint_mass = 0.0


def test_a_likelihood_and_its_full_share_data_and_no_counts(tmp_path) -> None:
    linear = ONE_SOURCE.replace(
        'I = { prior = "uniform", low = -10, high = 10, unit = "Jy" }',
        'I = { prior = "normal", mean = "1 Jy", sd = "1 Jy", marginalise = true }',
    )
    likelihood = biro.Likelihood(observation(), sky(linear, tmp_path))
    full = likelihood.full
    assert likelihood.parameter_names == ["a.V", "noise.factor"]
    assert full.parameter_names == ["a.I", "a.V", "noise.factor"]
    assert full.full is full
    assert full.observation is likelihood.observation
    assert (full.options, full.precision) == (likelihood.options, likelihood.precision)
    full.log_likelihood([1.0, 0.0, 1.0])
    assert (likelihood.n_call, full.n_call) == (0, 1)


def test_a_single_vector_gives_a_float(tmp_path) -> None:
    likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path))
    assert type(likelihood.log_likelihood([1.0, 0.0, 1.0])) is float
    assert type(likelihood.log_posterior([1.0, 0.0, 1.0])) is float
    assert likelihood.log_likelihood(np.empty((0, 3))).shape == (0,)


@pytest.mark.parametrize("shape", [(), (2,), (4,), (5, 2), (2, 5, 3)])
def test_other_shapes_are_refused(tmp_path, shape: tuple[int, ...]) -> None:
    likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path))
    with pytest.raises(InputError, match=r"theta must have shape \(3,\) or \(n_batch, 3\), got"):
        likelihood.log_likelihood(np.ones(shape))


@pytest.mark.parametrize("theta", ["abc", [1j, 0.0, 1.0], [[1.0], [2.0, 3.0]]])
def test_what_is_no_number_is_refused(tmp_path, theta) -> None:
    likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path))
    with pytest.raises(InputError, match="theta must be real numbers"):
        likelihood.log_likelihood(theta)


def test_not_a_number_is_minus_infinity_and_counted(tmp_path) -> None:
    likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path))
    values = likelihood.log_likelihood([[np.nan, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 0.0, -1.0]])
    assert values[0] == -np.inf
    assert np.isfinite(values[1])
    assert values[2] == -np.inf
    assert likelihood.nan_count >= 1


def test_too_many_of_them_stop_the_run(tmp_path) -> None:
    likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path))
    theta = np.tile([1.0, 0.0, 1.0], (1000, 1))
    theta[:200, 0] = np.nan
    with pytest.raises(LikelihoodError, match=r"200 of 1000 .* a\.I = nan, a\.V = 0, "):
        likelihood.log_likelihood(theta)


def test_cuda_without_a_gpu_is_an_error(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("NUMBA_DISABLE_CUDA", "1")
    from rime_kernels import device

    if device.resolve("auto")[0] == "cuda":
        pytest.skip("this process has a GPU already")
    with pytest.raises(BackendError, match="cuda"):
        biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path), backend="cuda")


def test_two_partitions_have_a_noise_factor_each(tmp_path) -> None:
    one, two = observation(1, field="A"), observation(2, field="B")
    both = joined(one, two)
    likelihood = biro.Likelihood(both, sky(ONE_SOURCE, tmp_path))
    assert likelihood.n_param == 4
    value = likelihood.log_likelihood([1.0, 0.2, 0.5, 2.0])
    expected = log_likelihood_by_hand(one, 1.0, 0.2, 0.5) + log_likelihood_by_hand(two, 1.0, 0.2, 2.0)
    assert value == pytest.approx(expected, rel=1e-12)
    assert likelihood.chi2([1.0, 0.2, 0.5, 2.0]).shape == (2,)


def test_every_partition_is_compared_with_the_sky_from_its_own_centre(tmp_path) -> None:
    """What one partition alone gives, whatever stands beside it: two fields, the first in two bands."""
    centres = [(1.0, 0.5), (1.003, 0.501), (1.0, 0.5)]
    alone = [observation(i, field=f"F{i}", phase_centre=centre) for i, centre in enumerate(centres)]
    text = ONE_SOURCE.replace(
        'east = "0 arcsec"', 'ra = { prior = "uniform", low = 0.99, high = 1.01, unit = "rad" }'
    )
    text = text.replace('north = "0 arcsec"', 'dec = "0.5 rad"') + FIXED_NOISE
    theta = np.array([[1.001, 2.0, 0.3], [0.999, -1.0, 0.2], [1.0, 3.0, 0.0]])
    together = biro.Likelihood(joined(*alone), sky(text, tmp_path))
    single = [biro.Likelihood(one, sky(text, tmp_path)) for one in alone]
    expected = np.stack([likelihood.chi2(theta)[:, 0] for likelihood in single], axis=1)
    np.testing.assert_array_equal(together.chi2(theta), expected)
    # Three sums of 150 terms instead of one.
    values = sum(likelihood.log_likelihood(theta) for likelihood in single)
    np.testing.assert_allclose(together.log_likelihood(theta), values, rtol=1e-13)
    for vis, likelihood in zip(together.predict(theta[0]), single, strict=True):
        np.testing.assert_array_equal(vis, likelihood.predict(theta[0])[0])


def test_every_partition_is_begun_before_the_first_is_waited_for(tmp_path, monkeypatch) -> None:
    both = joined(observation(1, field="A"), observation(2, field="B"))
    likelihood = biro.Likelihood(both, sky(ONE_SOURCE, tmp_path))
    theta = [1.0, 0.2, 0.5, 2.0]
    expected, order = likelihood.chi2(theta), []

    def start(self: Rime, *given: Any) -> Callable[[], NDArray[np.float64]]:
        order.append("begun")
        finish = begin(self, *given)
        return lambda: (order.append("waited for"), finish())[1]

    begin = Rime.start_chi2
    monkeypatch.setattr(Rime, "start_chi2", start)
    assert likelihood.chi2(theta).tolist() == expected.tolist()
    assert order == ["begun", "begun", "waited for", "waited for"]


def test_the_memory_limit_is_shared_out_by_size(tmp_path, monkeypatch) -> None:
    given = []
    monkeypatch.setattr(
        biro.likelihood.engines,
        "Rime",
        lambda *rows, memory_limit, **more: (given.append(memory_limit), Rime(*rows, **more))[1],
    )
    both = joined(observation(1, n_row=40, field="A"), observation(2, n_row=120, field="B"))
    for limit in ("2 GB", 2_000_000_000, None):
        biro.Likelihood(both, sky(ONE_SOURCE, tmp_path), memory_limit=limit, backend="cpu")
    # On the CPU, of what the data leave, a millionth here.
    assert given[4:] == [None, None]
    assert given[:4] == pytest.approx([5e8, 1.5e9, 5e8, 1.5e9], rel=1e-3)
    assert max(given[:4]) < 1.5e9


def test_no_result_depends_on_the_memory_limit(tmp_path) -> None:
    obs = observation()
    likelihood = biro.Likelihood(obs, sky(ONE_SOURCE, tmp_path))
    (part,) = obs.partitions
    limit = part.vis.size * 87 + 10_000  # 10 kB more than the data take (docs/scale.md)
    limited = biro.Likelihood(obs, sky(ONE_SOURCE, tmp_path), memory_limit=limit)
    theta = likelihood.prior_transform(np.random.default_rng(5).random((50, 3)))
    # The promise for whatever the budget.
    np.testing.assert_allclose(limited.log_likelihood(theta), likelihood.log_likelihood(theta), rtol=1e-12)
    assert limited.digest() == likelihood.digest()
    assert limited.description()["memory_limit"] == limit


@pytest.mark.parametrize("limit", ["8 parsec", "GB", 0, -1, True])
def test_a_memory_limit_that_cannot_be_meant_is_refused(tmp_path, limit) -> None:
    with pytest.raises(InputError, match="memory_limit must be bytes, or text such as"):
        biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path), memory_limit=limit)


def test_a_path_is_refused_with_what_reads_it(tmp_path) -> None:
    with pytest.raises(InputError, match=r"needs the result of biro\.read_model, got the path 'sky\.toml'"):
        biro.Likelihood(observation(), "sky.toml")
    with pytest.raises(InputError, match=r"needs the result of biro\.read_model, got NoneType"):
        biro.Likelihood(observation(), None)
    with pytest.raises(InputError, match=r"needs the result of biro\.read, got the path 'obs\.ms'"):
        biro.Likelihood(Path("obs.ms"), sky(ONE_SOURCE, tmp_path))


def test_likelihood_and_data_are_shown_in_a_line(tmp_path) -> None:
    likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE, tmp_path), backend="cpu")
    n_vis, n_param = likelihood.n_vis.sum(), likelihood.n_param
    assert f"{n_vis} visibilities, {n_param} parameters; cpu, double precision>" in repr(likelihood)
    for shown in (repr(likelihood), repr(likelihood.observation)):
        assert "\n" not in shown
        assert len(shown) < 200


def test_the_plan_has_a_line_for_each_partition(tmp_path) -> None:
    one, two = observation(1, field="A"), observation(2, field="B")
    likelihood = biro.Likelihood(joined(one, two), sky(ONE_SOURCE, tmp_path), backend="cpu", form="row")
    *lines, memory = likelihood.plan(16).splitlines()
    assert [line.split(": ")[0] for line in lines] == list(likelihood.observation.labels)
    assert all("cpu" in line and "row form" in line for line in lines)
    n_byte = 24 * sum(part.vis.size for part in likelihood.observation.partitions)  # in double precision
    assert memory == f"{n_byte / 1e6:.3g} MB of prepared data, in memory"
    with pytest.raises(InputError, match="n_batch must be at least 1, got 0"):
        likelihood.plan(0)


def test_what_a_constraint_forbids_is_minus_infinity_and_no_error(tmp_path) -> None:
    text = ONE_SOURCE + FIXED_NOISE + '[[constraint]]\nbounds = "a.I"\nlow = "0 Jy"\n'
    obs = observation()
    likelihood = biro.Likelihood(obs, sky(text, tmp_path))
    values = likelihood.log_likelihood([[1.0, 0.5], [-1.0, 0.5], [2.0, 0.0], [np.nan, 0.0]])
    assert values[[1, 3]].tolist() == [-np.inf, -np.inf]
    assert likelihood.nan_count == 0
    for k, flux, circular in ((0, 1.0, 0.5), (2, 2.0, 0.0)):
        assert values[k] == pytest.approx(log_likelihood_by_hand(obs, flux, circular, 1.0), rel=1e-12)
    assert likelihood.log_likelihood([-1.0, 0.0]) == -np.inf
    assert likelihood.log_likelihood(np.empty((0, 2))).shape == (0,)


def test_the_model_is_what_was_simulated(tmp_path) -> None:
    """V = I exp(2 pi i (u l + v m + w (n - 1)) nu / c): a source 40 arcsec east, 20 north."""
    text = ONE_SOURCE.replace('east = "0 arcsec"', 'east = "40 arcsec"')
    text = text.replace('north = "0 arcsec"', 'north = "20 arcsec"')
    obs = observation()
    likelihood = biro.Likelihood(obs, sky(text, tmp_path))
    (vis,) = likelihood.predict([2.0, 0.5, 1.0])
    arcsec = np.pi / 180 / 3600
    l, m = 40 * arcsec, 20 * arcsec
    n = np.sqrt(1 - l**2 - m**2)
    part = obs.partitions[0]
    turns: NDArray[np.float64] = (
        (part.uvw @ [l, m, -(l**2 + m**2) / (1 + n)])[:, None] * part.chan_freq / 299792458.0
    )
    expected = np.exp(2j * np.pi * turns)[..., None] * np.array([2.5, 1.5])
    # Phases of some 0.2 turns: nothing but rounding.
    np.testing.assert_allclose(vis, expected, rtol=0, atol=1e-13)


def test_a_model_for_nothing_is_an_error(tmp_path) -> None:
    with pytest.raises(ModelError, match="source"):
        sky("[sky]\n", tmp_path)


def test_a_constraint_is_asked_once_a_step(tmp_path) -> None:
    calls = []

    def bright(parameters):
        calls.append(len(parameters["a.I"]))
        return parameters["a.I"] > 0.0

    model = sky(ONE_SOURCE + FIXED_NOISE, tmp_path)
    likelihood = biro.Likelihood(
        observation(), biro.SkyModel(model.sources, noise=model.noise, constraints=[bright])
    )
    theta = np.array([[1.0, 0.5], [-1.0, 0.5]])
    for step in (likelihood.log_posterior, likelihood.log_posterior_and_gradient, likelihood.log_likelihood):
        calls.clear()
        step(theta)
        assert calls == [2]
