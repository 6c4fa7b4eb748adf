"""Arrays gathered from theta, and back: what is constant is settled once, the rest is one `take` each.

Whatever makes an array of the columns also says how it changes with them, `push_forward`, and has the
adjoint of that, `pull_back`: it takes derivatives of a scalar with respect to the array, and adds those with
respect to the columns to an array of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.memory import Reused
from biro.models.bound.scatter import Scatter
from biro.models.bound.slots import Resolved

Array = NDArray[np.float64]
Index = NDArray[np.int64]
# Constants repeated over a batch are kept from call to call up to this size; longer ones are made anew.
_KEPT_BYTES = 1 << 24


class Function(Protocol):
    """An array (n_batch, ...) made of columns (n_batch, n_column)."""

    def __call__(self, columns: Array) -> Array:
        """The array."""

    def push_forward(self, columns: Array, changes: Array) -> Array:
        """The change of the array, (n_change, ...), with changes of columns (n_change, n_column).

        `columns` are those of each change, or one row for all.
        """

    def pull_back(self, columns: Array, slopes: Array, into: Array) -> None:
        """Add to `into` (n_batch, n_free) what derivatives with respect to the array mean for its columns."""


class Columns:
    """The numbers that arrays are gathered from, side by side: parameters in SI, then constants.

    A parameter stands there once, however many quantities are tied to it; of the constants, those that
    a `Table` asked for.

    Parameters
    ----------
    resolved : Resolved

    Attributes
    ----------
    follow_theta : bool
        Whether any slot that was asked for follows a parameter.
    """

    def __init__(self, resolved: Resolved) -> None:
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
        """Columns of these slots; constants among them get one where they have none yet."""
        asked = np.zeros(self._place_of.size, dtype=bool)
        asked[slots] = True
        self.follow_theta = self.follow_theta or bool((self._resolved.parameter_of[asked] >= 0).any())
        new = np.flatnonzero(asked & (self._place_of < 0))
        self._place_of[new] = self._scale.size + self._constants.size + np.arange(new.size)
        self._constants = np.concatenate([self._constants, self._resolved.base[new]])
        return self._place_of[slots]

    def of(self, theta: Array) -> Array:
        """float64 (n_batch, n_column) of theta (n_batch, n_param)."""
        n_free = self._scale.size
        columns = self._memory.empty(theta.shape[0], n_free + self._constants.size)
        used = theta if self._in_order else theta.take(self._parameter, axis=1)
        np.multiply(used, self._scale, out=columns[:, :n_free])
        columns[:, n_free:] = self._constants
        return columns

    def push_forward(self, changes: Array) -> Array:
        """Changes of the columns, (n_change, n_column), with those of theta (n_change, n_param)."""
        found = np.zeros((len(changes), self._scale.size + self._constants.size))
        found[:, : self._scale.size] = changes.take(self._parameter, axis=1) * self._scale
        return found

    @property
    def n_free(self) -> int:
        """How many columns follow theta; they come first."""
        return int(self._scale.size)

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to theta, (n_batch, n_param), from those to the free columns."""
        found = np.zeros((len(slopes), len(self._resolved.parameters)))
        self._back.add(found, slopes * self._scale)
        return found


class Table:
    """One array (n_batch, *shape) whose every element is a column.

    Parameters
    ----------
    columns : Columns
    slots : int, any shape
    """

    def __init__(self, columns: Columns, slots: Index) -> None:
        self._index = columns.index(slots).reshape(-1)
        self._shape = slots.shape
        self._memory = Reused()
        self._back = Scatter(self._index, columns.n_free)

    def __call__(self, columns: Array) -> Array:
        n_batch = columns.shape[0]
        found = self._memory.empty(n_batch, self._index.size)
        # Every index is there; the mode "raise" would fill a second array first.
        columns.take(self._index, axis=1, out=found, mode="clip")
        return found.reshape(n_batch, *self._shape)

    def push_forward(self, columns: Array, changes: Array) -> Array:
        """What is gathered from the changes."""
        return self(changes)

    def pull_back(self, columns: Array, slopes: Array, into: Array) -> None:
        """The adjoint: derivatives (n_batch, *shape), summed over all elements that are one column."""
        self._back.add(into, slopes.reshape(len(into), self._index.size))


class Constant:
    """An array that is the same for every theta, repeated over the batch.

    Calls of one batch size are answered with one array: nobody may write into it.

    Parameters
    ----------
    value : float64 (1, ...)
    """

    def __init__(self, value: Array) -> None:
        self._value = self._last = value

    def __call__(self, columns: Array) -> Array:
        last = self._last
        if last.shape[0] != columns.shape[0]:
            last = np.repeat(self._value, columns.shape[0], axis=0)
            if last.nbytes <= _KEPT_BYTES:
                self._last = last
        return last

    def push_forward(self, columns: Array, changes: Array) -> Array:
        """Nothing: no parameter changes it. Nobody may write into it."""
        return np.broadcast_to(0.0, (len(changes), *self._value.shape[1:]))

    def pull_back(self, columns: Array, slopes: Array, into: Array) -> None:
        """Nothing: no parameter changes it."""


def settle(resolved: Resolved, columns: Columns, build: Callable[[Columns], Function]) -> Function:
    """What `build` makes of the columns; or its one value, worked out now, if it asks for constants alone."""
    # Columns of its own: constants that are never gathered again shall not be carried along in every call.
    alone = Columns(resolved)
    function = build(alone)
    if alone.follow_theta:
        return build(columns)
    return Constant(function(alone.of(np.zeros((1, len(resolved.parameters))))))
