"""Images that are fitted: their pixels, operator, fast map, regions, results and command.

Oracles are the measurement equation as an explicit sum, the Wiener solution of a quadratic prior, and skies
whose truth is known.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.image_posterior.field import ImageField, choose_field
from biro.image_posterior.make_problem import noise_of, one_hand
from biro.image_posterior.maps import self_calibration
from biro.image_posterior.maps.regularisers import Regulariser, make_regulariser
from biro.image_posterior.maps.smooth import FluxPrior, smooth_map
from biro.image_posterior.misfit import source_outside
from biro.image_posterior.operator import ImageOperator, with_data
from biro.image_posterior.results.region import parse_region
from biro.image_posterior.results.result import ImagePosterior, read_result
from biro.image_posterior.sampled_model import flux_of
from biro.models import ImagePrior, Noise, Normal, PointSource, SkyModel
from biro.models.components.direction import lm_to_radec
from biro.observation.observation import Observation
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.simulation import Channels, Track
from rime_kernels.physics.phase import SPEED_OF_LIGHT

ARCSEC = np.pi / 180.0 / 3600.0
NOISE = 0.5
SIZE = 32
CELL = 5.0 * ARCSEC


def simulated(sky: SkyModel, *, noise: float = NOISE, seed: int = 3, n_chan: int = 1) -> Observation:
    """A snapshot of VLA-C coverage, 351 baselines x 4 times."""
    return biro.simulate(
        "VLA-C",
        sky,
        phase_centre="12h00m00s +40d00m00s",
        times=Track("2026-03-01", 4 * 3600.0, 3600.0),
        channels=Channels(1.4e9, 5e7, n_chan),
        noise=noise,
        seed=seed,
        progress=False,
    )


def stokes_i(observation: Observation) -> Observation:
    return replace(observation, partitions=tuple(form_stokes(observation.partitions, PSEUDO_I)[0]))


@pytest.fixture(scope="module")
def observation() -> Observation:
    """Noise alone."""
    return stokes_i(simulated(SkyModel([PointSource("p", east="0 arcsec", north="0 arcsec", I="0 Jy")])))


@pytest.fixture(scope="module")
def operator(observation: Observation) -> ImageOperator:
    return ImageOperator(observation, choose_field(observation, size=SIZE, cell=CELL), backend="cpu")


def with_truth(operator: ImageOperator, image: NDArray[np.float64]) -> ImageOperator:
    """The data of an image, with the noise of the observation."""
    pairs = zip(operator.data, operator.predict(image[None]), strict=True)
    return with_data(operator, [noise + vis for noise, vis in pairs], operator.weights)


def explicit(operator: ImageOperator, image: NDArray[np.float64], freq: float) -> NDArray[np.complex128]:
    """V = sum of I exp(2 pi i (u l + v m + w (n - 1)) nu/c) (physics: section 2), (n_row,)."""
    (part,) = operator.observation.partitions
    y, x = np.nonzero(image)
    l, m = -operator.field.axis[x], operator.field.axis[y]
    n_minus_1 = np.sqrt(1.0 - l**2 - m**2) - 1.0
    turns = part.uvw @ np.stack([l, m, n_minus_1]) * freq / SPEED_OF_LIGHT
    return np.asarray(np.exp(2j * np.pi * turns) @ image[y, x])


def test_an_image_is_predicted_as_the_sum_over_its_pixels(operator: ImageOperator) -> None:
    image = np.zeros((SIZE, SIZE))
    image[5, 20], image[17, 3], image[16, 16] = 1.0, 2.0, 0.5
    (vis,) = operator.predict(image[None])
    expected = explicit(operator, image, float(operator.observation.partitions[0].chan_freq[0]))
    # The gridder's accuracy is 1e-6 of the rms of a source anywhere in the image.
    assert np.linalg.norm(vis[:, 0, 0] - expected) < 3e-6 * np.linalg.norm(expected)


def test_planes_are_interpolated_in_frequency_and_the_adjoint_agrees() -> None:
    none = SkyModel([PointSource("p", east="0 arcsec", north="0 arcsec", I="0 Jy")])
    data = stokes_i(simulated(none, n_chan=3))
    field = choose_field(data, size=SIZE, cell=4.0 * ARCSEC)
    freq = data.partitions[0].chan_freq
    operator = ImageOperator(data, field, freq=[freq[0], freq[-1]], backend="cpu")
    images = np.zeros((2, 1, SIZE, SIZE))
    images[0, 0, 9, 20], images[1, 0, 9, 20] = 1.0, 3.0
    (vis,) = operator.predict(images)
    for k, flux in enumerate((1.0, 2.0, 3.0)):
        one = np.where(images[0, 0] > 0.0, flux, 0.0)
        expected = explicit(operator, one, float(freq[k]))
        assert np.linalg.norm(vis[:, k, 0] - expected) < 3e-6 * np.linalg.norm(expected)
    rng = np.random.default_rng(1)
    x = rng.normal(size=images.shape)
    v = rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape)
    left = float((operator.predict(x)[0].conj() * v * operator.weights[0]).real.sum())
    right = float((x * operator.adjoint([v], weighted=True)).sum())
    # Double precision: the adjoint is the transpose of the same tables.
    assert left == pytest.approx(right, rel=1e-10)


def test_the_psf_on_twice_the_field_is_the_operator_of_the_normal_equations(operator: ImageOperator) -> None:
    image = np.random.default_rng(2).normal(size=(SIZE, SIZE))
    exact = operator.adjoint(operator.predict(image[None]), weighted=True)[0]
    n = SIZE
    transfer = np.fft.rfft2(np.fft.ifftshift(operator.psf))
    made = np.fft.irfft2(transfer * np.fft.rfft2(image, s=(2 * n, 2 * n)), s=(2 * n, 2 * n))[:n, :n]
    # w-terms of 3.4 km at 80 arcsec change the phase by 2 pi w (l^2 + m^2) / 2 < 0.01 rad.
    assert np.linalg.norm(made - exact) < 0.01 * np.linalg.norm(exact)


def test_pixels_follow_from_baselines_and_what_is_given(observation: Observation) -> None:
    (part,) = observation.partitions
    length = np.hypot(*part.uvw[:, :2].T) * part.chan_freq[0] / SPEED_OF_LIGHT
    chosen = choose_field(observation)
    assert 0.9 * 0.705 / length.max() / 5.0 <= chosen.cell <= 0.705 / length.max() / 5.0
    view = SPEED_OF_LIGHT / part.chan_freq[0] / 25.0
    assert 0.9 * min(view, 1.0 / length.min()) <= chosen.width <= 2.0 * view
    assert len(chosen.chosen) == 2
    assert not chosen.remarks
    given = choose_field(observation, field="160 arcsec", cell="5 arcsec")
    assert (given.size, given.cell) == (32, pytest.approx(5.0 * ARCSEC))
    wide = choose_field(observation, field=4.0 / length.min(), size=512)
    assert wide.remarks[0].startswith("NO SHORT SPACINGS: the shortest baseline measures up to")
    with pytest.raises(biro.InputError, match="two of them determine the third"):
        choose_field(observation, size=32, field="1 arcmin", cell="1 arcsec")
    empty = replace(part, weight=np.zeros_like(part.weight))
    with pytest.raises(biro.InputError, match="no visibility counts"):
        choose_field(replace(observation, partitions=(empty,)))


class Quadratic(Regulariser):
    """A Gaussian prior of each pixel, of which strength / 2 is the inverse variance."""

    low, strongest, weakest = -np.inf, 1.0, 1.0

    def start(self, dirty: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.zeros_like(dirty)

    def image(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        return z

    def pull(self, z: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        return gradient

    def penalty(self, z: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        return 0.5 * float((z**2).sum()), z


def test_the_map_of_a_quadratic_prior_is_the_wiener_solution(observation: Observation) -> None:
    small = ImageOperator(observation, choose_field(observation, size=16, cell=CELL), backend="cpu")
    rng = np.random.default_rng(4)
    data = with_truth(small, rng.normal(size=(16, 16)))
    columns = [small.predict(unit.reshape(1, 16, 16))[0].ravel() for unit in np.eye(256)]
    response = np.stack(columns, axis=1)
    weight = small.weights[0].ravel()
    strength = 0.01 * float(weight.sum())
    normal = (response.conj().T * weight) @ response
    pull = (response.conj().T * weight) @ data.data[0].ravel()
    expected = np.linalg.solve(normal.real + strength * np.eye(256), pull.real)
    found = smooth_map(data, Quadratic(), strength=strength, show=False)
    # L-BFGS-B ends where the objective falls by less than 1e-10 of itself.
    assert np.linalg.norm(found.image.ravel() - expected) < 1e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", ["starlet", "entropy", "tv"])
def test_derivatives_of_penalty_and_image_are_their_differences(operator: ImageOperator, name: str) -> None:
    n = operator.field.size
    transfer = np.fft.rfft2(np.fft.ifftshift(operator.psf)).real
    dirty = operator.adjoint(with_truth(operator, np.ones((n, n))).data, weighted=True)[0]
    regulariser = make_regulariser(name, transfer, dirty)  # type: ignore[arg-type]
    rng = np.random.default_rng(5)
    z = 1.0 + 0.3 * rng.random(regulariser.start(dirty).shape)
    step, weight = rng.normal(size=z.shape), rng.normal(size=(n, n))
    h = 1e-5

    def value(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([(weight * regulariser.image(at)).sum(), regulariser.penalty(at)[0]])

    expected = (value(z + h * step) - value(z - h * step)) / (2.0 * h)
    slopes = regulariser.pull(z, weight), regulariser.penalty(z)[1]
    # Central differences of smooth functions, errors of h^2.
    np.testing.assert_allclose([(slope * step).sum() for slope in slopes], expected, rtol=1e-5)


def points() -> NDArray[np.float64]:
    truth = np.zeros((SIZE, SIZE))
    truth[10, 22], truth[20, 8] = 4.0, 1.0
    return truth


def blob() -> NDArray[np.float64]:
    y, x = np.indices((SIZE, SIZE)) - SIZE // 2
    made = np.exp(-0.5 * ((x + 3.0) ** 2 + (y - 2.0) ** 2) / 3.0**2)
    return np.asarray(5.0 * made / made.sum())


def ring() -> NDArray[np.float64]:
    y, x = np.indices((SIZE, SIZE)) - SIZE // 2
    made = np.exp(-0.5 * ((np.hypot(x, y) - 8.0) / 1.5) ** 2) * (1.0 + 0.6 * x / 8.0)
    return np.asarray(5.0 * made / made.sum())


@pytest.mark.parametrize("truth", [points(), blob(), ring()], ids=["points", "blob", "ring"])
def test_the_fast_map_fits_to_the_noise_and_finds_the_truth(
    operator: ImageOperator, truth: NDArray[np.float64]
) -> None:
    data = with_truth(operator, truth)
    found = smooth_map(data, show=False)
    n = sum(data.n_data)
    assert found.reached
    # chi2 of noise scatters by sqrt(4 N); the rule aims at 2 N.
    assert abs(found.chi2[-1] - 2.0 * n) < 4.0 * np.sqrt(4.0 * n)
    assert found.image.min() >= 0.0
    # The largest strength is 3.7 sigma of the whole image: the flux is low by that many sigma at most.
    sigma = 1.0 / np.sqrt(operator.weight_sum)
    assert abs(found.image.sum() - truth.sum()) < 6.0 * sigma * np.sqrt(SIZE)
    residual = data.dirty(data.residuals(data.predict(found.image[None])))
    assert np.abs(residual).max() < 6.0 * sigma


def test_a_radio_galaxy_is_recovered(operator: ImageOperator, data_dir: Path) -> None:
    with fits.open(data_dir / "3c353_truth_512.fits") as hdus:
        pixels = np.asarray(hdus[0].data, np.float64).squeeze()
    truth = pixels.reshape(SIZE, 512 // SIZE, SIZE, 512 // SIZE).sum(axis=(1, 3))
    truth *= 20.0 / truth.sum()
    found = smooth_map(with_truth(operator, truth), show=False)
    assert found.reached
    beam = 3.4 / 2.355  # FWHM of 17 arcsec in pixels of 5 arcsec, as sigma
    seen, expected = (gaussian_filter(image, beam, mode="constant") for image in (found.image, truth))
    # Noise of 0.013 Jy/beam against peaks of 1 Jy/beam; the strength leaves residuals of a few times that.
    assert np.linalg.norm(seen - expected) < 0.05 * np.linalg.norm(expected)


def test_a_map_goes_on_from_its_checkpoint_to_the_same_bits(operator: ImageOperator, tmp_path: Path) -> None:
    data, options = with_truth(operator, blob()), {"strength": 2.0, "show": False}
    whole = smooth_map(data, "tv", **options)  # type: ignore[arg-type]
    assert len(whole.chi2) > 1
    first = smooth_map(data, "tv", n_cycle=1, checkpoint=tmp_path / "map.npz", **options)  # type: ignore[arg-type]
    assert first.chi2 == whole.chi2[:1]
    for _ in range(2):  # the second time it is done, and no cycle is added
        after = smooth_map(data, "tv", checkpoint=tmp_path / "map.npz", **options)  # type: ignore[arg-type]
        assert after.chi2 == whole.chi2
        np.testing.assert_array_equal(after.image, whole.image)


def test_noise_that_differences_of_times_exceed_is_that_of_the_residuals() -> None:
    sky = replace(diffuse(), noise=Noise())
    made = biro.fit_image(simulated(sky_of_points()), sky, backend="cpu", progress=False)
    # In an hour the sky turns: differences are several times the noise. 1404 visibilities give 2 %, and the
    # strength of the prior leaves some of the sources in the residuals.
    assert made.noise == pytest.approx(1.0, abs=0.1)


def test_a_known_flux_enters(operator: ImageOperator) -> None:
    data = with_truth(operator, blob())
    found = smooth_map(data, flux=FluxPrior(5.3, 1e-4), show=False)
    # A prior of 1e-4 Jy against data of 0.01 Jy: the flux is that of the prior.
    assert found.image.sum() == pytest.approx(5.3, abs=2e-3)


def test_a_source_outside_of_the_image_is_named(operator: ImageOperator) -> None:
    data = with_truth(operator, points())
    residuals = data.residuals(data.predict(points()[None]))
    assert source_outside(data, residuals) is None
    (part,) = data.observation.partitions
    l, m = 120.0 * ARCSEC, -130.0 * ARCSEC
    turns = part.uvw @ [l, m, np.sqrt(1 - l**2 - m**2) - 1.0] * part.chan_freq[0] / SPEED_OF_LIGHT
    line = source_outside(data, [residuals[0] + np.exp(2j * np.pi * turns)[:, None, None]])
    assert line is not None
    # With five times the noise, the source is 1 Jy / 0.047 Jy = 21 sigma, and noise alone is no source.
    loud = [5.0 * residuals[0] + np.exp(2j * np.pi * turns)[:, None, None]]
    assert source_outside(data, loud, noise=5.0) is not None
    assert source_outside(data, [5.0 * residuals[0]], noise=5.0) is None
    # Noise of 0.01 Jy, in two figures.
    assert re.match(r"SOURCE OUTSIDE: about (9\d0 mJy|1 Jy) lie 2 arcmin east and 2.17 arcmin south", line), (
        line
    )


FIELD = ImageField(64, ARCSEC, (1.0, 0.5))


@pytest.mark.parametrize(
    ("text", "area"),
    [
        ("image; circle(33, 33, 10)", np.pi * 100.0),
        ("circle [[32pix, 32pix], 10pix]", np.pi * 100.0),
        ("offset; circle(0 arcsec, 0 arcsec, 10 arcsec)", np.pi * 100.0),
        ('offset; ellipse(2", 3", 12", 5", 30)', np.pi * 60.0),
        ("image; box(33, 33, 10, 4, 20)", 40.0),
        ("box [[10pix, 10pix], [20pix, 15pix]]", 50.0),
        ("annulus [[32pix, 32pix], [5pix, 10pix]]", np.pi * 75.0),
        ("image; polygon(10, 10, 30, 10, 10, 30)", 200.0),
    ],
)
def test_regions_have_the_area_of_their_shape(text: str, area: float) -> None:
    # Pixels count by the share of 25 points inside.
    assert parse_region(text).mask(FIELD).sum() == pytest.approx(area, rel=0.02)


def test_regions_lie_where_pixels_offsets_and_directions_agree() -> None:
    east, north = 7.0 * ARCSEC, -12.0 * ARCSEC
    ra, dec = np.rad2deg(lm_to_radec(east, north, FIELD.centre))
    texts = (
        f'icrs; circle({ra:.12f}, {dec:.12f}, 4")',
        f"circle [[{ra:.12f}deg, {dec:.12f}deg], 4arcsec]",
        "offset; circle(7 arcsec, -12 arcsec, 4 arcsec)",
        "image; circle(26, 21, 4)",
        "circle [[25pix, 20pix], 4pix]",
    )
    masks = [parse_region(text).mask(FIELD) for text in texts]
    for mask in masks[1:]:
        np.testing.assert_allclose(mask, masks[0], atol=0.05)
    # A position angle from north through east, as CASA has: the long axis of 90 deg lies east-west.
    flat = parse_region("ellipse [[32pix, 32pix], [20pix, 5pix], 90deg]").mask(FIELD)
    assert flat[32, 15] == 1.0
    assert flat[15, 32] == 0.0
    tilted = parse_region("ellipse [[32pix, 32pix], [20pix, 3pix], 45deg]").mask(FIELD)
    assert tilted[32 + 10, 32 - 10] == 1.0  # north-east is up and left
    for bad in ("circle(1, 2)", "blob(1, 2, 3)", "galactic; circle(1, 2, 3)", "offset; circle(1 Jy, 2, 3)"):
        with pytest.raises(biro.InputError, match="region"):
            parse_region(bad).mask(FIELD)
    for bad, match in (
        ("image; box(33,33,10,4,abc)", "expected an angle such as 30deg, got 'abc'"),
        ("image; box(33,33,10,4,30Jy)", "expected an angle such as 30deg"),
        ("ellipse [[32pix, 32pix], [20pix, 5pix], abc]", "expected an angle such as 30deg, got 'abc'"),
        ("image; circle(33,33,-5)", "expected lengths above 0, got -5"),
        ("image; annulus(33,33,8,4)", "expected an inner radius below the outer one, got 8, 4"),
    ):
        with pytest.raises(biro.InputError, match=match):
            parse_region(bad).mask(FIELD)
    # Pixels from 1 to 64: a box of all of them ends at the rim, a circle of 40 pixels does not.
    assert not parse_region("image; box(32.5, 32.5, 64, 64)").is_cut(FIELD)
    assert parse_region("image; circle(33, 33, 40)").is_cut(FIELD)
    with pytest.raises(biro.InputError, match="outside of the image"):
        parse_region("image; circle(500, 500, 3)").mask(FIELD)


def sky_of_points() -> SkyModel:
    return SkyModel(
        [
            PointSource("core", east="0 arcsec", north="0 arcsec", I="3 Jy"),
            PointSource("knot", east="30 arcsec", north="-40 arcsec", I="1 Jy"),
        ]
    )


def diffuse(**given: object) -> SkyModel:
    prior = ImagePrior("diffuse", prior="smooth", size=SIZE, cell="5 arcsec")
    return SkyModel([], images=[prior], noise=Noise(factor=1.0), **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fitted() -> ImagePosterior:
    return biro.fit_image(simulated(sky_of_points()), diffuse(), backend="cpu", progress=False)


def test_a_fit_has_fluxes_of_regions_and_says_that_errors_are_lacking(fitted: ImagePosterior) -> None:
    core = fitted.region("offset; circle(0 arcsec, 0 arcsec, 15 arcsec)")
    knot = fitted.region("offset; circle(30 arcsec, -40 arcsec, 15 arcsec)")
    # 1404 visibilities of 2 hands with 0.5 Jy: 0.01 Jy; the strength of the prior takes a few sigma.
    assert core.flux == pytest.approx(3.0, abs=0.06)
    assert knot.flux == pytest.approx(1.0, abs=0.06)
    assert core.error is None
    assert "without an error" in str(core)
    assert not fitted.remarks
    assert fitted.total_chi2 == pytest.approx(1.0, abs=4.0 / np.sqrt(sum(fitted.n_data)))
    cut = fitted.region("offset; circle(0 arcsec, 70 arcsec, 30 arcsec)")
    assert "pixels, cut by the edge of the image" in str(cut)
    with pytest.raises(biro.InputError, match='has no errors: prior = "smooth" gives'):
        _ = fitted.sd
    with pytest.raises(biro.InputError, match='has no errors: method = "map" gives'):
        _ = replace(fitted, prior="correlated-field").sd
    y, x = np.unravel_index(int(fitted.restored()[0].argmax()), (SIZE, SIZE))
    assert (y, x) == (SIZE // 2, SIZE // 2)
    # The restored peak of a point is its flux, in Jy/beam, with sidelobes of the other one taken out.
    assert fitted.restored()[0].max() == pytest.approx(3.0, abs=0.1)


def test_a_result_is_read_back_with_its_files(fitted: ImagePosterior, tmp_path: Path) -> None:
    files = {path.name for path in fitted.save(tmp_path / "run")}
    assert files == {"image.npz", "summary.txt", "mean.fits", "restored.fits", "residual.fits", "image.png"}
    back = read_result(tmp_path / "run")
    np.testing.assert_array_equal(back.samples, fitted.samples)
    assert str(back) == str(fitted)
    image = biro.read_image(tmp_path / "run" / "mean.fits")
    # FITS holds float32.
    np.testing.assert_allclose(image.pixels[:, 0], fitted.mean, atol=1e-6 * fitted.mean.max())
    assert image.cell == pytest.approx(fitted.field.cell)
    with pytest.raises(biro.InputError, match="has an image already"):
        fitted.save(tmp_path / "run")


def test_samples_give_errors_of_regions(fitted: ImagePosterior) -> None:
    rng = np.random.default_rng(8)
    samples = 1.0 + 0.1 * rng.normal(size=(400, 1, SIZE, SIZE))
    sampled = replace(fitted, samples=samples, is_map=False)
    flux = sampled.region("image; box(17, 17, 8, 8, 0)")
    # 64 independent pixels of 0.1: an error of 0.8, known to 1/sqrt(800) of it.
    assert flux.error == pytest.approx(0.8, rel=0.15)
    assert sampled.sd.mean() == pytest.approx(0.1, rel=0.02)
    assert "+-" in str(flux)


@pytest.mark.parametrize("strongest", [None, 1e9])
def test_gains_are_solved_between_cycles(strongest: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Penalties that leave nothing of the first images leave the start, and weaker ones follow."""
    if strongest is not None:
        strengths = np.geomspace(strongest, 10.0, self_calibration.N_SHALLOW)
        monkeypatch.setattr(self_calibration, "_strengths", lambda *_: strengths)
    observation = simulated(sky_of_points(), noise=0.1)
    rng = np.random.default_rng(6)
    parts = []
    for part in observation.partitions:
        phase = rng.uniform(-np.pi, np.pi, (len(part.times), part.n_antenna))
        turn = phase[part.time_index, part.antenna1] - phase[part.time_index, part.antenna2]
        vis = part.vis * np.exp(1j * turn)[:, None, None]
        parts.append(replace(part, vis=vis.astype(part.vis.dtype)))
    broken = replace(observation, partitions=tuple(parts))
    gain = biro.models.Gain(
        phase={"prior": "uniform", "low": "-180 deg", "high": "180 deg", "per": "integration"}
    )
    made = biro.fit_image(broken, diffuse(gain=gain), backend="cpu", progress=False)
    # The position of the whole is lost with the phases, not the fluxes: 0.01 Jy with 27 antennas.
    assert made.flux.flux == pytest.approx(4.0, abs=0.05)
    assert made.mean[0].max() == pytest.approx(3.0, abs=0.3)
    assert made.total_chi2 < 1.05
    assert not made.remarks


