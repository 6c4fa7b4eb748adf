"""Weights of visibilities in an image: natural, uniform and Briggs weighting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from biro.choices import Weighting
from biro.observation.partition import Partition
from rime_kernels.physics.phase import SPEED_OF_LIGHT

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class UvDensity:
    """Sum of weights in each cell of the uv plane.

    Each visibility counts at (u, v) and at (-u, -v), which are one cell here. All partitions and channels
    share the grid.

    Attributes
    ----------
    field : float
        One over the size of a cell in wavelengths: the extent of the image, direction cosine.
    half_size : int
        Cells from the middle of the grid to its edge.
    cells : float64 (n_cell,), 1/Jy^2
        W_k of the half plane v >= 0.
    total : float, 1/Jy^2
        Sum of all weights.
    """

    field: float
    half_size: int
    cells: Array
    total: float

    @classmethod
    def of(cls, parts: Sequence[Partition], natural: Sequence[Array], field: float) -> UvDensity:
        """The density of visibilities with weights float64 (n_row, n_chan) for each partition."""
        density = cls.empty(parts, field)
        for part, weight in zip(parts, natural, strict=True):
            density.add(part, weight)
        return replace(density, total=sum(float(weight.sum()) for weight in natural))

    @classmethod
    def empty(cls, parts: Sequence[Partition], field: float) -> UvDensity:
        """A grid that holds the baselines of some partitions, with sums of 0."""
        half_size = _half_size(parts, field)
        return cls(field, half_size, np.zeros((half_size + 1) * (2 * half_size + 1)), 0.0)

    def add(self, part: Partition, natural: Array) -> None:
        """Add weights to the cells."""
        for _, c, cell in _cells([part], self.field, self.half_size):
            self.cells[...] += np.bincount(cell, natural[:, c], minlength=self.cells.size)


def image_weights(
    parts: Sequence[Partition],
    natural: Sequence[Array],
    field: float,
    weighting: Weighting,
    robust: float,
    density: UvDensity | None = None,
) -> list[Array]:
    """Weights of visibilities in an image.

    With w_i the weight of visibility i by its noise, and W_k the sum of these over the cell k of the uv plane
    that it lies in,

        natural    w_i
        uniform    w_i / W_k
        briggs     w_i / (1 + f^2 W_k),    f^2 = (5 10^-robust)^2 / (sum_k W_k^2 / sum_i w_i)

    (D. S. Briggs, PhD thesis, New Mexico Tech 1995, chapter 3; as in CASA's tclean).

    Parameters
    ----------
    parts : sequence of Partition
    natural : sequence of float64 (n_row, n_chan)
    field : float
        Extent of the image, direction cosine.
    weighting : "natural", "uniform" or "briggs"
    robust : float
        -2 (close to uniform) to 2 (close to natural); for "briggs".
    density : UvDensity, optional
        Of all visibilities of the cube that these are a plane of; by default, that of these.

    Returns
    -------
    list of float64 (n_row, n_chan)
    """
    if weighting == "natural":
        return list(natural)
    density = density or UvDensity.of(parts, natural, field)
    f2 = (5.0 * 10.0**-robust) ** 2 / (float(density.cells @ density.cells) / density.total)
    out = [np.zeros_like(weight) for weight in natural]
    for i, c, cell in _cells(parts, density.field, density.half_size):
        sum_in_cell = density.cells[cell]
        divisor = sum_in_cell if weighting == "uniform" else 1.0 + f2 * sum_in_cell
        np.divide(natural[i][:, c], divisor, out=out[i][:, c], where=sum_in_cell > 0.0)
    return out


def _half_size(parts: Sequence[Partition], field: float) -> int:
    """Cells from the middle of the grid to its edge."""
    reach = max(
        float(np.abs(part.uvw[:, :2]).max(initial=0.0)) * float(part.chan_freq.max()) / SPEED_OF_LIGHT
        for part in parts
    )
    return round(reach * field) + 1


def _cells(
    parts: Sequence[Partition], field: float, size: int
) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """Yield the index of a partition, of a channel, and the cell of each row in the half plane v >= 0."""
    for i, part in enumerate(parts):
        for c, nu in enumerate(part.chan_freq):
            u, v = np.rint(part.uvw[:, :2].T * (nu / SPEED_OF_LIGHT * field)).astype(np.int64)
            is_lower = (v < 0) | ((v == 0) & (u < 0))
            u, v = np.where(is_lower, -u, u), np.where(is_lower, -v, v)
            yield i, c, v * (2 * size + 1) + u + size
