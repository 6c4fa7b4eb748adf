"""The adjoint of taking elements by an index."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays.slices import as_slice

Index = NDArray[np.int64]


class Scatter:
    """The adjoint of `take` along the second axis: what was taken is added to where it came from.

    Parameters
    ----------
    index : int (n,)
        Where each element was taken from; those of at least `size` are dropped.
    size : int
    """

    def __init__(self, index: Index, size: int) -> None:
        used = np.flatnonzero(index < size)
        order = np.argsort(index[used], kind="stable")
        taken = used[order]
        # Elements that came from one place stand side by side, and are summed as one run.
        places, self._starts = np.unique(index[taken], return_index=True)
        self._is_sum = places.size < taken.size
        self._n_place, self._taken, self._places = places.size, as_slice(taken), as_slice(places)

    def add(self, into: NDArray[np.float64], elements: NDArray[np.float64]) -> None:
        """into[:, index] += elements, where places may be there several times; (n_batch, n) elements."""
        if not self._n_place:
            return
        taken = elements[:, self._taken]
        into[:, self._places] += np.add.reduceat(taken, self._starts, axis=1) if self._is_sum else taken
