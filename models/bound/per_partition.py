"""A quantity with one number for each partition, such as the noise factor: its values and derivatives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.si_values import Scatter
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
    fixed : float64 (1, n_partition) or None
        The numbers, where none follows a parameter.
    """

    def __init__(self, resolved: ResolvedSlots, slots: NDArray[np.int64]) -> None:
        self.n_partition = len(slots)
        self._forms = [resolved.form(slot) for slot in slots.tolist()]
        self._base, self._n_param = resolved.base[slots], len(resolved.parameters)
        terms = [(i, *term) for i, form in enumerate(self._forms) for term in form.terms]
        self._row = np.array([row for row, _, _ in terms], dtype=np.int64)
        self._parameter = np.array([parameter for _, parameter, _ in terms], dtype=np.int64)
        self._into_rows = Scatter(self._row, self.n_partition)
        self._into_theta = Scatter(self._parameter, self._n_param)
        self._scale = np.array([scale for _, _, scale in terms], dtype=np.float64)
        self.fixed: Array | None = None if terms else self._base[None]

    def __call__(self, theta: Array) -> Array:
        """The number of each partition, (n_batch, n_partition)."""
        found = np.repeat(self._base[None], len(theta), axis=0)
        if self.fixed is not None:
            return found
        of_terms = theta.take(self._parameter, axis=1) * self._scale
        self._into_rows.add(found, of_terms)
        return found

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to theta, (n_batch, n_param), from those to the numbers."""
        found = np.zeros((len(slopes), self._n_param))
        if self.fixed is not None:
            return found
        of_terms = slopes.take(self._row, axis=1) * self._scale
        self._into_theta.add(found, of_terms)
        return found

    @property
    def parameters(self) -> dict[int, tuple[NDArray[np.bool_], float]]:
        """For each parameter that is such a number, its partitions, bool (n_partition,), and factor per unit.

        Not of those that numbers follow in another way, as a sum or as multiples that differ.
        """
        found: dict[int, tuple[NDArray[np.bool_], float]] = {}
        for i in sorted({parameter for form in self._forms for parameter in form.parameters}):
            own = np.array([i in form.parameters for form in self._forms])
            forms = {form for form in self._forms if i in form.parameters}
            if len(forms) == 1 and (form := forms.pop()).is_multiple:
                found[i] = own, form.terms[0][1]
        return found
