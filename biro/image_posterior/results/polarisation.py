"""Polarisation of an image with samples: fraction, angle and their errors, in numbers, words and ticks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import FLUXES, unit_for
from biro.imaging.pictures import angle_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from biro.image_posterior.field import ImageField

Array = NDArray[np.float64]
DETECTED = 3.0
"""Mean polarised brightness over its error from which on there is a tick, or an angle in words."""
BRIGHT = 0.01
"""Share of the largest brightness below which there is no tick."""
_TICKS = 24
"""Ticks along a side at most."""
_LONGEST = 0.06
"""Length of the longest tick, in widths of the image."""


@dataclass(frozen=True, eq=False)
class Polarisation:
    """Linear polarisation from samples of I, Q and U.

    Attributes
    ----------
    brightness : float64 (...), Jy/pixel or Jy
        sqrt(<Q>^2 + <U>^2) of the means: where nothing is detected it has the bias of their error.
    brightness_error : float64 (...)
        Standard deviation of the component along the mean; NaN with one sample.
    fraction, fraction_error : float64 (...)
        Mean and standard deviation over samples of sqrt(Q^2 + U^2) / I. The mean is too large where the
        fraction is as small as its error; the samples are right.
    angle, angle_error : float64 (...), rad
        EVPA of the mean Q and U, from north through east, within -pi/2 .. pi/2; rms of samples about it,
        which is pi/sqrt(12) where nothing is known. NaN with one sample.
    """

    brightness: Array
    brightness_error: Array
    fraction: Array
    fraction_error: Array
    angle: Array
    angle_error: Array

    @property
    def is_detected(self) -> NDArray[np.bool_]:
        """Where polarised brightness is `DETECTED` times its error, or there are no errors."""
        return ~(self.brightness < DETECTED * self.brightness_error)


def polarisation_of(stokes: Array) -> Polarisation:
    """Polarisation from samples of Stokes parameters, float64 (n_sample, n_stokes, ...).

    Parameters
    ----------
    stokes : float64 (n_sample, 3 or 4, ...)
        I, Q, U of pixels or regions.
    """
    linear = stokes[:, 1] + 1j * stokes[:, 2]
    mean = linear.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        turned = linear * np.conj(mean) / np.abs(mean)
        fraction = np.abs(linear) / stokes[:, 0]
    off = 0.5 * np.angle(turned)
    if len(stokes) == 1:
        none = np.full(mean.shape, np.nan)
        return Polarisation(np.abs(mean), none, fraction[0], none, 0.5 * np.angle(mean), none)
    return Polarisation(
        brightness=np.abs(mean),
        brightness_error=np.asarray(turned.real.std(axis=0, ddof=1)),
        fraction=fraction.mean(axis=0),
        fraction_error=np.asarray(fraction.std(axis=0, ddof=1)),
        angle=np.asarray(0.5 * np.angle(mean)),
        angle_error=np.sqrt(np.mean(off**2, axis=0)),
    )


def _flux_lines(samples: Array) -> list[str]:
    """Polarisation of the flux of the whole image, in words, from samples (n_sample, n_stokes, N, N)."""
    found = polarisation_of(samples.sum(axis=(2, 3))[..., None])
    flux, error = float(found.brightness[0]), float(found.brightness_error[0])
    unit = unit_for([flux, 0.0 if np.isnan(error) else error], FLUXES)
    if np.isnan(error):
        angle = np.rad2deg(found.angle[0])
        return [f"  polarised     {unit.text(flux, 3)} {unit.name}, EVPA {angle:.3g} deg, without errors"]
    if not found.is_detected[0]:
        limit = unit.text(flux + 2.0 * error, 2)
        return [f"  polarised     not detected: the whole image has less than {limit} {unit.name}"]
    fraction, fraction_error = 100.0 * found.fraction[0], 100.0 * found.fraction_error[0]
    angle, angle_error = np.rad2deg(found.angle[0]), np.rad2deg(found.angle_error[0])
    return [
        f"  polarised     {unit.text(flux, 3)} +- {unit.text(error, 2)} {unit.name}, {fraction:.3g} +- "
        f"{fraction_error:.2g} % of the whole image, EVPA {angle:.3g} +- {angle_error:.2g} deg"
    ]


def plane_lines(samples: Array, leakage: Any) -> list[str]:
    """Polarisation of the whole image, and fitted leakages of each antenna, in words.

    Parameters
    ----------
    samples : float64 (n_sample, n_stokes, N, N), Jy/pixel
    leakage : mapping of name to mean and sd, or None
        As `facts["leakage"]` has it: names are those of parameters, "leakage.d_r.real[AA]".
    """
    found = []
    for name, value in (leakage or {}).items():
        error = "" if value["sd"] is None else f" +- {value['sd']:.2g}"
        found.append(f"    {name.removeprefix('leakage.'):<24}{value['mean']:+.4f}{error}")
    lines = _flux_lines(samples) if samples.shape[1] > 1 else []
    return [*lines, "  leakage", *found] if found else lines


def draw_ticks(ax: Axes, samples: Array, field: ImageField) -> None:
    """Ticks along the EVPA on axes of offsets, east to the left; length^2 is polarised brightness.

    Each is that of a block of pixels; there is none where polarisation is not detected or I is faint.
    """
    step = -(-field.size // _TICKS)
    n = field.size // step
    blocks = samples[:, :, : n * step, : n * step].reshape(len(samples), samples.shape[1], n, step, n, step)
    stokes = blocks.mean(axis=(3, 5))
    found, mean = polarisation_of(stokes), stokes[:, 0].mean(axis=0)
    drawn = found.is_detected & (mean > BRIGHT * mean.max())
    if not drawn.any():
        return
    scale, _ = angle_unit(0.5 * field.width)
    middle = (np.arange(n) * step + 0.5 * (step - 1) - field.size // 2) * field.cell * scale
    north, east = (a[drawn] for a in np.meshgrid(middle, -middle, indexing="ij"))
    length = (
        0.5
        * _LONGEST
        * field.width
        * scale
        * np.sqrt(found.brightness[drawn] / found.brightness[drawn].max())
    )
    along_east, along_north = length * np.sin(found.angle[drawn]), length * np.cos(found.angle[drawn])
    ends = (
        np.stack([east - along_east, east + along_east]),
        np.stack([north - along_north, north + along_north]),
    )
    ax.plot(*ends, color="#8cffd2", lw=1.0)
