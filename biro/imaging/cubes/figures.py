"""A spectral cube in figures: its pixels and planes, and what each plane shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from biro.choices import Imaged
from biro.display.formatting import (
    ANGLES,
    FLUXES,
    Printed,
    angle_text,
    frequency_text,
    range_text,
    unit_for,
)
from biro.display.stages import Stages
from biro.imaging.cubes.axis import SpectralAxis
from biro.imaging.cubes.interpolation import Unused
from biro.imaging.dirty_image import DirtyImage, Peak
from biro.imaging.psf import RestoringBeam


@dataclass(frozen=True)
class CubeLayout(Printed):
    """Pixels and planes of a cube.

    Attributes
    ----------
    what : "data", "model" or "residual"
    stokes : str
        A letter for each Stokes parameter.
    weighting : str
    cell : float, rad
    n_pixel : int
        Along a side.
    centre : (float, float), rad
        ICRS right ascension and declination of pixel (N/2, N/2), the phase centre.
    axis : SpectralAxis
    """

    what: Imaged
    stokes: str
    weighting: str
    cell: float
    n_pixel: int
    centre: tuple[float, float]
    axis: SpectralAxis

    def __str__(self) -> str:
        n, axis = self.n_pixel, self.axis
        return (
            f"{self.what}, Stokes {self.stokes}: {axis.n_plane} planes of {n} x {n} pixels of "
            f"{angle_text(self.cell)}, {angle_text(n * self.cell)} wide; {axis}; {self.weighting} weights"
        )

    def to_dict(self) -> dict[str, object]:
        """For JSON: angles in rad, frequencies in Hz, velocities in m/s."""
        return {name: value for name, value in vars(self).items() if name != "axis"} | self.axis.to_dict()


@dataclass(frozen=True)
class PlaneFigures:
    """What a plane of a cube shows.

    Attributes
    ----------
    n_vis : int
        Number of Stokes visibilities that it is made of; 0 where the plane is blank.
    noise : float, Jy/beam
        Rms that noise of the variance which the weights state has in the plane; NaN where it is blank.
    rms : float, Jy/beam
        Robust rms of the first Stokes parameter.
    peak : Peak or None
        The pixel of the first Stokes parameter that is farthest from zero.
    beam : RestoringBeam or None
    """

    n_vis: int = 0
    noise: float = float("nan")
    rms: float = float("nan")
    peak: Peak | None = None
    beam: RestoringBeam | None = None

    @classmethod
    def of(cls, plane: DirtyImage | None) -> PlaneFigures:
        """The figures of a plane; those of a blank one without it."""
        return cls() if plane is None else cls(plane.n_vis, plane.noise, plane.rms, plane.peak, plane.beam)

    def to_dict(self) -> dict[str, object]:
        """For JSON: angles in rad, fluxes in Jy/beam."""
        peak, beam = (None if part is None else vars(part) for part in (self.peak, self.beam))
        return vars(self) | {"peak": peak, "beam": beam}


@dataclass(frozen=True)
class SavedCube(Printed):
    """A cube that was written, in figures.

    Attributes
    ----------
    layout : CubeLayout
    files : sequence of Path
        The cube, and the cube of point spread functions.
    planes : sequence of PlaneFigures
        In the order of the frequencies.
    unused : Unused
        Visibilities that are in no plane.
    stages : Stages
        Time spent on sorting, gridding, transforms and writing.
    """

    layout: CubeLayout
    files: Sequence[Path]
    planes: Sequence[PlaneFigures]
    unused: Unused
    stages: Stages

    @property
    def n_blank(self) -> int:
        """Planes without a visibility."""
        return sum(not plane.n_vis for plane in self.planes)

    @property
    def n_without_beam(self) -> int:
        """Planes that are not blank, of which the main lobe of the PSF could not be fitted."""
        return sum(plane.beam is None for plane in self.planes) - self.n_blank

    def __str__(self) -> str:
        peaks = np.array([plane.peak.value if plane.peak else np.nan for plane in self.planes])
        noise = np.array([plane.noise for plane in self.planes])
        highest = int(np.nanargmax(np.abs(peaks)))
        low, high, peak = float(np.nanmin(noise)), float(np.nanmax(noise)), float(peaks[highest])
        flux = unit_for([peak], FLUXES)
        lines = [
            str(self.layout),
            f"  peak          {flux.text(peak, 4)} {flux.name}/beam in plane {highest} (from 0), at "
            f"{frequency_text(float(self.layout.axis.freq[highest]))}",
            f"  noise         {range_text(low, high, FLUXES)}/beam (thermal noise from the weights)",
            f"  beam          {self._beam_text()}",
            f"  blank planes  {self.n_blank} of {len(self.planes)}",
            f"  not used      {self.unused}",
        ]
        return "\n".join(lines)

    def _beam_text(self) -> str:
        """Range of the major and the minor axes, and how many planes have no beam."""
        beams = [plane.beam for plane in self.planes if plane.beam is not None]
        lacking = f"none in {self.n_without_beam} planes" if self.n_without_beam else ""
        if not beams:
            return lacking
        major, minor = ([getattr(beam, axis) for beam in beams] for axis in ("major", "minor"))
        sizes = [f"{range_text(min(axis), max(axis), ANGLES)}" for axis in (major, minor)]
        return " x ".join(sizes) + (f"; {lacking}" if lacking else "")

    def to_dict(self) -> dict[str, object]:
        """For JSON: angles in rad, fluxes in Jy/beam, frequencies in Hz, velocities in m/s."""
        return self.layout.to_dict() | {
            "n_blank": self.n_blank,
            "n_without_beam": self.n_without_beam,
            "unused": vars(self.unused),
            "planes": [plane.to_dict() for plane in self.planes],
            "stages": self.stages.to_dict(),
        }