@pytest.mark.parametrize(
    ("sky", "match"),
    [
        (sky_of_points(), "has 0 images with a prior, expected one"),
    ],
)  # fmt: skip
def test_what_cannot_stand_beside_an_image_is_refused(sky: SkyModel, match: str) -> None:
    observation = simulated(sky_of_points())
    with pytest.raises(biro.InputError, match=match):
        biro.fit_image(observation, sky, backend="cpu", progress=False)
    if sky.image_priors:
        with pytest.raises(biro.ModelError, match="fitted, not given"):
            sky.bind(observation.partition_views)


@pytest.mark.parametrize(
    ("noise", "match"),
    [
        (Noise(factor=1.0, distribution="student-t"), 'distribution = "student-t" is not fitted'),
        (Noise(per="antenna"), 'per = "antenna" is not fitted'),
        (Noise(factor=1.0, per="hands"), 'per = "hands" is not fitted'),
        (Noise(additive="1 mJy"), "additive is not fitted"),
        (Noise(systematic=0.02, edges=["1 km"]), "edges is not fitted"),
        (Noise(factor=1.0, correlation="time"), 'correlation = "time" is not fitted'),
    ],
)
@pytest.mark.parametrize("prior", ["smooth", "correlated-field"])
def test_noise_beside_factor_and_fraction_is_refused(
    observation: Observation, noise: Noise, match: str, prior: str
) -> None:
    sky = SkyModel([], images=[ImagePrior("diffuse", prior=prior)], noise=noise)
    with pytest.raises(biro.InputError, match=re.escape(match)):
        biro.fit_image(observation, sky, progress=False)


