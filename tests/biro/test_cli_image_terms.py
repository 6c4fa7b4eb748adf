"""The command line with images in the model: simulate, fit, plot and predict, and what a run remembers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from test_cli import SIMULATE, biro

CELL_DEG, N = 0.002, 16
IMAGE = """
[[image]]
name = "halo"
file = "halo.fits"
scale = {}

[noise]
factor = 1
"""
PRIOR = '{ prior = "uniform", low = 0, high = 3 }'


def write(path: Path, flux: float = 2.0) -> None:
    """One bright pixel at the phase centre of the simulation."""
    pixels, header = np.zeros((N, N)), fits.Header()
    pixels[N // 2, N // 2] = flux
    for i, (kind, step, centre) in enumerate(
        (("RA---SIN", -CELL_DEG, 75.0), ("DEC--SIN", CELL_DEG, -45.0)), 1
    ):
        header[f"CTYPE{i}"], header[f"CUNIT{i}"], header[f"CRPIX{i}"] = kind, "deg", N // 2 + 1
        header[f"CDELT{i}"], header[f"CRVAL{i}"] = step, centre
    header["BUNIT"], header["RADESYS"] = "Jy/pixel", "ICRS"
    fits.writeto(path, pixels, header, overwrite=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """obs.ms, simulated from an image alone, and models of that image."""
    folder = tmp_path_factory.mktemp("images")
    write(folder / "halo.fits")
    (folder / "sky.toml").write_text(IMAGE.format("0.7"))
    (folder / "model.toml").write_text(IMAGE.format(PRIOR))
    code, _, said = biro("simulate", folder / "obs.ms", folder / "sky.toml", *SIMULATE, "--duration", "10min")
    assert code == 0, said
    return folder


def fit(folder: Path, model: Path, *words: str) -> tuple[int, str, str]:
    sampling = ("--seed", "1", "--set", "n_walker=8", "--set", "max_steps=200", "--backend", "cpu")
    return biro("fit", folder / "obs.ms", model, "-o", folder / "run", *sampling, *words)


@pytest.fixture(scope="module")
def run(folder) -> Path:
    code, out, said = fit(folder, folder / "model.toml", "--json")
    assert code == 0, said
    scale = json.loads(out)["parameters"]["halo.scale"]
    # 420 visibilities of 2 Jy with 0.1 Jy in each part: the closed form is 0.1 / (2 sqrt(420)) = 0.0024.
    assert scale["median"] == pytest.approx(0.7, abs=4 * 0.0024)
    assert 0.5 * (scale["high_68"] - scale["low_68"]) == pytest.approx(0.0024, rel=0.3)
    return folder / "run"


def test_a_report_of_images_alone_has_no_picture_of_sources(run):
    assert (run / "report.html").is_file()
    assert (run / "corner.png").is_file() or (run / "posterior.png").is_file()
    assert not (run / "sky.png").exists()
    assert str(run.parent / "halo.fits") in (run / "model.toml").read_text()


def test_the_run_stands_for_its_best_fit(folder, run, tmp_path):
    shutil.copytree(folder / "obs.ms", tmp_path / "obs.ms")
    code, _, said = biro("predict", tmp_path / "obs.ms", run, "--precision", "double")
    assert code == 0, said


def test_a_run_goes_on_with_the_same_pixels_elsewhere(folder, run, tmp_path):
    for name in ("halo.fits", "model.toml"):
        shutil.copy(folder / name, tmp_path)
    code, _, said = fit(folder, tmp_path / "model.toml", "--no-pictures")
    assert code == 0, said


def test_other_pixels_are_another_model(folder, run, tmp_path):
    write(tmp_path / "halo.fits", 2.1)
    shutil.copy(folder / "model.toml", tmp_path)
    code, _, said = fit(folder, tmp_path / "model.toml", "--no-pictures")
    assert code == 2
    assert "an image changed" in said
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    text = (copy / "model.toml").read_text()
    (copy / "model.toml").write_text(text.replace(str(folder / "halo.fits"), str(tmp_path / "halo.fits")))
    code, _, said = biro("plot", copy)
    assert code == 2
    assert "have changed; restore them" in said
