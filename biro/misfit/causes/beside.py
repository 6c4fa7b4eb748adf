"""Least squares of terms of the residuals beside what the fit of the sky can do by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biro.misfit.causes.samples import Array, Complex, Index, Samples, parts_of

TINY = 1e-9
DEGENERATE = 1e-2
"""Part of a tangent that terms must leave free: less is the tangent itself, in other words."""


@dataclass(frozen=True, eq=False)
class Block:
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


@dataclass(frozen=True, eq=False)
class Solved:
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


def solve_beside(blocks: Sequence[Block], part: Array) -> Solved:
    """Solve for terms d and tangents c together: M d + B c = g and B^T d + c = t.

    With c eliminated the matrix is M - B B^T, whose inverse has the rank of the tangents more than that of M
    (Woodbury): no equation is larger than a block or the number of tangents.

    Parameters
    ----------
    blocks : sequence of Block
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
        inner -= np.einsum("gsm,gsk->mk", block.cross, moved)
        right += np.einsum("gsm,gs->m", moved, side)
        inverses.append(inverse)
        sides.append(side)
        errors.append(np.sqrt(np.maximum(np.einsum("gii->gi", inverse), 0.0)))
    back = np.linalg.lstsq(inner, right, rcond=DEGENERATE)[0]
    terms, tangent, drop = [], part.copy(), 0.0
    for block, inverse, side in zip(blocks, inverses, sides, strict=True):
        found = np.einsum("gst,gt->gs", inverse, side + block.cross @ back)
        terms.append(found)
        tangent -= np.einsum("gsm,gs->m", block.cross, found)
        drop += float(np.sum(found * side))
    return Solved(terms, errors, tangent, drop)


def drops_of_groups(block: Block, part: Array) -> Array:
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


def block_of(samples: Samples, templates: Complex, cell: Index | None = None) -> Block:
    """The block of real factors of templates (n_template, n), in each cell where cells are given."""
    where = np.zeros(samples.n, np.int64) if cell is None else cell
    n_cell, k = int(where.max(initial=0)) + 1, len(templates)
    values = (samples.residual, *samples.tangents)
    if cell is None:
        parts = parts_of(np.asarray(templates, np.complex128))
        products = parts @ parts_of(np.array(values)).T
        return Block((parts @ parts.T)[None], products[None, :, 0], products[None, :, 1:])
    matrix, products = np.empty((n_cell, k, k)), np.empty((n_cell, k, len(values)))
    for i, one in enumerate(templates):
        for j in range(i + 1):
            matrix[:, i, j] = matrix[:, j, i] = np.bincount(where, (one.conj() * templates[j]).real, n_cell)
        for j, each in enumerate(values):
            products[:, i, j] = np.bincount(where, (one.conj() * each).real, n_cell)
    return Block(matrix, products[:, :, 0], products[:, :, 1:])
