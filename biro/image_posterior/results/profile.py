"""Brightness of a fitted image along a line, with the band in which the samples lie."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

from biro.display.formatting import ANGLES, FLUXES, Tabular, Unit, unit_for
from biro.display.style import COLOUR, COLUMN, drawing_on, figure_of
from biro.errors import InputError
from biro.files.json_value import JsonValue
from biro.image_posterior.field import ImageField
from biro.image_posterior.results.region import Region

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
BAND = (16.0, 84.0)
"""Percentiles of the samples between which the band lies: 68 %."""
_MOST_ROWS = 25
"""Rows of the table that a terminal shows; files have all."""


@dataclass(frozen=True, eq=False, repr=False)
class Profile(Tabular):
    """Brightness along a line.

    Attributes
    ----------
    text : str
        The line as it was written.
    east, north : float64 (n,), rad
        Direction cosines of the points, one cell apart.
    samples : float64 (n_sample, n), Jy/pixel
        Brightness of each sample, interpolated linearly between pixels.
    is_map : bool
        Whether there is the most probable image alone, which has no band.
    remarks : tuple of str
        Those of the image.
    """

    text: str
    east: Array
    north: Array
    samples: Array
    is_map: bool
    remarks: tuple[str, ...] = ()

    @property
    def offset(self) -> Array:
        """Distance from the first end, float64 (n,), rad."""
        return np.asarray(np.hypot(self.east - self.east[0], self.north - self.north[0]))

    @property
    def mean(self) -> Array:
        """Mean over samples, float64 (n,), Jy/pixel."""
        return np.asarray(self.samples.mean(axis=0))

    @property
    def sd(self) -> Array | None:
        """Standard deviation over samples, float64 (n,), Jy/pixel; None without samples."""
        return None if self.is_map else np.asarray(self.samples.std(axis=0, ddof=1))

    @property
    def band(self) -> Array | None:
        """The 68 % interval of each point, float64 (2, n), Jy/pixel; None without samples."""
        return None if self.is_map else np.asarray(np.percentile(self.samples, BAND, axis=0))

    def warnings(self) -> list[str]:
        return list(self.remarks)

    def cells(self) -> list[list[str]]:
        """Header and rows as text; of a long profile every second row, or fewer."""
        angle, flux = self._units()
        head = [f"offset [{angle.name}]", "east", "north", f"mean [{flux.name}/pixel]"]
        band, sd = self.band, self.sd
        head += [] if sd is None or band is None else ["sd", "16 %", "84 %"]
        columns = [self.offset / angle.size, self.east / angle.size, self.north / angle.size]
        columns.append(self.mean / flux.size)
        columns += [] if sd is None or band is None else [sd / flux.size, *(band / flux.size)]
        step = -(-len(self.east) // _MOST_ROWS)
        return [head, *([f"{value:.4g}" for value in row] for row in np.stack(columns, axis=1)[::step])]

    def notes(self) -> list[str]:
        if self.is_map:
            return [
                "The profile has no band: there is the most probable image alone. Fit with prior = "
                '"correlated-field" for errors'
            ]
        return [f"{len(self.samples)} samples. Neighbouring points are correlated"]

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON: offsets in rad, brightness in Jy/pixel."""
        sd, band = self.sd, self.band
        found: dict[str, JsonValue] = {
            "line": self.text,
            "east": self.east.tolist(),
            "north": self.north.tolist(),
            "offset": self.offset.tolist(),
            "mean": self.mean.tolist(),
            "sd": None if sd is None else sd.tolist(),
            "band": None if band is None else band.tolist(),
            "remarks": list(self.remarks),
        }
        return found

    def csv(self) -> str:
        """The whole table as text, with units in its header and remarks in lines that begin with #."""
        names = ["offset_arcsec", "east_arcsec", "north_arcsec", "mean_jy_per_pixel"]
        columns = [np.rad2deg(one) * 3600.0 for one in (self.offset, self.east, self.north)]
        columns.append(self.mean)
        sd, band = self.sd, self.band
        if sd is not None and band is not None:
            names += ["sd_jy_per_pixel", "low_68_jy_per_pixel", "high_68_jy_per_pixel"]
            columns += [sd, *band]
        out = io.StringIO()
        out.writelines(f"# {line}\n" for line in (*self.remarks, self.text))
        np.savetxt(out, np.stack(columns, axis=1), "%.9g", ",", header=",".join(names), comments="")
        return out.getvalue()

    def plot(self, *, ax: Axes | None = None) -> Figure:
        """Mean, 68 % band and samples against the offset from the first end."""
        angle, flux = self._units()
        x, band = self.offset / angle.size, self.band
        with drawing_on(ax, (COLUMN, 0.7 * COLUMN)) as drawn:
            if band is not None:
                low, high = band / flux.size
                drawn.plot(x, self.samples.T / flux.size, color="0.7", lw=0.4, zorder=1)
                drawn.fill_between(x, low, high, color=COLOUR, alpha=0.3, lw=0, zorder=2, label="68 %")
            label = "most probable" if self.is_map else "mean"
            drawn.plot(x, self.mean / flux.size, color=COLOUR, lw=1.4, zorder=3, label=label)
            drawn.set_xlabel(f"offset along the line [{angle.name}]")
            drawn.set_ylabel(f"brightness [{flux.name}/pixel]")
            drawn.set_xlim(0.0, float(x[-1]))
            drawn.legend(frameon=False, fontsize=7)
            return figure_of(drawn)

    def __repr__(self) -> str:
        return f"<Profile along {self.text!r}, {len(self.east)} points; print() shows more>"

    def _units(self) -> tuple[Unit, Unit]:
        return unit_for([float(self.offset[-1])], ANGLES), unit_for([float(self.samples.max())], FLUXES)


def profile_of(
    samples: Array, field: ImageField, line: Region, *, is_map: bool, remarks: tuple[str, ...]
) -> Profile:
    """The profile of images along a line.

    Parameters
    ----------
    samples : float64 (n_sample, N, N), Jy/pixel
        One plane of each sample.
    field : ImageField
    line : Region
    is_map : bool
    remarks : tuple of str

    Raises
    ------
    InputError
        A region that is no line, a line of no length, or an end outside of the image.
    """
    if not line.is_line:
        raise InputError(
            f"region {line.text!r}: expected a line, as 'offset; line(0 mas, 0 mas, 5 mas, 2 mas)'"
        )
    ends = line.ends(field)
    pixels = np.stack([field.size // 2 - ends[:, 0] / field.cell, field.size // 2 + ends[:, 1] / field.cell])
    if pixels.min() < -0.5 or pixels.max() > field.size - 0.5:
        raise InputError(f"region {line.text!r}: an end lies outside of the image; {field}")
    length = float(np.hypot(*(pixels[:, 1] - pixels[:, 0])))
    if not length > 0.0:
        raise InputError(f"region {line.text!r}: both ends are the same point, expected a line")
    n = int(np.ceil(length)) + 1
    x, y = np.linspace(pixels[:, 0], pixels[:, 1], n, axis=1)
    # A point up to half a pixel beyond the middles of the outermost pixels has their brightness.
    values = [map_coordinates(plane, [y, x], order=1, mode="nearest") for plane in samples]
    half = field.size // 2
    return Profile(
        line.text, (half - x) * field.cell, (y - half) * field.cell, np.array(values), is_map, remarks
    )
