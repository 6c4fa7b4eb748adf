"""The Cholesky factor of an arrowhead matrix, with what is computed from it: solutions, determinant, inverse.

With A = L L^T, rows of blocks of L are (W_k, L_k) of a segment, at the segment before and at itself, and
(U_0^T, U_1^T, ..., L_C) of the border:

    W_k = B_k L_(k-1)^-T,   L_k L_k^T = D_k - W_k W_k^T,   U_k = L_k^-1 (S_k - W_k U_(k-1)),
    L_C L_C^T = C - sum_k U_k^T U_k

(Golub & Van Loan 2013, section 4.5.3). The blocks of the inverse where A has blocks follow from A^-1 L = L^-T
from the border upwards (Takahashi, Fagan & Chen 1973, in Rue & Held 2005, section 2.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.inference.block_arrowhead.matrix import ArrowheadColumns, ArrowheadMatrix

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ArrowheadFactor:
    """L, by its blocks.

    Attributes
    ----------
    own, own_inverse : float64 (..., n_segment, m, m)
        L_k and its inverse.
    before : float64 (..., n_segment - 1, m, m), or None
        W_k from segment 1 on; None where segments are not coupled.
    side : float64 (..., n_segment, m, n_border)
        U_k.
    corner, corner_inverse : float64 (..., n_border, n_border)
        L_C and its inverse.
    """

    own: Array
    own_inverse: Array
    before: Array | None
    side: Array
    corner: Array
    corner_inverse: Array

    @classmethod
    def of(cls, arrowhead: ArrowheadMatrix) -> ArrowheadFactor:
        """The factor of a matrix.

        Raises
        ------
        numpy.linalg.LinAlgError
            It is not positive definite.
        """
        if arrowhead.below is None:
            own = _lower(arrowhead.diagonal)
            inverse = _inverse(own)
            side, before = inverse @ arrowhead.side, None
        else:
            own, inverse, before, side = _chained(arrowhead, arrowhead.below)
        corner = _lower(arrowhead.corner - (_turned(side) @ side).sum(axis=-3))
        return cls(own, inverse, before, side, corner, _inverse(corner))

    def log_det(self) -> Array:
        """ln det A, float64 of the shape of the batch."""
        inner = np.log(np.diagonal(self.own, axis1=-2, axis2=-1)).sum(axis=(-2, -1))
        outer = np.log(np.diagonal(self.corner, axis1=-2, axis2=-1)).sum(axis=-1)
        return np.asarray(2.0 * (inner + outer))

    def solve(self, parts: ArrowheadColumns) -> ArrowheadColumns:
        """A^-1 x."""
        return self.draw(self.forward(parts))

    def forward(self, parts: ArrowheadColumns) -> ArrowheadColumns:
        """L^-1 x."""
        if self.before is None:
            inner = self.own_inverse @ parts.inner
        else:
            inner = np.empty(np.broadcast_shapes(parts.inner.shape, (*self.own.shape[:-1], 1)))
            inner[..., 0, :, :] = self.own_inverse[..., 0, :, :] @ parts.inner[..., 0, :, :]
            for k in range(1, self.own.shape[-3]):
                left = self.before[..., k - 1, :, :] @ inner[..., k - 1, :, :]
                inner[..., k, :, :] = self.own_inverse[..., k, :, :] @ (parts.inner[..., k, :, :] - left)
        left = (_turned(self.side) @ inner).sum(axis=-3)
        return ArrowheadColumns(inner, self.corner_inverse @ (parts.outer - left))

    def draw(self, parts: ArrowheadColumns) -> ArrowheadColumns:
        """L^-T x: of standard normal x, draws of the normal distribution with the covariance A^-1."""
        outer = _turned(self.corner_inverse) @ parts.outer
        inner = parts.inner - self.side @ outer[..., None, :, :]
        if self.before is None:
            return ArrowheadColumns(_turned(self.own_inverse) @ inner, outer)
        for k in range(self.own.shape[-3] - 1, -1, -1):
            here = inner[..., k, :, :]
            if k < self.own.shape[-3] - 1:
                here = here - _turned(self.before[..., k, :, :]) @ inner[..., k + 1, :, :]
            inner[..., k, :, :] = _turned(self.own_inverse[..., k, :, :]) @ here
        return ArrowheadColumns(inner, outer)

    def whiten(self, parts: ArrowheadColumns) -> ArrowheadColumns:
        """L^T x: the inverse of `draw`."""
        inner = _turned(self.own) @ parts.inner + self.side @ parts.outer[..., None, :, :]
        if self.before is not None:
            inner[..., :-1, :, :] += _turned(self.before) @ parts.inner[..., 1:, :, :]
        return ArrowheadColumns(inner, _turned(self.corner) @ parts.outer)

    def inverse(self) -> ArrowheadMatrix:
        """The blocks of A^-1 where A has blocks; the rest of A^-1 is not worked out."""
        corner = _turned(self.corner_inverse) @ self.corner_inverse
        if self.before is None:
            side = -(_turned(self.own_inverse) @ self.side) @ corner[..., None, :, :]
            inner = _turned(self.own_inverse) - side @ _turned(self.side)
            return ArrowheadMatrix(inner @ self.own_inverse, None, side, corner)
        diagonal, side = np.empty(self.own.shape), np.empty(self.side.shape)
        below = np.empty(self.before.shape)
        for k in range(self.own.shape[-3] - 1, -1, -1):
            own, beside = self.own_inverse[..., k, :, :], self.side[..., k, :, :]
            to_border = beside @ corner
            is_last = k == self.own.shape[-3] - 1
            before = np.zeros_like(own) if is_last else self.before[..., k, :, :]
            if not is_last:
                to_border = to_border + _turned(before) @ side[..., k + 1, :, :]
            side[..., k, :, :] = -_turned(own) @ to_border
            here = _turned(own) - side[..., k, :, :] @ _turned(beside)
            if not is_last:
                after = diagonal[..., k + 1, :, :] @ before + side[..., k + 1, :, :] @ _turned(beside)
                below[..., k, :, :] = -after @ own
                here = here - _turned(below[..., k, :, :]) @ before
            diagonal[..., k, :, :] = here @ own
        return ArrowheadMatrix(diagonal, below, side, corner)


def _chained(arrowhead: ArrowheadMatrix, below: Array) -> tuple[Array, Array, Array, Array]:
    """L_k, their inverses, W_k and U_k, one segment after the other."""
    own, inverse = np.empty(arrowhead.diagonal.shape), np.empty(arrowhead.diagonal.shape)
    before, side = np.empty(below.shape), np.empty(arrowhead.side.shape)
    for k in range(arrowhead.diagonal.shape[-3]):
        left, beside = arrowhead.diagonal[..., k, :, :], arrowhead.side[..., k, :, :]
        if k:
            link = below[..., k - 1, :, :] @ _turned(inverse[..., k - 1, :, :])
            before[..., k - 1, :, :] = link
            left = left - link @ _turned(link)
            beside = beside - link @ side[..., k - 1, :, :]
        own[..., k, :, :] = _lower(left)
        inverse[..., k, :, :] = _inverse(own[..., k, :, :])
        side[..., k, :, :] = inverse[..., k, :, :] @ beside
    return own, inverse, before, side


def _lower(matrix: Array) -> Array:
    """Cholesky factors (..., m, m)."""
    return np.asarray(np.linalg.cholesky(matrix), np.float64)


def _inverse(lower: Array) -> Array:
    """Inverses of lower triangular matrices (..., m, m); exact zeros above the diagonal."""
    return np.tril(np.linalg.inv(lower)) if lower.shape[-1] else lower


def _turned(blocks: Array) -> Array:
    return np.swapaxes(blocks, -1, -2)
