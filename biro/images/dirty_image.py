"""A dirty image with its point spread function: figures, FITS files, a picture."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.formatting import angle_text, sexagesimal
from biro.images.psf import RestoringBeam
from biro.models.components.direction import lm_to_radec
from biro.observation.noise import MAD_TO_SIGMA

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FRAMES = {"TOPO": "TOPOCENT", "BARY": "BARYCENT", "GEO": "GEOCENTR", "GALACTO": "GALACTOC"}


@dataclass(frozen=True)
class Peak:
    """The pixel farthest from zero.

    Attributes
    ----------
    value : float, Jy/beam
    east, north : float
        Direction cosines from the phase centre.
    ra, dec : float, rad
        ICRS.
    """

    value: float
    east: float
    north: float
    ra: float
    dec: float


@dataclass(frozen=True, eq=False)
class DirtyImage:
    """What `biro.image` makes.

    Pixel (x, y) of `dirty[stokes, y, x]` lies at l = -(x - N/2) cell, m = (y - N/2) cell.

    Attributes
    ----------
    dirty : float64 (1 or 4, N, N), Jy/beam
        Stokes I, or I, Q, U, V.
    psf : float64 (N, N)
        Image of a source of 1 Jy at the phase centre: 1 at pixel (N/2, N/2).
    beam : RestoringBeam or None
        Gaussian fitted to the main lobe of the PSF; None where it has no end.
    cell : float, rad
    centre : (float, float), rad
        ICRS right ascension and declination of pixel (N/2, N/2), the phase centre.
    stokes : "I" or "IQUV"
    what : "data", "model" or "residual"
    weighting : str
    noise : float, Jy/beam
        Rms that noise would have in the image, were it what the weights say.
    n_vis : int
        Stokes visibilities that went in.
    freq, bandwidth : float, Hz
        Weighted mean of the channels, and from the lower edge of the lowest to the upper edge of the highest.
    freq_frame, field, telescope, date, origin : str
        For headers.
    """

    dirty: NDArray[np.float64]
    psf: NDArray[np.float64]
    beam: RestoringBeam | None
    cell: float
    centre: tuple[float, float]
    stokes: str
    what: str
    weighting: str
    noise: float
    n_vis: int
    freq: float
    bandwidth: float
    freq_frame: str
    field: str
    telescope: str
    date: str
    origin: str

    def __post_init__(self) -> None:
        for name in ("dirty", "psf"):
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    @property
    def n_pixel(self) -> int:
        return int(self.psf.shape[0])

    @cached_property
    def rms(self) -> float:
        """Robust rms of the first plane, 1.4826 median |I - median|, Jy/beam: what sources do not raise."""
        plane = self.dirty[0]
        return float(MAD_TO_SIGMA * np.median(np.abs(plane - np.median(plane))))

    @cached_property
    def peak(self) -> Peak:
        """The pixel of the first plane that is farthest from zero."""
        plane = self.dirty[0]
        y, x = np.unravel_index(int(np.argmax(np.abs(plane))), plane.shape)
        east, north = (float(step) * self.cell for step in (self.n_pixel // 2 - x, y - self.n_pixel // 2))
        ra, dec = lm_to_radec(east, north, self.centre)
        return Peak(float(plane[y, x]), east, north, ra, dec)

    def __str__(self) -> str:
        n, ra_dec = self.n_pixel, " ".join(sexagesimal(self.peak.ra, self.peak.dec))
        lines = [
            f"{self.what}, Stokes {self.stokes}: {n} x {n} pixels of {angle_text(self.cell)}, "
            f"{angle_text(n * self.cell)} wide; {self.weighting} weights, {self.n_vis} visibilities",
            f"  beam          {self._beam_text()}",
            f"  peak          {self.peak.value:.6g} Jy/beam at {ra_dec}",
            f"  rms           {self.rms:.4g} Jy/beam (robust); noise as the weights say: {self.noise:.4g}",
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Figures for JSON: angles in rad, fluxes in Jy/beam."""
        beam = None if self.beam is None else vars(self.beam)
        names = ("what", "stokes", "weighting", "n_pixel", "cell", "centre", "freq", "bandwidth", "n_vis")
        figures = {name: getattr(self, name) for name in names}
        return figures | {"beam": beam, "peak": vars(self.peak), "rms": self.rms, "noise": self.noise}

    def save(self, prefix: str | os.PathLike[str], *, overwrite: bool = False) -> list[Path]:
        """Write PREFIX.fits, PREFIX-psf.fits and PREFIX.png; returns their paths.

        Raises
        ------
        InputError
            A file is there already and `overwrite` is not given, or none can be written.
        """
        from biro.images.fits import write_image

        base = Path(prefix)
        image, psf, picture = image_files(base)
        if not overwrite:
            for path in (image, psf, picture):
                if path.exists():
                    raise InputError(f"{path}: exists already; choose another name or give --overwrite")
        try:
            write_image(image, self.dirty, self._cards("Jy/beam", self.stokes), self._history())
            write_image(psf, self.psf[None], self._cards("", "I"), self._history())
            self.plot().savefig(picture, dpi=150)
        except OSError as error:
            raise InputError(f"{base}: images cannot be written ({error.strerror or error})") from None
        return [image, psf, picture]

    def plot(self) -> Figure:
        """The first plane with its beam, offsets from the phase centre, east to the left."""
        from biro.images.pictures import dirty_image

        return dirty_image(self)

    def _beam_text(self) -> str:
        if self.beam is None:
            return "none: the main lobe of the PSF has no end in the image, or too few pixels"
        sizes = f"{angle_text(self.beam.major)} x {angle_text(self.beam.minor)}"
        return f"{sizes}, PA {np.rad2deg(self.beam.pa):.4g} deg"

    def _cards(self, unit: str, stokes: str) -> dict[str, Any]:
        """Header: SIN, axes RA, DEC, FREQ, STOKES, in degrees and Hz; FITS counts pixels from 1."""
        ra, dec = np.rad2deg(self.centre)
        step, middle = float(np.rad2deg(self.cell)), self.n_pixel / 2 + 1.0
        cards: dict[str, Any] = {"BTYPE": "Intensity", "OBJECT": self.field, "TELESCOP": self.telescope}
        if unit:
            cards["BUNIT"] = unit
        axes = [
            ("RA---SIN", float(ra), -step, middle, "deg"),
            ("DEC--SIN", float(dec), step, middle, "deg"),
            ("FREQ", self.freq, self.bandwidth, 1.0, "Hz"),
            ("STOKES", 1.0, 1.0, 1.0, ""),
        ]
        for i, values in enumerate(axes, start=1):
            for name, value in zip(("CTYPE", "CRVAL", "CDELT", "CRPIX", "CUNIT"), values, strict=True):
                cards[f"{name}{i}"] = value
        cards |= {"RADESYS": "ICRS", "SPECSYS": _FRAMES.get(self.freq_frame, self.freq_frame)}
        day = (np.datetime64(self.date) - np.datetime64("1858-11-17")) / np.timedelta64(1, "D")
        cards |= {"DATE-OBS": self.date, "MJD-OBS": float(day), "TIMESYS": "UTC"}
        if self.beam is not None:
            cards |= {"BMAJ": float(np.rad2deg(self.beam.major)), "BMIN": float(np.rad2deg(self.beam.minor))}
            cards["BPA"] = float(np.rad2deg(self.beam.pa))
        return cards

    def _history(self) -> list[str]:
        from biro import __version__

        return [
            f"biro {__version__}: dirty image of the {self.what}",
            f"from {self.origin}",
            f"{self.weighting} weights, {self.n_vis} Stokes {self.stokes} visibilities",
            f"noise as the weights say: {self.noise:.6g} Jy/beam",
        ]


def image_files(prefix: str | os.PathLike[str]) -> list[Path]:
    """What `DirtyImage.save` writes: image, PSF, picture. The prefix may be the name of the image."""
    base = Path(prefix)
    name = base.name.removesuffix(".fits")
    return [base.with_name(name + end) for end in (".fits", "-psf.fits", ".png")]
