"""The dirty image of an observation with its point spread function, as figures, FITS files and a picture."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro._version import __version__
from biro.display.formatting import ANGLES, FLUXES, angle_text, html_text, sexagesimal, unit_for
from biro.display.stages import Stages
from biro.errors import InputError, OutputError
from biro.files.atomic import why_not_written, write_figure
from biro.imaging.fits import write_image
from biro.imaging.fits_header import Cards, FitsAxis, celestial_axes, image_cards, stokes_axis
from biro.imaging.psf import RestoringBeam
from biro.models.components.direction import lm_to_radec
from biro.observation.noise import MAD_TO_SIGMA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from biro.imaging.pictures import Panel, SkyWindow
EXCESS = 1.2
"""Measured rms over the noise of the weights from which on the text names reasons."""


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


@dataclass(frozen=True, eq=False, repr=False)
class DirtyImage:
    """A dirty image with its point spread function, as `biro.image` makes it.

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
    stokes : str
        A letter for each plane, as "I" or "IQUV".
    what : "data", "model" or "residual"
    weighting : str
    noise : float, Jy/beam
        Rms that noise of the variance which the weights state has in the image.
    n_vis : int
        Number of Stokes visibilities that the image is made of.
    freq, bandwidth : float, Hz
        Weighted mean of the channels, and from the lower edge of the lowest to the upper edge of the highest.
    freq_frame, field, telescope, date, origin : str
        For the headers of FITS files; `date` is the UTC of the first sample, `origin` names the data.
    stages : Stages
        What its imager spent on sorting, gridding and transforms, the PSF and other images included.
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
    stages: Stages

    def __post_init__(self) -> None:
        for name in ("dirty", "psf"):
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    @property
    def n_pixel(self) -> int:
        """Pixels along a side."""
        return int(self.psf.shape[0])

    @cached_property
    def rms(self) -> float:
        """Robust rms of the first plane, 1.4826 median |I - median|, Jy/beam."""
        plane = self.dirty[0]
        return float(MAD_TO_SIGMA * np.median(np.abs(plane - np.median(plane))))

    @cached_property
    def sidelobe(self) -> float:
        """The highest |PSF| beyond 1.5 major axes of the beam; 1 without a beam."""
        if self.beam is None:
            return 1.0
        y, x = np.indices(self.psf.shape) - self.n_pixel // 2
        beyond = np.hypot(x, y) * self.cell > 1.5 * self.beam.major
        return float(np.abs(self.psf[beyond]).max(initial=0.0))

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
        flux = unit_for([self.peak.value, self.rms, self.noise], FLUXES)
        peak, rms, noise = (flux.text(value, 4) for value in (self.peak.value, self.rms, self.noise))
        lines = [
            f"dirty image of the {self.what}, Stokes {self.stokes}: {n} x {n} pixels of "
            f"{angle_text(self.cell)}, "
            f"{angle_text(n * self.cell)} wide; {self.weighting} weights, {self.n_vis} visibilities",
            f"  beam          {self._beam_text()}",
            f"  peak          {peak} {flux.name}/beam at {ra_dec}",
            f"  rms           {rms} {flux.name}/beam (from the MAD)",
            f"  noise         {noise} {flux.name}/beam, computed from the weights{self._excess_text()}",
        ]
        return "\n".join(lines)

    def _excess_text(self) -> str:
        """The measured rms in units of the noise that the weights give."""
        if not self.noise > 0.0:
            return ""
        ratio = self.rms / self.noise
        why = " (sources, their sidelobes, or weights that are too high)" if ratio > EXCESS else ""
        return f"; the measured rms is {ratio:.3g} times that{why}"

    def __repr__(self) -> str:
        return f"<DirtyImage {str(self).splitlines()[0]}; print() shows more>"

    def _repr_html_(self) -> str:
        buffer = io.BytesIO()
        self.plot().savefig(buffer, format="png", dpi=80)
        picture = base64.b64encode(buffer.getvalue()).decode()
        return f'{html_text(str(self))}<img alt="dirty image" src="data:image/png;base64,{picture}">'

    def to_dict(self) -> dict[str, object]:
        """Figures for JSON: angles in rad, fluxes in Jy/beam."""
        beam = None if self.beam is None else vars(self.beam)
        names = ("what", "stokes", "weighting", "n_pixel", "cell", "centre", "freq", "bandwidth", "n_vis")
        figures = {name: getattr(self, name) for name in names}
        figures |= {"beam": beam, "peak": vars(self.peak), "rms": self.rms, "noise": self.noise}
        return figures | {"stages": self.stages.to_dict()}

    def save(self, prefix: str | os.PathLike[str], *, overwrite: bool = False) -> list[Path]:
        """Write PREFIX.fits, PREFIX-psf.fits and PREFIX.png; returns their paths.

        Raises
        ------
        InputError
            A file is there already and `overwrite` is not given, or none can be written.
        OutputError
            Some are written, and one cannot be written.
        """
        image, psf, picture = files = image_files(Path(prefix))
        if not overwrite:
            for path in files:
                if path.exists():
                    raise InputError(f"{path}: exists already; choose another name or give --overwrite")
        writers: list[Callable[[], None]] = [
            lambda: write_image(image, self.dirty, self._header("Jy/beam"), self._history()),
            lambda: write_image(psf, self.psf[None], self._header(""), self._history()),
            lambda: write_figure(picture, self.plot(), dpi=150),
        ]
        for number, (path, write) in enumerate(zip(files, writers, strict=True)):
            try:
                write()
            except OSError as error:
                line = f"{path}: cannot be written: {why_not_written(path, error)}"
                if not number:
                    raise InputError(line) from None
                raise OutputError(f"{', '.join(map(str, files[:number]))} written, but {line}") from None
        return [image, psf, picture]

    def plot(self, *, ax: Axes | None = None, window: SkyWindow | None = None) -> Figure:
        """The first plane with its beam, offsets from the phase centre, east to the left.

        Parameters
        ----------
        ax : Axes, optional
            By default those of a new figure.
        window : SkyWindow, optional
            The part that is shown; by default all that is above 5 rms and above the sidelobes of the peak,
            with six beams on either side, or the whole image where that is half of its width or more.
        """
        from biro.imaging.pictures import draw_panel, window_about

        shown = window or window_about([self.panel()], np.zeros((0, 2)))
        return draw_panel(self.panel(shown), ax=ax)

    def panel(self, window: SkyWindow | None = None, title: str | None = None) -> Panel:
        """The first plane as `biro.imaging.pictures.draw_panels` takes it.

        Parameters
        ----------
        window : SkyWindow, optional
            The part that is shown; by default all.
        title : str, optional
            By default what is shown, the field, peak and rms.
        """
        from biro.imaging.pictures import Panel

        text = title or self._title()
        is_residual = self.what == "residual"
        return Panel(
            self.dirty[0], self.cell, self.beam, self.rms, text, window, is_residual, sidelobe=self.sidelobe
        )

    def _title(self) -> str:
        """Two short lines, which leave room for the colour bars of neighbouring panels."""
        field = self.field if len(self.field) <= 24 else f"{self.field[:23]}…"
        what = f"{self.what}, Stokes {self.stokes[0]}, {field}"
        unit = unit_for([self.peak.value], FLUXES)
        figures = f"peak {unit.text(self.peak.value, 4)}, rms {unit.text(self.rms, 3)}"
        return f"{what}\n{figures.replace('-', '−')} {unit.name.replace('u', 'µ')}/beam"

    def _beam_text(self) -> str:
        if self.beam is None:
            return (
                "none: the main lobe of the PSF is larger than the image (use --size), or undersampled (use "
                "--cell)"
            )
        unit = unit_for([self.beam.major], ANGLES)
        sizes = f"{unit.text(self.beam.major)} x {unit.text(self.beam.minor)} {unit.name}"
        return f"{sizes}, PA {np.rad2deg(self.beam.pa):.4g} deg"

    def _header(self, unit: str) -> Cards:
        """Cards of the FITS header: axes RA, DEC (SIN), FREQ, STOKES, in degrees and Hz."""
        axes = celestial_axes(self.centre, self.cell, self.n_pixel)
        axes += [FitsAxis("FREQ", self.freq, self.bandwidth, 1.0, "Hz"), stokes_axis(self.stokes)]
        cards = image_cards(
            axes,
            unit=unit,
            freq_frame=self.freq_frame,
            field=self.field,
            telescope=self.telescope,
            date=self.date,
        )
        if self.beam is not None:
            cards |= {"BMAJ": float(np.rad2deg(self.beam.major)), "BMIN": float(np.rad2deg(self.beam.minor))}
            cards["BPA"] = float(np.rad2deg(self.beam.pa))
        return cards

    def _history(self) -> list[str]:
        return [
            f"biro {__version__}: dirty image of the {self.what}",
            f"from {self.origin}",
            f"{self.weighting} weights, {self.n_vis} Stokes {self.stokes} visibilities",
            f"thermal noise computed from the weights: {self.noise:.6g} Jy/beam",
            f"rms measured from the MAD: {self.rms:.6g} Jy/beam",
        ]


def image_files(prefix: str | os.PathLike[str]) -> list[Path]:
    """Paths of the image, the PSF and the picture that `DirtyImage.save` writes for a prefix.

    The prefix may be the name of the image itself, with its ".fits".

    Raises
    ------
    InputError
        A prefix without a name, as "/".
    """
    base = Path(prefix)
    if not base.name:
        raise InputError(f"{base}: a directory, expected the name of an image")
    name = base.name.removesuffix(".fits")
    return [base.with_name(name + end) for end in (".fits", "-psf.fits", ".png")]
