"""Choose the pixels of a dirty image, their size and number, and check them against baselines and memory."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import angle_text, in_unit
from biro.errors import InputError
from biro.files import memory
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.uv_extent import field_of_view
from rime_kernels.arrays import Rows
from rime_kernels.physics.phase import SPEED_OF_LIGHT

if TYPE_CHECKING:
    from rime_kernels.idg import ImageGrid

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
BEAM_OF_DISC = 0.705
"""FWHM of the PSF of a uniformly filled disc of the uv plane, in 1/radius: 2 J1(x)/x = 1/2 at x = 2.215."""
PIXELS_PER_BEAM = 5.0
FRINGE = 0.45
"""Largest default cell, in fringes of the longest baseline; at half a fringe, baselines are aliased."""
SMALLEST = 1e-15
"""Smallest cell, rad: a thousandth of a fringe of X-rays across a kilometre."""
SIZES = (16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 480, 512, 640, 768, 960, 1024, 1280, 1536, 2048)
"""Default numbers of pixels along a side: 256 or more, except where that would reach beyond the horizon."""
LARGEST = 16384
"""Pixels along a side up to which a warning recommends the whole field of view; VLBI would need far more."""
WIDEST = 1.3
"""Direction cosines across a default image at most: its corners stay above the horizon."""


def single_phase_centre(observation: Observation) -> tuple[float, float]:
    """The phase centre that all partitions share, rad.

    Raises
    ------
    InputError
        The partitions have several phase centres, which would need a mosaic.
    """
    parts = observation.partitions
    first = parts[0].phase_centre
    others = [part.field for part in parts if not np.allclose(part.phase_centre, first, rtol=0.0, atol=1e-12)]
    if others:
        names = ", ".join(dict.fromkeys([parts[0].field, *others]))
        raise InputError(
            f"fields {names} have different phase centres, and biro does not make mosaics; select a field "
            "(fields=, --fields)"
        )
    return first


def parse_cell(cell: float | str) -> float:
    """A cell size in rad, from a number in rad or from text with a unit.

    Raises
    ------
    InputError
        Text without a unit, or a size outside of SMALLEST .. 1.
    """
    if isinstance(cell, str) and re.fullmatch(r"[-+.\deE]+", cell.strip()):
        raise InputError(f"cell {cell!r} has no unit; write '{cell.strip()} arcsec'")
    size = in_unit(cell, "rad", "cell")
    if not SMALLEST <= size < 1.0:
        raise InputError(
            f"cell must be an angle of {SMALLEST:g} rad to 1 rad, as '0.2 arcsec' or in radians, got {cell!r}"
        )
    return size


class UvMoments(NamedTuple):
    """How baselines of weighted visibilities are spread.

    Attributes
    ----------
    longest : float
        Longest baseline that has a weight, in wavelengths.
    moment : float64 (2, 2), 1/Jy^2
        Weighted sum of (u, v) (u, v)^T, in wavelengths.
    total : float, 1/Jy^2
        Sum of the weights.
    """

    longest: float
    moment: Array
    total: float

    @classmethod
    def of(cls, part: Partition, weight: Array) -> UvMoments:
        """Moments of visibilities with weights float64 (n_row, n_chan) by their noise."""
        waves = weight @ (part.chan_freq / SPEED_OF_LIGHT) ** 2
        moment = (part.uvw[:, :2].T * waves) @ part.uvw[:, :2]
        return cls(_longest_baseline(part, weight), moment, float(weight.sum()))


def default_cell(moments: Sequence[UvMoments], is_natural: bool) -> float:
    """A fifth of the expected beam, or 0.45 fringes of the longest baseline if that is less, in two digits.

    Parameters
    ----------
    moments : sequence of UvMoments
        Of all visibilities, with the weights of their noise.
    is_natural : bool
        Whether these are the weights of the image; the beam is then expected from `expected_beam`.

    Returns
    -------
    float, rad

    Raises
    ------
    InputError
        All baselines have length 0.
    """
    longest = max(each.longest for each in moments)
    if not longest > 0.0:
        raise InputError(
            "all baselines have length 0, so biro cannot choose the pixel size; give cell= (--cell)"
        )
    beam = BEAM_OF_DISC / longest
    if is_natural:
        beam = max(beam, expected_beam(moments))
    return _rounded_down(min(beam / PIXELS_PER_BEAM, FRINGE / longest))


def expected_beam(moments: Sequence[UvMoments]) -> float:
    """FWHM, rad, of the Gaussian that curves like the PSF in its middle, along the PSF's narrowest direction.

    About its middle the PSF is 1 - 2 pi^2 l^2 <u^2>, so that FWHM = sqrt(8 ln 2) / (2 pi sigma), with sigma^2
    the larger eigenvalue of the weighted mean of (u, v) (u, v)^T.

    Parameters
    ----------
    moments : sequence of UvMoments
    """
    moment, total = np.zeros((2, 2)), 0.0
    for each in moments:
        moment += each.moment
        total += each.total
    sigma = np.sqrt(np.linalg.eigvalsh(moment / total)[-1])
    return float(np.sqrt(8.0 * np.log(2.0)) / (2.0 * np.pi * sigma))


def check_n_pixel(n_pixel: int) -> int:
    """Number of pixels along a side, as an int.

    Raises
    ------
    InputError
        It is odd, below 16, or no integer.
    """
    if not (isinstance(n_pixel, int | np.integer) and n_pixel >= 16 and n_pixel % 2 == 0):
        raise InputError(f"size must be an even number of 16 or more, got {n_pixel!r}")
    return int(n_pixel)


def default_n_pixel(observation: Observation, cell: float) -> int:
    """Pixels along a side, one of `SIZES`, for twice the field of view, or as near as they come."""
    view = max(field_of_view(part, observation.dish_diameter) for part in observation.partitions)
    wanted = max(256.0, 2.0 * view / cell) if view else 1024.0
    fitting = [n for n in SIZES if n * cell <= WIDEST] or [SIZES[0]]
    n_pixel = next((n for n in fitting if n >= wanted), fitting[-1])
    if n_pixel * cell < view <= LARGEST * cell:
        log.warning(
            "the image (%s wide) is smaller than the field of view (%s); --size makes it larger",
            angle_text(n_pixel * cell),
            angle_text(view),
        )
    return n_pixel


def check_memory(n_pixel: int, n_stokes: int) -> None:
    """Refuse, before work is done, images that do not fit in memory with a complex grid twice as wide.

    Raises
    ------
    InputError
    """
    needed = n_pixel**2 * (8 * (2 * n_stokes + 3) + 4 * 8 * n_stokes)
    what = f"an image of {n_pixel} x {n_pixel} pixels, {n_stokes} planes,"
    memory.check_memory(needed, what, "use fewer or larger pixels")


class CoarsePixels(NamedTuple):
    """For how many of some visibilities pixels are too coarse.

    Attributes
    ----------
    n_lost : int
        Those with more than half a fringe per pixel.
    n_vis : int
    largest : float
        Largest cell, direction cosine, that none of them is lost with.
    """

    n_lost: int
    n_vis: int
    largest: float

    @classmethod
    def of(cls, rows: Rows, grid: ImageGrid) -> CoarsePixels:
        """Count of too coarse visibilities, over all visibilities of some rows."""
        n_lost, largest = grid.too_coarse(rows)
        return cls(n_lost, rows.n_row * rows.n_chan, largest)


def refuse_coarse(found: Sequence[CoarsePixels], grid: ImageGrid, remedy: str) -> None:
    """Refuse pixels of more than half a fringe of the longest baseline, before any gridding is done.

    `rime_kernels.idg.Idg` refuses them too; here the message has units, and says what to do.

    Parameters
    ----------
    found : sequence of CoarsePixels
        Of all visibilities that have a weight.
    grid : ImageGrid
    remedy : str
        What to do; "{}" becomes the largest cell.

    Raises
    ------
    InputError
    """
    n_lost, n_vis = (sum(numbers) for numbers in zip(*(each[:2] for each in found), strict=True))
    if n_lost:
        # Three digits may be rounded up by half a per cent.
        largest = angle_text(0.995 * min(each.largest for each in found))
        raise InputError(
            f"pixels of {angle_text(grid.cell)} are too coarse: {n_lost} of {n_vis} "
            f"visibilities have more than half a fringe per pixel; {remedy.format(largest)}"
        )


def _longest_baseline(part: Partition, weight: Array) -> float:
    """Longest baseline that has a weight, in wavelengths."""
    length = np.hypot(part.uvw[:, 0], part.uvw[:, 1])[weight.any(axis=1)]
    return float(length.max(initial=0.0) * part.chan_freq.max() / SPEED_OF_LIGHT)


def _rounded_down(angle: float) -> float:
    """An angle rounded down to two digits in arcsec."""
    arcsec = angle * 180.0 / np.pi * 3600.0
    step = 10.0 ** (np.floor(np.log10(arcsec)) - 1.0)
    return float(np.floor(arcsec / step * (1.0 + 1e-12)) * step / 3600.0 * np.pi / 180.0)
