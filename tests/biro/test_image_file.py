"""FITS images: astropy.wcs says where each pixel is; one clear line says why an image is refused."""

from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS

import biro
from biro.errors import BiroError
from biro.imaging import fits as image_file

DEGREE = np.pi / 180


def header(**cards):
    """Of a plain SIN image of Jy/pixel."""
    made = fits.Header()
    plain = {
        "CTYPE1": "RA---SIN", "CRVAL1": 83.2, "CDELT1": -0.01, "CRPIX1": 11.0, "CUNIT1": "deg",
        "CTYPE2": "DEC--SIN", "CRVAL2": -32.5, "CDELT2": 0.01, "CRPIX2": 9.0, "CUNIT2": "deg",
        "BUNIT": "Jy/pixel", "RADESYS": "ICRS",
    }  # fmt: skip
    for name, value in {**plain, **cards}.items():
        if value is not None:
            made[name] = value
    return made


def written(folder: Path, data, **cards) -> Path:
    fits.PrimaryHDU(np.asarray(data), header(**cards)).writeto(folder / "image.fits", overwrite=True)
    return folder / "image.fits"


def direction_cosines(ra, dec, centre):
    """physics: section 1."""
    ra0, dec0 = centre
    m = np.sin(dec) * np.cos(dec0) - np.cos(dec) * np.sin(dec0) * np.cos(ra - ra0)
    return np.cos(dec) * np.sin(ra - ra0), m


GRIDS = [
    {},
    {"CDELT1": 0.01},
    {"CDELT2": -0.01},
    {"CDELT1": 0.01, "CDELT2": -0.01, "CRPIX1": 3.7, "CRPIX2": 20.2},
    {"CRPIX1": -40.5, "CRPIX2": 70.0},
    {"CDELT1": -1.5, "CDELT2": 1.5, "CRVAL2": 80.0},
    {"CDELT1": -2e-7, "CDELT2": 2e-7, "CRVAL1": 359.99999},
    {"CDELT1": None, "CDELT2": None, "CD1_1": -0.01, "CD2_2": 0.01},
    {"CROTA2": 0.0, "LONPOLE": 180.0, "EQUINOX": 2000.0, "RADESYS": "FK5"},
    {"CRVAL2": -90.0},
]


@pytest.mark.parametrize("cards", GRIDS)
@pytest.mark.parametrize("shape", [(20, 20), (21, 21), (17, 24), (30, 13)])
def test_every_pixel_is_where_astropy_says(tmp_path, cards, shape):
    rng = np.random.default_rng(7)
    data = rng.uniform(1.0, 2.0, shape)
    path = written(tmp_path, data, **cards)
    image = biro.read_image(path)
    assert image.n_pixel % 2 == 0
    assert image.n_pixel - max(shape) in (0, 1)
    assert np.count_nonzero(image.pixels) == data.size
    y, x = np.nonzero(data)
    ra, dec = np.array(WCS(header(**cards)).all_pix2world(x, y, 0)) * DEGREE
    l, m = direction_cosines(ra, dec, image.centre)
    columns, rows = image.axes
    # Values are distinct, so each pixel of the file is found again by its value.
    order = np.argsort(data[y, x])
    found_y, found_x = np.nonzero(image.pixels[0, 0])
    found = np.argsort(image.pixels[0, 0, found_y, found_x])
    np.testing.assert_array_equal(image.pixels[0, 0, found_y, found_x][found], data[y, x][order])
    # Degrees near 360 have a rounding of 6e-14 deg, 1e-15 rad.
    np.testing.assert_allclose(columns[found_x][found], l[order], rtol=1e-9, atol=3e-15)
    np.testing.assert_allclose(rows[found_y][found], m[order], rtol=1e-9, atol=3e-15)


