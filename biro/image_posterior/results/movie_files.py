"""Files of a movie: cubes with a time axis, and the light curve."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from biro.files.atomic import write_atomic
from biro.image_posterior.results.movie import DAY, Movie
from biro.image_posterior.results.plane_files import write_plane
from biro.image_posterior.results.samples import ImageSamples
from biro.imaging.fits_header import FitsAxis


def write_movie(image: ImageSamples, folder: Path) -> list[Path]:
    """Write the frames of an image that has them; nothing of a constant one.

    These are frames.fits and frames_sd.fits (Jy/pixel), and light_curve.csv. Cubes have axes RA, DEC, FREQ,
    STOKES, TIME: seconds from MJDREF to the middle of each frame, UTC (Rots et al. 2015, A&A 574, A36).

    Returns
    -------
    list of Path
    """
    if "frames" not in image.arrays:
        return []
    movie: Movie = image.movie
    # From the day itself: a count from day 0 would run across all leap seconds.
    day = float(np.floor(movie.time[0]))
    axis = FitsAxis(
        "TIME", float(movie.edges[:2].mean() - day * DAY), float(np.diff(movie.edges)[0]), 1.0, "s"
    )
    cards: dict[str, str | float] = {"MJDREF": day, "TIMEUNIT": "s", "TREFPOS": "TOPOCENTER"}
    planes = {"frames": movie.mean} | ({} if movie.sd is None else {"frames_sd": movie.sd})
    written = [
        write_plane(image, folder, name, cube[:, None, None], "Jy/pixel", more=axis, cards=cards)
        for name, cube in planes.items()
    ]
    write_atomic(folder / "light_curve.csv", movie.flux.csv().encode())
    return [*written, folder / "light_curve.csv"]
