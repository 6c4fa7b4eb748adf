"""Frames of a fitted image: brightness at each time with errors, and light curves."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import FLUXES, Tabular, align, unit_for
from biro.files.json_value import JsonValue
from biro.image_posterior.field import ImageField
from biro.image_posterior.results.region import Region, parse_region
from biro.observation.selection import to_utc

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Array = NDArray[np.float64]
DAY = 86400.0


@dataclass(frozen=True, eq=False, repr=False)
class LightCurve(Tabular):
    """The flux of a region in each frame.

    Attributes
    ----------
    text : str
        The region as it was written, or "whole image".
    edges : float64 (n_frame + 1,), s
        MJD, UTC.
    samples : float64 (n_sample, n_frame), Jy
    n_data : int64 (n_frame,)
        Complex samples of the data.
    reduced_chi2 : float64 (n_frame,)
        chi2/2N of the mean image; NaN without data.
    is_map : bool
        Whether there are the most probable images alone, without errors.
    remarks : tuple of str
        Those of the image.
    """

    text: str
    edges: Array
    samples: Array
    n_data: NDArray[np.int64]
    reduced_chi2: Array
    is_map: bool
    remarks: tuple[str, ...] = ()

    @property
    def time(self) -> Array:
        """Middle of each frame, float64 (n_frame,), MJD in days, UTC."""
        return np.asarray(0.5 * (self.edges[1:] + self.edges[:-1]) / DAY)

    @property
    def flux(self) -> Array:
        """Mean over samples, float64 (n_frame,), Jy."""
        return np.asarray(self.samples.mean(axis=0))

    @property
    def error(self) -> Array | None:
        """Standard deviation over samples, float64 (n_frame,), Jy; None without samples."""
        return None if self.is_map else np.asarray(self.samples.std(axis=0, ddof=1))

    def warnings(self) -> list[str]:
        return list(self.remarks)

    def cells(self) -> list[list[str]]:
        """Header and rows as text."""
        flux, error = self.flux, self.error
        unit = unit_for([float(flux.max())], FLUXES)
        rows = [["frame (UTC)", "visibilities", "chi2/2N", f"flux [{unit.name}]", "error"]]
        for i, value in enumerate(flux):
            chi2 = f"{self.reduced_chi2[i]:.3g}" if self.n_data[i] else ""
            spread = "" if error is None else f"{error[i] / unit.size:.2g}"
            start = to_utc(float(self.edges[i])).split(".")[0]
            rows.append([start, f"{self.n_data[i]}", chi2, f"{value / unit.size:.4g}", spread])
        return rows

    def notes(self) -> list[str]:
        return [f"{self.text}. Frames without visibilities follow from the others by the prior"]

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON: times in MJD (days, UTC), fluxes in Jy."""
        error = self.error
        return {
            "region": self.text,
            "start": (self.edges[:-1] / DAY).tolist(),
            "end": (self.edges[1:] / DAY).tolist(),
            "flux": self.flux.tolist(),
            "flux_error": None if error is None else error.tolist(),
            "n_data": self.n_data.tolist(),
            "reduced_chi2": [None if np.isnan(value) else float(value) for value in self.reduced_chi2],
            "remarks": list(self.remarks),
        }

    def csv(self) -> str:
        """The table as text, with units in its header and remarks in lines that begin with #."""
        names = ["start_mjd", "end_mjd", "n_visibilities", "reduced_chi2", "flux_jy"]
        columns = [self.edges[:-1] / DAY, self.edges[1:] / DAY, self.n_data, self.reduced_chi2, self.flux]
        error = self.error
        if error is not None:
            names.append("flux_error_jy")
            columns.append(error)
        out = io.StringIO()
        out.writelines(f"# {line}\n" for line in self.remarks)
        np.savetxt(out, np.stack(columns, axis=1), "%.12g", ",", header=",".join(names), comments="")
        return out.getvalue()

    def plot(self, ax: Axes | None = None) -> Figure:
        """Flux against time, with errors."""
        from biro.image_posterior.results.movie_pictures import draw_light_curve

        return draw_light_curve(self, ax)


@dataclass(frozen=True, eq=False)
class Movie:
    """Images of all frames.

    Attributes
    ----------
    field : ImageField
    edges : float64 (n_frame + 1,), s
        MJD, UTC.
    samples : float64 (n_sample, n_frame, N, N), Jy/pixel
        Stokes I.
    n_data : int64 (n_frame,)
        Complex samples of the data.
    reduced_chi2 : float64 (n_frame,)
        chi2/2N of the mean image; NaN without data.
    is_map : bool
    remarks : tuple of str
        Those of the image.
    """

    field: ImageField
    edges: Array
    samples: Array
    n_data: NDArray[np.int64]
    reduced_chi2: Array
    is_map: bool
    remarks: tuple[str, ...] = ()

    @property
    def n_frame(self) -> int:
        """Number of frames."""
        return int(self.samples.shape[1])

    @property
    def time(self) -> Array:
        """Middle of each frame, float64 (n_frame,), MJD in days, UTC."""
        return np.asarray(0.5 * (self.edges[1:] + self.edges[:-1]) / DAY)

    @cached_property
    def mean(self) -> Array:
        """Mean over samples, float64 (n_frame, N, N), Jy/pixel."""
        return np.asarray(self.samples.mean(axis=0))

    @cached_property
    def sd(self) -> Array | None:
        """Standard deviation over samples, float64 (n_frame, N, N), Jy/pixel; None without samples."""
        return None if self.is_map else np.asarray(self.samples.std(axis=0, ddof=1))

    def region(self, region: str | Region) -> LightCurve:
        """The flux of a region in each frame, with its error.

        Parameters
        ----------
        region : str or Region
            As of `ImagePosterior.region`.

        Raises
        ------
        InputError
            A region that is not understood, or lies outside of the image.
        """
        shape = parse_region(region) if isinstance(region, str) else region
        fluxes = np.tensordot(self.samples, shape.mask(self.field), axes=([2, 3], [0, 1]))
        return self._curve(shape.text, fluxes)

    @property
    def flux(self) -> LightCurve:
        """The flux of the whole image in each frame."""
        return self._curve("whole image", self.samples.sum(axis=(2, 3)))

    def _curve(self, text: str, fluxes: Array) -> LightCurve:
        return LightCurve(text, self.edges, fluxes, self.n_data, self.reduced_chi2, self.is_map, self.remarks)

    def plot(self) -> Figure:
        """All frames side by side on one scale, with their standard deviations below."""
        from biro.image_posterior.results.movie_pictures import draw_frames

        return draw_frames(self)


def movie_lines(movie: Movie, change: Any) -> list[str]:
    """What the text of an image says of its frames, and of their change (`facts["change"]`)."""
    sd, z = change["sd_in_time"], change.get("significance")
    error = "" if sd["sd"] is None else f" +- {sd['sd']:.2g}"
    seen = "" if z is None else f"; changes have a significance of {z:.3g} standard deviations"
    return [
        f"  sd in time    {sd['mean']:.2g}{error} of the mean of ln I{seen}",
        *(f"    {line}".rstrip() for line in align(movie.flux.cells()).splitlines()),
    ]
