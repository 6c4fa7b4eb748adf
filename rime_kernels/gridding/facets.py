"""Divide an image that is too large for the memory into quarters, each with a phase centre of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.errors import InputError
from rime_kernels.gridding.grid import ImageGrid

# Pixels along an axis below which an image is not cut.
_SMALLEST = 32


class TooLargeError(InputError):
    """The grid of an image needs more memory than there is; that of a part of the image may fit."""


class Facet(NamedTuple):
    """A part of an image.

    Attributes
    ----------
    grid : ImageGrid
        Its pixels lie where they lie in the image.
    there : (slice, slice)
        Rows and columns of the image that it has.
    here : (slice, slice)
        The same in its own pixels, of which there may be more.
    """

    grid: ImageGrid
    there: tuple[slice, slice]
    here: tuple[slice, slice]

    def cut(self, image: NDArray[np.float64]) -> NDArray[np.float64]:
        """The pixels of the facet from an image (n_stokes, N, N); zeros beyond the image."""
        found = np.zeros((len(image), self.grid.n_pixel, self.grid.n_pixel))
        found[:, *self.here] = image[:, *self.there]
        return found

    def paste(self, part: NDArray[np.float64], image: NDArray[np.float64]) -> None:
        """Write the pixels of the facet into an image."""
        image[:, *self.there] = part[:, *self.here]


def quarters(grid: ImageGrid) -> Iterator[Facet]:
    """The quarters of an image; none where it is too small to be divided."""
    n = grid.n_pixel
    if n < _SMALLEST:
        return
    size = n // 2 + n // 2 % 2
    axis = (slice(0, size), slice(0, size)), (slice(size, n), slice(2 * size - n, size))
    for y, own_y in axis:
        for x, own_x in axis:
            # Of pixel (size/2, size/2), counted from the middle of the image.
            right, up = (
                there.start - own.start + size // 2 - n // 2 for there, own in ((x, own_x), (y, own_y))
            )
            middle = {"l0": grid.l0 - right * grid.cell, "m0": grid.m0 + up * grid.cell}
            yield Facet(replace(grid, n_pixel=size, **middle), (y, x), (own_y, own_x))
