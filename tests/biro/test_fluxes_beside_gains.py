"""Fluxes and gains integrated over together: quadrature, limits of known fluxes and gains, differences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import works
from numpy.polynomial.hermite_e import hermegauss
from scipy import integrate, stats

import biro
from biro.choices import Gains
from biro.cli.plot import likelihood_of
from biro.errors import InputError
from biro.likelihood.free_gains.accuracy import joint_correction
from biro.models import (
    Gain,
    GaussianSource,
    HalfNormal,
    LogNormal,
    LogUniform,
    Noise,
    Normal,
    PerSegment,
    PointSource,
    SkyModel,
    Uniform,
)
from tests.biro.test_fitted_gains import TURN, drifting, simulated, small
from tests.biro.test_inner_gains import GAINS, outer_of, pair

FACTOR = Noise(factor=LogUniform(0.2, 5))
ONE_GAIN = Gain(antennas=["B"], amplitude=LogNormal(0.05), phase=Normal(0, 5, "deg"))
TURNING = Gain(
    amplitude=PerSegment(LogNormal(0.1), per="scan"), phase=PerSegment(TURN, per="integration")
)  # fmt: skip


FLUXES = {"a.I": 1.3, "a.Q": 0.2, "b.I": 0.8}


def flux(mean: float = 1.0, sd: float = 0.5) -> Normal:
    return Normal(mean, sd, "Jy", marginalise=True)


def two(gain: Gain | None, *, noise: Noise = FACTOR, mean: float = 1.0) -> SkyModel:
    """Two sources with I and Q integrated over; the second, extended, has a place and a width in theta."""
    return SkyModel(
        [
            PointSource("a", east="0 arcsec", north="0 arcsec", I=flux(mean), Q=flux(0.0, 0.3), U="-0.1 Jy"),
            GaussianSource(
                "b", east="4 arcsec", north=Uniform(-6, -4, "arcsec"), I=flux(mean), Q="0.2 Jy",
                fwhm=Uniform("1 arcsec", "3 arcsec"),
            ),
        ],
        noise=noise,
        **({} if gain is None else {"gain": gain}),
    )  # fmt: skip


def with_data(
    sky: SkyModel, noise: float = 0.02, gains: Gains = "marginalise"
) -> tuple[biro.Likelihood, np.ndarray]:
    """The likelihood of data of a seeded truth, and all parameters of the latter, those of noise about it."""
    known = replace(sky, noise=Noise(factor=1.0))
    full = biro.Likelihood(small(), known, backend="cpu", gains="marginalise").full
    drawn = full.prior_transform(np.random.default_rng(3).uniform(0.3, 0.7, full.n_param))
    values = dict(zip(full.parameter_names, drawn, strict=True))
    values.update({name: value for name, value in FLUXES.items() if name in values})
    data = simulated(full, np.array(list(values.values())), noise, 4)
    likelihood = biro.Likelihood(data, sky, backend="cpu", gains=gains)
    small_terms = {"noise.additive": 0.02}
    names = likelihood.full.parameter_names
    return likelihood, np.array([
        values.get(name, small_terms.get(name.split("[")[0], 1.0)) for name in names
    ])  # fmt: skip


def one_of_each() -> SkyModel:
    """A flux and the amplitude of one antenna: data of one baseline see their product."""
    gain = Gain(antennas=["B"], amplitude=LogNormal(0.05))
    return SkyModel(
        [PointSource("a", east="0 arcsec", north="0 arcsec", I=flux(1.0, 0.1))], noise=FACTOR, gain=gain
    )


def by_quadrature(data: complex, noise: float) -> float:
    """ln of the integral: over the flux in closed form, for data that are normal about g."""

    def of_flux(log: float) -> float:
        g = np.exp(log)
        real = stats.norm.pdf(data.real, g, np.hypot(noise, 0.1 * g)) * stats.norm.pdf(data.imag, 0.0, noise)
        return float(real * stats.norm.pdf(log, scale=0.05))

    return float(np.log(integrate.quad(of_flux, -0.5, 0.5, points=[0.0, 0.05], limit=400)[0]))


@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_the_integral_over_a_flux_and_an_amplitude_is_that_of_quadrature(noise: float) -> None:
    """Along a valley that is bent by some 0.05^2."""
    likelihood = biro.Likelihood(pair(noise), one_of_each(), backend="cpu", gains="marginalise")
    (data,) = likelihood.observation.partitions[0].vis.ravel()
    assert tuple(likelihood.parameter_names) == ("noise.factor",)
    # Next order of Laplace: of the fourth derivatives of exp(2 a) over ranges of 0.05, squared.
    assert likelihood.log_likelihood([1.0]) == pytest.approx(by_quadrature(data, noise), abs=1e-3)


def test_the_evidence_is_that_of_a_grid() -> None:
    """Over the noise factor, of quadratures over flux and amplitude."""
    likelihood = biro.Likelihood(pair(0.1), one_of_each(), backend="cpu", gains="marginalise")
    (data,) = likelihood.observation.partitions[0].vis.ravel()
    logs = np.linspace(np.log(0.2), np.log(5.0), 101)
    values = [by_quadrature(data, 0.1 * np.exp(log)) for log in logs]
    wanted = np.log(np.trapezoid(np.exp(values), logs) / np.log(25.0))
    found = likelihood.log_likelihood(np.exp(logs)[:, None])
    # As one integral, above.
    assert np.log(np.trapezoid(np.exp(found), logs) / np.log(25.0)) == pytest.approx(wanted, abs=1e-3)
    posterior = biro.sample(likelihood, "none", seed=1, progress=False, n_sample=400)
    assert posterior.log_evidence == pytest.approx(wanted, abs=4.0 * posterior.log_evidence_err + 1e-3)
    assert set(posterior.names) == {"noise.factor", "a.I", "gain.amplitude[B]"}


def test_the_integral_is_that_of_exact_fluxes_over_a_grid_of_gains() -> None:
    """And the evidence. Given gains, `gains="sample"` integrates over fluxes in closed form."""
    sky = two(ONE_GAIN)
    likelihood, truth = with_data(sky)
    exact = biro.Likelihood(likelihood.observation, sky, backend="cpu")
    assert set(exact.marginalised) == {"a.I", "a.Q", "b.I"}
    theta = outer_of(exact, likelihood.full, truth)
    which = [exact.parameter_names.index(name) for name in ("gain.amplitude[B]", "gain.phase[B]")]
    outer = outer_of(likelihood, likelihood.full, truth)
    # The grid is about the best gains, as wide as the data leave them; the prior's density is on it.
    best = outer_of(exact, likelihood.full, likelihood.completed(outer))[which]
    nodes, weights = hermegauss(15)
    sd = 1.0 / np.sqrt(np.diag(exact.fisher(theta)))[which]
    a, p = (best[k] + 1.5 * sd[k] * nodes for k in range(2))
    grid = np.repeat(theta[None], 225, axis=0)
    grid[:, which[0]], grid[:, which[1]] = np.repeat(a, 15), np.tile(p, 15)
    density = stats.lognorm.pdf(grid[:, which[0]], 0.05) * stats.norm.pdf(grid[:, which[1]], 0.0, 5.0)
    value = np.asarray(exact.log_likelihood(grid)) + np.log(density)
    by = np.log(np.outer(weights, weights)) + 0.5 * (nodes[:, None] ** 2 + nodes**2)
    terms = value + by.ravel() + np.log(1.5**2 * sd.prod())
    wanted = terms.max() + np.log(np.exp(terms - terms.max()).sum())
    # Gains are good to 1e-3: the next order of Laplace is 1e-6; 15 nodes are good to 1e-5.
    assert likelihood.log_likelihood(outer) == pytest.approx(wanted, abs=1e-4)


def test_gains_that_are_known_leave_the_closed_form() -> None:
    """Priors of 1e-6 beside data that know gains to 1e-3."""
    known = Gain(amplitude=LogNormal(1e-6), phase=Normal(0, 1e-4, "deg"))
    likelihood, truth = with_data(two(known))
    alone = biro.Likelihood(likelihood.observation, two(None), backend="cpu")
    outer = outer_of(likelihood, likelihood.full, truth)
    assert alone.parameter_names == likelihood.parameter_names
    value, slope = likelihood.log_likelihood_and_gradient(outer)
    wanted, of_alone = alone.log_likelihood_and_gradient(outer)
    sigma = 1.0 / np.sqrt(np.diag(alone.fisher(outer)))
    # Gains move by up to 1e-3 of their error, in some directions: the square of it, and itself in slopes.
    assert value == pytest.approx(wanted, abs=1e-3)
    np.testing.assert_allclose(slope * sigma, of_alone * sigma, atol=2e-2)
    one, other = likelihood.fisher(outer), alone.fisher(outer)
    scale = np.sqrt(np.diag(other))
    # That on noise is of these data, of 960 numbers, and not an average over data: three times sqrt(2 / 960).
    off = np.abs(one - other) / np.outer(scale, scale)
    assert off[-1, -1] < 3.0 * np.sqrt(2.0 / 960)
    assert off[:-1].max() < 1e-4
    many = outer[None].repeat(2000, axis=0)
    draws = [one.inner_draws(many, np.random.default_rng(1)) for one in (likelihood, alone)]
    for name in alone.marginalised:
        one, other = (
            d.theta[:, whole.parameter_names.index(name)]
            for d, whole in zip(draws, (likelihood.full, alone.full), strict=True)
        )
        # Of 2000 independent draws: means within 5 of their errors of sqrt(2 / 2000), sigmas likewise.
        assert abs(one.mean() - other.mean()) < 5.0 * other.std() * np.sqrt(2.0 / 2000)
        assert one.std() == pytest.approx(other.std(), rel=5.0 / np.sqrt(2000))


@pytest.mark.parametrize("key", GAINS)
def test_fluxes_that_are_known_leave_the_gains_alone(key: str) -> None:
    sky = two(GAINS[key])
    likelihood, truth = with_data(sky)

    def known(sd: float | None) -> SkyModel:
        """With these fluxes known, or all but."""
        sources = [
            replace(one, **{
                name.split(".")[1]: f"{value} Jy" if sd is None else flux(value, sd)
                for name, value in FLUXES.items() if name.startswith(one.name)
            })
            for one in sky.sources
        ]  # fmt: skip
        return replace(sky, sources=sources)

    outer = outer_of(likelihood, likelihood.full, truth)
    one, other = (
        biro.Likelihood(likelihood.observation, known(sd), backend="cpu", gains="marginalise")
        for sd in (1e-8, None)
    )
    assert one.parameter_names == other.parameter_names
    value, slope = one.log_likelihood_and_gradient(outer)
    wanted, of_other = other.log_likelihood_and_gradient(outer)
    # 1e-8 Jy beside errors of fluxes of 1e-3: its square, 1e-5 in slopes of 1 sigma; roundings of 1e-9.
    assert value == pytest.approx(wanted, abs=1e-6)
    np.testing.assert_allclose(slope, of_other, rtol=1e-4, atol=1e-4 * np.abs(of_other).max())
    np.testing.assert_allclose(one.fisher(outer), other.fisher(outer), rtol=1e-4, atol=1e-2)


SLOPES = {
    **{key: two(gain) for key, gain in GAINS.items()},
    "two partitions": two(TURNING, noise=Noise(factor=LogUniform(0.2, 5), per="hands")),
    "no flux at the means": two(TURNING, mean=0.0),
    "fitted spread": two(
        replace(TURNING, amplitude=PerSegment(LogNormal(1.0), per="scan", sd=HalfNormal(0.3)))
    ),
    "shape and spectrum": replace(
        drifting(),
        gain=TURNING,
        noise=FACTOR,
        sources=[
            PointSource("a", east="0 arcsec", north="0 arcsec", I="1 Jy",
                spectral_index=Uniform(-1, 1), ref_freq="1.4 GHz"),
            PointSource(
                "b", east="4 arcsec", north=Uniform(-6, -4, "arcsec"), I=Uniform("0.5 Jy", "2 Jy"),
                polynomial=[Normal(0.1, 0.4, marginalise=True)], ref_freq="1.3 GHz",
            ),
        ],
    ),
}  # fmt: skip


def check_gradient(likelihood: biro.Likelihood, outer: np.ndarray) -> None:
    """Against differences, 0.7 sigma from some vector."""
    sigma = 1.0 / np.sqrt(np.abs(np.diag(likelihood.fisher(outer))))
    theta = outer + 0.7 * sigma
    value, gradient = likelihood.log_likelihood_and_gradient(theta)
    assert value == pytest.approx(likelihood.log_likelihood(theta), abs=1e-8)
    step = 0.03 * sigma * np.eye(outer.size)
    ahead, far = (
        likelihood.log_likelihood(theta + k * step) - likelihood.log_likelihood(theta - k * step)
        for k in (1, 2)
    )
    found = (8 * ahead - far) / (12 * np.diag(step))
    # Differences of fourth order in steps of 0.03 sigma; ln L is good to some 1e-9.
    assert np.abs((found - gradient) * sigma).max() < 2e-7


@pytest.mark.parametrize("key", SLOPES)
def test_gradients_are_those_of_differences(key: str) -> None:
    likelihood, truth = with_data(SLOPES[key])
    check_gradient(likelihood, outer_of(likelihood, likelihood.full, truth))


def test_the_start_is_found_where_the_means_have_no_flux() -> None:
    """Phases unknown: chi2 is that of noise, and the same where the search begins elsewhere."""
    likelihood, truth = with_data(two(TURNING, mean=0.0))
    outer = outer_of(likelihood, likelihood.full, truth)
    n = 2.0 * likelihood.n_vis.sum()
    assert likelihood.chi2(outer).sum() < n + 5.0 * np.sqrt(2.0 * n)
    value = likelihood.log_likelihood(outer)
    sigma = 1.0 / np.sqrt(np.abs(np.diag(likelihood.fisher(outer))))
    for away in (0.5, -30.0, 100.0):
        likelihood.log_likelihood(outer + away * sigma)
        assert likelihood.log_likelihood(outer) == pytest.approx(value, abs=1e-7)  # as ends of searches are


def test_the_best_values_are_a_joint_maximum_and_the_integral_is_right() -> None:
    likelihood, truth = with_data(two(TURNING))
    outer = outer_of(likelihood, likelihood.full, truth)
    full, best = likelihood.full, likelihood.completed(outer)
    assert likelihood.chi2(outer) == pytest.approx(full.chi2(best), rel=1e-10)  # roundings
    (part,), (vis,) = likelihood.corrected(outer).partitions, likelihood.predict(outer)
    assert (part.weight * np.abs(part.vis - vis) ** 2).sum() == pytest.approx(full.chi2(best).sum(), rel=1e-8)
    inner = np.array([name in likelihood.marginalised for name in full.parameter_names])
    _, slope = full.log_posterior_and_gradient(best)
    is_amplitude = np.array(["amplitude" in name for name in full.parameter_names])
    # Priors of amplitudes are per unit of their logarithm here.
    slope = slope + np.where(is_amplitude, 1.0 / best, 0.0)
    sigma = 1.0 / np.sqrt(np.diag(full.fisher(best)))
    # A step that gains 1e-13 is 3e-7 sigma, and what it leaves is squared.
    assert np.abs(slope * sigma)[inner].max() < 1e-6
    found, error, share = joint_correction(likelihood._treatment.fit(likelihood._one(outer)).best)
    assert share > 0.5
    assert abs(found) < 3.0 * error + 0.05  # gains are good to 1e-2: the next order is small
    assert likelihood.doubts(outer) == []
    draws = likelihood.inner_draws(outer[None].repeat(4, axis=0), np.random.default_rng(0))
    np.testing.assert_allclose(draws.log_likelihood, full.log_likelihood(draws.theta), rtol=1e-9)


@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        ("none", {"n_sample": 200, "starts": 1}),
        pytest.param("nuts", {"n_tune": 100, "n_draw": 150, "n_chain": 2}, marks=pytest.mark.thorough),
    ],
)
def test_a_posterior_has_the_truth(sampler: str, options: dict[str, int]) -> None:
    """By values alone about the maximum, and by gradients."""
    likelihood, truth = with_data(two(TURNING, mean=0.0))
    start = dict(zip(likelihood.parameter_names, outer_of(likelihood, likelihood.full, truth), strict=True))
    given = {} if sampler == "none" else {"start": start}
    posterior = biro.sample(likelihood, sampler, seed=1, progress=False, **options, **given)
    assert list(posterior.names) == likelihood.full.parameter_names
    for name, value in zip(posterior.names, truth, strict=True):
        if name.startswith(("a.", "b.", "noise", "gain.amplitude")):
            draws, weight = posterior.weighted_draws(name)
            mean = weight @ draws
            sigma = np.sqrt(weight @ (draws - mean) ** 2)
            assert abs(mean - value) < 4.0 * sigma


MODEL = """
[[source]]
name = "core"
type = "gaussian"
east = "0 uas"
north = "0 uas"
I = { prior = "normal", mean = "0 Jy", sd = "1 Jy", marginalise = true }
fwhm = { prior = "uniform", low = 30, high = 60, unit = "uas" }

