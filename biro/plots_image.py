"""Pictures of images: brightness against offsets from the phase centre, with the beam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Ellipse

if TYPE_CHECKING:
    from biro.dirty_image import DirtyImage

_UNITS = ((1.0, "deg"), (60.0, "arcmin"), (3600.0, "arcsec"), (3.6e6, "mas"), (3.6e9, "µas"))
MAP = "inferno"


def dirty_image(image: DirtyImage) -> Figure:
    """The first plane of one image.

    Parameters
    ----------
    image : DirtyImage
    """
    figure = Figure(figsize=(7.2, 6.2), layout="constrained")
    ax = figure.subplots()
    low, high = float(image.dirty[0].min()), float(image.dirty[0].max())
    shown = _panel(ax, image, low, high)
    figure.colorbar(shown, ax=ax, label="Jy/beam", shrink=0.9)
    ax.set_title(_title(image), fontsize=9)
    return figure


def image_row(images: Sequence[DirtyImage]) -> Figure:
    """Images of one field side by side, each in its own range, with peak and rms above.

    Parameters
    ----------
    images : sequence of DirtyImage
        Such as data, model and residual.
    """
    figure = Figure(figsize=(4.6 * len(images), 4.4), layout="constrained")
    for ax, image in zip(np.atleast_1d(figure.subplots(1, len(images))), images, strict=True):
        low, high = float(image.dirty[0].min()), float(image.dirty[0].max())
        figure.colorbar(_panel(ax, image, low, high), ax=ax, label="Jy/beam", shrink=0.8)
        ax.set_title(_title(image), fontsize=9)
    return figure


def _title(image: DirtyImage) -> str:
    return f"{image.what}: peak {image.peak.value:.4g}, rms {image.rms:.3g} Jy/beam\n{image.field}"


def _panel(ax: Axes, image: DirtyImage, low: float, high: float) -> AxesImage:
    n, half = image.n_pixel, 0.5 * image.n_pixel * image.cell
    scale, unit = _unit(half)
    # Pixel edges: pixel (N/2, N/2) has its middle at 0.
    edge = image.cell * (np.array([-0.5, n - 0.5]) - n // 2) * scale
    shown = ax.imshow(
        image.dirty[0],
        origin="lower",
        extent=(-edge[0], -edge[1], edge[0], edge[1]),
        cmap=MAP,
        vmin=low,
        vmax=high,
        interpolation="nearest",
    )
    if image.beam is not None:
        _draw_beam(ax, image, scale)
    ax.set_xlabel(f"east offset [{unit}]")
    ax.set_ylabel(f"north offset [{unit}]")
    return shown


def _draw_beam(ax: Axes, image: DirtyImage, scale: float) -> None:
    """FWHM of the beam, lower left; its major axis points to (sin pa, cos pa) in (east, north)."""
    assert image.beam is not None
    half = 0.44 * image.n_pixel * image.cell * scale
    size = (image.beam.major * scale, image.beam.minor * scale)
    angle = 90.0 - float(np.rad2deg(image.beam.pa))
    ax.add_patch(Ellipse((half, -half), *size, angle=angle, fill=False, ec="white", lw=1.0))


def _unit(half: float) -> tuple[float, str]:
    """Factor from radians, and name, of a unit in which the edge is a number of 1 to some hundreds."""
    degrees = 180.0 / np.pi
    for factor, name in _UNITS:
        if half * degrees * factor >= 1.0:
            return degrees * factor, name
    return degrees * _UNITS[-1][0], _UNITS[-1][1]
