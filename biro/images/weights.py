"""Weights of visibilities in an image: natural, uniform and Briggs weighting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.observation.partition import Partition
from rime_kernels.physics.phase import SPEED_OF_LIGHT

Weighting = Literal["natural", "uniform", "briggs"]
Array = NDArray[np.float64]


def image_weights(
    parts: Sequence[Partition], natural: Sequence[Array], field: float, weighting: Weighting, robust: float
) -> list[Array]:
    """Weights of visibilities in an image.

    With w_i the weight of visibility i by its noise, and W_k the sum of these over the cell k of the uv plane
    that it lies in, on a grid of 1/field wavelengths,

        natural    w_i
        uniform    w_i / W_k
        briggs     w_i / (1 + f^2 W_k),    f^2 = (5 10^-robust)^2 / (sum_k W_k^2 / sum_i w_i)

    (D. S. Briggs, PhD thesis, New Mexico Tech 1995, chapter 3; as in CASA's tclean). Each visibility
    counts at (u, v) and at (-u, -v), which are one cell here. All partitions and channels share the grid.

    Parameters
    ----------
    parts : sequence of Partition
    natural : sequence of float64 (n_row, n_chan)
    field : float
        Extent of the image, direction cosine.
    weighting : "natural", "uniform" or "briggs"
    robust : float
        -2 (close to uniform) to 2 (close to natural); for "briggs".

    Returns
    -------
    list of float64 (n_row, n_chan)

    Raises
    ------
    InputError
        Another weighting, or robust outside of -2 .. 2.
    """
    if weighting not in get_args(Weighting):
        raise InputError(f"weighting must be natural, uniform or briggs, got {weighting!r}")
    if weighting == "briggs" and not -2.0 <= robust <= 2.0:
        raise InputError(f"robust must lie in -2 (uniform) .. 2 (natural), got {robust}")
    if weighting == "natural":
        return list(natural)
    size = _half_size(parts, field)
    density = np.zeros((size + 1) * (2 * size + 1))
    for i, c, cell in _cells(parts, field, size):
        density += np.bincount(cell, natural[i][:, c], minlength=density.size)
    total = sum(float(weight.sum()) for weight in natural)
    f2 = (5.0 * 10.0**-robust) ** 2 / (float(density @ density) / total)
    out = [np.zeros_like(weight) for weight in natural]
    for i, c, cell in _cells(parts, field, size):
        sum_in_cell = density[cell]
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
