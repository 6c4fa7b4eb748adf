"""Pictures of images: brightness against offsets from the phase centre, with the beam."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import AsinhNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Ellipse
from numpy.typing import NDArray

from biro.images.imager import Imager
from biro.plots.data import whole_numbers

if TYPE_CHECKING:
    from biro.images.dirty_image import DirtyImage
    from biro.images.psf import RestoringBeam
    from biro.observation.observation import Observation

_UNITS = ((1.0, "deg"), (60.0, "arcmin"), (3600.0, "arcsec"), (3.6e6, "mas"), (3.6e9, "µas"))
MAP = "inferno"
ZOOM = 10.0
"""Beams (their major axis) on either side of a peak."""


def dirty_image(image: DirtyImage) -> Figure:
    """The first plane of one image.

    Parameters
    ----------
    image : DirtyImage
    """
    figure = Figure(figsize=(7.2, 6.2), layout="constrained")
    ax = figure.subplots()
    _panel(ax, image)
    ax.set_title(_title(image), fontsize=9)
    return figure


def image_rows(rows: Sequence[Sequence[DirtyImage]]) -> Figure:
    """Images side by side, a row for each field, with peak and rms above each.

    Where the field is much wider than ten beams on either side of the first image's peak, a second row shows
    these.

    Parameters
    ----------
    rows : sequence of sequence of DirtyImage
        Such as data, model and residual of a field.
    """
    lines = [(images, window) for images in rows for window in _windows(images[0])]
    n_column = len(rows[0])
    figure = Figure(figsize=(4.6 * n_column, 4.4 * len(lines)), layout="constrained")
    axes = figure.subplots(len(lines), n_column, squeeze=False)
    for line, (images, window) in zip(axes, lines, strict=True):
        for ax, image in zip(line, images, strict=True):
            _panel(ax, image, window)
            ax.set_title(
                _title(image) if window is None else f"{image.what}, about the peak of the {images[0].what}",
                fontsize=9,
            )
    return figure


def fit_images(
    likelihood: Any, theta: NDArray[np.float64], **options: Any
) -> list[tuple[DirtyImage, DirtyImage, DirtyImage]]:
    """Images of data, model and residual of each phase centre.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
        Parameters of the model, such as `posterior.best_fit`.
    **options
        Any of `biro.images.imager.Imaging`.

    Raises
    ------
    InputError
        As `biro.image`.
    """
    observation: Observation = likelihood.observation
    models = likelihood.predict(theta)
    fields: dict[tuple[float, float], list[int]] = {}
    for i, part in enumerate(observation.partitions):
        fields.setdefault(part.phase_centre, []).append(i)
    rows = []
    for members in fields.values():
        mine = dataclasses.replace(observation, partitions=tuple(observation.partitions[i] for i in members))
        imager, model = Imager(mine, **options), [models[i] for i in members]
        rows.append((imager.image("data"), imager.image("model", model), imager.image("residual", model)))
    return rows


def before_and_after(rows: Sequence[Sequence[DirtyImage]]) -> str:
    """Peak and rms of data and of residuals, in words."""
    several = len(rows) > 1
    return "; ".join(
        (f"{data.field}: " if several else "")
        + f"peak {data.peak.value:.4g} before, {left.peak.value:.4g} after; "
        + f"rms {data.rms:.3g} before, {left.rms:.3g} after (Jy/beam)"
        for data, *_, left in rows
    )


def _title(image: DirtyImage) -> str:
    """Short lines, beside which colour bars have room."""
    field = image.field if len(image.field) <= 24 else f"{image.field[:23]}…"
    return f"{image.what}, Stokes I, {field}\npeak {image.peak.value:.4g}, rms {image.rms:.3g} Jy/beam"


def _windows(image: DirtyImage) -> list[tuple[float, float, float] | None]:
    """What is shown of a field: all (None), and (east, north, half width) of a part, rad."""
    half = ZOOM * image.beam.major if image.beam is not None else np.inf
    if half > 0.25 * image.n_pixel * image.cell:
        return [None]
    reach = 0.5 * image.n_pixel * image.cell - half  # the window stays within the image
    east, north = np.clip((image.peak.east, image.peak.north), -reach, reach).tolist()
    return [None, (east, north, half)]


def _panel(ax: Axes, image: DirtyImage, window: tuple[float, float, float] | None = None) -> None:
    """Linear in brightness up to some rms, logarithmic above: a peak does not hide what is faint."""
    n = image.n_pixel
    east, north, half = window or (0.0, 0.0, 0.5 * n * image.cell)
    scale, unit = _unit(half)
    # Pixel edges: pixel (N/2, N/2) has its middle at 0.
    edge = image.cell * (np.array([-0.5, n - 0.5]) - n // 2) * scale
    shown = ax.imshow(
        image.dirty[0],
        origin="lower",
        extent=(-edge[0], -edge[1], edge[0], edge[1]),
        cmap=MAP,
        norm=AsinhNorm(linear_width=5.0 * image.rms or 1.0),
        interpolation="nearest",
    )
    if window is not None:
        ax.set_xlim((east + half) * scale, (east - half) * scale)
        ax.set_ylim((north - half) * scale, (north + half) * scale)
    if image.beam is not None:
        _draw_beam(ax, image.beam, (east + 0.88 * half, north - 0.88 * half), scale)
    whole_numbers(ax)
    ax.set_xlabel(f"east offset [{unit}]")
    ax.set_ylabel(f"north offset [{unit}]")
    _scale_of(shown)


def _scale_of(shown: AxesImage) -> None:
    """The colours of a panel, with the ends, 0 and what is linear marked."""
    norm = shown.norm
    assert isinstance(norm, AsinhNorm)
    low, high, linear = float(norm.vmin or 0.0), float(norm.vmax or 0.0), norm.linear_width
    marks = {low, 0.0, high} | ({linear, np.sqrt(linear * high)} if high > 4.0 * linear else set())
    figure, ax = shown.get_figure(), shown.axes
    assert figure is not None
    # As high as the panel and no higher: titles stand above.
    bar = figure.colorbar(
        shown, cax=ax.inset_axes((1.03, 0.0, 0.05, 1.0)), label="Jy/beam", ticks=sorted(marks)
    )
    bar.ax.set_yticklabels([f"{mark:.3g}" for mark in sorted(marks)])
    bar.ax.minorticks_off()


def _draw_beam(ax: Axes, beam: RestoringBeam, place: tuple[float, float], scale: float) -> None:
    """FWHM of the beam, lower left; its major axis points to (sin pa, cos pa) in (east, north)."""
    size = (beam.major * scale, beam.minor * scale)
    angle = 90.0 - float(np.rad2deg(beam.pa))
    ax.add_patch(
        Ellipse((place[0] * scale, place[1] * scale), *size, angle=angle, fill=False, ec="white", lw=1.0)
    )


def _unit(half: float) -> tuple[float, str]:
    """Factor from radians, and name, of a unit in which the edge is a number of 1 to some hundreds."""
    degrees = 180.0 / np.pi
    for factor, name in _UNITS:
        if half * degrees * factor >= 1.0:
            return degrees * factor, name
    return degrees * _UNITS[-1][0], _UNITS[-1][1]
