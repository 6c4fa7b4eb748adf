"""A quantity with one number for each partition, such as the noise factor: its values and derivatives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.scatter import Scatter
from biro.models.bound.slots import ResolvedSlots

Array = NDArray[np.float64]


class PerPartition:
    """One quantity of several groups of partitions, such as the noise factor.

    Parameters
    ----------
    resolved : ResolvedSlots
    slots : int (n_partition,)
        Slot of each partition's number; either all are constant or all are free.

    Attributes
    ----------
    n_partition : int
    """

    def __init__(self, resolved: ResolvedSlots, slots: NDArray[np.int64]) -> None:
        self.n_partition = len(slots)
        self._is_free = bool(resolved.is_free(slots).all())
        self._parameter, self._scale = resolved.parameter_of[slots], resolved.scale[slots]
        self._base, self._n_param = resolved.base[slots], len(resolved.parameters)

    def __call__(self, theta: Array) -> Array:
        """The number of each partition, (n_batch, n_partition)."""
        if self._is_free:
            return np.asarray(theta.take(self._parameter, axis=1) * self._scale)
        return np.repeat(self._base[None], len(theta), axis=0)

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to theta, (n_batch, n_param), from those to the numbers."""
        found = np.zeros((len(slopes), self._n_param))
        if self._is_free:
            Scatter(self._parameter, self._n_param).add(found, slopes * self._scale)
        return found

    @property
    def parameters(self) -> dict[int, tuple[NDArray[np.bool_], float]]:
        """Of each such parameter: its partitions, bool (n_partition,), and factor per unit."""
        if not self._is_free:
            return {}
        which, scale = self._parameter, self._scale
        return {int(i): (which == i, float(scale[which == i][0])) for i in np.unique(which)}