def test_axes_come_in_any_order(tmp_path):
    rng = np.random.default_rng(1)
    data = rng.standard_normal((4, 3, 10, 12))  # Stokes, frequency, dec, ra
    freq = {"CTYPE3": "FREQ", "CRVAL3": 1.4e9, "CDELT3": -1e8, "CRPIX3": 1.0, "CUNIT3": "Hz"}
    stokes = {"CTYPE4": "STOKES", "CRVAL4": 1.0, "CDELT4": 1.0, "CRPIX4": 1.0}
    plain = biro.read_image(written(tmp_path, data, **freq, **stokes))
    np.testing.assert_allclose(plain.chan_freq, [1.2e9, 1.3e9, 1.4e9])
    np.testing.assert_array_equal(plain.pixels[2, 2, :10], data[2, 0])
    # Now: FREQ, DEC, STOKES, RA along FITS axes 1 to 4.
    places = {1: 4, 2: 2, 3: 1, 4: 3}
    cards = {}
    for name, value in header(**freq, **stokes).items():
        digit = name[-1]
        cards[name[:-1] + str(places[int(digit)]) if digit.isdigit() else name] = value
    cards = {name: cards.get(name) for name in {*cards, *header()}}
    turned = np.transpose(data, (3, 0, 2, 1))
    fits.PrimaryHDU(turned, header(**cards)).writeto(tmp_path / "turned.fits")
    again = biro.read_image(tmp_path / "turned.fits")
    np.testing.assert_array_equal(again.pixels, plain.pixels)
    np.testing.assert_allclose(again.centre, plain.centre)


def test_stokes_planes_are_sorted_and_idle_axes_dropped(tmp_path):
    data = np.arange(4.0)[:, None, None, None] + np.ones((4, 1, 10, 10))
    backwards = {"CTYPE4": "STOKES", "CRVAL4": 4.0, "CDELT4": -1.0, "CRPIX4": 1.0, "CTYPE3": "VELO-LSR"}
    image = biro.read_image(written(tmp_path, data, **backwards, CRVAL3=100.0, CRPIX3=1.0, CDELT3=1.0))
    np.testing.assert_array_equal(image.pixels[:, 0, 0, 0], [4.0, 3.0, 2.0, 1.0])
    assert image.chan_freq is None


@pytest.mark.parametrize(
    ("unit", "jansky"),
    [("Jy/pixel", 1.0), ("JY/PIXEL", 1.0), ("mJy/pix", 1e-3), ("Jy pixel-1", 1.0), ("uJy/pixel", 1e-6)],
)
def test_units_per_pixel(tmp_path, unit, jansky):
    image = biro.read_image(written(tmp_path, np.ones((8, 8)), BUNIT=unit))
    np.testing.assert_allclose(image.pixels, jansky)


def test_janskys_per_beam_become_janskys_per_pixel(tmp_path):
    """A restored point source of 3 Jy is a Gaussian with peak 3 Jy/beam; the sum of its pixels is 3 Jy."""
    y, x = np.mgrid[:64, :64] - 32
    major, minor = (
        9.0,
        6.0,
    )  # FWHM in pixels; both above 4, so that the sum over pixels is the integral to 1e-6
    gauss = 3.0 * np.exp(-4 * np.log(2) * ((x / major) ** 2 + (y / minor) ** 2))
    path = written(tmp_path, gauss, BUNIT="Jy/beam", BMAJ=0.01 * major, BMIN=0.01 * minor, BPA=90.0)
    assert biro.read_image(path).pixels.sum() == pytest.approx(3.0, rel=1e-5)


def test_a_cube_with_a_beam_for_each_plane(tmp_path):
    freq = {
        "CTYPE3": "FREQ",
        "CRVAL3": 1e9,
        "CDELT3": 1e8,
        "CRPIX3": 1.0,
        "BUNIT": "Jy/beam",
        "CASAMBM": True,
    }
    columns = [
        fits.Column("BMAJ", "1E", unit="arcsec", array=[100.0, 50.0]),
        fits.Column("BMIN", "1E", unit="arcsec", array=[72.0, 36.0]),
        fits.Column("BPA", "1E", unit="deg", array=[0.0, 0.0]),
        fits.Column("CHAN", "1J", array=[0, 1]),
        fits.Column("POL", "1J", array=[0, 0]),
    ]
    table = fits.BinTableHDU.from_columns(columns, name="BEAMS")
    cube = fits.PrimaryHDU(np.ones((2, 8, 8)), header(**freq))
    fits.HDUList([cube, table]).writeto(tmp_path / "cube.fits")
    pixels = biro.read_image(tmp_path / "cube.fits").pixels
    # Cells of 36 arcsec: pi / (4 ln 2) x 100 x 72 / 36^2 pixels in the first beam, a quarter in the second.
    np.testing.assert_allclose(
        1 / pixels[0, :, 0, 0], np.pi / (4 * np.log(2)) * np.array([7200, 1800]) / 36**2, rtol=1e-6
    )


