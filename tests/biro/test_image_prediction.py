"""An image against the point sources that its pixels are: turned, dimmed by beams, with spectra."""

from __future__ import annotations

import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS

import biro
from biro.errors import BiroError
from biro.models import AiryBeam, Cos3Beam, GaussianBeam, ImageModel, Pointing, PointSource, SkyModel
from biro.observation.observation import Observation
from biro.simulation.prediction import predict

CENTRE = (1.2, -0.6)
ACCURACY = 1e-6
CORRELATIONS = {"linear": ("XX", "XY", "YX", "YY"), "circular": ("RR", "RL", "LR", "LL"), "I": ("I",)}


def observe(freq, *, n_row=60, longest=2200.0, feeds="linear", seed=3, phase_centre=CENTRE):
    """Random baselines with w as long as u and v."""
    rng = np.random.default_rng(seed)
    corr = CORRELATIONS[feeds]
    uvw = rng.uniform(-longest, longest, (n_row, 3)) / np.sqrt(2)
    return Observation.from_arrays(
        np.zeros((n_row, len(freq), len(corr)), complex),
        uvw,
        np.zeros(n_row, int),
        1 + np.arange(n_row) % 7,
        np.arange(n_row) // 7,
        freq,
        corr,
        phase_centre=phase_centre,
    )


def some_pixels(n_pixel=128, *, n_stokes=4, n_freq=1, n_lit=6, seed=5):
    rng = np.random.default_rng(seed)
    pixels = np.zeros((n_stokes, n_freq, n_pixel, n_pixel))
    x, y = rng.integers(n_pixel // 8, n_pixel - n_pixel // 8, (2, n_lit))
    pixels[:, :, y, x] = rng.uniform(0.5, 2.0, (n_stokes, 1, n_lit)) * rng.choice(
        [-1, 1], (n_stokes, 1, n_lit)
    )
    return pixels


def as_points(image: ImageModel, spectrum=(), **more) -> SkyModel:
    """The lit pixels as sources at the right ascension and declination that astropy finds."""
    n = image.n_pixel
    wcs = WCS(naxis=2)
    wcs.wcs.ctype = "RA---SIN", "DEC--SIN"
    wcs.wcs.crval = np.rad2deg(image.centre)
    wcs.wcs.cdelt = np.rad2deg([-image.cell, image.cell])
    # Direction cosine 0 lies l0 / cell columns after column N/2, and m0 / cell rows before row N/2 (from 0).
    wcs.wcs.crpix = n / 2 + 1 + image.offset[0] / image.cell, n / 2 + 1 - image.offset[1] / image.cell
    sources = []
    for i, (y, x) in enumerate(np.argwhere(image.pixels.any(axis=(0, 1)))):
        ra, dec = wcs.all_pix2world(x, y, 0)
        stokes = image.pixels[:, 0, y, x]
        flux = {name: f"{value!r} Jy" for name, value in zip("IQUV", stokes.tolist(), strict=False)}
        sources.append(PointSource(f"s{i}", ra=f"{ra} deg", dec=f"{dec} deg", **flux, **dict(spectrum)))
    return SkyModel(sources, **more)


def check(observation, image, sky, beam=None, accuracy=ACCURACY, engine="auto"):
    """Image and points, each through the same beam; relative rms."""
    (expected,) = predict(observation, sky)
    found = []
    if beam is None:
        found = list(predict(observation, None, image=image, accuracy=accuracy, engine=engine))
    else:
        nothing = SkyModel([PointSource("none", east="0 rad", north="0 rad", I="0 Jy")], beam=beam)
        found = list(predict(observation, nothing, image=image, accuracy=accuracy, engine=engine))
    error = np.linalg.norm(found[0] - expected) / np.linalg.norm(expected)
    assert error < accuracy
    return error


@pytest.mark.parametrize("engine", ["idg", "wprojection"])
@pytest.mark.parametrize("feeds", ["linear", "circular", "I"])
def test_pixels_are_point_sources_in_a_wide_field(feeds, engine):
    image = ImageModel(some_pixels(), 6e-4, CENTRE)  # 4.4 deg
    observation = observe(np.array([1.0e8, 1.3e8]), feeds=feeds)
    check(observation, image, as_points(image), engine=engine)


@pytest.mark.parametrize("centre", [(1.2, -0.6 + 0.02), (1.25, -0.62), (1.2 + 1e-9, -0.6), (1.2, -0.9)])
def test_an_image_may_have_any_centre(centre):
    image = ImageModel(some_pixels(), 2e-4, centre, offset=(1e-3, -2.3e-3))
    observation = observe(np.array([1.5e8]))
    check(observation, image, as_points(image))


def test_an_image_around_the_pole():
    image = ImageModel(some_pixels(), 2e-4, (0.4, np.pi / 2 - 0.004))
    check(observe(np.array([1.5e8]), phase_centre=(2.0, np.pi / 2 - 0.01)), image, as_points(image))


@pytest.mark.parametrize(
    "beam",
    [
        GaussianBeam(fwhm="4 deg", ref_freq="100 MHz"),
        Cos3Beam(coefficient="100 1/GHz"),
        AiryBeam(diameter="40 m"),
    ],
    ids=["gaussian", "cos3", "airy"],
)
@pytest.mark.parametrize("centre", [CENTRE, (1.22, -0.61)])
def test_an_image_and_its_points_are_dimmed_alike(beam, centre):
    """Over a range of frequencies of 1 : 1.3 the beams fall by several times at the edge of the image."""
    image = ImageModel(some_pixels(), 6e-4, centre)
    observation = observe(np.linspace(1.0e8, 1.3e8, 24), n_row=20)
    check(observation, image, as_points(image, beam=beam), beam)


@pytest.mark.parametrize(
    "pointing",
    [
        Pointing(east="10 arcmin", north="-5 arcmin"),
        Pointing(antenna={"2": {"east": "20 arcmin"}, "5": {"north": "-12 arcmin", "east": "4 arcmin"}}),
        Pointing(east=["3 arcmin", "9 arcmin"], antenna={"1": {"north": ["0 arcmin", "15 arcmin"]}}),
    ],
    ids=["alike", "each its own", "moving"],
)
@pytest.mark.parametrize("centre", [CENTRE, (1.22, -0.61)])
def test_pointing_errors_dim_an_image_and_its_points_alike(pointing, centre):
    """Errors of 20 arcmin where the beam falls by half in 2 deg: 10 % of power, 1e4 times the accuracy."""
    image = ImageModel(some_pixels(), 6e-4, centre)
    observation = observe(np.linspace(1.0e8, 1.2e8, 6), n_row=42)
    sky = {"beam": GaussianBeam(fwhm="4 deg", ref_freq="100 MHz"), "pointing": pointing}
    (expected,) = predict(observation, as_points(image, **sky))
    (unpointed,) = predict(observation, as_points(image, beam=sky["beam"]))
    nothing = SkyModel([PointSource("none", east="0 rad", north="0 rad", I="0 Jy")], **sky)
    (found,) = predict(observation, nothing, image=image, accuracy=1e-5)
    assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)
    assert np.linalg.norm(unpointed - expected) > 1e-2 * np.linalg.norm(expected)


