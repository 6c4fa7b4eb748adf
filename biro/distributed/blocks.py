"""Visibilities and weights of a partition in blocks of rows: in the memory of this process, or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays.slices import as_slice
from rime_kernels.choices import Backend
from rime_kernels.engine.shards import shards_of

if TYPE_CHECKING:
    from rime_kernels import Rime
    from rime_kernels.arrays import Sources

T = TypeVar("T")
Vis = NDArray[np.complexfloating]
Weight = NDArray[np.floating]
Rows = NDArray[np.int64]


class Blocks(Protocol):
    """Visibilities and weights in blocks of rows, which functions see one after the other.

    Functions are those of modules, since they are done where the data are. What a block consists of may also
    be another tuple than visibilities and weights (`made`).
    """

    @property
    def rows(self) -> Sequence[Rows | None]:
        """Rows of each block; None for all rows."""
        ...

    def by_block(
        self, function: Callable[..., T], *arguments: object, each: Sequence[Any] | None = None
    ) -> list[T]:
        """What `function` makes of the items of a block, the item of `each` if given, and `arguments`."""
        ...

    def replaced(
        self,
        function: Callable[..., tuple[Any, ...]],
        *arguments: object,
        each: Sequence[Any] | None = None,
        into: Sequence[Rows] | None = None,
    ) -> tuple[Blocks, list[Any]]:
        """Visibilities and weights that a function makes of those of each block, and lie where these did.

        What the function gives as a third is returned, by block. `into` are the rows of the new blocks, where
        they are others.
        """
        ...

    def made(
        self, function: Callable[..., tuple[Any, ...]], *arguments: object, each: Sequence[Any] | None = None
    ) -> Blocks:
        """Any tuple that a function makes of each block, which lies where the block does."""
        ...

    def together(
        self,
        function: Callable[..., Sequence[tuple[Any, ...]]],
        *arguments: object,
        each: Sequence[Any],
    ) -> Blocks:
        """Tuples that a function makes of all items of one process in one call.

        It gives a tuple for each block, in their order. That saves work which blocks share.
        """
        ...

    def total(
        self,
        function: Callable[..., Sequence[NDArray[np.float64]]],
        *arguments: object,
        most: Callable[[], Sequence[float]],
        each: Sequence[Any] | None = None,
    ) -> list[NDArray[np.float64]]:
        """Sums over blocks of arrays that a function gives, the same to the bit wherever the blocks are.

        Parameters
        ----------
        most : function
            Gives what no sum of magnitudes over blocks exceeds, for each array. It is called where rounding
            depends on that.
        """
        ...

    def predicted(self, rime: Rime, sources: Sources) -> Blocks:
        """Model visibilities of the sources, by a `Rime` that was made with `rows_for_rime`."""
        ...

    def array(self, number: int, n_row: int) -> Any:
        """One of the arrays that blocks consist of, of all rows; a `RemoteArray` where it lies elsewhere."""
        ...

    def fields(self, n_row: int) -> dict[str, Any]:
        """The attributes of a partition with these visibilities and weights."""
        ...

    def rows_for_rime(self) -> dict[str, Any]:
        """Arguments of a `Rime` that predicts where the blocks are."""
        ...

    def on_devices(self, backend: Backend) -> Blocks:
        """Blocks whose functions use the device of the process that they are done in.

        Raises
        ------
        BackendError
            Processes have different backends.
        """
        ...


def cut_rows(time_index: NDArray[np.int32], n_time: int) -> tuple[Rows, ...]:
    """The rows of each block, in the order of time: whole time slots that follow from the rows alone."""
    return shards_of(time_index, n_time)


def split(values: Any, rows: Sequence[Rows | None]) -> list[Any]:
    """An array with an axis of rows by block, for `each`; None gives None for each.

    Of a `RemoteArray`, each block is what gives its values where they are.
    """
    if hasattr(values, "split"):
        return list(values.split())
    if values is None:
        return [None] * len(rows)
    return [values if own is None else values[as_slice(own)] for own in rows]


@dataclass(frozen=True)
class LocalBlocks:
    """Blocks of arrays in the memory of this process; see `Blocks`.

    Attributes
    ----------
    arrays : tuple
        Visibilities and weights of all rows; or what a function has made of them.
    block_rows : sequence of int64 (n_row,), optional
        Default: one block of all rows.
    """

    arrays: tuple[Any, ...]
    block_rows: Sequence[Rows] | None = None

    @property
    def rows(self) -> Sequence[Rows | None]:
        """Give one block: all rows."""
        return (None,) if self.block_rows is None else self.block_rows

    def _each(self, each: Sequence[Any] | None) -> Iterator[tuple[Any, ...]]:
        """The items of each block, with that of `each`; arrays are views where rows are neighbours."""
        own = [()] * len(self.rows) if each is None else [(item,) for item in each]
        for rows, item in zip(self.rows, own, strict=True):
            arrays = self.arrays if rows is None else tuple(values[as_slice(rows)] for values in self.arrays)
            yield (*arrays, *item)

    def by_block(
        self, function: Callable[..., T], *arguments: object, each: Sequence[Any] | None = None
    ) -> list[T]:
        """Call the function here."""
        return [function(*items, *arguments) for items in self._each(each)]

    def replaced(
        self,
        function: Callable[..., tuple[Any, ...]],
        *arguments: object,
        each: Sequence[Any] | None = None,
        into: Sequence[Rows] | None = None,
    ) -> tuple[LocalBlocks, list[Any]]:
        """Make the arrays here."""
        assert into is None or self.block_rows is None, "rows change of all at once"
        whole, found = list(self.arrays), []
        for rows, items in zip(self.rows, self._each(each), strict=True):
            *made, also = function(*items, *arguments)
            found.append(also)
            for k, (old, new) in enumerate(zip(items, made, strict=False)):
                if new is old:  # such as visibilities where weights change alone
                    continue
                if rows is None:
                    whole[k] = new
                    continue
                if len(found) == 1:
                    whole[k] = np.empty((len(self.arrays[k]), *new.shape[1:]), new.dtype)
                whole[k][as_slice(rows)] = new
        return LocalBlocks(tuple(whole)), found

    def made(
        self, function: Callable[..., tuple[Any, ...]], *arguments: object, each: Sequence[Any] | None = None
    ) -> LocalBlocks:
        """Make a tuple of the one block here."""
        (found,) = self.by_block(function, *arguments, each=each)
        return LocalBlocks(found)

    def together(
        self,
        function: Callable[..., Sequence[tuple[Any, ...]]],
        *arguments: object,
        each: Sequence[Any],
    ) -> LocalBlocks:
        """Make a tuple of the one block here."""
        (found,) = function(each, *arguments)
        return LocalBlocks(found)

    def total(
        self,
        function: Callable[..., Sequence[NDArray[np.float64]]],
        *arguments: object,
        most: Callable[[], Sequence[float]],
        each: Sequence[Any] | None = None,
    ) -> list[NDArray[np.float64]]:
        """Call the function for the one block."""
        return [
            sum(arrays[1:], arrays[0])
            for arrays in zip(*self.by_block(function, *arguments, each=each), strict=True)
        ]

    def predicted(self, rime: Rime, sources: Sources) -> LocalBlocks:
        """Predict the visibilities here."""
        return LocalBlocks((rime.predict(sources)[0],))

    def array(self, number: int, n_row: int) -> Any:
        """Give the array itself."""
        return self.arrays[number]

    def fields(self, n_row: int) -> dict[str, Any]:
        """Give visibilities and weights of all rows."""
        vis, weight = self.arrays
        return {"vis": vis, "weight": weight, "distributed": None}

    def rows_for_rime(self) -> dict[str, Any]:
        """Give no arguments: the rows are here."""
        return {}

    def on_devices(self, backend: Backend) -> LocalBlocks:
        """Give these blocks: a process has one device."""
        return self


Channels = slice | Rows


def some_of(values: NDArray[Any], rows: Rows, channels: Channels) -> NDArray[Any]:
    """A copy of some rows and channels of an array (n_row, n_chan, n_corr)."""
    if isinstance(channels, slice):
        return np.asarray(values[:, channels][rows])
    return np.asarray(values[np.ix_(rows, channels)])


def taken(
    blocks: Blocks,
    block_rows: Sequence[Rows],
    likes: Mapping[int, Any],
    rows: Rows,
    channels: Channels,
) -> list[NDArray[Any]]:
    """Some rows and channels of arrays in blocks, in the memory of this process.

    Parameters
    ----------
    blocks : Blocks
    block_rows : sequence of int64 (n_row of the block,)
        Rows of each.
    likes : mapping of int
        The arrays that are wanted, by their place among those of a block, as shapes and types of all rows.
    rows : int64 (n_taken,)
        Each once, in any order.
    channels : slice or int64 (n_chan taken,)

    Returns
    -------
    list of array (n_taken, n_chan taken, n_corr)
    """
    _, n_chan, n_corr = next(iter(likes.values())).shape
    shape = rows.size, np.arange(n_chan)[channels].size, n_corr
    found = [np.empty(shape, like.dtype) for like in likes.values()]
    place = np.full(sum(own.size for own in block_rows), -1)
    place[rows] = np.arange(rows.size)
    wanted = [np.flatnonzero(place[own] >= 0) for own in block_rows]
    parts = blocks.by_block(_some_of, channels, tuple(likes), each=wanted)
    for own, which, part in zip(block_rows, wanted, parts, strict=True):
        for whole, values in zip(found, part, strict=True):
            whole[place[own[which]]] = values
    return found


def _some_of(*given: Any) -> list[NDArray[Any]]:
    *arrays, rows, channels, numbers = given
    return [some_of(arrays[i], rows, channels) for i in numbers]
