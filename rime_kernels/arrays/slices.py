"""Index arrays as slices where possible, for numpy copies what an index array selects, but not a slice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]


def as_slice(index: Index) -> slice | Index:
    """The slice that takes the same elements in the same order, or the index where there is none."""
    if index.size and np.array_equal(index, np.arange(index[0], index[0] + index.size)):
        return slice(int(index[0]), int(index[0]) + index.size)
    return index