def test_planes_are_interpolated_as_spectra():
    planes = np.linspace(0.9e8, 1.4e8, 3)
    law = (planes / planes[0]) ** -0.8
    pixels = np.repeat(some_pixels(), 3, axis=1) * law[:, None, None]
    image = ImageModel(pixels, 6e-4, CENTRE, chan_freq=planes, interpolation="spectral-index")
    spectrum = {"spectral_index": -0.8, "ref_freq": f"{planes[0]} Hz"}
    observation = observe(np.linspace(0.85e8, 1.5e8, 30), n_row=20)
    check(observation, image, as_points(image, spectrum))
    # A straight line in frequency is a polynomial of x = nu/nu0 - 1.
    pixels = np.repeat(some_pixels(), 3, axis=1) * (1 - 0.7 * (planes / planes[0] - 1))[:, None, None]
    image = ImageModel(pixels, 6e-4, CENTRE, chan_freq=planes, interpolation="linear")
    check(observation, image, as_points(image, {"polynomial": -0.7, "ref_freq": f"{planes[0]} Hz"}))


def test_the_nearest_plane_holds():
    planes = np.array([1.0e8, 1.2e8])
    pixels = np.repeat(some_pixels(), 2, axis=1) * np.array([1.0, 3.0])[:, None, None]
    image = ImageModel(pixels, 6e-4, CENTRE, chan_freq=planes, interpolation="nearest")
    observation = observe(np.array([0.5e8, 1.09e8, 1.11e8, 1.5e8]), n_row=20)
    (vis,) = predict(observation, None, image=image, accuracy=ACCURACY)
    (once,) = predict(observation, as_points(image))
    expected = once * np.array([1, 1, 3, 3])[:, None]
    assert np.linalg.norm(vis - expected) < ACCURACY * np.linalg.norm(expected)


