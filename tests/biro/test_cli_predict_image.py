"""`biro predict --image`: an image of one pixel is a point source in the column that is written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS
from casacore.tables import table
from test_cli import SIMULATE
from test_cli import biro as command

from biro.io.measurement_set import read_ms

BEAM = """
[[source]]
name = "core"
ra = "{ra} deg"
dec = "{dec} deg"
I = "{flux} Jy"

[beam]
kind = "gaussian"
fwhm = "1 deg"
ref_freq = "1.8 GHz"
"""
ACCURACY = 1e-6
PIXEL = (80, 31)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A simulated set, an image of one pixel of 2 Jy, and models of 2 Jy and of 0 Jy at its place."""
    folder = tmp_path_factory.mktemp("predict")
    head = fits.Header()
    for name, value in {
        "CTYPE1": "RA---SIN", "CRVAL1": 75.0, "CDELT1": -0.01, "CRPIX1": 51.0, "BUNIT": "Jy/pixel",
        "CTYPE2": "DEC--SIN", "CRVAL2": -45.0, "CDELT2": 0.01, "CRPIX2": 51.0,
    }.items():  # fmt: skip
        head[name] = value
    data = np.zeros((100, 100))
    data[PIXEL] = 2.0
    fits.PrimaryHDU(data, head).writeto(folder / "model.fits")
    ra, dec = WCS(head).all_pix2world(PIXEL[1], PIXEL[0], 0)
    for name, flux in (("two", 2.0), ("none", 0.0)):
        (folder / f"{name}.toml").write_text(BEAM.format(ra=ra, dec=dec, flux=flux))
    words = (folder / "obs.ms", folder / "none.toml", *SIMULATE, "--duration", "10min")
    code, _, said = command("simulate", *words)
    assert code == 0, said
    return folder


def predicted(folder: Path, tmp_path: Path, *words: str | Path) -> np.ndarray:
    copy = shutil.copytree(folder / "obs.ms", tmp_path / f"{len(list(tmp_path.iterdir()))}.ms")
    code, _, said = command("predict", copy, *words)
    assert code == 0, said
    return read_ms(copy, column="MODEL_DATA").partitions[0].vis


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_an_image_of_one_pixel_is_a_point_source(folder, tmp_path):
    image = ("--image", folder / "model.fits", "--accuracy", str(ACCURACY))
    points = predicted(folder, tmp_path, folder / "two.toml")
    # The column is complex64: 6e-8 of roundings.
    for engine in ("idg", "wprojection"):
        seen = predicted(folder, tmp_path, folder / "none.toml", *image, "--engine", engine)
        assert relative(seen, points) < ACCURACY
    both = predicted(folder, tmp_path, folder / "two.toml", *image)
    assert relative(both, 2 * points) < ACCURACY
    alone = predicted(folder, tmp_path, *image)
    # Without a model there is no beam: exp(-4 ln 2 r^2 / fwhm^2) in power, r = 0.358 deg.
    r = np.hypot(*(np.array(PIXEL) - 50)) * 0.01
    assert np.abs(alone[..., 0]) == pytest.approx(2.0, rel=1e-5)
    assert relative(seen, alone * np.exp(-4 * np.log(2) * r**2)) < 1e-5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "SKY is missing: give a sky model behind "),
        (["--image", "{folder}/none.fits"], "none.fits: no such file"),
        (
            ["{folder}/model.fits"],
            "model.fits: FITS, but no catalogue of PyBDSF or AEGEAN; for an image use --image",
        ),
        (["--image", "{folder}/two.toml"], "cannot be read as a FITS image"),
        (["--image", "{folder}/model.fits", "--accuracy", "1e-12"], "accuracy must lie in"),
    ],
)
def test_errors_are_one_line(folder, tmp_path, words, message):
    copy = shutil.copytree(folder / "obs.ms", tmp_path / "copy.ms")
    code, _, said = command("predict", copy, *(word.format(folder=folder) for word in words))
    assert code == 2
    assert said.splitlines()[-1].startswith("biro: ")
    assert message in said.splitlines()[-1]


def coarse(folder: Path, place: Path, **change: float) -> Path:
    """The image with other cards in its header."""
    with fits.open(folder / "model.fits") as hdus:
        hdus[0].header.update(change)
        hdus.writeto(place)
    return place


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"CDELT1": -0.1, "CDELT2": 0.1}, r"pixels of 6 arcmin are too coarse: .* of at most [\d.]+ arcmin"),
        ({"CRVAL1": 255.0}, "pixels of the image lie 90 degrees or more from the phase centre"),
    ],
)
def test_a_refused_image_is_named_and_leaves_the_column(folder, tmp_path, change, message):
    copy = shutil.copytree(folder / "obs.ms", tmp_path / "copy.ms")
    write = ("predict", copy, folder / "two.toml")
    assert command(*write)[0] == 0
    before = read_ms(copy, column="MODEL_DATA").partitions[0].vis
    image = coarse(folder, tmp_path / "far.fits", **change)
    code, _, said = command("predict", copy, "--image", image)
    assert code == 2
    assert re.search(f"biro: {image}: .*{message}", said.splitlines()[-1])
    assert np.array_equal(read_ms(copy, column="MODEL_DATA").partitions[0].vis, before)
    model = tmp_path / "model.toml"
    model.write_text(f'[[image]]\nname = "halo"\nfile = "{image}"\n')
    code, _, said = command("predict", copy, model, "--column", "NEW")
    assert code == 2
    assert re.search(f"biro: image 'halo': .*{message}", said.splitlines()[-1])
    with table(str(copy), ack=False) as main:
        assert "NEW" not in main.colnames()


def test_the_cell_that_is_named_is_fine_enough(folder, tmp_path):
    copy = shutil.copytree(folder / "obs.ms", tmp_path / "copy.ms")
    # The least cell is half a fringe of the longest baseline along u or v, of which three digits are said.
    image = coarse(folder, tmp_path / "coarse.fits", CDELT1=-0.1, CDELT2=0.1)
    said = command("predict", copy, "--image", image)[2]
    step = float(re.search(r"of at most ([\d.]+) arcmin", said).group(1)) / 60
    for number, (factor, expected) in enumerate({1.0: 0, 1.02: 2}.items()):
        image = coarse(folder, tmp_path / f"{number}.fits", CDELT1=-factor * step, CDELT2=factor * step)
        assert command("predict", copy, "--image", image)[0] == expected


def test_a_half_written_column_can_be_written_again(folder, tmp_path):
    copy = shutil.copytree(folder / "obs.ms", tmp_path / "copy.ms")
    words = ("predict", copy, folder / "two.toml", "--column", "CORRECTED_DATA")
    assert command(*words)[0] == 0
    with table(str(copy), readonly=False, ack=False) as main:
        main.putcolkeyword("CORRECTED_DATA", "BIRO_COMPLETE", False)
    code, _, said = command("info", copy)
    assert code == 2
    assert "CORRECTED_DATA is incomplete" in said
    code, _, said = command("predict", copy, folder / "two.toml", "--column", "OTHER")
    assert code == 0, said
    assert command(*words)[0] == 0
    assert command("info", copy)[0] == 0
