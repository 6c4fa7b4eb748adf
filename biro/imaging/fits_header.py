"""Headers of FITS images, parsed and made: grid of the pixels, Stokes parameters, frequencies, unit."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.models.components.direction import basis
from biro.observation.correlations import STOKES_NAMES

if TYPE_CHECKING:
    from astropy.io.fits import Header
    from astropy.wcs import WCS

MAX_AXES = 8
SLACK = 1e-5
"""Pixels by which coordinates at the edge of an image may differ from those of a square grid, north up."""
_PREFIXES = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "k": 1e3}
_UNIT = re.compile(r"([muµk]?)jy\s*(?:/|\.|\s)?\s*(pixel|pix|beam)(?:\*\*|\^)?(?:-1)?", re.IGNORECASE)
_STOKES = {1: "I", 2: "Q", 3: "U", 4: "V", -1: "RR", -2: "LL", -3: "RL", -4: "LR"} | {
    -5: "XX",
    -6: "YY",
    -7: "XY",
    -8: "YX",
}


_SPECTRAL_FRAMES = {"TOPO": "TOPOCENT", "BARY": "BARYCENT", "GEO": "GEOCENTR", "GALACTO": "GALACTOC"}
Cards = dict[str, str | float]


class FitsAxis(NamedTuple):
    """An axis of an image that is written: `value` at pixel `reference`, counted from 1, steps of `delta`."""

    kind: str
    value: float
    delta: float
    reference: float
    unit: str


@dataclass(frozen=True)
class Plane:
    """The grid of a SIN image with axes along right ascension and declination.

    Attributes
    ----------
    shape : (int, int)
        Pixels along right ascension and declination.
    centre : (float, float), rad
        Right ascension and declination at which the plane touches the sky.
    reference : (float, float)
        Pixel of the centre, counted from 0; it may lie between pixels or outside of the image.
    step : (float, float), rad
        Change of the direction cosines (east, north) from a pixel to the next; both have the same size.
    """

    shape: tuple[int, int]
    centre: tuple[float, float]
    reference: tuple[float, float]
    step: tuple[float, float]


@dataclass(frozen=True)
class ImageHeader:
    """How the array of a FITS image is to be read.

    Attributes
    ----------
    order : tuple of int
        Axes of the array (numpy's order) that are Stokes, frequency, declination, right ascension;
        -1 for one that is not there.
    plane : Plane
    stokes : tuple of str
    freq : float64 (n_freq,) or None, Hz
        Of the planes, in stored order; None where there is a single plane.
    scale : float
        Jy per stored unit.
    per_beam : bool
    """

    order: tuple[int, int, int, int]
    plane: Plane
    stokes: tuple[str, ...]
    freq: NDArray[np.float64] | None
    scale: float
    per_beam: bool


def parse_header(header: Header) -> ImageHeader:
    """Parse the header of a FITS image, and refuse what `biro.read_image` cannot use.

    Raises
    ------
    InputError
        No celestial coordinates, another projection than SIN, another frame than ICRS or J2000, pixels
        that are not square or not north up, Stokes parameters other than I or IQUV, a spectral axis
        that is not FREQ, a unit other than Jy/pixel or Jy/beam.
    """
    scale, per_beam = parse_unit(str(header.get("BUNIT", "")).strip())
    n_axis = header["NAXIS"]
    if not 2 <= n_axis <= MAX_AXES:
        raise InputError(f"an image has 2 to {MAX_AXES} axes, found {n_axis}")
    shape = tuple(int(header[f"NAXIS{i + 1}"]) for i in range(n_axis))
    if min(shape) < 1:
        raise InputError(f"an image has pixels along each axis, found {' x '.join(map(str, shape))}")
    wcs = wcs_of(header)
    east, north, spectral = wcs.wcs.lng, wcs.wcs.lat, wcs.wcs.spec
    types = [str(name) for name in wcs.wcs.ctype]
    if east < 0 or north < 0:
        stated = ", ".join(repr(name) for name in types if name) or "none"
        raise InputError(
            f"no celestial coordinates (CTYPE: {stated}); write CTYPE, CRVAL, CRPIX and CDELT for RA---SIN "
            "and DEC--SIN"
        )
    stokes = types.index("STOKES") if "STOKES" in types else -1
    others = set(range(n_axis)) - {east, north, spectral, stokes}
    for axis in others:
        if shape[axis] > 1:
            raise InputError(
                f"axis {axis + 1} ({types[axis] or 'without type'}) has {shape[axis]} planes; extract one"
            )
    plane = _plane(wcs, shape, (east, north))
    names = _stokes_names(wcs, stokes, shape)
    freq = None if spectral < 0 or shape[spectral] == 1 else _frequencies(wcs, spectral, shape)
    order = tuple(n_axis - 1 - axis if axis >= 0 else -1 for axis in (stokes, spectral, north, east))
    return ImageHeader(order, plane, names, freq, scale, per_beam)  # type: ignore[arg-type]


def image_cards(
    axes: Sequence[FitsAxis], *, unit: str, freq_frame: str, field: str, telescope: str, date: str
) -> Cards:
    """Cards of the header of an image in ICRS.

    Parameters
    ----------
    axes : sequence of FitsAxis
    unit : str
        Of the pixels; "" leaves it out.
    freq_frame : str
        "TOPO", "LSRK", ...
    field, telescope : str
    date : str
        UTC of the first sample.
    """
    cards: Cards = {"BTYPE": "Intensity", "OBJECT": field, "TELESCOP": telescope}
    if unit:
        cards["BUNIT"] = unit
    for i, axis in enumerate(axes, start=1):
        cards |= {f"CTYPE{i}": axis.kind, f"CRVAL{i}": axis.value, f"CDELT{i}": axis.delta}
        cards |= {f"CRPIX{i}": axis.reference, f"CUNIT{i}": axis.unit}
    cards |= {"RADESYS": "ICRS", "SPECSYS": _SPECTRAL_FRAMES.get(freq_frame, freq_frame)}
    day = (np.datetime64(date) - np.datetime64("1858-11-17")) / np.timedelta64(1, "D")
    return cards | {"DATE-OBS": date, "MJD-OBS": float(day), "TIMESYS": "UTC"}


def celestial_axes(centre: tuple[float, float], cell: float, n_pixel: int) -> list[FitsAxis]:
    """Axes RA and DEC (SIN), deg, of n_pixel pixels of size `cell`, rad, with ICRS `centre` at pixel N/2."""
    (ra, dec), step, middle = np.rad2deg(centre), float(np.rad2deg(cell)), n_pixel / 2 + 1.0
    return [
        FitsAxis("RA---SIN", float(ra), -step, middle, "deg"),
        FitsAxis("DEC--SIN", float(dec), step, middle, "deg"),
    ]


def stokes_axis(stokes: str) -> FitsAxis:
    """The axis of Stokes parameters, of which there is a letter each: codes from 1 to 4."""
    codes = [1.0 + STOKES_NAMES.index(name) for name in stokes]
    return FitsAxis("STOKES", codes[0], codes[1] - codes[0] if len(codes) > 1 else 1.0, 1.0, "")


def parse_unit(text: str) -> tuple[float, bool]:
    """The value of a unit (BUNIT) in Jy, and whether it is per beam.

    Raises
    ------
    InputError
        Another unit than Jy/pixel or Jy/beam.
    """
    match = _UNIT.fullmatch(text)
    if not match or (match[1] and match[1] not in _PREFIXES):
        stated = f"biro cannot read the unit {text!r}" if text else "no unit (BUNIT)"
        raise InputError(f"{stated}; biro reads Jy/pixel or Jy/beam; convert the image, or correct its BUNIT")
    return _PREFIXES[match[1]], match[2].lower() == "beam"


def wcs_of(header: Header) -> WCS:
    """The coordinates of a FITS header as astropy reads them.

    Raises
    ------
    InputError
        They cannot be read.
    """
    from astropy.wcs import WCS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # astropy warns of old keywords, which it corrects
        try:
            return WCS(header)
        except Exception as error:  # astropy and wcslib raise many kinds about foreign headers
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"biro cannot read its coordinates ({reason})") from None


def _plane(wcs: WCS, shape: tuple[int, ...], axes: tuple[int, int]) -> Plane:
    """The grid of the two celestial axes, checked against the coordinates that astropy computes."""
    _check_frame(wcs, axes)
    matrix = np.asarray(wcs.pixel_scale_matrix)
    pair = matrix[np.ix_(axes, axes)]
    step = np.deg2rad(np.diag(pair))
    size = 0.5 * max(shape[axis] for axis in axes)
    cell = float(np.sqrt(np.abs(np.linalg.det(np.deg2rad(pair)))))
    if not 0.0 < cell < np.inf:
        raise InputError("the size of its pixels is 0 or missing; write it into CDELT1 and CDELT2, in deg")
    mixed = np.deg2rad(np.abs(matrix - np.diag(np.diag(matrix)))[list(axes)].sum()) * size / cell
    if mixed > SLACK:
        angle = np.rad2deg(np.arctan2(pair[1, 0], pair[1, 1]))
        raise InputError(
            f"its axes are not along right ascension and declination (rotated by {angle:.4g} deg); "
            "regrid it with north up, for example with CASA's imregrid or the package reproject"
        )
    if abs(abs(step[0]) - abs(step[1])) * size / cell > SLACK:
        a, b = np.rad2deg(np.abs(step)) * 3600
        raise InputError(f"pixels are not square: {a:.8g} x {b:.8g} arcsec; regrid it to square ones")
    ra, dec = (float(np.deg2rad(wcs.wcs.crval[axis])) for axis in axes)
    x, y = (float(wcs.wcs.crpix[axis] - 1.0) for axis in axes)
    signed = (cell * float(np.sign(step[0])), cell * float(np.sign(step[1])))
    plane = Plane((shape[axes[0]], shape[axes[1]]), (ra % (2 * np.pi), dec), (x, y), signed)
    _compare(wcs.sub([axis + 1 for axis in axes]), plane)
    return plane


def _check_frame(wcs: WCS, axes: tuple[int, int]) -> None:
    """Refuse coordinates other than RA and DEC in SIN projection, in ICRS or J2000."""
    types = [str(wcs.wcs.ctype[axis]) for axis in axes]
    if not (types[0].startswith("RA--") and types[1].startswith("DEC-")):
        raise InputError(
            f"coordinates are {types[0]} and {types[1]}; biro reads RA and DEC (ICRS or J2000): regrid it, "
            "for example with CASA's imregrid or the package reproject"
        )
    if not types[0].endswith("-SIN"):
        raise InputError(
            f"projection {types[0][-3:]}; biro reads SIN only; regrid it to SIN, for example with CASA's "
            "imregrid or the package reproject"
        )
    frame = str(wcs.wcs.radesys).strip().upper()
    equinox = wcs.wcs.equinox
    if frame.startswith("FK4") or (not frame and equinox < 1984.0) or frame not in ("", "ICRS", "FK5", "FK4"):
        stated = frame or f"equinox {equinox:g}"
        raise InputError(f"frame {stated}; biro reads ICRS and J2000; regrid it, for example with imregrid")
    if frame == "FK5" and np.isfinite(equinox) and equinox != 2000.0:
        raise InputError(
            f"equinox {equinox:g}; biro reads J2000 and ICRS; regrid it, for example with imregrid"
        )


def _compare(celestial: WCS, plane: Plane) -> None:
    """Refuse a header whose coordinates, as astropy computes them, are not those of the grid.

    LONPOLE other than the default, slant projections and distortions make a difference.
    """
    x, y = (a.ravel() for a in np.meshgrid(*(np.linspace(0.0, n - 1.0, 5) for n in plane.shape)))
    l = (x - plane.reference[0]) * plane.step[0]
    m = (y - plane.reference[1]) * plane.step[1]
    r2 = l * l + m * m
    above_horizon = r2 < 0.999
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ra, dec = np.deg2rad(np.array(celestial.all_pix2world(x, y, 0)))
    computed = np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], axis=-1)
    expected = np.stack([l, m, np.sqrt(np.maximum(1.0 - r2, 0.0))], axis=-1) @ basis(plane.centre)
    apart = np.abs(computed - expected)[above_horizon]
    if not (apart <= max(SLACK * abs(plane.step[0]), 1e-14)).all():
        raise InputError(
            "its coordinates are not a plain SIN projection with north up (LONPOLE, PV or distortion "
            "keywords); regrid it, for example with CASA's imregrid or the package reproject"
        )


def _line(wcs: WCS, axis: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """World coordinate of each plane along an axis that is independent of the others."""
    step = float(wcs.pixel_scale_matrix[axis, axis])
    values = wcs.wcs.crval[axis] + (np.arange(shape[axis]) + 1.0 - wcs.wcs.crpix[axis]) * step
    return np.asarray(values, dtype=np.float64)


def _stokes_names(wcs: WCS, axis: int, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Stokes parameters of the planes, in stored order; I where there is no such axis."""
    if axis < 0:
        return ("I",)
    codes = np.rint(_line(wcs, axis, shape)) if shape[axis] <= 16 else np.zeros(1)
    names = tuple(_STOKES.get(int(code), "?") for code in codes)
    if names != ("I",) and sorted(names) != ["I", "Q", "U", "V"]:
        raise InputError(f"its Stokes axis has {', '.join(names)}; expected I alone, or I, Q, U and V")
    return names


def _frequencies(wcs: WCS, axis: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Frequencies of the planes, float64 (n_freq,), Hz, in stored order."""
    kind = str(wcs.wcs.ctype[axis]).strip()
    if kind != "FREQ":
        raise InputError(f"its spectral axis is {kind}; expected FREQ, in Hz; convert it")
    freq = _line(wcs, axis, shape)
    if not (freq > 0.0).all() or len(np.unique(freq)) < len(freq):
        raise InputError(f"its {len(freq)} planes must have distinct frequencies above 0 Hz; check CDELT")
    return freq
