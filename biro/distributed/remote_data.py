"""Visibilities and weights that lie elsewhere: each block with the process that holds it, or in files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.distributed.blocks import Blocks, Channels, Rows, some_of, taken
from biro.errors import InputError
from rime_kernels.engine.sharded import DataOf, HeldData, Ranks

T = TypeVar("T")


class DistributedData(Blocks, HeldData, Protocol):
    """What a partition asks of the processes that hold its visibilities and weights."""

    folder: str | None
    """Where data lie in files; None where they are in memory."""

    @property
    def rows(self) -> Sequence[Rows]:
        """Rows of each block."""
        ...

    @property
    def ranks(self) -> Ranks:
        """The processes."""
        ...


class RemoteArray:
    """Stands for an array that lies elsewhere: its shape and type are known, its values are not.

    Parameters
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    distributed : DistributedData
        What holds it by block.
    number : int
        Its place among the arrays of a block.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], distributed: DistributedData, number: int = 0
    ) -> None:
        self.shape, self.dtype, self.size = shape, dtype, int(np.prod(shape))
        self.nbytes, self.distributed, self._number = self.size * dtype.itemsize, distributed, number

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise InputError(
            "these values are distributed over MPI processes; use by_block, taken or whole of the partition, "
            "or pass the model to write_column or image as it is"
        )

    def __add__(self, other: RemoteArray) -> RemoteArray:
        """The sum of two models of the same rows, which lies where the first does."""
        made = self.distributed.made(_added, each=other.split())
        found: RemoteArray = made.array(0, self.shape[0])
        return found

    def split(self) -> list[DataOf | None]:
        """What gives each block where it is; of visibilities, with the weights."""
        return [self.distributed.of(block) for block in range(len(self.distributed.rows))]

    def by_block(self, function: Callable[[NDArray[Any]], T]) -> list[T]:
        """What a function of a module makes of the values of each block, where they are."""
        return self.distributed.by_block(_of_one, self._number, function)

    def whole(self) -> NDArray[Any]:
        """All values in the memory of this process."""
        found = np.empty(self.shape, self.dtype)
        for rows, values in zip(self.distributed.rows, self.by_block(np.asarray), strict=True):
            found[rows] = values
        return found

    def taken(self, rows: Rows, channels: Channels = slice(None)) -> NDArray[Any]:
        """Some rows and channels in the memory of this process."""
        distributed = self.distributed
        return taken(distributed, distributed.rows, {self._number: self}, rows, channels)[0]


Model = NDArray[np.complexfloating] | RemoteArray
"""Model visibilities of a partition; a `RemoteArray` where they are not in the memory of this process."""


def whole(array: NDArray[Any] | RemoteArray) -> NDArray[Any]:
    """An array of all rows in the memory of this process."""
    return array.whole() if isinstance(array, RemoteArray) else array


def rows_of(array: NDArray[Any] | RemoteArray, rows: Rows, channels: Channels = slice(None)) -> NDArray[Any]:
    """Some rows and channels of an array (n_row, n_chan, n_corr), in the memory of this process."""
    if isinstance(array, RemoteArray):
        return array.taken(rows, channels)
    return some_of(array, rows, channels)


def _of_one(*given: Any) -> Any:
    *arrays, number, function = given
    return function(arrays[number])


def _added(
    vis: NDArray[np.complexfloating], other: NDArray[np.complexfloating]
) -> tuple[NDArray[np.complexfloating]]:
    return (vis + other,)
