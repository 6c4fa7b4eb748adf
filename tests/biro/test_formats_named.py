"""Formats of others, told by what their files hold: each message names the format and the way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from astropy.io import fits
from typer.testing import CliRunner

from biro.cli.app import app


def hdf5(*groups: str) -> Callable[[Path], None]:
    """Write an HDF5 file with some arrays."""

    def write(place: Path) -> None:
        with h5py.File(place, "w") as file:
            for group in groups:
                file[group] = np.zeros(3)

    return write


def folder(*names: str) -> Callable[[Path], None]:
    """Write a folder with some files."""

    def write(place: Path) -> None:
        for name in names:
            (place / name).parent.mkdir(exist_ok=True, parents=True)
            (place / name).write_bytes(b"{}")

    return write


def fits_file(*tables: str, **cards: object) -> Callable[[Path], None]:
    """Write FITS without random groups."""

    def write(place: Path) -> None:
        first = fits.PrimaryHDU(header=fits.Header(cards))
        column = fits.Column("A", "E", array=[1.0])
        units = [fits.BinTableHDU.from_columns([column], name=name) for name in tables]
        fits.HDUList([first, *units]).writeto(place)

    return write


EXTRA = r"pip install '\.\[formats\]'|cannot be read as|no group"
"""What the extra says of such a file where it is installed, or what installs it."""


@pytest.mark.parametrize(
    ("write", "name", "way_out"),
    [
        (hdf5("Header/Nblts", "Data/visdata"), "UVH5", EXTRA),
        (folder("visdata", "vartable"), "MIRIAD", EXTRA),
        (folder("bl_read", "sch_read"), r"MIR \(SMA\)", EXTRA),
        (folder(".zgroup"), "Zarr|Measurement Set of version 4|group", EXTRA),
        (folder("zarr.json"), "Zarr|Measurement Set of version 4|group", EXTRA),
        (fits_file("ARRAY_GEOMETRY", "UV_DATA"), "FITS-IDI", "importfitsidi"),
        (fits_file(PROJID="G0009", OBSID=1, MILLITIM=0, MARKER=5), "MWA's correlator", "read_mwa_corr_fits"),
        (fits_file("TILEDATA", GPSTIME=1131733552), "metadata or flags of the MWA", "read_mwa_corr_fits"),
        (folder("vis_data/1_vis_XX.sav", "metadata/1_params.sav"), "FHD", "read_fhd"),
        (lambda place: place.write_bytes(b"SR\x00\x04" + bytes(50)), "IDL", "read_fhd"),
        (folder("ASDM.xml", "Main.xml"), "ASDM", "importasdm"),
        (lambda place: place.write_bytes(b"OSKARBIN" + bytes(50)), "OSKAR", "oskar_vis_to_ms"),
        (lambda place: place.write_bytes(b"REDIS0006" + bytes(50)), "MeerKAT", r"mvftoms\.py"),
        (hdf5("sol000/phase000/val"), r"gains \(H5parm\)", r"\[gain\] table = "),
        (hdf5("biro/record"), "a result of biro", "biro plot"),
        (hdf5("x/y"), "HDF5, but not UVH5", "Header and Data"),
        (lambda place: place.write_bytes(b"\x89HDF\r\n\x1a\n"), "HDF5 that cannot be read", "damaged"),
    ],
)
def test_formats_of_others_are_named_with_the_way_out(
    write: Callable[[Path], object], name: str, way_out: str, tmp_path: Path
) -> None:
    """Both commands say in one line what it is and what reads it, with and without the extra."""
    place, sky = tmp_path / "set", tmp_path / "sky.toml"
    write(place)
    sky.write_text("[[source]]\nname = 'a'\neast = '0 deg'\nnorth = '0 deg'\nI = '1 Jy'\n")
    for words in (["info", str(place)], ["fit", str(place), str(sky), "-o", str(tmp_path / "run")]):
        said = CliRunner().invoke(app, words)
        assert said.exit_code == 2
        assert len(said.output.strip().splitlines()) == 1, said.output
        assert re.search(name, said.output), said.output
        assert re.search(way_out, said.output), said.output
