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

from biro.models.bound.memory import Reused
from biro.models.bound.scatter import Scatter
from biro.models.bound.slots import ResolvedSlots

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


class SIValues:
    """The numbers that arrays are gathered from: first the free parameters in SI units, then constants.

    A parameter has one place, however many quantities are tied to it. Of the constants, only those have
    a place that a `Gathered` has asked for.

    Parameters
    ----------
    resolved : ResolvedSlots

    Attributes
    ----------
    follow_theta : bool
        Whether any slot that was asked for follows a parameter.
    """

    def __init__(self, resolved: ResolvedSlots) -> None:
        self.follow_theta = False
        self._resolved = resolved
        free = np.flatnonzero(resolved.parameter_of >= 0)
        pairs = zip(resolved.parameter_of[free].tolist(), resolved.scale[free].tolist(), strict=True)
        places: dict[tuple[int, float], int] = {}
        self._place_of = np.full(resolved.base.size, -1, dtype=np.int64)
        self._place_of[free] = [places.setdefault(pair, len(places)) for pair in pairs]
        self._parameter = np.array([parameter for parameter, _ in places], dtype=np.int64)
        self._scale = np.array([scale for _, scale in places], dtype=np.float64)
        self._back = Scatter(self._parameter, len(resolved.parameters))
        self._in_order = np.array_equal(self._parameter, np.arange(len(resolved.parameters)))
        self._constants = np.zeros(0)
        self._memory = Reused()

    def index(self, slots: Index) -> Index:
        """Places of these slots among the values; a constant without a place gets one."""
        asked = np.zeros(self._place_of.size, dtype=bool)
        asked[slots] = True
        self.follow_theta = self.follow_theta or bool((self._resolved.parameter_of[asked] >= 0).any())
        new = np.flatnonzero(asked & (self._place_of < 0))
        self._place_of[new] = self._scale.size + self._constants.size + np.arange(new.size)
        self._constants = np.concatenate([self._constants, self._resolved.base[new]])
        return self._place_of[slots]

    def of(self, theta: Array) -> Array:
        """The values, float64 (n_batch, n_value), SI units, for theta (n_batch, n_param)."""
        n_free = self._scale.size
        values = self._memory.empty(theta.shape[0], n_free + self._constants.size)
        used = theta if self._in_order else theta.take(self._parameter, axis=1)
        np.multiply(used, self._scale, out=values[:, :n_free])
        values[:, n_free:] = self._constants
        return values

    def push_forward(self, changes: Array) -> Array:
        """Changes of the values, (n_change, n_value), from changes of theta (n_change, n_param)."""
        of_values = np.zeros((len(changes), self._scale.size + self._constants.size))
        of_values[:, : self._scale.size] = changes.take(self._parameter, axis=1) * self._scale
        return of_values

    @property
    def n_free(self) -> int:
        """How many values are free parameters; they come first."""
        return int(self._scale.size)

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to theta, (n_batch, n_param), from those to the free values."""
        by_theta = np.zeros((len(slopes), len(self._resolved.parameters)))
        self._back.add(by_theta, slopes * self._scale)
        return by_theta


class Gathered:
    """One array (n_batch, *shape) whose every element is a value.

    Parameters
    ----------
    values : SIValues
    slots : int, any shape
    """

    def __init__(self, values: SIValues, slots: Index) -> None:
        self._index = values.index(slots).reshape(-1)
        self._shape = slots.shape
        self._memory = Reused()
        self._back = Scatter(self._index, values.n_free)

    def __call__(self, values: Array) -> Array:
        n_batch = values.shape[0]
        array = self._memory.empty(n_batch, self._index.size)
        # Every index is valid; the mode "raise" would fill a second array first.
        values.take(self._index, axis=1, out=array, mode="clip")
        return array.reshape(n_batch, *self._shape)

    def push_forward(self, values: Array, changes: Array) -> Array:
        """The same elements, gathered from the changes of the values."""
        return self(changes)

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """Derivatives (n_batch, *shape), summed over all elements that were gathered from the same value."""
        self._back.add(into, slopes.reshape(len(into), self._index.size))


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
