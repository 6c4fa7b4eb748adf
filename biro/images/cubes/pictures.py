"""Pictures of a spectral cube that was written: moment maps, spectrum, channel maps."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from astropy.io import fits
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from biro.files.atomic import write_figure
from biro.formatting import FREQUENCIES, unit_for
from biro.images.cubes.axis import SpectralAxis
from biro.images.cubes.figures import SavedCube
from biro.images.dirty_image import image_files
from biro.images.pictures import FIRST_LEVEL, MAP, Panel, draw_panels, window_about
from biro.style import WIDTH, figure_of, new_figure, plain_ticks

Array = NDArray[np.float64]
MOST_MAPS = 12
"""Planes that channel maps show, equally far apart."""
_ARCSEC = np.pi / 180.0 / 3600.0


class Moments(NamedTuple):
    """Moments of a cube's first Stokes parameter.

    Attributes
    ----------
    zeroth : float64 (N, N)
        Sum of what is above 5 times the plane's rms, times the width of a plane, Jy/beam and the axis' unit.
    first : float64 (N, N)
        Mean of the axis, weighted with it; NaN where nothing is above.
    peak : float64 (N, N), Jy/beam
        The highest value of the planes.
    """

    zeroth: Array
    first: Array
    peak: Array


def spectral_values(axis: SpectralAxis) -> tuple[Array, str, float]:
    """Middle of each plane, its label, and the width of a plane: km/s where the axis is one of velocities."""
    if axis.kind == "velocity" and axis.velocity is not None:
        values = 1e-3 * axis.velocity
        return values, f"radio velocity, {axis.frame} [km/s]", float(np.ptp(values)) / max(1, len(values) - 1)
    unit = unit_for([float(axis.freq[0])], FREQUENCIES)
    return axis.freq / unit.size, f"frequency, {axis.frame} [{unit.name}]", axis.width / unit.size


def moments(saved: SavedCube) -> Moments:
    """Moments of the cube, of which one plane at a time is read; blank planes count as nothing."""
    values, _, width = spectral_values(saved.layout.axis)
    n = saved.layout.n_pixel
    total, weighted, peak = np.zeros((n, n)), np.zeros((n, n)), np.full((n, n), -np.inf)
    for i, plane in enumerate(saved.planes):
        if plane.n_vis:
            pixels = plane_of(saved, i)
            above = np.where(pixels > FIRST_LEVEL * plane.rms, pixels, 0.0)
            total += above
            weighted += above * values[i]
            np.maximum(peak, pixels, out=peak)
    first = np.where(total > 0.0, weighted / np.where(total > 0.0, total, 1.0), np.nan)
    return Moments(total * width, first, peak)


def plane_of(saved: SavedCube, i_plane: int) -> Array:
    """Pixels of the first Stokes parameter of a plane, Jy/beam."""
    with fits.open(saved.files[0], memmap=True) as file:
        data = file[0].data
        return np.array(data[i_plane, 0] if data.ndim == 4 else data[i_plane], np.float64)


def draw_cube(saved: SavedCube) -> Figure:
    """Draw the moments of order 0 and 1, and the spectrum at the pixel with the highest peak.

    Parameters
    ----------
    saved : SavedCube
    """
    values, label, _ = spectral_values(saved.layout.axis)
    found = moments(saved)
    y, x = np.unravel_index(int(found.peak.argmax()), found.peak.shape)
    spectrum = np.array([plane_of(saved, i)[y, x] for i in range(len(values))])
    half = 0.5 * saved.layout.n_pixel * saved.layout.cell / _ARCSEC
    with new_figure((WIDTH, 4.6)) as figure:
        grid = figure.subplot_mosaic("ab;cc", height_ratios=(3, 2))
        unit = label.partition("[")[2].removesuffix("]")
        _draw_map(grid["a"], found.zeroth, half, f"moment 0 [Jy/beam {unit}]", MAP)
        _draw_map(grid["b"], found.first, half, f"moment 1 [{unit}]", "cividis")
        grid["c"].step(values, spectrum, where="mid")
        grid["c"].axhline(0.0, color="0.6", lw=0.6, zorder=0.5)
        plain_ticks(grid["c"])
        east, north = (saved.layout.n_pixel // 2 - x), (y - saved.layout.n_pixel // 2)
        cell = saved.layout.cell / _ARCSEC
        place = f"{east * cell:.4g} east, {north * cell:.4g} north"
        grid["c"].set(xlabel=label, ylabel="Jy/beam", title=f"spectrum at the peak, {place} [arcsec]")
    return figure


def _draw_map(ax: Axes, image: Array, half: float, label: str, cmap: str) -> None:
    drawn = ax.imshow(image, extent=(half, -half, -half, half), cmap=cmap, interpolation="nearest")
    plain_ticks(ax, 4)
    ax.set(xlabel="east offset [arcsec]", ylabel="north offset [arcsec]")
    figure_of(ax).colorbar(drawn, ax=ax, label=label)


def draw_channel_maps(saved: SavedCube) -> Figure:
    """Draw up to 12 planes that are not blank, equally far apart, on one scale of colours.

    Parameters
    ----------
    saved : SavedCube
    """
    values, label, _ = spectral_values(saved.layout.axis)
    unit = label.partition("[")[2].removesuffix("]")
    there = [i for i, plane in enumerate(saved.planes) if plane.n_vis]
    chosen = there[:: -(-len(there) // MOST_MAPS)]
    panels = []
    for i in chosen:
        plane = saved.planes[i]
        text = f"{values[i]:.6g} {unit}"
        panels.append(Panel(plane_of(saved, i), saved.layout.cell, plane.beam, plane.rms, text))
    window = window_about(panels, np.zeros((0, 2)))
    shown = [replace(panel, window=window) for panel in panels]
    n_column = min(4, len(shown))
    return draw_panels([shown], (WIDTH / n_column, 0.85 * WIDTH / n_column), n_column)


def picture_files(prefix: str | os.PathLike[str]) -> list[Path]:
    """Paths of the pictures of a cube that was written with this prefix."""
    picture = image_files(prefix)[2]
    return [picture, picture.with_name(f"{picture.stem}-channels.png")]


def draw_files(saved: SavedCube) -> list[Path]:
    """Write both pictures of a cube beside it; returns their paths."""
    paths = picture_files(saved.files[0])
    for path, draw in zip(paths, (draw_cube, draw_channel_maps), strict=True):
        write_figure(path, draw(saved), dpi=150)
    return paths
