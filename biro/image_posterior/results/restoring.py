"""Images as an instrument with a Gaussian beam sees them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import FLUXES, angle_text, unit_for
from biro.image_posterior.field import ImageField
from biro.imaging.psf import RestoringBeam

Array = NDArray[np.float64]


def convolved_with(beam: RestoringBeam, planes: Array, field: ImageField) -> Array:
    """Planes (n_stokes, N, N), Jy/pixel, convolved with a beam, Jy/beam. Nothing wraps at the edges."""
    n, axis = field.size, np.fft.fftfreq(2 * field.size, 1.0 / (2 * field.size))
    y, x = np.meshgrid(axis * field.cell, -axis * field.cell, indexing="ij")
    along = x * np.sin(beam.pa) + y * np.cos(beam.pa)
    across = x * np.cos(beam.pa) - y * np.sin(beam.pa)
    height = 4.0 * np.log(2.0) * ((along / beam.major) ** 2 + (across / beam.minor) ** 2)
    lobe = np.fft.rfft2(np.exp(-height))
    padded = np.pad(planes, ((0, 0), (0, n), (0, n)))
    return np.asarray(np.fft.irfft2(np.fft.rfft2(padded) * lobe, s=(2 * n, 2 * n))[:, :n, :n])


def residual_lines(plane: Array, beam: RestoringBeam | None) -> list[str]:
    """A residual image (N, N) in Jy/beam and the beam, in words."""
    largest = float(np.abs(plane).max())
    unit = unit_for([largest], FLUXES)
    rms = unit.text(float(plane.std()), 3)
    lines = [f"residual      rms {rms}, largest {unit.text(largest, 3)} {unit.name}/beam"]
    if beam is not None:
        size = f"{angle_text(beam.major)} x {angle_text(beam.minor)}"
        lines.append(f"beam          {size}, PA {np.rad2deg(beam.pa):.4g} deg")
    return lines