def test_a_prior_of_the_systematic_error_is_refused_by_the_fast_map(observation: Observation) -> None:
    sky = replace(diffuse(), noise=Noise(systematic={"prior": "uniform", "low": 0.0, "high": 0.1}))
    with pytest.raises(biro.InputError, match='systematic: prior = "smooth" needs one number, found a prior'):
        biro.fit_image(observation, sky, progress=False)


def test_noise_of_few_differences_is_taken_as_stated(observation: Observation) -> None:
    (part,) = observation.partitions
    first = (part.time_index < 2) & (part.antenna1 == 0)
    few = replace(part, weight=np.where(first[:, None, None], part.weight, 0.0))
    factor, remark = noise_of(replace(observation, partitions=(few,)), replace(diffuse(), noise=Noise()))
    # 26 baselines of an antenna at two times have 26 differences, fewer than the 32 that measure the noise.
    assert factor == 1.0
    assert "noise taken as stated: too few neighbouring times (26 differences" in remark
    factor, remark = noise_of(observation, replace(diffuse(), noise=Noise()))
    # 1053 complex differences: the median of |x| is good to sqrt(0.68 / 1053) = 2.5 %.
    assert factor == pytest.approx(1.0, abs=0.1)
    assert not remark


def test_visibilities_of_one_hand_are_named() -> None:
    (part,) = simulated(sky_of_points()).partitions
    hands = [name in ("RR", "XX") for name in part.corr_type]
    name = part.corr_type[hands.index(True)]
    n = part.weight[..., 0].size
    assert one_hand([part], n) == ()
    alone = replace(part, weight=part.weight * np.array(hands))
    expected = (
        f"ONE HAND: {n} visibilities are {name} alone and count as Stokes I; the sky is assumed unpolarised"
    )
    assert one_hand([alone], n) == (expected,)


