"""Fit an elliptical Gaussian to the main lobe of a point spread function: the restoring beam."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FLOOR = 0.35
"""The lobe is fitted where it is higher than this."""
_FWHM = float(np.sqrt(8.0 * np.log(2.0)))


@dataclass(frozen=True)
class RestoringBeam:
    """An elliptical Gaussian.

    Attributes
    ----------
    major, minor : float, rad
        FWHM.
    pa : float, rad
        Position angle of the major axis, from north through east, 0 .. pi.
    """

    major: float
    minor: float
    pa: float

    @property
    def area(self) -> float:
        """Solid angle, rad^2."""
        return float(np.pi / (4.0 * np.log(2.0)) * self.major * self.minor)


def fit_beam(psf: NDArray[np.float64], cell: float) -> RestoringBeam | None:
    """The elliptical Gaussian of height 1 closest to the main lobe of a PSF.

    Least squares over the connected pixels above 0.35 around the middle, exp(-x^T A x / 2).

    Parameters
    ----------
    psf : float64 (N, N)
        1 in the middle, pixel (N/2, N/2); east at small x.
    cell : float, rad

    Returns
    -------
    RestoringBeam or None
        None where the lobe does not end within the image in some direction, or has too few pixels.
    """
    from scipy.ndimage import label
    from scipy.optimize import least_squares

    middle = psf.shape[0] // 2
    pieces, _ = label(psf > FLOOR, structure=np.ones((3, 3)))
    inside = pieces == pieces[middle, middle]
    y, x = np.nonzero(inside)
    height = psf[inside]
    if not psf[middle, middle] > FLOOR or len(height) < 5:
        return None
    # East is towards smaller x.
    east, north = -(x - middle).astype(np.float64), (y - middle).astype(np.float64)
    terms = np.stack([east * east, 2.0 * east * north, north * north], axis=1)
    start = np.linalg.lstsq(-0.5 * height[:, None] * terms, height * np.log(height), rcond=None)[0]

    def residual(a: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.exp(np.minimum(-0.5 * terms @ a, 1.0)) - height)

    a = least_squares(residual, start, x_scale=np.abs(start) + 1e-12).x
    values, vectors = np.linalg.eigh(np.array([[a[0], a[1]], [a[1], a[2]]]))
    # The length of a lobe longer than twice the image is not measured by its pixels.
    if not values[0] > (_FWHM / (2.0 * psf.shape[0])) ** 2:
        return None
    major, minor = _FWHM / np.sqrt(values) * cell
    pa = float(np.arctan2(vectors[0, 0], vectors[1, 0]) % np.pi)
    return RestoringBeam(float(major), float(minor), pa)
