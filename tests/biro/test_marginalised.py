"""Linear parameters integrated over: against the dense covariance of the data, and by differences."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
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
    obs: biro.Observation,
    model: SkyModel,
    theta: Array,
    inner: list[str],
    variances: list[Array] | None = None,
) -> tuple[float, Array, Array]:
    """ln N(d; V(mean), N + T S^2 T^T) of the real numbers of the data; mean and covariance of the parameters.

    Visibilities are sums of tests/reference.py. `theta` is of the full model; the inner ones have any value.
    `variances` of each partition are those of noise that differs among baselines.
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
            own = factor[i] ** 2 / part.weight[used] if variances is None else variances[i][used]
            variance.append(own)
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


INNER = ["g.I", "g.V", "p.I", "c.polynomial[0]"]


def inner_of(likelihood: biro.Likelihood, theta: Array) -> Array:
    """The marginalised ones of all parameters, (..., n_inner)."""
    names = likelihood.full.parameter_names
    return theta[..., [names.index(name) for name in likelihood.marginalised]]


@pytest.mark.parametrize("n_partition", [1, 2])
def test_it_is_the_density_of_the_data_with_their_dense_covariance(tmp_path: Path, n_partition: int) -> None:
    parts = [
        observation(i, n_row=12 + i, field=f"F{i}", phase_centre=(1.0 + 1e-4 * i, 0.5))
        for i in range(n_partition)
    ]
    obs, model = joined(*parts), sky(MIXED + NOISE, tmp_path)
    likelihood = biro.Likelihood(obs, model)
    assert list(likelihood.marginalised) == INNER
    assert not set(INNER) & set(likelihood.parameter_names)
    outer = likelihood.prior_transform(np.random.default_rng(3).random((2, likelihood.n_param)))
    found, best = likelihood.log_likelihood(outer), likelihood.completed(outer)
    draws = likelihood.inner_draws(outer, np.random.default_rng(0))
    for k in range(2):
        value, mean, covariance = dense(obs, model, full_theta(likelihood, outer[k]), INNER)
        assert found[k] == pytest.approx(value, rel=1e-11)  # a determinant of some 100 numbers
        np.testing.assert_allclose(inner_of(likelihood, best[k]), mean, rtol=1e-9)
        np.testing.assert_allclose(draws.centre[k], mean, rtol=1e-9)
        np.testing.assert_allclose(draws.sd[k], np.sqrt(np.diag(covariance)), rtol=1e-9)
    # Roundings of sums of squares that are larger by the flux of the sources.
    np.testing.assert_allclose(likelihood.chi2(outer), likelihood.full.chi2(best), rtol=1e-10)
    np.testing.assert_allclose(draws.log_likelihood, likelihood.full.log_likelihood(draws.theta), rtol=1e-10)
    for one, other in zip(likelihood.predict(outer[0]), likelihood.full.predict(best[0]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_its_gradient_is_that_by_differences(tmp_path: Path) -> None:
    check(biro.Likelihood(snapshots(), sky(MIXED + NOISE, tmp_path)))


def test_it_is_the_same_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Responses that memory does not hold together are worked out again for each pair of pieces."""
    obs, model = observation(n_row=12, phase_centre=(1.0, 0.5)), sky(MIXED + NOISE, tmp_path)
    whole = biro.Likelihood(obs, model)
    theta = whole.prior_transform(np.full(whole.n_param, 0.3))
    expected = whole.log_likelihood_and_gradient(theta)
    monkeypatch.setattr("biro.likelihood.responses.KEPT", 64 * obs.partitions[0].vis.size)
    small = biro.Likelihood(obs, model)
    found = small.log_likelihood_and_gradient(theta)
    # The same products, summed in another order.
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-9)


@pytest.mark.thorough
def test_of_an_image_that_moves_and_a_flux(tmp_path: Path) -> None:
    image = ImageTerm(
        "halo", file=image_of_a_blob(), scale=Normal(1, 2, marginalise=True), east=Uniform(-9, 9, "arcsec"),
        north="2 arcsec",
    )  # fmt: skip
    source = PointSource("s", east="0 rad", north="0 rad", I=Normal(0, 2, "Jy", marginalise=True))
    model = SkyModel(source, images=[image], noise=Noise(LogUniform(0.3, 3)))
    parts = [observation(i, field=f"F{i}", phase_centre=(1.0 + 1e-3 * i, 0.5)) for i in range(2)]
    likelihood = biro.Likelihood(joined(*parts), model)
    assert likelihood.marginalised == ("s.I", "halo.scale")
    check(likelihood)


def all_linear(noise: Noise, *, marginalise: bool = True) -> SkyModel:
    def flux() -> Normal:
        return Normal(1, 2, "Jy", marginalise=marginalise)

    return SkyModel(
        [
            PointSource("a", east="0 arcsec", north="0 arcsec", I=flux(), V=flux()),
            PointSource("b", east="40 arcsec", north="-20 arcsec", I=flux()),
        ],
        noise=noise,
    )


def test_where_all_parameters_are_linear_posterior_and_evidence_are_exact() -> None:
    obs = observation(1, n_row=12, phase_centre=(1.0, 0.5))
    likelihood = biro.Likelihood(obs, all_linear(Noise(1)))
    assert likelihood.n_param == 0
    posterior = biro.sample(likelihood, "dynesty", seed=1, progress=False)
    value, mean, covariance = dense(obs, all_linear(Noise(1)), np.zeros(3), ["a.I", "a.V", "b.I"])
    assert posterior.provenance.sampler == "exact"
    assert posterior.log_evidence == pytest.approx(value, rel=1e-12)
    assert posterior.log_evidence_err == 0.0
    np.testing.assert_allclose(posterior.best_fit, mean, rtol=1e-10)
    # 4000 independent draws: means within 5 of their errors, sigmas within 5 / sqrt(2 n).
    sd, n = np.sqrt(np.diag(covariance)), len(posterior.samples)
    assert (np.abs(posterior.samples.mean(axis=0) - mean) < 5.0 * sd / np.sqrt(n)).all()
    np.testing.assert_allclose(np.cov(posterior.samples.T), covariance, atol=5.0 * sd.max() ** 2 / np.sqrt(n))
    assert posterior.log_likelihood == pytest.approx(
        np.asarray(
            biro.Likelihood(obs, all_linear(Noise(1), marginalise=False)).log_likelihood(posterior.samples)
        )
    )


def test_evidence_and_posterior_are_those_of_all_parameters() -> None:
    """The evidence against a sum over the noise factor of closed forms; fluxes restored with their errors."""
    obs = observation(1, n_row=12, phase_centre=(1.0, 0.5))
    model = all_linear(Noise(LogUniform(0.3, 3)))
    likelihood = biro.Likelihood(obs, model)
    names, inner = likelihood.full.parameter_names, ["a.I", "a.V", "b.I"]
    factors = np.exp(np.linspace(np.log(0.3), np.log(3.0), 201))
    values = []
    for factor in factors:
        theta = np.zeros(len(names))
        theta[names.index("noise.factor")] = factor
        values.append(dense(obs, model, theta, inner)[0])
    log_evidence = np.log(np.trapezoid(np.exp(values), np.log(factors)) / np.log(10.0))
    posterior = biro.sample(likelihood, "none", seed=1, progress=False, n_sample=1000)
    assert posterior.names == tuple(names)
    assert posterior.log_evidence == pytest.approx(log_evidence, abs=5.0 * posterior.log_evidence_err)
    assert posterior.log_evidence_err < 0.05
    few = {"n_walker": 8, "n_effective": 300}
    tempered = biro.sample(likelihood, "tempering", seed=1, progress=False, **few)
    assert tempered.names == tuple(names)
    assert tempered.log_evidence == pytest.approx(log_evidence, abs=4.0 * tempered.log_evidence_err)
    full = likelihood.full
    np.testing.assert_allclose(posterior.log_likelihood, full.log_likelihood(posterior.samples), rtol=1e-11)
    np.testing.assert_allclose(posterior.log_prior, full.log_prior(posterior.samples), rtol=1e-12)
    expected = biro.sample(
        biro.Likelihood(obs, all_linear(Noise(LogUniform(0.3, 3)), marginalise=False)),
        "none",
        seed=1,
        progress=False,
    )
    for name in names:
        (values, weight), (values_2, weight_2) = (p.weighted_draws(name) for p in (posterior, expected))
        mean, other = weight @ values, weight_2 @ values_2
        sd = np.sqrt(weight @ (values - mean) ** 2)
        assert abs(mean - other) < 6.0 * sd * np.sqrt(2.0 / 800)  # both have 800 effective draws or more
        assert sd == pytest.approx(np.sqrt(weight_2 @ (values_2 - other) ** 2), rel=0.15)
    assert posterior.likelihood is full
    assert "marginalise = true" in posterior.provenance.model_toml


PHASE = '{ prior = "normal", mean = "0 deg", sd = "1 deg", marginalise = true }'
REFUSED = {
    "prior is not normal": (
        'I = { prior = "uniform", low = "0 Jy", high = "1 Jy", marginalise = true }',
        "normal",
    ),
    "index": (
        f'I = "1 Jy"\nspectral_index = {FLUX.replace(chr(34) + "Jy" + chr(34), chr(34) * 2)}',
        "not linear",
    ),
    "product": (
        f'I = {FLUX}\npolynomial = {{ prior = "normal", sd = 1, mean = 0, marginalise = true }}',
        "product",
    ),
    "bounds": (
        'I = "1 Jy"\nv_fraction = { prior = "normal", mean = 0, sd = 1, marginalise = true }',
        "bounds",
    ),
    "tie": (f'I = {FLUX}\nV = "a.I * 0.1"', "tied to a.I"),
    "constraint": (f'I = {FLUX}\n[[constraint]]\nbounds = "a.I"\nlow = "0 Jy"', "a.I is marginalised"),
    "gains": (f"I = {FLUX}\n[gain]\nphase = {PHASE}", "not linear"),
    "student": (f'I = {FLUX}\n[noise]\ndistribution = "student-t"', "Gaussian noise"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_integrated_over_is_refused(tmp_path: Path, case: str) -> None:
    text, words = REFUSED[case]
    head = '[sky]\nref_freq = "1 GHz"\n[[source]]\nname = "a"\neast = "0 rad"\nnorth = "0 rad"\n'
    with pytest.raises((InputError, ModelError)) as caught:
        biro.Likelihood(observation(n_row=12), sky(head + text, tmp_path))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_closures_refuse_it(tmp_path: Path) -> None:
    text = f'[[source]]\nname = "a"\neast = "0 rad"\nnorth = "0 rad"\nI = {FLUX}\n{FIXED_NOISE}'
    said = r"found marginalise = true of a\.I, but closures are not linear"
    with pytest.raises(InputError, match=said) as caught:
        biro.Likelihood(observation(n_row=40), sky(text, tmp_path), gains="closures")
    assert "\n" not in str(caught.value)


def test_a_likelihood_of_its_own_theta_says_whose_a_longer_one_is(tmp_path: Path) -> None:
    likelihood = biro.Likelihood(observation(n_row=12), all_linear(Noise(LogUniform(0.3, 3))))
    with pytest.raises(InputError, match="belong to `full`"):
        likelihood.log_likelihood(np.ones(4))
    assert likelihood.full.log_likelihood(np.ones(4)) < 0.0
    assert likelihood.full.full is likelihood.full
    assert likelihood.digest() != likelihood.full.digest()


FIELD_3C273 = """
[[source]]
name = "core"
type = "gaussian"
east = "-0.0009 arcsec"
north = "0.0006 arcsec"
I = FLUX
fwhm = "0.054 arcsec"

[[source]]
name = "jet"
type = "gaussian"
east = "-13.929 arcsec"
north = "-15.461 arcsec"
I = FLUX
emaj = "2.927 arcsec"
ratio = 0.306
pa = "45.84 deg"
"""


@pytest.mark.thorough
def test_fluxes_of_3c273_are_those_that_are_sampled(
    measurement_set: Callable[[str], Path], tmp_path: Path
) -> None:
    obs = biro.read_ms(measurement_set("vla_3c273_x"), correlations=("RR", "LL"))
    found = []
    for word in ("", ", marginalise = true"):
        flux = f'{{ prior = "normal", mean = 0, sd = 100, unit = "Jy"{word} }}'
        likelihood = biro.Likelihood(obs, sky(FIELD_3C273.replace("FLUX", flux), tmp_path))
        assert bool(likelihood.marginalised) == bool(word)
        found.append(biro.sample(likelihood, "none", seed=1, progress=False))
    sampled, restored = found
    assert restored.names == sampled.names
    for name in sampled.names:  # of some 900 effective draws each
        draws = [p.weighted_draws(name) for p in found]
        means = [weight @ values for values, weight in draws]
        sds = [np.sqrt(w @ (values - m) ** 2) for (values, w), m in zip(draws, means, strict=True)]
        assert means[1] == pytest.approx(means[0], abs=6.0 * sds[0] * np.sqrt(2.0 / 800))
        assert sds[1] == pytest.approx(sds[0], rel=0.15)
    error = np.hypot(sampled.log_evidence_err, restored.log_evidence_err)
    assert restored.log_evidence == pytest.approx(sampled.log_evidence, abs=5.0 * error)
    # The reference fit, within five of the errors that it states.
    assert restored.summary()["core.I"].median == pytest.approx(29.916, abs=0.025)
    assert restored.summary()["jet.I"].median == pytest.approx(3.374, abs=0.03)


def test_the_gradient_is_continuous_where_another_flux_is_zero() -> None:
    """There the sources have no flux without what is marginalised, and a shorter way is taken."""
    arcsec = Uniform(-30, 30, "arcsec")
    flux = Normal(0, 2, "Jy", marginalise=True)
    source = PointSource("a", east=arcsec, north="3 arcsec", I=flux, V=Uniform(-1, 1, "Jy"))
    likelihood = biro.Likelihood(observation(n_row=12), SkyModel(source, noise=Noise(1)))
    assert tuple(likelihood.parameter_names) == ("a.east", "a.V")
    _, gradient = likelihood.log_likelihood_and_gradient(np.array([[7.0, 0.0], [7.0, 1e-9]]))
    np.testing.assert_allclose(gradient[0], gradient[1], rtol=1e-6)
