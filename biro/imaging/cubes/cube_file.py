"""Write a FITS cube plane by plane, with the table of its beams, as a whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.files.atomic import atomic_path
from biro.imaging.fits import made_header
from biro.imaging.fits_header import Cards
from biro.imaging.psf import RestoringBeam

if TYPE_CHECKING:
    from astropy.io.fits import StreamingHDU

_ARCSEC = 180.0 * 3600.0 / np.pi


class CubeFile:
    """A FITS cube that is being written, in float32; axes of the array: spectral, STOKES, DEC, RA.

    Beams are a binary table BEAMS of BMAJ, BMIN (arcsec), BPA (deg), CHAN and POL (both counted from 0), as
    CASA writes them; CASAMBM among the cards announces it. A plane without a beam has sizes of 0.

    Parameters
    ----------
    path : Path
    stream : StreamingHDU
    n_stokes : int
    """

    def __init__(self, path: Path, stream: StreamingHDU, n_stokes: int) -> None:
        self._path, self._stream, self._n_stokes = path, stream, n_stokes

    def write(self, planes: NDArray[np.float64]) -> None:
        """Append the Stokes planes of a channel, float64 (n_stokes, N, N)."""
        self._stream.write(planes.astype(np.float32))

    def write_beams(self, beams: Sequence[RestoringBeam | None]) -> None:
        """Append the table of beams, of which there is one for each channel."""
        from astropy.io import fits

        n_chan, n_stokes = len(beams), self._n_stokes
        sizes = np.zeros((n_chan, 3))
        for i, beam in enumerate(beams):
            if beam is not None:
                sizes[i] = beam.major * _ARCSEC, beam.minor * _ARCSEC, np.rad2deg(beam.pa)
        values = [*np.repeat(sizes, n_stokes, axis=0).T]
        names, units = ("BMAJ", "BMIN", "BPA"), ("arcsec", "arcsec", "deg")
        columns = [
            fits.Column(name, "1E", unit, array=array)
            for name, unit, array in zip(names, units, values, strict=True)
        ]
        columns.append(fits.Column("CHAN", "1J", array=np.repeat(np.arange(n_chan), n_stokes)))
        columns.append(fits.Column("POL", "1J", array=np.tile(np.arange(n_stokes), n_chan)))
        table = fits.BinTableHDU.from_columns(columns, name="BEAMS", ver=1)
        table.header["NCHAN"], table.header["NPOL"] = n_chan, n_stokes
        self._stream.close()
        fits.append(self._path, table.data, table.header, verify=False)


@contextmanager
def cube_file(
    path: Path, cards: Cards, history: Sequence[str], shape: tuple[int, int, int]
) -> Iterator[CubeFile]:
    """A cube that is written in the block, and takes its name at the end of it.

    Parameters
    ----------
    path : Path
    cards : dict
        Keywords and values of the header.
    history : sequence of str
    shape : (int, int, int)
        Channels, Stokes parameters, and pixels along a side.

    Raises
    ------
    InputError
        It cannot be written, or the disk has too little room, which is known before anything is written.
    """
    from astropy.io import fits

    n_chan, n_stokes, n_pixel = shape
    structure: Cards = {"SIMPLE": True, "BITPIX": -32, "NAXIS": 4, "NAXIS1": n_pixel, "NAXIS2": n_pixel}
    structure |= {"NAXIS3": n_stokes, "NAXIS4": n_chan, "EXTEND": True}
    header = made_header(structure | cards, history)
    with atomic_path(path) as temporary:
        check_room(path, 4 * n_chan * n_stokes * n_pixel**2)
        stream = fits.StreamingHDU(temporary, header)
        try:
            yield CubeFile(temporary, stream, n_stokes)
        finally:
            stream.close()


def check_room(path: Path, n_byte: int) -> None:
    """Refuse a file for which the disk has too little room.

    Raises
    ------
    InputError, OSError
    """
    free = shutil.disk_usage(path.absolute().parent).free
    if n_byte > free:
        raise InputError(
            f"{path}: needs {n_byte / 1e9:.3g} GB on the disk, {free / 1e9:.3g} GB are free; free disk "
            "space, or make fewer planes or pixels"
        )
