"""Read models of the sky from FITS images, and write dirty images."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.display.arguments import PATH, takes
from biro.errors import InputError
from biro.files.atomic import write_atomic
from biro.files.fits_file import check_is_file, naming, opened
from biro.files.memory import free_memory
from biro.imaging.fits_header import ImageHeader, Plane, parse_header
from biro.models.choices import Interpolation
from biro.models.components.image import ImageModel

if TYPE_CHECKING:
    from astropy.io.fits import FITS_rec, HDUList, Header, PrimaryHDU

BEAM_AREA = np.pi / (4.0 * np.log(2.0))
"""Solid angle of an elliptical Gaussian, in products of its two FWHM."""


@takes(path=PATH)
def read_image(path: str | os.PathLike[str], *, interpolation: Interpolation = "linear") -> ImageModel:
    """Read a model of the sky from a FITS image or cube.

    The projection is SIN with axes along right ascension and declination, in ICRS or J2000 (which is taken
    as ICRS); pixels are square. Axes may come in any order: right ascension, declination, Stokes (I, or I,
    Q, U and V), FREQ. Jy/beam becomes Jy/pixel with the beam of the header, or those of the table BEAMS
    that CASA writes for cubes; such an image stays convolved with its beam. Images that are not square, or
    of odd size, get rims of zeros.

    Parameters
    ----------
    path : path
        The first image in the file is read.
    interpolation : "linear", "nearest" or "spectral-index"
        How to interpolate between the planes of a cube; see `ImageModel`.

    Returns
    -------
    ImageModel

    Raises
    ------
    InputError
        No such file, not a FITS image, coordinates, units or Stokes parameters that cannot be used, blank
        pixels, or more pixels than memory holds, which is known before any is read.
    """
    place = Path(path)
    with naming(place):
        check_is_file(place)
    with naming(place), opened(place) as hdus:
        hdu = next((hdu for hdu in hdus if hdu.is_image and hdu.header.get("NAXIS", 0) > 0), None)
        if hdu is None:
            raise InputError("there is no image in this file")
        about = parse_header(hdu.header)
        n_pixel, shift = _square(about.plane)
        _check_memory(about, hdu, n_pixel)
        per_pixel = _per_pixel(about, hdu.header, hdus)
        pixels = _ordered(about, np.asarray(hdu.data, dtype=np.float64)) * per_pixel
        return _model(about, pixels, n_pixel, shift, interpolation)


def _square(plane: Plane) -> tuple[int, tuple[int, int]]:
    """Side of the smallest even square around the image, and the position of the image's first pixel in it.

    The reference pixel comes as near to the middle as the rims allow. Pixels are counted with east to the
    left and north up.
    """
    n_pixel = max(plane.shape)
    n_pixel += n_pixel % 2
    return n_pixel, tuple(  # type: ignore[return-value]
        int(np.clip(round(n_pixel / 2 - place), 0, n_pixel - n))
        for n, place in zip(plane.shape, _upright(plane), strict=True)
    )


def _upright(plane: Plane) -> tuple[float, float]:
    """The reference pixel after the axes are turned so that l falls with x and m rises with y."""
    (n_x, n_y), (x, y) = plane.shape, plane.reference
    return (n_x - 1 - x if plane.step[0] > 0 else x), (n_y - 1 - y if plane.step[1] < 0 else y)


def _check_memory(about: ImageHeader, hdu: PrimaryHDU, n_pixel: int) -> None:
    """Refuse, from the header alone, an image that memory does not hold, or whose file is cut off."""
    n_plane = len(about.stokes) * (len(about.freq) if about.freq is not None else 1)
    stored = abs(int(hdu.header["BITPIX"])) // 8 * n_plane * about.plane.shape[0] * about.plane.shape[1]
    needed = 2 * 8 * n_plane * n_pixel**2 + stored
    free = free_memory()
    if needed > free:
        shape = f"{about.plane.shape[0]} x {about.plane.shape[1]} pixels, {n_plane} planes"
        raise InputError(
            f"{shape} need {needed / 1e9:.3g} GB of memory, {free / 1e9:.3g} GB are free; make the image "
            "smaller"
        )
    location = hdu.fileinfo()
    if location and type(hdu).__name__ != "CompImageHDU":
        size, whole = location["file"].size, location["datLoc"] + stored
        if size < whole:
            raise InputError(f"the file has {size} bytes, its header asks for {whole}; the file is truncated")


def _ordered(about: ImageHeader, data: NDArray[np.float64]) -> NDArray[np.float64]:
    """The array as (n_stokes, n_freq, n_y, n_x), with l falling along x and m rising along y."""
    present = [axis for axis in about.order if axis >= 0]
    rest = [axis for axis in range(data.ndim) if axis not in present]
    turned = data.transpose(*rest, *present).reshape([data.shape[axis] for axis in present])
    for i, axis in enumerate(about.order[:2]):
        if axis < 0:
            turned = np.expand_dims(turned, i)
    if about.plane.step[0] > 0:
        turned = turned[..., ::-1]
    return turned[..., ::-1, :] if about.plane.step[1] < 0 else turned


def _per_pixel(about: ImageHeader, header: Header, hdus: HDUList) -> float | NDArray[np.float64]:
    """Factor from stored values to Jy per pixel: a number, or float64 (n_stokes, n_freq, 1, 1)."""
    if not about.per_beam:
        return about.scale
    cell2 = about.plane.step[0] ** 2
    area: float | NDArray[np.float64]
    if header.get("CASAMBM") and "BEAMS" in hdus:
        area = _areas_of_table(about, hdus["BEAMS"].data)
    else:
        area = np.deg2rad(float(header.get("BMAJ", 0.0))) * np.deg2rad(float(header.get("BMIN", 0.0)))
    if not np.all(np.isfinite(area)) or not np.all(area > 0.0):
        raise InputError(
            "unit Jy/beam, but no beam in the header (BMAJ and BMIN, deg). If it is a restored image, add "
            "BMAJ "
            "and BMIN. If it is a model image, such as WSClean writes with BMAJ = 0, it is in Jy/pixel: use "
            "astropy.io.fits.setval(path, 'BUNIT', value='Jy/pixel')"
        )
    factor: float | NDArray[np.float64] = about.scale * cell2 / (BEAM_AREA * area)
    return factor


def _areas_of_table(about: ImageHeader, table: FITS_rec) -> NDArray[np.float64]:
    """BMAJ x BMIN of each plane, float64 (n_stokes, n_freq, 1, 1), rad^2; 0 where the table has none."""
    from astropy import units as astropy_units

    n_freq = len(about.freq) if about.freq is not None else 1
    area = np.zeros((len(about.stokes), n_freq, 1, 1))
    units = {column.name: str(column.unit or "deg") for column in table.columns}
    factor = [astropy_units.Unit(units[name]).to("rad") for name in ("BMAJ", "BMIN")]
    n_pol = int(np.max(table["POL"])) + 1
    for row in table:
        value = float(row["BMAJ"]) * factor[0] * float(row["BMIN"]) * factor[1]
        chan, pol = int(row["CHAN"]), int(row["POL"])
        area[pol if n_pol > 1 else slice(None), chan if n_freq > 1 else slice(None)] = value
    return area


def _model(
    about: ImageHeader,
    pixels: NDArray[np.float64],
    n_pixel: int,
    shift: tuple[int, int],
    interpolation: Interpolation,
) -> ImageModel:
    """The image in a square with rims of zeros, with Stokes parameters and frequencies in ascending order."""
    cell = abs(about.plane.step[0])
    reference = _upright(about.plane)
    offset = tuple(cell * (reference[i] + shift[i] - n_pixel // 2) * (1, -1)[i] for i in (0, 1))
    _without_blanks(pixels, reference, cell)
    order = np.argsort(about.freq) if about.freq is not None else np.array([0])
    stokes = np.array([about.stokes.index(name) for name in "IQUV"[: len(about.stokes)]])
    square = np.zeros((len(stokes), len(order), n_pixel, n_pixel))
    n_y, n_x = pixels.shape[2:]
    inside = (slice(shift[1], shift[1] + n_y), slice(shift[0], shift[0] + n_x))
    square[(slice(None), slice(None), *inside)] = pixels[np.ix_(stokes, order)]
    freq = about.freq[order] if about.freq is not None else None
    return ImageModel(square, cell, about.plane.centre, offset, freq, interpolation)  # type: ignore[arg-type]


def _without_blanks(pixels: NDArray[np.float64], reference: tuple[float, float], cell: float) -> None:
    """Refuse blank pixels on the sky; those beyond the horizon, which have no direction, become 0."""
    blank = ~np.isfinite(pixels)
    if not blank.any():
        return
    l = (np.arange(pixels.shape[3]) - reference[0]) * cell
    m = (np.arange(pixels.shape[2]) - reference[1]) * cell
    beyond = (l[None, :] ** 2 + m[:, None] ** 2 >= 1.0) & blank
    pixels[beyond] = 0.0
    n_blank = int(np.count_nonzero(blank & ~beyond))
    if n_blank:
        raise InputError(
            f"{n_blank} of {pixels.size} pixels are blank (NaN or infinite); a model needs a number in "
            "each pixel, so set empty pixels to 0 (numpy.nan_to_num)"
        )


def write_image(
    path: Path, planes: NDArray[np.float64], cards: Mapping[str, str | float], history: Sequence[str]
) -> None:
    """Write a FITS image as a whole or not at all, in float32; axes of the array: STOKES, FREQ, DEC, RA.

    Parameters
    ----------
    path : Path
    planes : float64 (n_stokes, N, N), or with all axes of the header
    cards : mapping of str to str or float
        Keywords and values of the header.
    history : sequence of str
        HISTORY cards of the header.

    Raises
    ------
    OSError
        It cannot be written.
    """
    from astropy.io import fits

    whole = planes[:, None] if planes.ndim == 3 else planes
    hdu = fits.PrimaryHDU(whole.astype(np.float32))
    hdu.header.extend(made_header(cards, history))
    buffer = io.BytesIO()
    hdu.writeto(buffer)
    write_atomic(path, buffer.getvalue())


def made_header(cards: Mapping[str, str | float], history: Sequence[str]) -> Header:
    """A FITS header of keywords with values, and of HISTORY cards."""
    from astropy.io import fits

    header = fits.Header()
    for name, value in cards.items():
        header[name] = _ascii(value) if isinstance(value, str) else value
    for line in history:
        header.add_history(_ascii(line))
    return header


def _ascii(text: str) -> str:
    """Text with "?" for every character that a FITS header cannot hold."""
    return "".join(c if " " <= c <= "~" else "?" for c in text)
