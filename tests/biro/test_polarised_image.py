"""Images of several Stokes parameters and frequencies: predictions, priors, leakages, spectra, results.

Oracles are predictions and fits of points by the path of components, matrix exponentials and least squares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from scipy.linalg import expm

import biro
from biro.errors import InputError
from biro.image_posterior.field import ImageField
from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.planes import choose_frequencies, with_all_correlations
from biro.image_posterior.results.polarisation import polarisation_of
from biro.image_posterior.sampling import jax_room
from biro.models import (
    Feeds,
    Fixed,
    Gain,
    ImagePrior,
    Leakage,
    LogNormal,
    ModelError,
    Noise,
    Normal,
    PointSource,
    SkyModel,
    Uniform,
)
from biro.simulation import Channels, Track
from biro.simulation.prediction import predict

pytest.importorskip("jax", reason="needs the extra images")
pytest.importorskip("nifty.re", reason="needs the extra images")
pytest.importorskip("jaxbind", reason="needs the extra images")

N, CELL, NOISE, SD = 16, 1.2e-4, 0.05, 0.1
X, Y = 5, 11
EAST, NORTH = -(X - N // 2) * CELL, (Y - N // 2) * CELL
STOKES = {"I": 2.0, "Q": 0.3, "U": -0.5, "V": 0.1}
KEYS = {"circular": ("d_r", "d_l"), "linear": ("d_x", "d_y")}


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    with jax_room.double_precision():
        yield


def point(**more: Any) -> PointSource:
    """A point in the middle of pixel (X, Y)."""
    return PointSource("a", east=f"{EAST!r} rad", north=f"{NORTH!r} rad", **more)


def seen(sky: SkyModel, basis: str = "linear", noise: float = NOISE, n_chan: int = 1) -> biro.Observation:
    """KAT-7 at four times, whose feeds are called circular if asked."""
    made = biro.simulate(
        "KAT-7",
        SkyModel([point(I="0 Jy")]),
        phase_centre="12h00m00s -40d00m00s",
        times=Track("2026-03-01T19:00", 6 * 3600.0, 5400.0),
        channels=Channels(1.4e9, 5e7, n_chan),
        noise=noise,
        seed=1,
        progress=False,
    )
    if basis == "circular":
        parts = tuple(replace(part, corr_type=("RR", "RL", "LR", "LL")) for part in made.partitions)
        made = replace(made, partitions=parts)
    model = predict(made, sky, smearing="off")
    pairs = zip(made.partitions, model, strict=True)
    return replace(made, partitions=tuple(replace(part, vis=part.vis + vis) for part, vis in pairs))


def operator_of(observation: biro.Observation, freq: Any = None) -> ImageOperator:
    field = ImageField(N, CELL, observation.partitions[0].phase_centre)
    return ImageOperator(observation, field, freq=freq, accuracy=1e-7, backend="cpu")


class OnePixel:
    """Brightness of one pixel, whose Stokes parameters are the numbers themselves, or multiples of them."""

    lines = ()

    def __init__(self, n: int = 4, means: Any = 0.0, spread: Any = 1.0) -> None:
        self.n, self.is_hyper, self._means, self._spread = n, np.zeros(n, bool), means, spread

    def image(self, xi: Any) -> Any:
        import jax.numpy as jnp

        return jnp.zeros((self.n, N, N)).at[:, Y, X].set(self._means + self._spread * xi)


def newton_step(model: Any, xi: Any) -> tuple[Any, Any]:
    """Step from a state to the maximum of a linear posterior of unit prior and noise, and its covariance."""
    import jax
    import jax.numpy as jnp

    at = jnp.asarray(xi)
    slopes = np.asarray(jax.jacfwd(model.visibilities)(at)).reshape(-1, model.n)
    left = (model._data - np.asarray(model.visibilities(at))).ravel()
    covariance = np.linalg.inv(np.eye(model.n) + slopes.T @ slopes)
    return covariance @ (slopes.T @ left - np.asarray(xi)), covariance


def leakages(names: tuple[str, ...], basis: str) -> dict[str, dict[str, complex]]:
    """Leakages of some per cent of each antenna."""
    rng = np.random.default_rng(3)
    return {name: {key: complex(*rng.normal(0.0, SD, 2)) for key in KEYS[basis]} for name in names}


def value_of(name: str, table: dict[str, dict[str, complex]]) -> float:
    """The value of a parameter such as leakage.d_x.real[ant1]."""
    key, part = name.split(".")[1:]
    part, antenna = part[:-1].split("[")
    number = table[antenna][key]
    return number.real if part == "real" else number.imag


@pytest.mark.parametrize(
    ("basis", "rotation"), [("linear", "corrected"), ("linear", "present"), ("circular", "corrected")]
)
def test_one_pixel_is_a_point_to_all_antennas(basis: str, rotation: str) -> None:
    from biro.image_posterior.sampling.models.planes_model import PolarisedModel

    blank = seen(SkyModel([point(I="0 Jy")]), basis)
    table = leakages(blank.partition_views[0].antenna_names, basis)
    source = point(**{key: f"{value!r} Jy" for key, value in STOKES.items()})
    feeds = Feeds(rotation=rotation, antenna={"ant2": {"offset": "30 deg"}})
    of_points = SkyModel([source], leakage=Leakage(antenna=table), feeds=feeds)
    wanted = [np.asarray(vis) for vis in predict(blank, of_points, smearing="off")]
    priors = Leakage(**dict.fromkeys(KEYS[basis], Normal(0.0, SD)))
    model = PolarisedModel(
        operator_of(blank), OnePixel(), replace(of_points, sources=[source], leakage=priors), n_stokes=4
    )
    names = model.antennas.leakage_names
    assert len(names) == 4 * len(table)
    xi = [*STOKES.values(), *(value_of(name, table) / SD for name in names)]
    got = np.asarray(model.predicted(np.array(xi)))
    # The gridder's accuracy is 1e-7.
    assert np.abs(got[0] + 1j * got[1] - model.used.taken(wanted)).max() < 1e-6


def test_gains_of_each_feed_stand_before_leakage() -> None:
    from biro.image_posterior.sampling.models.planes_model import PolarisedModel

    rng = np.random.default_rng(8)
    blank = seen(SkyModel([point(I="0 Jy")]), "circular")
    names = blank.partition_views[0].antenna_names
    table, feeds = leakages(names, "circular"), ("r", "l")
    ln_gain = {name: dict(zip(feeds, rng.normal(0.0, 0.1, 2), strict=True)) for name in names}
    source = point(**{key: f"{value!r} Jy" for key, value in STOKES.items()})
    known = Gain(
        antenna={
            name: {"amplitude": {feed: float(np.exp(value)) for feed, value in own.items()}}
            for name, own in ln_gain.items()
        }
    )
    of_points = SkyModel([source], leakage=Leakage(antenna=table), gain=known)
    wanted = [np.asarray(vis) for vis in predict(blank, of_points, smearing="off")]
    fitted = Gain(amplitude=LogNormal(median=1.0, sd=0.1), feeds="separate")
    priors = Leakage(d_r=Normal(0.0, SD), d_l=Normal(0.0, SD))
    sky = SkyModel([source], leakage=priors, gain=fitted)
    model = PolarisedModel(operator_of(blank), OnePixel(), sky, n_stokes=4)
    xi = [*STOKES.values()]
    for name in model.antennas.names:
        if name.startswith("leakage"):
            xi.append(value_of(name, table) / SD)
        else:
            antenna = name.split("[")[1].split("]")[0]
            feed = name.split(".")[2][0]
            xi.append(ln_gain[antenna][feed] / 0.1)
    got = np.asarray(model.predicted(np.array(xi)))
    assert np.abs(got[0] + 1j * got[1] - model.used.taken(wanted)).max() < 1e-6


def test_planes_of_stokes_and_frequency_have_an_exact_adjoint_and_slopes() -> None:
    import jax
    import jax.numpy as jnp

    from biro.image_posterior.sampling.jax_operator import UsedData, visibility_function
    from biro.image_posterior.sampling.models.planes_model import PolarisedModel

    rng = np.random.default_rng(4)
    blank = seen(SkyModel([point(I="0 Jy")]), "circular", n_chan=4)
    operator = operator_of(blank, choose_frequencies(blank.partitions))
    shape = (len(operator.freq), 3, N, N)
    used = UsedData(operator.weights)
    predicted = visibility_function(operator, used, 3)
    x, y = rng.normal(size=shape), rng.normal(size=(2, used.n))
    (back,) = jax.linear_transpose(predicted, jax.ShapeDtypeStruct(shape, np.float64))(y)
    forward = float(np.sum(np.asarray(predicted(x)) * y))
    # Both kernels are the same to rounding.
    assert forward == pytest.approx(float(np.sum(x * back)), rel=1e-10)
    priors = Leakage(d_r=Normal(0.0, SD), d_l=Normal(0.0, SD))
    sky = SkyModel([point(I="1 Jy")], leakage=priors, feeds=Feeds(rotation="present"))
    model = PolarisedModel(operator_of(blank), OnePixel(), sky, n_stokes=4)
    xi, step = rng.normal(size=(2, model.n))
    slope = np.asarray(jax.jvp(model.predicted, (jnp.asarray(xi),), (jnp.asarray(step),))[1])
    h = 1e-4
    differences = np.asarray(model.predicted(xi + h * step) - model.predicted(xi - h * step)) / (2.0 * h)
    # Polynomials of third degree: differences are wrong by h^2 times that of slopes.
    assert np.abs(slope - differences).max() < 1e-6 * np.abs(slope).max()


@pytest.mark.parametrize("stokes", ["IQU", "IQUV"])
def test_brightness_is_a_matrix_exponential_and_polarised_by_less_than_all(stokes: str) -> None:
    import jax

    from biro.image_posterior.sampling.plane_priors import PolarisedField
    from biro.image_posterior.sampling.sky_priors import CorrelatedField

    rng, flux = np.random.default_rng(2), 3.0
    prior = PolarisedField(CorrelatedField(N, flux, 0.0), N, stokes)
    planes = jax.jit(prior.planes)
    for spread in (0.3, 1.0, 3.0):  # wider than the prior, so that nearly all is polarised
        xi = spread * rng.normal(size=prior.n)
        found = np.asarray(planes(xi))
        assert len(found) == len(stokes)
        # Where all is polarised, both are equal but for rounding.
        assert np.all(found[0] * (1.0 + 1e-12) >= np.sqrt(np.sum(found[1:] ** 2, axis=0)))
        assert found[0].sum() == pytest.approx(flux, rel=1e-12)
        q, u, v = (*prior.vector(xi), np.zeros((N, N)))[:3]
        i, big_q, big_u, big_v = (*found, np.zeros((N, N)))[:4]
        for at in ((0, 0), (3, 7)) if spread < 3.0 else ():
            wanted = expm(np.array([[q[at], u[at] + 1j * v[at]], [u[at] - 1j * v[at], -q[at]]]))
            made = [[i + big_q, big_u + 1j * big_v], [big_u - 1j * big_v, i - big_q]]
            got = np.array([[one[at] for one in row] for row in made])
            # exp(a) is what is left: the exponential of a traceless matrix has a determinant of 1. p has 1e-4
            # added in quadrature, which changes 1 by 5e-9.
            scale = np.sqrt(np.linalg.det(got).real)
            assert np.abs(got / scale - wanted).max() < 1e-6 * np.abs(wanted).max()


def test_spectra_are_log_polynomials_between_planes() -> None:
    import jax

    from biro.image_posterior.sampling.plane_priors import SpectralField
    from biro.image_posterior.sampling.sky_priors import CorrelatedField

    freq, nu0, rng = np.array([1.0e9, 1.5e9, 2.0e9]), 1.4e9, np.random.default_rng(6)
    prior = SpectralField(CorrelatedField(N, 2.0), N, [Normal(-0.7, 0.4), Fixed(0.2)], freq, nu0)
    made = jax.jit(lambda xi: (prior.image(xi), prior.planes(xi), prior.coefficients(xi)))
    draws = []
    for _ in range(200):
        cube, planes, (index, curvature) = (np.asarray(one) for one in made(rng.normal(size=prior.n)))
        draws.append(index)
        log = np.log(freq / nu0)[:, None, None]
        np.testing.assert_allclose(cube[:, 0], planes[0] * (freq[:, None, None] / nu0) ** (index + 0.2 * log))
        assert np.all(curvature == 0.2)
    # 200 draws of a field with about two numbers each; the sd of its fluctuations has a prior, too.
    assert np.mean(draws) == pytest.approx(-0.7, abs=4 * 0.4 / np.sqrt(2 * 200))
    assert np.std(draws) == pytest.approx(0.4, rel=0.15)


def test_the_spectral_index_of_a_point_has_the_error_of_least_squares() -> None:
    import jax.numpy as jnp

    from biro.image_posterior.sampling.models.planes_model import PlanesModel

    nu0, index, curvature, flux = 1.5e9, -1.2, 0.3, 2.0
    spectrum = {"spectral_index": [index, curvature], "I": f"{flux} Jy"}
    sky = SkyModel([point(**spectrum)], ref_freq=f"{nu0} Hz")
    observation = seen(sky, n_chan=12, noise=0.3)
    parts = tuple(
        replace(part, vis=part.vis[..., :1], weight=part.weight[..., :1], corr_type=("XX",))
        for part in observation.partitions
    )
    observation = replace(observation, partitions=parts)
    freq = choose_frequencies(observation.partitions)
    log_freq = np.log(freq / nu0)

    class Point(OnePixel):
        def image(self, xi: Any) -> Any:
            brightness = flux * jnp.exp(0.1 * xi[0] + 2.0 * xi[1] * log_freq + curvature * log_freq**2)
            return jnp.zeros((len(freq), 1, N, N)).at[:, 0, Y, X].set(brightness)

    (part,) = parts
    model = PlanesModel(operator_of(observation, freq), Point(2), n_stokes=1)
    # Least squares of phases taken out: V = F x^(a0 + a1 ln x), with slopes V / F and V ln x.
    log = np.log(part.chan_freq / nu0)
    truth = flux * np.exp(index * log + curvature * log**2)
    slopes = np.stack([0.1 * truth, 2.0 * truth * log])
    weight = part.weight[..., 0].sum(axis=0)
    errors = np.sqrt(np.diag(np.linalg.inv(np.eye(2) + (slopes * weight) @ slopes.T))) * [0.1 * flux, 2.0]
    start = np.array([0.0, index / 2.0])
    step, covariance = newton_step(model, start)
    found = (start + step) * [0.1 * flux, 2.0]
    # Planes are right to 1e-3 for indices up to 3.
    assert np.sqrt(np.diag(covariance)) * [0.1 * flux, 2.0] == pytest.approx(errors, rel=5e-3)
    assert abs(found[1] - index) < 3.0 * errors[1]
    assert abs(found[0]) < 3.0 * errors[0]


def test_leakages_of_a_point_are_those_of_its_fit_as_a_component() -> None:
    from biro.image_posterior.sampling.models.planes_model import PolarisedModel

    basis, feeds = "circular", Feeds(rotation="present")
    blank = seen(SkyModel([point(I="0 Jy")]), basis)
    table = leakages(blank.partition_views[0].antenna_names, basis)
    source = point(**{key: f"{value!r} Jy" for key, value in STOKES.items()})
    observation = seen(SkyModel([source], leakage=Leakage(antenna=table), feeds=feeds), basis)
    priors = Leakage(d_r=Normal(0.0, SD), d_l=Normal(0.0, SD))
    free = point(**{key: Normal(0.0, 3.0, "Jy") for key in STOKES})
    sky = SkyModel([free], leakage=priors, feeds=feeds, noise=Noise(factor=1.0))
    best = biro.maximise(biro.Likelihood(observation, sky, smearing="off"), seed=1)
    fitted = dict(zip(best.names, zip(best.best_fit, best.error, strict=True), strict=True))
    model = PolarisedModel(operator_of(observation), OnePixel(4, 0.0, 3.0), sky, n_stokes=4)
    names, scale = [*(f"a.{key}" for key in STOKES), *model.antennas.leakage_names], np.full(model.n, SD)
    scale[:4] = 3.0
    values, errors = np.array([fitted[name] for name in names]).T
    step, covariance = newton_step(model, values / scale)
    # The maximum of one path is that of the other: another step is nothing beside the error.
    assert np.abs(step * scale).max() < 1e-3 * errors.min()
    # The fit has second derivatives of the model in its errors, which are as large as noise over flux.
    assert np.sqrt(np.diag(covariance)) * scale == pytest.approx(errors, rel=0.05)
    truth = [*STOKES.values(), *(value_of(name, table) for name in names[4:])]
    away = (values - truth) / scale
    chi2 = away @ np.linalg.solve(covariance, away)
    # 32 numbers with their correlations: chi2 of 32 +- 8.
    assert chi2 < 32 + 3 * 8


def test_polarisation_of_samples_states_angle_and_bias() -> None:
    rng = np.random.default_rng(1)
    angle, flux, error = np.deg2rad(40.0), 0.2, 0.01
    linear = flux * np.exp(2j * angle) + error * (rng.normal(size=4000) + 1j * rng.normal(size=4000))
    none = error * (rng.normal(size=4000) + 1j * rng.normal(size=4000))
    both = np.stack([linear, none], axis=1)
    stokes = np.stack([np.ones(both.shape), both.real, both.imag], axis=1)
    found = polarisation_of(stokes)
    # sigma of an angle is half of sigma / P; 4000 samples know it to 1.1 %, and the mean to 0.6 % of that.
    assert found.angle[0] == pytest.approx(angle, abs=4 * 0.5 * error / flux / np.sqrt(4000))
    assert found.angle_error[0] == pytest.approx(0.5 * error / flux, rel=0.05)
    assert found.is_detected.tolist() == [True, False]
    # Without polarisation the mean of |P| is that of a Rayleigh distribution, as the docstring states.
    assert found.fraction[1] == pytest.approx(error * np.sqrt(np.pi / 2.0), rel=0.05)
    assert found.angle_error[1] == pytest.approx(np.pi / np.sqrt(12.0), rel=0.05)


def test_a_polarised_image_with_a_spectrum_becomes_a_result_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from biro.image_posterior import sampled
    from biro.image_posterior.results.result import read_result
    from biro.image_posterior.sampling.draws import Draws

    rng, made = np.random.default_rng(5), {}

    def drawn(problem: Any, model: Any, *_: Any) -> Draws:
        made["model"], made["mean"] = model, 0.3 * rng.normal(size=model.n)
        made["samples"] = made["mean"] + 0.1 * rng.normal(size=(4, model.n))
        return Draws(made["mean"], made["samples"], converged=True)

    monkeypatch.setattr(sampled, "_sampled", drawn)
    source = point(I="1 Jy", Q="0.2 Jy", U="-0.1 Jy", spectral_index=-1.0)
    observation = seen(SkyModel([source], ref_freq="1.5 GHz"), "circular", n_chan=3)
    image = ImagePrior(
        "x",
        prior="correlated-field",
        size=N,
        cell=f"{CELL} rad",
        stokes="IQU",
        spectral_index=Normal(-0.7, 1.0),
    )
    priors = Leakage(d_r=Normal(0.0, SD), d_l=Normal(0.0, SD))
    sky = SkyModel([], images=[image], leakage=priors, noise=Noise(factor=1.0), ref_freq="1.5 GHz")
    found = biro.fit_image(observation, sky, run_dir=tmp_path, progress=False)
    model, samples = made["model"], made["samples"]
    assert found.samples.shape == (4, 3, N, N)
    # chi2 is that of the mean state with its leakages, although its data are those of the image alone.
    vis = np.asarray(model.predicted(made["mean"]))
    (part,) = observation.partitions
    chi2 = np.sum(part.weight * np.abs(part.vis - (vis[0] + 1j * vis[1]).reshape(part.vis.shape)) ** 2)
    assert sum(found.chi2) == pytest.approx(chi2, rel=1e-6)
    names = model.antennas.leakage_names
    values = SD * samples[:, model.at.gains]
    table = found.facts["leakage"]
    assert [table[name]["sd"] for name in names] == pytest.approx(values.std(axis=0, ddof=1).tolist())
    for line in ("Stokes V is taken as 0", "no Faraday rotation", "planes", "d_r.real[ant1]"):
        assert line in str(found)
    again = read_result(tmp_path)
    cube, header = fits.getdata(tmp_path / "cube.fits"), fits.getheader(tmp_path / "cube.fits")
    assert cube.shape == (3, 8, N, N)
    nu = header["CRVAL3"] + header["CDELT3"] * np.arange(8)
    index = again.arrays["spectral_index"][:, 0]
    wanted = np.mean(again.samples * ((nu[2] / 1.5e9) ** index)[:, None], axis=0)
    np.testing.assert_allclose(cube[:, 2], wanted, rtol=1e-5, atol=1e-6 * wanted.max())
    files = {path.name: fits.getdata(path) for path in tmp_path.glob("*.fits")}
    np.testing.assert_allclose(files["spectral_index.fits"][0, 0], index.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(files["evpa.fits"][0, 0], np.rad2deg(found.polarisation.angle), rtol=1e-5)
    assert files["samples.fits"].shape == (4, 3, 1, N, N)
    assert {"pol_fraction.fits", "pol_fraction_sd.fits", "evpa_sd.fits", "spectral_index_sd.fits"} <= set(
        files
    )


@pytest.mark.parametrize(
    ("method", "converged", "is_marked"),
    [("geovi", True, False), ("geovi", False, True), ("mgvi", True, True)],
)
def test_leakages_count_where_geovi_has_converged(method: str, converged: bool, is_marked: bool) -> None:
    from biro.image_posterior.sampled_result import _remarks
    from biro.image_posterior.sampling.draws import Draws

    prior = SimpleNamespace(prior="correlated-field", is_polarised=True)
    problem: Any = SimpleNamespace(prior=prior, sky=SimpleNamespace(gains=()), options={})
    draws = Draws(np.zeros(3), np.zeros((2, 3)), converged=converged)
    found = _remarks(problem, draws, method, has_leakages=True)
    assert any(line.startswith("LEAKAGES NOT CALIBRATED") for line in found) == is_marked


def test_what_a_polarised_image_cannot_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="correlated-field"):
        ImagePrior("x", prior="smooth", stokes="IQU")
    with pytest.raises(ModelError, match="IQUV"):
        ImagePrior("x", prior="correlated-field", stokes="QU")
    with pytest.raises(ModelError, match="normal priors"):
        ImagePrior("x", prior="correlated-field", spectral_index=Uniform(-1.0, 1.0))
    image = ImagePrior("x", prior="correlated-field", stokes="IQU", spectral_index=[Normal(-0.7, 0.5), 0.1])
    sky = SkyModel([], images=[image])
    path = tmp_path / "sky.toml"
    path.write_text(sky.to_toml())
    assert biro.read_model(path).image_priors == (image,)
    observation = seen(SkyModel([point(I="1 Jy")]), "circular")
    hands = tuple(
        replace(part, vis=part.vis[..., [0, 3]], weight=part.weight[..., [0, 3]], corr_type=("RR", "LL"))
        for part in observation.partitions
    )
    with pytest.raises(InputError, match="one frequency"):
        biro.fit_image(observation, sky, progress=False)
    with pytest.raises(InputError, match="cross hands"):
        biro.fit_image(replace(observation, partitions=hands), sky, progress=False)
    leaking = SkyModel(
        [], images=[ImagePrior("x", prior="correlated-field")], leakage=Leakage(d_r=Normal(0.0, 0.1))
    )
    with pytest.raises(InputError, match="stokes"):
        biro.fit_image(observation, leaking, progress=False)


def test_correlations_that_data_lack_have_no_weight() -> None:
    (part,) = seen(SkyModel([point(I="1 Jy")]), "circular").partitions
    pair = replace(part, vis=part.vis[..., [3, 1]], weight=part.weight[..., [3, 1]], corr_type=("LL", "RL"))
    whole = with_all_correlations(pair)
    assert whole.corr_type == ("RR", "RL", "LR", "LL")
    assert not whole.weight[..., [0, 2]].any()
    np.testing.assert_array_equal(whole.vis[..., [1, 3]], part.vis[..., [1, 3]])


def test_brightness_of_the_band_is_moved_to_the_reference_frequency() -> None:
    """(nu0 / nu)^alpha with the mean of the prior: 3.39 from 8 to 1.4 GHz for alpha = -0.7."""
    from biro.image_posterior.sampled_model import to_reference

    operator = SimpleNamespace(freq=np.array([7.9e9, 8.1e9]))
    problem: Any = SimpleNamespace(
        planes=SimpleNamespace(operator=operator, reference=1.4e9),
        prior=SimpleNamespace(spectral_index=(Normal(-0.7, 0.5),)),
    )
    assert to_reference(problem) == pytest.approx((1.4 / 8.0) ** -0.7, rel=1e-12)


def test_the_fast_map_has_the_gains_that_both_hands_share() -> None:
    """Ratios of the hands have no place in Stokes I; a gain of nothing else is left out."""
    from biro.image_posterior.sampled import _of_both_hands

    phase = {"prior": "uniform", "low": "-180 deg", "high": "180 deg", "per": "scan"}
    ratio = {"prior": "log-normal", "median": 1, "sd": 0.1, "per": "track"}
    both = biro.models.Gain(feeds="ratio", phase=phase, ratio_amplitude=ratio)
    alone = biro.models.Gain(feeds="ratio", ratio_amplitude=ratio)
    apart = biro.models.Gain(feeds="separate", phase=phase)
    expected = biro.models.Gain(phase=phase)
    assert _of_both_hands((both, alone, apart)) == (expected, expected)
