"""The field of an image that is fitted: its pixels, chosen from the data, and what they measure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import angle_text
from biro.errors import InputError
from biro.imaging.pixels import (
    UvMoments,
    check_n_pixel,
    default_cell,
    parse_cell,
    single_phase_centre,
)
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.uv_extent import field_of_view
from rime_kernels.idg import ImageGrid
from rime_kernels.physics.phase import SPEED_OF_LIGHT

SIZES = (32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Default numbers of pixels along a side."""
SAME_PLACE = 200.0
"""Baselines this many times shorter than the longest are of antennas at one place: they set no size."""
LARGER = 1.5
"""A remark on short spacings is made from this many fringes of the shortest baseline on."""


@dataclass(frozen=True)
class ImageField:
    """Pixels of an image that is fitted: pixel (x, y) lies at l = -(x - N/2) cell, m = (y - N/2) cell.

    Attributes
    ----------
    size : int
        N, pixels along a side.
    cell : float, rad
        Direction cosine from a pixel to the next.
    centre : (float, float), rad
        ICRS right ascension and declination of pixel (N/2, N/2), the phase centre.
    chosen : tuple of str
        Lines that state what was chosen, and by what.
    remarks : tuple of str
        Warnings: scales that no baseline measures, and the like.
    """

    size: int
    cell: float
    centre: tuple[float, float]
    chosen: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def width(self) -> float:
        """Direction cosines across."""
        return self.size * self.cell

    @property
    def grid(self) -> ImageGrid:
        """The pixels as gridders take them."""
        return ImageGrid(self.size, self.cell)

    @property
    def axis(self) -> NDArray[np.float64]:
        """(i - N/2) cell, float64 (N,): m of each row, and -l of each column."""
        return np.asarray((np.arange(self.size) - self.size // 2) * self.cell)

    def __str__(self) -> str:
        return (
            f"image of {self.size} x {self.size} pixels of {angle_text(self.cell)}, "
            f"{angle_text(self.width)} wide"
        )


def choose_field(
    observation: Observation,
    *,
    size: int | None = None,
    field: float | str | None = None,
    cell: float | str | None = None,
    pointings: float = 0.0,
    dish_beam: float | None = None,
) -> ImageField:
    """Pixels for an image of an observation: those that are given, and the others chosen from the data.

    The cell is a fifth of the beam of uniform weighting (`biro.imaging.pixels.default_cell`). The width is
    the largest scale that the shortest baseline measures, 1/u, or the field of view lambda/D of a dish if
    that is less, within 32 and 512 pixels. Baselines between antennas of one place (200 times shorter than
    the longest) set no width.

    Parameters
    ----------
    observation : Observation
    size : int, optional
        Pixels along a side, even.
    field : float (rad) or text as "2 arcmin", optional
        Width of the image. Two of size, field and cell determine the third.
    cell : float (rad) or text as "0.2 arcsec", optional
    pointings : float, rad
        Largest distance between pointings of a mosaic, by which the default image is wider.
    dish_beam : float, rad, optional
        Beam of a single-dish map that measures larger scales.

    Raises
    ------
    InputError
        No visibility counts, all three are given, or a number that cannot be.
    """
    centre = single_phase_centre(observation)
    moments = [UvMoments.of(part, part.weight.sum(axis=2)) for part in observation.partitions]
    if not any(each.total > 0.0 for each in moments):
        raise InputError("no visibility counts: all weights are 0 or flagged, so that there is no image")
    if size is not None and field is not None and cell is not None:
        raise InputError("size, field and cell are given, and two of them determine the third; leave one out")
    chosen: list[str] = []
    width = None if field is None else _width(field)
    n = None if size is None else check_n_pixel(size)
    if cell is not None:
        step = parse_cell(cell)
    elif n is not None and width is not None:
        step = width / n
    else:
        step = default_cell(moments, is_natural=False)
        longest = max(each.longest for each in moments)
        chosen.append(
            f"cell {angle_text(step)}: a fifth of the beam of the longest baseline (u = {longest:.4g})"
        )
    shortest = _shortest(observation)
    if n is None:
        n, why = (
            _size(observation, step, shortest, pointings)
            if width is None
            else (_even(width / step), "the field")
        )
        if width is None:
            chosen.append(f"size {n} ({angle_text(n * step)}): {why}")
    made = ImageField(n, step, centre, tuple(chosen))
    return replace(made, remarks=tuple(_short_spacings(made, shortest, dish_beam)))


def _width(field: float | str) -> float:
    """The width of an image, direction cosines."""
    try:
        return parse_cell(field)
    except InputError as error:
        raise InputError(str(error).replace("cell", "field", 1)) from None


def _even(n: float) -> int:
    return max(16, 2 * int(np.ceil(n / 2.0 - 1e-9)))


def _shortest(observation: Observation) -> float:
    """Shortest baseline with a weight, in wavelengths, without those of antennas at one place; 0 if none."""
    used = [length for part in observation.partitions if (length := _lengths(part)).size]
    if not used:
        return 0.0
    every = np.concatenate(used)
    longest = float(every.max())
    return float(every[every > longest / SAME_PLACE].min(initial=longest))


def _lengths(part: Partition) -> NDArray[np.float64]:
    """Projected baselines with a weight, in wavelengths of the lowest frequency."""
    used = (part.row_weight > 0.0) & (part.antenna1 != part.antenna2)
    return np.asarray(np.hypot(*part.uvw[used, :2].T) * part.chan_freq.min() / SPEED_OF_LIGHT)


def _size(observation: Observation, cell: float, shortest: float, pointings: float) -> tuple[int, str]:
    """Pixels along a side by default, and why."""
    view = max(field_of_view(part, observation.dish_diameter) for part in observation.partitions)
    scale = 1.0 / shortest if shortest else np.inf
    width = min(view or np.inf, scale) + pointings
    why = "field of view of the dishes" if view and view <= scale else "fringe of the shortest baseline"
    why += f" about all pointings, which are {angle_text(pointings)} apart" if pointings else ""
    n = next((n for n in SIZES if n * cell >= 0.9 * width), SIZES[-1])
    if n * cell < 0.9 * width:
        why = f"as much as the default has; the {why} is {angle_text(width)} (give field or size for more)"
    return n, why


def _short_spacings(field: ImageField, shortest: float, dish_beam: float | None) -> list[str]:
    """A line where neither a baseline nor a single dish measures some scales of the field."""
    if not shortest or field.width <= LARGER / shortest:
        return []
    if dish_beam is not None:
        if dish_beam * shortest <= 1.0:
            return []
        return [
            f"GAP OF SPACINGS: the shortest baseline measures up to {angle_text(1.0 / shortest)}, and the "
            f"map scales above its beam of {angle_text(dish_beam)}. The prior alone decides in between"
        ]
    return [
        f"NO SHORT SPACINGS: the shortest baseline measures up to {angle_text(1.0 / shortest)}, and the "
        f"image is {angle_text(field.width)} wide. The prior alone decides flux on larger "
        "scales, and the total flux"
    ]
