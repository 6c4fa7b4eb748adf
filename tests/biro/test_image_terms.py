"""Images as terms of a sky model: predicted once, scaled by a parameter."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

import biro
from biro.errors import BiroError, InputError
from biro.models import Cos3Beam, ImageModel, ImageTerm, ModelError, Noise, PointSource, SkyModel, Uniform
from biro.models.components.toml_text import to_toml
from biro.models.files import write_bbs
from biro.models.files.toml import from_toml
from biro.observation.observation import Observation
from biro.simulation.prediction import predict

CENTRE, CELL, N = (0.5, 0.6), 5e-6, 32
SPEED_OF_LIGHT = 299792458.0
TOML = """
[noise]
factor = 1

[[source]]
name = "a"
type = "point"
east = "30 arcsec"
north = "10 arcsec"
I = "2 Jy"

[[image]]
name = "halo"
file = "halo.fits"
scale = { prior = "uniform", low = 0, high = 3 }
"""


def pixels() -> np.ndarray:
    """A lopsided blob of 3 Jy."""
    y, x = np.mgrid[:N, :N]
    blob = np.exp(-((x - 11) ** 2 + (y - 20) ** 2) / 8) * (1 + 0.5 * (x > 11))
    return 3.0 * blob / blob.sum()


def image() -> ImageModel:
    return ImageModel(pixels()[None, None], CELL, CENTRE)


def layout() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    first, second = np.triu_indices(6, 1)
    position = rng.normal(scale=2000.0, size=(4, 6, 3))
    uvw = (position[:, first] - position[:, second]).reshape(-1, 3)
    return {
        "uvw": uvw,
        "antenna1": np.tile(first, 4),
        "antenna2": np.tile(second, 4),
        "time": np.repeat(60.0 * np.arange(4), first.size),
        "chan_freq": np.linspace(1.0e9, 1.2e9, 3),
        "corr_type": ["XX", "YY"],
        "phase_centre": CENTRE,
    }


def direct() -> np.ndarray:
    """The image's visibilities as an explicit sum over its pixels (physics: section 2)."""
    given, (y, x) = layout(), np.mgrid[:N, :N]
    l, m = -(x - N // 2) * CELL, (y - N // 2) * CELL
    lmn = np.stack([l, m, np.sqrt(1 - l * l - m * m) - 1]).reshape(3, -1)
    turns = (given["uvw"] @ lmn)[:, None] * (given["chan_freq"] / SPEED_OF_LIGHT)[:, None]
    vis = np.exp(2j * np.pi * turns) @ pixels().ravel()
    return np.repeat(vis[..., None], 2, axis=2)


def observed(vis: np.ndarray, weight: float = 1.0) -> Observation:
    return Observation.from_arrays(vis, weight=weight, **layout())


def sky(**changes: Any) -> SkyModel:
    point = PointSource("a", east="30 arcsec", north="10 arcsec", I="2 Jy")
    term = ImageTerm("halo", file=image(), scale=Uniform(0, 3))
    return SkyModel([point], **{"images": [term], "noise": Noise(factor=1.0), **changes})


def test_the_image_is_added_times_its_scale() -> None:
    empty = observed(np.zeros_like(direct()))
    with_image = biro.Likelihood(empty, sky(), backend="cpu", image_accuracy=1e-6)
    assert tuple(with_image.parameter_names) == ("halo.scale",)
    alone = biro.Likelihood(empty, sky(images=()), backend="cpu")
    found = with_image.predict([1.7])[0] - alone.predict([])[0]
    assert np.linalg.norm(found - 1.7 * direct()) < 1e-6 * np.linalg.norm(1.7 * direct())


def test_the_likelihood_of_the_scale_is_the_closed_form() -> None:
    """chi2 is a parabola: at the least where a = Re F^H D / F^H F, and with curvature w F^H F."""
    rng, f, weight = np.random.default_rng(2), direct(), 25.0
    noise = (rng.normal(size=f.shape) + 1j * rng.normal(size=f.shape)) / np.sqrt(weight)
    data = 1.3 * f + noise
    only = SkyModel([], images=sky().images, noise=Noise(factor=1.0))
    likelihood = biro.Likelihood(observed(data, weight), only, backend="cpu", image_accuracy=1e-6)
    norm, best = np.vdot(f, f).real, np.vdot(f, data).real / np.vdot(f, f).real
    scale = np.linspace(0.5, 2.0, 7)
    expected = -0.5 * weight * norm * (scale - best) ** 2
    found = likelihood.log_likelihood(scale[:, None])
    # Errors of 1e-6 in F change chi2 by 2e-6 of |F| |D - a F| at most.
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=2e-6 * weight * norm)