def test_an_image_is_added_to_sources():
    image = ImageModel(some_pixels(), 6e-4, CENTRE)
    observation = observe(np.array([1.0e8]))
    sky = as_points(image, beam=GaussianBeam(fwhm="4 deg", ref_freq="100 MHz"))
    (both,) = predict(observation, sky, image=image, accuracy=ACCURACY)
    (points,) = predict(observation, sky)
    assert np.linalg.norm(both - 2 * points) < ACCURACY * np.linalg.norm(points)


def test_a_dark_image_is_dark():
    image = ImageModel(np.zeros((4, 1, 64, 64)), 6e-4, CENTRE)
    (vis,) = predict(observe(np.array([1e8])), None, image=image)
    assert not vis.any()


def test_a_fits_image_becomes_visibilities(tmp_path):
    """From the file: a source of 2 Jy in one pixel, at the place that astropy says."""
    head = fits.Header()
    for name, value in {
        "CTYPE1": "RA---SIN", "CRVAL1": 68.9, "CDELT1": -0.03, "CRPIX1": 31.3,
        "CTYPE2": "DEC--SIN", "CRVAL2": -34.1, "CDELT2": 0.03, "CRPIX2": 36.7, "BUNIT": "Jy/pixel",
    }.items():  # fmt: skip
        head[name] = value
    data = np.zeros((71, 64))
    data[60, 9] = 2.0
    fits.PrimaryHDU(data, head).writeto(tmp_path / "image.fits")
    ra, dec = WCS(head).all_pix2world(9, 60, 0)
    sky = SkyModel([PointSource("s", ra=f"{ra} deg", dec=f"{dec} deg", I="2 Jy")])
    check(observe(np.array([1e8])), biro.read_image(tmp_path / "image.fits"), sky)


def test_an_image_beside_the_field_is_said(caplog):
    image = ImageModel(some_pixels(), 1e-5, (1.3, -0.6))
    list(predict(observe(np.array([1e8])), None, image=image, accuracy=ACCURACY))
    # 0.1 rad in right ascension at declination -0.6: 2 asin(cos(0.6) sin(0.05)) = 4.728 deg.
    assert "does not contain the phase centre of field field, 4.73 deg from its own" in caplog.text
    caplog.clear()
    list(
        predict(
            observe(np.array([1e8])), None, image=ImageModel(some_pixels(), 6e-4, CENTRE), accuracy=ACCURACY
        )
    )
    assert "phase centre" not in caplog.text


def test_what_cannot_be_predicted_is_refused():
    image = ImageModel(some_pixels(), 6e-4, CENTRE)
    with pytest.raises(BiroError, match="nothing to predict"):
        predict(observe(np.array([1e8])), None)
    with pytest.raises(BiroError, match="90 degrees or more from the phase centre of field"):
        list(predict(observe(np.array([1e8]), phase_centre=(1.2 + np.pi, 0.6)), None, image=image))
    cube = ImageModel(np.repeat(image.pixels, 2, axis=1), 6e-4, CENTRE, chan_freq=np.array([1e8, 1.1e8]))
    with pytest.raises(BiroError, match="reach beyond the planes"):
        predict(observe(np.array([1.3e8])), None, image=cube)  # before the first partition is asked for
    own = {"3": {"east": "1 deg"}}
    sky = as_points(image, beam=AiryBeam(diameter="400 m"), pointing=Pointing(antenna=own))
    with pytest.raises(BiroError, match="differ too much or are too narrow for accuracy 1e-07"):
        list(predict(observe(np.array([1e8])), sky, image=image, accuracy=1e-7))
    with pytest.raises(BiroError, match="different beams, which W-projection does not support; use engine"):
        list(predict(observe(np.array([1e8])), sky, image=image, engine="wprojection"))


@pytest.mark.parametrize("name", ["deltas", "blobs"])
def test_visibilities_of_images_are_those_of_wsclean(truth, name):
    """WSClean's w-gridder, which agrees with direct sums to 3.6e-7 (README of the reference data)."""
    wsclean = truth("wsclean_wgridder_27_lin")
    vis = wsclean[f"vis_{name}"]
    columns = [wsclean[key] for key in ("uvw", "antenna1", "antenna2", "time", "chan_freq")]
    observation = Observation.from_arrays(
        vis[..., None].astype(complex), *columns, ["XX"], phase_centre=CENTRE
    )
    image = ImageModel(wsclean[f"image_{name}"][None, None], float(wsclean["cell_rad"]), CENTRE)
    (found,) = predict(observation, None, image=image, accuracy=1e-5)
    assert np.linalg.norm(found[..., 0] - vis) < 1e-5 * np.linalg.norm(vis)
