"""Visibilities and weights of a partition that lie elsewhere: each shard with the process that holds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels.engine.sharded import End, HeldData, Ranks

T = TypeVar("T")
Vis = NDArray[np.complexfloating]
Weight = NDArray[np.floating]


class Held(HeldData, Protocol):
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
    ) -> tuple[Held, list[T]]:
        """Visibilities and weights that a function makes of those of each shard, held in the same way.

        What it gives as a third is returned, by shard.
        """
        ...

    def made(
        self, function: Callable[..., tuple[Any, ...]], *arguments: object, each: Sequence[Any] | None = None
    ) -> Held:
        """Any tuple that a function makes of what is held of each shard, held in the same way."""
        ...

    def kept(self, run: Callable[[End], None]) -> Held:
        """What a computation finds for each shard, held in the same way as visibilities without weights.

        Parameters
        ----------
        run : function of an `End`
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


class Elsewhere:
    """Stands for an array that lies elsewhere: its shape and type are known, its values are not.

    Parameters
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    held : Held, optional
        What holds it by shard, where it is a model of visibilities; those of a partition are in its `held`.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], held: Held | None = None) -> None:
        self.shape, self.dtype, self.size = shape, dtype, int(np.prod(shape))
        self.nbytes, self.held = self.size * dtype.itemsize, held

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "these values are held by ranks: ask by_shard, taken or whole of the partition; hand a model to "
            "write_column or image as it is"
        )
