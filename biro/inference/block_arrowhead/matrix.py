"""Symmetric matrices that are block-tridiagonal with a dense border.

    A = [ D_0  B_1^T            S_0 ]
        [ B_1  D_1  B_2^T       S_1 ]
        [      B_2  D_2  ...    S_2 ]
        [           ...  ...    ... ]
        [ S_0^T S_1^T S_2^T ...  C  ]

Blocks D_k belong to segments of time, blocks B_k couple neighbours, and the border belongs to all segments.
All segments have m rows; one with fewer parameters is filled up with rows of the unit matrix
(`biro.inference.block_arrowhead.layout`), which changes neither solutions nor determinants.

Axes in front of those that are named here are batches of matrices, as for `numpy.linalg`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class ArrowheadColumns(NamedTuple):
    """Factors of an arrowhead matrix: float64 (..., n_segment, m, n_col) and (..., n_border, n_col)."""

    inner: Array
    outer: Array


@dataclass(frozen=True, eq=False)
class ArrowheadMatrix:
    """A, by its blocks.

    Attributes
    ----------
    diagonal : float64 (..., n_segment, m, m)
        D.
    below : float64 (..., n_segment - 1, m, m), or None
        B, that of segment k + 1 first in the rows; None where segments are not coupled.
    side : float64 (..., n_segment, m, n_border)
        S.
    corner : float64 (..., n_border, n_border)
        C.
    """

    diagonal: Array
    below: Array | None
    side: Array
    corner: Array

    def __add__(self, other: ArrowheadMatrix) -> ArrowheadMatrix:
        """The sum of two matrices of one layout."""
        below = self.below if other.below is None else other.below
        if self.below is not None and other.below is not None:
            below = self.below + other.below
        return ArrowheadMatrix(
            self.diagonal + other.diagonal, below, self.side + other.side, self.corner + other.corner
        )

    def product(self, parts: ArrowheadColumns) -> ArrowheadColumns:
        """A x."""
        inner = self.diagonal @ parts.inner + self.side @ parts.outer[..., None, :, :]
        if self.below is not None:
            inner[..., 1:, :, :] += self.below @ parts.inner[..., :-1, :, :]
            inner[..., :-1, :, :] += _turned(self.below) @ parts.inner[..., 1:, :, :]
        outer = self.corner @ parts.outer + (_turned(self.side) @ parts.inner).sum(axis=-3)
        return ArrowheadColumns(inner, outer)

    def main_diagonal(self) -> ArrowheadColumns:
        """The numbers on the diagonal of A, as one column."""
        inner, outer = (
            np.diagonal(block, axis1=-2, axis2=-1)[..., None] for block in (self.diagonal, self.corner)
        )
        return ArrowheadColumns(inner, outer)

    def scaled(self, by: ArrowheadColumns) -> ArrowheadMatrix:
        """diag(x) A diag(x), for one column x."""
        inner, outer = by.inner, by.outer
        below = self.below
        if below is not None:
            below = inner[..., 1:, :, :] * below * _turned(inner[..., :-1, :, :])
        return ArrowheadMatrix(
            inner * self.diagonal * _turned(inner),
            below,
            inner * self.side * _turned(outer)[..., None, :, :],
            outer * self.corner * _turned(outer),
        )

    def dense(self) -> Array:
        """A as a whole, float64 (n, n) with n = n_segment m + n_border, of one matrix."""
        n_segment, m, n_border = self.side.shape
        whole = np.zeros((n_segment * m + n_border,) * 2)
        for k in range(n_segment):
            own = slice(k * m, (k + 1) * m)
            whole[own, own] = self.diagonal[k]
            whole[own, n_segment * m :] = self.side[k]
            whole[n_segment * m :, own] = self.side[k].T
            if k and self.below is not None:
                before = slice((k - 1) * m, k * m)
                whole[own, before] = self.below[k - 1]
                whole[before, own] = self.below[k - 1].T
        whole[n_segment * m :, n_segment * m :] = self.corner
        return whole


def _turned(blocks: Array) -> Array:
    return np.swapaxes(blocks, -1, -2)
