"""Single-dish maps as data of an image: coordinates and beam against astropy, transposes, noise, fluxes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.coordinates import SkyCoord
from astropy.io import fits
from astropy.wcs import WCS
from scipy.ndimage import gaussian_filter

import biro
from biro.image_posterior.field import ImageField, choose_field
from biro.image_posterior.make_problem import image_problem
from biro.image_posterior.maps import self_calibration
from biro.image_posterior.maps.self_calibration import with_gains_taken_out
from biro.image_posterior.maps.smooth import smooth_map
from biro.image_posterior.operator import ImageOperator, with_data
from biro.image_posterior.problem import ImageProblem
from biro.image_posterior.single_dish import SingleDishData, single_dish_data
from biro.image_posterior.single_dish_file import SingleDishMap, read_map
from biro.imaging.psf import RestoringBeam
from biro.models import (
    Gain,
    GaussianSource,
    ImagePrior,
    ModelError,
    Noise,
    PointSource,
    SingleDish,
    SkyModel,
)
from biro.models.components.direction import lm_to_radec
from biro.models.files.toml import from_toml
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.simulation import Channels, Track
from rime_kernels.physics.phase import SPEED_OF_LIGHT

ARCSEC = np.pi / 180.0 / 3600.0
N, CELL = 32, 5.0 * ARCSEC
CENTRE = (1.0, 0.7)
BAND = (1.4e9, 1.4e9)
FREQ = 1.4e9


def coordinates(
    centre: tuple[float, float],
    *,
    frame: str = "icrs",
    rotation: float = 0.0,
    pixel: float = 8.0,
    n: int = 40,
) -> WCS:
    """A TAN projection of n x n pixels (arcsec) about a direction, turned by an angle in degrees."""
    wcs, turn, step = WCS(naxis=2), np.deg2rad(rotation), pixel / 3600.0
    names = ("RA---", "DEC--") if frame == "icrs" else ("GLON-", "GLAT-")
    wcs.wcs.ctype = [f"{name}TAN" for name in names]
    sky = SkyCoord(*centre, unit="rad").transform_to(frame).spherical
    wcs.wcs.crval, wcs.wcs.crpix = [sky.lon.deg, sky.lat.deg], [0.5 * (n + 1)] * 2
    c, s = step * np.cos(turn), step * np.sin(turn)
    wcs.wcs.cd = [[-c, s], [s, c]]
    if frame == "icrs":
        wcs.wcs.radesys = "ICRS"
    return wcs


def observed(
    image: np.ndarray, wcs: WCS, beam: tuple[float, float, float], field: ImageField, n: int = 40
) -> np.ndarray:
    """What a dish with a beam (arcsec, arcsec, deg) sees, in the plane of its own map, by astropy."""
    y, x = np.indices((n, n)).astype(float)
    out, degrees = np.zeros((n, n)), wcs.pixel_scale_matrix
    pa = np.deg2rad(beam[2])
    for j, i in zip(*np.nonzero(image), strict=True):
        ra, dec = lm_to_radec(-field.axis[i], field.axis[j], field.centre)
        place = wcs.world_to_pixel(SkyCoord(ra, dec, unit="rad"))
        east, north = np.einsum("ab,b...->a...", degrees * 3600.0, np.stack([x - place[0], y - place[1]]))
        along, across = east * np.sin(pa) + north * np.cos(pa), east * np.cos(pa) - north * np.sin(pa)
        height = (along / beam[0]) ** 2 + (across / beam[1]) ** 2
        out += image[j, i] * np.exp(-4.0 * np.log(2.0) * height)
    return out


def write(
    path: Path, data: np.ndarray, wcs: WCS, beam: tuple[float, ...] = (), unit: str = "Jy/beam", **cards: Any
) -> Path:
    header = wcs.to_header()
    header["BUNIT"] = unit
    for key, value in zip(("BMAJ", "BMIN", "BPA"), beam, strict=False):
        header[key] = value / (3600.0 if key != "BPA" else 1.0)
    header.update(cards)
    fits.writeto(path, data, header, overwrite=True)
    return path


def points(n: int = N) -> np.ndarray:
    rng, image = np.random.default_rng(1), np.zeros((n, n))
    image[rng.integers(4, n - 4, 5), rng.integers(4, n - 4, 5)] = rng.uniform(1.0, 3.0, 5)
    return image


@pytest.fixture(scope="module")
def field() -> ImageField:
    return ImageField(N, CELL, CENTRE)


@pytest.fixture(scope="module")
def dish(field: ImageField, tmp_path_factory: pytest.TempPathFactory) -> SingleDishData:
    """A map of points without noise, rotated and about another centre."""
    wcs = coordinates(lm_to_radec(20.0 * ARCSEC, -30.0 * ARCSEC, CENTRE), rotation=25.0)
    beam = (40.0, 30.0, 35.0)
    path = write(tmp_path_factory.mktemp("map") / "map.fits", observed(points(), wcs, beam, field), wcs, beam)
    return single_dish_data(read_map(SingleDish(path, noise="10 mJy")), field, BAND)


@pytest.mark.parametrize(
    ("frame", "rotation", "pa", "offset", "dec", "unit"),
    [
        ("icrs", 0.0, 30.0, (0.0, 0.0), 0.7, "Jy/beam"),
        ("icrs", 25.0, 30.0, (20.0, -30.0), 0.7, "mJy/beam"),
        ("galactic", 0.0, 40.0, (10.0, 20.0), 0.7, "Jy/beam"),
        ("icrs", 10.0, 50.0, (30.0, 30.0), 1.5, "Jy/pixel"),  # near the pole, north turns by degrees
    ],
)
def test_a_map_on_another_grid_is_what_astropy_says(
    frame: str, rotation: float, pa: float, offset: tuple[float, float], dec: float, unit: str, tmp_path: Path
) -> None:
    field, beam = ImageField(N, CELL, (1.0, dec)), (40.0, 30.0, pa)
    east, north = (value * ARCSEC for value in offset)
    wcs = coordinates(lm_to_radec(east, north, field.centre), frame=frame, rotation=rotation)
    data = observed(points(), wcs, beam, field)
    area = 0.25 * np.pi / np.log(2.0) * beam[0] * beam[1] / 8.0**2
    stored = data * {"Jy/beam": 1.0, "mJy/beam": 1e3, "Jy/pixel": 1.0 / area}[unit]
    given = SingleDish(write(tmp_path / "map.fits", stored, wcs, beam, unit), noise="10 mJy")
    found = single_dish_data(read_map(given), field, BAND)
    assert len(found.data) > 100
    # Splines of 6 pixels to the beam have errors of (1/6)^4; a position angle off by 1 deg makes 1e-2.
    np.testing.assert_allclose(found.seen(points()), found.data, atol=1e-3 * data.max())


def test_the_adjoint_is_the_transpose_and_jax_agrees(dish: SingleDishData) -> None:
    rng = np.random.default_rng(2)
    image, values = rng.normal(size=(N, N)), rng.normal(size=len(dish.data))
    left, right = float(values @ dish.seen(image)), float((image * dish.adjoint(values)).sum())
    assert left == pytest.approx(right, rel=1e-10)
    jax = pytest.importorskip("jax", reason="needs the extra images")
    pytest.importorskip("nifty.re", reason="needs the extra images")
    from biro.image_posterior.sampling.jax_room import double_precision

    with double_precision():
        found, back = jax.vjp(lambda x: dish.seen(x, jax.numpy), image)
        np.testing.assert_allclose(found, dish.seen(image), atol=1e-12)
        np.testing.assert_allclose(back(jax.numpy.asarray(values))[0], dish.adjoint(values), atol=1e-12)


def test_the_penalty_has_the_scale_at_its_best_and_its_own_slope(dish: SingleDishData) -> None:
    """With c free, chi2/2 + xi^2/2 is least: no other scale is better, and differences give the slope."""
    image = 1.03 * points() + 0.01
    value, slope = dish.penalty(image)
    seen = dish.seen(image)
    others = [
        0.5 * dish.chi2(seen, float(dish.scale_of(xi))) + 0.5 * xi * xi for xi in np.linspace(-2, 2, 401)
    ]
    assert value <= min(others)
    step = np.random.default_rng(3).normal(size=image.shape) * 1e-4
    change = dish.penalty(image + step)[0] - dish.penalty(image - step)[0]
    assert change == pytest.approx(2.0 * float((slope * step).sum()), rel=1e-4)


def test_an_image_gets_the_flux_of_the_map(dish: SingleDishData) -> None:
    image = np.random.default_rng(6).uniform(size=(N, N))
    twice = replace(dish, data=2.0 * 1.1 * np.asarray(dish.seen(image)), scale=1.1)
    assert twice.flux_ratio(image) == pytest.approx(2.0)
    assert twice.flux_ratio(0.0 * image) == 1.0
    assert replace(twice, data=-twice.data).flux_ratio(image) == 1.0


def test_noise_that_is_smooth_over_the_beam_has_the_errors_that_are_stated(field: ImageField) -> None:
    """White noise smoothed with the beam: chi2 is what it counts as, and mean brightness has its error."""
    wcs, n, pixel, width = coordinates(CENTRE, pixel=5.0), 40, 5.0, 20.0
    beam = RestoringBeam(width * ARCSEC, width * ARCSEC, 0.0)
    sigma, rng = width / pixel / np.sqrt(8.0 * np.log(2.0)), np.random.default_rng(4)
    noise = gaussian_filter(rng.normal(size=(60, 60, 60)), (0.0, sigma, sigma))[:, 10:-10, 10:-10]
    noise *= 2.0 * np.sqrt(np.pi) * sigma  # to an rms of 1
    of_map = SingleDishMap("map", np.zeros((n, n)), True, wcs, beam, FREQ, 1.0, 1.0, 0.0)
    found = [single_dish_data(replace(of_map, data=one), field, BAND) for one in noise]
    weight, expected = found[0].weight, found[0].n_independent
    area = (28 * 5.0) ** 2 / (2.0 * 0.25 * np.pi / np.log(2.0) * width**2)
    assert expected == pytest.approx(area, rel=0.1)
    # chi2 of 60 maps with 22 independent measurements each: sqrt(2 / (60 x 22)) is 4 %.
    chi2 = [float((weight * one.data**2).sum()) for one in found]
    assert np.mean(chi2) == pytest.approx(expected, rel=0.12)
    means = [float((weight * one.data).sum() / weight.sum()) for one in found]
    # The standard deviation of 60 numbers has an error of 9 %; edges of the image make it 0.9 rather than 1.
    assert 0.65 < np.std(means) * np.sqrt(weight.sum()) < 1.15


def test_a_map_within_one_beam_is_one_measurement(tmp_path: Path, field: ImageField) -> None:
    wcs, beam = coordinates(CENTRE, pixel=40.0), (600.0, 600.0, 0.0)
    path = write(tmp_path / "map.fits", np.ones((40, 40)), wcs, beam)
    found = single_dish_data(read_map(SingleDish(path, noise="0.1 Jy")), field, BAND)
    assert found.n_independent == pytest.approx(1.0)


@pytest.fixture(scope="module")
def without_short_spacings() -> biro.Observation:
    """Noise of VLA-C at four times, on baselines that measure up to 30 arcsec."""
    nothing = SkyModel([PointSource("p", east="0 arcsec", north="0 arcsec", I="0 Jy")])
    made = biro.simulate(
        "VLA-C", nothing, phase_centre="12h00m00s +40d00m00s", times=Track("2026-03-01", 4 * 3600.0, 3600.0),
        channels=Channels(FREQ, 5e7), noise=0.2, seed=3, progress=False,
    )  # fmt: skip
    (part,) = form_stokes(made.partitions, PSEUDO_I)[0]
    length = np.hypot(*part.uvw[:, :2].T) * FREQ / SPEED_OF_LIGHT
    weight = np.where((length > 1.0 / (30.0 * ARCSEC))[:, None, None], part.weight, 0.0)
    return replace(made, partitions=(replace(part, weight=weight),))


def test_a_map_gives_the_flux_that_an_interferometer_misses(
    without_short_spacings: biro.Observation, data_dir: Path, tmp_path: Path
) -> None:
    """3C353 of 20 Jy, 160 arcsec wide, on baselines that measure 30 arcsec."""
    data = without_short_spacings
    place = choose_field(data, size=N, cell=CELL)
    operator = ImageOperator(data, place, backend="cpu")
    with fits.open(data_dir / "3c353_truth_512.fits") as hdus:
        pixels = np.asarray(hdus[0].data, np.float64).squeeze()
    truth = pixels.reshape(N, 512 // N, N, 512 // N).sum(axis=(1, 3))
    truth *= 20.0 / truth.sum()
    pairs = zip(operator.data, operator.predict(truth[None]), strict=True)
    operator = with_data(operator, [noise + vis for noise, vis in pairs], operator.weights)
    wcs, beam = coordinates(place.centre, rotation=20.0), (30.0, 30.0, 0.0)
    seen = 1.04 * observed(np.where(truth > 1e-4, truth, 0.0), wcs, beam, place)
    given = SingleDish(write(tmp_path / "map.fits", seen, wcs, beam), noise="10 mJy", calibration=1.04)
    dish = single_dish_data(read_map(given), place, BAND)
    options: dict[str, Any] = {"strength": 1.0, "n_cycle": 2, "show": False}
    alone = smooth_map(operator, "entropy", **options)
    assert alone.image.sum() < 17.0
    # The map has an error of 0.05 Jy of the whole; the rest is the strength of the prior.
    found = smooth_map(operator, "entropy", single_dish=dish, **options)
    assert found.image.sum() == pytest.approx(20.0, rel=0.03)


def test_what_the_model_and_the_result_state(
    without_short_spacings: biro.Observation, tmp_path: Path
) -> None:
    """The image is as wide as the remark on short spacings needs: a map with a small beam removes it."""
    data, centre = without_short_spacings, without_short_spacings.partitions[0].phase_centre
    remarks = {}
    for width in (25.0, 90.0):
        wcs, beam = coordinates(centre, pixel=12.0), (width, width, 0.0)
        path = write(tmp_path / f"{width}.fits", np.ones((40, 40)), wcs, beam)
        prior = ImagePrior(
            "x", prior="smooth", size=N, cell="5 arcsec", single_dish=SingleDish(path, noise="1 Jy")
        )
        sky = SkyModel([], images=[prior], noise=Noise(factor=1.0))
        problem = image_problem(data, sky, prior, "cpu", None, read_map(prior.single_dish))
        remarks[width] = problem.operator.field.remarks
        assert any("count as" in line for line in problem.operator.field.chosen)
        assert any("no frequency in its header" in line for line in problem.operator.field.chosen)
    assert remarks[25.0] == ()
    assert remarks[90.0][0].startswith("GAP OF SPACINGS: the shortest baseline measures up to 29.9 arcsec")
    assert choose_field(data, size=N, cell=CELL).remarks[0].startswith("NO SHORT SPACINGS")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam": ()}, "no beam in the header"),
        ({"unit": "K"}, "biro cannot read the unit 'K'"),
        ({"unit": ""}, "no unit"),
        ({"freq": 5e9}, "is at 5 GHz, the data are at 1.4 to 1.4 GHz"),
        ({"offset": 100.0}, "covers 5[0-9]% of the image, of which it must cover 90%"),
        ({"offset": 3000.0}, "covers 0% of the image"),
        ({"beam": (8.0, 8.0, 0.0)}, "has less than 3 pixels of the image"),
        ({"blank": True}, "no pixel of the map is a number"),
    ],
)
def test_a_map_that_cannot_be_used_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path, field: ImageField
) -> None:
    changes = dict(changes)
    east = changes.pop("offset", 0.0) * ARCSEC
    data = np.full((40, 40), np.nan if changes.pop("blank", False) else 1.0)
    freq = changes.pop("freq", FREQ)
    wcs = coordinates(lm_to_radec(east, 0.0, CENTRE), pixel=5.0)
    given = {"beam": (40.0, 30.0, 0.0), "unit": "Jy/beam"} | changes
    path = write(tmp_path / "map.fits", data, wcs, given["beam"], given["unit"], RESTFRQ=freq)
    with pytest.raises(biro.InputError, match=message) as error:
        single_dish_data(read_map(SingleDish(path, noise="1 Jy")), field, BAND)
    assert "\n" not in str(error.value)
    assert "map.fits" in str(error.value)


def test_a_beam_of_the_model_takes_the_place_of_that_of_the_header(tmp_path: Path) -> None:
    path = write(tmp_path / "map.fits", np.ones((40, 40)), coordinates(CENTRE))
    given = SingleDish(path, noise="1 Jy", emaj="20 arcsec", emin="30 arcsec", pa="10 deg")
    beam = read_map(given).beam
    assert (beam.major, beam.minor) == pytest.approx((30.0 * ARCSEC, 20.0 * ARCSEC))
    assert np.rad2deg(beam.pa) == pytest.approx(100.0)


def test_what_a_map_does_not_go_with_is_refused(tmp_path: Path) -> None:
    centre = (np.pi, np.deg2rad(40.0))
    path = write(tmp_path / "map.fits", np.ones((40, 40)), coordinates(centre), (40.0, 40.0, 0.0))
    data = biro.simulate(
        "KAT-7", SkyModel([PointSource("p", east="0 arcsec", north="0 arcsec", I="1 Jy")]),
        phase_centre="12h00m00s -40d00m00s", times=Track("2026-03-01T20:00", 3600.0, 3600.0),
        channels=Channels(FREQ, 1e6, 2), noise=0.1, seed=1, progress=False,
    )  # fmt: skip
    of_map = SingleDish(path, noise="1 Jy")
    core = PointSource("core", east="0 arcsec", north="0 arcsec", I="1 Jy")
    image = ImagePrior("x", prior="correlated-field", flux="1 Jy", single_dish=of_map)
    cases: tuple[tuple[SkyModel, dict[str, Any], str], ...] = (
        (SkyModel([core], images=[image]), {}, "core: components cannot stand beside"),
        (SkyModel([], images=[image]), {"gains": "closures"}, "has no position"),
        (SkyModel([], images=[replace(image, spectral_index=-0.7)]), {}, "without a spectrum"),
    )
    for sky, options, message in cases:
        with pytest.raises(biro.InputError, match=message):
            biro.fit_image(data, sky, backend="cpu", progress=False, **options)


def test_a_model_file_has_the_map(tmp_path: Path) -> None:
    text = (
        '[[image]]\nname = "x"\nprior = "smooth"\n[image.single_dish]\nfile = "map.fits"\nnoise = "20 mJy"\n'
    )
    model = from_toml(text, tmp_path)
    assert model.image_priors[0].single_dish.file == str(tmp_path / "map.fits")
    assert from_toml(model.to_toml()) == model
    for words, message in (
        ('single_dish = "map.fits"', "expected a table"),
        ('single_dish = { file = "a" }', "'noise' is missing"),
        ('single_dish = { file = "a", noise = 1 }', "has no unit"),
        ('single_dish = { file = "a", noise = "1 Jy", calibration = -1 }', "above 0 or a log-normal prior"),
        ('single_dish = { file = "a", noise = "1 Jy", emin = "1 deg" }', "emaj: is missing"),
    ):
        with pytest.raises(ModelError, match=message):
            from_toml(f'[[image]]\nname = "x"\nprior = "smooth"\n{words}')


def test_samples_have_the_likelihood_of_both(dish: SingleDishData) -> None:
    """-ln L of visibilities and map add up, at the scale of the last number of the state."""
    pytest.importorskip("nifty.re", reason="needs the extra images")
    import jax
    import jax.numpy as jnp
    import nifty.re as jft

    from biro.image_posterior.sampling.jax_room import double_precision
    from biro.image_posterior.sampling.models.map_model import MapModel
    from biro.image_posterior.sampling.models.visibility_model import Sections, unit_noise

    class Sky:
        def planes(self, xi: Any) -> Any:
            return jnp.exp(xi).reshape(1, N, N)

    class Pixels:
        """Brightness as it is measured, with unit noise."""

        prior, n, n_data, at = Sky(), N * N, N * N // 2, Sections(slice(0, N * N), slice(0, 0), slice(0, 0))
        is_hyper = np.zeros(N * N, bool)
        watched: tuple[Any, ...] = ()
        circles = np.array([3])

        def visibilities(self, xi: Any) -> Any:
            return jnp.exp(xi)

        def likelihood(self) -> Any:
            made = jft.Gaussian(jnp.ones(N * N), noise_cov_inv=unit_noise, noise_std_inv=unit_noise)
            return made.amend(self.visibilities, domain=jax.ShapeDtypeStruct((N * N,), jnp.float64))

    with double_precision():
        both: Any = MapModel(Pixels(), dish)  # type: ignore[arg-type]
        xi = 0.3 * np.random.default_rng(5).normal(size=both.n)
        image = np.exp(xi[:-1]).reshape(N, N)
        of_map = 0.5 * dish.chi2(dish.seen(image), float(np.exp(0.05 * xi[-1])))
        expected = of_map + 0.5 * ((image - 1.0) ** 2).sum()
        assert float(both.likelihood()(jnp.asarray(xi))) == pytest.approx(expected, rel=1e-10)
        np.testing.assert_array_equal(both.watched[-1], [N * N])
        np.testing.assert_array_equal(both.circles, [3])


GAIN = Gain(
    phase={"prior": "uniform", "low": "-180 deg", "high": "180 deg", "per": "integration"},
    amplitude={"prior": "log-normal", "median": 1, "sd": 0.3, "per": "integration"},
)


@pytest.fixture(scope="module")
def blob_beside_map(tmp_path_factory: pytest.TempPathFactory) -> ImageProblem:
    """A Gaussian of 4 Jy on VLA-C with free gains, and a map of it."""
    blob = GaussianSource("g", east="0 arcsec", north="0 arcsec", I="4 Jy", fwhm="30 arcsec")
    data = biro.simulate(
        "VLA-C",
        SkyModel([blob]),
        phase_centre="12h00m00s +40d00m00s",
        times=Track("2026-03-01", 3 * 3600.0, 3600.0),
        channels=Channels(FREQ, 5e7),
        noise=0.1,
        seed=3,
        progress=False,
    )
    wcs = coordinates(data.partitions[0].phase_centre)
    y, x = np.indices((40, 40)) - 19.5
    # 30 arcsec in a beam of 40 arcsec is a Gaussian of 50 arcsec, whose peak has (40/50)^2 of the flux.
    seen = 4.0 * 0.64 * np.exp(-4.0 * np.log(2.0) * (x**2 + y**2) * (8.0 / 50.0) ** 2)
    path = write(tmp_path_factory.mktemp("blob") / "map.fits", seen, wcs, (40.0, 40.0, 0.0))
    dish = SingleDish(path, noise="20 mJy", calibration=1.0)
    image = ImagePrior("x", prior="smooth", size=24, cell="6 arcsec", single_dish=dish)
    sky = SkyModel([], images=[image], gain=GAIN, noise=Noise(factor=1.0))
    return image_problem(data, sky, image, "cpu", None, read_map(dish))


def gaussian(flux: float) -> np.ndarray:
    y, x = np.indices((24, 24)) - 12
    image = np.exp(-4.0 * np.log(2.0) * (x**2 + y**2) * (6.0 / 30.0) ** 2)
    return flux * image / image.sum()


def test_free_amplitudes_take_the_flux_of_the_map(blob_beside_map: ImageProblem) -> None:
    """An image with a fifth of the flux leaves gains by which the data have the flux of the map."""
    problem, start = blob_beside_map, gaussian(0.8)
    expected = problem.operator.predict(gaussian(4.0)[None])[0]

    def ratio(given: ImageProblem) -> float:
        """Fluxes of the data with gains taken out over those of the source, by least squares."""
        (found,) = with_gains_taken_out(given, start)[0].data
        return float((expected.conj() * found).real.sum() / (np.abs(expected) ** 2).sum())

    # The map is without noise; splines of pixels of 6 arcsec in a beam of 40 are good to a per cent.
    assert ratio(problem) == pytest.approx(4.0 / 4.0, rel=0.02)
    # With a flux in the prior, without amplitudes or without a map, the image keeps its flux.
    known = replace(problem.prior, flux={"prior": "normal", "mean": 4, "sd": 1, "unit": "Jy"})
    for other in (replace(problem, prior=known), replace(problem, single_dish=None)):
        assert ratio(other) == pytest.approx(0.8 / 4.0, rel=0.02)
    # Phases alone change no amplitude: the data have their 4 Jy.
    phases = replace(problem.sky, gain=Gain(phase=GAIN.phase))
    assert ratio(replace(problem, sky=phases)) == pytest.approx(1.0, rel=0.02)


def test_the_best_start_is_that_which_the_map_fits_too(
    blob_beside_map: ImageProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Visibilities alone prefer an image of 3 Jy a little, and the map that of 4 Jy by far."""
    problem = blob_beside_map
    begun = smooth_map(problem.operator, "entropy", strength=1.0, n_cycle=1, show=False)
    ends = [
        (replace(begun, image=gaussian(flux), chi2=(chi2,)), problem.operator, 10, [chi2])
        for flux, chi2 in ((4.0, 2010.0), (3.0, 2000.0), (4.0, 2020.0))
    ]
    remaining = iter(ends)
    monkeypatch.setattr(self_calibration, "_cycles", lambda *_: next(remaining))
    # Data as measured explain something, so that there are three starts.
    monkeypatch.setattr(self_calibration, "USEFUL", np.inf)
    monkeypatch.setattr(self_calibration, "CALIBRATED", 0.0)
    fitted = self_calibration.fit_smooth(
        replace(problem, prior=replace(problem.prior, regularisation="entropy"))
    )
    assert fitted.samples.sum() == pytest.approx(4.0)
    assert fitted.facts["chi2_by_start"] == [2010.0, 2000.0, 2020.0]
