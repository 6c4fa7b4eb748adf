"""The file of a single-dish map: brightness, coordinates, beam and frequency."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.files.fits_file import check_is_file, naming, opened
from biro.imaging.fits_header import parse_unit, wcs_of
from biro.imaging.psf import RestoringBeam
from biro.models.components.direction import Centre, basis
from biro.models.components.single_dish import SingleDish
from biro.models.quantities import units
from biro.models.quantities.parameter import Fixed

if TYPE_CHECKING:
    from astropy.io.fits import Header
    from astropy.wcs import WCS

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SingleDishMap:
    """A map as its file has it.

    Attributes
    ----------
    name : str
        Of the file.
    data : float64 (n_y, n_x)
        Jy/beam or Jy/pixel; NaN where there is no measurement.
    per_beam : bool
    wcs : astropy.wcs.WCS
        Of the two celestial axes.
    beam : RestoringBeam
        Its position angle is from the north of the map's coordinates at their reference.
    freq : float or None, Hz
        None where the header has none.
    noise : float, Jy/beam
    scale, scale_sd : float
        Median of the factor of fluxes, and standard deviation of its logarithm.
    """

    name: str
    data: Array
    per_beam: bool
    wcs: WCS
    beam: RestoringBeam
    freq: float | None
    noise: float
    scale: float
    scale_sd: float

    def digest(self) -> str:
        """A digest of the brightness and the coordinates."""
        text = f"{self.wcs.to_header_string()} {self.beam} {self.freq}"
        return hashlib.sha256(np.ascontiguousarray(self.data).tobytes() + text.encode()).hexdigest()

    def direction_cosines(self, x: Array, y: Array, centre: Centre) -> Array:
        """(l, m) about a centre, float64 (2, ...), of places on the map; NaN behind the horizon.

        Parameters
        ----------
        x, y : float64 (...), pixels counted from 0
        centre : (float, float), rad
            ICRS.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of NaN beyond the edge of the projection
            sky = self.wcs.pixel_to_world(x, y).icrs
        ra, dec = sky.ra.rad, sky.dec.rad
        outward = np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)])
        l, m, n = np.tensordot(basis(centre), outward, axes=1)
        return np.where(n > 0.0, np.stack([l, m]), np.nan)

    def place_of(self, l: Array, m: Array, centre: Centre) -> tuple[Array, Array]:
        """Pixels (x, y), counted from 0, of direction cosines about a centre (ICRS, rad); NaN for none."""
        from astropy.coordinates import SkyCoord

        n = np.sqrt(np.maximum(1.0 - l**2 - m**2, 0.0))
        outward = np.tensordot(basis(centre).T, np.stack([l, m, n]), axes=1)
        ra, dec = np.arctan2(outward[1], outward[0]), np.arctan2(outward[2], np.hypot(*outward[:2]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, y = self.wcs.world_to_pixel(SkyCoord(ra, dec, unit="rad", frame="icrs"))
        return np.asarray(x, np.float64), np.asarray(y, np.float64)


def read_map(given: SingleDish) -> SingleDishMap:
    """The map of a model.

    Raises
    ------
    InputError
        No such file, not a FITS image of Stokes I, another unit than Jy/beam or Jy/pixel, no celestial
        coordinates, or no beam.
    """
    path = Path(given.file)
    with naming(path, "a single-dish map"):
        check_is_file(path)
        with opened(path) as hdus:
            hdu = next((hdu for hdu in hdus if hdu.is_image and hdu.header.get("NAXIS", 0) > 1), None)
            if hdu is None:
                raise InputError("there is no image in this file")
            header, data = hdu.header, np.asarray(hdu.data, np.float64)
        factor, per_beam = parse_unit(str(header.get("BUNIT", "")).strip())
        whole = wcs_of(header)
        if whole.wcs.lng < 0 or whole.wcs.lat < 0:
            raise InputError("no celestial coordinates (CTYPE); write RA---SIN and DEC--SIN, or others")
        plane = factor * _plane(whole, data)
        if not np.isfinite(plane).any():
            raise InputError("no pixel of the map is a number")
        scale = given.calibration
        is_fixed = isinstance(scale, Fixed)
        return SingleDishMap(
            name=path.name,
            data=np.where(np.isfinite(plane), plane, np.nan),
            per_beam=per_beam,
            wcs=whole.celestial,
            beam=_beam(given, header),
            freq=_frequency(whole, header),
            noise=_si(given.noise, units.FLUX),
            scale=float(scale.value if is_fixed else scale.median),
            scale_sd=0.0 if is_fixed else float(scale.sd),
        )


def _si(value: Fixed, dimension: units.Dimension) -> float:
    return float(value.value * units.factor(value.unit or dimension.si, dimension))


def _plane(wcs: WCS, data: Array) -> Array:
    """Stokes I, float64 (n_y, n_x): the first plane, where another axis has one plane."""
    types = [str(name) for name in wcs.wcs.ctype]
    n_axis = data.ndim
    for axis in range(n_axis):
        if axis in (wcs.wcs.lng, wcs.wcs.lat):
            continue
        kind, n = types[axis] or "without type", data.shape[n_axis - 1 - axis]
        if kind == "STOKES":
            first = wcs.wcs.crval[axis] + (1.0 - wcs.wcs.crpix[axis]) * wcs.wcs.get_cdelt()[axis]
            if round(float(first)) != 1:
                raise InputError("the first plane is not Stokes I; extract that of Stokes I")
        elif n > 1:
            raise InputError(f"axis {axis + 1} ({kind}) has {n} planes; extract one")
    order = [n_axis - 1 - wcs.wcs.lat, n_axis - 1 - wcs.wcs.lng]
    rest = [axis for axis in range(n_axis) if axis not in order]
    turned = data.transpose(*rest, *order)
    return np.asarray(turned.reshape(-1, *turned.shape[-2:])[0])


def _beam(given: SingleDish, header: Header) -> RestoringBeam:
    """The beam that the model gives, or that of the header."""
    if given.emaj is not None:
        major = _si(given.emaj, units.ANGLE)
        minor = major if given.emin is None else _si(given.emin, units.ANGLE)
        pa = 0.0 if given.pa is None else _si(given.pa, units.ANGLE)
        return RestoringBeam(max(major, minor), min(major, minor), pa + np.pi / 2 * (minor > major))
    major, minor, pa = (np.deg2rad(float(header.get(key, 0.0))) for key in ("BMAJ", "BMIN", "BPA"))
    if not (0.0 < minor < np.inf and 0.0 < major < np.inf and np.isfinite(pa)):
        raise InputError(
            "no beam in the header (BMAJ, BMIN, deg); write it into single_dish: emaj, emin, pa (FWHM)"
        )
    return RestoringBeam(major, minor, pa)


def _frequency(wcs: WCS, header: Header) -> float | None:
    """Frequency of the first plane, or the rest frequency of a line; None where the header has neither."""
    axis = wcs.wcs.spec
    if axis >= 0 and str(wcs.wcs.ctype[axis]).startswith("FREQ"):
        step = float(wcs.wcs.get_cdelt()[axis])
        found = float(wcs.wcs.crval[axis] + (1.0 - wcs.wcs.crpix[axis]) * step)
    else:
        found = float(header.get("RESTFRQ", header.get("RESTFREQ", 0.0)))
    return found if 0.0 < found < np.inf else None
