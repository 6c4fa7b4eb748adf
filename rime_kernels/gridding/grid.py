"""The grid of an image: the directions of its pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Rows
from rime_kernels.errors import InputError
from rime_kernels.physics.phase import SPEED_OF_LIGHT


@dataclass(frozen=True)
class ImageGrid:
    """An N x N image. Pixel (x, y), element [y, x] of arrays, lies at (physics: section 8)

        l = l0 - (x - N/2) cell,    m = m0 + (y - N/2) cell

    and holds Jy/pixel, not divided by n.

    Attributes
    ----------
    n_pixel : int
        N, even.
    cell : float
        Direction cosine per pixel.
    l0, m0 : float
        Direction cosines of pixel (N/2, N/2), for an image beside the phase centre.

    Raises
    ------
    InputError
        An odd or impossible number of pixels, a cell that is not positive, pixels beyond the horizon.
    """

    n_pixel: int
    cell: float
    l0: float = 0.0
    m0: float = 0.0

    def __post_init__(self) -> None:
        n = self.n_pixel
        if isinstance(n, bool) or n != int(n) or n < 2 or n % 2:
            raise InputError(
                f"n_pixel must be an even number of at least 2, got {n}; pad the image by a pixel?"
            )
        if not (math.isfinite(self.cell) and self.cell > 0.0):
            raise InputError(f"cell must be positive (direction cosine per pixel), got {self.cell}")
        if not self.corner2() < 1.0:
            raise InputError(
                f"{n} pixels of {self.cell:g} about l, m = {self.l0:g}, {self.m0:g} reach beyond the horizon "
                f"(l^2 + m^2 = {self.corner2():g}); take fewer or smaller pixels"
            )

    def corner2(self) -> float:
        """The largest l^2 + m^2 of the image's corners."""
        half = 0.5 * self.n_pixel * self.cell
        return float((abs(self.l0) + half) ** 2 + (abs(self.m0) + half) ** 2)

    @property
    def n0(self) -> float:
        """n of pixel (N/2, N/2)."""
        return math.sqrt(1.0 - self.l0**2 - self.m0**2)

    @property
    def frame(self) -> tuple[float, float, float, float]:
        """l0, m0, n0 and `corner2`: what `scalars.curvature` depends on."""
        return self.l0, self.m0, self.n0, self.corner2()

    def too_coarse(self, rows: Rows) -> tuple[int, float]:
        """How many visibilities have more than half a wave per pixel, and the largest cell that holds all.

        The image cannot tell these from shorter ones.
        """
        w = rows.uvw[:, 2] / self.n0
        along = np.maximum(np.abs(rows.uvw[:, 0] - w * self.l0), np.abs(rows.uvw[:, 1] - w * self.m0))
        scale = np.sort(rows.chan_freq) / SPEED_OF_LIGHT
        inside = np.searchsorted(scale, 0.5 / self.cell / np.maximum(along, 1e-300), side="right")
        longest = float(along.max() * scale[-1])
        return int((scale.size - inside).sum()), 0.5 / longest if longest else math.inf

    def slope(self) -> float:
        """The largest |dn/dl| and |dn/dm| of the image, less those of its middle."""
        half = 0.5 * self.n_pixel * self.cell
        offset = np.linspace(-half, half, 33)
        l, m = np.meshgrid(self.l0 + offset, self.m0 + offset)
        n = np.sqrt(1.0 - l * l - m * m)
        return float(max(np.abs(l / n - self.l0 / self.n0).max(), np.abs(m / n - self.m0 / self.n0).max()))


def offsets(n: int, step: float) -> NDArray[np.float64]:
    """(i - n/2) step of n pixels."""
    return np.asarray((np.arange(n) - n // 2) * step, np.float64)