def test_an_image_and_a_point_on_a_pixel_are_dimmed_alike() -> None:
    one = np.zeros((1, 1, N, N))
    one[0, 0, N // 2, N // 2] = 1.0
    beam = Cos3Beam("65 1/GHz")
    noise, empty = Noise(factor=1.0), observed(np.zeros_like(direct()))
    east, north = 0.0026, 0.0016
    far = ImageModel(one, CELL, CENTRE, offset=(east, north))
    as_image = SkyModel([], images=ImageTerm("i", file=far), beam=beam, noise=noise)
    degrees = [f"{float(np.rad2deg(x))!r} deg" for x in _offsets(east, north)]
    as_point = SkyModel([PointSource("p", ra=degrees[0], dec=degrees[1], I="1 Jy")], beam=beam, noise=noise)
    first, second = (
        biro.Likelihood(empty, model, backend="cpu", image_accuracy=1e-6).predict([])[0]
        for model in (as_image, as_point)
    )
    assert np.abs(second).max() < 0.999  # the beam is seen
    assert np.linalg.norm(first - second) < 1e-6 * np.linalg.norm(second)


def _offsets(l: float, m: float) -> tuple[float, float]:
    """Right ascension and declination of direction cosines (physics: section 1, inverted)."""
    n = np.sqrt(1 - l * l - m * m)
    ra0, dec0 = CENTRE
    dec = np.arcsin(m * np.cos(dec0) + n * np.sin(dec0))
    return float(ra0 + np.arctan2(l, n * np.cos(dec0) - m * np.sin(dec0))), float(dec)


def test_a_model_file_names_a_fits_image_beside_it(tmp_path) -> None:
    write(tmp_path / "halo.fits")
    (tmp_path / "model.toml").write_text(TOML)
    model = biro.read_model(tmp_path / "model.toml")
    assert from_toml(to_toml(model)) == model
    empty = observed(np.zeros_like(direct()))
    from_file, from_memory = (
        biro.Likelihood(empty, each, backend="cpu", image_accuracy=1e-6) for each in (model, sky())
    )
    # The file's header has the cell and the centre in degrees.
    np.testing.assert_allclose(from_file.predict([1.1])[0], from_memory.predict([1.1])[0], atol=1e-9)
    (vis,) = predict(empty, model, values={"halo.scale": 1.1}, backend="cpu", accuracy=1e-6)
    np.testing.assert_allclose(vis, from_file.predict([1.1])[0], atol=1e-9)


def test_the_digest_knows_the_pixels(tmp_path) -> None:
    empty, digests = observed(np.zeros_like(direct())), []
    (tmp_path / "model.toml").write_text(TOML)
    for factor in (1.0, 1.0, 1.001):
        write(tmp_path / "halo.fits", factor)
        model = biro.read_model(tmp_path / "model.toml")
        digests.append(biro.Likelihood(empty, model, backend="cpu").digest())
    assert digests[0] == digests[1] != digests[2]


def test_the_digest_does_not_know_where_the_image_lies(tmp_path) -> None:
    empty, digests = observed(np.zeros_like(direct())), []
    for folder in (tmp_path / "here", tmp_path / "there"):
        folder.mkdir()
        write(folder / "halo.fits")
        (folder / "model.toml").write_text(TOML)
        digests.append(biro.Likelihood(empty, biro.read_model(folder / "model.toml"), backend="cpu").digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    "change",
    [{"scale": 2.0}, {"scale": Uniform(0, 2)}, {"scale": Uniform(0, 3), "north": "1 arcsec"}],
    ids=str,
)
def test_the_digest_knows_what_is_done_to_an_image_in_memory(change) -> None:
    empty = observed(np.zeros_like(direct()))
    given = [{"scale": Uniform(0, 3)}, change]
    one, other = (
        biro.Likelihood(empty, sky(images=ImageTerm("halo", file=image(), **each)), backend="cpu").digest()
        for each in given
    )
    assert one != other


def test_a_path_is_relative_to_the_working_directory_when_the_term_is_made(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = sky(images=ImageTerm("halo", file="halo.fits"))
    (tmp_path / "models").mkdir()
    biro.models.write_model(model, tmp_path / "models" / "model.toml")
    assert biro.read_model(tmp_path / "models" / "model.toml") == model
    assert model.images[0].file == str(tmp_path / "halo.fits")


def test_a_run_does_not_lose_an_image_in_memory_unnoticed() -> None:
    text = sky().bind(observed(np.zeros_like(direct())).partition_views).to_toml()
    with pytest.raises(ModelError, match=r"'halo': file: .* save it as FITS"):
        from_toml(text)


def test_a_component_list_does_not_lose_an_image_unnoticed(tmp_path) -> None:
    fixed = sky(images=ImageTerm("halo", file="halo.fits"), centre=CENTRE)
    with pytest.raises(ModelError, match="image 'halo': a component list"):
        write_bbs(fixed, tmp_path / "sky.txt")


def test_values_that_fit_nothing_are_refused() -> None:
    empty = observed(np.zeros_like(direct()))
    values = {"halo.scale": 1.0, "noise.factor": 2.0}
    next(iter(predict(empty, sky(), values=values, backend="cpu")))
    with pytest.raises(InputError, match=r"no free parameter halo.east"):
        predict(empty, sky(), values=values | {"halo.east": 3.0}, backend="cpu")


def test_an_image_that_moves_far_decides_the_form() -> None:
    """Antennas that close to 1 m leave 4e-3 turns at 1 mrad and 1.2 GHz: too much for the factored form."""
    given = layout()
    given["uvw"] = given["uvw"] + np.random.default_rng(4).normal(size=given["uvw"].shape)
    vis = np.zeros((len(given["uvw"]), 3, 2), complex)
    loose = Observation.from_arrays(vis, weight=1.0, **given)
    prior = Uniform(-200, 200, "arcsec")
    for changes, form in (({}, "factored"), ({"east": prior}, "row"), ({"north": "3 arcmin"}, "row")):
        model = SkyModel([], images=ImageTerm("halo", file=image(), **changes))
        assert biro.Likelihood(loose, model, backend="cpu").description()["form"] == [form]


def write(path: Path, factor: float = 1.0) -> None:
    header = fits.Header()
    for i, (kind, step, centre) in enumerate(
        zip(("RA---SIN", "DEC--SIN"), (-CELL, CELL), CENTRE, strict=True), 1
    ):
        header[f"CTYPE{i}"], header[f"CUNIT{i}"], header[f"CRPIX{i}"] = kind, "deg", N // 2 + 1
        header[f"CDELT{i}"], header[f"CRVAL{i}"] = np.rad2deg(step), np.rad2deg(centre)
    header["BUNIT"], header["RADESYS"] = "Jy/pixel", "ICRS"
    fits.writeto(path, factor * pixels(), header, overwrite=True)


FITTED_BEAM = """
[beam]
kind = "cos3"
coefficient = { prior = "uniform", low = 60, high = 70, unit = "1/GHz" }
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("halo.fits", "none.fits", r"image 'halo': .*none.fits: no such file"),
        ('"halo"', '"a"', "image 'a': another source or image has this name"),
        ("scale =", "scala =", r"image 'halo': unknown key 'scala' \(did you mean 'scale'"),
        ('file = "halo.fits"', "", "image 'halo': file: expected a text"),
        ("[noise]", FITTED_BEAM + "[noise]", "feed rotation cannot be fitted"),
        ('"halo.fits"', '"halo.fits"\ninterpolation = "cubic"', "interpolation: one of nearest"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tmp_path, old, new, words) -> None:
    write(tmp_path / "halo.fits")
    (tmp_path / "model.toml").write_text(TOML.replace(old, new))
    with pytest.raises((BiroError, ModelError), match=words) as caught:
        biro.Likelihood(
            observed(np.zeros_like(direct())), biro.read_model(tmp_path / "model.toml"), backend="cpu"
        )
    assert "\n" not in str(caught.value)


def test_the_outline_is_that_of_the_bright_pixels() -> None:
    pixels = np.zeros((1, 1, 16, 16))
    pixels[0, 0, 6:9, 10] = 1.0
    made = ImageModel(pixels, CELL, CENTRE)
    sky = SkyModel([], images=ImageTerm("i", file=made))
    likelihood = biro.Likelihood(observed(np.zeros_like(direct())), sky, backend="cpu")
    (found,) = likelihood.image_outlines
    # Column 10 is 2 pixels west of the centre, rows 6 to 8 lie 2 south of it to at it; half a pixel around.
    corners = [(-1.5, -2.5), (-2.5, -2.5), (-2.5, 0.5), (-1.5, 0.5)]
    assert found["i"] == pytest.approx(np.array(corners) * CELL, abs=1e-12)


def test_an_image_among_the_sources_is_told_where_it_belongs() -> None:
    point = PointSource("p", east="0 arcsec", north="0 arcsec", I="1 Jy")
    with pytest.raises(ModelError, match=r"'halo' is an image; give it as SkyModel\(sources, images="):
        SkyModel([point, ImageTerm("halo", file="halo.fits")])
    with pytest.raises(ModelError, match=r"found ImageModel; write ImageTerm\('name', file=image\)"):
        SkyModel([], images=[ImageModel(np.ones((1, 1, 4, 4)), CELL, CENTRE)])


def test_an_image_in_memory_is_not_written_to_a_file() -> None:
    with pytest.raises(ModelError, match="save it as FITS"):
        to_toml(sky())


def test_a_shift_moves_a_point_to_where_a_source_would_be() -> None:
    one = np.zeros((1, 1, N, N))
    one[0, 0, N // 2, N // 2] = 2.0
    there = ImageModel(one, CELL, CENTRE, offset=(0.003, -0.002))
    noise, empty = Noise(factor=1.0), observed(np.zeros_like(direct()))
    prior = Uniform(-60, 60, "arcsec")
    term = ImageTerm("i", file=there, east=prior, north=prior)
    moved = biro.Likelihood(empty, SkyModel([], images=term, noise=noise), backend="cpu", image_accuracy=1e-6)
    assert tuple(moved.parameter_names) == ("i.east", "i.north")
    shift = np.array([17.0, -31.0])
    l, m = np.array([0.003, -0.002]) + np.deg2rad(shift / 3600)
    ra, dec = (f"{float(np.rad2deg(x))!r} deg" for x in _offsets(l, m))
    source = SkyModel([PointSource("p", ra=ra, dec=dec, I="2 Jy")], noise=noise)
    expected = biro.Likelihood(empty, source, backend="cpu").predict([])[0]
    assert np.linalg.norm(moved.predict(shift)[0] - expected) < 1e-6 * np.linalg.norm(expected)
    chi2 = np.sum(np.abs(expected) ** 2)
    np.testing.assert_allclose(moved.chi2([shift, shift])[:, 0], chi2, rtol=2e-6)


def test_a_shift_is_the_same_on_the_sky_for_fields_whose_norths_differ() -> None:
    """At declination 80 deg north turns by 2 deg between fields that are 2 deg of right ascension apart."""
    here, there = (np.deg2rad(30.0), np.deg2rad(80.0)), (np.deg2rad(32.0), np.deg2rad(80.2))
    empty = np.zeros((len(layout()["uvw"]), 3, 2), complex)
    fields = [
        Observation.from_arrays(empty, weight=1.0, **(layout() | {"phase_centre": centre}))
        for centre in (here, there)
    ]
    both = biro.join(fields)
    one = np.zeros((1, 1, N, N))
    one[0, 0, N // 2, N // 2] = 2.0
    prior = Uniform(-200, 200, "arcsec")
    given = {"centre": there, "noise": Noise(factor=1.0)}
    term = ImageTerm("i", file=ImageModel(one, CELL, there), east=prior, north=prior)
    source = PointSource("p", east=prior, north=prior, I="2 Jy")
    image_likelihood = biro.Likelihood(
        both, SkyModel([], images=term, **given), backend="cpu", image_accuracy=1e-6
    )
    point_likelihood = biro.Likelihood(both, SkyModel([source], **given), backend="cpu")
    shift = np.array([120.0, -90.0])
    found, expected = image_likelihood.predict(shift), point_likelihood.predict(shift)
    for field in range(2):
        assert np.linalg.norm(found[field] - expected[field]) < 1e-6 * np.linalg.norm(expected[field])
    # chi2 of the model against data of 0; the images are right to 1e-6.
    np.testing.assert_allclose(image_likelihood.chi2(shift), point_likelihood.chi2(shift), rtol=2e-6)
    values = {"i.east": 120.0, "i.north": -90.0}
    again = list(predict(both, SkyModel([], images=term, **given), values=values, backend="cpu"))
    for field in range(2):
        np.testing.assert_allclose(again[field], found[field], atol=1e-4)  # by default right to 1e-5 of 2 Jy
