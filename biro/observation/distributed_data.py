"""Visibilities and weights of a partition that lie elsewhere: each shard with the process that holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from rime_kernels.engine.sharded import HeldData, OnShardDone, Ranks

T = TypeVar("T")
Vis = NDArray[np.complexfloating]
Weight = NDArray[np.floating]


class DistributedData(HeldData, Protocol):
    """What a partition asks of the processes that hold its visibilities and weights.

    Functions are those of modules: they are done where the data are, and see those of one shard. What is held
    of a shard may also be another tuple than visibilities and weights (`made`).
    """

    rows: Sequence[NDArray[np.int64]] | None
    """Rows of each shard, where they are others than those that follow from the rows alone."""
    folder: str | None
    """Where data lie in files; None where they are in memory."""

    @property
    def ranks(self) -> Ranks:
        """The processes."""
        ...

    def by_shard(
        self, function: Callable[..., T], *arguments: object, each: Sequence[Any] | None = None
    ) -> list[T]:
        """What `function` makes of vis, weight, the item of `each` if given, and `arguments`, by shard."""
        ...

    def replaced(
        self,
        function: Callable[..., tuple[Vis, Weight, T]],
        *arguments: object,
        each: Sequence[Any] | None = None,
    ) -> tuple[DistributedData, list[T]]:
        """Visibilities and weights that a function makes of those of each shard, held in the same way.

        What it gives as a third is returned, by shard.
        """
        ...

    def made(
        self, function: Callable[..., tuple[Any, ...]], *arguments: object, each: Sequence[Any] | None = None
    ) -> DistributedData:
        """Any tuple that a function makes of what is held of each shard, held in the same way."""
        ...

    def together(
        self,
        function: Callable[..., Sequence[tuple[Any, ...]]],
        *arguments: object,
        each: Sequence[Any],
    ) -> DistributedData:
        """Tuples that a function makes of all items of one process in one call, held in the same way.

        It gives a tuple for each, in their order. That saves work which shards share.
        """
        ...

    def kept(self, run: Callable[[OnShardDone], None]) -> DistributedData:
        """What a computation finds for each shard, held in the same way as visibilities without weights.

        Parameters
        ----------
        run : function of an `OnShardDone`
            Computes, and has that called with complex (1, n_row of the shard, n_chan, n_corr).
        """
        ...

    def total(
        self,
        function: Callable[..., Sequence[NDArray[np.float64]]],
        *arguments: object,
        most: Sequence[float],
        each: Sequence[Any] | None = None,
    ) -> list[NDArray[np.float64]]:
        """Sums over shards of arrays that a function gives, the same to the bit whoever holds the shards.

        Parameters
        ----------
        most : sequence of float
            What no sum of magnitudes over shards exceeds, of each array. Sums are rounded to 2^-60 of it.
        """
        ...


class RemoteArray:
    """Stands for an array that lies elsewhere: its shape and type are known, its values are not.

    Parameters
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    distributed : DistributedData, optional
        What holds it by shard, where it is a model of visibilities; those of a partition are in its
        `distributed`.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], distributed: DistributedData | None = None
    ) -> None:
        self.shape, self.dtype, self.size = shape, dtype, int(np.prod(shape))
        self.nbytes, self.distributed = self.size * dtype.itemsize, distributed

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise InputError(
            "these values are distributed over MPI processes; use by_shard, taken or whole of the partition, "
            "or pass the model to write_column or image as it is"
        )


Rows = NDArray[np.int64]
Channels = slice | Rows


def taken(
    distributed: DistributedData,
    shards: Sequence[Rows],
    likes: Mapping[int, Any],
    rows: Rows,
    channels: Channels,
) -> list[NDArray[Any]]:
    """Some rows and channels of arrays that lie elsewhere, in the memory of this process.

    Parameters
    ----------
    distributed : DistributedData
    shards : sequence of int64 (n_row of the shard,)
        Rows of each.
    likes : mapping of int
        The arrays that are wanted, by their place among those of a shard, as shapes and types of all rows.
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
    place = np.full(sum(own.size for own in shards), -1)
    place[rows] = np.arange(rows.size)
    wanted = [np.flatnonzero(place[own] >= 0) for own in shards]
    parts = distributed.by_shard(_some_of, channels, tuple(likes), each=wanted)
    for own, which, part in zip(shards, wanted, parts, strict=True):
        for whole, values in zip(found, part, strict=True):
            whole[place[own[which]]] = values
    return found


def some_of(values: NDArray[Any], rows: Rows, channels: Channels) -> NDArray[Any]:
    """A copy of some rows and channels of an array (n_row, n_chan, n_corr)."""
    if isinstance(channels, slice):
        return np.asarray(values[:, channels][rows])
    return np.asarray(values[np.ix_(rows, channels)])


def _some_of(*given: Any) -> list[NDArray[Any]]:
    *arrays, rows, channels, numbers = given
    return [some_of(arrays[i], rows, channels) for i in numbers]
