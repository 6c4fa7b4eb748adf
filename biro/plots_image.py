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

from biro.imaging import Imager

if TYPE_CHECKING:
    from biro.dirty_image import DirtyImage
    from biro.observation import Observation

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
    _scale_of(_panel(ax, image), shrink=0.9)
    ax.set_title(_title(image), fontsize=9)
    return figure


def image_rows(rows: Sequence[Sequence[DirtyImage]]) -> Figure:
    """Images side by side, a row for each field, with peak and rms above each.

    Parameters
    ----------
    rows : sequence of sequence of DirtyImage
        Such as data, model and residual of a field.
    """
    n_column = len(rows[0])
    figure = Figure(figsize=(4.6 * n_column, 4.4 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), n_column, squeeze=False)
    for line, images in zip(axes, rows, strict=True):
        for ax, image in zip(line, images, strict=True):
            _scale_of(_panel(ax, image), shrink=0.8)
            ax.set_title(_title(image), fontsize=9)
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
        Any of `biro.imaging.Imaging`.

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
    return f"{image.what}: peak {image.peak.value:.4g}, rms {image.rms:.3g} Jy/beam\n{image.field}"


def _panel(ax: Axes, image: DirtyImage) -> AxesImage:
    """Linear in brightness up to some rms, logarithmic above: a peak does not hide what is faint."""
    n, half = image.n_pixel, 0.5 * image.n_pixel * image.cell
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
    if image.beam is not None:
        _draw_beam(ax, image, scale)
    ax.set_xlabel(f"east offset [{unit}]")
    ax.set_ylabel(f"north offset [{unit}]")
    return shown


def _scale_of(shown: AxesImage, shrink: float) -> None:
    """The colours of a panel, with the ends, 0 and what is linear marked."""
    norm = shown.norm
    assert isinstance(norm, AsinhNorm)
    low, high, linear = float(norm.vmin or 0.0), float(norm.vmax or 0.0), norm.linear_width
    marks = {low, 0.0, high} | ({linear, np.sqrt(linear * high)} if high > 4.0 * linear else set())
    figure = shown.get_figure()
    assert figure is not None
    bar = figure.colorbar(shown, ax=shown.axes, label="Jy/beam", shrink=shrink, ticks=sorted(marks))
    bar.ax.set_yticklabels([f"{mark:.3g}" for mark in sorted(marks)])
    bar.ax.minorticks_off()


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
