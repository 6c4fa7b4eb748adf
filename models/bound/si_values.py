"""All numbers of a model in SI units for a batch of theta, and arrays that are gathered from these numbers.

An array that depends on no parameter is computed once, when the model is bound; any other array is one
`take` from the values per call. Each array also has its derivative with respect to the values,
`push_forward`, and the adjoint of that, `pull_back`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.memory import LARGE, ReusedMemory
from biro.models.bound.slots import Form, ResolvedSlots
from rime_kernels.arrays.slices import as_slice

Array = NDArray[np.float64]
Index = NDArray[np.int64]
# Constants repeated over a batch are kept from call to call up to this size; longer ones are made anew.
_KEPT_BYTES = 1 << 24


class ArrayOfValues(Protocol):
    """A function from values (n_batch, n_value) to an array (n_batch, ...), with its derivative."""

    def __call__(self, values: Array) -> Array:
        """The array."""

    def push_forward(self, values: Array, changes: Array) -> Array:
        """The change of the array, (n_change, ...), that changes of the values (n_change, n_value) make.

        `values` has a row for each change, or one row for all of them.
        """

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """Add derivatives with respect to the values to `into` (n_batch, n_free).

        `slopes`, shaped like the array, are the derivatives of a number with respect to the array.
        """


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


class SIValues:
    """The numbers, in SI units, that arrays are gathered from: first those that follow parameters, constants.

        value = offset + sum of factor * parameter

    Quantities that follow the parameters alike, as those that are tied to one, have one place. Of the
    constants, only those have a place that a `IndexedValues` has asked for.

    Parameters
    ----------
    resolved : ResolvedSlots

    Attributes
    ----------
    follow_theta : bool
        Whether any slot that was asked for follows a parameter.
    n_free : int
        How many values follow parameters; they come first.
    """

    def __init__(self, resolved: ResolvedSlots) -> None:
        self.follow_theta = False
        self._resolved = resolved
        places: dict[Form, int] = {}
        self._place_of = np.full(resolved.base.size, -1, dtype=np.int64)
        for slot, form in resolved.forms.items():
            self._place_of[slot] = places.setdefault(form, len(places))
        self.n_free = len(places)
        # The multiples of one value stand side by side, and are summed as one run.
        terms = [(place, *term) for form, place in places.items() for term in form.terms]
        self._value = np.array([place for place, _, _ in terms], dtype=np.int64)
        self._parameter = np.array([parameter for _, parameter, _ in terms], dtype=np.int64)
        self._scale = np.array([scale for _, _, scale in terms], dtype=np.float64)
        self._starts = np.searchsorted(self._value, np.arange(self.n_free))
        self._offset = np.array([form.offset for form in places], dtype=np.float64)
        self._is_sum = len(terms) > self.n_free or bool(self._offset.any())
        n_param = len(resolved.parameters)
        self._back = Scatter(self._parameter, n_param)
        self._in_order = np.array_equal(self._parameter, np.arange(n_param))
        self._constants = np.zeros(0)
        self._memory = ReusedMemory()

    def index(self, slots: Index) -> Index:
        """Places of these slots among the values; a constant without a place gets one."""
        asked = np.zeros(self._place_of.size, dtype=bool)
        asked[slots] = True
        self.follow_theta = self.follow_theta or bool(self._resolved.is_free(np.flatnonzero(asked)).any())
        new = np.flatnonzero(asked & (self._place_of < 0))
        self._place_of[new] = self.n_free + self._constants.size + np.arange(new.size)
        self._constants = np.concatenate([self._constants, self._resolved.base[new]])
        return self._place_of[slots]

    def of(self, theta: Array) -> Array:
        """The values, float64 (n_batch, n_value), SI units, for theta (n_batch, n_param)."""
        shape = len(theta), self.n_free + self._constants.size
        values = np.empty(shape) if shape[0] * shape[1] < LARGE else self._memory.empty(*shape)
        if self._is_sum:
            values[:, : self.n_free] = self._sums(theta) + self._offset
        else:
            used = theta if self._in_order else theta.take(self._parameter, axis=1)
            np.multiply(used, self._scale, out=values[:, : self.n_free])
        values[:, self.n_free :] = self._constants
        return values

    def push_forward(self, changes: Array) -> Array:
        """Changes of the values, (n_change, n_value), from changes of theta (n_change, n_param)."""
        of_values = np.zeros((len(changes), self.n_free + self._constants.size))
        if self.n_free:
            of_values[:, : self.n_free] = self._sums(changes)
        return of_values

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to theta, (n_batch, n_param), from those to the values that follow it."""
        by_theta = np.zeros((len(slopes), len(self._resolved.parameters)))
        of_terms = slopes.take(self._value, axis=1) if self._is_sum else slopes
        self._back.add(by_theta, of_terms * self._scale)
        return by_theta

    def _sums(self, theta: Array) -> Array:
        """Sums of multiples of theta (n, n_param) for each value, (n, n_free), without the offsets."""
        return np.add.reduceat(theta.take(self._parameter, axis=1) * self._scale, self._starts, axis=1)