def test_blanks_beyond_the_horizon_are_no_fault(tmp_path):
    data = np.ones((10, 10))
    y, x = np.mgrid[:10, :10]
    data[np.hypot(x - 5, y - 5) * 0.25 >= 1] = np.nan
    step = 0.25 / DEGREE
    image = biro.read_image(written(tmp_path, data, CRPIX1=6.0, CRPIX2=6.0, CDELT1=-step, CDELT2=step))
    assert image.pixels.sum() == np.nansum(data)


IMAGE = np.ones((12, 12))
FREQ = {"CTYPE3": "FREQ", "CRVAL3": 1e9, "CDELT3": 1e8, "CRPIX3": 1.0}
STOKES = {"CTYPE3": "STOKES", "CRPIX3": 1.0}


@pytest.mark.parametrize(
    ("data", "cards", "message"),
    [
        (IMAGE, {"CTYPE1": None, "CTYPE2": None}, "no celestial coordinates"),
        (IMAGE, {"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN"}, "projection TAN; biro reads SIN only"),
        (IMAGE, {"CTYPE1": "GLON-SIN", "CTYPE2": "GLAT-SIN"}, "coordinates are GLON-SIN and GLAT-SIN"),
        (IMAGE, {"RADESYS": "FK4", "EQUINOX": 1950.0}, "frame FK4; biro reads ICRS and J2000"),
        (IMAGE, {"RADESYS": None, "EQUINOX": 1950.0}, "biro reads ICRS and J2000"),
        (IMAGE, {"CROTA2": 30.0}, "rotated by"),
        (IMAGE, {"PC1_1": 0.0, "PC1_2": 1.0, "PC2_1": -1.0, "PC2_2": 0.0}, "rotated by"),
        (IMAGE, {"CDELT2": 0.02}, "pixels are not square: 36 x 72 arcsec"),
        (IMAGE, {"CDELT1": 0.0}, "cannot read its coordinates"),
        (IMAGE, {"LONPOLE": 170.0}, "not a plain SIN projection"),
        (IMAGE, {"PV2_1": 0.3, "PV2_2": 0.1}, "not a plain SIN projection"),
        (IMAGE, {"BUNIT": None}, r"no unit \(BUNIT\); biro reads Jy/pixel or Jy/beam"),
        (IMAGE, {"BUNIT": "K"}, "biro cannot read the unit 'K'"),
        (IMAGE, {"BUNIT": "Jy"}, "biro cannot read the unit 'Jy'"),
        (IMAGE, {"BUNIT": "MJy/pixel"}, "biro cannot read the unit 'MJy/pixel'"),
        (IMAGE, {"BUNIT": "Jy/beam"}, "no beam in the header"),
        (IMAGE, {"BUNIT": "Jy/beam", "BMAJ": 0.1, "BMIN": 0.0}, "no beam in the header"),
        (np.full((12, 12), np.nan), {}, r"144 of 144 pixels are blank \(NaN or infinite\)"),
        (np.ones((2, 12, 12)), {}, "axis 3 .without type. has 2 planes"),
        (np.ones((2, 12, 12)), {**FREQ, "CTYPE3": "VRAD"}, "spectral axis is VRAD; expected FREQ"),
        (np.ones((2, 12, 12)), {**FREQ, "CDELT3": -1e9}, "distinct frequencies above 0 Hz"),
        (np.ones((2, 12, 12)), {**STOKES, "CRVAL3": 1.0, "CDELT3": 3.0}, "has I, V; expected I"),
        (IMAGE[None], {**STOKES, "CRVAL3": -5.0, "CDELT3": 1.0}, "has XX; expected I"),
        (np.ones(12), {}, "an image has 2 to 8 axes, found 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_in_one_line(tmp_path, data, cards, message):
    with pytest.raises(BiroError, match=message) as caught:
        biro.read_image(written(tmp_path, data, **cards))
    assert str(caught.value).startswith(str(tmp_path / "image.fits"))
    assert "\n" not in str(caught.value)


def test_a_model_image_without_a_beam_is_read_after_what_the_message_says(tmp_path):
    path = written(tmp_path, IMAGE, BUNIT="JY/BEAM", BMAJ=0.0, BMIN=0.0)
    with pytest.raises(BiroError, match="in Jy/pixel") as caught:
        biro.read_image(path)
    assert "astropy.io.fits.setval(path, 'BUNIT', value='Jy/pixel')" in str(caught.value)
    fits.setval(path, "BUNIT", value="Jy/pixel")
    assert biro.read_image(path).pixels.sum() == pytest.approx(IMAGE.sum())


def hostile(folder: Path, size: int, *axes: int) -> Path:
    """A file with a header that claims these axes, and `size` bytes (sparse)."""
    cards = header()
    head = fits.Header([("SIMPLE", True), ("BITPIX", -32), ("NAXIS", len(axes))])
    for i, n in enumerate(axes):
        head[f"NAXIS{i + 1}"] = n
    head.update(cards)
    path = folder / "hostile.fits"
    with open(path, "wb") as file:
        file.write(head.tostring().encode())
        file.truncate(size)
    return path


def test_an_image_larger_than_memory_is_refused_from_its_header(tmp_path):
    # 1e6 x 1e6 pixels of 4 bytes: the file is as large as it says, without a block on disk.
    path = hostile(tmp_path, 4 * 10**12 + 10**6, 10**6, 10**6)
    with pytest.raises(BiroError, match=r"1000000 x 1000000 pixels, 1 planes need 2e.04 GB of memory"):
        biro.read_image(path)


def test_files_cut_off_are_refused(tmp_path):
    with pytest.raises(BiroError, match="is truncated"):
        biro.read_image(hostile(tmp_path, 10000, 100, 100))


def test_files_that_are_no_images(tmp_path):
    for name, content in (("text.fits", b"not a FITS file"), ("empty.fits", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BiroError, match="cannot be read as a FITS image"):
            biro.read_image(tmp_path / name)
    with pytest.raises(BiroError, match="no such file"):
        biro.read_image(tmp_path / "none.fits")
    with pytest.raises(BiroError, match="a directory"):
        biro.read_image(tmp_path)
    fits.PrimaryHDU().writeto(tmp_path / "nothing.fits")
    with pytest.raises(BiroError, match="there is no image"):
        biro.read_image(tmp_path / "nothing.fits")


def test_memory_is_asked_for_before_pixels_are_read(tmp_path, monkeypatch):
    path = written(tmp_path, IMAGE)
    monkeypatch.setattr(image_file, "free_memory", lambda: 1000)
    with pytest.raises(BiroError, match=r"12 x 12 pixels, 1 planes need .* GB of memory, 1e-06 GB are free"):
        biro.read_image(path)


def test_compressed_and_second_images_are_read(tmp_path):
    data = np.random.default_rng(3).uniform(1, 2, (16, 16))
    plain = biro.read_image(written(tmp_path, data))
    second = fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(data, header())])
    second.writeto(tmp_path / "second.fits")
    np.testing.assert_array_equal(biro.read_image(tmp_path / "second.fits").pixels, plain.pixels)
    second.writeto(tmp_path / "second.fits.gz")
    np.testing.assert_array_equal(biro.read_image(tmp_path / "second.fits.gz").pixels, plain.pixels)
    # Whole numbers with a scale, as cameras of other programs store them.
    hdu = fits.PrimaryHDU(data.copy(), header())
    hdu.scale("int16", bzero=1.5, bscale=1e-4)
    hdu.writeto(tmp_path / "scaled.fits")
    np.testing.assert_allclose(biro.read_image(tmp_path / "scaled.fits").pixels, plain.pixels, atol=0.51e-4)
