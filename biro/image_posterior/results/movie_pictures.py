"""Pictures of a movie: a strip of frames, an animation, and light curves."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from PIL import Image

from biro.display.style import COLOUR, COLUMN, WIDTH, drawing_on, figure_of, new_figure
from biro.files.atomic import write_atomic
from biro.imaging.pictures import MAP, angle_unit
from biro.observation.selection import to_utc

_MOST_COLUMNS = 8
_GAMMA = 0.5
"""Colours are those of brightness to this power, so that faint structure shows."""
_MILLISECONDS, _DPI = 400, 100
"""Time of a frame in an animation, and dots per inch of it."""


def draw_frames(movie: Any) -> Figure:
    """Mean of all frames on one scale, and below each row of them the standard deviations on theirs."""
    n_column = min(movie.n_frame, _MOST_COLUMNS)
    n_row = -(-movie.n_frame // n_column)
    kinds = [("mean", movie.mean)] if movie.sd is None else [("mean", movie.mean), ("sd", movie.sd)]
    size = WIDTH, (WIDTH / n_column + 0.25) * n_row * len(kinds) + 0.4
    with new_figure(size) as figure:
        axes = figure.subplots(n_row * len(kinds), n_column, squeeze=False)
        for ax in axes.ravel():
            ax.set_visible(False)
        for k, (name, planes) in enumerate(kinds):
            own = axes[k :: len(kinds)]
            norm = PowerNorm(_GAMMA, 0.0, float(planes.max()) or 1.0)
            for f, plane in enumerate(planes):
                ax = own[f // n_column, f % n_column]
                ax.set_visible(True)
                shown = _show(ax, movie.field, plane, norm, is_first=f % n_column == 0)
                if name == "mean":
                    ax.set_title(_label(movie, f), fontsize=6)
            figure.colorbar(shown, ax=list(own.ravel()), label=f"{name} [Jy/pixel]", shrink=0.8, pad=0.01)
    return figure


def _label(movie: Any, frame: int) -> str:
    """Middle of a frame, and whether it has data."""
    text = to_utc(float(movie.time[frame] * 86400.0))[:16].replace("T", " ")
    return text if movie.n_data[frame] else f"{text}\n(no data)"


def _show(ax: Axes, field: Any, plane: Any, norm: PowerNorm, *, is_first: bool = True) -> Any:
    """Draw a plane against offsets, east to the left; returns what a colour bar is made of."""
    scale, name = angle_unit(0.5 * field.width)
    half = 0.5 * field.cell
    ends = (-field.axis[0] + half, -field.axis[-1] - half, field.axis[0] - half, field.axis[-1] + half)
    shown = ax.imshow(
        plane, origin="lower", extent=tuple(end * scale for end in ends), cmap=MAP, norm=norm,
        interpolation="nearest",
    )  # fmt: skip
    ax.tick_params(labelsize=6, labelleft=is_first)
    ax.set_xlabel(f"east [{name}]", fontsize=6)
    if is_first:
        ax.set_ylabel(f"north [{name}]", fontsize=6)
    return shown


def write_animation(movie: Any, path: Path) -> None:
    """Write the mean of all frames one after another as an animated GIF."""
    images = []
    with new_figure((COLUMN, COLUMN)) as figure:
        ax = figure.subplots()
        norm = PowerNorm(_GAMMA, 0.0, float(movie.mean.max()) or 1.0)
        shown = _show(ax, movie.field, movie.mean[0], norm)
        for frame, plane in enumerate(movie.mean):
            shown.set_data(plane)
            ax.set_title(_label(movie, frame).replace("\n", " "), fontsize=7)
            drawn = io.BytesIO()
            figure.savefig(drawn, format="png", dpi=_DPI)
            images.append(Image.open(drawn).convert("RGB"))
    out = io.BytesIO()
    images[0].save(out, format="GIF", save_all=True, append_images=images[1:], duration=_MILLISECONDS, loop=0)
    write_atomic(path, out.getvalue())


def draw_light_curve(curve: Any, ax: Axes | None = None) -> Figure:
    """Flux of each frame against time, with errors."""
    with drawing_on(ax, (COLUMN, 0.7 * COLUMN)) as ax:
        first = np.floor(curve.time[0])
        hours = (curve.time - first) * 24.0
        half = 0.5 * np.diff(curve.edges) / 3600.0
        has = curve.n_data > 0
        for some, fill in ((has, COLOUR), (~has, "white")):
            error = None if curve.error is None else curve.error[some]
            ax.errorbar(
                hours[some], curve.flux[some], error, half[some], fmt="o", ms=3, lw=1, color=COLOUR, mfc=fill
            )
        ax.set_xlabel(f"hours after {to_utc(float(first * 86400.0))[:10]} UTC")
        ax.set_ylabel("flux [Jy]")
        ax.set_title(curve.text, fontsize=7)
    return figure_of(ax)