[[source]]
name = "jet"
type = "gaussian"
east = "0 uas"
north = "0 uas"
I = { prior = "normal", mean = "0 Jy", sd = "1 Jy", marginalise = true }
fwhm = "2000 uas"

[gain]
feeds = "common"
amplitude = { prior = "log-normal", sd = 0.2, per = "integration" }
phase = { prior = "uniform", low = -180, high = 180, unit = "deg", per = "integration" }
"""


def test_the_command_line_fits_both(data_dir: Path, tmp_path: Path) -> None:
    """M87 of one day as published, phases of stations not calibrated: 0.5 to 1.2 Jy in both sources."""
    obs, model, run = (
        data_dir / "SR1_M87_2017_100_lo_hops_netcal_StokesI.uvfits", tmp_path / "sky.toml", tmp_path / "run",
    )  # fmt: skip
    model.write_text(MODEL)
    words = ["fit", str(obs), str(model), "-o", str(run), "--sampler", "none", "--seed", "1", "--no-pictures"]
    words += ["--gains", "marginalise", "--average-time", "30 min", "--backend", "cpu"]
    words += ["--set", "starts=1", "--set", "n_sample=500"]
    shown = works(*words)
    text = " ".join(shown.output.split())
    assert "2 parameters are integrated over with the gains (Laplace): core.I, jet.I" in text
    posterior = biro.Posterior.load(run / "posterior.nc")
    total = posterior["core.I"] + posterior["jet.I"]
    assert 0.5 < total.mean() < 1.2
    again = likelihood_of(run, None, posterior.provenance.data_digest)
    assert again.gains == "marginalise"
    assert list(posterior.names) == again.full.parameter_names


def test_what_cannot_be_is_one_line() -> None:
    data = small()
    flat = replace(TURNING, amplitude=PerSegment(LogUniform(0.1, 10), per="scan"))

    def points(i: Normal, gain: Gain, **others: Normal) -> SkyModel:
        places = {"a": ("0 arcsec", "0 arcsec"), "b": ("4 arcsec", "-5 arcsec")}
        each = [PointSource(k, east=e, north=n, I=i, **others) for k, (e, n) in places.items()]
        return SkyModel(each, noise=FACTOR, gain=gain)

    with pytest.raises(InputError, match=r"gains absorb a change of a\.I with b\.I") as caught:
        biro.Likelihood(data, points(flux(1.0, 2.0), flat), backend="cpu", gains="marginalise")
    assert "\n" not in str(caught.value)
    named = biro.Likelihood(
        data, points(flux(1.0, 0.1), flat), backend="cpu", gains="marginalise"
    ).undetermined
    assert "gain.amplitude[*] with a.I, b.I" in named
    turned = replace(TURNING, feeds="ratio", ratio_phase=TURN)
    polarised = points(flux(), turned, Q=flux(0.0, 0.3), U=flux(0.0, 0.3))
    with pytest.raises(InputError, match=r"absorb a change of a\.Q with a\.U, b\.Q, b\.U"):
        biro.Likelihood(data, polarised, backend="cpu", gains="marginalise")
