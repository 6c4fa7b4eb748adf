"""Rows that repeat the visibilities of another row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def repeated(
    rows: NDArray[np.int64],
    first_copy: NDArray[np.int64],
    vis: NDArray[np.complexfloating],
    usable: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Which visibilities repeat those of another row, bool (n_row, n_chan, n_corr).

    A row repeats another one where all visibilities that are usable in both are equal; the first that is
    usable counts.

    Parameters
    ----------
    rows : int64 (n_row,), ascending
    first_copy : int64 (n_row of the set,)
        As `RowIndex.first_copy`.
    vis, usable : (n_row, n_chan, n_corr)
    """
    found = np.zeros(vis.shape, bool)
    later = np.flatnonzero(first_copy[rows] != rows)
    kept: dict[int, list[int]] = {}
    for row in later.tolist():
        first = int(np.searchsorted(rows, first_copy[rows[row]]))
        before = kept.setdefault(first, [first])
        for other in before:
            both = usable[row] & usable[other]
            if both.any() and (vis[row] == vis[other])[both].all():
                found[row] |= both
        before.append(row)
    return found
