"""Large arrays that each call needs for a short time, in memory that is kept from call to call."""

from __future__ import annotations

import math
import sys
import threading

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LARGE = 1 << 13
"""Elements from which on an array is worth it."""


class ReusedMemory:
    """Makes arrays like `np.empty`, in a block of memory that is used again once no array is in it.

    The allocator of Python returns large blocks to the system and fetches fresh pages for the next call,
    which takes several times longer than filling them. The number of references to the block tells whether
    all arrays in it are gone. Small arrays get memory of their own.
    """

    def __init__(self) -> None:
        self._block = np.empty(0)
        self._alone = sys.getrefcount(self._block)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ReusedMemory], tuple[()]]:
        return ReusedMemory, ()  # memory and lock belong to the process

    def empty(self, *shape: int) -> Array:
        """A float64 array of this shape, whose elements are anything."""
        size = math.prod(shape)
        if size < LARGE:
            return np.empty(shape)
        with self._lock:
            if self._block.size < size or sys.getrefcount(self._block) > self._alone:
                self._block = np.empty(size)
            return self._block[:size].reshape(shape)

    def complex(self, *shape: int) -> NDArray[np.complex128]:
        """A complex128 array likewise."""
        return self.empty(*shape, 2).view(np.complex128)[..., 0]
