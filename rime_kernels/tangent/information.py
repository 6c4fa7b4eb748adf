"""J v of whole changes, and the Fisher information Re(J^H W J)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Sources
from rime_kernels.errors import InputError
from rime_kernels.gradient import Gradient
from rime_kernels.tangent.columns import FixedInputs, check_change, columns_of

Array = NDArray[np.float64]


def tangents(fixed: FixedInputs, sources: Sources, change: Gradient) -> NDArray[np.complex128]:
    """J v, complex128 (n_change, n_row, n_chan, n_corr).

    Each change goes with the sources of its entry of the batch; with a batch of one, all with these.

    Raises
    ------
    InputError
        Arrays that are not shaped as those of the sources, another number of changes.
    """
    n_change, all_rows = check_change(sources, change), slice(None)
    if sources.n_batch == 1:
        return columns_of(fixed, sources, change).of(all_rows)
    if n_change != sources.n_batch:
        raise InputError(
            f"change must have as many entries as the batch has, {sources.n_batch}, or the batch one entry; "
            f"got {n_change}"
        )
    columns = [
        columns_of(fixed, sources.entries(b, b + 1), change.entries(b, b + 1)) for b in range(n_change)
    ]
    shape = (0, fixed.rows.n_row, fixed.rows.n_chan, fixed.rows.n_corr)
    return np.concatenate([np.zeros(shape, np.complex128), *(part.of(all_rows) for part in columns)])


def information(
    fixed: FixedInputs, weight: NDArray[np.floating], sources: Sources, change: Gradient, n_byte: int
) -> Array:
    """Re(J^H W J), float64 (n_change, n_change), of changes about one list of sources.

    Columns of J are made for some rows at a time, in about so many bytes, and multiplied by each other
    there: for n_change columns that is n_change^2 products per real number, at the speed of matrix products.
    """
    columns, n_row = columns_of(fixed, sources, change), fixed.rows.n_row
    n_each = fixed.rows.n_chan * fixed.rows.n_corr
    step = max(1, n_byte // (16 * n_each * max(1, columns.n_change)))
    fisher = np.zeros((columns.n_change, columns.n_change))
    for start in range(0, n_row, step):
        rows = slice(start, start + step)
        part = columns.of(rows)
        part *= np.sqrt(weight[rows], dtype=np.float64)
        flat = part.view(np.float64).reshape(columns.n_change, part[:1].size * 2)
        fisher += flat @ flat.T
    return fisher
