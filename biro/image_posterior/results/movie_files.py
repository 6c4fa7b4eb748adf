"""Files of a movie: cubes with a time axis, the light curve, and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from biro.files.atomic import write_atomic, write_figure
from biro.image_posterior.results.movie import DAY, Movie
from biro.image_posterior.results.plane_files import write_plane
from biro.imaging.fits_header import FitsAxis

TIME_CARDS: dict[str, str | float] = {"MJDREF": 0.0, "TIMEUNIT": "d", "TREFPOS": "TOPOCENTER"}
"""Beside TIMESYS: times are MJD in days (Rots et al. 2015, A&A 574, A36)."""


def write_movie(image: Any, folder: Path, *, pictures: bool) -> list[Path]:
    """Write the frames of an image that has them; nothing of a constant one.

    These are frames.fits and frames_sd.fits (Jy/pixel), light_curve.csv, and with pictures movie.png,
    light_curve.png and movie.gif. Cubes have axes RA, DEC, FREQ, STOKES, TIME; times are those of the middles
    of frames.

    Returns
    -------
    list of Path
    """
    if "frames" not in image.arrays:
        return []
    movie: Movie = image.movie
    step = float(np.diff(movie.edges)[0]) / DAY
    axis = FitsAxis("TIME", float(movie.time[0]), step, 1.0, "d")
    planes = {"frames": movie.mean} | ({} if movie.sd is None else {"frames_sd": movie.sd})
    written = [
        write_plane(image, folder, name, cube[:, None, None], "Jy/pixel", more=axis, cards=TIME_CARDS)
        for name, cube in planes.items()
    ]
    curve = movie.flux
    write_atomic(folder / "light_curve.csv", curve.csv().encode())
    written.append(folder / "light_curve.csv")
    if pictures:
        from biro.image_posterior.results.movie_pictures import write_animation

        write_figure(folder / "movie.png", movie.plot(), dpi=150)
        write_figure(folder / "light_curve.png", curve.plot(), dpi=150)
        write_animation(movie, folder / "movie.gif")
        written += [folder / name for name in ("movie.png", "light_curve.png", "movie.gif")]
    return written