@pytest.mark.parametrize(
    ("options", "match"),
    [({"strength": 0.0}, "strength: expected a number above 0"), ({"strength": "1"}, "strength: expected"),
     ({"n_cycle": 0}, "n_cycle: expected a whole number"), ({"n_cycle": 2.5}, "n_cycle: expected a whole")],
)  # fmt: skip
def test_options_of_the_fast_map_are_checked(
    observation: Observation, options: dict[str, object], match: str
) -> None:
    with pytest.raises(biro.InputError, match=match):
        biro.fit_image(observation, diffuse(), backend="cpu", progress=False, **options)  # type: ignore[arg-type]


def test_a_flux_that_samples_of_pixels_do_not_use_is_refused(observation: Observation) -> None:
    prior = ImagePrior("field", prior="pixels", size=SIZE, cell="5 arcsec", flux="1 Jy")
    with pytest.raises(biro.InputError, match='prior = "pixels" has no prior of the flux'):
        biro.fit_image(observation, SkyModel([], images=[prior]), progress=False)


def test_a_normal_flux_that_log_normal_cannot_stand_for_is_refused() -> None:
    assert flux_of(Normal(2.0, 0.5, "Jy")) == (2.0, 0.25)
    for mean, sd in ((1.0, 1.0), (-1.0, 0.1), (0.0, 0.1)):
        with pytest.raises(biro.InputError, match="needs a mean above its sd"):
            flux_of(Normal(mean, sd, "Jy"))


