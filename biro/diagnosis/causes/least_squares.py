"""Least squares of terms of the residuals beside what the fit of the sky can do by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biro.diagnosis.causes.samples import Array, Complex, Index, ResidualSamples, parts_of

TINY = 1e-9
DEGENERATE = 1e-2
"""Part of a tangent that terms must leave free: less is the tangent itself, in other words."""


@dataclass(frozen=True, eq=False)
class NormalBlock:
    """Normal equations of terms in groups that share no sample.

    Attributes
    ----------
    matrix : float64 (n_group, n_term, n_term)
    side : float64 (n_group, n_term)
        Products of terms and residuals.
    cross : float64 (n_group, n_term, n_tangent)
        Products of terms and the tangents of the sky.
    """

    matrix: Array
    side: Array
    cross: Array

    def merged(self, into: Index) -> NormalBlock:
        """The block of groups that are made of these: `into` (n_group,) says of which each becomes a part."""
        n_group = int(into.max(initial=0)) + 1
        sums = [np.zeros((n_group, *values.shape[1:])) for values in (self.matrix, self.side, self.cross)]
        for total, values in zip(sums, (self.matrix, self.side, self.cross), strict=True):
            np.add.at(total, into, values)
        return NormalBlock(*sums)

    @property
    def n_used(self) -> int:
        """Groups with samples."""
        return int(np.count_nonzero(np.einsum("gii->g", self.matrix)))

    @property
    def n_free(self) -> int:
        """How many terms, each with one factor for all groups, are mostly within the tangents."""
        part = self.cross.sum(axis=0)
        square = np.einsum("gkk->k", self.matrix)
        return int(np.count_nonzero(np.sum(part**2, axis=1) > 0.5 * square))


@dataclass(frozen=True, eq=False)
class SolvedTerms:
    """Terms by least squares.

    Attributes
    ----------
    terms : list of float64 (n_group, n_term)
    errors : list of float64 (n_group, n_term)
        At unit noise, with the sky as it is.
    tangent : float64 (n_tangent,)
        What the sky does beside them.
    drop : float
        By how much sum |r|^2 decreases below what the sky reaches alone.
    """

    terms: list[Array]
    errors: list[Array]
    tangent: Array
    drop: float


def solve_beside(blocks: Sequence[NormalBlock], part: Array) -> SolvedTerms:
    """Solve for terms d and tangents c together: M d + B c = g and B^T d + c = t.

    With c eliminated the matrix is M - B B^T, whose inverse has the rank of the tangents more than that of M
    (Woodbury): no equation is larger than a block or the number of tangents.

    Parameters
    ----------
    blocks : sequence of NormalBlock
    part : float64 (n_tangent,)
        t, the products of tangents and residuals.
    """
    inverses, sides, errors = [], [], []
    inner, right = np.eye(len(part)), np.zeros(len(part))
    for block in blocks:
        size = block.matrix.shape[1]
        scale = np.einsum("gii->g", block.matrix) / size
        inverse = np.linalg.inv(block.matrix + (TINY * scale + 1e-300)[:, None, None] * np.eye(size))
        side = block.side - block.cross @ part
        moved = inverse @ block.cross
        flat, flat_moved = (values.reshape(side.size, len(part)) for values in (block.cross, moved))
        inner -= flat.T @ flat_moved
        right += flat_moved.T @ side.ravel()
        inverses.append(inverse)
        sides.append(side)
        errors.append(np.sqrt(np.maximum(np.einsum("gii->gi", inverse), 0.0)))
    back = np.linalg.lstsq(inner, right, rcond=DEGENERATE)[0]
    terms, tangent, drop = [], part.copy(), 0.0
    for block, inverse, side in zip(blocks, inverses, sides, strict=True):
        found = (inverse @ (side + block.cross @ back)[..., None])[..., 0]
        terms.append(found)
        tangent -= block.cross.reshape(found.size, len(part)).T @ found.ravel()
        drop += float(np.sum(found * side))
    return SolvedTerms(terms, errors, tangent, drop)


def drops_of_groups(block: NormalBlock, part: Array) -> Array:
    """The decrease by each group alone beside the tangents, float64 (n_group,)."""
    size, n_tangent = block.matrix.shape[1], len(part)
    scale = np.einsum("gii->g", block.matrix) / size
    inverse = np.linalg.inv(block.matrix + (TINY * scale + 1e-300)[:, None, None] * np.eye(size))
    side = block.side - block.cross @ part
    first = np.einsum("gst,gt->gs", inverse, side)
    drop = np.einsum("gs,gs->g", side, first)
    if n_tangent:
        inner = np.eye(n_tangent) - np.einsum("gsm,gst,gtk->gmk", block.cross, inverse, block.cross)
        right = np.einsum("gsm,gs->gm", block.cross, first)
        back = np.linalg.solve(inner + 1e-6 * np.eye(n_tangent), right[..., None])[..., 0]
        drop = drop + np.einsum("gm,gm->g", right, back)
    return np.asarray(np.maximum(drop, 0.0))


def block_of(samples: ResidualSamples, templates: Complex, cell: Index | None = None) -> NormalBlock:
    """The block of real factors of templates (n_template, n), in each cell where cells are given."""
    k, mixture = len(templates), samples.mixture
    if cell is None:
        parts = parts_of(np.asarray(templates, np.complex128))
        side, cross = parts @ parts_of(samples.residual), parts @ parts_of(samples.changes).T @ mixture.T
        return NormalBlock((parts @ parts.T)[None], side[None], cross[None])
    n_cell = int(cell.max(initial=0)) + 1
    matrix, products = np.empty((n_cell, k, k)), np.empty((n_cell, k, 1 + len(mixture)))
    for i, one in enumerate(templates):
        for j in range(i + 1):
            matrix[:, i, j] = matrix[:, j, i] = np.bincount(cell, (one.conj() * templates[j]).real, n_cell)
        products[:, i] = samples.real_sums(one, cell, n_cell)
    return NormalBlock(matrix, products[:, :, 0], products[:, :, 1:])
