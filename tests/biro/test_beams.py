"""Beams from FITS cubes and from katbeam, against numbers that katbeam itself has given."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from astropy.io import fits

from biro.beams.cube_files import read_beam
from biro.beams.loading import beam_of
from biro.beams.sampled import katbeam, sample_antenna_beams, sample_beam
from biro.errors import InputError
from biro.models import FitsBeam, ModelError
from biro.models.files.toml import from_toml

PATTERN = "katbeam_L_$(corr)_$(reim).fits"


@pytest.fixture(scope="module")
def folder(data_dir, tmp_path_factory) -> Path:
    """The eight files of a MeerKAT beam."""
    place = tmp_path_factory.mktemp("beam")
    with tarfile.open(data_dir / "truth" / "jones" / "katbeam_L.tgz") as archive:
        archive.extractall(place, filter="data")
    return place


@pytest.fixture(scope="module")
def expected(data_dir) -> dict[str, np.ndarray]:
    with np.load(data_dir / "truth" / "jones" / "katbeam_L.npz") as file:
        return dict(file)


def rewritten(folder: Path, place: Path, change) -> str:
    """The files after a change of each header and its data, in another folder."""
    for file in folder.glob("*.fits"):
        with fits.open(file) as hdus:
            header, data = hdus[0].header.copy(), hdus[0].data.copy()
        header, data = change(header, data)
        fits.PrimaryHDU(data, header).writeto(place / file.name)
    return str(place / PATTERN)


def test_eight_files_against_katbeam(folder, expected) -> None:
    """The spline through a cube of katbeam, against katbeam between the nodes, within the stated error."""
    cube = read_beam(folder / PATTERN)
    assert cube.jones.shape == (16, 61, 61, 2, 2)
    found = np.array(
        [
            cube(np.radians(l), np.radians(m), nu)
            for l, m, nu in zip(expected["l_deg"], expected["m_deg"], expected["freq"], strict=True)
        ]
    )
    error = np.abs(found - expected["jones"]).max()
    # katbeam has kinks between the planes, 50 MHz apart, so that the error is that in frequency.
    assert error < cube.frequency_error < 5e-3
    assert cube.direction_error < 1e-5


def test_antennas_with_files_of_their_own(folder, tmp_path) -> None:
    """Names and patterns; what is read for an antenna, and what each gets."""
    half = rewritten(folder, tmp_path, lambda header, data: (header, 0.5 * data))
    text = (
        f'[beam]\nkind = "fits"\nfile = "{folder / PATTERN}"\nantennas = {{ "m00?" = "{PATTERN}" }}\n'
        '[[source]]\nname = "a"\ntype = "point"\neast = "0 deg"\nnorth = "0 deg"\nI = "1 Jy"\n'
    )
    model = from_toml(text, tmp_path)
    assert from_toml(model.to_toml()) == model
    view = SimpleNamespace(antenna_names=("m001", "m010", "m002"))
    beams = beam_of(model, [view])
    assert beams.antenna_names == view.antenna_names
    np.testing.assert_array_equal(beams.which, [[1, 0, 1]])
    np.testing.assert_allclose(beams.cubes[1].jones, 0.5 * beams.cubes[0].jones)
    for antennas, message in (
        ({"x*": half}, r"'x\*' matches no antenna; the data have m001"),
        ({"m*1": half, "m00*": half}, "'m001' matches two patterns, 'm\\*1' and 'm00\\*'"),
    ):
        with pytest.raises(ModelError, match=message):
            beam_of(replace(model, beam=FitsBeam(file=half, antennas=antennas)), [view])
    for wrong in ({}, ["m001"], {"m001": 3}):
        with pytest.raises(ModelError, match="antennas"):
            FitsBeam(file=half, antennas=wrong)


def test_sampled_at_the_channels_nothing_is_interpolated_in_frequency(expected) -> None:
    pytest.importorskip("katbeam", reason="katbeam is not installed")
    order = np.argsort(expected["freq"])[::10]
    cube = katbeam("MKAT-AA-L-JIM-2020", expected["freq"][order], np.radians(1.5))
    for i in order:
        found = cube(np.radians(expected["l_deg"][i]), np.radians(expected["m_deg"][i]), expected["freq"][i])
        # The accuracy that was asked for by default.
        np.testing.assert_allclose(found, expected["jones"][i], atol=1e-6, rtol=0)


def test_a_function_is_sampled_as_finely_as_it_needs() -> None:
    def beam(x, y, freq):
        found = np.zeros((*x.shape, 2, 2), complex)
        found[..., 0, 0] = np.exp(-(x**2 + y**2) * (freq / 1e9 / 0.01) ** 2) * np.exp(30j * x)
        found[..., 1, 0] = 0.01 * x / 0.02
        return found

    cube = sample_beam(beam, [1e9, 1.5e9], 0.02)
    assert cube.x.size > 33
    # As accurate as was asked for by default.
    np.testing.assert_allclose(
        cube(0.0071, -0.0033, 1.5e9), beam(np.array(0.0071), np.array(-0.0033), 1.5e9), atol=1e-6
    )
    with pytest.raises(InputError, match=r"must return \(..., 2, 2\)"):
        sample_beam(lambda x, y, freq: x, [1e9], 0.02)
    with pytest.raises(InputError, match=r"beam: the function fails at 1e\+09 Hz: ZeroDivisionError"):
        sample_beam(lambda x, y, freq: 1 / 0, [1e9], 0.02)

    def of_antenna(x, y, freq, antenna, time):
        return beam(x, y, freq) * (np.nan if antenna == "B" else 1.0)

    with pytest.raises(
        InputError, match=r"beam of antenna B: the function gives NaN or infinity at 1e\+09 Hz"
    ):
        sample_antenna_beams(of_antenna, [1e9], 0.02, ["A", "B"])


@pytest.mark.parametrize("name", ["X", "-X", "rad", "reversed", "order", "listed"])
def test_other_ways_to_write_the_same_beam(folder, tmp_path, name) -> None:
    def change(header, data):
        if name == "X":
            header["CTYPE1"], header["CTYPE2"] = "X", "Y"
        elif name == "-X":
            header["CTYPE1"] = "-L"
            data = data[:, :, ::-1]
        elif name == "rad":
            for axis in (1, 2):
                header[f"CUNIT{axis}"] = "rad"
                for key in ("CRVAL", "CDELT"):
                    header[f"{key}{axis}"] = np.radians(header[f"{key}{axis}"])
        elif name == "reversed":
            header["CRVAL2"], header["CDELT2"] = 1.5, -0.05
            data = data[:, ::-1]
        elif name == "order":
            header["CTYPE1"], header["CTYPE2"] = "M", "L"
            data = data.transpose(0, 2, 1)
        else:
            for i in range(16):
                header[f"GFREQ{i + 1}"] = 9e8 + 5e7 * i
            header["CRVAL3"] = 1.0
        return header, np.ascontiguousarray(data)

    found, given = read_beam(rewritten(folder, tmp_path, change)), read_beam(folder / PATTERN)
    for key in ("x", "y", "freq"):
        np.testing.assert_allclose(getattr(found, key), getattr(given, key), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(found.jones, given.jones)


def _no_freq(header, data):
    header["CTYPE3"] = "TIME"
    return header, data


def _unit(header, data):
    header["CUNIT1"] = "m"
    return header, data


def _degrees_as_radians(header, data):
    header["CUNIT1"] = "rad"
    return header, data


def _nan(header, data):
    data[3, 4, 5] = np.nan
    return header, data


def _no_axis(header, data):
    for key in ("CTYPE2", "CRVAL2", "CDELT2"):
        del header[key]
    return header, data[:, :1]


def _freq_unit(header, data):
    header["CUNIT3"] = "km/s"
    return header, data


def _no_step(header, data):
    del header["CDELT1"]
    return header, data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_no_freq, "axis 3 is called 'TIME'; expected L or X, M or Y, and FREQ"),
        (_no_axis, r"it has no axis called M or Y \(CTYPE\)"),
        (_freq_unit, "axis FREQ has the unit 'KM/S'; expected Hz"),
        (_unit, "axis L has the unit 'M'; expected deg or rad"),
        (_degrees_as_radians, "axis L reaches 1.5 rad, expected direction cosines, which end at 1; are its"),
        (_nan, "values are not finite"),
        (_no_step, "axis L has no CDELT1"),
    ],
)
def test_a_bad_cube_is_refused_in_one_line(folder, tmp_path, change, message) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_beam(rewritten(folder, tmp_path, change))
    assert "\n" not in str(caught.value)


def test_files_that_are_missing(folder, tmp_path) -> None:
    with pytest.raises(InputError, match=r"found neither .*_xx_re\.fits nor .*_rr_re\.fits"):
        read_beam(tmp_path / PATTERN)
    with pytest.raises(InputError, match=r"with \$\(corr\) and \$\(reim\) in it"):
        read_beam(tmp_path / "beam.fits")
    pattern = rewritten(folder, tmp_path, lambda header, data: (header, data))
    (tmp_path / "katbeam_L_yx_im.fits").unlink()
    with pytest.raises(InputError, match=r"katbeam_L_yx_im\.fits: no such file"):
        read_beam(pattern)


def test_files_of_different_grids(folder, tmp_path) -> None:
    def change(header, data):
        header["CRVAL1"] = float(np.random.default_rng(abs(hash(data.tobytes()))).uniform(-2, -1))
        return header, data

    with pytest.raises(InputError, match="its axes are not those of"):
        read_beam(rewritten(folder, tmp_path, change))