def test_baselines_at_one_place_alone_in_a_partition_set_no_width(observation: Observation) -> None:
    (part,) = observation.partitions
    longest = float(np.hypot(*part.uvw[:, :2].T).max())
    near = replace(part, uvw=part.uvw * (1e-3 * longest / np.hypot(*part.uvw[:, :2].T))[:, None], spw_id=1)
    both = replace(observation, partitions=(part, near))
    assert choose_field(both, cell=CELL).size == choose_field(observation, cell=CELL).size


def test_the_command_fits_an_image_and_prints_fluxes_of_regions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = simulated(sky_of_points())
    monkeypatch.setattr("biro.io.reading.read", lambda *args, **options: data)
    (tmp_path / "sky.toml").write_text(diffuse().to_toml())
    run = tmp_path / "run"
    words = ["fit", "obs.ms", str(tmp_path / "sky.toml"), "-o", str(run), "--backend", "cpu"]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert "diffuse: image of 32 x 32 pixels of 5 arcsec" in made.output
    assert biro.read_model(run / "model.toml") == diffuse()
    shown = CliRunner().invoke(app, ["region", str(run), "offset; circle(0 arcsec, 0 arcsec, 15 arcsec)"])
    assert shown.exit_code == 0, shown.output
    assert "without an error" in shown.output
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 2
