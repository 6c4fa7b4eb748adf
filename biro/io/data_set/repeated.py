"""Rows that repeat the visibilities of another row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def repeated(
    rows: NDArray[np.int64],
    first_copy: NDArray[np.int64],
    vis: NDArray[np.complexfloating],
    usable: NDArray[np.bool_],
    turned: NDArray[np.bool_],
    crossed: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """Which visibilities repeat those of another row, bool (n_row, n_chan, n_corr).

    A row repeats another one where all visibilities that are usable in both are equal; the first that is
    usable counts. Rows of antennas (q, p) are compared with those of (p, q) by V_qp = V_pq^H.

    Parameters
    ----------
    rows : int64 (n_row,), ascending
    first_copy : int64 (n_row of the set,)
        As `RowIndex.first_copy`.
    vis, usable : (n_row, n_chan, n_corr)
    turned : bool (n_row,)
        Rows of antennas (q, p).
    crossed : int (n_corr,)
        The correlation that each becomes in V^H, as `crossed_hands`.
    """
    found = np.zeros(vis.shape, bool)
    later = np.flatnonzero(first_copy[rows] != rows)
    kept: dict[int, list[int]] = {}
    for row in later.tolist():
        first = int(np.searchsorted(rows, first_copy[rows[row]]))
        before = kept.setdefault(first, [first])
        for other in before:
            there, value = usable[other], vis[other]
            if turned[row] != turned[other]:
                there, value = there[:, crossed], value[:, crossed].conj()
            both = usable[row] & there
            if both.any() and (vis[row] == value)[both].all():
                found[row] |= both
        before.append(row)
    return found


def crossed_hands(corr_type: Sequence[str]) -> NDArray[np.intp]:
    """The place of each correlation in the Hermitian conjugate, int (n_corr,): XY and YX change places.

    A correlation whose partner is not among them keeps its place.
    """
    known = list(corr_type)
    return np.array([known.index(c[::-1]) if c[::-1] in known else i for i, c in enumerate(known)], np.intp)
