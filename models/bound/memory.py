"""Large arrays of one call, in the memory that those of the call before had."""

from __future__ import annotations

import math
import sys
import threading

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_WORTH_IT = 1 << 13


class Reused:
    """Makes arrays like `np.empty`, in one block of memory for as long as nobody else looks at it.

    The allocator gives large blocks back to the system and fetches fresh pages for the next call, which
    takes several times longer than filling them. The block is handed out again only when all arrays in
    it are gone: the count of references to it tells. Small arrays are made anew.
    """

    def __init__(self) -> None:
        self._block = np.empty(0)
        self._alone = sys.getrefcount(self._block)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Reused], tuple[()]]:
        return Reused, ()  # memory and lock belong to the process

    def empty(self, *shape: int) -> Array:
        """A float64 array of this shape, whose elements are anything."""
        size = math.prod(shape)
        if size < _WORTH_IT:
            return np.empty(shape)
        with self._lock:
            if self._block.size < size or sys.getrefcount(self._block) > self._alone:
                self._block = np.empty(size)
            return self._block[:size].reshape(shape)