class IndexedValues:
    """One array (n_batch, *shape) whose every element is offset + scale * value.

    Parameters
    ----------
    values : SIValues
    slots : int, any shape
    scale, offset : float64, of the shape of `slots`, optional
        Default: 1 and 0.
    """

    def __init__(
        self, values: SIValues, slots: Index, scale: Array | None = None, offset: Array | None = None
    ) -> None:
        self._index = values.index(slots)
        self._memory = ReusedMemory()
        self._back = Scatter(self._index.reshape(-1), values.n_free)
        self._scale = None if scale is None or (scale == 1).all() else scale
        self._offset = None if offset is None or not offset.any() else offset

    def __call__(self, values: Array, *, with_offset: bool = True) -> Array:
        n = len(values)
        if n * self._index.size < LARGE:
            array = values.take(self._index, axis=1)
        else:
            # Every index is valid; the mode "raise" would fill a second array first.
            array = self._memory.empty(n, *self._index.shape)
            values.take(self._index, axis=1, out=array, mode="clip")
        if self._scale is not None:
            array *= self._scale
        if with_offset and self._offset is not None:
            array += self._offset
        return array

    def push_forward(self, values: Array, changes: Array) -> Array:
        """Changes of these elements, from the changes of the values."""
        return self(changes, with_offset=False)

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """Derivatives (n_batch, *shape), summed over all elements that were gathered from the same value."""
        if self._scale is not None:
            slopes = slopes * self._scale
        self._back.add(into, slopes.reshape(len(into), self._index.size))


class SumOfValues:
    """The sum of two arrays of values."""

    def __init__(self, first: IndexedValues, second: IndexedValues) -> None:
        self._first, self._second = first, second

    def __call__(self, values: Array) -> Array:
        return self._first(values) + self._second(values)

    def push_forward(self, values: Array, changes: Array) -> Array:
        """Changes of the sum."""
        return self._first.push_forward(values, changes) + self._second.push_forward(values, changes)

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """Derivatives with respect to the sum are those with respect to both."""
        self._first.pull_back(values, slopes, into)
        self._second.pull_back(values, slopes, into)


class Constant:
    """An array that is the same for every theta, repeated over the batch.

    Calls with the same batch size get the same array, which must not be written into.

    Parameters
    ----------
    value : float64 (1, ...)
    """

    def __init__(self, value: Array) -> None:
        self._value = self._last = value

    def __call__(self, values: Array) -> Array:
        last = self._last
        if last.shape[0] != values.shape[0]:
            last = np.repeat(self._value, values.shape[0], axis=0)
            if last.nbytes <= _KEPT_BYTES:
                self._last = last
        return last

    def push_forward(self, values: Array, changes: Array) -> Array:
        """Zeros, because no parameter changes the array; they must not be written into."""
        return np.broadcast_to(0.0, (len(changes), *self._value.shape[1:]))

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """Add nothing, because no parameter changes the array."""


def fold_constants(
    resolved: ResolvedSlots, values: SIValues, build: Callable[[SIValues], ArrayOfValues]
) -> ArrayOfValues:
    """The array that `build` makes; a `Constant`, computed now, if it depends on no parameter."""
    # The trial has values of its own: otherwise constants that are gathered only now, for the `Constant`,
    # would be copied in every call.
    trial = SIValues(resolved)
    array = build(trial)
    if trial.follow_theta:
        return build(values)
    return Constant(array(trial.of(np.zeros((1, len(resolved.parameters))))))
